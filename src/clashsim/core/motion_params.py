"""Parameters of a scene that whole trajectories may show, each with a range and a prior.

By default those are identified that recorded motion can tell apart: friction in joints, springs,
gains of servos, how mass is distributed, stops that joints reach, and contact where bodies touch.
The others (gravity, sizes, gears, further numbers of MuJoCo's contact) are identified if they are
asked for by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.motion_scene import CONTACT, WORLD, MotionScene, root_of
from clashsim.core.params import Param
from clashsim.core.principal_axes import principal_axes, principal_axis_near

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_BALL = int(mujoco.mjtJoint.mjJNT_BALL)
_ROTATING = (int(mujoco.mjtJoint.mjJNT_FREE), _BALL)
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
# Logarithms of masses and moments of inertia: half the range, and standard deviation of the prior.
_MASS = (0.7, 0.25)
_INERTIA = (0.6, 0.25)
# Offsets of a mass centre, of the body's radius: half the range, and standard deviation.
_CENTRE = (0.25, 0.06)
_LEAST_INERTIA = 1e-12  # kg m^2
_GRAVITY = (0.05, 0.01)  # relative: half the range, and standard deviation
_SIZE = (0.1, 0.03)  # relative: half the range, and standard deviation
_FRICTION_RANGE = (0.02, 1.5)
_USUAL_FRICTION = 0.3
_MUJOCO_FRICTION = 1.0  # of a geom whose author gave none
_MUJOCO_SOLREF = (0.02, 1.0)  # time constant (s) and damping ratio where the author gave none
_STIFFNESS_RANGE = (2e3, 4e6)
_USUAL_STIFFNESS = 1e5
_DAMPING_RANGE = (5.0, 3000.0)
_USUAL_DAMPING = 200.0
_MAX_RATE = 0.5  # of a contact's oscillation, rad per time step: faster ones are not resolved
_IMPEDANCE = (0.3, 0.98)
_WIDTH = (2e-4, 2e-2)
_MARGIN = (0.08, 0.03)  # largest, and standard deviation, of the smaller radius of a pair
_ALIGNED = 0.99  # cosine between a joint's axis and a principal axis of inertia


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


def candidate_params(
    scene: MotionScene, touching: Collection[str], stops: Collection[str] = ()
) -> list[CandidateParam]:
    """List the parameters of a scene that may be identified.

    Args:
        scene: The scene; its own parameters are not used.
        touching: Names of the contacts that occur in the recordings.
        stops: Names of the joints that reach an end of their range in the recordings.
    """
    model = scene.author
    found: list[CandidateParam] = []
    for joint in range(model.njnt):
        if int(model.jnt_type[joint]) in (*_SCALAR, _BALL):
            found += [CandidateParam(p, "joints", True) for p in _joint_params(model, joint)]
        if int(model.jnt_type[joint]) in _SCALAR:
            found += _spring_params(model, joint)
            found += _stop_params(model, joint, reached=model.joint(joint).name in stops)
    found += _tendon_params(model)
    found += _actuator_params(model)
    found += _body_params(model)
    found += [CandidateParam(p, "gravity", False) for p in _gravity_params(model)]
    for name, geoms in scene.contacts.items():
        found += _contact_params(model, name, geoms, occurs=name in touching)
    found += [CandidateParam(p, "size", False) for p in _size_params(model)]
    return found


def choose_params(
    scene: MotionScene,
    names: Sequence[str],
    touching: Collection[str],
    *,
    stops: Collection[str] = (),
) -> tuple[Param, ...]:
    """Choose parameters by name.

    Args:
        scene: The scene.
        names: Names of parameters or of groups, or patterns as in "*_damping"; "default" stands for
            those that are identified if there are no names.
        touching: Names of the contacts that occur in the recordings.
        stops: Names of the joints that reach an end of their range in the recordings.

    Returns:
        The parameters, in the order of `candidate_params`.
    """
    candidates = candidate_params(scene, touching, stops)
    wanted: set[str] = set()
    for name in names or ("default",):
        matches = [c.param.name for c in candidates if _is_meant(c, name)]
        if not matches:
            known = [c.param.name for c in candidates] + [c.group for c in candidates]
            raise ParamError(
                f"scene {scene.name!r} has no parameter {name!r} to identify; "
                f"{did_you_mean(name, [*known, 'default'])}"
            )
        wanted |= set(matches)
    return tuple(c.param for c in candidates if c.param.name in wanted)


def _is_meant(candidate: CandidateParam, name: str) -> bool:
    """Whether a name, group or pattern means a candidate."""
    if name == "default":
        return candidate.default
    named = name in (candidate.group, candidate.param.target)
    return named or fnmatchcase(candidate.param.name, name)


def _log_param(name: str, target: str, values: tuple[float, float, float], unit: str) -> Param:
    """A parameter on a logarithmic scale from its nominal value and range, widened to hold it."""
    nominal, low, high = values
    low, high = min(low, nominal / 2), max(high, nominal * 2)
    return Param(name, target, nominal, low, high, unit, "log")


def _joint_params(model: mujoco.MjModel, joint: int) -> list[Param]:
    """Damping, friction loss and armature of a hinge, slide or ball."""
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


def _spring_params(model: mujoco.MjModel, joint: int) -> list[CandidateParam]:
    """Stiffness of the spring of a hinge or slide, and where it is at rest."""
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


def _stop_params(model: mujoco.MjModel, joint: int, *, reached: bool) -> list[CandidateParam]:
    """Ends of the range of a hinge or slide, and MuJoCo's direct stiffness and damping there."""
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
    params += _spring_damper(model, f"{name}_stop_", f"joint/{name}/solreflimit", spring)
    return [CandidateParam(param, "stops", reached) for param in params]


def _joint_length(model: mujoco.MjModel, joint: int) -> float:
    """What a joint's coordinate is compared with: 1 rad, or the radius of the body that slides."""
    if int(model.jnt_type[joint]) == _SCALAR[0]:
        return 1.0
    return body_radius(model, int(model.jnt_bodyid[joint]))


def _tendon_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Stiffness, damping and friction loss of tendons that have them, and length at rest."""
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


def _actuator_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Gains of servos, and gears of motors."""
    found = []
    for actuator in range(model.nu):
        name = model.actuator(actuator).name
        if not name:
            continue
        gains = _servo_gains(model, actuator)
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


def _servo_gains(model: mujoco.MjModel, actuator: int) -> dict[str, float]:
    """Gains of a position or velocity servo by the name of their targets; none of others."""
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


def _body_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Masses, moments of inertia and mass centres of the bodies that move."""
    moving = [b for b in range(1, model.nbody) if model.body_weldid[b] == b]
    moving = [b for b in moving if model.body_mass[b] > 0 and model.body_mocapid[b] < 0]
    found: list[CandidateParam] = []
    if not moving:
        return found
    # Motion under gravity and contact tells masses apart only relative to each other, unless a
    # motor acts with a force that is known.
    has_known_force = any(not _servo_gains(model, actuator) for actuator in range(model.nu))
    reference = max(moving, key=lambda b: float(model.body_mass[b]))
    for body in moving:
        name = model.body(body).name
        mass = float(model.body_mass[body])
        width, std = _MASS
        param = Param(
            f"{name}_mass",
            f"body/{name}/mass",
            mass,
            mass * math.exp(-width),
            mass * math.exp(width),
            "kg",
            "log",
            sd=std,
        )
        found.append(CandidateParam(param, "masses", has_known_force or body != reference))
    for body in moving:
        found += [CandidateParam(p, "inertia", True) for p in _inertia_params(model, body)]
        found += [CandidateParam(p, "centres", True) for p in _centre_params(model, body)]
    return found


def _inertia_params(model: mujoco.MjModel, body: int) -> list[Param]:
    """Moments of inertia about the axes about which a body rotates."""
    name = model.body(body).name
    moments = model.body_inertia[body]
    hinge = _only_hinge_axis(model, body)
    if hinge is not None:
        # About one axis only, so one number stands for all: a body that has it about every axis.
        along = (principal_axes(model, body).T @ hinge) ** 2
        return [_inertia(f"{name}_inertia", f"body/{name}/inertia[0:3]", float(moments @ along))]
    if not _rotates(model, body):
        return []
    params = []
    for axis, i in principal_axis_near(model, body).items():
        target = f"body/{name}/inertia[{i}]"
        params.append(_inertia(f"{name}_inertia_{axis}", target, float(moments[i])))
    return params


def _inertia(name: str, target: str, moment: float) -> Param:
    """A moment of inertia about a nominal value."""
    width, std = _INERTIA
    moment = max(moment, _LEAST_INERTIA)
    low, high = moment * math.exp(-width), moment * math.exp(width)
    return Param(name, target, moment, low, high, "kg m^2", "log", sd=std)


def _centre_params(model: mujoco.MjModel, body: int) -> list[Param]:
    """Coordinates of a body's mass centre that its motion depends on."""
    name = model.body(body).name
    hinge = _only_hinge_axis(model, body)
    if hinge is None and not _rotates(model, body):
        return []
    radius = body_radius(model, body)
    params = []
    for i, axis in enumerate("xyz"):
        if hinge is not None and abs(float(hinge[i])) > _ALIGNED:
            continue
        value = float(model.body_ipos[body, i])
        limit, std = (share * radius for share in _CENTRE)
        target = f"body/{name}/ipos[{i}]"
        low, high = value - limit, value + limit
        params.append(Param(f"{name}_centre_{axis}", target, value, low, high, "m", sd=std))
    return params


def _only_hinge_axis(model: mujoco.MjModel, body: int) -> np.ndarray | None:
    """Axis (3,) of the hinges between a body and the world, in the body's frame.

    None where there are several directions, no hinge, or joints that rotate freely.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    axes = []
    carrier = body
    while carrier:
        first = int(model.body_jntadr[carrier])
        for joint in range(first, first + int(model.body_jntnum[carrier])):
            if int(model.jnt_type[joint]) in _ROTATING:
                return None
            if int(model.jnt_type[joint]) == _SCALAR[0]:
                axes.append(data.xaxis[joint].copy())
        carrier = int(model.body_parentid[carrier])
    if not axes or any(abs(float(axis @ axes[0])) < _ALIGNED for axis in axes):
        return None
    return data.xmat[body].reshape(3, 3).T @ axes[0]


def _rotates(model: mujoco.MjModel, body: int) -> bool:
    """Whether a body can rotate at all."""
    carrier = body
    while carrier:
        first = int(model.body_jntadr[carrier])
        for joint in range(first, first + int(model.body_jntnum[carrier])):
            if int(model.jnt_type[joint]) in (*_ROTATING, _SCALAR[0]):
                return True
        carrier = int(model.body_parentid[carrier])
    return False


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


def _gravity_params(model: mujoco.MjModel) -> list[Param]:
    """Gravity along its axis, which also stands for an unknown scale of recorded lengths."""
    gravity = np.array(model.opt.gravity)
    axis = int(np.abs(gravity).argmax())
    size = abs(float(gravity[axis]))
    if size == 0:
        return []
    width, std = _GRAVITY
    sign = -1 if gravity[axis] < 0 else 1
    return [
        Param(
            "gravity",
            f"option/gravity[{axis}]",
            size,
            size * (1 - width),
            size * (1 + width),
            "m/s^2",
            sign=sign,
            sd=size * std,
        )
    ]


def _contact_params(
    model: mujoco.MjModel, name: str, geoms: Sequence[tuple[str, str]], *, occurs: bool
) -> list[CandidateParam]:
    """Friction and MuJoCo's direct stiffness and damping of a contact, and further numbers."""
    first, second = (model.geom(geom) for geom in geoms[0])
    friction = float(max(first.friction[0], second.friction[0]))
    if friction == _MUJOCO_FRICTION:
        friction = _USUAL_FRICTION
    spring = _direct_solref(np.minimum(first.solref, second.solref))
    prefix = "" if name == CONTACT else f"{name}_"
    radius = min(
        float(model.geom(geom).rbound[0])
        for pair in geoms
        for geom in pair
        if model.geom(geom).rbound[0]
    )
    target = f"pair/{name}"
    main = (
        Param(
            f"{prefix}friction",
            f"{target}/friction[0:2]",
            float(np.clip(friction, *_FRICTION_RANGE)),
            *_FRICTION_RANGE,
            "",
            "log",
        ),
        *_spring_damper(model, prefix, f"{target}/solref", spring),
    )
    largest, std = (share * radius for share in _MARGIN)
    more = (
        Param(f"{prefix}d0", f"{target}/solimp[0]", 0.9, *_IMPEDANCE),
        Param(f"{prefix}width", f"{target}/solimp[2]", 1e-3, *_WIDTH, "m", "log"),
        Param(f"{prefix}margin", f"{target}/margin", 0.0, 0.0, largest, "m", sd=std),
    )
    found = [CandidateParam(param, "contact", occurs) for param in main]
    return found + [CandidateParam(param, "contact shape", False) for param in more]


def _spring_damper(
    model: mujoco.MjModel, prefix: str, target: str, spring: tuple[float, float]
) -> list[Param]:
    """Stiffness (1/s^2) and damping (1/s) of a contact or stop, in MuJoCo's direct form."""
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


def _direct_solref(solref: np.ndarray) -> tuple[float, float]:
    """Stiffness (1/s^2) and damping (1/s) of a contact, or usual ones where none were given."""
    if np.allclose(solref, _MUJOCO_SOLREF):
        return _USUAL_STIFFNESS, _USUAL_DAMPING
    return _in_direct_form(solref)


def _in_direct_form(solref: np.ndarray) -> tuple[float, float]:
    """Stiffness (1/s^2) and damping (1/s) of a solref in either form."""
    if solref[0] < 0:
        return -float(solref[0]), -float(solref[1])
    time_constant, ratio = float(solref[0]), float(solref[1])
    return 1 / (time_constant * ratio) ** 2, 2 / time_constant


def _size_params(model: mujoco.MjModel) -> list[Param]:
    """Sizes of cubes and spheres that move, each a single number."""
    params = []
    for geom in range(model.ngeom):
        if root_of(model, int(model.geom_bodyid[geom])) == WORLD:
            continue
        size = model.geom_size[geom]
        kind = int(model.geom_type[geom])
        is_cube = kind == int(mujoco.mjtGeom.mjGEOM_BOX) and np.ptp(size) < 1e-6 * size.max()
        if not is_cube and kind != int(mujoco.mjtGeom.mjGEOM_SPHERE):
            continue
        name = model.geom(geom).name
        entries = "[0:3]" if is_cube else "[0]"
        value = float(size[0])
        width, std = (share * value for share in _SIZE)
        target = f"geom/{name}/size{entries}"
        params.append(
            Param(f"{name}_size", target, value, value - width, value + width, "m", sd=std)
        )
    return params
