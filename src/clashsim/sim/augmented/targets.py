"""Where a neural scalar acts in a model and what it reads there, found by name."""

from __future__ import annotations

import re
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.augmentation_spec import AugmentingScalar
from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.params import Slot, locate_param, pair_rows
from clashsim.core.scene_model import model_field

MOTIONS = ("force", "acceleration", "state")
_PARAMETER_OWNERS = ("geom", "body", "pair", "joint", "actuator", "option")
_VELOCITY_READS = ("qvel", "logspeed")
_JOINT_READS = ("qpos", *_VELOCITY_READS, "sin", "cos")
CONTACT_READS = ("gap", "normal_force", "slip_speed")
_READS = (*_JOINT_READS, "ctrl", "speed", *CONTACT_READS)
_NAMED = re.compile(r"^(?P<kind>\w+)/(?P<name>.+?)(?:\[(?P<index>\d+)\])?$")
# Fields from which MuJoCo derives constants, which would have to be computed anew in every step.
_CONSTANT_SOURCES = (
    "body_inertia",
    "body_ipos",
    "body_iquat",
    "dof_armature",
    "qpos0",
)


@dataclass(frozen=True)
class StateRead:
    """A quantity of the state.

    Attributes:
        kind: qpos, qvel, logspeed, sin, cos, ctrl, speed, gap, normal_force or slip_speed.
        index: In qpos, qvel, ctrl or the list of bodies; -1 for a contact.
        geoms: Pairs of geoms of a contact.
    """

    kind: str
    index: int
    geoms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ScalarTarget:
    """Where a neural scalar acts and what it reads.

    Attributes:
        kind: Parameter, mass, force, acceleration or state.
        slot: Where a parameter or mass lives in the model; None for the other kinds.
        dof: Index in qvel of the degree of freedom that is changed, -1 for a parameter.
        qpos: Index in qpos of that degree of freedom's coordinate, -1 where it has none of its own.
        reads: Quantities of the state that the network reads.
    """

    kind: str
    slot: Slot | None
    dof: int
    qpos: int
    reads: tuple[StateRead, ...]


def find_target(model: mujoco.MjModel, scalar: AugmentingScalar) -> ScalarTarget:
    """Find the target and the reads that a neural scalar names.

    Raises:
        ParamError: There is no such name, or a neural scalar cannot act on it or read it.
    """
    reads = tuple(_find_read(model, name) for name in scalar.reads)
    target = scalar.target
    kind = target.partition("/")[0]
    if kind in MOTIONS:
        if scalar.mode == "positive":
            raise ParamError(
                f"{target!r} has either sign, so mode 'positive' cannot act on it: for a network "
                "that only brakes a joint, act on joint/JOINT/damping"
            )
        dof, qpos = _find_dof(model, target)
        if kind == "state" and qpos < 0:
            raise ParamError(
                f"{target!r}: the state after a step is augmented at hinges and slides only; "
                "use a force or an acceleration here"
            )
        return ScalarTarget(kind, None, dof, qpos, reads)
    if kind not in _PARAMETER_OWNERS:
        raise ParamError(
            f"a neural scalar cannot act on {target!r}: "
            f"{did_you_mean(kind, (*MOTIONS, *_PARAMETER_OWNERS))}"
        )
    slot = locate_param(model, target)
    if slot.field in _CONSTANT_SOURCES:
        raise ParamError(
            f"a neural scalar cannot act on {target!r}, because MuJoCo derives constants from it: "
            "make it a parameter, or act on a force or an acceleration"
        )
    if slot.field == "dof_frictionloss":
        raise ParamError(
            f"a neural scalar cannot act on {target!r}, which MJX fixes when it compiles: "
            f"act on force/{target.split('/')[1]}"
        )
    if slot.field == "body_mass":
        _check_mass(model, scalar)
        return ScalarTarget("mass", slot, -1, -1, reads)
    if scalar.mode == "positive" and (_entries(model, slot) < 0).any():
        raise ParamError(
            f"{target!r} is negative in the scene, so mode 'positive' cannot act on it: use 'scale'"
        )
    return ScalarTarget("parameter", slot, -1, -1, reads)


def _check_mass(model: mujoco.MjModel, scalar: AugmentingScalar) -> None:
    """Refuse what would make a mass negative, or change constants that are not computed anew."""
    if scalar.mode not in ("scale", "positive"):
        raise ParamError(
            f"a neural scalar in mode {scalar.mode!r} could make {scalar.target!r} negative: use "
            "'scale' or 'positive'"
        )
    muscles = model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_MUSCLE)
    if model.ntendon or muscles.any():
        raise ParamError(
            f"a neural scalar cannot act on {scalar.target!r} in a scene with tendons or muscles, "
            "because MuJoCo derives constants of theirs from it: make it a parameter, or act on a "
            "force or an acceleration"
        )


def _entries(model: mujoco.MjModel, slot: Slot) -> np.ndarray:
    """The author's values of a parameter."""
    values = model_field(model, slot.field)
    rows = values[list(slot.rows)] if slot.rows else values
    return rows[..., list(slot.columns)] if slot.columns else rows


def _find_read(model: mujoco.MjModel, name: str) -> StateRead:
    """Find a quantity by its name, "kind/NAME"."""
    match = _NAMED.match(name)
    if match is None or match["kind"] not in _READS:
        raise ParamError(
            f"a neural scalar cannot read {name!r}: name a quantity as kind/name, "
            f"the kind one of {', '.join(_READS)}"
        )
    kind = match["kind"]
    if kind in _JOINT_READS:
        dof, qpos = _find_dof(model, name)
        if kind in _VELOCITY_READS:
            return StateRead(kind, dof)
        if qpos < 0:
            raise ParamError(
                f"{name!r} cannot be read: this degree of freedom has no coordinate of its own; "
                "read qvel, or the coordinate of a hinge or slide"
            )
        return StateRead(kind, qpos)
    if kind in CONTACT_READS:
        return StateRead(kind, -1, _find_pair(model, name))
    if kind == "ctrl":
        object_type, noun, count = mujoco.mjtObj.mjOBJ_ACTUATOR, "actuator", model.nu
    else:
        object_type, noun, count = mujoco.mjtObj.mjOBJ_BODY, "body", model.nbody
    index = mujoco.mj_name2id(model, object_type, match["name"])
    if index < 0 or match["index"] is not None:
        names = [mujoco.mj_id2name(model, object_type, i) or "" for i in range(count)]
        raise ParamError(
            f"no {noun} named {name.partition('/')[2]!r} in {name!r}; "
            f"{did_you_mean(match['name'], filter(None, names))}"
        )
    return StateRead(kind, index)


def _find_pair(model: mujoco.MjModel, name: str) -> tuple[tuple[int, int], ...]:
    """Find the pairs of geoms of a named contact, "kind/PAIR"."""
    wanted = name.partition("/")[2]
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_PAIR, wanted) < 0:
        names = [model.pair(i).name for i in range(model.npair)]
        raise ParamError(
            f"no contact pair named {wanted!r} in {name!r}; "
            f"{did_you_mean(wanted, filter(None, names))}"
        )
    rows = pair_rows(model, wanted)
    return tuple((int(model.pair_geom1[row]), int(model.pair_geom2[row])) for row in rows)


def _find_dof(model: mujoco.MjModel, name: str) -> tuple[int, int]:
    """Find the index in qvel of a named degree of freedom, and in qpos of its coordinate.

    The name is "kind/JOINT" or, for joints with several degrees of freedom, "kind/JOINT[i]". The
    coordinate is -1 where it is a part of a quaternion.
    """
    match = _NAMED.match(name)
    joint = -1
    if match is not None:
        joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, match["name"])
    if match is None or joint < 0:
        names = [model.joint(i).name for i in range(model.njnt)]
        wanted = name.partition("/")[2]
        raise ParamError(
            f"no joint named {wanted!r} in {name!r}; {did_you_mean(wanted, filter(None, names))}"
        )
    sizes = {int(mujoco.mjtJoint.mjJNT_FREE): 6, int(mujoco.mjtJoint.mjJNT_BALL): 3}
    size = sizes.get(int(model.jnt_type[joint]), 1)
    has_index = match["index"] is not None
    index = int(match["index"] or 0)
    if has_index != (size > 1) or index >= size:
        if size == 1:
            problem = "has one degree of freedom and takes no index"
        else:
            problem = f"needs an index, 0 to {size - 1}"
        raise ParamError(f"joint {match['name']!r} in {name!r} {problem}")
    dof = int(model.jnt_dofadr[joint]) + index
    # Of a free joint the first three entries of qpos are coordinates, the rest is a quaternion.
    has_coordinate = size == 1 or (size == 6 and index < 3)
    return dof, int(model.jnt_qposadr[joint]) + index if has_coordinate else -1
