"""Compiled functions: numba, with its results kept on disk where that is possible.

Compiled functions take and return plain arrays, numbers and tuples of them: numba's cache refers to
other types by the names of their classes, and cannot be read any more when one is renamed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

from clashsim.core.files import write_atomic

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
_STAMP = "compiled-from"  # file beside the compiled code, with a hash of the sources


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call; it then runs without Python's global lock."""
    dispatcher: Any
    try:
        dispatcher = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no folder to keep the result in can be written
        dispatcher = njit(**_OPTIONS)(function)
    return dispatcher  # type: ignore[no-any-return]


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether a function of `compiled` was compiled before, in this process or on this machine."""
    dispatcher: Any = function
    folder = dispatcher.stats.cache_path
    if dispatcher.signatures or folder is None:
        return bool(dispatcher.signatures)
    name = function.__name__
    return any(Path(folder).glob(f"*.{name}-*.nbi"))


def forget_stale(folder: Path, *others: Path) -> None:
    """Delete code that was compiled from other sources of a folder.

    For each function numba looks only at the file it stands in, not at the files of the functions
    that it calls.

    Args:
        folder: Of the compiled functions.
        others: Further files that they depend on.
    """
    digest = hashlib.sha256()
    for source in [*sorted(folder.glob("*.py")), *others]:
        digest.update(source.read_bytes())
    cache = folder / "__pycache__"
    stamp = cache / _STAMP
    try:
        if stamp.is_file() and stamp.read_text() == digest.hexdigest():
            return
        for file in cache.glob("*.nb[ic]"):
            file.unlink(missing_ok=True)
        write_atomic(stamp, digest.hexdigest().encode())
    except OSError:
        return  # a folder that cannot be written holds no code that was compiled here
