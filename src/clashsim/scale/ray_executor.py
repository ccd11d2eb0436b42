"""Ray as an executor: items go to workers on this machine or on many.

An item whose worker was killed goes to another worker.
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

# Of one item: a machine may be taken away more than once, and an item that kills every worker must
# end.
_MAX_TRIES = 5
# Items per worker, one at work and one waiting, so that none idles and the head holds little.
_ITEMS_PER_WORKER = 2
_CHECK_INTERVAL = 5.0  # s between checks of how many workers there are: machines come and go
# Packages whose versions decide the results.
_DECIDING_PACKAGES = ("clashsim", "numpy", "scipy", "torch", "mujoco")


class WorkerLostError(ClashError):
    """An item whose workers were killed again and again."""


@contextmanager
def ray_executor(where: str = "ray", workers: int = 0) -> Iterator[RayExecutor]:
    """Connect to a Ray cluster for as long as the context is open.

    Args:
        where: "ray", "local", "auto" or an address, as in `cluster`.
        workers: Number of workers with a thread each; 0 for all cores.

    Yields:
        An executor.
    """
    with cluster(where, workers) as own:
        yield RayExecutor(workers, own=own)


class RayExecutor:
    """An `Executor` on the Ray cluster that this process is connected to.

    Attributes:
        retried: How many items were given out again because their worker was lost.
    """

    def __init__(self, workers: int, *, own: bool) -> None:
        """Set up an executor.

        Args:
            workers: Most items that are out at once on a cluster of others; 0 for no limit.
            own: Whether the cluster was started here, and so has no more workers than wanted.
        """
        self.retried = 0
        self._own = own
        self._max_out = 0 if own else workers
        self._capacity_found = 0
        self._checked_at = -_CHECK_INTERVAL

    def __call__(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]:
        """Yield results as they come in.

        A `ClashError` of the work is a result; a lost worker is none.
        """
        import ray

        key = uuid.uuid4().hex
        boxed_work = [ray.put(work)]  # in a list, or Ray would unpack `work` for every item
        versions = _versions()
        # Ray does not retry: that is done below, where it is counted, and bounded also when memory
        # runs out.
        remote: Any = ray.remote(num_cpus=1, max_retries=0)(_do_item)
        waiting = deque((i, 1) for i in range(len(items)))
        out: dict[Any, tuple[int, int]] = {}
        try:
            while waiting or out:
                while waiting and len(out) < self._capacity():
                    i, tries = waiting.popleft()
                    reference = remote.remote(key, boxed_work, versions, items[i])
                    out[reference] = (i, tries)
                ready, _ = ray.wait(list(out), timeout=_CHECK_INTERVAL)
                for reference in ready:
                    i, tries = out.pop(reference)
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
            # Whoever asked has had enough. A cluster of our own ends anyway.
            if not self._own:
                for reference in out:
                    with suppress(Exception):
                        ray.cancel(reference)

    def _capacity(self) -> int:
        """Number of items that may be out at once."""
        import ray

        if self._max_out:
            return self._max_out
        if time.monotonic() - self._checked_at >= _CHECK_INTERVAL:
            cores = int(ray.cluster_resources().get("CPU", 1))
            self._capacity_found = _ITEMS_PER_WORKER * max(1, cores)
            self._checked_at = time.monotonic()
        return self._capacity_found


@dataclass(frozen=True)
class _Lost:
    """Takes the place of the result of an item whose worker is gone."""

    reason: str


def _fetch(reference: Any) -> Any:
    """The result of an item, or `_Lost`."""
    import ray
    from ray import exceptions as gone

    try:
        # Copied, because arrays lie in the store, read-only, and fill it for as long as they are
        # held.
        return deepcopy(ray.get(reference))
    except (
        gone.WorkerCrashedError,
        gone.NodeDiedError,
        gone.ObjectLostError,
        gone.OutOfMemoryError,
        gone.LocalRayletDiedError,
    ) as error:
        return _Lost(type(error).__name__)
    except gone.RayTaskError as error:
        # An error of the work itself, as it would be here, with where it was in the worker.
        raise error.cause from error


# In a worker: the key and the work of the last call, kept so that it travels and is built once.
_held: tuple[str, Any] | None = None


def _do_item(key: str, boxed_work: list[Any], versions: dict[str, str], item: Any) -> Any:
    """Do one item in a worker; a `ClashError` is its result."""
    global _held
    import ray

    try:
        if _held is None or _held[0] != key:
            _held = None
            _prepare_worker(versions)
            _held = (key, ray.get(boxed_work[0]))
        return _held[1](item)
    except ClashError as error:
        return error


def _prepare_worker(versions: dict[str, str]) -> None:
    """Set one thread for torch, and refuse other versions than the head's.

    With other versions the results would differ in their bits.
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
    """Versions of the packages that decide the results, in this process."""
    return {name: version(name) for name in _DECIDING_PACKAGES}
