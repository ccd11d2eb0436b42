"""Strikes per second from the same starts to the same poses at rest.

Compared are MuJoCo with steps as long as accuracy allows (`clashsim.bench.step_choice`), MuJoCo
with the scene's own steps, the hybrid simulator (learned collision, slide by MuJoCo) with steps
chosen by the same rule, and learned collision with a slide model, on the CPU and on a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from clashsim.bench import device_impacts, device_pushing
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.step_choice import TRIED_STRIKES, Chosen, ScheduledMujoco
from clashsim.bench.strike_models import StrikeModels, states_before
from clashsim.core.angles import wrap_angle
from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.errors import ParamError
from clashsim.core.impacts import Impacts
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.evaluate.device import device_available
from clashsim.fit.compress import CompressionConfig, compress, compression_error
from clashsim.nets.impact import ImpactNet
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.strike_table import strike_table

OPTIONS = frozenset({"device"})
# Poses at rest that are this close to MuJoCo's are taken as the same. The limits are wide because
# MuJoCo's block hops when it is struck, which learned collisions do not reproduce.
SAME_POSITION = 0.015  # m
SAME_ANGLE = 15.0  # degrees
_QUICK_STRIKES = 256
_QUICK_TRIED = 8  # strikes that choose the lengths of steps
_QUICK_TRAINING = 500  # strikes and steps of the compressed network
_FEWEST_SLOW_STRIKES = 16  # that MuJoCo simulates
_SLOW_SHARE = 16  # MuJoCo is slow, so that it simulates only one of 16 strikes
_ROUNDS = 5  # in which methods are timed in turn, so that whatever else runs slows all of them
RIVAL = "MuJoCo, steps chosen"
_MJX_SCENE = "square"  # MJX refuses the semi-cylinder, whose face has too many corners
_CPU_ROWS = 8  # calls of `add` in `run` without a device
_DEVICE_STRIKES = 1 << 22  # in one call; on the CPU, `n` of `run`
_CPU_TARGETS = 32  # planned in one call
_DEVICE_TARGETS = 1000
_CPU_LANES = 16  # strikes that MJX simulates at once
_DEVICE_LANES = 8192


def run(
    options: BenchOptions = BenchOptions(),
    *,
    n: int = 2048,
    compression: CompressionConfig = CompressionConfig(),
    scene: str = "semi_cylinder",
    seed: int = 0,
) -> list[Row]:
    """Measure strikes per second.

    Args:
        options: Networks and tables are measured once more on its device, if there is one.
        n: Number of strikes in a call.
        compression: Of the network that stands for all members.
        scene: Name of a shipped scene.
        seed: Seed of the strikes.

    Returns:
        Rows of what, method, per_second and ratio (to MuJoCo with chosen steps). The compressed
        network has off_median and off_p99, its relative distance from the network, and off_float32,
        that of single from double precision. Strikes to rest
        also have ratio_own_steps (to MuJoCo with the scene's own steps), cpu_ratio (of the time of
        all cores, which other programs hardly change), steps (of MuJoCo per strike), step_mm and
        step_mm_p90 (median and 90th percentile of how far long steps move poses at rest), and
        off_mm and off_deg, the median distance and angle between their poses at rest and those of
        MuJoCo's own steps, over n / 16 strikes, and same, the share of these strikes whose poses
        differ by less than `SAME_POSITION` and `SAME_ANGLE`. For rows on a device see
        `device_impacts.measure_rates`.
    """
    device = options.device
    if device is not None and not device_available(device):
        raise ParamError(f"this torch has no device {device!r} (torch {torch.__version__})")
    tried = TRIED_STRIKES
    if options.quick:
        n = _QUICK_STRIKES
        tried = _QUICK_TRIED
        compression = replace(compression, strikes=_QUICK_TRAINING, steps=_QUICK_TRAINING)
    models = StrikeModels(Scene.load(scene), seed + 1, tried)
    mujoco = models.mujoco
    rival = models.strongest_mujoco
    hybrid = models.hybrid
    rng = np.random.default_rng(seed)
    strikes = rng.uniform(mujoco.low, mujoco.high, (n, len(mujoco.names)))
    poses = np.zeros((n, 3))
    with_slide_model = models.with_slide_model()
    before = states_before(models.scene, mujoco.names, strikes, poses)
    unknown_after = np.zeros((n, 3))
    frame = contact_frame(models.scene, Impacts(True, before, unknown_after))
    slow = max(_FEWEST_SLOW_STRIKES, n // _SLOW_SHARE)
    what = f"strikes of {scene}"
    rows: list[Row] = []
    count = _CPU_ROWS if device is None else _CPU_ROWS + len(_ON_DEVICE)
    with options.progress("throughput", count) as advance:

        def add(*new: Row) -> None:
            rows.extend(new)
            options.save(rows)
            advance(1)

        rate = _repeated_rate(lambda: models.base.members(frame, models.theta), n)
        add({"what": "impacts", "method": "network alone", "per_second": rate, "ratio": None})
        add(_compressed_row(models, frame, compression))
        own_steps, reference = _timed(lambda: mujoco.rest(poses[:slow], strikes[:slow]), slow)
        for model in (rival, hybrid):
            model.rest(poses, strikes)  # makes MuJoCo's batches
        by_rival, by_hybrid, by_slide_model = _timed_in_turn(
            [
                lambda: rival.rest(poses, strikes),
                lambda: hybrid.rest(poses, strikes),
                lambda: with_slide_model.rest(before),
            ],
            n,
        )
        rivals_rate, _ = by_rival

        def compare(method: str, rate: _Rate, rest: np.ndarray, **more: Any) -> Row:
            row = {
                "what": what,
                "method": method,
                "per_second": rate.wall,
                "ratio": rate.wall / rivals_rate.wall,
                "ratio_own_steps": rate.wall / own_steps.wall,
                "cpu_ratio": rate.cpu / rivals_rate.cpu,
            }
            return row | more | _distance_at_rest(rest[:slow], reference)

        add(compare(RIVAL, *by_rival, **_choice(models.mujoco_choice)))
        add(compare("MuJoCo", own_steps, reference, steps=mujoco.seconds / mujoco.dt))
        add(compare("hybrid, MuJoCo's slide", *by_hybrid, **_choice(models.hybrid_choice)))
        add(compare("hybrid, slide model", *by_slide_model))
        table = strike_table(with_slide_model)
        add(
            compare(
                "strike table, slide model",
                *_timed_in_turn([lambda: table.rest(poses, strikes)], n)[0],
            )
        )
        add(*_environments(models.scene, rival, table))
        if device is not None:
            on_device = _OnDevice(device, models.scene, models.base.net, table, n)
            for kind, measure in _ON_DEVICE.items():
                new: list[Row] = []
                with optional(new, what=kind, method=f"on {device}"):
                    new += measure(on_device)
                add(*new)
    return rows


def _distance_at_rest(rest: np.ndarray, reference: np.ndarray) -> Row:
    """Median distance and angle of poses at rest (N, 3) from MuJoCo's (N, 3), and share of same."""
    gap = rest - reference
    distance = np.linalg.norm(gap[:, :2], axis=1)
    angle = np.degrees(np.abs(wrap_angle(gap[:, 2])))
    same = (distance < SAME_POSITION) & (angle < SAME_ANGLE)
    return {
        "off_mm": float(1e3 * np.median(distance)),
        "off_deg": float(np.median(angle)),
        "same": float(same.mean()),
    }


@dataclass(frozen=True, eq=False)
class _OnDevice:
    """A torch device and what is measured on it."""

    name: str
    scene: Scene
    net: ImpactNet
    table: StrikeTable
    n: int

    @property
    def is_cpu(self) -> bool:
        return self.name == "cpu"


def _networks(on_device: _OnDevice) -> list[Row]:
    n = on_device.n if on_device.is_cpu else _DEVICE_STRIKES
    return device_impacts.measure_rates(on_device.net, on_device.table, on_device.name, n=n)


def _targets(on_device: _OnDevice) -> list[Row]:
    n = _CPU_TARGETS if on_device.is_cpu else _DEVICE_TARGETS
    return device_impacts.measure_planning(on_device.table, on_device.name, n=n)


def _pushing(on_device: _OnDevice) -> list[Row]:
    """Environment steps and a whole training, which would take minutes on a CPU."""
    if on_device.is_cpu:
        return []
    return device_pushing.measure_rates(on_device.table, on_device.scene, on_device.name)


def _mjx(on_device: _OnDevice) -> list[Row]:
    from clashsim.bench import mjx_rate

    lanes = _CPU_LANES if on_device.is_cpu else _DEVICE_LANES
    rows = mjx_rate.measure_rates(_MJX_SCENE, (lanes,), single=True)
    return [row | {"what": f"{row['what']} of {_MJX_SCENE}"} for row in rows]


_ON_DEVICE: dict[str, Callable[[_OnDevice], list[Row]]] = {
    "networks and tables": _networks,
    "targets in one call": _targets,
    "the pushing task": _pushing,
    "strikes in MJX": _mjx,
}


def _environments(scene: Scene, rival: ScheduledMujoco, table: StrikeTable) -> list[Row]:
    """Environment steps per second of the pushing task, in MuJoCo and in the strike table."""
    rows: list[Row] = []
    mujoco_rate: float | None = None
    with optional(rows, what="environment steps", method=f"{RIVAL}, 32 environments"):
        mujoco_rate = _environment_rate(scene, rival, num_envs=32, steps=4)
        rows.append(_environment_row(f"{RIVAL}, 32 environments", mujoco_rate, mujoco_rate))
    with optional(rows, what="environment steps", method="strike table, 256 environments"):
        rate = _environment_rate(scene, table, num_envs=256, steps=100)
        rows.append(_environment_row("strike table, 256 environments", rate, mujoco_rate))
    return rows


def _environment_row(method: str, rate: float, mujoco_rate: float | None) -> Row:
    ratio = None if mujoco_rate is None else rate / mujoco_rate
    return {"what": "environment steps", "method": method, "per_second": rate, "ratio": ratio}


def _environment_rate(scene: Scene, model: StrikeModel, *, num_envs: int, steps: int) -> float:
    """Environment steps per second, summed over all environments."""
    from clashsim.rl.env import StrikeVecEnv
    from clashsim.rl.push import Push

    env = StrikeVecEnv(Push.of(scene, model, num_envs))
    action = np.zeros((num_envs, len(model.names)))
    env.reset()
    env.step_async(action)
    env.step_wait()  # warms up: batches are made once
    begin = time.perf_counter()
    for _ in range(steps):
        env.step_async(action)
        env.step_wait()
    return num_envs * steps / (time.perf_counter() - begin)


def _compressed_row(models: StrikeModels, frame: ContactFrame, config: CompressionConfig) -> Row:
    """Impacts per second of one small network for all members, and how far it is from them."""
    small = compress(models.base, config=config)
    error = compression_error(small, models.base)
    count = len(frame.features)
    return {
        "what": "impacts",
        "method": "compressed network",
        "per_second": _repeated_rate(lambda: small.members(frame, models.theta), count),
        "ratio": None,
        "off_median": error.median,
        "off_p99": error.p99,
        "off_float32": error.float32,
    }


class _Rate(NamedTuple):
    """Strikes per second of wall time, and per second of all cores' time."""

    wall: float
    cpu: float


def _timed(work: Callable[[], np.ndarray], n: int) -> tuple[_Rate, np.ndarray]:
    """Rate of one call that simulates n strikes, and the result of the call."""
    wall = time.perf_counter()
    cpu = time.process_time()  # of all threads
    result = work()
    cpu = time.process_time() - cpu
    return _Rate(n / (time.perf_counter() - wall), n / cpu), result


def _timed_in_turn(
    works: Sequence[Callable[[], np.ndarray]], n: int
) -> list[tuple[_Rate, np.ndarray]]:
    """The best rates of several calls that are repeated in turn, and their results."""
    best: list[tuple[_Rate, np.ndarray]] = []
    for number in range(_ROUNDS):
        for i, work in enumerate(works):
            rate, result = _timed(work, n)
            if number == 0:
                best.append((rate, result))
                continue
            before, _ = best[i]
            fastest = _Rate(max(before.wall, rate.wall), max(before.cpu, rate.cpu))
            best[i] = (fastest, result)
    return best


def _choice(chosen: Chosen[Any]) -> Row:
    """Columns of steps that were chosen."""
    return {
        "steps": chosen.per_strike,
        "step_mm": 1e3 * chosen.off,
        "step_mm_p90": 1e3 * chosen.off_p90,
    }


def _repeated_rate(work: Callable[[], object], n: int, seconds: float = 1.0) -> float:
    """Strikes per second of calls that simulate n strikes each, repeated for some seconds."""
    work()  # warms up
    done = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        work()
        done += n
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return done / (time.perf_counter() - begin)
