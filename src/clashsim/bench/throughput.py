"""Strikes a second from the same starts to the same poses at rest: MuJoCo, the hybrid simulator,
and learned collision with learned slide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clashsim.bench import device_impacts, device_pushing
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.angles import wrap_angle
from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import ParamError
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.fit.base import base_model
from clashsim.nets.impact import ImpactNet
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes, planar_pose
from clashsim.slides.identify import fit_slides
from clashsim.slides.law import SlideModel
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import support_patch

_SECONDS = 0.8  # after which every block lies still
_COARSE = 0.005  # s: timestep of the hybrid; MuJoCo needs the author's, for the collision
_FOR_MJX = "square"  # MJX refuses the semi-cylinder, whose face has too many corners
SAME = (
    0.015,
    15.0,
)  # m, degrees: poses at rest that count as the same; MuJoCo's block hops when it is struck, which learned collisions do not follow


def run(
    *,
    n: int = 2048,
    scene: str = "semi_cylinder",
    seed: int = 0,
    device: str | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of what, method, per_second, ratio (to MuJoCo) and how far poses at rest are from
    MuJoCo's.

    device: where network and map are measured once more, beside what the device can do at most
    (`device_impacts.measure_rates`), as in cuda.
    off_mm, off_deg: median over `n` / 16 strikes; same: share of these that come to rest within
    `SAME` of where MuJoCo has them.
    """
    if device is not None and not device_impacts.device_available(device):
        raise ParamError(f"this torch has no device {device!r} (torch {torch.__version__})")
    world = Scene.load(scene)
    theta = world.nominal.copy()
    theta[[i for i, p in enumerate(world.params) if p.target == "effect/drag"]] = (
        0.0  # MuJoCo has none
    )
    base = base_model(world)
    slow = max(16, n // 16)
    plain = SteppedStrikes(MujocoSim(world, theta), world, theta, seconds=_SECONDS)
    hybrid = SteppedStrikes(
        HybridSim(world, base, theta, timestep=_COARSE), world, theta, seconds=_SECONDS
    )
    strike, pose = (
        np.random.default_rng(seed).uniform(plain.low, plain.high, (n, len(plain.names))),
        np.zeros((n, 3)),
    )
    at_once = HybridSim(world, base, theta, slide_model=slide_of_mujoco(hybrid, seed + 1))
    before = move_pair_to(
        before_from_strikes(world, dict(zip(plain.names, strike.T, strict=True)))[0], pose
    )
    frame = contact_frame(world, Impacts(True, before, np.zeros((n, 3))))
    what = f"strikes of {scene}"
    rows: list[Row] = []

    with progress("throughput", 6 if device is None else 6 + len(_ON_DEVICE)) as advance:

        def made(*new: Row) -> None:
            rows.extend(new)
            save(rows)
            advance(1)

        net = _rate(lambda: base.members(frame, theta), n)
        made({"what": "impacts", "method": "network alone", "per_second": net, "ratio": None})
        mujoco, reference = _timed(lambda: plain.rest(pose[:slow], strike[:slow]), slow)

        def compared(method: str, rate: float, rest: np.ndarray) -> Row:
            head = {"what": what, "method": method, "per_second": rate, "ratio": rate / mujoco}
            return head | _apart(rest[:slow], reference)

        made(compared("MuJoCo", mujoco, reference))
        hybrid.rest(pose[:16], strike[:16])
        made(compared("hybrid, MuJoCo's slide", *_timed(lambda: hybrid.rest(pose, strike), n)))
        made(compared("hybrid, slide model", *_timed(lambda: at_once.rest(before), n)))
        table = strike_table(at_once)
        mapped = _rate(lambda: table.rest(pose, strike), n)
        made(compared("map of strikes, slide model", mapped, table.rest(pose, strike)))
        made(*_environments(world, plain, table))
        if device is not None:
            on = _Device(device, world, base.net, table, n)
            for kind, measure in _ON_DEVICE.items():
                new: list[Row] = []
                with optional(new, what=kind, method=f"on {device}"):
                    new += measure(on)
                made(*new)
    return rows


def _apart(rest: np.ndarray, reference: np.ndarray) -> Row:
    """How far poses at rest (N, 3) are from MuJoCo's (N, 3)."""
    gap = rest - reference
    far = np.linalg.norm(gap[:, :2], axis=1)
    turn = np.degrees(np.abs(wrap_angle(gap[:, 2])))
    same = (far < SAME[0]) & (turn < SAME[1])
    return {
        "off_mm": float(1e3 * np.median(far)),
        "off_deg": float(np.median(turn)),
        "same": float(same.mean()),
    }


@dataclass(frozen=True, eq=False)
class _Device:
    """A torch device and what is measured on it; `small` where that is a CPU."""

    name: str
    scene: Scene
    net: ImpactNet
    table: StrikeTable
    n: int

    @property
    def small(self) -> bool:
        return self.name == "cpu"


def _networks(on: _Device) -> list[Row]:
    return device_impacts.measure_rates(on.net, on.table, on.name, n=on.n if on.small else 1 << 22)


def _targets(on: _Device) -> list[Row]:
    return device_impacts.planned(on.table, on.name, n=32 if on.small else 1000)


def _pushing(on: _Device) -> list[Row]:
    """A whole training among them, which takes minutes on a CPU."""
    return [] if on.small else device_pushing.measure_rates(on.table, on.scene, on.name)


def _in_mjx(on: _Device) -> list[Row]:
    from clashsim.bench import mjx_rate

    rows = mjx_rate.measure_rates(_FOR_MJX, (16,) if on.small else (8192,), single=True)
    return [row | {"what": f"{row['what']} of {_FOR_MJX}"} for row in rows]


_ON_DEVICE: dict[str, Callable[[_Device], list[Row]]] = {
    "networks and maps": _networks,
    "targets in one call": _targets,
    "the pushing task": _pushing,
    "strikes in MJX": _in_mjx,
}


def _environments(scene: Scene, plain: SteppedStrikes, table: StrikeTable) -> list[Row]:
    """Steps a second of the pushing task in MuJoCo and in the map."""
    rows: list[Row] = []
    first: float | None = None
    for name, model, n, steps in (("MuJoCo", plain, 32, 1), ("map of strikes", table, 256, 100)):
        head = {"what": "environment steps", "method": f"{name}, {n} copies"}
        with optional(rows, **head):
            rate = _environment_rate(scene, model, n, steps)
            if model is plain:
                first = rate
            rows.append(
                head | {"per_second": rate, "ratio": None if first is None else rate / first}
            )
    return rows


def _environment_rate(scene: Scene, model: StrikeModel, n: int, steps: int) -> float:
    """Environment steps per second of `n` copies."""
    from clashsim.rl.env import StrikeVecEnv
    from clashsim.rl.push import Push

    env = StrikeVecEnv(Push.of(scene, model, n))
    still = np.zeros((n, len(model.names)))
    env.reset()
    env.step_async(still)
    env.step_wait()  # batches are made once
    begin = time.perf_counter()
    for _ in range(steps):
        env.step_async(still)
        env.step_wait()
    return n * steps / (time.perf_counter() - begin)


def slide_of_mujoco(hybrid: SteppedStrikes, seed: int) -> SlideModel:
    """A slide model of MuJoCo's own slides, from 32 strikes."""
    strike, pose = (
        np.random.default_rng(seed).uniform(hybrid.low, hybrid.high, (32, len(hybrid.names))),
        np.zeros((32, 3)),
    )
    before = move_pair_to(
        before_from_strikes(hybrid.scene, dict(zip(hybrid.names, strike.T, strict=True)))[0], pose
    )
    states, after = hybrid.path(pose, strike), hybrid.simulator.outcome(before)  # type: ignore[attr-defined]
    slides = []
    for path, first, start in zip(
        planar_pose(hybrid.scene, states), before, hybrid.starts(pose, strike)[0], strict=True
    ):
        far = np.linalg.norm(
            start[hybrid.scene.striker_body.qpos[:2]]
            + hybrid.scene.striker_body.position[:2]
            - first[6:8]
        )
        t = np.arange(len(path)) * hybrid.dt - far / np.linalg.norm(first[9:11])
        poses = np.vstack([first[:3], path[t > 1e-3]])
        slides.append(Slide(np.r_[0.0, t[t > 1e-3]], poses[:, :2], np.unwrap(poses[:, 2])))
    return fit_slides(
        slides, support_patch(hybrid.scene), twists=after, twist_sd=(1e-3, 1e-3, 1e-2)
    ).model


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
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return done / (time.perf_counter() - begin)
