"""Tables of a run for the terminal, the same for `calibrate`, `demo` and `show`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clashsim.commands.shared import console, say, say_table

if TYPE_CHECKING:
    from clashsim.data.mjcf import EditedMjcf
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.fit.motion_run import MotionRun
    from clashsim.pipeline.second_test import RunTest


def print_run(
    run: CalibratedRun, metrics: Mapping[str, Any], slide: Mapping[str, Any] | None
) -> None:
    """Print the results of a run: parameters, restitution, friction, slide model, accuracy.

    Args:
        run: The calibrated run.
        metrics: Content of its metrics.json.
        slide: Content of its slide.json; None without a slide model.
    """
    from clashsim.evaluate.conclusion import conclusion, is_reliable
    from clashsim.evaluate.freed_parameters import candidate_sentences, weigh_candidates
    from clashsim.pipeline.run_report import value_units, warnings
    from clashsim.report import tables

    say_table(tables.parameter_table(run.scene.params, run.calibration.theta))
    say("Which parameters were freed (in brackets: difference of log evidence)")
    for sentence in candidate_sentences(weigh_candidates(run.calibration)):
        say(f"- {sentence}")
    restitution = metrics.get("restitution")
    if restitution:
        speeds = restitution["speeds"]
        nominal = dict(zip(speeds, restitution["nominal"], strict=True))
        identified = dict(zip(speeds, restitution["identified"], strict=True))
        say_table(tables.restitution_table(nominal, identified))
    if "ground" in metrics:
        say_table(tables.ground_friction_table(metrics["ground"]))
    if slide is not None:
        say_table(tables.slide_table(slide, value_units()))
    if "models" in metrics:
        say_table(tables.accuracy_table(f"Accuracy {metrics['judged']}", metrics["models"]))
    if "striker_models" in metrics:
        title = f"Accuracy of the striker's outcome {metrics['judged']}"
        say_table(tables.accuracy_table(title, metrics["striker_models"]))
    for sentence in warnings(run.calibration, metrics):
        say(sentence, style="yellow")
    if "slide" in metrics:
        say(metrics["slide"]["words"])
    result = conclusion(metrics)
    if result is not None:
        say(result, style="bold" if is_reliable(metrics) else "bold yellow")


def print_test(test: RunTest, name: str) -> None:
    """Print how well a run predicts a second recording.

    Args:
        test: The test.
        name: Name of the recording.
    """
    from clashsim.core.intervals import INTERVAL_SHARES
    from clashsim.report import tables

    judged = f"on {len(test.impacts)} impacts of {name}"
    if test.models:
        say_table(tables.accuracy_table(f"Accuracy {judged}", test.models))
    if test.striker_models:
        title = f"Accuracy of the striker's outcome {judged}"
        say_table(tables.accuracy_table(title, test.striker_models))
    if test.inside is not None:
        shares = zip(INTERVAL_SHARES, test.inside, strict=True)
        found = ", ".join(f"{inside:.0%} in the {stated:.0%} interval" for stated, inside in shares)
        say(f"Of the measured components, those that clashsim states hold: {found}.")


def print_pairs(metrics: Mapping[str, Mapping[str, Any]], folder: Path, *, detailed: bool) -> None:
    """Print what a calibration of several pairs is good for: a line per pair, and one for all.

    Args:
        metrics: Content of metrics.json of each pair's run, by the pair's name.
        folder: The run folder.
        detailed: Whether the tables of each pair are printed elsewhere.
    """
    from clashsim.evaluate.outliers import outlier_sentence
    from clashsim.evaluate.pair_conclusions import (
        are_reliable,
        brief_conclusion,
        overall_conclusion,
        pair_conclusion,
    )
    from clashsim.report.tables import pairs_table

    brief = {name: brief_conclusion(of_pair) for name, of_pair in metrics.items()}
    say_table(pairs_table(metrics, brief))
    for name, of_pair in metrics.items():
        if not are_reliable({name: of_pair}):
            say(f"{name}: {pair_conclusion(of_pair)}")
        if of_pair.get("outliers"):
            sentence = outlier_sentence(of_pair["impacts"], of_pair["outliers"])
            say(f"{name}: {sentence}", style="yellow")
    style = "bold" if are_reliable(metrics) else "bold yellow"
    say(overall_conclusion(metrics), style=style)
    if not detailed:
        say(f"parameters of each pair: clashsim show {folder} --details")


def warn_if_unreliable(folder: Path) -> None:
    """Repeat what the calibration of a run concluded, where that speaks against using it.

    Args:
        folder: The run folder.
    """
    from clashsim.evaluate.conclusion import conclusion, is_reliable
    from clashsim.fit.run_folder import read_notes

    metrics = read_notes(folder)["metrics"]
    if not is_reliable(metrics):
        console().print(f"About this run: {conclusion(metrics)}", style="yellow", markup=False)


def unwritten_params(run: CalibratedRun | MotionRun, edited: EditedMjcf) -> str:
    """Clauses to append to "scene written to ...": which parameters are not in it, and why.

    Args:
        run: The calibrated run.
        edited: Its scene with the identified values.

    Returns:
        Clauses that begin with a semicolon; empty where all parameters are written.
    """
    tail = ""
    unchanged = []
    for i, param in enumerate(run.scene.params):
        if i not in run.written_params or param.name in edited.unchanged:
            unchanged.append(param.name)
    if unchanged:
        tail += f"; left as they were: {', '.join(unchanged)}"
    if edited.unwritten:
        tail += f"; MJCF has no place for: {', '.join(edited.unwritten)}"
    if edited.rewritten:
        tail += f"; the scene is the MJCF that MuJoCo makes of your file, since {edited.rewritten}"
    return tail
