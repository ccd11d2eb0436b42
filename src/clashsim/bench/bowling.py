"""A cube pushed into a bowling array of ten (few-shot paper, Fig. 6).

The graph simulator is compared with MuJoCo, with the same identified contact. Rows have as `what`

    error   mean distance (% of a cube's width) and rotation (degrees) of all cubes between the two
            simulators, after some frames
    held-out  the same means over 40 frames on trajectories of random meshes, by training set
    cost    seconds per frame of one scene when `scenes` scenes run as one batch, and the ratio to
            MuJoCo (all its substeps of a frame, a batch on all cores) in the same process;
            `device`: where the network ran
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from clashsim.bench.graph_scenes import (
    CUBE,
    HALF,
    RATE,
    ROUNDING,
    bowling_array,
    cubes_at_rest,
    rollout_in_mujoco,
    unit_contact,
)
from clashsim.bench.held_out_motion import held_out_rows
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.timing import wait_for
from clashsim.core.errors import DataError
from clashsim.report.figure_files import write_figure
from clashsim.sim.graph.simulator import GraphSim

OPTIONS = frozenset({"seeds", "device"})
_NUM_CUBES = 11
_FRAMES = (5, 10, 20, 30, 45, 60)  # after which errors are measured
_COST_CUBES = (2, 5, 10, 20)  # numbers of cubes for which the cost is measured
_COST_STEPS = 12  # frames over which the graph simulator is timed
_MUJOCO_STEPS_FACTOR = 40  # MuJoCo is faster, so that it is timed over this many times more frames
_MUJOCO_BATCH_STEPS_FACTOR = 4  # the same for a batch of scenes
_HELD_OUT = 128  # trajectories of each set
_QUICK_NUM_CUBES = 4
_QUICK_HELD_OUT = 8
_QUICK_FRAMES = (6, 12)
_QUICK_COST_CUBES = (2, 4)
_QUICK_COST_STEPS = 4
_SPACING = 0.14  # m, between centres
_SPEED = 1.6  # m/s, of the pushed cube
_PUSHED_POSITION = (-0.16, 0.01)  # m
_POSITION_STD = 0.002  # m, of the other cubes
_YAW_STD = 0.03  # rad
_BATCH_SCENES = 128  # in one batch, for the cost on a device
_FRAMES_BEFORE_COST = 10  # so that the cost is that of the first collisions
_WIDTH = 2 * (HALF + ROUNDING)  # m, of a cube
_QPOS = 7  # numbers of a free body's pose: position, quaternion wxyz
_PICTURES = 4  # moments that `plot` shows


def start_state(cubes: int, seed: int = 0) -> np.ndarray:
    """State in which the first cube slides along x towards an uneven array of the others.

    Args:
        cubes: Number of cubes.
        seed: Seed of the positions and yaws of the array.

    Returns:
        qpos (7 per cube), then qvel (6 per cube), (13 cubes,).
    """
    others = cubes - 1
    rows = 1
    while rows * (rows + 1) // 2 < others:
        rows += 1
    rng = np.random.default_rng(seed)
    noise = _POSITION_STD * rng.normal(size=(others, 2))
    array = bowling_array(rows, _SPACING)[:others] + noise
    yaws = _YAW_STD * rng.normal(size=others)
    state = cubes_at_rest(np.vstack([_PUSHED_POSITION, array]), np.concatenate([[0.0], yaws]))
    first_velocity_x = _QPOS * cubes
    state[first_velocity_x] = _SPEED
    return state


def _simulator(cubes: int) -> GraphSim:
    """The graph simulator of cubes."""
    return GraphSim([CUBE] * cubes, unit_contact(), dt=1 / RATE, rounding=ROUNDING)


def rollout_both(cubes: int, frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States (frames + 1, 13 cubes) of MuJoCo and of the graph simulator, from the same start."""
    start = start_state(cubes, seed)[None]
    in_mujoco = rollout_in_mujoco(start, frames)[0]
    in_graph = _simulator(cubes).rollout(start, _no_control(frames))[0]
    return in_mujoco, in_graph


def _no_control(frames: int) -> np.ndarray:
    """Control (1, frames, 0) of one scene without actuators."""
    return np.zeros((1, frames, 0))


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure errors and costs.

    Args:
        options: Its `seeds` is the number of scenes for errors; costs are measured on the CPU and
            on its `device`.

    Returns:
        Rows whose `what` is `error`, then `held-out`, then `cost`.
    """
    device = options.device
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        raise DataError(f"there is no device {device!r} on this machine")
    cubes = _QUICK_NUM_CUBES if options.quick else _NUM_CUBES
    frames = _QUICK_FRAMES if options.quick else _FRAMES
    cost_cubes = _QUICK_COST_CUBES if options.quick else _COST_CUBES
    cost_steps = _QUICK_COST_STEPS if options.quick else _COST_STEPS
    seeds = options.repetitions(2)
    pairs = []
    with options.progress("bowling", seeds + len(cost_cubes)) as advance:
        for seed in range(seeds):
            pairs.append(rollout_both(cubes, frames[-1], seed))
            advance(1)
        rows = [_error_row(pairs, frame, cubes) for frame in frames]
        options.save(rows)
        rows += held_out_rows(_QUICK_HELD_OUT if options.quick else _HELD_OUT)
        options.save(rows)
        for count in cost_cubes:
            with optional(rows, what="cost", cubes=count):
                rows += _cost_rows(count, cost_steps, device)
            options.save(rows)
            advance(1)
    return rows


def _error_row(pairs: Sequence[tuple[np.ndarray, np.ndarray]], frame: int, cubes: int) -> Row:
    """Mean error over scenes after some frames.

    Args:
        pairs: For each scene, states (T, 13 cubes) of MuJoCo and of the graph simulator.
        frame: Frame at which the error is taken.
        cubes: Number of cubes.
    """
    errors = []
    for in_mujoco, in_graph in pairs:
        errors.append(_pose_errors(in_mujoco[frame], in_graph[frame], cubes))
    position, rotation = np.mean(errors, axis=0)
    return {
        "what": "error",
        "frame": frame,
        "seconds": round(frame / RATE, 4),
        "cubes": cubes,
        "position_pct": round(float(position), 2),
        "rotation_deg": round(float(rotation), 2),
        "scenes": len(pairs),
    }


def _pose_errors(first: np.ndarray, second: np.ndarray, cubes: int) -> tuple[float, float]:
    """Mean distance (% of the width) and rotation (degrees) between the cubes of two states."""
    first_poses = first[: _QPOS * cubes].reshape(cubes, _QPOS)
    second_poses = second[: _QPOS * cubes].reshape(cubes, _QPOS)
    distance = np.linalg.norm(first_poses[:, :3] - second_poses[:, :3], axis=1)
    first_rotation = Rotation.from_quat(first_poses[:, 3:], scalar_first=True)
    second_rotation = Rotation.from_quat(second_poses[:, 3:], scalar_first=True)
    angle = (first_rotation.inv() * second_rotation).magnitude()
    return float(distance.mean() / _WIDTH * 100), float(np.degrees(angle).mean())


def _cost_rows(cubes: int, steps: int, device: str | None) -> list[Row]:
    """Seconds per frame around the first collisions, by MuJoCo and by the graph simulator."""
    start = rollout_in_mujoco(start_state(cubes)[None], _FRAMES_BEFORE_COST)[:, -1]
    sim = _simulator(cubes)
    sim.rollout(start, _no_control(1))  # warms up
    begin = time.perf_counter()
    sim.rollout(start, _no_control(steps))
    network = (time.perf_counter() - begin) / steps
    mujoco = _mujoco_seconds(start, _MUJOCO_STEPS_FACTOR * steps)
    rows = [_cost_row(cubes, "cpu", scenes=1, network=network, mujoco=mujoco)]
    if device is not None:
        with optional(rows, what="cost", cubes=cubes, device=device, scenes=1):
            network = _device_seconds(cubes, start, steps, device)
            rows.append(_cost_row(cubes, device, scenes=1, network=network, mujoco=mujoco))
        with optional(rows, what="cost", cubes=cubes, device=device, scenes=_BATCH_SCENES):
            batch_start = np.repeat(start, _BATCH_SCENES, 0)
            network = _device_seconds(cubes, batch_start, steps, device) / _BATCH_SCENES
            mujoco_steps = _MUJOCO_BATCH_STEPS_FACTOR * steps
            mujoco = _mujoco_seconds(batch_start, mujoco_steps) / _BATCH_SCENES
            rows.append(
                _cost_row(cubes, device, scenes=_BATCH_SCENES, network=network, mujoco=mujoco)
            )
    return rows


def _cost_row(cubes: int, device: str, *, scenes: int, network: float, mujoco: float) -> Row:
    """The row of seconds per frame of one scene, by the network and by MuJoCo."""
    return {
        "what": "cost",
        "cubes": cubes,
        "device": device,
        "scenes": scenes,
        "graph_s": float(f"{network:.3g}"),
        "mujoco_s": float(f"{mujoco:.3g}"),
        "ratio": float(f"{network / mujoco:.3g}"),
    }


def _mujoco_seconds(start: np.ndarray, steps: int) -> float:
    """Seconds per frame of all scenes in MuJoCo, without the time to set up.

    That time is the same for a short and a long rollout, and drops out of their difference.
    """
    seconds = []
    for frames in (1, 1 + steps):
        begin = time.perf_counter()
        rollout_in_mujoco(start, frames)
        seconds.append(time.perf_counter() - begin)
    return (seconds[1] - seconds[0]) / steps


def _device_seconds(cubes: int, start: np.ndarray, steps: int, device: str) -> float:
    """Seconds per frame of all scenes in the graph simulator on a device."""
    sim = _simulator(cubes).to(device)
    bodies, _ = sim._bodies(len(start), None)
    state = sim.state(torch.as_tensor(start, dtype=torch.float64)).to(device)
    recorded = sim.recorded_steps(bodies)
    recorded(state, steps)  # makes places for all contacts
    begin = time.perf_counter()
    recorded(state, steps)
    wait_for(device)
    return (time.perf_counter() - begin) / steps


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw MuJoCo above and the graph simulator below, from the top, at four moments.

    Args:
        rows: Rows that `run` returned.
        path: Where the picture is written.
    """
    from matplotlib.figure import Figure

    errors = [row for row in rows if row["what"] == "error"]
    cubes = errors[0]["cubes"]
    last_frame = max(row["frame"] for row in errors)
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    frames = np.linspace(0, last_frame, _PICTURES).astype(int)
    panels = figure.subplots(2, len(frames), sharex=True, sharey=True)
    in_mujoco, in_graph = rollout_both(cubes, int(last_frame))
    for i, frame in enumerate(frames):
        _draw_scene(panels[0, i], in_mujoco[frame], cubes, f"MuJoCo, {frame / RATE:.2f} s")
        _draw_scene(panels[1, i], in_graph[frame], cubes, f"graph simulator, {frame / RATE:.2f} s")
    write_figure(path, figure, dpi=110)


def _draw_scene(axes: Any, state: np.ndarray, cubes: int, title: str) -> None:
    """Draw the outlines of all cubes of a state."""
    from matplotlib.patches import Polygon

    square = 0.5 * _WIDTH * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    for i in range(cubes):
        pose = state[_QPOS * i : _QPOS * (i + 1)]
        rotation = Rotation.from_quat(pose[3:], scalar_first=True).as_matrix()[:2, :2]
        outline = Polygon(
            square @ rotation.T + pose[:2],
            closed=True,
            facecolor="#2a66b8" if i == 0 else "#7db486",
            edgecolor="black",
            linewidth=0.5,
        )
        axes.add_patch(outline)
    axes.set_title(title, fontsize=9)
    axes.set_xlim(-0.25, 0.85)
    axes.set_ylim(-0.45, 0.45)
    axes.set_aspect("equal")
