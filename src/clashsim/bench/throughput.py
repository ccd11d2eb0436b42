"""Strikes a second from the same starts to the same poses at rest: MuJoCo, the hybrid simulator, and learned collision with learned slide."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from clashsim.core.contact import Poser
from clashsim.core.frame import frame, inertia
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import GROUND, Scene
from clashsim.fit.base import base_model
from clashsim.fit.sample import draw
from clashsim.nets.slide import SlideModel
from clashsim.sim.hybrid import HybridSim
from clashsim.sim.mujoco import rest_height
from clashsim.sim.mujoco_sim import MujocoSim

_BACK = 0.01  # m that the striker goes before it hits
_SECONDS = 0.8  # after which every block lies still
_COARSE = 0.005  # s: timestep of the hybrid; MuJoCo needs the author's, for the collision


def run(*, n: int = 2048, scene: str = "semi_cylinder", seed: int = 0, progress: Progress = quiet) -> list[dict]:
    """Rows of what, method, per_second, ratio (to MuJoCo) and, where poses are comparable, off_mm and off_deg: median distances to the hybrid's at the author's timestep."""
    world = Scene.load(scene)
    theta = world.nominal.copy()
    theta[[i for i, p in enumerate(world.params) if p.target == "effect/drag"]] = 0.0
    base, body = base_model(world), inertia(world, world.struck_body)
    slow = max(16, n // 16)
    start, velocity, before = _strikes(world, theta, n, seed)
    ground = float(world.model(theta).pair(GROUND).friction[0])
    slide = SlideModel({"friction": ground}, gyration=body.gyration, centre=body.centre[:2])
    plain, exact, hybrid = MujocoSim(world, theta), HybridSim(world, base, theta), HybridSim(world, base, theta, timestep=_COARSE, slide_model=slide)
    own = float(world.base.opt.timestep)
    seen = frame(world, Impacts(True, before, np.zeros((n, 3))))
    with progress("throughput", 5) as advance:
        reference = _rest(world, exact.rollout(start[:slow], _control(velocity[:slow], own))[:, -1])
        advance(1)
        net = _rate(lambda: base.members(seen, theta), n)
        advance(1)
        mujoco, a = _timed(lambda: plain.rollout(start[:slow], _control(velocity[:slow], own))[:, -1], slow)
        advance(1)
        hybrid.rollout(start, _control(velocity, _COARSE)[:, :1])  # batches are made once
        stepped, b = _timed(lambda: hybrid.rollout(start, _control(velocity, _COARSE))[:, -1], n)
        advance(1)
        hybrid.rest(before[:16])
        direct, c = _timed(lambda: hybrid.rest(before), n)
        advance(1)
    rows: list[dict] = [{"what": "impacts", "method": "network alone", "per_second": net, "ratio": None}]
    for method, rate, pose in (("MuJoCo", mujoco, _rest(world, a)), ("hybrid, MuJoCo's slide", stepped, _rest(world, b)), ("hybrid, slide model", direct, c)):
        gap = pose[:slow] - reference
        turn = np.abs((gap[:, 2] + np.pi) % (2 * np.pi) - np.pi)
        rows.append({"what": f"strikes of {scene}", "method": method, "per_second": rate, "ratio": rate / mujoco,
                     "off_mm": 1e3 * float(np.median(np.linalg.norm(gap[:, :2], axis=1))), "off_deg": float(np.degrees(np.median(turn)))})
    return rows


def _strikes(scene: Scene, theta: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts (n, s) with strikers `_BACK` away, their velocities (n, 2), and the impacts (n, 12) that follow."""
    drawn = draw(scene, n, np.random.default_rng(seed))
    before = drawn.before[np.flatnonzero(drawn.contact.touching)]
    before = before[np.arange(n) % len(before)]
    apart, velocity = before.copy(), before[:, 9:11]
    apart[:, 6:8] -= _BACK * velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    qpos, qvel = np.tile(scene.base.qpos0, (n, 1)), np.zeros((n, scene.base.nv))
    Poser(scene, rest_height(scene, np.tile(theta, (n, 1)))).write(apart, qpos, qvel)
    return np.concatenate([qpos, qvel], axis=1), velocity, before


def _control(velocity: np.ndarray, dt: float) -> np.ndarray:
    """Controls (n, T, 2) of strikers that draw back 20 to 30 ms after their hit."""
    t = (np.arange(round(_SECONDS / dt)) + 0.5) * dt
    until = np.ceil((_BACK / np.linalg.norm(velocity, axis=1) + 0.02) / 0.01) * 0.01
    return np.where((t[None] < until[:, None])[..., None], velocity[:, None], -velocity[:, None])


def _rest(scene: Scene, state: np.ndarray) -> np.ndarray:
    """Planar poses (n, 3) of the struck body."""
    q = state[:, scene.struck_body.qpos]
    return np.column_stack([q[:, :2], 2 * np.arctan2(q[:, 6], q[:, 3])])


def _timed(work: Callable[[], np.ndarray], n: int) -> tuple[float, np.ndarray]:
    begin = time.perf_counter()
    out = work()
    return n / (time.perf_counter() - begin), out


def _rate(work: Callable[[], object], n: int, seconds: float = 1.0) -> float:
    work()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        work()
        done += n
    return done / (time.perf_counter() - begin)
