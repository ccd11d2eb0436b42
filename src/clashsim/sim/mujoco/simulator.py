"""MuJoCo itself behind the seam of a simulator, to compare with."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.scene import Scene
from clashsim.sim.inputs import check_rollout, check_theta, nothing_to_step


class MujocoSim:
    """A scene at theta (author's values where None) with MuJoCo's own collisions; `timestep` (s)
    replaces the author's.
    """

    def __init__(
        self,
        scene: Scene,
        theta: np.ndarray | None = None,
        *,
        timestep: float | None = None,
        threads: int = 0,
    ) -> None:
        self.scene, self.threads = scene, threads
        self.model = scene.model(check_theta(scene.params, theta))
        if timestep is not None:
            self.model.opt.timestep = timestep
        self._engines: dict[tuple[int, bool], batch.Batch] = {}

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu);
        theta (p,) or (N, p).
        """
        start, control = check_rollout(self.model, start, control)
        n = len(start)
        theta = check_theta(self.scene.params, theta, n)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        engine = self._engine(n, theta is not None)
        if theta is not None:
            self.scene.write(np.broadcast_to(theta, (n, len(self.scene.params))), engine.expand)
            if self.scene.needs_const:
                engine.set_const()
        engine.reset(stage=0)
        nq, nv = self.model.nq, self.model.nv
        for name, part in zip(
            ("qpos", "qvel", "act"), np.split(start, [nq, nq + nv], axis=1), strict=True
        ):
            engine.bind(name)[:] = part
        record = engine.rollout(
            control.shape[1],
            control,
            int(mujoco.mjtState.mjSTATE_CTRL),
            record=("qpos", "qvel", "act"),
        )
        return np.concatenate(
            [start[:, None], np.concatenate([record[k] for k in ("qpos", "qvel", "act")], axis=2)],
            axis=1,
        )

    def _engine(self, n: int, varied: bool) -> batch.Batch:
        if (n, varied) not in self._engines:
            self._engines = {
                (n, varied): batch.Batch(self.model, n, nthread=self.threads)
            }  # one is kept: they are large
        return self._engines[n, varied]
