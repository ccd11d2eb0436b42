"""The graph simulator: gradients, rigid shapes, momentum, symmetry, and collision detection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from clashsim.core.box import Box
from clashsim.core.convex_mesh import ConvexMesh
from clashsim.core.errors import ClashError
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.nearest_points import NearestPoint
from clashsim.nets.rigid_bodies import RigidBodyState, rotation_from_vector
from clashsim.sim.graph.simulator import GraphSim
from clashsim.sim.graph.surroundings import Surroundings

CUBE = Box.even((0.05, 0.05, 0.05), 0.37)
NO_ROTATION = np.array([[1.0, 0, 0, 0]])
NUM_CONTACT_PARAMS = 5
FacePair = tuple[int, int]


def start_state(
    positions: list[list[float]], quaternions: np.ndarray, velocities: list[list[float]]
) -> np.ndarray:
    """A state (13 k,) of k boxes that do not rotate."""
    k = len(positions)
    state = np.zeros(13 * k)
    for i in range(k):
        state[7 * i : 7 * i + 7] = [*positions[i], *quaternions[i]]
        state[7 * k + 6 * i : 7 * k + 6 * i + 3] = velocities[i]
    return state


def random_quaternions(seed: int, n: int = 1) -> np.ndarray:
    return Rotation.random(n, rng=np.random.default_rng(seed)).as_quat(scalar_first=True)


def untrained_net(seed: int = 0) -> GraphNet:
    """A network with random weights that pushes strongly, for what holds by construction."""
    torch.manual_seed(seed)
    net = GraphNet(NUM_CONTACT_PARAMS, hidden=16, layers=2)
    for layer in net.layers:
        torch.nn.init.normal_(layer.out.weight, std=0.5)
    return net.eval()


def graph_sim(*boxes: Box, **options) -> GraphSim:
    return GraphSim(boxes, np.zeros(NUM_CONTACT_PARAMS), **options)


def no_control(steps: int) -> np.ndarray:
    return np.zeros((1, steps, 0))


def test_point_gradients_agree_with_finite_differences_of_the_detector():
    position = np.array([[0.0, 0.0, 0.062], [0.0, 0.0, 0.172]])
    orientation = Rotation.from_rotvec([[0.2, 0.1, 0.0], [0.3, -0.25, 0.4]]).as_matrix()
    _, detector = graph_sim(CUBE, CUBE, net=untrained_net())._bodies(1, None)

    def face_pairs(position: np.ndarray, orientation: np.ndarray) -> tuple[Tensor, Tensor]:
        places, still = torch.tensor(position), torch.zeros(2, 3, dtype=torch.float64)
        contacts = detector(RigidBodyState(places, torch.tensor(orientation), still, still))
        return contacts.face, contacts.point

    def distances(position: np.ndarray, orientation: np.ndarray) -> dict[FacePair, float]:
        faces, points = face_pairs(position, orientation)
        lengths = (points[:, 0] - points[:, 1]).norm(dim=1)
        return {
            (int(a), int(b)): float(length) for (a, b), length in zip(faces, lengths, strict=True)
        }

    step = 1e-6
    moves = ((0, 0), (0, 2), (1, 1), (1, 2))  # body and axis
    shifted, rotated = {}, {}
    for body, axis in moves:
        change = np.zeros((2, 3))
        change[body, axis] = step
        shifted[body, axis] = (
            distances(position + change, orientation),
            distances(position - change, orientation),
        )
        forward = Rotation.from_rotvec(change).as_matrix()
        backward = Rotation.from_rotvec(-change).as_matrix()
        rotated[body, axis] = (
            distances(position, forward @ orientation),
            distances(position, backward @ orientation),
        )

    faces, points = face_pairs(position, orientation)
    place = torch.tensor(position, requires_grad=True)
    rotation = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    orientations = rotation_from_vector(rotation) @ torch.tensor(orientation)
    checked = 0
    for face_pair, pair_points in zip(faces.tolist(), points, strict=True):
        ends = []
        for side, face in enumerate(face_pair):
            point = pair_points[side : side + 1]
            body = face // 12
            ends.append(NearestPoint.apply(point, place[[body]], orientations[[body]]))
        distance = (ends[0] - ends[1]).norm()
        by_shift, by_rotation = torch.autograd.grad(distance, (place, rotation), retain_graph=True)
        for move in moves:
            key = tuple(face_pair)
            tables = (*shifted[move], *rotated[move])
            if any(key not in table for table in tables):
                continue  # the set of pairs is held fixed: this one has left it
            ahead, behind, rotated_ahead, rotated_behind = (table[key] for table in tables)
            assert abs((ahead - behind) / (2 * step) - float(by_shift[move])) < 2e-4
            difference = (rotated_ahead - rotated_behind) / (2 * step)
            assert abs(difference - float(by_rotation[move])) < 2e-4
            checked += 1
    assert checked > 20


def test_gradients_of_a_rollout_agree_with_finite_differences():
    sim = graph_sim(CUBE)
    state = start_state([[0, 0, 0.075]], random_quaternions(3), [[0.4, 0.1, -0.8]])
    row = torch.tensor(state[None])

    def last_velocity(speed: torch.Tensor) -> torch.Tensor:
        start = torch.cat([row[:, :7], speed, row[:, 8:]], 1)
        return sim.path(start, 5)[-1].velocity[:, 0].sum()

    speed = torch.tensor([[0.4]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(last_velocity(speed), speed)
    with torch.no_grad():
        difference = (last_velocity(speed + 1e-3) - last_velocity(speed - 1e-3)) / 2e-3
    assert abs(float(gradient) - 1) > 0.1  # contact has changed it
    assert float(gradient) == pytest.approx(float(difference), rel=2e-3)


def test_shapes_stay_rigid():
    sim = graph_sim(CUBE, net=untrained_net())
    start = start_state([[0, 0, 0.08]], random_quaternions(1), [[0.5, 0, -1.0]])
    states = sim.path(torch.tensor(start[None]), 12)
    in_free_fall = states[0].velocity + 12 * sim.dt * sim.gravity
    assert (states[-1].velocity - in_free_fall).norm() > 0.3  # it did hit the floor
    for state in states:
        product = state.orientation @ state.orientation.transpose(1, 2)
        assert (product - torch.eye(3)).abs().max() < 1e-9
        corners = torch.tensor(CUBE.corners) @ state.orientation[0].T
        diagonal = float((corners[0] - corners[7]).norm().detach())
        assert abs(diagonal - 0.1 * 3**0.5) < 1e-6


def test_a_free_pair_keeps_its_momentum():
    """Without a floor: linear momentum, and angular momentum as far as bodies move within a step.

    Impulses act where bodies touch at the beginning of a step, and change velocities at its end.
    """
    light = Box.even((0.05, 0.05, 0.05), 0.2)
    in_space = Surroundings(gravity=(0, 0, 0), floor_height=-10.0)
    sim = graph_sim(CUBE, light, surroundings=in_space)
    start = start_state(
        [[0, 0, 0], [0.13, 0.06, 0.01]],
        np.array([[1.0, 0, 0, 0], [0.98, 0, 0, 0.199]]),
        [[1.2, 0, 0], [0, 0, 0]],
    )
    states = sim.rollout(start[None], no_control(12))[0]
    qpos = states[:, :14].reshape(-1, 2, 7)
    qvel = states[:, 14:].reshape(-1, 2, 6)
    velocity = qvel[..., :3]
    mass = np.array([0.37, 0.2])
    inertia = np.array([CUBE.inertia, light.inertia])
    momentum = (velocity * mass[:, None]).sum(1)
    assert np.abs(velocity[-1, 1]).max() > 0.3  # they did meet
    assert np.abs(momentum - momentum[0]).max() < 1e-9
    quaternions = qpos[..., 3:].reshape(-1, 4)
    orientation = Rotation.from_quat(quaternions, scalar_first=True).as_matrix()
    orientation = orientation.reshape(-1, 2, 3, 3)
    own = np.einsum("tkij,kj,tkj->tki", orientation, inertia, qvel[..., 3:])
    angular = own + mass[:, None] * np.cross(qpos[..., :3], velocity)
    assert np.abs(angular[-1, 0] - angular[0, 0]).max() > 1e-3  # they were hit off their centres
    exchanged = mass[1] * np.linalg.norm(velocity[-1, 1] - velocity[0, 1])
    moved_in_a_step = 1.2 / 148
    assert np.abs((angular - angular[0]).sum(1)).max() < 0.3 * exchanged * moved_in_a_step


def test_rotating_and_shifting_a_scene_does_so_to_the_answer():
    net = untrained_net()
    rotation = Rotation.from_rotvec([0.7, -0.4, 1.1])
    shift = np.array([0.3, -0.2, 0.5])
    start = start_state(
        [[0, 0, 0.075], [0.09, 0.03, 0.17]],
        random_quaternions(5, 2),
        [[0.4, 0, -0.8], [-0.3, 0, -1.0]],
    )
    moved = start.copy()
    for i in (0, 1):
        position = slice(7 * i, 7 * i + 3)
        quaternion = slice(7 * i + 3, 7 * i + 7)
        velocity = slice(14 + 6 * i, 17 + 6 * i)
        moved[position] = rotation.apply(start[position]) + shift
        turned = rotation * Rotation.from_quat(start[quaternion], scalar_first=True)
        moved[quaternion] = turned.as_quat(scalar_first=True)
        moved[velocity] = rotation.apply(start[velocity])
    up = rotation.apply([0.0, 0, 1])
    moved_surroundings = Surroundings(
        gravity=-9.81 * up, floor_normal=up, floor_height=float(up @ shift)
    )
    sim = graph_sim(CUBE, CUBE, net=net)
    moved_sim = graph_sim(CUBE, CUBE, net=net, surroundings=moved_surroundings)
    end = sim.rollout(start[None], no_control(5))[0, -1]
    moved_end = moved_sim.rollout(moved[None], no_control(5))[0, -1]
    assert np.abs(end[14:17] - start[14:17]).max() > 0.05
    for i in (0, 1):
        position = slice(7 * i, 7 * i + 3)
        expected = rotation.apply(end[position]) + shift
        assert np.abs(expected - moved_end[position]).max() < 1e-4


def test_a_cube_comes_to_rest_on_the_floor():
    start = start_state([[0, 0, 0.06]], NO_ROTATION, [[0.3, 0, 0]])
    end = graph_sim(CUBE).rollout(start[None], no_control(60))[0, -1]
    assert abs(end[2] - 0.05) < 0.004
    assert np.abs(end[7:10]).max() < 0.1


def test_meshes_shrink_and_wrong_input_is_refused():
    assert np.allclose(np.abs(ConvexMesh.box(CUBE.half).shrunk(0.004)), 0.046)
    with pytest.raises(ClashError, match="contact parameters"):
        GraphSim([CUBE], np.zeros(3))
    with pytest.raises(ClashError, match="start needs shape"):
        graph_sim(CUBE).rollout(np.zeros((1, 12)), no_control(2))
