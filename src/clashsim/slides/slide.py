"""Slides: the motion of a struck body on the ground after striker and body have separated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.errors import DataError

_MIN_SAMPLES = 8


@dataclass(frozen=True, eq=False)
class Slide:
    """One recorded slide, from after the separation of striker and struck body.

    Attributes:
        t: Times (T,), s, increasing.
        xy: Positions (T, 2) of the body's origin in the plane, m.
        yaw: Yaw angles (T,), rad.
    """

    t: np.ndarray
    xy: np.ndarray
    yaw: np.ndarray

    def checked(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Check that a slide model can be fitted to the slide; raise `DataError` if not.

        Args:
            i: Number of the slide, for messages.

        Returns:
            Times (T,), s, and poses x, y, yaw (T, 3) with the yaw unwrapped.
        """
        t = np.asarray(self.t, float)
        if len(t) < _MIN_SAMPLES or not (np.diff(t) > 0).all():
            raise DataError(
                f"slide {i} needs at least {_MIN_SAMPLES} frames with increasing time stamps"
            )
        pose = np.column_stack([self.xy, np.unwrap(self.yaw)])
        if not np.isfinite(pose).all():
            raise DataError(f"slide {i} holds NaN or infinite values")
        return t, pose
