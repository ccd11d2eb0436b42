"""Plans for execution: the striker at each contact, the arm's tip paths, and plans as JSON."""

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
from clashsim.plan.path import Limits, PathConfig, TipPath, strike_path
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, Reach

# Metres at constant velocity past the contact before the tip brakes. Short, because a body that is
# struck slowly does not slide far and must not be hit a second time.
_FOLLOW_THROUGH = 0.002
_ROUND_TIPS = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE)
_POSITION = slice(0, 2)  # columns of `touches`
_VELOCITY = slice(3, 5)  # columns of `touches`
_NOT_A_PLAN = "this is no plan as `clashsim plan` writes it"
UNITS = {
    "speed": "m/s",
    "point": "rad",
    "turn": "rad",
    "deflection": "rad",
    "offset": "m",
    "yaw": "rad",
    "spin": "rad/s",
}


def touches(scene: Scene, plan: Plan) -> np.ndarray:
    """Return the striker's state at each contact, (K, 6) in world axes.

    Args:
        scene: The scene that was planned in.
        plan: K strikes.

    Returns:
        Columns x, y (m), yaw (rad), then their rates (m/s, rad/s).
    """
    pair = move_pair_to(_pair_at_contact(scene, plan), plan.starts)
    return MotionBefore.of(pair).striker.rows


def strikes_at_corners(scene: Scene, plan: Plan) -> list[int]:
    """Return which strikes, counted from one, hit a corner of the struck body with a round tip."""
    tip_type = mujoco.mjtGeom(int(scene.base.geom(scene.striker).type[0]))
    if tip_type not in _ROUND_TIPS:
        return []
    pair = _pair_at_contact(scene, plan)
    at_origin = np.zeros((len(pair), 3))  # so that the world's axes are those of the struck body
    in_body_frame = MotionBefore.of(move_pair_to(pair, at_origin))
    shape = outline(scene, scene.struck, scene.struck_body)
    tips = in_body_frame.striker.position
    return [k for k, tip in enumerate(tips, 1) if at_corner(shape, tip)]


def tip_paths(scene: Scene, plan: Plan, limits: Limits = Limits()) -> list[TipPath]:
    """Return the arm's path for each strike, at the height of the scene's striker.

    Args:
        scene: The scene that was planned in.
        plan: The strikes.
        limits: Speed, acceleration and jerk that the arm allows.
    """
    assert scene.plane is not None
    plane_axes = scene.plane[:2]
    normal = scene.plane[2]
    height = float(scene.striker_body.position @ normal)
    config = PathConfig(through=_FOLLOW_THROUGH)
    paths = []
    for touch in touches(scene, plan):
        position = touch[_POSITION] @ plane_axes + height * normal
        velocity = touch[_VELOCITY] @ plane_axes
        paths.append(strike_path(position, velocity, limits, config=config))
    return paths


def plan_to_dict(plan: Plan, scene: Scene) -> dict[str, Any]:
    """Return a plan as its JSON file holds it: SI units, angles in rad, world axes."""
    task = plan.task
    rows = zip(plan.strikes, plan.starts, plan.predicted, touches(scene, plan), strict=True)
    strikes = []
    for strike, start, end, touch in rows:
        strikes.append(
            {
                "strike": dict(zip(plan.names, map(float, strike), strict=True)),
                "from": start.tolist(),
                "to": end.tolist(),
                "touch": touch[_POSITION].tolist(),
                "velocity": touch[_VELOCITY].tolist(),
            }
        )
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
        "probability": plan.probability,
        "evaluations": plan.evaluations,
        "units": {name: UNITS[name] for name in plan.names},
        "strikes": strikes,
    }


def plan_from_json(text: str) -> Plan:
    """Return the plan from the JSON of `plan_to_dict`."""
    try:
        content: Mapping[str, Any] = parse_json(text, "it")
    except DataError as error:
        raise DataError(f"{_NOT_A_PLAN}: {error}") from None
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind in ("throw", "strike"):
        raise DataError(
            f"this is a {kind} in space, and the laboratory executes strikes in a plane: launch "
            "the body with the position, velocity and angular_velocity of its plan.json"
        )
    try:
        plan = _plan_from_dict(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(f"{_NOT_A_PLAN} ({type(error).__name__}: {str(error)[:80]})") from None
    numbers = np.concatenate([plan.strikes.ravel(), plan.predicted.ravel()])
    has_probability = plan.probability is None or 0 <= plan.probability <= 1
    has_right_shapes = plan.predicted.shape == (len(plan.strikes), 3) and plan.std.shape == (3,)
    if not (has_right_shapes and has_probability and np.isfinite(numbers).all()):
        raise DataError(
            f"{_NOT_A_PLAN}: it needs finite strikes, the pose after each, the standard deviation "
            "of the last (spread), and a probability of 0 to 1 if there is one"
        )
    return plan


def _plan_from_dict(content: Mapping[str, Any]) -> Plan:
    """Return a plan from the content of its file; a missing key or a wrong type raises."""
    names = tuple(content["units"])
    rows = content["strikes"]
    strike_rows = []
    for row in rows:
        strike_rows.append([float(row["strike"][name]) for name in names])
    strikes = np.array(strike_rows)
    predicted = np.array([row["to"] for row in rows], float)
    limits = {}
    for name, limit in content["reach"].items():
        limits[name] = None if limit is None else tuple(limit)
    task = PlanningTask(
        target=tuple(content["target"]),
        start=tuple(content["start"]),
        strikes=len(strikes),
        tau=float(content["tau"]),
        tolerance=tuple(content["tolerance"]),
        reach=Reach(**limits),
    )
    # Plans that were written by earlier versions have none.
    probability = content.get("probability")
    return Plan(
        task=task,
        names=names,
        strikes=strikes,
        predicted=predicted,
        std=np.array(content["spread"], float),
        cost=float(content["cost"]),
        status=PlanStatus(content["status"]),
        reason=str(content["reason"]),
        evaluations=int(content["evaluations"]),
        probability=None if probability is None else float(probability),
    )


def _pair_at_contact(scene: Scene, plan: Plan) -> np.ndarray:
    """Return both bodies at each contact, (K, 12) as in `Impacts.before`, struck body at pose 0."""
    columns = dict(zip(plan.names, plan.strikes.T, strict=True))
    before, _ = before_from_strikes(scene, columns)
    return before
