"""`plan_launch`: a throw or a strike in space after which a run's body comes to rest at a place."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.mobility import Mobility, bounding_radius
from clashsim.core.outline import surface_points
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data.folders import dumps, write_folder
from clashsim.evaluate.conclusion import caution
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.notes import Metrics, conform
from clashsim.fit.run_folder import load
from clashsim.plan.launch import (
    FlyingStrike,
    Launch,
    Range,
    Throw,
    check_can_be_launched,
    ground_distance,
    ground_level,
    lowered_onto_ground,
)
from clashsim.plan.rest_planner import RestPlan, RestPlannerConfig, plan_rest, units_of
from clashsim.plan.rest_target import RestTarget
from clashsim.report.launch_picture import LaunchPicture, draw_launch
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.simulator import HybridSim

PLAN_FILE = "plan.json"
PICTURE_FILE = "plan.png"
PATH_FILE = "path.csv"
_PATH_COLUMNS = ("t", "x", "y", "z", "qw", "qx", "qy", "qz")
_TIMESTEP = 0.002  # s, at least; learned collisions need no short one
_STEP_OF_CONTACT = 0.1  # timestep of MuJoCo's own collisions, as a share of their duration
_LONGEST = 4.0  # s, of a simulation
_FAR = 50.0  # m, where the striker is put while the body comes to lie
_SIDEWAYS = 0.6  # rad: launches go this far to either side of the target by default
_RELEASE_SPEED = 1.0  # m/s, horizontal speed at release that is always allowed by default
_ANGULAR_SPEED = 5.0  # rad/s, of each component by default
_LIFT = (-0.5, 1.5)  # m/s, vertical velocity at release
_ELEVATION = (0.0, 0.6)  # rad, by which strikers come down
_OFFSET = 0.7  # of the body's bounding radius, of lines along which strikers come
_STRIKER_CLEARANCE = 0.002  # m, of strikers above the ground


@dataclass(frozen=True)
class LaunchLimits:
    """Where and how bodies can be launched.

    Attributes:
        release: x, y, z (m), world, where a body is let go; None is where the scene has it.
        release_box: Half widths (m) of the box about `release` in which the place is chosen.
        start: x, y (m), yaw (rad), world, at which a body lies before a strike; None is where the
            scene has it, at yaw zero.
        ranges: Low and high of numbers of the launch by name, SI units, instead of the default.
    """

    release: tuple[float, float, float] | None = None
    release_box: tuple[float, float, float] = (0.0, 0.0, 0.0)
    start: tuple[float, float, float] | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LaunchResult:
    """A planned launch, and the motion that is expected after it.

    Attributes:
        plan: The launch.
        scene: Scene of the run.
        start: (7,), pose of the body before the launch.
        release: (13,), pose and twist of the launched body at the launch, world.
        time: (T,), s.
        path: (T, 7), expected poses of the body.
    """

    plan: RestPlan
    scene: Scene
    start: np.ndarray
    release: np.ndarray
    time: np.ndarray
    path: np.ndarray


class HybridRests:
    """A hybrid simulator as the planner takes it."""

    def __init__(self, simulator: HybridSim, *, longest: float = _LONGEST) -> None:
        self.simulator = simulator
        self.longest = longest

    def rests(self, start: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return poses (N, 7) of the body at the end, and whether it lay still, (N,)."""
        settled = self.simulator.settle(start, longest=self.longest, noise=noise)
        return settled.pose, settled.at_rest


def plan_launch(
    run: Path | str | CalibratedRun,
    target: RestTarget,
    *,
    limits: LaunchLimits = LaunchLimits(),
    config: RestPlannerConfig = RestPlannerConfig(),
    progress: Progress = quiet,
) -> LaunchResult:
    """Plan the throw, or the strike, after which the body of a run comes to rest at a place.

    A run whose body hits something fixed plans throws; one whose body is hit by a flying striker
    plans strikes at the body as it lies on the ground.

    Args:
        run: Run folder, or a loaded run, of a scene whose bodies move in space.
        target: Where the body should come to rest; yaw zero is its orientation in the scene.
        limits: Where and how bodies can be launched.
        config: How to search.
        progress: Shows how many simulations are done.

    Returns:
        The plan, and the expected motion.
    """
    calibrated = run if isinstance(run, CalibratedRun) else load(run)
    scene = calibrated.scene
    check_can_be_launched(scene)
    reference = tuple(map(float, scene.struck_body.rotation.ravel()))
    target = replace(target, reference=reference)
    quick, judge = quick_hybrid(calibrated)
    launch = launch_of(scene, target, limits, simulator=quick)
    found = plan_rest(
        launch,
        target,
        HybridRests(quick),
        judge=HybridRests(judge),
        config=config,
        progress=progress,
    )
    against = None
    if calibrated.metrics:
        conform(calibrated.metrics, Metrics, "metrics")
        against = caution(calibrated.metrics)
    return _result(found.by_unreliable_model(against), scene, launch, judge)


def quick_hybrid(run: CalibratedRun) -> tuple[HybridSim, HybridSim]:
    """Simulators of a run for many rollouts.

    Returns:
        One with the most probable model, which is several times as fast, and one with all that the
        run knows of its uncertainty.
    """
    most_probable = replace(run, calibration=run.calibration.most_probable)
    return _hybrid(most_probable), _hybrid(run)


def launch_of(
    scene: Scene, target: RestTarget, limits: LaunchLimits, *, simulator: HybridSim
) -> Launch:
    """What can be chosen in a scene.

    Args:
        scene: The scene.
        target: Launches are described relative to its direction.
        limits: Where and how bodies can be launched.
        simulator: Lets a body that will be struck come to lie.
    """
    check_can_be_launched(scene)
    if scene.striker_body.fixed:
        if limits.start is not None:
            raise DataError(
                "a throw starts where the body is let go: give --launch.release, not --start"
            )
        return throw_of(scene, target, limits)
    if limits.release is not None:
        raise DataError(
            "a body that is struck lies on the ground: give --start, not --launch.release"
        )
    return _strike(scene, target, limits, simulator)


def write_launch(result: LaunchResult, out: Path, *, overwrite: bool = False) -> list[str]:
    """Write a planned launch, the expected path of the body as CSV, and a picture, as one folder.

    Args:
        result: What was planned.
        out: Folder to write.
        overwrite: Whether an existing plan is replaced.

    Returns:
        Names of the files in the folder.
    """
    files = {PLAN_FILE: dumps(launch_to_dict(result)), PATH_FILE: _path_as_csv(result)}
    with tempfile.TemporaryDirectory() as name:
        picture = Path(name) / PICTURE_FILE
        draw_launch(picture, _picture(result))
        files[PICTURE_FILE] = picture.read_bytes()
    write_folder(out, files, overwrite=overwrite, kind="plan")
    return list(files)


def launch_to_dict(result: LaunchResult) -> dict[str, Any]:
    """Return a planned launch as its JSON file holds it: SI units, angles in rad, world axes."""
    plan = result.plan
    axis, share = plan.up
    yaw, yaw_std = plan.yaw
    release = result.release
    body = result.scene.struck_body if plan.kind == "throw" else result.scene.striker_body
    return {
        "kind": plan.kind,
        "scene": result.scene.name,
        "target": list(plan.target.position),
        "yaw": plan.target.yaw,
        "up": plan.target.up,
        "tolerance": list(plan.target.tolerance),
        "status": str(plan.status),
        "reason": plan.reason,
        "probability": plan.probability,
        "launch": dict(plan.numbers),
        "units": units_of(plan.numbers),
        "body": body.name,
        "position": release[:3].tolist(),
        "quaternion": release[3:7].tolist(),
        "velocity": release[7:10].tolist(),
        "angular_velocity": release[10:].tolist(),
        "start": result.start.tolist(),
        "expected": {
            "position": plan.position.tolist(),
            "spread": plan.std.tolist(),
            "up": axis,
            "up_share": share,
            "yaw": yaw,
            "yaw_spread": yaw_std,
        },
        "rest_poses": plan.poses.round(6).tolist(),
        "rollouts": plan.rollouts,
    }


def _hybrid(run: CalibratedRun) -> HybridSim:
    """The simulator of a run, with timesteps that are long enough to be quick."""
    author = float(run.scene.base.opt.timestep)
    timestep = max(author, _TIMESTEP)
    simulator = run.hybrid(timestep=timestep)
    shortest = min(pair.contact_duration(simulator.model) for pair in simulator.pairs)
    fine_timestep = float(np.clip(_STEP_OF_CONTACT * shortest, author, timestep))
    return run.hybrid(timestep=timestep, config=HybridConfig(fine_timestep=fine_timestep))


def throw_of(scene: Scene, target: RestTarget, limits: LaunchLimits) -> Throw:
    """Throws of the body from the place where it is let go."""
    reference = scene.struck_body.position
    release = np.array(reference if limits.release is None else limits.release, float)
    half_width = np.array(limits.release_box, float)
    if not np.isfinite([release, half_width]).all() or (half_width < 0).any():
        raise DataError(
            "a place of release is three finite numbers x, y, z (m), and the half widths of the "
            f"box about it are not negative, got {limits.release} and {limits.release_box}"
        )
    spin = max(map(abs, scene.strikes.spin)) or _ANGULAR_SPEED
    ranges: dict[str, Range] = {
        "speed": (0.0, max(_RELEASE_SPEED, float(scene.strikes.speed[1]))),
        "direction": (-_SIDEWAYS, _SIDEWAYS),
        "lift": _LIFT,
        "spin_x": (-spin, spin),
        "spin_y": (-spin, spin),
        "spin_z": (-spin, spin),
        "turn": (0.0, 0.0) if target.yaw is None else (-np.pi, np.pi),
    }
    for name, middle, width in zip("xyz", release, half_width, strict=True):
        ranges[name] = (float(middle - width), float(middle + width))
    offset = np.array(target.position) - release[:2]
    bearing = float(np.arctan2(offset[1], offset[0]))
    throw = Throw(scene, _with_limits(ranges, limits), bearing)
    distance = ground_distance(scene, throw.start)
    if not np.isfinite(distance):
        lowered_onto_ground(scene, throw.start)  # raises, as there is no ground
    if distance - half_width[2] <= 0:
        raise DataError(
            "a body that is let go at x, y, z = "
            f"{', '.join(f'{value:g}' for value in release)} m would already touch something: "
            "let it go higher"
        )
    return throw


def _strike(
    scene: Scene, target: RestTarget, limits: LaunchLimits, simulator: HybridSim
) -> FlyingStrike:
    """Strikes at the body where it lies."""
    start = _lying(scene, limits, simulator)
    radius = bounding_radius(scene.base, scene.struck_body.body)
    striker_radius = bounding_radius(scene.base, scene.striker_body.body)
    level = ground_level(scene, start)
    lowest = striker_radius + _STRIKER_CLEARANCE
    ranges: dict[str, Range] = {
        "speed": scene.strikes.speed,
        "direction": (-_SIDEWAYS, _SIDEWAYS),
        "elevation": _ELEVATION,
        "offset": (-_OFFSET * radius, _OFFSET * radius),
        "height": (lowest, lowest + radius),
    }
    offset = np.array(target.position) - start[:2]
    bearing = float(np.arctan2(offset[1], offset[0]))
    return FlyingStrike(scene, _with_limits(ranges, limits), bearing, start, level)


def _lying(scene: Scene, limits: LaunchLimits, simulator: HybridSim) -> np.ndarray:
    """Pose (7,) in which the body lies on the ground before it is struck."""
    reference = scene.struck_body
    x, y, yaw = limits.start or (*reference.position[:2], 0.0)
    numbers = {name: np.array([value]) for name, value in (("x", x), ("y", y), ("turn", yaw))}
    numbers |= {name: np.zeros(1) for name in ("speed", "direction", "lift")}
    numbers |= {name: np.zeros(1) for name in ("spin_x", "spin_y", "spin_z")}
    numbers["z"] = reference.position[2:]
    state = Throw(scene, {}, 0.0).states(numbers, np.zeros((1, 6)))
    state[0, reference.qpos] = lowered_onto_ground(scene, state[0, reference.qpos])
    state[0, scene.striker_body.qpos[0]] += _FAR
    settled = simulator.settle(state, longest=_LONGEST)
    if not settled.at_rest[0]:
        raise DataError(
            f"{reference.name!r} does not come to lie at x, y = {x:g}, {y:g} m: "
            "choose another --start"
        )
    pose: np.ndarray = settled.pose[0]
    return pose


def _with_limits(ranges: dict[str, Range], limits: LaunchLimits) -> dict[str, Range]:
    """Default ranges, replaced where limits were given."""
    for name in limits.ranges:
        if name not in ranges:
            raise DataError(f"this launch has no {name}: its numbers are {', '.join(ranges)}")
    return ranges | dict(limits.ranges)


def _result(plan: RestPlan, scene: Scene, launch: Launch, simulator: HybridSim) -> LaunchResult:
    """The plan with the expected motion: that without errors."""
    settled = simulator.settle(plan.state[None], longest=_LONGEST)
    timestep = float(simulator.model.opt.timestep)
    steps = max(1, round(float(settled.time[0]) / timestep))
    states = simulator.rollout(plan.state[None], np.zeros((1, steps, simulator.model.nu)))[0]
    body = scene.struck_body if plan.kind == "throw" else scene.striker_body
    nq = simulator.model.nq
    return LaunchResult(
        plan=plan,
        scene=scene,
        start=launch.start,
        release=_motion(scene, body, plan.state, nq),
        time=timestep * np.arange(steps + 1),
        path=states[:, scene.struck_body.qpos],
    )


def _motion(scene: Scene, body: Mobility, state: np.ndarray, nq: int) -> np.ndarray:
    """Pose and twist (13,), world axes, of a free body at a state (s,)."""
    qpos = state[:nq]
    qvel = state[nq:]
    pose = qpos[body.qpos]
    velocity = qvel[body.qvel]
    rotation = Rotation.from_quat(pose[3:], scalar_first=True)
    return np.concatenate([pose, velocity[:3], rotation.apply(velocity[3:])])


def _path_as_csv(result: LaunchResult) -> bytes:
    """The expected motion of the body, one line per instant."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_PATH_COLUMNS)
    for time, pose in zip(result.time, result.path, strict=True):
        writer.writerow([f"{value:.6g}" for value in (time, *pose)])
    return text.getvalue().encode()


def _picture(result: LaunchResult) -> LaunchPicture:
    plan = result.plan
    return LaunchPicture(
        corners=body_corners(result.scene),
        path=result.path,
        rest=plan.poses,
        release=result.release,
        target=np.array(plan.target.position),
        tolerance=plan.target.tolerance[0],
        reached=plan.target.is_reached(plan.poses, np.ones(len(plan.poses), bool)),
        title=f"{plan.status}: {plan.reason}",
    )


def body_corners(scene: Scene) -> np.ndarray:
    """Points (P, 3), m, on the surface of the struck body's geoms, in the body's axes."""
    model = scene.base
    body = scene.struck_body.body
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    rotation = data.xmat[body].reshape(3, 3)
    points = []
    for geom in range(model.ngeom):
        if int(model.body_weldid[model.geom_bodyid[geom]]) == body:
            own = surface_points(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T
            points.append((own + data.geom_xpos[geom] - data.xpos[body]) @ rotation)
    return np.concatenate(points)
