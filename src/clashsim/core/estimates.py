"""What a fit reports about one parameter: a value, an interval and how well it was identified."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EstimateStatus(StrEnum):
    """How well the data identify one parameter."""

    FITTED = "fitted"
    AT_BOUND = "at bound"
    UNIDENTIFIABLE = "unidentifiable"
    KNOWN = "known"  # measured together with the data


@dataclass(frozen=True)
class Estimate:
    """One parameter after a fit, in its natural unit.

    Attributes:
        name: Name of the parameter.
        value: Estimated value.
        low: Lower end of an interval that holds about 90 % of the posterior.
        high: Upper end of that interval.
        status: How well the data identify it.
    """

    name: str
    value: float
    low: float
    high: float
    status: EstimateStatus
