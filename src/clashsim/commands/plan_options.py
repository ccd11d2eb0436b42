"""Options of `clashsim plan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import (
    ExecutionOptions,
    OptionalInt,
    OptionalOutputPath,
    OptionalPath,
    RunArgument,
)

PoseInDegrees = tuple[float, float, float]


_LowHigh = Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")]


@dataclass(frozen=True)
class ArmLimits:
    """Largest speed, acceleration and jerk of the arm's tip."""

    speed: float = 0.8
    """Largest speed, m/s."""
    acceleration: float = 10.0
    """Largest acceleration, m/s^2."""
    jerk: float = 500.0
    """Largest jerk, m/s^3."""


@dataclass(frozen=True)
class RepeatabilityOptions:
    """How exactly arm and operator repeat a strike: standard deviations, for the probability."""

    speed: float = 0.0
    """Of the speed, %."""
    point: float = 0.0
    """Of the bearing of the contact point, degrees."""
    deflection: float = 0.0
    """Of the direction of the velocity, degrees."""
    position: float = 0.0
    """Of the body before the first strike, along x and along y, m."""
    yaw: float = 0.0
    """Of the body before the first strike, degrees."""


@dataclass(frozen=True)
class LaunchOptions:
    """For bodies in space: what a throw, or a strike by a flying body, may be."""

    up: Annotated[str | None, arg(metavar="AXIS")] = None
    """Axis of the body that should point up at rest: x, -x, y, -y, z or -z. By default any; with a
    target yaw, the one that points up in the scene.
    """
    tolerance: Annotated[tuple[float, float], arg(metavar="M DEGREES")] = (0.05, 20.0)
    """Distance and angle within which the target counts as reached."""
    release: Annotated[tuple[float, float, float] | None, arg(metavar="X Y Z")] = None
    """Throws: where the body is let go, m; by default where the scene has it."""
    release_box: Annotated[tuple[float, float, float], arg(metavar="DX DY DZ")] = (0.0, 0.0, 0.0)
    """Throws: half widths of the box about --launch.release in which the place is chosen, m."""
    speed: _LowHigh = None
    """Horizontal speed of a throw, or speed of the striker, m/s."""
    direction: _LowHigh = None
    """Of the launch, from that of the target, degrees to the left."""
    lift: _LowHigh = None
    """Throws: vertical velocity, m/s."""
    spin: Annotated[float | None, arg(metavar="MAX")] = None
    """Throws: largest angular velocity about each axis, rad/s."""
    elevation: _LowHigh = None
    """Strikes: angle by which the striker comes down, degrees."""
    offset: _LowHigh = None
    """Strikes: by how much the striker's line passes left of the body's origin, m."""
    height: _LowHigh = None
    """Strikes: height of that line above the ground below the body, m."""
    std: Annotated[tuple[float, float], arg(metavar="M/S RAD/S")] = (0.01, 0.1)
    """Errors of the launch: standard deviations of velocity and angular velocity."""
    simulations: Annotated[int, arg(metavar="INT")] = 1500
    """About how many simulations are made; more find better launches."""


@dataclass(frozen=True)
class PlanOptions:
    """Plan the strikes, or the throw, that bring the struck body to a target.

    Example: clashsim plan runs/demo --target -0.05 -0.02 -20 -o plan

    In a plane, strikes: the folder -o gets plan.json, a picture, and for each strike the path of
    the tip at 1 kHz as path-1.csv and path-1.json.
    Many targets at once: clashsim plan runs/demo --targets targets.csv -o plans.csv

    In space, a throw of the body, or a strike at it by a flying body, after which it bounces and
    comes to rest at X Y, and at YAW if you give it:

    clashsim plan runs/box --target 0.3 0.1 --launch.release 0 0 0.2 -o throw
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo, with a slide model."""
    target: Annotated[tuple[float, ...] | None, arg(metavar="X Y YAW")] = None
    """Pose at which the body should come to rest, world frame: m, m, degrees. In space the yaw may
    be left out.
    """
    targets: OptionalPath = None
    """Many targets instead of --target: a .csv file with the columns x, y (m), yaw (degrees), and
    start_x, start_y, start_yaw if the starts differ.
    """
    start: Annotated[PoseInDegrees, arg(metavar="X Y YAW")] = (0.0, 0.0, 0.0)
    """Pose of the body before the first strike, world frame: m, m, degrees."""
    out: OptionalOutputPath = None
    """Folder to write to; with --targets a file, .csv or .json."""
    strikes: OptionalInt = None
    """Number of strikes, 1 to 3; by default as few as reach the target."""
    method: Literal["cmaes", "cem", "gradient"] = "cmaes"
    """Search method: CMA-ES, cross-entropy method, or gradient descent from many starts."""
    side: Annotated[tuple[float, float] | None, arg(metavar="FROM TO")] = None
    """Side from which the arm can strike: bearings of the tip seen from the body, in degrees, from
    the first counter-clockwise to the second.
    """
    workspace: Annotated[tuple[float, float, float, float] | None, arg(metavar="X0 X1 Y0 Y1")] = (
        None
    )
    """Rectangle that the body may not leave, m."""
    noise_samples: int = 0
    """Number of outcomes sampled from the model's predicted noise; the plan minimises the mean cost
    over them. 0 minimises the cost of the expected outcome, and of strikes that are almost equally
    good takes the one of which the model is surest.
    """
    tolerance: Annotated[tuple[float, float] | None, arg(metavar="M DEGREES")] = None
    """Distance and angle within which the target counts as reached; by default 0.01 m and 0.2 rad
    (11.5 degrees).
    """
    seed: int = 0
    """Seed of the search."""
    overwrite: bool = False
    """Replace the folder or file if it exists."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Torch device of the search, cpu or cuda; all targets are then searched in one batch."""
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()
    limits: ArmLimits = ArmLimits()
    repeatability: RepeatabilityOptions = RepeatabilityOptions()
    launch: LaunchOptions = LaunchOptions()
