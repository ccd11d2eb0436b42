"""A learned pair in a compiled model, and its mechanics at the instant it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import SceneError
from clashsim.core.mobility import Mobility, bounding_radius
from clashsim.sim.hybrid.guards import ContactMechanics
from clashsim.sim.hybrid.pairs import MEMORY_PER_PAIR, LearnedPair, WatchedGeoms
from clashsim.sim.mujoco.impacts import joint_damping

# m: surfaces at this distance are taken to touch; at zero their nearest points give no normal.
TOUCH_DISTANCE = 0.5e-5
# Margin and gap (m) that take a pair out of MuJoCo's solver. MuJoCo lists contacts at distances
# below margin + gap and gives a force to those below the margin: with these a pair is listed, and
# so seen by contact sensors, as soon as it overlaps, and gets no force.
_EXCLUDED_MARGIN = -1.0
_EXCLUDED_GAP = 1.0
_SEARCH_DISTANCE = 1.0  # m: geoms farther apart than this count as this far apart
_NO_NORMAL = 1e-12  # m: nearest points this close to each other give no normal


@dataclass(frozen=True, eq=False)
class ContactState:
    """One pair at the instant it touches; k = 3 in a plane, 6 in space.

    Twists (m/s and rad/s) and impulses (N s and N m s) refer to the origin of the struck body, in
    the axes of the scene (of its plane, where it has one).

    Attributes:
        before: (d,), as in `Impacts`.
        struck_twist: (k,), of the struck body before the collision.
        striker_twist: (k,), of the striker, at the point of it that is at the struck body's origin.
        point: (2,) or (3,), m, as in `Contact`.
        normal: (2,) or (3,), as in `Contact`.
        struck_inverse_inertia: (k, k), as in `ContactMechanics`.
        striker_inverse_inertia: (k, k), as in `ContactMechanics`.
        normal_jacobian: (k,), as in `ContactMechanics`.
        qvel_per_twist: (k, m), the struck body's m entries of qvel for each unit twist.
        striker_qvel_per_impulse: (nv, k), change of the whole qvel by a unit impulse on the
            striker.
    """

    before: np.ndarray
    struck_twist: np.ndarray
    striker_twist: np.ndarray
    point: np.ndarray
    normal: np.ndarray
    struck_inverse_inertia: np.ndarray
    striker_inverse_inertia: np.ndarray
    normal_jacobian: np.ndarray
    qvel_per_twist: np.ndarray
    striker_qvel_per_impulse: np.ndarray

    @property
    def closing_speed(self) -> float:
        """Speed at which the surfaces approach, m/s."""
        return -float(self.normal_jacobian @ (self.struck_twist - self.striker_twist))


def stack_mechanics(contacts: list[ContactState]) -> ContactMechanics:
    """The mechanics of several pairs as arrays with one row per pair."""
    return ContactMechanics(
        np.stack([c.struck_inverse_inertia for c in contacts]),
        np.stack([c.striker_inverse_inertia for c in contacts]),
        np.stack([c.normal_jacobian for c in contacts]),
    )


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
        index: int,
        memory: int,
    ) -> None:
        """Find the pair in a compiled model.

        Args:
            model: Compiled from the spec of `add_learned_pairs`.
            pair: The learned pair.
            watched: The geoms of its bodies that may collide.
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
        self.struck = Mobility.of(model, pair.struck)
        if self.struck.fixed:
            raise SceneError(
                f"the struck geom {pair.struck!r} is fixed to the world; "
                "name the moving geom as struck"
            )
        self._striker = int(model.body_weldid[int(model.geom_bodyid[self._geoms[0][1]])])  # body
        striker = Mobility.of(model, pair.striker)
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

    def set_owner(self, by_mujoco: bool, margin: np.ndarray, gap: np.ndarray) -> None:
        """Give the pair's contact to MuJoCo's solver, or take it out.

        Args:
            by_mujoco: Whether MuJoCo resolves the contact.
            margin: (..., npair), of contact pairs, written to.
            gap: (..., npair), of contact pairs, written to.
        """
        margin[..., self._pair_rows] = self._margin if by_mujoco else _EXCLUDED_MARGIN
        gap[..., self._pair_rows] = self._gap if by_mujoco else _EXCLUDED_GAP

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

    def is_slower_than(self, speed: float, qvel: np.ndarray) -> bool:
        """Whether the pair closes at less than `speed` (m/s) wherever it touches.

        It takes a fraction of the time of `contact_state`, but may say no where that says yes.

        Args:
            speed: m/s.
            qvel: (nv,), velocity of the simulation.
        """
        if self._radius is None:
            return False
        velocity = qvel[self.struck.qvel]
        linear = float(np.linalg.norm(velocity[:3]))
        return linear + self._radius * float(np.linalg.norm(velocity[3:])) < speed

    def distance(
        self, model: mujoco.MjModel, data: mujoco.MjData, nearest_points: np.ndarray | None = None
    ) -> float:
        """Compute the signed distance (m) of the two bodies at the poses of `data`.

        Args:
            model: The compiled model.
            data: After `mj_kinematics`.
            nearest_points: (6,), written to: nearest points of the struck body and the striker, m,
                world axes.
        """
        nearest = np.inf
        points = np.zeros(6)
        for struck, striker in self._geoms:
            if len(self._geoms) > 1 and self._surely_beyond(model, data, struck, striker, nearest):
                continue
            distance = mujoco.mj_geomDistance(
                model, data, struck, striker, _SEARCH_DISTANCE, points
            )
            if distance < nearest:
                nearest = float(distance)
                if nearest_points is not None:
                    nearest_points[:] = points
        return nearest

    def _surely_beyond(
        self, model: mujoco.MjModel, data: mujoco.MjData, a: int, b: int, distance: float
    ) -> bool:
        """Whether two geoms are farther apart than a distance (m), by their bounding spheres."""
        radii = model.geom_rbound[[a, b]]
        if not radii.all():  # a plane has no end
            return False
        between = np.linalg.norm(data.geom_xpos[a] - data.geom_xpos[b])
        return bool(between - radii.sum() > distance)

    def contact_state(self, model: mujoco.MjModel, data: mujoco.MjData) -> ContactState | None:
        """The pair at the qpos and qvel of `data`; None where no contact normal can be found."""
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_makeM(model, data)
        mujoco.mj_factorM(model, data)
        nearest_points = np.zeros(6)
        distance = self.distance(model, data, nearest_points)
        basis = np.eye(3) if self.plane is None else self.plane[:2]  # rows: axes of the scene
        separation = basis @ (nearest_points[:3] - nearest_points[3:])
        if distance <= 0:  # overlapping: the nearest points have changed sides
            separation = separation * -1.0
        length = float(np.linalg.norm(separation))
        if length < _NO_NORMAL:
            return None
        normal = separation / length
        point = basis @ nearest_points[3:]

        origin = data.xpos[self.struck.body].copy()
        struck_twist, _ = self._twist(model, data, self.struck.body, point=origin)
        striker_twist, striker_jacobian = self._twist(model, data, self._striker, point=origin)
        striker_own_twist, _ = self._twist(
            model, data, self._striker, point=data.xpos[self._striker].copy()
        )
        struck_pose = self._pose(data, self.struck.body, self.zero_yaw_rotation)
        striker_pose = self._pose(data, self._striker, self._striker_zero_yaw_rotation)
        qvel_per_twist, struck_inverse_inertia = self._struck_response(model, data)
        qvel_per_impulse, striker_inverse_inertia = self._striker_response(
            model, data, striker_jacobian
        )
        return ContactState(
            before=np.concatenate([struck_pose, struck_twist, striker_pose, striker_own_twist]),
            struck_twist=struck_twist,
            striker_twist=striker_twist,
            point=point,
            normal=normal,
            struck_inverse_inertia=struck_inverse_inertia,
            striker_inverse_inertia=striker_inverse_inertia,
            normal_jacobian=self._normal_jacobian(point - basis @ origin, normal),
            qvel_per_twist=qvel_per_twist,
            striker_qvel_per_impulse=qvel_per_impulse,
        )

    def contact_states_at(
        self, model: mujoco.MjModel, data: mujoco.MjData, before: np.ndarray
    ) -> list[ContactState]:
        """Put the pair as in each row of `before` (N, d) and look at it; `data` is overwritten."""
        qpos = np.tile(model.qpos0, (len(before), 1))
        qvel = np.zeros((len(before), model.nv))
        PairPoser(self.scene).write(before, qpos, qvel)
        contacts = []
        for row in range(len(before)):
            data.qpos[:] = qpos[row]
            data.qvel[:] = qvel[row]
            contact = self.contact_state(model, data)
            assert contact is not None  # bodies that were brought to touch are a little apart
            contacts.append(contact)
        return contacts

    def _ground_is_plane(self) -> bool:
        """Whether the ground of the model's scene is a plane, over whose edge nothing can tip."""
        if self.scene.ground is None:
            return False
        kind = int(self.scene.base.geom(self.scene.ground).type[0])
        return kind == int(mujoco.mjtGeom.mjGEOM_PLANE)

    def _normal_jacobian(self, arm: np.ndarray, normal: np.ndarray) -> np.ndarray:
        """(k,): from a twist at the origin to the normal velocity of a point `arm` (m) from it."""
        if self.plane is None:
            return np.concatenate([normal, np.cross(arm, normal)])
        moment = arm[0] * normal[1] - arm[1] * normal[0]
        return np.concatenate([normal, [moment]])

    def _struck_response(
        self, model: mujoco.MjModel, data: mujoco.MjData
    ) -> tuple[np.ndarray, np.ndarray]:
        """The struck body's entries of qvel per unit twist (k, m), and inverse inertia (k, k)."""
        k = self._twist_size
        world_to_twist = self._world_to_twist()
        coordinates = np.repeat(data.qpos[None, self.struck.qpos], k, 0)
        qvel_per_twist = self.struck.rates(
            world_to_twist[:, :3], world_to_twist[:, 3:], coordinates
        )
        if len(self.struck.qvel) < k:
            # Its joints allow no unit twist, but an impulse still has an effect.
            _, jacobian = self._twist(
                model, data, self.struck.body, point=data.xpos[self.struck.body].copy()
            )
            solved = np.zeros((k, model.nv))
            mujoco.mj_solveM(model, data, solved, jacobian)
            return qvel_per_twist, jacobian @ solved.T
        qvel = np.zeros((k, model.nv))  # a row for each unit twist
        qvel[:, self.struck.qvel] = qvel_per_twist
        momentum = np.zeros((k, model.nv))
        for i in range(k):
            mujoco.mj_mulM(model, data, momentum[i], qvel[i])
        return qvel_per_twist, np.linalg.inv(qvel @ momentum.T)

    def _striker_response(
        self, model: mujoco.MjModel, data: mujoco.MjData, jacobian: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change of qvel by a unit impulse on the striker (nv, k), and inverse inertia (k, k).

        `jacobian` (k, nv) is that of the striker's twist; a fixed striker's is zero.
        """
        qvel_per_impulse = np.zeros((model.nv, self._twist_size))
        if jacobian.any() and self._damping.any():
            inertia = np.zeros((model.nv, model.nv))
            mujoco.mj_fullM(model, data, inertia)
            # What dampers take during a contact is as if the joints had more inertia.
            inertia += np.diag(self.contact_duration(model) * self._damping)
            qvel_per_impulse = np.linalg.solve(inertia, jacobian.T)
        elif jacobian.any():
            solved = np.zeros((self._twist_size, model.nv))
            mujoco.mj_solveM(model, data, solved, jacobian)
            qvel_per_impulse = solved.T
        return qvel_per_impulse, jacobian @ qvel_per_impulse

    def contact_duration(self, model: mujoco.MjModel) -> float:
        """Duration (s) of a contact of the pair: half a period of its spring (MuJoCo's solref)."""
        first, second = map(float, model.pair_solref[self._pair_rows[0]])
        if first < 0:  # -stiffness, -damping
            return np.pi / np.sqrt(-first)
        return np.pi * first * second  # time constant and damping ratio

    def _world_to_twist(self) -> np.ndarray:
        """(k, 6): from linear and angular velocity in world axes to a twist."""
        if self.plane is None:
            return np.eye(6)
        matrix = np.zeros((3, 6))
        matrix[:2, :3] = self.plane[:2]
        matrix[2, 3:] = self.plane[2]
        return matrix

    def _twist(
        self, model: mujoco.MjModel, data: mujoco.MjData, body: int, *, point: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Twist (k,) of a body at the point of it that is at `point`, and its Jacobian (k, nv)."""
        jacobian = np.zeros((6, model.nv))
        mujoco.mj_jac(model, data, jacobian[:3], jacobian[3:], point, body)
        jacobian = self._world_to_twist() @ jacobian
        return jacobian @ data.qvel, jacobian

    def _pose(self, data: mujoco.MjData, body: int, zero_yaw_rotation: np.ndarray) -> np.ndarray:
        """Pose of a body as in `Impacts`: x, y, yaw, or in space position and quaternion wxyz."""
        if self.plane is None:
            return np.concatenate([data.xpos[body], data.xquat[body]])
        axis_x, axis_y, _ = self.plane
        position = data.xpos[body]
        heading = (data.xmat[body].reshape(3, 3) @ zero_yaw_rotation.T) @ axis_x
        yaw = np.arctan2(axis_y @ heading, axis_x @ heading)
        return np.array([axis_x @ position, axis_y @ position, yaw])


def _sensor_addresses(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Indices in sensordata of the first values of sensors NAME/0, NAME/1 and so on."""
    found: list[int] = []
    while mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, f"{name}/{len(found)}") >= 0:
        found.append(int(model.sensor(f"{name}/{len(found)}").adr[0]))
    return np.array(found, int)
