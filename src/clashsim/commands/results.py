"""Calibrating, judging, saving and printing, alike for every verb that ends in a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.recorded import Recorded
from clashsim.commands.shared import console
from clashsim.core.errors import ClashError

if TYPE_CHECKING:
    from clashsim.core.impacts import Impacts
    from clashsim.evaluate.data_efficiency import DataEfficiency
    from clashsim.evaluate.holdout import HeldOutPredictions
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.fit.distil import DistilledModel
    from clashsim.slides.identify import SlideFit

_SPEEDS = (0.1, 0.5, 0.9)  # quantiles of the approach speed at which restitution is read


class Clock:
    """Seconds that named steps took."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a step."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def finish(
    base: DistilledModel,
    fitted: Impacts,
    held_out: Impacts,
    out: Path,
    *,
    options: dict[str, Any],
    name: str,
    overwrite: bool,
    found: dict[str, Any] | None = None,
    slide: SlideFit | None = None,
    source: str = "real",
    rivals: Mapping[str, np.ndarray] | None = None,
    recorded: Recorded | None = None,
    seconds: Mapping[str, float] | None = None,
) -> CalibratedRun:
    """Calibrate, judge and save, with a page to look at.

    found: what else the recordings told; source: as trials have it; rivals: what other methods
    predict (N, k) of the impacts held out.
    recorded: the trials behind the impacts; seconds: how long the steps before this one took.
    """
    from clashsim.core.contact_frame import contact_frame
    from clashsim.evaluate.data_efficiency import measure_data_efficiency
    from clashsim.evaluate.holdout import accuracies_by_model, predict_held_out
    from clashsim.fit.calibrate import calibrate
    from clashsim.fit.calibrated_run import CalibratedRun, theta_in_ranges, with_ground_friction
    from clashsim.fit.restitution import restitution_at_speeds
    from clashsim.fit.run_folder import save_run

    seed, scene, clock = int(options["seed"]), base.scene, Clock(seconds)
    with clock("calibration"):
        calibration = calibrate(base, fitted, seed=seed)
    with clock("judging"):
        judged = predict_held_out(calibration, fitted, held_out, seed=seed)
        smaller = measure_data_efficiency(calibration, fitted, held_out, seed=seed)
    if (
        slide is not None
    ):  # after judging: MuJoCo's strikes are at their best with the friction that suits strikes
        calibration = with_ground_friction(calibration, slide)
    metrics: dict[str, Any] = {"impacts": len(fitted), "held_out": len(held_out)}
    if judged is not None:
        judged = replace(judged, predicted=dict(rivals or {}) | judged.predicted)
        metrics |= {"judged": judged.description, "models": accuracies_by_model(scene, judged)}
    frame = contact_frame(scene, fitted)
    speeds = np.unique(np.round(np.quantile(frame.speed, _SPEEDS), 2)).tolist()
    thetas = {"nominal": scene.nominal, "identified": theta_in_ranges(calibration)}
    metrics["restitution"] = {"speeds": speeds} | {
        name: list(restitution_at_speeds(scene, theta, speeds).values())
        for name, theta in thetas.items()
    }
    metrics["outside"] = int((~base.in_training_region(frame, theta_in_ranges(calibration))).sum())
    metrics |= found or {}
    page = _page(
        calibration,
        judged,
        metrics,
        fitted=fitted,
        name=name,
        source=source,
        slide=slide,
        recorded=recorded,
        smaller=smaller,
        clock=clock,
        seed=seed,
    )
    save_run(
        out,
        calibration,
        slide=slide,
        config=options,
        metrics=metrics,
        trials={name: fitted},
        pages={"report.html": page.encode()},
        overwrite=overwrite,
    )
    return CalibratedRun(calibration, None if slide is None else slide.model)


def _page(
    calibration: Calibration,
    judged: HeldOutPredictions | None,
    metrics: dict[str, Any],
    *,
    fitted: Impacts,
    name: str,
    source: str,
    slide: SlideFit | None,
    recorded: Recorded | None,
    smaller: DataEfficiency | None,
    clock: Clock,
    seed: int,
) -> str:
    from clashsim.core.contact_frame import contact_frame, inertia
    from clashsim.core.impacts import after_columns
    from clashsim.evaluate.rest_poses import compare_rest_poses
    from clashsim.evaluate.trust_map import compute_trust_map
    from clashsim.fit.run_folder import versions
    from clashsim.report.content import ReportContent
    from clashsim.report.page import report as page
    from clashsim.slides.law import VALUE_NAMES, VALUE_UNITS

    scene = calibration.base.scene
    none = np.zeros((0, len(after_columns(scene.plane is not None))))
    shown: dict[str, Any] = {"measured": none, "predicted": {"clashsim": none}}
    if judged is not None:
        shown = {
            "measured": judged.impacts.after,
            "predicted": judged.predicted,
            "std": judged.std,
            "test_description": judged.description,
            "conditions": {"approach speed, m/s": contact_frame(scene, judged.impacts).speed},
        }
        if recorded is not None:
            shown["labels"] = [
                recorded.label(i, held_out=metrics["held_out"] > 0) for i in judged.rows
            ]
            if slide is not None:
                found = recorded.held_out or recorded.fitted
                shown["rest_displacements"] = compare_rest_poses(slide.model, judged, found)
    space = compute_trust_map(calibration, fitted, seed)
    if slide is not None:
        shown["slide_estimates"] = slide.estimates
        shown["slide_units"] = dict(zip(VALUE_NAMES, VALUE_UNITS, strict=True))
    if recorded is not None:
        shown |= {"trials": recorded.rows(), "findings": recorded.trials.notes}
    notes = [
        *warnings(calibration, metrics),
        *metrics.get("segmented", []),
        *([metrics["slide"]["words"]] if "slide" in metrics else []),
    ]
    content = ReportContent(
        title=f"Calibration of {scene.name}",
        data=name,
        source=source,
        num_fitted=metrics["impacts"],
        gyration=inertia(scene, scene.struck_body).gyration,
        params=scene.params,
        estimates=calibration.theta,
        restitution=metrics["restitution"],
        trust_map=space,
        predictions_per_second=space.rate,
        data_efficiency=smaller,
        advice=_advice(calibration, seed),
        notes=notes,
        durations=clock.seconds,
        versions=versions(),
        **shown,
    )
    return page(content)


def _advice(calibration: Calibration, seed: int) -> str | None:
    """Whether ten more strikes would help; None where strikes are not made by an arm in a plane."""
    from clashsim.commands.advise import said
    from clashsim.fit.advise import advise
    from clashsim.fit.candidates import candidates

    known = dict(
        zip(calibration.scale.extras, map(float, calibration.scale.centres[-1]), strict=True)
    )
    try:
        return said(
            advise(
                calibration, candidates(calibration.base.scene, seed, 256, known=known).impacts, 1
            )
        )
    except ClashError:
        return None


def warnings(calibration: Calibration, metrics: dict[str, Any]) -> list[str]:
    """What a reader should know before trusting the result."""
    free = sum(e.status != "known" for e in calibration.theta)
    out = []
    if metrics.get("impacts", free) < free:
        out.append(
            f"There are fewer impacts ({metrics['impacts']}) than parameters ({free}): priors decide what these impacts cannot."
        )
    if metrics.get("outside"):
        out.append(
            f"{metrics['outside']} of the {metrics['impacts']} impacts lie outside what the scene's [strikes] covers, where the distilled model guesses: widen its ranges."
        )
    return out


def report(run: CalibratedRun, notes: dict[str, Any]) -> None:
    """Print a run's tables; notes: as `read_notes` has them."""
    from clashsim.report.tables import (
        accuracy_table,
        ground_friction_table,
        parameter_table,
        restitution_table,
        slide_table,
    )
    from clashsim.slides.law import VALUE_NAMES, VALUE_UNITS

    screen, metrics = console(), notes["metrics"]
    show = partial(screen.print, markup=False)  # names may hold what rich would take for markup
    show(parameter_table(run.scene.params, run.calibration.theta))
    reading = metrics.get("restitution")
    if reading:
        nominal = zip(reading["speeds"], reading["nominal"], strict=True)
        identified = zip(reading["speeds"], reading["identified"], strict=True)
        show(restitution_table(dict(nominal), dict(identified)))
    if "ground" in metrics:
        show(ground_friction_table(metrics["ground"]))
    if notes["slide"] is not None:
        show(slide_table(notes["slide"], dict(zip(VALUE_NAMES, VALUE_UNITS, strict=True))))
    if "models" in metrics:
        show(accuracy_table(f"Accuracy {metrics['judged']}", metrics["models"]))
    for sentence in warnings(run.calibration, metrics):
        show(sentence, style="yellow")
    if "slide" in metrics:
        print(metrics["slide"]["words"])
