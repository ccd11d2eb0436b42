"""How much sampling costs beyond MuJoCo itself: strikes a second against bare `Batch.step` of the
same steps, side by side.
"""

from __future__ import annotations

import resource
import time

import mujoco
import numpy as np
from mujoco import batch

from clashsim.bench.rows import Row, Save, discard
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.fit.sample import run_shard, sample_strikes
from clashsim.sim.mujoco.impacts import ImpactSimulator, rest_height, velocity_servos

_SIZE = 4096


def run(
    *,
    n: int = 100_000,
    scene: str = "semi_cylinder",
    seed: int = 0,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Sample `n` strikes shard by shard, each followed by a bare replay of its steps; rows of what,
    method, per_second, ratio.
    """
    world = Scene.load(scene)
    striker, bare = ImpactSimulator(world, min(n, _SIZE)), _Bare(world, min(n, _SIZE))
    sampling = stepping = 0.0
    steps = 0
    rows: list[Row] = []
    with progress("sampling", n) as advance:
        for i in range(-(-n // _SIZE)):
            size = min(_SIZE, n - i * _SIZE)
            begin = time.perf_counter()
            shard = run_shard(world, striker, size, np.random.default_rng([seed, i]))
            sampling += time.perf_counter() - begin
            strikes = sample_strikes(
                world, size, np.random.default_rng([seed, i])
            )  # as they were run; the shard holds them as a recording would show them
            stepping += bare.replay(strikes.before, strikes.theta, shard["steps"])
            steps += int(shard["steps"].sum())
            done = i * _SIZE + size
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            size_of = {"n": done, "steps": steps, "peak_mb": peak}
            head = {"what": f"strikes of {scene}"}
            ours = {
                "method": "clashsim",
                "per_second": done / sampling,
                "ratio": stepping / sampling,
            }
            bare_steps = {"method": "bare Batch.step", "per_second": done / stepping, "ratio": 1.0}
            rows = [head | ours | size_of, head | bare_steps | size_of]
            save(rows)
            advance(size)
    return rows


class _Bare:
    """The author's own model, without clashsim's sensors, in a batch of its own."""

    def __init__(self, scene: Scene, size: int) -> None:
        self.scene = scene
        model = mujoco.MjModel.from_xml_string(scene.xml, dict(scene.assets))
        self.engine = batch.Batch(model, size)
        self.qpos, self.qvel, self.ctrl = (self.engine.bind(k) for k in ("qpos", "qvel", "ctrl"))
        self.drives = velocity_servos(scene)

    def replay(self, before: np.ndarray, theta: np.ndarray, steps: np.ndarray) -> float:
        """Seconds spent in `step` when every simulation takes as many steps as it took in its
        shard.
        """
        n = len(before)
        self.scene.write(theta, lambda name: self.engine.expand(name)[:n])
        self.engine.reset(stage=0)
        qpos, qvel = self.qpos[:n].copy(), self.qvel[:n].copy()
        PairPoser(self.scene, rest_height(self.scene, theta)).write(before, qpos, qvel)
        self.qpos[:n], self.qvel[:n] = qpos, qvel
        for actuator, dof in self.drives:
            self.ctrl[:n, actuator] = qvel[:, dof]
        active = [np.flatnonzero(steps > i) for i in range(int(steps.max()))]
        still = [
            None if len(ids) == self.engine.nsim else ids for ids in active
        ]  # as the sampler does: no list where all of them step
        begin = time.perf_counter()
        for ids in still:
            self.engine.step(ids=ids)
        return time.perf_counter() - begin
