"""The report of a fit to whole trajectories: one HTML page that can be read without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clashsim.core.params import Param
from clashsim.evaluate.motion_errors import MotionPrediction
from clashsim.report.chart_frame import Axes, ChartLabels, draw_chart, legend_key, line
from clashsim.report.friction_formulas import friction_section
from clashsim.report.markup import Markup, section, tag
from clashsim.report.page import fill_template
from clashsim.report.parameters import parameters_table
from clashsim.report.tables import Estimated, number
from clashsim.report.units import keep_units

_SIZE = (440.0, 240.0)  # px, width and height of a chart
_QUANTILE = 0.5  # of the errors of trials that is drawn
_DRAWN_TRIALS = 3
_DRAWN_BODIES = 4
_AXES = "xyz"
_BINS = 40  # of time, in which errors of trials are put together
_STATUS = {
    "fitted": "the trajectories determine the value",
    "at bound": "the best value lies at an end of the range: the scene may lack an effect",
    "unidentifiable": "the trajectories hardly narrow the prior; do not interpret the value",
}
_ERRORS_HINT = (
    "Median over trials of the distance between predicted and measured motion, over time. "
    "Predictions begin at the state that fits the first frames."
)
_MEASURED_HINT = "Measured motion and predictions from the first frames, in trials not fitted."
_PARAMETERS_HINT = (
    "Bar: the interval within the allowed range; dot: the identified value; tick: the prior. "
    "Without known forces, motion shows masses only relative to the heaviest body."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionContent:
    """What the report of a fit to trajectories shows.

    Attributes:
        title: Heading of the page.
        data: Name of the recordings.
        conclusion: The main result, in words.
        judged: On which trials models were tested, in words.
        predictions: Predictions of these trials by the name of the model, the fitted one first.
        figures: Errors of each model, as `error_figures`.
        penetration: Depths in mm of each model and of the recording, by name; empty without
            contact.
        params: Parameters of the scene.
        estimates: Estimate of each parameter.
        friction: Formulas that describe what networks learned, as in metrics.json.
        notes: Sentences on the data and the fit.
        facts: Further facts, by name.
    """

    title: str
    data: str
    conclusion: str
    judged: str
    predictions: Mapping[str, MotionPrediction]
    figures: Mapping[str, Mapping[str, Any]]
    penetration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    params: Sequence[Param] = ()
    estimates: Sequence[Estimated] = ()
    friction: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def motion_report(content: MotionContent) -> str:
    """The HTML page as text; the same content always gives the same text.

    Args:
        content: What the page shows.
    """
    head = tag(
        "header",
        tag("p", "clashsim report", class_="over"),
        tag("h1", content.title),
        tag("p", keep_units(content.conclusion), class_="headline"),
        tag("p", f"Data: {content.data}.", class_="quiet"),
    )
    sections: list[Markup | None] = [
        head,
        _accuracy_section(content),
        _errors_section(content),
        _measured_section(content),
        _penetration_section(content),
        _parameters_section(content),
        friction_section(content.friction),
        _notes_section(content),
    ]
    return fill_template(content.title, sections)


def _legend(names: Sequence[str]) -> Markup:
    """Keys of the series."""
    keys = [tag("span", legend_key(i), name) for i, name in enumerate(names)]
    return tag("div", keys, class_="legend")


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """A table whose first column has names and whose others have numbers."""
    cells = []
    for i, name in enumerate(header):
        cells.append(tag("th", name, scope="col", class_="num" if i else None))
    body = []
    for row in rows:
        first, *others = row
        numbers = [tag("td", str(other), class_="num") for other in others]
        body.append(tag("tr", tag("th", str(first), scope="row"), numbers))
    table = tag("table", tag("thead", tag("tr", cells)), tag("tbody", body), class_="trials")
    return tag("div", table, class_="scroll")


def accuracy_rows(figures: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Rows of a table of errors: model, body or joint, and errors as texts.

    Args:
        figures: Errors of each model, as `error_figures`.

    Returns:
        Model, body or joint, mean position error (% of its size, mm), rotation error.
    """
    rows = []
    for model, of_model in figures.items():
        for body, errors in of_model["bodies"].items():
            rows.append(
                [
                    model,
                    body,
                    f"{errors['position_pct']['mean']:.3g}",
                    f"{errors['position_mm']['mean']:.3g}",
                    f"{errors['rotation_deg']['mean']:.3g}",
                ]
            )
        for joint, errors in of_model["joints"].items():
            texts = [
                f"{errors[key]['mean']:.3g}" if key in errors else "-" for key in ("mm", "deg")
            ]
            rows.append([model, f"joint {joint}", "-", *texts])
    return rows


ACCURACY_HEADER = ("model", "body", "position, % of size", "position, mm", "rotation, deg")


def _accuracy_section(content: MotionContent) -> Markup:
    """Mean errors of all models."""
    hint = f"Means over frames and trials, {content.judged}. A body's size is twice its radius."
    return section(
        "Accuracy",
        _table(ACCURACY_HEADER, accuracy_rows(content.figures)),
        tag("p", hint, class_="quiet"),
    )


def _errors_section(content: MotionContent) -> Markup:
    """Errors over time, a chart for each body and joint."""
    first = next(iter(content.predictions.values()))
    charts = []
    for i, body in enumerate(first.bodies[:_DRAWN_BODIES]):
        position = {}
        rotation = {}
        for name, prediction in content.predictions.items():
            position[name] = 100 * prediction.position_error[..., i] / prediction.sizes[i]
            rotation[name] = np.degrees(prediction.rotation_error[..., i])
        charts.append(_error_chart(first.times, position, f"{body}: position, % of size"))
        charts.append(_error_chart(first.times, rotation, f"{body}: rotation, deg"))
    for i, joint in enumerate(first.joints[:_DRAWN_BODIES]):
        errors = {}
        for name, prediction in content.predictions.items():
            errors[name] = prediction.joint_error[..., i]
        charts.append(_error_chart(first.times, errors, f"{joint}: coordinate, rad or m"))
    return section(
        "Errors over time",
        _legend(list(content.predictions)),
        tag("div", charts, class_="panels wide"),
        tag("p", _ERRORS_HINT, class_="quiet"),
    )


def _error_chart(times: np.ndarray, errors: Mapping[str, np.ndarray], label: str) -> Markup:
    """Median errors (n, F) of each model over times (n, F)."""
    edges = np.linspace(0, float(times.max()) + 1e-9, _BINS + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    place = np.clip(np.digitize(times, edges) - 1, 0, _BINS - 1)
    curves = []
    highest = 0.0
    for values in errors.values():
        points = []
        for i in range(_BINS):
            inside = values[(place == i) & np.isfinite(values)]
            if inside.size:
                points.append((float(middle[i]), float(np.quantile(inside, _QUANTILE))))
        curves.append(points)
        highest = max([highest, *(y for _, y in points)])
    axes = Axes((0.0, float(edges[-1])), (0.0, 1.05 * highest or 1.0), *_SIZE)
    lines = [line(axes, i, points) for i, points in reversed(list(enumerate(curves)))]
    return draw_chart(axes, ChartLabels(f"{label} over time", "time, s", label), lines)


def _measured_section(content: MotionContent) -> Markup:
    """Measured and predicted motion of some trials."""
    first = next(iter(content.predictions.values()))
    names = [*content.predictions, "measured"]
    # From the best to the worst predicted trial.
    order = np.argsort(first.misfit)
    chosen = order[np.unique(np.linspace(0, len(order) - 1, _DRAWN_TRIALS).round().astype(int))]
    parts: list[Markup] = []
    for row in chosen:
        charts = []
        for i, body in enumerate(first.bodies[:_DRAWN_BODIES]):
            for axis in range(3):
                curves = [p.predicted[row, :, i, axis] for p in content.predictions.values()]
                curves.append(first.recorded[row, :, i, axis])
                if np.nanmax(curves[-1]) - np.nanmin(curves[-1]) < 1e-3 * first.sizes[i]:
                    continue
                charts.append(_motion_chart(first.times[row], curves, f"{body} {_AXES[axis]}, m"))
        for i, joint in enumerate(first.joints[:_DRAWN_BODIES]):
            curves = [p.predicted_joints[row, :, i] for p in content.predictions.values()]
            curves.append(first.recorded_joints[row, :, i])
            charts.append(_motion_chart(first.times[row], curves, f"{joint}, rad or m"))
        parts.append(tag("h3", f"trial {first.trials[row]}"))
        parts.append(tag("div", charts, class_="panels wide"))
    return section(
        "Measured and predicted", _legend(names), parts, tag("p", _MEASURED_HINT, class_="quiet")
    )


def _motion_chart(times: np.ndarray, curves: Sequence[np.ndarray], label: str) -> Markup:
    """Curves (F,) over times (F,); the range is that of the measured curve, which comes last."""
    measured = curves[-1][np.isfinite(curves[-1])]
    low, high = float(measured.min()), float(measured.max())
    margin = 0.3 * (high - low) or 0.1
    axes = Axes((0.0, float(times[-1])), (low - margin, high + margin), *_SIZE)
    lines = []
    for i, curve in reversed(list(enumerate(curves))):
        points = list(zip(times.tolist(), curve.tolist(), strict=True))
        lines.append(line(axes, i, points))
    return draw_chart(axes, ChartLabels(f"{label} over time", "time, s", label), lines)


def _penetration_section(content: MotionContent) -> Markup | None:
    """How deep bodies are inside each other; None without contact."""
    if not content.penetration:
        return None
    rows = []
    for name, depths in content.penetration.items():
        rows.append([name, f"{depths['mean_mm']:.2f}", f"{depths['largest_mm']:.2f}"])
    hint = "Of the recording itself: errors of poses and sizes. Means are over frames in contact."
    return section(
        "Penetration",
        _table(("model", "mean, mm", "largest, mm"), rows),
        tag("p", hint, class_="quiet"),
    )


def _parameters_section(content: MotionContent) -> Markup | None:
    """A table of the parameters; None if there are none."""
    if not content.params:
        return None
    statuses = {str(estimate.status) for estimate in content.estimates}
    meanings = []
    for status, meaning in _STATUS.items():
        if status in statuses:
            meanings += [tag("dt", status), tag("dd", meaning)]
    return section(
        "Parameters",
        parameters_table(content.params, content.estimates),
        tag("dl", meanings, class_="facts"),
        tag("p", _PARAMETERS_HINT, class_="quiet"),
    )


def _notes_section(content: MotionContent) -> Markup:
    """Notes on the data, and facts on the fit."""
    facts = []
    for name, value in content.facts.items():
        facts += [tag("dt", name), tag("dd", value)]
    notes = tag("ul", [tag("li", note) for note in content.notes]) if content.notes else None
    return section("Data and fit", notes, tag("dl", facts, class_="facts"))


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Durations of steps as one text.

    Args:
        seconds: Durations, s, by name of the step.
    """
    return ", ".join(f"{name} {number(value)} s" for name, value in seconds.items())
