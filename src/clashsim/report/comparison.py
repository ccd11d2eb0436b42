"""Comparison of predictions with measurements for the report, in figures and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, norm

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.evaluate.metrics import accuracy, coverage, relative_error

_ALPHA = 0.1  # relative error within which the headline counts predictions
_FINE_ALPHA = 0.05
# If both methods predict at least this share of the impacts to within _ALPHA, the headline uses
# _FINE_ALPHA instead, at which the methods may still differ.
_NEARLY_ALL = 0.98
_TRAVEL_TIME = 0.1  # s of free travel over which errors of velocity are given as lengths and angles
_SIGNIFICANCE = 0.05  # of the sign test between two methods
_INTERVAL_QUANTILE = 0.95  # upper end of a 90 % interval
_MAX_STANDARD_ERRORS = 2  # deviation of a coverage from its expected value that may be chance
_ENGINE = "MuJoCo"  # names of baselines that are the engine itself begin with this
EXPECTED_COVERAGE = np.array(INTERVAL_SHARES)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Predictions of N held-out impacts by several methods.

    Attributes:
        measured: Twists after impact, (N, k), m/s and rad/s; NaN where nothing was measured.
        predicted: Twists that each method predicts, (N, k); the reported method first, the baseline
            second.
        errors: Relative errors of each method, (N,), in the same order.
        ours: Name of the method that is reported on.
        baseline: Name of the method that it is compared with, if any.
    """

    measured: np.ndarray
    predicted: Mapping[str, np.ndarray]
    errors: Mapping[str, np.ndarray]
    ours: str
    baseline: str | None

    @staticmethod
    def of(
        measured: np.ndarray,
        predicted: Mapping[str, np.ndarray],
        *,
        gyration: float,
        ours: str,
        baseline: str | None,
    ) -> Comparison:
        """Check shapes and names, compute errors and order the methods.

        Args:
            measured: Twists after impact, (N, 3) or (N, 6), m/s and rad/s; NaN where nothing was
                measured.
            predicted: Twists that each method predicts, shaped as `measured`; not finite where a
                method predicts nothing.
            gyration: Radius of gyration of the struck body, m; weights angular velocity in errors.
            ours: Name of the method that is reported on.
            baseline: Name of the method to compare with. If None, the best method whose name begins
                with MuJoCo, or the best of all others if there is none.
        """
        measured = np.asarray(measured, float)
        if measured.ndim != 2 or measured.shape[1] not in (3, 6) or np.isinf(measured).any():
            raise DataError(
                "a report needs finite measured twists (N, 3) or (N, 6), "
                f"got shape {measured.shape}"
            )
        for name in (ours, baseline):
            if name is not None and name not in predicted:
                raise DataError(
                    f"there is no method {name!r} among the predictions; "
                    f"{did_you_mean(name, predicted)}"
                )
        twists = {name: np.asarray(twist, float) for name, twist in predicted.items()}
        for name, twist in twists.items():
            if twist.shape != measured.shape:
                raise DataError(
                    f"method {name!r} needs predictions of shape {measured.shape}, "
                    f"got {twist.shape}"
                )
        errors = {name: relative_error(twist, measured, gyration) for name, twist in twists.items()}
        if baseline is None and len(measured):
            others = {name: error for name, error in errors.items() if name != ours}
            mujoco = {name: error for name, error in others.items() if name.startswith(_ENGINE)}
            baseline = _best_method(mujoco or others)
        # The sort is stable, so the other methods stay in the order in which they were given.
        order = sorted(predicted, key=lambda name: (name != ours, name != baseline))
        return Comparison(
            measured,
            {name: twists[name] for name in order},
            {name: errors[name] for name in order},
            ours,
            baseline,
        )

    def headline(self) -> str:
        """How many impacts the reported method and the baseline predict, in one sentence."""
        n = len(self.measured)
        if n == 0:
            return "No impacts were held out, so the accuracy is not known."
        alpha = self._headline_alpha()
        text = (
            f"{self.ours} predicts {self._count_within(self.ours, alpha)} of {n} held-out impacts "
            f"to within {100 * alpha:g} %"
        )
        if self.baseline is None:
            return f"{text}."
        return f"{text}; {self.baseline}: {self._count_within(self.baseline, alpha)}."

    def _headline_alpha(self) -> float:
        if self.baseline is None:
            return _ALPHA
        counts = [self._count_within(name, _ALPHA) for name in (self.ours, self.baseline)]
        return _FINE_ALPHA if min(counts) >= _NEARLY_ALL * len(self.measured) else _ALPHA

    def meaning(self) -> str:
        """The median error in everyday units, and whether ours is significantly closer."""
        n = len(self.measured)
        if n == 0:
            return ""
        median = float(np.median(self.errors[self.ours]))
        if not np.isfinite(median):
            return f"{self.ours} predicts no outcome for most of them."
        velocities, lengths = [], []
        speed, angular_speed = self._median_velocity_errors()
        if speed is not None:
            velocities.append(f"{_two_digits(speed)} m/s")
            lengths.append(f"{_two_digits(1000 * _TRAVEL_TIME * speed)} mm")
        if angular_speed is not None:
            velocities.append(f"{_two_digits(angular_speed)}°/s")
            lengths.append(f"{_two_digits(_TRAVEL_TIME * angular_speed)}°")
        text = (
            f"Its median error is {100 * median:.1f} % of the motion after impact: "
            f"{' and '.join(velocities)}, "
            f"or {' and '.join(lengths)} over the first {_TRAVEL_TIME:g} s of travel."
        )
        if self.baseline is None:
            return text
        return f"{text} {self._sign_test(self.baseline)}"

    def _sign_test(self, baseline: str) -> str:
        """A sentence on how often ours is closer than the baseline, and whether that is chance."""
        ours = self.errors[self.ours]
        theirs = self.errors[baseline]
        wins = int(np.sum(ours < theirs))
        losses = int(np.sum(ours > theirs))
        text = f"It is the closer of the two in {wins} of {len(ours)}"
        decided = wins + losses
        if decided == 0 or binomtest(wins, decided).pvalue > _SIGNIFICANCE:
            return f"{text}, which is not significant."
        if wins < losses:
            return f"{text}, so it is worse here."
        return f"{text}."

    def missing(self) -> str:
        """Sentences on methods that predicted nothing for some impacts."""
        sentences = []
        for name, twist in self.predicted.items():
            count = int(np.sum(~np.isfinite(twist).all(1)))
            if count:
                sentences.append(f"{name} predicted no outcome for {count}, which count as wrong.")
        return " ".join(sentences)

    def interval(self, share: float) -> tuple[float, float]:
        """Wilson's 90 % interval of a share of the impacts."""
        n = len(self.measured)
        z = float(norm.ppf(_INTERVAL_QUANTILE))
        centre = share + z * z / (2 * n)
        half_width = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        low = float((centre - half_width) / scale)
        high = float((centre + half_width) / scale)
        return max(0.0, low), min(1.0, high)

    def coverage(self, half_widths: np.ndarray) -> np.ndarray:
        """Share of measured outcomes within each interval of our predictions.

        Args:
            half_widths: Half-widths of the intervals of each predicted output, (2, N, k).

        Returns:
            Shares, (2, o), of each of `measured_outputs`.
        """
        columns = self.measured_outputs
        measured = self.measured[:, columns]
        error = self.predicted[self.ours][:, columns] - measured
        shares = [
            coverage(error[:, [i]], half_widths[:, :, [column]]) for i, column in enumerate(columns)
        ]
        return np.stack(shares, axis=1)

    @property
    def measured_outputs(self) -> list[int]:
        """Indices of the components of the twist that were measured in any impact."""
        if len(self.measured) == 0:
            return list(range(self.measured.shape[1]))
        return [int(i) for i in np.flatnonzero((~np.isnan(self.measured)).any(0))]

    def _count_within(self, name: str, alpha: float) -> int:
        return int(np.sum(self.errors[name] < alpha))

    def _median_velocity_errors(self) -> tuple[float | None, float | None]:
        """Median error of linear (m/s) and angular velocity (degrees/s) of our predictions.

        None for a velocity of which nothing was measured.
        """
        error = np.abs(self.predicted[self.ours] - self.measured)
        error = np.nan_to_num(error, nan=np.inf)  # no outcome is infinitely wrong
        measured = ~np.isnan(self.measured)
        error = np.where(measured, error, 0.0)
        num_linear = 2 if self.measured.shape[1] == 3 else 3
        medians = []
        for columns in (slice(0, num_linear), slice(num_linear, None)):
            rows = measured[:, columns].any(1)
            size = np.linalg.norm(error[rows, columns], axis=1)
            medians.append(float(np.median(size)) if len(size) else None)
        linear, angular = medians
        return linear, None if angular is None else float(np.degrees(angular))


def coverage_sentence(shares: np.ndarray, n: int) -> str:
    """Whether intervals are too narrow, too wide, or right as far as chance allows.

    Args:
        shares: Shares of the outcomes within each interval, (2,).
        n: Number of impacts.
    """
    standard_error = np.sqrt(EXPECTED_COVERAGE * (1 - EXPECTED_COVERAGE) / n)
    deviation = (shares - EXPECTED_COVERAGE) / standard_error
    if deviation.min() < -_MAX_STANDARD_ERRORS:
        return "The model is overconfident: errors are larger than predicted."
    if deviation.max() > _MAX_STANDARD_ERRORS:
        return "The model is too cautious: errors are smaller than predicted."
    return "The errors are about as large as predicted."


def _best_method(errors: Mapping[str, np.ndarray]) -> str | None:
    """The method with the highest accuracy(0.1); of equal ones, that of lowest median error."""
    if not errors:
        return None
    return max(
        errors, key=lambda name: (accuracy(errors[name], _ALPHA), -float(np.median(errors[name])))
    )


def _two_digits(value: float) -> str:
    """Two significant digits, without an exponent."""
    if not np.isfinite(value):
        return "infinite"
    return f"{float(f'{value:.2g}'):.10g}"
