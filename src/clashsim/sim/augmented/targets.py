"""Where a neural scalar acts in a model and what it reads there, found by name."""

from __future__ import annotations

import re
from dataclasses import dataclass

import mujoco

from clashsim.core.augmentation_spec import NeuralScalar
from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.params import Slot, locate_param

MOTIONS = ("force", "acceleration", "state")
_JOINT_READS = ("qpos", "qvel", "sin", "cos")
_READS = (*_JOINT_READS, "ctrl", "speed")
_NAMED = re.compile(r"^(?P<kind>\w+)/(?P<name>.+?)(?:\[(?P<index>\d+)\])?$")
# MuJoCo derives constants of these, which would have to be computed anew in every step.
_FIXED = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_armature", "qpos0")


@dataclass(frozen=True)
class Read:
    """A quantity of the state: its kind and its index in qpos, qvel, ctrl or the list of bodies."""

    kind: str
    index: int


@dataclass(frozen=True)
class Place:
    """Where a neural scalar acts: `slot` of a parameter, else one degree of freedom (`dof`, and
    `qpos` where it has a coordinate of its own).
    """

    kind: str
    slot: Slot | None
    dof: int
    qpos: int
    reads: tuple[Read, ...]


def place(model: mujoco.MjModel, scalar: NeuralScalar) -> Place:
    """Find what a neural scalar names, or raise with the names there are."""
    reads = tuple(_read(model, name) for name in scalar.reads)
    kind = scalar.target.partition("/")[0]
    if kind in MOTIONS:
        dof, qpos = _freedom(model, scalar.target)
        if kind == "state" and qpos < 0:
            raise ParamError(
                f"{scalar.target!r}: the state after a step is augmented at hinges and slides only; use a force or an acceleration here"
            )
        return Place(kind, None, dof, qpos, reads)
    if kind not in ("geom", "body", "pair", "joint", "actuator", "option"):
        raise ParamError(
            f"a neural scalar cannot act on {scalar.target!r}: {did_you_mean(kind, (*MOTIONS, 'geom', 'body', 'pair', 'joint', 'actuator', 'option'))}"
        )
    slot = locate_param(model, scalar.target)
    if slot.field in _FIXED:
        raise ParamError(
            f"a neural scalar cannot act on {scalar.target!r}, because MuJoCo derives constants of it: make it a parameter, or act on a force or an acceleration"
        )
    if slot.field == "dof_frictionloss":
        raise ParamError(
            f"a neural scalar cannot act on {scalar.target!r}, which MJX fixes when it compiles: act on force/{scalar.target.split('/')[1]}"
        )
    return Place("parameter", slot, -1, -1, reads)


def _read(model: mujoco.MjModel, name: str) -> Read:
    match = _NAMED.match(name)
    if match is None or match["kind"] not in _READS:
        raise ParamError(
            f"a neural scalar cannot read {name!r}: name a quantity as kind/name, the kind one of {', '.join(_READS)}"
        )
    kind = match["kind"]
    if kind in _JOINT_READS:
        dof, qpos = _freedom(model, name)
        if kind != "qvel" and qpos < 0:
            raise ParamError(
                f"{name!r} cannot be read: this degree of freedom has no coordinate of its own; read qvel, or the coordinate of a hinge or slide"
            )
        return Read(kind, dof if kind == "qvel" else qpos)
    objects = {
        "ctrl": (mujoco.mjtObj.mjOBJ_ACTUATOR, "actuator", model.nu),
        "speed": (mujoco.mjtObj.mjOBJ_BODY, "body", model.nbody),
    }
    obj, word, size = objects[kind]
    row = mujoco.mj_name2id(model, obj, match["name"])
    if row < 0 or match["index"] is not None:
        names = [mujoco.mj_id2name(model, obj, i) or "" for i in range(size)]
        raise ParamError(
            f"no {word} named {name.partition('/')[2]!r} in {name!r}; {did_you_mean(match['name'], filter(None, names))}"
        )
    return Read(kind, row)


def _freedom(model: mujoco.MjModel, name: str) -> tuple[int, int]:
    """Degree of freedom and coordinate that "kind/JOINT" or, for joints with several,
    "kind/JOINT[i]" names; the coordinate is -1 where it is a part of a turn.
    """
    match = _NAMED.match(name)
    joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, match["name"]) if match else -1
    if match is None or joint < 0:
        names = [model.joint(i).name for i in range(model.njnt)]
        raise ParamError(
            f"no joint named {name.partition('/')[2]!r} in {name!r}; {did_you_mean(name.partition('/')[2], filter(None, names))}"
        )
    size = {int(mujoco.mjtJoint.mjJNT_FREE): 6, int(mujoco.mjtJoint.mjJNT_BALL): 3}.get(
        int(model.jnt_type[joint]), 1
    )
    if (match["index"] is None) != (size == 1) or int(match["index"] or 0) >= size:
        raise ParamError(
            f"joint {match['name']!r} in {name!r} "
            + (
                "has one degree of freedom and takes no index"
                if size == 1
                else f"needs an index, 0 to {size - 1}"
            )
        )
    index = int(match["index"] or 0)
    own = size == 1 or (
        size == 6 and index < 3
    )  # the places of a free body are coordinates, its turn is a quaternion
    return int(model.jnt_dofadr[joint]) + index, int(
        model.jnt_qposadr[joint]
    ) + index if own else -1
