"""Tables of a fit to whole trajectories for the terminal, the same for `fit` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from clashsim.commands.shared import say, say_table

if TYPE_CHECKING:
    from clashsim.fit.motion_run import MotionRun


def print_motion_run(run: MotionRun) -> None:
    """Print parameters, errors of all models, penetration and what the fit is good for.

    Args:
        run: The run.
    """
    from clashsim.pipeline.motion_fitting import is_improved
    from clashsim.report.friction_formulas import FRICTION_HEADER, FRICTION_TITLE, friction_rows
    from clashsim.report.motion_page import ACCURACY_HEADER, accuracy_rows
    from clashsim.report.tables import parameter_table

    if run.scene.params:
        say_table(parameter_table(run.scene.params, run.estimates))
    metrics = run.metrics
    table = Table(title=f"Errors {metrics['judged']}", title_justify="left")
    for i, name in enumerate(ACCURACY_HEADER):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for row in accuracy_rows(metrics["models"]):
        table.add_row(*row)
    say_table(table)
    friction = metrics.get("friction", [])
    if friction:
        formulas = Table(title=FRICTION_TITLE, title_justify="left")
        for i, name in enumerate(FRICTION_HEADER):
            formulas.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
        for row in friction_rows(friction):
            formulas.add_row(*row)
        say_table(formulas)
    for name, depths in metrics.get("penetration", {}).items():
        mean, largest = depths["mean_mm"], depths["largest_mm"]
        say(f"penetration, {name}: mean {mean:.2f} mm, largest {largest:.2f} mm")
    times = [
        f"{name} {seconds:.0f} s"
        for name, seconds in metrics["seconds"].items()
        if name in metrics["models"]
    ]
    if times:
        say(f"fitted in: {', '.join(times)}" if len(times) > 1 else f"fitted in {times[0]}")
    for name, reason in metrics.get("refused", {}).items():
        say(f"not compared: {name}, because {reason}")
    say(metrics["conclusion"], style="bold" if is_improved(metrics) else "bold yellow")
