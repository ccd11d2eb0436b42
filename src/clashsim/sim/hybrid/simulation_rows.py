"""Simulations as rows of arrays: the user's own MjData as one row, or a batch on threads.

The hybrid simulator steps both through the same few arrays (`SimulationRows`).
"""

from __future__ import annotations

from typing import Protocol

import mujoco
import numpy as np
from mujoco import batch

from clashsim.sim.hybrid.contact_probe import ContactProbe

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

    @property
    def probe(self) -> ContactProbe:
        """n simulations of the same scene, to be put anywhere."""

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations by their own timesteps."""

    def update_sensors(self, rows: np.ndarray) -> None:
        """Bring the sensors of these simulations up to date after a step."""


class SingleSim:
    """A user's model and data as one row."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, probe: ContactProbe) -> None:
        self._probe = probe
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

    @property
    def probe(self) -> ContactProbe:
        """One simulation of the user's model as it is now: it may have been changed."""
        self._probe.copy_fields(self._model)
        return self._probe

    def advance(self, rows: np.ndarray) -> None:
        """Step the data by `timestep`."""
        usual_timestep = self._model.opt.timestep
        self._model.opt.timestep = float(self.timestep[0])
        self._data.time = float(self.time[0])
        mujoco.mj_step(self._model, self._data)
        self._model.opt.timestep = usual_timestep
        self.time[0] = self._data.time

    def update_sensors(self, rows: np.ndarray) -> None:
        """Compute all that depends on the new positions and velocities."""
        mujoco.mj_step1(self._model, self._data)


class BatchSim:
    """n simulations of one model in a `mujoco.batch.Batch`.

    Sensors are computed where they are asked for only: that saves a third of each step.

    Attributes:
        batch: MuJoCo's batch.
    """

    def __init__(self, model: mujoco.MjModel, probe: ContactProbe, *, threads: int = 0) -> None:
        n = probe.batch.nsim
        self._probe = probe
        self.batch = batch.Batch(model, n, nthread=threads)
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
        self._flags = self.batch.expand("opt.disableflags")
        self._with_sensors = int(model.opt.disableflags)
        self._without_sensors = self._with_sensors | int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self._flags[:] = self._without_sensors

    @property
    def probe(self) -> ContactProbe:
        """As many simulations of the same models."""
        return self._probe

    def expand(self, field: str) -> list[np.ndarray]:
        """The field of a model with a row per simulation, in the batch and in its probe."""
        return [self.batch.expand(field), self._probe.batch.expand(field)]

    def set_const(self) -> None:
        """Compute what depends on the fields of the models."""
        self.batch.set_const()
        self._probe.batch.set_const()

    def advance(self, rows: np.ndarray) -> None:
        """Step these simulations on threads."""
        ids = None if len(rows) == self.batch.nsim else rows
        self.batch.step(ids=ids)

    def update_sensors(self, rows: np.ndarray) -> None:
        """Compute what depends on the new positions, sensors among it."""
        if len(rows) == 0:
            return
        self._flags[rows] = self._with_sensors
        self.batch.forward(ids=rows, stage=_POSITION_STAGE)
        self._flags[rows] = self._without_sensors

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
