"""Worker processes that run cases: crashes, hangs and too much memory are findings too."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fuzz.cases import FINDING, Outcome

Run = Callable[[int, Path], Outcome]  # a case by its number, in a folder of its own
# Bytes of address space that a worker may ask for beyond what it has: libraries reserve more than
# they use.
_EXTRA_ADDRESS_SPACE = 4 << 30
_CHUNK = 20  # cases handed to a worker at once
_START_TIMEOUT = 1800.0  # s that a worker may take to begin, on a machine that others use
_IDLE_FACTOR = (
    20.0  # times its seconds of computing that a case may last: it may wait for the machine
)


@dataclass(frozen=True)
class Limits:
    """Of one case: seconds it may compute, and bytes by which its process may grow."""

    seconds: float = 30.0
    memory: int = 1 << 30


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    index: int
    outcome: Outcome
    seconds: float
    growth: int


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    stderr: Path
    pending: list[int] = field(default_factory=list)
    since: float = 0.0  # when the first of the pending cases began, or the process was started
    computed: float = 0.0  # seconds that the process had computed by then
    started: bool = False
    done: bool = False  # to be replaced


class Pool:
    """Workers that are replaced when they die."""

    def __init__(self, make: Callable[[], Run], *, workers: int, limits: Limits = Limits()) -> None:
        """make: called once in every worker, gives what runs a case."""
        self._make = make
        self._limits = limits
        self._context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="clashsim-fuzz-")
        self._workers = [self._started() for _ in range(workers)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            _stop(worker)
        self._folder.cleanup()

    def results(self, indices: Iterator[int]) -> Iterator[Result]:
        """Results of cases, in the order in which they end."""
        left: list[int] = []
        while True:
            for worker in self._workers:
                if not worker.pending:
                    while len(left) < _CHUNK and (index := next(indices, None)) is not None:
                        left.append(index)
                    _hand_out(worker, left)
            busy = [worker for worker in self._workers if worker.pending]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], timeout=0.5)
            for i, worker in enumerate(self._workers):
                if worker.pending:
                    result = self._result(worker, worker.pipe in ready)
                    if result is not None:
                        yield result
                    if worker.done:
                        left += worker.pending
                        _stop(worker)
                        self._workers[i] = self._started()

    def _result(self, worker: _Worker, ready: bool) -> Result | None:
        """What a worker sent, or a finding if it has died or hangs."""
        if ready:
            with contextlib.suppress(EOFError, ConnectionResetError):
                sent = worker.pipe.recv()
                was_started, worker.started = worker.started, True
                _begins(worker)
                if not was_started:  # the first message only reports that it has begun
                    return None
                worker.pending.remove(sent.index)
                worker.done = sent.growth > self._limits.memory
                return sent
            worker.process.join(10)
            return self._died(worker, f"the process died with exit code {worker.process.exitcode}")
        if self._hangs(worker):
            worker.process.kill()
            worker.process.join(10)
            return self._died(worker, f"it hangs: more than {self._limits.seconds:g} s")
        return None

    def _hangs(self, worker: _Worker) -> bool:
        """Whether a case takes too long; what others compute on this machine does not count."""
        waited = time.monotonic() - worker.since
        if not worker.started:
            return waited > _START_TIMEOUT
        computed = _computed(worker.process.pid) - worker.computed
        return computed > self._limits.seconds or waited > _IDLE_FACTOR * self._limits.seconds

    def _died(self, worker: _Worker, why: str) -> Result:
        words = worker.stderr.read_text(errors="replace")[-4000:] if worker.stderr.is_file() else ""
        if not worker.started:
            raise RuntimeError(f"a worker of the fuzzer could not start: {why}\n{words}")
        worker.done = True
        index = worker.pending.pop(0)
        return Result(
            index, Outcome(FINDING, f"{why}\n{words}"), time.monotonic() - worker.since, 0
        )

    def _started(self) -> _Worker:
        own_end, worker_end = self._context.Pipe()
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        process = self._context.Process(
            target=_work, args=(worker_end, self._make, folder, self._limits), daemon=True
        )
        process.start()
        worker_end.close()
        return _Worker(process, own_end, folder / "stderr", since=time.monotonic())


def _hand_out(worker: _Worker, left: list[int]) -> None:
    """Send the next cases to a worker, and take them off the list."""
    chunk = left[:_CHUNK]
    if chunk:
        # A worker that is dead is noticed when its results are waited for.
        with contextlib.suppress(BrokenPipeError):
            worker.pipe.send(chunk)
        worker.pending = chunk
        _begins(worker)
        del left[: len(chunk)]


def _begins(worker: _Worker) -> None:
    """A case of a worker begins now."""
    worker.since = time.monotonic()
    worker.computed = _computed(worker.process.pid)


def _computed(process: int | None) -> float:
    """Seconds that a process has computed; 0 where it has ended."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _stop(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join(10)
    worker.pipe.close()


def _work(pipe: Connection, make: Callable[[], Run], folder: Path, limits: Limits) -> None:
    """Run cases as they are sent, until one of them needed too much memory."""
    stderr = (folder / "stderr").open("w")
    os.dup2(stderr.fileno(), 2)
    os.dup2(stderr.fileno(), 1)
    faulthandler.enable(stderr)
    run = make()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory()[0] + _EXTRA_ADDRESS_SPACE, hard))
    pipe.send("begun")
    while True:
        try:
            indices = pipe.recv()
        except EOFError:
            return
        for index in indices:
            stderr.seek(0)
            stderr.truncate()
            result = _timed(run, index, folder / "case", limits, stderr.fileno())
            pipe.send(result)
            if result.growth > limits.memory:
                return  # the peak of a process never falls, so the next case needs another process


def _timed(run: Run, index: int, folder: Path, limits: Limits, stderr: int) -> Result:
    """One case, with its time and by how much memory grew at its peak."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, peak = _memory()[1], _peak()
    started = time.monotonic()
    # Where it hangs is written before it is killed.
    faulthandler.dump_traceback_later(0.9 * limits.seconds, file=stderr)
    outcome = run(index, folder)
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - started
    highest = _peak()
    growth = highest - before if highest > peak else 0
    if growth > limits.memory:
        outcome = Outcome(FINDING, f"it needs {growth / 1e6:.0f} MB of memory\n{outcome.detail}")
    return Result(index, outcome, seconds, growth)


def _memory() -> tuple[int, int]:
    """Bytes of address space and of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text().split()
    size = resource.getpagesize()
    return int(pages[0]) * size, int(pages[1]) * size


def _peak() -> int:
    """Bytes of memory that this process has had at most."""
    # Not from getrusage, whose peak begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
