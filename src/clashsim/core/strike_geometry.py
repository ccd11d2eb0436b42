"""Strikes in a plane: named numbers that say where and how the striker should hit.

The names are those of `StrikeDistribution`. This module converts such numbers to the motion of a
touching pair of bodies, and back.
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
    """Find the numbers of a strike that can be chosen: those whose range has more than one value.

    Args:
        scene: A scene whose bodies collide in a plane and whose striker moves.

    Returns:
        Ranges (low, high) by name, in the units of `StrikeDistribution`.

    Raises:
        SceneError: No strikes can be planned in the scene.
    """
    check_strikes_can_be_chosen(scene)
    if scene.strikes.offset is not None:
        unused = ("point", "turn", "spin", "slip")
    else:
        unused = ("offset", "yaw", "spin", "slip")
    ranges = {}
    for entry in fields(scene.strikes):
        limits = getattr(scene.strikes, entry.name)
        if entry.name in unused or limits is None:
            continue
        if limits[1] > limits[0]:
            ranges[entry.name] = limits
    return ranges


def check_strikes_can_be_chosen(scene: Scene) -> None:
    """Raise a `SceneError` for a scene in which no strikes bring the struck body to a place."""
    if scene.plane is None:
        raise SceneError(
            "strikes are planned for bodies that a moving striker pushes in a plane, but those of "
            f"scene {scene.name!r} move in space: their throws are planned by clashsim plan RUN "
            "--target X Y, and simulated by clashsim.load(RUN).hybrid()"
        )
    if scene.striker_body.fixed:
        raise SceneError(
            f"strikes can be planned in scene {scene.name!r} only if its striker "
            f"{scene.striker!r} moves"
        )


def before_from_strikes(
    scene: Scene, strikes: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Contact]:
    """Compute the motion of pairs that touch as strikes describe.

    The striker stays at its reference pose in the scene and the struck body is moved to it;
    `move_pair_to` then moves both bodies to another place.

    Args:
        scene: A planar scene.
        strikes: Numbers (N,) of N strikes, by the names of `StrikeDistribution`; a number that is
            not given takes the middle of its range.

    Returns:
        The motion of the touching pairs, `before` (N, 12) as in `Impacts`, and their N contacts.
    """
    numbers = _complete_numbers(scene, strikes)
    poser = PairPoser(scene)
    before, towards_struck = _place_struck_body(scene, poser, numbers)
    contact, before = advance_to_contact(scene, before, -towards_struck)
    velocity = _striker_velocity(scene, poser, numbers, contact)
    motion = MotionBefore.of(before)
    motion.struck.angular_velocity[:] = numbers["spin"]
    # If the striker is fixed, the struck body moves towards it instead.
    if poser.striker.fixed:
        motion.struck.velocity[:] = -velocity
    else:
        motion.striker.velocity[:] = velocity
    return before, contact


def _complete_numbers(scene: Scene, strikes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All numbers (N,) of strikes; those not given take the middle of their range, or zero."""
    n = len(next(iter(strikes.values())))
    numbers = {}
    for entry in fields(scene.strikes):
        if entry.name in strikes:
            numbers[entry.name] = np.asarray(strikes[entry.name], float)
        else:
            low, high = getattr(scene.strikes, entry.name) or (0.0, 0.0)
            numbers[entry.name] = np.full(n, 0.5 * (low + high))
    return numbers


def _place_struck_body(
    scene: Scene, poser: PairPoser, numbers: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows `before` (N, 12) with the struck body oriented for the strike, not yet in contact.

    Also returns unit vectors (N, 2) that point from the striker to the struck body.
    """
    before = poser.striker_at_reference(len(numbers["speed"]))
    motion = MotionBefore.of(before)
    heading = _striker_heading(scene, poser)
    if scene.strikes.offset is not None:
        bearing = np.full(len(before), heading)
        yaw = motion.striker.yaw + numbers["yaw"]
        offset = numbers["offset"]
    else:
        bearing = heading + numbers["turn"]
        yaw = bearing + np.pi - numbers["point"]
        offset = np.zeros(len(before))
    towards_struck = np.stack([np.cos(bearing), np.sin(bearing)], 1)
    sideways = offset[:, None] * rotate_quarter_turn(towards_struck)
    motion.struck.position[:] = motion.striker.position + sideways
    motion.struck.yaw[:] = wrap_angle(yaw)
    return before, towards_struck


def _striker_velocity(
    scene: Scene, poser: PairPoser, numbers: Mapping[str, np.ndarray], contact: Contact
) -> np.ndarray:
    """Velocities (N, 2), m/s, of the striker relative to the struck body."""
    speed = numbers["speed"]
    normal = contact.normal  # from the striker into the struck body
    if _moves_on_one_slide(poser.striker):
        # The striker can only move along its slide, in the direction into the struck body.
        assert poser.plane is not None
        axis = poser.plane[:2] @ poser.striker.slides[0]
        return speed[:, None] * axis * np.sign(normal @ axis)[:, None]
    if scene.strikes.slip is not None:
        closing_speed = speed
        sliding_speed = numbers["slip"]
    else:
        closing_speed = speed * np.cos(numbers["deflection"])
        sliding_speed = speed * np.sin(numbers["deflection"])
    return closing_speed[:, None] * normal + sliding_speed[:, None] * rotate_quarter_turn(normal)


def strikes_from_before(
    scene: Scene, before: np.ndarray, contact: Contact
) -> dict[str, np.ndarray]:
    """Describe touching pairs as strikes; the inverse of `before_from_strikes`.

    Args:
        scene: A planar scene.
        before: (N, 12), as in `Impacts`, of touching pairs.
        contact: Their contacts.

    Returns:
        Numbers (N,) by name, as in `StrikeDistribution`: speed (m/s), point, deflection, turn (rad)
        and spin (rad/s).
    """
    poser = PairPoser(scene)
    struck = MotionBefore.of(before).struck
    striker = MotionBefore.of(before).striker
    normal = contact.normal
    approach = striker.velocity_at(contact.point) - struck.velocity_at(contact.point)
    sliding_speed = (approach * rotate_quarter_turn(normal)).sum(1)
    closing_speed = (approach * normal).sum(1)
    # The origin of a fixed wall may be anywhere along it, so its normal is used instead.
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

    It is the normal of a striker that is a plane geom, else the direction of the striker's first
    slide, else the first axis of the plane of motion.
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
    """Whether a body has a slide joint and no other."""
    return not body.fixed and not body.free and len(body.slides) == 1
