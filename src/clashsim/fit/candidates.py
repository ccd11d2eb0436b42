"""Candidate strikes to choose from: evenly spread over the ranges of a scene and a task."""

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

_MIN_STRIKES = 20  # below, there are too few to choose from
_OVERSAMPLING = 8  # factor for strikes from one side, since most of the sampled ones are dropped


@dataclass(frozen=True, eq=False)
class Candidates:
    """N strikes on a body at the origin.

    Attributes:
        names: Names (d,) of the quantities that describe a strike, as in [strikes].
        strikes: Their values (N, d); m/s, rad, rad/s.
        impacts: The strikes as impacts, with outcomes of zero.
        touch: Points of first contact (N, 2), m, in the struck body's axes.
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
    """Sample at most n strikes by a Sobol sequence over the ranges of the scene's [strikes].

    Args:
        scene: The scene.
        seed: Seed of the sequence.
        n: Largest number of strikes.
        speed: Lowest and highest speed, m/s; by default those of the scene.
        side: Bearings (rad) of the striker from the body between which strikes are kept, from the
            first counter-clockwise to the second; all by default.
        known: Values of the parameters that are measured with each impact, by name.

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
    if len(rows) < _MIN_STRIKES:
        raise DataError(
            f"only {len(rows)} of {len(strikes)} strikes that scene {scene.name!r} allows come "
            "from that side: too few to choose from"
        )
    measured = {name: np.full(len(rows), value) for name, value in (known or {}).items()}
    unknown_after = np.zeros((len(rows), 3))
    impacts = Impacts(True, before[rows], unknown_after, known=measured)
    touch = contact_frame(scene, impacts).contact.point
    return Candidates(tuple(ranges), strikes[rows], impacts, touch)


def _from_side(before: np.ndarray, side: tuple[float, float]) -> np.ndarray:
    """Whether the strikers in states (N, d) are at bearings within a side (see `candidates`)."""
    width = (side[1] - side[0]) % (2 * math.pi) or 2 * math.pi
    x, y = MotionBefore.of(before).striker.position.T
    bearing = np.arctan2(y, x)
    return (bearing - side[0]) % (2 * math.pi) <= width
