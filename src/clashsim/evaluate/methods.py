"""Methods that predict impacts from few measured ones, by the names they have in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clashsim.core.errors import ClashError
from clashsim.evaluate import baselines
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.fit.base import BaseModel
from clashsim.fit.identify import identify_rows


class StatedTwists(NamedTuple):
    """Predicted twists (N, k) with the half-widths (2, N, k) of their intervals.

    The intervals should hold each of `INTERVAL_SHARES` of the outcomes.
    """

    twist_after: np.ndarray
    half_widths: np.ndarray


# (problem, rows whose outcome may be used, seed) -> twists after impact (N, k) of all impacts, with
# intervals where the method states any
Method = Callable[[FewShotProblem, np.ndarray, int], np.ndarray | StatedTwists]
# The most impacts that MuJoCo's parameters are identified from. More do not lower the floor of
# physics alone (mit_ellipse, CMA-ES: accuracy(0.1) 0.109 from 64 impacts, 0.105 from 300), and
# each fit takes minutes.
_MAX_IMPACTS = {"cmaes": 32, "sysid": 32, "mjx": 12}


class MethodUnavailableError(ClashError):
    """A method cannot run on a data set; the message goes into the row's `why`."""


def _mujoco_default(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """MuJoCo with the scene's nominal parameters."""
    return problem.identification_problem.predict(problem.scene.nominal)


def _mujoco_grid(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """MuJoCo identified by grid search, the baseline of the CLASH paper."""
    if problem.tabulate_grid:
        return problem.grid.after[problem.grid.best(rows)]
    found = identify_rows(problem.identification_problem, rows, "grid", seed=seed)
    return problem.identification_problem.predict(found.theta)


def _identified_by(search: str) -> Method:
    """MuJoCo identified by a search of `clashsim.fit.identify`.

    Of more than `_MAX_IMPACTS` rows, an evenly spaced selection is used.
    """

    def predict(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
        most = _MAX_IMPACTS[search]
        if len(rows) > most:
            rows = rows[np.linspace(0, len(rows) - 1, most).astype(int)]
        found = identify_rows(problem.identification_problem, rows, search, seed=seed)
        if found.failure is not None:
            raise MethodUnavailableError(found.failure)
        return problem.identification_problem.predict(found.theta)

    return predict


def _clashsim(problem: FewShotProblem, rows: np.ndarray, seed: int) -> StatedTwists:
    """clashsim's calibration of its base model."""
    return _calibrated(problem.clashsim_base, problem, rows, seed)


def _clashsim_network(problem: FewShotProblem, rows: np.ndarray, seed: int) -> StatedTwists:
    """clashsim's calibration of a network that was distilled from the pair's own strikes."""
    return _calibrated(problem.network_base, problem, rows, seed)


def _calibrated(
    base: BaseModel, problem: FewShotProblem, rows: np.ndarray, seed: int
) -> StatedTwists:
    """Predictions of a base model that was calibrated to some of the impacts."""
    from clashsim.fit.calibrate import calibrate

    calibration = calibrate(base, problem.impacts[rows])
    return StatedTwists(*calibration.predict_with_intervals(problem.impacts, problem.frames))


METHODS: dict[str, Method] = {
    "mujoco-default": _mujoco_default,
    "mujoco-grid": _mujoco_grid,
    "mujoco-cmaes": _identified_by("cmaes"),
    "mujoco-sysid": _identified_by("sysid"),
    "mjx-gradient": _identified_by("mjx"),
    "newton-coulomb": baselines.newton_coulomb,
    "ridge": baselines.ridge,
    "gp": baselines.gp,
    "scratch": baselines.scratch,
    "clash-paper": baselines.clash_paper,
    "clashsim-network": _clashsim_network,
    "clashsim": _clashsim,
}


def predicted_twists(
    method: str, problem: FewShotProblem, rows: np.ndarray, seed: int
) -> np.ndarray:
    """Twists after impact (N, k) that a method predicts, without intervals."""
    predicted = METHODS[method](problem, rows, seed)
    return predicted.twist_after if isinstance(predicted, StatedTwists) else predicted
