"""How wide predicted intervals must be to hold what they say, by errors on left-out impacts.

A fit's own standard deviations rest on its priors and on normal noise. Errors on left-out impacts
show by how much they are too wide or too narrow, and how heavy the tails of the errors are. Few
errors say little, so that errors as the fit expects them count beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from clashsim.fit.prediction import Prediction

SHARE_WITHIN_STD = 0.6827  # of a normal distribution
_WIDE_SHARE = 0.9
_NORMAL_TAIL = float(norm.ppf(0.5 + _WIDE_SHARE / 2))
_MAX_TAIL = 2.9  # about that of a Student-t distribution of one and a half degrees of freedom
# Standard normal errors that count beside the observed ones. Chosen on simulated recordings and the
# laboratory, as was the next number.
_PRIOR_ERRORS = 6.0
# Constants that all impacts share were fitted to those left out too, so that errors are larger by
# this over the number of impacts.
_OPTIMISM = 0.5
_SIZES = np.geomspace(0.02, 20, 2000)  # of standardised errors, at which shares are evaluated
_ROUNDING = 1e-14  # of an outcome: smaller errors are of components that were not measured
_DEGREES_OF_FREEDOM = np.r_[np.geomspace(1.5, 60, 80), np.inf]


@dataclass(frozen=True)
class IntervalWidths:
    """Half-widths of intervals.

    Attributes:
        std: Factor of stated standard deviations with which 68 % of outcomes lie within one.
        tail: Half-width of the interval that holds 90 %, in such standard deviations.
        usual_variance: Median of the stated variances of left-out impacts, over the squared size of
            the outcome.
    """

    std: float
    tail: float
    usual_variance: float

    @staticmethod
    def of(left_out: Prediction) -> IntervalWidths:
        """From errors on left-out impacts and their stated variances.

        Args:
            left_out: Errors (N, k), zero where nothing was measured.
        """
        is_measured = np.abs(left_out.mean) > _ROUNDING
        variance = left_out.variance[is_measured]
        observed = np.abs(left_out.mean[is_measured]) / np.sqrt(np.maximum(variance, 1e-300))
        observed = observed * (1 + _OPTIMISM / max(len(left_out.mean), 1))
        narrow = _quantile(observed, SHARE_WITHIN_STD)
        wide = _quantile(observed, _WIDE_SHARE)
        tail = float(np.clip(wide / narrow, _NORMAL_TAIL, _MAX_TAIL))
        usual = float(np.median(variance)) if len(variance) else 0.0
        return IntervalWidths(narrow, tail, usual)

    def corrected(self, variance: np.ndarray) -> np.ndarray:
        """Variances that hold what they say, from stated ones; over the squared size of outcomes.

        Left-out impacts are like the fitted ones. That their variances are too wide does not show
        that those of unlike impacts are: what exceeds the usual variance is not narrowed.
        """
        if self.std >= 1:
            return self.std**2 * variance
        usual = np.minimum(variance, self.usual_variance)
        return self.std**2 * usual + (variance - usual)

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the Student-t distribution with this tail; infinite for a normal one."""
        within_std = t.ppf(0.5 + SHARE_WITHIN_STD / 2, _DEGREES_OF_FREEDOM)
        tails = t.ppf(0.5 + _WIDE_SHARE / 2, _DEGREES_OF_FREEDOM) / within_std
        return float(_DEGREES_OF_FREEDOM[np.abs(tails - self.tail).argmin()])

    def half_width(self, share: float) -> float:
        """Half-width of the central interval that holds a share, in standard deviations."""
        df = self.degrees_of_freedom
        return float(t.ppf(0.5 + share / 2, df) / t.ppf(0.5 + SHARE_WITHIN_STD / 2, df))


def _quantile(observed: np.ndarray, share: float) -> float:
    """The size below which a share of standardised errors lies, expected ones among them."""
    below = np.searchsorted(np.sort(observed), _SIZES, side="right")
    expected = _PRIOR_ERRORS * (2 * norm.cdf(_SIZES) - 1)
    shares = (below + expected) / (len(observed) + _PRIOR_ERRORS)
    return float(_SIZES[np.searchsorted(shares, share)])
