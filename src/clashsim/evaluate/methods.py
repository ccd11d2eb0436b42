"""Methods that predict impacts from few measured ones, by the names they have in tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clashsim.core.errors import ClashError
from clashsim.evaluate import baselines
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.fit.identify import identify_rows

# (problem, rows whose outcome may be used, seed) -> twists after impact (N, k) of all impacts
Method = Callable[[FewShotProblem, np.ndarray, int], np.ndarray]
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


def _clashsim(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """clashsim's calibration of its base model."""
    from clashsim.fit.calibrate import calibrate

    calibration = calibrate(problem.clashsim_base, problem.impacts[rows], seed=seed)
    return calibration.predict(problem.impacts)


def _clashsim_network(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """clashsim's calibration of a network that was distilled from the pair's own strikes."""
    from clashsim.fit.calibrate import calibrate

    calibration = calibrate(problem.network_base, problem.impacts[rows], seed=seed)
    return calibration.predict(problem.impacts)


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
