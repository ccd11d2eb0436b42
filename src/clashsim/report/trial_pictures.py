"""A look at trials: what was recorded, and which impacts were found in it, as pictures and as a
table.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from rich.table import Table

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.trials import Trial, Trials, yaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#00798c", "#b0b0b0", "#edae49", "#6a4c93")
_HIT, _DOUBT = "#d1495b", "#edae49"
_MOST = 24  # trials in one picture; a page in HTML has room for all


class Hit(Protocol):
    """An impact that was found: in which trial, when (s), the twist of the struck body after it
    (k,), and what to know about it.
    """

    @property
    def trial(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def after(self) -> np.ndarray: ...
    @property
    def flags(self) -> Sequence[str]: ...


def draw_trials(
    path: Path,
    trials: Trials | Sequence[Trial],
    hits: Sequence[Hit] = (),
    *,
    struck: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Draw trials to a .png, .svg or .pdf picture, or to a self-contained .html page with the
    notes.

    One row a trial: paths of all bodies from above, speed of the struck body (default: the first)
    and its turn about z over time, with the impacts found and the speed measured after each.
    """
    if len(trials) == 0:
        raise DataError("there are no trials to draw")
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "pdf", "html"):
        raise DataError(
            f"a picture of trials can be a .png, .svg, .pdf or .html file, not {path.name!r}"
        )
    by_trial = _grouped(hits)
    if kind != "html":
        write_atomic(path, _drawn(_figure(list(trials)[:_MOST], by_trial, struck), kind))
        return
    drawn = [
        (t.name, base64.b64encode(_drawn(_figure([t], by_trial, struck), "png")).decode())
        for t in trials
    ]
    rows = "\n".join(
        f'<img alt="trial {html.escape(name)}" src="data:image/png;base64,{content}">'
        for name, content in drawn
    )
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    head = f"<h1>{len(trials)} trials, {len(hits)} impacts</h1>" + (
        f"<ul>{said}</ul>" if said else ""
    )
    style = (
        "body{font:15px sans-serif;max-width:1100px;margin:2em auto}img{width:100%}li{margin:.2em}"
    )
    write_atomic(
        path,
        f'<!doctype html><meta charset="utf-8"><title>Trials</title><style>{style}</style>{head}{rows}\n'.encode(),
    )


def trials_table(trials: Trials | Sequence[Trial], hits: Sequence[Hit] = ()) -> Table:
    """One row a trial: how long, how fast, how much of each body was seen, and the impacts found."""
    bodies = list(dict.fromkeys(body for trial in trials for body in trial.poses))
    by_trial = _grouped(hits)
    out = Table(title=f"{len(trials)} trials, {len(hits)} impacts", title_justify="left")
    for name in (
        "trial",
        "source",
        "s",
        "frames/s",
        *(f"{body} seen" for body in bodies),
        "impacts at, s",
        "speed after, m/s",
        "flags",
    ):
        out.add_column(
            name,
            justify="left" if name in ("trial", "source", "flags") else "right",
            overflow="fold",
        )
    for trial in trials:
        mine = by_trial.get(trial.name, [])
        seen = [
            f"{100 * np.isfinite(trial.poses[body]).all(1).mean():.0f} %"
            if body in trial.poses
            else "-"
            for body in bodies
        ]
        out.add_row(
            trial.name,
            trial.source,
            f"{trial.t[-1] - trial.t[0]:.2f}",
            f"{1 / np.median(np.diff(trial.t)):.0f}",
            *seen,
            ", ".join(f"{h.time:.3f}" for h in mine) or "none",
            ", ".join(f"{_speed(h.after):.3f}" for h in mine) or "-",
            "; ".join(dict.fromkeys(flag for h in mine for flag in h.flags)),
        )
    return out


def _grouped(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    out: dict[str, list[Hit]] = {}
    for hit in hits:
        out.setdefault(str(hit.trial), []).append(hit)
    return out


def _speed(twist: np.ndarray) -> float:
    """Speed (m/s) of a planar (3,) or spatial (6,) twist."""
    return float(np.linalg.norm(twist[: 2 if len(twist) == 3 else 3]))


def _figure(
    trials: Sequence[Trial], hits: Mapping[str, Sequence[Hit]], struck: str | None
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 2.9 * len(trials)), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    for (above, pace, turn), trial in zip(
        figure.subplots(len(trials), 3, squeeze=False), trials, strict=True
    ):
        main = struck if struck is not None else next(iter(trial.poses))
        found = hits.get(trial.name, ())
        for colour, body in zip(_COLOURS * len(trial.poses), trial.poses, strict=False):
            _, pose = trial.seen(body)
            above.plot(
                pose[:, 0], pose[:, 1], ".-", color=colour, markersize=2, linewidth=0.8, label=body
            )
        t, pose = trial.seen(main)
        where = [[np.interp(h.time, t, c) for c in pose[:, :2].T] for h in found] if len(t) else []
        above.scatter(
            *np.array(where).reshape(-1, 2).T, s=40, facecolors="none", edgecolors=_HIT, zorder=3
        )
        above.set_aspect(
            "equal", adjustable="datalim"
        )  # a straight path would squeeze the panel to a line
        above.set(xlabel="x, m", ylabel="y, m", title=f"trial {trial.name}")
        above.legend(frameon=False, fontsize=8)
        for axes, label in ((pace, f"speed of {main}, m/s"), (turn, f"yaw of {main}, rad")):
            for hit in found:
                axes.axvline(hit.time, color=_DOUBT if hit.flags else _HIT, linewidth=1)
            axes.set(xlabel="t, s", ylabel=label)
        if len(t) > 3:
            step = min(3, len(t) - 1)
            speed = np.linalg.norm(pose[step:, :3] - pose[:-step, :3], axis=1) / (
                t[step:] - t[:-step]
            )
            pace.plot(0.5 * (t[step:] + t[:-step]), speed, color=_COLOURS[0], linewidth=0.9)
            turn.plot(t, yaw(pose[:, 3:]), ".", color=_COLOURS[0], markersize=2)
        pace.scatter(
            [h.time for h in found],
            [_speed(h.after) for h in found],
            s=18,
            color=_HIT,
            zorder=3,
            label="found" if found else None,
        )
        pace.set_title(
            ", ".join(f"{_speed(h.after):.2f} m/s after {h.time:.3f} s" for h in found[:3])
            or "no impact found",
            fontsize=9,
        )
    return figure


def _drawn(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=110)
    return content.getvalue()
