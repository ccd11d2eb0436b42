"""Which restitution MuJoCo can represent: asked against obtained in drops, over time steps.

A contact is given a number of time steps, and `clashsim.contact_parameters` finds its damping. What
remains is the error that depends on when within a time step the bodies touch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.core.contact_spring import ContactSpring, SolrefForm, constant_solimp
from clashsim.core.errors import ParamError
from clashsim.report.figure_files import write_figure
from clashsim.sim.mujoco.contact_parameters import (
    STEPS_OF_CONTACT,
    ContactRequest,
    contact_behaviour,
    contact_parameters,
    numbers,
)
from clashsim.sim.mujoco.drop import DropConditions

OPTIONS: frozenset[str] = frozenset()
_TIMESTEPS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3)  # s
_RESTITUTIONS = (0.05, *(round(0.1 * k, 1) for k in range(1, 10)), 0.95)
_STEPS = (6, 10, STEPS_OF_CONTACT)  # of a contact
_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_FORMS: tuple[SolrefForm, ...] = ("direct", "timeconst")
_ANY_ERROR = 0.999  # tolerance with which nothing is refused
_QUICK_TIMESTEPS = (2e-3,)
_QUICK_RESTITUTIONS = (0.3, 0.9)
_NEAREST = "nearest that MuJoCo gives: "  # in the sentence of a refusal


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure asked against obtained restitution, and restitution over the damping ratio.

    Args:
        options: Only `quick` and what is done with the rows.

    Returns:
        Rows of timestep_ms, steps (of the undamped contact), asked; obtained with low and high over
        a time step; contact_ms and penetration_mm at 1 m/s; solref; and refused: where `clashsim
        contact` refuses, the nearest that it names. Then rows of ratio (of damping) with the
        restitution in both forms of solref.
    """
    rows: list[Row] = []
    timesteps = _QUICK_TIMESTEPS if options.quick else _TIMESTEPS
    restitutions = _QUICK_RESTITUTIONS if options.quick else _RESTITUTIONS
    for timestep in timesteps:
        for steps in _STEPS:
            for asked in restitutions:
                head: Row = {"timestep_ms": 1e3 * timestep, "steps": steps, "asked": asked}
                with optional(rows, **head):
                    rows.append(head | _obtained(asked, timestep, steps))
            options.save(rows)
    for ratio in _RATIOS:
        with optional(rows, ratio=ratio):
            rows.append({"ratio": ratio} | _of_ratio(ratio))
    return rows


def _obtained(asked: float, timestep: float, steps: int) -> Row:
    """What drops result in, and whether `clashsim contact` refuses."""
    conditions = DropConditions(timestep=timestep)
    # A mass of 1 kg and the stiffness of an undamped contact of this duration.
    stiffness = (math.pi / (steps * timestep)) ** 2
    request = ContactRequest(asked, mass=1.0, stiffness=stiffness, conditions=conditions)
    try:
        found = contact_parameters(request)
        refused = ""
    except ParamError as error:
        refused = str(error).split(_NEAREST)[-1]
        found = contact_parameters(
            ContactRequest(
                asked, mass=1.0, stiffness=stiffness, tolerance=_ANY_ERROR, conditions=conditions
            )
        )
    drops = found.drops
    return {
        "obtained": float(drops.restitution.mean()),
        "low": float(drops.restitution.min()),
        "high": float(drops.restitution.max()),
        "contact_ms": 1e3 * float(drops.contact_time.mean()),
        "penetration_mm": 1e3 * float(drops.penetration.max()),
        "solref": numbers(found.solref),
        "refused": refused,
    }


def _of_ratio(ratio: float) -> Row:
    """Restitution with a damping ratio, in both forms of solref, with and without gravity."""
    row: Row = {}
    for name, gravity in (("", 9.81), ("_weightless", 0.0)):
        conditions = DropConditions(gravity=gravity)
        spring = ContactSpring(math.pi / (STEPS_OF_CONTACT * conditions.timestep), ratio)
        for form in _FORMS:
            found = contact_behaviour(
                spring.solref(form, conditions.timestep), constant_solimp(), conditions=conditions
            )
            row[f"{form}{name}"] = float(found.drops.restitution.mean())
    return row


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw asked against obtained restitution by time steps per contact, and over damping ratio.

    Args:
        rows: Rows that `run` returned.
        path: Where the picture is written.
    """
    from matplotlib.figure import Figure

    drops = [row for row in rows if "obtained" in row]
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    all_steps = sorted({row["steps"] for row in drops})
    panels = np.atleast_1d(figure.subplots(1, len(all_steps) + 1))
    for axes, steps in zip(panels, all_steps, strict=False):
        axes.plot([0, 1], [0, 1], color="#8a949e", linewidth=0.8, linestyle="--")
        for timestep, colour in ((0.1, "#00708a"), (2.0, "#d9622b"), (5.0, "#16202b")):
            own = [
                row
                for row in drops
                if row["steps"] == steps and math.isclose(row["timestep_ms"], timestep)
            ]
            asked = [row["asked"] for row in own]
            below = [row["obtained"] - row["low"] for row in own]
            above = [row["high"] - row["obtained"] for row in own]
            axes.errorbar(
                asked,
                [row["obtained"] for row in own],
                yerr=[below, above],
                fmt="o",
                markersize=3,
                color=colour,
                capsize=2,
                linewidth=1,
                label=f"{timestep:g} ms",
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.1), xlabel="restitution asked for")
        axes.set_title(f"contact of {steps} time steps", fontsize=10)
    panels[0].set_ylabel("obtained in a drop at 1 m/s")
    panels[0].legend(title="time step", frameon=False, fontsize=8)
    _plot_ratio(panels[-1], [row for row in rows if "direct" in row])
    write_figure(path, figure, dpi=110)


def _plot_ratio(axes: Any, rows: Sequence[Row]) -> None:
    """Draw restitution over the damping ratio for both forms of solref."""
    for key, colour, style, label in (
        ("direct", "#00708a", "-", "-stiffness -damping"),
        ("timeconst", "#d9622b", ":", "timeconst dampratio"),
        ("direct_weightless", "#8a949e", "-", "without gravity"),
    ):
        axes.plot(
            [row["ratio"] for row in rows],
            [row[key] for row in rows],
            color=colour,
            linestyle=style,
            linewidth=3 if style == ":" else 1.5,
            label=label,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.1), xlabel="damping ratio")
    axes.set_title("both forms of solref, 2 ms", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
