"""Outcomes of impacts of a scene's pair, for any parameters.

Where the surfaces near the contact can be described by features, impacts are solved directly;
MuJoCo simulates the others. Both step the same equations.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

import mujoco
import numpy as np

from clashsim.core.contact_geometry import NearestPoints
from clashsim.core.params import pair_rows
from clashsim.core.resting import settled_on_ground
from clashsim.core.scene import GROUND, STRIKE, Scene
from clashsim.sim.contact.features import ground_features, near_features
from clashsim.sim.contact.impact import BEYOND_REACH, solve_impacts
from clashsim.sim.contact.pair_motion import Fields, MovingPair, PosedBody, is_covered, model_fields
from clashsim.sim.contact.posed import Features, PosedGeom, PosedPair, unit_vectors
from clashsim.sim.contact.problem import (
    STRIKER,
    STRUCK,
    ContactGeometry,
    ContactParameters,
    ContactProblem,
    contiguous,
)
from clashsim.sim.mujoco.impacts import ImpactEnd, ImpactSimulator, rest_height, rest_shift

_BATCH = 1024  # impacts that MuJoCo simulates at once
_NEAR = 1e-3  # m: a body this close to another thing may touch it during an impact
_NEARLY_NORMAL = 0.7  # of a coordinate of the normal, above which another axis gives a tangent


@dataclass(frozen=True, eq=False)
class _Touch:
    """Where N pairs of bodies touch, world axes; each has P pairs of geoms that may collide.

    Attributes:
        point: (N, 3), m.
        axes: (N, 3, 3), rows are the normal, out of the striker into the struck body, and two
            tangents.
        distance: (N, P), m, of each pair of geoms.
        nearest: (N, P, 3) each, m, nearest points of each pair of geoms.
    """

    point: np.ndarray
    axes: np.ndarray
    distance: np.ndarray
    nearest: tuple[np.ndarray, np.ndarray]

    def __getitem__(self, rows: np.ndarray) -> _Touch:
        nearest = self.nearest[STRUCK][rows], self.nearest[STRIKER][rows]
        return _Touch(self.point[rows], self.axes[rows], self.distance[rows], nearest)


@dataclass(frozen=True, eq=False)
class _Surfaces:
    """Surfaces of N pairs near their contacts.

    Attributes:
        geometry: Features in the axes of the contacts; None where no features describe the pair.
        covered: (N,), whether the features describe the contact.
    """

    geometry: ContactGeometry | None
    covered: np.ndarray


class PairSolver:
    """Solves N impacts of a scene's pair again and again, for different parameters.

    Attributes:
        scene: The scene.
        before: (N, d), columns as in `Impacts`, of pairs that touch.
    """

    def __init__(self, scene: Scene, before: np.ndarray, *, threads: int = 0) -> None:
        """Prepare impacts.

        Args:
            scene: The scene.
            before: (N, d), columns as in `Impacts`, of pairs that touch.
            threads: Threads to use; 0 for one on each core.
        """
        self.scene = scene
        self.before = settled_on_ground(scene, before).before
        self._threads = threads
        self._pair = MovingPair(scene, self.before)
        self._sizes_vary = any(s is not None and s.field == "geom_size" for s in scene.slots)

    def solve(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Twists (M, k) of the struck body after impact, m/s and rad/s, in the scene's axes.

        Args:
            rows: (M,), indices of impacts.
            theta: (M, p), their parameters, natural units.

        Returns:
            The twists; not a number where an impact does not end.
        """
        return self._solve(rows, theta, of_striker=False)[:, STRUCK]

    def solve_both(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Twists (M, 2, k) of struck body and striker after impact; see `solve`."""
        return self._solve(rows, theta, of_striker=True)

    def _solve(self, rows: np.ndarray, theta: np.ndarray, *, of_striker: bool) -> np.ndarray:
        """`solve_both`; without numbers of the striker that MuJoCo simulates, if not asked for."""
        after = np.full((len(rows), 2, 3 if self.scene.plane is not None else 6), np.nan)
        surfaces = self._surfaces_of(rows, theta) if self._sizes_vary else self._surfaces
        at = np.arange(len(rows)) if self._sizes_vary else rows
        direct = surfaces.covered[at]
        if direct.any():
            solved, end = self._solve_directly(rows[direct], theta[direct], surfaces, at[direct])
            after[direct] = solved
            direct[direct] = end != BEYOND_REACH
        if not direct.all():
            outcome = self._simulator(
                self.before[rows[~direct]], theta[~direct], of_striker=of_striker
            )
            outcome.after[~outcome.usable] = np.nan
            after[~direct, STRUCK] = outcome.after
            if outcome.striker_after is not None:
                after[~direct, STRIKER] = outcome.striker_after
        return after

    @property
    def covered(self) -> np.ndarray:
        """Whether each impact (N,) is solved directly at the author's sizes of geoms.

        MuJoCo simulates the others.
        """
        return self._surfaces.covered

    @cached_property
    def _simulator(self) -> ImpactSimulator:
        return ImpactSimulator(self.scene, _BATCH, threads=self._threads)

    @cached_property
    def _touch(self) -> _Touch:
        """Where the surfaces touch."""
        nearest_points = NearestPoints.of(self.scene, len(self.before))
        distance, *nearest = nearest_points.of_parts(self.before)
        rows = np.arange(len(self.before))
        touching = np.argmin(distance, axis=1)
        on_struck, on_striker = (points[rows, touching] for points in nearest)
        axes = _contact_axes(unit_vectors(on_struck - on_striker))
        return _Touch(0.5 * (on_struck + on_striker), axes, distance, (nearest[0], nearest[1]))

    @cached_property
    def _surfaces(self) -> _Surfaces:
        """Surfaces of all impacts at the author's sizes of geoms."""
        rows = np.arange(len(self.before))
        return self._surfaces_with_sizes(rows, np.array(self.scene.base.geom_size)[None])

    def _surfaces_of(self, rows: np.ndarray, theta: np.ndarray) -> _Surfaces:
        """Surfaces of impacts `rows` (M,) for parameters (M, p)."""
        return self._surfaces_with_sizes(rows, model_fields(self.scene, theta)["geom_size"])

    def _surfaces_with_sizes(self, rows: np.ndarray, sizes: np.ndarray) -> _Surfaces:
        """Surfaces of impacts `rows` (M,) with sizes (M or 1, G, 3) of all geoms."""
        none = _Surfaces(None, np.zeros(len(rows), bool))
        if not _is_plain(self.scene):
            return none
        scene = self.scene
        touch = self._touch[rows]

        def posed(geom: str, body: int) -> PosedGeom:
            return _posed_geom(scene, geom, self._pair.bodies[body][rows], sizes)

        parts = []
        for i, (struck, striker) in enumerate(scene.strike_geoms):
            pair = PosedPair(
                (posed(struck, STRUCK), posed(striker, STRIKER)),
                (touch.nearest[STRUCK][:, i], touch.nearest[STRIKER][:, i]),
                touch.distance[:, i],
            )
            parts.append(near_features(pair))
        for struck, _ in scene.ground_geoms:
            parts.append(ground_features(posed(struck, STRUCK)))
        described = [part for part in parts if part is not None]
        if len(described) < len(parts):
            return none
        covered = np.all([part.covered for part in described], axis=0) & ~self._crowded[rows]
        return _Surfaces(_in_contact_axes(described, touch), covered)

    @cached_property
    def _crowded(self) -> np.ndarray:
        """Whether either body of each impact (N,) touches something besides the other.

        The struck body's ground does not count, and neither do other bodies of a striker's tree
        where they touch nothing but that tree.
        """
        scene = self.scene
        crowded = np.zeros(len(self.before), bool)
        model = _with_margins(scene)
        own, known = _own_geoms(scene), _known_pairs(scene)
        qpos = np.tile(model.qpos0, (len(self.before), 1))
        self._pair.poser.write(self.before, qpos)
        data = mujoco.MjData(model)
        for row in range(len(qpos)):
            data.qpos[:] = qpos[row]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_collision(model, data)
            for first, second in data.contact.geom[: data.ncon]:
                is_other = frozenset((int(first), int(second))) not in known
                crowded[row] |= is_other and bool(own[first] != own[second])
        return crowded

    def _solve_directly(
        self, rows: np.ndarray, theta: np.ndarray, surfaces: _Surfaces, at: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`solve` for impacts that are covered, with their rows `at` (M,) in `surfaces`.

        Returns:
            Twists (M, 2, k) of both bodies after impact, and how the impacts ended (M,).
        """
        assert surfaces.geometry is not None
        scene = self.scene
        fields = model_fields(scene, theta)
        axes = self._touch.axes[rows]
        point = self._touch.point[rows]
        motion, inverse_weight = self._pair.at_contact(rows, fields, point, axes)
        motion = motion._replace(row=at)
        motion.shift[:] = np.einsum("nij,nj->ni", axes, self._rest_shift(rows, theta))
        problem = ContactProblem(
            surfaces.geometry,
            contiguous(motion),
            contiguous(_contact_parameters(scene, fields, inverse_weight)),
            float(scene.base.opt.timestep),
            float(scene.base.opt.impratio),
            len(scene.strike_geoms),
        )
        twist, end = solve_impacts(problem, threads=self._threads)
        linear = np.einsum("nji,nbj->bni", axes, twist[:, :, :3])
        angular = np.einsum("nji,nbj->bni", axes, twist[:, :, 3:])
        to_scene = self._pair.poser.scene_twist
        after = np.stack([to_scene(linear[b], angular[b]) for b in (STRUCK, STRIKER)], axis=1)
        after[end == ImpactEnd.UNFINISHED] = np.nan
        return after, end

    def _rest_shift(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """How far struck bodies (M,) lie from where the geometry has them, (M, 3), m, world."""
        scene = self.scene
        height = rest_height(scene, theta)
        if height is not None:
            assert scene.plane is not None
            up = scene.plane[2]
            return (height - scene.struck_body.position @ up)[:, None] * up
        shift = rest_shift(scene, self.before[rows], theta)
        return np.zeros((len(rows), 3)) if shift is None else shift


@lru_cache(maxsize=64)
def _is_plain(scene: Scene) -> bool:
    """Whether nothing but contact, gravity and servos acts on the bodies of a scene's pair.

    Springs, friction and limits of the joints of a mechanism are left out: they hardly change
    during an impact, and a controller has balanced them before.
    """
    model = scene.base
    bodies = (scene.struck_body, scene.striker_body)
    own_dofs = [body.qvel for body in bodies if body.mechanism is None]
    dofs = np.concatenate([*own_dofs, np.zeros(0, int)])
    joints = np.unique(model.dof_jntid[dofs])
    joints_are_loose = not (
        model.jnt_stiffness[joints].any()
        or model.dof_frictionloss[dofs].any()
        or model.jnt_limited[joints].any()
    )
    on_joints = bool((model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)).all())
    return bool(
        model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
        and model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4
        and joints_are_loose
        and model.neq == 0
        and model.ntendon == 0
        and on_joints
        and not (model.opt.density or model.opt.viscosity)
        and all(is_covered(scene, body) for body in bodies)
        and all(int(model.pair_dim[pair]) in (3, 4) for pair in _pairs(scene))
        and not any(model.pair_margin[pair] for pair in _pairs(scene))
    )


@lru_cache(maxsize=64)
def _with_margins(scene: Scene) -> mujoco.MjModel:
    """The scene's model, which reports contacts of geoms that are a little apart."""
    model = copy.copy(scene.base)
    model.geom_margin[:] = np.maximum(model.geom_margin, _NEAR)
    return model


@lru_cache(maxsize=64)
def _own_geoms(scene: Scene) -> np.ndarray:
    """What each geom (G,) belongs to: 1 for the struck body, 2 for the striker's tree, 0 else."""
    model = scene.base
    own = np.zeros(model.ngeom, int)
    striker = scene.striker_body
    root = int(model.body_rootid[striker.body])
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if not striker.fixed and int(model.body_rootid[body]) == root:
            own[geom] = STRIKER + 1
        if int(model.body_weldid[body]) == scene.struck_body.body:
            own[geom] = STRUCK + 1
    return own


@lru_cache(maxsize=64)
def _known_pairs(scene: Scene) -> frozenset[frozenset[int]]:
    """Indices of the geoms of all pairs that belong to the strike or the ground."""
    pairs = (*scene.strike_geoms, *scene.ground_geoms)
    return frozenset(frozenset(int(scene.base.geom(name).id) for name in pair) for pair in pairs)


def _pairs(scene: Scene) -> list[int]:
    """Indices of the contact pairs: those of the strike, then the ground's where there is one."""
    names = [STRIKE] if scene.ground is None else [STRIKE, GROUND]
    return [row for name in names for row in pair_rows(scene.base, name)]


def _posed_geom(scene: Scene, name: str, body: PosedBody, sizes: np.ndarray) -> PosedGeom:
    """A geom of a posed body, with sizes (M or 1, G, 3) of all geoms."""
    local, rotation = _pose_in_body(scene, name)
    geom = int(scene.base.geom(name).id)
    position = body.position + body.rotation @ local
    return PosedGeom(scene, geom, position, body.rotation @ rotation, sizes[:, geom])


@lru_cache(maxsize=64)
def _pose_in_body(scene: Scene, geom: str) -> tuple[np.ndarray, np.ndarray]:
    """Position (3,), m, and orientation (3, 3) of a geom in its moving body's frame."""
    model = scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    index = model.geom(geom).id
    carrier = int(model.body_weldid[model.geom_bodyid[index]])
    to_body = data.xmat[carrier].reshape(3, 3).T
    local = to_body @ (data.geom_xpos[index] - data.xpos[carrier])
    return local, to_body @ data.geom_xmat[index].reshape(3, 3)


def _in_contact_axes(parts: list[Features], touch: _Touch) -> ContactGeometry:
    """Sets of features side by side, in the axes of N contacts."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts], 1)

    def rotated(vectors: np.ndarray) -> np.ndarray:
        return np.einsum("nij,nkj->nki", touch.axes, vectors)

    origin = touch.point[:, None]
    rounding = np.einsum(
        "nij,nkjl,nml->nkim", touch.axes, joined("rounding"), touch.axes, optimize=True
    )
    geometry = ContactGeometry(
        point=rotated(joined("point") - origin),
        rounding=rounding,
        radius=joined("radius"),
        carrier=joined("carrier"),
        against=joined("against"),
        normal=rotated(joined("normal")),
        target=rotated(joined("target") - origin),
        kind=joined("kind"),
        edge=rotated(joined("edge")),
        reach=joined("reach"),
        group=np.repeat(np.arange(len(parts)), [part.kind.shape[1] for part in parts]),
    )
    return contiguous(geometry)


def _contact_axes(normal: np.ndarray) -> np.ndarray:
    """Right-handed axes (N, 3, 3) whose first row is the normal (N, 3)."""
    x_axis, y_axis = np.eye(3)[:2]
    helper = np.where(np.abs(normal[:, :1]) < _NEARLY_NORMAL, x_axis, y_axis)
    tangent = helper - (helper * normal).sum(1, keepdims=True) * normal
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    return np.stack([normal, tangent, np.cross(normal, tangent)], 1)


def _contact_parameters(
    scene: Scene, fields: Fields, inverse_weight: np.ndarray
) -> ContactParameters:
    """Contact parameters of the strike, and of the ground where there is one."""
    model = scene.base
    pairs = _pairs(scene)
    friction = fields["pair_friction"][:, pairs]
    solref = fields["pair_solref"][:, pairs]
    direct = solref[..., 0] < 0
    time_constant = np.maximum(np.abs(solref[..., 0]), 2 * model.opt.timestep)
    damping_ratio = np.where(direct, 1.0, solref[..., 1])
    stiffness = np.where(direct, -solref[..., 0], 1 / (time_constant * damping_ratio) ** 2)
    damping = np.where(direct, -solref[..., 1], 2 / time_constant)
    weights = np.repeat(inverse_weight[:, STRUCK, None], len(pairs), 1)
    weights[:, : len(scene.strike_geoms)] += inverse_weight[:, STRIKER, None]
    return ContactParameters(
        sliding_friction=np.ascontiguousarray(friction[..., 0]),
        torsional_friction=np.ascontiguousarray(friction[..., 2]),
        stiffness=stiffness,
        damping=damping,
        impedance=np.ascontiguousarray(fields["pair_solimp"][:, pairs]),
        inverse_weight=weights,
        dims=np.array([int(model.pair_dim[pair]) for pair in pairs]),
    )
