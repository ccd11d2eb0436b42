"""Parameters of a scene that whole trajectories may show, each with a range and a prior.

By default those are identified that recorded motion can tell apart: friction in joints, springs,
gains of servos, how mass is distributed, stops that joints reach, and contact where bodies touch.
The others (gravity, sizes, gears, further numbers of MuJoCo's contact) are identified if they are
asked for by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.joint_params import (
    CandidateParam,
    actuator_params,
    body_radius,
    direct_solref,
    joint_params,
    servo_gains,
    spring_damper,
    spring_params,
    stop_params,
    tendon_params,
)
from clashsim.core.motion_scene import CONTACT, WORLD, MotionScene, root_of
from clashsim.core.params import Param
from clashsim.core.principal_axes import principal_axes, principal_axis_near

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_BALL = int(mujoco.mjtJoint.mjJNT_BALL)
_ROTATING = (int(mujoco.mjtJoint.mjJNT_FREE), _BALL)
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
_IMPEDANCE = (0.3, 0.98)
_WIDTH = (2e-4, 2e-2)
_MARGIN = (0.08, 0.03)  # largest, and standard deviation, of the smaller radius of a pair
_ALIGNED = 0.99  # cosine between a joint's axis and a principal axis of inertia


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
            found += [CandidateParam(p, "joints", True) for p in joint_params(model, joint)]
        if int(model.jnt_type[joint]) in _SCALAR:
            found += spring_params(model, joint)
            found += stop_params(model, joint, reached=model.joint(joint).name in stops)
    found += tendon_params(model)
    found += actuator_params(model)
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


def _body_params(model: mujoco.MjModel) -> list[CandidateParam]:
    """Masses, moments of inertia and mass centres of the bodies that move."""
    moving = [b for b in range(1, model.nbody) if model.body_weldid[b] == b]
    moving = [b for b in moving if model.body_mass[b] > 0 and model.body_mocapid[b] < 0]
    found: list[CandidateParam] = []
    if not moving:
        return found
    # Motion under gravity and contact tells masses apart only relative to each other, unless a
    # motor acts with a force that is known.
    has_known_force = any(not servo_gains(model, actuator) for actuator in range(model.nu))
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
    spring = direct_solref(np.minimum(first.solref, second.solref))
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
        *spring_damper(model, prefix, f"{target}/solref", spring),
    )
    largest, std = (share * radius for share in _MARGIN)
    more = (
        Param(f"{prefix}d0", f"{target}/solimp[0]", 0.9, *_IMPEDANCE),
        Param(f"{prefix}width", f"{target}/solimp[2]", 1e-3, *_WIDTH, "m", "log"),
        Param(f"{prefix}margin", f"{target}/margin", 0.0, 0.0, largest, "m", sd=std),
    )
    found = [CandidateParam(param, "contact", occurs) for param in main]
    return found + [CandidateParam(param, "contact shape", False) for param in more]


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
