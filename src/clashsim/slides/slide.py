"""Slides: what a struck body does on the ground after the pair has parted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.errors import DataError


@dataclass(frozen=True, eq=False)
class Slide:
    """One slide after parting: t (T,) s, xy (T, 2) m, yaw (T,) rad."""

    t: np.ndarray
    xy: np.ndarray
    yaw: np.ndarray

    def checked(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Times (T,) and poses (T, 3) with the yaw unwrapped, after refusing what no law can be
        fitted to; `i` names the slide in messages.
        """
        t = np.asarray(self.t, float)
        if len(t) < 8 or not (np.diff(t) > 0).all():
            raise DataError(f"slide {i} needs at least 8 frames with increasing time stamps")
        pose = np.column_stack([self.xy, np.unwrap(self.yaw)])
        if not np.isfinite(pose).all():
            raise DataError(f"slide {i} holds NaN or infinite values")
        return t, pose
