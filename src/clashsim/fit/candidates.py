"""Strikes to choose from: evenly over those that a scene allows and a task uses."""

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
_OVERSAMPLING = 8  # where only strikes from one side are kept
# Columns of planar states before impact: position of the striker.


@dataclass(frozen=True, eq=False)
class Candidates:
    """N strikes on a body at the origin.

    Attributes:
        names: Names of a strike's numbers.
        strikes: (N, d).
        impacts: The impacts that they would be.
        touch: Points (N, 2) that would be touched, m, in the body's frame.
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

    Args:
        scene: The scene.
        seed: Seed of the sequence.
        n: Most strikes.
        speed: Only these speeds, m/s.
        side: Only strikes from there, rad: bearings of the tip from the body, from the first
            counter-clockwise to the second.
        known: What is measured with each impact, by name.

    Returns:
        The strikes.
    """
    ranges = strike_ranges(scene)
    if speed is not None:
        low, high = ranges.get("speed", scene.strikes.speed)
        finite = all(map(math.isfinite, speed))
        if not (finite and low <= speed[0] < speed[1] <= high):
            raise ParamError(
                f"speeds to choose from must lie within {low:g} to {high:g} m/s, low first, "
                f"got {speed[0]:g} to {speed[1]:g}"
            )
        ranges = {**ranges, "speed": speed}
    if side is not None and not (all(map(math.isfinite, side)) and side[0] != side[1]):
        first, second = np.degrees(side)
        raise ParamError(f"a side is two different bearings, got {first:g} and {second:g} degrees")
    lows, highs = np.array(list(ranges.values())).T
    count = n if side is None else _OVERSAMPLING * n
    sequence = qmc.Sobol(len(ranges), rng=np.random.default_rng(seed))
    strikes = lows + (highs - lows) * sequence.random_base2(math.ceil(math.log2(count)))
    before, contact = before_from_strikes(scene, dict(zip(ranges, strikes.T, strict=True)))
    before = move_pair_to(before, np.zeros(3))
    usable = contact.touching.copy()
    if side is not None:
        usable &= _from_side(before, side)
    rows = np.flatnonzero(usable)[:n]
    if len(rows) < _FEWEST:
        raise DataError(
            f"only {len(rows)} of {len(strikes)} strikes that scene {scene.name!r} allows come "
            "from that side: too few to choose from"
        )
    measured = {name: np.full(len(rows), value) for name, value in (known or {}).items()}
    impacts = Impacts(True, before[rows], np.zeros((len(rows), 3)), known=measured)
    touch = contact_frame(scene, impacts).contact.point
    return Candidates(tuple(ranges), strikes[rows], impacts, touch)


def _from_side(before: np.ndarray, side: tuple[float, float]) -> np.ndarray:
    """Whether strikers of states (N, d) come from bearings between two, counter-clockwise, (N,)."""
    width = (side[1] - side[0]) % (2 * math.pi) or 2 * math.pi
    x, y = MotionBefore.of(before).striker.position.T
    bearing = np.arctan2(y, x)
    return (bearing - side[0]) % (2 * math.pi) <= width
