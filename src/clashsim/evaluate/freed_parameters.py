"""Which parameters the impacts ask for, and which they leave at their nominal values.

A calibration weighs fits in which a parameter is free against fits in which it stays where it is.
Where no such fits were compared for a parameter alone, the difference of their log evidence follows
from the fit in which it is free, as the ratio of prior and posterior density at the nominal value
(Savage and Dickey), with both taken as normal distributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from clashsim.core.estimates import EstimateStatus
from clashsim.core.params import Param
from clashsim.fit.calibrate import Calibration
from clashsim.fit.field_descent import FREE_STD

_MOSTLY = 0.5  # share of the fits' weight from which a parameter counts as free
_SUPPORTED = 1.0  # nats by which the evidence must be larger
_DETERMINED = 0.25  # of the prior's standard deviation, as for the status FITTED
# Names of candidates by the beginning of their parameters' targets; the first that fits is taken.
_CANDIDATES = (
    ("pair/strike/friction", "friction"),
    ("pair/strike/solref[0]", "stiffness"),
    ("pair/strike/solref[1]", "restitution (damping)"),
    ("pair/ground/", "contact with the ground"),
    ("effect/tangential_stiffness", "tangential spring"),
    ("effect/drag", "drag (speed lost before it is measured)"),
    ("effect/delay", "delay (of the measurement after the parting)"),
    ("effect/tip_", "tip of the tool"),
    ("effect/", "offsets of the recorded frame"),
)
_OF_BODIES = (("mass", "mass"), ("ipos", "mass centre"), ("inertia", "moments of inertia"))


class Freedom(StrEnum):
    """What the impacts say about a candidate; the values begin sentences."""

    NEEDED = "freed, since the impacts ask for other values than the nominal ones"
    CONFIRMED = "freed, and the impacts confirm the nominal values"
    UNSEEN = "free, but hardly seen in these impacts"
    LEFT = "left at the nominal values, since the impacts are explained without"
    UNPREDICTIVE = (
        "left at the nominal values in most fits, since freeing them explains the fitted impacts "
        "better, but does not predict left-out ones better"
    )
    KNOWN = "measured with each impact"


@dataclass(frozen=True)
class Candidate:
    """A group of parameters that stand for one effect.

    Attributes:
        name: Name for a reader.
        params: Names of the parameters.
        freedom: What the impacts say about it.
        log_evidence: By how much the log evidence is larger with these parameters free, in nats;
            None where no fit with them free has weight.
        free_share: Share of the fits' weight in which they are free.
    """

    name: str
    params: tuple[str, ...]
    freedom: Freedom
    log_evidence: float | None
    free_share: float


def weigh_candidates(
    calibration: Calibration, log_evidence: Mapping[str, float] | None = None
) -> tuple[Candidate, ...]:
    """Say of each group of parameters what the impacts say about it.

    Args:
        calibration: The calibration.
        log_evidence: By how much the log evidence is larger with a candidate free than without, by
            the candidate's name, where fits with and without it were compared. Others are computed.

    Returns:
        The candidates, in the order of the scene's parameters.
    """
    scene = calibration.base.scene
    groups: dict[str, list[int]] = {}
    for i, param in enumerate(scene.params):
        groups.setdefault(_candidate_of(param, scene.striker_body.name), []).append(i)
    found = []
    for name, rows in groups.items():
        evidence, share, width = _of_group(calibration, rows)
        if log_evidence is not None and name in log_evidence:
            evidence = log_evidence[name]
        known = [calibration.theta[i].status is EstimateStatus.KNOWN for i in rows]
        found.append(
            Candidate(
                name=name,
                params=tuple(scene.params[i].name for i in rows),
                freedom=Freedom.KNOWN if all(known) else _freedom(evidence, share, width),
                log_evidence=evidence,
                free_share=share,
            )
        )
    return tuple(found)


def candidate_sentences(candidates: Sequence[Candidate]) -> list[str]:
    """A sentence for each `Freedom` that there is: which candidates have it.

    Args:
        candidates: As `weigh_candidates` returns them.
    """
    sentences = []
    for freedom in Freedom:
        named = [_with_evidence(found) for found in candidates if found.freedom is freedom]
        if named:
            sentences.append(f"{freedom[0].upper()}{freedom[1:]}: {', '.join(named)}.")
    return sentences


def _with_evidence(candidate: Candidate) -> str:
    """Name of a candidate, with the difference of log evidence where it decided something."""
    if candidate.log_evidence is None or candidate.freedom is Freedom.KNOWN:
        return candidate.name
    return f"{candidate.name} ({candidate.log_evidence:+.1f})"


def _candidate_of(param: Param, striker: str) -> str:
    """Name of the candidate that a parameter belongs to.

    Args:
        param: The parameter.
        striker: Name of the striking body.
    """
    for beginning, name in _CANDIDATES:
        if param.target.startswith(beginning):
            return name
    kind, _, rest = param.target.partition("/")
    body, _, field = rest.rpartition("/")
    for beginning, name in _OF_BODIES:
        if kind == "body" and field.startswith(beginning):
            return f"{name} of the {'striker' if body == striker else 'struck body'}"
    return param.name


def _of_group(calibration: Calibration, rows: list[int]) -> tuple[float | None, float, float]:
    """Difference of log evidence, weight of the fits with free parameters, relative width.

    Args:
        calibration: The calibration.
        rows: Indices of the group's parameters.

    Returns:
        By how much the log evidence is larger with them free (None where they nowhere are), the
        share of the fits' weight in which they are, and the smallest ratio of posterior to prior
        standard deviation.
    """
    total, share, width = 0.0, 0.0, np.inf
    for weight, posterior in zip(calibration.weights, calibration.posteriors, strict=True):
        prior_std = posterior.std[rows].numpy()
        free = prior_std > FREE_STD
        if not free.any():
            continue
        prior_std = prior_std[free]
        std = posterior.constants_std[rows].numpy()[free]
        moved = posterior.theta[rows].numpy()[free]  # from the nominal values
        # log of (prior density / posterior density) at the nominal value, where moved is zero
        gain = np.log(std / prior_std) + 0.5 * (moved / std) ** 2
        total += weight * float(gain.sum())
        share += weight
        width = min(width, float((std / prior_std).min()))
    return (total / share if share else None), share, width


def _freedom(log_evidence: float | None, share: float, width: float) -> Freedom:
    """Classify a candidate from what `_of_group` returns."""
    if log_evidence is None or share < _MOSTLY:
        is_asked_for = log_evidence is not None and log_evidence > _SUPPORTED
        return Freedom.UNPREDICTIVE if is_asked_for else Freedom.LEFT
    if log_evidence > _SUPPORTED:
        return Freedom.NEEDED
    return Freedom.CONFIRMED if width <= _DETERMINED else Freedom.UNSEEN
