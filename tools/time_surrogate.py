"""Compare the speed of a run's surrogate in onnxruntime and in torch, in one process.

python tools/time_surrogate.py RUN [THREADS]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime
import torch

import clashsim
from clashsim.nets.strike_table_onnx import strike_table_onnx

ROUNDS = 9  # interleaved; medians are printed


def main(run: str, threads: int) -> None:
    """Print strikes per second and the largest difference of the two."""
    torch.set_num_threads(threads)
    table = clashsim.load(run).strike_table()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(strike_table_onnx(table, {}), options)
    rng = np.random.default_rng(0)
    for n in (1, 100, 10_000):
        strike = rng.uniform(table.low, table.high, (n, len(table.names)))
        inputs = {"pose": rng.normal(size=(n, 3)), "strike": strike, "noise": np.zeros((n, 3))}
        calls = {
            "onnxruntime": lambda inputs=inputs: session.run(["rest"], inputs)[0],
            "torch": lambda inputs=inputs: table.rest(**inputs),
        }
        repeats = max(1, 3000 // n)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        results = {}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                begin = time.perf_counter()
                for _ in range(repeats):
                    results[name] = call()
                seconds[name].append((time.perf_counter() - begin) / repeats)
        difference = np.abs(results["onnxruntime"] - results["torch"]).max()
        rates = {name: n / np.median(values) for name, values in seconds.items()}
        print(f"{n} at once: {rates}, largest difference {difference:.1e}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
