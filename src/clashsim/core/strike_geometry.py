"""Strikes in a plane: where and how the striker should hit, as named numbers.

The names are those of `StrikeDistribution`. Such numbers can be drawn, planned and executed; here
they become the motion of a touching pair, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import mujoco
import numpy as np

from clashsim.core.angles import rotate_planar, rotate_quarter_turn, wrap_angle
from clashsim.core.contact_geometry import Contact, PairPoser, advance_to_contact
from clashsim.core.errors import SceneError
from clashsim.core.impacts import MotionBefore
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import Range


def strike_ranges(scene: Scene) -> dict[str, Range]:
    """Find what of a strike may be chosen: the ranges of `scene.strikes` with more than one value.

    Args:
        scene: A scene whose bodies meet in a plane and whose striker moves.

    Returns:
        Ranges (low, high) by name, in the units of `StrikeDistribution`.

    Raises:
        SceneError: No strikes can be planned in the scene.
    """
    if scene.plane is None or scene.striker_body.fixed:
        raise SceneError(
            f"strikes can be planned in scene {scene.name!r} only if bodies meet in a plane "
            f"and its striker {scene.striker!r} moves"
        )
    if scene.strikes.offset is not None:
        left_out = ("point", "turn", "spin", "slip")
    else:
        left_out = ("offset", "yaw", "spin", "slip")
    ranges = {}
    for entry in fields(scene.strikes):
        limits = getattr(scene.strikes, entry.name)
        if entry.name in left_out or limits is None:
            continue
        if limits[1] > limits[0]:
            ranges[entry.name] = limits
    return ranges


def before_from_strikes(
    scene: Scene, strikes: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Contact]:
    """Bring pairs to touch as strikes describe them.

    The striker stays where the scene has it and the struck body is brought to it; `move_pair_to`
    moves both to where they are wanted.

    Args:
        scene: A planar scene.
        strikes: Numbers (N,) by the names of `StrikeDistribution`; the others take the middle of
            their range.

    Returns:
        The motion of the touching pairs, `before` (N, 12) as in `Impacts`, and their contacts.
    """
    n = len(next(iter(strikes.values())))
    ranges = scene.strikes

    def number(name: str) -> np.ndarray:
        if name in strikes:
            return np.asarray(strikes[name], float)
        low, high = getattr(ranges, name) or (0.0, 0.0)
        return np.full(n, 0.5 * (low + high))

    poser = PairPoser(scene)
    before = poser.striker_at_reference(n)
    motion = MotionBefore.of(before)
    heading = _striker_heading(scene, poser)
    if ranges.offset is not None:
        bearing = np.full(n, heading)
        yaw = motion.striker.yaw + number("yaw")
        offset = number("offset")
    else:
        bearing = heading + number("turn")
        yaw = bearing + np.pi - number("point")
        offset = np.zeros(n)
    towards_struck = np.stack([np.cos(bearing), np.sin(bearing)], 1)
    sideways = offset[:, None] * rotate_quarter_turn(towards_struck)
    motion.struck.position[:] = motion.striker.position + sideways
    motion.struck.yaw[:] = wrap_angle(yaw)

    contact, before = advance_to_contact(scene, before, -towards_struck)
    motion = MotionBefore.of(before)
    speed = number("speed")
    if ranges.slip is not None:
        closing_speed = speed
        sliding_speed = number("slip")
    else:
        closing_speed = speed * np.cos(number("deflection"))
        sliding_speed = speed * np.sin(number("deflection"))
    normal = contact.normal  # from the striker into the struck body
    tangent = rotate_quarter_turn(normal)
    velocity = closing_speed[:, None] * normal + sliding_speed[:, None] * tangent
    if _moves_on_one_slide(poser.striker):
        # The strike goes along the slide, at the given speed.
        assert poser.plane is not None
        axis = poser.plane[:2] @ poser.striker.slides[0]
        velocity = speed[:, None] * axis * np.sign(normal @ axis)[:, None]
    motion.struck.angular_velocity[:] = number("spin")
    # The struck body moves if the striker cannot.
    if poser.striker.fixed:
        motion.struck.velocity[:] = -velocity
    else:
        motion.striker.velocity[:] = velocity
    return before, contact


def strikes_from_before(
    scene: Scene, before: np.ndarray, contact: Contact
) -> dict[str, np.ndarray]:
    """Describe touching pairs as strikes; the inverse of `before_from_strikes`.

    Args:
        scene: A planar scene.
        before: (N, 12), as in `Impacts`, of touching pairs.
        contact: Their contacts.

    Returns:
        speed (m/s), point, deflection, turn (rad) and spin (rad/s), (N,) each, as in
        `StrikeDistribution`.
    """
    poser = PairPoser(scene)
    motion = MotionBefore.of(before)
    struck, striker = motion.struck, motion.striker
    normal = contact.normal
    approach = striker.velocity_at(contact.point) - struck.velocity_at(contact.point)
    sliding_speed = (approach * rotate_quarter_turn(normal)).sum(1)
    closing_speed = (approach * normal).sum(1)
    # A wall's origin may be anywhere along it, so that only its normal shows where the body is.
    towards_struck = normal if scene.striker_body.fixed else struck.position - striker.position
    bearing = np.arctan2(towards_struck[:, 1], towards_struck[:, 0])
    reference_yaw = MotionBefore.of(poser.striker_at_reference(1)).striker.yaw[0]
    striker_rotation = striker.yaw - reference_yaw
    return {
        "speed": np.linalg.norm(approach, axis=1),
        "point": wrap_angle(bearing + np.pi - struck.yaw),
        "deflection": np.arctan2(sliding_speed, closing_speed),
        "turn": wrap_angle(bearing - _striker_heading(scene, poser) - striker_rotation),
        "spin": struck.angular_velocity,
    }


def move_pair_to(before: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Move pairs as a whole, so that the struck body is at a given pose.

    Args:
        before: (N, 12), as in `Impacts`.
        pose: (3,) or (N, 3): x, y (m) and yaw (rad) of the struck body.

    Returns:
        The moved pairs, (N, 12).
    """
    pose = np.broadcast_to(pose, (len(before), 3))
    moved = before.copy()
    old = MotionBefore.of(before)
    new = MotionBefore.of(moved)
    angle = pose[:, 2] - old.struck.yaw
    from_struck = old.striker.position - old.struck.position
    new.struck.pose[:] = pose
    new.struck.velocity[:] = rotate_planar(old.struck.velocity, angle)
    new.striker.position[:] = pose[:, :2] + rotate_planar(from_struck, angle)
    new.striker.yaw[:] = old.striker.yaw + angle
    new.striker.velocity[:] = rotate_planar(old.striker.velocity, angle)
    return moved


def _striker_heading(scene: Scene, poser: PairPoser) -> float:
    """Bearing (rad, in the plane) of the struck body from a striker in its reference pose.

    It is a plane's normal, else the striker's first slide, else the plane's first axis.
    """
    assert poser.plane is not None
    geom = scene.base.geom(scene.striker)
    if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_PLANE):
        data = mujoco.MjData(scene.base)
        mujoco.mj_kinematics(scene.base, data)
        axis = data.geom(scene.striker).xmat.reshape(3, 3)[:, 2]
    elif len(poser.striker.slides) and not poser.striker.free:
        axis = poser.striker.slides[0]
    else:
        axis = poser.plane[0]
    x, y = poser.plane[:2] @ axis
    return float(np.arctan2(y, x))


def _moves_on_one_slide(body: Mobility) -> bool:
    return not body.fixed and not body.free and len(body.slides) == 1
