"""The impacts of a calibration: which are fitted, which are held out, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.trials import Trial, Trials
from clashsim.data.segmentation.result import MeasuredImpact


@dataclass(frozen=True, eq=False)
class SegmentedTrials:
    """The trials behind the impacts of a run, and the impacts found in them.

    Attributes:
        trials: The recorded trials.
        fitted: The impacts that are fitted, in the order of `CalibrationData.fitted`.
        held_out: The impacts held out, in the order of `CalibrationData.held_out`.
    """

    trials: Trials
    fitted: Sequence[MeasuredImpact]
    held_out: Sequence[MeasuredImpact]

    def label(self, row: int, *, held_out: bool) -> str:
        """Name of an impact for a reader: its trial and time.

        Args:
            row: Row of the impact in `self.held_out` or `self.fitted`.
            held_out: Whether `row` is a row of `self.held_out`.
        """
        impacts = self.held_out if held_out else self.fitted
        impact = impacts[int(row)]
        return f"trial {impact.trial}, {impact.time:.3f} s"

    def table_rows(self) -> list[dict[str, str]]:
        """One row per trial: duration, frame rate, share of frames per body, and its impacts."""
        uses = self._uses_by_trial()
        rows = []
        for trial in self.trials:
            row = {
                "trial": trial.name,
                "s": f"{trial.t[-1] - trial.t[0]:.2f}",
                "frames/s": f"{1 / np.median(np.diff(trial.t)):.0f}",
            }
            for body in self.trials.bodies:
                row[f"{body} seen"] = _share_seen(trial, body)
            row["impacts"] = ", ".join(uses.get(trial.name, ["none"]))
            rows.append(row)
        return rows

    def _uses_by_trial(self) -> dict[str, list[str]]:
        """For each impact, by name of its trial: fitted or held out, its time, and its flags."""
        uses: dict[str, list[str]] = {}
        for purpose, impacts in (("fitted", self.fitted), ("held out", self.held_out)):
            for impact in impacts:
                use = f"{purpose} at {impact.time:.2f} s"
                if impact.flags:
                    use += f" ({'; '.join(impact.flags)})"
                uses.setdefault(impact.trial, []).append(use)
        return uses


def _share_seen(trial: Trial, body: str) -> str:
    """Share of the frames in which a body was seen, in percent."""
    if body not in trial.poses:
        return "-"
    seen = np.isfinite(trial.poses[body]).all(axis=1)
    return f"{100 * seen.mean():.0f} %"


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """Impacts to fit and to test on.

    Attributes:
        name: Name of the data, as the report shows it.
        source: "real", "lab" or "simulated", as in `Trial.source`.
        fitted: Impacts that the model is calibrated on.
        held_out: Impacts kept back to test the result; may be empty.
        fitted_frame: Contact frames of `fitted`, computed once for all steps.
        held_out_frame: Contact frames of `held_out`.
        segmented: The trials behind the impacts; None if only impacts were recorded.
        numbers: Numbers in the recording of the fitted impacts and of those held out; None where
            they are 0, 1, ...
        notes: Entries of metrics.json about the recording, by key.
    """

    name: str
    source: str
    fitted: Impacts
    held_out: Impacts
    fitted_frame: ContactFrame
    held_out_frame: ContactFrame
    segmented: SegmentedTrials | None = None
    numbers: tuple[np.ndarray, np.ndarray] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def names(self, *, held_out: bool) -> list[str]:
        """Name of each impact for a reader: its trial and time, or its number in the recording.

        Args:
            held_out: Whether those of the impacts held out are asked for, or of the fitted ones.
        """
        rows = range(len(self.held_out if held_out else self.fitted))
        if self.segmented is not None:
            return [self.segmented.label(row, held_out=held_out) for row in rows]
        numbers = rows if self.numbers is None else self.numbers[int(held_out)]
        return [f"impact {number}" for number in numbers]
