"""A run folder that takes a second to make, for tests that damage it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from clashsim.core.scene import Scene
from clashsim.data.folders import read_folder, write_folder
from clashsim.fit.base import distilled_model
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.run_folder import RunRecord, save_run
from clashsim.fit.sample import sample
from clashsim.slides.law import SlideModel

ACCURACY = {"accuracy_0.1": 0.5, "accuracy_0.2": 0.75, "median": 0.1}
METRICS = {
    "impacts": 4,
    "held_out": 0,
    "outside": 1,
    "judged": "on impacts left out in turn",
    "models": {"clashsim": ACCURACY},
    "restitution": {"speeds": [0.2, 0.4], "nominal": [0.5, 0.4], "identified": [0.6, 0.5]},
    "ground": {
        "slides": 3,
        "sliding": 0.3,
        "sliding_error": 0.01,
        "torsional": 0.0,
        "torsional_error": None,
    },
    "segmented": ["4 impacts in 4 trials"],
    "slide": {"words": "slide model from 3 of 4 slides"},
}


@cache
def calibration() -> Calibration:
    """A calibration of the shipped square on four simulated impacts."""
    scene = Scene.load("square")
    impacts = replace(sample(scene, 4, 1), theta=None, end_counts={})
    return calibrate(distilled_model(scene), impacts)


def write_run(path: Path) -> Path:
    """A run folder with everything that `clashsim show` prints."""
    made = calibration()
    impacts = replace(sample(made.base.scene, 4, 1), theta=None, end_counts={})
    slide = SlideModel({"friction": 0.3}, gyration=0.03)
    save_run(
        path, made, slide=slide, record=RunRecord(metrics=METRICS, trials={"four.csv": impacts})
    )
    return path


def rewritten(run: Path, out: Path, changes: Mapping[str, bytes]) -> Path:
    """A copy of a run with other files and fitting hashes, as anyone who changes a run can make."""
    write_folder(out, read_folder(run) | dict(changes))
    return out
