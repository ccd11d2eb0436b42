"""Draw the figures of the documentation: python tools/draw_figures.py docs/figures."""

import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyBboxPatch, Polygon

matplotlib.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "clashsim",
    "font.family": "sans-serif",
    "font.size": 10,
}
TEAL, ORANGE, GREY, INK = "#00708a", "#d9622b", "#8a949e", "#16202b"


def blank(
    width: float,
    height: float,
    x: tuple[float, float],
    y: tuple[float, float],
    *,
    equal: bool = True,
) -> tuple[Figure, "matplotlib.axes.Axes"]:
    """A figure without axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=x, ylim=y)
    axes.set_aspect("equal" if equal else "auto")
    axes.axis("off")
    return figure, axes


def arrow(
    axes: "matplotlib.axes.Axes",
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    width: float = 1.6,
) -> None:
    """An arrow from start to end."""
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": width,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )


def flow() -> Figure:
    """From recordings and a scene to planned strikes, with the commands."""
    figure, axes = blank(8.6, 3.3, (0, 8.6), (0, 3.3))

    def box(x: float, y: float, text: str, command: str = "", colour: str = TEAL) -> None:
        axes.add_patch(
            FancyBboxPatch(
                (x, y),
                1.35,
                0.62,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor="white",
                edgecolor=colour,
                linewidth=1.5,
            )
        )
        axes.text(x + 0.675, y + 0.31, text, ha="center", va="center", color=INK, fontsize=9)
        if command:
            axes.text(
                x + 0.675,
                y - 0.16,
                command,
                ha="center",
                va="center",
                color=colour,
                family="monospace",
                fontsize=8,
            )

    box(0.05, 2.3, "recordings\nmocap, robot logs", colour=GREY)
    box(1.85, 2.3, "trials\nSI units, checked", "import")
    box(3.65, 2.3, "impacts, slides", "inspect, segment")
    box(0.05, 0.8, "scene\nMJCF", colour=GREY)
    box(1.85, 0.8, "100,000 strikes\nin MuJoCo", "sample")
    box(3.65, 0.8, "network\ndistilled")
    box(5.4, 1.55, "calibrated model\nreport, intervals", "calibrate, show, view", ORANGE)
    for y, text, command in (
        (2.65, "which strikes next", "advise"),
        (1.75, "strikes to a target", "plan, execute"),
        (0.85, "policies", "train, evaluate"),
        (-0.05, "MJCF, ranges", "export"),
    ):
        box(7.15, y + 0.02, text, command)
        arrow(axes, (6.82, 1.86), (7.1, y + 0.33), GREY, 1.2)
    for start, end in (
        ((1.45, 2.61), (1.8, 2.61)),
        ((3.25, 2.61), (3.6, 2.61)),
        ((1.45, 1.11), (1.8, 1.11)),
        ((3.25, 1.11), (3.6, 1.11)),
        ((5.05, 2.6), (5.36, 2.0)),
        ((5.05, 1.1), (5.36, 1.72)),
    ):
        arrow(axes, start, end)
    axes.set(ylim=(-0.35, 3.35))
    return figure


# Centre of each package's box in the figure of packages.
PACKAGES = {
    "commands": (4.0, 8.0),
    "bench": (4.0, 7.1),
    "pipeline": (4.0, 6.2),
    "report": (2.0, 5.3),
    "view": (4.6, 5.3),
    "loop": (6.6, 5.3),
    "evaluate": (2.0, 4.4),
    "fit": (3.1, 3.5),
    "sim": (1.5, 2.6),
    "nets": (1.5, 1.8),
    "data": (3.1, 2.2),
    "slides": (2.4, 1.0),
    "plan": (4.6, 2.6),
    "optim": (3.6, 0.2),
    "rl": (5.8, 2.0),
    "lab": (7.0, 2.0),
    "scale": (8.4, 2.6),
    "core": (4.9, -0.7),
}
# From each package to those that it imports, without those that follow by way of others.
IMPORTS = {
    "commands": ["bench"],
    "bench": ["pipeline"],
    "pipeline": ["report", "view", "loop", "scale"],
    "report": ["evaluate"],
    "view": ["fit", "plan", "rl"],
    "loop": ["fit", "rl", "lab"],
    "evaluate": ["fit"],
    "fit": ["sim", "data"],
    "sim": ["nets"],
    "nets": ["slides"],
    "data": ["slides"],
    "slides": ["optim"],
    "plan": ["optim"],
    "optim": ["core"],
    "rl": ["core"],
    "lab": ["core"],
    "scale": ["core"],
}


def packages() -> Figure:
    """Which package imports which; arrows point to what is imported."""
    figure, axes = blank(8.4, 6.6, (0.6, 9.0), (-1.1, 8.4), equal=False)
    half_height = 0.25
    for package, (x, y) in PACKAGES.items():
        for imported in IMPORTS.get(package, []):
            end_x, end_y = PACKAGES[imported]
            start = (x, y - half_height)
            end = (end_x, end_y + half_height + 0.05)
            if (
                end_x - x > 3
            ):  # far to the right: begins beside the box, so that it crosses no other
                start = (x + 0.52, y)
            if x - end_x > 3:
                end = (end_x + 0.54, end_y)
            arrow(axes, start, end, GREY, 1.1)
    for package, (x, y) in PACKAGES.items():
        colour = ORANGE if package in ("commands", "bench", "pipeline") else TEAL
        axes.add_patch(
            FancyBboxPatch(
                (x - 0.5, y - half_height),
                1.0,
                2 * half_height,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor="white",
                edgecolor=colour,
                linewidth=1.5,
            )
        )
        axes.text(x, y, package, ha="center", va="center", color=INK, family="monospace")
    return figure


def contact_frame() -> Figure:
    """A strike seen from the world and from the contact."""
    figure = Figure(figsize=(8.2, 3.4), layout="constrained")
    for axes, turn, title in zip(
        figure.subplots(1, 2),
        (0.6, 0.0),
        ("in the world", "from the contact, over the approach speed"),
        strict=True,
    ):
        axes.set(xlim=(-2.6, 2.4), ylim=(-1.9, 2.6), title=title, aspect="equal")
        axes.axis("off")
        c, s = np.cos(turn), np.sin(turn)
        move = np.array([[c, -s], [s, c]])
        square = np.array([[0, -1.1], [1.8, -1.1], [1.8, 1.1], [0, 1.1]]) + np.array([0, 0.35])
        axes.add_patch(Polygon(square @ move.T, facecolor="#e6f1f4", edgecolor=TEAL, linewidth=1.5))
        tip = move @ np.array([-0.35, 0.0])
        axes.add_patch(
            matplotlib.patches.Circle(
                tuple(tip), 0.35, facecolor="#f7e0d4", edgecolor=ORANGE, linewidth=1.5
            )
        )
        normal, tangent = move @ [1.0, 0.0], move @ [0.0, 1.0]
        arrow(axes, (0, 0), tuple(1.1 * normal), TEAL)
        arrow(axes, (0, 0), tuple(1.1 * tangent), TEAL)
        axes.text(*(1.2 * normal), "n", color=TEAL, ha="center", va="center")
        axes.text(*(1.22 * tangent), "t", color=TEAL, ha="center", va="center")
        way = move @ [np.cos(0.25), np.sin(0.25)]
        arrow(axes, tuple(tip - 1.7 * way), tuple(tip - 0.45 * way), ORANGE, 2.0)
        axes.text(*(tip - 1.85 * way + 0.25 * tangent), "v", color=ORANGE, ha="center", va="center")
        centre = move @ [0.9, 0.35]
        axes.plot(*centre, "o", color=INK, markersize=4)
        axes.text(*(centre + np.array([0.12, 0.1])), "mass centre", fontsize=8, color=INK)
        if turn == 0.0:
            axes.add_patch(
                Arc(
                    (float(tip[0]), float(tip[1])),
                    2.2,
                    2.2,
                    theta1=180,
                    theta2=180 + np.degrees(0.25),
                    color=ORANGE,
                )
            )
            axes.text(-1.75, -0.02, "deflection", fontsize=8, color=ORANGE, ha="right")
    return figure


def fields() -> Figure:
    """A constant, and the same parameter as a field over where the bodies meet."""
    figure = Figure(figsize=(7.4, 2.7), layout="constrained")
    axes = figure.subplots()
    rng = np.random.default_rng(4)
    x = np.linspace(0, 1, 200)
    truth = 0.55 + 0.13 * np.sin(5.2 * x) - 0.1 * x
    at = np.sort(rng.uniform(0.05, 0.8, 10))
    seen = np.interp(at, x, truth) + rng.normal(0, 0.015, 10)
    k = lambda a, b: 0.12**2 * np.exp(-0.5 * ((a[:, None] - b) / 0.18) ** 2)  # noqa: E731
    inverse = np.linalg.inv(k(at, at) + 0.02**2 * np.eye(10))
    mean = seen.mean() + k(x, at) @ inverse @ (seen - seen.mean())
    sd = np.sqrt(np.maximum(0.12**2 - np.einsum("ij,jk,ik->i", k(x, at), inverse, k(x, at)), 0))
    axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=TEAL, alpha=0.15, linewidth=0)
    axes.plot(x, truth, color=GREY, linestyle="--", label="true value")
    axes.axhline(seen.mean(), color=ORANGE, label="constant, as in a MuJoCo model")
    axes.plot(x, mean, color=TEAL, label="constant plus field, two standard deviations")
    axes.plot(at, seen, "o", color=INK, markersize=4, label="ten impacts")
    axes.set(xlabel="contact point", ylabel="parameter", xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=8, loc="lower left", ncols=2)
    axes.set_ylim(0.1, 0.85)
    return figure


def rewind() -> Figure:
    """One step of the hybrid simulator in which the pair meets."""
    figure, axes = blank(8.2, 2.2, (0, 8.2), (-0.75, 1.45))
    axes.plot([0.4, 7.8], [0, 0], color=GREY)
    for x, words in ((0.9, "t"), (4.3, "t + h"), (7.4, "t + 2 h")):
        axes.plot([x, x], [-0.08, 0.08], color=INK)
        axes.text(x, -0.28, words, ha="center", va="center", fontsize=9)
    axes.plot([2.7, 2.7], [-0.16, 0.16], color=ORANGE, linewidth=2)
    axes.text(2.7, -0.34, "touch", ha="center", va="center", color=ORANGE, fontsize=9)
    for start, end, lift, colour, words in (
        (0.9, 4.3, 0.9, GREY, "1  MuJoCo steps without the pair's contact"),
        (4.3, 2.7, 0.42, ORANGE, "2  they met: rewound"),
        (2.7, 4.3, -0.5, TEAL, "3  the learned twist is written, the rest of the step is taken"),
    ):
        way = np.linspace(0, 1, 30)
        axes.plot(
            start + (end - start) * way, lift * 4 * way * (1 - way), color=colour, linewidth=1.6
        )
        axes.annotate(
            "",
            (end, 0),
            (start + (end - start) * 0.93, lift * 4 * 0.93 * 0.07),
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6},
        )
        axes.text(4.5, {0.9: 0.95, 0.42: 0.4}.get(lift, -0.62), words, color=colour, fontsize=9)
    return figure


def main(out: Path) -> None:
    """Write all figures as SVG."""
    out.mkdir(parents=True, exist_ok=True)
    for draw in (flow, packages, contact_frame, fields, rewind):
        draw().savefig(out / f"{draw.__name__.replace('_', '-')}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
