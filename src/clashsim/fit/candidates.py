"""Candidate strikes to choose from: within the ranges of a scene and a task, or of recordings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.stats import qmc

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError, ParamError, SceneError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import StrikeDistribution
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.fit.sample import sample_strikes
from clashsim.fit.similar_strikes import SimilarStrikes, moves_freely, similar_strikes, speed_range

_MIN_STRIKES = 20  # below, there are too few to choose from
_OVERSAMPLING = 8  # factor for strikes from one side, since most of the sampled ones are dropped


@dataclass(frozen=True, eq=False)
class Candidates:
    """N strikes; in a plane on a body at the origin, unless joints carry it.

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
    recorded: np.ndarray | None = None,
) -> Candidates:
    """Sample at most n strikes over the ranges of the scene's [strikes].

    In a plane they are those of a Sobol sequence. In space bodies are oriented at random. Where
    nobody gave ranges in space, or joints restrict a body, they are strikes like the recorded ones.

    Args:
        scene: The scene.
        seed: Seed of the sequence.
        n: Largest number of strikes.
        speed: Lowest and highest speed, m/s; by default those of the scene.
        side: Bearings (rad) of the striker from the body between which strikes are kept, from the
            first counter-clockwise to the second; all by default. In a plane only.
        known: Values of the parameters that are measured with each impact, by name.
        recorded: Motion (N, d) before recorded impacts, as in `Impacts`; None where there are none.

    Returns:
        The strikes.

    Raises:
        SceneError: Where strikes can be made is not known.
    """
    if scene.plane is None and side is not None:
        raise ParamError(
            f"a side is a bearing in a plane, but bodies of scene {scene.name!r} move in space"
        )
    _check_bearings(side)
    if recorded is not None and _has_only_recordings(scene):
        similar = _like_recorded(scene, recorded, np.random.default_rng(seed), n=n, speed=speed)
        return _of_similar(scene, similar, known or {}, side)
    _check_moves_freely(scene)
    if speed is not None:
        _check_speeds(speed, scene.strikes.speed)
    if scene.plane is None:
        return _spatial_candidates(scene, seed, n, speed=speed, known=known or {})
    ranges = strike_ranges(scene)
    if speed is not None:
        ranges = {**ranges, "speed": speed}
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


def _has_only_recordings(scene: Scene) -> bool:
    """Whether only recordings show which strikes can be made.

    That is so where joints restrict the struck body, and where nobody gave ranges of throws, or of
    strikes in space.
    """
    if not moves_freely(scene.struck_body):
        return True
    are_ranges_given = scene.strikes != StrikeDistribution()
    in_space_or_thrown = scene.plane is None or scene.striker_body.fixed
    return in_space_or_thrown and not (are_ranges_given and _striker_can_be_anywhere(scene))


def _striker_can_be_anywhere(scene: Scene) -> bool:
    """Whether nothing but its surface keeps a striker from a side of the struck body."""
    return scene.striker_body.fixed or scene.striker_body.free


def _check_moves_freely(scene: Scene) -> None:
    """Raise a `SceneError` where joints restrict the bodies, and no strike was recorded."""
    for body, role, is_free in (
        (scene.struck_body, "struck body", moves_freely(scene.struck_body)),
        (scene.striker_body, "striker", scene.plane is not None or _striker_can_be_anywhere(scene)),
    ):
        if not is_free:
            raise SceneError(
                f"strikes cannot be proposed for scene {scene.name!r} alone: joints carry its "
                f"{role} {body.name!r}, and only recorded strikes show which ones they allow: "
                "give a run of clashsim calibrate"
            )


def _like_recorded(
    scene: Scene,
    recorded: np.ndarray,
    rng: np.random.Generator,
    *,
    n: int,
    speed: tuple[float, float] | None,
) -> SimilarStrikes:
    """At most n strikes like the recorded ones; arguments as for `candidates`."""
    if scene.strikes != StrikeDistribution():
        limits = scene.strikes.speed
    else:
        limits = speed_range(scene, recorded)
    if speed is not None:
        _check_speeds(speed, limits)
    return similar_strikes(scene, recorded, rng, n=n, speed=speed or limits)


def _of_similar(
    scene: Scene,
    similar: SimilarStrikes,
    known: Mapping[str, float],
    side: tuple[float, float] | None,
) -> Candidates:
    """Candidates of strikes like the recorded ones; arguments as for `candidates`."""
    if side is not None:
        at_origin = move_pair_to(similar.before, np.zeros(3))
        similar = similar[np.flatnonzero(_from_side(at_origin, side))]
    if len(similar) < _MIN_STRIKES:
        raise DataError(
            f"only {len(similar)} strikes like the recorded ones of scene {scene.name!r} were "
            "found that its joints allow from that side, at that speed: too few to choose from"
        )
    return Candidates(
        ("speed", "deflection", "spin"),
        np.column_stack([similar.speed, similar.deflection, similar.spin]),
        _without_outcome(similar.before, known),
        similar.touch,
    )


def _check_bearings(side: tuple[float, float] | None) -> None:
    """Raise a `ParamError` unless a side is two different bearings (rad)."""
    if side is not None and not (all(map(math.isfinite, side)) and side[0] != side[1]):
        first, second = np.degrees(side)
        raise ParamError(f"a side is two different bearings, got {first:g} and {second:g} degrees")


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
