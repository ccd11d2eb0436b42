"""`clashsim demo`: a calibration on recordings that ship with clashsim."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clashsim.commands.option_types import OutputPath
from clashsim.commands.run_tables import print_run
from clashsim.commands.shared import console
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials
    from clashsim.data.segmentation.result import Segmentation
    from clashsim.pipeline.calibration_data import CalibrationData

# Methods that clashsim is compared with: name in the report, and key in `METHODS`.
_BASELINES = {"MuJoCo, grid search": "mujoco-grid", "network without pre-training": "scratch"}
_SETTING = ("semi_cylinder", "resin", "high")  # shape, material, friction of the sand
_INTRODUCTION = (
    "[bold]A stand-in for reality:[/bold] 110 strikes on a semi-cylinder, recorded in clashsim's "
    "virtual laboratory (another engine, another contact\n"
    "model, motion capture with noise and drop-outs). {num_fitted} are used to calibrate, the "
    "others to test. On real recordings: clashsim bench real-impacts."
)


@dataclass(frozen=True)
class DemoOptions:
    """Calibrate on ten included recordings of the virtual laboratory, and test on a hundred.

    The laboratory is a stand-in for reality; the struck block is a semi-cylinder.

    Example: clashsim demo -o runs/demo
    """

    out: OutputPath = Path("runs/demo")
    """Folder to write the run and its report to."""
    impacts: int = 10
    """Number of strikes to calibrate on, 1 to 100; the other ones of 110 are the test set."""
    seed: int = 0
    """Seed of all random numbers."""
    overwrite: bool = False
    """Replace the run if it exists."""


def run(options: DemoOptions) -> None:
    """Run `clashsim demo`."""
    from clashsim import lab
    from clashsim.core.scene import Scene
    from clashsim.data.folders import check_output_folder
    from clashsim.fit.solved_model import SolvedModel
    from clashsim.pipeline.arguments import check_not_negative
    from clashsim.pipeline.calibration import fit_and_save
    from clashsim.pipeline.durations import Stopwatch

    check_not_negative(seed=options.seed)
    if not 1 <= options.impacts <= 100:
        raise ParamError(f"--impacts must be 1 to 100, got {options.impacts}")
    check_output_folder(options.out, overwrite=options.overwrite)
    start = time.perf_counter()
    console().print(_INTRODUCTION.format(num_fitted=options.impacts))
    trials = lab.recorded(*_SETTING)
    scene = Scene.load("semi_cylinder")
    stopwatch = Stopwatch(partial(print, flush=True))
    with stopwatch.measure("finding impacts"):
        data = _data(trials, scene, num_fitted=options.impacts)
    # The viewer finds the recordings to replay by the key "recorded".
    saved_options = asdict(options) | {"out": str(options.out), "recorded": list(_SETTING)}
    result = fit_and_save(
        SolvedModel(scene),
        data,
        options.out,
        options=saved_options,
        overwrite=options.overwrite,
        baselines=_predict_with_baselines(scene, data, options.seed),
        stopwatch=stopwatch,
    )
    print_run(result.run, result.metrics, result.slide)
    seconds = time.perf_counter() - start
    page = options.out / "report.html"
    print(f"run written to {options.out} in {seconds:.0f} s; open {page} in a browser")


def _data(trials: Trials, scene: Scene, *, num_fitted: int) -> CalibrationData:
    """First impacts of all trials: those of the first `num_fitted` trials are to be fitted."""
    from clashsim.core.contact_frame import contact_frame
    from clashsim.data.segmentation.segment import segment
    from clashsim.pipeline.calibration_data import CalibrationData, SegmentedTrials

    # Segmented separately, so that no information of the test trials reaches the fitted impacts.
    to_fit = segment(trials[:num_fitted], scene=scene)
    to_test = segment(trials[num_fitted:], scene=scene)
    fitted_rows = _first_impacts(to_fit)
    held_out_rows = _first_impacts(to_test)
    fitted = replace(to_fit.impacts[fitted_rows], source="lab")
    held_out = replace(to_test.impacts[held_out_rows], source="lab")
    segmented = SegmentedTrials(
        trials,
        fitted=[to_fit.found[row] for row in fitted_rows],
        held_out=[to_test.found[row] for row in held_out_rows],
    )
    return CalibrationData(
        name="semi-cylinder, resin on high-friction sand",
        source="lab",
        fitted=fitted,
        held_out=held_out,
        fitted_frame=contact_frame(scene, fitted),
        held_out_frame=contact_frame(scene, held_out),
        segmented=segmented,
    )


def _first_impacts(segmentation: Segmentation) -> np.ndarray:
    """Rows (T,) of the first impact of each of T trials, ascending."""
    _, first_rows = np.unique(segmentation.trial, return_index=True)
    return np.sort(first_rows)


def _predict_with_baselines(
    scene: Scene, data: CalibrationData, seed: int
) -> dict[str, np.ndarray]:
    """Twists (N, 3) after the held-out impacts as the baselines predict them, by name."""
    from clashsim.core.contact_frame import inertia
    from clashsim.evaluate.few_shot_problem import FewShotProblem
    from clashsim.evaluate.methods import predicted_twists

    num_fitted = len(data.fitted)
    all_impacts = replace(
        data.fitted,
        before=np.concatenate([data.fitted.before, data.held_out.before]),
        after=np.concatenate([data.fitted.after, data.held_out.after]),
    )
    gyration = inertia(scene, scene.struck_body).gyration
    problem = FewShotProblem(scene, all_impacts, gyration, tabulate_grid=False)
    predicted = {}
    with bar("baselines", len(_BASELINES)) as advance:
        for name, method in _BASELINES.items():
            fitted_rows = np.arange(num_fitted)
            after = predicted_twists(method, problem, fitted_rows, seed)
            predicted[name] = after[num_fitted:]
            advance(1)
    return predicted
