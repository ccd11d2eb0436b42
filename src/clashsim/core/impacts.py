"""Impacts: the motion of two bodies just before they touch, and of the struck body just after they
part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from clashsim.core.errors import DataError, did_you_mean

_POSE2, _TWIST2 = ("x", "y", "yaw"), ("vx", "vy", "w")
_POSE3, _TWIST3 = ("x", "y", "z", "qw", "qx", "qy", "qz"), ("vx", "vy", "vz", "wx", "wy", "wz")


def before_columns(planar: bool) -> tuple[str, ...]:
    """Names of the columns of `before`: pose and twist of the struck body, then of the striker."""
    pose, twist = (_POSE2, _TWIST2) if planar else (_POSE3, _TWIST3)
    return (*pose, *twist, *(f"striker_{c}" for c in pose), *(f"striker_{c}" for c in twist))


def after_columns(planar: bool) -> tuple[str, ...]:
    """Names of the columns of `after`: the twist of the struck body."""
    return tuple(f"{c}_after" for c in (_TWIST2 if planar else _TWIST3))


@dataclass(frozen=True, eq=False)
class Impacts:
    """N impacts. SI units, radians; world axes, in planar scenes the axes of the plane; twists are
    of the bodies' origins.

    before (N, 12) planar or (N, 26) in space, columns as `before_columns(planar)`; after (N, 3) or (N, 6):
    twist of the struck body when
    the pair has parted. theta (N, p): parameters of simulated impacts, None for real ones. known:
    parameters of the scene that were measured with each impact, by name, (N,) each. ends: how many
    simulated impacts ended in which way, those left out included.
    """

    planar: bool
    before: np.ndarray
    after: np.ndarray
    theta: np.ndarray | None = None
    known: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = "real"
    end_counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        d, k = len(before_columns(self.planar)), len(after_columns(self.planar))
        n = len(self.before)
        if self.before.shape != (n, d) or self.after.shape != (n, k):
            raise DataError(
                f"impacts need before (N, {d}) and after (N, {k}), got {self.before.shape} and {self.after.shape}"
            )
        for name, values in self.known.items():
            if np.shape(values) != (n,):
                raise DataError(
                    f"known parameter {name!r} needs one value per impact ({n}), got shape {np.shape(values)}"
                )

    def __len__(self) -> int:
        return len(self.before)

    def __getitem__(self, rows: np.ndarray | slice | Sequence[int]) -> Impacts:
        pick = rows if isinstance(rows, slice) else np.asarray(rows)
        return replace(
            self,
            before=self.before[pick],
            after=self.after[pick],
            theta=None if self.theta is None else self.theta[pick],
            known={k: v[pick] for k, v in self.known.items()},
        )

    @cached_property
    def twist(self) -> np.ndarray:
        """Twist of the struck body before, (N, 3) or (N, 6)."""
        return self._part(3, 6) if self.planar else self._part(7, 13)

    @cached_property
    def striker_twist(self) -> np.ndarray:
        """Twist of the striker before, (N, 3) or (N, 6)."""
        return self._part(9, 12) if self.planar else self._part(20, 26)

    @cached_property
    def pose(self) -> np.ndarray:
        """Pose of the struck body, (N, 3) or (N, 7)."""
        return self._part(0, 3) if self.planar else self._part(0, 7)

    @cached_property
    def striker_pose(self) -> np.ndarray:
        """Pose of the striker, (N, 3) or (N, 7)."""
        return self._part(6, 9) if self.planar else self._part(13, 20)

    def _part(self, a: int, b: int) -> np.ndarray:
        return self.before[:, a:b]

    def checked(self) -> Impacts:
        """Self, after refusing what would give a silently wrong calibration: NaN, nothing moving,
        one impact repeated.
        """
        if len(self) == 0:
            raise DataError("there are no impacts in the data")
        bad = ~(np.isfinite(self.before).all(1) & np.isfinite(self.after).all(1))
        bad |= ~np.isfinite(
            np.array(list(self.known.values()), float).reshape(len(self.known), len(self))
        ).all(0)
        if bad.any():
            raise DataError(f"impacts {_rows(bad)} hold NaN or infinite values")
        still = (np.abs(self.twist).max(1) == 0) & (np.abs(self.striker_twist).max(1) == 0)
        if still.any():
            raise DataError(
                f"in impacts {_rows(still)} nothing moves before contact (all velocities are zero)"
            )
        unchanged = np.abs(self.after - self.twist).max(1) == 0
        if unchanged.any():
            raise DataError(
                f"in impacts {_rows(unchanged)} the struck body's velocity does not change, so nothing was hit"
            )
        if len(self) > 1 and np.ptp(np.hstack([self.before, self.after]), axis=0).max() == 0:
            raise DataError(
                f"all {len(self)} impacts are identical: record strikes that differ in point, direction or speed"
            )
        speed = np.abs(
            np.hstack(
                [
                    self._linear(self.twist),
                    self._linear(self.striker_twist),
                    self._linear(self.after),
                ]
            )
        ).max()
        if speed > 100:
            raise DataError(
                f"the fastest impact has {speed:.0f} m/s: velocities must be in m/s (are they in mm/s?)"
            )
        return self

    def _linear(self, twist: np.ndarray) -> np.ndarray:
        return twist[:, : (2 if self.planar else 3)]


def from_columns(table: Mapping[str, np.ndarray], *, known: Sequence[str] = ()) -> Impacts:
    """Impacts from named columns; columns of a striker that does not move, and zero twists before,
    may be left out.
    """
    planar = "vz_after" not in table
    n = len(next(iter(table.values()))) if table else 0
    needed = after_columns(planar)
    absent = [c for c in needed if c not in table]
    if absent:
        raise DataError(f"impacts lack the column {absent[0]!r}; {did_you_mean(absent[0], table)}")
    names = before_columns(planar)
    unknown = [c for c in table if c not in names and c not in needed and c not in known]
    if unknown:
        raise DataError(
            f"impacts have an unknown column {unknown[0]!r}; {did_you_mean(unknown[0], [*names, *needed, *known])}"
        )
    moving = [c for c in names if c in table and c.removeprefix("striker_") in (*_TWIST2, *_TWIST3)]
    if not moving:
        raise DataError(
            "impacts lack velocities before contact: give vx, vy, w of the struck body or striker_vx, striker_vy, striker_w"
        )
    default = {"qw": 1.0, "striker_qw": 1.0}
    before = np.column_stack(
        [np.asarray(table.get(c, np.full(n, default.get(c, 0.0))), float) for c in names]
    )
    after = np.column_stack([np.asarray(table[c], float) for c in needed])
    return Impacts(
        planar, before, after, known={k: np.asarray(table[k], float) for k in known if k in table}
    )


def to_columns(impacts: Impacts) -> dict[str, np.ndarray]:
    """Inverse of `from_columns`."""
    table = dict(zip(before_columns(impacts.planar), impacts.before.T, strict=True))
    table.update(zip(after_columns(impacts.planar), impacts.after.T, strict=True))
    return table | dict(impacts.known)


def _rows(mask: np.ndarray) -> str:
    rows = np.flatnonzero(mask)
    return ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
