"""What neural scalars have learnt, drawn against what they read, so that a person can put a formula
in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.core.augmentation_spec import AugmentationSpec, weight_slices
from clashsim.core.errors import DataError
from clashsim.report.figure_files import write_figure

_ACTION = {"add": "added to {}", "scale": "factor on {}", "replace": "in place of {}"}


def scalar_curve(
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    which: int,
    *,
    over: int = 0,
    ranges: Mapping[str, tuple[float, float]],
    n: int = 101,
) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) of input `over` across its range, and what network `which` makes of them (n,)
    with the others in the middle of theirs.

    ranges: low and high of every quantity that the network reads, by name, as they were recorded. A
    scaling network gives the factor.
    """
    scalar = augmentation[which]
    for name in scalar.reads:
        if name not in ranges:
            raise DataError(
                f"the neural scalar of {scalar.target!r} reads {name!r}, and no range is given for it"
            )
    values = np.tile([np.mean(ranges[name]) for name in scalar.reads], (n, 1))
    values[:, over] = np.linspace(*ranges[scalar.reads[over]], n)
    output = scalar.output(weights[weight_slices(augmentation)[which]], values)
    return values[:, over], np.exp(output) if scalar.mode == "scale" else output


def scalar_quantiles(
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    which: int,
    *,
    over: str,
    at: np.ndarray,
    recorded: np.ndarray,
) -> np.ndarray:
    """What network `which` says at values at (n,) of one quantity while the others are as recorded
    (m, r): its tenth, half and nine tenths over the records, (n, 3).

    over: a quantity that it reads, or "angle/JOINT" (rad) for one of which it reads sine and
    cosine, which belong together.
    """
    scalar = augmentation[which]
    kind, _, joint = over.partition("/")
    functions = (
        {f"sin/{joint}": np.sin, f"cos/{joint}": np.cos} if kind == "angle" else {over: np.asarray}
    )
    if not set(functions) <= set(scalar.reads):
        raise DataError(
            f"the neural scalar of {scalar.target!r} does not read {over!r}; it reads {', '.join(scalar.reads)}"
        )
    values = np.repeat(np.asarray(recorded, float)[None], len(at), 0)
    for name, function in functions.items():
        values[:, :, scalar.reads.index(name)] = function(at)[:, None]
    output = scalar.output(weights[weight_slices(augmentation)[which]], values)
    return np.quantile(
        np.exp(output) if scalar.mode == "scale" else output, [0.1, 0.5, 0.9], axis=1
    ).T


def plot_scalar_quantiles(
    path: Path,
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    *,
    recorded: np.ndarray,
    over: Mapping[str, np.ndarray],
) -> None:
    """A picture with a row for each network and a panel for each quantity `over` (values (n,) by
    name): the middle of what it says, and where eight of ten records lie.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(over), 2.7 * len(augmentation)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(augmentation), len(over), squeeze=False, sharey="row")
    for i, scalar in enumerate(augmentation):
        for panel, (name, at) in zip(panels[i], over.items(), strict=True):
            low, middle, high = scalar_quantiles(
                augmentation, weights, i, over=name, at=at, recorded=recorded
            ).T
            panel.axhline(1.0 if scalar.mode == "scale" else 0.0, color="0.7", linewidth=0.8)
            panel.fill_between(at, low, high, color="tab:blue", alpha=0.2, linewidth=0)
            panel.plot(at, middle, color="tab:blue")
            panel.set(xlabel=name)
        panels[i][0].set(ylabel=_ACTION[scalar.mode].format(scalar.target))
    write_figure(path, figure, dpi=110)


def plot_scalar_curves(
    path: Path,
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    *,
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """A picture with one panel for each network and input."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not augmentation:
        raise DataError("an empty blueprint has no curves to draw")
    across = max(len(scalar.reads) for scalar in augmentation)
    figure = Figure(figsize=(3.6 * across, 2.8 * len(augmentation)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(augmentation), across, squeeze=False)
    for i, scalar in enumerate(augmentation):
        for j, panel in enumerate(panels[i]):
            if j >= len(scalar.reads):
                panel.set_axis_off()
                continue
            panel.axhline(
                1.0 if scalar.mode == "scale" else 0.0, color="0.7", linewidth=0.8
            )  # what an untrained network says
            panel.plot(
                *scalar_curve(augmentation, weights, i, over=j, ranges=ranges), color="tab:blue"
            )
            panel.set(xlabel=scalar.reads[j], ylabel=_ACTION[scalar.mode].format(scalar.target))
    write_figure(path, figure, dpi=120)
