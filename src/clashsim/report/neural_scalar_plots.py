"""Plots of what neural scalars have learned, so that a person can replace them by a formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clashsim.core.augmentation_spec import AugmentationSpec, AugmentingScalar, weight_slices
from clashsim.core.errors import DataError
from clashsim.report.figure_files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Axis labels of a network's output, by the mode in which it changes its target.
_OUTPUT_LABELS = {
    "add": "added to {}",
    "scale": "factor on {}",
    "positive": "added to {}, before softplus",
    "replace": "in place of {}",
}
_QUANTILES = (0.1, 0.5, 0.9)


def scalar_curve(
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    which: int,
    *,
    over: int = 0,
    ranges: Mapping[str, tuple[float, float]],
    n: int = 101,
) -> tuple[np.ndarray, np.ndarray]:
    """The output of a network over one input, with the others in the middle of their ranges.

    Args:
        augmentation: All neural scalars of a simulator.
        weights: Weights of all neural scalars, (w,).
        which: Index of the network in `augmentation`.
        over: Index of the input to vary, among those that the network reads.
        ranges: Low and high of every quantity that the network reads, by name.
        n: Number of values of the varied input.

    Returns:
        Values of the input, (n,), and the output, (n,); a factor for a network that scales.
    """
    scalar = augmentation[which]
    for name in scalar.reads:
        if name not in ranges:
            raise DataError(
                f"the neural scalar of {scalar.target!r} reads {name!r}, "
                "and no range is given for it"
            )
    middles = [np.mean(ranges[name]) for name in scalar.reads]
    inputs = np.tile(middles, (n, 1))
    inputs[:, over] = np.linspace(*ranges[scalar.reads[over]], n)
    return inputs[:, over], _output(augmentation, weights, which, inputs)


def scalar_quantiles(
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    which: int,
    *,
    over: str,
    at: np.ndarray,
    recorded: np.ndarray,
) -> np.ndarray:
    """Quantiles of the output of a network over one quantity, with the others as recorded.

    Args:
        augmentation: All neural scalars of a simulator.
        weights: Weights of all neural scalars, (w,).
        which: Index of the network in `augmentation`.
        over: Name of a quantity that the network reads, or "angle/JOINT" (rad) if it reads the sine
            and cosine of a joint's angle, which are then varied together.
        at: Values of that quantity, (n,).
        recorded: Recorded inputs of the network, (m, r).

    Returns:
        The 10 %, 50 % and 90 % quantiles of the output over the m recorded inputs, (n, 3).
    """
    scalar = augmentation[which]
    kind, _, joint = over.partition("/")
    functions: dict[str, Callable[[np.ndarray], np.ndarray]]  # from `at` to inputs, by name
    if kind == "angle":
        functions = {f"sin/{joint}": np.sin, f"cos/{joint}": np.cos}
    else:
        functions = {over: np.asarray}
    if not set(functions) <= set(scalar.reads):
        raise DataError(
            f"the neural scalar of {scalar.target!r} does not read {over!r}; "
            f"it reads {', '.join(scalar.reads)}"
        )
    inputs = np.repeat(np.asarray(recorded, float)[None], len(at), 0)  # (n, m, r)
    for name, function in functions.items():
        inputs[:, :, scalar.reads.index(name)] = function(at)[:, None]
    output = _output(augmentation, weights, which, inputs)
    return np.quantile(output, _QUANTILES, axis=1).T


def plot_scalar_quantiles(
    path: Path,
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    *,
    recorded: np.ndarray,
    over: Mapping[str, np.ndarray],
) -> None:
    """Write a figure of the median and central 80 % of each network over each quantity.

    Args:
        path: Where the figure is written.
        augmentation: All neural scalars of a simulator; each has a row of panels.
        weights: Weights of all neural scalars, (w,).
        recorded: Recorded inputs of the networks, (m, r).
        over: Values (n,) of each quantity, by name; each has a column of panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (3.4 * len(over), 2.7 * len(augmentation))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(augmentation), len(over), squeeze=False, sharey="row")
    for i, scalar in enumerate(augmentation):
        for panel, (name, at) in zip(panels[i], over.items(), strict=True):
            quantiles = scalar_quantiles(
                augmentation, weights, i, over=name, at=at, recorded=recorded
            )
            low, median, high = quantiles.T
            _draw_untrained(panel, scalar)
            panel.fill_between(at, low, high, color="tab:blue", alpha=0.2, linewidth=0)
            panel.plot(at, median, color="tab:blue")
            panel.set(xlabel=name)
        panels[i][0].set(ylabel=_output_label(scalar))
    write_figure(path, figure, dpi=110)


def plot_scalar_curves(
    path: Path,
    augmentation: AugmentationSpec,
    weights: np.ndarray,
    *,
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """Write a figure with a panel for each network and input.

    Args:
        path: The file.
        augmentation: All neural scalars of a simulator.
        weights: Weights of all of them.
        ranges: Low and high of every quantity that the networks read, by name.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not augmentation:
        raise DataError("an augmentation without neural scalars has no curves to plot")
    num_columns = max(len(scalar.reads) for scalar in augmentation)
    size = (3.6 * num_columns, 2.8 * len(augmentation))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(augmentation), num_columns, squeeze=False)
    for i, scalar in enumerate(augmentation):
        for j, panel in enumerate(panels[i]):
            if j >= len(scalar.reads):
                panel.set_axis_off()
                continue
            values, output = scalar_curve(augmentation, weights, i, over=j, ranges=ranges)
            _draw_untrained(panel, scalar)
            panel.plot(values, output, color="tab:blue")
            panel.set(xlabel=scalar.reads[j], ylabel=_output_label(scalar))
    write_figure(path, figure, dpi=120)


def _output(
    augmentation: AugmentationSpec, weights: np.ndarray, which: int, inputs: np.ndarray
) -> np.ndarray:
    """Output of a network for inputs (..., r); a factor for a network that scales."""
    scalar = augmentation[which]
    own_weights = weights[weight_slices(augmentation)[which]]
    output = scalar.output(own_weights, inputs)
    return np.exp(output) if scalar.mode == "scale" else output


def _draw_untrained(panel: Axes, scalar: AugmentingScalar) -> None:
    """Draw a horizontal line at the output of an untrained network, which changes nothing."""
    untrained = 1.0 if scalar.mode == "scale" else 0.0
    panel.axhline(untrained, color="0.7", linewidth=0.8)


def _output_label(scalar: AugmentingScalar) -> str:
    return _OUTPUT_LABELS[scalar.mode].format(scalar.target)
