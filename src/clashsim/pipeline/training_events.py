"""Ranges of a run as randomisation events of mjlab and Isaac Lab, in YAML.

An event has a mode, a function as in mjlab.envs.mdp.dr:pair_friction (Isaac Lab writes functions so
in its own files), and its arguments. What a framework has no event for, such as solref, is listed
with the reason, and stays in ranges.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from clashsim.core.contact_pairs import STRIKE
from clashsim.core.params import Param
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.motion_run import MotionRun
from clashsim.fit.restitution import restitution_at_speeds

MJLAB, ISAAC_LAB = "mjlab_events.yaml", "isaaclab_events.yaml"
_TARGET = re.compile(r"(geom|body|pair|joint)/(.+)/(\w+)(?:\[(\d+)(?::\d+)?\])?")
_MJLAB_MODULE = "mjlab.envs.mdp.dr"
# mjlab's functions by kind and field of a parameter's target.
_MJLAB = {
    ("pair", "friction"): "pair_friction",
    ("geom", "friction"): "geom_friction",
    ("geom", "size"): "geom_size",
    ("body", "mass"): "body_mass",
    ("body", "ipos"): "body_com_offset",
    ("joint", "damping"): "joint_damping",
    ("joint", "armature"): "joint_armature",
    ("joint", "frictionloss"): "joint_friction",
    ("joint", "stiffness"): "joint_stiffness",
}
_ISAAC_LAB_MODULE = "isaaclab.envs.mdp.events"
_ISAAC_LAB_JOINTS = {
    "frictionloss": "friction_distribution_params",
    "armature": "armature_distribution_params",
}
_BUCKETS = 64  # materials that Isaac Lab makes; its own examples have 64
_SAMPLES = 32  # of the parameters, whose restitution is simulated
_SHARE = 0.9  # of these that the range of restitution holds
_SEED = 0
_Run = CalibratedRun | MotionRun


def event_files(run: _Run) -> dict[str, bytes]:
    """Files of events for mjlab and Isaac Lab; content by name."""
    return {
        MJLAB: _yaml(_mjlab(run)).encode(),
        ISAAC_LAB: _yaml(_isaac_lab(run)).encode(),
    }


def _mjlab(run: _Run) -> dict[str, Any]:
    """Events of mjlab, and the parameters that it has none for."""
    events: dict[str, Any] = {}
    without: dict[str, str] = {}
    ranges = run.ranges()
    for param in run.scene.params:
        match = _TARGET.fullmatch(param.target)
        function = None if match is None else _MJLAB.get((match[1], match[3]))
        if match is None or function is None:
            without[param.name] = f"mjlab has no function for {param.target}"
            continue
        kind, name, field, index = match.groups()
        low, high = ranges[param.name]
        params: dict[str, Any] = {
            "asset_cfg": {"name": run.scene.name, f"{kind}_names": [name]},
            "ranges": [low, high],
            "operation": "abs",
            "distribution": _distribution(param, low),
        }
        if index is not None:
            params["axes"] = [int(index)]
        if (kind, field) == ("pair", "friction"):
            params["isotropic"] = True
        events[param.name] = {
            "mode": "reset",
            "func": f"{_MJLAB_MODULE}:{function}",
            "params": params,
        }
    return _file(run, events, without)


def _file(run: _Run, events: dict[str, Any], without: dict[str, str]) -> dict[str, Any]:
    """The content of a file of events."""
    status = {estimate.name: estimate.status.value for estimate in run.estimates}
    return {"events": events, "without_an_event": without, "status": status}


def _distribution(param: Param, low: float) -> str:
    return "log_uniform" if param.scale == "log" and low > 0 else "uniform"


def _isaac_lab(run: _Run) -> dict[str, Any]:
    """Events of Isaac Lab, and the parameters that it has none for."""
    events: dict[str, Any] = {}
    without: dict[str, str] = {}
    ranges = run.ranges()
    restitution = _restitution_range(run)
    for param in run.scene.params:
        match = _TARGET.fullmatch(param.target)
        event = (
            None if match is None else _isaac_lab_event(run, match, ranges[param.name], restitution)
        )
        if event is None:
            without[param.name] = f"Isaac Lab has no event of a body for {param.target}"
        else:
            events[param.name] = event
    for name in ("stiffness", "damping"):
        if restitution is not None and name in without:
            without[name] = "PhysX has restitution instead, whose range is in the event of friction"
    return _file(run, events, without)


def _isaac_lab_event(
    run: _Run,
    match: re.Match[str],
    limits: tuple[float, float],
    restitution: tuple[float, float] | None,
) -> dict[str, Any] | None:
    """The event of one parameter; None if Isaac Lab has none."""
    kind, name, field, index = match.groups()
    low, high = limits
    if field == "friction" and index in (None, "0"):
        body = _body_of_material(run, kind, name)
        if not body:
            return None
        bounce = restitution if kind == "pair" and restitution is not None else (0.0, 0.0)
        return {
            "mode": "startup",
            "func": f"{_ISAAC_LAB_MODULE}:randomize_rigid_body_material",
            "params": {
                "asset_cfg": {"name": run.scene.name, "body_names": [body]},
                "static_friction_range": [low, high],
                "dynamic_friction_range": [low, high],
                "restitution_range": list(bounce),
                "num_buckets": _BUCKETS,
                "make_consistent": True,
            },
        }
    if (kind, field) == ("body", "mass"):
        return {
            "mode": "startup",
            "func": f"{_ISAAC_LAB_MODULE}:randomize_rigid_body_mass",
            "params": {
                "asset_cfg": {"name": run.scene.name, "body_names": [name]},
                "mass_distribution_params": [low, high],
                "operation": "abs",
            },
        }
    if kind == "joint" and field in _ISAAC_LAB_JOINTS:
        return {
            "mode": "startup",
            "func": f"{_ISAAC_LAB_MODULE}:randomize_joint_parameters",
            "params": {
                "asset_cfg": {"name": run.scene.name, "joint_names": [name]},
                _ISAAC_LAB_JOINTS[field]: [low, high],
                "operation": "abs",
            },
        }
    return None


def _body_of_material(run: _Run, kind: str, name: str) -> str:
    """Name of the body whose material has a friction; empty if it is not that of one moving body.

    PhysX has materials of bodies and none of pairs: the material of the struck body stands for that
    of the striking pair, and the ground has one of its own.
    """
    model = run.scene.base
    if kind == "pair":
        is_strike = isinstance(run, CalibratedRun) and name == STRIKE
        return run.scene.struck_body.name if is_strike else ""  # type: ignore[union-attr]
    body = int(model.geom_bodyid[model.geom(name).id]) if kind == "geom" else 0
    return str(model.body(body).name) if model.body_weldid[body] else ""


def _restitution_range(run: _Run) -> tuple[float, float] | None:
    """Restitution (low, high) of the pair over posterior samples; None for whole trajectories."""
    if not isinstance(run, CalibratedRun):
        return None
    recorded = run.metrics.get("restitution", {}).get("speeds")
    speeds = recorded or [float(np.mean(run.scene.strikes.speed))]
    found: list[float] = []
    for theta in run.posterior_samples(_SAMPLES, _SEED):
        found += restitution_at_speeds(run.scene, theta, speeds).values()
    low, high = np.quantile(found, [0.5 - _SHARE / 2, 0.5 + _SHARE / 2])
    return float(low), float(min(high, 1.0))


def _yaml(content: Mapping[str, Any]) -> str:
    """Nested mappings as YAML; lists and texts are written as JSON, which YAML contains."""
    return "\n".join(_yaml_lines(content, "")) + "\n"


def _yaml_lines(content: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in content.items():
        name = json.dumps(key)
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:", *_yaml_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{name}: {json.dumps(value)}")
    return lines
