"""Predicted probabilities against observed shares, in quarters and as a reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.bench.rows import Row, measured
from clashsim.report.figure_files import write_figure

QUARTERS = 4
_HONEST = 0.1  # largest difference of predicted and observed share that counts as honest
_PANEL_SIZE = (4.0, 4.0)  # inches


def quarters(
    probability: Sequence[float], reached: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Mean prediction and observed share in each quarter of the predictions, the lowest first.

    Args:
        probability: Predicted probabilities (N,) of N plans.
        reached: Shares (N,) of their executions that did what was predicted.

    Returns:
        Four predicted and four observed shares.
    """
    predicted = np.asarray(probability, float)
    observed = np.asarray(reached, float)
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, QUARTERS) if len(part)]
    return (
        [float(predicted[part].mean()) for part in parts],
        [float(observed[part].mean()) for part in parts],
    )


def pooled(rows: Sequence[Row]) -> dict[str, tuple[list[float], list[float]]]:
    """Probabilities and shares of all plans of each method that states probabilities.

    Args:
        rows: Rows with the lists `probabilities` and `reached`, one entry for each plan.
    """
    of_method: dict[str, tuple[list[float], list[float]]] = {}
    for row in measured(rows):
        if "probabilities" in row:
            probability, reached = of_method.setdefault(row["method"], ([], []))
            probability += row["probabilities"]
            reached += row["reached"]
    return of_method


def summary(rows: Sequence[Row]) -> list[str]:
    """Sentences: for each method, predicted and observed shares in quarters of its plans."""
    sentences = []
    for method, (probability, reached) in pooled(rows).items():
        predicted, observed = quarters(probability, reached)
        pairs = [f"{p:.2f} / {o:.2f}" for p, o in zip(predicted, observed, strict=True)]
        sentences.append(
            f"{method}, {len(probability)} plans, predicted / observed share within the tolerance "
            f"in quarters of the predictions: {', '.join(pairs)}"
        )
    return sentences


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw a reliability diagram: one panel for each method, all shapes together.

    Args:
        rows: Rows that `clashsim.bench.planning.run` returned.
        path: Where the picture is written; its suffix gives the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    of_method = pooled(rows)
    columns = max(1, len(of_method))
    size = (_PANEL_SIZE[0] * columns, _PANEL_SIZE[1])
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    panels = figure.subplots(1, columns, squeeze=False).ravel()
    for axes, (method, (probability, reached)) in zip(panels, of_method.items(), strict=False):
        _draw_panel(axes, method, np.array(probability), np.array(reached))
    write_figure(path, figure, dpi=150)


def _draw_panel(axes: Any, method: str, probability: np.ndarray, reached: np.ndarray) -> None:
    """Draw the plans of one method as dots, and their quarters."""
    diagonal = np.array([0.0, 1.0])
    axes.fill_between(
        diagonal, diagonal - _HONEST, diagonal + _HONEST, color="0.9", label="within 0.1"
    )
    axes.plot(diagonal, diagonal, color="0.6", linewidth=1)
    axes.plot(probability, reached, "o", color="C0", alpha=0.2, markersize=4, label="a plan")
    predicted, observed = quarters(probability.tolist(), reached.tolist())
    axes.plot(predicted, observed, "o-", color="black", markersize=7, label="quarter of the plans")
    axes.set(
        title=f"{method}, {len(probability)} plans",
        xlabel="predicted probability",
        ylabel="observed share within the tolerance",
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
    )
    axes.legend(loc="center right", frameon=False, fontsize="small")
