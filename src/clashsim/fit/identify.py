"""Constant parameters identified on MuJoCo itself: grid search, CMA-ES, basin hopping,
`mujoco.sysid` and gradients of MJX behind one call.

All of them minimise the same loss, the mean of r^2 / (1 + r^2) over the impacts, with r the
relative error of the twist after impact: one wild recording can then cost no more than 1.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from scipy.stats import qmc

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.extras import needs
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import ImpactSimulator

if TYPE_CHECKING:
    from mujoco import sysid

Method = Literal["grid", "cmaes", "hopping", "sysid", "mjx"]
_POINTS = {1: 33, 2: 12, 3: 8}  # grid points on each axis, by how many axes there are
_BATCH = 2048
_STEP = 1e-2  # on the unit scale: contact is rough at a finer look, and differences drown in it


@dataclass(frozen=True)
class IdentificationResult:
    """theta (p,) in natural units and `scene.params` order; loss: 0 exact, 1 useless; evaluations:
    simulated impacts; why: what went wrong.
    """

    theta: np.ndarray
    loss: float
    evaluations: int
    why: str | None = None


@dataclass(frozen=True, eq=False)
class IdentificationProblem:
    """Real impacts made ready to be simulated under many thetas at once.

    before (N, d) touching; after (N, k) recorded; theta (N, p): nominal, with what was measured per
    impact written in;
    free (q,): indices of the parameters to identify; gyration (m) weighs the spin.
    """

    scene: Scene
    before: np.ndarray
    after: np.ndarray
    theta: np.ndarray
    free: tuple[int, ...]
    gyration: float
    duration: float = 0.25

    @cached_property
    def striker(self) -> ImpactSimulator:
        """The batch of simulations, built on first use."""
        return ImpactSimulator(self.scene, _BATCH)

    @cached_property
    def scale(self) -> np.ndarray:
        """Factors (N, k) that turn an error of the twist into one relative to the recorded twist."""
        k = self.after.shape[1]
        weight = np.r_[np.ones(k // 2 + k % 2), np.full(k // 2, self.gyration)]
        return weight / np.maximum(np.linalg.norm(self.after * weight, axis=1, keepdims=True), 1e-9)

    @property
    def params(self) -> list[Param]:
        """The parameters to identify, (q,)."""
        return [self.scene.params[i] for i in self.free]

    def natural(self, unit: np.ndarray) -> np.ndarray:
        """theta (p,) for a point (q,) of the unit scale; the mean of what was measured per impact."""
        theta = self.theta.mean(0)
        theta[list(self.free)] = from_unit(self.params, np.clip(unit, -1, 1))
        return theta

    def simulate(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Twists after impact (m, n, k) of `rows` (n,) at m points (m, q) of the unit scale, in one
        batch; NaN where an impact had no end.
        """
        m, n = len(unit), len(rows)
        theta = np.tile(self.theta[rows], (m, 1))
        theta[:, list(self.free)] = np.repeat(from_unit(self.params, np.clip(unit, -1, 1)), n, 0)
        outcome = self.striker(np.tile(self.before[rows], (m, 1)), theta, duration=self.duration)
        after = np.where(outcome.usable[:, None], outcome.after, np.nan)
        return after.reshape(m, n, -1)

    def predict(self, theta: np.ndarray) -> np.ndarray:
        """Twists after (N, k) of all impacts with the identified entries of theta (p,), and their
        own values of what was measured.
        """
        free = list(self.free)
        return self.simulate(to_unit(self.params, theta[free])[None], np.arange(len(self.before)))[
            0
        ]

    def residual(self, after: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Capped residuals (m, n, k) of twists (m, n, k): their squares sum to r^2 / (1 + r^2) in
        each impact.
        """
        relative = (after - self.after[rows]) * self.scale[rows]
        relative = np.where(np.isfinite(relative), np.clip(relative, -1e3, 1e3), 1e3)
        return relative / np.sqrt(1 + (relative**2).sum(-1, keepdims=True))

    def losses(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Loss (m,) at points (m, q)."""
        return (self.residual(self.simulate(unit, rows), rows) ** 2).sum(-1).mean(-1)


def identification_problem(
    scene: Scene, impacts: Impacts, *, gyration: float | None = None
) -> IdentificationProblem:
    """Bring impacts to touch and write the measured parameters in; effects that MuJoCo does not
    have stay at their nominal values.
    """
    contact, before = advance_to_contact(scene, impacts.before)
    if not contact.touching.all():
        raise DataError(
            f"in impact {int(np.argmin(contact.touching))} the bodies do not meet along their approach: check poses, velocities, units and frames"
        )
    theta = np.tile(scene.nominal, (len(impacts), 1))
    for i, p in enumerate(scene.params):
        if p.name in impacts.known:
            theta[:, i] = impacts.known[p.name]
    free = tuple(
        i
        for i, (p, slot) in enumerate(zip(scene.params, scene.slots, strict=True))
        if slot is not None and p.name not in impacts.known
    )
    return IdentificationProblem(
        scene,
        before,
        impacts.after,
        theta,
        free,
        gyration or inertia(scene, scene.struck_body).gyration,
    )


def identify(
    scene: Scene,
    impacts: Impacts,
    *,
    method: Method = "cmaes",
    seed: int = 0,
    gyration: float | None = None,
) -> IdentificationResult:
    """Constant theta that makes MuJoCo reproduce recorded impacts best; the same numbers for a
    seed.
    """
    impacts = impacts.checked()
    return identify_rows(
        identification_problem(scene, impacts, gyration=gyration),
        np.arange(len(impacts)),
        method,
        seed=seed,
    )


def identify_rows(
    setup: IdentificationProblem, rows: np.ndarray, method: str, *, seed: int = 0
) -> IdentificationResult:
    """`identify` on some rows (n,) of a rig that is used many times."""
    ways: dict[str, Callable[[IdentificationProblem, np.ndarray, int], IdentificationResult]] = {
        "grid": _by_grid,
        "cmaes": _by_cmaes,
        "hopping": _by_hopping,
        "sysid": _by_sysid,
        "mjx": _by_mjx,
    }
    if method not in ways:
        raise DataError(
            f"there is no method {method!r} of identification; {did_you_mean(method, get_args(Method))}"
        )
    if not setup.free:
        return IdentificationResult(
            setup.theta.mean(0),
            float("nan"),
            0,
            f"scene {setup.scene.name!r} has no parameter to identify in MuJoCo",
        )
    return ways[method](setup, np.asarray(rows), seed)


@dataclass(frozen=True, eq=False)
class GridTable:
    """All rows of a rig simulated at all grid points: unit (g, q), after (g, N, k). Any subset of
    rows is then a table look-up.
    """

    setup: IdentificationProblem
    unit: np.ndarray
    after: np.ndarray
    _table: np.ndarray = field(repr=False)  # (g, N): loss of each impact

    def best(self, rows: np.ndarray) -> int:
        """The grid point with the lowest loss on `rows`."""
        return int(self._table[:, rows].mean(1).argmin())

    def identified(self, rows: np.ndarray) -> IdentificationResult:
        """The best grid point as a result."""
        point = self.best(rows)
        return IdentificationResult(
            self.setup.natural(self.unit[point]),
            float(self._table[point, rows].mean()),
            self._table[:, rows].size,
        )


def grid(setup: IdentificationProblem, rows: np.ndarray | None = None) -> GridTable:
    """Simulate `rows` (default all) on a grid over at most three parameters."""
    rows = np.arange(len(setup.before)) if rows is None else rows
    chosen = replace(
        few(setup), before=setup.before[rows], after=setup.after[rows], theta=setup.theta[rows]
    )
    q = len(chosen.free)
    axis = np.linspace(-1, 1, _POINTS[q])
    unit = np.stack([g.ravel() for g in np.meshgrid(*[axis] * q, indexing="ij")], 1)
    every = np.arange(len(rows))
    after = chosen.simulate(unit, every)
    return GridTable(chosen, unit, after, (chosen.residual(after, every) ** 2).sum(-1))


def few(setup: IdentificationProblem, count: int = 3) -> IdentificationProblem:
    """The rig with at most `count` parameters to identify, those of the strike first; the others
    stay nominal.
    """
    order = sorted(
        setup.free, key=lambda i: (not setup.scene.params[i].target.startswith("pair/strike"), i)
    )
    return setup if len(order) <= count else replace(setup, free=tuple(sorted(order[:count])))


def _by_grid(setup: IdentificationProblem, rows: np.ndarray, seed: int) -> IdentificationResult:
    return grid(setup, rows).identified(np.arange(len(rows)))


def _starts(setup: IdentificationProblem, count: int, seed: int) -> np.ndarray:
    """Starting points (count, q): the nominal one, then spread evenly over the unit scale."""
    centre = np.clip(to_unit(setup.params, setup.scene.nominal[list(setup.free)]), -0.8, 0.8)
    spread = (
        qmc.LatinHypercube(len(setup.free), rng=np.random.default_rng(seed)).random(
            max(1, count - 1)
        )
        * 1.6
        - 0.8
    )
    return np.vstack([centre, spread])[:count]


def _by_cmaes(
    setup: IdentificationProblem,
    rows: np.ndarray,
    seed: int,
    *,
    restarts: int = 3,
    generations: int = 40,
) -> IdentificationResult:
    """Restarts run side by side, so that each generation of all of them is one batch."""
    from cmaes import CMA

    q = len(setup.free)
    bounds = np.tile([-1.0, 1.0], (q, 1))
    runs = [
        CMA(mean=s, sigma=0.5, bounds=bounds, seed=seed * 97 + i, population_size=6 + 2 * q)
        for i, s in enumerate(_starts(setup, restarts, seed))
    ]
    best, lowest, evaluations = np.zeros(q), np.inf, 0
    for _ in range(generations):
        asked = [np.array([run.ask() for _ in range(run.population_size)]) for run in runs]
        points = np.concatenate(asked)
        losses = setup.losses(points, rows)
        evaluations += len(points) * len(rows)
        if losses.min() < lowest:
            best, lowest = points[losses.argmin()], float(losses.min())
        parts = np.split(losses, np.cumsum([len(a) for a in asked])[:-1])
        for run, a, loss in zip(runs, asked, parts, strict=True):
            run.tell(list(zip(a, loss, strict=True)))
        # Done when a population has shrunk to a point; the best of it is then far closer than the
        # data can tell.
        runs = [
            run
            for run, a, loss in zip(runs, asked, parts, strict=True)
            if np.ptp(a, axis=0).max() > 1e-2 and np.ptp(loss) > 1e-9 and not run.should_stop()
        ]
        if not runs:
            break
    return IdentificationResult(setup.natural(best), lowest, evaluations)


def _by_hopping(
    setup: IdentificationProblem, rows: np.ndarray, seed: int, *, chains: int = 6
) -> IdentificationResult:
    """Parallel basin hopping: all chains, and the central differences that their descents need, are
    one batch.
    """
    from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins

    q, count = len(setup.free), 0
    shifts = _STEP * np.concatenate([np.zeros((1, q)), np.eye(q), -np.eye(q)])

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal count
        asked = np.clip(points + shifts[:, None], -1, 1)  # (1 + 2 q, m, q)
        count += asked.shape[0] * asked.shape[1] * len(rows)
        value = setup.residual(setup.simulate(asked.reshape(-1, q), rows), rows).reshape(
            *asked.shape[:2], -1
        ) / np.sqrt(len(rows))
        width = np.einsum("jmj->mj", (asked[1 : q + 1] - asked[q + 1 :]))
        return value[0], np.moveaxis(value[1 : q + 1] - value[q + 1 :], 0, -1) / width[:, None]

    found = hop_basins(
        evaluate,
        _starts(setup, chains, seed),
        seed=seed,
        hops=BasinHoppingConfig(rounds=5, steps_per_round=4, polish_steps=10),
    )
    return IdentificationResult(setup.natural(found.best), found.loss, count)


def to_sysid(
    setup: IdentificationProblem, rows: np.ndarray | None = None
) -> tuple[sysid.ParameterDict, Callable[..., Any]]:
    """The same problem for the official toolbox: `mujoco.sysid.optimize(*to_sysid(identification_problem), eps=1e-2)`
    solves it, and all else there goes on from it.

    Values are on the unit scale [-1, 1] of each parameter, where one step of finite differences
    fits all; each parameter's modifier writes its natural value into an MjSpec. The residual takes
    x (q,) or (q, m) and runs all m points in one batch.
    """
    with needs("mujoco.sysid", "sysid"):
        from mujoco.sysid import Parameter, ParameterDict
    rows = np.arange(len(setup.before)) if rows is None else rows
    start = np.clip(to_unit(setup.params, setup.scene.nominal[list(setup.free)]), -0.99, 0.99)
    params = ParameterDict(
        {
            p.name: Parameter(p.name, s, -1.0, 1.0, modifier=_modifier(p))
            for p, s in zip(setup.params, start, strict=True)
        }
    )

    def residual(x: np.ndarray, *_: object, **__: object) -> tuple[list[np.ndarray], None, None]:
        points = np.reshape(x, (len(setup.free), -1)).T
        flat = setup.residual(setup.simulate(points, rows), rows).reshape(
            len(points), -1
        ).T / np.sqrt(len(rows))
        return [flat if np.ndim(x) == 2 else flat[:, 0]], None, None

    return params, residual


def _modifier(param: Param) -> Callable[[Any, Any], None]:
    """A function (MjSpec, Parameter) that writes a unit-scale value into the author's scene."""
    kind, name, rest = (
        param.target.split("/", 2)
        if param.target.count("/") > 1
        else ("option", "", param.target.split("/")[1])
    )
    attribute, _, index = rest.rstrip("]").partition("[")

    def write(spec: Any, parameter: Any) -> None:
        value = param.sign * float(from_unit([param], parameter.as_vector())[0])
        element = spec.option if kind == "option" else getattr(spec, kind)(name)
        if not index:
            setattr(element, attribute, value)
            return
        first, _, last = index.partition(":")
        entries = np.array(getattr(element, attribute), float)
        entries[int(first) : int(last or int(first) + 1)] = value
        setattr(element, attribute, entries)

    return write


def _by_sysid(
    setup: IdentificationProblem, rows: np.ndarray, seed: int, *, starts: int = 4
) -> IdentificationResult:
    """`mujoco.sysid`: Gauss-Newton with finite differences, from a few starts."""
    params, residual = to_sysid(setup, rows)
    from mujoco import sysid

    count, found = 0, []

    def counted(x: np.ndarray, p: object) -> tuple[list[np.ndarray], None, None]:
        nonlocal count
        count += np.size(x) // len(setup.free) * len(rows)
        return residual(x)

    for start in _starts(setup, starts, seed):
        params.update_from_vector(start)
        fitted, _ = sysid.optimize(
            params,
            counted,
            "mujoco",
            verbose=False,
            eps=_STEP,
            max_iters=25,
            xtol=1e-4,
            output=io.StringIO(),
        )
        found.append(fitted.as_vector())
    losses = setup.losses(np.array(found), rows)
    return IdentificationResult(
        setup.natural(found[int(losses.argmin())]),
        float(losses.min()),
        count + len(found) * len(rows),
    )


def _by_mjx(
    setup: IdentificationProblem, rows: np.ndarray, seed: int, *, starts: int = 3
) -> IdentificationResult:
    """Gauss-Newton with the exact slopes of MJX, all starts at once; the score is MuJoCo's own,
    like that of the other methods.
    """
    from clashsim.sim.mjx.impact_jacobian import (
        MjxImpactJacobian,
        UnsupportedByMjx,
        cap_residuals,
        least_squares_from_starts,
    )

    setup = few(setup)  # each parameter is one more forward pass through every step
    impacts, count = MjxImpactJacobian.of(setup.scene, setup.free), 0

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal count
        after, slope = impacts(setup.before[rows], setup.theta[rows], points, steps=steps)
        count += len(points) * len(rows)
        scale = setup.scale[rows]
        off, turn = cap_residuals((after - setup.after[rows]) * scale, slope * scale[..., None])
        root = np.sqrt(len(rows))
        return off.reshape(len(points), -1) / root, turn.reshape(
            len(points), -1, points.shape[1]
        ) / root

    try:
        steps = impacts.length(setup.striker, setup.before[rows], setup.theta[rows])
        points, _ = least_squares_from_starts(evaluate, _starts(setup, starts, seed))
    except UnsupportedByMjx as problem:
        return IdentificationResult(setup.theta.mean(0), float("nan"), count, str(problem))
    losses = setup.losses(points, rows)
    return IdentificationResult(
        setup.natural(points[int(losses.argmin())]), float(losses.min()), count
    )
