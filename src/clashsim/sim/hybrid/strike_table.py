"""Make a map of strikes: look up what a hybrid simulator's model says over all strikes that can be
chosen, once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import DataError, SceneError
from clashsim.core.protocols import StrikeModel
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.nets.strike_table import Fidelity, StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim

_POINTS = {
    "point": 193,
    "turn": 17,
    "offset": 33,
    "yaw": 33,
    "deflection": 7,
    "speed": 5,
}  # the outcome bends most at corners, and hardly with speed
_MEET = 0.8  # of the strikes that can be chosen must meet the body
_STILL = 1e-6  # m/s and rad/s: as good as not moved, and still with a direction
_TRIED = 256  # strikes between the table's points on which it is compared with the model


def strike_table(hybrid: HybridSim, theta: np.ndarray | None = None) -> StrikeTable:
    """The map of a hybrid simulator with a slide model; theta (p,): as for `HybridSim.outcome`."""
    if hybrid.slide_model is None:
        raise DataError("a map of strikes needs a slide model: HybridSim(..., slide_model=...)")
    scene = hybrid.scene
    ranges = strike_ranges(scene)
    if "speed" not in ranges:
        raise SceneError(
            f"the [strikes] of scene {scene.name!r} has no range of speed to choose strikes from"
        )
    names, (low, high) = list(ranges), np.array(list(ranges.values())).T
    grids, strikes = strike_grid(names, low, high)
    tried = np.random.default_rng(0).uniform(low, high, (_TRIED, len(names)))
    after, spread, doubted = _seen_from_body(hybrid, names, np.vstack([strikes, tried]), theta)
    shape, n = (*(len(g) for g in grids), 3), len(strikes)
    out = StrikeTable.of(
        names, grids, after[:n].reshape(shape), spread[:n].reshape(shape), hybrid.slide_model
    )
    gap = np.abs(
        out.rest(np.zeros((_TRIED, 3)), tried)
        - hybrid.slide_to_rest(np.zeros((_TRIED, 3)), after[n:])
    )
    far, turn = np.linalg.norm(gap[:, :2], axis=1), gap[:, 2]
    position, position_most, yaw, yaw_most = (
        float(np.percentile(x, q)) for x in (far, turn) for q in (50, 95)
    )
    out.fidelity = Fidelity(position, position_most, yaw, yaw_most, float(doubted.mean()))
    return out


def strike_grid(
    names: Sequence[str], low: np.ndarray, high: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """The values along each axis of a table, and all strikes (N, d) that they make."""
    grids = [np.linspace(a, b, _POINTS[name]) for name, a, b in zip(names, low, high, strict=True)]
    return grids, np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], 1)


def tabulate_strikes(model: StrikeModel, *, rows: int = 2048) -> StrikeTable:
    """Any model of strikes as a map, asked once at every point of the grid; where it knows no
    spread there is none, and twists are not told.
    """
    grids, strikes = strike_grid(model.names, model.low, model.high)
    parts = np.array_split(strikes, -(-len(strikes) // rows))
    rest = np.vstack([model.rest(np.zeros((len(part), 3)), part) for part in parts])
    rest[:, 2] = wrap_angle(rest[:, 2])
    return StrikeTable.from_rest_poses(model.names, grids, rest)


def _seen_from_body(
    hybrid: HybridSim, names: Sequence[str], strikes: np.ndarray, theta: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twist after and its spread (N, 3) for a body at the origin, and whether the model doubts them
    (N,).
    """
    before, contact = before_from_strikes(hybrid.scene, dict(zip(names, strikes.T, strict=True)))
    if not contact.touching.all():
        bad = dict(
            zip(names, np.round(strikes[np.argmin(contact.touching)], 3).tolist(), strict=True)
        )
        raise SceneError(
            f"some strikes of the [strikes] of scene {hybrid.scene.name!r} never meet the body, as {bad}: narrow its ranges"
        )
    there = move_pair_to(before, np.zeros(3))
    try:
        return hybrid.predict_with_std(there, theta)
    except DataError:  # brought to touch along another way than they approach, blunt strikers may miss at the rim of the ranges
        meets = advance_to_contact(hybrid.scene, there)[0].touching
    if meets.mean() < _MEET:
        raise SceneError(
            f"{100 * (1 - meets.mean()):.0f} % of the strikes of the [strikes] of scene {hybrid.scene.name!r} miss the body along their approach: narrow its ranges"
        )
    after, spread, doubted = (
        np.full((len(there), 3), _STILL),
        np.full((len(there), 3), _STILL),
        np.ones(len(there), bool),
    )  # what is missed stays where it is
    after[meets], spread[meets], doubted[meets] = hybrid.predict_with_std(there[meets], theta)
    return after, spread, doubted
