"""Pictures of predictions beside measurements."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.core.files import write_atomic
from clashsim.core.impacts import after_columns

_UNITS = {"v": "m/s", "w": "rad/s"}
_COLOURS = ("#b0b0b0", "#d1495b", "#00798c", "#edae49")


def predicted_against_measured(path: Path, measured: np.ndarray, predicted: Mapping[str, np.ndarray], *, title: str) -> None:
    """Write a picture with one panel per entry of the twist after impact (N, k): predictions of each model over the measured value."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [c.removesuffix("_after") for c in after_columns(measured.shape[1] == 3)]
    figure = Figure(figsize=(3.6 * len(names), 4.0), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    for axes, name, column in zip(figure.subplots(1, len(names), squeeze=False)[0], names, measured.T, strict=True):
        low, high = float(column.min()), float(column.max())
        axes.plot([low, high], [low, high], color="black", linewidth=0.8)
        for (label, twist), colour in zip(predicted.items(), _COLOURS, strict=False):
            axes.scatter(column, twist[:, names.index(name)], s=10, color=colour, alpha=0.7, label=label)
        axes.set_xlabel(f"measured {name}, {_UNITS[name[0]]}")
        axes.set_ylabel(f"predicted {name}, {_UNITS[name[0]]}")
    figure.axes[0].legend(frameon=False, loc="upper left")
    figure.suptitle(title, fontsize=11)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.lstrip(".") or "png", dpi=150)
    write_atomic(path, content.getvalue())
