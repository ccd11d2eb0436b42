"""The surrogate of a run as an ONNX model with its input contract and an example that runs it."""

from __future__ import annotations

from typing import Any

from clashsim.core.extras import require
from clashsim.data.folders import dumps
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.nets.strike_table import StrikeTable
from clashsim.nets.strike_table_onnx import strike_table_onnx

MODEL, CONTRACT, EXAMPLE = "surrogate.onnx", "surrogate.json", "run_surrogate.py"
# Of the numbers of a strike, by the names of `StrikeDistribution`.
_MEANINGS = {
    "speed": ("m/s", "approach speed of the striker"),
    "point": ("rad", "bearing of the striker from the struck body's origin, in its axes"),
    "deflection": ("rad", "angle between approach velocity and contact normal"),
    "turn": ("rad", "bearing of the struck body from the striker, from the striker's heading"),
    "spin": ("rad/s", "angular velocity of the struck body before contact"),
    "slip": ("m/s", "tangential speed of a struck body that moves against a fixed striker"),
    "offset": ("m", "how far the struck body's origin lies to the left of the striker's heading"),
    "yaw": ("rad", "yaw of the struck body relative to the striker's"),
}
_EXAMPLE = '''"""Where a struck body comes to rest, by numpy and onnxruntime alone."""

import json

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("surrogate.onnx")
strikes = json.load(open("surrogate.json"))["inputs"]["strike"]["columns"]
strike = np.array([[0.5 * (column["low"] + column["high"]) for column in strikes]])
pose, noise = np.zeros((1, 3)), np.zeros((1, 3))
rest, twist = session.run(None, {"pose": pose, "strike": strike, "noise": noise})
print("pose at rest (x m, y m, yaw rad):", rest[0])
print("twist after the strike (m/s, m/s, rad/s), axes of the body:", twist[0])
'''


def surrogate_files(run: CalibratedRun) -> dict[str, bytes]:
    """Files of the surrogate of a run: the model, its input contract and an example.

    The surrogate is the strike table that plans and policies use: it predicts where strikes leave
    the body that they hit.

    Args:
        run: A run with a slide model.

    Returns:
        Content by name.

    Raises:
        DataError: The run has no slide model.
        SceneError: Strikes cannot be chosen in the run's scene.
    """
    require("onnx", "onnx", "onnx")
    table = run.strike_table()
    contract = _contract(table, run.scene.name)
    return {
        MODEL: strike_table_onnx(table, contract),
        CONTRACT: dumps(contract),
        EXAMPLE: _EXAMPLE.encode(),
    }


def _contract(table: StrikeTable, scene: str) -> dict[str, Any]:
    """What the inputs and outputs of the model mean."""
    columns = []
    for name, low, high in zip(table.names, table.low, table.high, strict=True):
        unit, meaning = _MEANINGS[name]
        limits = {"low": float(low), "high": float(high)}
        columns.append({"name": name, "unit": unit, "meaning": meaning} | limits)
    contract: dict[str, Any] = {
        "model": MODEL,
        "scene": scene,
        "number_type": "float64",
        "outside_the_ranges": "strikes count as the nearest ones within low and high",
        "inputs": {
            "pose": {
                "shape": ["N", 3],
                "meaning": "x, y (m) and yaw (rad) of the body when it is struck at rest",
            },
            "strike": {"shape": ["N", len(columns)], "columns": columns},
            "noise": {
                "shape": ["N", 3],
                "meaning": "standard deviations by which each component of the twist after the "
                "strike differs from the predicted one; zeros for the prediction itself",
            },
        },
        "outputs": {
            "rest": {"shape": ["N", 3], "meaning": "pose at rest, in the axes of pose"},
            "twist": {
                "shape": ["N", 3],
                "meaning": "velocity (m/s) and yaw rate (rad/s) after the strike, body axes",
            },
        },
    }
    if table.fidelity is not None:
        fidelity = table.fidelity
        contract["error_against_the_run"] = {
            "position_median_m": fidelity.position_median,
            "position_p95_m": fidelity.position_p95,
            "yaw_median_rad": fidelity.yaw_median,
            "yaw_p95_rad": fidelity.yaw_p95,
        }
    return contract
