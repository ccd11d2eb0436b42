"""Executors: do independent items of work in this process, in many processes, or on a cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Protocol, TypeVar

from clashsim.core.errors import ClashError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Calls `work` with every item, and yields (index, result) as results come in.

    Each index is yielded once, in any order. An item that raises a `ClashError` has that error as
    its result, so that the other items are still done; `map_items` raises it. `work` and items must
    be picklable, because they may be sent to other processes. State that a `work` object builds in
    its first call in a process is still there in later calls.
    """

    def __call__(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]: ...


def local(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result | ClashError]]:
    """Do one item after the other in this process; an `Executor`."""
    for i, item in enumerate(items):
        try:
            result: Result | ClashError = work(item)
        except ClashError as error:
            result = error
        yield i, result


@contextmanager
def process_pool(workers: int, *, start: Callable[[], None] | None = None) -> Iterator[Executor]:
    """Keep new processes on this machine for as long as the context is open.

    Args:
        workers: Number of processes.
        start: Function that each process calls first.

    Yields:
        An executor that uses the processes.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=start) as pool:

        def executor(
            work: Callable[[Item], Result], items: Sequence[Item]
        ) -> Iterator[tuple[int, Result | ClashError]]:
            futures = {pool.submit(work, item): i for i, item in enumerate(items)}
            for future in as_completed(futures):
                error = future.exception()
                if isinstance(error, ClashError):
                    yield futures[future], error
                else:
                    yield futures[future], future.result()

        yield executor


def map_items(
    executor: Executor, work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result]]:
    """Do work on every item, and raise the first `ClashError` that is a result.

    Args:
        executor: What does the work.
        work: Called with each item.
        items: The items.

    Yields:
        (index, result) as results come in, each index once.
    """
    for i, result in executor(work, items):
        if isinstance(result, ClashError):
            raise result
        yield i, result
