"""What a calibration is good for, in one sentence that a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OWN = "clashsim"
_SEPARATED = 0.8  # ratio of median errors below which one model is better
_GOOD = 0.7  # share of impacts within 10 % from which a model can be relied on
# Likely causes of errors that no contact parameter explains.
_CAUSES = (
    "likely causes are poses of another frame than the body's, a wrong mass or shape, "
    "or something that changed between impacts and was not recorded"
)
_MAX_WARNINGS = 2  # that a conclusion repeats
# Where the impacts were found in trials, which may show more than can be fitted one by one.
FIT_INSTEAD = "clashsim fit takes whole trajectories instead, and any number of contacts in each"


def conclusion(metrics: Mapping[str, Any]) -> str | None:
    """Judge a calibration beside MuJoCo, on impacts that were not fitted.

    Args:
        metrics: Content of a run's metrics.json.

    Returns:
        A sentence; None where no impact was kept back to judge by.
    """
    key = "models" if "models" in metrics else "striker_models"  # of what was recorded
    models = metrics.get(key) or {}
    rivals = {name: row for name, row in models.items() if name.startswith("MuJoCo")}
    all_judged = metrics.get("held_out") or metrics.get("impacts") or 0
    num_judged = int(metrics.get(f"judged_{key}") or all_judged)
    if _OWN not in models or not rivals or num_judged == 0:
        return None
    best = max(rivals, key=lambda name: _rank(rivals[name]))
    accuracy = float(models[_OWN]["accuracy_0.1"])
    other = float(rivals[best]["accuracy_0.1"])
    within = f"{round(accuracy * num_judged)} of {num_judged} impacts that were not fitted"
    rival = f"{best.replace('MuJoCo,', 'MuJoCo with')} values ({round(other * num_judged)})"
    one_impact = 1.0 / num_judged  # a difference of one impact is chance
    if accuracy < other - one_impact:
        return f"Worse than {rival}: do not use it. Within 10 % are {within}; {_causes(metrics)}."
    if accuracy < _GOOD:
        return f"Not reliable: only {within} are predicted within 10 %; {_causes(metrics)}."
    good = f"Good: {within} are predicted within 10 %"
    if accuracy > other + one_impact:
        return f"{good}, more than by {rival}."
    return f"{good}, about as many as by {rival}{_medians(models[_OWN], rivals[best])}."


def _causes(metrics: Mapping[str, Any]) -> str:
    """A clause on likely causes of errors, and on what to do about them."""
    causes = _CAUSES
    if metrics.get("warned"):  # numbers that mean something else spoil all that follows from them
        warned = "; ".join(metrics["warned"][:_MAX_WARNINGS])
        causes = f"the likely cause is what was warned about: {warned}"
    elif "time_step" in metrics:
        causes = metrics["time_step"]["cause"]
    return f"{causes}; {FIT_INSTEAD}" if "segmented" in metrics else causes


def _rank(row: Mapping[str, Any]) -> tuple[float, float]:
    """Order of models: by accuracy, then by median error."""
    return float(row["accuracy_0.1"]), -float(row.get("median", 0.0))


def _medians(own: Mapping[str, Any], rival: Mapping[str, Any]) -> str:
    """A clause on median errors, where the number of impacts does not tell two models apart."""
    if "median" not in own or "median" not in rival:
        return ""
    error = float(own["median"])
    other = float(rival["median"])
    figures = f"{_percent(error)} % beside {_percent(other)} %"
    if error < _SEPARATED * other:
        return f", but the median error is smaller: {figures}"
    if other < _SEPARATED * error:
        return f", whose median error is smaller: {figures}"
    return ", which serve as well"


def _percent(share: float) -> str:
    """A share in per cent with two digits."""
    return f"{100 * share:.2g}" if share < 1 else f"{100 * share:.0f}"


def caution(metrics: Mapping[str, Any]) -> str | None:
    """What speaks against using a run, given its metrics.json; None where nothing does."""
    sentence = conclusion(metrics)
    return None if sentence is None or sentence.startswith("Good") else sentence


def is_reliable(metrics: Mapping[str, Any]) -> bool:
    """Whether nothing speaks against using a run, given its metrics.json."""
    return caution(metrics) is None
