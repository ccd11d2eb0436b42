"""Fitted impacts that are far from what the others predict, and what may have gone wrong in them.

The fit lowers the weight of impacts that stay unexplained, so they do little harm. A person should
know of them all the same: many are mistakes of the recording, others are sensitive impacts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.impacts import Impacts, MotionBefore, after_columns
from clashsim.evaluate.metrics import twist_weights
from clashsim.fit.calibrate import Calibration
from clashsim.fit.notes import OutlierNote
from clashsim.fit.predictive_variance import pose_variance

# Standardised leave-one-out error from which an impact is an outlier: in standard deviations, and
# in medians over all impacts, because the noise of some recordings is larger than any candidate's.
_MIN_DEVIATION = 3.5
_MIN_MEDIANS = 4.0
# Shares of an error or of a change of twist by which causes are recognised.
_EXPLAINED = 0.3  # of the error that is left once a sign is reversed
_AT_REST = 0.2  # of the predicted change of twist, below which the body counts as not moved
_MAX_NAMED = 3  # outliers in a sentence
_ONE_COMPONENT = 0.9  # of the squared error, that one component has in a spike
# Multiple of the median of stated standard deviations, from which an outcome counts as sensitive.
_SENSITIVE = 3.0
_ROUNDING = 1e-14  # of an outcome: smaller errors are of components that were not measured
# Causes that say nothing against the recording.
_OF_STRIKER = "the striker's outcome is off"
_BY_SENSITIVITY = "a sensitive impact, whose outcome small differences change much"


@dataclass(frozen=True, eq=False)
class Outlier:
    """A fitted impact that is far from what the others predict.

    Attributes:
        row: Its row among the fitted impacts.
        deviation: Standardised leave-one-out error, in standard deviations.
        weight: Its weight in the fit, over the median weight.
        measured: Twist after impact (k,), m/s and rad/s; NaN where nothing was measured.
        predicted: Twist (k,) that the others predict.
        cause: What probably went wrong; None where nothing is recognised.
    """

    row: int
    deviation: float
    weight: float
    measured: np.ndarray
    predicted: np.ndarray
    cause: str | None


def find_outliers(
    calibration: Calibration, fitted: Impacts, frame: ContactFrame
) -> tuple[Outlier, ...]:
    """List the fitted impacts that are far from what the others predict.

    Args:
        calibration: The calibration.
        fitted: The N impacts that it was fitted to.
        frame: Their contact frames.

    Returns:
        The outliers, the farthest first.
    """
    miss = np.zeros(fitted.after.shape)
    deviation = np.zeros(len(fitted))
    weight = np.zeros(len(fitted))
    for share, posterior in zip(calibration.weights, calibration.posteriors, strict=True):
        errors = posterior.leave_one_out
        miss += share * errors.miss.numpy()
        deviation += share * errors.deviation.numpy()
        weight += share * errors.weight.numpy()
    own_deviation, sensitivity = _struck_errors(calibration)
    rows = np.flatnonzero(deviation > max(_MIN_DEVIATION, _MIN_MEDIANS * np.median(deviation)))
    error = np.einsum("nij,nj->ni", np.linalg.inv(frame.axes), miss * frame.speed[:, None])
    predicted = fitted.after - error
    before = MotionBefore.of(fitted.before).struck.twist
    scene = calibration.base.scene
    gyration = inertia(scene, scene.struck_body).gyration
    found = []
    for row in rows[np.argsort(-deviation[rows])]:
        twists = _Twists(before[row], fitted.after[row], predicted[row], gyration)
        cause = twists.likely_cause(after_columns(fitted.planar))
        if own_deviation[row] < _MIN_DEVIATION and fitted.striker_measured[row].any():
            cause = _OF_STRIKER  # deviations count both bodies
        elif sensitivity[row] > _SENSITIVE:
            cause = _BY_SENSITIVITY
        found.append(
            Outlier(
                row=int(row),
                deviation=float(deviation[row]),
                weight=float(weight[row] / np.median(weight)),
                measured=fitted.after[row],
                predicted=predicted[row],
                cause=cause,
            )
        )
    return tuple(found)


def _struck_errors(calibration: Calibration) -> tuple[np.ndarray, np.ndarray]:
    """How far the struck body's own outcomes are from what the others predict.

    Args:
        calibration: The calibration.

    Returns:
        Standardised leave-one-out errors of that body alone (N,), and stated standard deviations of
        its outcomes, poses that are a little off included, over their median (N,).
    """
    scene = calibration.base.scene
    best = calibration.posteriors[int(np.argmax(calibration.weights))]
    errors = best.leave_one_out
    error, variance = errors.error.numpy(), errors.variance.numpy()
    is_measured = np.abs(error) > _ROUNDING
    squared = np.where(is_measured, error**2 / np.maximum(variance, 1e-300), 0.0).sum(1)
    deviation = np.sqrt(squared / np.maximum(is_measured.sum(1), 1))
    of_poses = pose_variance(scene, best.struck_jacobian).numpy()
    stated = np.sqrt(np.where(is_measured, variance + of_poses, 0.0).sum(1))
    return deviation, stated / max(float(np.median(stated)), 1e-300)


@dataclass(frozen=True, eq=False)
class _Twists:
    """Twists (k,) of one impact: before, measured after and predicted after; gyration in m."""

    before: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    gyration: float

    def likely_cause(self, columns: Sequence[str]) -> str | None:
        """What probably went wrong, in words; None where nothing is recognised.

        Args:
            columns: Names of the k components.
        """
        names = [column.removesuffix("_after") for column in columns]
        change = self._size(self.measured - self.before)
        if change < _AT_REST * self._size(self.predicted - self.before):
            return "the struck body hardly moved: was it hit?"
        error = self._size(self.measured - self.predicted)
        flips = self._sign_errors(len(names))
        best = min(flips, key=lambda components: flips[components])
        if flips[best] < _EXPLAINED * error:
            return f"the sign of {', '.join(names[i] for i in best)} may be wrong"
        squared = self._scaled(self.measured - self.predicted) ** 2
        largest = int(np.argmax(squared))
        num_measured = int((~np.isnan(self.measured)).sum())
        if num_measured > 1 and squared[largest] > _ONE_COMPONENT * squared.sum():
            larger = abs(self.measured[largest]) > abs(self.predicted[largest])
            return f"only {names[largest]} is off" + (", as by a velocity spike" if larger else "")
        return None

    def _sign_errors(self, k: int) -> dict[tuple[int, ...], float]:
        """Size of the error once the signs of some components are reversed, by their indices."""
        num_linear = 2 if k == 3 else 3
        linear = tuple(range(num_linear))
        angular = tuple(range(num_linear, k))
        sizes = {}
        for components in (*((i,) for i in range(k)), linear, angular, linear + angular):
            reversed_signs = self.measured.copy()
            reversed_signs[list(components)] *= -1
            sizes[components] = self._size(reversed_signs - self.predicted)
        return sizes

    def _scaled(self, twist: np.ndarray) -> np.ndarray:
        """A twist (v, w) as (v, gyration * w), m/s; zero where nothing was measured."""
        return np.nan_to_num(twist) * twist_weights(len(twist), self.gyration)

    def _size(self, twist: np.ndarray) -> float:
        return float(np.linalg.norm(self._scaled(twist)))


def outlier_notes(found: Sequence[Outlier], names: Sequence[str]) -> list[OutlierNote]:
    """Entries of metrics.json about outliers.

    Args:
        found: The outliers.
        names: Name of each fitted impact for a reader, (N,).
    """
    return [
        OutlierNote(
            impact=names[outlier.row],
            deviation=round(outlier.deviation, 2),
            weight=round(outlier.weight, 4),
            cause=outlier.cause,
        )
        for outlier in found
    ]


def outlier_sentence(num_fitted: int, outliers: Sequence[OutlierNote]) -> str:
    """How many impacts are outliers, which, and how far they are off.

    Args:
        num_fitted: Number of fitted impacts.
        outliers: Entries of metrics.json; at least one.
    """
    described = []
    for outlier in outliers[:_MAX_NAMED]:
        cause = "" if outlier["cause"] is None else f", {outlier['cause']}"
        described.append(f"{outlier['impact']} ({outlier['deviation']:.0f} std{cause})")
    more = len(outliers) - _MAX_NAMED
    if more > 0:
        described.append(f"and {more} more")
    is_doubtful = any(
        outlier["cause"] not in (None, _OF_STRIKER, _BY_SENSITIVITY) for outlier in outliers
    )
    advice = (
        "Check the recording."
        if is_doubtful
        else "The recording may be right: nothing is recognised in it that went wrong."
    )
    are = "is an outlier" if len(outliers) == 1 else "are outliers"
    return (
        f"{len(outliers)} of {num_fitted} fitted impacts {are}, far from what the others predict: "
        f"{'; '.join(described)}. {advice}"
    )
