"""Imports of optional dependencies; a failed import is reported with the missing module's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from clashsim.core.errors import MissingExtraError

_MAX_REASON_LENGTH = 160  # characters of the reason why an import failed


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Turn an import error within the context into one sentence that names the missing module.

    Args:
        package: Name of the dependency, for messages.
        extra: The extra of clashsim that installs it.

    Raises:
        MissingExtraError: An import failed, of the package itself or of what it depends on.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra, _problem(package, error)) from None


def require(module: str, package: str, extra: str) -> None:
    """Import a module only to check, before any work is done, that this is possible.

    Args:
        module: Name of the module.
        package: Name of the dependency, for messages.
        extra: The extra of clashsim that installs it.
    """
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
    """Clause on what is missing: the package itself, or a module that the package imports."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        reason = " ".join(str(error).split())[:_MAX_REASON_LENGTH]
        return f"{package} cannot be imported ({reason})"
    own_names = [_plain(word) for word in package.split()]
    if _plain(error.name) in own_names:
        return f"{package} is not installed"
    return f"{error.name} is not installed, and {package} needs it"


def _plain(name: str) -> str:
    """Normalise a name so that package and module agree: mujoco-mjx and mujoco.mjx."""
    return re.sub(r"[-_.]+", "-", name.strip("()")).lower()
