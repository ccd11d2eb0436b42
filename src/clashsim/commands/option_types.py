"""Kinds of command-line options that several commands share."""

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
    """Name of the geom that it meets."""
    ground: OptionalName = None
    """Name of the geom on which the struck body slides, if there is one."""


@dataclass(frozen=True)
class BodyOptions:
    """Which bodies of the trials collide, where their names are not those of the scene, or where
    there is no scene.
    """

    struck: OptionalName = None
    """Name of the struck body in the trials. For an MJCF file without a settings file (.toml)
    beside it: name of the struck geom.
    """
    striker: OptionalName = None
    """Name of the striker in the trials. Without a scene, leave it out for a wall or floor that was
    not recorded.
    """
    ground: OptionalName = None
    """Name of the scene's geom on which the struck body slides, for an MJCF file without settings.
    """


@dataclass(frozen=True)
class ExecutionOptions:
    """Where independent pieces of work run."""

    executor: Annotated[str | None, arg(metavar="EXECUTOR")] = None
    """ray joins the cluster of `ray start`, or starts one on this machine; local always starts one;
    an address (host:port, ray://host:port) joins that one. By default all work runs in this
    process. Needs clashsim[scale].
    """
    workers: int = 0
    """Number of workers of the executor, one core each; 0 is all of them."""
