"""Files of `clashsim plan --targets`: targets to read, and a plan for each to write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, pose_error

if TYPE_CHECKING:
    from clashsim.core.scene import Scene

_MAX_TARGETS = 1_000_000
_POSE = ("x", "y", "yaw")
_START = tuple(f"start_{name}" for name in _POSE)
_EXPECTED = tuple(f"expected_{name}" for name in _POSE)
_STD = tuple(f"sd_{name}" for name in _POSE)
_PROBABILITY = "probability"


def read_targets(path: Path, task: PlanningTask) -> list[PlanningTask]:
    """Read targets of a .csv file.

    Args:
        path: File with the columns x, y (m), yaw (degrees), and start_x, start_y, start_yaw if
            bodies lie at different places.
        task: What the tasks share; its start is used where the file has none.

    Returns:
        One task per row.
    """
    if path.suffix != ".csv":
        raise DataError(
            "targets are a .csv file with the columns x, y (m) and yaw (degrees), "
            f"got {str(path)!r}"
        )
    rows = _read_rows(path)
    has_starts = _check_columns(path, rows[0])
    tasks = []
    first_line = 2  # the header is line 1
    for line, row in enumerate(rows, start=first_line):
        try:
            target = _pose(row, _POSE)
            start = _pose(row, _START) if has_starts else task.start
            tasks.append(replace(task, target=target, start=start))
        except (TypeError, ValueError) as error:
            raise DataError(f"line {line} of {path.name} is no target: {error}") from None
    return tasks


def summary(plans: Sequence[Plan]) -> list[str]:
    """Sentences on how many targets are reached, and how closely."""
    found = [plan for plan in plans if plan.status is not PlanStatus.OUT_OF_REACH]
    counts = []
    for number in (1, 2, 3):
        count = sum(len(plan.strikes) == number for plan in found)
        counts.append(f"{count} with {number} strike{'s' if number > 1 else ''}")
    is_unreliable = any(plan.status is PlanStatus.UNRELIABLE for plan in plans)
    reached = "would be reached if the model were right" if is_unreliable else "are reached"
    sentences = [f"{len(found)} of {len(plans)} targets {reached}: {', '.join(counts)}"]
    known = [plan.probability for plan in plans if plan.probability is not None]
    if known:
        sentences.append(
            f"{sum(known):.1f} of them are expected to end within the tolerance: the sum of their "
            "probabilities"
        )
    if found:
        rests = np.array([plan.predicted[-1] for plan in found])
        targets = np.array([plan.task.target for plan in found])
        distances, angles = pose_error(rests, targets)
        sentences.append(
            f"their rest poses are expected {1e3 * np.median(distances):.1f} mm and "
            f"{np.degrees(np.median(np.abs(angles))):.1f} degrees from the target (medians)"
        )
    return sentences


def write_plans(path: Path, plans: Sequence[Plan], scene: Scene) -> None:
    """Write plans as CSV, one line per target, or as JSON, by the ending of the file.

    Args:
        path: File to write, .csv or .json.
        plans: One per target.
        scene: Scene of the run.
    """
    from clashsim.plan.execution import plan_to_dict

    if path.suffix == ".csv":
        write_atomic(path, _csv(plans))
        return
    content = [plan_to_dict(plan, scene) for plan in plans]
    write_atomic(path, (json.dumps(content) + "\n").encode())


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV file by the names in its header; at least one."""
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in islice(csv.DictReader(file), _MAX_TARGETS + 1):
                rows.append({str(name).strip(): value for name, value in row.items()})
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = type(error).__name__
        raise DataError(f"the targets {str(path)!r} cannot be read ({reason})") from None
    if not rows or len(rows) > _MAX_TARGETS:
        raise DataError(f"{path.name} must hold 1 to {_MAX_TARGETS} targets below a header x,y,yaw")
    return rows


def _check_columns(path: Path, row: Mapping[str, Any]) -> bool:
    """Refuse a table that lacks columns; returns whether it has the columns of the starts."""
    missing = [name for name in _POSE if name not in row]
    if missing:
        columns = "columns" if len(missing) > 1 else "column"
        raise DataError(
            f"{path.name} lacks the {columns} {', '.join(missing)}: "
            "its header must name x, y (m) and yaw (degrees)"
        )
    starts = [name for name in _START if name in row]
    if starts and len(starts) < len(_START):
        raise DataError(
            f"{path.name} has {', '.join(starts)} alone: starts need all of {', '.join(_START)}"
        )
    return bool(starts)


def _pose(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[float, float, float]:
    """x, y (m) and yaw (rad) from columns with yaw in degrees."""
    x, y, yaw = (float(row[name]) for name in columns)
    return x, y, float(np.radians(yaw))


def _csv(plans: Sequence[Plan]) -> bytes:
    """One line per target; strikes that a shorter plan does not have are empty."""
    names = plans[0].names
    most_strikes = max(len(plan.strikes) for plan in plans)
    strike_columns = []
    for number in range(1, most_strikes + 1):
        strike_columns += [f"{name}_{number}" for name in names]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [*_START, *_POSE, "status", "strikes", *strike_columns, *_EXPECTED, *_STD]
    writer.writerow([*header, _PROBABILITY])
    for plan in plans:
        strikes = [f"{value:.9g}" for value in plan.strikes.ravel()]
        strikes += [""] * (len(strike_columns) - len(strikes))
        writer.writerow(
            [
                *_pose_cells(plan.task.start),
                *_pose_cells(plan.task.target),
                plan.status,
                len(plan.strikes),
                *strikes,
                *_pose_cells(plan.predicted[-1]),  # at rest after the last strike
                *_pose_cells(plan.std),
                "" if plan.probability is None else f"{plan.probability:.4g}",
            ]
        )
    return text.getvalue().encode()


def _pose_cells(pose: Sequence[float] | np.ndarray) -> list[str]:
    """Cells x, y (m) and yaw (degrees) of a pose (3,) with yaw in rad."""
    x, y, yaw = pose
    return [f"{value:.9g}" for value in (x, y, np.degrees(yaw))]
