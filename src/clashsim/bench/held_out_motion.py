"""The graph simulator on trajectories of MuJoCo whose bodies were not in its training.

Bodies, contact and starts come from the ranges of the training sets, with other seeds.
"""

from __future__ import annotations

from clashsim.bench.rows import Row
from clashsim.fit.data_scaling import RATE, scale_data
from clashsim.fit.graph_train import drift
from clashsim.fit.train_graph import FRAMES, sampled_sets
from clashsim.fit.trajectory_set import TrajectorySet
from clashsim.nets.network_file import shipped_net

_FIRST_SEED = 9000  # far from the seeds of training


def held_out_rows(trajectories: int) -> list[Row]:
    """Errors by set: means over time, bodies and trajectories, and medians over bodies.

    Args:
        trajectories: Number of trajectories of each set.
    """
    net = shipped_net()
    rows = []
    for i, (name, wanted) in enumerate(sampled_sets().items()):
        arrays = scale_data(wanted.ranges, trajectories, _FIRST_SEED + i)
        data = TrajectorySet.of(arrays, 1 / RATE, "cpu", 1)
        errors = drift(net, data, steps=FRAMES, count=trajectories)
        row: Row = {"what": "held-out", "set": name, "frames": FRAMES}
        for key in ("position_mean", "rotation_mean", "position_median", "rotation_median"):
            unit = "pct" if key.startswith("position") else "deg"
            row[f"{key}_{unit}"] = round(errors[key][0], 2)
        rows.append(row | {"trajectories": len(data.motion)})
    return rows
