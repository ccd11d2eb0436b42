"""Propose a scene's settings file from recorded impacts; check impacts against its ranges."""

from __future__ import annotations

import json
import math

import numpy as np

from clashsim.core.contact_frame import contact_frame
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.errors import SceneError
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param
from clashsim.core.scene import Scene, scene_params
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
        f"# Settings of scene {scene.name}, proposed from {len(impacts)} recorded impacts; "
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
    for param in scene_params(scene):
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
    contact, before = bring_into_contact(scene, impacts.before)
    return strikes_from_before(scene, before, contact)


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
