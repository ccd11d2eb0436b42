"""Data scaling (few-shot paper, Sec. III-B): from a few boxes to thousands of MuJoCo trajectories.

The trajectories vary number, shape, mass, contact and start of the boxes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from mujoco import batch
from scipy.spatial.transform import Rotation

from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.errors import DataError
from clashsim.core.executor import Executor, local
from clashsim.core.floor_scenes import box_contact_params, boxes_mjcf
from clashsim.core.params import Param, from_unit
from clashsim.core.progress import Progress, quiet
from clashsim.fit.shards import Arrays, Shard, ShardedJob, run_shards

SHARD = 250  # trajectories
# Contact parameters: name, field of MjModel, column of the field, sign of the value in the field.
_CONTACT_FIELDS = (
    ("friction", "geom_friction", 0, 1),
    ("stiffness", "geom_solref", 0, -1),
    ("damping", "geom_solref", 1, -1),
    ("d0", "geom_solimp", 0, 1),
    ("width", "geom_solimp", 2, 1),
)
_NUM_CONTACT = len(_CONTACT_FIELDS)
_MAX_STATE = 100.0  # trajectories with a larger entry of a state have diverged
_BOUNDING_RADIUS = 0.2  # m, larger than that of any box
_AXIS_INERTIA_RANGE = (0.93, 1.07)  # factors of the moments of inertia about single axes
# Of tossed boxes.
_VERTICAL_SPEED_RANGE = (-1.6, 0.3)  # m/s
# Of boxes on the floor.
_ALIGNED_STD = 0.05  # rad, yaw differences of boxes that are nearly aligned
_ROTATED = 0.3  # |sin(2 yaw difference)| from which a box needs the larger clearance
_CLEARANCES = (1.45, 1.2)  # half widths, of rotated and of aligned boxes
_GAP_RANGE = (0.003, 0.05)  # m, between neighbouring boxes
_MAX_SIDEWAYS = 0.7  # half widths by which boxes are displaced across the row
_MIN_PUSH_SPEED = 0.2  # m/s, of the first box
_PUSH_ANGULAR_SPEED = 0.3  # of `angular_speed`, standard deviation of the first box's yaw rate


@dataclass(frozen=True)
class ScalingRanges:
    """Ranges of the properties that vary from trajectory to trajectory, and fixed settings.

    Attributes:
        half: Half width of a box, m.
        flatness: Share by which each side may differ from the half width.
        mass: kg.
        inertia: Moments of inertia relative to those of a hollow box.
        centre: Largest offset of the mass centre, m.
        rounding: Radius of the edges, m.
        gravity: m/s^2.
        speed: Largest speed at the start, m/s.
        angular_speed: Root mean square angular speed at the start, rad/s.
        drop: Largest height above the floor at the start, m.
        boxes: Number of boxes in each trajectory.
        frames: Number of frames of a trajectory.
        rate: Frames per second.
        contact: Centre and half width (5,) of the contact parameters on their unit scale, or None
            for the whole scale.
    """

    half: tuple[float, float] = (0.046, 0.054)
    flatness: float = 0.0
    mass: tuple[float, float] = (0.2, 0.6)
    inertia: tuple[float, float] = (0.85, 1.6)
    centre: float = 0.008
    rounding: tuple[float, float] = (0.0, 0.006)
    gravity: tuple[float, float] = (9.5, 9.9)
    speed: float = 1.8
    angular_speed: float = 6.0
    drop: float = 0.03
    boxes: int = 1
    frames: int = 80
    rate: float = 148.0
    contact: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def scale_data(
    ranges: ScalingRanges,
    n: int,
    seed: int,
    *,
    checkpoint_dir: Path | str | None = None,
    threads: int = 0,
    executor: Executor = local,
    progress: Progress = quiet,
) -> Arrays:
    """Simulate trajectories of boxes with random properties and initial states.

    The same seed gives bit-identical results, also after an interruption.

    Args:
        ranges: Ranges of the random properties.
        n: Number of trajectories.
        seed: Seed of the random properties.
        checkpoint_dir: A folder, or a URL that fsspec supports. Each finished shard is written
            there, and a later call continues from the shards it finds.
        threads: Threads of MuJoCo, 0 for all cores.
        executor: Where shards are run.
        progress: Shows the progress.

    Returns:
        By name: states (n, frames + 1, 13 boxes), as qpos then qvel; half, inertia, centre
        (n, boxes, 3); mass, rounding (n, boxes); contact (n, 5) on the unit scale; gravity (n,).
        SI units. Trajectories that diverge are left out.
    """
    if n < 1:
        raise DataError(f"the number of trajectories must be at least 1, got {n}")
    identity = {
        "ranges": _identity(ranges),
        "n": n,
        "seed": seed,
        "shard": SHARD,
        "mujoco": mujoco.__version__,
    }
    shards = run_shards(
        _Scaler(ranges, seed, threads),
        ShardedJob(n, SHARD, identity, "scaling"),
        checkpoint_dir=checkpoint_dir,
        executor=executor,
        progress=progress,
    )
    whole = {}
    for name in shards[0]:
        whole[name] = np.concatenate([shard[name] for shard in shards])
    return whole


def _identity(ranges: ScalingRanges) -> str:
    """The ranges as text for a job's identity.

    It uses the names that classes and fields had when the first checkpoints were written, so that
    these stay valid.
    """
    text = repr(ranges).replace("ScalingRanges(", "Ranges(", 1)
    return text.replace("angular_speed=", "spin=", 1)


@dataclass(frozen=True)
class _Scaler:
    """Computes shards of one job: a function from a shard to its arrays."""

    ranges: ScalingRanges
    seed: int
    threads: int

    def __call__(self, shard: Shard) -> Arrays:
        number, n = shard
        rng = np.random.default_rng([self.seed, number])
        boxes = _sample_boxes(self.ranges, n, rng)
        if self.ranges.boxes == 1:
            start = _tossed(self.ranges, boxes, rng)
        else:
            start = _pushed(self.ranges, boxes, rng)
        frame_time = 1 / self.ranges.rate
        states = simulate(boxes, start, self.ranges.frames, dt=frame_time, threads=self.threads)
        finite = np.isfinite(states).all((1, 2))
        kept = finite & (np.abs(states).max((1, 2)) < _MAX_STATE)
        arrays = boxes | {"states": states}
        return {
            name: np.ascontiguousarray(array[kept].astype(np.float32))
            for name, array in arrays.items()
        }


def _sample_boxes(ranges: ScalingRanges, n: int, rng: np.random.Generator) -> Arrays:
    """Random properties of the boxes of n trajectories, as `scale_data` returns them."""
    k = ranges.boxes
    low = -np.ones(_NUM_CONTACT)
    high = np.ones(_NUM_CONTACT)
    if ranges.contact is not None:
        centre, width = np.array(ranges.contact)
        low = centre - width
        high = centre + width
    half = rng.uniform(*ranges.half, (n, k, 1))
    if ranges.flatness:
        half = half * rng.uniform(1 - ranges.flatness, 1 + ranges.flatness, (n, k, 3))
    else:
        half = np.repeat(half, 3, 2)
    mass = rng.uniform(*ranges.mass, (n, k))
    hollow = []
    for sides, kilograms in zip(half.reshape(-1, 3), mass.reshape(-1), strict=True):
        hollow.append(Box.even(sides.tolist(), float(kilograms)).inertia)
    inertia = np.array(hollow, float).reshape(n, k, 3)
    inertia = inertia * rng.uniform(*ranges.inertia, (n, k, 1))
    return {
        "half": half,
        "mass": mass,
        "inertia": inertia * rng.uniform(*_AXIS_INERTIA_RANGE, (n, k, 3)),
        "centre": rng.uniform(-ranges.centre, ranges.centre, (n, k, 3)),
        "rounding": rng.uniform(*ranges.rounding, (n, k)),
        "contact": np.clip(rng.uniform(low, high, (n, _NUM_CONTACT)), -1, 1),
        "gravity": rng.uniform(*ranges.gravity, n),
    }


def simulate(
    boxes: Arrays, start: np.ndarray, frames: int, *, dt: float, threads: int = 0
) -> np.ndarray:
    """Simulate trajectories in MuJoCo, each with its own boxes and contact.

    Args:
        boxes: Properties of the boxes of n trajectories, as `scale_data` returns them.
        start: Initial states (n, 13 boxes), qpos then qvel.
        frames: Number of frames.
        dt: Time between frames, s.
        threads: Threads of MuJoCo, 0 for all cores.

    Returns:
        States (n, frames + 1, 13 boxes).
    """
    n, k = boxes["mass"].shape
    # A placeholder: every property is set for each trajectory below.
    some_box = Box((0.05, 0.05, 0.05), 0.37, (8e-4, 8.1e-4, 8.2e-4), (1e-6, 1e-6, 1e-6))
    contact = {param.name: param.nominal for param in box_contact_params()}
    xml = boxes_mjcf([some_box] * k, contact, timestep=dt / SUBSTEPS)
    model = mujoco.MjModel.from_xml_string(xml)
    geoms = [model.geom(f"box{i}").id for i in range(k)]
    model.geom_rbound[geoms] = _BOUNDING_RADIUS  # as sizes vary
    simulations = batch.Batch(model, n, nthread=threads)
    bodies = np.arange(1, k + 1)
    simulations.expand("geom_size")[:, geoms] = boxes["half"]
    simulations.expand("geom_margin")[:, geoms] = boxes["rounding"]
    simulations.expand("body_mass")[:, bodies] = boxes["mass"]
    simulations.expand("body_inertia")[:, bodies] = boxes["inertia"]
    simulations.expand("body_ipos")[:, bodies] = boxes["centre"]
    simulations.expand("opt.gravity")[:, 2] = -boxes["gravity"]
    values = contact_values(boxes["contact"])
    for name, field, column, sign in _CONTACT_FIELDS:
        simulations.expand(field)[:, :, column] = sign * values[name][:, None]
    simulations.set_const()
    simulations.reset(stage=0)
    simulations.bind("qpos")[:] = start[:, : 7 * k]
    simulations.bind("qvel")[:] = start[:, 7 * k :]
    no_control = np.zeros((n, frames * SUBSTEPS, 0))
    record = simulations.rollout(
        frames * SUBSTEPS,
        no_control,
        int(mujoco.mjtState.mjSTATE_CTRL),
        record=("qpos", "qvel"),
    )
    states = np.concatenate([record["qpos"], record["qvel"]], 2)
    at_frames = states[:, SUBSTEPS - 1 :: SUBSTEPS]
    return np.concatenate([start[:, None], at_frames], 1)


def contact_values(unit: np.ndarray) -> dict[str, np.ndarray]:
    """Natural values (n,) of contact parameters (n, 5) on the unit scale, by name."""
    params: tuple[Param, ...] = box_contact_params()
    natural = from_unit(params, unit)
    return {param.name: natural[:, i] for i, param in enumerate(params)}


def _tossed(ranges: ScalingRanges, boxes: Arrays, rng: np.random.Generator) -> np.ndarray:
    """Initial states (n, 13) of single boxes just above the floor, moving sideways and down."""
    n = len(boxes["gravity"])
    rotations = Rotation.random(n, rng=rng)
    signs = np.array(list(itertools.product((-1, 1), repeat=3)))
    corners = signs * boxes["half"][:, 0][:, None]
    heights = np.einsum("nj,ncj->nc", rotations.as_matrix()[:, 2], corners)
    lowest = heights.min(1) - boxes["rounding"][:, 0]
    angle = rng.uniform(0, 2 * np.pi, n)
    speed = ranges.speed * np.sqrt(rng.uniform(0, 1, n))
    out = np.zeros((n, 13))
    out[:, 2] = rng.uniform(0, ranges.drop, n) - lowest
    out[:, 3:7] = rotations.as_quat(scalar_first=True)
    out[:, 7] = speed * np.cos(angle)
    out[:, 8] = speed * np.sin(angle)
    out[:, 9] = rng.uniform(*_VERTICAL_SPEED_RANGE, n)
    out[:, 10:] = rng.normal(size=(n, 3)) * ranges.angular_speed / np.sqrt(3)
    return out


def _pushed(ranges: ScalingRanges, boxes: Arrays, rng: np.random.Generator) -> np.ndarray:
    """Initial states (n, 13 k) of a row of boxes on the floor; the first slides into the others."""
    n, k = boxes["mass"].shape
    size = boxes["half"].max(2) + boxes["rounding"]
    heading = rng.uniform(0, 2 * np.pi, n)
    common_yaw = rng.uniform(0, 2 * np.pi, (n, 1))
    aligned = rng.uniform(size=(n, 1)) < 0.5
    nearly_aligned = rng.normal(size=(n, k)) * _ALIGNED_STD
    any_yaw = rng.uniform(0, np.pi / 2, (n, k))
    yaw = common_yaw + np.where(aligned, nearly_aligned, any_yaw)
    is_rotated = np.abs(np.sin(2 * (yaw - yaw[:, :1]))) >= _ROTATED
    clearance = size * np.where(is_rotated, *_CLEARANCES)
    gap = rng.uniform(*_GAP_RANGE, (n, k))
    distances = clearance[:, 1:] + clearance[:, :-1] + gap[:, 1:]
    along = np.cumsum(np.concatenate([np.zeros((n, 1)), distances], 1), 1)
    across = rng.uniform(-_MAX_SIDEWAYS, _MAX_SIDEWAYS, (n, k)) * size
    forward = np.stack([np.cos(heading), np.sin(heading)], 1)
    left = np.stack([-np.sin(heading), np.cos(heading)], 1)
    position = along[..., None] * forward[:, None] + across[..., None] * left[:, None]
    out = np.zeros((n, 13 * k))
    for i in range(k):
        qpos = out[:, 7 * i : 7 * i + 7]
        qpos[:, :2] = position[:, i]
        qpos[:, 2] = boxes["half"][:, i, 2] + boxes["rounding"][:, i]
        qpos[:, 3] = np.cos(yaw[:, i] / 2)
        qpos[:, 6] = np.sin(yaw[:, i] / 2)
    velocity = 7 * k
    out[:, velocity : velocity + 2] = rng.uniform(_MIN_PUSH_SPEED, ranges.speed, (n, 1)) * forward
    yaw_rate = rng.normal(size=n) * _PUSH_ANGULAR_SPEED * ranges.angular_speed
    has_yaw_rate = rng.uniform(size=n) < 0.5
    out[:, velocity + 5] = yaw_rate * has_yaw_rate
    return out
