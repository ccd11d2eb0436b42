"""How good a calibration would be with fewer impacts.

The calibration is repeated on subsets of the impacts, each time tested on impacts that are not in
the subset. Outliers are in neither: with few impacts, one of them hides what further ones change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.impacts import Impacts
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.calibrate import Calibration, calibrate_subsets

_SIZES = (3, 5, 10, 20, 40)  # larger fits take seconds, and the curve is flat by then
_NUM_SUBSETS = 2  # subsets of each size; each costs a calibration
_FEWEST_TESTED = 4  # where no impacts are held out, a subset leaves over at least this many


@dataclass(frozen=True, eq=False)
class DataEfficiency:
    """Errors of calibrations on fewer impacts.

    Attributes:
        sizes: Numbers of impacts that were fitted.
        errors: For each size and each subset of that size, the relative errors (N,) of the N
            impacts that the subset's calibration was tested on.
        num_left_out: Number of outliers among the impacts, which were neither fitted nor tested on.
    """

    sizes: tuple[int, ...]
    errors: tuple[tuple[np.ndarray, ...], ...]
    num_left_out: int = 0


def measure_data_efficiency(
    calibration: Calibration,
    fitted: Impacts,
    held_out: Impacts,
    *,
    outliers: Sequence[int] = (),
    seed: int,
) -> DataEfficiency | None:
    """Calibrate on 3, 5, 10, ... of the fitted impacts and test on others.

    Args:
        calibration: The calibration on all of `fitted`.
        fitted: Impacts that subsets are drawn from.
        held_out: Impacts to test on; where there are none, those that a subset leaves over.
        outliers: Rows of `fitted` that are far from what the others predict; they are left out.
        seed: Seed of the subsets, and of the calibrations on them.

    Returns:
        The errors; None where the impacts are too few.
    """
    num_left_out = len(outliers)
    fitted = fitted[np.setdiff1d(np.arange(len(fitted)), outliers)]
    largest = len(fitted) - 1 if len(held_out) else len(fitted) - _FEWEST_TESTED
    sizes = [size for size in _SIZES if size <= largest]
    if not sizes:
        return None
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(fitted)) for _ in range(_NUM_SUBSETS * len(sizes))]
    subsets = []
    for i, order in enumerate(orders):
        subsets.append(np.sort(order[: sizes[i // _NUM_SUBSETS]]))
    models = calibrate_subsets(calibration, fitted, subsets)
    errors: list[list[np.ndarray]] = [[] for _ in sizes]
    for i, (subset, model) in enumerate(zip(subsets, models, strict=True)):
        left_over = np.setdiff1d(np.arange(len(fitted)), subset)
        test = held_out if len(held_out) else fitted[left_over]
        errors[i // _NUM_SUBSETS].append(_errors(model, test))
    return DataEfficiency(tuple(sizes), tuple(map(tuple, errors)), num_left_out)


def _errors(model: Calibration, test: Impacts) -> np.ndarray:
    """Relative errors of a model on impacts whose struck body, or else striker, was recorded."""
    scene = model.base.scene
    measured = test[np.flatnonzero(test.measured.any(1))]
    if len(measured) or test.striker_after is None:
        gyration = inertia(scene, scene.struck_body).gyration
        return relative_error(model.predict(measured), measured.after, gyration)
    gyration = inertia(scene, scene.striker_body).gyration
    return relative_error(model.predict_striker(test), test.striker_after, gyration)
