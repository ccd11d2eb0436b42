"""Scenes of cubes that the graph simulator and MuJoCo both roll out."""

from __future__ import annotations

import numpy as np

from clashsim.core.box import Box
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.params import to_unit
from clashsim.fit.data_scaling import simulate

# Contact and cube about as mujoco-shape of real-tosses identifies them on 16 tosses, rounded,
# without the offset of the centre of mass and with even density.
CONTACT = {"friction": 0.17, "stiffness": 200000.0, "damping": 600.0, "d0": 0.8, "width": 0.002}
HALF = 0.048  # m, half side of the cube without its rounding
ROUNDING = 0.0037  # m, radius of the edges, which are added to the cube
CUBE = Box.even((HALF, HALF, HALF), 0.37)
RATE = 148.0  # frames per second
_GRAVITY = 9.81  # m/s^2


def unit_contact() -> np.ndarray:
    """Contact parameters on the network's unit scale, (5,)."""
    params = box_contact_params()
    return to_unit(params, np.array([CONTACT[param.name] for param in params]))


def cubes_at_rest(positions: np.ndarray, yaws: np.ndarray | None = None) -> np.ndarray:
    """State of cubes that lie on the floor.

    Args:
        positions: Of their centres on the floor, (k, 2), m.
        yaws: (k,), rad; all 0 by default.

    Returns:
        qpos (7 per cube), then qvel (6 per cube), (13 k,).
    """
    k = len(positions)
    half_yaw = np.zeros(k) if yaws is None else np.asarray(yaws, float) / 2
    qpos = np.zeros((k, 7))
    qpos[:, :2] = positions
    qpos[:, 2] = HALF + ROUNDING
    qpos[:, 3] = np.cos(half_yaw)
    qpos[:, 6] = np.sin(half_yaw)
    return np.concatenate([qpos.ravel(), np.zeros(6 * k)])


def rollout_in_mujoco(start: np.ndarray, frames: int) -> np.ndarray:
    """Roll out n scenes of k cubes in MuJoCo.

    Args:
        start: States, (n, 13 k).
        frames: Number of frames.

    Returns:
        States with the start included, (n, frames + 1, 13 k).
    """
    n = len(start)
    k = start.shape[1] // 13
    scenes = {
        "half": np.full((n, k, 3), HALF),
        "mass": np.full((n, k), CUBE.mass),
        "inertia": np.tile(CUBE.inertia, (n, k, 1)),
        "centre": np.zeros((n, k, 3)),
        "rounding": np.full((n, k), ROUNDING),
        "contact": np.tile(unit_contact(), (n, 1)),
        "gravity": np.full(n, _GRAVITY),
    }
    return simulate(scenes, start, frames, dt=1 / RATE)


def bowling_array(rows: int, spacing: float) -> np.ndarray:
    """Positions (k, 2), m, of a bowling array: 1, 2, 3, ... in rows along x."""
    positions = []
    for row in range(rows):
        for i in range(row + 1):
            positions.append([0.87 * spacing * row, spacing * (i - row / 2)])
    return np.array(positions)
