"""Executors: independent items of work, done in this process, in many, or on a cluster."""

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
    """Does work on every item, and yields (index, result) as results come in.

    Each index comes once, in any order. An item that ends in a `ClashError` has that error as its
    result, so that the others finish; `map_items` raises it. `work` and items may travel to other
    processes: functions and classes of modules, and plain data. What a `work` object builds for
    itself in its first call is there in the next ones.
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
    """Run fresh processes of this machine for as long as the context is open.

    Args:
        workers: Number of processes.
        start: What each process calls first.

    Yields:
        An executor.
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
    """Do work on every item; the first that ends in a `ClashError` raises it.

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
