"""Makes worker processes end when the process that started them is killed."""

from __future__ import annotations

import os
import threading
import time

_CHECK_INTERVAL = 1.0  # s


def exit_with_parent() -> None:
    """Make this worker process exit within a second after its parent ends, whatever it is doing."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    """Wait until the parent has ended, which gives this process another parent, then exit."""
    while os.getppid() == parent:
        time.sleep(_CHECK_INTERVAL)
    os._exit(1)
