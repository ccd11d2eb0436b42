"""Impacts as motion: two bodies shortly before they touch, stepped by a simulator until the struck
one has come to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_geometry import PairPoser, advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.protocols import Simulator
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import rest_height, velocity_servos
from clashsim.view.motion import BodyMotion, of_states

_BACK = 0.01  # m between the bodies when a motion begins
_AWAY = 0.02  # s after the touch at which a driven striker draws back
_FRAME = 0.004  # s between frames
_FAR = 8.0  # radii of the struck body, beyond which a motion without friction is of no interest
SECONDS = 0.8  # of a motion, from the touch


@dataclass(frozen=True, eq=False)
class ImpactRollout:
    """Runs impacts of a scene in a simulator; theta (p,): its parameters, which decide how deep
    bodies lie in soft ground.

    after: the twists (N, k) when bodies have parted, for impacts `before` (N, d); from the motion
    they can hardly be told, for more may happen soon.
    """

    scene: Scene
    simulator: Simulator
    theta: np.ndarray
    after: Callable[[np.ndarray], np.ndarray]

    def __call__(self, before: np.ndarray, *, seconds: float = SECONDS) -> BodyMotion:
        """Motion from an impact `before` (d,) as in `Impacts`: from `_BACK` before the touch, which
        is at time zero, to `seconds` after it.
        """
        scene, model = self.scene, self._model
        lead, start = self._start(before)
        dt = float(model.opt.timestep)
        steps = max(1, round((lead + seconds) / dt))
        t = np.arange(steps + 1) * dt - lead
        states = self.simulator.rollout(start[None], self._control(start, t[:-1] + dt / 2)[None])[0]
        every = max(1, round(_FRAME / dt))
        return of_states(model, t[::every], states[::every]).cut(
            scene.struck_body.body, away=_FAR * float(scene.base.geom(scene.struck).rbound[0])
        )

    @property
    def _model(self) -> Any:
        return self.simulator.model  # type: ignore[attr-defined]

    def _start(self, before: np.ndarray) -> tuple[float, np.ndarray]:
        """How long before the touch (s) a motion begins, and the state (s,) then."""
        scene = self.scene
        pair = before[None].copy()
        contact, moved = advance_to_contact(scene, pair)
        if not contact.touching[0]:
            raise DataError(
                "the bodies of this impact do not meet along their approach, "
                "so there is nothing to simulate"
            )
        motion = MotionBefore.of(pair)
        struck, striker = motion.struck, motion.striker
        shift = MotionBefore.of(moved).struck.position - struck.position
        if scene.striker_body.fixed:
            struck.position[:] += shift
        else:  # the striker is brought to the body, which stays where it was
            striker.position[:] -= shift
        lead = _BACK / max(float(np.linalg.norm(motion.approach_velocity)), 1e-6)
        pull = self._pull(struck.velocity.shape[1])
        struck.position[:] += -struck.velocity * lead + pull * lead**2 / 2
        striker.position[:] -= striker.velocity * lead
        struck.velocity[:] -= pull * lead
        base = scene.base
        qpos, qvel = base.qpos0[None].copy(), np.zeros((1, base.nv))
        PairPoser(scene, rest_height(scene, self.theta[None])).write(pair, qpos, qvel)
        return lead, np.concatenate([qpos[0], qvel[0], np.zeros(base.na)])

    def _pull(self, n: int) -> np.ndarray:
        """Gravity (n,) on a struck body that flies, so that it arrives as fast as it was recorded;
        none on one that lies on the ground.
        """
        if self.scene.ground is not None:
            return np.zeros(n)
        gravity = np.asarray(self.scene.base.opt.gravity, float)
        return gravity if self.scene.plane is None else self.scene.plane[:2] @ gravity

    def _control(self, start: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Controls (T, nu) by which velocity servos of the striker keep its speed through the
        touch, then draw it back; t (T,): s from the touch.
        """
        out = np.zeros((len(t), self._model.nu))
        for actuator, dof in velocity_servos(self.scene):
            speed = float(start[self.scene.base.nq + dof])
            out[:, actuator] = np.where(t < _AWAY, speed, -speed)
        return out
