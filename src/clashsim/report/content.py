"""Everything that a report of a calibration shows, as one checked value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.core.params import Param
from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.freed_parameters import Candidate
from clashsim.evaluate.recorded_forces import ForceComparison
from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.evaluate.trust_map import TrustMap
from clashsim.report.comparison import Comparison
from clashsim.report.outliers import OutlierRow
from clashsim.report.tables import Estimated


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportContent:
    """Content of a report; N is the number of held-out impacts, k = 3 in a plane and 6 in space.

    Attributes:
        title: Heading of the page.
        data: Name of the recordings.
        measured: Held-out twists after impact, (N, k), m/s and rad/s.
        predicted: Twists that each method predicts, (N, k); not finite where a method predicts
            nothing.
        gyration: Radius of gyration of the struck body, m; weights angular velocity in errors.
        num_fitted: Number of impacts that were fitted.
        source: Source of the trials: "real", "lab" or "simulated".
        ours: Name of the method that is reported on.
        baseline: Name of the method to compare with. If None, the best method whose name begins
            with MuJoCo, or the best of all others if there is none.
        half_widths: Half-widths of our method's intervals, (2, N, k), which should hold each of
            `INTERVAL_SHARES` of the outcomes.
        striker_measured: Held-out twists of strikers after impact, (M, k), of the M impacts in
            which they were recorded; None where they were not.
        striker_predicted: Twists of these strikers that each method predicts, (M, k).
        striker_gyration: Radius of gyration of the striker, m.
        test_description: How impacts were held out, in words.
        labels: Name of each held-out impact, (N,); "impact" and its number if None.
        conditions: Conditions of the impacts over which errors are drawn: values (N,) by a name
            with its unit.
        params: Parameters of the scene.
        estimates: Estimate of each parameter.
        candidates: Which parameters were freed, and why.
        slide_estimates: Estimates of the slide model's values.
        slide_units: Units of the slide model's values, by name.
        restitution: Lists by the keys "speeds" (approach speeds, m/s), "nominal" and "identified"
            (restitution at these speeds with nominal and with identified parameters).
        rest_displacements: Where bodies came to rest, measured and predicted.
        forces: Impulses by force sensors, measured and predicted.
        trust_map: Predicted standard deviation over all strikes of the scene.
        outliers: Fitted impacts that are far from what the others predict.
        outlying: Which of the N impacts are among them, (N,); None where none is.
        data_efficiency: Errors of calibrations on fewer impacts.
        advice: Whether more impacts would help, in words.
        trials: A row of a table for each trial; all rows have the same keys.
        findings: Problems that the import found, in sentences.
        notes: Remarks from the detection and the fit of impacts, in sentences.
        durations: How long each step took, s.
        predictions_per_second: Impacts that the model predicts per second.
        versions: Versions of packages by name.
    """

    title: str
    data: str
    measured: np.ndarray
    predicted: Mapping[str, np.ndarray]
    gyration: float
    num_fitted: int
    source: str = "real"
    ours: str = "clashsim"
    baseline: str | None = None
    half_widths: np.ndarray | None = None
    striker_measured: np.ndarray | None = None
    striker_predicted: Mapping[str, np.ndarray] = field(default_factory=dict)
    striker_gyration: float = 1.0
    test_description: str | None = None
    labels: Sequence[str] | None = None
    conditions: Mapping[str, np.ndarray] = field(default_factory=dict)
    params: Sequence[Param] = ()
    estimates: Sequence[Estimated] = ()
    candidates: Sequence[Candidate] = ()
    slide_estimates: Sequence[Estimated] = ()
    slide_units: Mapping[str, str] = field(default_factory=dict)
    restitution: Mapping[str, Sequence[float]] | None = None
    rest_displacements: RestDisplacements | None = None
    forces: Sequence[ForceComparison] = ()
    trust_map: TrustMap | None = None
    outliers: Sequence[OutlierRow] = ()
    outlying: np.ndarray | None = None
    data_efficiency: DataEfficiency | None = None
    advice: str | None = None
    trials: Sequence[Mapping[str, str]] = ()
    findings: Sequence[str] = ()
    notes: Sequence[str] = ()
    durations: Mapping[str, float] = field(default_factory=dict)
    predictions_per_second: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def comparison(self) -> Comparison:
        """The methods compared on the held-out impacts; raises if fields do not fit together."""
        compared = Comparison.of(
            self.measured,
            self.predicted,
            gyration=self.gyration,
            ours=self.ours,
            baseline=self.baseline,
        )
        self._check(compared.measured.shape)
        return compared

    def striker_comparison(self) -> Comparison | None:
        """The methods compared on the strikers' outcomes; None where these were not recorded."""
        if self.striker_measured is None:
            return None
        return Comparison.of(
            self.striker_measured,
            self.striker_predicted,
            gyration=self.striker_gyration,
            ours=self.ours,
            baseline=None,
        )

    def impact_labels(self) -> list[str]:
        """Name of each held-out impact, (N,)."""
        if self.labels is None:
            return [f"impact {i}" for i in range(len(self.measured))]
        return [str(label) for label in self.labels]

    def _check(self, shape: tuple[int, ...]) -> None:
        """Raise where a field does not fit the held-out twists of this shape."""
        if len(self.params) != len(self.estimates):
            raise DataError(
                "a report needs one estimate for each parameter, "
                f"got {len(self.estimates)} for {len(self.params)}"
            )
        n = shape[0]
        shapes = {name: np.shape(values) for name, values in self.conditions.items()}
        shapes["labels"] = (len(self.impact_labels()),)
        if self.outlying is not None:
            shapes["outlying"] = np.shape(self.outlying)
        for name, given in shapes.items():
            if given != (n,):
                raise DataError(
                    f"a report of {n} impacts needs one value for each in {name!r}, "
                    f"got shape {given}"
                )
        of_intervals = (len(INTERVAL_SHARES), *shape)
        if self.half_widths is not None and np.shape(self.half_widths) != of_intervals:
            raise DataError(
                f"a report needs half_widths of shape {of_intervals}, "
                f"got {np.shape(self.half_widths)}"
            )
