"""MuJoCo itself as a simulator, to compare with."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.scene_model import SceneModel
from clashsim.sim.inputs import check_rollout, check_theta, nothing_to_step

_STATE = ("qpos", "qvel", "act")


class MujocoSim:
    """A scene with MuJoCo's own collisions.

    Attributes:
        scene: The scene.
        model: The compiled MuJoCo model.
    """

    def __init__(
        self,
        scene: SceneModel,
        theta: np.ndarray | None = None,
        *,
        timestep: float | None = None,
        threads: int = 0,
    ) -> None:
        """Compile a scene.

        Args:
            scene: The scene to simulate.
            theta: (p,), parameters of the scene; the author's values where None.
            timestep: s, replaces the author's.
            threads: Of a batch; 0 takes one for each core.
        """
        self.scene = scene
        self.threads = threads
        self.model = scene.model(check_theta(scene.params, theta))
        if timestep is not None:
            self.model.opt.timestep = timestep
        self._batches: dict[tuple[int, bool], batch.Batch] = {}

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate N trajectories.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p), replaces that of the simulator.

        Returns:
            States (N, T + 1, s), the start included.
        """
        start, control = check_rollout(self.model, start, control)
        n = len(start)
        theta = check_theta(self.scene.params, theta, n)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        simulations = self._batch(n, varied=theta is not None)
        if theta is not None:
            rows = np.broadcast_to(theta, (n, len(self.scene.params)))
            self.scene.write(rows, simulations.expand)
            if self.scene.needs_const:
                simulations.set_const()
        simulations.reset(stage=0)
        nq = self.model.nq
        nv = self.model.nv
        parts = np.split(start, [nq, nq + nv], axis=1)
        for name, part in zip(_STATE, parts, strict=True):
            simulations.bind(name)[:] = part
        record = simulations.rollout(
            control.shape[1], control, int(mujoco.mjtState.mjSTATE_CTRL), record=_STATE
        )
        states = np.concatenate([record[name] for name in _STATE], axis=2)
        return np.concatenate([start[:, None], states], axis=1)

    def _batch(self, n: int, *, varied: bool) -> batch.Batch:
        """A batch of n simulations; only the last one is kept, because they are large."""
        if (n, varied) not in self._batches:
            self._batches = {(n, varied): batch.Batch(self.model, n, nthread=self.threads)}
        return self._batches[n, varied]
