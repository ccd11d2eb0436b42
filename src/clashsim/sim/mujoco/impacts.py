"""Impacts in MuJoCo: many at once, each from the first touch to the parting of the pair."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import mujoco
import numpy as np
from mujoco import batch
from scipy.interpolate import RegularGridInterpolator

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.params import from_unit
from clashsim.core.scene import GROUND, Scene

# A pair that stays together has ended its impact when it closes at less than this share of the
# approach speed
SETTLED = 0.02


class ImpactEnd(IntEnum):
    """How an impact ended."""

    PARTED = 0  # the surfaces separated
    SETTLED = 1  # they stay together and no longer approach: what follows is a push, not an impact
    UNFINISHED = 2  # neither within the time allowed
    UNSTABLE = 3  # MuJoCo warned or the state is not finite


@dataclass(frozen=True, eq=False)
class ImpactOutcome:
    """after (N, k): twist of the struck body at the end; end (N,): `ImpactEnd`; steps (N,): simulation
    steps each impact took.
    """

    after: np.ndarray
    end: np.ndarray
    steps: np.ndarray

    @property
    def usable(self) -> np.ndarray:
        """Rows with an end, (N,)."""
        return self.end <= ImpactEnd.SETTLED


class ImpactSimulator:
    """Runs impacts of one scene in batches of `size` simulations that are built once and used
    again.
    """

    def __init__(self, scene: Scene, size: int = 4096, *, threads: int = 0) -> None:
        self.scene, self.size = scene, size
        self.engine = batch.Batch(scene.base, size, nthread=threads)
        self.qpos, self.qvel = self.engine.bind("qpos"), self.engine.bind("qvel")
        self.warmstart = self.engine.bind("qacc_warmstart")
        self.ctrl = self.engine.bind("ctrl") if scene.base.nu else None
        self.sensors = self.engine.bind("sensordata")
        self.sensor = int(scene.base.sensor("clashsim/contact").adr[0])
        self.fields = {
            slot.field: self.engine.expand(slot.field) for slot in scene.slots if slot is not None
        }
        self.drives = velocity_servos(scene)
        self.start = np.array(scene.base.qpos0)

    def __call__(
        self, before: np.ndarray, theta: np.ndarray, *, duration: float = 0.25
    ) -> ImpactOutcome:
        """Outcomes of impacts that start touching: before (N, d), theta (p,) or (N, p)."""
        n = len(before)
        theta = np.broadcast_to(theta, (n, len(self.scene.params)))
        parts = [
            self._run(before[i : i + self.size], theta[i : i + self.size], duration)
            for i in range(0, n, self.size)
        ]
        return ImpactOutcome(
            *(np.concatenate([getattr(p, f) for p in parts]) for f in ("after", "end", "steps"))
        )

    def _run(self, before: np.ndarray, theta: np.ndarray, duration: float) -> ImpactOutcome:
        n, scene = len(before), self.scene
        poser = PairPoser(scene, rest_height(scene, theta))
        ids = np.arange(n)
        scene.write(theta, lambda name: self.fields[name][:n])
        _follow_sizes(scene, self.engine, self.fields, n)
        if scene.needs_const:
            self.engine.set_const(ids=ids)
        self.engine.reset(ids=ids, stage=0)
        self.qpos[:n], self.qvel[:n], self.warmstart[:n] = self.start, 0.0, 0.0
        qpos, qvel = self.qpos[:n].copy(), self.qvel[:n].copy()
        poser.write(before, qpos, qvel)
        self.qpos[:n], self.qvel[:n] = qpos, qvel
        if self.ctrl is not None:
            for actuator, dof in self.drives:
                self.ctrl[:n, actuator] = qvel[:, dof]
        speed = np.zeros(n)
        end, steps = np.full(n, int(ImpactEnd.UNFINISHED)), np.zeros(n, int)
        last_pos, last_vel = np.empty_like(qpos), np.empty_like(qvel)
        touched, quiet = np.zeros(n, bool), np.zeros(n, int)
        active = ids
        hold = patience(scene)
        for _ in range(max(1, round(duration / scene.base.opt.timestep))):
            whole = len(active) == n
            qpos, qvel = (
                (self.qpos[:n].copy(), self.qvel[:n].copy())
                if whole
                else (self.qpos[active], self.qvel[active])
            )
            last_pos[active], last_vel[active] = qpos, qvel
            self.engine.step(ids=None if whole and n == self.size else active)
            steps[active] += 1
            # Sensors describe the state before the step, which is the one just kept.
            found = self.sensors[active, self.sensor] > 0
            rate = self.sensors[
                active, self.sensor + 1
            ]  # normal velocity, negative while the bodies approach
            first = found & ~touched[active]
            speed[active[first]] = np.abs(rate[first])
            quiet[active] = np.where(
                found & (np.abs(rate) < SETTLED * speed[active]), quiet[active] + 1, 0
            )
            parted = touched[active] & ~found
            touched[active] |= found
            broken = ~np.isfinite(qvel).all(1) | (np.abs(qvel) > 1e6).any(1)
            settled = quiet[active] >= hold
            end[active[settled]] = ImpactEnd.SETTLED
            end[active[parted]] = ImpactEnd.PARTED
            end[active[broken]] = ImpactEnd.UNSTABLE
            active = active[~(parted | settled | broken)]
            if len(active) == 0:
                break
        after = poser.scene_twist(*scene.struck_body.twist(last_pos, last_vel))
        return ImpactOutcome(after, end, steps)


def patience(scene: Scene) -> int:
    """Steps that a pair has to stay together to be settled: 3 ms of them, for it may just pass
    through zero.
    """
    return max(2, round(0.003 / scene.base.opt.timestep))


def velocity_servos(scene: Scene) -> list[tuple[int, int]]:
    """(actuator, dof) of velocity servos on the striker's joints: they are told to keep the speed
    of the strike.
    """
    m, out = scene.base, []
    for a in range(m.nu):
        joint = int(m.actuator_trnid[a, 0])
        if m.actuator_biasprm[a, 2] < 0 and int(m.jnt_bodyid[joint]) == scene.striker_body.body:
            out.append((a, int(m.jnt_dofadr[joint])))
    return out


def _follow_sizes(scene: Scene, engine: batch.Batch, fields: dict[str, np.ndarray], n: int) -> None:
    """Let bounding radii follow geom sizes that are parameters, or the broad phase would miss grown
    geoms.
    """
    if "geom_size" not in fields:
        return
    size = fields["geom_size"][:n]
    types = scene.base.geom_type
    radius = engine.expand("geom_rbound")[:n]
    for g in {
        row
        for slot in scene.slots
        if slot is not None and slot.field == "geom_size"
        for row in slot.rows
    }:
        kind = int(types[g])
        if kind == int(mujoco.mjtGeom.mjGEOM_BOX):
            radius[:, g] = np.linalg.norm(size[:, g], axis=1)
        elif kind in (int(mujoco.mjtGeom.mjGEOM_CYLINDER), int(mujoco.mjtGeom.mjGEOM_CAPSULE)):
            radius[:, g] = size[:, g, :2].sum(1)
        else:
            radius[:, g] = size[:, g].max(1)


def rest_height(scene: Scene, theta: np.ndarray) -> np.ndarray | None:
    """Height (N,) of a free struck body at rest on the ground, by theta (N, p): soft ground sinks
    as its solref says.
    """
    if scene.ground is None or not scene.struck_body.free:
        return None
    axes, table = _rest_table(scene)
    if not axes:
        return np.full(len(theta), table)
    return RegularGridInterpolator([x for _, x in axes], table)(theta[:, [i for i, _ in axes]])


@lru_cache(maxsize=32)
def _rest_table(scene: Scene) -> tuple:
    """Rest heights on a grid over the parameters that change how far the body sinks in."""
    which = [
        i
        for i, p in enumerate(scene.params)
        if p.target.startswith((f"pair/{GROUND}/sol", "option/gravity"))
    ]
    grid = [np.linspace(-1, 1, 17 if len(which) < 3 else 5) for _ in which]
    mesh = (
        np.stack([g.ravel() for g in np.meshgrid(*grid, indexing="ij")], 1)
        if which
        else np.zeros((1, 0))
    )
    theta = np.tile(scene.nominal, (len(mesh), 1))
    natural = [
        from_unit([scene.params[i]], g[:, None])[:, 0] for i, g in zip(which, grid, strict=True)
    ]
    for k, i in enumerate(which):
        theta[:, i] = from_unit([scene.params[i]], mesh[:, k : k + 1])[:, 0]
    engine = batch.Batch(scene.base, len(mesh))
    scene.write(theta, engine.expand)
    body = scene.struck_body
    qpos, qvel = engine.bind("qpos"), engine.bind("qvel")
    for _ in range(
        40
    ):  # let it sink, killing the velocity now and then so that bouncy ground comes to rest as well
        engine.step(nstep=max(1, round(0.01 / scene.base.opt.timestep)))
        qvel[:, body.qvel] *= 0.3
    assert scene.plane is not None
    heights = qpos[:, body.qpos[:3]] @ scene.plane[2]
    axes = list(zip(which, natural, strict=True))
    return axes, heights.reshape([len(g) for g in grid]) if which else float(heights[0])


def simulate_impacts(
    scene: Scene, before: np.ndarray, theta: np.ndarray, *, threads: int = 0, size: int = 4096
) -> ImpactOutcome:
    """Outcomes of impacts in MuJoCo for one call; keep a `ImpactSimulator` to call many times."""
    return ImpactSimulator(scene, min(size, max(1, len(before))), threads=threads)(before, theta)
