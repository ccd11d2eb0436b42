"""A settings file proposed for a scene from the impacts that were recorded in it, and whether
impacts lie within a scene's ranges.
"""

from __future__ import annotations

import json
import math

import numpy as np

from clashsim.core.contact_frame import contact_frame
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import SceneError
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param
from clashsim.core.scene import STRIKE, Scene, contact_params
from clashsim.core.strike_geometry import strikes_from_before

_ROOM = {
    "speed": 0.2,
    "deflection": math.radians(8),
    "point": math.radians(15),
    "turn": math.radians(5),
}  # beyond what was recorded; of the speed, a share
_WIDEST = math.radians(75)  # of a deflection: beyond, strikes graze and have no end
# S, the longest time step that resolves the contact's ranges below; a scene with longer ones gets
# softer ranges
_STEP = 5e-4
_UNITS = {"speed": "m/s", "point": "degrees", "deflection": "degrees", "turn": "degrees"}


def propose_settings(scene: Scene, impacts: Impacts) -> str:
    """The text of a settings file: which geoms collide, ranges of strikes a little beyond the
    recorded ones, and parameters with a direct contact.
    """
    if not impacts.planar:
        raise SceneError(
            f"settings are proposed for bodies that meet in a plane; scene {scene.name!r} is of bodies in space: write its [strikes] and [[param]] by hand"
        )
    lines = [
        f"# Settings of {scene.name}.xml, proposed from {len(impacts)} recorded impacts; look at them and mend them.",
        f"struck = {json.dumps(scene.struck)}",
        f"striker = {json.dumps(scene.striker)}",
        *([f"ground = {json.dumps(scene.ground)}"] if scene.ground is not None else []),
        "",
        "[strikes]  # from which strikes are drawn: the model is good within",
    ]
    for name, (low, high) in ranges(scene, impacts).items():
        said = (
            "m/s"
            if name == "speed"
            else f"rad: {math.degrees(low):.0f} to {math.degrees(high):.0f} degrees"
        )
        lines.append(f"{name} = [{low:.4g}, {high:.4g}]  # {said}")
    for p in _params(scene):
        lines += [
            "",
            "[[param]]",
            f'name = "{p.name}"',
            f"target = {json.dumps(p.target)}",
            *(f"{key} = {float(getattr(p, key)):.6g}" for key in ("nominal", "low", "high")),
        ]
        lines += [f"sd = {p.sd:g}"] if p.sd is not None else []
        lines += [f'unit = "{p.unit}"'] if p.unit else []
        lines += ['scale = "log"'] if p.scale == "log" else []
        lines += ["sign = -1"] if p.sign < 0 else []
    return "\n".join(lines) + "\n"


def ranges(scene: Scene, impacts: Impacts) -> dict[str, tuple[float, float]]:
    """Ranges for [strikes] that hold the recorded impacts with some room, m/s and rad."""
    found = _aims(scene, impacts)
    speed = found["speed"]
    out = {"speed": (_round(0.8 * float(speed.min())), _round(1.2 * float(speed.max())))}
    out["point"] = _arc(found["point"], _ROOM["point"])
    # Where two corners meet, the normal may point anywhere: one such impact shall not widen the
    # range for all.
    usual, most = np.quantile(np.abs(found["deflection"]), (0.85, 1.0), method="higher")
    most = min(_WIDEST, float(most if most < 1.5 * usual else usual) + _ROOM["deflection"])
    out["deflection"] = (-most, most)
    if not scene.striker_is_round and not scene.striker_body.fixed:
        out["turn"] = _arc(found["turn"], _ROOM["turn"])
    spin = float(np.abs(found["spin"]).max())
    return out | (
        {"spin": (-1.2 * spin, 1.2 * spin)} if spin > 1.0 else {}
    )  # rad/s; a body at rest has a measured spin, too


def outside_strike_ranges(scene: Scene, impacts: Impacts) -> str | None:
    """A sentence where impacts lie outside the ranges from which strikes are drawn; None where they
    do not, or where ranges cannot be told from them.
    """
    d = scene.strikes
    if not impacts.planar or d.offset is not None or d.slip is not None:
        return None
    found, out, said = _aims(scene, impacts), np.zeros(len(impacts), bool), []
    for name in ("speed", "deflection", "point"):
        (low, high), value = getattr(d, name), found[name]
        room = 0.15 * (high - low)  # as the distilled model's domain has it
        if name == "point":
            off = (value - low + room) % (2 * math.pi) > high - low + 2 * room
        else:
            off = (value < low - room) | (value > high + room)
        if off.any():
            shown = 1.0 if name == "speed" else 180 / math.pi
            said.append(
                f"{name} {shown * value.min():.2g} to {shown * value.max():.2g} where {shown * low:.2g} to {shown * high:.2g} {_UNITS[name]} are drawn"
            )
        out |= off
    if not said:
        return None
    return (
        f"{int(out.sum())} of {len(impacts)} impacts lie outside the scene's [strikes], where the model is not trained: {'; '.join(said)}. "
        f"Widen it in {scene.name}.toml, or have one proposed: clashsim inspect --scene {scene.name}.xml --settings {scene.name}.toml"
    )


def _aims(scene: Scene, impacts: Impacts) -> dict[str, np.ndarray]:
    contact_frame(scene, impacts)  # refuses bodies that never meet
    contact, moved = advance_to_contact(scene, impacts.before)
    return strikes_from_before(scene, moved, contact)


def _params(scene: Scene) -> tuple[Param, ...]:
    """Friction, a direct contact, the striker's mass, and what recordings show beside the contact."""
    usual = {p.name: p for p in contact_params(scene)}
    steps = min(1.0, _STEP / float(scene.base.opt.timestep))
    out = [usual["friction"], *([usual["ground_friction"]] if scene.ground is not None else [])]
    out += [
        Param(
            "stiffness",
            f"pair/{STRIKE}/solref[0]",
            1e6 * steps**2,
            1e5 * steps**2,
            4e6 * steps**2,
            "1/s^2",
            "log",
            -1,
        ),
        Param(
            "damping",
            f"pair/{STRIKE}/solref[1]",
            500 * steps,
            30 * steps,
            4000 * steps,
            "1/s",
            "log",
            -1,
        ),
    ]
    body = scene.striker_body
    if not body.fixed:
        mass = float(scene.base.body_mass[body.body])
        out.append(
            Param("striker_mass", f"body/{body.name}/mass", mass, mass / 6, 6 * mass, "kg", "log")
        )
    out += [usual[name] for name in ("ground_damping_ratio", "ground_damping") if name in usual]
    offsets = [
        Param(f"{axis}_offset", f"effect/{axis}", 0.0, -0.003, 0.003, "m", sd=0.0007)
        for axis in ("x", "y")
    ]
    return (
        *out,
        *offsets,
        Param("yaw_offset", "effect/yaw", 0.0, -0.03, 0.03, "rad", sd=0.007),
        *(
            [Param("drag", "effect/drag", 0.01, -0.03, 0.05, "m/s", sd=0.012)]
            if scene.ground is not None
            else []
        ),
    )


def _arc(angles: np.ndarray, room: float) -> tuple[float, float]:
    """The shortest arc (rad, low end first) that holds angles with some room; a whole turn where
    what it leaves out is less than a sixth of one.
    """
    order = np.sort(angles % (2 * math.pi))
    gaps = np.diff(np.append(order, order[0] + 2 * math.pi))
    widest = int(gaps.argmax())
    if gaps[widest] - 2 * room < math.pi / 3:
        return -math.pi, math.pi
    low = float(order[(widest + 1) % len(order)]) - room
    high = low + 2 * math.pi - float(gaps[widest]) + 2 * room
    shift = 2 * math.pi * math.floor((0.5 * (low + high) + math.pi) / (2 * math.pi))
    return low - shift, high - shift


def _round(value: float) -> float:
    return float(f"{value:.2g}")
