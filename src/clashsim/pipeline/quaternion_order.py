"""Whether trials have their quaternions in another order, by the impacts found in them.

The motion of a tumbling body is as smooth in the wrong order as in the right one: it is that of the
inverse rotation, so that no import notices. But no impulse at the contact explains its impacts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.data.checks.findings import Finding, finding
from clashsim.data.checks.impact_misfit import measure_misfit
from clashsim.data.readers.convert import AXES_FOR_UP
from clashsim.pipeline.recordings import find_impacts

_MIN_IMPACTS = 5  # below which another order may fit by chance
_MAX_TRIALS = 40  # that are read in other orders
_MIN_SHARE = 0.2  # of a typical change of twist, that no impulse explains: less is noise
_MIN_GAIN = 3.0  # by which the right order is better; wrong ones are so by less than 2
_FLOOR = 0.03  # of a typical change of twist: less is noise
_UP_AXES = ("z", "y", "x")  # of the file, in whose axes its numbers are reordered
# Indices of what was read that give wxyz, if the file has the other order.
_ORDERS = ((3, 0, 1, 2), (1, 2, 3, 0))


def check_quaternion_order(scene: Scene, trials: Trials, impacts: Impacts) -> list[Finding]:
    """Look for another order of quaternions under which impulses explain the impacts.

    Args:
        scene: Scene of the pair.
        trials: The recorded trials.
        impacts: The impacts found in them, each of one contact.

    Returns:
        One finding that stops a calibration, or none.
    """
    if impacts.planar or scene.plane is not None or len(impacts) < _MIN_IMPACTS:
        return []
    share = _unexplained(scene, impacts)
    if share < _MIN_SHARE:
        return []
    some = Trials(tuple(trials)[:_MAX_TRIALS])
    for order, up in product(_ORDERS, _UP_AXES):
        other = _unexplained_in_order(scene, some, order, up)
        if share > _MIN_GAIN * max(other, _FLOOR):
            message = (
                f"no impulse at the contact explains {100 * share:.0f} % of a typical change of "
                f"twist, but all except {100 * other:.0f} % with the other order of quaternions; "
                "check order (xyzw or wxyz) in the mapping, and import again"
            )
            return [finding("quaternion_order", "stop", message, trial="")]
    return []


def _unexplained(scene: Scene, impacts: Impacts) -> float:
    """Median share of changes of twist that no impulse explains; 1 where bodies cannot be there."""
    try:
        return float(np.median(measure_misfit(scene, impacts).share))
    except DataError:
        return 1.0


def _unexplained_in_order(scene: Scene, trials: Trials, order: tuple[int, ...], up: str) -> float:
    """`_unexplained` of the impacts in trials whose quaternions are reordered; 1 with too few."""
    reordered = []
    for trial in trials:
        poses = {body: _reordered(pose, order, up) for body, pose in trial.poses.items()}
        reordered.append(replace(trial, poses=poses))
    found = find_impacts(Trials(tuple(reordered)), scene)
    usable = found.select(found.one_contact)
    if len(usable.found) < _MIN_IMPACTS:
        return 1.0
    return _unexplained(scene, usable.impacts)


def _reordered(pose: np.ndarray, order: tuple[int, ...], up: str) -> np.ndarray:
    """Poses (N, 7) that were read from a file with this axis up and the other order."""
    axes = np.array(AXES_FOR_UP[up], float)
    in_file = np.column_stack([pose[:, 3], pose[:, 4:] @ axes])[:, order]
    return np.column_stack([pose[:, :3], in_file[:, 0], in_file[:, 1:] @ axes.T])
