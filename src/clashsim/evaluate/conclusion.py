"""What a calibration is good for, in one sentence that a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OWN = "clashsim"
_GOOD = 0.7  # share of impacts within 10 % from which a model can be relied on
# Likely causes of errors that no contact parameter explains.
_CAUSES = (
    "likely causes are poses of another frame than the body's, a wrong mass or shape, "
    "or something that changed between impacts and was not recorded"
)


def conclusion(metrics: Mapping[str, Any]) -> str | None:
    """Judge a calibration beside MuJoCo, on impacts that were not fitted.

    Args:
        metrics: Content of a run's metrics.json.

    Returns:
        A sentence; None where no impact was kept back to judge by.
    """
    models = metrics.get("models") or {}
    rivals = {name: row for name, row in models.items() if name.startswith("MuJoCo")}
    num_judged = int(metrics.get("held_out") or metrics.get("impacts") or 0)
    if _OWN not in models or not rivals or num_judged == 0:
        return None
    best = max(rivals, key=lambda name: float(rivals[name]["accuracy_0.1"]))
    accuracy = float(models[_OWN]["accuracy_0.1"])
    other = float(rivals[best]["accuracy_0.1"])
    within = f"{round(accuracy * num_judged)} of {num_judged} impacts that were not fitted"
    rival = f"{best.replace('MuJoCo,', 'MuJoCo with')} values ({round(other * num_judged)})"
    one_impact = 1.0 / num_judged  # a difference of one impact is chance
    if accuracy < other - one_impact:
        return f"Worse than {rival}: do not use it. Within 10 % are {within}; {_CAUSES}."
    if accuracy < _GOOD:
        return f"Not reliable: only {within} are predicted within 10 %; {_CAUSES}."
    if accuracy <= other + one_impact:
        return f"Good: {within} are predicted within 10 %, about as many as by {rival}."
    return f"Good: {within} are predicted within 10 %, more than by {rival}."


def is_reliable(metrics: Mapping[str, Any]) -> bool:
    """Whether nothing speaks against using a run, given its metrics.json."""
    sentence = conclusion(metrics)
    return sentence is None or sentence.startswith("Good")
