"""Make a map of strikes: look up what a hybrid simulator's model says over all strikes that can be chosen, once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.errors import DataError, SceneError
from clashsim.core.strikes import axes, moved_to, placed
from clashsim.nets.strike_map import Fidelity, StrikeMap
from clashsim.nets.table import Table
from clashsim.sim.hybrid import HybridSim

_POINTS = {"point": 193, "turn": 17, "offset": 33, "yaw": 33, "deflection": 7, "speed": 5}  # the outcome bends most at corners, and hardly with speed
_TRIED = 256  # strikes between the table's points on which it is compared with the model


def strike_map(hybrid: HybridSim, theta: np.ndarray | None = None) -> StrikeMap:
    """The map of a hybrid simulator with a slide model; theta (p,): as for `HybridSim.outcome`."""
    if hybrid.slide_model is None:
        raise DataError("a map of strikes needs a slide model: HybridSim(..., slide_model=...)")
    scene = hybrid.scene
    ranges = axes(scene)
    if "speed" not in ranges:
        raise SceneError(f"the [draw] of scene {scene.name!r} has no range of speed to choose strikes from")
    names, (low, high) = list(ranges), np.array(list(ranges.values())).T
    grids = [np.linspace(a, b, _POINTS[name]) for name, (a, b) in ranges.items()]
    strikes = np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], 1)
    tried = np.random.default_rng(0).uniform(low, high, (_TRIED, len(names)))
    said, doubted = _seen_from_body(hybrid, names, np.vstack([strikes, tried]), theta)
    table = Table(low.tolist(), high.tolist(), said[: len(strikes)].reshape(*(len(g) for g in grids), 6))
    off = np.linalg.norm((table.read(tried) - said[len(strikes) :])[:, :3] * [1, 1, hybrid.slide_model.gyration], axis=1)
    fidelity = Fidelity(float(np.median(off)), float(np.percentile(off, 95)), float(doubted.mean()))
    return StrikeMap(names, low.tolist(), high.tolist(), table, hybrid.slide_model, fidelity)


def _seen_from_body(hybrid: HybridSim, names: Sequence[str], strikes: np.ndarray, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Twist after and its spread over the speed, in the body's axes (N, 6), and whether the model doubts it (N,)."""
    before, contact = placed(hybrid.scene, dict(zip(names, strikes.T, strict=True)))
    if not contact.touching.all():
        bad = dict(zip(names, np.round(strikes[np.argmin(contact.touching)], 3).tolist(), strict=True))
        raise SceneError(f"some strikes of the [draw] of scene {hybrid.scene.name!r} never meet the body, as {bad}: narrow its ranges")
    after, spread, doubted = hybrid.guess(moved_to(before, np.zeros(3)), theta)
    speed = strikes[:, list(names).index("speed"), None]
    return np.hstack([after, spread]) / speed, doubted
