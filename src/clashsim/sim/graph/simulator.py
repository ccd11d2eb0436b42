"""The graph simulator: convex bodies on fixed surfaces, differentiable from end to end.

A step is free motion, collision detection, and a graph network that gives the impulses of contacts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from clashsim.core.box import Box
from clashsim.core.convex_mesh import ConvexBody
from clashsim.core.errors import DataError
from clashsim.nets.contact_features import FreeStep
from clashsim.nets.face_search import ContactSearch
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.mesh_graph import GraphNet, step_with_contacts
from clashsim.nets.nearest_points import attach_point_gradients
from clashsim.nets.network_file import read_net, shipped_net
from clashsim.nets.rigid_bodies import (
    RigidBodies,
    RigidBodyState,
    cross,
    free_motion,
    rotate,
    rotate_inverse,
)
from clashsim.sim.graph.detection import Detector
from clashsim.sim.graph.recorded_steps import RecordedSteps
from clashsim.sim.graph.surroundings import Surroundings, refuse_untrained, unit_of_length
from clashsim.sim.inputs import check_boxes, check_vector, nothing_to_step


class GraphSim:
    """Convex bodies on fixed surfaces by a graph network.

    States are those of MuJoCo's free joints: qpos (7 numbers per body), then qvel (6 per body). A
    step depends on the state alone, not on earlier steps.

    Attributes:
        shapes: The k bodies of one scene.
        net: The network.
        contact: (c,) or (k, c), contact parameters on the network's unit scale.
        dt: s, duration of a step.
        length: m, the network's unit of length in this scene.
        gravity: (3,), m/s^2.
        surfaces: What the bodies touch but do not move.
        rounding: m, radius by which the bodies are rounded.
        device: Torch device of rollouts without gradients.
        drag: 1/s, rate at which velocity decays in flight.
    """

    def __init__(
        self,
        bodies: Sequence[Box | ConvexBody],
        contact: np.ndarray,
        *,
        net: GraphNet | Path | None = None,
        dt: float = 1 / 148,
        rounding: float = 0.0,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        """Make a simulator; `clashsim.sim.graph.scene_bodies` makes one of a MuJoCo model.

        Args:
            bodies: The bodies of one scene.
            contact: (c,) or (bodies, c), contact parameters on the network's unit scale, of which
                `net.domain` has the ranges.
            net: A network or its file; by default the one that comes with clashsim.
            dt: s, duration of a step.
            rounding: m, radius by which the bodies are rounded.
            surroundings: Gravity, drag, planes and fixed meshes.
        """
        if not bodies:
            raise DataError("a graph simulator needs at least one body")
        self.shapes = tuple(
            ConvexBody.of_box(body) if isinstance(body, Box) else body for body in bodies
        )
        self.dt = dt
        self.rounding = rounding
        self.device = "cpu"
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
        refuse_untrained(self.net.domain, self.shapes, surroundings, dt=dt)
        self.length = unit_of_length(self.net.domain, self.shapes)
        planes = surroundings.planes()
        self.surfaces = FixedSurfaces.of(planes, surroundings.fixed, length=self.length)
        self._centre = torch.tensor(np.array([body.centre for body in self.shapes]))
        self._axes = torch.tensor(np.array([body.axes for body in self.shapes]))
        # Of the last call without theta: number of scenes, bodies and detector.
        self._kept: tuple[int, RigidBodies, Detector] | None = None

    def to(self, device: str) -> GraphSim:
        """The same simulator with rollouts (without gradients) on a torch device."""
        moved = copy.copy(self)
        moved.device = device
        return moved

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate N scenes, without gradients.

        Args:
            start: (N, 13 bodies), states.
            control: (N, T, 0), sets the number of steps T.
            theta: (c,) or (N, c), replaces the contact parameters.

        Returns:
            States (N, T + 1, 13 bodies), the start included.
        """
        start, control = check_boxes(len(self.shapes), start, control)
        if theta is not None:
            names = [f"contact parameter {i}" for i in range(self.contact.shape[-1])]
            theta = check_vector("theta", theta, len(start), names)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        bodies, detector = self._bodies(len(start), theta)
        state = self.state(torch.as_tensor(start, dtype=torch.float64))
        steps = control.shape[1]
        states = []
        if self.device == "cpu":
            with torch.inference_mode():
                for _ in range(steps):
                    state = self.step(bodies, state, detector)
                    states.append(state)
        else:
            states = self.recorded_steps(bodies)(state.to(self.device), steps)
        later = self.rows(_joined(states).to("cpu"))
        later = later.reshape(steps, *start.shape).transpose(1, 0, 2)
        return np.concatenate([start[:, None], later], 1)

    def recorded_steps(self, bodies: RigidBodies) -> RecordedSteps:
        """Steps of bodies on the simulator's device."""
        device = self.device
        pairs = _pairs_in_scenes(bodies).to(device)
        search = ContactSearch(self.surfaces.to(device), pairs if len(pairs) > 0 else None)
        net = copy.deepcopy(self.net).to(device)
        return RecordedSteps(
            net, bodies.to(device), self.gravity.to(device), dt=self.dt, search=search
        )

    def path(self, start: Tensor, steps: int) -> list[RigidBodyState]:
        """States of all bodies, scene by scene, over a differentiable rollout.

        Args:
            start: (N, 13 bodies), states; gradients flow into it.
            steps: Number of steps.

        Returns:
            steps + 1 states, the start included.
        """
        bodies, detector = self._bodies(len(start), None)
        states = [self.state(start)]
        for _ in range(steps):
            states.append(self.step(bodies, states[-1], detector))
        return states

    def step(
        self, bodies: RigidBodies, state: RigidBodyState, detector: Detector
    ) -> RigidBodyState:
        """Advance all bodies by one step.

        Args:
            bodies: The bodies.
            state: Their state at the beginning of the step.
            detector: Finds their contacts.

        Returns:
            The state at the end of the step.
        """
        free = free_motion(bodies, state, self.gravity, self.dt)
        contacts = attach_point_gradients(bodies, state, detector(state))
        return step_with_contacts(
            self.net, FreeStep(bodies, state, free, self.gravity, self.dt), contacts
        )

    def state(self, rows: Tensor) -> RigidBodyState:
        """Motion of the bodies' centres of mass from states (N, 13 bodies) of their origins."""
        count = len(self.shapes)
        qpos = rows[:, : 7 * count].reshape(-1, 7)
        qvel = rows[:, 7 * count :].reshape(-1, 6)
        orientation = rotation_matrices(qpos[:, 3:])  # of the bodies' origins
        arm = rotate(orientation, self._centre.repeat(len(rows), 1))
        angular_velocity = rotate(orientation, qvel[:, 3:])
        velocity = qvel[:, :3] + cross(angular_velocity, arm)
        principal = orientation @ self._axes.repeat(len(rows), 1, 1)
        return RigidBodyState(qpos[:, :3] + arm, principal, velocity, angular_velocity)

    def rows(self, state: RigidBodyState) -> np.ndarray:
        """States (N, 13 bodies) of the bodies' origins: the inverse of `state`."""
        scenes = len(state.position) // len(self.shapes)
        orientation = state.orientation @ self._axes.repeat(scenes, 1, 1).transpose(1, 2)
        arm = rotate(orientation, self._centre.repeat(scenes, 1))
        rotation = Rotation.from_matrix(orientation.detach().numpy())
        quaternion = rotation.as_quat(scalar_first=True)
        position = (state.position - arm).detach().numpy()
        qpos = np.concatenate([position, quaternion], 1)
        velocity = state.velocity - cross(state.angular_velocity, arm)
        angular_velocity = rotate_inverse(orientation, state.angular_velocity)
        qvel = torch.cat([velocity, angular_velocity], 1).detach().numpy()
        return np.concatenate([qpos.reshape(scenes, -1), qvel.reshape(scenes, -1)], 1)

    def _bodies(self, n: int, theta: np.ndarray | None) -> tuple[RigidBodies, Detector]:
        """The bodies of n scenes, and their detector."""
        if theta is None and self._kept is not None and self._kept[0] == n:
            return self._kept[1:]
        count = len(self.shapes)
        if theta is None:
            per_body = np.broadcast_to(self.contact, (count, self.contact.shape[-1]))
            contact = np.tile(per_body, (n, 1))
        else:
            per_scene = np.broadcast_to(theta, (n, theta.shape[-1]))
            contact = np.repeat(per_scene, count, 0)
        bodies = RigidBodies.of(
            self.shapes,
            contact,
            length=self.length,
            scenes=n,
            drag=self.drag,
            rounding=self.rounding,
        )
        detector = Detector(bodies, self.surfaces)
        if theta is None:
            self._kept = (n, bodies, detector)
        return bodies, detector


def _joined(states: Sequence[RigidBodyState]) -> RigidBodyState:
    """The bodies of several states, one state after the other."""
    names = [field.name for field in fields(RigidBodyState)]
    return RigidBodyState(
        *(torch.cat([getattr(state, name) for state in states]) for name in names)
    )


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
