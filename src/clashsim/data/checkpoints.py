"""Where finished parts of long work are kept until the whole is done.

That is a folder, or any file system that fsspec knows.
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
    """Small files by name.

    A write leaves the whole file or none, and a name means the same file to every process that sees
    the location.

    Attributes:
        place: A folder, absolute since workers run elsewhere, or a URL such as s3://bucket/folder.
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
        """Whether there is a file of this name."""
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
        """Write a file under a temporary name, and move it to its own."""
        if not self.remote:
            write_atomic(Path(self.place) / name, content)
            return
        with self._file_system() as (files, folder):
            files.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
            files.pipe_file(temporary, content)
            files.mv(temporary, f"{folder}/{name}")

    def remove(self, mine: Callable[[str], bool]) -> None:
        """Remove files, and the location if nothing else lies in it.

        Args:
            mine: Whether a file of some name is to be removed.
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
        """The file system and the folder in it; whatever goes wrong there is one DataError."""
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
    """Names of files that are ours; a killed write leaves one that begins with a dot."""
    return [name for name in names if mine(name.lstrip("."))]
