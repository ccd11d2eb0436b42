"""A small run of the semi-cylinder for the tests of the viewer, made once per process.

It is calibrated on ten strikes of the laboratory, and has a slide model.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from clashsim import lab
from clashsim.commands import view
from clashsim.core.scene import Scene
from clashsim.data.segmentation.segment import segment
from clashsim.fit.base import distilled_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.run_folder import RunRecord, save_run
from clashsim.fit.slides_from_trials import fit_slides_of_impacts
from clashsim.view.session import ViewerSession

CALIBRATION_STRIKES = 10
SETTING = ("semi_cylinder", "resin", "high")


@cache
def folder() -> Path:
    """Return the folder of two runs.

    `demo` is as the command writes it; `plain` has no slide model and no note on its data.
    """
    out = Path(tempfile.mkdtemp(prefix="clashsim-view-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    scene = Scene.load("semi_cylinder")
    found = segment(lab.recorded(*SETTING)[:CALIBRATION_STRIKES], scene=scene)
    calibration = calibrate(distilled_model(scene), found.impacts)
    save_run(
        out / "demo",
        calibration,
        slide=fit_slides_of_impacts(scene, found.found, ())[0],
        record=RunRecord({"recorded": list(SETTING), "impacts": CALIBRATION_STRIKES}),
    )
    save_run(out / "plain", calibration)
    return out


@cache
def session() -> ViewerSession:
    """Return the run `demo` as the page has it."""
    return view.viewer_session(folder() / "demo")
