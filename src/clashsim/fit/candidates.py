"""Candidate strikes to choose from: evenly spread over the ranges of a scene and a task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.stats import qmc

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError, ParamError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.fit.sample import sample_strikes

_MIN_STRIKES = 20  # below, there are too few to choose from
_OVERSAMPLING = 8  # factor for strikes from one side, since most of the sampled ones are dropped


@dataclass(frozen=True, eq=False)
class Candidates:
    """N strikes, in a plane on a body at the origin.

    Attributes:
        names: Names (d,) of the quantities that describe a strike, as in [strikes].
        strikes: Their values (N, d); m/s, rad, rad/s.
        impacts: The strikes as impacts, with outcomes of zero.
        touch: Points of first contact (N, 2 or 3), m, in the struck body's axes.
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
    """Sample at most n strikes over the ranges of the scene's [strikes].

    In a plane they are those of a Sobol sequence. In space bodies are oriented at random.

    Args:
        scene: The scene.
        seed: Seed of the sequence.
        n: Largest number of strikes.
        speed: Lowest and highest speed, m/s; by default those of the scene.
        side: Bearings (rad) of the striker from the body between which strikes are kept, from the
            first counter-clockwise to the second; all by default. In a plane only.
        known: Values of the parameters that are measured with each impact, by name.

    Returns:
        The strikes.
    """
    if speed is not None:
        _check_speeds(speed, scene.strikes.speed)
    if scene.plane is None:
        if side is not None:
            raise ParamError(
                f"a side is a bearing in a plane, but bodies of scene {scene.name!r} move in space"
            )
        return _spatial_candidates(scene, seed, n, speed=speed, known=known or {})
    ranges = strike_ranges(scene)
    if speed is not None:
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
    impacts = _without_outcome(before[rows], known or {})
    touch = contact_frame(scene, impacts).contact.point
    return Candidates(tuple(ranges), strikes[rows], impacts, touch)


def _check_speeds(speed: tuple[float, float], limits: tuple[float, float]) -> None:
    """Raise a `ParamError` unless speeds (m/s) are two numbers within limits, low first."""
    low, high = limits
    finite = all(map(math.isfinite, speed))
    if not (finite and low <= speed[0] < speed[1] <= high):
        raise ParamError(
            f"speeds to choose from must lie within {low:g} to {high:g} m/s, low first, "
            f"got {speed[0]:g} to {speed[1]:g}"
        )


def _without_outcome(before: np.ndarray, known: Mapping[str, float]) -> Impacts:
    """Impacts `before` (N, d) with outcomes of zero and values measured with each of them."""
    planar = MotionBefore.of(before).struck.planar
    measured = {name: np.full(len(before), value) for name, value in known.items()}
    return Impacts(planar, before, np.zeros((len(before), 3 if planar else 6)), known=measured)


def _spatial_candidates(
    scene: Scene,
    seed: int,
    n: int,
    *,
    speed: tuple[float, float] | None,
    known: Mapping[str, float],
) -> Candidates:
    """Strikes, or throws at something fixed, of bodies in space that are oriented at random."""
    if speed is not None:
        scene = replace(scene, strikes=replace(scene.strikes, speed=speed))
    batch = sample_strikes(scene, n, np.random.default_rng(seed))
    impacts = _without_outcome(batch.before[batch.contact.touching], known)
    contact = contact_frame(scene, impacts).contact
    struck = impacts.motion.struck
    to_body = Rotation.from_quat(struck.quaternion, scalar_first=True).inv()
    velocity = impacts.motion.approach_velocity
    speeds = np.linalg.norm(velocity, axis=1)
    closing_share = -np.einsum("ni,ni->n", velocity, contact.normal) / speeds
    strikes = [
        speeds,
        np.arccos(np.clip(closing_share, -1, 1)),
        np.linalg.norm(struck.angular_velocity, axis=1),
    ]
    return Candidates(
        ("speed", "deflection", "spin"),
        np.column_stack(strikes),
        impacts,
        to_body.apply(contact.point - struck.position),
    )


def _from_side(before: np.ndarray, side: tuple[float, float]) -> np.ndarray:
    """Whether the strikers in states (N, d) are at bearings within a side (see `candidates`)."""
    width = (side[1] - side[0]) % (2 * math.pi) or 2 * math.pi
    x, y = MotionBefore.of(before).striker.position.T
    bearing = np.arctan2(y, x)
    return (bearing - side[0]) % (2 * math.pi) <= width
