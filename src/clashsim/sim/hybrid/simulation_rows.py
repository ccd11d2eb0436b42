"""Simulations as rows: the user's own MjData as one row, or many on threads, behind the same few
arrays.
"""

from __future__ import annotations

from typing import Protocol

import mujoco
import numpy as np
from mujoco import batch

_STATE = ("qpos", "qvel", "act", "time", "ctrl", "userdata", "qacc_warmstart")
_POS = int(mujoco.mjtStage.mjSTAGE_POS)


class SimulationRows(Protocol):
    """n simulations: live rows of their state, their sensors at that state, and what may differ
    between them.
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
    step: np.ndarray  # (n,) s

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations, each by its own `step`, and bring sensors up to their new state."""

    def model(self, row: int) -> mujoco.MjModel:
        """The model of one simulation, to look at."""


class SingleSim:
    """A user's model and data as a world of one row."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model, self._data = model, data
        self.qpos, self.qvel, self.act, self.ctrl = (
            x[None] for x in (data.qpos, data.qvel, data.act, data.ctrl)
        )
        self.userdata, self.sensors = data.userdata[None], data.sensordata[None]
        self.margin, self.gap = model.pair_margin[None], model.pair_gap[None]
        self.step, self.time = np.array([model.opt.timestep]), np.array([data.time])

    def advance(self, rows: np.ndarray) -> None:
        """Step the data by `step`."""
        usual, self._model.opt.timestep = self._model.opt.timestep, float(self.step[0])
        self._data.time = float(self.time[0])
        mujoco.mj_step(self._model, self._data)
        self._model.opt.timestep = usual
        mujoco.mj_step1(self._model, self._data)  # sensors at the new state, as a batch gives them
        self.time[0] = self._data.time

    def model(self, row: int) -> mujoco.MjModel:
        """The user's model."""
        return self._model


class BatchSim:
    """n simulations of one model in a `mujoco.batch`."""

    def __init__(self, model: mujoco.MjModel, n: int, *, threads: int = 0) -> None:
        self.engine = batch.Batch(model, n, nthread=threads)
        self._shared, self._scratch, self.varied = model, None, False
        bound = {name: self.engine.bind(name) for name in _STATE}
        self.qpos, self.qvel, self.act, self.time, self.userdata = (
            bound[k] for k in ("qpos", "qvel", "act", "time", "userdata")
        )
        self.ctrl, self.warmstart = bound["ctrl"], bound["qacc_warmstart"]
        self.sensors = self.engine.bind("sensordata")
        self.margin, self.gap, self.step = (
            self.engine.expand(k) for k in ("pair_margin", "pair_gap", "opt.timestep")
        )

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations on threads."""
        self.engine.step(ids=None if len(rows) == self.engine.nsim else rows, stage=_POS)

    def model(self, row: int) -> mujoco.MjModel:
        """The shared model, or a copy of this simulation's where theta differs between them."""
        if not self.varied:
            return self._shared
        self._scratch = self.engine.get_model(row, self._scratch)
        return self._scratch

    def begin(self, start: np.ndarray) -> None:
        """Put all simulations at start (n, s), as at time zero."""
        self.engine.reset(stage=0)
        nq, nv = self.qpos.shape[1], self.qvel.shape[1]
        self.qpos[:], self.qvel[:], self.act[:] = np.split(start, [nq, nq + nv], axis=1)
        self.warmstart[:] = 0.0


def state(world: SimulationRows) -> np.ndarray:
    """States (n, s): qpos, qvel and act, one after the other."""
    return np.concatenate([world.qpos, world.qvel, world.act], axis=1)
