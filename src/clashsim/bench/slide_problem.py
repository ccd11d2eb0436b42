"""Slides of one data set in MuJoCo: a table over frictions, and friction identified from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clashsim.bench.recorded_slides import SlideSet
from clashsim.fit.solved_model import SolvedModel

_GRAVITY = 9.81  # m/s^2
# Sliding frictions of the table, divided by the friction that would stop a body without rotation
# after the measured distance.
_FRICTION_FACTORS = np.geomspace(0.6, 1 / 0.6, 5)
_TORSIONAL = (1e-5, 0.005, 0.02)  # torsional frictions of the table, m
_DEFAULT_TORSIONAL = 1  # index of MuJoCo's default
_FINE_GRID = 61  # number of sliding frictions that a search tries, interpolated in the table
_MIN_DISTANCE = 1e-4  # m, of a slide, so that no division is by zero
_EPSILON = 1e-9  # keeps an interpolated index below the table's last one


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
    def base(self) -> SolvedModel:
        """The collision model before any real data."""
        return SolvedModel(self.data.scene)

    @cached_property
    def frictions(self) -> np.ndarray:
        """Sliding frictions of the table, (5,)."""
        data = self.data
        distance = np.linalg.norm(data.rest[:, :2] - data.pose[:, :2], axis=1)
        squared_speed = (data.twist[:, :2] ** 2).sum(1)
        without_rotation = squared_speed / (2 * _GRAVITY * np.maximum(distance, _MIN_DISTANCE))
        return _FRICTION_FACTORS * float(np.median(without_rotation))

    @cached_property
    def table(self) -> np.ndarray:
        """Displacements of all slides in MuJoCo times the sliding friction, (5, 3, N, 3).

        Axes: sliding friction, torsional friction, slide, and x, y (m), yaw (rad). Displacements
        are nearly proportional to 1 / sliding friction, so that the product varies little along the
        first axis and can be interpolated.
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
        position = np.clip(position, 0, last - _EPSILON)
        i = int(position)
        share = position % 1
        column = self.table[:, friction.torsional_index]
        product = (1 - share) * column[i] + share * column[i + 1]
        return self.data.pose + product / friction.sliding

    def errors(
        self, rest: np.ndarray, rows: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances and angles between predicted and measured poses at rest.

        Args:
            rest: Predicted poses at rest, (n, 3).
            rows: Slides that were predicted; all by default.

        Returns:
            Distances (n,), m, and angles (n,), rad.
        """
        gap = rest - self.data.rest[rows]
        return np.linalg.norm(gap[:, :2], axis=1), np.abs(gap[:, 2])

    def identify_sliding(self, rows: np.ndarray) -> MujocoFriction:
        """Sliding friction with the least position error at rest on the slides of `rows`."""
        return self._identify(rows, (_DEFAULT_TORSIONAL,), use_angle=False)

    def identify_torsional(self, rows: np.ndarray) -> MujocoFriction:
        """Sliding and torsional friction with the least pose error at rest on those of `rows`."""
        return self._identify(rows, range(len(_TORSIONAL)), use_angle=True)

    def _identify(
        self, rows: np.ndarray, torsional: Sequence[int], *, use_angle: bool
    ) -> MujocoFriction:
        """Grid search over sliding frictions and the torsional ones of some indices.

        The cost is the mean distance divided by how far bodies slid, plus, with `use_angle`, the
        mean angle divided by how far they turned.
        """
        moved = np.abs(self.data.rest - self.data.pose)[rows]
        mean_moved = moved[:, :2].max(1).mean()
        mean_rotation = moved[:, 2].mean()
        best = (np.inf, 0.0, 0)  # cost, sliding friction, index of the torsional friction
        for sliding in np.geomspace(self.frictions[0], self.frictions[-1], _FINE_GRID):
            for index in torsional:
                friction = MujocoFriction(float(sliding), index)
                distance, angle = self.errors(self.tabulated_rest(friction))
                cost = distance[rows].mean() / mean_moved
                if use_angle:
                    cost += angle[rows].mean() / mean_rotation
                best = min(best, (float(cost), *friction))
        _, best_sliding, best_index = best
        return MujocoFriction(best_sliding, best_index)

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
