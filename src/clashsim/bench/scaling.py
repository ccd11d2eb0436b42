"""What more workers give: sampling and calibration with one and two workers of Ray, the bits they
make, and a worker killed halfway.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import load_lab_set
from clashsim.bench.rows import Row, Save, discard, measured, optional
from clashsim.core.errors import ClashError
from clashsim.core.executor import Executor, Item, Result, local, map_items
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.sample import sample
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.fit.threads import one_thread
from clashsim.scale.cluster import require_ray
from clashsim.scale.ray_executor import ray_executor

_FITTED = 10  # strikes of a recording; the others are predicted


@dataclass(frozen=True)
class _Sampling:
    """So many strikes of a scene, in shards."""

    scene: str
    size: int
    what: str = "sampling"

    def __call__(self, engine: Executor) -> np.ndarray:
        impacts = sample(
            Scene.load(self.scene), self.size, 0, engine=StrikeEngine(threads=1), executor=engine
        )
        assert impacts.theta is not None
        return np.concatenate([impacts.before, impacts.after, impacts.theta], 1)

    def little(self) -> None:
        """What a worker does before it is timed."""
        sample(Scene.load(self.scene), 64, 1, engine=StrikeEngine(threads=1))


@dataclass(frozen=True)
class _Calibration:
    """So many recordings of the laboratory, a stand-in for reality, each calibrated alone."""

    size: int
    what: str = "calibration"

    def __call__(self, engine: Executor) -> np.ndarray:
        found = dict(map_items(engine, _calibrated, lab.settings()[: self.size]))
        return np.concatenate([found[i] for i in range(self.size)])

    def little(self) -> None:
        """What a worker does before it is timed."""
        _calibrated(lab.settings()[0])


def _calibrated(setting: lab.Setting) -> np.ndarray:
    """Read, segment and calibrate a recording: identified values, and what is predicted of the
    strikes that were not fitted.
    """
    real = load_lab_set(setting.name, setting.shape, setting.material, setting.surface)
    model = calibrate(base_model(Scene.load(setting.shape)), real.impacts[:_FITTED])
    return np.concatenate(
        [[e.value for e in model.theta], model.predict(real.impacts[_FITTED:]).ravel()]
    )


_Job = _Sampling | _Calibration


def run(
    quick: bool = False,
    *,
    strikes: int = 48 * 4096,
    workers: Sequence[int] = (1, 2),
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of what, workers, killed, seconds, per_second, efficiency, same, retried, load.

    Sampling: `strikes` of the semi-cylinder in shards of 4096. Calibration: the laboratory's 18
    recordings, each read, segmented, calibrated on ten strikes and asked for the others. Timed is
    from the first item that is given out to the last result here; before that the cluster is
    started, and every worker has done a little of both. A worker is a process with one thread;
    workers 0 is this process with one thread, without Ray.
    efficiency: rate over that of one worker, by the number of workers. same: the bits are those of
    this process. killed: a worker is killed (SIGKILL) when it has almost done the middle item;
    retried: items that were given out again. load: the machine's average when the row was begun.
    The rows `nothing` are tasks without work: what the head can give out in a second.
    """
    require_ray()  # before minutes are spent without it
    jobs = (
        (_Sampling("puck", 4 * 4096), _Calibration(2))
        if quick
        else (_Sampling("semi_cylinder", strikes), _Calibration(len(lab.settings())))
    )
    rows: list[Row] = []
    with progress("measuring", len(jobs) * (len(workers) + 2)) as advance:
        with one_thread():
            wanted = {}
            for job in jobs:
                job.little()
                wanted[job.what], row = _timed(job, local, 0)
                rows.append(row)
                save(_compared(rows))
                advance(1)
        for w in workers:
            with (
                optional(rows, what="all", workers=w, killed=False),
                ray_executor("local", w) as engine,
            ):
                for job, killed in [
                    (job, killed)
                    for killed in (False, True)
                    for job in jobs
                    if not killed or w == workers[-1]
                ]:
                    with optional(rows, what=job.what, workers=w, killed=killed):
                        _ready(engine, jobs, w)
                        before = engine.retried
                        bits, row = _timed(job, _killing(engine) if killed else engine, w)
                        same = bool(np.array_equal(bits, wanted[job.what]))
                        rows.append(
                            row
                            | {"killed": killed, "same": same, "retried": engine.retried - before}
                        )
                    save(_compared(rows))
                    advance(1)
                rows.append(_timed(_Nothing(), engine, w)[1])
    return _compared(rows)


def _compared(rows: list[Row]) -> list[Row]:
    """The rows in order, each with its efficiency where the rate of one worker is known."""
    one = {
        row["what"]: row["per_second"]
        for row in measured(rows)
        if row["workers"] == 1 and not row["killed"]
    }
    out = []
    for row in rows:
        if "why" not in row and row["what"] in one:
            workers = max(row["workers"], 1)
            row = row | {"efficiency": row["per_second"] / (workers * one[row["what"]])}
        out.append(row)
    return sorted(out, key=_order)


def _order(row: Row) -> tuple[bool, bool, int, bool]:
    return row["what"] == "nothing", row["what"] != "sampling", row["workers"], row["killed"]


def _timed(job: _Job | _Nothing, engine: Executor, workers: int) -> tuple[np.ndarray, Row]:
    load, start = os.getloadavg()[0], time.perf_counter()
    bits = job(engine)
    seconds = time.perf_counter() - start
    row = {
        "what": job.what,
        "workers": workers,
        "killed": False,
        "seconds": seconds,
        "per_second": job.size / seconds,
        "efficiency": None,
        "same": True,
        "retried": 0,
    }
    return bits, row | {"load": load}


@dataclass(frozen=True)
class _Nothing:
    """Tasks without work."""

    size: int = 2000
    what: str = "nothing"

    def __call__(self, engine: Executor) -> np.ndarray:
        return np.array(sorted(map_items(engine, _back, range(self.size))))


def _back(item: int) -> int:
    return item


def _ready(engine: Executor, jobs: tuple[_Job, ...], workers: int) -> None:
    """Wait until every worker has done a little of each job."""
    pids: set[int] = set()
    while len(pids) < workers:
        pids = {pid for _, pid in map_items(engine, partial(_little, jobs), range(workers))}


def _little(jobs: tuple[_Job, ...], _: int) -> int:
    for job in jobs:
        _once(job)
    time.sleep(0.2)  # so that the other worker takes the next one
    return os.getpid()


@cache
def _once(job: _Job) -> None:
    job.little()


def _killing(engine: Executor) -> Executor:
    """The same engine, with the worker of the middle item killed when it has almost done it."""

    def engine_(
        work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]:
        with tempfile.TemporaryDirectory(prefix="clashsim-") as folder:
            once = _KilledOnce(work, len(items) // 2, Path(folder) / "killed")
            yield from engine(once, list(enumerate(items)))

    return engine_


@dataclass(frozen=True)
class _KilledOnce:
    """Does work on numbered items; the first process to do item `which` is lost with its result.

    A worker that is killed from outside may be between two items, and then nothing is lost.
    """

    work: Callable[[Any], Any]
    which: int
    mark: Path

    def __call__(self, item: tuple[int, Any]) -> Any:
        result = self.work(item[1])
        if item[0] == self.which and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result
