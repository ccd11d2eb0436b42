"""How wide predicted intervals must be to hold what they say, by leave-one-out errors.

A fit's own standard deviations rest on its priors and on normal noise. Leave-one-out errors show by
how much they are too wide or too narrow, and how heavy the tails of the errors are. Few errors say
little, so that errors as the fit expects them count beside them.
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
_DEGREES_OF_FREEDOM = np.r_[np.geomspace(1.5, 60, 80), np.inf]


@dataclass(frozen=True)
class IntervalWidths:
    """Half-widths of intervals.

    Attributes:
        std: Factor of stated standard deviations with which 68 % of outcomes lie within one.
        tail: Half-width of the interval that holds 90 %, in such standard deviations.
    """

    std: float
    tail: float

    @staticmethod
    def of(left_out: Prediction) -> IntervalWidths:
        """From leave-one-out errors and their stated variances.

        Args:
            left_out: Errors (N, k), zero where nothing was measured.
        """
        standardised = np.abs(left_out.mean) / np.sqrt(np.maximum(left_out.variance, 1e-300))
        observed = standardised[left_out.mean != 0]
        observed = observed * (1 + _OPTIMISM / max(len(left_out.mean), 1))
        narrow = _quantile(observed, SHARE_WITHIN_STD)
        wide = _quantile(observed, _WIDE_SHARE)
        return IntervalWidths(narrow, float(np.clip(wide / narrow, _NORMAL_TAIL, _MAX_TAIL)))

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
