"""Numbers on the page as small HTML tables: poses, errors, standard deviations; and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.plan.tasks import PlanStatus, pose_error
from clashsim.view.outcome import ExpectedOutcome, PlannedOutcome

# Red, green, blue: 0..255, by kind of motion. The palette of Okabe and Ito is distinct for
# colour-blind people; the 3D scene, the legend and the documentation use the same colours.
COLOURS = {
    "recorded": (230, 159, 0),
    "MuJoCo": (0, 114, 178),
    "hybrid": (0, 158, 115),
    "target": (204, 121, 167),
}
_LEGEND = {
    "recorded": "recorded",
    "MuJoCo": "MuJoCo",
    "hybrid": "hybrid: MuJoCo with the learned collision",
    "target": "target",
}


class StrikeLabel(NamedTuple):
    """How a number of a strike is shown."""

    name: str
    unit: str
    scale: float  # from SI units to `unit`


_DEGREES = 180 / np.pi
STRIKE_LABELS = {
    "speed": StrikeLabel("speed", "m/s", 1.0),
    "point": StrikeLabel("impact point", "°", _DEGREES),
    "deflection": StrikeLabel("deflection", "°", _DEGREES),
    "turn": StrikeLabel("bearing off heading", "°", _DEGREES),
    "offset": StrikeLabel("offset", "mm", 1e3),
    "yaw": StrikeLabel("yaw", "°", _DEGREES),
    "spin": StrikeLabel("angular velocity", "rad/s", 1.0),
    "slip": StrikeLabel("slip", "m/s", 1.0),
}
_POSE_HEADS = ["x, mm", "y, mm", "yaw, °"]
_ERROR_HEADS = ["off by", ""]
_NUMBER_CELL = "padding:1px 6px 1px 0;text-align:right;font-variant-numeric:tabular-nums"
_NAME_CELL = _NUMBER_CELL.replace("right", "left")
_TABLE = "font-size:.8em;border-collapse:collapse;margin:.2em .75em"
_SENTENCE = "font-size:.8em;line-height:1.4;padding:.2em .75em;min-height:1.4em;opacity:.85"
_CHIP = "display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.4em"


def chip(kind: str) -> str:
    """Return a small square in the colour of a kind of motion, as HTML."""
    red, green, blue = COLOURS[kind]
    return f'<span style="{_CHIP};background:rgb({red},{green},{blue})"></span>'


def legend(kinds: Sequence[str], cell_width: float | None) -> str:
    """Return the colour of each kind and the width of the grid's cells, as HTML.

    Args:
        kinds: Kinds of motion.
        cell_width: Width of a cell of the grid in m; None where there is no grid.
    """
    entries = ""
    for kind in kinds:
        entries += (
            '<span style="white-space:nowrap;margin-right:.9em">'
            f"{chip(kind)}{escape(_LEGEND[kind])}</span>"
        )
    if cell_width is not None:
        entries += (
            f'<span style="white-space:nowrap;opacity:.65">grid: {1e3 * cell_width:g} mm</span>'
        )
    return f'<div style="font-size:.8em;line-height:1.7;padding:0 .75em">{entries}</div>'


def sentence_html(sentence: str, *, busy: bool = False) -> str:
    """Return a sentence as HTML; an empty one is as high, so that nothing below it jumps."""
    hourglass = '<span style="opacity:.6">&#9203;</span> ' if busy else ""
    return f'<div style="{_SENTENCE}">{hourglass}{escape(sentence)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML.

    Args:
        head: Names of the columns; where all are empty, no head is drawn.
        rows: Rows of cells, which are HTML already; the first cell of each row is its name.
    """
    content = ""
    if any(head):
        content = f"<tr>{_cells('th', head, ';font-weight:500;opacity:.65')}</tr>"
    for row in rows:
        content += f"<tr>{_cells('td', row)}</tr>"
    return f'<table style="{_TABLE}">{content}</table>'


def rest_table(poses: Mapping[str, np.ndarray]) -> str:
    """Return a table of poses at rest and their errors against the recorded pose, as HTML.

    Args:
        poses: Planar poses (3,) by kind of motion: x, y (m), yaw (rad).
    """
    truth = poses.get("recorded")
    rows = []
    for kind, pose in poses.items():
        row = [chip(kind) + escape(kind), *_pose_cells(pose)]
        if truth is not None and kind != "recorded":
            row += _error_cells(pose, truth)
        rows.append(row)
    error_heads = [] if truth is None else _ERROR_HEADS
    return table(["at rest", *_POSE_HEADS, *error_heads], rows)


def twist_table(twists: Mapping[str, np.ndarray]) -> str:
    """Return a table of the struck body's twists after an impact, as HTML.

    Args:
        twists: Planar twists (3,) or spatial ones (6,), m/s, then rad/s; by kind of motion or
            "measured".
    """
    rows = []
    for kind, twist in twists.items():
        colour = "recorded" if kind == "measured" else kind
        rows.append([chip(colour) + escape(kind), *(f"{number:.2f}" for number in twist)])
    is_planar = all(len(twist) == 3 for twist in twists.values())
    if is_planar:
        return table(["after impact", "vx, m/s", "vy, m/s", "w, rad/s"], rows)
    return table(["m/s, rad/s", "vx", "vy", "vz", "wx", "wy", "wz"], rows)


def plan_figures(planned: PlannedOutcome, rests: Mapping[str, np.ndarray] | None = None) -> str:
    """Return a plan as HTML: whether it reaches the target, its strikes, and poses at rest.

    Args:
        planned: The plan.
        rests: Planar poses (3,) at which the body rests after the plan is simulated, by kind.
    """
    plan = planned.plan
    expected = planned.expected
    mark = "&#10003;" if plan.status is PlanStatus.FOUND else "&#9888;"
    sentences = "; ".join(filter(None, (plan.reason, plan.probability_sentence)))
    title = (
        '<div style="font-size:.85em;padding:.2em .75em">'
        f"<b>{mark} {escape(str(plan.status))}</b>: {escape(sentences)}</div>"
    )
    labels = [STRIKE_LABELS[name] for name in plan.names]
    strike_rows = []
    for number, strike in enumerate(planned.strikes, 1):
        strike_rows.append(
            [str(number), *(_strike_cell(name, value) for name, value in strike.items())]
        )
    strikes = table(["strike", *(f"{label.name}, {label.unit}" for label in labels)], strike_rows)
    target = np.array(plan.task.target)
    rest_rows = [
        [chip("target") + "target", *_pose_cells(target)],
        [
            chip("hybrid") + "expected",
            *_pose_cells(expected.rest),
            *_error_cells(expected.rest, target),
        ],
        *_std_rows(expected),
    ]
    for kind, rest in (rests or {}).items():
        name = chip(kind) + f"{escape(kind)}, stepped"
        rest_rows.append([name, *_pose_cells(rest), *_error_cells(rest, target)])
    at_rest = table(["at rest", *_POSE_HEADS, *_ERROR_HEADS], rest_rows)
    effort = sentence_html(
        f"Planned in {1e3 * planned.seconds:.0f} ms, {plan.evaluations} strikes tried."
    )
    return title + strikes + at_rest + effort


def strike_figures(expected: ExpectedOutcome) -> str:
    """Return the expected pose at rest after a strike by hand, as HTML."""
    rest_row = [chip("hybrid") + "expected", *_pose_cells(expected.rest)]
    return table(["predicted", *_POSE_HEADS], [rest_row, *_std_rows(expected)])


def _cells(tag: str, cells: Sequence[str], style: str = "") -> str:
    """Return the cells of a row, the first of which is aligned as a name."""
    html = ""
    for i, cell in enumerate(cells):
        alignment = _NUMBER_CELL if i else _NAME_CELL
        html += f'<{tag} style="{alignment}{style}">{cell}</{tag}>'
    return html


def _std_rows(expected: ExpectedOutcome) -> list[list[str]]:
    """Return one row of standard deviations, or no row where the model has no noise."""
    if not len(expected.cloud):
        return []
    x, y, yaw = expected.std
    return [["± 1 sd", f"{1e3 * x:.1f}", f"{1e3 * y:.1f}", f"{np.degrees(yaw):.1f}"]]


def _strike_cell(name: str, value: float) -> str:
    """Return a number of a strike in its unit on the page."""
    label = STRIKE_LABELS[name]
    decimals = 2 if label.unit == "m/s" else 1
    return f"{label.scale * value:.{decimals}f}"


def _pose_cells(pose: np.ndarray) -> list[str]:
    """Return the cells of a planar pose (3,), with its yaw wrapped to -180..180 degrees."""
    yaw = np.degrees(wrap_angle(pose[2]))
    return [f"{1e3 * pose[0]:.1f}", f"{1e3 * pose[1]:.1f}", f"{yaw:.1f}"]


def _error_cells(pose: np.ndarray, truth: np.ndarray) -> list[str]:
    """Return the cells of the distance and the angle between two planar poses (3,)."""
    distance, angle = pose_error(pose, truth)
    return [
        f"<b>{1e3 * float(distance):.1f} mm</b>",
        f"<b>{np.degrees(abs(float(angle))):.1f}°</b>",
    ]
