"""Which friction formula describes torques: all are fitted, and compared by evidence.

The evidence is approximated by the Bayesian information criterion: n log(mean squared residual) + k
log n for k coefficients and n independent torques.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize, nnls

from clashsim.core.errors import DataError
from clashsim.core.friction_formula import TERM_FACTORS, FrictionFormula, FrictionTerm

# From few to many terms: of two that are equally good the first is taken.
LAWS: tuple[tuple[FrictionTerm, ...], ...] = (
    (),
    ("viscous",),
    ("dry",),
    ("load",),
    ("dry", "viscous"),
    ("load", "viscous"),
    ("dry", "load"),
    ("dry", "stribeck"),
    ("dry", "load", "viscous"),
    ("dry", "stribeck", "viscous"),
)
_IN_MJCF = frozenset(("viscous", "dry"))  # terms that MJCF has attributes for
# Shares of the usual speed (root mean square) between which the speeds of a formula are searched.
# Above the first range's end, smoothed dry friction is no longer dry.
_SMOOTHING = (2e-3, 0.6)
_STRIBECK = (0.05, 2.0)
_GRID = 9
_LEAST_LOAD_CHANGE = 0.05  # of the mean load: with less, friction by load is dry friction
_FEWEST = 8  # torques that a formula is fitted to
# Error that torques have at best, as a share of their root mean square. Without it, terms would be
# added to describe the last digits of a network's output.
_PRECISION = 0.03


@dataclass(frozen=True)
class FormulaFit:
    """A formula fitted to torques.

    Attributes:
        formula: The formula with its coefficients.
        bic: Bayesian information criterion; the lower, the more evidence.
        explained: Share of the mean squared torque that the formula describes.
    """

    formula: FrictionFormula
    bic: float
    explained: float

    @property
    def in_mjcf(self) -> bool:
        """Whether MJCF has an attribute for each term."""
        return set(self.formula.terms) <= _IN_MJCF


def fit_formulas(
    speed: np.ndarray,
    torque: np.ndarray,
    load: np.ndarray | None = None,
    *,
    count: int | None = None,
) -> tuple[FormulaFit, ...]:
    """Fit all friction formulas to torques.

    Coefficients are not negative, so that no formula drives.

    Args:
        speed: Speeds of the joint, rad/s, (n,).
        torque: Torques, N m, (n,).
        load: Forces in the joint's bearing, N, (n,); without them none depends on the load.
        count: How many of the torques are independent; n by default. The outputs of a small
            network are fewer independent numbers than states in which it is evaluated.

    Returns:
        The fits, the one with most evidence first.
    """
    speed, torque = np.asarray(speed, float), np.asarray(torque, float)
    if speed.shape != torque.shape or speed.ndim != 1 or len(speed) < _FEWEST:
        raise DataError(
            f"formulas need as many speeds as torques, {_FEWEST} or more, got arrays of shapes "
            f"{speed.shape} and {torque.shape}"
        )
    if load is not None:
        load = np.asarray(load, float)
        if load.shape != speed.shape:
            raise DataError(f"formulas need one load per speed, got shape {load.shape}")
        if load.std() < _LEAST_LOAD_CHANGE * np.abs(load).mean():
            load = None
    independent = min(len(speed), count or len(speed))
    fits = []
    for terms in LAWS:
        if "load" in terms and load is None:
            continue
        fits.append(_fit_law(terms, speed, torque, load, independent))
    return tuple(sorted(fits, key=lambda fit: fit.bic))


def _fit_law(
    terms: tuple[FrictionTerm, ...],
    speed: np.ndarray,
    torque: np.ndarray,
    load: np.ndarray | None,
    independent: int,
) -> FormulaFit:
    """Fit one formula: its speeds by search, its factors by non-negative least squares."""
    usual = float(np.sqrt(np.mean(speed**2))) or 1.0
    ranges = {"smoothing": _SMOOTHING, "stribeck_speed": _STRIBECK}
    names = [name for name in FrictionFormula(terms).coefficients if name in ranges]
    bounds = [tuple(np.log(np.array(ranges[name]) * usual)) for name in names]

    def at(logarithms: np.ndarray) -> tuple[FrictionFormula, float]:
        """The formula with these speeds and its best factors, and the squared residual."""
        speeds = dict(zip(names, np.exp(logarithms).tolist(), strict=True))
        formula = replace(FrictionFormula(terms), **speeds)
        columns = formula.columns(speed, load)
        if not terms:
            return formula, float((torque**2).sum())
        sizes = np.sqrt((columns**2).sum(0)) + np.finfo(float).tiny
        factors, residual = nnls(columns / sizes, torque)
        values = dict(
            zip([TERM_FACTORS[t] for t in terms], (factors / sizes).tolist(), strict=True)
        )
        return replace(formula, **values), float(residual**2)

    formula, squared = at(_search(lambda x: at(x)[1], bounds))
    n = independent
    total = float((torque**2).sum()) or 1.0
    mean_square = (squared + _PRECISION**2 * total) / len(torque)
    bic = n * np.log(mean_square) + len(formula.coefficients) * np.log(n)
    return FormulaFit(formula, float(bic), 1 - squared / total)


def _search(cost: Callable[[np.ndarray], float], bounds: list[tuple[float, float]]) -> np.ndarray:
    """The best point within bounds: a grid, then Nelder and Mead's descent from its best point."""
    if not bounds:
        return np.zeros(0)
    axes = [np.linspace(low, high, _GRID) for low, high in bounds]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(bounds))
    best = points[int(np.argmin([cost(point) for point in points]))]
    options = {"xatol": 1e-3, "fatol": 0.0, "maxiter": 80 * len(bounds)}
    end = minimize(cost, best, method="Nelder-Mead", bounds=bounds, options=options)
    return np.asarray(end.x if end.fun < cost(best) else best)
