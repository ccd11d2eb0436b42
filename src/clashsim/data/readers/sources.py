"""Finds logs in files, folders and archives; archives are unpacked up to a limit."""

from __future__ import annotations

import gzip
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Protocol

from clashsim.core.errors import DataError
from clashsim.data.readers.lerobot import is_dataset, write_episodes

MAX_UNPACKED_BYTES = 4 << 30  # on disk, of one archive
# Unpacked bytes that an archive may have for each packed byte; text of numbers has 3 to 10.
MAX_UNPACK_RATIO = 100
FREE_UNPACKED_BYTES = 64 << 20  # unpacked bytes that are allowed whatever the ratio
MAX_FILES = 10_000  # in one folder or archive
# Bytes read at once. It is small because a block of a bz2 or LZMA member in a zip is unpacked as a
# whole, to up to 20,000 times its size.
_BLOCK_BYTES = 1 << 12
_ARCHIVE_SUFFIXES = (".zip", ".gz")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff")
VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm")
_MIN_IMAGES = 2  # that make a folder a recording
# What unpacking raises on damaged bytes, or on a password.
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


class Readable(Protocol):
    """A source of bytes that are read block by block."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class FoundFile:
    """A log: its name with folders, and its path on disk (a temporary file if it was unpacked)."""

    name: str
    path: Path


def gather(
    paths: Sequence[Path], suffixes: Sequence[str], stack: ExitStack, *, frames: bool = False
) -> list[FoundFile]:
    """Find the logs that a user named: folders are searched and archives unpacked.

    Args:
        paths: Files, folders and archives.
        suffixes: Endings of names that are logs.
        stack: Keeps the temporary folders of archives until it is closed.
        frames: Whether videos and folders of images are recordings: only where there is a camera
            file, since other logs may lie beside pictures and videos.

    Returns:
        The logs in the order of the paths, those of a folder by name.
    """
    if frames:
        suffixes = (*suffixes, *VIDEO_SUFFIXES)
    found: list[FoundFile] = []
    for path in map(Path, paths):
        try:
            found += _logs_at(path, suffixes, stack, frames)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DataError(f"{str(path)!r} cannot be read: {reason}") from None
        except ValueError:  # a path with a zero byte
            raise DataError(f"{str(path)!r} is no path") from None
    if not found:
        raise DataError("no logs were named")
    return found


def read_zip_members(path: Path, suffix: str) -> dict[str, bytes]:
    """Read the files of a zip archive that end in `suffix`, by name; bounded in size and number."""
    limit = max(FREE_UNPACKED_BYTES, MAX_UNPACK_RATIO * path.stat().st_size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(suffix)]
            total = sum(member.file_size for member in members)
            if len(members) > MAX_FILES or total > limit:
                most = f"{MAX_FILES} files or {limit / 1e6:.0f} MB"
                raise DataError(f"archive {path.name!r} holds more than {most}")
            return {member.filename: archive.read(member) for member in members}
    except (*_DAMAGE_ERRORS, OSError) as error:
        reason = " ".join(str(error).split())[:80]
        message = f"{path.name} cannot be read ({reason}): it is truncated or not the public file"
        raise DataError(message) from None


def is_bag(path: Path) -> bool:
    """Whether a folder is a ROS 2 bag."""
    if not path.is_dir() or not (path / "metadata.yaml").is_file():
        return False
    return any(part.suffix in (".db3", ".mcap", ".zstd") for part in path.iterdir())


def is_frame_folder(path: Path) -> bool:
    """Whether a folder itself holds images."""
    if not path.is_dir():
        return False
    count = 0
    for part in path.iterdir():
        count += part.suffix.lower() in IMAGE_SUFFIXES and not part.name.startswith(".")
        if count >= _MIN_IMAGES:
            return True
    return False


def is_recording(path: Path, *, frames: bool = False) -> bool:
    """Whether a folder is one recording, and not a place where recordings are."""
    return is_bag(path) or is_dataset(path) or (frames and is_frame_folder(path))


def _logs_at(
    path: Path, suffixes: Sequence[str], stack: ExitStack, frames: bool
) -> list[FoundFile]:
    """The logs of one path that the user named."""
    endings = ", ".join(suffixes)
    if is_recording(path, frames=frames):
        return _unpacked(FoundFile(path.name, path), suffixes, stack)
    if path.is_dir():
        items = list(_walk(path, (*suffixes, *_ARCHIVE_SUFFIXES), frames))
        if not items and is_frame_folder(path):
            raise DataError(
                f"folder {str(path)!r} holds frames: they need a camera file (--camera)"
            )
        if not items:
            raise DataError(f"folder {str(path)!r} holds no logs; they end in {endings}")
        found: list[FoundFile] = []
        for item in items:
            name = item.relative_to(path).as_posix()
            found += _unpacked(FoundFile(name, item), suffixes, stack)
        return found
    if path.is_file():
        if _suffix(path.name) in VIDEO_SUFFIXES and not frames:
            raise DataError(
                f"{path.name!r} is a video: give its camera file (--camera camera.yaml)"
            )
        if _suffix(path.name) not in (*suffixes, *_ARCHIVE_SUFFIXES):
            raise DataError(f"{path.name!r} is no log; they end in {endings} (or .zip, .gz)")
        name = f"{path.absolute().parent.name}/{path.name}".lstrip("/")
        return _unpacked(FoundFile(name, path), suffixes, stack)
    if path.exists():
        raise DataError(f"{str(path)!r} is neither a file nor a folder")
    raise DataError(f"there is no file {str(path)!r} with a log")


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _walk(folder: Path, suffixes: Sequence[str], frames: bool) -> Iterator[Path]:
    """Logs, bags and datasets in a folder and the folders inside it; hidden ones are left out."""
    count = 0
    # `os.walk` does not follow links to folders, so it cannot go round in circles.
    for current, folders, names in os.walk(folder):
        place = Path(current)
        recordings = [name for name in folders if is_recording(place / name, frames=frames)]
        folders[:] = sorted(
            name for name in folders if name not in recordings and not name.startswith(".")
        )
        for name in sorted([*recordings, *names]):
            is_log = _suffix(name) in suffixes and not name.startswith(".")
            if name not in recordings and not (is_log and (place / name).is_file()):
                continue
            count += 1
            if count > MAX_FILES:
                raise DataError(f"folder {str(folder)!r} holds more than {MAX_FILES} logs")
            yield place / name


def _unpacked(file: FoundFile, suffixes: Sequence[str], stack: ExitStack) -> list[FoundFile]:
    """A log itself, or the logs of an archive or dataset, written into a temporary folder."""
    if file.path.is_dir() and is_dataset(file.path):
        return _episodes(file, stack)
    if _suffix(file.name) not in _ARCHIVE_SUFFIXES or file.path.is_dir():
        return [file]
    size = file.path.stat().st_size
    if not size:
        raise DataError(f"{file.name!r} is empty")
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="clashsim-")))
    limit = min(MAX_UNPACKED_BYTES, max(FREE_UNPACKED_BYTES, MAX_UNPACK_RATIO * size))
    unpacker = _BoundedUnpacker(file.name, limit)
    try:
        if _suffix(file.name) == ".gz":
            return [_unpack_gzip(file, suffixes, folder, unpacker)]
        return list(_unpack_zip(file, suffixes, folder, unpacker))
    except _DAMAGE_ERRORS:
        raise DataError(f"archive {file.name!r} is cut off, damaged or needs a password") from None


def _episodes(file: FoundFile, stack: ExitStack) -> list[FoundFile]:
    """The episodes of a LeRobot dataset."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="clashsim-")))
    try:
        written = write_episodes(file.path, folder)
    except DataError as error:
        raise DataError(f"dataset {file.name!r}: {error}") from None
    return [FoundFile(f"{file.name}/{path.stem}", path) for path in written]


def _unpack_gzip(
    file: FoundFile, suffixes: Sequence[str], folder: Path, unpacker: _BoundedUnpacker
) -> FoundFile:
    """The one log in a gzip file, whose name is that of the gzip file without .gz."""
    name = PurePosixPath(file.name).stem
    suffix = _suffix(name)
    if suffix not in suffixes:
        raise DataError(f"{file.name!r} does not say what it holds; name it as in trial.csv.gz")
    target = folder / f"0{suffix}"
    with gzip.open(file.path, "rb") as source:
        unpacker.copy(source, target)
    return FoundFile(name, target)


def _unpack_zip(
    file: FoundFile, suffixes: Sequence[str], folder: Path, unpacker: _BoundedUnpacker
) -> Iterator[FoundFile]:
    """The logs in a zip archive.

    Unpacked files are named by numbers, since the name of a member may point to any folder.
    """
    with zipfile.ZipFile(file.path) as archive:
        if any(member.filename.endswith("meta/info.json") for member in archive.infolist()):
            raise DataError(
                f"archive {file.name!r} holds a LeRobot dataset: unpack it, and import its folder"
            )
        members = [member for member in archive.infolist() if _is_log_member(member, suffixes)]
        if not members:
            raise DataError(
                f"archive {file.name!r} holds no logs; they end in {', '.join(suffixes)}"
            )
        if len(members) > MAX_FILES:
            raise DataError(f"archive {file.name!r} holds more than {MAX_FILES} logs")
        for number, member in enumerate(members):
            target = folder / f"{number}{_suffix(member.filename)}"
            with archive.open(member) as source:
                unpacker.copy(source, target)
            yield FoundFile(member.filename, target)


def _is_log_member(member: zipfile.ZipInfo, suffixes: Sequence[str]) -> bool:
    """Whether a member of an archive is a log, and neither a link nor hidden."""
    # The suffix comes first: a damaged archive may have an empty name, on which `is_dir` fails.
    if _suffix(member.filename) not in suffixes:
        return False
    if member.is_dir() or stat.S_ISLNK(member.external_attr >> 16):
        return False
    parts = PurePosixPath(member.filename).parts
    return not any(part.startswith((".", "__MACOSX")) for part in parts)


class _BoundedUnpacker:
    """Unpacks the members of an archive, and stops when they have more bytes than the limit.

    Bytes are counted as they are written: the sizes that the archive states may be wrong.
    """

    def __init__(self, archive: str, limit: int) -> None:
        self._archive = archive
        self._limit = limit
        self._used = 0

    def copy(self, source: Readable, target: Path) -> None:
        """Copy a member to a file."""
        try:
            with target.open("wb") as file:
                while block := source.read(_BLOCK_BYTES):
                    self._count(len(block))
                    file.write(block)
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):  # the archive is damaged, not the disk full
                raise
            folder = repr(str(target.parent))
            reason = f"cannot be unpacked to {folder}: {error.strerror}"
            raise DataError(f"archive {self._archive!r} {reason}") from None

    def _count(self, size: int) -> None:
        self._used += size
        if self._used > self._limit:
            limit = f"{self._limit / 1e6:.0f} MB"
            raise DataError(
                f"archive {self._archive!r} unpacks to more than {limit},"
                " which is too much for its size"
            )
