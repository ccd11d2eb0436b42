"""The graph simulator on convex meshes: collision detection, laws, gradients, domain, sampling."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.spatial.transform import Rotation

from clashsim.core.convex_mesh import ConvexBody, ConvexMesh
from clashsim.core.errors import ClashError
from clashsim.fit.data_scaling import RATE, ScalingRanges, StartRanges, scale_data
from clashsim.fit.graph_train import GraphTrainingConfig, measure_places, misfit, train
from clashsim.fit.random_bodies import random_parts
from clashsim.fit.trajectory_set import TrajectorySet
from clashsim.nets.contact_features import Contacts, FreeStep
from clashsim.nets.face_search import ContactSearch, contact_weights, find_contacts
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.nearest_points import nearest_points_of_triangles
from clashsim.nets.network_file import net_bytes, read_net, shipped_net
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState, free_motion
from clashsim.nets.trained_domain import MESHES
from clashsim.sim.graph.scene_bodies import scene_simulator
from clashsim.sim.graph.simulator import GraphSim
from clashsim.sim.graph.surroundings import Surroundings

NUM_CONTACT_PARAMS = 5
FLOOR = (np.array([0.0, 0.0, 1.0]), 0.0)
IN_SPACE = Surroundings(gravity=(0, 0, 0), floor_height=-10.0)
FacePair = tuple[int, int]


def mesh_net(seed: int = 0, **sizes: int) -> GraphNet:
    """A network with random weights that pushes strongly."""
    torch.manual_seed(seed)
    net = GraphNet(NUM_CONTACT_PARAMS, **({"hidden": 16, "layers": 2} | sizes), domain=MESHES)
    for layer in net.layers:
        torch.nn.init.normal_(layer.out.weight, std=0.5)
    return net.eval()


def random_body(kind: str, seed: int, *, size: float = 0.05, mass: float = 0.3) -> ConvexBody:
    parts = random_parts(kind, np.random.default_rng(seed), aspect=3.0, roundness=0.3, corners=24)
    return ConvexBody.even([ConvexMesh(size * p.corners, p.faces) for p in parts], mass, kind)


def graph_sim(*bodies: ConvexBody, **options) -> GraphSim:
    options = {"net": mesh_net()} | options
    return GraphSim(bodies, np.zeros(NUM_CONTACT_PARAMS), **options)


def state_of(positions: list[list[float]], velocities: list[list[float]], seed: int) -> np.ndarray:
    """A state (1, 13 k) of k bodies of random orientations that do not rotate."""
    rng = np.random.default_rng(seed)
    rotations = Rotation.random(len(positions), rng=rng).as_quat(scalar_first=True)
    qpos = [[*position, *turn] for position, turn in zip(positions, rotations, strict=True)]
    qvel = [[*velocity, 0, 0, 0] for velocity in velocities]
    return np.concatenate([np.ravel(qpos), np.ravel(qvel)])[None]


def no_control(steps: int) -> np.ndarray:
    return np.zeros((1, steps, 0))


def distances(contacts: Contacts) -> dict[FacePair, float]:
    lengths = (contacts.point[:, 0] - contacts.point[:, 1]).norm(dim=1)
    return {
        (int(a), int(b)): float(length)
        for (a, b), length in zip(contacts.face, lengths, strict=True)
    }


def test_the_compiled_and_the_batched_search_find_the_same():
    box = ConvexMesh.box(np.array([0.06, 0.1, 0.05]))
    beside = ConvexMesh(box.corners + np.array([-0.11, 0.0, 0.0]), box.faces)
    found = 0
    for seed in range(10):
        kinds = ("hull", ("hull", "prism", "compound")[seed % 3])
        bodies = [random_body(kind, 10 * seed + i) for i, kind in enumerate(kinds)]
        walls = Surroundings(walls=[((-1.0, 0.2, 0.0), -0.2)], fixed=[beside])
        sim = graph_sim(*bodies, surroundings=walls)
        start = state_of([[0, 0, 0.075], [0.135, 0.02, 0.09]], [[0] * 3] * 2, seed)
        made, detector = sim._bodies(1, None)
        state = sim.state(torch.tensor(start))
        compiled = detector(state)
        batched = find_contacts(made, state, ContactSearch(sim.surfaces, torch.tensor([[0, 1]])))
        assert torch.equal(compiled.planes.corner, batched.planes.corner)
        assert torch.equal(compiled.face, batched.face)
        assert (compiled.normal - batched.normal).abs().max() < 1e-9
        assert (compiled.facing - batched.facing).abs().max() < 1e-9
        assert (compiled.point - batched.point).abs().max() < 1e-9
        found += min(compiled.fixed, len(compiled.face) - compiled.fixed)
    assert found > 50


def test_nearest_points_of_triangles_are_those_of_least_squares():
    """Points as weighted means of corners, with the weights that minimise their distance."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(40, 3, 3))
    b = rng.normal(size=(40, 3, 3)) + np.array([6.0, 0.0, 0.0])
    on_a, on_b = nearest_points_of_triangles(torch.tensor(a), torch.tensor(b))
    heavy = 1e4  # weight of the rows by which the weights of each triangle sum to 1
    sums = heavy * np.kron(np.eye(2), np.ones(3))
    for i in range(len(a)):
        difference = np.concatenate([a[i].T, -b[i].T], 1)
        _, least = nnls(np.concatenate([difference, sums]), [0, 0, 0, heavy, heavy])
        assert float((on_a[i] - on_b[i]).norm()) == pytest.approx(least, rel=1e-5)


def test_a_search_of_constant_shapes_finds_the_same():
    ranges = ScalingRanges(bodies=2, planes=3, fixed_box=True, frames=8, length=(0.05, 0.06))
    data = TrajectorySet.of(scale_data(ranges, 16, 0), 1 / RATE, "cpu", 2)
    places = measure_places(data, 32, seed=0)
    window = data.window(data.starts[:32], 1)
    state = window.state(0)
    free = find_contacts(window.bodies, state, window.search(None))
    constant = find_contacts(window.bodies, state, window.search(places))
    weights = contact_weights(window.bodies, state, constant)
    assert len(constant.planes) == places.planes
    assert len(constant.face) == places.fixed + places.bodies
    assert int((weights > 0).sum()) == len(free.face)
    total = contact_weights(window.bodies, state, free).sum()
    assert float(weights.sum()) == pytest.approx(float(total), rel=1e-9)
    net = mesh_net().double()
    step = _misfit_of(net, window, None)
    assert _misfit_of(net, window, places) == pytest.approx(step, rel=1e-9)


def _misfit_of(net, window, places) -> float:
    from clashsim.fit.graph_train import rollout_states

    states = rollout_states(
        net,
        window.bodies,
        window.state(0),
        window.gravity,
        steps=1,
        dt=1 / RATE,
        search=window.search(places),
    )
    error = misfit(window.bodies, states[0], window.state(1), 1 / RATE)
    return float(error.detach().mean())


def test_unused_places_have_no_effect():
    """The same scene flat, and with places for larger bodies."""
    ranges = ScalingRanges(frames=4, corners=8, kinds=("hull",), centre=0.0, length=(0.05, 0.06))
    data = TrajectorySet.of(scale_data(ranges, 8, 1), 1 / RATE, "cpu", 2)
    wide = {}
    for name, tensor in data.scenes.items():
        wide[name] = tensor
    for name in ("corner", "inner", "normal", "real"):
        extra = torch.zeros_like(wide[name])
        wide[name] = torch.cat([wide[name], extra], 2)
    wide["face"] = torch.cat([wide["face"], torch.zeros_like(wide["face"])], 2)
    net = mesh_net().double()
    rows = data.starts[:16]
    narrow = _misfit_of(net, data.window(rows, 1), None)
    other = replace(data, scenes=wide)
    assert _misfit_of(net, other.window(rows, 1), None) == pytest.approx(narrow, rel=1e-9)


def test_a_fixed_box_holds_a_body_as_a_floor_does():
    body = random_body("box", 3)
    table = ConvexMesh.box([0.5, 0.5, 0.1]).moved(np.eye(3), np.array([0.0, 0.0, -0.1]))
    values = np.array([0.4, 1e5, 400.0, 0.8, 0.002])
    contact = MESHES.contact_to_unit(values, dt=1 / 148, length=body.size)
    start = state_of([[0.02, 0.01, 0.11]], [[0.2, 0.1, 0.0]], 2)
    heights = []
    for surroundings in (Surroundings(), Surroundings(floor_height=-10.0, fixed=[table])):
        sim = GraphSim([body], contact, surroundings=surroundings)
        end = sim.rollout(start, no_control(80))[0, -1]
        assert np.linalg.norm(end[7:10]) < 0.15
        heights.append(end[2])
    assert abs(heights[0] - heights[1]) < 0.1 * body.size
    assert 0.3 * body.size < heights[0] < 1.5 * body.size


@pytest.mark.parametrize("kind", ["hull", "compound"])
def test_meshes_stay_rigid_and_contacts_lie_in_the_cone(kind):
    body = random_body(kind, 4)
    sim = graph_sim(body)
    start = state_of([[0, 0, 0.08]], [[0.5, 0, -1.0]], 1)
    states = sim.path(torch.tensor(start), 10)
    assert (states[-1].velocity - states[0].velocity).norm() > 0.3
    for before, after in itertools.pairwise(states):
        product = after.orientation @ after.orientation.transpose(1, 2)
        assert (product - torch.eye(3)).abs().max() < 1e-9
        change = after.velocity[0] - before.velocity[0] - sim.gravity * sim.dt
        friction = float(MESHES.friction(torch.zeros(())))
        assert float(change[:2].norm()) <= friction * float(change[2]) + 1e-6


def test_a_free_pair_of_meshes_keeps_its_momentum():
    first, second = random_body("hull", 1), random_body("compound", 2, mass=0.2)
    sim = graph_sim(first, second, surroundings=IN_SPACE)
    start = state_of([[0, 0, 0], [0.12, 0.02, 0.01]], [[1.2, 0, 0], [0, 0, 0]], 3)
    states = sim.path(torch.tensor(start), 6)
    mass = torch.tensor([first.mass, second.mass], dtype=torch.float64)
    momentum = [(mass[:, None] * state.velocity).sum(0) for state in states]
    assert (states[-1].velocity[1]).abs().max() > 0.1  # they did meet
    assert (momentum[-1] - momentum[0]).abs().max() < 1e-9
    # Impulses on the two bodies have no moment, in any step in which they touch.
    bodies, _ = sim._bodies(1, None)
    touched = 0
    for state in states[:-1]:
        contacts = find_contacts(bodies, state, ContactSearch(sim.surfaces, torch.tensor([[0, 1]])))
        if len(contacts) == 0:
            continue
        free = free_motion(bodies, state, sim.gravity, sim.dt)
        impulses = sim.net(FreeStep(bodies, state, free, sim.gravity, sim.dt), contacts)
        linear, angular = impulses.split(3, 2)
        position = state.position[:, None].expand_as(linear)
        moment = angular + torch.linalg.cross(position, linear)
        assert moment.sum(0).abs().max() < 1e-9
        touched += len(contacts.face)
    assert touched > 0


def test_rotating_and_shifting_a_scene_of_meshes_does_so_to_the_answer():
    bodies = [random_body("hull", 5), random_body("prism", 6)]
    rotation = Rotation.from_rotvec([0.7, -0.4, 1.1])
    shift = np.array([0.3, -0.2, 0.5])
    start = state_of([[0, 0, 0.075], [0.09, 0.03, 0.17]], [[0.4, 0, -0.8], [-0.3, 0, -1.0]], 5)
    moved = start.copy()
    for i in (0, 1):
        position = slice(7 * i, 7 * i + 3)
        quaternion = slice(7 * i + 3, 7 * i + 7)
        velocity = slice(14 + 6 * i, 17 + 6 * i)
        moved[0, position] = rotation.apply(start[0, position]) + shift
        turn = rotation * Rotation.from_quat(start[0, quaternion], scalar_first=True)
        moved[0, quaternion] = turn.as_quat(scalar_first=True)
        moved[0, velocity] = rotation.apply(start[0, velocity])
    up = rotation.apply([0.0, 0, 1])
    surroundings = Surroundings(gravity=-9.81 * up, floor_normal=up, floor_height=float(up @ shift))
    end = graph_sim(*bodies).rollout(start, no_control(4))[0, -1]
    moved_end = graph_sim(*bodies, surroundings=surroundings).rollout(moved, no_control(4))[0, -1]
    assert np.abs(end[14:17] - start[0, 14:17]).max() > 0.05
    for i in (0, 1):
        position = slice(7 * i, 7 * i + 3)
        expected = rotation.apply(end[position]) + shift
        assert np.abs(expected - moved_end[position]).max() < 1e-4


def test_a_larger_scene_in_longer_steps_moves_alike():
    """Lengths times 4 and times by 2: one network serves all sizes."""
    small = random_body("hull", 8, size=0.04)
    large = random_body("hull", 8, size=0.16, mass=20.0)
    start = state_of([[0, 0, 0.06]], [[0.4, 0.1, -0.6]], 7)
    scaled = start.copy()
    scaled[:, :3] *= 4
    scaled[:, 7:10] *= 2
    end = graph_sim(small, dt=1 / 200).rollout(start, no_control(6))[0, -1]
    scaled_end = graph_sim(large, dt=1 / 100).rollout(scaled, no_control(6))[0, -1]
    assert np.abs(end[7:10] - start[0, 7:10]).max() > 0.2
    assert np.abs(4 * end[:3] - scaled_end[:3]).max() < 1e-5
    assert np.abs(end[3:7] - scaled_end[3:7]).max() < 1e-4


def test_gradients_through_contact_agree_with_finite_differences():
    body = random_body("hull", 9)
    table = ConvexMesh.box([0.5, 0.5, 0.1]).moved(np.eye(3), np.array([0.0, 0.0, -0.1]))
    for surroundings in (Surroundings(), Surroundings(floor_height=-10.0, fixed=[table])):
        net = copy.deepcopy(shipped_net()).double()
        sim = graph_sim(body, net=net, surroundings=surroundings)
        row = torch.tensor(state_of([[0, 0, 0.065]], [[0.4, 0.1, -1.6]], 3))

        def last_velocity(speed: torch.Tensor, sim=sim, row=row) -> torch.Tensor:
            start = torch.cat([row[:, :7], speed, row[:, 8:]], 1)
            return sim.path(start, 4)[-1].velocity[:, 0].sum()

        speed = torch.tensor([[0.4]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(last_velocity(speed), speed)
        with torch.no_grad():
            step = 1e-5
            difference = (last_velocity(speed + step) - last_velocity(speed - step)) / (2 * step)
        assert abs(float(gradient) - 1) > 0.01  # contact has changed it
        assert float(gradient) == pytest.approx(float(difference), rel=5e-3)


def test_training_lowers_the_loss_and_continues_from_its_checkpoint(tmp_path):
    ranges = ScalingRanges(frames=12, length=(0.04, 0.06), start=StartRanges(drop=0.1))
    data = TrajectorySet.of(scale_data(ranges, 16, 2), 1 / RATE, "cpu", 2)
    torch.manual_seed(0)
    net = GraphNet(NUM_CONTACT_PARAMS, 16, 1, domain=MESHES)
    window = data.window(data.starts[:100], 1)
    before = _misfit_of(net, window, None)
    config = GraphTrainingConfig(
        steps=20, batch=24, lengths=(1,), rate=1e-2, average=0.5, warmup=10
    )
    path = tmp_path / "checkpoint.safetensors"
    lines: list[str] = []
    train(net, [data], replace(config, call_seconds=0.0), seed=0, checkpoint=path)
    train(net, [data], config, seed=0, checkpoint=path, log=lines.append)
    train(net, [data], replace(config, steps=120), seed=0, checkpoint=path, log=lines.append)
    assert lines[-1].startswith("continues from step 20")
    assert _misfit_of(net, window, None) < 0.9 * before


def test_networks_keep_their_domain(tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(net_bytes(mesh_net()))
    assert read_net(path).domain == MESHES
    values = np.array([0.4, 1e5, 400.0, 0.8, 0.001])
    unit = MESHES.contact_to_unit(values, dt=1 / 148, length=0.05)
    assert np.allclose(MESHES.contact_from_unit(unit, dt=1 / 148, length=0.05), values)


@pytest.mark.parametrize(
    ("bodies", "options", "words"),
    [
        ([random_body("hull", 1, size=0.003)], {}, "side of 6 mm"),
        ([random_body("hull", 1)], {"dt": 0.05}, "a step of 50 ms"),
        ([random_body("hull", 1, size=0.4)], {}, "side of 800 mm"),
        ([random_body("hull", 1), random_body("box", 2, size=0.2)], {}, "4 times as large"),
        ([random_body("hull", 1)], {"surroundings": Surroundings(gravity=(5, 0, -5))}, "tilted"),
    ],
)
def test_what_a_network_was_not_trained_for_is_refused(bodies, options, words):
    with pytest.raises(ClashError, match=words):
        graph_sim(*bodies, **options)


SCENE = """
<mujoco>
  <option timestep="0.0005" cone="elliptic"/>
  <default><geom friction="0.4" solref="-80000 -400" solimp="0.9 0.95 0.001"/></default>
  <asset><mesh name="rock" vertex="-.05 -.04 -.03 .06 -.03 -.04 0 .06 -.03 .01 0 .06"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <geom name="table" type="box" size=".2 .2 .1" pos="1 0 .1"/>
    <body name="rock" pos="0 0 .2"><freejoint/><geom type="mesh" mesh="rock"/></body>
    <body name="hammer" pos="1 0 .4"><freejoint/>
      <geom type="box" size=".02 .02 .06"/>
      <geom type="{shape}" size=".03 .03" pos="0 0 .08"/>
    </body>
  </worldbody>
</mujoco>
"""


def test_a_simulator_of_a_scene_falls_as_mujoco_does():
    model = mujoco.MjModel.from_xml_string(SCENE.format(shape="cylinder"))
    sim = scene_simulator(model, net=mesh_net())
    assert sim.dt == pytest.approx(0.004)
    assert [body.name for body in sim.shapes] == ["rock", "hammer"]
    data = mujoco.MjData(model)
    data.qvel[:] = [0.3, 0.2, 0.1, 2, 1, 3, -0.2, 0.1, 0.3, 1, -2, 1]
    start = np.concatenate([data.qpos, data.qvel])[None]
    states = sim.rollout(start, no_control(4))
    for _ in range(32):
        mujoco.mj_step(model, data)
    expected = np.concatenate([data.qpos, data.qvel])
    assert np.abs(states[0, -1] - expected).max() < 5e-3
    weights = [body.mass for body in sim.shapes]
    assert weights == pytest.approx(list(model.body_mass[1:]))


def test_shapes_that_roll_are_refused():
    model = mujoco.MjModel.from_xml_string(SCENE.format(shape="capsule"))
    with pytest.raises(ClashError, match="capsule"):
        scene_simulator(model, net=mesh_net())


def test_bodies_of_several_scenes_do_not_touch():
    body = random_body("hull", 1)
    bodies = RigidBodies.of([body, body], np.zeros(5), length=0.05, scenes=2)
    assert bodies.scene.tolist() == [0, 0, 1, 1]
    surfaces = FixedSurfaces.of([FLOOR], length=0.05)
    eye = torch.eye(3, dtype=torch.float64).repeat(4, 1, 1)
    zero = torch.zeros(4, 3, dtype=torch.float64)
    far = torch.tensor([[0, 0, 5.0], [0, 0, 5.1], [0, 0, 5.0], [0, 0, 9.0]], dtype=torch.float64)
    search = ContactSearch(surfaces, torch.tensor([[0, 1], [2, 3]]))
    found = find_contacts(bodies, RigidBodyState(far, eye, zero, zero), search)
    owners = bodies.face_owner[found.face]
    assert len(owners) > 0 and set(owners.flatten().tolist()) == {0, 1}
