"""How struck bodies slide in a step: by a slide model, or by MuJoCo with its errors corrected."""

from __future__ import annotations

import numpy as np
import torch

from clashsim.sim.hybrid.compiled_pair import CompiledPair
from clashsim.sim.hybrid.compiled_steps import correct_free_slides, correct_joint_slides
from clashsim.sim.hybrid.row_math import (
    component,
    compose_rotation,
    rotate,
    rotate_inverse,
)
from clashsim.sim.hybrid.simulation_rows import SimulationRows
from clashsim.sim.hybrid.timing import StepStart
from clashsim.slides.law import SlideModel

_RATE_INTERVAL = 1e-5  # s: over which the rate of change of a pose is taken
_AT_REST = 1e-6  # m/s and rad/s: a body that moves less is at rest


def slide_by_model(
    sims: SimulationRows,
    rows: np.ndarray,
    start: StepStart,
    *,
    pair: CompiledPair,
    slide_model: SlideModel,
    since_strike: np.ndarray,
) -> None:
    """Write where a slide model moves struck bodies in the step just taken.

    Only the motion in the plane is written: height, and so the pressure on the ground, stay
    MuJoCo's.

    Args:
        sims: The simulations, written to.
        rows: (a,), those whose bodies slide.
        start: Their states at the beginning of the step.
        pair: Whose struck body slides.
        slide_model: The friction law.
        since_strike: (a,), s, from the strike to the step.
    """
    body = pair.struck
    plane = pair.plane
    assert plane is not None and body.free
    axis_x, axis_y, normal = plane
    position_entries, quaternion_entries = body.qpos[:3], body.qpos[3:]
    linear_entries, angular_entries = body.qvel[:3], body.qvel[3:]

    # Planar pose and twist at the beginning of the step.
    quaternion = start.qpos[:, quaternion_entries]
    position = start.qpos[:, position_entries]
    linear = start.qvel[:, linear_entries]
    angular = rotate(quaternion, start.qvel[:, angular_entries])
    heading_in_body = pair.zero_yaw_rotation.T @ axis_x
    heading = rotate(quaternion, np.broadcast_to(heading_in_body, (len(rows), 3)))
    yaw = np.arctan2(component(heading, axis_y), component(heading, axis_x))
    pose = np.stack([component(position, axis_x), component(position, axis_y), yaw], 1)
    twist = np.stack(
        [component(linear, axis_x), component(linear, axis_y), component(angular, normal)], 1
    )

    # Poses at the end of the step, then a little before and after it for the rate of change.
    times = start.duration[:, None] + np.array([0.0, -_RATE_INTERVAL, _RATE_INTERVAL])
    path = np.repeat(pose[:, None], 3, 1)
    moving = np.abs(twist).max(1) > _AT_REST
    if moving.any():
        path[moving] = _slide_path(
            slide_model,
            pose[moving],
            twist[moving],
            times=times[moving],
            since_strike=since_strike[moving],
        )
    pose_after = path[:, 0]
    yaw_change = pose_after[:, 2:] - pose[:, 2:]
    before_end, after_end = path[:, 1], path[:, 2]
    twist_after = (after_end - before_end) / (2 * _RATE_INTERVAL)

    qpos = sims.qpos[rows]
    qvel = sims.qvel[rows]
    height = component(qpos[:, position_entries], normal)
    qpos[:, position_entries] = (
        pose_after[:, :1] * axis_x + pose_after[:, 1:2] * axis_y + height[:, None] * normal
    )
    qpos[:, quaternion_entries] = compose_rotation(quaternion, yaw_change * normal)
    vertical_speed = component(qvel[:, linear_entries], normal)
    qvel[:, linear_entries] = (
        twist_after[:, :1] * axis_x
        + twist_after[:, 1:2] * axis_y
        + vertical_speed[:, None] * normal
    )
    qvel[:, angular_entries] = rotate_inverse(
        qpos[:, quaternion_entries], twist_after[:, 2:] * normal
    )
    sims.qpos[rows] = qpos
    sims.qvel[rows] = qvel


def correct_sliding(
    sims: SimulationRows,
    rows: np.ndarray,
    start: StepStart,
    *,
    pair: CompiledPair,
    euler: bool,
    level: bool,
) -> None:
    """Correct how MuJoCo let struck bodies slide in the step just taken.

    Args:
        sims: The simulations, written to.
        rows: (a,), those whose bodies slide.
        start: Their states at the beginning of the step.
        pair: Whose struck body slides.
        euler: Move bodies by the mean of their velocities before and after the step. MuJoCo's
            Euler integrators move a body by its velocity at the end of a step, so that one which
            starts at v and is slowed to rest stops v dt / 2 short, whatever slows it. Moved by the
            mean in the plane of sliding, its pose at rest hardly depends on the timestep.
        level: Set tilt and tilting rate of free bodies to zero, because the scene declares that
            they slide flat on a plane. The few contact points of a mesh or a box make it rock after
            a sudden change of twist, more with longer steps, and a rocking body slides farther.
    """
    body = pair.struck
    if body.free:
        correct_free_slides(
            (sims.qpos, sims.qvel),
            rows,
            (start.qpos, start.qvel),
            start.duration,
            (body.qpos, body.qvel),
            (pair.plane_normal, pair.body_up),
            (euler, level),
        )
    elif euler:
        correct_joint_slides(
            sims.qpos, sims.qvel, rows, start.qvel, start.duration, body.qpos, body.qvel
        )


def _slide_path(
    slide_model: SlideModel,
    pose: np.ndarray,
    twist: np.ndarray,
    *,
    times: np.ndarray,
    since_strike: np.ndarray,
) -> np.ndarray:
    """Poses (n, T, 3) at times (n, T), s, of bodies that slide from pose and twist (n, 3)."""
    delay_left = np.maximum(slide_model.delay - since_strike, 0.0)
    with torch.no_grad():
        return slide_model.path(
            torch.as_tensor(pose),
            torch.as_tensor(twist),
            torch.as_tensor(times),
            torch.as_tensor(delay_left),
        ).numpy()
