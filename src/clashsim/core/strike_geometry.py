"""Strikes in the plane: where and how the striker is to hit, as named numbers that can be drawn,
planned and executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import mujoco
import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.contact_geometry import Contact, PairPoser, advance_to_contact
from clashsim.core.errors import SceneError
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import Range


def strike_ranges(scene: Scene) -> dict[str, Range]:
    """What of a strike may be chosen, and within which range: the ranges of `scene.strikes` that are
    more than one value.
    """
    if scene.plane is None or scene.striker_body.fixed:
        raise SceneError(
            f"strikes can be planned in scene {scene.name!r} only if bodies meet in a plane and its striker {scene.striker!r} moves"
        )
    replaced = ("point", "turn") if scene.strikes.offset is not None else ("offset", "yaw")
    ranges = {
        f.name: getattr(scene.strikes, f.name)
        for f in fields(scene.strikes)
        if f.name not in (*replaced, "spin", "slip")
    }
    return {name: r for name, r in ranges.items() if r is not None and r[1] > r[0]}


def before_from_strikes(
    scene: Scene, strikes_from_before: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Contact]:
    """Touching pairs, before (N, 12) as in `Impacts` and their contacts, for numbers (N,) by the
    names of `StrikeDistribution`; those left out are as the draw has them.

    The striker is where the scene has it and the struck body is brought to it; `move_pair_to` brings
    both to where they are wanted.
    """
    d = scene.strikes
    n = len(next(iter(strikes_from_before.values())))

    def aim(name: str) -> np.ndarray:
        given = getattr(d, name) or (0.0, 0.0)
        return (
            np.asarray(strikes_from_before[name], float)
            if name in strikes_from_before
            else np.full(n, 0.5 * (given[0] + given[1]))
        )

    poser = PairPoser(scene)
    before = poser.striker_at_reference(n)
    face = heading(scene, poser)
    if d.offset is not None:
        bearing, yaw, side = np.full(n, face), before[:, 8] + aim("yaw"), aim("offset")
    else:
        bearing = face + aim("turn")
        yaw, side = bearing + np.pi - aim("point"), np.zeros(n)
    out = np.stack([np.cos(bearing), np.sin(bearing)], 1)
    before[:, :2] = before[:, 6:8] + side[:, None] * np.stack([-out[:, 1], out[:, 0]], 1)
    before[:, 2] = wrap_angle(yaw)
    contact, before = advance_to_contact(scene, before, -out)
    into, speed, angle = (
        contact.normal,
        aim("speed"),
        aim("deflection"),
    )  # from the striker into the struck body
    closing, slip = (
        (speed, aim("slip"))
        if d.slip is not None
        else (speed * np.cos(angle), speed * np.sin(angle))
    )
    velocity = closing[:, None] * into + slip[:, None] * np.stack([-into[:, 1], into[:, 0]], 1)
    before[:, 5] = aim("spin")
    striker = poser.striker
    if (
        not striker.fixed and not striker.free and len(striker.slides) == 1
    ):  # one slide: the strike goes along it, at the given speed
        axis = poser.plane[:2] @ striker.slides[0]  # type: ignore[index]
        velocity = speed[:, None] * axis * np.sign(into @ axis)[:, None]
    # The struck body moves if the striker cannot.
    before[:, slice(3, 5) if striker.fixed else slice(9, 11)] = (
        -velocity if striker.fixed else velocity
    )
    return before, contact


def strikes_from_before(
    scene: Scene, before: np.ndarray, contact: Contact
) -> dict[str, np.ndarray]:
    """Inverse of `before_from_strikes` for pairs that touch (N, 12): speed (m/s), point, deflection and turn
    (rad) as `StrikeDistribution` has them, spin of the struck body (rad/s).
    """
    poser = PairPoser(scene)
    approach = _spot(before[:, 6:], contact.point) - _spot(before[:, :6], contact.point)
    n = contact.normal
    deflection = np.arctan2(
        (approach * np.stack([-n[:, 1], n[:, 0]], 1)).sum(1), (approach * n).sum(1)
    )
    out = before[:, :2] - before[:, 6:8]
    bearing = (
        np.arctan2(n[:, 1], n[:, 0])
        if scene.striker_body.fixed
        else np.arctan2(out[:, 1], out[:, 0])
    )  # a wall's origin may be anywhere along it
    turn = bearing - heading(scene, poser) - (before[:, 8] - poser.striker_at_reference(1)[0, 8])
    return {
        "speed": np.linalg.norm(approach, axis=1),
        "point": wrap_angle(bearing + np.pi - before[:, 2]),
        "deflection": deflection,
        "turn": wrap_angle(turn),
        "spin": before[:, 5],
    }


def _spot(part: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Velocity (N, 2) of bodies (N, 6) at points (N, 2)."""
    arm = point - part[:, :2]
    return part[:, 3:5] + part[:, 5:6] * np.stack([-arm[:, 1], arm[:, 0]], 1)


def heading(scene: Scene, poser: PairPoser) -> float:
    """Bearing (rad, in the plane) of the struck body from a striker in its reference pose: a
    plane's normal, else its first slide.
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
    flat = poser.plane[:2] @ axis
    return float(np.arctan2(flat[1], flat[0]))


def move_pair_to(before: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Pairs (N, 12) moved as a whole, so that the struck body is at pose (3,) or (N, 3)."""
    pose = np.broadcast_to(pose, (len(before), 3))
    turn = pose[:, 2] - before[:, 2]
    out = before.copy()
    out[:, :2] = pose[:, :2]
    out[:, 6:8] = pose[:, :2] + turned(before[:, 6:8] - before[:, :2], turn)
    out[:, 2], out[:, 8] = pose[:, 2], before[:, 8] + turn
    out[:, 3:5], out[:, 9:11] = turned(before[:, 3:5], turn), turned(before[:, 9:11], turn)
    return out


def turned(vectors: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Vectors (N, 2) turned to the left by angles (N,)."""
    c, s = np.cos(angle), np.sin(angle)
    return np.stack(
        [c * vectors[:, 0] - s * vectors[:, 1], s * vectors[:, 0] + c * vectors[:, 1]], 1
    )
