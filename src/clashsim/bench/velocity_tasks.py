"""Tasks in which the velocity of a cube is to be planned: pushes and throws.

`push`: a cube slides into a second one, whose pose after 50 frames is the target. The velocity has
two components. Distances are root mean squares over the upright edges of the cube, so that position
and yaw both count: the position alone hardly moves sideways.

`throw`: a cube is thrown from any rotation, and its place after 90 frames is the target. The
velocity has three components.

Targets are where MuJoCo brings the cubes from a hidden velocity, so that they can be reached. First
velocities whose distance is below 10 mm, in MuJoCo or in the graph simulator, are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from clashsim.bench.graph_scenes import (
    CUBE,
    HALF,
    RATE,
    ROUNDING,
    cubes_at_rest,
    rollout_in_mujoco,
    unit_contact,
)
from clashsim.core.errors import DataError
from clashsim.sim.graph.simulator import GraphSim

CLOSE = 0.010  # m: a velocity is a solution if its distance is smaller
_EDGE_RADIUS = 2**0.5 * HALF  # m, of the upright edges about the middle of a cube
_GAP = 0.14  # m, between the centres of the cubes before a push
_RELEASE_HEIGHT = 0.12  # m, of the centre of a thrown cube
_MAX_REDRAWS = 50
_NUM_QPOS = 7  # of a free body: position, quaternion wxyz

Distribution = tuple[tuple[float, float], ...]  # range of each component, m/s


@dataclass(frozen=True)
class VelocityTask:
    """A task: how scenes start, and which velocities there are.

    Attributes:
        name: "push" or "throw".
        num_cubes: Number of cubes; the first one gets the velocity, the last one has a target.
        frames: Number of frames of a rollout.
        hidden: Range of each component (d) of hidden and of first velocities, m/s.
        limits: Range in which a velocity is planned, (d), m/s.
        at_rest: Makes the states (n, s) of n scenes, of which the first velocity is zero.
    """

    name: str
    num_cubes: int
    frames: int
    hidden: Distribution
    limits: Distribution
    at_rest: Callable[[int, np.random.Generator], np.ndarray]

    @property
    def low(self) -> np.ndarray:
        """Lower limits of a velocity, (d,), m/s."""
        return np.array(self.limits)[:, 0]

    @property
    def high(self) -> np.ndarray:
        """Upper limits of a velocity, (d,), m/s."""
        return np.array(self.limits)[:, 1]

    @property
    def columns(self) -> slice:
        """Columns of a state that hold the velocity."""
        first = _NUM_QPOS * self.num_cubes
        return slice(first, first + len(self.limits))

    @property
    def has_yaw(self) -> bool:
        """Whether the yaw of the last cube counts."""
        return self.num_cubes > 1

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw velocities (count, d), m/s."""
        low, high = np.array(self.hidden).T
        return rng.uniform(low, high, (count, len(low)))


def _before_push(count: int, rng: np.random.Generator) -> np.ndarray:
    """States (count, 26) of two cubes side by side, the same in all scenes."""
    return np.tile(cubes_at_rest(np.array([[-_GAP, 0.0], [0.0, 0.0]])), (count, 1))


def _before_throw(count: int, rng: np.random.Generator) -> np.ndarray:
    """States (count, 13) of a cube above the floor, in random rotations."""
    states = np.zeros((count, 13))
    states[:, 2] = _RELEASE_HEIGHT
    states[:, 3:7] = Rotation.random(count, rng=rng).as_quat(scalar_first=True)
    return states


TASKS = {
    "push": VelocityTask(
        name="push",
        num_cubes=2,
        frames=50,
        hidden=((0.6, 1.1), (-0.4, 0.4)),
        limits=((0.3, 1.6), (-0.8, 0.8)),
        at_rest=_before_push,
    ),
    "throw": VelocityTask(
        name="throw",
        num_cubes=1,
        frames=90,
        hidden=((0.2, 0.7), (-0.4, 0.4), (0.0, 1.0)),
        limits=((-0.2, 1.1), (-0.8, 0.8), (-0.5, 1.5)),
        at_rest=_before_throw,
    ),
}


@dataclass(frozen=True, eq=False)
class VelocityProblem:
    """Scenes of one task with their targets.

    Attributes:
        task: The task.
        at_rest: States (n, s) without the velocity.
        target: Where the last cubes should be: x, y in m, and yaw in rad if it counts, (n, o).
        first: First velocities (n, d), m/s.
    """

    task: VelocityTask
    at_rest: np.ndarray
    target: np.ndarray
    first: np.ndarray

    def starts(self, velocity: np.ndarray) -> np.ndarray:
        """States (n, s) in which the first cubes have velocities (n, d)."""
        states = self.at_rest.copy()
        states[:, self.task.columns] = velocity
        return states

    def residuals(self, pose: np.ndarray) -> np.ndarray:
        """Residuals (n, o), m, of poses (n, o); their length is the distance to the target."""
        residual = pose - self.target
        if self.task.has_yaw:
            # The chord through which an upright edge has moved.
            residual[:, 2] = 2 * _EDGE_RADIUS * np.sin(residual[:, 2] / 2)
        return residual

    def residual_jacobian(self, pose: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
        """Jacobian (n, o, d) of the residuals from the one of the poses."""
        jacobian = jacobian.copy()
        if self.task.has_yaw:
            half_error = (pose - self.target)[:, 2] / 2
            jacobian[:, 2] *= _EDGE_RADIUS * np.cos(half_error)[:, None]
        return jacobian


class MujocoPlanning:
    """Rollouts of a problem in MuJoCo."""

    def __init__(self, problem: VelocityProblem) -> None:
        self.problem = problem

    def residuals(self, velocity: np.ndarray) -> np.ndarray:
        """Residuals (n, o), m, of velocities (n, d)."""
        return self.problem.residuals(_poses_in_mujoco(self.problem, velocity))


class GraphPlanning:
    """Rollouts of a problem in the graph simulator, with gradients."""

    def __init__(self, problem: VelocityProblem) -> None:
        self.problem = problem
        cubes = [CUBE] * problem.task.num_cubes
        self._sim = GraphSim(cubes, unit_contact(), dt=1 / RATE, rounding=ROUNDING)

    def residuals(self, velocity: np.ndarray) -> np.ndarray:
        """Residuals (n, o), m, of velocities (n, d)."""
        with torch.no_grad():
            pose = self._poses(torch.tensor(velocity))
        return self.problem.residuals(pose.numpy())

    def residuals_with_jacobian(self, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (n, o), m, of velocities (n, d), and their Jacobian (n, o, d)."""
        variable = torch.tensor(velocity, requires_grad=True)
        pose = self._poses(variable)
        rows = []
        for component in pose.unbind(1):
            # Scenes do not touch each other: the gradient of the sum has one row per scene.
            (gradient,) = torch.autograd.grad(component.sum(), variable, retain_graph=True)
            rows.append(gradient.numpy())
        values = pose.detach().numpy()
        jacobian = self.problem.residual_jacobian(values, np.stack(rows, 1))
        return self.problem.residuals(values), jacobian

    def _poses(self, velocity: Tensor) -> Tensor:
        """Poses (n, o) of the last cubes at the last frame."""
        task = self.problem.task
        rest = torch.tensor(self.problem.at_rest)
        columns = task.columns
        start = torch.cat([rest[:, : columns.start], velocity, rest[:, columns.stop :]], 1)
        last = self._sim.path(start, task.frames)[-1]
        position = last.position.reshape(len(start), task.num_cubes, 3)[:, -1, :2]
        if not task.has_yaw:
            return position
        rotation = last.orientation.reshape(len(start), task.num_cubes, 3, 3)[:, -1]
        yaw = torch.atan2(rotation[:, 1, 0], rotation[:, 0, 0])
        return torch.cat([position, yaw[:, None]], 1)


def make_problem(task: VelocityTask, count: int, seed: int) -> VelocityProblem:
    """Draw scenes, targets, and first velocities that are no solutions.

    Args:
        task: The task.
        count: Number n of scenes.
        seed: Seed of all random numbers.

    Raises:
        DataError: A scene has only first velocities that are solutions.
    """
    rng = np.random.default_rng(seed)
    at_rest = task.at_rest(count, rng)
    hidden = task.draw(count, rng)
    no_target = np.zeros((count, 3 if task.has_yaw else 2))
    unaimed = VelocityProblem(task, at_rest, no_target, hidden)
    target = _poses_in_mujoco(unaimed, hidden)
    problem = VelocityProblem(task, at_rest, target, task.draw(count, rng))
    simulators = (MujocoPlanning(problem), GraphPlanning(problem))
    for _ in range(_MAX_REDRAWS):
        solved = np.zeros(count, bool)
        for simulator in simulators:
            solved |= distances(simulator.residuals(problem.first)) < CLOSE
        if not solved.any():
            return problem
        problem.first[solved] = task.draw(count, rng)[solved]
    raise DataError(f"the task {task.name} has scenes that every first velocity solves")


def distances(residuals: np.ndarray) -> np.ndarray:
    """Distances (n,) from the target, m, of residuals (n, o)."""
    return np.linalg.norm(residuals, axis=1)


def _poses_in_mujoco(problem: VelocityProblem, velocity: np.ndarray) -> np.ndarray:
    """Poses (n, o) of the last cubes at the last frame in MuJoCo."""
    task = problem.task
    last = rollout_in_mujoco(problem.starts(velocity), task.frames)[:, -1]
    qpos = last[:, _NUM_QPOS * (task.num_cubes - 1) : _NUM_QPOS * task.num_cubes]
    if not task.has_yaw:
        return qpos[:, :2]
    w, x, y, z = qpos[:, 3:].T
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.column_stack([qpos[:, :2], yaw])
