"""Trials: recorded motion of named bodies, from motion capture, a laboratory or a simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, overload

import numpy as np

from clashsim.core.errors import DataError, did_you_mean

Source = Literal["real", "lab", "simulated"]
SOURCES: tuple[Source, ...] = ("real", "lab", "simulated")


@dataclass(frozen=True, eq=False)
class Trial:
    """One recording of moving bodies. SI units, radians, z up, quaternions wxyz.

    Attributes:
        name: Name of the trial.
        t: (T,), s, times, increasing.
        poses: Poses (T, 7), x y z qw qx qy qz in world axes, by the name of the body; NaN in rows
            at which the body was not seen (a drop-out, or a logger with another clock).
        source: Where the recording comes from.
        signals: Other logged quantities, (T,) or (T, c) each, by name. Coordinates of joints (rad
            or m) are among them, by the name of the joint.
        known: Parameters measured once for the whole trial, by name.
    """

    name: str
    t: np.ndarray
    poses: Mapping[str, np.ndarray]
    source: Source = "real"
    signals: Mapping[str, np.ndarray] = field(default_factory=dict)
    known: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.t)
        if self.t.shape != (n,) or n < 2:
            raise DataError(
                f"trial {self.name!r} needs at least two times in one row, got shape {self.t.shape}"
            )
        if not (np.isfinite(self.t).all() and (np.diff(self.t) > 0).all()):
            raise DataError(f"trial {self.name!r} needs finite times that rise from row to row")
        if not self.poses and not self.signals:
            raise DataError(f"trial {self.name!r} has neither a body nor joints")
        for body, pose in self.poses.items():
            if pose.shape != (n, 7):
                raise DataError(
                    f"trial {self.name!r}: poses of {body!r} need shape ({n}, 7), got {pose.shape}"
                )
        for signal, values in self.signals.items():
            if len(values) != n:
                raise DataError(
                    f"trial {self.name!r}: signal {signal!r} needs {n} rows, got {len(values)}"
                )
        if self.source not in SOURCES:
            raise DataError(
                f"trial {self.name!r} has source {self.source!r}; choices: {', '.join(SOURCES)}"
            )

    def seen(self, body: str) -> tuple[np.ndarray, np.ndarray]:
        """Select the rows at which a body was seen.

        Args:
            body: Name of the body.

        Returns:
            Times (S,), s, and poses (S, 7).
        """
        if body not in self.poses:
            raise DataError(
                f"trial {self.name!r} has no body {body!r}; {did_you_mean(body, self.poses)}"
            )
        pose = self.poses[body]
        rows = np.isfinite(pose).all(1)
        return self.t[rows], pose[rows]


@dataclass(frozen=True, eq=False)
class Trials(Sequence[Trial]):
    """An immutable sequence of trials with different names.

    Attributes:
        items: The trials.
        notes: Remarks, one sentence each, from the import of the trials.
    """

    items: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = set[str]()
        for trial in self.items:
            if trial.name in names:
                raise DataError(f"two trials are both called {trial.name!r}")
            names.add(trial.name)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.items)

    @overload
    def __getitem__(self, rows: int) -> Trial: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | np.ndarray) -> Trials: ...
    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> Trial | Trials:
        if isinstance(rows, int | np.integer):
            return self.items[rows]
        if isinstance(rows, slice):
            return replace(self, items=self.items[rows])
        return replace(self, items=tuple(self.items[int(i)] for i in rows))

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of all bodies, in the order in which they first appear."""
        names: dict[str, None] = {}
        for trial in self.items:
            names.update(dict.fromkeys(trial.poses))
        return tuple(names)

    def split(self, seed: int, *, fit: int) -> tuple[Trials, Trials]:
        """Split the trials at random.

        Args:
            seed: Seed of the random choice.
            fit: Number of trials to use for fitting.

        Returns:
            The trials to fit and those held out, each in recorded order.
        """
        if not 0 < fit <= len(self):
            raise DataError(f"cannot take {fit} of {len(self)} trials to fit")
        order = np.random.default_rng(seed).permutation(len(self))
        return self[np.sort(order[:fit])], self[np.sort(order[fit:])]


def quaternion(yaw: np.ndarray) -> np.ndarray:
    """Convert rotations about z (N,), rad, to quaternions wxyz (N, 4)."""
    half = 0.5 * np.asarray(yaw, dtype=float)
    zero = np.zeros_like(half)
    return np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)


def yaw(quaternions: np.ndarray) -> np.ndarray:
    """Convert quaternions wxyz (N, 4) to rotations about z (N,), rad, unwrapped along the rows."""
    w, x, y, z = np.moveaxis(np.asarray(quaternions, dtype=float), -1, 0)
    return np.unwrap(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
