"""A cube pushed into a bowling array of ten (few-shot paper, Fig. 6): the graph simulator against
MuJoCo with the same identified contact.

what `error`: mean distance (% of a cube's width) and turn (degrees) of all cubes between the two,
after some frames. what `cost`: seconds a step of one scene when `scenes` of them run as one batch,
and the ratio to MuJoCo (its substeps of a frame, a batch on all cores) in the same process;
`device` says where the network ran.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from clashsim.bench.graph_scenes import (
    CUBE,
    HALF,
    RATE,
    ROUNDING,
    in_mujoco,
    lying,
    triangle,
    unit_contact,
)
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.errors import DataError
from clashsim.core.extras import importable
from clashsim.core.progress import Progress, quiet
from clashsim.fit.graph_train import ContactSearch, rollout_states
from clashsim.fit.trajectory_set import all_pairs
from clashsim.nets.rigid_bodies import RigidBodyState
from clashsim.report.figure_files import write_figure
from clashsim.sim.graph.simulator import GraphSim

_FRAMES, _AT = 60, (5, 10, 20, 30, 45, 60)
_COUNTS = (2, 5, 10, 20)
_SPACING = 0.14  # m, between centres
_SPEED = 1.6  # m/s
_SCENES = 128  # in one batch, for the cost on a device


def scene(cubes: int, seed: int = 0) -> np.ndarray:
    """A start (13 cubes,): the first cube slides along x into the array of the others, whose places
    are a little uneven.
    """
    rows = next(r for r in range(1, 20) if r * (r + 1) // 2 >= cubes - 1)
    rng = np.random.default_rng(seed)
    array = triangle(rows, _SPACING)[: cubes - 1] + rng.normal(size=(cubes - 1, 2)) * 0.002
    start = lying(
        np.concatenate([[[-0.16, 0.01]], array]),
        np.concatenate([[0.0], rng.normal(size=cubes - 1) * 0.03]),
    )
    start[7 * cubes] = _SPEED
    return start


def _simulator(cubes: int) -> GraphSim:
    """With Coal where it is installed; it cannot be on every machine with a GPU."""
    return GraphSim(
        [CUBE] * cubes, unit_contact(), dt=1 / RATE, rounding=ROUNDING, coal=importable("coal")
    )


def both(cubes: int, frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States (frames + 1, 13 cubes) of MuJoCo and of the graph simulator."""
    start = scene(cubes, seed)[None]
    sim = _simulator(cubes)
    return in_mujoco(start, frames)[0], sim.rollout(start, np.zeros((1, frames, 0)))[0]


def run(
    seeds: int = 2,
    quick: bool = False,
    *,
    device: str | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of the bench."""
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        raise DataError(f"there is no device {device!r} on this machine")
    cubes, frames, at, counts = (4, 12, (6, 12), (2, 4)) if quick else (11, _FRAMES, _AT, _COUNTS)
    pairs = []
    with progress("bowling", (1 if quick else seeds) + len(counts)) as advance:
        for seed in range(1 if quick else seeds):
            pairs.append(both(cubes, frames, seed))
            advance(1)
        rows: list[Row] = []
        for f in at:
            far, turn = (
                np.mean(v) for v in zip(*(_apart(a[f], b[f], cubes) for a, b in pairs), strict=True)
            )
            rows.append(
                {
                    "what": "error",
                    "frame": f,
                    "seconds": round(f / RATE, 4),
                    "cubes": cubes,
                    "position_pct": round(float(far), 2),
                    "rotation_deg": round(float(turn), 2),
                    "scenes": len(pairs),
                }
            )
        save(rows)
        for count in counts:
            with optional(rows, what="cost", cubes=count):
                rows += _costs(count, 4 if quick else 12, device)
            save(rows)
            advance(1)
    return rows


def _apart(a: np.ndarray, b: np.ndarray, cubes: int) -> tuple[float, float]:
    p, q = (s[: 7 * cubes].reshape(cubes, 7) for s in (a, b))
    turn = (
        Rotation.from_quat(p[:, 3:], scalar_first=True).inv()
        * Rotation.from_quat(q[:, 3:], scalar_first=True)
    ).magnitude()
    return float(
        np.linalg.norm(p[:, :3] - q[:, :3], axis=1).mean() / (2 * (HALF + ROUNDING)) * 100
    ), float(np.degrees(turn).mean())


def _costs(cubes: int, steps: int, device: str | None) -> list[Row]:
    """Seconds a step around the first collisions, MuJoCo and network side by side."""
    start = in_mujoco(scene(cubes)[None], 10)[:, -1]
    sim = _simulator(cubes)
    sim.rollout(start, np.zeros((1, 1, 0)))
    begin = time.perf_counter()
    sim.rollout(start, np.zeros((1, steps, 0)))
    network, alone, many = (
        (time.perf_counter() - begin) / steps,
        _in_mujoco(start, 40 * steps),
        np.repeat(start, _SCENES, 0),
    )
    rows = [_cost(cubes, "cpu", 1, network, alone)]
    if device is not None:
        with optional(rows, what="cost", cubes=cubes, device=device, scenes=1):
            rows.append(_cost(cubes, device, 1, _on_device(sim, start, steps, device), alone))
        with optional(rows, what="cost", cubes=cubes, device=device, scenes=_SCENES):
            on_device = _on_device(sim, many, steps, device) / _SCENES
            in_batch = _in_mujoco(many, 4 * steps) / _SCENES
            rows.append(_cost(cubes, device, _SCENES, on_device, in_batch))
    return rows


def _cost(cubes: int, device: str, scenes: int, network: float, mujoco: float) -> Row:
    return {
        "what": "cost",
        "cubes": cubes,
        "device": device,
        "scenes": scenes,
        "graph_s": float(f"{network:.3g}"),
        "mujoco_s": float(f"{mujoco:.3g}"),
        "ratio": float(f"{network / mujoco:.3g}"),
    }


def _in_mujoco(start: np.ndarray, steps: int) -> float:
    """Seconds a step; what it takes to set up is not counted."""
    spent = []
    for frames in (1, 1 + steps):
        begin = time.perf_counter()
        in_mujoco(start, frames)
        spent.append(time.perf_counter() - begin)
    return (spent[1] - spent[0]) / steps


@torch.no_grad()
def _on_device(sim: GraphSim, start: np.ndarray, steps: int, device: str) -> float:
    """Seconds a step of all scenes with the batched collision search, which runs where the network
    does.
    """
    bodies, _ = sim._bodies(len(start), None)
    state = sim.state(bodies, torch.as_tensor(start, dtype=torch.float64))
    state = RigidBodyState(
        *(
            getattr(state, k).to(device)
            for k in ("position", "orientation", "velocity", "angular_velocity")
        )
    )
    net, there = sim.net.to(device), bodies.to(device)
    gravity, pairs = (
        sim.gravity.to(device).expand(len(there), 3),
        all_pairs(len(start), len(sim.boxes), device),
    )
    begin = 0.0
    for count in (1, steps):  # the first warms up
        begin = time.perf_counter()
        search = ContactSearch(pairs)
        rollout_states(net, there, state, gravity, steps=count, dt=sim.dt, search=search)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / steps
    sim.net.to("cpu")
    return seconds


def plot(rows: list[Row], path: Path) -> None:
    """MuJoCo above, the graph simulator below, seen from the top at four moments."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    cubes = next(r["cubes"] for r in rows if r["what"] == "error")
    frames = max(r["frame"] for r in rows if r["what"] == "error")
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    moments = np.linspace(0, frames, 4).astype(int)
    axes = figure.subplots(2, len(moments), sharex=True, sharey=True)
    square = (HALF + ROUNDING) * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    for row, (name, states) in enumerate(
        zip(("MuJoCo", "graph simulator"), both(cubes, int(frames)), strict=True)
    ):
        for axis, f in zip(axes[row], moments, strict=True):
            for i in range(cubes):
                pose = states[f, 7 * i : 7 * i + 7]
                turn = Rotation.from_quat(pose[3:], scalar_first=True).as_matrix()[:2, :2]
                axis.add_patch(
                    Polygon(
                        square @ turn.T + pose[:2],
                        closed=True,
                        facecolor="#2a66b8" if i == 0 else "#7db486",
                        edgecolor="black",
                        linewidth=0.5,
                    )
                )
            axis.set_title(f"{name}, {f / RATE:.2f} s", fontsize=9)
            axis.set_xlim(-0.25, 0.85)
            axis.set_ylim(-0.45, 0.45)
            axis.set_aspect("equal")
    write_figure(path, figure, dpi=110)
