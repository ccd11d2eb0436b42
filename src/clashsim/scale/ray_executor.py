"""Ray as an engine: items go to workers on this machine or many, and an item whose worker was
killed goes to another.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from importlib.metadata import version
from typing import Any

from clashsim.core.errors import ClashError
from clashsim.core.executor import Item, Result
from clashsim.scale.cluster import cluster

# Of one item: a machine may be taken away more than once, and an item that kills every worker shall
# end
_TRIES = 5
_AHEAD = (
    2  # items a worker, one at work and one waiting, so that none idles and the head holds little
)
_LOOK = 5.0  # s between looks at how many workers there are: machines come and go
_DECIDE = ("clashsim", "numpy", "scipy", "torch", "mujoco")  # versions that decide what comes out


class WorkerLostError(ClashError):
    """An item whose workers were killed again and again."""


@contextmanager
def ray_executor(where: str = "ray", workers: int = 0) -> Iterator[RayExecutor]:
    """An engine of `workers` Ray workers, a thread each (0: all cores); where: "ray", "local",
    "auto" or an address, as `cluster` has it.
    """
    with cluster(where, workers) as own:
        yield RayExecutor(workers, own=own)


class RayExecutor:
    """An `Executor`. `retried` counts the items that were given out again since their worker was
    lost.
    """

    def __init__(self, workers: int, *, own: bool) -> None:
        self.retried = 0
        self._own = own
        self._most = (
            0 if own else workers
        )  # a cluster of our own has no more workers than were asked for
        self._room, self._looked = 0, -_LOOK

    def __call__(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]:
        """Results as they come in; a ClashError of ours is a result, a worker that is lost is none."""
        import ray

        key, box, ours = (
            uuid.uuid4().hex,
            [ray.put(work)],
            _versions(),
        )  # boxed, or Ray would unpack `work` for every item
        remote: Any = ray.remote(num_cpus=1, max_retries=0)(
            _do
        )  # retried below, so that it is counted, and bounded when memory runs out, too
        waiting = deque((i, 1) for i in range(len(items)))
        out: dict[Any, tuple[int, int]] = {}
        try:
            while waiting or out:
                while waiting and len(out) < self._capacity():
                    i, tries = waiting.popleft()
                    out[remote.remote(key, box, ours, items[i])] = i, tries
                ready, _ = ray.wait(list(out), timeout=_LOOK)
                for ref in ready:
                    i, tries = out.pop(ref)
                    result = _fetched(ref)
                    if isinstance(result, _Lost):
                        if tries < _TRIES:
                            self.retried += 1
                            waiting.appendleft((i, tries + 1))
                            continue
                        result = WorkerLostError(
                            f"item {i + 1} of {len(items)} was given up: its worker was killed {_TRIES} times ({result.why})"
                        )
                    yield i, result
        finally:
            for ref in (
                () if self._own else out
            ):  # whoever asked has had enough; a cluster of our own ends anyway
                with suppress(Exception):
                    ray.cancel(ref)

    def _capacity(self) -> int:
        """Items that may be out at once."""
        import ray

        if self._most:
            return self._most
        if time.monotonic() - self._looked >= _LOOK:
            self._room, self._looked = (
                _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))),
                time.monotonic(),
            )
        return self._room


class _Lost:
    """What stands for the result of an item whose worker is gone."""

    def __init__(self, why: str) -> None:
        self.why = why


def _fetched(ref: Any) -> Any:
    import ray
    from ray import exceptions as gone

    try:
        return deepcopy(
            ray.get(ref)
        )  # arrays lie in the store, read-only, and would fill it for as long as they are held
    except (
        gone.WorkerCrashedError,
        gone.NodeDiedError,
        gone.ObjectLostError,
        gone.OutOfMemoryError,
        gone.LocalRayletDiedError,
    ) as error:
        return _Lost(type(error).__name__)
    except gone.RayTaskError as error:
        # An error of the work itself, as it would be here, with where it was in the worker
        raise error.cause from error


# In a worker: the work of the last call, kept so that it travels and is built once.
_held: tuple[str, Any] | None = None


def _do(key: str, box: list[Any], versions: dict[str, str], item: Any) -> Any:
    """In a worker: one item; a ClashError is its result."""
    global _held
    import ray

    try:
        if _held is None or _held[0] != key:
            _held = None
            _settle(versions)
            _held = key, ray.get(box[0])
        return _held[1](item)
    except ClashError as error:
        return error


def _settle(versions: dict[str, str]) -> None:
    """One thread for torch, and the versions of whoever asks: with others, the bits would be
    others.
    """
    import torch

    torch.set_num_threads(1)
    for name, wanted in versions.items():
        if version(name) != wanted:
            raise ClashError(
                f"the worker on {socket.gethostname()} has {name} {version(name)}, the head has {wanted}: install the same on all machines"
            )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _DECIDE}
