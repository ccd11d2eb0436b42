"""Slides of one data set in MuJoCo: a table over frictions, and friction identified from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clashsim.bench.recorded_slides import SlideSet
from clashsim.fit.base import base_model
from clashsim.fit.distil import DistilledModel

_GRAVITY = 9.81  # m/s^2
# Sliding frictions of the table, over the friction that a slide without rotation would need.
_FRICTION_FACTORS = np.geomspace(0.6, 1 / 0.6, 5)
_TORSIONAL = (1e-5, 0.005, 0.02)  # m
_DEFAULT_TORSIONAL = 1  # index of MuJoCo's default
_FINE_GRID = 61  # sliding frictions that are tried, between those of the table


class MujocoFriction(NamedTuple):
    """Sliding friction, and the index of the torsional friction in the table."""

    sliding: float
    torsional_index: int

    @property
    def torsional(self) -> float:
        """Torsional friction, m."""
        return _TORSIONAL[self.torsional_index]


@dataclass(frozen=True, eq=False)
class RestPoseProblem:
    """One data set of N slides, and what methods compute from it once."""

    data: SlideSet

    @cached_property
    def base(self) -> DistilledModel:
        """The collision model before any real data."""
        return base_model(self.data.scene)

    @cached_property
    def frictions(self) -> np.ndarray:
        """Sliding frictions of the table, (5,)."""
        data = self.data
        way = np.linalg.norm(data.rest[:, :2] - data.pose[:, :2], axis=1)
        squared_speed = (data.twist[:, :2] ** 2).sum(1)
        without_rotation = squared_speed / (2 * _GRAVITY * np.maximum(way, 1e-4))
        return _FRICTION_FACTORS * float(np.median(without_rotation))

    @cached_property
    def table(self) -> np.ndarray:
        """Displacements of all slides in MuJoCo times the sliding friction, (5, 3, N, 3).

        The product is nearly the same along the first axis, so that it is interpolated well.
        """
        data = self.data
        table = np.empty((len(self.frictions), len(_TORSIONAL), len(data), 3))
        for i, sliding in enumerate(self.frictions):
            for j, torsional in enumerate(_TORSIONAL):
                rest = data.slider.rest(data.pose, data.twist, np.array([sliding, torsional]))
                table[i, j] = sliding * (rest - data.pose)
        return table

    def tabulated_rest(self, friction: MujocoFriction) -> np.ndarray:
        """Poses at rest (N, 3) in MuJoCo, interpolated in the table."""
        last = len(self.frictions) - 1
        log_frictions = np.log(self.frictions)
        position = np.interp(np.log(friction.sliding), log_frictions, np.arange(last + 1.0))
        position = np.clip(position, 0, last - 1e-9)
        i = int(position)
        share = position % 1
        column = self.table[:, friction.torsional_index]
        product = (1 - share) * column[i] + share * column[i + 1]
        return self.data.pose + product / friction.sliding

    def errors(
        self, rest: np.ndarray, rows: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances and angles from where slides ended.

        Args:
            rest: Predicted poses at rest, (n, 3).
            rows: Of the slides; all by default.

        Returns:
            Distances (n,), m, and angles (n,), rad.
        """
        gap = rest - self.data.rest[rows]
        return np.linalg.norm(gap[:, :2], axis=1), np.abs(gap[:, 2])

    def identify_sliding(self, rows: np.ndarray) -> MujocoFriction:
        """Sliding friction that brings the slides of `rows` closest to where they ended."""
        return self._identify(rows, (_DEFAULT_TORSIONAL,), use_angle=False)

    def identify_torsional(self, rows: np.ndarray) -> MujocoFriction:
        """Both frictions that bring the slides of `rows` closest to where they ended."""
        return self._identify(rows, range(len(_TORSIONAL)), use_angle=True)

    def _identify(
        self, rows: np.ndarray, torsional: Sequence[int], *, use_angle: bool
    ) -> MujocoFriction:
        """Grid search over sliding friction and some torsional ones (indices).

        Errors are relative to how far bodies slid and turned.
        """
        moved = np.abs(self.data.rest - self.data.pose)[rows]
        mean_way = moved[:, :2].max(1).mean()
        mean_angle = moved[:, 2].mean()
        best = (np.inf, 0.0, 0)
        for sliding in np.geomspace(self.frictions[0], self.frictions[-1], _FINE_GRID):
            for index in torsional:
                friction = MujocoFriction(float(sliding), index)
                distance, angle = self.errors(self.tabulated_rest(friction))
                cost = distance[rows].mean() / mean_way
                if use_angle:
                    cost += angle[rows].mean() / mean_angle
                best = min(best, (float(cost), *friction))
        return MujocoFriction(best[1], best[2])

    def mujoco_rest_model(
        self, friction: MujocoFriction
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Slides in MuJoCo, from poses and twists (n, 3) to poses at rest (n, 3).

        The slides of the data set itself are looked up in the table.
        """

        def rest(pose: np.ndarray, twist: np.ndarray) -> np.ndarray:
            if pose is self.data.pose and twist is self.data.twist:
                return self.tabulated_rest(friction)
            values = np.array([friction.sliding, friction.torsional])
            return self.data.slider.rest(pose, twist, values)

        return rest
