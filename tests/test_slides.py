"""Ground friction from slides: known truths in MuJoCo and by hand, and what is refused."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.core.contact_frame import inertia
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.slides.ground_friction import ground_friction
from clashsim.slides.slide import Slide


def test_sliding_friction_of_a_simulated_block_is_recovered() -> None:
    scene = Scene.load("square")
    slides = []
    for k, mu in enumerate([0.25] * 3):
        model = scene.with_nominal({"ground_friction": mu}).model(
            scene.with_nominal({"ground_friction": mu}).nominal
        )
        data = mujoco.MjData(model)
        data.qpos[scene.striker_body.qpos[0]] = -5.0
        mujoco.mj_step(model, data, 1500)
        data.qvel[:2] = [0.8 + 0.2 * k, 0.1]
        poses = []
        for _ in range(1500):
            mujoco.mj_step(model, data)
            poses.append([data.time, *data.qpos[:2], 2 * np.arctan2(data.qpos[6], data.qpos[3])])
        t, x, y, yaw = np.array(poses)[::10].T
        slides.append(Slide(t, np.column_stack([x, y]), yaw))
    found = ground_friction(slides, gyration=inertia(scene, scene.struck_body).gyration)
    assert abs(found.sliding / 0.25 - 1) < 0.05


def test_both_coefficients_of_made_slides_with_noise() -> None:
    rng = np.random.default_rng(0)
    slides = []
    mu = 0.2
    tau = 0.01
    gyration = 0.05
    g = 9.81
    for _ in range(8):
        v = rng.uniform(0.5, 1.5)
        w = rng.uniform(2, 15)
        x = 0.0
        angle = 0.0
        rows = []
        step = 1e-3
        for i in range(1000):
            if v <= 0 and w <= 0:
                break
            x = x + v * step
            angle = angle + w * step
            v = max(0.0, v - mu * g * step)
            w = max(0.0, w - tau * g / gyration**2 * step)
            if i % 5 == 0:
                rows.append([i * step, x, angle])
        t, x_, a = np.array(rows).T
        slides.append(
            Slide(
                t,
                np.column_stack([x_, 0 * x_]) + rng.normal(size=(len(t), 2)) * 1e-4,
                a + rng.normal(size=len(t)) * 1e-3,
            )
        )
    found = ground_friction(slides, gyration=gyration)
    assert abs(found.sliding / mu - 1) < 0.1
    assert abs(found.torsional / tau - 1) < 0.15
    assert 0 < found.sliding_error < 0.02


@pytest.mark.parametrize(
    ("slide", "message"),
    [
        (Slide(np.arange(3.0), np.zeros((3, 2)), np.zeros(3)), "at least 8"),
        (Slide(np.arange(20.0)[::-1], np.zeros((20, 2)), np.zeros(20)), "increasing"),
        (Slide(np.arange(20.0), np.full((20, 2), np.nan), np.zeros(20)), "NaN"),
    ],
)
def test_bad_slides_are_refused(slide: Slide, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ground_friction([slide], gyration=0.05)
