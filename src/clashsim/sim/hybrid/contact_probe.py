"""Many simulations looked at in positions of one's own choice, on threads.

Where in a step a pair touches, and how it responds to an impulse there, depends on positions that
no simulation has at the end of its step. A second batch of the same scene, without contacts but
with sensors of the distances of learned pairs, is put there instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco import batch

from clashsim.sim.hybrid.pairs import WatchedGeoms

_SEARCH_DISTANCE = 1.0  # m: geoms farther apart than this count as this far apart
_POSITION_STAGE = int(mujoco.mjtStage.mjSTAGE_POS)
_NO_FORCES = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
# What the position of a pair, or its response to an impulse, is made of.
_FIELDS = (
    "body_pos",
    "body_quat",
    "body_ipos",
    "body_iquat",
    "body_mass",
    "body_inertia",
    "jnt_pos",
    "jnt_axis",
    "dof_armature",
    "geom_pos",
    "geom_quat",
    "geom_size",
    "pair_solref",
)


def probe_model(
    spec: mujoco.MjSpec, model: mujoco.MjModel, watched: Sequence[Sequence[WatchedGeoms]]
) -> mujoco.MjModel:
    """Compile a scene with sensors of the distances of its learned pairs.

    Args:
        spec: Of `add_learned_pairs`.
        model: Compiled from it; the values of its fields are taken over.
        watched: The geoms of each pair.
    """
    extended = spec.copy()
    for i, parts in enumerate(watched):
        for j, part in enumerate(parts):
            for name, kind in (
                ("distance", mujoco.mjtSensor.mjSENS_GEOMDIST),
                ("nearest", mujoco.mjtSensor.mjSENS_GEOMFROMTO),
            ):
                extended.add_sensor(
                    name=f"clashsim/{name}/{i}/{j}",
                    type=kind,
                    objtype=mujoco.mjtObj.mjOBJ_GEOM,
                    objname=part.struck,
                    reftype=mujoco.mjtObj.mjOBJ_GEOM,
                    refname=part.striker,
                    cutoff=_SEARCH_DISTANCE,
                )
    probe = extended.compile()
    for field in _FIELDS:
        getattr(probe, field)[:] = getattr(model, field)
    probe.opt.disableflags |= int(_NO_FORCES)
    return probe


class ContactProbe:
    """n simulations that can be put into any positions.

    Attributes:
        batch: MuJoCo's batch; `batch.expand(field)` gives a model's field a row per simulation.
        model: Of `probe_model`.
        xpos: (n, nbody, 3), m, positions of bodies where they were last put.
        xquat: (n, nbody, 4), wxyz.
        xmat: (n, nbody, 9).
    """

    def __init__(self, model: mujoco.MjModel, n: int, *, threads: int = 0) -> None:
        self.model = model
        self.batch = batch.Batch(model, n, nthread=threads)
        self._qpos = self.batch.bind("qpos")
        self._sensors = self.batch.bind("sensordata")
        self._inertia = self.batch.bind("M")
        self.xpos = self.batch.bind("xpos")
        self.xquat = self.batch.bind("xquat")
        self.xmat = self.batch.bind("xmat").reshape(n, model.nbody, 9)
        rows = np.repeat(np.arange(model.nv), model.M_rownnz)
        self._inertia_entries = rows, np.array(model.M_colind[: len(rows)], int)

    def copy_fields(self, model: mujoco.MjModel) -> None:
        """Take over what a user has changed in a model since it was compiled."""
        for field in _FIELDS:
            self.batch.expand(field)[:] = getattr(model, field)

    def put(self, rows: np.ndarray, qpos: np.ndarray) -> None:
        """Put simulations `rows` (m,), each at most once, into positions qpos (m, nq)."""
        self._qpos[rows] = qpos
        self.batch.forward(ids=rows, stage=_POSITION_STAGE)

    def coordinates(self, rows: np.ndarray) -> np.ndarray:
        """Positions (m, nq) into which simulations were put."""
        return self._qpos[rows]

    def sensor(self, rows: np.ndarray, address: int, size: int) -> np.ndarray:
        """Values (m, size) of a sensor by its address in sensordata."""
        return self._sensors[rows, address : address + size]

    def inertia(self, rows: np.ndarray, dofs: np.ndarray) -> np.ndarray:
        """Inertia matrices (m, v, v) of degrees of freedom (v,): those of whole trees of bodies."""
        position = np.full(self.model.nv, -1)
        position[dofs] = np.arange(len(dofs))
        i, j = (position[entries] for entries in self._inertia_entries)
        inside = i >= 0
        entries = self._inertia[rows][:, : len(i)][:, inside]
        full = np.zeros((len(rows), len(dofs), len(dofs)))
        full[:, i[inside], j[inside]] = entries
        full[:, j[inside], i[inside]] = entries
        return full

    def jacobian(self, rows: np.ndarray, body: int, point: np.ndarray) -> np.ndarray:
        """Jacobians (m, 6, nv) of the world twist of a body at points (m, 3) of it."""
        linear, angular = self.batch.jac(body, point, ids=rows)
        return np.concatenate([linear, angular], axis=1)

    def solref(self, rows: np.ndarray, pair: int) -> np.ndarray:
        """The solref (m, 2) of a `<pair>` element."""
        expanded = self.batch.expanded("pair_solref")
        if expanded is None:
            return np.tile(self.model.pair_solref[pair], (len(rows), 1))
        return expanded[rows, pair]
