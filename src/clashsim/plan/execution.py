"""A plan as a robot and a person get it: where the tip is at the touch and how fast, the paths of
the arm, and everything as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.outline import at_corner, outline
from clashsim.core.parsing import parse_json
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.plan.path import Limits, Path, strike_path
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, Reach

# M past the touch before the tip brakes: a body that is struck slowly does not go far, and must not
# be hit again
_THROUGH = 0.002
UNITS = {
    "speed": "m/s",
    "point": "rad",
    "turn": "rad",
    "deflection": "rad",
    "offset": "m",
    "yaw": "rad",
}


def touches(scene: Scene, plan: Plan) -> np.ndarray:
    """The striker at each touch, (K, 6): x, y (m), yaw (rad) and their rates, world axes."""
    before, _ = before_from_strikes(scene, dict(zip(plan.names, plan.strikes.T, strict=True)))
    return MotionBefore.of(move_pair_to(before, plan.starts)).striker.rows


def strikes_at_corners(scene: Scene, plan: Plan) -> list[int]:
    """Which strikes, counted from one, touch a corner of the struck body with a round tip."""
    if mujoco.mjtGeom(int(scene.base.geom(scene.striker).type[0])) not in (
        mujoco.mjtGeom.mjGEOM_SPHERE,
        mujoco.mjtGeom.mjGEOM_CAPSULE,
    ):
        return []
    before, _ = before_from_strikes(scene, dict(zip(plan.names, plan.strikes.T, strict=True)))
    tips = move_pair_to(before, np.zeros((len(before), 3)))[
        :, 6:8
    ]  # in the axes of the struck body
    shape = outline(scene, scene.struck, scene.struck_body)
    return [k for k, tip in enumerate(tips, 1) if at_corner(shape, tip)]


def tip_paths(scene: Scene, plan: Plan, limits: Limits = Limits()) -> list[Path]:
    """The arm's path for each strike, at the height of the scene's striker."""
    assert scene.plane is not None
    basis, height = scene.plane, float(scene.striker_body.position @ scene.plane[2])
    return [
        strike_path(
            t[:2] @ basis[:2] + height * basis[2], t[3:5] @ basis[:2], limits, through=_THROUGH
        )
        for t in touches(scene, plan)
    ]


def plan_to_dict(plan: Plan, scene: Scene) -> dict[str, Any]:
    """All of a plan, as JSON holds it; SI units, angles in rad, world axes."""
    task, at = plan.task, touches(scene, plan)
    strikes = [
        {
            "strike": dict(zip(plan.names, map(float, s), strict=True)),
            "from": p.tolist(),
            "to": e.tolist(),
            "touch": t[:2].tolist(),
            "velocity": t[3:5].tolist(),
        }
        for s, p, e, t in zip(plan.strikes, plan.starts, plan.predicted, at, strict=True)
    ]
    return {
        "scene": scene.name,
        "start": list(task.start),
        "target": list(task.target),
        "tau": task.tau,
        "tolerance": list(task.tolerance),
        "reach": vars(task.reach),
        "status": str(plan.status),
        "reason": plan.reason,
        "cost": plan.cost,
        "spread": plan.std.tolist(),
        "evaluations": plan.evaluations,
        "units": {n: UNITS[n] for n in plan.names},
        "strikes": strikes,
    }


def plan_from_json(text: str) -> Plan:
    """A plan from the JSON of its `plan_to_dict`."""
    try:
        found: Mapping[str, Any] = parse_json(text, "it")
    except DataError as error:
        raise DataError(f"this is no plan as `clashsim plan` writes it: {error}") from None
    try:
        names = tuple(found["units"])
        strikes = np.array([[float(s["strike"][n]) for n in names] for s in found["strikes"]])
        ends = np.array([s["to"] for s in found["strikes"]], float)
        reach = Reach(**{k: None if v is None else tuple(v) for k, v in found["reach"].items()})
        task = PlanningTask(
            tuple(found["target"]),
            tuple(found["start"]),
            len(strikes),
            float(found["tau"]),
            tuple(found["tolerance"]),
            reach,
        )
        plan = Plan(
            task,
            names,
            strikes,
            ends,
            np.array(found["spread"], float),
            float(found["cost"]),
            PlanStatus(found["status"]),
            str(found["reason"]),
            int(found["evaluations"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(
            f"this is no plan as `clashsim plan` writes it ({type(error).__name__}: {str(error)[:80]})"
        ) from None
    if (
        ends.shape != (len(strikes), 3)
        or plan.std.shape != (3,)
        or not np.isfinite(np.concatenate([strikes.ravel(), ends.ravel()])).all()
    ):
        raise DataError(
            "this is no plan as `clashsim plan` writes it: it needs finite strikes, the pose after each, and the spread of the last"
        )
    return plan
