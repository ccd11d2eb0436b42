"""Pairs of geoms whose collisions are learned: taken out of MuJoCo's solver, watched by a sensor,
and looked at where they touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.contact_pairs import ensure_named_pair
from clashsim.core.errors import SceneError, did_you_mean
from clashsim.core.mobility import Mobility
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import Scene

# M: surfaces count as touching at this distance, where the nearest points still tell the normal
TOUCH = 0.5e-5
_OUT = (
    -1.0,
    1.0,
)  # margin and gap that keep a pair's contact in the list, at negative distance, without a force


@dataclass(frozen=True, eq=False)
class LearnedPair:
    """Two geoms of a scene and the model of their collision.

    `view` is the scene in which the model was learned, where it is not the one that is simulated;
    the bodies' frames must be the same in both. `theta` is that scene's, for models that take one.
    """

    struck: str
    striker: str
    model: ImpactModel | ThetaModel
    view: Scene | None = None
    theta: np.ndarray | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The same for pairs that can be asked about in one call."""
        return id(self.model), id(self.seen_in)

    @cached_property
    def seen_in(self) -> Scene:
        """The scene in which the model sees the pair."""
        own = (
            self.view
            or getattr(self.model, "scene", None)
            or getattr(getattr(self.model, "base", None), "scene", None)
        )
        if own is None:
            raise SceneError(
                f"the pair of {self.struck!r} and {self.striker!r} needs `view`: the scene that its model was learned in"
            )
        return own


def with_pairs(
    scene: Scene, pairs: tuple[LearnedPair, ...], *, gliding: bool = False
) -> tuple[mujoco.MjSpec, list[str]]:
    """The scene's spec with a named `<pair>`, a contact sensor and two numbers of memory for each
    pair; names of the pairs.

    Where struck bodies may glide by a slide model, further sensors tell whether they touch anything
    but the ground.
    """
    spec = scene.spec.copy()
    geoms, names = {g.name: g for g in spec.geoms if g.name}, []

    def count(name: str, struck: str, other: str | None) -> None:
        """Add a sensor for the number of contacts of a geom, with one other or with all."""
        ref = {} if other is None else {"reftype": mujoco.mjtObj.mjOBJ_GEOM, "refname": other}
        spec.add_sensor(
            name=f"clashsim/{name}",
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            intprm=[1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND), 1, 1],
            objtype=mujoco.mjtObj.mjOBJ_GEOM,
            objname=struck,
            **ref,
        )

    for i, p in enumerate(pairs):
        for name in (p.struck, p.striker):
            if name not in geoms:
                raise SceneError(
                    f"scene {scene.name!r} has no geom named {name!r}; {did_you_mean(name, geoms)}"
                )
        named = next(
            (x for x in spec.pairs if {x.geomname1, x.geomname2} == {p.struck, p.striker}), None
        )
        if named is None or not named.name:
            names.append(f"clashsim/{i}")
            ensure_named_pair(spec, scene.name, geoms[p.struck], geoms[p.striker], names[-1])
        else:
            names.append(named.name)
        if names[-1] in names[:-1]:
            raise SceneError(f"the pair of {p.struck!r} and {p.striker!r} is given twice")
        count(f"found/{i}", p.struck, p.striker)
        if gliding and scene.ground is not None:
            count(f"all/{i}", p.struck, None)
            count(f"ground/{i}", p.struck, scene.ground)
    spec.nuserdata = max(spec.nuserdata, 0) + 2 * len(pairs)
    return spec, names


@dataclass(frozen=True, eq=False)
class ContactState:
    """One pair at the instant it touches; k = 3 in a plane, 6 in space, twists of the struck body's
    origin unless said otherwise.

    before (d,): as in `Impacts`. twist, striker (k,): of the struck body and, at the same point, of
    the striker. point, normal: as in `Contact`. compliance, give (k, k), lever (k,): as in
    `guards.Mechanics`. rates (k, m): change of the struck body's qvel entries by
    twist. recoil (nv, k): change of the striker's qvel by an impulse on it.
    """

    before: np.ndarray
    twist: np.ndarray
    striker: np.ndarray
    point: np.ndarray
    normal: np.ndarray
    compliance: np.ndarray
    give: np.ndarray
    lever: np.ndarray
    rates: np.ndarray
    recoil: np.ndarray

    @property
    def closing(self) -> float:
        """Speed at which the surfaces approach, m/s."""
        return -float(self.lever @ (self.twist - self.striker))


class CompiledPair:
    """A pair in a compiled model: where its rows are, how to take it out of the solver, and what it
    looks like when it touches.
    """

    def __init__(
        self, model: mujoco.MjModel, pair: LearnedPair, name: str, index: int, memory: int
    ) -> None:
        self.pair, self.view = pair, pair.seen_in
        self.row = int(model.pair(name).id)
        self.inside = (float(model.pair_margin[self.row]), float(model.pair_gap[self.row]))
        self.sensor = int(model.sensor(f"clashsim/found/{index}").adr[0])
        gliding = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, f"clashsim/all/{index}") >= 0
        self.around = (
            tuple(int(model.sensor(f"clashsim/{k}/{index}").adr[0]) for k in ("all", "ground"))
            if gliding
            else None
        )
        # In userdata, so that they travel with the state: whether MuJoCo has the pair (1) or had
        # its last collision (-1), and the time since that ended (0: none).
        self.phase, self.since = memory + 2 * index, memory + 2 * index + 1
        self.geoms = int(model.geom(pair.struck).id), int(model.geom(pair.striker).id)
        self.body = Mobility.of(model, pair.struck)
        if self.body.fixed:
            raise SceneError(
                f"the struck geom {pair.struck!r} is fixed to the world; name the moving geom as struck"
            )
        self.hitter = int(model.body_weldid[int(model.geom_bodyid[self.geoms[1]])])
        self.plane = self.view.plane
        self.k = 6 if self.plane is None else 3
        flat = self.view.ground is not None and int(
            self.view.base.geom(self.view.ground).type[0]
        ) == int(mujoco.mjtGeom.mjGEOM_PLANE)
        self.flat = (
            flat and self.body.free
        )  # lies on a plane without an edge that it could tip over
        self.normal = np.zeros(3) if self.plane is None else self.plane[2]
        self.up = self.view.struck_body.rotation.T @ self.normal  # in the body's own axes
        self.turn = self.view.struck_body.rotation  # of the body at yaw zero
        self._turns = self.turn, self.view.striker_body.rotation

    def switch(self, held: bool, margin: np.ndarray, gap: np.ndarray) -> None:
        """Give the pair's contact to MuJoCo (held) or take it out, in rows of margin and gap (...,
        npair).
        """
        margin[..., self.row], gap[..., self.row] = self.inside if held else _OUT

    def alone(self, sensors: np.ndarray) -> np.ndarray:
        """Whether struck bodies touch nothing but the ground and their striker, (n,), by rows of
        sensors (n, .).
        """
        if self.around is None:
            return np.zeros(len(sensors), bool)
        return sensors[:, self.around[0]] <= sensors[:, self.around[1]] + sensors[:, self.sensor]

    def distance(
        self, model: mujoco.MjModel, data: mujoco.MjData, ends: np.ndarray | None = None
    ) -> float:
        """Signed distance (m) of the geoms as `data` has them; `ends` (6,) gets the nearest points,
        struck first.
        """
        return float(mujoco.mj_geomDistance(model, data, *self.geoms, 1.0, ends))

    def meet(self, model: mujoco.MjModel, data: mujoco.MjData) -> ContactState | None:
        """The pair as `data` (qpos, qvel) has it; None where no normal can be told."""
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_makeM(model, data)
        mujoco.mj_factorM(model, data)
        ends = np.zeros(6)
        far = self.distance(model, data, ends)
        basis = np.eye(3) if self.plane is None else self.plane[:2]
        gap = basis @ (ends[:3] - ends[3:]) * (1.0 if far > 0 else -1.0)
        size = float(np.linalg.norm(gap))
        if size < 1e-12:
            return None
        normal, origin = gap / size, data.xpos[self.body.body].copy()
        struck, (at_striker, motion) = (
            self._twist(model, data, self.body.body, origin)[0],
            self._twist(model, data, self.hitter, origin),
        )
        own = self._twist(model, data, self.hitter, data.xpos[self.hitter].copy())[0]
        point = basis @ ends[3:]
        arm = point - basis @ origin
        side = (
            np.cross(arm, normal)
            if self.plane is None
            else [arm[0] * normal[1] - arm[1] * normal[0]]
        )
        pose = [
            self._pose(data, body, turn)
            for body, turn in zip((self.body.body, self.hitter), self._turns, strict=True)
        ]
        rows = self._rows()
        rates = self.body.rates(
            rows[:, :3],
            rows[:, 3:],
            np.repeat(data.xmat[self.body.body].reshape(1, 3, 3), self.k, 0),
        )
        recoil, heavy, full = (
            np.zeros((model.nv, self.k)),
            np.zeros((self.k, model.nv)),
            np.zeros((self.k, model.nv)),
        )
        full[:, self.body.qvel] = rates
        for i in range(self.k):
            mujoco.mj_mulM(model, data, heavy[i], full[i])
        if motion.any():
            x = np.zeros((self.k, model.nv))
            mujoco.mj_solveM(model, data, x, motion)
            recoil = x.T
        return ContactState(
            np.concatenate([pose[0], struck, pose[1], own]),
            struck,
            at_striker,
            point,
            normal,
            np.linalg.inv(full @ heavy.T),
            motion @ recoil,
            np.concatenate([normal, side]),
            rates,
            recoil,
        )

    def pose(
        self, model: mujoco.MjModel, data: mujoco.MjData, before: np.ndarray
    ) -> list[ContactState]:
        """Touching pairs of the scene that is simulated, from `before` (N, d)."""
        qpos, qvel = np.tile(model.qpos0, (len(before), 1)), np.zeros((len(before), model.nv))
        PairPoser(self.view).write(before, qpos, qvel)
        out = []
        for data.qpos[:], data.qvel[:] in zip(qpos, qvel, strict=True):
            met = self.meet(model, data)
            assert met is not None  # bodies that were brought to touch are a little apart
            out.append(met)
        return out

    def _rows(self) -> np.ndarray:
        """(k, 6): from linear and angular velocity in world axes to a twist."""
        if self.plane is None:
            return np.eye(6)
        rows = np.zeros((3, 6))
        rows[:2, :3], rows[2, 3:] = self.plane[:2], self.plane[2]
        return rows

    def _twist(
        self, model: mujoco.MjModel, data: mujoco.MjData, body: int, point: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Twist (k,) of a body as if `point` belonged to it, and its Jacobian (k, nv)."""
        jac = np.zeros((6, model.nv))
        mujoco.mj_jac(model, data, jac[:3], jac[3:], point, body)
        jac = self._rows() @ jac
        return jac @ data.qvel, jac

    def _pose(self, data: mujoco.MjData, body: int, turn: np.ndarray) -> np.ndarray:
        if self.plane is None:
            return np.concatenate([data.xpos[body], data.xquat[body]])
        e1, e2, _ = self.plane
        along = (data.xmat[body].reshape(3, 3) @ turn.T) @ e1
        return np.array(
            [e1 @ data.xpos[body], e2 @ data.xpos[body], np.arctan2(e2 @ along, e1 @ along)]
        )
