"""How long the steps of a strike may be, of MuJoCo as the strongest rival and of `HybridSim`.

A user who knows MuJoCo does not step a whole slide as finely as its collision needs. The lengths of
the steps are not chosen by hand: of many schedules the one with the fewest steps is taken whose
poses at rest are, at the median, within a tolerance of those of the scene's own steps throughout.
The hybrid simulator's steps are chosen by the same rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.mobility import bounding_radius
from clashsim.sim.stepped_strikes import SteppedStrikes, planar_pose

# m: how far poses at rest may be, at the median, from those of short steps throughout.
TOLERANCE = 1e-3
_RUN_UP_STEPS = 2  # the striker moves freely and the body lies still
_STEPS_BEFORE_HIT = 3  # short ones
_STILL_SPEED = 0.01  # m/s: friction stops a body that slides slower within some micrometres
_CHECK_PERIOD = 0.02  # s: bodies that lie still are no longer stepped from the next check on
_ROUNDING = 1e-9
TRIED_STRIKES = 128
_CHOICE_SEED = 11
# What schedules are made of: factors of the scene's step, and seconds.
_FINE_FACTORS = (1.0, 2.0)
_FINE_SECONDS = (0.004, 0.008, 0.015, 0.03)
_GROWTHS = (2.0, 4.0, np.inf)
_LONGEST = (0.001, 0.002, 0.003, 0.004, 0.005, 0.01)
# The same for the hybrid simulator, s, s, and shares of the time since the collision.
_TIMESTEPS = (0.005, 0.01, 0.02)
_FIRST_STEPS = (0.0002, 0.001, 0.002)
_HYBRID_GROWTHS = (0.1, 0.2, 0.3, 0.5)

Steps = TypeVar("Steps")


@dataclass(frozen=True)
class StepSchedule:
    """Lengths of the steps after a hit.

    Attributes:
        fine: s, of the steps around the hit.
        fine_seconds: s after the hit in which steps are fine.
        growth: Steps grow by this factor whenever the time since the hit has doubled; infinite:
            they are the longest at once.
        longest: s, of the steps in the slide.
    """

    fine: float
    fine_seconds: float
    growth: float
    longest: float

    def stages(self) -> Iterator[tuple[float, float]]:
        """Ends (s after the hit) of stages and the lengths (s) of their steps, without the last."""
        end = self.fine_seconds
        step = self.fine
        yield end, step
        step *= self.growth
        while step < self.longest:
            end *= 2
            yield end, step
            step *= self.growth

    def __str__(self) -> str:
        growth = "at once" if np.isinf(self.growth) else f"by {self.growth:g} per doubled time"
        return (
            f"{1e3 * self.fine:g} ms for {1e3 * self.fine_seconds:g} ms after the hit, "
            f"growing {growth} to {1e3 * self.longest:g} ms"
        )


class ScheduledMujoco:
    """A `StrikeModel` of MuJoCo alone, with steps by a schedule, on all cores.

    A stage of steps is one call of `mujoco.batch`, and bodies that lie still are left out of the
    later ones.

    Attributes:
        schedule: Lengths of the steps.
        steps: Steps of simulations so far: the cost, whatever else the machine does.
    """

    takes_noise = False

    def __init__(self, fine: SteppedStrikes, schedule: StepSchedule, *, threads: int = 0) -> None:
        """Prepare to step.

        Args:
            fine: The same strikes by MuJoCo with the scene's own steps.
            schedule: Lengths of the steps.
            threads: Of MuJoCo, 0 for all cores.
        """
        self.names = fine.names
        self.low = fine.low
        self.high = fine.high
        self.schedule = schedule
        self.steps = 0
        self._fine = fine
        self._threads = threads
        self._model: mujoco.MjModel = fine.simulator.model  # type: ignore[attr-defined]
        body = fine.scene.struck_body
        self._velocity_entries = body.qvel
        self._radius = bounding_radius(self._model, body.body)
        self._batch: batch.Batch | None = None

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Poses at rest (N, 3); see `SteppedStrikes.rest`."""
        n = len(strike)
        start, velocity = self._fine.starts(pose, strike)
        sims = self._simulations(n)
        sims.reset(stage=0)
        nq, nv = self._model.nq, self._model.nv
        sims.bind("qpos")[:] = start[:, :nq]
        sims.bind("qvel")[:] = start[:, nq : nq + nv]
        sims.bind("act")[:] = start[:, nq + nv :]
        control = sims.bind("ctrl")
        control[:] = velocity
        hit, retreat = self._fine.hit_and_retreat(velocity)
        # At what time in a step the bodies meet moves poses at rest by millimetres, so that fine
        # steps begin at a multiple of their length, as if all steps were fine.
        fine = self.schedule.fine
        hit_step = np.floor(hit / fine + _ROUNDING)
        hit = fine * hit_step
        run_up_steps = np.maximum(hit_step - _STEPS_BEFORE_HIT, 0)
        self._advance(sims, fine * run_up_steps, steps=_RUN_UP_STEPS)
        self._advance(sims, fine * (hit_step - run_up_steps), steps=_STEPS_BEFORE_HIT)
        now = 0.0  # s since the step with the hit began
        drawn_back = np.zeros(n, bool)
        for end, step in self.schedule.stages():
            # Strikers draw back between two stages: at the end of the one they should do so in.
            self._advance(sims, np.full(n, end - now), longest=step)
            now = end
            drawn_back = self._draw_back(control, velocity, retreat - hit <= now, drawn_back)
        left = np.maximum(retreat - hit - now, 0.0)
        if left.max() > 0:
            self._advance(sims, left, longest=self.schedule.longest)
        since_hit = now + left
        self._draw_back(control, velocity, np.ones(n, bool), drawn_back)
        return self._slide(sims, self._fine.seconds - hit - since_hit)

    def _slide(self, sims: batch.Batch, left: np.ndarray) -> np.ndarray:
        """Step the rest (N,), s, of the simulations; poses (N, 3) when bodies lie still."""
        active = np.arange(sims.nsim)
        steps = max(1, round(_CHECK_PERIOD / self.schedule.longest))
        duration = steps * self.schedule.longest
        sims.expand("opt.timestep")[:] = self.schedule.longest
        for _ in range(int(np.ceil(left.max() / duration - _ROUNDING))):
            active = active[~self._lies_still(sims, active)]
            if len(active) == 0:
                break
            sims.step(ids=active, nstep=steps)
            self.steps += steps * len(active)
        return planar_pose(self._fine.scene, sims.bind("qpos"))

    def _lies_still(self, sims: batch.Batch, active: np.ndarray) -> np.ndarray:
        velocity = sims.bind("qvel")[active][:, self._velocity_entries]
        speed = np.linalg.norm(velocity[:, :3], axis=1)
        speed += self._radius * np.linalg.norm(velocity[:, 3:], axis=1)
        return np.asarray(speed < _STILL_SPEED)

    def _advance(
        self,
        sims: batch.Batch,
        duration: np.ndarray,
        *,
        steps: int = 0,
        longest: float | None = None,
    ) -> None:
        """Step all simulations by durations (N,), s, in equal steps, none longer than `longest`."""
        if longest is not None:
            steps = max(1, int(np.ceil(duration.max() / longest - _ROUNDING)))
        # Of a simulation that has no time left steps are as good as none.
        sims.expand("opt.timestep")[:] = np.maximum(duration / steps, _ROUNDING)
        sims.step(nstep=steps)
        self.steps += steps * sims.nsim

    @staticmethod
    def _draw_back(
        control: np.ndarray, velocity: np.ndarray, due: np.ndarray, done: np.ndarray
    ) -> np.ndarray:
        new = due & ~done
        control[new] = -velocity[new]
        return done | new

    def _simulations(self, n: int) -> batch.Batch:
        """A batch of n simulations; only the last one is kept, because they are large."""
        if self._batch is None or self._batch.nsim != n:
            self._batch = batch.Batch(self._model, n, nthread=self._threads)
        return self._batch


@dataclass(frozen=True)
class HybridSteps:
    """Lengths of the steps of a hybrid simulator whose slides are MuJoCo's.

    Attributes:
        timestep: s, in the slide.
        first: s, of the first step after a collision.
        growth: Longest step after a collision, as a share of the time since.
    """

    timestep: float
    first: float
    growth: float

    def __str__(self) -> str:
        return (
            f"{1e3 * self.first:g} ms after the hit, growing by {self.growth:g} of the time since "
            f"to {1e3 * self.timestep:g} ms"
        )


class CountedStrikes(Protocol):
    """Strikes that count the steps of their simulations."""

    @property
    def steps(self) -> int:
        """Steps so far."""

    def rest(self, pose: np.ndarray, strike: np.ndarray) -> np.ndarray:
        """Poses at rest (N, 3); see `StrikeModel.rest`."""


class Chosen(NamedTuple, Generic[Steps]):
    """Steps that were chosen, and what choosing them showed.

    Attributes:
        steps: The choice.
        off: m, distance of poses at rest from those of short steps, at the median.
        off_p90: m, the same at the 90th percentile.
        per_strike: Steps of a simulation per strike.
    """

    steps: Steps
    off: float
    off_p90: float
    per_strike: float


def fastest_within(
    candidates: Iterable[Steps],
    strikes_with: Callable[[Steps], CountedStrikes],
    fine: SteppedStrikes,
    *,
    tolerance: float = TOLERANCE,
    strikes: int = TRIED_STRIKES,
    seed: int = _CHOICE_SEED,
) -> Chosen[Steps]:
    """Find the steps that are fewest, of those whose poses at rest agree with those of short steps.

    Steps are counted and not timed, so that the choice is the same on every machine.

    Args:
        candidates: To choose from; the first one is taken where none agrees.
        strikes_with: Makes a model of the strikes with such steps.
        fine: The same strikes with short steps throughout.
        tolerance: m, largest distance at the median.
        strikes: Number of strikes that are tried.
        seed: Of these strikes; take others to measure with.
    """
    rng = np.random.default_rng(seed)
    tried = rng.uniform(fine.low, fine.high, (strikes, len(fine.names)))
    pose = np.zeros((strikes, 3))
    reference = fine.rest(pose, tried)
    best: Chosen[Steps] | None = None
    for candidate in candidates:
        model = strikes_with(candidate)
        distance = np.linalg.norm((model.rest(pose, tried) - reference)[:, :2], axis=1)
        per_strike = model.steps / strikes
        off = float(np.median(distance))
        if best is None or (off <= tolerance and per_strike < best.per_strike):
            best = Chosen(candidate, off, float(np.percentile(distance, 90)), per_strike)
    assert best is not None
    return best


def mujoco_schedules(scene_step: float) -> Iterator[StepSchedule]:
    """Schedules to choose from; the first one is the scene's own steps throughout."""
    yield StepSchedule(scene_step, _FINE_SECONDS[-1], np.inf, scene_step)
    for factor, seconds, growth, longest in itertools.product(
        _FINE_FACTORS, _FINE_SECONDS, _GROWTHS, _LONGEST
    ):
        if longest > factor * scene_step:
            yield StepSchedule(factor * scene_step, seconds, growth, longest)


def hybrid_steps(scene_step: float) -> Iterator[HybridSteps]:
    """Steps of a hybrid simulator to choose from."""
    for timestep, first, growth in itertools.product(_TIMESTEPS, _FIRST_STEPS, _HYBRID_GROWTHS):
        yield HybridSteps(timestep, max(first, scene_step), growth)
