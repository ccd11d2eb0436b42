"""Where finished parts of long work are kept until the whole is done: a folder, or any file system
that fsspec knows.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.core.files import write_atomic


@dataclass(frozen=True)
class CheckpointStore:
    """Small files by name. A write leaves the whole file or none, and a part means the same to
    every process that sees the place.
    """

    place: (
        str  # a folder, absolute since workers stand elsewhere, or a URL such as s3://bucket/folder
    )

    @staticmethod
    def of(place: Path | str) -> CheckpointStore:
        """Parts in a folder or under a URL."""
        return CheckpointStore(
            str(place).rstrip("/") if "://" in str(place) else os.path.abspath(place)
        )

    @property
    def remote(self) -> bool:
        """Whether fsspec is asked, and not the folder itself."""
        return "://" in self.place

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        if not self.remote:
            return (Path(self.place) / name).is_file()
        with self._told() as (files, folder):
            return bool(files.isfile(f"{folder}/{name}"))

    def read(self, name: str) -> bytes | None:
        """Content of a part; None where there is none."""
        if not self.remote:
            path = Path(self.place) / name
            return path.read_bytes() if path.is_file() else None
        with self._told() as (files, folder):
            try:
                return bytes(files.cat_file(f"{folder}/{name}"))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a part under a temporary name, and move it to its own."""
        if not self.remote:
            return write_atomic(Path(self.place) / name, content)
        with self._told() as (files, folder):
            files.makedirs(folder, exist_ok=True)
            fresh = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
            files.pipe_file(fresh, content)
            files.mv(fresh, f"{folder}/{name}")

    def remove(self, mine: Callable[[str], bool]) -> None:
        """Remove the parts whose name is `mine`, and the place if nothing else lies in it."""
        if not self.remote:
            folder = Path(self.place)
            _clear(
                [p.name for p in folder.iterdir()] if folder.is_dir() else [],
                mine,
                lambda name: (folder / name).unlink(),
                folder.rmdir,
            )
            return
        with self._told() as (files, place):
            names = (
                [str(path).rstrip("/").rsplit("/", 1)[-1] for path in files.ls(place, detail=False)]
                if files.isdir(place)
                else []
            )
            _clear(
                names,
                mine,
                lambda name: files.rm_file(f"{place}/{name}"),
                partial(files.rm, place, recursive=True),
            )

    @contextmanager
    def _told(self) -> Iterator[tuple[Any, str]]:
        """The file system and the folder in it; whatever goes wrong there is one sentence."""
        with needs("fsspec", "scale"):
            import fsspec
        try:
            yield fsspec.core.url_to_fs(self.place)
        except Exception as error:  # each file system fails in its own ways
            raise DataError(
                f"{self.place!r} cannot be used ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            ) from None


def _clear(
    names: list[str],
    mine: Callable[[str], bool],
    remove: Callable[[str], Any],
    leave: Callable[[], Any],
) -> None:
    """Remove what is ours, and the folder if that was all there was."""
    ours = [
        name for name in names if mine(name.lstrip("."))
    ]  # a name that begins with a dot is what a killed write has left
    for name in ours:
        remove(name)
    if names and len(ours) == len(names):
        leave()
