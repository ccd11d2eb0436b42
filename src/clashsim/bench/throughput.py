"""Strikes a second from the same starts to the same poses at rest: MuJoCo, the hybrid simulator, and learned collision with learned slide."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from clashsim.core.contact import Poser
from clashsim.core.frame import frame
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.core.slides import Slide
from clashsim.fit.base import base_model
from clashsim.fit.sample import draw
from clashsim.fit.slide_model import fit_slides
from clashsim.fit.sole import sole
from clashsim.nets.slide import SlideModel
from clashsim.sim.hybrid import HybridSim
from clashsim.sim.mujoco import rest_height
from clashsim.sim.mujoco_sim import MujocoSim

_BACK = 0.01  # m that the striker goes before it hits
_SECONDS = 0.8  # after which every block lies still
_COARSE = 0.005  # s: timestep of the hybrid; MuJoCo needs the author's, for the collision


def run(*, n: int = 2048, scene: str = "semi_cylinder", seed: int = 0, progress: Progress = quiet) -> list[dict]:
    """Rows of what, method, per_second, ratio (to MuJoCo) and how far poses at rest are from the hybrid's.

    off_mm, off_deg: median, and 90th percentile, of the distance to the hybrid's pose at the author's timestep, over `n` / 16 strikes.
    """
    world = Scene.load(scene)
    theta = world.nominal.copy()
    theta[[i for i, p in enumerate(world.params) if p.target == "effect/drag"]] = 0.0  # MuJoCo has none
    base = base_model(world)
    slow = max(16, n // 16)
    start, velocity, before = _strikes(world, theta, n, seed)
    plain, exact, hybrid = MujocoSim(world, theta), HybridSim(world, base, theta), HybridSim(world, base, theta, timestep=_COARSE)
    direct = HybridSim(world, base, theta, slide_model=_slide_model(hybrid, theta, seed + 1))
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
        direct.rest(before[:16])
        at_once, c = _timed(lambda: direct.rest(before), n)
        advance(1)
    rows: list[dict] = [{"what": "impacts", "method": "network alone", "per_second": net, "ratio": None}]
    for method, rate, pose in (("MuJoCo", mujoco, _rest(world, a)), ("hybrid, MuJoCo's slide", stepped, _rest(world, b)), ("hybrid, slide model", at_once, c)):
        gap = pose[:slow] - reference
        turn = np.abs((gap[:, 2] + np.pi) % (2 * np.pi) - np.pi)
        row: dict = {"what": f"strikes of {scene}", "method": method, "per_second": rate, "ratio": rate / mujoco}
        for key, off in (("mm", 1e3 * np.linalg.norm(gap[:, :2], axis=1)), ("deg", np.degrees(turn))):
            row |= {f"off_{key}": float(np.median(off)), f"off_{key}_90": float(np.percentile(off, 90))}
        rows.append(row)
    return rows


def _slide_model(hybrid: HybridSim, theta: np.ndarray, seed: int) -> SlideModel:
    """A slide model of MuJoCo's own slides, from 32 strikes."""
    start, velocity, before = _strikes(hybrid.scene, theta, 32, seed)
    states, after = hybrid.rollout(start, _control(velocity, _COARSE)), hybrid.outcome(before)
    slides = []
    for path, hit, first in zip(states, _BACK / np.linalg.norm(velocity, axis=1), before, strict=True):
        t = np.arange(len(path)) * _COARSE - hit
        pose = np.vstack([first[:3], _rest(hybrid.scene, path[t > 1e-3])])
        slides.append(Slide(np.r_[0.0, t[t > 1e-3]], pose[:, :2], np.unwrap(pose[:, 2])))
    return fit_slides(slides, sole(hybrid.scene), twists=after, twist_sd=(1e-3, 1e-3, 1e-2)).model


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
