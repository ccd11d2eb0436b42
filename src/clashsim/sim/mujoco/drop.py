"""A sphere that falls on a plane in MuJoCo: restitution, penetration, contact time and friction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from clashsim.sim.mujoco.quiet_warnings import without_warnings

Integrator = Literal["Euler", "RK4", "implicit", "implicitfast"]
Cone = Literal["pyramidal", "elliptic"]
_RADIUS = 0.1  # m, of the sphere
_TORSION, _ROLLING = 0.005, 0.0001  # MuJoCo's defaults, m
_HEIGHT = 2  # index of the sphere's height among its three coordinates
# Directions of sliding, from one axis of the friction pyramid to the diagonal between two.
_DIRECTIONS = np.radians([0.0, 22.5, 45.0])
_SETTLING = 40.0  # contact times until a sphere on the plane is at rest on it
_SLIDING_STEPS, _SLIDING_TIMES = 60, 10.0  # least time steps and contact times of sliding
_SLID = (0.8, 0.2)  # of the first speed, between which friction is measured


@dataclass(frozen=True)
class DropConditions:
    """What the outcome of a drop depends on besides the contact's own parameters.

    Attributes:
        timestep: s.
        integrator: MuJoCo's name of it.
        cone: Of friction.
        speed: Approach speed, m/s.
        gravity: m/s^2, along the normal of the plane.
    """

    timestep: float = 0.002
    integrator: Integrator = "Euler"
    cone: Cone = "pyramidal"
    speed: float = 1.0
    gravity: float = 9.81


@dataclass(frozen=True)
class Drops:
    """Outcomes of n drops that reach the plane at different moments within a time step.

    Attributes:
        restitution: (n,), speed at which the sphere leaves the surface over the approach speed; 0
            where it does not leave it.
        penetration: (n,), largest depth, m.
        contact_time: (n,), for which there was a force, s.
    """

    restitution: np.ndarray
    penetration: np.ndarray
    contact_time: np.ndarray


def drop_model(
    conditions: DropConditions,
    *,
    solref: Sequence[float],
    solimp: Sequence[float],
    friction: Sequence[float] = (1.0, 1.0, _TORSION, _ROLLING, _ROLLING),
    solreffriction: Sequence[float] = (0.0, 0.0),
    condim: int = 3,
) -> mujoco.MjModel:
    """Compile a sphere over a plane with given contact parameters.

    MuJoCo's contact acts on accelerations, so the mass is of no consequence.

    Args:
        conditions: Time step, integrator, cone and gravity.
        solref: Two numbers, in either of MuJoCo's forms.
        solimp: Five numbers.
        friction: Five numbers, as of a `<pair>`.
        solreffriction: Two numbers, as of a `<pair>`.
        condim: Dimensions of the contact.
    """
    spec = mujoco.MjSpec()
    spec.option.timestep = conditions.timestep
    integrator, cone = conditions.integrator.upper(), conditions.cone.upper()
    spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    spec.option.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone}")
    spec.option.gravity = [0, 0, -conditions.gravity]
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 0.1])
    body = spec.worldbody.add_body(pos=[0, 0, _RADIUS])
    for axis in np.eye(3):  # it falls along z, and slides along x and y
        body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    body.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[_RADIUS, 0, 0], mass=1.0)
    pair = spec.add_pair(geomname1="ball", geomname2="floor", condim=condim)
    pair.friction = list(friction)
    pair.solref = list(solref)
    pair.solimp = list(solimp)
    pair.solreffriction = list(solreffriction)
    return spec.compile()


def drop(
    model: mujoco.MjModel, speed: float, *, heights: Sequence[float] | np.ndarray, longest: float
) -> Drops:
    """Drop the sphere of a `drop_model`.

    Args:
        model: As compiled by `drop_model`.
        speed: Approach speed, m/s.
        heights: (n,), m, at which the drops begin; a little below 0 is in contact at once.
        longest: s after which a sphere that has not left the surface is taken to stay.
    """
    data = mujoco.MjData(model)
    with without_warnings():  # of contacts that a time step does not resolve
        outcomes = [_drop_once(model, data, speed, height, longest) for height in heights]
    restitution, penetration, contact_time = np.array(outcomes, float).T
    return Drops(restitution, penetration, contact_time)


def heights_within_a_step(conditions: DropConditions, n: int) -> np.ndarray:
    """Heights (n,) from which drops reach the plane at n moments within a time step, m."""
    return conditions.speed * conditions.timestep * (np.arange(n) + 0.5) / n


def _drop_once(
    model: mujoco.MjModel, data: mujoco.MjData, speed: float, height: float, longest: float
) -> tuple[float, float, float]:
    """Restitution, largest depth (m) and contact time (s) of one drop."""
    mujoco.mj_resetData(model, data)
    data.qpos[_HEIGHT] = height
    data.qvel[_HEIGHT] = -speed
    deepest = 0.0
    steps_with_force = 0
    touched = False
    for _ in range(round(longest / model.opt.timestep)):
        mujoco.mj_step(model, data)
        position = float(data.qpos[_HEIGHT])
        touched = touched or position < 0
        deepest = max(deepest, -position)
        if data.efc_force.sum() > 0:
            steps_with_force += 1
        if touched and position > 0:
            contact_time = steps_with_force * model.opt.timestep
            return max(0.0, float(data.qvel[_HEIGHT]) / speed), deepest, contact_time
    return 0.0, deepest, steps_with_force * model.opt.timestep


def sliding_friction(model: mujoco.MjModel, contact_time: float) -> np.ndarray:
    """Friction coefficients (3,) of the sphere of a `drop_model` that slides over the plane.

    They are those along an axis of the friction cone, on the diagonal of two axes, and between:
    with a pyramidal cone friction depends on the direction.

    Args:
        model: As compiled by `drop_model`, with gravity.
        contact_time: Of the contact, s; after some of them the sphere is at rest on the plane.
    """
    gravity = -float(model.opt.gravity[_HEIGHT])
    timestep = float(model.opt.timestep)
    duration = max(_SLIDING_STEPS * timestep, _SLIDING_TIMES * contact_time)
    speed = float(model.pair_friction[0, 0]) * gravity * duration
    data = mujoco.MjData(model)
    with without_warnings():
        for _ in range(round(_SETTLING * contact_time / timestep)):
            mujoco.mj_step(model, data)
        return np.array(
            [_slide_once(model, data, speed, direction, duration) for direction in _DIRECTIONS]
        )


def _slide_once(
    model: mujoco.MjModel, at_rest: mujoco.MjData, speed: float, direction: float, duration: float
) -> float:
    """Friction of a sphere at rest on the plane that is set sliding; NaN if it does not stop.

    Args:
        model: The model.
        at_rest: State of the sphere at rest; it is not changed.
        speed: m/s.
        direction: rad, in the plane.
        duration: s, that it slides if its friction is that of the model.
    """
    along = np.array([np.cos(direction), np.sin(direction)])
    data = mujoco.MjData(model)
    data.qpos[:] = at_rest.qpos
    data.qvel[:_HEIGHT] = speed * along
    times, speeds = [], []
    for _ in range(round(4 * duration / model.opt.timestep)):
        mujoco.mj_step(model, data)
        now = float(data.qvel[:_HEIGHT] @ along)
        if _SLID[1] * speed <= now <= _SLID[0] * speed:
            times.append(data.time)
            speeds.append(now)
        if now < _SLID[1] * speed:
            break
    if len(times) < 2:
        return float("nan")
    deceleration = -np.polyfit(times, speeds, 1)[0]
    return float(deceleration / -model.opt.gravity[_HEIGHT])
