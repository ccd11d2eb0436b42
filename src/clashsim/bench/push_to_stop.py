"""A pushed cube that must stop a second one at a target (few-shot paper, Fig. 1): gradient descent
on the initial velocity through the graph simulator.

Cube 0 slides along x into cube 1, which shall come to rest at the target. A start is a first guess
of the pushing velocity; it converges if the final distance is below 10 mm within 10 epochs; the
search ends when all have. When in a frame cubes meet changes where the second one stops by some
millimetres, so slopes are means over three first gaps within the way of a frame; distances are
those of the gap as it is. `mujoco_mm`: the same velocities executed in MuJoCo with the same
contact.
"""

from __future__ import annotations

import numpy as np
import torch

from clashsim.bench.graph_scenes import CUBE, RATE, ROUNDING, in_mujoco, lying, unit_contact
from clashsim.bench.rows import Row, Save, discard
from clashsim.core.progress import Progress, quiet
from clashsim.sim.graph.simulator import GraphSim

EPOCHS, CLOSE = 10, 0.010  # m
_FRAMES = 64
_GAP = 0.14  # m, between the centres at the start
_STEP = 0.06  # m/s, the first one
_JITTER = (0.0, 0.0023, -0.0023)  # m


def problems(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """First velocities (count,) m/s and targets (count,) m, how far cube 1 shall go."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.7, 1.2, count), rng.uniform(0.04, 0.1, count)


def run(
    seeds: int = 10, quick: bool = False, *, progress: Progress = quiet, save: Save = discard
) -> list[Row]:
    """One row a start and epoch, and one for all; `seeds` is the number of starts."""
    count, epochs, frames = (2, 2, 40) if quick else (seeds, EPOCHS, _FRAMES)
    sim = GraphSim([CUBE, CUBE], unit_contact(), dt=1 / RATE, rounding=ROUNDING)
    first, target = problems(count, 0)
    velocity = torch.tensor(first)
    rows_at = [lying(np.array([[-_GAP + j, 0.0], [0.0, 0.0]])) for j in _JITTER]
    still = torch.tensor(np.repeat(np.array(rows_at), count, 0))
    history: list[tuple[np.ndarray, np.ndarray]] = []
    step, last = torch.full((count,), _STEP, dtype=torch.float64), None
    with progress("epochs", epochs + 1) as advance:
        for _ in range(epochs + 1):
            pushed = velocity.clone().requires_grad_(True)
            start = torch.cat(
                [still[:, :14], pushed.repeat(len(_JITTER))[:, None], still[:, 15:]], 1
            )
            end = sim.path(start, frames)[-1].position.reshape(len(_JITTER), count, 2, 3)[
                :, :, 1, 0
            ]
            short = torch.tensor(target) - end
            (slope,) = torch.autograd.grad((0.5 * short**2).mean(0).sum(), pushed)
            short = short[0]
            history.append((velocity.numpy().copy(), short.detach().abs().numpy()))
            save(_epochs(history, target))
            advance(1)
            if (np.array([d for _, d in history]) <= CLOSE).any(0).all():
                break
            # Rprop (Riedmiller and Braun 1993): through an impact the size of a slope says little,
            # its sign is right.
            sign = torch.sign(slope)
            step = torch.where(sign == last, 1.3 * step, 0.5 * step) if last is not None else step
            velocity, last = (velocity - step * sign).clamp(0.1, 2.5), sign
    rows = _epochs(history, target)
    best = np.array([d for _, d in history])
    reached = np.asarray((best <= CLOSE).any(0))
    chosen = np.array([history[int(e)][0][i] for i, e in enumerate(best.argmin(0))])
    starts = still[:count].numpy().copy()
    starts[:, 14] = chosen
    real = in_mujoco(starts, frames)[:, -1, 7]
    needed = (best <= CLOSE).argmax(0)[reached]
    rows.append(
        {
            "start": "all",
            "epoch": len(history) - 1,
            "converged": int(reached.sum()),
            "of": count,
            "distance_mm": round(1e3 * float(best.min(0).mean()), 2),
            "mujoco_mm": round(1e3 * float(np.abs(real - target).mean()), 2),
            "epochs_needed": round(float(needed.mean()), 2) if len(needed) else None,
        }
    )
    return rows


def _epochs(history: list[tuple[np.ndarray, np.ndarray]], target: np.ndarray) -> list[Row]:
    """One row per start and epoch.

    Args:
        history: Velocities (count,) m/s and distances (count,) m of each epoch.
        target: How far cube 1 should go (count,), m.
    """
    rows: list[Row] = []
    for start, goal in enumerate(target):
        for epoch, (velocity, distance) in enumerate(history):
            rows.append(
                {
                    "start": start,
                    "epoch": epoch,
                    "velocity": round(float(velocity[start]), 4),
                    "distance_mm": round(1e3 * float(distance[start]), 2),
                    "target_m": round(float(goal), 4),
                }
            )
    return rows
