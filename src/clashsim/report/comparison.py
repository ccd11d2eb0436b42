"""What a report concludes from predictions beside measurements, in figures and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, norm

from clashsim.core.errors import DataError, did_you_mean
from clashsim.evaluate.metrics import accuracy, relative_error

_ALPHA = 0.1
_ALL = 0.98
_GLIMPSE = 0.1  # s of free travel over which errors of velocity are told as lengths and angles
EXPECTED = np.array(
    [norm.cdf(s) - norm.cdf(-s) for s in (1, 2)]
)  # shares of a Gaussian within 1 and 2 standard deviations


@dataclass(frozen=True, eq=False)
class Comparison:
    """Held-out twists (N, k), what each method predicted, ours first and the rival second, and its
    relative errors (N,).
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
        """Check shapes and names, order the methods, and choose the best of the others as the rival
        if none is named.
        """
        measured = np.asarray(measured, float)
        if measured.ndim != 2 or measured.shape[1] not in (3, 6) or not np.isfinite(measured).all():
            raise DataError(
                f"a report needs finite measured twists (N, 3) or (N, 6), got shape {measured.shape}"
            )
        for name in (ours, baseline):
            if name is not None and name not in predicted:
                raise DataError(
                    f"there is no method {name!r} among the predictions; {did_you_mean(name, predicted)}"
                )
        twists = {name: np.asarray(twist, float) for name, twist in predicted.items()}
        for name, twist in twists.items():
            if twist.shape != measured.shape:
                raise DataError(
                    f"method {name!r} needs predictions of shape {measured.shape}, got {twist.shape}"
                )
        errors = {name: relative_error(twist, measured, gyration) for name, twist in twists.items()}
        others = [name for name in predicted if name != ours]
        if baseline is None and others and len(measured):
            baseline = max(
                others,
                key=lambda name: (accuracy(errors[name], _ALPHA), -float(np.median(errors[name]))),
            )
        order = sorted(
            predicted, key=lambda name: (name != ours, name != baseline)
        )  # stable: the others stay as they were given
        return Comparison(
            measured,
            {name: twists[name] for name in order},
            {name: errors[name] for name in order},
            ours,
            baseline,
        )

    def headline(self) -> str:
        """Accuracy(0.1) of ours and of the rival; accuracy(0.05) where both have all but a few
        within 0.1, which would tell them apart no more.
        """
        n = len(self.measured)
        if n == 0:
            return "No impacts were held out, so how well it predicts is not known."
        close = (
            self.baseline is not None
            and min(self._hits(name, _ALPHA) for name in (self.ours, self.baseline)) >= _ALL * n
        )
        alpha = _ALPHA / 2 if close else _ALPHA
        said = f"{self.ours} predicts {self._hits(self.ours, alpha)} of {n} held-out impacts to within {100 * alpha:g} %"
        return (
            f"{said}; {self.baseline}: {self._hits(self.baseline, alpha)}."
            if self.baseline is not None
            else f"{said}."
        )

    def meaning(self) -> str:
        """The median error in units one can picture, and whether ours is closer than the rival more
        often than chance would have it.
        """
        n = len(self.measured)
        if n == 0:
            return ""
        median = float(np.median(self.errors[self.ours]))
        if not np.isfinite(median):
            return f"{self.ours} gives no outcome for most of them."
        speed, spin = self._median_parts()
        said = (
            f"Its median error is {100 * median:.1f} % of the motion after impact: {_two(speed)} m/s and {_two(spin)}°/s, "
            f"or {_two(1000 * _GLIMPSE * speed)} mm and {_two(_GLIMPSE * spin)}° over the first {_GLIMPSE:g} s of travel."
        )
        if self.baseline is None:
            return said
        mine, theirs = self.errors[self.ours], self.errors[self.baseline]
        wins, losses = int(np.sum(mine < theirs)), int(np.sum(mine > theirs))
        chance = wins + losses == 0 or binomtest(wins, wins + losses).pvalue > 0.05
        doubt = (
            ", which chance alone could give"
            if chance
            else ", so it does worse here"
            if wins < losses
            else ""
        )
        return f"{said} It is the closer of the two in {wins} of {n}{doubt}."

    def missing(self) -> str:
        """Which methods gave no outcome for how many impacts."""
        lost = {name: int(np.sum(~np.isfinite(p).all(1))) for name, p in self.predicted.items()}
        return " ".join(
            f"{name} gave no outcome for {count}, which count as wrong."
            for name, count in lost.items()
            if count
        )

    def interval(self, share: float) -> tuple[float, float]:
        """Wilson's 90 % interval of a share of the impacts."""
        n, z = len(self.measured), float(norm.ppf(0.95))
        middle, half = (
            share + z * z / (2 * n),
            z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)),
        )
        return max(0.0, float((middle - half) / (1 + z * z / n))), min(
            1.0, float((middle + half) / (1 + z * z / n))
        )

    def within(self, spread: np.ndarray) -> np.ndarray:
        """Share (2, k) of outcomes within 1 and 2 standard deviations, as ours states them (N, k)."""
        z = np.abs(self.predicted[self.ours] - self.measured) / np.maximum(spread, 1e-300)
        return np.array([(z <= s).mean(0) for s in (1, 2)])

    def _hits(self, name: str, alpha: float) -> int:
        return int(np.sum(self.errors[name] < alpha))

    def _median_parts(self) -> tuple[float, float]:
        """Median error of velocity (m/s) and of spin (degrees/s); an outcome that ours did not give
        is infinitely wrong.
        """
        gap = np.nan_to_num(np.abs(self.predicted[self.ours] - self.measured), nan=np.inf)
        linear = 2 if self.measured.shape[1] == 3 else 3
        return float(np.median(np.linalg.norm(gap[:, :linear], axis=1))), float(
            np.degrees(np.median(np.linalg.norm(gap[:, linear:], axis=1)))
        )


def coverage_sentence(shares: np.ndarray, n: int) -> str:
    """A sentence on the shares within 1 and 2 standard deviations (2,) of n impacts: too sure, too
    cautious, or in line with chance.
    """
    off = (shares - EXPECTED) / np.sqrt(EXPECTED * (1 - EXPECTED) / n)
    if off.min() < -2:
        return "It is surer than it should be: errors are larger than stated."
    return (
        "It is more cautious than it need be: errors are smaller than stated."
        if off.max() > 2
        else "The errors are about as large as stated."
    )


def _two(value: float) -> str:
    """Two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):.10g}" if np.isfinite(value) else "infinite"
