"""Figures of the page as small tables of HTML: poses in mm and degrees, errors, spreads, and the
sentences beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.plan.tasks import PlanStatus, pose_error
from clashsim.view.outcome import ExpectedOutcome, PlannedOutcome

# Apart for eyes that do not tell red from green (Okabe and Ito), and the same in the scene, the
# legend and the documentation.
COLOURS = {
    "recorded": (230, 159, 0),
    "MuJoCo": (0, 114, 178),
    "hybrid": (0, 158, 115),
    "target": (204, 121, 167),
}
WORDS = {
    "recorded": "recorded",
    "MuJoCo": "MuJoCo",
    "hybrid": "hybrid: MuJoCo with the learned collision",
    "target": "target",
}
# How a number of a strike is called, its unit on the page, and how many of these are one SI unit.
AIMS = {
    "speed": ("speed", "m/s", 1.0),
    "point": ("impact point", "°", 180 / np.pi),
    "deflection": ("deflection", "°", 180 / np.pi),
    "turn": ("turn", "°", 180 / np.pi),
    "offset": ("offset", "mm", 1e3),
    "yaw": ("yaw", "°", 180 / np.pi),
    "spin": ("spin", "rad/s", 1.0),
    "slip": ("slip", "m/s", 1.0),
}
_CELL = "padding:1px 6px 1px 0;text-align:right;font-variant-numeric:tabular-nums"
_LEFT = _CELL.replace("right", "left")


def chip(kind: str) -> str:
    """A square in the colour of a kind."""
    r, g, b = COLOURS[kind]
    return f'<span style="display:inline-block;width:.75em;height:.75em;border-radius:2px;background:rgb({r},{g},{b});margin-right:.4em"></span>'


def legend(kinds: Sequence[str], cell: float | None) -> str:
    """Which colour is what, and how wide (m) a cell of the grid is, if there is one."""
    rows = "".join(
        f'<span style="white-space:nowrap;margin-right:.9em">{chip(k)}{escape(WORDS[k])}</span>'
        for k in kinds
    )
    rows += (
        ""
        if cell is None
        else f'<span style="white-space:nowrap;opacity:.65">grid: {1e3 * cell:g} mm</span>'
    )
    return f'<div style="font-size:.8em;line-height:1.7;padding:0 .75em">{rows}</div>'


def said(sentence: str, *, busy: bool = False) -> str:
    """A sentence of the page; where there is none, the room for one, so that nothing jumps."""
    mark = '<span style="opacity:.6">&#9203;</span> ' if busy else ""
    return f'<div style="font-size:.8em;line-height:1.4;padding:.2em .75em;min-height:1.4em;opacity:.85">{mark}{escape(sentence)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are HTML already, the first of each row is its name."""
    top = "".join(
        f'<th style="{_CELL if i else _LEFT};font-weight:500;opacity:.65">{c}</th>'
        for i, c in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL if i else _LEFT}">{c}</td>' for i, c in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<table style="font-size:.8em;border-collapse:collapse;margin:.2em .75em">{f"<tr>{top}</tr>" if any(head) else ""}{body}</table>'


def ends(poses: Mapping[str, np.ndarray], *, truth: np.ndarray | None = None) -> str:
    """Where a body came to rest by kinds of motion, planar poses (3,), and how far from `truth`
    (3,), by default from what was recorded, if anything was.
    """
    truth = poses.get("recorded") if truth is None else truth
    rows = [
        [
            chip(kind) + escape(kind),
            *_pose(pose),
            *(_off(pose, truth) if truth is not None and kind != "recorded" else ()),
        ]
        for kind, pose in poses.items()
    ]
    return table(
        ["at rest", "x, mm", "y, mm", "yaw, °", *(["off by", ""] if truth is not None else [])],
        rows,
    )


def twists(after: Mapping[str, np.ndarray]) -> str:
    """Twists (3,) or (6,) of the struck body after an impact, by kind: m/s, then rad/s."""
    rows = [
        [chip("recorded" if kind == "measured" else kind) + escape(kind), *(f"{x:.2f}" for x in v)]
        for kind, v in after.items()
    ]
    planar = all(len(v) == 3 for v in after.values())
    return table(
        ["after impact", "vx, m/s", "vy, m/s", "w, rad/s"]
        if planar
        else ["m/s, rad/s", "vx", "vy", "vz", "wx", "wy", "wz"],
        rows,
    )


def plan_figures(found: PlannedOutcome, rests: Mapping[str, np.ndarray] | None = None) -> str:
    """A plan: whether it reaches the target, each strike, and what is expected of it; rests: where
    simulators have it come to rest (3,), by kind.
    """
    p, e = found.plan, found.expected
    mark = "&#10003;" if p.status is PlanStatus.FOUND else "&#9888;"
    title = f'<div style="font-size:.85em;padding:.2em .75em"><b>{mark} {escape(str(p.status))}</b>: {escape(p.reason)}</div>'
    strikes = table(
        ["strike", *(f"{AIMS[n][0]}, {AIMS[n][1]}" for n in p.names)],
        [[str(k + 1), *(_aim(n, v) for n, v in s.items())] for k, s in enumerate(found.strikes)],
    )
    target = np.array(p.task.target)
    rows = [
        [chip("target") + "target", *_pose(target)],
        [chip("hybrid") + "expected", *_pose(e.rest), *_off(e.rest, target)],
        *_spread(e),
        *(
            [chip(kind) + f"{escape(kind)}, stepped", *_pose(rest), *_off(rest, target)]
            for kind, rest in (rests or {}).items()
        ),
    ]
    return (
        title
        + strikes
        + table(["at rest", "x, mm", "y, mm", "yaw, °", "off by", ""], rows)
        + said(f"Planned in {1e3 * found.seconds:.0f} ms, {p.evaluations} strikes tried.")
    )


def strike_figures(e: ExpectedOutcome) -> str:
    """What is expected of a strike by hand."""
    return table(
        ["foretold", "x, mm", "y, mm", "yaw, °"],
        [[chip("hybrid") + "expected", *_pose(e.rest)], *_spread(e)],
    )


def _spread(e: ExpectedOutcome) -> list[list[str]]:
    return (
        [
            [
                "± 1 sd",
                f"{1e3 * e.std[0]:.1f}",
                f"{1e3 * e.std[1]:.1f}",
                f"{np.degrees(e.std[2]):.1f}",
            ]
        ]
        if len(e.cloud)
        else []
    )


def _aim(name: str, value: float) -> str:
    return f"{AIMS[name][2] * value:.{2 if AIMS[name][1] == 'm/s' else 1}f}"


def _pose(pose: np.ndarray) -> tuple[str, str, str]:
    return (
        f"{1e3 * pose[0]:.1f}",
        f"{1e3 * pose[1]:.1f}",
        f"{np.degrees(wrap_angle(pose[2])):.1f}",
    )


def _off(pose: np.ndarray, truth: np.ndarray) -> tuple[str, str]:
    far, turn = pose_error(pose, truth)
    return f"<b>{1e3 * float(far):.1f} mm</b>", f"<b>{np.degrees(abs(float(turn))):.1f}°</b>"
