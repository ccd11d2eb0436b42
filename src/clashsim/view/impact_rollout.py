"""Impacts as motion: two bodies shortly before they touch, stepped until the struck one rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_geometry import PairPoser, bring_into_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.protocols import Simulator
from clashsim.core.resting import settled_on_ground
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import raised_onto_ground, rest_height, velocity_servos
from clashsim.view.motion import BodyMotion, motion_of_states

_START_GAP = 0.01  # m between the bodies when a motion begins
_DRAW_BACK_TIME = 0.02  # s after the contact, when a driven striker begins to draw back
_SAMPLE_TIME = 0.004  # s between poses that are kept
_MAX_RADII = (
    8.0  # radii of the struck body: where it goes farther, for lack of friction, is cut off
)
_MIN_SPEED = 1e-6  # m/s, against division by zero
SECONDS = 0.8  # length of a motion after the contact


@dataclass(frozen=True, eq=False)
class ImpactRollout:
    """Runs impacts of a scene in a simulator.

    Attributes:
        scene: The scene.
        simulator: Simulates the scene.
        theta: Parameters (p,) of the simulator; how deep bodies sink into soft ground depends on
            them.
        after: Returns the struck body's twists (N, k) at the end of the contact, for impacts
            `before` (N, d). They are not read from the motion, in which further contacts and
            friction may follow at once.
    """

    scene: Scene
    simulator: Simulator
    theta: np.ndarray
    after: Callable[[np.ndarray], np.ndarray]

    def __call__(self, before: np.ndarray, *, seconds: float = SECONDS) -> BodyMotion:
        """Return the motion of an impact.

        Args:
            before: Both bodies before the impact (d,), as in `Impacts.before`.
            seconds: Length of the motion after the contact; the contact is at time zero.
        """
        model = self._model
        lead_time, start = self._start(before)
        timestep = float(model.opt.timestep)
        steps = max(1, round((lead_time + seconds) / timestep))
        t = np.arange(steps + 1) * timestep - lead_time
        control = self._control(start, t[:-1] + timestep / 2)  # at the middle of each step
        states = self.simulator.rollout(start[None], control[None])[0]
        stride = max(1, round(_SAMPLE_TIME / timestep))
        motion = motion_of_states(model, t[::stride], states[::stride])
        radius = float(self.scene.base.geom(self.scene.struck).rbound[0])
        return motion.cut(self.scene.struck_body.body, max_distance=_MAX_RADII * radius)

    @property
    def _model(self) -> Any:
        return self.simulator.model  # type: ignore[attr-defined]

    def _start(self, before: np.ndarray) -> tuple[float, np.ndarray]:
        """Return how long before the contact (s) a motion begins, and the first state (s,)."""
        scene = self.scene
        pair = before[None].copy()
        contact, at_contact = bring_into_contact(scene, pair)
        if not contact.touching[0]:
            raise DataError(
                "the bodies of this impact do not meet, so there is nothing to simulate"
            )
        motion = MotionBefore.of(pair)
        struck, striker = motion.struck, motion.striker
        shift = MotionBefore.of(at_contact).struck.position - struck.position
        if scene.striker_body.fixed:
            struck.position[:] += shift
        else:
            striker.position[:] -= shift  # the struck body stays where it was
        closing_speed = float(np.linalg.norm(motion.approach_velocity))
        lead_time = _START_GAP / max(closing_speed, _MIN_SPEED)
        # Go back in time by `lead_time` from the contact, along the body's free flight.
        lies = bool(settled_on_ground(scene, pair).lies[0])
        gravity = self._gravity_in_flight(struck.velocity.shape[1], lies=lies)
        struck.position[:] += -struck.velocity * lead_time + gravity * lead_time**2 / 2
        striker.position[:] -= striker.velocity * lead_time
        struck.velocity[:] -= gravity * lead_time
        mj_model = scene.base
        qpos = mj_model.qpos0[None].copy()
        qvel = np.zeros((1, mj_model.nv))
        pair = raised_onto_ground(scene, pair, self.theta[None])
        PairPoser(scene, rest_height(scene, self.theta[None])).write(pair, qpos, qvel)
        activations = np.zeros(mj_model.na)
        return lead_time, np.concatenate([qpos[0], qvel[0], activations])

    def _gravity_in_flight(self, dim: int, *, lies: bool) -> np.ndarray:
        """Return gravity (dim,) on a struck body that flies; zero for one that lies on the ground.

        Going back in time with it, the body arrives with the velocity that was recorded.
        """
        if self.scene.ground is not None and (self.scene.plane is not None or lies):
            return np.zeros(dim)
        gravity = np.asarray(self.scene.base.opt.gravity, float)
        if self.scene.plane is None:
            return gravity
        return self.scene.plane[:2] @ gravity

    def _control(self, start: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return controls (T, nu): a driven striker keeps its velocity, then draws back.

        Args:
            start: First state (s,): qpos, qvel, activations.
            t: Time (T,) in s from the contact.
        """
        control = np.zeros((len(t), self._model.nu))
        for actuator, dof in velocity_servos(self.scene):
            speed = float(start[self.scene.base.nq + dof])  # qvel[dof]
            control[:, actuator] = np.where(t < _DRAW_BACK_TIME, speed, -speed)
        return control
