"""Velocities of pushes and throws, planned by gradients through the graph simulator.

The set `line` is Fig. 1 of the few-shot paper: cube 0 slides along x into cube 1, which should come
to rest at the target. The pushing velocity is found by gradient descent through the graph
simulator. A start is a first guess of this velocity; it converges if the final distance is below
10 mm within 10 epochs. The search ends when all starts have converged.

The cubes collide at some time between two frames, and this time changes where the second cube stops
by some millimetres. So gradients are means over three gaps between the cubes at the start, which
differ by less than the first cube moves in a frame; distances are those of the nominal gap.
`mujoco_mm` is the distance when the same velocities are executed in MuJoCo with the same contact.

Figures over all starts are given twice: for each start's best epoch (`distance_mm`, `mujoco_mm`)
and for the last epoch (`last_converged`, `last_distance_mm`, `last_mujoco_mm`).

The sets `push` and `throw` are the tasks of `velocity_tasks`, with the planners of
`velocity_planning`, whose last iteration is the best one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from clashsim.bench.graph_scenes import (
    CUBE,
    RATE,
    ROUNDING,
    cubes_at_rest,
    rollout_in_mujoco,
    unit_contact,
)
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.velocity_planning import PLANNERS, gradient_row, planner_rows, quick_task
from clashsim.bench.velocity_tasks import TASKS, make_problem
from clashsim.sim.graph.simulator import GraphSim

OPTIONS = frozenset({"seeds", "sets", "methods"})
SETS = ("line", *TASKS)
EPOCHS = 10
CLOSE = 0.010  # m: a start that gets closer has converged
_FRAMES = 64
_GAP = 0.14  # m, between the centres at the start
_GAP_OFFSETS = (0.0, 0.0023, -0.0023)  # m; the first is the nominal gap
_FIRST_STEP = 0.06  # m/s, by which the search changes a velocity at first
_STEP_GROWTH = 1.3  # factor on the step where the gradient has kept its sign
_STEP_SHRINKAGE = 0.5  # factor on the step where the sign has changed
_VELOCITIES = (0.1, 2.5)  # m/s, the range of pushing velocities
_FIRST_VELOCITIES = (0.7, 1.2)  # m/s, range of first guesses
_TARGETS = (0.04, 0.1)  # m, range of how far cube 1 should go
_NUM_STARTS = 10
_NUM_TASK_STARTS = 100  # of each of the sets `push` and `throw`
_QUICK_STARTS = 2
_QUICK_EPOCHS = 2
_QUICK_FRAMES = 40
_QVEL_X = 14  # column of the first cube's velocity in x: two cubes have 14 columns of qpos
_SECOND_CUBE_X = 7  # column of the second cube's position in x


@dataclass(frozen=True, eq=False)
class _History:
    """Velocities and distances of all starts in each epoch.

    Attributes:
        target: How far cube 1 should go, (starts,), m.
        velocities: For each epoch, the pushing velocities (starts,), m/s.
        distances: For each epoch, the distances of cube 1 from the target (starts,), m.
    """

    target: np.ndarray
    velocities: list[np.ndarray] = field(default_factory=list)
    distances: list[np.ndarray] = field(default_factory=list)

    @property
    def converged_so_far(self) -> np.ndarray:
        """Whether each start was within `CLOSE` in some epoch, (starts,)."""
        return np.asarray((np.array(self.distances) <= CLOSE).any(0))

    def rows(self) -> list[Row]:
        """One row per start and epoch."""
        rows: list[Row] = []
        epochs = list(zip(self.velocities, self.distances, strict=True))
        for start, target in enumerate(self.target):
            for epoch, (velocity, distance) in enumerate(epochs):
                rows.append(
                    {
                        "start": start,
                        "epoch": epoch,
                        "velocity": round(float(velocity[start]), 4),
                        "distance_mm": _millimetres(distance[start]),
                        "target_m": round(float(target), 4),
                    }
                )
        return rows


def sample_starts(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw first guesses and targets.

    Returns:
        Pushing velocities (count,), m/s, and how far cube 1 should go (count,), m.
    """
    rng = np.random.default_rng(seed)
    velocity = rng.uniform(*_FIRST_VELOCITIES, count)
    target = rng.uniform(*_TARGETS, count)
    return velocity, target


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Plan velocities from many starts.

    Args:
        options: Its `seeds` is the number of starts of each set; its sets are among `SETS`, its
            methods among the planners of pushes and throws.

    Returns:
        Of the set `line` one row per start and epoch, and one over all starts; of each other set
        one row per method and number of evaluations.
    """
    sets = choose(options.sets, SETS)
    methods = choose(options.methods, list(PLANNERS), what="method")
    rows: list[Row] = []
    parts = sum(1 if name == "line" else 1 + len(methods) for name in sets)
    with options.progress("planning", parts) as advance:
        for name in sets:
            if name == "line":
                rows += _push_along_line(options)
                advance(1)
            else:
                _plan_task(name, methods, rows, options=options, advance=advance)
            options.save(rows)
    return rows


def _push_along_line(options: BenchOptions) -> list[Row]:
    """Rows of the set `line`."""
    count = _QUICK_STARTS if options.quick else options.seeds or _NUM_STARTS
    epochs = _QUICK_EPOCHS if options.quick else EPOCHS
    frames = _QUICK_FRAMES if options.quick else _FRAMES
    velocity, target = sample_starts(count, seed=0)
    history = _History(target)
    search = _VelocitySearch(velocity)
    pushing = _Pushing(count, frames)
    for _ in range(epochs + 1):
        distance, gradient = pushing.evaluate(search.velocity, target)
        history.velocities.append(search.velocity.numpy().copy())
        history.distances.append(distance)
        if history.converged_so_far.all():
            break
        search.step(gradient)
    return [*history.rows(), _summary(history, pushing)]


def _plan_task(
    name: str,
    methods: list[str],
    rows: list[Row],
    *,
    options: BenchOptions,
    advance: Callable[[int], None],
) -> None:
    """Append the rows of a set other than `line`."""
    task = quick_task(TASKS[name]) if options.quick else TASKS[name]
    count = _QUICK_STARTS if options.quick else options.seeds or _NUM_TASK_STARTS
    problem = make_problem(task, count, seed=0)
    if "gradient" in methods:
        rows.append(gradient_row(problem))
    advance(1)
    for method in methods:
        with optional(rows, task=name, method=method):
            rows += planner_rows(method, problem, quick=options.quick)
        options.save(rows)
        advance(1)


class _Pushing:
    """Two cubes in the graph simulator and in MuJoCo, of which the first is pushed."""

    def __init__(self, count: int, frames: int) -> None:
        self.count = count
        self.frames = frames
        self.sim = GraphSim([CUBE, CUBE], unit_contact(), dt=1 / RATE, rounding=ROUNDING)
        states = []
        for offset in _GAP_OFFSETS:
            states.append(cubes_at_rest(np.array([[-_GAP + offset, 0.0], [0.0, 0.0]])))
        # All starts of the nominal gap first, then those of the other gaps.
        self.at_rest = torch.tensor(np.repeat(np.array(states), count, 0))

    def evaluate(self, velocity: Tensor, target: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """Push in the graph simulator.

        Args:
            velocity: Pushing velocity of each start, (count,), m/s.
            target: How far cube 1 should go in each start, (count,), m.

        Returns:
            Distances from the target at the nominal gap (count,), m, and the gradient (count,) of
            half the squared distance by the velocity, a mean over all gaps.
        """
        pushed = velocity.clone().requires_grad_(True)
        column = pushed.repeat(len(_GAP_OFFSETS))[:, None]
        start = torch.cat([self.at_rest[:, :_QVEL_X], column, self.at_rest[:, _QVEL_X + 1 :]], 1)
        last = self.sim.path(start, self.frames)[-1]
        num_cubes = 2
        positions = last.position.reshape(len(_GAP_OFFSETS), self.count, num_cubes, 3)
        end = positions[:, :, 1, 0]  # x of cube 1, which starts at 0
        missing = torch.tensor(target) - end
        loss = (0.5 * missing**2).mean(0).sum()
        (gradient,) = torch.autograd.grad(loss, pushed)
        return missing[0].detach().abs().numpy(), gradient

    def distance_in_mujoco(self, velocity: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Distances from the target (count,), m, of the same pushes in MuJoCo."""
        start = self.at_rest[: self.count].numpy().copy()
        start[:, _QVEL_X] = velocity
        end = rollout_in_mujoco(start, self.frames)[:, -1, _SECOND_CUBE_X]
        return np.abs(end - target)


class _VelocitySearch:
    """Rprop (Riedmiller and Braun 1993) on the velocity of each start.

    Through an impact the size of a gradient says little, but its sign is right.
    """

    def __init__(self, velocity: np.ndarray) -> None:
        self.velocity = torch.tensor(velocity)
        self._step = torch.full((len(velocity),), _FIRST_STEP, dtype=torch.float64)
        self._last_sign: Tensor | None = None

    def step(self, gradient: Tensor) -> None:
        """Move all velocities against their gradients (count,)."""
        sign = torch.sign(gradient)
        if self._last_sign is not None:
            same_sign = sign == self._last_sign
            longer = _STEP_GROWTH * self._step
            shorter = _STEP_SHRINKAGE * self._step
            self._step = torch.where(same_sign, longer, shorter)
        self._last_sign = sign
        self.velocity = (self.velocity - self._step * sign).clamp(*_VELOCITIES)


def _summary(history: _History, pushing: _Pushing) -> Row:
    """Figures over all starts: at the best epoch of each start, and at the last epoch."""
    velocities = np.array(history.velocities)
    distances = np.array(history.distances)
    count = len(history.target)
    best_velocity = velocities[distances.argmin(0), np.arange(count)]
    converged = history.converged_so_far
    first_close_epoch = (distances <= CLOSE).argmax(0)[converged]
    needed = round(float(first_close_epoch.mean()), 2) if len(first_close_epoch) else None
    in_mujoco = pushing.distance_in_mujoco(best_velocity, history.target)
    last_in_mujoco = pushing.distance_in_mujoco(velocities[-1], history.target)
    return {
        "start": "all",
        "epoch": len(distances) - 1,
        "converged": int(converged.sum()),
        "of": count,
        "distance_mm": _millimetres(distances.min(0).mean()),
        "mujoco_mm": _millimetres(in_mujoco.mean()),
        "epochs_needed": needed,
        "last_converged": int((distances[-1] <= CLOSE).sum()),
        "last_distance_mm": _millimetres(distances[-1].mean()),
        "last_mujoco_mm": _millimetres(last_in_mujoco.mean()),
    }


def _millimetres(metres: float | np.floating) -> float:
    return round(1e3 * float(metres), 2)
