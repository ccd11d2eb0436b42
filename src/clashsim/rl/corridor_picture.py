"""Pictures and animations of bodies in their corridors, seen from above."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from clashsim.core.files import write_atomic
from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS

_MARGIN = 0.1  # m around the way points
_WIDTH_INCHES = 6.0
_MIN_HEIGHT_INCHES = 2.0
_ARROW_LENGTH = 0.07  # m


def draw_corridor(
    body: np.ndarray,
    pose: np.ndarray,
    points: Sequence[Sequence[float]],
    *,
    goal_yaw: float | None = None,
    tip: np.ndarray | None = None,
    title: str = "",
) -> np.ndarray:
    """Draw a body on its way through corridors.

    Args:
        body: Outline (C, 2) of the body in its own axes, m.
        pose: Where it lies, (3,): x, y (m), yaw (rad).
        points: Way points (W, 2), m, in the same axes as the pose.
        goal_yaw: Yaw that is wanted at the last point, rad; None: it is not drawn.
        tip: Position (m) and velocity (m/s) of the striker at the contact, (4,); None: no arrow.
        title: Text above the picture.

    Returns:
        The picture (H, W, 3): red, green, blue, 0..255.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Polygon

    way = np.asarray(points, float)
    low, high = way.min(0) - _MARGIN, way.max(0) + _MARGIN
    width, height = high - low
    height_inches = max(_MIN_HEIGHT_INCHES, _WIDTH_INCHES * float(height / width))
    figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    for start, end in pairwise(way):
        corridor = corridor_corners(start, end)
        axes.add_patch(Polygon(corridor, facecolor="0.93", edgecolor="0.75"))
        goal = Circle(tuple(end), GOAL_RADIUS, facecolor="none", edgecolor="C2", linestyle="--")
        axes.add_patch(goal)
    axes.add_patch(Polygon(_moved_to_pose(body, pose), facecolor="C0", alpha=0.5, edgecolor="C0"))
    axes.plot(*pose[:2], "k.", markersize=4)
    if goal_yaw is not None:
        wanted = _moved_to_pose(body, np.array([*way[-1], goal_yaw]))
        axes.add_patch(Polygon(wanted, facecolor="none", edgecolor="C2", linewidth=0.8))
    if tip is not None:
        position, velocity = tip[:2], tip[2:]
        speed = max(float(np.linalg.norm(velocity)), 1e-9)
        axes.annotate(
            "",
            xy=tuple(position),
            xytext=tuple(position - _ARROW_LENGTH * velocity / speed),
            arrowprops={"arrowstyle": "-|>", "color": "C1", "linewidth": 2},
        )
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", title=title)
    axes.set_axis_off()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def animate(path: Path, frames: Sequence[np.ndarray], *, seconds: float = 0.7) -> None:
    """Write pictures as an animated .gif.

    Args:
        path: Where to write it.
        frames: Pictures (H, W, 3) of the same size.
        seconds: How long each picture is shown.
    """
    from PIL import Image

    first, *others = [Image.fromarray(frame) for frame in frames]
    content = io.BytesIO()
    milliseconds = round(1e3 * seconds)
    first.save(content, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    write_atomic(path, content.getvalue())


def corridor_corners(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the corners (4, 2) of the corridor between two way points (2,), in order."""
    along = end - start
    to_left = np.array([-along[1], along[0]]) / np.linalg.norm(along)
    half_width = CORRIDOR_WIDTH / 2 * to_left
    return np.array([start + half_width, end + half_width, end - half_width, start - half_width])


def _moved_to_pose(outline: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return the outline (C, 2) of a body, given in its own axes, when it lies at a pose (3,)."""
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    return outline @ np.array([[cos, sin], [-sin, cos]]) + pose[:2]
