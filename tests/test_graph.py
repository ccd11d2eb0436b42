"""The graph simulator: slopes, rigid shapes, momentum, symmetry; collision detection; data scaling;
identification on trajectories.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from clashsim.core.box import Box
from clashsim.core.errors import ClashError
from clashsim.nets.mesh_graph import Contacts, Floor, GraphNet
from clashsim.nets.nearest_points import NearestPoint, find_box_contacts, keep_facing
from clashsim.nets.rigid_bodies import TRIANGLES, match_shape, rotation_from_vector

pytest.importorskip("coal", reason="collision detection needs Coal, the extra graph")

from clashsim.sim.graph.detection import Detector, drawn_in
from clashsim.sim.graph.simulator import GraphSim

CUBE = Box.even((0.05, 0.05, 0.05), 0.37)


def start(
    places: list[list[float]], turns: np.ndarray, velocities: list[list[float]]
) -> np.ndarray:
    k = len(places)
    out = np.zeros(13 * k)
    for i in range(k):
        out[7 * i : 7 * i + 7] = [*places[i], *turns[i]]
        out[7 * k + 6 * i : 7 * k + 6 * i + 3] = velocities[i]
    return out


def tilted(seed: int, n: int = 1) -> np.ndarray:
    return Rotation.random(n, rng=np.random.default_rng(seed)).as_quat(scalar_first=True)


def lively(seed: int = 0) -> GraphNet:
    """A network with weights drawn at random that pushes strongly: what holds by construction holds
    for it.
    """
    torch.manual_seed(seed)
    net = GraphNet(5, hidden=16, layers=2)
    torch.nn.init.normal_(net.out[2].weight, std=0.05)
    return net.eval()


def test_surrogate_slopes_agree_with_finite_differences_of_coal():
    flat = np.array([[0.0, 0.0, 0.0, 1.0]])
    place, turn = (
        np.array([[0.0, 0.0, 0.062], [0.0, 0.0, 0.172]]),
        Rotation.from_rotvec([[0.2, 0.1, 0.0], [0.3, -0.25, 0.4]]).as_matrix(),
    )
    detector = Detector(
        [CUBE.corners] * 2,
        [TRIANGLES] * 2,
        np.zeros(2),
        normal=flat[0, 1:],
        height=0.0,
        skin=0.004,
        reach=0.05,
    )

    def distances(p: np.ndarray, r: np.ndarray) -> dict[tuple[int, int], float]:
        faces, points = detector(p, r)
        return {
            (int(a), int(b)): float(np.linalg.norm(x - y))
            for (a, b), (x, y) in zip(faces, points, strict=True)
        }

    h, moves = 1e-6, ((0, 0), (0, 2), (1, 1), (1, 2))
    around = {}
    for i, axis in moves:
        by = np.zeros((2, 3))
        by[i, axis] = h
        around[i, axis] = [
            distances(place + by, turn),
            distances(place - by, turn),
            *(distances(place, Rotation.from_rotvec(s * by).as_matrix() @ turn) for s in (1, -1)),
        ]
    faces, points = detector(place, turn)
    p, w = (
        torch.tensor(place, requires_grad=True),
        torch.zeros(2, 3, dtype=torch.float64, requires_grad=True),
    )
    rotations = rotation_from_vector(w) @ torch.tensor(turn)
    checked = 0
    for (a, b), point in zip(faces, points, strict=True):
        owners = [int(a) // 12, -1 if b < 0 else int(b) // 12]
        ends = [
            NearestPoint.apply(torch.tensor(point[s : s + 1]), p[[o]], rotations[[o]])
            if o >= 0
            else torch.tensor(point[s : s + 1])
            for s, o in enumerate(owners)
        ]
        slopes = torch.autograd.grad((ends[0] - ends[1]).norm(), (p, w), retain_graph=True)
        for move in moves:
            values = [table.get((int(a), int(b))) for table in around[move]]
            if None in values:
                continue  # the set of pairs is held fixed: this one has left it
            assert abs((values[0] - values[1]) / (2 * h) - float(slopes[0][move])) < 2e-4
            assert abs((values[2] - values[3]) / (2 * h) - float(slopes[1][move])) < 2e-4
            checked += 1
    assert checked > 20


def test_a_rollout_has_the_slopes_of_its_finite_differences():
    sim = GraphSim([CUBE], np.zeros(5))
    row = torch.tensor(start([[0, 0, 0.075]], tilted(3), [[0.4, 0.1, -0.8]])[None])

    def end(speed: torch.Tensor) -> torch.Tensor:
        return sim.path(torch.cat([row[:, :7], speed, row[:, 8:]], 1), 5)[-1].velocity[:, 0].sum()

    speed = torch.tensor([[0.4]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(end(speed), speed)
    with torch.no_grad():
        difference = (end(speed + 1e-3) - end(speed - 1e-3)) / 2e-3
    assert abs(float(slope) - 1) > 0.1  # contact has changed it
    assert float(slope) == pytest.approx(float(difference), rel=2e-3)


def test_shapes_stay_rigid():
    sim = GraphSim([CUBE], np.zeros(5), net=lively())
    states = sim.path(torch.tensor(start([[0, 0, 0.08]], tilted(1), [[0.5, 0, -1.0]])[None]), 12)
    assert (states[-1].velocity - states[0].velocity).norm() > 0.5  # it did hit the floor
    for s in states:
        assert (s.orientation @ s.orientation.transpose(1, 2) - torch.eye(3)).abs().max() < 1e-9
        corners = torch.tensor(CUBE.corners) @ s.orientation[0].T
        assert abs(float((corners[0] - corners[7]).norm().detach()) - 0.1 * 3**0.5) < 1e-6


def test_shape_matching_finds_the_turn_of_bent_corners():
    sim = GraphSim([CUBE], np.zeros(5), net=lively())
    bodies, _ = sim._bodies(1, None)
    turn = torch.tensor(Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix())
    place, found = match_shape(
        bodies, 1.02 * (bodies.corner @ turn.T) + torch.tensor([1.0, 2.0, 3.0])
    )
    assert (found[0] - turn).abs().max() < 1e-9 and (
        place - torch.tensor([[1.0, 2.0, 3.0]])
    ).abs().max() < 1e-9


def test_a_free_pair_keeps_its_momentum():
    """Linear momentum, and angular momentum to five per cent of what passes between them
    (velocities are told half a step from places), without a floor.
    """
    light = Box.even((0.05, 0.05, 0.05), 0.2)
    sim = GraphSim([CUBE, light], np.zeros(5), gravity=(0, 0, 0), height=-10.0)
    row = start(
        [[0, 0, 0], [0.13, 0.02, 0.01]],
        np.array([[1.0, 0, 0, 0], [0.98, 0, 0, 0.199]]),
        [[1.2, 0, 0], [0, 0, 0]],
    )[None]
    path = sim.rollout(row, np.zeros((1, 12, 0)))[0]
    velocity = path[:, 14:].reshape(-1, 2, 6)[..., :3]
    momentum = (velocity * np.array([0.37, 0.2])[:, None]).sum(1)
    assert np.abs(velocity[-1, 1]).max() > 0.3  # they did meet
    assert np.abs(momentum - momentum[0]).max() < 1e-9
    turns = (
        Rotation.from_quat(path[:, :14].reshape(-1, 7)[:, 3:], scalar_first=True)
        .as_matrix()
        .reshape(-1, 2, 3, 3)
    )
    mass, inertia = np.array([0.37, 0.2]), np.array([CUBE.inertia, light.inertia])
    own = np.einsum("tkij,kj,tkj->tki", turns, inertia, path[:, 14:].reshape(-1, 2, 6)[..., 3:])
    angular = own + mass[:, None] * np.cross(path[:, :14].reshape(-1, 2, 7)[..., :3], velocity)
    passed = np.abs(angular[-1, 0] - angular[0, 0]).max()
    assert passed > 1e-3 and np.abs((angular - angular[0]).sum(1)).max() < 0.05 * passed


def test_turning_and_shifting_a_scene_turns_and_shifts_the_answer():
    net, turn, shift = lively(), Rotation.from_rotvec([0.7, -0.4, 1.1]), np.array([0.3, -0.2, 0.5])
    row = start(
        [[0, 0, 0.075], [0.09, 0.03, 0.17]], tilted(5, 2), [[0.4, 0, -0.8], [-0.3, 0, -1.0]]
    )
    moved = row.copy()
    for i in (0, 1):
        moved[7 * i : 7 * i + 3] = turn.apply(row[7 * i : 7 * i + 3]) + shift
        moved[7 * i + 3 : 7 * i + 7] = (
            turn * Rotation.from_quat(row[7 * i + 3 : 7 * i + 7], scalar_first=True)
        ).as_quat(scalar_first=True)
        moved[14 + 6 * i : 17 + 6 * i] = turn.apply(row[14 + 6 * i : 17 + 6 * i])
    up = turn.apply([0.0, 0, 1])
    plain = GraphSim([CUBE, CUBE], np.zeros(5), net=net)
    other = GraphSim(
        [CUBE, CUBE], np.zeros(5), net=net, gravity=-9.81 * up, normal=up, height=float(up @ shift)
    )
    still = np.zeros((1, 5, 0))
    a, b = plain.rollout(row[None], still)[0, -1], other.rollout(moved[None], still)[0, -1]
    assert np.abs(a[14:17] - row[14:17]).max() > 0.05
    for i in (0, 1):
        assert np.abs(turn.apply(a[7 * i : 7 * i + 3]) + shift - b[7 * i : 7 * i + 3]).max() < 1e-4


def test_coal_and_the_batched_search_agree():
    sim = GraphSim([CUBE, CUBE], np.zeros(5), net=lively())
    rows = np.stack(
        [
            start(
                [[0, 0, 0.07], [0.118 + 0.002 * i, 0.02, 0.075]],
                np.array(
                    [
                        [1.0, 0, 0, 0],
                        Rotation.from_rotvec([0.05 * i, 0.1, 0.2]).as_quat(scalar_first=True),
                    ]
                ),
                [[0, 0, 0]] * 2,
            )
            for i in range(6)
        ]
    )
    bodies, detector = sim._bodies(6, None)
    state = sim.state(bodies, torch.tensor(rows))
    assert detector is not None
    faces, points = detector(state.position.numpy(), state.orientation.numpy())
    found = keep_facing(
        bodies,
        state,
        Contacts(torch.tensor(faces), torch.tensor(points), int((faces[:, 1] < 0).sum())),
        sim.floor,
    )
    pairs = torch.tensor([[2 * i, 2 * i + 1] for i in range(6)])
    ours = find_box_contacts(bodies, state, Floor(sim.floor.normal), pairs)

    def table(c: Contacts) -> dict[tuple[int, int], float]:
        return {
            (int(a), int(b)): float((p[0] - p[1]).norm())
            for (a, b), p in zip(c.face, c.point, strict=True)
        }

    a, b = table(found), table(ours)
    common = set(a) & set(b)
    assert len(common) > 20 and len(common) >= 0.9 * max(
        len(a), len(b)
    )  # nearest points that are not unique may differ, and with them the weight
    assert max(abs(a[k] - b[k]) for k in common) < 1e-6


def test_a_cube_comes_to_rest_on_the_floor():
    sim = GraphSim([CUBE], np.zeros(5))
    end = sim.rollout(
        start([[0, 0, 0.06]], np.array([[1.0, 0, 0, 0]]), [[0.3, 0, 0]])[None], np.zeros((1, 60, 0))
    )[0, -1]
    assert abs(end[2] - 0.05) < 0.004 and np.abs(end[7:10]).max() < 0.1


def test_faces_are_drawn_in_and_bad_input_is_said():
    assert np.allclose(np.abs(drawn_in(CUBE.corners, TRIANGLES, 0.004)), 0.046)
    with pytest.raises(ClashError, match="contact parameters"):
        GraphSim([CUBE], np.zeros(3))
    with pytest.raises(ClashError, match="start needs shape"):
        GraphSim([CUBE], np.zeros(5)).rollout(np.zeros((1, 12)), np.zeros((1, 2, 0)))
