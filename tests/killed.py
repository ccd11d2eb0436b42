"""Processes that are killed, or held, at the moment when they put a file in place.

A kill that comes after some time finds a process in another state on every machine. Here the
process itself stops: `environment` gives variables for a Python process, and for those that it
starts, with which `os.replace`, the last step of every file that clashsim writes, ends in SIGKILL
or never returns.
"""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import clashsim

Action = Literal["kill before", "kill after", "hold"]
_HERE, _SOURCE = Path(__file__).parent, Path(clashsim.__file__).parents[1]


def environment(
    folder: Path, pattern: str = "", *, count: int = 1, action: Action = "kill after"
) -> dict[str, str]:
    """Variables for a process that stops when it puts the `count`-th file of `pattern` in place.

    Without a pattern it runs to its end. One that is held leaves the file `held.PID` in `folder`.
    """
    paths = [str(_HERE), str(_SOURCE)]
    if pattern:
        folder.mkdir(parents=True, exist_ok=True)
        call = f"killed.install({pattern!r}, {count}, {action!r}, {str(folder)!r})"
        (folder / "sitecustomize.py").write_text(f"import killed\n\n{call}\n")
        paths.insert(0, str(folder))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def install(pattern: str, count: int, action: Action, folder: str) -> None:
    """In the process that is to stop, before anything else runs."""
    # Ctrl-C is ignored in what a shell runs in the background, and that is handed down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    replace, seen = os.replace, 0

    def stopping(source: str, target: str) -> None:
        nonlocal seen
        seen += fnmatch.fnmatch(Path(target).name, pattern)
        reached = seen == count and fnmatch.fnmatch(Path(target).name, pattern)
        if reached and action == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if reached and action == "hold":
            Path(folder, f"held.{os.getpid()}").touch()
            while True:
                signal.pause()
        replace(source, target)
        if reached:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = stopping


def run(arguments: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments to its end, whichever that is."""
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True)


def held(folder: Path) -> set[int]:
    """The processes that are held."""
    return {int(path.suffix[1:]) for path in folder.glob("held.*")}
