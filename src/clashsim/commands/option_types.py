"""Types and groups of command-line options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

SceneArgument = Positional[Annotated[str, arg(metavar="SCENE")]]
TrialsArgument = Positional[Annotated[Path, arg(metavar="TRIALS")]]
RunArgument = Positional[Annotated[Path, arg(metavar="RUN")]]
OutputPath = Annotated[Path, arg(aliases=["-o"], metavar="PATH")]
OptionalOutputPath = Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH")]
OptionalName = Annotated[str | None, arg(metavar="NAME")]
OptionalInt = Annotated[int | None, arg(metavar="INT")]
Names = Annotated[tuple[str, ...], arg(metavar="NAMES")]


@dataclass(frozen=True)
class PairOptions:
    """Which geoms collide, for an MJCF file without a settings file (.toml) beside it."""

    struck: OptionalName = None
    """Name of the geom whose motion is predicted."""
    striker: OptionalName = None
    """Name of the geom that strikes it, or that it hits (a wall)."""
    ground: OptionalName = None
    """Name of the geom on which the struck body slides, if it slides on one."""


@dataclass(frozen=True)
class BodyOptions:
    """Which bodies of the trials collide, if their names differ from the scene's or there is no
    scene.
    """

    struck: OptionalName = None
    """Name of the struck body in the trials. For a scene file without a settings file (.toml)
    beside it: name of the struck body or geom in the scene.
    """
    striker: OptionalName = None
    """Name of the striker in the trials. Without a scene, omit it if the striker is a wall or floor
    that was not recorded.
    """
    ground: OptionalName = None
    """Name of the geom on which the struck body slides (MJCF file without a settings file)"""


@dataclass(frozen=True)
class ExecutionOptions:
    """Where independent pieces of work run."""

    executor: Annotated[str | None, arg(metavar="EXECUTOR")] = None
    """Ray cluster that runs the work. ray: the running cluster of this machine, or a new one if
    there is none; local: always a new one on this machine; host:port or ray://host:port: the
    cluster at that address. By default all work runs in this process. Needs clashsim[scale].
    """
    workers: int = 0
    """Number of workers of the executor, one core each; 0 uses all cores."""
