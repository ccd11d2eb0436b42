"""A learned pair in a compiled model, and its mechanics at the instants it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import SceneError
from clashsim.core.mobility import Mobility, bounding_radius
from clashsim.sim.hybrid.compiled_steps import near_rows
from clashsim.sim.hybrid.contact_probe import ContactProbe
from clashsim.sim.hybrid.guards import ContactMechanics
from clashsim.sim.hybrid.pairs import MEMORY_PER_PAIR, LearnedPair, WatchedGeoms
from clashsim.sim.hybrid.row_math import component, cross, dot
from clashsim.sim.mujoco.impacts import joint_damping

# m: surfaces at this distance are taken to touch; at zero their nearest points give no normal.
TOUCH_DISTANCE = 0.5e-5
# Margin and gap (m) that take a pair out of MuJoCo's solver. MuJoCo lists contacts at distances
# below margin + gap and gives a force to those below the margin: with these a pair is listed, and
# so seen by contact sensors, as soon as it overlaps, and gets no force.
_EXCLUDED_MARGIN = -1.0
_EXCLUDED_GAP = 1.0
_CLEARANCE = 1e-3  # m, by which bounding spheres have to be apart
_TINY_STIFFNESS = 1e-9  # 1/s^2, keeps a division defined
_NO_NORMAL = 1e-12  # m: nearest points this close to each other give no normal


@dataclass(frozen=True, eq=False)
class ContactStates:
    """m pairs at the instants they touch; k = 3 in a plane, 6 in space.

    Twists (m/s and rad/s) and impulses (N s and N m s) refer to the origin of the struck body, in
    the axes of the scene (of its plane, where it has one).

    Attributes:
        has_normal: (m,), whether a contact normal can be found.
        before: (m, d), as in `Impacts`.
        struck_twist: (m, k), of the struck body before the collision.
        striker_twist: (m, k), of the striker, at the point of it that is at the struck body's
            origin.
        point: (m, 2) or (m, 3), m, as in `Contact`.
        normal: (m, 2) or (m, 3), as in `Contact`.
        mechanics: How the pairs respond to impulses.
        qvel_per_twist: (m, k, nv), change of the whole qvel for each unit twist of the struck body.
        striker_qvel_per_impulse: (m, nv, k), change of the whole qvel by a unit impulse on the
            striker.
    """

    has_normal: np.ndarray
    before: np.ndarray
    struck_twist: np.ndarray
    striker_twist: np.ndarray
    point: np.ndarray
    normal: np.ndarray
    mechanics: ContactMechanics
    qvel_per_twist: np.ndarray
    striker_qvel_per_impulse: np.ndarray

    @property
    def closing_speed(self) -> np.ndarray:
        """Speeds (m,) at which the surfaces approach, m/s."""
        relative = self.struck_twist - self.striker_twist
        return -np.einsum("mk,mk->m", self.mechanics.normal_jacobian, relative)

    def __getitem__(self, rows: np.ndarray) -> ContactStates:
        return ContactStates(**{name: value[rows] for name, value in vars(self).items()})

    @staticmethod
    def joined(parts: Sequence[ContactStates]) -> ContactStates:
        """Those of several pairs, one after the other."""
        if len(parts) == 1:
            return parts[0]
        names = [name for name in vars(parts[0]) if name != "mechanics"]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        mechanics = ContactMechanics.joined([part.mechanics for part in parts])
        return ContactStates(mechanics=mechanics, **arrays)


@dataclass(frozen=True, eq=False)
class _Bounds:
    """A box about a struck body and a sphere about its striker's origin.

    Attributes:
        centre: (3,), m, of the box in the struck body's frame.
        half_size: (3,), m.
        striker_radius: m.
    """

    centre: np.ndarray
    half_size: np.ndarray
    striker_radius: float


class CompiledPair:
    """Where a learned pair lives in a compiled model, and what it looks like when it touches.

    Attributes:
        pair: The pair as the user gave it.
        scene: The scene in which its model was learned.
        phase: Index in userdata of the number that is 1 while MuJoCo resolves a collision of the
            pair, -1 once it has, and 0 otherwise (see `clashsim.sim.hybrid.stepping`).
        since: Index in userdata of the time (s) since the last collision ended, 0 for none.
        struck: How the struck body moves in the simulated model.
        plane: (3, 3), rows are the axes of the scene's plane and its normal, or None in space.
        slides_on_plane: Whether the struck body is free and lies on a plane without an edge.
        plane_normal: (3,), world axes; zero in space.
        body_up: (3,), the plane's normal in the axes of the struck body.
        zero_yaw_rotation: (3, 3), orientation of the struck body at yaw zero.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        pair: LearnedPair,
        watched: Sequence[WatchedGeoms],
        *,
        probe: mujoco.MjModel,
        index: int,
        memory: int,
    ) -> None:
        """Find the pair in a compiled model.

        Args:
            model: Compiled from the spec of `add_learned_pairs`.
            pair: The learned pair.
            watched: The geoms of its bodies that may collide.
            probe: The model of `probe_model`.
            index: Of the pair among all learned pairs.
            memory: Index in userdata at which the memory of all learned pairs begins.
        """
        self.pair = pair
        self.scene = pair.scene
        self._pair_rows = np.array([int(model.pair(part.pair).id) for part in watched])
        self._margin = model.pair_margin[self._pair_rows].copy()
        self._gap = model.pair_gap[self._pair_rows].copy()
        self._found = np.array([int(model.sensor(part.sensor).adr[0]) for part in watched])
        self._all = _sensor_addresses(model, f"clashsim/all/{index}")
        self._ground = _sensor_addresses(model, f"clashsim/ground/{index}")
        # In userdata, so that they travel with the state.
        self.phase = memory + MEMORY_PER_PAIR * index
        self.since = self.phase + 1
        self._geoms = [
            (int(model.geom(part.struck).id), int(model.geom(part.striker).id)) for part in watched
        ]
        self._probe_sensors = [
            tuple(
                int(probe.sensor(f"clashsim/{name}/{index}/{part}").adr[0])
                for name in ("distance", "nearest")
            )
            for part in range(len(watched))
        ]
        self.struck = Mobility.of(model, pair.struck)
        if self.struck.fixed:
            raise SceneError(
                f"the struck geom {pair.struck!r} is fixed to the world; "
                "name the moving geom as struck"
            )
        self._striker = int(model.body_weldid[int(model.geom_bodyid[self._geoms[0][1]])])  # body
        striker = Mobility.of(model, pair.striker)
        self._striker_mobility = striker
        # Degrees of freedom that an impulse on a body moves: those of its tree of bodies.
        self._struck_dofs = _dofs_of_tree(model, self.struck)
        self._striker_dofs = _dofs_of_tree(model, striker)
        self._bounds = self._bounds_of(model)
        # m, of the struck body about its origin; None where the speed of its surface alone says
        # nothing about how fast the pair closes.
        self._radius: float | None = None
        if self.struck.free and striker.fixed:
            self._radius = bounding_radius(model, self.struck.body)
        # Joints of an arm have little inertia beside what their servos and dampers add to it during
        # a contact.
        self._damping = np.zeros(model.nv)
        if striker.mechanism is not None:
            self._damping = joint_damping(model, striker)
        self.plane = self.scene.plane
        self._twist_size = 6 if self.plane is None else 3
        self.slides_on_plane = (
            self.plane is not None and self.struck.free and self._ground_is_plane()
        )
        self.plane_normal = np.zeros(3) if self.plane is None else self.plane[2]
        self.zero_yaw_rotation = self.scene.struck_body.rotation
        self.body_up = self.zero_yaw_rotation.T @ self.plane_normal
        self._striker_zero_yaw_rotation = self.scene.striker_body.rotation

    def set_owner(
        self,
        by_mujoco: bool,
        margin: np.ndarray,
        gap: np.ndarray,
        rows: np.ndarray | slice = slice(None),
    ) -> None:
        """Give the pair's contact to MuJoCo's solver, or take it out.

        Args:
            by_mujoco: Whether MuJoCo resolves the contact.
            margin: (n, npair), of contact pairs, written to.
            gap: (n, npair), of contact pairs, written to.
            rows: Of the n simulations.
        """
        for i, pair in enumerate(self._pair_rows):
            margin[rows, pair] = self._margin[i] if by_mujoco else _EXCLUDED_MARGIN
            gap[rows, pair] = self._gap[i] if by_mujoco else _EXCLUDED_GAP

    def touches(self, sensors: np.ndarray) -> np.ndarray:
        """Whether any geoms of the two bodies touch, (n,), from sensors (n, nsensordata)."""
        return np.greater(sensors[:, self._found], 0).any(axis=1)

    def touches_only_ground(self, sensors: np.ndarray) -> np.ndarray:
        """Whether struck bodies (n,) touch nothing but the ground and their striker.

        Args:
            sensors: (n, nsensordata).
        """
        if len(self._all) == 0:
            return np.zeros(len(sensors), bool)
        expected = sensors[:, self._ground].sum(1) + sensors[:, self._found].sum(1)
        return np.less_equal(sensors[:, self._all].sum(1), expected)

    def is_slower_than(self, speed: float, qvel: np.ndarray) -> np.ndarray:
        """Whether pairs (m,) close at less than `speed` (m/s) wherever they touch.

        It takes a fraction of the time of `contact_states`, but may say no where that says yes.

        Args:
            speed: m/s.
            qvel: (m, nv), velocities of the simulations.
        """
        if self._radius is None:
            return np.zeros(len(qvel), bool)
        velocity = qvel[:, self.struck.qvel]
        linear = np.sqrt(dot(velocity[:, :3], velocity[:, :3]))
        angular = np.sqrt(dot(velocity[:, 3:], velocity[:, 3:]))
        return np.asarray(linear + self._radius * angular < speed)

    def may_touch(self, qpos: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Whether pairs (m,) are not surely apart in simulations `rows` of positions (n, nq).

        They surely are if a sphere about the striker does not reach a box about the struck body.
        """
        if self._bounds is None:
            return np.ones(len(rows), bool)
        struck, striker = (
            (body.qpos, body.free, body.position, body.slides)
            for body in (self.struck, self._striker_mobility)
        )
        bounds = (self._bounds.centre, self._bounds.half_size, self._bounds.striker_radius)
        return near_rows(qpos, rows, struck, striker, bounds)

    def nearest_points(
        self, probe: ContactProbe, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Signed distances (m) of the two bodies where simulations of a probe were put.

        Args:
            probe: The probe.
            rows: (m,), indices of its simulations.

        Returns:
            Distances (m,), and nearest points (m, 6) of the struck body and the striker, m, world.
        """
        distance = np.full(len(rows), np.inf)
        points = np.zeros((len(rows), 6))
        for distance_sensor, points_sensor in self._probe_sensors:
            found = probe.sensor(rows, distance_sensor, 1)[:, 0]
            nearer = found < distance
            distance = np.where(nearer, found, distance)
            points[nearer] = probe.sensor(rows[nearer], points_sensor, 6)
        return distance, points

    def contact_states(
        self, probe: ContactProbe, rows: np.ndarray, qvel: np.ndarray
    ) -> ContactStates:
        """The pairs where simulations `rows` (m,) of a probe were put, at velocities (m, nv)."""
        distance, points = self.nearest_points(probe, rows)
        basis = np.eye(3) if self.plane is None else self.plane[:2]  # rows: axes of the scene
        separation = _in_axes(basis, points[:, :3] - points[:, 3:])
        # Of bodies that overlap the nearest points have changed sides.
        separation = np.where(distance[:, None] <= 0, -separation, separation)
        length = np.sqrt((separation**2).sum(1))
        has_normal = length >= _NO_NORMAL
        placeholder = np.eye(len(basis))[0]
        safe_length = np.where(has_normal, length, 1.0)[:, None]
        normal = np.where(has_normal[:, None], separation / safe_length, placeholder)
        point = _in_axes(basis, points[:, 3:])

        origin = probe.xpos[rows, self.struck.body]
        striker_origin = probe.xpos[rows, self._striker]
        to_twist = self._world_to_twist()
        struck_jacobian = to_twist @ probe.jacobian(rows, self.struck.body, origin)
        striker_jacobian = to_twist @ probe.jacobian(rows, self._striker, origin)
        own_jacobian = to_twist @ probe.jacobian(rows, self._striker, striker_origin)
        struck_twist = np.einsum("mkv,mv->mk", struck_jacobian, qvel)
        own_twist = np.einsum("mkv,mv->mk", own_jacobian, qvel)
        struck_pose = self._poses(probe, rows, self.struck.body, self.zero_yaw_rotation)
        striker_pose = self._poses(probe, rows, self._striker, self._striker_zero_yaw_rotation)
        qvel_per_twist, struck_inverse_inertia = self._struck_response(probe, rows, struck_jacobian)
        qvel_per_impulse, striker_inverse_inertia = self._striker_response(
            probe, rows, striker_jacobian
        )
        return ContactStates(
            has_normal=has_normal,
            before=np.concatenate([struck_pose, struck_twist, striker_pose, own_twist], axis=1),
            struck_twist=struck_twist,
            striker_twist=np.einsum("mkv,mv->mk", striker_jacobian, qvel),
            point=point,
            normal=normal,
            mechanics=ContactMechanics(
                struck_inverse_inertia,
                striker_inverse_inertia,
                self._normal_jacobian(point - _in_axes(basis, origin), normal),
            ),
            qvel_per_twist=qvel_per_twist,
            striker_qvel_per_impulse=qvel_per_impulse,
        )

    def contact_states_at(self, probe: ContactProbe, before: np.ndarray) -> ContactStates:
        """Put the pair as in each row of `before` (m, d), at most as many as the probe has."""
        qpos = np.tile(probe.model.qpos0, (len(before), 1))
        qvel = np.zeros((len(before), probe.model.nv))
        PairPoser(self.scene).write(before, qpos, qvel)
        rows = np.arange(len(before))
        probe.put(rows, qpos)
        return self.contact_states(probe, rows, qvel)

    def _ground_is_plane(self) -> bool:
        """Whether the ground of the model's scene is a plane, over whose edge nothing can tip."""
        if self.scene.ground is None:
            return False
        kind = int(self.scene.base.geom(self.scene.ground).type[0])
        return kind == int(mujoco.mjtGeom.mjGEOM_PLANE)

    def _bounds_of(self, model: mujoco.MjModel) -> _Bounds | None:
        """What surely holds the pair's geoms; None where a mechanism moves one, or one is endless.

        A box is in the axes of a free struck body. Of other bodies it is as large as a sphere.
        """
        mobilities = (self.struck, self._striker_mobility)
        if any(mobility.mechanism is not None for mobility in mobilities):
            return None
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        struck_geoms, striker_geoms = (np.array(geoms) for geoms in zip(*self._geoms, strict=True))
        radius = model.geom_rbound
        if not (radius[struck_geoms].all() and radius[striker_geoms].all()):  # a plane has no end
            return None
        offset = np.linalg.norm(
            data.geom_xpos[striker_geoms] - data.xpos[self._striker_mobility.body], axis=1
        )
        striker_radius = float((offset + radius[striker_geoms]).max()) + _CLEARANCE
        body = self.struck.body
        if not self.struck.free:
            offset = np.linalg.norm(data.geom_xpos[struck_geoms] - data.xpos[body], axis=1)
            half_size = np.full(3, (offset + radius[struck_geoms]).max())
            return _Bounds(np.zeros(3), half_size, striker_radius)
        low, high = [], []
        rotation = data.xmat[body].reshape(3, 3)
        for geom in struck_geoms:
            centre, half = np.split(model.geom_aabb[geom], 2)
            axes = rotation.T @ data.geom_xmat[geom].reshape(3, 3)
            in_body = rotation.T @ (data.geom_xpos[geom] - data.xpos[body]) + axes @ centre
            extent = np.abs(axes) @ half
            low.append(in_body - extent)
            high.append(in_body + extent)
        lowest, highest = np.min(low, axis=0), np.max(high, axis=0)
        return _Bounds((lowest + highest) / 2, (highest - lowest) / 2, striker_radius)

    def _normal_jacobian(self, arm: np.ndarray, normal: np.ndarray) -> np.ndarray:
        """(m, k): from twists at origins to normal velocities of points `arm` (m, c) from them."""
        if self.plane is None:
            return np.concatenate([normal, cross(arm, normal)], axis=1)
        moment = arm[:, 0] * normal[:, 1] - arm[:, 1] * normal[:, 0]
        return np.concatenate([normal, moment[:, None]], axis=1)

    def _struck_response(
        self, probe: ContactProbe, rows: np.ndarray, jacobian: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change of qvel per unit twist (m, k, nv) of the struck body, inverse inertia (m, k, k).

        Args:
            probe: Was put where the pairs touch.
            rows: (m,), of its simulations.
            jacobian: (m, k, nv), of the struck body's twist.
        """
        k = self._twist_size
        m = len(rows)
        to_twist = self._world_to_twist()
        coordinates = np.repeat(probe.coordinates(rows)[:, self.struck.qpos], k, axis=0)
        linear = np.tile(to_twist[:, :3], (m, 1))
        angular = np.tile(to_twist[:, 3:], (m, 1))
        own = self.struck.rates(linear, angular, coordinates)
        qvel = np.zeros((m, k, probe.model.nv))
        qvel[:, :, self.struck.qvel] = own.reshape(m, k, -1)
        inertia = probe.inertia(rows, self._struck_dofs)
        if len(self.struck.qvel) < k:
            # Its joints allow no unit twist, but an impulse still has an effect.
            in_tree = jacobian[:, :, self._struck_dofs]
            return qvel, in_tree @ np.linalg.solve(inertia, np.swapaxes(in_tree, 1, 2))
        in_tree = qvel[:, :, self._struck_dofs]
        return qvel, np.linalg.inv(in_tree @ inertia @ np.swapaxes(in_tree, 1, 2))

    def _striker_response(
        self, probe: ContactProbe, rows: np.ndarray, jacobian: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change of qvel by unit impulses on strikers (m, nv, k), inverse inertia (m, k, k).

        Arguments as for `_struck_response`; the Jacobian of a fixed striker is zero.
        """
        m = len(rows)
        qvel_per_impulse = np.zeros((m, probe.model.nv, self._twist_size))
        if self._striker_mobility.fixed:
            return qvel_per_impulse, np.zeros((m, self._twist_size, self._twist_size))
        dofs = self._striker_dofs
        inertia = probe.inertia(rows, dofs)
        if self._damping.any():
            # What dampers take during a contact is as if the joints had more inertia.
            duration = self.contact_duration(probe.solref(rows, int(self._pair_rows[0])))
            added = duration[:, None] * self._damping[dofs]
            inertia = inertia + added[:, None] * np.eye(len(dofs))
        in_tree = jacobian[:, :, dofs]
        solved = np.linalg.solve(inertia, np.swapaxes(in_tree, 1, 2))
        qvel_per_impulse[:, dofs] = solved
        return qvel_per_impulse, in_tree @ solved

    @staticmethod
    def contact_duration(solref: np.ndarray) -> np.ndarray:
        """Durations (m,), s, of contacts: half a period of the spring of solref (m, 2)."""
        first, second = solref.T
        # -stiffness and -damping, or time constant and damping ratio
        half_period = np.pi / np.sqrt(np.maximum(-first, _TINY_STIFFNESS))
        return np.where(first < 0, half_period, np.pi * first * second)

    def _world_to_twist(self) -> np.ndarray:
        """(k, 6): from linear and angular velocity in world axes to a twist."""
        if self.plane is None:
            return np.eye(6)
        matrix = np.zeros((3, 6))
        matrix[:2, :3] = self.plane[:2]
        matrix[2, 3:] = self.plane[2]
        return matrix

    def _poses(
        self, probe: ContactProbe, rows: np.ndarray, body: int, zero_yaw_rotation: np.ndarray
    ) -> np.ndarray:
        """Poses (m, 3) or (m, 7) as in `Impacts`: x, y, yaw, or position and quaternion wxyz."""
        position = probe.xpos[rows, body]
        if self.plane is None:
            return np.concatenate([position, probe.xquat[rows, body]], axis=1)
        axis_x, axis_y, _ = self.plane
        rotation = probe.xmat[rows, body].reshape(-1, 3, 3)
        heading = _in_axes(zero_yaw_rotation.T @ axis_x, rotation)
        yaw = np.arctan2(component(heading, axis_y), component(heading, axis_x))
        return np.stack([component(position, axis_x), component(position, axis_y), yaw], axis=1)


def _in_axes(axes: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Components (m, a) along axes (a, 3) of vectors (m, 3), or of rows (m, 3, 3) along one (3,).

    Written as a sum, because matrix products round differently with the number of rows.
    """
    if axes.ndim == 1:
        return vectors[..., 0] * axes[0] + vectors[..., 1] * axes[1] + vectors[..., 2] * axes[2]
    return np.stack([component(vectors, axis) for axis in axes], axis=1)


def _dofs_of_tree(model: mujoco.MjModel, body: Mobility) -> np.ndarray:
    """Degrees of freedom (v,) of the tree of bodies of which a body is; none if it is fixed."""
    if body.fixed:
        return np.zeros(0, int)
    trees = np.unique(model.dof_treeid[body.qvel])
    return np.flatnonzero(np.isin(model.dof_treeid, trees))


def _sensor_addresses(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Indices in sensordata of the first values of sensors NAME/0, NAME/1 and so on."""
    found: list[int] = []
    while mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, f"{name}/{len(found)}") >= 0:
        found.append(int(model.sensor(f"{name}/{len(found)}").adr[0]))
    return np.array(found, int)
