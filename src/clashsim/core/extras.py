"""Imports of optional dependencies: one that fails is told with the name of the missing module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from clashsim.core.errors import MissingExtraError

_LONGEST = 160  # characters of what an import says when it fails


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Turn an import that fails within into one sentence that names the module which is missing.

    Args:
        package: What is imported, as a reader knows it.
        extra: The extra of clashsim that installs it.

    Raises:
        MissingExtraError: An import failed, of the package itself or of what it depends on.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra, _problem(package, error)) from None


def require(module: str, package: str, extra: str) -> None:
    """Import a module for no other purpose than to know before any work that it can be."""
    with needs(package, extra):
        import_module(module)


def importable(module: str) -> bool:
    """Whether a module and all that it depends on can be imported."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def _problem(package: str, error: ImportError) -> str:
    """What is wrong, as a clause: a package can be there while a module that it imports is not."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        said = " ".join(str(error).split())[:_LONGEST]
        return f"{package} cannot be imported ({said})"
    own_names = [_plain(word) for word in package.split()]
    if _plain(error.name) in own_names:
        return f"{package} is not installed"
    return f"{error.name} is not installed, and {package} needs it"


def _plain(name: str) -> str:
    """A name as packages and modules share it: mujoco-mjx is mujoco.mjx."""
    return re.sub(r"[-_.]+", "-", name.strip("()")).lower()
