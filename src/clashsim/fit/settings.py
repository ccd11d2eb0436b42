"""Propose a scene's settings file from recorded impacts; check impacts against its ranges."""

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

# Margins by which proposed ranges exceed the recorded values, rad; of the speed, a share.
_SPEED_MARGIN = 0.2
_DEFLECTION_MARGIN = math.radians(8)
_POINT_MARGIN = math.radians(15)
_TURN_MARGIN = math.radians(5)
_MAX_DEFLECTION = math.radians(75)  # beyond, strikes only graze and their contact may not end
# An impact's deflection is an outlier if it exceeds the quantile by this factor.
_USUAL_QUANTILE = 0.85
_OUTLIER_FACTOR = 1.5
_YAW_RATE_NOISE = 1.0  # rad/s; below, a body is taken to be at rest
_YAW_RATE_FACTOR = 1.2  # of the proposed range over the largest recorded yaw rate
_SLACK = 0.15  # share of a range by which impacts may lie outside, as in the distilled model
# The longest time step (s) that resolves contacts as stiff as proposed in `_params`; for a scene
# with a longer time step the proposed contacts are softer.
_TIME_STEP = 5e-4
_MIN_GAP = math.pi / 3  # between recorded angles; with a smaller gap the whole circle is proposed
_UNITS = {"speed": "m/s", "point": "degrees", "deflection": "degrees", "turn": "degrees"}


def propose_settings(scene: Scene, impacts: Impacts) -> str:
    """Propose the text of a settings file.

    It names the colliding geoms, ranges of strikes a little wider than the recorded ones, and
    parameters with stiffness and damping of the contact given directly (negative solref).

    Args:
        scene: The scene.
        impacts: Impacts that were recorded in it.

    Returns:
        TOML.
    """
    if not impacts.planar:
        raise SceneError(
            "settings are proposed for bodies that meet in a plane; "
            f"scene {scene.name!r} is of bodies in space: write its [strikes] and [[param]] by hand"
        )
    lines = [
        f"# Settings of {scene.name}.xml, proposed from {len(impacts)} recorded impacts; "
        "check and correct them.",
        f"struck = {json.dumps(scene.struck)}",
        f"striker = {json.dumps(scene.striker)}",
    ]
    if scene.ground is not None:
        lines.append(f"ground = {json.dumps(scene.ground)}")
    lines += ["", "[strikes]  # ranges that strikes are sampled from: the model is good within"]
    for name, (low, high) in ranges(scene, impacts).items():
        unit = "m/s"
        if name != "speed":
            unit = f"rad: {math.degrees(low):.0f} to {math.degrees(high):.0f} degrees"
        lines.append(f"{name} = [{low:.4g}, {high:.4g}]  # {unit}")
    for param in _params(scene):
        lines += ["", "[[param]]", *_param_lines(param)]
    return "\n".join(lines) + "\n"


def _param_lines(param: Param) -> list[str]:
    """The entries of a parameter in a settings file."""
    lines = [f'name = "{param.name}"', f"target = {json.dumps(param.target)}"]
    for key in ("nominal", "low", "high"):
        lines.append(f"{key} = {float(getattr(param, key)):.6g}")
    if param.sd is not None:
        lines.append(f"sd = {param.sd:g}")
    if param.unit:
        lines.append(f'unit = "{param.unit}"')
    if param.scale == "log":
        lines.append('scale = "log"')
    if param.sign < 0:
        lines.append("sign = -1")
    return lines


def ranges(scene: Scene, impacts: Impacts) -> dict[str, tuple[float, float]]:
    """Ranges for [strikes] that contain the recorded impacts with a margin; m/s, rad, rad/s."""
    recorded = _strikes(scene, impacts)
    slowest = float(recorded["speed"].min())
    fastest = float(recorded["speed"].max())
    found = {
        "speed": (_round((1 - _SPEED_MARGIN) * slowest), _round((1 + _SPEED_MARGIN) * fastest))
    }
    found["point"] = _arc(recorded["point"], _POINT_MARGIN)
    # Where two corners touch, the contact normal may point anywhere: a single such impact must not
    # widen the range.
    deflection = np.abs(recorded["deflection"])
    usual, most = np.quantile(deflection, (_USUAL_QUANTILE, 1.0), method="higher")
    largest = float(most if most < _OUTLIER_FACTOR * usual else usual)
    widest = min(_MAX_DEFLECTION, largest + _DEFLECTION_MARGIN)
    found["deflection"] = (-widest, widest)
    if not scene.striker_is_round and not scene.striker_body.fixed:
        found["turn"] = _arc(recorded["turn"], _TURN_MARGIN)
    yaw_rate = float(np.abs(recorded["spin"]).max())
    if yaw_rate > _YAW_RATE_NOISE:
        found["spin"] = (-_YAW_RATE_FACTOR * yaw_rate, _YAW_RATE_FACTOR * yaw_rate)
    return found


def outside_strike_ranges(scene: Scene, impacts: Impacts) -> str | None:
    """Describe which impacts lie outside the ranges from which strikes are sampled.

    Args:
        scene: The scene.
        impacts: The recorded impacts.

    Returns:
        A sentence, or None if no impact does or if the scene's ranges are of other quantities than
        those compared here.
    """
    strikes = scene.strikes
    if not impacts.planar or strikes.offset is not None or strikes.slip is not None:
        return None
    recorded = _strikes(scene, impacts)
    outside = np.zeros(len(impacts), bool)
    findings = []
    for name in ("speed", "deflection", "point"):
        low, high = getattr(strikes, name)
        value = recorded[name]
        slack = _SLACK * (high - low)
        if name == "point":
            off = (value - low + slack) % (2 * math.pi) > high - low + 2 * slack
        else:
            off = (value < low - slack) | (value > high + slack)
        if off.any():
            scale = 1.0 if name == "speed" else 180 / math.pi  # angles are shown in degrees
            findings.append(
                f"{name} {scale * value.min():.2g} to {scale * value.max():.2g} where "
                f"{scale * low:.2g} to {scale * high:.2g} {_UNITS[name]} are sampled"
            )
        outside |= off
    if not findings:
        return None
    return (
        f"{int(outside.sum())} of {len(impacts)} impacts lie outside the scene's [strikes], where "
        f"the model is not trained: {'; '.join(findings)}. Widen it in {scene.name}.toml, or have "
        f"one proposed: clashsim inspect --scene {scene.name}.xml --settings {scene.name}.toml"
    )


def _strikes(scene: Scene, impacts: Impacts) -> dict[str, np.ndarray]:
    """Quantities of the recorded strikes (speed, point, deflection, ...) by name, (N,) each."""
    contact_frame(scene, impacts)  # raises for bodies that never touch
    contact, before = advance_to_contact(scene, impacts.before)
    return strikes_from_before(scene, before, contact)


def _params(scene: Scene) -> tuple[Param, ...]:
    """Parameters to propose: friction, stiffness and damping, the striker's mass, and effects."""
    usual = {param.name: param for param in contact_params(scene)}
    # A longer time step resolves only a slower contact: stiffness goes with the square of its rate.
    rate = min(1.0, _TIME_STEP / float(scene.base.opt.timestep))
    out = [usual["friction"]]
    if scene.ground is not None:
        out.append(usual["ground_friction"])
    out.append(
        Param(
            name="stiffness",
            target=f"pair/{STRIKE}/solref[0]",
            nominal=1e6 * rate**2,
            low=1e5 * rate**2,
            high=4e6 * rate**2,
            unit="1/s^2",
            scale="log",
            sign=-1,
        )
    )
    out.append(
        Param(
            name="damping",
            target=f"pair/{STRIKE}/solref[1]",
            nominal=500 * rate,
            low=30 * rate,
            high=4000 * rate,
            unit="1/s",
            scale="log",
            sign=-1,
        )
    )
    body = scene.striker_body
    if not body.fixed:
        mass = float(scene.base.body_mass[body.body])
        target = f"body/{body.name}/mass"
        out.append(Param("striker_mass", target, mass, mass / 6, 6 * mass, "kg", "log"))
    for name in ("ground_damping_ratio", "ground_damping"):
        if name in usual:
            out.append(usual[name])
    for axis in ("x", "y"):
        out.append(Param(f"{axis}_offset", f"effect/{axis}", 0.0, -0.003, 0.003, "m", sd=0.0007))
    out.append(Param("yaw_offset", "effect/yaw", 0.0, -0.03, 0.03, "rad", sd=0.007))
    if scene.ground is not None:
        out.append(Param("drag", "effect/drag", 0.01, -0.03, 0.05, "m/s", sd=0.012))
    return tuple(out)


def _arc(angles: np.ndarray, margin: float) -> tuple[float, float]:
    """The shortest arc (rad, low end first) that contains the angles with a margin.

    It is the full circle if the arc would leave out less than `_MIN_GAP`.
    """
    order = np.sort(angles % (2 * math.pi))
    gaps = np.diff(np.append(order, order[0] + 2 * math.pi))
    widest = int(gaps.argmax())
    if gaps[widest] - 2 * margin < _MIN_GAP:
        return -math.pi, math.pi
    low = float(order[(widest + 1) % len(order)]) - margin
    high = low + 2 * math.pi - float(gaps[widest]) + 2 * margin
    middle = 0.5 * (low + high)
    shift = 2 * math.pi * math.floor((middle + math.pi) / (2 * math.pi))
    return low - shift, high - shift


def _round(value: float) -> float:
    """The number rounded to two significant digits."""
    return float(f"{value:.2g}")
