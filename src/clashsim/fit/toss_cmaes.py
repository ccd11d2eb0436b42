"""Parameters of MuJoCo identified on whole recorded trajectories by CMA-ES (few-shot paper, Eq. 1),
a population in one batch.
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
from clashsim.sim.mujoco.simulator import MujocoSim

POSITION, ROTATION = (
    14.0,
    18.0,
)  # % of the width, degrees: what the loss counts as one each over a whole toss, about what a fair fit is off by
EARLY, EARLY_POSITION, EARLY_ROTATION = (
    20,
    2.5,
    3.5,
)  # frames past the first contact that count by themselves, and the same for them
# Weight of the squared distance from nominal, in standard deviations of each parameter, in a mean
# loss near 0.5
PRIOR = 0.002


@dataclass(frozen=True, eq=False)
class TossErrors:
    """Errors of rollouts against flights (m, n): time means of position (% of the width) and
    rotation (deg), over all frames and up to `EARLY` past contact;

    at `after` frames past contact; wrong face at the end.
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
    """Flights of one body made ready to be rolled out: recorded poses padded to one length, which
    frames count.
    """

    flights: tuple[Flight, ...]
    width: float  # m
    longest: int = 10_000  # frames; a toss that lies still for long says nothing more

    def __post_init__(self) -> None:
        if not self.flights:
            raise DataError("no tosses to compare with")

    @cached_property
    def length(self) -> int:
        return min(max(len(f.position) for f in self.flights), self.longest)

    @cached_property
    def position(self) -> np.ndarray:
        """Recorded positions (n, T, 3); the last one is repeated to fill up."""
        return np.stack(
            [
                f.position[np.minimum(np.arange(self.length), len(f.position) - 1)]
                for f in self.flights
            ]
        )

    @cached_property
    def rotation(self) -> np.ndarray:
        """Recorded orientations (n, T, 3, 3)."""
        return np.stack(
            [
                f.rotation[np.minimum(np.arange(self.length), len(f.position) - 1)]
                for f in self.flights
            ]
        )

    @cached_property
    def counts(self) -> np.ndarray:
        """Which frames were recorded (n, T)."""
        return np.arange(self.length) < np.array([len(f.position) for f in self.flights])[:, None]

    def starts(self, centre: np.ndarray, gravity: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) for m centres of mass (m, 3) and gravities (m,)."""
        return np.stack([f.initial_state(centre, gravity) for f in self.flights], 1)

    def errors(self, states: np.ndarray, after: int = 10) -> TossErrors:
        """Errors of states (m, n, T, >= 7) that begin with qpos."""
        far = np.linalg.norm(states[..., :3] - self.position, axis=-1) / self.width * 100
        matrices = (
            Rotation.from_quat(states[..., 3:7].reshape(-1, 4), scalar_first=True)
            .as_matrix()
            .reshape(*states.shape[:-1], 3, 3)
        )
        trace = np.einsum("mntij,ntij->mnt", matrices, self.rotation)
        turn = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
        bad = ~np.isfinite(far) | ~np.isfinite(turn)
        far, turn = np.where(bad, 1e3, far), np.where(bad, 180.0, turn)
        total = self.counts.sum(1)
        last = total - 1
        soon = np.minimum([f.frames + after for f in self.flights], last)
        rows = np.arange(len(self.flights))
        faces = [
            np.argmax(np.abs(r[:, rows, last, 2]) if r.ndim == 5 else np.abs(r[rows, last, 2]), -1)
            for r in (matrices, self.rotation)
        ]
        # A face is an axis and a sign.
        up = np.take_along_axis(matrices[:, rows, last, 2], faces[1][None, :, None], -1)[..., 0]
        true = np.take_along_axis(self.rotation[rows, last, 2], faces[1][:, None], -1)[:, 0]
        wrong = (faces[0] != faces[1]) | (up * true < 0)
        early = self.counts & (
            np.arange(self.length) < np.array([f.frames + EARLY for f in self.flights])[:, None]
        )
        position, rotation, first_p, first_r = (
            (v * w).sum(-1) / w.sum(1) for w in (self.counts, early) for v in (far, turn)
        )
        return TossErrors(
            position, rotation, first_p, first_r, far[:, rows, soon], turn[:, rows, soon], wrong
        )


@dataclass(frozen=True, eq=False)
class TossRollouts:
    """MuJoCo rollouts of tosses under many thetas at once; `gravity` (m/s^2) is that of the starts
    where it is no parameter.
    """

    scene: Scene
    tosses: Tosses
    gravity: float = 9.81
    threads: int = 0

    @cached_property
    def sim(self) -> MujocoSim:
        return MujocoSim(self.scene, threads=self.threads)

    def starts(self, theta: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) that agree with the flights under thetas (m, p)."""
        names = [p.name for p in self.scene.params]

        def column(name: str, other: float) -> np.ndarray:
            return theta[:, names.index(name)] if name in names else np.full(len(theta), other)

        centre = np.stack([column(f"centre_{a}", 0.0) for a in "xyz"], 1)
        start = self.tosses.starts(centre, column("gravity", self.gravity))
        # Euler's method moves by the velocity after each substep: half a substep of gravity ahead
        # of the recorded one.
        start[..., 9] += 0.5 * self.scene.base.opt.timestep * column("gravity", 9.81)[:, None]
        return start

    def states(self, theta: np.ndarray) -> np.ndarray:
        """States (m, n, T, 13) at the recorded frames for thetas (m, p)."""
        m, n = len(theta), len(self.tosses.flights)
        still = np.zeros((m * n, (self.tosses.length - 1) * SUBSTEPS, 0))
        states = self.sim.rollout(
            self.starts(theta).reshape(m * n, 13),
            still,
            theta=np.repeat(theta, n, 0) if self.scene.params else None,
        )
        return states[:, ::SUBSTEPS].reshape(m, n, self.tosses.length, -1)


def loss(errors: TossErrors) -> np.ndarray:
    """Mean of J / (1 + J / 2) over the whole toss and over its first frames in contact, (m, n): a
    toss that lands on another face can cost no more than 2.

    After some bounces the smallest change moves everything, so a whole toss may be fitted by luck;
    its first frames cannot.
    """
    parts = (
        (errors.position / POSITION, errors.rotation / ROTATION),
        (errors.early_position / EARLY_POSITION, errors.early_rotation / EARLY_ROTATION),
    )
    return np.mean([j / (1 + j / 2) for j in (0.5 * (a + b) for a, b in parts)], axis=0)


@dataclass(frozen=True, eq=False)
class TossFit:
    """theta (p,) of `scene.params`, the mean loss without the prior, the rollouts that it took, and
    the mean loss of tosses held out, if any were.
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
    """Minimise the mean loss, with a weak pull to each parameter's nominal, by CMA-ES; the restarts
    run side by side in one batch.

    With `hold_out` the last so many tosses are not fitted: among the restarts' ends the one that
    predicts them best is kept, and how well is told.
    """
    params, flights = rollouts.scene.params, rollouts.tosses.flights
    q = len(params)
    if q == 0:
        raise DataError("the scene has no parameters to identify")
    if not 0 <= hold_out < len(flights):
        raise DataError(f"of {len(flights)} tosses {hold_out} cannot be held out")
    fitted = (
        rollouts
        if not hold_out
        else replace(rollouts, tosses=replace(rollouts.tosses, flights=flights[:-hold_out]))
    )
    nominal = to_unit(params, rollouts.scene.nominal)
    sd = np.array([unit_sd(p) for p in params])
    rng = np.random.default_rng(seed)
    size = population or 6 + q
    means = [
        nominal,
        *(np.clip(nominal + 0.5 * sd * rng.normal(size=q), -0.9, 0.9) for _ in range(restarts - 1)),
    ]
    runs = {
        i: CMA(
            mean=np.clip(m, -0.95, 0.95),
            sigma=0.25,
            bounds=np.tile([-1.0, 1.0], (q, 1)),
            seed=seed * 97 + i,
            population_size=size,
        )
        for i, m in enumerate(means)
    }
    best, lowest, plain, count = (
        np.tile(nominal, (restarts, 1)),
        np.full(restarts, np.inf),
        np.full(restarts, np.inf),
        0,
    )
    with progress("identifying", generations) as advance:
        for _ in range(generations):
            asked = {i: np.array([run.ask() for _ in range(size)]) for i, run in runs.items()}
            points = np.concatenate(list(asked.values()))
            mean = loss(fitted.tosses.errors(fitted.states(from_unit(params, points)))).mean(1)
            cost = mean + PRIOR * (((points - nominal) / sd) ** 2).sum(1)
            count += len(points) * len(fitted.tosses.flights)
            for (i, run), m, c in zip(
                list(runs.items()),
                np.split(mean, len(runs)),
                np.split(cost, len(runs)),
                strict=True,
            ):
                k = int(c.argmin())
                if c[k] < lowest[i]:
                    best[i], lowest[i], plain[i] = asked[i][k], c[k], m[k]
                run.tell(list(zip(asked[i], c, strict=True)))
                if np.ptp(asked[i], axis=0).max() <= 2e-3 or run.should_stop():
                    del runs[i]
            advance(1)
            if not runs:
                break
    ends = from_unit(params, best)
    if not hold_out:
        k = int(lowest.argmin())
        return TossFit(ends[k], float(plain[k]), count)
    unseen = replace(rollouts, tosses=replace(rollouts.tosses, flights=flights[-hold_out:]))
    held = loss(unseen.tosses.errors(unseen.states(ends))).mean(1)
    k = int(held.argmin())
    return TossFit(ends[k], float(plain[k]), count, float(held[k]))


def unit_sd(p: Param) -> float:
    """How far from nominal a parameter is expected on the unit scale; by default half the range."""
    if p.sd is None:
        return 0.5
    span = np.log(p.high / p.low) if p.scale == "log" else p.high - p.low
    return float(2 * p.sd / span)


def by_name(params: Sequence[Param], theta: np.ndarray) -> dict[str, float]:
    """Values of theta (p,) by the names of its parameters."""
    return {p.name: float(v) for p, v in zip(params, theta, strict=True)}
