"""The graph simulator: boxes on a floor, differentiable from end to end.

A step is free motion, collision detection, a mesh graph network for the contacts, and shape
matching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from clashsim.core.box import Box
from clashsim.core.errors import DataError
from clashsim.nets.contact_features import DETECTION_RANGE, SKIN, Contacts, Floor
from clashsim.nets.mesh_graph import GraphNet, step_with_contacts
from clashsim.nets.nearest_points import attach_point_gradients, find_box_contacts, keep_facing
from clashsim.nets.network_file import read_net, shipped_net
from clashsim.nets.rigid_bodies import (
    TRIANGLES,
    RigidBodies,
    RigidBodyState,
    cross,
    free_motion,
    rotate,
    rotate_inverse,
)
from clashsim.sim.graph.detection import DetectionConfig, Detector
from clashsim.sim.inputs import check_boxes, check_vector, nothing_to_step


@dataclass(frozen=True)
class Surroundings:
    """What surrounds the boxes of a graph simulator.

    Attributes:
        gravity: (3,), m/s^2, world axes.
        floor_normal: (3,), world axes, of any length.
        floor_height: m, along the normal.
        drag: 1/s, rate at which the velocity of boxes decays in flight.
    """

    gravity: Sequence[float] = (0.0, 0.0, -9.81)
    floor_normal: Sequence[float] = (0.0, 0.0, 1.0)
    floor_height: float = 0.0
    drag: float = 0.0


class GraphSim:
    """Boxes on a floor by a mesh graph network.

    States are those of MuJoCo's free joints: qpos (7 numbers per box), then qvel (6 per box). A
    step depends on the state alone, not on earlier steps.

    Attributes:
        boxes: The boxes of one scene.
        net: The network.
        contact: (c,) or (boxes, c), contact parameters on the network's unit scale.
        dt: s, duration of a step.
        gravity: (3,), m/s^2.
        floor: The floor.
        rounding: m, radius by which the boxes are rounded.
        coal: Whether contacts are found by Coal.
        drag: 1/s, rate at which velocity decays in flight.
    """

    def __init__(
        self,
        boxes: Sequence[Box],
        contact: np.ndarray,
        *,
        net: GraphNet | Path | None = None,
        dt: float = 1 / 148,
        rounding: float = 0.0,
        coal: bool = True,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        """Make a simulator.

        Args:
            boxes: The boxes of one scene.
            contact: (c,) or (boxes, c), contact parameters on the network's unit scale.
            net: A network or its file; by default the one that comes with clashsim.
            dt: s, duration of a step; the shipped network was trained for the default.
            rounding: m, radius by which the boxes are rounded.
            coal: Find contacts by Coal, else by a batched search.
            surroundings: Gravity, floor and drag.
        """
        if not boxes:
            raise DataError("a graph simulator needs at least one box")
        self.boxes = tuple(boxes)
        self.dt = dt
        self.rounding = rounding
        self.coal = coal
        self.drag = surroundings.drag
        if isinstance(net, GraphNet):
            self.net = net
        elif net is None:
            self.net = shipped_net()
        else:
            self.net = read_net(net)
        count = np.shape(contact)[-1]
        expected = self.net.shape["contact"]
        if count != expected:
            raise DataError(f"the network takes {expected} contact parameters, got {count}")
        self.contact = np.asarray(contact, float)
        self.gravity = torch.tensor(surroundings.gravity, dtype=torch.float64)
        normal = np.asarray(surroundings.floor_normal, float)
        normal = normal / np.linalg.norm(normal)
        self.floor = Floor(torch.tensor(normal), surroundings.floor_height)
        self._detection = DetectionConfig(
            normal=normal,
            height=surroundings.floor_height,
            skin=SKIN,
            max_distance=DETECTION_RANGE,
        )
        # Of the last call without theta: number of scenes, bodies and detector.
        self._kept: tuple[int, RigidBodies, Detector | None] | None = None

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate N scenes, without gradients.

        Args:
            start: (N, 13 boxes), states.
            control: (N, T, 0), sets the number of steps T.
            theta: (c,) or (N, c), replaces the contact parameters.

        Returns:
            States (N, T + 1, 13 boxes), the start included.
        """
        start, control = check_boxes(len(self.boxes), start, control)
        if theta is not None:
            names = [f"contact parameter {i}" for i in range(self.contact.shape[-1])]
            theta = check_vector("theta", theta, len(start), names)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        bodies, detector = self._bodies(len(start), theta)
        state = self.state(bodies, torch.as_tensor(start, dtype=torch.float64))
        out = [start]
        with torch.no_grad():
            for _ in range(control.shape[1]):
                state = self.step(bodies, state, detector)
                out.append(self.rows(bodies, state))
        return np.stack(out, 1)

    def path(self, start: Tensor, steps: int) -> list[RigidBodyState]:
        """States of all bodies, scene by scene, over a differentiable rollout.

        Args:
            start: (N, 13 boxes), states; gradients flow into it.
            steps: Number of steps.

        Returns:
            steps + 1 states, the start included.
        """
        bodies, detector = self._bodies(len(start), None)
        states = [self.state(bodies, start)]
        for _ in range(steps):
            states.append(self.step(bodies, states[-1], detector))
        return states

    def step(
        self, bodies: RigidBodies, state: RigidBodyState, detector: Detector | None
    ) -> RigidBodyState:
        """Advance all bodies by one step.

        Args:
            bodies: The bodies.
            state: Their state at the beginning of the step.
            detector: Finds contacts; where None, the batched search does.

        Returns:
            The state at the end of the step.
        """
        free = free_motion(bodies, state, self.gravity, self.dt)
        if detector is None:
            contacts = find_box_contacts(bodies, state, self.floor, _pairs_in_scenes(bodies))
        else:
            faces, points = detector(
                state.position.detach().numpy(), state.orientation.detach().numpy()
            )
            floors = int((faces[:, 1] < 0).sum())
            found = Contacts(torch.as_tensor(faces), torch.as_tensor(points), floors)
            contacts = keep_facing(bodies, state, found, self.floor)
        contacts = attach_point_gradients(bodies, state, contacts, self.floor)
        return step_with_contacts(
            self.net, bodies, state, free, contacts, floor=self.floor, dt=self.dt
        )

    def state(self, bodies: RigidBodies, rows: Tensor) -> RigidBodyState:
        """Motion of the bodies' centres of mass from states (N, 13 boxes) of their origins."""
        count = len(self.boxes)
        qpos = rows[:, : 7 * count].reshape(-1, 7)
        qvel = rows[:, 7 * count :].reshape(-1, 6)
        orientation = rotation_matrices(qpos[:, 3:])
        arm = rotate(orientation, bodies.centre)
        angular_velocity = rotate(orientation, qvel[:, 3:])
        velocity = qvel[:, :3] + cross(angular_velocity, arm)
        return RigidBodyState(qpos[:, :3] + arm, orientation, velocity, angular_velocity)

    def rows(self, bodies: RigidBodies, state: RigidBodyState) -> np.ndarray:
        """States (N, 13 boxes) of the bodies' origins: the inverse of `state`."""
        arm = rotate(state.orientation, bodies.centre)
        rotation = Rotation.from_matrix(state.orientation.detach().numpy())
        quaternion = rotation.as_quat(scalar_first=True)
        position = (state.position - arm).detach().numpy()
        qpos = np.concatenate([position, quaternion], 1)
        velocity = state.velocity - cross(state.angular_velocity, arm)
        angular_velocity = rotate_inverse(state.orientation, state.angular_velocity)
        qvel = torch.cat([velocity, angular_velocity], 1).detach().numpy()
        scenes = len(qpos) // len(self.boxes)
        return np.concatenate([qpos.reshape(scenes, -1), qvel.reshape(scenes, -1)], 1)

    def _bodies(self, n: int, theta: np.ndarray | None) -> tuple[RigidBodies, Detector | None]:
        """The bodies of n scenes, and their detector."""
        if theta is None and self._kept is not None and self._kept[0] == n:
            return self._kept[1:]
        count = len(self.boxes)
        if theta is None:
            per_box = np.broadcast_to(self.contact, (count, self.contact.shape[-1]))
            contact = np.tile(per_box, (n, 1))
        else:
            per_scene = np.broadcast_to(theta, (n, theta.shape[-1]))
            contact = np.repeat(per_scene, count, 0)
        scene = np.repeat(np.arange(n), count)
        bodies = RigidBodies.boxes(
            self.boxes * n,
            contact,
            scene=scene.tolist(),
            drag=self.drag,
            rounding=self.rounding,
        )
        detector = None
        if self.coal:
            corners = [box.corners - np.array(box.centre) for box in self.boxes] * n
            faces = [TRIANGLES] * len(corners)
            detector = Detector(corners, faces, scene, config=self._detection)
        if theta is None:
            self._kept = (n, bodies, detector)
        return bodies, detector


def rotation_matrices(quaternion: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions wxyz (n, 4) of any length."""
    w, x, y, z = (quaternion / quaternion.norm(dim=1, keepdim=True)).unbind(1)
    return torch.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - w * z),
            2 * (x * z + w * y),
            2 * (x * y + w * z),
            1 - 2 * (x * x + z * z),
            2 * (y * z - w * x),
            2 * (x * z - w * y),
            2 * (y * z + w * x),
            1 - 2 * (x * x + y * y),
        ],
        1,
    ).reshape(-1, 3, 3)


def _pairs_in_scenes(bodies: RigidBodies) -> Tensor:
    """Pairs (P, 2) of bodies in the same scene."""
    first, second = torch.triu_indices(len(bodies), len(bodies), 1)
    same_scene = bodies.scene[first] == bodies.scene[second]
    return torch.stack([first[same_scene], second[same_scene]], 1)
