"""Writes files so that a crash leaves either the old or the new one; errors name the file."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from clashsim.core.progress import Progress, quiet

_TEMPORARY_NAME = re.compile(r"\..+\.[a-z0-9_]{8}")  # of mkstemp in `write_atomic`
_READABLE_BY_ALL = 0o644  # permissions; mkstemp makes files that only their owner can read


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in its folder, flush it to disk, and rename it.

    Args:
        path: The file; its folder is made if absent.
        content: What it will hold.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                _flush(file, content)
            os.chmod(name, _READABLE_BY_ALL)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def complete_files(folder: Path) -> list[str]:
    """List the names in a folder, without temporary files that interrupted writes have left."""
    return [entry.name for entry in folder.iterdir() if not _TEMPORARY_NAME.fullmatch(entry.name)]


def write_flushed(path: Path, content: bytes) -> None:
    """Write a file under its final name and flush it, for folders that are renamed when complete.

    Args:
        path: The file; its folder is made if absent.
        content: What it will hold.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            _flush(file, content)


def append_lines(path: Path, lines: str) -> None:
    """Append whole lines in one write, so that lines of other processes do not come in between.

    If the file's last line is incomplete, after a kill or a full disk, it is ended first; otherwise
    the first new line would be lost too.

    Args:
        path: The file, which is made if absent.
        lines: One or more lines, each with a newline at its end.
    """
    with naming(path), path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                lines = "\n" + lines
        file.write(lines.encode())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError within; that of a full disk does not contain one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def locked(path: Path, *, title: str, progress: Progress = quiet) -> Iterator[None]:
    """Hold the lock of a file while the context is open; other processes wait for it.

    The system releases the lock when the process ends, for any reason. The file is not removed:
    otherwise processes that wait for it and processes that come later would hold different locks.

    Args:
        path: The file, which is made if absent.
        title: Title of the progress that is shown while waiting.
        progress: How progress is shown.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        if sys.platform == "win32":  # has no fcntl, so processes do not wait for each other
            yield
            return
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress(title, 1):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flush(file: BinaryIO, content: bytes) -> None:
    """Write content and wait until it is on the disk."""
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
