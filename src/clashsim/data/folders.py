"""Folders with a run, an export or a plan: plain files, and a manifest with the hash of each.

A folder is written whole or not at all, and never holds pickles.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from clashsim.core.errors import RunError
from clashsim.core.files import write_flushed

Kind = Literal["run", "export", "plan"]
FORMAT = 3
_MANIFEST = "manifest.json"
_DESCRIPTIONS: dict[Kind, str] = {"run": "a run folder", "export": "an export", "plan": "a plan"}


def write_folder(
    path: Path, files: Mapping[str, bytes], *, overwrite: bool = False, kind: Kind = "run"
) -> None:
    """Write files as one folder.

    A process that is killed meanwhile leaves the old folder complete, or the new one.

    Args:
        path: The folder.
        files: Contents of the files by name relative to the folder.
        overwrite: Whether an existing folder of the same kind may be replaced.
        kind: What the folder holds.

    Raises:
        RunError: The folder cannot be written, or something else is there.
    """
    path = Path(os.path.abspath(path))
    if not path.name:
        raise RunError(f"{str(path)!r} is no folder that a {kind} can be written to")
    _recover(path)
    check_output_folder(path, overwrite=overwrite, kind=kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.new."))
    except OSError as error:
        raise RunError(f"the {kind} {str(path)!r} cannot be written: {error.strerror}") from None
    try:
        for name, content in with_manifest(files, kind=kind).items():
            write_flushed(fresh / _inside(name), content)
        os.chmod(fresh, 0o755)
        if path.exists():
            # A folder cannot be renamed onto another that is not empty.
            os.rename(path, _aside(path))
        os.rename(fresh, path)
        shutil.rmtree(_aside(path), ignore_errors=True)
    except OSError as error:
        _recover(path)
        file = f" ({Path(error.filename).name})" if error.filename else ""
        reason = f"{error.strerror}{file}"
        raise RunError(f"the {kind} {str(path)!r} cannot be written: {reason}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def with_manifest(files: Mapping[str, bytes], *, kind: Kind = "run") -> dict[str, bytes]:
    """Add the manifest that makes files a folder of its own kind.

    Args:
        files: Contents of the files by name relative to the folder.
        kind: What the folder holds.

    Returns:
        The files with the manifest.
    """
    manifest = {
        "kind": f"clashsim-{kind}",
        "format": FORMAT,
        "files": {name: _hash(content) for name, content in sorted(files.items())},
    }
    return {**files, _MANIFEST: dumps(manifest)}


def read_folder(path: Path) -> dict[str, bytes]:
    """Read all files of a run by relative name, and compare each with its hash."""
    path = Path(os.path.abspath(path))
    _recover(path)
    if not path.is_dir():
        raise RunError(f"there is no run folder {str(path)!r}")
    manifest = _read_manifest(path)
    files = {}
    for name, expected in manifest["files"].items():
        files[name] = _read(path, name)
        if _hash(files[name]) != expected:
            raise RunError(
                f"the run {str(path)!r} was changed after it was written:"
                f" {name} does not match its hash"
            )
    return files


def check_output_folder(path: Path, *, overwrite: bool, kind: Kind = "run") -> None:
    """Raise a RunError unless a folder may be written at `path`.

    It may be written if nothing exists there, or an empty folder, or, with `overwrite`, a folder of
    the same kind.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise RunError(f"{str(path)!r} already exists and is not a folder")
    if not path.exists() or not any(path.iterdir()):
        return
    # A folder may hold work that cannot be made again, so only one of the same kind is replaced.
    if _kind_of_folder(path) != f"clashsim-{kind}":
        raise RunError(
            f"{str(path)!r} already exists and is not {_DESCRIPTIONS[kind]}; choose another output"
        )
    if not overwrite:
        raise RunError(
            f"the {kind} {str(path)!r} already exists;"
            " choose another output, or replace it with --overwrite"
        )


def dumps(value: object) -> bytes:
    """A value as JSON in the way this project writes it: indented, with keys in given order."""
    return (json.dumps(value, indent=1) + "\n").encode()


def loads(files: Mapping[str, bytes], name: str) -> object:
    """Parse the JSON of one file of a run."""
    if name not in files:
        raise RunError(f"the run is incomplete: {name} is missing")
    try:
        return json.loads(files[name])
    # ValueError: not JSON, not text, or an integer with too many digits.
    except (ValueError, RecursionError):
        raise RunError(f"the run is damaged: {name} is not valid JSON") from None


def _kind_of_folder(path: Path) -> str | None:
    """The kind that a folder's manifest states; None where no manifest can be read."""
    try:
        manifest = json.loads(_read(path, _MANIFEST))
    except (OSError, RunError, ValueError, RecursionError):
        return None
    return manifest.get("kind") if isinstance(manifest, dict) else None


def _read_manifest(path: Path) -> dict:
    """The manifest of a run, checked for its kind and format."""
    if not os.path.lexists(path / _MANIFEST):
        raise RunError(
            f"{str(path)!r} is not a run folder, or is half-written: it has no {_MANIFEST}"
        )
    try:
        manifest = json.loads(_read(path, _MANIFEST))
    except (OSError, ValueError, RecursionError):
        raise RunError(f"the run {str(path)!r} is damaged: {_MANIFEST} cannot be read") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "clashsim-run":
        raise RunError(f"{str(path)!r} is not a run folder of clashsim")
    if manifest.get("format") != FORMAT:
        raise RunError(
            f"the run {str(path)!r} has format {manifest.get('format')!r},"
            f" this version of clashsim reads format {FORMAT}: calibrate again"
        )
    if not isinstance(manifest.get("files"), dict):
        raise RunError(f"the run {str(path)!r} is damaged: {_MANIFEST} lists no files")
    return manifest


def _inside(name: str) -> PurePosixPath:
    """The name of a file as a relative path; raises a RunError if it points out of the folder."""
    path = PurePosixPath(name)
    leaves_folder = path.is_absolute() or ".." in path.parts or not path.parts
    if leaves_folder or "\\" in name or "\0" in name:
        raise RunError(
            f"a run cannot hold a file named {name!r}: the name must stay inside the folder"
        )
    return path


def _read(folder: Path, name: str) -> bytes:
    """The content of a file of the folder; a link raises a RunError, as it may point elsewhere."""
    relative = _inside(name)
    file = folder / relative
    if not os.path.lexists(file):
        raise RunError(f"the run {str(folder)!r} is incomplete: {name} is missing")
    without_links = os.path.join(os.path.realpath(folder), relative)
    if os.path.realpath(file) != without_links or not os.path.isfile(file):
        raise RunError(f"the run {str(folder)!r} is damaged: {name} is a link, or no file")
    return file.read_bytes()


def _aside(path: Path) -> Path:
    """The path to which an old folder is renamed while a new one takes its place."""
    return path.with_name(f".{path.name}.old")


def _recover(path: Path) -> None:
    """Clean up after a `write_folder` that was killed while it replaced a folder.

    If it was killed between its two renames, only the old folder exists, set aside: it is renamed
    back. If it was killed after both, the new folder is in place, and the old one is removed.
    """
    aside = _aside(path)
    if aside.is_dir():
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(aside, path)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
