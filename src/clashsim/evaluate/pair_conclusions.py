"""What calibrations of several pairs are good for: a sentence for each pair, and one for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clashsim.evaluate.conclusion import conclusion, is_reliable


def pair_conclusion(metrics: Mapping[str, Any]) -> str:
    """Judge the calibration of one pair, or say why it is not judged.

    Args:
        metrics: Content of the metrics.json of the pair's run.
    """
    sentence = conclusion(metrics)
    if sentence is not None:
        return sentence
    num_impacts = int(metrics.get("impacts", 0))
    return f"Not judged: {num_impacts} impacts are too few to keep some back to judge by."


def brief_conclusion(metrics: Mapping[str, Any]) -> str:
    """`pair_conclusion` in a few words, for a table.

    Args:
        metrics: Content of the metrics.json of the pair's run.
    """
    sentence = pair_conclusion(metrics)
    # What is before the colon, or before the brackets with figures: "Good", "Not reliable", ...
    brief = sentence.split(":")[0].split(" (")[0]
    brief = brief[0].lower() + brief[1:]
    outliers = len(metrics.get("outliers", ()))
    if outliers:
        brief += f", {outliers} {'outlier' if outliers == 1 else 'outliers'}"
    return brief


def overall_conclusion(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Judge the calibration of several pairs.

    Args:
        metrics: Content of metrics.json of each pair's run, by the pair's name.
    """
    judged = {name: of_pair for name, of_pair in metrics.items() if conclusion(of_pair) is not None}
    good = [name for name, of_pair in judged.items() if is_reliable(of_pair)]
    bad = [name for name in judged if name not in good]
    unknown = [name for name in metrics if name not in judged]
    if len(good) == len(metrics) == 1:
        return f"Good: the only pair, {good[0]}, can be used."
    if len(good) == len(metrics):
        return f"Good: all {len(metrics)} pairs can be used ({', '.join(good)})."
    parts = [f"{len(good)} of {len(metrics)} pairs can be used"]
    if good:
        parts[0] += f" ({', '.join(good)})"
    if bad:
        parts.append(f"do not rely on {', '.join(bad)}")
    if unknown:
        parts.append(f"too few impacts to judge {', '.join(unknown)}")
    return f"{'; '.join(parts)}."


def are_reliable(metrics: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every pair of a run was judged to be good, as in `overall_conclusion`."""
    return all(
        conclusion(of_pair) is not None and is_reliable(of_pair) for of_pair in metrics.values()
    )
