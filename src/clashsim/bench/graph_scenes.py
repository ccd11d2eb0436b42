"""Scenes of boxes that the graph simulator and MuJoCo both roll out: the same bodies, contact and
starts.
"""

from __future__ import annotations

import numpy as np

from clashsim.core.box import Box
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.params import to_unit
from clashsim.fit.data_scaling import simulate

# Contact and cube about as mujoco-shape of real-tosses identifies them on 16 tosses, rounded,
# without the offset of the centre of mass and with even density.
CONTACT = {"friction": 0.17, "stiffness": 200000.0, "damping": 600.0, "d0": 0.8, "width": 0.002}
HALF, ROUNDING = 0.048, 0.0037
CUBE = Box.even((HALF, HALF, HALF), 0.37)
RATE = 148.0


def unit_contact() -> np.ndarray:
    """The contact on the network's unit scale, (5,)."""
    params = box_contact_params()
    return to_unit(params, np.array([CONTACT[p.name] for p in params]))


def lying(places: np.ndarray, yaws: np.ndarray | None = None) -> np.ndarray:
    """A start (13 k,) of cubes at rest on the floor at places (k, 2)."""
    k = len(places)
    out = np.zeros(13 * k)
    yaw = np.zeros(k) if yaws is None else np.asarray(yaws, float)
    for i, (x, y) in enumerate(places):
        out[7 * i : 7 * i + 7] = [
            x,
            y,
            HALF + ROUNDING,
            np.cos(yaw[i] / 2),
            0,
            0,
            np.sin(yaw[i] / 2),
        ]
    return out


def in_mujoco(start: np.ndarray, frames: int) -> np.ndarray:
    """States (n, frames + 1, 13 k) of MuJoCo from starts (n, 13 k)."""
    n, k = len(start), start.shape[1] // 13
    draw = {
        "half": np.full((n, k, 3), HALF),
        "mass": np.full((n, k), CUBE.mass),
        "inertia": np.tile(CUBE.inertia, (n, k, 1)),
        "centre": np.zeros((n, k, 3)),
        "rounding": np.full((n, k), ROUNDING),
        "contact": np.tile(unit_contact(), (n, 1)),
        "gravity": np.full(n, 9.81),
    }
    return simulate(draw, start, frames, dt=1 / RATE)


def triangle(rows: int, spacing: float) -> np.ndarray:
    """Places (k, 2) of a bowling array: 1, 2, 3, ... in rows along x."""
    return np.array(
        [[0.87 * spacing * r, spacing * (i - r / 2)] for r in range(rows) for i in range(r + 1)]
    )
