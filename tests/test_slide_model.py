"""The slide model: theory of simple slides, and known frictions found again from a few
recorded ones.
"""

from __future__ import annotations

import json
import math

import mujoco
import numpy as np
import pytest
import torch

from clashsim.bench import real_slides, slide_sets
from clashsim.bench.options import BenchOptions
from clashsim.bench.slide_problem import RestPoseProblem
from clashsim.core.errors import DataError, ParamError
from clashsim.core.estimates import EstimateStatus
from clashsim.core.scene import Scene
from clashsim.slides.identify import delay, fit_slides, mujoco_friction
from clashsim.slides.law import VALUE_NAMES, SlideModel
from clashsim.slides.limit_surface import SlideState, integrate_slide
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import support_patch, uniform_support_patch

SQUARE = {
    "friction": 0.3,
    "torsion_radius": 0.0306,
    "pressure_radius_x": 0.0231,
    "pressure_radius_y": 0.0231,
}
ODD = {
    "friction": 0.25,
    "rate_dependence": 0.3,
    "torsion_radius": 0.028,
    "pressure_radius_x": 0.025,
    "pressure_radius_y": 0.016,
    "pressure_radius_xy": 0.004,
    "pressure_x": 0.002,
    "pressure_y": -0.003,
    "pressure_offset": 0.003,
    "anisotropy": 0.08,
    "anisotropy_xy": -0.05,
}


def starts(
    n: int, seed: int = 0, *, speed: float = 0.7, yaw_rate: float = 6.0
) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, 3))), torch.tensor(
        rng.normal(size=(n, 3)) * [speed, speed, yaw_rate]
    )


def odd(**other: float) -> SlideModel:
    return SlideModel(ODD | other, gyration=0.03, centre=(0.004, 0.01))


def test_pure_translation_stops_after_half_v_squared_over_mu_g():
    model = SlideModel(SQUARE, gyration=0.0327)
    rest, seconds = model.settle(
        torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[0.6, 0.8, 0.0]], dtype=torch.float64)
    )
    distance = 1 / (2 * 0.3 * 9.81)
    assert torch.allclose(
        rest,
        torch.tensor([[0.6 * distance, 0.8 * distance, 0.0]], dtype=torch.float64),
        rtol=1e-3,
        atol=1e-9,
    )
    assert seconds.item() == pytest.approx(1 / (0.3 * 9.81), rel=1e-3)


def test_a_disc_that_turns_on_the_spot_stops_as_theory_says():
    radius = 0.05  # of an even disc: r^2 = R^2 / 2, mean distance 2 R / 3
    model = SlideModel(
        {
            "friction": 0.3,
            "torsion_radius": 2 * radius / 3,
            "pressure_radius_x": radius / 2,
            "pressure_radius_y": radius / 2,
        },
        gyration=radius / math.sqrt(2),
    )
    rest, seconds = model.settle(
        torch.zeros(1, 3, dtype=torch.float64),
        torch.tensor([[0.0, 0.0, 10.0]], dtype=torch.float64),
    )
    brake = 0.3 * 9.81 * (2 * radius / 3) / (radius**2 / 2)
    assert rest[0, 2].item() == pytest.approx(10**2 / (2 * brake), rel=1e-3)
    assert seconds.item() == pytest.approx(10 / brake, rel=1e-3)


def test_a_disc_that_slides_and_turns_agrees_with_friction_summed_over_its_patch():
    radius = 0.05
    mu = 0.3
    dt = 2e-4
    ring, angle = np.meshgrid(
        np.sqrt((np.arange(24) + 0.5) / 24) * radius, np.arange(48) * 2 * np.pi / 48
    )
    px = (ring * np.cos(angle)).ravel()
    py = (ring * np.sin(angle)).ravel()
    v = np.array([0.8, 0.0])
    w = 8.0
    x = np.zeros(2)
    angle = 0.0
    r2 = radius**2 / 2
    for _ in range(5000):
        if np.hypot(*v) + radius * abs(w) < 1e-3:
            break
        ux = v[0] - w * py
        uy = v[1] + w * px
        size = np.sqrt(ux**2 + uy**2 + 1e-12)
        fx = -mu * 9.81 * ux / size
        fy = -mu * 9.81 * uy / size
        x = x + v * dt
        angle = angle + w * dt
        v = v + dt * np.array([fx.mean(), fy.mean()])
        w = w + dt * float((px * fy - py * fx).mean()) / r2
    patch = uniform_support_patch(np.column_stack([px, py]), gyration=math.sqrt(r2), height=0.0)
    values = {
        "friction": mu,
        "torsion_radius": patch.mean_distance,
        "pressure_radius_x": math.sqrt(patch.moments[0, 0]),
        "pressure_radius_y": math.sqrt(patch.moments[1, 1]),
    }
    rest = SlideModel(values, gyration=math.sqrt(r2)).rest(
        torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[0.8, 0.0, 8.0]], dtype=torch.float64)
    )[0]
    assert rest[0].item() == pytest.approx(x[0], rel=0.03)
    assert rest[2].item() == pytest.approx(angle, rel=0.05)


def test_rest_turns_and_moves_with_the_start():
    model = odd()
    pose, twist = starts(50)
    yaw = 0.7
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64)
    r = torch.tensor(
        [[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]], dtype=torch.float64
    )
    moved = torch.cat([pose[:, :2] @ r.T + shift, pose[:, 2:] + yaw], 1)
    rest = model.rest(pose, twist)
    other = model.rest(moved, torch.cat([twist[:, :2] @ r.T, twist[:, 2:]], 1))
    assert torch.allclose(
        other, torch.cat([rest[:, :2] @ r.T + shift, rest[:, 2:] + yaw], 1), atol=1e-9
    )


def test_energy_falls_at_every_node():
    _, twist = starts(500, 1)
    zero = torch.zeros(500, dtype=torch.float64)
    nodes = integrate_slide(
        odd().values,
        SlideState(twist[:, 0], twist[:, 1], twist[:, 2], zero, zero, zero, zero),
        gyration=0.03,
        gravity=9.81,
        steps=16,
    )
    energy = torch.stack([n.vx**2 + n.vy**2 + (0.03 * n.yaw_rate) ** 2 for n in nodes])
    assert (energy[1:] < energy[:-1]).all()
    assert (torch.stack([n.time for n in nodes]).diff(dim=0) > 0).all()


def test_a_path_begins_at_the_start_follows_the_twist_and_ends_at_rest():
    model = odd()
    pose, twist = starts(40, 2)
    rest, seconds = model.settle(pose, twist)
    path = model.path(pose, twist, torch.tensor([0.0, 1e-5, 60.0], dtype=torch.float64))
    assert path.shape == (40, 3, 3)
    assert torch.allclose(path[:, 0], pose)
    assert torch.allclose(path[:, 2], rest)
    assert torch.allclose((path[:, 1] - path[:, 0]) / 1e-5, twist, atol=1e-3)
    assert torch.allclose(model.path(pose, twist, seconds[:, None])[:, 0], rest, atol=1e-12)
    halves = model.path(
        pose, twist, seconds[:, None] * torch.tensor([0.3, 0.5], dtype=torch.float64)
    )
    fine = SlideModel(ODD, gyration=0.03, centre=(0.004, 0.01), steps=400)
    assert (
        halves
        - fine.path(pose, twist, seconds[:, None] * torch.tensor([0.3, 0.5], dtype=torch.float64))
    ).abs().median() < 2e-4


def test_a_delay_moves_bodies_on_evenly_before_friction_sets_in():
    model = odd().delayed(0.012)
    pose, twist = starts(20)
    t = torch.linspace(0, 0.8, 161, dtype=torch.float64)
    path = model.path(pose, twist, t)
    early = t < 0.012
    torch.testing.assert_close(path[:, early], pose[:, None] + t[early][:, None] * twist[:, None])
    torch.testing.assert_close(
        path[:, ~early], odd().path(pose + 0.012 * twist, twist, t[~early] - 0.012)
    )
    torch.testing.assert_close(model.rest(pose, twist), odd().rest(pose + 0.012 * twist, twist))
    some = torch.full((20,), 0.004, dtype=torch.float64)  # what is left of it
    torch.testing.assert_close(
        model.path(pose, twist, t, some), odd().delayed(0.004).path(pose, twist, t)
    )
    assert SlideModel.of(model.content()).delay == 0.012
    with pytest.raises(ParamError, match="delay"):
        model.delayed(-0.1)


def test_a_known_delay_is_found_again():
    pose, twist = starts(12, seed=4)
    rest = odd().delayed(0.011).rest(pose, twist).numpy()
    assert delay(odd(), pose.numpy(), twist.numpy(), rest) == pytest.approx(0.011, abs=1e-4)
    rest[0] += 0.3  # one strike that went wrong does not decide
    assert delay(odd(), pose.numpy(), twist.numpy(), rest) == pytest.approx(0.011, abs=1e-3)


def test_few_steps_do():
    pose, twist = starts(600, 3)
    for values, gyration in (
        (SQUARE, 0.0327),
        (ODD, 0.03),
        (
            {
                "friction": 0.18,
                "torsion_radius": 0.06,
                "pressure_radius_x": 0.06,
                "pressure_radius_y": 0.04,
            },
            0.0883,
        ),
    ):
        model = SlideModel(values, gyration=gyration)
        fine = SlideModel(values, gyration=gyration, steps=200)
        far = model.rest(pose, twist) - fine.rest(pose, twist)
        size = fine.rest(pose, twist) - pose
        scale = torch.hypot(size[:, 0], size[:, 1]) + gyration * size[:, 2].abs()
        off = (torch.hypot(far[:, 0], far[:, 1]) + gyration * far[:, 2].abs()) / scale
        assert off.median() < 1e-3
        assert off.quantile(0.99) < 5e-3


def test_gradients_agree_with_finite_differences():
    model = odd()
    pose, twist = starts(2, 4)
    inputs = (pose.requires_grad_(), twist.requires_grad_())
    assert torch.autograd.gradcheck(model.rest, inputs, eps=1e-6, atol=1e-5, rtol=1e-4)
    t = torch.tensor([0.03, 0.11], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda p, v: model.path(p, v, t), inputs, eps=1e-7, atol=1e-5, rtol=1e-4
    )
    values = model.values.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v: model.with_values(v).rest(pose.detach(), twist.detach()),
        (values,),
        eps=1e-7,
        atol=1e-5,
        rtol=1e-4,
    )


def test_a_body_at_rest_stays_and_has_gradients():
    pose = torch.zeros(1, 3, dtype=torch.float64)
    twist = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    rest = odd().rest(pose, twist)
    rest.sum().backward()
    assert torch.allclose(rest, pose, atol=1e-6)
    assert twist.grad is not None
    assert torch.isfinite(twist.grad).all()


def test_many_slides_cost_no_more_steps_than_one():
    model = SlideModel(SQUARE, gyration=0.0327)
    pose, twist = starts(256, 5)
    alone = model._integrate(pose[:1], twist[:1])
    together = model._integrate(pose, twist)
    assert len(alone) == len(together) <= 14
    assert together[0][0].shape == (256,)


def test_single_precision_is_close():
    model = odd()
    pose, twist = starts(200, 6)
    assert (model.rest(pose.float(), twist.float()) - model.rest(pose, twist)).abs().median() < 1e-5


def test_content_makes_the_same_model():
    model = odd()
    pose, twist = starts(5, 7)
    again = SlideModel.of(json.loads(json.dumps(model.content())))
    assert torch.equal(again.rest(pose, twist), model.rest(pose, twist))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"frction": 0.3}, "friction"),
        ({"friction": 0.0}, "above zero"),
        ({"friction": 0.3, "anisotropy": 1.2}, "anisotropy"),
    ],
)
def test_what_is_not_friction_is_refused(values, message):
    with pytest.raises(ParamError, match=message):
        SlideModel(values, gyration=0.03)


def recorded(
    model: SlideModel, n: int, seed: int, *, vary: float = 0.0
) -> tuple[list[Slide], np.ndarray]:
    """Slides as cameras see them, at 200 Hz with noise, each with a friction of its own."""
    rng = np.random.default_rng(seed)
    pose, twist = starts(n, seed)
    t = np.arange(0, 1.2, 0.005)
    slides = []
    for k in range(n):
        values = model.values.clone()
        values[0] *= math.exp(vary * rng.normal())
        path = (
            model.with_values(values)
            .path(pose[k : k + 1], twist[k : k + 1], torch.tensor(t))[0]
            .numpy()
        )
        slides.append(
            Slide(
                t,
                path[:, :2] + 1e-4 * rng.normal(size=(len(t), 2)),
                path[:, 2] + 2e-3 * rng.normal(size=len(t)),
            )
        )
    return slides, twist.numpy() * (1 + 0.005 * rng.normal(size=twist.shape))


@pytest.mark.parametrize("given", [True, False])
def test_known_friction_is_found_again_from_ten_slides(given):
    truth = SlideModel(
        {
            "friction": 0.25,
            "torsion_radius": 0.025,
            "pressure_radius_x": 0.021,
            "pressure_radius_y": 0.018,
            "pressure_x": 0.001,
            "pressure_y": -0.0015,
        },
        gyration=0.03,
    )
    slides, twists = recorded(truth, 10, 8, vary=0.02)
    corners = 0.037 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    fit = fit_slides(
        slides,
        uniform_support_patch(corners, gyration=0.03, height=0.005),
        twists=twists if given else None,
    )
    found = {e.name: e for e in fit.estimates}
    assert found["friction"].value == pytest.approx(0.25, rel=0.06)
    assert found["friction"].status == EstimateStatus.FITTED
    assert found["torsion_radius"].value == pytest.approx(0.025, rel=0.15)
    pose, twist = starts(200, 9)
    gone = (truth.rest(pose, twist) - pose).abs()
    far = (fit.model.rest(pose, twist) - truth.rest(pose, twist)).abs()
    assert far[:, :2].mean() < 0.04 * gone[:, :2].mean()
    assert far[:, 2].mean() < 0.05 * gone[:, 2].mean()
    assert found["friction"].low < 0.25 * 1.02
    assert found["friction"].high > 0.25 * 0.98
    assert len(fit.sample_models(3, 0)) == 3
    assert list(found) == list(VALUE_NAMES)


def test_slides_that_cannot_be_used_are_refused():
    body = uniform_support_patch(
        0.04 * np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]), gyration=0.03, height=0.01
    )
    for slides, message in (
        ([], "no slides"),
        ([Slide(np.arange(3.0), np.zeros((3, 2)), np.zeros(3))], "at least 8"),
        ([Slide(np.arange(9.0), np.full((9, 2), np.nan), np.zeros(9))], "NaN"),
    ):
        with pytest.raises(DataError, match=message):
            fit_slides(slides, body)


def test_soles_of_the_shipped_shapes():
    square, triangle, half = (
        support_patch(Scene.load(name)) for name in ("square", "triangle", "semi_cylinder")
    )
    assert square.moments == pytest.approx(np.eye(2) * 0.08**2 / 12, abs=1e-6)
    assert len(square.corners) == 4
    assert triangle.moments[0, 0] == pytest.approx(triangle.moments[1, 1], rel=0.02)
    assert len(triangle.corners) == 3
    assert half.moments[0, 0] == pytest.approx(0.05**2 / 4, rel=0.03)
    assert half.moments[1, 1] == pytest.approx(0.05**2 * (0.25 - (4 / 3 / math.pi) ** 2), rel=0.05)
    assert half.centre[1] == pytest.approx(4 * 0.05 / 3 / math.pi, rel=0.01)


def test_mujoco_parameters_brake_a_point_contact_alike():
    model = SlideModel(
        {
            "friction": 0.3,
            "torsion_radius": 0.02,
            "pressure_radius_x": 0.02,
            "pressure_radius_y": 0.02,
        },
        gyration=0.03,
    )
    sliding, torsional = mujoco_friction(model)
    assert sliding == pytest.approx(0.3)
    assert torsional == pytest.approx(0.3 * 0.02)
    xml = f"""<mujoco><option cone="elliptic" timestep="0.0005" integrator="implicitfast"/>
      <worldbody><geom name="table" type="plane" size="3 3 .1"/><body pos="0 0 .02">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
      <joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.0009 0.0009 0.0009"/>
      <geom name="ball" type="sphere" size=".02"/></body></worldbody>
      <contact><pair geom1="ball" geom2="table" condim="4"
      friction="{sliding} {sliding} {torsional} 0.0001 0.0001"/></contact></mujoco>"""
    engine = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(engine)
    mujoco.mj_step(engine, data, 2000)
    start = data.qpos.copy()
    data.qvel[:] = [0.7, 0.0, 0.0, 9.0]
    mujoco.mj_step(engine, data, 2000)
    rest = model.rest(
        torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[0.7, 0.0, 9.0]], dtype=torch.float64)
    )[0]
    assert data.qpos[0] - start[0] == pytest.approx(rest[0].item(), rel=0.03)
    assert data.qpos[3] - start[3] == pytest.approx(rest[2].item(), rel=0.05)
    corners = 0.04 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    assert mujoco_friction(model, corners)[1] == 0.0


def test_the_laboratorys_square_stops_where_the_model_says():
    problem = RestPoseProblem(slide_sets.load("lab/square", None))
    rows, test = real_slides.split_slides(problem.data, 10, "random", seeds=1)[0]
    model = real_slides.fit_slide_model(problem, rows).model
    far, angle = problem.errors(
        model.rest(torch.as_tensor(problem.data.pose), torch.as_tensor(problem.data.twist)).numpy()
    )
    assert far[test].mean() < 0.004
    assert angle[test].mean() < 0.05


@pytest.mark.slow
def test_the_bench_runs_on_the_laboratorys_shapes():
    options = BenchOptions(seeds=1, quick=True, sets=["lab/triangle"], methods=["clashsim"])
    rows = real_slides.run(options)
    assert {(r["set"], r["method"], r["input"], r["n"]) for r in rows} == {
        ("lab/triangle", "clashsim", kind, 10) for kind in ("twist", "strike")
    }
    assert all(r["position_m"] < 0.03 for r in rows)
    with pytest.raises(DataError, match="lab/triangle"):
        real_slides.run(BenchOptions(sets=["lab/triangel"]))
