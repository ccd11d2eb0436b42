"""How much alternative models of the same impacts count, by their leave-one-out errors.

A model's score is the log density of its leave-one-out errors under a Student-t distribution, whose
scale for each impact is the most probable one for all other impacts. Scores of few impacts differ
by chance, so shares depend on them smoothly.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, gammaln

_DEGREES_OF_FREEDOM = 4.0
# Scales from which the most probable one is chosen, relative to the outcome; median of their prior,
# and standard deviation of its logarithm.
_SCALES = np.geomspace(0.003, 0.6, 60)
_SCALE_MEDIAN = 0.05
_SCALE_STD = 1.0
# Differences of scores are divided by this: the larger, the more evenly models share.
_TEMPERATURE = 4.0
# By how much the score of an alternative must be higher for an equal share. Among a few impacts a
# wrong model is sometimes better by chance.
_MARGIN = 4.0


def _log_density(error: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Log densities (s, n) of errors (n, k) for each of several scales (s,)."""
    k = error.shape[1]
    nu = _DEGREES_OF_FREEDOM
    squared = np.square(error).sum(1) / np.square(scale)[:, None]
    constant = gammaln((nu + k) / 2) - gammaln(nu / 2) - 0.5 * k * np.log(nu * np.pi)
    return constant - k * np.log(scale)[:, None] - 0.5 * (nu + k) * np.log1p(squared / nu)


def _scores_of_scales(error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (s, n) of errors at all scales, and the logarithm (s,) of the scales' prior."""
    prior = -0.5 * np.square(np.log(_SCALES / _SCALE_MEDIAN) / _SCALE_STD)
    return _log_density(error, _SCALES), prior


def typical_error(error: np.ndarray) -> float:
    """The most probable scale of errors (n, k), hardly affected by outliers."""
    density, prior = _scores_of_scales(error)
    return float(_SCALES[(density.sum(1) + prior).argmax()])


def score(error: np.ndarray) -> float:
    """Sum of the log densities of errors (n, k), each with the scale of the others."""
    density, prior = _scores_of_scales(error)
    of_others = density.sum(1, keepdims=True) - density + prior[:, None]
    chosen = of_others.argmax(0)
    return float(density[chosen, np.arange(len(error))].sum())


def share(alternative: np.ndarray, reference: np.ndarray) -> float:
    """Share of an alternative model beside a reference model.

    Args:
        alternative: Leave-one-out errors (n, k) of the alternative, over the sizes of the outcomes.
        reference: Those of the reference.

    Returns:
        Between 0 and 1.
    """
    difference = score(alternative) - score(reference) - _MARGIN
    return float(expit(difference / _TEMPERATURE))
