"""Build strike tables: what a model predicts over all strikes that can be chosen, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from clashsim.core.angles import wrap_angle
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import DataError, SceneError
from clashsim.core.protocols import StrikeModel
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.nets.strike_table import StrikeTable, TableFidelity
from clashsim.sim.hybrid.simulator import HybridSim, ImpactPrediction

# Points of the grid along each axis of a strike: many where the outcome bends sharply, as at the
# corners of a body ("point"), few where it hardly does, as with speed.
_GRID_POINTS = {
    "point": 193,
    "turn": 17,
    "offset": 33,
    "yaw": 33,
    "deflection": 7,
    "speed": 5,
}
# The same for standard deviations, which vary less.
_COARSE_POINTS = {"point": 49, "turn": 9, "offset": 13, "yaw": 13, "deflection": 4, "speed": 3}
_MIN_HITS = 0.8  # least share of all strikes of the grid that must hit the body
# m/s and rad/s: twist after a strike that misses; not zero, because sliding needs a direction.
_STILL = 1e-6
_TEST_STRIKES = 256  # between the table's points, on which it is compared with the model


def strike_table(hybrid: HybridSim, theta: np.ndarray | None = None) -> StrikeTable:
    """Tabulate where struck bodies come to rest in a hybrid simulator with a slide model.

    Args:
        hybrid: The simulator.
        theta: (p,), as for `HybridSim.outcome`.

    Returns:
        The table, with its `fidelity` measured on strikes between its points.
    """
    if hybrid.slide_model is None:
        raise DataError("a strike table needs a slide model: HybridSim(..., slide_model=...)")
    scene = hybrid.scene
    ranges = strike_ranges(scene)
    if "speed" not in ranges:
        raise SceneError(
            f"the [strikes] of scene {scene.name!r} has no range of speed to choose strikes from"
        )
    names = list(ranges)
    low, high = np.array(list(ranges.values())).T
    grids, strikes = strike_grid(names, low, high)
    test_strikes = np.random.default_rng(0).uniform(low, high, (_TEST_STRIKES, len(names)))
    shape = (*(len(grid) for grid in grids), 3)
    prediction = _predict_at_origin(hybrid, names, strikes, theta=theta, most_probable=True)
    # Standard deviations vary slowly, so posterior samples are evaluated on a coarse grid only.
    coarse_grids, coarse_strikes = strike_grid(names, low, high, points=_COARSE_POINTS)
    coarse_shape = (*(len(grid) for grid in coarse_grids), 3)
    sampled = _predict_at_origin(
        hybrid, names, np.vstack([coarse_strikes, test_strikes]), theta=theta
    )
    coarse_count = len(coarse_strikes)
    coarse_std = sampled.std[:coarse_count].reshape(coarse_shape)
    std = RegularGridInterpolator(coarse_grids, coarse_std)(strikes)
    table = StrikeTable.from_twists(
        names,
        grids,
        prediction.twist_after.reshape(shape),
        std=np.maximum(std, prediction.std).reshape(shape),
        slide=hybrid.slide_model,
    )
    table.uncertainty = hybrid.rest_uncertainty()
    origin = np.zeros((_TEST_STRIKES, 3))
    expected = hybrid.slide_to_rest(origin, sampled.twist_after[coarse_count:])
    error = np.abs(table.rest(origin, test_strikes) - expected)
    position_error = np.linalg.norm(error[:, :2], axis=1)
    yaw_error = error[:, 2]
    table.fidelity = TableFidelity(
        position_median=float(np.percentile(position_error, 50)),
        position_p95=float(np.percentile(position_error, 95)),
        yaw_median=float(np.percentile(yaw_error, 50)),
        yaw_p95=float(np.percentile(yaw_error, 95)),
        untrusted_share=float(sampled.untrusted.mean()),
    )
    return table


def strike_grid(
    names: Sequence[str],
    low: np.ndarray,
    high: np.ndarray,
    *,
    points: Mapping[str, int] = _GRID_POINTS,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Lay a grid over strikes.

    Args:
        names: Of the d numbers that describe a strike.
        low: (d,), least values.
        high: (d,), greatest values.
        points: Number of values along each axis, by name.

    Returns:
        The values along each axis, and all strikes (N, d) of the grid.
    """
    grids = [
        np.linspace(first, last, points[name])
        for name, first, last in zip(names, low, high, strict=True)
    ]
    mesh = np.meshgrid(*grids, indexing="ij")
    return grids, np.stack([axis.ravel() for axis in mesh], 1)


def tabulate_strikes(model: StrikeModel, *, rows: int = 2048) -> StrikeTable:
    """Tabulate any model of strikes, asked once at every point of the grid.

    The table has no standard deviations and no twists, because a `StrikeModel` gives none.

    Args:
        model: Gives poses at rest.
        rows: Strikes in one call of the model.
    """
    grids, strikes = strike_grid(model.names, model.low, model.high)
    calls = -(-len(strikes) // rows)
    rest_poses = []
    for part in np.array_split(strikes, calls):
        origin = np.zeros((len(part), 3))
        rest_poses.append(model.rest(origin, part))
    rest = np.vstack(rest_poses)
    rest[:, 2] = wrap_angle(rest[:, 2])
    return StrikeTable.from_rest_poses(model.names, grids, rest)


def _predict_at_origin(
    hybrid: HybridSim,
    names: Sequence[str],
    strikes: np.ndarray,
    *,
    theta: np.ndarray | None,
    most_probable: bool = False,
) -> ImpactPrediction:
    """Outcomes of strikes (N, d) for a body at the origin; a body that is missed stays there."""
    scene = hybrid.scene
    by_name = dict(zip(names, strikes.T, strict=True))
    before, contact = before_from_strikes(scene, by_name)
    if not contact.touching.all():
        miss = np.round(strikes[np.argmin(contact.touching)], 3).tolist()
        raise SceneError(
            f"some strikes of the [strikes] of scene {scene.name!r} never touch the body, such as "
            f"{dict(zip(names, miss, strict=True))}: narrow its ranges"
        )
    before = move_pair_to(before, np.zeros(3))
    try:
        return hybrid.predict_with_std(before, theta, most_probable=most_probable)
    except DataError:
        # `before_from_strikes` moves bodies to contact along another direction than that of their
        # approach, so that a blunt striker may miss at the edge of the ranges.
        hits = advance_to_contact(scene, before)[0].touching
    if hits.mean() < _MIN_HITS:
        raise SceneError(
            f"{100 * (1 - hits.mean()):.0f} % of the strikes of the [strikes] of scene "
            f"{scene.name!r} miss the body along their approach: narrow its ranges"
        )
    twist_after = np.full((len(before), 3), _STILL)
    std = np.full((len(before), 3), _STILL)
    untrusted = np.ones(len(before), bool)
    twist_after[hits], std[hits], untrusted[hits] = hybrid.predict_with_std(
        before[hits], theta, most_probable=most_probable
    )
    return ImpactPrediction(twist_after, std, untrusted)
