"""Parameters that are identified where a scene has no settings file.

Everything that a few impacts may show of a pair: the contact itself in MuJoCo's direct form, what
carries the striker, and in a plane the effects that recordings have. Ranges are wide, and priors of
offsets narrow, so that what the impacts do not show stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from clashsim.core.contact_pairs import GROUND, IMMOVABLE_MASS, STRIKE, default_pair_params
from clashsim.core.mobility import Mobility
from clashsim.core.params import Param
from clashsim.core.principal_axes import principal_axes, principal_axis_near
from clashsim.core.scene_model import DELAY

_MUJOCO_FRICTION = 1.0  # of a geom whose author gave none
_FRICTION = 0.3
_FRICTION_RANGE = (0.02, 2.0)
# Stiffness (1/s^2) and damping (1/s) over the mass that is moved: contacts of 1.5 to 70 ms, and
# restitution from 0 to 1.
_STIFFNESS = 3e5
_STIFFNESS_RANGE = (2e3, 4e6)
_DAMPING = 150.0
_DAMPING_RANGE = (5.0, 3000.0)
_MAX_RATE = 0.5  # of the contact's oscillation, rad per time step: faster ones are not resolved
_MASS_FACTOR = 6.0  # by which the effective mass of a striker may differ from its own
# Offsets of the recorded frame: of the struck geom's bounding radius, and rad.
_OFFSET = 0.06
_OFFSET_STD = 0.015
_YAW_OFFSET = 0.06
_YAW_OFFSET_STD = 0.015
# Time (s) between the parting and the moment at which twists were measured.
_DELAY = 0.02
_DELAY_STD = 0.004
_PLANAR_DIRECTIONS = 3  # of motion in a plane: two of translation and a rotation
# How far the masses of a body may be from where its shapes and even density put them: offsets of
# its mass centre, of the struck geom's bounding radius, and logarithms of its moments of inertia.
_CENTRE = 0.12
_CENTRE_STD = 0.03
_INERTIA = 0.5
_INERTIA_STD = 0.15


def default_params(
    model: mujoco.MjModel,
    bodies: tuple[Mobility, Mobility],
    *,
    struck: str,
    planar: bool,
    is_round: bool,
    falls: bool,
) -> tuple[Param, ...]:
    """Parameters of any pair.

    Args:
        model: A model with a pair `strike`, and perhaps a pair `ground`.
        bodies: How the struck body and the striker move.
        struck: Name of the struck geom.
        planar: Whether the bodies move in a plane.
        is_round: Whether the struck body looks the same in any orientation.
        falls: Whether gravity accelerates the struck body between contacts.
    """
    struck_body, striker = bodies
    radius = float(model.geom(struck).rbound[0])
    found = [*_contact(model, STRIKE)]
    of_ground = [p for p in default_pair_params(model) if p.name.startswith(GROUND)]
    if of_ground and not planar:
        # In space it is recorded how the ground throws back a body that a strike tips or lifts.
        found += _contact(model, GROUND)
    else:
        found += [_usual_friction(p) if p.name == f"{GROUND}_friction" else p for p in of_ground]
    mass = float(model.body_mass[striker.body])
    has_name = bool(model.body(striker.body).name)  # which the target of a parameter needs
    if has_name and not striker.fixed and 0 < mass < IMMOVABLE_MASS:
        low, high = mass / _MASS_FACTOR, mass * _MASS_FACTOR
        found.append(
            Param("striker_mass", f"body/{striker.name}/mass", mass, low, high, "kg", "log")
        )
    found += _mass_distribution(model, struck_body, radius, planar=planar, is_round=is_round)
    if planar:
        # Joints that leave a body fewer than three directions say themselves where it is.
        is_led = len(struck_body.qvel) < _PLANAR_DIRECTIONS
        found += _effects(radius, has_offsets=not (is_round or is_led), slides=bool(of_ground))
    if falls:
        found.append(Param("delay", DELAY, 0.0, -_DELAY, _DELAY, "s", sd=_DELAY_STD))
    return tuple(found)


def _mass_distribution(
    model: mujoco.MjModel, body: Mobility, radius: float, *, planar: bool, is_round: bool
) -> list[Param]:
    """Mass centre and moments of inertia of a struck body, as far as its impacts depend on them.

    Args:
        model: The model.
        body: How the struck body moves.
        radius: m, bounding radius of the struck geom.
        planar: Whether the bodies move in a plane.
        is_round: Whether the struck body looks the same in any orientation.
    """
    name = model.body(body.body).name
    moments = model.body_inertia[body.body]
    parts = np.flatnonzero(model.body_weldid == body.body)
    if not name or len(parts) > 1 or body.mechanism is not None or not (moments > 0).all():
        return []
    found = []
    if body.free and not planar:
        if not is_round:
            limit, std = _CENTRE * radius, _CENTRE_STD * radius
            for i, axis in enumerate("xyz"):
                nominal = float(model.body_ipos[body.body, i])
                low, high = nominal - limit, nominal + limit
                target = f"body/{name}/ipos[{i}]"
                found.append(Param(f"centre_{axis}", target, nominal, low, high, "m", sd=std))
        for axis, i in principal_axis_near(model, body.body).items():
            target = f"body/{name}/inertia[{i}]"
            found.append(_inertia(f"inertia_{axis}", target, float(moments[i])))
    elif body.hinge is not None:
        along = (body.rotation @ principal_axes(model, body.body)).T @ body.hinge
        found.append(_inertia("inertia", f"body/{name}/inertia[0:3]", float(moments @ along**2)))
    return found


def stiffness_limit(model: mujoco.MjModel) -> float:
    """Stiffness over mass (1/s^2) of the fastest contact that the model's time step resolves."""
    return (_MAX_RATE / float(model.opt.timestep)) ** 2


def _inertia(name: str, target: str, nominal: float) -> Param:
    """A moment of inertia about which little but its size is known."""
    low, high = nominal * np.exp(-_INERTIA), nominal * np.exp(_INERTIA)
    return Param(name, target, nominal, low, high, "kg m^2", "log", sd=_INERTIA_STD)


def _contact(model: mujoco.MjModel, pair: str) -> list[Param]:
    """Friction, stiffness and damping of the strike, or of the ground."""
    row = int(model.pair(pair).id)
    label = "" if pair == STRIKE else f"{pair}_"
    fastest = stiffness_limit(model)
    stiffness_range = (min(_STIFFNESS_RANGE[0], fastest / 10), min(_STIFFNESS_RANGE[1], fastest))
    stiffness, damping = _STIFFNESS, _DAMPING
    solref = model.pair_solref[row]
    if solref[0] < 0:  # the author gave it directly
        stiffness, damping = -float(solref[0]), -float(solref[1])
    solref_target = f"pair/{pair}/solref"
    return [
        _usual_friction(
            Param(
                f"{label}friction",
                f"pair/{pair}/friction[0:2]",
                float(np.clip(model.pair_friction[row, 0], *_FRICTION_RANGE)),
                *_FRICTION_RANGE,
            )
        ),
        _direct(f"{label}stiffness", f"{solref_target}[0]", stiffness, stiffness_range, "1/s^2"),
        _direct(f"{label}damping", f"{solref_target}[1]", damping, _DAMPING_RANGE, "1/s"),
    ]


def _usual_friction(param: Param) -> Param:
    """A friction coefficient whose nominal value is a usual one where the author gave none."""
    nominal = _FRICTION if param.nominal == _MUJOCO_FRICTION else param.nominal
    return replace(param, nominal=nominal, low=_FRICTION_RANGE[0], high=_FRICTION_RANGE[1])


def _direct(name: str, target: str, value: float, limits: tuple[float, float], unit: str) -> Param:
    """An entry of a pair's `solref` in its direct form, which holds negative values."""
    low, high = limits
    nominal = float(np.clip(value, low, high))
    return Param(name, target, nominal, low, high, unit, "log", sign=-1)


def _effects(radius: float, *, has_offsets: bool, slides: bool) -> list[Param]:
    """What recordings in a plane show beyond MuJoCo's contact.

    Args:
        radius: m, bounding radius of the struck geom.
        has_offsets: Whether the recorded frame may be elsewhere than the body's.
        slides: Whether the struck body slides on a ground after the strike.
    """
    target = "effect/tangential_stiffness"
    found = [Param("tangential_stiffness", target, 5.0, 0.4, 60.0, "", "log")]
    if has_offsets:
        limit, std = _OFFSET * radius, _OFFSET_STD * radius
        for axis in ("x", "y"):
            found.append(Param(f"{axis}_offset", f"effect/{axis}", 0.0, -limit, limit, "m", sd=std))
        limit, std = _YAW_OFFSET, _YAW_OFFSET_STD
        found.append(Param("yaw_offset", "effect/yaw", 0.0, -limit, limit, "rad", sd=std))
    if slides:
        found.append(Param("drag", "effect/drag", 0.01, -0.03, 0.05, "m/s", sd=0.012))
    return found
