"""The friction formula that suggests itself for what the networks of a simulator learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from clashsim.core.augmentation_spec import AugmentingScalar, NeuralScalar
from clashsim.core.scene_model import model_field
from clashsim.fit.friction_formulas import FormulaFit, fit_formulas
from clashsim.sim.augmented.simulator import AugmentedSim
from clashsim.sim.augmented.targets import ScalarTarget, find_target

_MAX_STATES = 400  # at which networks are evaluated
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
_ONE_DOF = (int(mujoco.mjtJoint.mjJNT_HINGE), _SLIDE)


@dataclass(frozen=True)
class LearnedFriction:
    """Friction of a joint as its network and the identified parameters have it together.

    Attributes:
        joint: Name of the joint.
        fits: All formulas, the one with most evidence first.
    """

    joint: str
    fits: tuple[FormulaFit, ...]

    @property
    def best(self) -> FormulaFit:
        """The formula with most evidence."""
        return self.fits[0]

    @property
    def for_mjcf(self) -> FormulaFit:
        """The formula with most evidence of those that MJCF can express."""
        return next(fit for fit in self.fits if fit.in_mjcf)

    @property
    def without_load(self) -> FormulaFit:
        """The formula with most evidence of those that only depend on the speed."""
        return next(fit for fit in self.fits if "load" not in fit.formula.terms)

    def figures(self) -> dict[str, Any]:
        """Content of metrics.json on this joint."""
        best = self.best
        mjcf = self.for_mjcf
        coefficients = {name: getattr(best.formula, name) for name in best.formula.coefficients}
        return {
            "joint": self.joint,
            "law": best.formula.name,
            "formula": best.formula.text,
            "coefficients": coefficients,
            "explained": best.explained,
            "mjcf": {
                "damping": mjcf.formula.damping,
                "frictionloss": mjcf.formula.frictionloss,
                "explained": mjcf.explained,
            },
            "bic": {fit.formula.name: fit.bic for fit in self.fits},
        }


def suggest_friction(sim: AugmentedSim, states: np.ndarray) -> tuple[LearnedFriction, ...]:
    """Suggest a friction formula for each joint in whose torque or damping a network acts.

    What is described is the joint's whole friction: damper and friction loss of the scene with its
    parameters, and what the network adds. So the coefficients replace those in the MJCF.

    Args:
        sim: The trained simulator.
        states: Visited states (..., s), in which the networks are evaluated, at most 400 of them.

    Returns:
        The suggestions, in the order of the augmentation spec.
    """
    rows = states.reshape(-1, states.shape[-1])
    rows = rows[np.isfinite(rows).all(1)]
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), _MAX_STATES)).round().astype(int)
    rows = rows[chosen]
    theta = sim.theta if sim.theta is not None else sim.scene.nominal
    model = sim.scene.model(theta)
    outputs = sim.network_outputs(rows)
    torques = {}
    for i, scalar in enumerate(sim.augmentation):
        target = find_target(model, scalar)
        dof = _joint_dof(model, target)
        if dof is not None:
            torques[i] = (dof, _friction(sim, i, outputs[:, i], rows, model))
    added = np.zeros((len(rows), model.nv))
    for dof, torque in torques.values():
        added[:, dof] = torque + model.dof_damping[dof] * rows[:, model.nq + dof]
    loads = _bearing_loads(model, rows, added)
    found = []
    for i, (dof, torque) in torques.items():
        joint = int(model.dof_jntid[dof])
        fits = fit_formulas(
            rows[:, model.nq + dof],
            torque,
            loads[:, joint],
            count=_independent(sim.augmentation[i]),
        )
        found.append(LearnedFriction(model.joint(joint).name, fits))
    return tuple(found)


def _independent(scalar: AugmentingScalar) -> int:
    """How many independent torques a network's outputs over the speed count as.

    Each unit has a steepness and a height along the speed; weights of other inputs say nothing
    about it.
    """
    return 2 * scalar.units + 1 if isinstance(scalar, NeuralScalar) else scalar.count


def _joint_dof(model: mujoco.MjModel, target: ScalarTarget) -> int | None:
    """The hinge's or slide's degree of freedom whose torque a network changes; None if none."""
    dof = -1
    if target.kind == "force":
        dof = target.dof
    elif target.slot is not None and target.slot.field == "dof_damping":
        dof = target.slot.rows[0]
    if dof < 0 or int(model.jnt_type[model.dof_jntid[dof]]) not in _ONE_DOF:
        return None
    return dof


def _friction(
    sim: AugmentedSim, i: int, output: np.ndarray, states: np.ndarray, model: mujoco.MjModel
) -> np.ndarray:
    """Torques (n,) of damper, friction loss and network of a joint, in states (n, s)."""
    scalar = sim.augmentation[i]
    target = find_target(model, scalar)
    dof = _joint_dof(model, target)
    assert dof is not None
    speed = states[:, model.nq + dof]
    damping = float(model.dof_damping[dof])
    loss = -float(model.dof_frictionloss[dof]) * np.sign(speed)
    if target.kind == "force":
        return loss + scalar.combine(-damping * speed, output)
    author = float(model_field(sim.scene.base, "dof_damping")[dof])
    offset = author if scalar.mode == "replace" else 0.0
    return loss - (offset + scalar.combine(damping, output)) * speed


def _bearing_loads(model: mujoco.MjModel, states: np.ndarray, torques: np.ndarray) -> np.ndarray:
    """Forces (n, njnt), N, that the joints' bearings take in states (n, s).

    Of a hinge it is the whole force between the two bodies, of a slide that across its axis.

    Args:
        model: The scene's model with its parameters.
        states: (n, s).
        torques: Torques that act in addition to the model's own, (n, nv).
    """
    data = mujoco.MjData(model)
    loads = np.zeros((len(states), model.njnt))
    for k, (state, torque) in enumerate(zip(states, torques, strict=True)):
        data.qpos[:] = state[: model.nq]
        data.qvel[:] = state[model.nq : model.nq + model.nv]
        data.qfrc_applied[:] = torque
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        for joint in range(model.njnt):
            force = data.cfrc_int[int(model.jnt_bodyid[joint]), 3:]
            if int(model.jnt_type[joint]) == _SLIDE:
                axis = data.xaxis[joint]
                force = force - (force @ axis) * axis
            loads[k, joint] = np.linalg.norm(force)
    return loads
