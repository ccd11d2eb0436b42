"""Slides: what a struck body does on the ground after the pair has parted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.errors import DataError

_FEWEST_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Slide:
    """One recorded slide after the pair has parted.

    Attributes:
        t: Times (T,), s.
        xy: Positions (T, 2) of the body's origin in the plane, m.
        yaw: Yaw angles (T,), rad.
    """

    t: np.ndarray
    xy: np.ndarray
    yaw: np.ndarray

    def checked(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Check that a law can be fitted to the slide.

        Args:
            i: Number of the slide, for messages.

        Returns:
            Times (T,), and poses (T, 3) with the yaw unwrapped.
        """
        t = np.asarray(self.t, float)
        if len(t) < _FEWEST_FRAMES or not (np.diff(t) > 0).all():
            raise DataError(
                f"slide {i} needs at least {_FEWEST_FRAMES} frames with increasing time stamps"
            )
        pose = np.column_stack([self.xy, np.unwrap(self.yaw)])
        if not np.isfinite(pose).all():
            raise DataError(f"slide {i} holds NaN or infinite values")
        return t, pose
