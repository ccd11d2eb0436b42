"""Impacts in MuJoCo: many at once, each from the first touch to the parting of the pair."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial

import mujoco
import numpy as np
from mujoco import batch
from scipy.interpolate import RegularGridInterpolator

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.ground_surface import GroundSurface
from clashsim.core.impacts import MotionBefore
from clashsim.core.kinematics import Kinematics
from clashsim.core.mobility import Mobility
from clashsim.core.params import Param, from_unit, pair_rows
from clashsim.core.resting import (
    SINK_KEPT_VELOCITY,
    SINK_ROUNDS,
    SINK_TIME,
    on_ground_alone,
    rest_pose,
    settled_on_ground,
)
from clashsim.core.scene import CONTACT_SENSOR, GROUND, STRIKE, Scene
from clashsim.core.workers import default_threads

# A pair that stays together has ended its impact when it closes at less than this share of the
# approach speed.
SETTLED = 0.02
# s: for which it has to close so slowly, since a pair that bounces also passes through zero speed.
SETTLING_TIME = 0.003
# Of a time step: bodies begin this long after their touch. In a simulation that did not know of the
# touch, the first step in contact begins anywhere between the touch and a step later, and outcomes
# depend on it; parameters that are identified half-way hold on average.
HALF_STEP = 0.5
MAX_SPEED = 1e6  # m/s or rad/s: beyond this a simulation counts as unstable
# Points along each axis of the grid over parameters that change how far a body sinks in.
_FINE_SINK_POINTS = 17
_COARSE_SINK_POINTS = 5  # where there are three parameters or more
_SAME_HEIGHT = 1e-5  # m, between rest poses that a body sinks in from alike


class ImpactEnd(IntEnum):
    """How an impact ended."""

    PARTED = 0  # the surfaces separated
    SETTLED = 1  # they stay together and no longer approach: what follows is a push, not an impact
    UNFINISHED = 2  # neither parted nor settled within the time allowed
    UNSTABLE = 3  # MuJoCo warned or the state is not finite


@dataclass(frozen=True, eq=False)
class ImpactOutcome:
    """Outcomes of N simulated impacts.

    Attributes:
        after: (N, k), twist of the struck body at the end, m/s and rad/s, axes of the scene.
        end: (N,), `ImpactEnd`.
        steps: (N,), simulation steps that each impact took.
        striker_after: (N, k), twist of the striker at the end; None where it was not asked for.
    """

    after: np.ndarray
    end: np.ndarray
    steps: np.ndarray
    striker_after: np.ndarray | None = None

    @property
    def usable(self) -> np.ndarray:
        """Whether impacts (N,) ended by parting or settling."""
        return self.end <= ImpactEnd.SETTLED


def run_in_batches(
    run: Callable[[np.ndarray, np.ndarray], ImpactOutcome],
    before: np.ndarray,
    theta: np.ndarray,
    size: int,
) -> ImpactOutcome:
    """Run impacts, `size` at a time.

    Args:
        run: Runs up to `size` impacts, from their motion before and their parameters.
        before: (N, d), columns as in `Impacts`.
        theta: (N, p), parameters of the scene.
        size: Impacts in one call.

    Returns:
        The outcomes of all N.
    """
    parts = []
    for first in range(0, len(before), size):
        rows = slice(first, first + size)
        parts.append(run(before[rows], theta[rows]))
    return ImpactOutcome(
        np.concatenate([part.after for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate([part.steps for part in parts]),
        _joined([part.striker_after for part in parts]),
    )


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Parts (n, k) as one array (N, k); None where they are."""
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None


class ImpactSimulator:
    """Runs impacts of one scene in MuJoCo, in batches that are built once and used again.

    Attributes:
        scene: The scene.
        size: Simulations in a batch.
    """

    def __init__(self, scene: Scene, size: int = 4096, *, threads: int = 0) -> None:
        """Build a batch.

        Args:
            scene: Whose pair collides.
            size: Simulations in a batch.
            threads: Of a batch; 0 takes one for each core.
        """
        self.scene = scene
        self.size = size
        model = without_position_control(scene)
        self._batch = batch.Batch(model, size, nthread=threads or default_threads())
        self._qpos = self._batch.bind("qpos")
        self._qvel = self._batch.bind("qvel")
        self._warmstart = self._batch.bind("qacc_warmstart")
        self._ctrl = self._batch.bind("ctrl") if scene.base.nu else None
        self._applied = self._batch.bind("qfrc_applied") if balanced_trees(scene) else None
        self._sensors = self._batch.bind("sensordata")
        self._contact_sensors = contact_sensors(scene.base)
        self._fields = {
            part.field: self._batch.expand(part.field)
            for slot in scene.slots
            if slot is not None
            for part in slot.parts
        }
        self._servos = velocity_servos(scene)

    def __call__(
        self,
        before: np.ndarray,
        theta: np.ndarray,
        *,
        duration: float = 0.25,
        of_striker: bool = False,
    ) -> ImpactOutcome:
        """Run impacts of pairs that touch at the start.

        Args:
            before: (N, d), columns as in `Impacts`.
            theta: (p,) or (N, p), parameters of the scene.
            duration: s, after which an impact counts as unfinished.
            of_striker: Whether the striker's outcome is wanted too.
        """
        theta = np.broadcast_to(theta, (len(before), len(self.scene.params)))
        run = partial(self._run, duration=duration, of_striker=of_striker)
        return run_in_batches(run, before, theta, self.size)

    def _run(
        self, before: np.ndarray, theta: np.ndarray, *, duration: float, of_striker: bool
    ) -> ImpactOutcome:
        """Run up to `size` impacts."""
        n = len(before)
        scene = self.scene
        poser = PairPoser(scene, rest_height(scene, theta))
        self._start(raised_onto_ground(scene, before, theta), theta, poser)
        progress = _ImpactProgress(n, settling_steps(scene))
        last_qpos = np.empty((n, self._qpos.shape[1]))
        last_qvel = np.empty((n, self._qvel.shape[1]))
        active = np.arange(n)
        for _ in range(max(1, round(duration / scene.base.opt.timestep))):
            all_active = len(active) == n
            # A slice is quicker than indices while all impacts go on.
            qpos = self._qpos[:n].copy() if all_active else self._qpos[active]
            qvel = self._qvel[:n].copy() if all_active else self._qvel[active]
            last_qpos[active] = qpos
            last_qvel[active] = qvel
            self._batch.step(ids=None if all_active and n == self.size else active)
            # Sensors describe the state before the step, which is the one just kept.
            touching, normal_velocity = self._contacts(active)
            active = progress.update(
                active, touching=touching, normal_velocity=normal_velocity, qvel=qvel
            )
            if len(active) == 0:
                break
        after = poser.scene_twist(*scene.struck_body.twist(last_qpos, last_qvel))
        striker_after = None
        if of_striker:
            striker_after = poser.scene_twist(*scene.striker_body.twist(last_qpos, last_qvel))
        return ImpactOutcome(after, progress.end, progress.steps, striker_after)

    def _contacts(self, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether pairs (a,) touch, and the normal velocity (a,), m/s, of the deepest contacts."""
        first = self._contact_sensors
        found = self._sensors[active[:, None], first] > 0
        distance = np.where(found, self._sensors[active[:, None], first + 1], np.inf)
        deepest = first[np.argmin(distance, axis=1)]
        return found.any(1), self._sensors[active, deepest + 2]

    def _start(self, before: np.ndarray, theta: np.ndarray, poser: PairPoser) -> None:
        """Put the first simulations at the start of their impacts."""
        n = len(before)
        ids = np.arange(n)
        self.scene.write(theta, lambda name: self._fields[name][:n])
        _update_bounding_radii(self.scene, self._batch, self._fields, n=n)
        if self.scene.needs_const:
            self._batch.set_const(ids=ids)
        self._batch.reset(ids=ids, stage=0)
        self._warmstart[:n] = 0.0
        qpos = np.tile(self.scene.base.qpos0, (n, 1))
        qvel = np.zeros((n, self._qvel.shape[1]))
        poser.write(before, qpos, qvel)
        self._qpos[:n] = after_touch(self.scene, qpos, qvel)
        self._qvel[:n] = qvel
        if self._ctrl is not None:
            for actuator, dof in self._servos:
                self._ctrl[:n, actuator] = qvel[:, dof]
        if self._applied is not None:
            self._applied[:n] = balancing_forces(self.scene, qpos, qvel)


def after_touch(scene: Scene, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Where impacts begin whose bodies touch at qpos: half a time step later; see `HALF_STEP`.

    Args:
        scene: The scene.
        qpos: (n, nq).
        qvel: (n, nv).

    Returns:
        (n, nq).
    """
    step = HALF_STEP * scene.base.opt.timestep * qvel
    return Kinematics(scene.base).integrate(qpos, step)


def contact_sensors(model: mujoco.MjModel) -> np.ndarray:
    """Indices (P,) in sensordata of the number of contacts of each pair of geoms of a strike.

    The distance (m) and the normal velocity (m/s) of its deepest contact follow each of them.

    Args:
        model: Of a scene.
    """
    parts = range(len(pair_rows(model, STRIKE)))
    return np.array([int(model.sensor(f"{CONTACT_SENSOR}/{i}").adr[0]) for i in parts])


class _ImpactProgress:
    """How far n impacts have come, from what their contact sensors report step by step."""

    def __init__(self, n: int, settling_steps: int) -> None:
        self.end = np.full(n, int(ImpactEnd.UNFINISHED))
        self.steps = np.zeros(n, int)
        self._settling_steps = settling_steps
        self._approach_speed = np.zeros(n)
        self._touched = np.zeros(n, bool)
        self._quiet_steps = np.zeros(n, int)

    def update(
        self,
        active: np.ndarray,
        *,
        touching: np.ndarray,
        normal_velocity: np.ndarray,
        qvel: np.ndarray,
    ) -> np.ndarray:
        """Take one step into account.

        Args:
            active: (a,), indices of the impacts that were stepped.
            touching: (a,), whether the pair touched.
            normal_velocity: (a,), m/s, negative while the bodies approach.
            qvel: (a, nv), of the state that the other arguments describe.

        Returns:
            Indices of the impacts that go on.
        """
        speed = np.abs(normal_velocity)
        self.steps[active] += 1
        first_touch = touching & ~self._touched[active]
        self._approach_speed[active[first_touch]] = speed[first_touch]
        quiet = touching & (speed < SETTLED * self._approach_speed[active])
        self._quiet_steps[active] = np.where(quiet, self._quiet_steps[active] + 1, 0)
        parted = self._touched[active] & ~touching
        self._touched[active] |= touching
        settled = self._quiet_steps[active] >= self._settling_steps
        unstable = ~np.isfinite(qvel).all(1) | (np.abs(qvel) > MAX_SPEED).any(1)
        # Where several hold, the last one written counts.
        self.end[active[settled]] = ImpactEnd.SETTLED
        self.end[active[parted]] = ImpactEnd.PARTED
        self.end[active[unstable]] = ImpactEnd.UNSTABLE
        return active[~(parted | settled | unstable)]


def settling_steps(scene: Scene) -> int:
    """Steps that a pair has to stay together to count as settled."""
    return max(2, round(SETTLING_TIME / scene.base.opt.timestep))


def velocity_servos(scene: Scene) -> list[tuple[int, int]]:
    """(actuator, dof) of the striker's velocity servos, which keep the speed of the strike."""
    model = scene.base
    servos = []
    if scene.striker_body.mechanism is not None:
        return []
    for actuator, dof in driven_joints(model, scene.striker_body):
        _, position_gain, velocity_gain = model.actuator_biasprm[actuator, :3]
        if velocity_gain < 0 and position_gain == 0:
            servos.append((actuator, dof))
    return servos


def driven_joints(model: mujoco.MjModel, body: Mobility) -> list[tuple[int, int]]:
    """(actuator, dof) of all actuators on joints that move a body."""
    dofs = body.qvel if body.mechanism is None else body.mechanism.tree
    joints = np.unique(model.dof_jntid[dofs])
    found = []
    for actuator in range(model.nu):
        joint = int(model.actuator_trnid[actuator, 0])
        kind = int(model.actuator_trntype[actuator])
        if kind == int(mujoco.mjtTrn.mjTRN_JOINT) and joint in joints:
            found.append((actuator, int(model.jnt_dofadr[joint])))
    return found


def joint_damping(model: mujoco.MjModel, body: Mobility) -> np.ndarray:
    """Damping (nv,), of the joints that move a body, by themselves and by their servos."""
    damping = np.array(model.dof_damping)
    for actuator, dof in driven_joints(model, body):
        gear = float(model.actuator_gear[actuator, 0])
        if int(model.actuator_biastype[actuator]) == int(mujoco.mjtBias.mjBIAS_AFFINE):
            damping[dof] -= gear**2 * float(model.actuator_biasprm[actuator, 2])
    return damping


@lru_cache(maxsize=64)
def balanced_trees(scene: Scene) -> tuple[np.ndarray, ...]:
    """Indices in qvel of all that moves with each body of the pair that a controller drives.

    Velocity servos are not among them, since their own input keeps the speed.
    """
    model = scene.base
    servos = velocity_servos(scene)
    trees = []
    for body in (scene.struck_body, scene.striker_body):
        if any(driven not in servos for driven in driven_joints(model, body)):
            tree = model.dof_treeid[body.qvel[0]]
            trees.append(np.flatnonzero(model.dof_treeid == tree))
    return tuple(trees)


@lru_cache(maxsize=64)
def without_position_control(scene: Scene) -> mujoco.MjModel:
    """The scene's model, in which the actuators of `balanced_trees` have no position to hold.

    The position that a controller wants moves along during an impact, so that it makes no
    difference; to a fixed one it would pull the body back.
    """
    dofs = {int(dof) for tree in balanced_trees(scene) for dof in tree}
    if not dofs:
        return scene.base
    model = copy.copy(scene.base)
    for body in (scene.struck_body, scene.striker_body):
        for actuator, dof in driven_joints(model, body):
            if dof in dofs:
                model.actuator_biasprm[actuator, :2] = 0.0
    return model


def balancing_forces(scene: Scene, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Forces (n, nv) with which the joints of `balanced_trees` keep their velocity.

    A controller has brought them to that velocity; it goes on with the forces of that instant.

    Args:
        scene: The scene.
        qpos: (n, nq).
        qvel: (n, nv).
    """
    forces = np.zeros_like(qvel)
    model = without_position_control(scene)
    data = mujoco.MjData(model)
    joint_of_coordinate = np.searchsorted(model.jnt_qposadr, np.arange(model.nq), side="right") - 1
    tree_of_coordinate = model.dof_treeid[model.jnt_dofadr[joint_of_coordinate]]
    for tree in balanced_trees(scene):
        # They depend on the motion of the tree alone, which is the same for many parameters.
        coordinates = tree_of_coordinate == model.dof_treeid[tree[0]]
        motion = np.concatenate([qpos[:, coordinates], qvel[:, tree]], axis=1)
        _, first, which = np.unique(motion, axis=0, return_index=True, return_inverse=True)
        balancing = np.empty((len(first), len(tree)))
        for i, row in enumerate(first):
            mujoco.mj_resetData(model, data)
            data.qpos[:] = qpos[row]
            data.qvel[:] = qvel[row]
            mujoco.mj_forward(model, data)
            balancing[i] = -data.qfrc_smooth[tree]
        forces[:, tree] = balancing[which.reshape(-1)]
    return forces


def _update_bounding_radii(
    scene: Scene, simulations: batch.Batch, fields: dict[str, np.ndarray], *, n: int
) -> None:
    """Let bounding radii follow geom sizes that are parameters.

    Otherwise the broad phase of MuJoCo's collision detection would miss geoms that have grown.
    """
    if "geom_size" not in fields:
        return
    size = fields["geom_size"][:n]
    radius = simulations.expand("geom_rbound")[:n]
    with_length = (int(mujoco.mjtGeom.mjGEOM_CYLINDER), int(mujoco.mjtGeom.mjGEOM_CAPSULE))
    geoms: set[int] = set()
    for slot in scene.slots:
        if slot is not None and slot.field == "geom_size":
            geoms.update(slot.rows)
    for geom in geoms:
        kind = int(scene.base.geom_type[geom])
        if kind == int(mujoco.mjtGeom.mjGEOM_BOX):
            radius[:, geom] = np.linalg.norm(size[:, geom], axis=1)
        elif kind in with_length:
            radius[:, geom] = size[:, geom, :2].sum(1)  # radius + half length, a safe bound
        else:
            radius[:, geom] = size[:, geom].max(1)


def rest_height(scene: Scene, theta: np.ndarray) -> np.ndarray | None:
    """Heights of a free struck body at rest on the ground, into which its weight presses it.

    How far depends on gravity and on the softness of the contact (solref, solimp).

    Args:
        scene: The scene.
        theta: (N, p), parameters.

    Returns:
        Heights (N,), m, of the body's origin along the plane's normal; None where the body is not
        free, there is no ground, or impacts are in space.
    """
    if scene.plane is None or scene.ground is None or not scene.struck_body.free:
        return None
    return _rest_height_table(scene).at(theta)


def rest_shift(scene: Scene, before: np.ndarray, theta: np.ndarray) -> np.ndarray | None:
    """How far struck bodies that lie on the ground are from where the author's values put them.

    Args:
        scene: The scene.
        before: (N, d), as in `Impacts`.
        theta: (N, p), parameters.

    Returns:
        Displacements (N, 3), m, world axes; None where bodies do not lie on a ground, or impacts
        are in a plane.
    """
    settled = settled_on_ground(scene, before)
    if not settled.lies.any():
        return None
    assert scene.ground is not None
    surface = GroundSurface.of(scene.base, scene.ground)
    shift = np.zeros((len(before), 3))
    for index in np.unique(settled.rest[settled.lies]):
        rows = np.flatnonzero(settled.rest == index)
        table = _rest_height_table(scene, _as_deep(scene, int(index)))
        at_author_values = float(surface.normal @ rest_pose(scene, table.rest).pose[:3])
        raised = table.at(theta[rows]) - at_author_values
        shift[rows] = raised[:, None] * surface.normal
    return shift


def raised_onto_ground(scene: Scene, before: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Impacts in space whose struck bodies lie as deep in the ground as their parameters say.

    Args:
        scene: The scene.
        before: (N, d), as in `Impacts`.
        theta: (N, p), parameters.

    Returns:
        (N, d); the same where no body lies on a ground, or impacts are in a plane.
    """
    shift = rest_shift(scene, before, theta)
    if shift is None:
        return before
    raised = before.copy()
    MotionBefore.of(raised).struck.position[:] += shift
    return raised


def _as_deep(scene: Scene, index: int) -> int:
    """The first rest pose in which a body lies on as many points at the same height."""
    rest = rest_pose(scene, index)
    for other in range(index):
        same_points = len(rest_pose(scene, other).points) == len(rest.points)
        if same_points and abs(rest_pose(scene, other).height - rest.height) < _SAME_HEIGHT:
            return other
    return index


@dataclass(frozen=True, eq=False)
class _RestHeightTable:
    """Rest heights over the parameters that change how far the body sinks in.

    Attributes:
        params: Indices of these parameters in `Scene.params`.
        values: For each of them its values along its axis of the grid, in natural units.
        heights: m, at the points of the grid, one axis for each parameter.
        rest: Index of the rest pose; negative for the scene's reference configuration.
    """

    params: list[int]
    values: list[np.ndarray]
    heights: np.ndarray
    rest: int

    def at(self, theta: np.ndarray) -> np.ndarray:
        """Heights (N,), m, of the body's origin along the ground's normal for theta (N, p)."""
        if not self.params:
            return np.full(len(theta), float(self.heights))
        interpolator = RegularGridInterpolator(self.values, self.heights)
        low = [values[0] for values in self.values]
        high = [values[-1] for values in self.values]
        heights: np.ndarray = interpolator(np.clip(theta[:, self.params], low, high))
        return heights


def _changes_depth(param: Param) -> bool:
    """Whether a parameter changes how far a body sinks into the ground."""
    # In the direct form of solref, which holds negative values, the damping does not.
    if param.target == f"pair/{GROUND}/solref[1]" and param.sign < 0:
        return False
    return param.target.startswith((f"pair/{GROUND}/sol", "option/gravity"))


@lru_cache(maxsize=64)
def _rest_height_table(scene: Scene, rest: int = -1) -> _RestHeightTable:
    """Let the body sink in at each point of a grid over the parameters that matter.

    It begins at a rest pose, or at the scene's reference configuration.
    """
    params = [i for i, param in enumerate(scene.params) if _changes_depth(param)]
    points = _FINE_SINK_POINTS if len(params) < 3 else _COARSE_SINK_POINTS
    unit = [np.linspace(-1, 1, points) for _ in params]
    values = [
        from_unit([scene.params[i]], axis[:, None])[:, 0]
        for i, axis in zip(params, unit, strict=True)
    ]
    grid = np.zeros((1, 0))  # a single point where no parameter matters
    if params:
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*unit, indexing="ij")], 1)
    theta = np.tile(scene.nominal, (len(grid), 1))
    for column, i in enumerate(params):
        theta[:, i] = from_unit([scene.params[i]], grid[:, column : column + 1])[:, 0]
    simulations = batch.Batch(on_ground_alone(scene), len(grid), nthread=default_threads())
    scene.write(theta, simulations.expand)
    body = scene.struck_body
    qpos = simulations.bind("qpos")
    qvel = simulations.bind("qvel")
    if rest >= 0:
        qpos[:, body.qpos] = rest_pose(scene, rest).pose
    steps = max(1, round(SINK_TIME / scene.base.opt.timestep))
    for _ in range(SINK_ROUNDS):
        simulations.step(nstep=steps)
        qvel[:, body.qvel] *= SINK_KEPT_VELOCITY
    assert scene.ground is not None
    heights = qpos[:, body.qpos[:3]] @ GroundSurface.of(scene.base, scene.ground).normal
    return _RestHeightTable(params, values, heights.reshape([len(axis) for axis in unit]), rest)


def simulate_impacts(
    scene: Scene,
    before: np.ndarray,
    theta: np.ndarray,
    *,
    threads: int = 0,
    size: int = 4096,
    of_striker: bool = False,
) -> ImpactOutcome:
    """Run impacts in MuJoCo once; keep an `ImpactSimulator` to run many.

    Args:
        scene: Whose pair collides.
        before: (N, d), columns as in `Impacts`, of pairs that touch.
        theta: (p,) or (N, p), parameters of the scene.
        threads: Of a batch; 0 takes one for each core.
        size: Simulations in a batch at most.
        of_striker: Whether the striker's outcome is wanted too.
    """
    size = min(size, max(1, len(before)))
    return ImpactSimulator(scene, size, threads=threads)(before, theta, of_striker=of_striker)
