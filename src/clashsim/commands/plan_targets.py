"""`clashsim plan --targets`: a plan for each row of a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import engine, refuse_file
from clashsim.core.errors import DataError
from clashsim.core.executor import map_items
from clashsim.core.files import write_atomic
from clashsim.core.progress import bar
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, pose_error

if TYPE_CHECKING:
    from clashsim.cli import Plan as PlanVerb
    from clashsim.core.scene import Scene
    from clashsim.nets.strike_table import StrikeTable

_PART = 1024  # targets in one batch; fixed, so that plans do not depend on the number of workers
_WIDE = {
    "population": 96,
    "rounds": 48,
}  # a batch is cheap, and of targets that can be reached it finds 99 in 100 rather than 94
_COLUMNS = ("x", "y", "yaw")
_MOST = 1_000_000  # targets of a file


@dataclass(frozen=True)
class _Part:
    """Plans for some of the tasks; the map is made once in each process."""

    run: Path
    options: tuple[tuple[str, Any], ...]
    few: bool

    @cached_property
    def model(self) -> StrikeTable:
        from clashsim.fit.run_folder import load

        return load(self.run).strikes()

    def __call__(self, tasks: Sequence[PlanningTask]) -> list[Plan]:
        from clashsim.plan.planner import (
            PlannerConfig,
            plan_batch,
            plan_fewest_strikes_batch,
        )

        return (plan_fewest_strikes_batch if self.few else plan_batch)(
            self.model, tasks, PlannerConfig(**dict(self.options))
        )


def run(verb: PlanVerb, scene: Scene, task: PlanningTask, options: dict[str, Any]) -> None:
    """Plans for all rows, from the start and with the reach of `task`."""
    assert verb.targets is not None
    if verb.out is not None:
        refuse_file(verb.out, (".csv", ".json"), overwrite=verb.overwrite)
    tasks = read_targets(verb.targets, task)
    work = _Part(
        verb.run,
        tuple((options | _WIDE | {"device": verb.device or "cpu"}).items()),
        verb.strikes is None,
    )
    parts = [tasks[i : i + _PART] for i in range(0, len(tasks), _PART)]
    found: list[list[Plan]] = [[] for _ in parts]
    with engine(verb.where) as run_on, bar("planning", len(tasks)) as advance:
        for i, plans in map_items(run_on, work, parts):
            found[i] = plans
            advance(len(plans))
    plans = [p for part in found for p in part]
    there = [p for p in plans if p.status is PlanStatus.FOUND]
    print(
        f"{len(there)} of {len(plans)} targets are reached: "
        + ", ".join(
            f"{sum(len(p.strikes) == k for p in there)} with {k} strike{'s' if k > 1 else ''}"
            for k in (1, 2, 3)
        )
    )
    if there:
        far, turn = pose_error(
            np.array([p.predicted[-1] for p in there]), np.array([p.task.target for p in there])
        )
        print(
            f"there, bodies are expected {1e3 * np.median(far):.1f} mm and {np.degrees(np.median(np.abs(turn))):.1f} degrees from the target (medians)"
        )
    if verb.out is not None:
        write_atomic(verb.out, _csv(plans) if verb.out.suffix == ".csv" else _json(plans, scene))
        print(f"written to {verb.out}")


def read_targets(path: Path, task: PlanningTask) -> list[PlanningTask]:
    """Tasks like `task` with the targets of a .csv file: columns x, y (m), yaw (degrees), and
    start_x, start_y, start_yaw if bodies lie at different places.
    """
    if path.suffix != ".csv":
        raise DataError(
            f"targets are a .csv file with the columns x, y (m) and yaw (degrees), got {str(path)!r}"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [
                {str(k).strip(): v for k, v in row.items()}
                for _, row in zip(range(_MOST + 1), csv.DictReader(file), strict=False)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"the targets {str(path)!r} cannot be read ({type(error).__name__})"
        ) from None
    if not rows or len(rows) > _MOST:
        raise DataError(f"{path.name} must hold 1 to {_MOST} targets below a header x,y,yaw")
    if missing := [c for c in _COLUMNS if c not in rows[0]]:
        raise DataError(
            f"{path.name} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: its header must name x, y (m) and yaw (degrees)"
        )
    starts = tuple(f"start_{c}" for c in _COLUMNS)
    moved = [c for c in starts if c in rows[0]]
    if moved and len(moved) < 3:
        raise DataError(
            f"{path.name} has {', '.join(moved)} alone: starts need all of {', '.join(starts)}"
        )
    out = []
    for number, row in enumerate(rows, 2):
        try:
            target, start = _pose(row, _COLUMNS), _pose(row, starts) if moved else task.start
            out.append(replace(task, target=target, start=start))
        except (TypeError, ValueError) as error:
            raise DataError(f"line {number} of {path.name} is no target: {error}") from None
    return out


def _pose(row: dict[str, Any], columns: Sequence[str]) -> tuple[float, float, float]:
    x, y, yaw = (float(row[c]) for c in columns)
    return x, y, float(np.radians(yaw))


def _csv(plans: Sequence[Plan]) -> bytes:
    """One line a target; what a plan with fewer strikes does not have is empty."""
    most, names = max(len(p.strikes) for p in plans), plans[0].names
    poses = [[f"{w}{c}" for c in _COLUMNS] for w in ("start_", "", "expected_", "sd_")]
    header = [
        *poses[0],
        *poses[1],
        "status",
        "strikes",
        *(f"{n}_{k + 1}" for k in range(most) for n in names),
        *poses[2],
        *poses[3],
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for p in plans:
        strikes = [f"{v:.9g}" for v in p.strikes.ravel()] + [""] * (
            len(names) * (most - len(p.strikes))
        )
        poses = [
            [f"{v:.9g}" for v in (*pose[:2], np.degrees(pose[2]))]
            for pose in (p.task.start, p.task.target, p.predicted[-1], p.std)
        ]
        writer.writerow(
            [*poses[0], *poses[1], p.status, len(p.strikes), *strikes, *poses[2], *poses[3]]
        )
    return text.getvalue().encode()


def _json(plans: Sequence[Plan], scene: Scene) -> bytes:
    """What clashsim plan writes of one target, as a list."""
    from clashsim.plan.execution import plan_to_dict

    return (json.dumps([plan_to_dict(p, scene) for p in plans]) + "\n").encode()
