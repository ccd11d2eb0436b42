"""How good a calibration would be with fewer impacts: the same fit on draws of the impacts, judged
on impacts that none of them saw.
"""

from __future__ import annotations

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.impacts import Impacts
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.report.data_efficiency import DataEfficiency

_SIZES = (3, 5, 10, 20, 40)  # larger fits take seconds, and the curve is flat by then
_DRAWS = 2  # each costs a calibration
_LEFT = 4  # impacts at least to judge by


def fewer(
    calibration: Calibration, fitted: Impacts, held_out: Impacts, seed: int
) -> DataEfficiency | None:
    """Relative errors of calibrations on 3, 5, 10, ... of the fitted impacts, two draws each; None
    where the impacts are too few.

    Judged on the impacts held out, or on those fitted ones that a draw left, where none was held
    out.
    """
    most = len(fitted) if len(held_out) else len(fitted) - _LEFT + 1
    sizes = [n for n in _SIZES if n < most]
    if not sizes:
        return None
    scene, rng = calibration.base.scene, np.random.default_rng(seed)
    gyration = inertia(scene, scene.struck_body).gyration
    errors = []
    for n in sizes:
        draws = []
        for _ in range(_DRAWS):
            order = rng.permutation(len(fitted))
            test = held_out if len(held_out) else fitted[np.sort(order[n:])]
            draws.append(
                relative_error(
                    calibrate(calibration.base, fitted[np.sort(order[:n])], seed=seed).predict(
                        test
                    ),
                    test.after,
                    gyration,
                )
            )
        errors.append(tuple(draws))
    return DataEfficiency(tuple(sizes), tuple(errors))
