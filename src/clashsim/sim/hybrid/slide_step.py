"""Struck bodies that slide by a slide model instead of MuJoCo's friction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clashsim.sim.hybrid.pairs import CompiledPair
from clashsim.sim.hybrid.simulation_rows import SimulationRows
from clashsim.sim.hybrid.timing import Step, after_turn, turned

_TICK = 1e-5  # s: over which a pose's rate of change is taken
_REST = 1e-6  # m/s and rad/s: a body that moves less is at rest
Path = Callable[
    [np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray
]  # pose (n, 3), twist (n, 3), times (n, T), since (n,) -> poses (n, T, 3)


def glide(
    world: SimulationRows,
    rows: np.ndarray,
    last: Step,
    couple: CompiledPair,
    slide: Path,
    since: np.ndarray,
) -> None:
    """Write where bodies (rows (a,) of the world) have slid to in the step just taken, from where
    they were at its beginning.

    Only the motion in the plane is written: height, and so the pressure on the ground, stay
    MuJoCo's. since (a,): s, from the strike to the step.
    """
    body, plane = couple.body, couple.plane
    assert plane is not None and body.free
    quat = last.qpos[:, body.qpos[3:]]
    linear, spin = last.qvel[:, body.qvel[:3]], turned(quat, last.qvel[:, body.qvel[3:]])
    ahead = turned(quat, np.broadcast_to(couple.turn.T @ plane[0], (len(rows), 3)))
    place = last.qpos[:, body.qpos[:3]]
    pose = np.stack(
        [
            _along(place, plane[0]),
            _along(place, plane[1]),
            np.arctan2(_along(ahead, plane[1]), _along(ahead, plane[0])),
        ],
        1,
    )
    twist = np.stack(
        [_along(linear, plane[0]), _along(linear, plane[1]), _along(spin, plane[2])], 1
    )
    times = last.h[:, None] + np.array([0.0, -_TICK, _TICK])
    path = np.repeat(pose[:, None], 3, 1)
    moving = np.abs(twist).max(1) > _REST
    if moving.any():
        path[moving] = slide(pose[moving], twist[moving], times[moving], since[moving])
    move, rate = path[:, 0] - pose, (path[:, 2] - path[:, 1]) / (2 * _TICK)
    qpos, qvel = world.qpos[rows], world.qvel[rows]
    up = _along(qpos[:, body.qpos[:3]], plane[2])
    qpos[:, body.qpos[:3]] = (
        path[:, 0, :1] * plane[0] + path[:, 0, 1:2] * plane[1] + up[:, None] * plane[2]
    )
    qpos[:, body.qpos[3:]] = after_turn(quat, move[:, 2:] * plane[2])
    rise = _along(qvel[:, body.qvel[:3]], plane[2])
    qvel[:, body.qvel[:3]] = (
        rate[:, :1] * plane[0] + rate[:, 1:2] * plane[1] + rise[:, None] * plane[2]
    )
    qvel[:, body.qvel[3:]] = turned(
        qpos[:, body.qpos[3:]] * [1, -1, -1, -1], rate[:, 2:] * plane[2]
    )
    world.qpos[rows], world.qvel[rows] = qpos, qvel


def _along(v: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return v[:, 0] * axis[0] + v[:, 1] * axis[1] + v[:, 2] * axis[2]
