"""When inside a step two bodies touch, and how long the steps after a collision are."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.sim.hybrid.compiled_pair import TOUCH_DISTANCE, CompiledPair
from clashsim.sim.hybrid.simulation_rows import SimulationRows

_MAX_ITERATIONS = 30  # of the search for the instant of touch
_FOUND_GAP = 0.2 * TOUCH_DISTANCE  # m: a gap this small ends the search
_MIN_APPROACH = 1e-12  # m per step: keeps a division by it defined
_GROWTH = 0.1  # longest step after a collision, as a share of the time since that collision
_ROUNDING = 1e-6  # a step count this little above a whole number is that number


@dataclass(frozen=True, eq=False)
class StepPath:
    """How one simulation moved in a step: at constant velocity, as MuJoCo's integrators move.

    Attributes:
        model: Of the simulation.
        qpos: (nq,), at the beginning of the step.
        qvel: (nv,), at the beginning of the step.
        mean_velocity: (nv,), constant velocity that leads from the step's first to its last qpos.
        duration: s, of the step.
    """

    model: mujoco.MjModel
    qpos: np.ndarray
    qvel: np.ndarray
    mean_velocity: np.ndarray
    duration: float

    def move_to(self, qpos: np.ndarray, fraction: float) -> None:
        """Write the position after a fraction of the step into qpos (nq,)."""
        qpos[:] = self.qpos
        mujoco.mj_integratePos(self.model, qpos, self.mean_velocity, fraction * self.duration)

    def qvel_at(self, fraction: float, qvel_after: np.ndarray) -> np.ndarray:
        """Velocity (nv,) after a fraction of the step, between those at its ends."""
        return self.qvel + fraction * (qvel_after - self.qvel)


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

    def __getitem__(self, which: np.ndarray) -> StepStart:
        return StepStart(
            self.qpos[which],
            self.qvel[which],
            self.act[which],
            self.time[which],
            self.duration[which],
        )

    def path(self, model: mujoco.MjModel, i: int, qpos_after: np.ndarray) -> StepPath:
        """How simulation i came to the position qpos_after (nq,) in this step."""
        duration = float(self.duration[i])
        velocity = np.zeros(model.nv)
        mujoco.mj_differentiatePos(
            model, velocity, duration, self.qpos[i], np.ascontiguousarray(qpos_after)
        )
        return StepPath(model, self.qpos[i], self.qvel[i], velocity, duration)

    def rewind(self, sims: SimulationRows, row: int, i: int, *, fraction: float) -> None:
        """Take simulation i, which is `row` of the simulations, back to a fraction of the step."""
        path = self.path(sims.model(row), i, sims.qpos[row])
        qpos = np.empty_like(self.qpos[i])
        path.move_to(qpos, fraction)
        sims.qpos[row] = qpos
        sims.qvel[row] = path.qvel_at(fraction, sims.qvel[row])
        sims.act[row] = self.act[i] + fraction * (sims.act[row] - self.act[i])
        sims.time[row] = self.time[i] + fraction * path.duration


def touch_fraction(path: StepPath, data: mujoco.MjData, pair: CompiledPair) -> float | None:
    """Find the fraction of a step after which a pair touches.

    Args:
        path: How the simulation moved in the step.
        data: Scratch space, overwritten.
        pair: The pair.

    Returns:
        None where the pair does not quite touch, 0 where it touched all along. A pair that began
        the step closer than `TOUCH_DISTANCE`, but not yet overlapping, touched a few microseconds
        before the step: its fraction is below zero.
    """

    def gap(fraction: float) -> float:
        """Distance (m) that the pair lacks to touching after a fraction of the step."""
        path.move_to(data.qpos, fraction)
        mujoco.mj_kinematics(path.model, data)
        return pair.distance(path.model, data) - TOUCH_DISTANCE

    before, after = 0.0, 1.0
    gap_before, gap_after = gap(before), gap(after)
    if gap_before <= 0:
        # Fraction of a step by which the pair was surely apart, had it approached as in this one.
        step_back = 2 * TOUCH_DISTANCE / max(gap_before - gap_after, _MIN_APPROACH)
        if gap_before < -TOUCH_DISTANCE or step_back > 1:
            return 0.0
        before, after = -step_back, 0.0
        gap_before, gap_after = gap(before), gap_before
        if gap_before <= 0:
            return 0.0
    elif gap_after > 0:
        return None
    # Regula falsi. Halving the value at the end that stays (the Illinois rule) keeps the search
    # from approaching the root in ever smaller steps from one side.
    fraction = 1.0
    for _ in range(_MAX_ITERATIONS):
        fraction = (before * gap_after - after * gap_before) / (gap_after - gap_before)
        gap_now = gap(fraction)
        if abs(gap_now) < _FOUND_GAP:
            break
        if gap_now > 0:
            before, gap_before = fraction, gap_now
            gap_after /= 2
        else:
            after, gap_after = fraction, gap_now
            gap_before /= 2
    return fraction


def step_durations(
    remaining: np.ndarray, since_collision: np.ndarray, fine_timestep: float
) -> np.ndarray:
    """Durations (n,) of the next steps: short after a collision, growing with time.

    A sudden change of twist shakes soft ground for a few milliseconds. Steps that begin short and
    grow follow that and cost little.

    Args:
        remaining: (n,), s, until the end of the simulator's timestep.
        since_collision: (n,), s, since the last collision, zero for none.
        fine_timestep: s, the first steps after a collision are no longer than this.
    """
    allowed = np.maximum(fine_timestep, _GROWTH * since_collision)
    duration = np.where(since_collision > 0, np.minimum(remaining, allowed), remaining)
    count = np.ceil(remaining / duration - _ROUNDING)  # equal steps that fill what remains
    return remaining / count
