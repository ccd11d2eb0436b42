"""Columns of `before` by name, and angles that are wrapped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clashsim.core.angles import rotate_planar, rotate_quarter_turn, wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore, before_columns


@pytest.mark.parametrize("planar", [True, False])
def test_names_are_those_of_the_columns(planar: bool) -> None:
    names = before_columns(planar)
    motion = MotionBefore.of(np.arange(float(len(names)))[None])

    def columns(values: np.ndarray) -> list[str]:
        return [names[int(i)] for i in np.ravel(values)]

    prefixes = {"": motion.struck, "striker_": motion.striker}
    for prefix, body in prefixes.items():
        axes = ("x", "y") if planar else ("x", "y", "z")
        assert columns(body.position) == [f"{prefix}{axis}" for axis in axes]
        assert columns(body.velocity) == [f"{prefix}v{axis}" for axis in axes]
        assert columns(body.pose)[: len(axes)] == columns(body.position)
        assert columns(body.twist)[: len(axes)] == columns(body.velocity)
        if planar:
            assert columns(body.yaw) == [f"{prefix}yaw"]
            assert columns(body.angular_velocity) == [f"{prefix}w"]
        else:
            assert columns(body.quaternion) == [f"{prefix}q{part}" for part in "wxyz"]
            assert columns(body.angular_velocity) == [f"{prefix}w{axis}" for axis in axes]


def test_views_write_into_the_rows() -> None:
    before, motion = MotionBefore.at_origin(3, planar=True)
    motion.striker.velocity[:] = [1.0, 2.0]
    motion.struck.yaw[:] += 0.5
    named = dict(zip(before_columns(True), before.T, strict=True))
    assert (named["striker_vx"] == 1).all() and (named["striker_vy"] == 2).all()
    assert (named["yaw"] == 0.5).all()
    assert np.count_nonzero(before) == 9
    np.testing.assert_array_equal(motion.approach_velocity, [[-1.0, -2.0]] * 3)


def test_velocity_at_a_point_in_plane_and_space() -> None:
    _, planar = MotionBefore.at_origin(1, planar=True)
    _, spatial = MotionBefore.at_origin(1, planar=False)
    planar.struck.velocity[:] = [1.0, 0.0]
    planar.struck.angular_velocity[:] = 2.0
    spatial.struck.velocity[:] = [1.0, 0.0, 0.0]
    spatial.struck.angular_velocity[:] = [0.0, 0.0, 2.0]
    in_plane = planar.struck.velocity_at(np.array([[0.3, 0.1]]))
    in_space = spatial.struck.velocity_at(np.array([[0.3, 0.1, 0.0]]))
    np.testing.assert_allclose(in_plane, [[0.8, 0.6]])
    np.testing.assert_allclose(in_space, [[0.8, 0.6, 0.0]])


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(DataError, match="12 numbers in a plane and 26 in space, got 13"):
        MotionBefore.of(np.zeros((2, 13)))


def test_wrapped_angles_mean_the_same_and_lie_within_a_turn() -> None:
    angles = np.linspace(-20, 20, 401)
    wrapped = wrap_angle(angles)
    assert (wrapped >= -np.pi).all() and (wrapped < np.pi).all()
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angles), atol=1e-12)
    np.testing.assert_array_equal(wrap_angle(torch.as_tensor(angles)).numpy(), wrapped)
    assert wrap_angle(1.5 * np.pi) == pytest.approx(-0.5 * np.pi)
    inputs = torch.tensor([0.1, 4.0], requires_grad=True)
    wrap_angle(inputs).sum().backward()
    assert inputs.grad is not None and inputs.grad.tolist() == [1.0, 1.0]


def test_a_quarter_turn_is_a_rotation_by_a_right_angle() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 2))
    rotated = rotate_planar(vectors, np.full(5, np.pi / 2))
    np.testing.assert_allclose(rotate_quarter_turn(vectors), rotated, atol=1e-12)
