"""Tables of a run for the terminal, the same for `calibrate`, `demo` and `show`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clashsim.commands.shared import console

if TYPE_CHECKING:
    from clashsim.data.mjcf import EditedMjcf
    from clashsim.fit.calibrated_run import CalibratedRun


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
    from clashsim.pipeline.run_report import value_units, warnings
    from clashsim.report import tables

    screen = console()

    def show(renderable: Any, style: str | None = None) -> None:
        # Names from files may contain text like [red], which rich would interpret.
        screen.print(renderable, style=style, markup=False)

    show(tables.parameter_table(run.scene.params, run.calibration.theta))
    restitution = metrics.get("restitution")
    if restitution:
        speeds = restitution["speeds"]
        nominal = dict(zip(speeds, restitution["nominal"], strict=True))
        identified = dict(zip(speeds, restitution["identified"], strict=True))
        show(tables.restitution_table(nominal, identified))
    if "ground" in metrics:
        show(tables.ground_friction_table(metrics["ground"]))
    if slide is not None:
        show(tables.slide_table(slide, value_units()))
    if "models" in metrics:
        show(tables.accuracy_table(f"Accuracy {metrics['judged']}", metrics["models"]))
    if "striker_models" in metrics:
        title = f"Accuracy of the striker's outcome {metrics['judged']}"
        show(tables.accuracy_table(title, metrics["striker_models"]))
    for sentence in warnings(run.calibration, metrics):
        show(sentence, style="yellow")
    if "slide" in metrics:
        print(metrics["slide"]["words"])
    result = conclusion(metrics)
    if result is not None:
        show(result, style="bold" if is_reliable(metrics) else "bold yellow")


def print_pairs_conclusion(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Print what a calibration of several pairs is good for: a line per pair, and one for all.

    Args:
        metrics: Content of metrics.json of each pair's run, by the pair's name.
    """
    from clashsim.evaluate.pair_conclusions import are_reliable, overall_conclusion, pair_conclusion

    screen = console()
    print()
    for name, of_pair in metrics.items():
        screen.print(f"{name}: {pair_conclusion(of_pair)}", markup=False)
    style = "bold" if are_reliable(metrics) else "bold yellow"
    screen.print(overall_conclusion(metrics), style=style, markup=False)


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


def unwritten_params(run: CalibratedRun, edited: EditedMjcf) -> str:
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
        if i not in run.written_params:
            unchanged.append(param.name)
    if unchanged:
        tail += f"; left as they were: {', '.join(unchanged)}"
    if edited.unwritten:
        tail += f"; MJCF has no place for: {', '.join(edited.unwritten)}"
    return tail
