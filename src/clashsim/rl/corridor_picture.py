"""Bodies in their corridors from above, as pictures and as an animation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from clashsim.core.files import write_atomic
from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS


def draw_corridor(
    body: np.ndarray,
    pose: np.ndarray,
    points: Sequence[Sequence[float]],
    *,
    goal: float | None = None,
    tip: np.ndarray | None = None,
    title: str = "",
) -> np.ndarray:
    """A picture (H, W, 3) of a body with outline (C, 2) at pose (3,) on the way through `points`.

    goal (rad): yaw wanted at the last point. tip (4,): place and velocity of the striker at its
    touch.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Polygon

    way = np.asarray(points, float)
    low, high = way.min(0) - 0.1, way.max(0) + 0.1
    figure = Figure(
        figsize=(6, max(2.0, 6 * float((high - low)[1] / (high - low)[0]))), layout="constrained"
    )
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    for a, b in pairwise(way):
        side = CORRIDOR_WIDTH / 2 * np.array([-(b - a)[1], (b - a)[0]]) / np.linalg.norm(b - a)
        axes.add_patch(
            Polygon([a + side, b + side, b - side, a - side], facecolor="0.93", edgecolor="0.75")
        )
        axes.add_patch(
            Circle(tuple(b), GOAL_RADIUS, facecolor="none", edgecolor="C2", linestyle="--")
        )
    c, s = np.cos(pose[2]), np.sin(pose[2])
    axes.add_patch(
        Polygon(
            body @ np.array([[c, s], [-s, c]]) + pose[:2], facecolor="C0", alpha=0.5, edgecolor="C0"
        )
    )
    axes.plot(*pose[:2], "k.", markersize=4)
    if goal is not None:
        c, s = np.cos(goal), np.sin(goal)
        axes.add_patch(
            Polygon(
                body @ np.array([[c, s], [-s, c]]) + way[-1],
                facecolor="none",
                edgecolor="C2",
                linewidth=0.8,
            )
        )
    if tip is not None:
        back = tip[:2] - 0.07 * tip[2:] / max(float(np.linalg.norm(tip[2:])), 1e-9)
        axes.annotate(
            "",
            xy=tuple(tip[:2]),
            xytext=tuple(back),
            arrowprops={"arrowstyle": "-|>", "color": "C1", "linewidth": 2},
        )
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", title=title)
    axes.set_axis_off()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def animate(path: Path, frames: Sequence[np.ndarray], *, seconds: float = 0.7) -> None:
    """Write frames as an animated picture (.gif)."""
    from PIL import Image

    first, *others = [Image.fromarray(f) for f in frames]
    content = io.BytesIO()
    milliseconds = round(1e3 * seconds)
    first.save(content, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    write_atomic(path, content.getvalue())
