"""The compiler of the contact solver: numba, with its results kept on disk where that is possible.

Compiled functions take and return plain arrays, numbers and tuples of them: numba's cache refers to
other types by the names of their classes, and cannot be read any more when one is renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call; it then runs without Python's global lock."""
    try:
        return njit(error_model="numpy", nogil=True, cache=True)(function)  # type: ignore[return-value]
    except RuntimeError:  # no folder to keep the result in can be written
        return njit(error_model="numpy", nogil=True)(function)  # type: ignore[return-value]
