"""Principal axes of inertia of a body, and the axes of the user's file that they go with."""

from __future__ import annotations

import mujoco
import numpy as np
from scipy.optimize import linear_sum_assignment


def principal_axes(model: mujoco.MjModel, body: int) -> np.ndarray:
    """Principal axes of inertia of a body.

    Args:
        model: The model.
        body: Index of the body.

    Returns:
        The axes as columns (3, 3), in the body's frame, in the order of MuJoCo's `body_inertia`.
    """
    axes = np.zeros(9)
    mujoco.mju_quat2Mat(axes, model.body_iquat[body])
    return axes.reshape(3, 3)


def principal_axis_near(model: mujoco.MjModel, body: int) -> dict[str, int]:
    """Which principal axis is nearest to each axis of a body's frame.

    MuJoCo sorts the moments of inertia of many bodies by size, while a user thinks of the axes of
    the frame in which shapes and inertia are given.

    Args:
        model: The model.
        body: Index of the body.

    Returns:
        Index in MuJoCo's `body_inertia` by "x", "y" and "z" of the body's frame, each index once.
    """
    frame_axis, principal = linear_sum_assignment(-np.abs(principal_axes(model, body)))
    return {"xyz"[i]: int(j) for i, j in zip(frame_axis, principal, strict=True)}
