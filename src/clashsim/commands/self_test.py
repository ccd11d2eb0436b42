"""The main path in short: sample, distil, calibrate, judge, plan, step and keep.

Each is done on real work, with a bound that it must hold.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clashsim.core.errors import DataError

if TYPE_CHECKING:
    from clashsim.core.impacts import Impacts
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.plan.tasks import Plan

_DRAWS = 2  # of each posterior: fewer than usual, for the sake of time
_FIT, _HELD_OUT = 10, 10  # recorded strikes that are calibrated with, and that are judged on


@dataclass(frozen=True)
class Check:
    """One check: what was looked at, whether it holds, what was found, and how long it took (s)."""

    name: str
    passed: bool
    found: str
    seconds: float


class SelfTest:
    """The checks, each with what the ones before it made.

    Args:
        begin: Called with the name of each check before its work begins.
    """

    def __init__(self, begin: Callable[[str], None] = lambda name: None) -> None:
        from clashsim.core.scene import Scene

        self._begin = begin
        self._scene = Scene.load("semi_cylinder")
        self._run: CalibratedRun | None = None
        self._plan: Plan | None = None

    def __iter__(self) -> Iterator[Check]:
        steps: tuple[tuple[str, Callable[[], tuple[bool, str]]], ...] = (
            ("MuJoCo samples strikes", self._sample),
            ("the shipped model predicts them", self._distilled),
            ("recorded strikes calibrate it", self._calibrate),
            ("a strike is planned", self._planned),
            ("stepped, it does what was planned", self._stepped),
            ("the run is written and read back", self._kept),
        )
        for name, step in steps:
            self._begin(name)
            began = time.perf_counter()
            try:
                passed, found = step()
            except Exception as error:  # a doctor reports what is broken, whatever it is
                passed, found = (
                    False,
                    f"{type(error).__name__}: {' '.join(str(error).split())[:160]}",
                )
            yield Check(name, passed, found, time.perf_counter() - began)

    def _sample(self) -> tuple[bool, str]:
        from clashsim.fit.sample import sample

        self._sampled: Impacts = sample(self._scene, 500, seed=0)
        return bool(np.isfinite(self._sampled.after).all()) and len(
            self._sampled
        ) > 450, f"{len(self._sampled)} of 500 ended"

    def _distilled(self) -> tuple[bool, str]:
        from clashsim.core.contact_frame import contact_frame
        from clashsim.fit.base import base_model

        base, impacts = base_model(self._scene), self._sampled
        assert impacts.theta is not None
        frame = contact_frame(self._scene, impacts)
        error = self._relative(frame.decode(base.members(frame, impacts.theta)).mean(0), impacts)
        return float(
            np.median(error)
        ) < 0.1, f"{100 * float(np.median(error)):.1f} % off at the median (at most 10)"

    def _calibrate(self) -> tuple[bool, str]:
        from clashsim import lab
        from clashsim.data.segmentation.segment import segment
        from clashsim.fit.base import base_model
        from clashsim.fit.calibrate import calibrate
        from clashsim.fit.calibrated_run import CalibratedRun, with_ground_friction
        from clashsim.fit.slides_from_trials import fit_slides_of_impacts

        trials = lab.recorded()
        fitted, held_out = (
            segment(trials[a:b], scene=self._scene)
            for a, b in ((0, _FIT), (_FIT, _FIT + _HELD_OUT))
        )
        calibration = calibrate(
            base_model(self._scene), fitted.impacts, posterior_samples=_DRAWS, seed=0
        )
        slide, _ = fit_slides_of_impacts(self._scene, fitted.found, ())
        if slide is None:
            return False, "no slide model was fitted"
        self._run = CalibratedRun(with_ground_friction(calibration, slide), slide.model)
        error = self._relative(calibration.predict(held_out.impacts), held_out.impacts)
        good = float((error < 0.1).mean())
        return (
            good >= 0.8,
            f"{100 * good:.0f} % of {len(error)} strikes held out are predicted to 10 % (at least 80)",
        )

    def _planned(self) -> tuple[bool, str]:
        from clashsim.plan.planner import plan
        from clashsim.plan.tasks import PlanningTask, PlanStatus

        model = self._made.strikes()
        goal = model.rest(np.zeros((1, 3)), (0.35 * model.low + 0.65 * model.high)[None])[0]
        began = time.perf_counter()
        self._plan = plan(model, PlanningTask((float(goal[0]), float(goal[1]), float(goal[2]))))
        return (
            self._plan.status is PlanStatus.FOUND,
            f"{self._plan.reason}, in {1e3 * (time.perf_counter() - began):.0f} ms",
        )

    def _stepped(self) -> tuple[bool, str]:
        from clashsim.sim.stepped_strikes import SteppedStrikes

        run, plan = self._made, self._plan
        if plan is None:
            raise DataError("nothing was planned")
        hybrid = run.hybrid(timestep=0.005)
        assert hybrid.theta is not None
        rest = SteppedStrikes(hybrid, run.scene, hybrid.theta).rest(np.zeros((1, 3)), plan.strikes)[
            0
        ]
        far = 1e3 * float(np.linalg.norm(rest[:2] - plan.predicted[-1, :2]))
        return (
            far < 3.0,
            f"the hybrid simulator ends {far:.1f} mm from where the plan says (at most 3)",
        )

    def _kept(self) -> tuple[bool, str]:
        from clashsim.fit.run_folder import load, save_run

        run = self._made
        with tempfile.TemporaryDirectory() as folder:
            save_run(Path(folder) / "run", run.calibration, slide=run.slide)
            again = load(Path(folder) / "run")
        off = max(
            float(np.abs(a - b).max())
            for a, b in zip(
                run.calibration.predict_with_std(self._sampled),
                again.calibration.predict_with_std(self._sampled),
                strict=True,
            )
        )
        return off < 1e-9, f"its predictions differ by {off:.0e} m/s at most (at most 1e-09)"

    @property
    def _made(self) -> CalibratedRun:
        if self._run is None:
            raise DataError("nothing was calibrated")
        return self._run

    def _relative(self, after: np.ndarray, impacts: Impacts) -> np.ndarray:
        """Errors (N,) of twists (N, 3) over the size of what was measured, turns at the radius of
        gyration.
        """
        from clashsim.core.contact_frame import inertia

        rim = np.array([1.0, 1.0, inertia(self._scene, self._scene.struck_body).gyration])
        return np.linalg.norm((after - impacts.after) * rim, axis=1) / np.linalg.norm(
            impacts.after * rim, axis=1
        )
