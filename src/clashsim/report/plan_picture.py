"""Picture of a plan from above: start, strikes, expected pose at rest, target and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.report.figure_files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_ARROW_LENGTH = 0.08  # m, of the arrow along a strike's velocity
_MM = 1e3  # millimetres per metre
_MIN_SPEED = 1e-9  # m/s, so that no division is by zero
_MARGIN = 0.06  # around everything drawn, as a share of its larger side


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanPicture:
    """What a picture of a plan of K strikes shows.

    Poses are x, y (m) and yaw (rad) in the world frame.

    Attributes:
        body: Corners of the struck body's outline in the body's frame, (C, 2), m.
        tip: Corners of the striker's outline in the striker's frame, (C, 2), m.
        starts: Pose of the struck body before each strike, (K, 3).
        touches: Pose and twist of the striker at first contact in each strike, (K, 6).
        predicted: Expected pose at rest of the struck body after each strike, (K, 3).
        target: Target pose of the struck body, (3,).
        std: Standard deviation of the expected pose after the last strike, (3,).
        outcomes: Poses of the struck body at rest in M executions of the plan, (M, 3).
        title: Text above the picture.
    """

    body: np.ndarray
    tip: np.ndarray
    starts: np.ndarray
    touches: np.ndarray
    predicted: np.ndarray
    target: np.ndarray
    std: np.ndarray
    outcomes: np.ndarray | None = None
    title: str = ""


def draw_plan(path: Path, picture: PlanPicture) -> None:
    """Write a picture of a plan.

    Args:
        path: Where the picture is written; its suffix gives the format.
        picture: What the picture shows.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    canvas = _Canvas(figure.subplots())
    for strike in range(len(picture.starts)):
        _draw_strike(canvas, picture, strike)
    _draw_target(canvas, picture)
    _draw_expected(canvas, picture)
    _draw_outcomes(canvas, picture)
    canvas.set_limits(picture.title)
    figure.legend(handles=canvas.legend, loc="outside lower center", ncols=2, frameon=False)
    write_figure(path, figure, dpi=150)


class _Canvas:
    """Axes in mm, the points drawn on them so far, and their legend."""

    def __init__(self, axes: Axes) -> None:
        from matplotlib.lines import Line2D

        self.axes = axes
        self.drawn: list[np.ndarray] = []  # (n, 2) each, m
        self.legend: list[Line2D] = [
            Line2D([], [], color="0.6", label="start"),
            Line2D([], [], color="C2", linestyle="--", linewidth=2, label="target"),
            Line2D([], [], color="C0", label="expected"),
        ]

    def add_legend(self, label: str, **style: Any) -> None:
        """Add an entry to the legend."""
        from matplotlib.lines import Line2D

        self.legend.append(Line2D([], [], label=label, **style))

    def outline(self, corners: np.ndarray, pose: np.ndarray, **style: Any) -> None:
        """Draw an outline at a pose.

        Args:
            corners: Corners of the outline in the body's frame, (C, 2), m.
            pose: x, y (m) and yaw (rad), world frame, (3,).
            **style: Of the polygon.
        """
        from matplotlib.patches import Polygon

        c, s = np.cos(pose[2]), np.sin(pose[2])
        rotation_transposed = np.array([[c, s], [-s, c]])
        placed = corners @ rotation_transposed + pose[:2]
        self.drawn.append(placed)
        self.axes.add_patch(Polygon(_MM * placed, **style))

    def set_limits(self, title: str) -> None:
        """Fit the axes around everything drawn."""
        points = _MM * np.vstack(self.drawn)
        low, high = points.min(0), points.max(0)
        margin = _MARGIN * (high - low).max()
        self.axes.set(
            xlim=(low[0] - margin, high[0] + margin),
            ylim=(low[1] - margin, high[1] + margin),
            xlabel="x, mm",
            ylabel="y, mm",
            aspect="equal",
            title=title,
        )


def _draw_strike(canvas: _Canvas, picture: PlanPicture, strike: int) -> None:
    """Draw the body before a strike, the tip at first contact, and an arrow along its velocity."""
    start = picture.starts[strike]
    touch = picture.touches[strike]
    canvas.outline(picture.body, start, facecolor="0.9" if strike == 0 else "none", edgecolor="0.6")
    tip_pose = touch[:3]
    canvas.outline(picture.tip, tip_pose, facecolor="C1", edgecolor="none", alpha=0.9)
    velocity = touch[3:5]
    direction = velocity / max(float(np.linalg.norm(velocity)), _MIN_SPEED)
    arrow_start = touch[:2] - _ARROW_LENGTH * direction
    canvas.drawn.append(arrow_start[None])
    canvas.axes.annotate(
        "",
        xy=tuple(_MM * touch[:2]),
        xytext=tuple(_MM * arrow_start),
        arrowprops={"arrowstyle": "-|>", "color": "C1", "linewidth": 1.8},
    )
    if len(picture.starts) > 1:
        canvas.axes.text(
            _MM * float(arrow_start[0]),
            _MM * float(arrow_start[1]),
            f"{strike + 1}",
            color="C1",
            ha="center",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def _draw_target(canvas: _Canvas, picture: PlanPicture) -> None:
    canvas.outline(
        picture.body,
        picture.target,
        facecolor="none",
        edgecolor="C2",
        linestyle="--",
        linewidth=2.2,
    )


def _draw_expected(canvas: _Canvas, picture: PlanPicture) -> None:
    """Draw the expected pose after the last strike.

    An ellipse shows two standard deviations of its position.
    """
    from matplotlib.patches import Ellipse

    expected = picture.predicted[-1]
    canvas.outline(picture.body, expected, facecolor="C0", alpha=0.18, edgecolor="none")
    canvas.outline(picture.body, expected, facecolor="none", edgecolor="C0", linewidth=1.4)
    position_std = picture.std[:2]
    if position_std.max() <= 0:
        return
    width, height = 4 * _MM * position_std  # full axes: two standard deviations on each side
    centre = tuple(_MM * expected[:2])
    ellipse = Ellipse(centre, width, height, facecolor="C0", alpha=0.25, edgecolor="none")
    canvas.axes.add_patch(ellipse)
    canvas.add_legend(
        "expected position, two standard deviations", color="C0", alpha=0.3, linewidth=6
    )


def _draw_outcomes(canvas: _Canvas, picture: PlanPicture) -> None:
    """Draw where the body came to rest in each execution of the plan."""
    outcomes = picture.outcomes
    if outcomes is None:
        return
    for pose in outcomes:
        canvas.outline(
            picture.body, pose, facecolor="none", edgecolor="C3", linewidth=1.0, alpha=0.8
        )
    label = f"outcome, {len(outcomes)} repeats" if len(outcomes) > 1 else "outcome"
    canvas.add_legend(label, color="C3")
