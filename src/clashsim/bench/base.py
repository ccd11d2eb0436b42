"""The base model before any real data: accuracy on simulated impacts that it has not seen.

The impacts cover the whole range of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.core.contact_frame import inertia
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.evaluate.metrics import ALPHAS, accuracy, relative_error
from clashsim.fit.base import BaseModel, distilled_model
from clashsim.fit.distil import PAPER, DistillationConfig
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel

OPTIONS: frozenset[str] = frozenset()
# How each method's base model is distilled; None solves the contact problems instead.
CONFIGS: Mapping[str, DistillationConfig | None] = {"clash-paper": PAPER, "clashsim": None}
_HELD_OUT_SEED = 1_000_003  # of the impacts to test on; training uses small seeds
_QUICK_SAMPLES = 8192
_QUICK_HELD_OUT = 1000
_QUICK_SCENES = ("puck",)


def run(
    options: BenchOptions = BenchOptions(),
    *,
    scenes: Sequence[str] = (),
    n: int = 100_000,
    held_out: int = 10_000,
    seed: int = 0,
    configs: Mapping[str, DistillationConfig | None] = CONFIGS,
) -> list[Row]:
    """Distil base models and test them.

    Args:
        options: Where base models are kept, and what to do with the rows.
        scenes: Names of shipped scenes; all by default.
        n: Simulated impacts to distil from.
        held_out: Simulated impacts to test on.
        seed: Seed of the simulated impacts, and of the first weights.
        configs: How to distil, by the name of the method.

    Returns:
        Rows of set (the scene), method, n, accuracy_0.1, accuracy_0.2 and median.
    """
    if options.quick:
        scenes = _QUICK_SCENES
        n = _QUICK_SAMPLES
        held_out = _QUICK_HELD_OUT
    rows: list[Row] = []
    for name in scenes or tuple(shipped_scenes()):
        scene = Scene.load(name)
        test = sample(scene, held_out, _HELD_OUT_SEED + seed, progress=options.progress)
        assert test.theta is not None
        gyration = inertia(scene, scene.struck_body).gyration
        for method, config in configs.items():
            row: Row = {"set": name, "method": method, "n": n}
            with optional(rows, **row):
                base: BaseModel = SolvedModel(scene)
                if config is not None:
                    base = distilled_model(
                        scene,
                        config=config,
                        n=n,
                        seed=seed,
                        cache=options.cache,
                        progress=options.progress,
                    )
                error = relative_error(base.predict(test, test.theta), test.after, gyration)
                for alpha in ALPHAS:
                    row[f"accuracy_{alpha}"] = accuracy(error, alpha)
                rows.append(row | {"median": float(np.median(error))})
            options.save(rows)
    return rows
