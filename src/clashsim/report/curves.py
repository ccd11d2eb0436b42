"""What neural scalars have learnt, drawn against what they read, so that a person can put a formula in their place."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.core.blueprint import Blueprint, parts
from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic

_ACTION = {"add": "added to {}", "scale": "factor on {}", "replace": "in place of {}"}


def learnt(blueprint: Blueprint, weights: np.ndarray, which: int, *, over: int = 0, ranges: Mapping[str, tuple[float, float]], n: int = 101) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) of input `over` across its range, and what network `which` makes of them (n,) with the others in the middle of theirs.

    ranges: low and high of every quantity that the network reads, by name, as they were recorded. A scaling network gives the factor.
    """
    scalar = blueprint[which]
    for name in scalar.reads:
        if name not in ranges:
            raise DataError(f"the neural scalar of {scalar.target!r} reads {name!r}, and no range is given for it")
    values = np.tile([np.mean(ranges[name]) for name in scalar.reads], (n, 1))
    values[:, over] = np.linspace(*ranges[scalar.reads[over]], n)
    output = scalar.output(weights[parts(blueprint)[which]], values)
    return values[:, over], np.exp(output) if scalar.enters == "scale" else output


def draw_curves(path: Path, blueprint: Blueprint, weights: np.ndarray, *, ranges: Mapping[str, tuple[float, float]]) -> None:
    """A picture with one panel for each network and input."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not blueprint:
        raise DataError("an empty blueprint has no curves to draw")
    across = max(len(scalar.reads) for scalar in blueprint)
    figure = Figure(figsize=(3.6 * across, 2.8 * len(blueprint)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(blueprint), across, squeeze=False)
    for i, scalar in enumerate(blueprint):
        for j, panel in enumerate(panels[i]):
            if j >= len(scalar.reads):
                panel.set_axis_off()
                continue
            panel.axhline(1.0 if scalar.enters == "scale" else 0.0, color="0.7", linewidth=0.8)  # what an untrained network says
            panel.plot(*learnt(blueprint, weights, i, over=j, ranges=ranges), color="tab:blue")
            panel.set(xlabel=scalar.reads[j], ylabel=_ACTION[scalar.enters].format(scalar.target))
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.lstrip(".") or "png", dpi=120)
    write_atomic(path, content.getvalue())
