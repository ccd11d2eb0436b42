"""Strikes of the shipped scenes from a distance, for the tests of the hybrid simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import mujoco
import numpy as np

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.base import distilled_model
from clashsim.fit.distil import DistilledModel
from clashsim.fit.sample import sample_strikes
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.impacts import rest_height

SHAPES = ("semi_cylinder", "square", "triangle")
# m, rad, m/s: between a row alone and in a batch. A network in 32 bits rounds differently with the
# number of rows, on other CPUs at least.
BATCH_TOLERANCE = 1e-6
RUN_UP = 0.02  # m that the striker has to go before it hits


class StrikeScene(NamedTuple):
    """A shipped scene, its distilled model and its parameters."""

    scene: Scene
    model: DistilledModel
    theta: np.ndarray


class StrikeStarts(NamedTuple):
    """Starts (n, s), the strikers' velocities (n, 2), m/s, and `before` at the touch (n, 12)."""

    start: np.ndarray
    velocity: np.ndarray
    before: np.ndarray


@cache
def strike_scene(name: str) -> StrikeScene:
    """A scene without drag, which acts only between parting and the view of a camera."""
    scene = Scene.load(name)
    theta = scene.nominal.copy()
    theta[param_index(scene, "drag")] = 0.0
    return StrikeScene(scene, distilled_model(scene), theta)


def param_index(scene: Scene, name: str) -> int:
    return [param.name for param in scene.params].index(name)


def strike_starts(
    name: str, n: int, seed: int = 0, *, speed: tuple[float, float] = (0.2, 0.8)
) -> StrikeStarts:
    """n strikes of a scene, before the strikers' run-up."""
    scene, _, theta = strike_scene(name)
    chosen = replace(scene, strikes=replace(scene.strikes, speed=speed))
    before = sample_strikes(chosen, n, np.random.default_rng(seed)).before
    velocity = before[:, 9:11]
    apart = before.copy()
    apart[:, 6:8] -= RUN_UP * velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    qpos = np.tile(scene.base.qpos0, (n, 1))
    qvel = np.zeros((n, scene.base.nv))
    height = rest_height(scene, np.tile(theta, (n, 1)))
    PairPoser(scene, height).write(apart, qpos, qvel)
    return StrikeStarts(np.concatenate([qpos, qvel], 1), velocity, before)


def hit_and_retract(velocity: np.ndarray, dt: float, seconds: float = 0.5) -> np.ndarray:
    """Controls (n, T, 2) that keep the strikers' velocity until after the hit, then draw back."""
    time = (np.arange(round(seconds / dt)) + 0.5) * dt
    hit_time = RUN_UP / np.linalg.norm(velocity, axis=1)
    retreat_time = np.ceil((hit_time + 0.02) / 0.01) * 0.01
    forward = (time[None] < retreat_time[:, None])[..., None]
    return np.where(forward, velocity[:, None], -velocity[:, None])


def block_yaw(states: np.ndarray) -> np.ndarray:
    return 2 * np.arctan2(states[..., 6], states[..., 3])


def wrap(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def pose_difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances in mm and degrees between poses of blocks."""
    millimetres = 1e3 * np.linalg.norm(a[..., :2] - b[..., :2], axis=-1)
    return millimetres, np.degrees(np.abs(wrap(block_yaw(a) - block_yaw(b))))


def data_at(hybrid: HybridSim, start: np.ndarray) -> mujoco.MjData:
    """Data of a simulator's model at a state (s,)."""
    data = mujoco.MjData(hybrid.model)
    data.qpos, data.qvel = np.split(start, [hybrid.model.nq])
    return data


@dataclass(frozen=True)
class FakeModel:
    """Sends the struck body back at `bounce` times its speed relative to the striker."""

    bounce: float = 0.5
    std: float = 0.0

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        linear = 2 if impacts.planar else 3
        approach = impacts.striker_twist - impacts.twist
        after = impacts.twist.copy()
        after[:, :linear] = (impacts.striker_twist + self.bounce * approach)[:, :linear]
        return after, np.full_like(impacts.after, self.std)
