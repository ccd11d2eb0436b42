"""A planned strike from above: where the body lies, how it is struck, where it is expected to come
to rest, and where it did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.report.figure_files import write_figure


def draw_plan(
    path: Path,
    *,
    body: np.ndarray,
    tip: np.ndarray,
    starts: np.ndarray,
    touches: np.ndarray,
    predicted: np.ndarray,
    target: np.ndarray,
    std: np.ndarray,
    outcomes: np.ndarray | None = None,
    title: str = "",
) -> None:
    """Write a picture of a plan of K strikes.

    body, tip (C, 2): outlines in their own axes, m. starts, predicted (K, 3) and target (3,):
    poses. touches (K, 6): tip poses and twists at
    the touch. std (3,): one standard deviation of the last pose. outcomes (M, 3): where the body
    came to rest when it was done.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Ellipse, Polygon

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    axes = figure.subplots()
    seen: list[np.ndarray] = []

    def shape(corners: np.ndarray, pose: np.ndarray, **style: object) -> None:
        c, s = np.cos(pose[2]), np.sin(pose[2])
        at = corners @ np.array([[c, s], [-s, c]]) + pose[:2]
        seen.append(at)
        axes.add_patch(Polygon(1e3 * at, **style))  # type: ignore[arg-type]

    keys = [
        Line2D([], [], color="0.6", label="start"),
        Line2D([], [], color="C2", linestyle="--", linewidth=2, label="target"),
        Line2D([], [], color="C0", label="expected"),
    ]
    for k, (start, touch) in enumerate(zip(starts, touches, strict=True)):
        shape(body, start, facecolor="0.9" if k == 0 else "none", edgecolor="0.6")
        shape(tip, touch[:3], facecolor="C1", edgecolor="none", alpha=0.9)
        back = touch[:2] - 0.08 * touch[3:5] / max(float(np.linalg.norm(touch[3:5])), 1e-9)
        seen.append(back[None])
        axes.annotate(
            "",
            xy=tuple(1e3 * touch[:2]),
            xytext=tuple(1e3 * back),
            arrowprops={"arrowstyle": "-|>", "color": "C1", "linewidth": 1.8},
        )
        if len(starts) > 1:
            axes.text(
                1e3 * float(back[0]),
                1e3 * float(back[1]),
                f"{k + 1}",
                color="C1",
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
    shape(body, target, facecolor="none", edgecolor="C2", linestyle="--", linewidth=2.2)
    shape(body, predicted[-1], facecolor="C0", alpha=0.18, edgecolor="none")
    shape(body, predicted[-1], facecolor="none", edgecolor="C0", linewidth=1.4)
    if std[:2].max() > 0:
        axes.add_patch(
            Ellipse(
                tuple(1e3 * predicted[-1, :2]),
                *(4e3 * std[:2]),
                facecolor="C0",
                alpha=0.25,
                edgecolor="none",
            )
        )
        keys.append(
            Line2D(
                [],
                [],
                color="C0",
                alpha=0.3,
                linewidth=6,
                label="expected place, two standard deviations",
            )
        )
    for end in np.zeros((0, 3)) if outcomes is None else outcomes:
        shape(body, end, facecolor="none", edgecolor="C3", linewidth=1.0, alpha=0.8)
    if outcomes is not None:
        keys.append(
            Line2D(
                [],
                [],
                color="C3",
                label=f"outcome, {len(outcomes)} times" if len(outcomes) > 1 else "outcome",
            )
        )
    low, high = 1e3 * np.vstack(seen).min(0), 1e3 * np.vstack(seen).max(0)
    pad = 0.06 * (high - low).max()
    axes.set(
        xlim=(low[0] - pad, high[0] + pad),
        ylim=(low[1] - pad, high[1] + pad),
        xlabel="x, mm",
        ylabel="y, mm",
        aspect="equal",
        title=title,
    )
    figure.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    write_figure(path, figure, dpi=150)
