"""Where struck bodies come to rest, measured and as each method's collision and one slide model
tell it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from clashsim.data.segmentation.result import MeasuredImpact
from clashsim.evaluate.holdout import HeldOutPredictions
from clashsim.fit.slides_from_trials import slides_to_rest
from clashsim.report.rest_poses import RestDisplacements
from clashsim.slides.law import SlideModel

_FEWEST = 3


def rests(
    slide: SlideModel, judged: HeldOutPredictions, found: Sequence[MeasuredImpact]
) -> RestDisplacements | None:
    """Ways and turns from the poses at impact to rest, measured and predicted; None where too few
    slides were seen to their end.

    found: the impacts that were judged on, in the order of `judged.rows`' own numbering (those held
    out, or those fitted).
    """
    rows, start, end = slides_to_rest([found[int(i)] for i in judged.rows])
    if len(rows) < _FEWEST:
        return None
    told = {}
    for name, twist in judged.predicted.items():
        with torch.no_grad():
            told[name] = (
                slide.rest(
                    torch.as_tensor(start), torch.as_tensor(np.nan_to_num(twist[rows], nan=0.0))
                ).numpy()
                - start
            )
        told[name][~np.isfinite(twist[rows]).all(1)] = np.nan
    return RestDisplacements(rows, end - start, told)
