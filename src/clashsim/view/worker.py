"""One thread that does a page's work: of jobs with the same name the latest is done, and what was
superseded is not.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from clashsim.core.errors import ClashError


class Worker:
    """Jobs one after the other, because simulators are not to be stepped by two threads at once."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Callable[[], None], Callable[[str], None]]] = {}
        self._ready = threading.Condition()
        self._busy = self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="clashsim-view")
        self._thread.start()

    def do(self, name: str, job: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Do a job soon, in the place of one of the same name that has not begun; what goes wrong
        is told in one sentence to `failed`.
        """
        with self._ready:
            self._jobs.pop(name, None)  # so that it goes to the end
            self._jobs[name] = (job, failed)
            self._ready.notify_all()

    def waits(self, name: str) -> bool:
        """Whether a job of that name has been asked for and has not begun: what is being done now
        is out of date.
        """
        with self._ready:
            return name in self._jobs

    def join(self, timeout: float = 60.0) -> bool:
        """Wait until nothing is left to do; whether that was reached."""
        with self._ready:
            return self._ready.wait_for(lambda: not self._jobs and not self._busy, timeout)

    def end(self, timeout: float = 20.0) -> bool:
        """Begin no further job, and wait for the one at hand: an interpreter that exits while a
        simulator steps crashes. Whether all has ended.
        """
        with self._ready:
            self._ended = True
            self._jobs.clear()
            self._ready.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
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
            except (
                Exception
            ) as error:  # a page goes on whatever happens; the terminal has the details
                traceback.print_exc(file=sys.stderr)
                failed(f"This did not work ({type(error).__name__}); the terminal has the details.")
            finally:
                with self._ready:
                    self._busy = False
                    self._ready.notify_all()
