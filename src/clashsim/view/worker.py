"""One thread that does the jobs of a page; a job replaces a waiting one of the same name."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from clashsim.core.errors import ClashError


class Worker:
    """Does jobs one after the other: simulators must not be stepped by two threads at once."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Callable[[], None], Callable[[str], None]]] = {}
        self._ready = threading.Condition()
        self._busy = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="clashsim-view")
        self._thread.start()

    def do(self, name: str, job: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Put a job at the end of the queue; one of the same name that has not begun is dropped.

        Args:
            name: Name of the job.
            job: The work.
            failed: Called with one sentence if the job fails.
        """
        with self._ready:
            self._jobs.pop(name, None)  # else the new job would take its place in the order
            self._jobs[name] = (job, failed)
            self._ready.notify_all()

    def waits(self, name: str) -> bool:
        """Whether a job of that name waits to begin, so that a running one is outdated."""
        with self._ready:
            return name in self._jobs

    def join(self, timeout: float = 60.0) -> bool:
        """Wait at most `timeout` seconds until all jobs are done; return whether they are."""
        with self._ready:
            return self._ready.wait_for(lambda: not self._jobs and not self._busy, timeout)

    def end(self, timeout: float = 20.0) -> bool:
        """Begin no further job, wait for the present one, and return whether the thread has ended.

        Without waiting, the interpreter could exit while a simulator steps, and crash.
        """
        with self._ready:
            self._ended = True
            self._jobs.clear()
            self._ready.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Do jobs until the worker ends."""
        while True:
            with self._ready:
                self._ready.wait_for(lambda: bool(self._jobs) or self._ended)
                if self._ended:
                    return
                name = next(iter(self._jobs))
                job, failed = self._jobs.pop(name)
                self._busy = True
            try:
                job()
            except ClashError as error:
                failed(str(error))
            except Exception as error:  # the page stays usable whatever happens
                traceback.print_exc(file=sys.stderr)
                failed(f"This failed ({type(error).__name__}); the terminal has the details.")
            finally:
                with self._ready:
                    self._busy = False
                    self._ready.notify_all()
