"""Picture of a planned throw or strike in space: from above, and from the side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from clashsim.report.figure_files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MM = 1e3  # millimetres per metre
_NUM_OUTLINES = 9  # of the body along its path
_ARROW_TIME = 0.1  # s: a velocity is drawn as the way of this time


@dataclass(frozen=True, eq=False, kw_only=True)
class LaunchPicture:
    """What a picture of a launch shows; world axes, SI units.

    Attributes:
        corners: (P, 3), points on the body's surface, body axes.
        path: (T, 7), expected poses of the body.
        rest: (M, 7), poses at rest, with the errors of launch and model.
        release: (13,), pose and twist of the launched body at the launch.
        target: (2,).
        tolerance: Distance within which the target counts as reached.
        reached: (M,), whether a pose at rest is within the tolerances.
        title: Text above the picture.
    """

    corners: np.ndarray
    path: np.ndarray
    rest: np.ndarray
    release: np.ndarray
    target: np.ndarray
    tolerance: float
    reached: np.ndarray
    title: str = ""


def draw_launch(path: Path, picture: LaunchPicture) -> None:
    """Write a picture of a launch.

    Args:
        path: Where the picture is written; its suffix gives the format.
        picture: What the picture shows.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 7.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    above, side = figure.subplots(2, 1, height_ratios=(3, 2))
    _draw_from_above(above, picture)
    _draw_from_the_side(side, picture)
    figure.suptitle(picture.title, fontsize="medium", wrap=True)
    above.legend(loc="best", fontsize="small", frameon=False)
    write_figure(path, figure, dpi=130)


def _draw_from_above(axes: Axes, picture: LaunchPicture) -> None:
    """Draw path, expected outlines, simulated places of rest and the target, from above."""
    from matplotlib.patches import Circle

    for pose in _outlined(picture):
        _outline(axes, picture, pose, (np.array([1.0, 0, 0]), np.array([0, 1.0, 0])))
    axes.plot(*(_MM * picture.path[:, :2].T), color="C0", linewidth=1, label="expected path")
    for is_reached, colour, label in (
        (True, "C2", "rests within the tolerance"),
        (False, "C3", "rests elsewhere"),
    ):
        shown = picture.rest[picture.reached == is_reached]
        if len(shown):
            x, y = _MM * shown[:, :2].T
            axes.scatter(x, y, s=10, color=colour, alpha=0.6, label=label)
    axes.add_patch(
        Circle(
            (_MM * float(picture.target[0]), _MM * float(picture.target[1])),
            _MM * picture.tolerance,
            fill=False,
            edgecolor="C2",
            linestyle="--",
            linewidth=2,
            label="target and tolerance",
        )
    )
    _arrow(axes, picture, (np.array([1.0, 0, 0]), np.array([0, 1.0, 0])))
    axes.set(xlabel="x, mm", ylabel="y, mm", aspect="equal")


def _draw_from_the_side(axes: Axes, picture: LaunchPicture) -> None:
    """Draw the expected path from the side: towards the target, and upwards."""
    start = picture.path[0, :2]
    offset = picture.target - start
    length = float(np.linalg.norm(offset))
    towards = offset / length if length > 0 else np.array([1.0, 0.0])
    directions = (np.array([*towards, 0.0]), np.array([0.0, 0.0, 1.0]))
    for pose in _outlined(picture):
        _outline(axes, picture, pose, directions)
    path = picture.path[:, :3]
    axes.plot(_MM * path @ directions[0], _MM * path[:, 2], color="C0", linewidth=1)
    axes.axvline(_MM * float(picture.target @ towards), color="C2", linestyle="--", linewidth=1)
    _arrow(axes, picture, directions)
    axes.set(xlabel="towards the target, mm", ylabel="z, mm", aspect="equal")


def _outlined(picture: LaunchPicture) -> np.ndarray:
    """Poses (n, 7) on the path at which the body is drawn: evenly spaced in time."""
    chosen = np.linspace(0, len(picture.path) - 1, _NUM_OUTLINES).round().astype(int)
    return picture.path[chosen]


def _outline(
    axes: Axes, picture: LaunchPicture, pose: np.ndarray, directions: tuple[np.ndarray, ...]
) -> None:
    """Draw the body's outline at a pose (7,), seen along the normal of two directions (3,)."""
    rotation = Rotation.from_quat(pose[3:], scalar_first=True)
    points = (rotation.apply(picture.corners) + pose[:3]) @ np.stack(directions, 1)
    hull = points[ConvexHull(points).vertices]
    is_last = bool((pose == picture.path[-1]).all())
    axes.fill(
        *(_MM * hull.T),
        facecolor="C0" if is_last else "none",
        edgecolor="C0",
        alpha=0.45 if is_last else 0.3,
        linewidth=1,
    )


def _arrow(axes: Axes, picture: LaunchPicture, directions: tuple[np.ndarray, ...]) -> None:
    """Draw the velocity of the launched body."""
    basis = np.stack(directions, 1)
    begin = _MM * picture.release[:3] @ basis
    end = begin + _MM * _ARROW_TIME * picture.release[7:10] @ basis
    axes.annotate(
        "",
        xy=tuple(end),
        xytext=tuple(begin),
        arrowprops={"arrowstyle": "-|>", "color": "C1", "linewidth": 1.8},
    )
