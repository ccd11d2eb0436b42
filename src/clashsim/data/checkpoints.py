"""Checkpoints: finished parts of a long computation, kept until all of it is done.

They are in a folder, or in any file system that the library fsspec can reach.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.core.files import write_atomic


@dataclass(frozen=True)
class CheckpointStore:
    """Small files by name in one place.

    A write that is interrupted leaves no part of a file, and every process that can reach the place
    sees the same files.

    Attributes:
        place: A folder, as an absolute path since workers may run in other folders, or a URL such
            as s3://bucket/folder.
    """

    place: str

    @staticmethod
    def of(place: Path | str) -> CheckpointStore:
        """The store in a folder or under a URL."""
        location = str(place)
        if "://" in location:
            return CheckpointStore(location.rstrip("/"))
        return CheckpointStore(os.path.abspath(place))

    @property
    def remote(self) -> bool:
        """Whether the store is reached through fsspec."""
        return "://" in self.place

    def has(self, name: str) -> bool:
        """Whether there is a file with this name."""
        if not self.remote:
            return (Path(self.place) / name).is_file()
        with self._file_system() as (files, folder):
            return bool(files.isfile(f"{folder}/{name}"))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        if not self.remote:
            path = Path(self.place) / name
            return path.read_bytes() if path.is_file() else None
        with self._file_system() as (files, folder):
            try:
                return bytes(files.cat_file(f"{folder}/{name}"))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file under a temporary name, then rename it, so that it is never half-written."""
        if not self.remote:
            write_atomic(Path(self.place) / name, content)
            return
        with self._file_system() as (files, folder):
            files.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
            files.pipe_file(temporary, content)
            files.mv(temporary, f"{folder}/{name}")

    def remove(self, mine: Callable[[str], bool]) -> None:
        """Remove some of the files, and the folder itself where nothing else is in it.

        Args:
            mine: Tells for the name of a file whether to remove it.
        """
        if not self.remote:
            local = Path(self.place)
            names = [path.name for path in local.iterdir()] if local.is_dir() else []
            ours = _ours(names, mine)
            for name in ours:
                (local / name).unlink()
            if names and len(ours) == len(names):
                local.rmdir()
            return
        with self._file_system() as (files, folder):
            paths = files.ls(folder, detail=False) if files.isdir(folder) else []
            names = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths]
            ours = _ours(names, mine)
            for name in ours:
                files.rm_file(f"{folder}/{name}")
            if names and len(ours) == len(names):
                files.rm(folder, recursive=True)

    @contextmanager
    def _file_system(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the folder in it; any error of theirs becomes a DataError."""
        with needs("fsspec", "scale"):
            import fsspec
        try:
            yield fsspec.core.url_to_fs(self.place)
        except Exception as error:  # each file system fails in its own ways
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{self.place!r} cannot be used ({type(error).__name__}: {reason})"
            ) from None


def _ours(names: list[str], mine: Callable[[str], bool]) -> list[str]:
    """The names that `mine` accepts, with or without the leading dot of a half-written file."""
    return [name for name in names if mine(name.lstrip("."))]
