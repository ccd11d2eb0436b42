"""The report of a calibrated run: the content of its page, and warnings for the reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.impacts import after_columns
from clashsim.evaluate.conclusion import conclusion
from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.freed_parameters import weigh_candidates
from clashsim.evaluate.holdout import HeldOutPredictions
from clashsim.evaluate.outliers import Outlier, outlier_sentence
from clashsim.evaluate.recorded_forces import ForceComparison
from clashsim.evaluate.rest_poses import compare_rest_poses
from clashsim.evaluate.trust_map import compute_trust_map
from clashsim.fit.calibrate import Calibration
from clashsim.fit.run_folder import versions
from clashsim.pipeline.advice import advice_for_report
from clashsim.pipeline.calibration_data import CalibrationData
from clashsim.report.content import ReportContent
from clashsim.report.outliers import OutlierRow
from clashsim.report.page import report
from clashsim.slides.identify import SlideFit
from clashsim.slides.law import VALUE_NAMES, VALUE_UNITS


@dataclass(frozen=True, eq=False)
class RunFindings:
    """Results of a calibration, as the report and the tables need them.

    Attributes:
        calibration: The calibrated collision model.
        data: Impacts that were fitted and held out.
        judged: Predictions of impacts that were not fitted; None if there are too few impacts.
        slide: The slide model; None if none was fitted.
        outliers: Fitted impacts that are far from what the others predict.
        efficiency: Accuracy of calibrations on fewer impacts; None if there are too few impacts.
        metrics: Content of metrics.json.
        seconds: How long each step took, by name.
        forces: Impulses by force sensors, measured and predicted.
    """

    calibration: Calibration
    data: CalibrationData
    judged: HeldOutPredictions | None
    slide: SlideFit | None
    outliers: Sequence[Outlier]
    efficiency: DataEfficiency | None
    metrics: Mapping[str, Any]
    seconds: Mapping[str, float]
    forces: Sequence[ForceComparison] = ()


def report_page(findings: RunFindings, *, seed: int) -> str:
    """The report of a run as one HTML page.

    Args:
        findings: Results of the calibration.
        seed: Seed of the strikes of the trust map, and of the candidate strikes for advice.

    Returns:
        The HTML text.
    """
    calibration = findings.calibration
    data = findings.data
    scene = calibration.base.scene
    trust_map = compute_trust_map(calibration, data.fitted, seed)
    shown = _judged_impacts(findings)
    if findings.slide is not None:
        shown["slide_estimates"] = findings.slide.estimates
        shown["slide_units"] = value_units()
    if data.segmented is not None:
        shown["trials"] = data.segmented.table_rows()
        shown["findings"] = data.segmented.trials.notes
    content = ReportContent(
        title=f"Calibration of {scene.name}",
        data=data.name,
        source=data.source,
        num_fitted=len(data.fitted),
        params=scene.params,
        estimates=calibration.theta,
        candidates=weigh_candidates(calibration),
        restitution=findings.metrics["restitution"],
        trust_map=trust_map,
        predictions_per_second=None if trust_map is None else trust_map.rate,
        outliers=_outlier_rows(findings),
        data_efficiency=findings.efficiency,
        advice=advice_for_report(calibration, seed),
        notes=_notes(findings),
        durations=findings.seconds,
        versions=versions(),
        **shown,
    )
    return report(content)


def value_units() -> dict[str, str]:
    """Units of the slide model's values, by name."""
    return dict(zip(VALUE_NAMES, VALUE_UNITS, strict=True))


def warnings(calibration: Calibration, metrics: Mapping[str, Any]) -> list[str]:
    """Warnings about a calibration, as sentences.

    Args:
        calibration: The calibrated model.
        metrics: Content of metrics.json.
    """
    num_free = sum(estimate.status != "known" for estimate in calibration.theta)
    num_impacts = metrics.get("impacts", num_free)
    num_outside = metrics.get("outside")
    sentences = []
    if num_impacts < num_free:
        sentences.append(
            f"There are fewer impacts ({num_impacts}) than parameters ({num_free}): "
            "priors decide what these impacts cannot."
        )
    if num_outside:
        sentences.append(
            f"{num_outside} of the {metrics['impacts']} impacts lie outside what the scene's "
            "[strikes] covers, where the distilled model extrapolates: widen its ranges."
        )
    if "time_step" in metrics:
        sentence = metrics["time_step"]["sentence"]
        sentences.append(f"{sentence[0].upper()}{sentence[1:]}.")
    if metrics.get("outliers"):
        sentences.append(outlier_sentence(metrics["impacts"], metrics["outliers"]))
    return sentences


def _outlier_rows(findings: RunFindings) -> list[OutlierRow]:
    """The outliers as the report shows them."""
    data = findings.data
    names = data.names(held_out=False)
    columns = after_columns(data.fitted.planar)
    return [OutlierRow(names[found.row], columns, found) for found in findings.outliers]


def _judged_impacts(findings: RunFindings) -> dict[str, Any]:
    """Fields of `ReportContent` about the impacts that were not fitted."""
    judged = findings.judged
    data = findings.data
    if judged is None:
        planar = findings.calibration.base.scene.plane is not None
        no_twists = np.zeros((0, len(after_columns(planar))))
        scene = findings.calibration.base.scene
        gyration = inertia(scene, scene.struck_body).gyration
        no_predictions = {"clashsim": no_twists}
        return {"measured": no_twists, "predicted": no_predictions, "gyration": gyration}
    # Without held-out impacts, the predictions are those of cross-validation on the fitted ones.
    any_held_out = len(data.held_out) > 0
    frame = data.held_out_frame if any_held_out else data.fitted_frame
    scene = findings.calibration.base.scene
    struck, striker = judged.of_struck(scene), judged.of_striker(scene)
    body = struck if len(struck.rows) else striker
    if body is struck and len(body.rows) == len(judged.rows):
        # Only then have the impacts the numbers that they have in the page's other charts.
        forces = tuple(findings.forces)
    else:
        forces = ()
    rows = judged.rows[body.rows]
    description = judged.description
    if body is striker:
        description += ", of which the striker's outcomes alone were recorded"
    shown: dict[str, Any] = {
        "measured": body.measured,
        "predicted": body.predicted,
        "gyration": body.gyration,
        "half_widths": judged.half_widths[:, body.rows] if body is struck else None,
        "test_description": description,
        "forces": forces,
        "conditions": {"approach speed, m/s": frame.speed[rows]},
    }
    if body is struck and len(striker.rows):
        shown["striker_measured"] = striker.measured
        shown["striker_predicted"] = striker.predicted
        shown["striker_gyration"] = striker.gyration
    names = data.names(held_out=any_held_out)
    shown["labels"] = [names[row] for row in rows]
    if not any_held_out:
        outlying = [outlier.row for outlier in findings.outliers]
        shown["outlying"] = np.isin(rows, outlying)
    if data.segmented is not None and findings.slide is not None:
        measured = data.segmented.held_out or data.segmented.fitted
        shown["rest_displacements"] = compare_rest_poses(findings.slide.model, judged, measured)
    return shown


def _notes(findings: RunFindings) -> list[str]:
    """Sentences for the page: conclusion, warnings, what was left out, and on the slide model."""
    metrics = findings.metrics
    sentence = conclusion(metrics)
    notes = [] if sentence is None else [sentence]
    notes += warnings(findings.calibration, metrics)
    notes += metrics.get("segmented", [])
    notes += metrics.get("left_out", [])
    notes += metrics.get("forces", [])
    if "slide" in metrics:
        notes.append(metrics["slide"]["words"])
    return notes
