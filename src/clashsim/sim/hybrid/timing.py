"""When inside a step two bodies touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.sim.hybrid.compiled_pair import TOUCH_DISTANCE, CompiledPair
from clashsim.sim.hybrid.contact_probe import ContactProbe
from clashsim.sim.hybrid.coordinates import Coordinates
from clashsim.sim.hybrid.simulation_rows import SimulationRows

_MAX_ITERATIONS = 30  # of the search for the instant of touch
_FOUND_GAP = 0.2 * TOUCH_DISTANCE  # m: a gap this small ends the search
_MIN_APPROACH = 1e-12  # m per step: keeps a division by it defined


@dataclass(frozen=True, eq=False)
class StepStart:
    """States of a simulations at the beginning of a step.

    Attributes:
        qpos: (a, nq).
        qvel: (a, nv).
        act: (a, na).
        time: (a,), s.
        duration: (a,), s, of the step.
    """

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    time: np.ndarray
    duration: np.ndarray

    def __getitem__(self, which: np.ndarray | slice) -> StepStart:
        return StepStart(
            self.qpos[which],
            self.qvel[which],
            self.act[which],
            self.time[which],
            self.duration[which],
        )

    @staticmethod
    def joined(parts: Sequence[StepStart]) -> StepStart:
        """Those of several steps, one after the other."""
        return StepStart(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("qpos", "qvel", "act", "time", "duration")
            )
        )


@dataclass(frozen=True, eq=False)
class StepPaths:
    """How m simulations moved in a step: at constant velocity, as MuJoCo's integrators move.

    Attributes:
        start: Where they were at its beginning.
        qvel_after: (m, nv), at its end.
        change: (m, nv), constant velocity that leads from the first to the last qpos, times the
            duration.
        coordinates: Arithmetic of the model's qpos.
    """

    start: StepStart
    qvel_after: np.ndarray
    change: np.ndarray
    coordinates: Coordinates

    @staticmethod
    def of(
        start: StepStart, qpos_after: np.ndarray, qvel_after: np.ndarray, coordinates: Coordinates
    ) -> StepPaths:
        """How simulations came to positions (m, nq) and velocities (m, nv) in a step."""
        change = coordinates.velocity(start.qpos, qpos_after, np.ones(len(qpos_after)))
        return StepPaths(start, qvel_after, change, coordinates)

    def __getitem__(self, which: np.ndarray) -> StepPaths:
        return StepPaths(
            self.start[which], self.qvel_after[which], self.change[which], self.coordinates
        )

    def qpos_at(self, fraction: np.ndarray) -> np.ndarray:
        """Positions (m, nq) after fractions (m,) of the step."""
        return self.coordinates.moved(self.start.qpos, fraction[:, None] * self.change)

    def qvel_at(self, fraction: np.ndarray) -> np.ndarray:
        """Velocities (m, nv) after fractions (m,) of the step, between those at its ends."""
        return self.start.qvel + fraction[:, None] * (self.qvel_after - self.start.qvel)

    def rewind(self, sims: SimulationRows, rows: np.ndarray, fraction: np.ndarray) -> None:
        """Take simulations `rows` (m,) back to fractions (m,) of the step."""
        sims.qpos[rows] = self.qpos_at(fraction)
        sims.qvel[rows] = self.qvel_at(fraction)
        act = self.start.act
        sims.act[rows] = act + fraction[:, None] * (sims.act[rows] - act)
        sims.time[rows] = self.start.time + fraction * self.start.duration


def touch_fractions(
    paths: StepPaths, probe: ContactProbe, rows: np.ndarray, pair: CompiledPair
) -> np.ndarray:
    """Find the fractions of a step after which a pair touches.

    Args:
        paths: How m simulations moved in the step.
        probe: Its simulations `rows` are moved.
        rows: (m,), indices of the simulations.
        pair: The pair.

    Returns:
        (m,), NaN where the pair does not quite touch, 0 where it touched all along. A pair that
        began the step closer than `TOUCH_DISTANCE`, but not yet overlapping, touched a few
        microseconds before the step: its fraction is below zero.
    """

    def gap(which: np.ndarray, fraction: np.ndarray) -> np.ndarray:
        """Distances (m) that pairs `which` lack to touching after fractions of the step."""
        probe.put(rows[which], paths[which].qpos_at(fraction))
        return pair.nearest_points(probe, rows[which])[0] - TOUCH_DISTANCE

    every = np.arange(len(rows))
    before = np.zeros(len(rows))
    after = np.ones(len(rows))
    gap_before = gap(every, before)
    gap_after = gap(every, after)
    result = np.full(len(rows), np.nan)
    # Fraction of a step by which a pair was surely apart, had it approached as in this one.
    step_back = 2 * TOUCH_DISTANCE / np.maximum(gap_before - gap_after, _MIN_APPROACH)
    began_close = gap_before <= 0
    overlapping = began_close & ((gap_before < -TOUCH_DISTANCE) | (step_back > 1))
    result[overlapping] = 0.0
    back = np.flatnonzero(began_close & ~overlapping)
    if len(back):
        before[back] = -step_back[back]
        after[back] = 0.0
        gap_after[back] = gap_before[back]
        gap_before[back] = gap(back, before[back])
        result[back[gap_before[back] <= 0]] = 0.0
    left = np.flatnonzero((gap_before > 0) & (gap_after <= 0))
    # Regula falsi. Halving the value at the end that stays (the Illinois rule) keeps the search
    # from approaching the root in ever smaller steps from one side.
    for _ in range(_MAX_ITERATIONS):
        if len(left) == 0:
            break
        low, high = gap_before[left], gap_after[left]
        fraction = (before[left] * high - after[left] * low) / (high - low)
        result[left] = fraction
        gap_now = gap(left, fraction)
        above = gap_now > 0
        ahead, behind = left[above], left[~above]
        before[ahead], gap_before[ahead] = fraction[above], gap_now[above]
        gap_after[ahead] /= 2
        after[behind], gap_after[behind] = fraction[~above], gap_now[~above]
        gap_before[behind] /= 2
        left = left[np.abs(gap_now) >= _FOUND_GAP]
    return result
