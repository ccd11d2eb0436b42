"""Parameters of a scene's joints, springs, stops, tendons and actuators, with ranges and priors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from clashsim.core.params import Param

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_BALL = int(mujoco.mjtJoint.mjJNT_BALL)
# Of a joint's inertia M: damping M times a rate (1/s), friction loss M times an acceleration
# (rad/s^2 or m/s^2), armature a share of M.
_DAMPING_RATES = (1e-3, 30.0)
_USUAL_DAMPING_RATE = 0.1
_LOSS_ACCELERATIONS = (1e-3, 60.0)
_USUAL_LOSS_ACCELERATION = 0.1
_ARMATURE_SHARES = (1e-4, 1.0)
_USUAL_ARMATURE_SHARE = 3e-3
_SPRING_FACTOR = 10.0  # by which stiffness, and damping of tendons, may be off
_SPRINGREF = (1.5, 0.3)  # rad, or radii of the body: half the range, and standard deviation
_STOP = (0.2, 0.03)  # likewise of the end of a joint's range
_TENDON_LENGTH = (0.5, 0.1)  # m or rad, likewise of the length at which a tendon is at rest
_GAIN_FACTOR = 5.0  # by which gains of servos and gears may be off
_GAIN_STD = 0.4  # of the logarithm
_MUJOCO_SOLREF = (0.02, 1.0)  # time constant (s) and damping ratio where the author gave none
_STIFFNESS_RANGE = (2e3, 4e6)
_USUAL_STIFFNESS = 1e5
_DAMPING_RANGE = (5.0, 3000.0)
_USUAL_DAMPING = 200.0
_MAX_RATE = 0.5  # of a contact's oscillation, rad per time step: faster ones are not resolved


@dataclass(frozen=True)
class CandidateParam:
    """A parameter that may be identified.

    Attributes:
        param: The parameter.
        group: What it belongs to: joints, springs, stops, actuators, masses, inertia, centres,
            contact, contact shape, gravity, size.
        default: Whether it is identified unless parameters are named.
    """

    param: Param
    group: str
    default: bool


def _log_param(name: str, target: str, values: tuple[float, float, float], unit: str) -> Param:
    """A parameter on a logarithmic scale from its nominal value and range, widened to hold it."""
    nominal, low, high = values
    low, high = min(low, nominal / 2), max(high, nominal * 2)
    return Param(name, target, nominal, low, high, unit, "log")


def joint_params(model: mujoco.MjModel, joint: int) -> list[Param]:
    """Damping, friction loss and armature of a hinge, slide or ball.

    Args:
        model: The model.
        joint: Index of the joint.
    """
    name = model.joint(joint).name
    dof = int(model.jnt_dofadr[joint])
    size = 3 if int(model.jnt_type[joint]) == _BALL else 1
    inertia = float(model.dof_M0[dof : dof + size].min())
    slides = int(model.jnt_type[joint]) == _SCALAR[1]
    units = ("N s/m", "N", "kg") if slides else ("N m s", "N m", "kg m^2")
    settings = (
        ("damping", float(model.dof_damping[dof]), _DAMPING_RATES, _USUAL_DAMPING_RATE),
        ("frictionloss", float(model.dof_frictionloss[dof]), _LOSS_ACCELERATIONS, None),
        ("armature", float(model.dof_armature[dof]), _ARMATURE_SHARES, _USUAL_ARMATURE_SHARE),
    )
    params = []
    for (field, author, (low, high), usual), unit in zip(settings, units, strict=True):
        share = _USUAL_LOSS_ACCELERATION if usual is None else usual
        nominal = author if author > 0 else inertia * share
        values = (nominal, inertia * low, inertia * high)
        params.append(_log_param(f"{name}_{field}", f"joint/{name}/{field}", values, unit))
    return params


def spring_params(model: mujoco.MjModel, joint: int) -> list[CandidateParam]:
    """Stiffness of the spring of a hinge or slide, and where it is at rest.

    Args:
        model: The model.
        joint: Index of the joint.
    """
    stiffness = float(model.jnt_stiffness[joint])
    if stiffness <= 0:
        return []
    name = model.joint(joint).name
    hinge = int(model.jnt_type[joint]) == _SCALAR[0]
    scaled = _scaled(f"{name}_stiffness", f"joint/{name}/stiffness", stiffness, _SPRING_FACTOR)
    reference = float(model.qpos_spring[int(model.jnt_qposadr[joint])])
    at_rest = _shifted(
        f"{name}_springref",
        f"joint/{name}/springref",
        reference,
        [share * _joint_length(model, joint) for share in _SPRINGREF],
        "rad" if hinge else "m",
    )
    unit = "N m/rad" if hinge else "N/m"
    params = (replace(scaled, unit=unit), at_rest)
    return [CandidateParam(param, "springs", True) for param in params]


def stop_params(model: mujoco.MjModel, joint: int, *, reached: bool) -> list[CandidateParam]:
    """Ends of the range of a hinge or slide, and MuJoCo's direct stiffness and damping there.

    Args:
        model: The model.
        joint: Index of the joint.
        reached: Whether recordings come to an end of the range.
    """
    if not model.jnt_limited[joint]:
        return []
    name = model.joint(joint).name
    unit = "rad" if int(model.jnt_type[joint]) == _SCALAR[0] else "m"
    low, high = map(float, model.jnt_range[joint])
    widths = [share * _joint_length(model, joint) for share in _STOP]
    widths[0] = min(widths[0], 0.4 * (high - low))
    params = []
    for i, (end, value) in enumerate((("lowest", low), ("highest", high))):
        params.append(_shifted(f"{name}_{end}", f"joint/{name}/range[{i}]", value, widths, unit))
    spring = _in_direct_form(model.jnt_solref[joint])
    params += spring_damper(model, f"{name}_stop_", f"joint/{name}/solreflimit", spring)
    return [CandidateParam(param, "stops", reached) for param in params]


def _joint_length(model: mujoco.MjModel, joint: int) -> float:
    """What a joint's coordinate is compared with: 1 rad, or the radius of the body that slides."""
    if int(model.jnt_type[joint]) == _SCALAR[0]:
        return 1.0
    return body_radius(model, int(model.jnt_bodyid[joint]))


def tendon_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Stiffness, damping and friction loss of tendons that have them, and length at rest.

    Args:
        model: The model.
    """
    found = []
    for tendon in range(model.ntendon):
        name = model.tendon(tendon).name
        for field, unit in (("stiffness", "N/m"), ("damping", "N s/m"), ("frictionloss", "N")):
            author = float(getattr(model, f"tendon_{field}")[tendon])
            if name and author > 0:
                target = f"tendon/{name}/{field}"
                param = _scaled(f"{name}_{field}", target, author, _SPRING_FACTOR)
                found.append(CandidateParam(replace(param, unit=unit), "springs", True))
        low, high = map(float, model.tendon_lengthspring[tendon])
        if name and model.tendon_stiffness[tendon] > 0 and low == high:
            target = f"tendon/{name}/springlength[0:2]"
            length = _shifted(f"{name}_springlength", target, low, _TENDON_LENGTH, "m")
            found.append(CandidateParam(length, "springs", False))
    return found


def actuator_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Gains of servos, and gears of motors.

    Args:
        model: The model.
    """
    found = []
    for actuator in range(model.nu):
        name = model.actuator(actuator).name
        if not name:
            continue
        gains = servo_gains(model, actuator)
        for field, value in gains.items():
            short = "kv" if field == "velocity_kv" else field
            param = _scaled(f"{name}_{short}", f"actuator/{name}/{field}", value, _GAIN_FACTOR)
            found.append(CandidateParam(replace(param, sd=_GAIN_STD), "actuators", True))
        gear = float(model.actuator_gear[actuator, 0])
        if not gains and gear:
            target = f"actuator/{name}/gear[0]"
            param = _scaled(f"{name}_gear", target, abs(gear), _GAIN_FACTOR)
            param = replace(param, sd=_GAIN_STD, sign=1 if gear > 0 else -1)
            found.append(CandidateParam(param, "actuators", False))
    return found


def servo_gains(model: mujoco.MjModel, actuator: int) -> dict[str, float]:
    """Gains of a position or velocity servo by the name of their targets; none of others.

    Args:
        model: The model.
        actuator: Index of the actuator.
    """
    affine = int(model.actuator_biastype[actuator]) == int(mujoco.mjtBias.mjBIAS_AFFINE)
    fixed = int(model.actuator_gaintype[actuator]) == int(mujoco.mjtGain.mjGAIN_FIXED)
    gain = float(model.actuator_gainprm[actuator, 0])
    offset, position, velocity = map(float, model.actuator_biasprm[actuator, :3])
    if not (affine and fixed) or offset or gain <= 0:
        return {}
    if position == -gain:
        return {"kp": gain} | ({"kv": -velocity} if velocity < 0 else {})
    if velocity == -gain and position == 0:
        return {"velocity_kv": gain}
    return {}


def _scaled(name: str, target: str, value: float, factor: float) -> Param:
    """A positive parameter that may be off by a factor."""
    return Param(name, target, value, value / factor, value * factor, "", "log")


def _shifted(name: str, target: str, value: float, widths: Sequence[float], unit: str) -> Param:
    """A parameter from half its range and its standard deviation."""
    width, std = widths
    return Param(name, target, value, value - width, value + width, unit, sd=min(std, width))


def body_radius(model: mujoco.MjModel, body: int) -> float:
    """Radius (m) of a sphere about the middle of a body that holds its geoms.

    Args:
        model: The model.
        body: Index of the body. Without geoms, its radius of gyration stands for it.
    """
    geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] == body]
    sized = [g for g in geoms if model.geom_rbound[g] > 0]
    gyration = math.sqrt(
        float(model.body_inertia[body].sum()) / 2 / max(1e-9, model.body_mass[body])
    )
    if not sized:
        return max(gyration, 1e-3)
    middle = model.geom_pos[sized].mean(axis=0)
    reach = np.linalg.norm(model.geom_pos[sized] - middle, axis=1) + model.geom_rbound[sized]
    return max(float(reach.max()), gyration)


def spring_damper(
    model: mujoco.MjModel, prefix: str, target: str, spring: tuple[float, float]
) -> list[Param]:
    """Stiffness (1/s^2) and damping (1/s) of a contact or stop, in MuJoCo's direct form.

    Args:
        model: The model.
        prefix: Beginning of their names.
        target: Target of the parameters, without an index.
        spring: Stiffness and damping of the author.
    """
    fastest = (_MAX_RATE / float(model.opt.timestep)) ** 2
    high = min(_STIFFNESS_RANGE[1], fastest)
    low = min(_STIFFNESS_RANGE[0], high / 10)
    stiffness = float(np.clip(spring[0], low, high))
    damping = float(np.clip(spring[1], *_DAMPING_RANGE))
    ends = ((stiffness, low, high), (damping, *_DAMPING_RANGE))
    params = []
    for i, (name, unit) in enumerate((("stiffness", "1/s^2"), ("damping", "1/s"))):
        full_name = f"{prefix}{name}"
        params.append(Param(full_name, f"{target}[{i}]", *ends[i], unit, "log", sign=-1))
    return params


def direct_solref(solref: np.ndarray) -> tuple[float, float]:
    """Stiffness (1/s^2) and damping (1/s) of a contact, or usual ones where none were given.

    Args:
        solref: (2,), in either form.
    """
    if np.allclose(solref, _MUJOCO_SOLREF):
        return _USUAL_STIFFNESS, _USUAL_DAMPING
    return _in_direct_form(solref)


def _in_direct_form(solref: np.ndarray) -> tuple[float, float]:
    """Stiffness (1/s^2) and damping (1/s) of a solref in either form."""
    if solref[0] < 0:
        return -float(solref[0]), -float(solref[1])
    time_constant, ratio = float(solref[0]), float(solref[1])
    return 1 / (time_constant * ratio) ** 2, 2 / time_constant
