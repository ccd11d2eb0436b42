"""Worker processes: they end when the process that started them is killed, and use one thread."""

from __future__ import annotations

import os
import threading
import time

_CHECK_INTERVAL = 1.0  # s
_IS_WORKER = threading.Event()  # set in worker processes


def default_threads() -> int:
    """Threads of a computation: one for each core, and a single one beside other workers."""
    return 1 if _IS_WORKER.is_set() else os.cpu_count() or 1


def exit_with_parent() -> None:
    """Make this worker process exit within a second after its parent ends, whatever it is doing."""
    _IS_WORKER.set()
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    """Wait until the parent has ended, which gives this process another parent, then exit."""
    while os.getppid() == parent:
        time.sleep(_CHECK_INTERVAL)
    os._exit(1)
