"""What runs strikes: MuJoCo, or MJX on jax's device, by name or by measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.scene import Scene
from clashsim.sim.mjx.impact_simulator import MjxImpactSimulator
from clashsim.sim.mjx.model import import_mjx
from clashsim.sim.mujoco.impacts import ImpactOutcome, ImpactSimulator

Strike = Callable[[np.ndarray, np.ndarray], ImpactOutcome]
ENGINES = {"mujoco": "MuJoCo", "mjx": "MJX"}
_TOGETHER = 16  # shards that a card runs in one call: one alone would leave most of it idle


def striker(by: str, scene: Scene, size: int, *, threads: int = 0) -> Strike:
    """What runs strikes of a scene, `size` in one call; `threads` are MuJoCo's."""
    return (
        MjxImpactSimulator.of(scene, size)
        if _known(by) == "mjx"
        else ImpactSimulator(scene, size, threads=threads)
    )


def together(by: str) -> int:
    """Shards to run in one call."""
    return 1 if _known(by) == "mujoco" or _platform() == "cpu" else _TOGETHER


def marks(by: str) -> dict[str, Any]:
    """What, beside MuJoCo itself, decides the bits that come out: shards of one are not to be mixed
    with those of another.
    """
    return (
        {}
        if _known(by) == "mujoco"
        else {
            "by": by,
            "mjx": version("mujoco-mjx"),
            "jax": version("jax"),
            "platform": _platform(),
        }
    )


def speed(run: Strike, before: np.ndarray, theta: np.ndarray) -> tuple[float, float]:
    """Strikes a second of a call with before (N, d) and theta (N, p), and the seconds that a first
    call with one strike takes: building and compiling.
    """
    begin = time.perf_counter()
    run(before[:1], theta[:1])
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    run(before, theta)
    return len(before) / (time.perf_counter() - begin), built


def _known(by: str) -> str:
    if by not in ENGINES:
        raise ParamError(f"strikes cannot be run by {by!r}; {did_you_mean(by, ENGINES)}")
    return by


def _platform() -> str:
    return str(import_mjx()[0].devices()[0].platform)
