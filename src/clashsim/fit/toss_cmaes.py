"""Parameters of MuJoCo identified on whole recorded tosses by CMA-ES (few-shot paper, Eq. 1).

A population of all restarts is one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from cmaes import CMA
from scipy.spatial.transform import Rotation

from clashsim.core.box import SUBSTEPS
from clashsim.core.errors import DataError
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data.segmentation.free_flight import Flight
from clashsim.fit.priors import unit_std
from clashsim.sim.mujoco.simulator import MujocoSim

# Errors that the loss counts as one over a whole toss: about what a fair fit is off by.
POSITION = 14.0  # % of the width
ROTATION = 18.0  # degrees
# Frames past the first contact that count by themselves, and the same errors for them.
EARLY = 20
EARLY_POSITION = 2.5
EARLY_ROTATION = 3.5
# Weight of the squared distance from nominal, in standard deviations of each parameter, in a mean
# loss near 0.5.
PRIOR = 0.002
_LOST_POSITION = 1e3  # % of the width: error of a rollout that is not finite
_LOST_ROTATION = 180.0  # degrees
_CONVERGED = 2e-3  # width of a population on the unit scale
_STATE_SIZE = 13
_POSE_SIZE = 7


@dataclass(frozen=True, eq=False)
class TossErrors:
    """Errors of m rollouts of n tosses, (m, n) each. Positions in % of the width, rotations in deg.

    Attributes:
        position: Mean over all frames.
        rotation: Mean over all frames.
        early_position: Mean up to `EARLY` frames past contact.
        early_rotation: Mean up to `EARLY` frames past contact.
        soon_position: At some frames past contact.
        soon_rotation: At some frames past contact.
        wrong: Whether the toss ends on a wrong face.
    """

    position: np.ndarray
    rotation: np.ndarray
    early_position: np.ndarray
    early_rotation: np.ndarray
    soon_position: np.ndarray
    soon_rotation: np.ndarray
    wrong: np.ndarray


@dataclass(frozen=True, eq=False)
class Tosses:
    """Flights of one body made ready to be compared with rollouts.

    Attributes:
        flights: The n recorded flights.
        width: Width of the body, m.
        longest: Most frames of a toss; one that lies still for long says nothing more.
    """

    flights: tuple[Flight, ...]
    width: float
    longest: int = 10_000

    def __post_init__(self) -> None:
        if not self.flights:
            raise DataError("no tosses to compare with")

    @cached_property
    def length(self) -> int:
        """Frames T of the longest toss."""
        return min(max(len(flight.position) for flight in self.flights), self.longest)

    def _filled(self, recorded: list[np.ndarray]) -> np.ndarray:
        """Recorded arrays (T_i, ...) as one (n, T, ...); the last entry is repeated to fill up."""
        frames = np.arange(self.length)
        return np.stack([array[np.minimum(frames, len(array) - 1)] for array in recorded])

    @cached_property
    def position(self) -> np.ndarray:
        """Recorded positions (n, T, 3), m."""
        return self._filled([flight.position for flight in self.flights])

    @cached_property
    def rotation(self) -> np.ndarray:
        """Recorded rotations (n, T, 3, 3)."""
        return self._filled([flight.rotation for flight in self.flights])

    @cached_property
    def recorded(self) -> np.ndarray:
        """Which frames were recorded (n, T)."""
        lengths = np.array([len(flight.position) for flight in self.flights])
        return np.arange(self.length) < lengths[:, None]

    @cached_property
    def contact_frames(self) -> np.ndarray:
        """The frame of the first contact of each toss (n,)."""
        return np.array([flight.frames for flight in self.flights])

    def starts(self, centre: np.ndarray, gravity: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) for m centres of mass (m, 3) and gravities (m,)."""
        return np.stack([flight.start(centre, gravity) for flight in self.flights], 1)

    def errors(self, states: np.ndarray, after: int = 10) -> TossErrors:
        """Compare rollouts with the recordings.

        Args:
            states: States (m, n, T, >= 7) that begin with qpos.
            after: Frames past contact at which "soon" errors are taken.

        Returns:
            The errors.
        """
        distance = np.linalg.norm(states[..., :3] - self.position, axis=-1) / self.width * 100
        quaternions = states[..., 3:_POSE_SIZE].reshape(-1, 4)
        matrices = Rotation.from_quat(quaternions, scalar_first=True).as_matrix()
        rotation = matrices.reshape(*states.shape[:-1], 3, 3)
        trace = np.einsum("mntij,ntij->mnt", rotation, self.rotation)
        angle = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
        lost = ~np.isfinite(distance) | ~np.isfinite(angle)
        distance = np.where(lost, _LOST_POSITION, distance)
        angle = np.where(lost, _LOST_ROTATION, angle)
        rows = np.arange(len(self.flights))
        last = self.recorded.sum(1) - 1
        soon = np.minimum(self.contact_frames + after, last)
        early_end = self.contact_frames + EARLY
        early = self.recorded & (np.arange(self.length) < early_end[:, None])
        return TossErrors(
            _mean(distance, self.recorded),
            _mean(angle, self.recorded),
            _mean(distance, early),
            _mean(angle, early),
            distance[:, rows, soon],
            angle[:, rows, soon],
            _wrong_faces(rotation[:, rows, last, 2], self.rotation[rows, last, 2]),
        )


def _mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Means (m, n) of values (m, n, T) over the frames that are counted (n, T)."""
    return (values * counted).sum(-1) / counted.sum(1)


def _wrong_faces(up: np.ndarray, true_up: np.ndarray) -> np.ndarray:
    """Whether boxes lie on a wrong face (m, n). A face is an axis and a sign.

    Args:
        up: The vertical in the boxes' axes (m, n, 3).
        true_up: The same as recorded (n, 3).
    """
    axis = np.argmax(np.abs(up), -1)
    true_axis = np.argmax(np.abs(true_up), -1)
    along = np.take_along_axis(up, true_axis[None, :, None], -1)[..., 0]
    true_along = np.take_along_axis(true_up, true_axis[:, None], -1)[:, 0]
    return (axis != true_axis) | (along * true_along < 0)


@dataclass(frozen=True, eq=False)
class TossRollouts:
    """MuJoCo rollouts of tosses under many thetas at once.

    Attributes:
        scene: The scene.
        tosses: The tosses.
        gravity: That of the starts where it is no parameter, m/s^2.
        threads: Threads of MuJoCo, 0 for all cores.
    """

    scene: Scene
    tosses: Tosses
    gravity: float = 9.81
    threads: int = 0

    @cached_property
    def sim(self) -> MujocoSim:
        """The simulator."""
        return MujocoSim(self.scene, threads=self.threads)

    def starts(self, theta: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) that agree with the flights under thetas (m, p)."""
        names = [param.name for param in self.scene.params]

        def column(name: str, default: float) -> np.ndarray:
            if name in names:
                return theta[:, names.index(name)]
            return np.full(len(theta), default)

        centre = np.stack([column(f"centre_{axis}", 0.0) for axis in "xyz"], 1)
        start = self.tosses.starts(centre, column("gravity", self.gravity))
        # Euler's method moves by the velocity after each substep: half a substep of gravity ahead
        # of the recorded one.
        half_substep = 0.5 * self.scene.base.opt.timestep
        start[..., 9] += half_substep * column("gravity", 9.81)[:, None]
        return start

    def states(self, theta: np.ndarray) -> np.ndarray:
        """States (m, n, T, 13) at the recorded frames for thetas (m, p)."""
        m = len(theta)
        n = len(self.tosses.flights)
        no_control = np.zeros((m * n, (self.tosses.length - 1) * SUBSTEPS, 0))
        states = self.sim.rollout(
            self.starts(theta).reshape(m * n, _STATE_SIZE),
            no_control,
            theta=np.repeat(theta, n, 0) if self.scene.params else None,
        )
        return states[:, ::SUBSTEPS].reshape(m, n, self.tosses.length, -1)

    def subset(self, flights: slice) -> TossRollouts:
        """The same with some of the flights."""
        tosses = replace(self.tosses, flights=self.tosses.flights[flights])
        return replace(self, tosses=tosses)

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """Mean losses (m,) of thetas (m, p)."""
        return loss(self.tosses.errors(self.states(theta))).mean(1)


def loss(errors: TossErrors) -> np.ndarray:
    """Mean of J / (1 + J / 2) over the whole toss and over its first frames in contact, (m, n).

    A toss that lands on another face can cost no more than 2. After some bounces the smallest
    change moves everything, so a whole toss may be fitted by luck; its first frames cannot.
    """
    whole = 0.5 * (errors.position / POSITION + errors.rotation / ROTATION)
    early = 0.5 * (errors.early_position / EARLY_POSITION + errors.early_rotation / EARLY_ROTATION)
    return np.mean([whole / (1 + whole / 2), early / (1 + early / 2)], axis=0)


@dataclass(frozen=True, eq=False)
class TossFit:
    """What was identified.

    Attributes:
        theta: Parameters (p,) in `scene.params` order.
        loss: Mean loss without the prior.
        evaluations: Rollouts that it took.
        held_out: Mean loss of tosses held out, if any were.
    """

    theta: np.ndarray
    loss: float
    evaluations: int
    held_out: float | None = None


def identify_tosses(
    rollouts: TossRollouts,
    *,
    seed: int,
    restarts: int = 1,
    generations: int = 100,
    population: int | None = None,
    hold_out: int = 0,
    progress: Progress = quiet,
) -> TossFit:
    """Minimise the mean loss by CMA-ES, with a weak pull to each parameter's nominal value.

    Args:
        rollouts: The tosses and their scene.
        seed: Seed of the search.
        restarts: Searches that run side by side in one batch.
        generations: At most so many generations.
        population: Points of a generation.
        hold_out: The last so many tosses are not fitted. Among the restarts' ends the one that
            predicts them best is kept, and how well is reported.
        progress: Shows how far it is.

    Returns:
        What was identified.
    """
    params = rollouts.scene.params
    num_flights = len(rollouts.tosses.flights)
    if len(params) == 0:
        raise DataError("the scene has no parameters to identify")
    if not 0 <= hold_out < num_flights:
        raise DataError(f"of {num_flights} tosses {hold_out} cannot be held out")
    fitted = rollouts.subset(slice(0, num_flights - hold_out)) if hold_out else rollouts
    search = _Search(fitted, seed=seed, restarts=restarts, population=population)
    with progress("identifying", generations) as advance:
        for _ in range(generations):
            search.step()
            advance(1)
            if not search.runs:
                break
    ends = from_unit(params, search.best)
    if not hold_out:
        k = int(search.lowest.argmin())
        return TossFit(ends[k], float(search.loss[k]), search.evaluations)
    held_out = rollouts.subset(slice(num_flights - hold_out, None)).losses(ends)
    k = int(held_out.argmin())
    return TossFit(ends[k], float(search.loss[k]), search.evaluations, float(held_out[k]))


class _Search:
    """Several searches by CMA-ES whose populations are one batch.

    Attributes:
        runs: The searches that are not done, by number.
        best: Best points of each search (restarts, q) on the unit scale.
        lowest: Their costs, prior included (restarts,).
        loss: Their losses without the prior (restarts,).
        evaluations: Rollouts so far.
    """

    def __init__(
        self, rollouts: TossRollouts, *, seed: int, restarts: int, population: int | None
    ) -> None:
        self._rollouts = rollouts
        self._params = rollouts.scene.params
        self._nominal = to_unit(self._params, rollouts.scene.nominal)
        self._std = np.array([unit_std(param) for param in self._params])
        q = len(self._params)
        self._population = population or 6 + q
        rng = np.random.default_rng(seed)
        means = [self._nominal]
        for _ in range(restarts - 1):
            means.append(np.clip(self._nominal + 0.5 * self._std * rng.normal(size=q), -0.9, 0.9))
        self.runs = {}
        for i, mean in enumerate(means):
            self.runs[i] = CMA(
                mean=np.clip(mean, -0.95, 0.95),
                sigma=0.25,
                bounds=np.tile([-1.0, 1.0], (q, 1)),
                seed=seed * 97 + i,
                population_size=self._population,
            )
        self.best = np.tile(self._nominal, (restarts, 1))
        self.lowest = np.full(restarts, np.inf)
        self.loss = np.full(restarts, np.inf)
        self.evaluations = 0

    def step(self) -> None:
        """One generation of all searches; those that have converged leave."""
        asked = {}
        for i, run in self.runs.items():
            asked[i] = np.array([run.ask() for _ in range(self._population)])
        points = np.concatenate(list(asked.values()))
        losses = self._rollouts.losses(from_unit(self._params, points))
        distance = (((points - self._nominal) / self._std) ** 2).sum(1)
        costs = losses + PRIOR * distance
        self.evaluations += len(points) * len(self._rollouts.tosses.flights)
        own_losses = np.split(losses, len(self.runs))
        own_costs = np.split(costs, len(self.runs))
        for j, (i, run) in enumerate(list(self.runs.items())):
            k = int(own_costs[j].argmin())
            if own_costs[j][k] < self.lowest[i]:
                self.best[i] = asked[i][k]
                self.lowest[i] = own_costs[j][k]
                self.loss[i] = own_losses[j][k]
            run.tell(list(zip(asked[i], own_costs[j], strict=True)))
            if np.ptp(asked[i], axis=0).max() <= _CONVERGED or run.should_stop():
                del self.runs[i]


def by_name(params: Sequence[Param], theta: np.ndarray) -> dict[str, float]:
    """Values of theta (p,) by the names of its parameters."""
    return {param.name: float(value) for param, value in zip(params, theta, strict=True)}
