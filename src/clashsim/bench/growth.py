"""How time and memory grow with the number of simulations, pairs, targets, strikes and impacts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, measured
from clashsim.bench.strike_models import StrikeModels
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import calibrate
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.plan.planner import plan_batch
from clashsim.plan.tasks import PlanningTask
from clashsim.report.figure_files import write_figure
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.pairs import LearnedPair
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table

OPTIONS: frozenset[str] = frozenset()
_SCENE = "square"
_SLIDE_SEED = 1
_REPEATS = 3  # of which the fastest counts
_LONG = 2.0  # s: work that takes longer is not repeated
_PAIR_SIMULATIONS = 64  # that are stepped together where pairs are counted
_PAIR_SECONDS = 0.3
_TIMESTEP = 0.01  # s, of these
_PEAK = "VmHWM"  # of /proc/self/status: largest memory since it was reset
_RESET_PEAK = "5"  # what resets it, written into /proc/self/clear_refs
_MB = 1024  # kB


@dataclass(frozen=True, eq=False)
class _Series:
    """Work of growing size.

    Attributes:
        what: What is done.
        by: What is counted.
        sizes: Counts, each the double of the last one or more.
        work: Makes what is needed for a size, and returns the work that is timed.
    """

    what: str
    by: str
    sizes: Sequence[int]
    work: Callable[[int], Callable[[], object]]


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure work of growing size.

    Args:
        options: With `quick` only the first two sizes of each kind of work are measured.

    Returns:
        Rows of what, by, size, seconds (of all cores together, the least of three if short),
        exponent (of the growth of time since the row before: 1 is linear) and memory_mb (largest
        memory above that before, 0 where freed memory was enough; None where the system does not
        report it).
    """
    rows: list[Row] = []
    series = list(_all_series(options.quick))
    with options.progress("growth", sum(len(one.sizes) for one in series)) as advance:
        for one in series:
            for size in one.sizes:
                row = {"what": one.what, "by": one.by, "size": size} | _cost(one, size)
                row["exponent"] = _exponent(rows, row)
                rows.append(row)
                options.save(rows)
                advance(1)
    return rows


def plot(rows: Sequence[Row], path: Path) -> None:
    """Plot seconds and memory over sizes, one line for each kind of work.

    Args:
        rows: Of `run`.
        path: Where the picture is written; its suffix gives the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    for axes, key, label in zip(
        figure.subplots(1, 2),
        ("seconds", "memory_mb"),
        ("seconds of all cores together", "memory, MB"),
        strict=True,
    ):
        for what, by in dict.fromkeys((row["what"], row["by"]) for row in measured(rows)):
            shown = [r for r in rows if (r["what"], r["by"]) == (what, by) and r[key]]
            name = f"{what}, {by}"
            axes.plot([r["size"] for r in shown], [r[key] for r in shown], marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel="size", ylabel=label)
    axes.legend(frameon=False, fontsize=8)
    write_figure(path, figure, dpi=150)


def _all_series(quick: bool) -> Iterator[_Series]:
    """All kinds of work."""
    models = StrikeModels(Scene.load(_SCENE), _SLIDE_SEED)
    table = strike_table(models.with_slide_model())
    rng = np.random.default_rng(0)

    def strikes(n: int) -> np.ndarray:
        return rng.uniform(table.low, table.high, (n, len(table.names)))

    def hybrid(n: int) -> Callable[[], object]:
        chosen = strikes(n)
        return lambda: models.hybrid.rest(np.zeros((n, 3)), chosen)

    def plan(n: int) -> Callable[[], object]:
        tasks = [PlanningTask(tuple(pose)) for pose in table.rest(np.zeros((n, 3)), strikes(n))]
        return lambda: plan_batch(table, tasks)

    def sampling(n: int) -> Callable[[], object]:
        return lambda: sample(models.scene, n, 0, engine=StrikeEngine())

    def calibration(n: int) -> Callable[[], object]:
        impacts = sample(models.scene, n, 1, engine=StrikeEngine())
        return lambda: calibrate(SolvedModel(models.scene), impacts)

    count = 2 if quick else 5
    for series in (
        _Series("hybrid", "simulations", (128, 256, 512, 1024, 2048), hybrid),
        _Series("hybrid", "pairs and bodies", (1, 2, 4, 8, 16), _several_pairs),
        _Series("plan", "targets", (4, 8, 16, 32, 64), plan),
        _Series("sample", "strikes", (1024, 2048, 4096, 8192, 16384), sampling),
        _Series("calibrate", "impacts", (10, 20, 40, 80), calibration),
    ):
        yield _Series(series.what, series.by, series.sizes[:count], series.work)


def _cost(series: _Series, size: int) -> Row:
    """Time of some work, and memory of it and of what is made for it."""
    before = _reset_peak()
    work = series.work(size)
    work()  # what is made once does not count as time
    peak = _memory(_PEAK)
    memory = None if peak is None or before is None else (peak - before) / _MB
    seconds = math.inf
    for _ in range(_REPEATS):
        begin = time.process_time()
        work()
        seconds = min(seconds, time.process_time() - begin)
        if seconds > _LONG:
            break
    return {"seconds": seconds, "memory_mb": memory}


def _exponent(rows: Sequence[Row], row: Row) -> float | None:
    """Exponent of the growth of time since the last row of the same work."""
    same = [r for r in rows if (r["what"], r["by"]) == (row["what"], row["by"])]
    if not same:
        return None
    growth = math.log(row["seconds"] / same[-1]["seconds"])
    return growth / math.log(row["size"] / same[-1]["size"])


def _reset_peak() -> int | None:
    """Forget the largest memory so far; the present one, kB. None where the system cannot."""
    try:
        control = os.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            os.write(control, _RESET_PEAK.encode())
        finally:
            os.close(control)
    except OSError:
        return None
    return _memory(_PEAK)


def _memory(name: str) -> int | None:
    """A number (kB) of this process by its name on Linux; None elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return None


def _several_pairs(n: int) -> Callable[[], object]:
    """n blocks, each struck by a striker of its own, in one scene."""
    own = StrikeModels(Scene.load(_SCENE), _SLIDE_SEED)
    scene = Scene(_blocks(n), "block0", "striker0", "table")
    pairs = [
        LearnedPair(f"block{i}", f"striker{i}", own.base, model_scene=own.scene, theta=own.theta)
        for i in range(n)
    ]
    config = HybridConfig(first_timestep=0.001, step_growth=0.3)
    simulator = HybridSim(scene, pairs, timestep=_TIMESTEP, config=config)
    model = simulator.model
    start = np.tile(np.r_[model.qpos0, np.zeros(model.nv)], (_PAIR_SIMULATIONS, 1))
    speed = np.linspace(0.3, 0.6, _PAIR_SIMULATIONS)
    start[:, model.nq + 6 * n :: 2] = speed[:, None]  # of the first slide of each striker
    control = np.zeros((_PAIR_SIMULATIONS, round(_PAIR_SECONDS / _TIMESTEP), model.nu))
    control[:, : control.shape[1] // 2, ::2] = speed[:, None, None]
    return lambda: simulator.rollout(start, control)


def _blocks(n: int) -> str:
    """MJCF of n blocks on a table, and as many strikers on two slides."""
    blocks = "".join(
        f'<body name="block{i}" pos="0 {i} 0"><freejoint/><geom name="block{i}" type="box" '
        'size="0.04 0.04 0.01" pos="0 0 0.01" density="1200"/></body>'
        for i in range(n)
    )
    strikers = "".join(
        f'<body name="striker{i}" pos="-0.055 {i} 0.01">'
        f'<joint name="x{i}" type="slide" axis="1 0 0"/>'
        f'<joint name="y{i}" type="slide" axis="0 1 0"/>'
        f'<geom name="striker{i}" type="sphere" size="0.01" mass="3"/></body>'
        for i in range(n)
    )
    friction = 'friction="0.3 0.3 0.002 0.0001 0.0001"'
    pairs = "".join(
        f'<pair geom1="block{i}" geom2="striker{i}" condim="3" solref="-1000000 -500" {friction}/>'
        f'<pair geom1="block{i}" geom2="table" condim="4" {friction}/>'
        for i in range(n)
    )
    servos = "".join(f'<velocity joint="{axis}{i}" kv="200"/>' for i in range(n) for axis in "xy")
    return (
        '<mujoco><option timestep="0.0002" integrator="implicitfast" cone="elliptic"/>'
        '<worldbody><geom name="table" type="plane" size="20 20 1"/>'
        f"{blocks}{strikers}</worldbody><contact>{pairs}</contact>"
        f"<actuator>{servos}</actuator></mujoco>"
    )
