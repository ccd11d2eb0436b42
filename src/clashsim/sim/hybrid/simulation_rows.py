"""Simulations as rows of arrays: the user's own MjData as one row, or a batch on threads.

The hybrid simulator steps both through the same few arrays (`SimulationRows`).
"""

from __future__ import annotations

from typing import Protocol

import mujoco
import numpy as np
from mujoco import batch

_STATE = ("qpos", "qvel", "act", "time", "ctrl", "userdata", "qacc_warmstart")
# Up to this stage a batch computes the new state after a step, which brings its sensors up to date.
_POSITION_STAGE = int(mujoco.mjtStage.mjSTAGE_POS)


class SimulationRows(Protocol):
    """n simulations: live rows of their states, sensors and the settings that may differ.

    Attributes:
        qpos: (n, nq), written to in place like the other arrays.
        qvel: (n, nv).
        act: (n, na).
        ctrl: (n, nu).
        time: (n,), s.
        userdata: (n, nuserdata), memory that travels with the state.
        sensors: (n, nsensordata), at the present state.
        margin: (n, npair), of contact pairs, m.
        gap: (n, npair), of contact pairs, m.
        timestep: (n,), s, of the next step of each simulation.
    """

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    time: np.ndarray
    userdata: np.ndarray
    sensors: np.ndarray
    margin: np.ndarray
    gap: np.ndarray
    timestep: np.ndarray

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations by their own timesteps, and bring their sensors up to date."""

    def model(self, row: int) -> mujoco.MjModel:
        """The model of one simulation, for reading only."""


class SingleSim:
    """A user's model and data as one row."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model = model
        self._data = data
        self.qpos = data.qpos[None]
        self.qvel = data.qvel[None]
        self.act = data.act[None]
        self.ctrl = data.ctrl[None]
        self.userdata = data.userdata[None]
        self.sensors = data.sensordata[None]
        self.margin = model.pair_margin[None]
        self.gap = model.pair_gap[None]
        self.timestep = np.array([model.opt.timestep])
        self.time = np.array([data.time])

    def advance(self, rows: np.ndarray) -> None:
        """Step the data by `timestep`."""
        usual_timestep = self._model.opt.timestep
        self._model.opt.timestep = float(self.timestep[0])
        self._data.time = float(self.time[0])
        mujoco.mj_step(self._model, self._data)
        self._model.opt.timestep = usual_timestep
        mujoco.mj_step1(self._model, self._data)  # sensors at the new state, as a batch gives them
        self.time[0] = self._data.time

    def model(self, row: int) -> mujoco.MjModel:
        """The user's model."""
        return self._model


class BatchSim:
    """n simulations of one model in a `mujoco.batch.Batch`.

    Attributes:
        batch: MuJoCo's batch; `batch.expand(field)` gives a model's field a row per simulation.
        varied: Whether the simulations have parameters of their own.
    """

    def __init__(self, model: mujoco.MjModel, n: int, *, threads: int = 0) -> None:
        self.batch = batch.Batch(model, n, nthread=threads)
        self.varied = False
        self._shared_model = model
        self._scratch_model: mujoco.MjModel | None = None
        state = {name: self.batch.bind(name) for name in _STATE}
        self.qpos = state["qpos"]
        self.qvel = state["qvel"]
        self.act = state["act"]
        self.time = state["time"]
        self.ctrl = state["ctrl"]
        self.userdata = state["userdata"]
        self.warmstart = state["qacc_warmstart"]
        self.sensors = self.batch.bind("sensordata")
        self.margin = self.batch.expand("pair_margin")
        self.gap = self.batch.expand("pair_gap")
        self.timestep = self.batch.expand("opt.timestep")

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations on threads."""
        ids = None if len(rows) == self.batch.nsim else rows
        self.batch.step(ids=ids, stage=_POSITION_STAGE)

    def model(self, row: int) -> mujoco.MjModel:
        """The shared model, or a copy of this simulation's where theta differs between them."""
        if not self.varied:
            return self._shared_model
        self._scratch_model = self.batch.get_model(row, self._scratch_model)
        return self._scratch_model

    def begin(self, start: np.ndarray) -> None:
        """Put all simulations at states start (n, s), at time zero."""
        self.batch.reset(stage=0)
        nq = self.qpos.shape[1]
        nv = self.qvel.shape[1]
        self.qpos[:] = start[:, :nq]
        self.qvel[:] = start[:, nq : nq + nv]
        self.act[:] = start[:, nq + nv :]
        self.warmstart[:] = 0.0


def states(sims: SimulationRows) -> np.ndarray:
    """States (n, s) of all simulations: qpos, qvel and act, one after the other."""
    return np.concatenate([sims.qpos, sims.qvel, sims.act], axis=1)
