"""`judge_run`: how well a run predicts a second recording, which it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.evaluate.holdout import HeldOutPredictions, predict_held_out
from clashsim.evaluate.metrics import coverage
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.pipeline.durations import say_nothing
from clashsim.pipeline.recorded_impacts import (
    check_conventions,
    read_recorded_impacts,
    usable_impacts,
)


@dataclass(frozen=True, eq=False)
class RunTest:
    """How well a run predicts impacts of a second recording.

    Attributes:
        predictions: The impacts, and the predictions of each model.
        numbers: (N,), number of each impact in the recording.
        models: Accuracies and median error by the name of the model, as in metrics.json.
        striker_models: The same of the striker; empty where its outcomes were not recorded.
        inside: Share of the struck body's outcomes within the intervals that should hold each of
            `INTERVAL_SHARES` of them, (2,); None where no outcome of it was recorded.
        left_out: A sentence for each reason why impacts were left out.
    """

    predictions: HeldOutPredictions
    numbers: np.ndarray
    models: Mapping[str, Mapping[str, Any]]
    striker_models: Mapping[str, Mapping[str, Any]]
    inside: np.ndarray | None
    left_out: tuple[str, ...]

    @property
    def impacts(self) -> Impacts:
        """The N impacts."""
        return self.predictions.impacts


def judge_run(
    run: CalibratedRun,
    recording: Path | str,
    *,
    accept: Sequence[str] = (),
    notify: Callable[[str], object] = say_nothing,
) -> RunTest:
    """Predict the impacts of a second recording and compare with what was measured.

    Args:
        run: The run.
        recording: File with impacts or trials of the run's pair.
        accept: Names of findings about a table of impacts that are accepted, such as "angle_unit".
        notify: Called with sentences for the user, also on what was left out.

    Returns:
        The test.

    Raises:
        DataError: The recording cannot be read, or none of its impacts can be used.
    """
    path = Path(recording)
    known = run.calibration.scaling.extras
    recorded = read_recorded_impacts(path, run.scene, known, notify)
    calibration = run.calibration.with_postures(recorded.impacts)
    scene = calibration.base.scene
    if recorded.impacts.planar != (scene.plane is not None):
        kinds = ("in space", "in a plane") if scene.plane is None else ("in a plane", "in space")
        raise DataError(
            f"the run was calibrated on impacts recorded {kinds[0]}, and those in {path.name!r} "
            f"are recorded {kinds[1]}: record both alike"
        )
    check_conventions(recorded, scene, accept=accept, name=path.name, notify=notify)
    recorded, frame = usable_impacts(recorded, scene, notify)
    impacts = recorded.impacts
    predictions = predict_held_out(calibration, impacts[:0], impacts, seed=0, frame=frame)
    assert predictions is not None
    struck = predictions.of_struck(scene)
    inside = None
    if len(struck.rows):
        error = struck.predicted["clashsim"] - struck.measured
        inside = coverage(error, predictions.half_widths[:, struck.rows])
    return RunTest(
        predictions=predictions,
        numbers=np.arange(len(impacts)) if recorded.rows is None else recorded.rows,
        models=struck.accuracies(),
        striker_models=predictions.of_striker(scene).accuracies(),
        inside=inside,
        left_out=tuple(recorded.notes.get("left_out", ())),
    )
