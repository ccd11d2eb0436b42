"""The base model before any real data: accuracy against simulated impacts that it has not seen,
over the whole range of theta.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.contact_frame import inertia
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.base import base_model
from clashsim.fit.distil import PAPER, DistillationConfig
from clashsim.fit.sample import sample

DEFAULTS: Mapping[str, DistillationConfig | None] = {
    "clash-paper": PAPER,
    "clashsim": None,
}  # None: what `base_model` gives by itself
_UNSEEN = 1_000_003  # seed of the held-out impacts; training uses small seeds


def run(
    *,
    scenes: tuple[str, ...] = (),
    n: int = 100_000,
    held_out: int = 10_000,
    seed: int = 0,
    cache: Path | None = None,
    recipes: Mapping[str, DistillationConfig | None] = DEFAULTS,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of set (the scene), method (`clash-paper` or `clashsim`), accuracy_0.1, accuracy_0.2,
    median.
    """
    rows: list[Row] = []
    for name in scenes or tuple(shipped_scenes()):
        scene = Scene.load(name)
        unseen = sample(scene, held_out, _UNSEEN + seed, progress=progress)
        gyration = inertia(scene, scene.struck_body).gyration
        for method, config in recipes.items():
            row = {"set": name, "method": method, "n": n}
            with optional(rows, **row):
                base = base_model(
                    scene, config=config, n=n, seed=seed, cache=cache, progress=progress
                )
                assert unseen.theta is not None
                error = relative_error(base.predict(unseen, unseen.theta), unseen.after, gyration)
                shares = {
                    f"accuracy_{alpha}": float((error < alpha).mean()) for alpha in (0.1, 0.2)
                }
                rows.append(row | shares | {"median": float(np.median(error))})
            save(rows)
    return rows
