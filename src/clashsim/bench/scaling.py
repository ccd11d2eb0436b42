"""How rates grow with the number of workers: sampling and calibration with Ray.

The rows also show whether results are identical bit for bit, and how much time is lost when a
worker is killed.
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
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, measured, optional
from clashsim.core.errors import ClashError
from clashsim.core.executor import Executor, Item, Result, local, map_items
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import calibrate
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.fit.threads import one_thread
from clashsim.scale.cluster import require_ray
from clashsim.scale.ray_executor import ray_executor

OPTIONS: frozenset[str] = frozenset()
_NUM_FITTED = 10  # strikes of a recording to calibrate with; the others are predicted
_SHARD_SIZE = 4096  # strikes, as in `clashsim.fit.sample`
_WARM_UP_STRIKES = 64
_WARM_UP_SEED = 1


@dataclass(frozen=True)
class _Sampling:
    """Sampling `size` strikes of a scene, in shards."""

    scene: str
    size: int
    what: str = "sampling"

    def __call__(self, executor: Executor) -> np.ndarray:
        engine = StrikeEngine(threads=1)
        impacts = sample(Scene.load(self.scene), self.size, 0, engine=engine, executor=executor)
        assert impacts.theta is not None
        return np.concatenate([impacts.before, impacts.after, impacts.theta], 1)

    def warm_up(self) -> None:
        """What a worker does before it is timed."""
        scene = Scene.load(self.scene)
        sample(scene, _WARM_UP_STRIKES, _WARM_UP_SEED, engine=StrikeEngine(threads=1))


@dataclass(frozen=True)
class _Calibration:
    """Calibrating each of the first `size` recordings of the virtual laboratory."""

    size: int
    what: str = "calibration"

    def __call__(self, executor: Executor) -> np.ndarray:
        results = dict(map_items(executor, _calibrate, lab.settings()[: self.size]))
        return np.concatenate([results[i] for i in range(self.size)])

    def warm_up(self) -> None:
        """What a worker does before it is timed."""
        _calibrate(lab.settings()[0])


@dataclass(frozen=True)
class _EmptyTasks:
    """Tasks without work: they show how fast the head node can distribute tasks."""

    size: int = 2000
    what: str = "nothing"

    def __call__(self, executor: Executor) -> np.ndarray:
        return np.array(sorted(map_items(executor, _identity, range(self.size))))


_Job = _Sampling | _Calibration


def _calibrate(setting: lab.Setting) -> np.ndarray:
    """Read, segment and calibrate a recording.

    Returns:
        Identified parameters, then the predicted twists after the strikes that were not fitted, as
        one flat array.
    """
    real = load_lab_set(setting.name, setting.shape, setting.material, setting.surface)
    model = calibrate(SolvedModel(Scene.load(setting.shape)), real.impacts[:_NUM_FITTED])
    values = [estimate.value for estimate in model.theta]
    predictions = model.predict(real.impacts[_NUM_FITTED:])
    return np.concatenate([values, predictions.ravel()])


def _identity(item: int) -> int:
    return item


def run(
    options: BenchOptions = BenchOptions(),
    *,
    strikes: int = 48 * _SHARD_SIZE,
    workers: Sequence[int] = (1, 2),
) -> list[Row]:
    """Measure sampling and calibration without Ray and with several numbers of Ray workers.

    Sampling makes strikes of the semi-cylinder in shards of 4096. Calibration reads the
    laboratory's 18 recordings, segments them, calibrates on ten strikes of each and predicts the
    others. The clock runs from the first item that is sent to a worker until the last result is
    back; before that, the cluster is started and every worker does a little of both jobs. A worker
    is a process with one thread.

    Args:
        options: What to do with the rows.
        strikes: Number of strikes to sample.
        workers: Numbers of Ray workers to measure.

    Returns:
        Rows with these keys: what (`nothing`: tasks without work, which show how fast the head node
        distributes tasks); workers (0: this process without Ray); killed, whether a worker was
        killed (SIGKILL) just before it returned the middle item; seconds; per_second; efficiency,
        the rate divided by that of one worker and by the number of workers; same, whether the
        result is identical bit for bit to that of this process; retried, number of items that were
        sent to a worker again; load, the machine's load average at the start.
    """
    require_ray()  # fails now rather than after the minutes that this process takes without Ray
    jobs: tuple[_Job, ...]
    if options.quick:
        jobs = (_Sampling("puck", 4 * _SHARD_SIZE), _Calibration(2))
    else:
        jobs = (_Sampling("semi_cylinder", strikes), _Calibration(len(lab.settings())))
    rows: list[Row] = []
    expected = {}
    # Each job runs without Ray, with each number of workers, and once more with a killed worker.
    with options.progress("measuring", len(jobs) * (len(workers) + 2)) as advance:
        with one_thread():
            for job in jobs:
                job.warm_up()
                expected[job.what], row = _time_job(job, local, 0)
                rows.append(row)
                options.save(_with_efficiency(rows))
                advance(1)
        for count in workers:
            runs = [(job, False) for job in jobs]
            if count == workers[-1]:
                runs += [(job, True) for job in jobs]
            with (
                optional(rows, what="all", workers=count, killed=False),
                ray_executor("local", count) as executor,
            ):
                for job, killed in runs:
                    with optional(rows, what=job.what, workers=count, killed=killed):
                        _warm_up_workers(executor, jobs, count)
                        retried_before = executor.retried
                        used_executor = _with_one_kill(executor) if killed else executor
                        result, row = _time_job(job, used_executor, count)
                        row["killed"] = killed
                        row["same"] = bool(np.array_equal(result, expected[job.what]))
                        row["retried"] = executor.retried - retried_before
                        rows.append(row)
                    options.save(_with_efficiency(rows))
                    advance(1)
                rows.append(_time_job(_EmptyTasks(), executor, count)[1])
    return _with_efficiency(rows)


def _with_efficiency(rows: list[Row]) -> list[Row]:
    """The rows in order, each with its efficiency where the rate of one worker is known."""
    rate_of_one = {}
    for row in measured(rows):
        if row["workers"] == 1 and not row["killed"]:
            rate_of_one[row["what"]] = row["per_second"]
    out = []
    for row in rows:
        if "why" not in row and row["what"] in rate_of_one:
            workers = max(row["workers"], 1)
            efficiency = row["per_second"] / (workers * rate_of_one[row["what"]])
            row = row | {"efficiency": efficiency}
        out.append(row)
    return sorted(out, key=_order)


def _order(row: Row) -> tuple[bool, bool, int, bool]:
    """Sorting key: sampling, calibration, nothing; then by workers, killed ones last."""
    return row["what"] == "nothing", row["what"] != "sampling", row["workers"], row["killed"]


def _time_job(job: _Job | _EmptyTasks, executor: Executor, workers: int) -> tuple[np.ndarray, Row]:
    """Run a job; returns its result, and a row with the time that it took."""
    load = os.getloadavg()[0]
    start = time.perf_counter()
    result = job(executor)
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
        "load": load,
    }
    return result, row


def _warm_up_workers(executor: Executor, jobs: tuple[_Job, ...], workers: int) -> None:
    """Wait until every worker has done a little of each job."""
    processes: set[int] = set()
    while len(processes) < workers:
        warmed = map_items(executor, partial(_warm_up_worker, jobs), range(workers))
        processes = {process for _, process in warmed}


def _warm_up_worker(jobs: tuple[_Job, ...], _: int) -> int:
    """Do a little of each job; returns the id of this process."""
    for job in jobs:
        _warm_up_once(job)
    time.sleep(0.2)  # so that another worker takes the next item
    return os.getpid()


@cache
def _warm_up_once(job: _Job) -> None:
    job.warm_up()


def _with_one_kill(executor: Executor) -> Executor:
    """The same executor; the worker of the middle item is killed just before it returns."""

    def killing_executor(
        work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]:
        with tempfile.TemporaryDirectory(prefix="clashsim-") as folder:
            killed_once = _KilledOnce(work, len(items) // 2, Path(folder) / "killed")
            yield from executor(killed_once, list(enumerate(items)))

    return killing_executor


@dataclass(frozen=True)
class _KilledOnce:
    """Works on numbered items; the first process that finishes item `which` kills itself.

    A process that is killed from outside may be between two items, and then no result is lost.

    Attributes:
        work: Computes the result of an item.
        which: Number of the item whose result is lost.
        mark: Path of a file that exists once a process was killed.
    """

    work: Callable[[Any], Any]
    which: int
    mark: Path

    def __call__(self, item: tuple[int, Any]) -> Any:
        index, content = item
        result = self.work(content)
        if index == self.which and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result
