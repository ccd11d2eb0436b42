"""From strikes to poses at rest by stepping any simulator: slower than a map of strikes, and what
that is compared with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.protocols import Simulator
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.sim.mujoco.impacts import rest_height

_BACK = 0.01  # m that the striker goes before it hits
_AWAY = 0.02  # s after its hit at which it draws back


class SteppedStrikes:
    """A `StrikeModel` that steps a simulator of a scene with a striker on velocity servos until
    everything lies still.

    theta (p,): of the simulator, whose ground decides how deep bodies sink in at rest. seconds:
    after which every body has come to rest.
    """

    takes_noise = False

    def __init__(
        self, simulator: Simulator, scene: Scene, theta: np.ndarray, *, seconds: float = 1.0
    ) -> None:
        model: Any = simulator.model  # type: ignore[attr-defined]
        if model.nu != 2 or not scene.struck_body.free:
            raise DataError(
                f"strikes can be stepped where a servo for either axis drives the striker into a free body; scene {scene.name!r} has {model.nu} actuators"
            )
        self.simulator, self.scene, self.theta, self.seconds, self.dt = (
            simulator,
            scene,
            theta,
            seconds,
            float(model.opt.timestep),
        )
        ranges = strike_ranges(scene)
        self.names = tuple(ranges)
        self.low, self.high = np.array(list(ranges.values())).T

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Pose at rest (N, 3) of bodies struck at pose (N, 3); noise is not known to a simulator."""
        return planar_pose(self.scene, self.path(pose, strike)[:, -1])

    def path(self, pose: np.ndarray, strike: np.ndarray) -> np.ndarray:
        """States (N, T + 1, s) from `_BACK` before the hit."""
        start, velocity = self.starts(pose, strike)
        return self.simulator.rollout(start, self.control(velocity))

    def starts(self, pose: np.ndarray, strike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States (N, s) with strikers `_BACK` before their hit, and their velocities (N, 2)."""
        before = move_pair_to(
            before_from_strikes(self.scene, dict(zip(self.names, strike.T, strict=True)))[0], pose
        )
        n, base = len(strike), self.scene.base
        striker = MotionBefore.of(before).striker
        velocity = striker.velocity.copy()
        striker.position[:] -= _BACK * velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
        qpos, qvel = np.tile(base.qpos0, (n, 1)), np.zeros((n, base.nv))
        PairPoser(self.scene, rest_height(self.scene, np.tile(self.theta, (n, 1)))).write(
            before, qpos, qvel
        )
        return np.concatenate([qpos, qvel, np.zeros((n, base.na))], axis=1), velocity

    def control(self, velocity: np.ndarray) -> np.ndarray:
        """Controls (N, T, 2) of strikers that draw back once they have hit."""
        t = (np.arange(round(self.seconds / self.dt)) + 0.5) * self.dt
        until = np.ceil((_BACK / np.linalg.norm(velocity, axis=1) + _AWAY) / 0.01) * 0.01
        return np.where(
            (t[None] < until[:, None])[..., None], velocity[:, None], -velocity[:, None]
        )


def planar_pose(scene: Scene, state: np.ndarray) -> np.ndarray:
    """Planar poses (..., 3) of the struck free body in states (..., s)."""
    q = state[..., scene.struck_body.qpos]
    turn = q[..., 3:7]
    yaw = np.arctan2(
        2 * (turn[..., 0] * turn[..., 3] + turn[..., 1] * turn[..., 2]),
        1 - 2 * (turn[..., 2] ** 2 + turn[..., 3] ** 2),
    )
    return np.concatenate([q[..., :2], yaw[..., None]], -1)
