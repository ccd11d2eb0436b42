"""Predicted outcomes with their uncertainty, and averages of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Prediction:
    """Means and variances (N, k) of the components of N outcomes, independent of each other."""

    mean: np.ndarray
    variance: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """Norm (N, 1) of the mean."""
        return np.linalg.norm(self.mean, axis=1, keepdims=True)

    def shortened(self, limit: float) -> Prediction:
        """The same with means of at most this norm, which stay as many standard deviations."""
        factor = limit / np.maximum(self.size, limit)
        return Prediction(factor * self.mean, factor**2 * self.variance)

    def mixed_with(self, other: Prediction, share: np.ndarray | float) -> Prediction:
        """The average with another prediction, of a share (N, 1); a difference is uncertainty."""
        mean = (1 - share) * self.mean + share * other.mean
        variance = (1 - share) * self.variance + share * other.variance
        between = share * (1 - share) * np.square(self.mean - other.mean)
        return Prediction(mean, variance + between)


def average(predictions: list[Prediction], weights: tuple[float, ...]) -> Prediction:
    """The average of several predictions; their disagreement is uncertainty."""
    shares = np.array(weights)[:, None, None]
    means = np.stack([prediction.mean for prediction in predictions])
    variances = np.stack([prediction.variance for prediction in predictions])
    mean = (shares * means).sum(0)
    return Prediction(mean, (shares * (variances + np.square(means - mean))).sum(0))
