"""How much slower sampling is than MuJoCo itself.

Strikes per second of clashsim's sampling are compared with bare calls of `Batch.step` for the same
steps, in the same process.
"""

from __future__ import annotations

import resource
import time

import mujoco
import numpy as np
from mujoco import batch

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.scene import Scene
from clashsim.fit.sample import run_shard, sample_strikes
from clashsim.sim.mujoco.impacts import ImpactSimulator, rest_height, velocity_servos

OPTIONS: frozenset[str] = frozenset()
_SHARD_SIZE = 4096  # strikes, as in `clashsim.fit.sample`
_QUICK_STRIKES = 8192


def run(
    options: BenchOptions = BenchOptions(),
    *,
    n: int = 100_000,
    scene: str = "semi_cylinder",
    seed: int = 0,
) -> list[Row]:
    """Sample strikes shard by shard, and replay the steps of each shard without clashsim.

    Args:
        options: What to do with the rows.
        n: Number of strikes.
        scene: Name of a shipped scene.
        seed: Seed of the strikes.

    Returns:
        Two rows of what, method, per_second, ratio (the time of bare steps divided by the time of
        this row), n, steps and peak_mb (of memory).
    """
    if options.quick:
        n = _QUICK_STRIKES
    loaded = Scene.load(scene)
    simulator = ImpactSimulator(loaded, min(n, _SHARD_SIZE))
    bare = _BareMujoco(loaded, min(n, _SHARD_SIZE))
    sampling_seconds = 0.0
    stepping_seconds = 0.0
    steps = 0
    rows: list[Row] = []
    with options.progress("sampling", n) as advance:
        for i in range(-(-n // _SHARD_SIZE)):
            size = min(_SHARD_SIZE, n - i * _SHARD_SIZE)
            begin = time.perf_counter()
            shard = run_shard(loaded, simulator, size, np.random.default_rng([seed, i]))
            sampling_seconds += time.perf_counter() - begin
            # The strikes are drawn again with the same seed, because the shard holds only what a
            # recording would show.
            strikes = sample_strikes(loaded, size, np.random.default_rng([seed, i]))
            stepping_seconds += bare.replay(strikes.before, strikes.theta, shard["steps"])
            steps += int(shard["steps"].sum())
            done = i * _SHARD_SIZE + size
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            head = {"what": f"strikes of {scene}"}
            clashsim = {
                "method": "clashsim",
                "per_second": done / sampling_seconds,
                "ratio": stepping_seconds / sampling_seconds,
            }
            bare_steps = {
                "method": "bare Batch.step",
                "per_second": done / stepping_seconds,
                "ratio": 1.0,
            }
            sizes = {"n": done, "steps": steps, "peak_mb": peak}
            rows = [head | clashsim | sizes, head | bare_steps | sizes]
            options.save(rows)
            advance(size)
    return rows


class _BareMujoco:
    """A MuJoCo batch of the scene's model, without the sensors that clashsim adds."""

    def __init__(self, scene: Scene, size: int) -> None:
        self.scene = scene
        model = mujoco.MjModel.from_xml_string(scene.xml, dict(scene.assets))
        self.batch = batch.Batch(model, size)
        self.qpos = self.batch.bind("qpos")
        self.qvel = self.batch.bind("qvel")
        self.ctrl = self.batch.bind("ctrl")
        self.servos = velocity_servos(scene)

    def replay(self, before: np.ndarray, theta: np.ndarray, steps: np.ndarray) -> float:
        """Step every simulation as often as it was stepped in its shard.

        Args:
            before: States before impact, (n, d).
            theta: Parameters, (n, p).
            steps: Numbers of steps, (n,).

        Returns:
            Seconds spent in `step`.
        """
        n = len(before)
        self.scene.write(theta, lambda name: self.batch.expand(name)[:n])
        self.batch.reset(stage=0)
        qpos = self.qpos[:n].copy()
        qvel = self.qvel[:n].copy()
        PairPoser(self.scene, rest_height(self.scene, theta)).write(before, qpos, qvel)
        self.qpos[:n] = qpos
        self.qvel[:n] = qvel
        for actuator, dof in self.servos:
            self.ctrl[:n, actuator] = qvel[:, dof]
        ids_of_steps: list[np.ndarray | None] = []
        for i in range(int(steps.max())):
            stepping = np.flatnonzero(steps > i)
            # None steps all simulations, as the sampler does.
            ids_of_steps.append(None if len(stepping) == self.batch.nsim else stepping)
        begin = time.perf_counter()
        for ids in ids_of_steps:
            self.batch.step(ids=ids)
        return time.perf_counter() - begin
