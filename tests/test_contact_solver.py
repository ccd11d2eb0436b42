"""Contact problems solved directly: against MuJoCo, and against what mechanics demands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from clashsim.bench.pair_scenes import pair_scenes
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.impacts import MotionBefore
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.contact import cone_solver
from clashsim.sim.contact.compiled import forget_stale
from clashsim.sim.contact.manifold import clip_polygon
from clashsim.sim.contact.pair_solver import PairSolver
from clashsim.sim.mujoco.impacts import simulate_impacts

SCENES = dict(pair_scenes())


def errors_against_mujoco(scene: Scene, n: int = 150) -> tuple[np.ndarray, PairSolver]:
    """Relative errors (n,) on random impacts over the whole range of the parameters."""
    impacts = sample(scene, n, 5)
    assert impacts.theta is not None
    frame = contact_frame(scene, impacts)
    predicted = frame.decode(SolvedModel(scene).members(frame, impacts.theta)[0])
    gyration = inertia(scene, scene.struck_body).gyration
    return relative_error(predicted, impacts.after, gyration), PairSolver(scene, frame.before)


# The median error and the least share within 10 %: the rest hang on when a second point touches.
@pytest.mark.parametrize(
    ("name", "median", "share"),
    [
        ("box-1 on floor", 1e-5, 0.99),
        ("box-6 on floor", 2e-3, 0.98),
        ("cylinder on floor", 1e-3, 0.98),
        ("capsule on floor", 2e-3, 0.98),
        ("ellipsoid on floor", 2e-3, 0.98),
        ("sphere on floor", 1e-9, 0.99),
        ("tetrahedron on floor", 1e-5, 0.98),
        ("hull on floor", 5e-3, 0.96),
        ("ball on box", 3e-3, 0.94),
        ("ball on capsule", 3e-3, 0.95),
        ("box on box", 5e-3, 0.9),
        ("plate on slides, box on slides", 3e-3, 0.97),
        ("box on a hinge", 2e-3, 0.97),
        ("ball, box on a table", 5e-3, 0.97),
        ("upright rod, box on a table", 5e-3, 0.97),
        ("ball, can on a table", 5e-3, 0.97),
        ("upright capsule, plate on a table", 5e-3, 0.95),
        ("L of two boxes on floor", 3e-3, 0.98),
        ("ball on L of two boxes", 3e-3, 0.95),
        ("box on slides, seven-joint arm", 1e-2, 0.98),
    ],
)
def test_the_solver_gives_the_outcomes_of_mujoco(name: str, median: float, share: float) -> None:
    error, solver = errors_against_mujoco(SCENES[name])
    assert solver.covered.mean() > 0.4
    assert np.median(error) < median
    assert (error < 0.1).mean() >= share


def test_what_features_do_not_describe_is_simulated_by_mujoco() -> None:
    error, solver = errors_against_mujoco(SCENES["rod on cylinder"], n=40)
    assert not solver.covered.any()
    assert np.median(error) < 1e-3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('cone="elliptic"', 'cone="pyramidal"'),
        ("<freejoint/>", '<freejoint/><joint type="hinge" range="0 1"/>'),
        ("</worldbody>", '</worldbody><option density="1.2" viscosity="1e-5"/>'),
    ],
)
def test_models_with_other_forces_are_left_to_mujoco(old: str, new: str) -> None:
    scene = SCENES["box-1 on floor"]
    if "hinge" in new:
        xml = scene.xml.replace('<body name="struck"><freejoint/>', _SPRUNG)
    else:
        xml = scene.xml.replace(old, new)
    changed = replace(scene, xml=xml)
    impacts = sample(changed, 5, 0)
    solver = PairSolver(changed, contact_frame(changed, impacts).before)
    assert not solver.covered.any()


_SPRUNG = (
    '<body name="struck" pos="0 0 .5"><joint type="slide" axis="0 0 1" stiffness="10"/>'
    '<joint type="slide" axis="1 0 0"/>'
)


def momentum(scene: Scene, before: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """Linear and angular momentum (N, 6) of the struck body about the world's origin."""
    body = inertia(scene, scene.struck_body)
    assert body.centre == pytest.approx((0, 0, 0), abs=1e-9)
    model = scene.base
    index = scene.struck_body.body
    motion = MotionBefore.of(before).struck
    rotation = Rotation.from_quat(motion.quaternion, scalar_first=True).as_matrix()
    tensor = rotation @ np.diag(model.body_inertia[index]) @ np.swapaxes(rotation, 1, 2)
    linear = body.mass * twist[:, :3]
    spin = np.einsum("nij,nj->ni", tensor, twist[:, 3:])
    return np.concatenate([linear, np.cross(motion.position, linear) + spin], 1)


def test_the_impulse_acts_through_the_contact_and_within_the_friction_cone() -> None:
    """What one ball gives to a box is a force at the contact point, and no moment of its own."""
    scene = without_gravity(SCENES["ball on box"])
    impacts = sample(scene, 60, 2)
    frame = contact_frame(scene, impacts)
    rows = np.arange(len(frame.speed))
    after = PairSolver(scene, frame.before).solve(rows, impacts.theta)
    given = momentum(scene, frame.before, after) - momentum(
        scene, frame.before, MotionBefore.of(frame.before).struck.twist
    )
    moment = np.cross(frame.contact.point, given[:, :3])
    # The contact point moves a little during the impact.
    off = np.linalg.norm(given[:, 3:] - moment, axis=1) / np.linalg.norm(given[:, :3], axis=1)
    assert np.median(off) < 3e-3  # m, of a box 120 mm long that moves during the impact
    along = np.einsum("ni,ni->n", given[:, :3], frame.contact.normal)
    across = np.linalg.norm(given[:, :3] - along[:, None] * frame.contact.normal, axis=1)
    friction = impacts.theta[:, 0]
    assert (along > 0).all()
    assert np.median(across / (friction * along)) <= 1 + 1e-3


def without_gravity(scene: Scene) -> Scene:
    return replace(scene, xml=scene.xml.replace("<option ", '<option gravity="0 0 0" '))


def test_both_bodies_exchange_what_they_give() -> None:
    """The momentum of a free pair stays, seen by striking either body with the other."""
    scene = without_gravity(SCENES["ball on box"])
    swapped = replace(scene, struck="striker", striker="struck")
    impacts = sample(scene, 40, 3)
    frame = contact_frame(scene, impacts)
    before = frame.before
    other_before = np.concatenate([before[:, 13:], before[:, :13]], 1)
    rows = np.arange(len(before))
    first = PairSolver(scene, before).solve(rows, impacts.theta)
    second = PairSolver(swapped, other_before).solve(rows, impacts.theta)
    masses = [inertia(scene, body).mass for body in (scene.struck_body, scene.striker_body)]
    start = MotionBefore.of(before)
    gained = masses[0] * (first[:, :3] - start.struck.velocity)
    lost = masses[1] * (start.striker.velocity - second[:, :3])
    assert np.allclose(gained, lost, rtol=1e-6, atol=1e-9)


def test_rotating_the_world_rotates_the_outcome() -> None:
    scene = without_gravity(SCENES["ball on hull"])
    impacts = sample(scene, 40, 4)
    before = contact_frame(scene, impacts).before
    turn = Rotation.from_rotvec([0.3, -1.1, 0.7])
    rotated = before.copy()
    for body in (MotionBefore.of(rotated).struck, MotionBefore.of(rotated).striker):
        body.position[:] = turn.apply(body.position)
        body.velocity[:] = turn.apply(body.velocity)
        body.angular_velocity[:] = turn.apply(body.angular_velocity)
        own = turn * Rotation.from_quat(body.quaternion, scalar_first=True)
        body.quaternion[:] = own.as_quat(scalar_first=True)
    rows = np.arange(len(before))
    plain = PairSolver(scene, before).solve(rows, impacts.theta)
    turned = PairSolver(scene, rotated).solve(rows, impacts.theta)
    expected = np.concatenate([turn.apply(plain[:, :3]), turn.apply(plain[:, 3:])], 1)
    error = np.abs(turned - expected).max(1) / np.abs(expected).max(1)
    # Nearest points are found to 1e-8 m, so a few impacts touch another feature.
    assert np.median(error) < 1e-6 and (error < 1e-2).mean() > 0.9


def test_reflecting_the_world_reflects_the_outcome() -> None:
    scene = without_gravity(SCENES["ball on box"])
    impacts = sample(scene, 40, 6)
    before = contact_frame(scene, impacts).before
    mirrored = before.copy()
    for body in (MotionBefore.of(mirrored).struck, MotionBefore.of(mirrored).striker):
        body.position[:] *= [-1, 1, 1]
        body.velocity[:] *= [-1, 1, 1]
        body.angular_velocity[:] *= [1, -1, -1]
        body.quaternion[:] *= [1, 1, -1, -1]  # boxes and balls are their own mirror images
    rows = np.arange(len(before))
    plain = PairSolver(scene, before).solve(rows, impacts.theta)
    seen = PairSolver(scene, mirrored).solve(rows, impacts.theta)
    expected = plain * [-1, 1, 1, 1, -1, -1]
    error = np.abs(seen - expected).max(1) / np.abs(expected).max(1)
    assert np.median(error) < 1e-6 and (error < 1e-2).mean() > 0.9


def test_the_order_of_a_mesh_s_vertices_does_not_matter() -> None:
    scene = SCENES["wedge on floor"]
    vertices = "-3 -2 -1  3 -2 -1  3 2 -1  -3 2 -1  -3 -2 2  -3 2 2"
    shuffled = "-3 2 2  3 2 -1  -3 -2 -1  -3 -2 2  3 -2 -1  -3 2 -1"
    assert vertices in scene.xml
    other = replace(scene, xml=scene.xml.replace(vertices, shuffled))
    impacts = sample(scene, 40, 7)
    before = contact_frame(scene, impacts).before
    rows = np.arange(len(before))
    first = PairSolver(scene, before).solve(rows, impacts.theta)
    second = PairSolver(other, before).solve(rows, impacts.theta)
    assert np.allclose(first, second, rtol=1e-4, atol=1e-6)


def test_a_body_of_two_welded_parts_is_the_same_as_one() -> None:
    """The same mass and inertia, once in one body and once in two that are welded together."""
    whole = SCENES["box-3 on floor"]
    geom = '<geom name="struck" type="box" size=".06 .03 .02" density="800"/>'
    assert geom in whole.xml
    massless = geom.replace('density="800"', 'mass="0"')
    half = '<geom type="box" size=".03 .03 .02" density="800" contype="0" conaffinity="0"/>'
    parts = f'{massless}<body pos=".03 0 0">{half}</body><body pos="-.03 0 0">{half}</body>'
    welded = replace(whole, xml=whole.xml.replace(geom, parts))
    impacts = sample(whole, 30, 8)
    before = contact_frame(whole, impacts).before
    rows = np.arange(len(before))
    first = PairSolver(whole, before).solve(rows, impacts.theta)
    second = PairSolver(welded, before).solve(rows, impacts.theta)
    assert np.allclose(first, second, rtol=1e-5, atol=1e-6)


def test_a_box_of_two_halves_is_the_same_as_one() -> None:
    """The same shape, once as one geom and once as two that are welded together."""
    whole = SCENES["box-3 on floor"]
    geom = '<geom name="struck" type="box" size=".06 .03 .02" density="800"/>'
    half = '<geom name="struck" type="box" size=".03 .03 .02" pos=".03 0 0" density="800"/>'
    other = '<geom type="box" size=".03 .03 .02" pos="-.03 0 0" density="800"/>'
    halves = replace(whole, xml=whole.xml.replace(geom, half + other))
    assert len(halves.strike_geoms) == 2
    impacts = sample(whole, 40, 8)
    before = contact_frame(whole, impacts).before
    rows = np.arange(len(before))
    first = PairSolver(whole, before).solve(rows, impacts.theta)
    second = PairSolver(halves, before).solve(rows, impacts.theta)
    gyration = inertia(whole, whole.struck_body).gyration
    # Where a long edge comes down flat, the halves touch with more points.
    assert np.median(relative_error(second, first, gyration)) < 1e-6
    assert (relative_error(second, first, gyration) < 0.1).mean() > 0.9


@pytest.mark.parametrize("name", ["ellipse", "square"])
def test_jacobians_are_those_of_finite_differences(name: str) -> None:
    scene = Scene.load(name)
    impacts = sample(scene, 40, 1)
    frame = contact_frame(scene, impacts)
    physics = partial(SolvedModel(scene).physics(frame), torch.arange(len(impacts)))
    unit = torch.as_tensor(to_unit(scene.params, impacts.theta) * 0.7).requires_grad_(True)
    value = physics(unit)
    step = 1e-3
    for k in range(value.shape[-1]):
        (gradient,) = torch.autograd.grad(value[:, k].sum(), unit, retain_graph=True)
        for i in range(len(scene.params)):
            shift = torch.zeros_like(unit)
            shift[:, i] = step
            with torch.no_grad():
                central = (physics(unit + shift) - physics(unit - shift))[:, k] / (2 * step)
            off = (gradient[:, i] - central).abs()
            assert off.median() < 0.03 * (1 + central.abs().median())


def test_a_model_of_one_theta_is_mujoco_at_that_theta() -> None:
    scene = Scene.load("puck")
    impacts = sample(scene, 30, 2)
    frame = contact_frame(scene, impacts)
    theta = from_unit(scene.params, np.full((1, len(scene.params)), 0.3))[0]
    plain = scene.with_params([p for p in scene.params if not p.target.startswith("effect/")])
    kept = [i for i, p in enumerate(scene.params) if not p.target.startswith("effect/")]
    expected = simulate_impacts(plain, frame.before, theta[kept]).after
    solved = frame.decode(SolvedModel(plain).members(frame, theta[kept])[0])
    assert np.allclose(solved, expected, rtol=1e-6, atol=1e-8)


def test_the_cone_solver_finds_the_minimum() -> None:
    """Random problems with several contacts, some open, some sticking and some slipping."""
    rng = np.random.default_rng(0)
    zones = set()
    for _ in range(25):
        k, r = int(rng.integers(1, 4)), int(rng.integers(3, 10))
        rows = rng.normal(size=(k, 4, r))
        side = np.zeros((k, 4, cone_solver.SIDE))
        side[:, :, cone_solver.REFERENCE] = rng.normal(size=(k, 4)) * 3
        side[:, :, cone_solver.WEIGHT] = rng.uniform(1, 20, (k, 1))
        side[:, :, cone_solver.FRICTION] = rng.uniform(0.1, 1.0, (k, 1))
        span = np.tile([3, 0, r], (k, 1))
        local = np.zeros((cone_solver.LOCAL, 4))
        x = np.zeros(r)
        scratch = np.zeros((cone_solver.SCRATCH + r, r))
        cone_solver.solve_contacts(rows, side, span, x, scratch, local)
        found = cone_solver.cone_cost(rows, side, span, x, local)

        def cost(point: np.ndarray, problem=(rows, side, span)) -> float:
            return cone_solver.cone_cost(*problem, point, np.zeros((cone_solver.LOCAL, 4)))

        best = min(minimize(cost, start, tol=1e-10).fun for start in (np.zeros(r), x))
        assert found <= best + 1e-8 * (1 + abs(best))
        residual = np.einsum("kqr,r->kq", rows, x) - side[:, :, cone_solver.REFERENCE]
        zones |= set(np.sign(residual[:, 0]).astype(int))
    assert zones == {-1, 1}


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_single_contact_is_solved_in_its_own_coordinates(rank: int) -> None:
    """Rows that depend on each other, as where bodies move in a plane, included."""
    rng = np.random.default_rng(1)
    r = 9
    for dim in (3, 4):
        single = (
            np.zeros((1, 4, 4)),
            np.zeros((1, 4, cone_solver.SIDE)),
            np.array([[dim, 0, dim]]),
            np.zeros(dim),
        )
        for _ in range(20):
            rows = rng.normal(size=(1, 4, rank)) @ rng.normal(size=(rank, r))
            side = np.zeros((1, 4, cone_solver.SIDE))
            side[:, :, cone_solver.REFERENCE] = rng.normal(size=(1, 4)) * 3
            side[:, :, cone_solver.WEIGHT] = rng.uniform(1, 20)
            side[:, :, cone_solver.FRICTION] = rng.uniform(0.1, 1.0)
            span = np.array([[dim, 0, r]])
            local = np.zeros((cone_solver.LOCAL, 4))
            scratch = np.zeros((cone_solver.SCRATCH + r, r))
            expected, found = np.zeros(r), np.zeros(r)
            cone_solver.solve_contacts(rows, side.copy(), span, expected, scratch, local)
            cone_solver.solve_single_contact(0, rows, side, found, single, scratch, local)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_polygons_are_clipped() -> None:
    square = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], float)
    up = np.array([0.0, 0, 1])
    shifted = square + np.array([1.0, 0.5, 0.3])
    clipped = clip_polygon(shifted, square, up)
    assert np.allclose(clipped.min(0), [0, -0.5, 0.3])
    assert np.allclose(clipped.max(0), [1, 1, 0.3])
    assert len(clip_polygon(square + np.array([5.0, 0, 0]), square, up)) == 0


def test_code_compiled_from_other_sources_is_forgotten(tmp_path: Path) -> None:
    """Also where a function is unchanged and only one that it calls is not."""
    (tmp_path / "solver.py").write_text("a = 1")
    forget_stale(tmp_path)
    kept = tmp_path / "__pycache__" / "other.function.nbi"
    kept.write_bytes(b"")
    forget_stale(tmp_path)
    assert kept.exists()
    (tmp_path / "solver.py").write_text("a = 2")
    forget_stale(tmp_path)
    assert not kept.exists()
