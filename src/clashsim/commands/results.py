"""Calibrating, judging, saving and printing, alike for every verb that ends in a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import console

if TYPE_CHECKING:
    from clashsim.core.impacts import Impacts
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.distil import Distilled

_SPEEDS = (0.1, 0.5, 0.9)  # quantiles of the approach speed at which restitution is read


def finish(base: Distilled, fitted: Impacts, held_out: Impacts, out: Path, *, options: dict[str, Any], name: str, overwrite: bool,
           found: dict[str, Any] | None = None) -> tuple[Calibration, dict[str, Any]]:
    """Calibrate, judge and save; `found` is what else the recordings told."""
    from clashsim.bench.judge import judge, within
    from clashsim.core.frame import frame
    from clashsim.fit.calibrate import calibrate
    from clashsim.fit.reading import physical
    from clashsim.fit.runs import save_run

    seed, scene = int(options["seed"]), base.scene
    calibration = calibrate(base, fitted, seed=seed)
    metrics: dict[str, Any] = {"impacts": len(fitted), "held_out": len(held_out)} | judge(calibration, fitted, held_out, seed=seed)
    speeds = np.unique(np.round(np.quantile(frame(scene, fitted).speed, _SPEEDS), 2)).tolist()
    thetas = {"nominal": scene.nominal, "identified": within(calibration)}
    metrics["restitution"] = {"speeds": speeds} | {name: list(physical(scene, theta, speeds).values()) for name, theta in thetas.items()}
    metrics |= found or {}
    save_run(out, calibration, config=options, metrics=metrics, trials={name: fitted}, overwrite=overwrite)
    return calibration, metrics


def report(calibration: Calibration, metrics: dict[str, Any]) -> None:
    """Print a run's tables."""
    from clashsim.report.tables import accuracies, parameters, readings
    from clashsim.report.tables import ground as ground_table

    screen, params = console(), calibration.base.scene.params
    screen.print(parameters(params, calibration.theta))
    reading = metrics.get("restitution")
    if reading:
        screen.print(readings(dict(zip(reading["speeds"], reading["nominal"], strict=True)), dict(zip(reading["speeds"], reading["identified"], strict=True))))
    if "ground" in metrics:
        screen.print(ground_table(metrics["ground"]))
    if "models" in metrics:
        screen.print(accuracies(f"Accuracy {metrics['judged']}", metrics["models"]))
    free = sum(e.status != "known" for e in calibration.theta)
    if metrics.get("impacts", free) < free:
        screen.print(f"There are fewer impacts ({metrics['impacts']}) than parameters ({free}): priors decide what these impacts cannot.", style="yellow")
