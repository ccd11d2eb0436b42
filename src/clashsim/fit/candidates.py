"""Strikes to choose from: spread evenly over those that a scene allows and a task uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError, ParamError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges

_FEWEST = 20  # strikes that are a choice


@dataclass(frozen=True, eq=False)
class Candidates:
    """Strikes (N, d) by name, the impacts that they would be on a body at the origin, and the
    points (N, 2) that would be touched, m, in its frame.
    """

    names: tuple[str, ...]
    strikes: np.ndarray
    impacts: Impacts
    touch: np.ndarray


def candidates(
    scene: Scene,
    seed: int,
    n: int = 512,
    *,
    speed: tuple[float, float] | None = None,
    side: tuple[float, float] | None = None,
    known: Mapping[str, float] | None = None,
) -> Candidates:
    """At most n strikes of a Sobol sequence over the ranges of the scene's [strikes].

    speed (m/s): only these. side (rad): only strikes from there, as bearings of the tip seen from
    the body, from the first counter-clockwise to
    the second. known: what is measured with each impact, by name.
    """
    ranges = strike_ranges(scene)
    if speed is not None:
        low, high = ranges.get("speed", scene.strikes.speed)
        if not (all(map(math.isfinite, speed)) and low <= speed[0] < speed[1] <= high):
            raise ParamError(
                f"speeds to choose from must lie within {low:g} to {high:g} m/s, low first, got {speed[0]:g} to {speed[1]:g}"
            )
        ranges = {**ranges, "speed": speed}
    if side is not None and not (all(map(math.isfinite, side)) and side[0] != side[1]):
        raise ParamError(
            f"a side is two different bearings, got {np.degrees(side[0]):g} and {np.degrees(side[1]):g} degrees"
        )
    low, high = np.array(list(ranges.values())).T
    drawn = qmc.Sobol(len(ranges), rng=np.random.default_rng(seed)).random_base2(
        math.ceil(math.log2(n if side is None else 8 * n))
    )
    strikes = low + (high - low) * drawn
    before, contact = before_from_strikes(scene, dict(zip(ranges, strikes.T, strict=True)))
    before = move_pair_to(before, np.zeros(3))
    good = contact.touching.copy()
    if side is not None:
        wide = (side[1] - side[0]) % (2 * math.pi) or 2 * math.pi
        x, y = MotionBefore.of(before).striker.position.T
        good &= (np.arctan2(y, x) - side[0]) % (2 * math.pi) <= wide
    rows = np.flatnonzero(good)[:n]
    if len(rows) < _FEWEST:
        raise DataError(
            f"only {len(rows)} of {len(strikes)} strikes that scene {scene.name!r} allows come from that side: too few to choose from"
        )
    impacts = Impacts(
        True,
        before[rows],
        np.zeros((len(rows), 3)),
        known={k: np.full(len(rows), v) for k, v in (known or {}).items()},
    )
    return Candidates(
        tuple(ranges), strikes[rows], impacts, contact_frame(scene, impacts).contact.point
    )
