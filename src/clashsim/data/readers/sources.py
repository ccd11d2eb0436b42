"""Where logs come from: files, folders and archives, unpacked with bounds."""

from __future__ import annotations

import gzip
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Protocol

from clashsim.core.errors import DataError

UNPACKED = 4 << 30  # bytes that archives may unpack to, on disk
RATIO = 100  # bytes an archive may unpack to for each of its own; text of numbers has 3 to 10
FREE = 64 << 20  # bytes for which the ratio does not matter
FILES = 10_000
# Bytes read at once: bz2 and LZMA members of a zip unpack all that a block of them holds, up to
# 20,000 times its size.
_BLOCK = 1 << 12
_ARCHIVES = (".zip", ".gz")
# What unpacking raises on damaged bytes, or on a password.
_DAMAGE = (
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


class Readable(Protocol):
    """What can be read block by block."""

    def read(self, size: int, /) -> bytes: ...


def gather(
    paths: Sequence[Path], suffixes: Sequence[str], stack: ExitStack
) -> list[tuple[str, Path]]:
    """Logs under their names, as (name with folders, file); folders are searched and archives
    unpacked into a folder that lives as long as `stack`.
    """
    found: list[tuple[str, Path]] = []
    for path in map(Path, paths):
        try:
            if is_bag(path):
                found.append((path.name, path))
            elif path.is_dir():
                inside = list(_walk(path, (*suffixes, *_ARCHIVES)))
                if not inside:
                    raise DataError(
                        f"folder {str(path)!r} holds no logs; they end in {', '.join(suffixes)}"
                    )
                for item in inside:
                    found += _opened(item.relative_to(path).as_posix(), item, suffixes, stack)
            elif path.is_file():
                if _suffix(path.name) not in (*suffixes, *_ARCHIVES):
                    raise DataError(
                        f"{path.name!r} is no log; they end in {', '.join(suffixes)} (or .zip, .gz)"
                    )
                found += _opened(
                    f"{path.absolute().parent.name}/{path.name}".lstrip("/"), path, suffixes, stack
                )
            elif path.exists():
                raise DataError(f"{str(path)!r} is neither a file nor a folder")
            else:
                raise DataError(f"there is no file {str(path)!r} with a log")
        except OSError as error:
            raise DataError(
                f"{str(path)!r} cannot be read: {error.strerror or type(error).__name__}"
            ) from None
        except ValueError:  # a path with a zero byte
            raise DataError(f"{str(path)!r} is no path") from None
    if not found:
        raise DataError("no logs were named")
    return found


def read_zip_members(path: Path, suffix: str) -> dict[str, bytes]:
    """The files of a zip archive that end in `suffix`, by name; it may not unpack to too much."""
    room = max(FREE, RATIO * path.stat().st_size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(suffix)]
            if len(members) > FILES or sum(member.file_size for member in members) > room:
                most = f"{FILES} files or {room / 1e6:.0f} MB"
                raise DataError(f"archive {path.name!r} holds more than {most}")
            return {member.filename: archive.read(member) for member in members}
    except (*_DAMAGE, OSError) as error:
        why = " ".join(str(error).split())[:80]
        message = f"{path.name} cannot be read ({why}): it is truncated or not the public file"
        raise DataError(message) from None


def is_bag(path: Path) -> bool:
    """Whether a folder is a ROS 2 bag."""
    return (
        path.is_dir()
        and (path / "metadata.yaml").is_file()
        and any(p.suffix in (".db3", ".mcap", ".zstd") for p in path.iterdir())
    )


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _walk(folder: Path, suffixes: Sequence[str]) -> Iterator[Path]:
    count = 0
    for here, folders, names in os.walk(
        folder
    ):  # links to folders are not followed, so there are no circles
        place = Path(here)
        bags = [name for name in folders if is_bag(place / name)]
        folders[:] = sorted(
            name for name in folders if name not in bags and not name.startswith(".")
        )
        for name in sorted([*bags, *names]):
            if name in bags or (
                _suffix(name) in suffixes and not name.startswith(".") and (place / name).is_file()
            ):
                count += 1
                if count > FILES:
                    raise DataError(f"folder {str(folder)!r} holds more than {FILES} logs")
                yield place / name


def _opened(
    name: str, path: Path, suffixes: Sequence[str], stack: ExitStack
) -> list[tuple[str, Path]]:
    if _suffix(name) not in _ARCHIVES or path.is_dir():
        return [(name, path)]
    size = path.stat().st_size
    if not size:
        raise DataError(f"{name!r} is empty")
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="clashsim-")))
    room = _Room(name, min(UNPACKED, max(FREE, RATIO * size)))
    try:
        if _suffix(name) == ".gz":
            inner = PurePosixPath(name).stem
            if _suffix(inner) not in suffixes:
                raise DataError(f"{name!r} does not say what it holds; name it as in trial.csv.gz")
            with gzip.open(path, "rb") as source:
                room.copy(source, folder / f"0{_suffix(inner)}")
            return [(inner, folder / f"0{_suffix(inner)}")]
        return list(
            _zip(
                name,
                path,
                suffixes,
                lambda i, source, suffix: room.copy(source, folder / f"{i}{suffix}"),
            )
        )
    except _DAMAGE:
        raise DataError(f"archive {name!r} is cut off, damaged or needs a password") from None


def _zip(
    name: str, path: Path, suffixes: Sequence[str], copy: Callable[[int, Readable, str], Path]
) -> Iterator[tuple[str, Path]]:
    with zipfile.ZipFile(path) as archive:
        members = [
            m
            for m in archive.infolist()
            if _suffix(m.filename) in suffixes
            and not m.is_dir()
            and not stat.S_ISLNK(m.external_attr >> 16)
            and not any(
                part.startswith((".", "__MACOSX")) for part in PurePosixPath(m.filename).parts
            )
        ]
        if not members:
            raise DataError(f"archive {name!r} holds no logs; they end in {', '.join(suffixes)}")
        if len(members) > FILES:
            raise DataError(f"archive {name!r} holds more than {FILES} logs")
        for i, member in enumerate(
            members
        ):  # files get names of our own: a member's name may point anywhere
            with archive.open(member) as source:
                yield member.filename, copy(i, source, _suffix(member.filename))


class _Room:
    """Counts what an archive unpacks to, whatever its directory says, and stops at the bound."""

    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit, self.used = name, limit, 0

    def _refuse_too_much(self) -> None:
        if self.used > self.limit:
            raise DataError(
                f"archive {self.name!r} unpacks to more than {self.limit / 1e6:.0f} MB, which is too much for its size"
            )

    def copy(self, source: Readable, target: Path) -> Path:
        """Copy a member to a file."""
        try:
            with target.open("wb") as file:
                while block := source.read(_BLOCK):
                    self.used += len(block)
                    self._refuse_too_much()
                    file.write(block)
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):  # the archive is damaged, not the disk full
                raise
            folder = repr(str(target.parent))
            why = f"cannot be unpacked to {folder}: {error.strerror}"
            raise DataError(f"archive {self.name!r} {why}") from None
        return target
