"""Scenes of cubes that the graph simulator and MuJoCo both roll out."""

from __future__ import annotations

import numpy as np

from clashsim.core.box import Box
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.params import to_unit
from clashsim.fit.box_rollouts import simulate
from clashsim.nets.trained_domain import CONTACT_NAMES
from clashsim.sim.graph.surroundings import shipped_contact

# Contact and cube are rounded values of what the method mujoco-shape of the bench real-tosses
# identifies on 16 tosses. The density is even, so that the centre of mass is in the middle.
CONTACT = {"friction": 0.17, "stiffness": 200000.0, "damping": 600.0, "d0": 0.8, "width": 0.002}
HALF = 0.048  # m, half side of the cube without its rounding
ROUNDING = 0.0037  # m, radius of the edges, by which each side is farther out than `HALF`
_MASS = 0.37  # kg
CUBE = Box.even((HALF, HALF, HALF), _MASS)
RATE = 148.0  # frames per second
_GRAVITY = 9.81  # m/s^2
_NUM_QPOS = 7  # of a free body: position, quaternion wxyz
_NUM_QVEL = 6  # of a free body: velocity, angular velocity
_ROW_SPACING = 0.87  # of a bowling array, over the spacing in a row: about the height of a triangle


def unit_contact() -> np.ndarray:
    """Contact parameters on the network's unit scale, (5,)."""
    values = np.array([CONTACT[name] for name in CONTACT_NAMES])
    return shipped_contact(CUBE, values, dt=1 / RATE)


def cubes_at_rest(positions: np.ndarray, yaws: np.ndarray | None = None) -> np.ndarray:
    """State of cubes that lie on the floor.

    Args:
        positions: x and y of the cubes' centres, (k, 2), m.
        yaws: Yaws of the cubes, (k,), rad; all 0 by default.

    Returns:
        qpos (7 per cube), then qvel (6 per cube), (13 k,).
    """
    k = len(positions)
    half_yaw = np.zeros(k) if yaws is None else np.asarray(yaws, float) / 2
    qpos = np.zeros((k, _NUM_QPOS))
    qpos[:, :2] = positions
    qpos[:, 2] = HALF + ROUNDING
    qpos[:, 3] = np.cos(half_yaw)
    qpos[:, 6] = np.sin(half_yaw)
    qvel = np.zeros(_NUM_QVEL * k)
    return np.concatenate([qpos.ravel(), qvel])


def rollout_in_mujoco(start: np.ndarray, frames: int) -> np.ndarray:
    """Roll out n scenes of k cubes in MuJoCo.

    Args:
        start: States (n, 13 k), each as `cubes_at_rest` returns it.
        frames: Number of frames.

    Returns:
        States with the start included, (n, frames + 1, 13 k).
    """
    n = len(start)
    k = start.shape[1] // (_NUM_QPOS + _NUM_QVEL)
    scenes = {
        "half": np.full((n, k, 3), HALF),
        "mass": np.full((n, k), CUBE.mass),
        "inertia": np.tile(CUBE.inertia, (n, k, 1)),
        "centre": np.zeros((n, k, 3)),
        "rounding": np.full((n, k), ROUNDING),
        "contact": np.tile(_teacher_contact(), (n, 1)),
        "gravity": np.full(n, _GRAVITY),
    }
    return simulate(scenes, start, frames, dt=1 / RATE)


def _teacher_contact() -> np.ndarray:
    """Contact parameters (5,) on the scale of `box_contact_params`, as MuJoCo's rollouts take."""
    params = box_contact_params()
    return to_unit(params, np.array([CONTACT[param.name] for param in params]))


def bowling_array(rows: int, spacing: float) -> np.ndarray:
    """Positions (k, 2), m, of a bowling array: rows of 1, 2, 3, ... cubes, one behind the other."""
    positions = []
    for row in range(rows):
        for i in range(row + 1):
            positions.append([_ROW_SPACING * spacing * row, spacing * (i - row / 2)])
    return np.array(positions)
