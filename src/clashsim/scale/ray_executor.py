"""Ray as an executor: work on items is done by workers on this machine or on many.

An item whose worker was killed is given to another worker.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from clashsim.core.errors import ClashError
from clashsim.core.executor import Item, Result
from clashsim.scale.cluster import cluster

# Tries of one item: more than one, because machines may be taken away, and bounded, because an item
# may itself kill every worker, for example by its use of memory.
_MAX_TRIES = 5
# Items per worker: one at work and one waiting, so that workers are never idle and the head process
# keeps few items in memory.
_ITEMS_PER_WORKER = 2
_CHECK_INTERVAL = 5.0  # s between checks of how many workers there are: machines come and go
# Packages whose versions affect the results.
_DECIDING_PACKAGES = ("clashsim", "numpy", "scipy", "torch", "mujoco")


class WorkerLostError(ClashError):
    """An item was given up because its workers were killed repeatedly."""


@contextmanager
def ray_executor(where: str = "ray", workers: int = 0) -> Iterator[RayExecutor]:
    """Connect to a Ray cluster for as long as the context is open.

    Args:
        where: "ray", "local", "auto" or an address, as in `cluster`.
        workers: Number of worker processes, each with one thread; 0 for all cores.

    Yields:
        An executor.
    """
    with cluster(where, workers) as own:
        yield RayExecutor(workers, own=own)


class RayExecutor:
    """An `Executor` on the Ray cluster that this process is connected to.

    Attributes:
        retried: How often an item was given to another worker because its worker was lost.
    """

    def __init__(self, workers: int, *, own: bool) -> None:
        """Set up an executor.

        Args:
            workers: Maximum number of items at once on a cluster that was not started here; 0 for
                no limit.
            own: Whether the cluster was started here, so that it has the wanted number of workers.
        """
        self.retried = 0
        self._own = own
        self._max_running = 0 if own else workers
        self._capacity_found = 0
        self._checked_at = -_CHECK_INTERVAL

    def __call__(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]:
        """Yield (index, result) as results come in.

        A `ClashError` that the work raises is a result; items of lost workers are tried again.
        """
        import ray

        key = uuid.uuid4().hex
        boxed_work = [ray.put(work)]  # in a list, or Ray would fetch `work` for every item
        versions = _versions()
        # Ray must not retry by itself: retries are counted and bounded below, also when a worker
        # runs out of memory.
        remote: Any = ray.remote(num_cpus=1, max_retries=0)(_do_item)
        waiting = deque((i, 1) for i in range(len(items)))  # index of an item, number of its try
        running: dict[Any, tuple[int, int]] = {}  # the same by Ray's reference to the result
        try:
            while waiting or running:
                while waiting and len(running) < self._capacity():
                    i, tries = waiting.popleft()
                    reference = remote.remote(key, boxed_work, versions, items[i])
                    running[reference] = (i, tries)
                ready, _ = ray.wait(list(running), timeout=_CHECK_INTERVAL)
                for reference in ready:
                    i, tries = running.pop(reference)
                    result = _fetch(reference)
                    if isinstance(result, _Lost) and tries < _MAX_TRIES:
                        self.retried += 1
                        waiting.appendleft((i, tries + 1))
                        continue
                    if isinstance(result, _Lost):
                        result = WorkerLostError(
                            f"item {i + 1} of {len(items)} was given up: "
                            f"its worker was killed {_MAX_TRIES} times ({result.reason})"
                        )
                    yield i, result
        finally:
            # The caller stopped early. A cluster that was started here is shut down anyway.
            if not self._own:
                for reference in running:
                    with suppress(Exception):
                        ray.cancel(reference)

    def _capacity(self) -> int:
        """Number of items that may be running or queued at workers at once."""
        import ray

        if self._max_running:
            return self._max_running
        if time.monotonic() - self._checked_at >= _CHECK_INTERVAL:
            cores = int(ray.cluster_resources().get("CPU", 1))
            self._capacity_found = _ITEMS_PER_WORKER * max(1, cores)
            self._checked_at = time.monotonic()
        return self._capacity_found


@dataclass(frozen=True)
class _Lost:
    """Stands for the result of an item whose worker is lost."""

    reason: str


def _fetch(reference: Any) -> Any:
    """Fetch the result of an item, or `_Lost` where its worker is lost."""
    import ray
    from ray import exceptions as ray_errors

    try:
        # Copied, because the fetched arrays are read-only and occupy Ray's shared memory while they
        # are referenced.
        return deepcopy(ray.get(reference))
    except (
        ray_errors.WorkerCrashedError,
        ray_errors.NodeDiedError,
        ray_errors.ObjectLostError,
        ray_errors.OutOfMemoryError,
        ray_errors.LocalRayletDiedError,
    ) as error:
        return _Lost(type(error).__name__)
    except ray_errors.RayTaskError as error:
        # The work itself failed: raise its own error, with the worker's traceback as the cause.
        raise error.cause from error


# In a worker process: key and `work` of the last call, cached so that `work` is sent only once.
_cached_work: tuple[str, Any] | None = None


def _do_item(key: str, boxed_work: list[Any], versions: dict[str, str], item: Any) -> Any:
    """Do one item in a worker process; a `ClashError` is returned as its result."""
    global _cached_work
    import ray

    try:
        if _cached_work is None or _cached_work[0] != key:
            _cached_work = None
            _prepare_worker(versions)
            _cached_work = (key, ray.get(boxed_work[0]))
        return _cached_work[1](item)
    except ClashError as error:
        return error


def _prepare_worker(versions: dict[str, str]) -> None:
    """Limit torch to one thread, and raise unless package versions equal those of the head process.

    With other versions, results would not be exactly the same.
    """
    import torch

    torch.set_num_threads(1)
    for name, wanted in versions.items():
        if version(name) != wanted:
            raise ClashError(
                f"the worker on {socket.gethostname()} has {name} {version(name)}, "
                f"the head has {wanted}: install the same on all machines"
            )


def _versions() -> dict[str, str]:
    """Versions, in this process, of the packages that affect the results."""
    return {name: version(name) for name in _DECIDING_PACKAGES}
