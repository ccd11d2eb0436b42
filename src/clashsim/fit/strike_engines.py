"""Engines that simulate strikes: MuJoCo, or MJX on jax's device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.scene import Scene
from clashsim.sim.mjx.impact_simulator import MjxImpactSimulator
from clashsim.sim.mjx.model import import_mjx
from clashsim.sim.mujoco.impacts import ImpactOutcome, ImpactSimulator

# (states before impact (N, d), theta (N, p)) -> outcomes.
RunStrikes = Callable[[np.ndarray, np.ndarray], ImpactOutcome]
ENGINES = {"mujoco": "MuJoCo", "mjx": "MJX"}
_SHARDS_ON_GPU = 16  # per call of a GPU; a single shard would leave most of it idle


@dataclass(frozen=True)
class StrikeEngine:
    """An engine that simulates strikes.

    Attributes:
        name: "mujoco", or "mjx" for the same strikes in MJX on jax's device (docs/mjx.md says how
            much its impacts differ from MuJoCo's).
        threads: Threads of MuJoCo, 0 for all cores.
    """

    name: str = "mujoco"
    threads: int = 0

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            hint = did_you_mean(self.name, ENGINES)
            raise ParamError(f"strikes cannot be run by {self.name!r}; {hint}")

    def simulator(self, scene: Scene, size: int) -> RunStrikes:
        """A function that simulates strikes of a scene, up to `size` at once."""
        if self.name == "mjx":
            return MjxImpactSimulator.of(scene, size)
        return ImpactSimulator(scene, size, threads=self.threads)

    def shards_per_call(self) -> int:
        """Number of shards to simulate in one call."""
        if self.name == "mujoco" or _platform() == "cpu":
            return 1
        return _SHARDS_ON_GPU

    def job_marks(self) -> dict[str, Any]:
        """Entries of a job's identity: what, beside MuJoCo's version, the results depend on.

        They prevent that shards of different engines are mixed.
        """
        if self.name == "mujoco":
            return {}
        return {
            "by": self.name,
            "mjx": version("mujoco-mjx"),
            "jax": version("jax"),
            "platform": _platform(),
        }


def measure_rate(run: RunStrikes, before: np.ndarray, theta: np.ndarray) -> tuple[float, float]:
    """Measure how fast strikes run.

    Args:
        run: The simulator of strikes.
        before: States before (N, d).
        theta: Parameters (N, p).

    Returns:
        Strikes per second, and the seconds that a first call with one strike takes: building and
        compiling.
    """
    begin = time.perf_counter()
    run(before[:1], theta[:1])
    build_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    run(before, theta)
    return len(before) / (time.perf_counter() - begin), build_seconds


def _platform() -> str:
    """The platform of jax's device: cpu, gpu, ..."""
    return str(import_mjx()[0].devices()[0].platform)
