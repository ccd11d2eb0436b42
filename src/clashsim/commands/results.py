"""Calibrating, judging, saving and printing, alike for every verb that ends in a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import console

if TYPE_CHECKING:
    from clashsim.bench.judge import Judged
    from clashsim.core.impacts import Impacts
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.distil import Distilled
    from clashsim.fit.run import Run
    from clashsim.fit.slide_model import SlideFit

_GRID = "MuJoCo, grid search"
_SPEEDS = (0.1, 0.5, 0.9)  # quantiles of the approach speed at which restitution is read


def finish(base: Distilled, fitted: Impacts, held_out: Impacts, out: Path, *, options: dict[str, Any], name: str, overwrite: bool,
           found: dict[str, Any] | None = None, slide: SlideFit | None = None, source: str = "real", rivals: Mapping[str, np.ndarray] | None = None) -> Run:
    """Calibrate, judge and save, with a page to look at.

    found: what else the recordings told; source: as trials have it; rivals: what other methods predict (N, k) of the impacts held out.
    """
    from clashsim.bench.judge import figures, judge
    from clashsim.core.frame import frame
    from clashsim.fit.calibrate import calibrate
    from clashsim.fit.reading import physical
    from clashsim.fit.run import Run, with_slides, within
    from clashsim.fit.runs import save_run

    seed, scene, started = int(options["seed"]), base.scene, time.perf_counter()
    calibration = calibrate(base, fitted, seed=seed)
    seconds = {"calibration": time.perf_counter() - started}
    judged = judge(calibration, fitted, held_out, seed=seed)
    if slide is not None:  # after judging: MuJoCo's strikes are at their best with the friction that suits strikes
        calibration = with_slides(calibration, slide)
    metrics: dict[str, Any] = {"impacts": len(fitted), "held_out": len(held_out)}
    if judged is not None:
        judged = replace(judged, predicted=dict(rivals or {}) | judged.predicted)
        metrics |= {"judged": judged.words, "models": figures(scene, judged)}
    seen = frame(scene, fitted)
    speeds = np.unique(np.round(np.quantile(seen.speed, _SPEEDS), 2)).tolist()
    thetas = {"nominal": scene.nominal, "identified": within(calibration)}
    metrics["restitution"] = {"speeds": speeds} | {name: list(physical(scene, theta, speeds).values()) for name, theta in thetas.items()}
    metrics["outside"] = int((~base.inside(seen, within(calibration))).sum())
    metrics |= found or {}
    page = _page(calibration, judged, metrics, name=name, source=source, seconds=seconds)
    save_run(out, calibration, slide=slide, config=options, metrics=metrics, trials={name: fitted}, pages={"report.html": page.encode()}, overwrite=overwrite)
    return Run(calibration, None if slide is None else slide.model)


def _page(calibration: Calibration, judged: Judged | None, metrics: dict[str, Any], *, name: str, source: str, seconds: dict[str, float]) -> str:
    from clashsim.core.frame import frame, inertia
    from clashsim.core.impacts import after_columns
    from clashsim.fit.runs import versions
    from clashsim.report.page import report as page

    scene = calibration.base.scene
    none = np.zeros((0, len(after_columns(scene.plane is not None))))
    shown: dict[str, Any] = {"measured": none, "predicted": {"clashsim": none}}
    if judged is not None:
        shown = {"measured": judged.impacts.after, "predicted": judged.predicted, "spread": judged.spread, "judged": judged.words,
                 "circumstances": {"approach speed, m/s": frame(scene, judged.impacts).speed}}
    notes = [*warnings(calibration, metrics), *metrics.get("segmented", []), *([metrics["slide"]["words"]] if "slide" in metrics else [])]
    return page(title=f"Calibration of {scene.name}", data=name, source=source, fitted=metrics["impacts"], gyration=inertia(scene, scene.struck_body).gyration,
                rival=_GRID if judged is not None and _GRID in judged.predicted else None, params=scene.params, estimates=calibration.theta,
                restitution=metrics["restitution"], notes=notes, seconds=seconds, versions=versions(), **shown)


def warnings(calibration: Calibration, metrics: dict[str, Any]) -> list[str]:
    """What a reader should know before trusting the result."""
    free = sum(e.status != "known" for e in calibration.theta)
    out = []
    if metrics.get("impacts", free) < free:
        out.append(f"There are fewer impacts ({metrics['impacts']}) than parameters ({free}): priors decide what these impacts cannot.")
    if metrics.get("outside"):
        out.append(f"{metrics['outside']} of the {metrics['impacts']} impacts lie outside what the scene's [draw] covers, where the distilled model guesses: widen its ranges.")
    return out


def report(run: Run, notes: dict[str, Any]) -> None:
    """Print a run's tables; notes: as `read_notes` has them."""
    from clashsim.nets.slide import NAMES, UNITS
    from clashsim.report.tables import accuracies, parameters, readings
    from clashsim.report.tables import ground as ground_table
    from clashsim.report.tables import slide as slide_table

    screen, metrics = console(), notes["metrics"]
    screen.print(parameters(run.scene.params, run.calibration.theta))
    reading = metrics.get("restitution")
    if reading:
        screen.print(readings(dict(zip(reading["speeds"], reading["nominal"], strict=True)), dict(zip(reading["speeds"], reading["identified"], strict=True))))
    if "ground" in metrics:
        screen.print(ground_table(metrics["ground"]))
    if notes["slide"] is not None:
        screen.print(slide_table(notes["slide"], dict(zip(NAMES, UNITS, strict=True))))
    if "models" in metrics:
        screen.print(accuracies(f"Accuracy {metrics['judged']}", metrics["models"]))
    for sentence in warnings(run.calibration, metrics):
        screen.print(sentence, style="yellow", markup=False)  # [draw] is no markup
    if "slide" in metrics:
        print(metrics["slide"]["words"])
