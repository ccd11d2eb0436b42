"""What several verbs need: a console, a scene that is checked before work begins, bounds of
numbers, the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from rich.console import Console

from clashsim.commands.terminal import PlainConsole
from clashsim.core.errors import DataError, ParamError, SceneError
from clashsim.core.executor import Executor, local
from clashsim.core.extras import require

if TYPE_CHECKING:
    from clashsim.cli import Where
    from clashsim.core.scene import Scene


def console() -> Console:
    """Where tables go; without a terminal, wide enough that none is folded."""
    return PlainConsole() if sys.stdout.isatty() else PlainConsole(width=160)


def load_scene(
    source: str, *, struck: str | None = None, striker: str | None = None, ground: str | None = None
) -> Scene:
    """A scene by name or file, compiled."""
    from clashsim.core.scene import Scene

    try:
        scene = Scene.load(source, struck=struck, striker=striker, ground=ground)
    except UnicodeDecodeError:
        raise SceneError(f"scene file {source!r} is not text") from None
    _ = (
        scene.slots
    )  # compiles the scene and finds every parameter, so that mistakes show before any work
    return scene


def not_negative(**values: float) -> None:
    """Refuse options below zero."""
    for name, value in values.items():
        if value < 0:
            raise ParamError(f"--{name} must not be negative, got {value}")
        if name == "seed" and value >= 2**32:
            raise ParamError(f"--seed must be below 2^32, got {value}")


def refuse_file(path: Path, endings: Sequence[str], *, overwrite: bool) -> None:
    """Refuse an output of another kind, or one that is there, before any work."""
    if path.suffix not in endings:
        raise DataError(
            f"the output {str(path)!r} must end in {', '.join(endings[:-1])}{' or ' if len(endings) > 1 else ''}{endings[-1]}"
        )
    if path.is_dir():
        raise DataError(f"the output {str(path)!r} is a folder, not a file")
    if path.exists() and not overwrite:
        raise DataError(
            f"the output {str(path)!r} already exists; choose another, or replace it with --overwrite"
        )


def needs_drake() -> None:
    """Refuse before any work where the laboratory cannot run."""
    require("pydrake", "Drake (pydrake)", "lab")


def enough_samples(samples: int) -> None:
    """Refuse too few samples to distil from."""
    if samples < 100:
        raise ParamError(
            f"--samples must be at least 100, got {samples}: a network cannot be distilled from fewer"
        )


def cache() -> Path:
    """Where distilled models are kept between runs."""
    return platformdirs.user_cache_path("clashsim")


@contextmanager
def engine(where: Where) -> Iterator[Executor]:
    """What does work that is many: this process, or the workers that --on names."""
    if where.on is None:
        if where.workers:
            raise ParamError("--workers is the number of workers on Ray: give --on as well")
        yield local
        return
    from clashsim.scale.ray_executor import ray_executor

    with ray_executor(where.on, where.workers) as made:
        yield made
