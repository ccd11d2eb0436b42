"""Work that is many and independent: one seam, whatever does it."""

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
    """Does `work` on every item and gives (index, result) as results come in, each index once, in
    any order.

    An item that ends in a ClashError has that as its result, so that the others finish; `map_items`
    raises it. `work` and items may travel to other
    processes: functions and classes of modules, and plain data. What a `work` object builds for
    itself in its first call is there in the next ones.
    """

    def __call__(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result | ClashError]]: ...


def local(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result | ClashError]]:
    """One item after the other in this process."""
    for i, item in enumerate(items):
        try:
            result: Result | ClashError = work(item)
        except ClashError as error:
            result = error
        yield i, result


@contextmanager
def process_pool(workers: int, *, start: Callable[[], None] | None = None) -> Iterator[Executor]:
    """An engine of so many fresh processes of this machine, each of which calls `start` first."""
    with ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=start
    ) as pool:

        def engine(
            work: Callable[[Item], Result], items: Sequence[Item]
        ) -> Iterator[tuple[int, Result | ClashError]]:
            futures = {pool.submit(work, item): i for i, item in enumerate(items)}
            for future in as_completed(futures):
                error = future.exception()
                yield futures[future], error if isinstance(error, ClashError) else future.result()

        yield engine


def map_items(
    engine: Executor, work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result]]:
    """As the engine gives them; the first item that ended in a ClashError ends it all with that."""
    for i, result in engine(work, items):
        if isinstance(result, ClashError):
            raise result
        yield i, result
