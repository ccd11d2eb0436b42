"""Trials and the impacts found in them, as pictures and as a table for the terminal."""

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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BODY_COLOURS = ("#00798c", "#b0b0b0", "#edae49", "#6a4c93")
_IMPACT_COLOUR = "#d1495b"
_FLAGGED_COLOUR = "#edae49"
_FIGURE_WIDTH = 13  # inches
_PANEL_HEIGHT = 2.9  # inches
_MAX_TITLED = 3  # the most impacts that the title of a panel states
_MAX_TRIALS = 24  # in one picture; an HTML page has room for all
_FORMATS = ("png", "svg", "pdf", "html")
# A speed is the distance between two frames so far apart, divided by their time: between successive
# frames, the noise of positions would dominate.
_SPEED_FRAMES = 3
_STYLE = "body{font:15px sans-serif;max-width:1100px;margin:2em auto}img{width:100%}li{margin:.2em}"


class FoundImpact(Protocol):
    """An impact that was found in a trial.

    Attributes:
        trial: Name of the trial.
        time: Time of the impact in the trial, s.
        after: Twist of the struck body after the impact, (k,), m/s and rad/s.
        flags: Reasons to doubt the impact, in words.
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
    impacts: Sequence[FoundImpact] = (),
    *,
    struck: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Draw trials to a picture, or to a self-contained HTML page with notes.

    Each trial has three panels: the paths of all bodies from above, and the speed and the yaw of
    the struck body over time, with the impacts found and the speed measured after each.

    Args:
        path: A .png, .svg, .pdf or .html file.
        trials: Trials to draw; a picture has room for the first 24.
        impacts: Impacts found in the trials.
        struck: Name of the struck body; the first body if None.
        notes: Sentences at the head of an HTML page.
    """
    if len(trials) == 0:
        raise DataError("there are no trials to draw")
    file_format = path.suffix.lower().lstrip(".")
    if file_format not in _FORMATS:
        raise DataError(
            f"a picture of trials can be a .png, .svg, .pdf or .html file, not {path.name!r}"
        )
    by_trial = _group_by_trial(impacts)
    if file_format == "html":
        page = _html_page(trials, by_trial, struck, notes)
        write_atomic(path, page.encode())
        return
    figure = _draw_figure(list(trials)[:_MAX_TRIALS], by_trial, struck)
    write_atomic(path, _to_bytes(figure, file_format))


def _html_page(
    trials: Trials | Sequence[Trial],
    impacts: Mapping[str, Sequence[FoundImpact]],
    struck: str | None,
    notes: Sequence[str],
) -> str:
    """The page: notes, then a picture of each trial; `impacts` are by the name of the trial."""
    num_impacts = sum(len(of_trial) for of_trial in impacts.values())
    head = f"<h1>{len(trials)} trials, {num_impacts} impacts</h1>"
    if notes:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        head += f"<ul>{items}</ul>"
    images = []
    for trial in trials:
        figure = _draw_figure([trial], impacts, struck)
        content = base64.b64encode(_to_bytes(figure, "png")).decode()
        name = html.escape(trial.name)
        images.append(f'<img alt="trial {name}" src="data:image/png;base64,{content}">')
    rows = "\n".join(images)
    return (
        '<!doctype html><meta charset="utf-8"><title>Trials</title>'
        f"<style>{_STYLE}</style>{head}{rows}\n"
    )


def trials_table(trials: Trials | Sequence[Trial], impacts: Sequence[FoundImpact] = ()) -> Table:
    """A table with a row per trial.

    Columns are the trial's duration, its frame rate, the share of frames in which each body was
    seen, and the impacts found.

    Args:
        trials: The trials.
        impacts: Impacts found in the trials.
    """
    bodies = list(dict.fromkeys(body for trial in trials for body in trial.poses))
    by_trial = _group_by_trial(impacts)
    table = Table(title=f"{len(trials)} trials, {len(impacts)} impacts", title_justify="left")
    text_columns = ("trial", "source", "flags")
    columns = (
        "trial",
        "source",
        "s",
        "frames/s",
        *(f"{body} seen" for body in bodies),
        "impacts at, s",
        "speed after, m/s",
        "flags",
    )
    for name in columns:
        table.add_column(name, justify="left" if name in text_columns else "right", overflow="fold")
    for trial in trials:
        found = by_trial.get(trial.name, [])
        flags = dict.fromkeys(flag for impact in found for flag in impact.flags)
        table.add_row(
            trial.name,
            trial.source,
            f"{trial.t[-1] - trial.t[0]:.2f}",
            f"{1 / np.median(np.diff(trial.t)):.0f}",
            *(_seen_share(trial, body) for body in bodies),
            ", ".join(f"{impact.time:.3f}" for impact in found) or "none",
            ", ".join(_speed_text(impact.after) for impact in found) or "-",
            "; ".join(flags),
        )
    return table


def _seen_share(trial: Trial, body: str) -> str:
    """Percentage of frames in which a body was seen; "-" if the trial does not have it."""
    if body not in trial.poses:
        return "-"
    seen = np.isfinite(trial.poses[body]).all(1)
    return f"{100 * seen.mean():.0f} %"


def _group_by_trial(impacts: Sequence[FoundImpact]) -> dict[str, list[FoundImpact]]:
    by_trial: dict[str, list[FoundImpact]] = {}
    for impact in impacts:
        by_trial.setdefault(str(impact.trial), []).append(impact)
    return by_trial


def _speed(twist: np.ndarray) -> float:
    """Speed (m/s) of a planar (3,) or spatial (6,) twist."""
    num_linear = 2 if len(twist) == 3 else 3
    return float(np.linalg.norm(twist[:num_linear]))


def _speed_text(twist: np.ndarray) -> str:
    """The speed of a twist in m/s; the angular speed where a hinge does not let the origin move."""
    speed = _speed(twist)
    if np.isfinite(speed):
        return f"{speed:.3f}"
    num_linear = 2 if len(twist) == 3 else 3
    return f"{np.linalg.norm(twist[num_linear:]):.2f} rad/s"


def _draw_figure(
    trials: Sequence[Trial], impacts: Mapping[str, Sequence[FoundImpact]], struck: str | None
) -> Figure:
    """A figure with a row of three panels for each trial."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_FIGURE_WIDTH, _PANEL_HEIGHT * len(trials)), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    panel_rows = figure.subplots(len(trials), 3, squeeze=False)
    for (above, speed, rotation), trial in zip(panel_rows, trials, strict=True):
        body = struck if struck is not None else next(iter(trial.poses))
        found = impacts.get(trial.name, ())
        _draw_paths(above, trial, body, found)
        _draw_motion(speed, rotation, trial, body)
        _mark_impacts(speed, rotation, found)
    return figure


def _draw_paths(axes: Axes, trial: Trial, struck: str, impacts: Sequence[FoundImpact]) -> None:
    """Draw the paths of all bodies from above, with circles at the struck body at each impact."""
    colours = _BODY_COLOURS * len(trial.poses)  # repeated, so that there are enough
    for colour, body in zip(colours, trial.poses, strict=False):
        _, pose = trial.seen(body)
        axes.plot(
            pose[:, 0], pose[:, 1], ".-", color=colour, markersize=2, linewidth=0.8, label=body
        )
    t, pose = trial.seen(struck)
    if len(t):
        for impact in impacts:
            x = np.interp(impact.time, t, pose[:, 0])
            y = np.interp(impact.time, t, pose[:, 1])
            axes.scatter(x, y, s=40, facecolors="none", edgecolors=_IMPACT_COLOUR, zorder=3)
    # With equal scales, matplotlib would shrink the panel of a straight path to a line. "datalim"
    # widens the limits of the axes instead.
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xlabel="x, m", ylabel="y, m", title=f"trial {trial.name}")
    axes.legend(frameon=False, fontsize=8)


def _draw_motion(speed_axes: Axes, yaw_axes: Axes, trial: Trial, body: str) -> None:
    """Draw speed and yaw of a body over time."""
    speed_axes.set(xlabel="t, s", ylabel=f"speed of {body}, m/s")
    yaw_axes.set(xlabel="t, s", ylabel=f"yaw of {body}, rad")
    t, pose = trial.seen(body)
    if len(t) <= _SPEED_FRAMES:
        return
    step = _SPEED_FRAMES
    distance = np.linalg.norm(pose[step:, :3] - pose[:-step, :3], axis=1)
    speed = distance / (t[step:] - t[:-step])
    mid_times = 0.5 * (t[step:] + t[:-step])
    speed_axes.plot(mid_times, speed, color=_BODY_COLOURS[0], linewidth=0.9)
    yaw_axes.plot(t, yaw(pose[:, 3:]), ".", color=_BODY_COLOURS[0], markersize=2)


def _mark_impacts(speed_axes: Axes, yaw_axes: Axes, impacts: Sequence[FoundImpact]) -> None:
    """Draw lines at the times of impacts, and the speed measured after each."""
    for axes in (speed_axes, yaw_axes):
        for impact in impacts:
            colour = _FLAGGED_COLOUR if impact.flags else _IMPACT_COLOUR
            axes.axvline(impact.time, color=colour, linewidth=1)
    times = [impact.time for impact in impacts]
    speeds = [_speed(impact.after) for impact in impacts]
    label = "found" if impacts else None
    speed_axes.scatter(times, speeds, s=18, color=_IMPACT_COLOUR, zorder=3, label=label)
    titles = []
    for impact in impacts[:_MAX_TITLED]:
        titles.append(f"{_speed(impact.after):.2f} m/s after {impact.time:.3f} s")
    speed_axes.set_title(", ".join(titles) or "no impact found", fontsize=9)


def _to_bytes(figure: Figure, file_format: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=110)
    return content.getvalue()
