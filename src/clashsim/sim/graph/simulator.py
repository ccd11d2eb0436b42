"""The graph simulator: free motion, collision detection, a mesh graph network for contact, shape
matching; differentiable from end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from clashsim.sim.graph.detection import Detector
from clashsim.sim.inputs import check_boxes, check_vector, nothing_to_step


class GraphSim:
    """Boxes on a floor, `Simulator` for states of MuJoCo's free joints: qpos (7 a box), then qvel
    (6 a box).

    contact (c,) or (boxes, c): parameters of the contact on the network's unit scale. Memory
    between steps is the state alone.
    """

    def __init__(
        self,
        boxes: Sequence[Box],
        contact: np.ndarray,
        *,
        net: GraphNet | Path | None = None,
        dt: float = 1 / 148,
        gravity: Sequence[float] = (0.0, 0.0, -9.81),
        normal: Sequence[float] = (0.0, 0.0, 1.0),
        height: float = 0.0,
        drag: float = 0.0,
        rounding: float = 0.0,
        coal: bool = True,
    ) -> None:
        if not boxes:
            raise DataError("a graph simulator needs at least one box")
        self.boxes, self.dt, self.rounding, self.drag, self.coal = (
            tuple(boxes),
            dt,
            rounding,
            drag,
            coal,
        )
        self.net = (
            net if isinstance(net, GraphNet) else shipped_net() if net is None else read_net(net)
        )
        if np.shape(contact)[-1] != self.net.shape["contact"]:
            raise DataError(
                f"the network takes {self.net.shape['contact']} contact parameters, got {np.shape(contact)[-1]}"
            )
        self.contact = np.asarray(contact, float)
        self.gravity = torch.tensor(gravity, dtype=torch.float64)
        unit = np.asarray(normal, float) / np.linalg.norm(normal)
        self.floor = Floor(torch.tensor(unit), height)
        self._detection: dict[str, Any] = {
            "normal": unit,
            "height": height,
            "skin": SKIN,
            "reach": DETECTION_RANGE,
        }
        self._made: tuple[int, RigidBodies, Detector | None] | None = None

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """States (N, T + 1, 13 boxes), the start included, from start (N, 13 boxes); control (N, T,
        0) says how many steps.

        theta (c,) or (N, c) replaces the contact's parameters.
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
        """States of all bodies, scene by scene, over a differentiable rollout from start (N, 13
        boxes).
        """
        bodies, detector = self._bodies(len(start), None)
        states = [self.state(bodies, start)]
        for _ in range(steps):
            states.append(self.step(bodies, states[-1], detector))
        return states

    def step(
        self, bodies: RigidBodies, state: RigidBodyState, detector: Detector | None
    ) -> RigidBodyState:
        """One step of all bodies."""
        free = free_motion(bodies, state, self.gravity, self.dt)
        if detector is None:
            contacts = find_box_contacts(bodies, state, self.floor, _pairs(bodies))
        else:
            faces, points = detector(
                state.position.detach().numpy(), state.orientation.detach().numpy()
            )
            contacts = keep_facing(
                bodies,
                state,
                Contacts(
                    torch.as_tensor(faces), torch.as_tensor(points), int((faces[:, 1] < 0).sum())
                ),
                self.floor,
            )
        return step_with_contacts(
            self.net,
            bodies,
            state,
            free,
            attach_point_gradients(bodies, state, contacts, self.floor),
            floor=self.floor,
            dt=self.dt,
        )

    def _bodies(self, n: int, theta: np.ndarray | None) -> tuple[RigidBodies, Detector | None]:
        if theta is None and self._made is not None and self._made[0] == n:
            return self._made[1:]
        k = len(self.boxes)
        contact = (
            np.broadcast_to(self.contact, (k, self.contact.shape[-1])) if theta is None else None
        )
        rows = (
            np.tile(contact, (n, 1))
            if contact is not None
            else np.repeat(np.broadcast_to(theta, (n, np.shape(theta)[-1])), k, 0)
        )  # type: ignore[arg-type]
        scene = np.repeat(np.arange(n), k)
        bodies = RigidBodies.boxes(
            self.boxes * n, rows, scene=scene.tolist(), drag=self.drag, rounding=self.rounding
        )
        corners = [b.corners - np.array(b.centre) for b in self.boxes] * n
        detector = (
            Detector(corners, [TRIANGLES] * len(corners), scene, **self._detection)
            if self.coal
            else None
        )
        if theta is None:
            self._made = (n, bodies, detector)
        return bodies, detector

    def state(self, bodies: RigidBodies, rows: Tensor) -> RigidBodyState:
        """Motion of the bodies' centres of mass from rows (N, 13 boxes)."""
        k = len(self.boxes)
        qpos, qvel = rows[:, : 7 * k].reshape(-1, 7), rows[:, 7 * k :].reshape(-1, 6)
        turn = matrices(qpos[:, 3:])
        arm, spin = rotate(turn, bodies.centre), rotate(turn, qvel[:, 3:])
        return RigidBodyState(qpos[:, :3] + arm, turn, qvel[:, :3] + cross(spin, arm), spin)

    def rows(self, bodies: RigidBodies, state: RigidBodyState) -> np.ndarray:
        """Inverse of `state`."""
        arm = rotate(state.orientation, bodies.centre)
        quaternion = Rotation.from_matrix(state.orientation.detach().numpy()).as_quat(
            scalar_first=True
        )
        qpos = np.concatenate([(state.position - arm).detach().numpy(), quaternion], 1)
        qvel = (
            torch.cat(
                [
                    state.velocity - cross(state.angular_velocity, arm),
                    rotate_inverse(state.orientation, state.angular_velocity),
                ],
                1,
            )
            .detach()
            .numpy()
        )
        n = len(qpos) // len(self.boxes)
        return np.concatenate([qpos.reshape(n, -1), qvel.reshape(n, -1)], 1)


def matrices(quaternion: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions wxyz (n, 4)."""
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


def _pairs(bodies: RigidBodies) -> Tensor:
    """Pairs (P, 2) of bodies in the same scene."""
    i, j = torch.triu_indices(len(bodies), len(bodies), 1)
    same = bodies.scene[i] == bodies.scene[j]
    return torch.stack([i[same], j[same]], 1)
