"""Constant parameters identified on MuJoCo itself.

Grid search, CMA-ES, basin hopping, `mujoco.sysid` and gradients of MJX are behind one call. All of
them minimise the loss of `clashsim.fit.identification_problem`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.identification_problem import (
    IdentificationProblem,
    IdentificationResult,
    identification_problem,
)
from clashsim.fit.sysid_export import to_sysid
from clashsim.optim.levenberg_marquardt import BatchDamping, levenberg_marquardt

Method = Literal["grid", "cmaes", "hopping", "sysid", "mjx"]
_GRID_POINTS = {1: 33, 2: 12, 3: 8}  # grid points on each axis, by how many axes there are
# Step of finite differences on the unit scale: smaller steps show the roughness of the contact
# simulation, not the trend.
_DIFFERENCE = 1e-2
_CMAES_SIGMA = 0.5  # initial step size of CMA-ES on the unit scale
_MIN_POPULATION_WIDTH = 1e-2  # on the unit scale; a narrower population of CMA-ES has converged
_MIN_LOSS_RANGE = 1e-9  # of a population of CMA-ES
# Damping of descents on MJX. It is Levenberg's (a multiple of the identity), since all parameters
# are on the unit scale.
MJX_DAMPING = BatchDamping(
    initial=2e-3, decrease=5.0, increase=10.0, lowest=1e-6, highest=1e3, scaling="identity"
)
MJX_STEPS = 9


def identify(
    scene: Scene,
    impacts: Impacts,
    *,
    method: Method = "cmaes",
    seed: int = 0,
    gyration: float | None = None,
) -> IdentificationResult:
    """Identify the constant theta with which MuJoCo best reproduces recorded impacts.

    Args:
        scene: The scene.
        impacts: The recorded impacts.
        method: The search method.
        seed: Seed of the method; the same seed gives the same numbers.
        gyration: Radius of gyration of the struck body, m; that of the scene by default.

    Returns:
        The identified theta with its loss.
    """
    impacts = impacts.checked()
    problem = identification_problem(scene, impacts, gyration=gyration)
    return identify_rows(problem, np.arange(len(impacts)), method, seed=seed)


def identify_rows(
    problem: IdentificationProblem, rows: np.ndarray, method: str, *, seed: int = 0
) -> IdentificationResult:
    """Like `identify`, on some impacts of a problem; the problem can be reused for other subsets.

    Args:
        problem: The problem.
        rows: Indices (n,) of the impacts to use.
        method: The search method.
        seed: Seed of the method.

    Returns:
        The identified theta with its loss.
    """
    methods: dict[str, Callable[[IdentificationProblem, np.ndarray, int], IdentificationResult]]
    methods = {
        "grid": _by_grid,
        "cmaes": _by_cmaes,
        "hopping": _by_hopping,
        "sysid": _by_sysid,
        "mjx": _by_mjx,
    }
    if method not in methods:
        hint = did_you_mean(method, get_args(Method))
        raise DataError(f"there is no method {method!r} of identification; {hint}")
    if not problem.free:
        failure = f"scene {problem.scene.name!r} has no parameter to identify in MuJoCo"
        return IdentificationResult(problem.theta.mean(0), float("nan"), 0, failure)
    return methods[method](problem, np.asarray(rows), seed)


@dataclass(frozen=True, eq=False)
class GridTable:
    """All impacts of a problem simulated at all grid points.

    Grid search on any subset of the impacts then only needs to look losses up.

    Attributes:
        problem: The problem, with at most three free parameters.
        unit: Grid points (g, q) on the unit scale.
        after: Simulated twists after impact (g, N, k).
    """

    problem: IdentificationProblem
    unit: np.ndarray
    after: np.ndarray
    _losses: np.ndarray = field(repr=False)  # (g, N): loss of each impact

    def best(self, rows: np.ndarray) -> int:
        """Index of the grid point with the lowest mean loss on the impacts `rows`."""
        return int(self._losses[:, rows].mean(1).argmin())

    def identified(self, rows: np.ndarray) -> IdentificationResult:
        """The result of grid search on the impacts `rows`."""
        point = self.best(rows)
        return IdentificationResult(
            self.problem.natural(self.unit[point]),
            float(self._losses[point, rows].mean()),
            self._losses[:, rows].size,
        )


def grid(problem: IdentificationProblem, rows: np.ndarray | None = None) -> GridTable:
    """Simulate impacts on a grid over at most three parameters.

    Args:
        problem: The problem.
        rows: Indices (n,) of the impacts to use; all by default.

    Returns:
        The table of simulated outcomes and losses.
    """
    rows = np.arange(len(problem.before)) if rows is None else rows
    chosen = replace(
        problem.with_few_free(),
        before=problem.before[rows],
        after=problem.after[rows],
        theta=problem.theta[rows],
    )
    q = len(chosen.free)
    axis = np.linspace(-1, 1, _GRID_POINTS[q])
    unit = np.stack([column.ravel() for column in np.meshgrid(*[axis] * q, indexing="ij")], 1)
    every = np.arange(len(rows))
    after = chosen.simulate(unit, every)
    return GridTable(chosen, unit, after, (chosen.residual(after, every) ** 2).sum(-1))


def _by_grid(problem: IdentificationProblem, rows: np.ndarray, seed: int) -> IdentificationResult:
    """Grid search."""
    return grid(problem, rows).identified(np.arange(len(rows)))


def _by_cmaes(
    problem: IdentificationProblem,
    rows: np.ndarray,
    seed: int,
    *,
    restarts: int = 3,
    generations: int = 40,
) -> IdentificationResult:
    """CMA-ES with parallel restarts: a generation of all of them is simulated in one batch."""
    from cmaes import CMA

    q = len(problem.free)
    bounds = np.tile([-1.0, 1.0], (q, 1))
    runs = []
    for i, start in enumerate(problem.starts(restarts, seed)):
        runs.append(
            CMA(
                mean=start,
                sigma=_CMAES_SIGMA,
                bounds=bounds,
                seed=seed * 97 + i,
                population_size=6 + 2 * q,
            )
        )
    best = np.zeros(q)
    lowest = np.inf
    evaluations = 0
    for _ in range(generations):
        populations = []
        for run in runs:
            populations.append(np.array([run.ask() for _ in range(run.population_size)]))
        points = np.concatenate(populations)
        losses = problem.losses(points, rows)
        evaluations += len(points) * len(rows)
        if losses.min() < lowest:
            best = points[losses.argmin()]
            lowest = float(losses.min())
        ends = np.cumsum([len(population) for population in populations])[:-1]
        unfinished = []
        for run, population, loss in zip(runs, populations, np.split(losses, ends), strict=True):
            run.tell(list(zip(population, loss, strict=True)))
            # A population that has shrunk to a point has converged: its points differ less than the
            # data can resolve.
            is_wide = np.ptp(population, axis=0).max() > _MIN_POPULATION_WIDTH
            if is_wide and np.ptp(loss) > _MIN_LOSS_RANGE and not run.should_stop():
                unfinished.append(run)
        runs = unfinished
        if not runs:
            break
    return IdentificationResult(problem.natural(best), lowest, evaluations)


def _by_hopping(
    problem: IdentificationProblem, rows: np.ndarray, seed: int, *, chains: int = 6
) -> IdentificationResult:
    """Parallel basin hopping: all chains with their central differences are one batch."""
    from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins

    q = len(problem.free)
    shifts = _DIFFERENCE * np.concatenate([np.zeros((1, q)), np.eye(q), -np.eye(q)])
    evaluations = 0

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, r) and Jacobian (m, r, q) at points (m, q)."""
        nonlocal evaluations
        shifted = np.clip(points + shifts[:, None], -1, 1)  # (1 + 2 q, m, q)
        evaluations += shifted.shape[0] * shifted.shape[1] * len(rows)
        residuals = problem.residual(problem.simulate(shifted.reshape(-1, q), rows), rows)
        residuals = residuals.reshape(*shifted.shape[:2], -1) / np.sqrt(len(rows))
        ahead = slice(1, q + 1)
        behind = slice(q + 1, None)
        # (m, q): distance between the two shifted points along each parameter, after clipping.
        width = np.einsum("jmj->mj", shifted[ahead] - shifted[behind])
        difference = residuals[ahead] - residuals[behind]
        return residuals[0], np.moveaxis(difference, 0, -1) / width[:, None]

    found = hop_basins(
        evaluate,
        problem.starts(chains, seed),
        seed=seed,
        hops=BasinHoppingConfig(rounds=5, steps_per_round=4, polish_steps=10),
    )
    return IdentificationResult(problem.natural(found.best), found.loss, evaluations)


def _by_sysid(
    problem: IdentificationProblem, rows: np.ndarray, seed: int, *, starts: int = 4
) -> IdentificationResult:
    """Use `mujoco.sysid`: Gauss-Newton with finite differences, from a few starts."""
    params, residual = to_sysid(problem, rows)
    from mujoco import sysid

    evaluations = 0
    found = []

    def counted_residual(x: np.ndarray, p: object) -> tuple[list[np.ndarray], None, None]:
        nonlocal evaluations
        evaluations += np.size(x) // len(problem.free) * len(rows)
        return residual(x)

    for start in problem.starts(starts, seed):
        params.update_from_vector(start)
        fitted, _ = sysid.optimize(
            params,
            counted_residual,
            "mujoco",
            verbose=False,
            eps=_DIFFERENCE,
            max_iters=25,
            xtol=1e-4,
            output=io.StringIO(),
        )
        found.append(fitted.as_vector())
    losses = problem.losses(np.array(found), rows)
    best = found[int(losses.argmin())]
    evaluations += len(found) * len(rows)
    return IdentificationResult(problem.natural(best), float(losses.min()), evaluations)


def _by_mjx(
    problem: IdentificationProblem, rows: np.ndarray, seed: int, *, starts: int = 3
) -> IdentificationResult:
    """Levenberg-Marquardt with the exact Jacobian of MJX, all starts at once.

    The reported loss is computed with MuJoCo, as for the other methods.
    """
    from clashsim.sim.mjx.impact_jacobian import (
        MjxImpactJacobian,
        UnsupportedByMjx,
        cap_residuals,
    )

    problem = problem.with_few_free()  # the cost of the Jacobian grows with each parameter
    impacts = MjxImpactJacobian.of(problem.scene, problem.free)
    before = problem.before[rows]
    theta = problem.theta[rows]
    counted = np.where(np.isnan(problem.after[rows]), 0.0, problem.scale[rows])
    evaluations = 0

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, r) and Jacobian (m, r, q) at points (m, q)."""
        nonlocal evaluations
        after, jacobian = impacts(before, theta, points, steps=steps)
        evaluations += len(points) * len(rows)
        relative = problem.miss(after, rows)
        residual, jacobian = cap_residuals(relative, jacobian * counted[..., None])
        m, q = points.shape
        root = np.sqrt(len(rows))
        return residual.reshape(m, -1) / root, jacobian.reshape(m, -1, q) / root

    try:
        steps = impacts.length(problem.simulator, before, theta)
        found = levenberg_marquardt(
            evaluate, problem.starts(starts, seed), steps=MJX_STEPS, damping=MJX_DAMPING
        )
    except UnsupportedByMjx as reason:
        return IdentificationResult(problem.theta.mean(0), float("nan"), evaluations, str(reason))
    losses = problem.losses(found.points, rows)
    best = found.points[int(losses.argmin())]
    return IdentificationResult(problem.natural(best), float(losses.min()), evaluations)
