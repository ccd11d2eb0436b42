"""Writes that leave either the old file or the new one, and name the file when they fail."""

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

_PART = re.compile(r"\..+\.[a-z0-9_]{8}")  # as mkstemp names them below


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
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def complete_files(folder: Path) -> list[str]:
    """Names in a folder, without those under which killed writes have left parts of files."""
    return [entry.name for entry in folder.iterdir() if not _PART.fullmatch(entry.name)]


def write_flushed(path: Path, content: bytes) -> None:
    """Write a file in place and flush it to disk, for folders that are renamed as a whole.

    Args:
        path: The file; its folder is made if absent.
        content: What it will hold.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            _flush(file, content)


def append_lines(path: Path, lines: str) -> None:
    """Add whole lines in one write, so that lines of other processes do not fall in between.

    A line that was cut short by a kill or a full disk is ended first: the next would be lost too.

    Args:
        path: The file, which is made if absent.
        lines: One or more lines, each with its end.
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
    """Name the file in an OSError of a write within: that of a full disk does not say which."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def locked(path: Path, *, title: str, progress: Progress = quiet) -> Iterator[None]:
    """Hold the lock of a file; other processes wait for it.

    The system ends the lock with the process, however that ends. The file stays: if it were
    removed, those who wait for it and those who come later would hold different locks.

    Args:
        path: The file, which is made if absent.
        title: What is shown while waiting.
        progress: How it is shown.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        if sys.platform == "win32":  # processes do not wait for each other there
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
