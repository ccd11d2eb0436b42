"""Worker processes that end when the one that started them is killed."""

from __future__ import annotations

import os
import threading
import time


def exit_with_parent() -> None:
    """Let this worker end within a second of its parent's end, whatever it is doing."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    """Wait until another process is the parent, then exit."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
