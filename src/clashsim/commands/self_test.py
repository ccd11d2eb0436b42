"""The self-test of `clashsim doctor`: the main steps of clashsim on little data.

Strikes are sampled and solved, the model is calibrated and tested on recorded strikes, a strike is
planned and stepped, and the run is written and read back. Each step has a bound that must hold.
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

_SAMPLES = 500
_FEWEST_IMPACTS = 450  # of the samples that must end
_NUM_FITTED = 10  # recorded strikes to calibrate with
_NUM_HELD_OUT = 10  # recorded strikes to test on
_MAX_ERROR = 0.1  # relative error of a good prediction
_FEWEST_GOOD = 0.8  # share of the strikes held out that must be predicted well
_FARTHEST = 3.0  # mm between the plan and the hybrid simulator
# m/s between a run and the same run read back: rounding grows in impacts that hang on details.
_MAX_DIFFERENCE = 1e-6
_TIMESTEP = 0.005  # s, of the hybrid simulator
_LONGEST_REASON = 160  # characters of an error message
_Outcome = tuple[bool, str]  # whether a check holds, and what was found


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: What was checked.
        passed: Whether it holds.
        found: What was found, in words.
        seconds: How long it took.
    """

    name: str
    passed: bool
    found: str
    seconds: float


class SelfTest:
    """The checks, each of which uses the results of the ones before it.

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
        checks: tuple[tuple[str, Callable[[], _Outcome]], ...] = (
            ("MuJoCo samples strikes", self._sample),
            ("their contact problems are solved", self._solved),
            ("recorded strikes calibrate it", self._calibrate),
            ("a strike is planned", self._planned),
            ("stepped, it does what was planned", self._stepped),
            ("the run is written and read back", self._kept),
        )
        for name, check in checks:
            self._begin(name)
            start = time.perf_counter()
            try:
                passed, found = check()
            except Exception as error:  # any error is reported as a failed check
                passed = False
                reason = " ".join(str(error).split())[:_LONGEST_REASON]
                found = f"{type(error).__name__}: {reason}"
            yield Check(name, passed, found, time.perf_counter() - start)

    def _sample(self) -> _Outcome:
        """Sample strikes in MuJoCo."""
        from clashsim.fit.sample import sample

        self._sampled: Impacts = sample(self._scene, _SAMPLES, seed=0)
        num_ended = len(self._sampled)
        finite = bool(np.isfinite(self._sampled.after).all())
        return finite and num_ended > _FEWEST_IMPACTS, f"{num_ended} of {_SAMPLES} ended"

    def _solved(self) -> _Outcome:
        """Predict the sampled strikes by solving their contact problems."""
        from clashsim.core.contact_frame import contact_frame
        from clashsim.fit.solved_model import SolvedModel

        impacts = self._sampled
        assert impacts.theta is not None
        base = SolvedModel(self._scene)
        frame = contact_frame(self._scene, impacts)
        predicted = frame.decode(base.members(frame, impacts.theta)).mean(0)
        median = float(np.median(self._relative_errors(predicted, impacts)))
        at_most = f"{100 * _MAX_ERROR:.0f}"
        return median < _MAX_ERROR, f"{100 * median:.1f} % off at the median (at most {at_most})"

    def _calibrate(self) -> _Outcome:
        """Calibrate on recorded strikes, and predict others."""
        from clashsim import lab
        from clashsim.data.segmentation.segment import segment
        from clashsim.fit.calibrate import calibrate
        from clashsim.fit.calibrated_run import CalibratedRun, with_ground_friction
        from clashsim.fit.slides_from_trials import fit_slides_of_impacts
        from clashsim.fit.solved_model import SolvedModel

        trials = lab.recorded()
        fitted = segment(trials[:_NUM_FITTED], scene=self._scene)
        held_out = segment(trials[_NUM_FITTED : _NUM_FITTED + _NUM_HELD_OUT], scene=self._scene)
        calibration = calibrate(SolvedModel(self._scene), fitted.impacts)
        slide, _ = fit_slides_of_impacts(self._scene, fitted.found, ())
        if slide is None:
            return False, "no slide model was fitted"
        self._run = CalibratedRun(with_ground_friction(calibration, slide), slide.model)
        predicted = calibration.predict(held_out.impacts)
        errors = self._relative_errors(predicted, held_out.impacts)
        good = float((errors < _MAX_ERROR).mean())
        return good >= _FEWEST_GOOD, (
            f"{100 * good:.0f} % of {len(errors)} strikes held out are predicted to "
            f"{100 * _MAX_ERROR:.0f} % (at least {100 * _FEWEST_GOOD:.0f})"
        )

    def _planned(self) -> _Outcome:
        """Plan a strike to a pose that can be reached."""
        from clashsim.plan.planner import plan
        from clashsim.plan.tasks import PlanningTask, PlanStatus

        table = self._calibrated.strike_table()
        # The target is where a strike well inside the table's ranges brings a body at the origin.
        strike = 0.35 * table.low + 0.65 * table.high
        at_origin = np.zeros((1, 3))
        x, y, yaw = table.rest(at_origin, strike[None])[0]
        start = time.perf_counter()
        self._plan = plan(table, PlanningTask((float(x), float(y), float(yaw))))
        milliseconds = 1e3 * (time.perf_counter() - start)
        is_found = self._plan.status is PlanStatus.FOUND
        return is_found, f"{self._plan.reason}, in {milliseconds:.0f} ms"

    def _stepped(self) -> _Outcome:
        """Step the planned strike in the hybrid simulator."""
        from clashsim.sim.stepped_strikes import SteppedStrikes

        run = self._calibrated
        plan = self._plan
        if plan is None:
            raise DataError("nothing was planned")
        hybrid = run.hybrid(timestep=_TIMESTEP)
        assert hybrid.theta is not None
        stepped = SteppedStrikes(hybrid, run.scene, hybrid.theta)
        at_origin = np.zeros((1, 3))
        rest = stepped.rest(at_origin, plan.strikes)[0]
        distance = 1e3 * float(np.linalg.norm(rest[:2] - plan.predicted[-1, :2]))
        return distance < _FARTHEST, (
            f"the hybrid simulator ends {distance:.1f} mm from the planned pose "
            f"(at most {_FARTHEST:.0f})"
        )

    def _kept(self) -> _Outcome:
        """Write the run and read it back."""
        from clashsim.fit.run_folder import load, save_run

        run = self._calibrated
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            save_run(path, run.calibration, slide=run.slide)
            again = load(path)
        mean, std = run.calibration.predict_with_std(self._sampled)
        mean_again, std_again = again.calibration.predict_with_std(self._sampled)
        difference = max(
            float(np.abs(mean - mean_again).max()), float(np.abs(std - std_again).max())
        )
        return difference < _MAX_DIFFERENCE, (
            f"its predictions differ by {difference:.0e} m/s at most (at most {_MAX_DIFFERENCE})"
        )

    @property
    def _calibrated(self) -> CalibratedRun:
        """The calibrated run that `_calibrate` made."""
        if self._run is None:
            raise DataError("nothing was calibrated")
        return self._run

    def _relative_errors(self, after: np.ndarray, impacts: Impacts) -> np.ndarray:
        """Relative errors (N,) of predicted twists `after` (N, 3).

        Angular velocities are multiplied by the radius of gyration.
        """
        from clashsim.core.contact_frame import inertia

        gyration = inertia(self._scene, self._scene.struck_body).gyration
        to_speed = np.array([1.0, 1.0, gyration])
        errors = np.linalg.norm((after - impacts.after) * to_speed, axis=1)
        return errors / np.linalg.norm(impacts.after * to_speed, axis=1)
