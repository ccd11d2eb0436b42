"""Data scaling (few-shot paper, Sec. III-B): thousands of MuJoCo trajectories of random bodies.

The trajectories vary number, shape, size, mass, contact, surroundings and start of the bodies. All
are simulated at one rate: what a body of another size does in steps of another duration is the same
motion in other units (decision 0039).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.convex_mesh import ConvexBody, ConvexMesh
from clashsim.core.errors import DataError
from clashsim.core.executor import Executor, local
from clashsim.core.progress import Progress, quiet
from clashsim.fit.random_bodies import Kind, choose_kinds, random_parts
from clashsim.fit.random_starts import Start, StartRanges, random_start
from clashsim.fit.shards import Arrays, Shard, ShardedJob, run_shards
from clashsim.fit.teacher_scene import SceneValues, simulate_scene
from clashsim.nets.rigid_bodies import SKIN, flat_mesh
from clashsim.nets.trained_domain import MESHES, Range

RATE = 148.0  # frames per second of all trajectories
SHARD = 256  # trajectories
_PER_SCENE = 8  # trajectories of the same bodies; divides SHARD
_MAX_SPEED = 100.0  # m/s or rad/s: faster trajectories have diverged
_DEEPEST = 1.8 * SKIN  # unit lengths: deeper contacts are not found any more
_ENERGY_GAIN = 0.02  # of the kinetic energy at the start: more is an error of the simulation
_RESTING_ENERGY = 0.1  # m g length: a kinetic energy below it counts as this one
_FARTHEST_STEP = 0.3  # unit lengths that a body may move in a step at the start
_AXIS_INERTIA = (0.93, 1.07)  # factors of the moments of inertia about single axes
_WEIGHTLESS = 0.1  # share of the trajectories with any gravity below the usual one
_TILTED = 0.25  # share of the trajectories on a tilted floor
_FIXED_HALF = (0.7, 2.5)  # unit lengths, half sizes of fixed boxes


@dataclass(frozen=True)
class ScalingRanges:
    """Ranges of the properties that vary from trajectory to trajectory, and fixed settings.

    Lengths are in the unit of length, the size of the smallest body.

    Attributes:
        kinds: Kinds of bodies, each equally likely.
        bodies: Number of bodies in each trajectory.
        length: m, unit of length, log-uniform.
        size_ratio: Largest size of the other bodies.
        aspect: Largest ratio of the sides of a body.
        roundness: Smallest inner radius of a mesh, over the body's size.
        corners: Largest number of corners of a body.
        mass_ratio: Largest ratio of the mass of a body to that of the first, for equal density.
        inertia: Moments of inertia relative to those of an even density.
        centre: Largest offset of the centre of mass.
        rounding: Radius of the edges.
        gravity: m/s^2.
        tilt: degrees, largest angle of gravity to the vertical.
        start: How bodies start.
        planes: Number of planes: a floor, and walls.
        fixed_box: Whether there is a fixed box.
        frames: Number of frames of a trajectory.
        contact: Ranges of the contact parameters without units, as in `TrainedDomain`.
    """

    kinds: tuple[Kind, ...] = ("box", "hull")
    bodies: int = 1
    length: Range = (0.02, 0.49)
    size_ratio: float = 2.4
    aspect: float = MESHES.aspect
    roundness: float = MESHES.roundness
    corners: int = 16
    mass_ratio: float = 3.0
    inertia: Range = (0.8, 1.6)
    centre: float = 0.15
    rounding: Range = (0.0, 0.12)
    gravity: Range = (9.1, 10.8)
    tilt: float = MESHES.tilt
    start: StartRanges = StartRanges()
    planes: int = 1
    fixed_box: bool = False
    frames: int = 60
    contact: tuple[Range, ...] = MESHES.contact


def scale_data(
    ranges: ScalingRanges,
    n: int,
    seed: int,
    *,
    checkpoint_dir: Path | str | None = None,
    executor: Executor = local,
    progress: Progress = quiet,
) -> Arrays:
    """Simulate trajectories of random bodies with random initial states.

    The same seed gives the same trajectories, also after an interruption. Trajectories of the same
    bodies are next to each other, so that the first and the last of them share no shape.

    Args:
        ranges: Ranges of the random properties.
        n: Number of trajectories.
        seed: Seed of the random properties.
        checkpoint_dir: A folder, or a URL that fsspec supports. Each finished shard is written
            there, and a later call continues from the shards it finds.
        executor: Where shards are run; each uses one thread.
        progress: Shows the progress.

    Returns:
        By name, SI units, k bodies with places for V corners and F faces: motion (n, frames + 1, k,
        13), positions, quaternions, velocities and angular velocities of the principal axes at the
        centres of mass, world axes; corner, inner (n, k, V, 3), real (n, k, V), face (n, k, F, 3),
        normal (n, k, F, 3), mass, rounding (n, k), inertia (n, k, 3), contact (n, 5) on the scale
        of `MESHES`, gravity (n, 3), planes (n, W, 4), fixed (n, 8, 3), corners of the fixed box
        moved inwards, (n, 0, 3) without one; length (n,). Trajectories that diverge, that gain
        energy because their steps are too long for their contact, or in which bodies sink too deep,
        are left out.
    """
    if n < 1:
        raise DataError(f"the number of trajectories must be at least 1, got {n}")
    identity = {
        "ranges": repr(ranges),
        "n": n,
        "seed": seed,
        "shard": SHARD,
        "mujoco": mujoco.__version__,
    }
    shards = run_shards(
        _Scaler(ranges, seed),
        ShardedJob(n, SHARD, identity, "scaling"),
        checkpoint_dir=checkpoint_dir,
        executor=executor,
        progress=progress,
    )
    return {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}


@dataclass(frozen=True)
class _Scaler:
    """Computes shards of one job: a function from a shard to its arrays."""

    ranges: ScalingRanges
    seed: int

    def __call__(self, shard: Shard) -> Arrays:
        number, n = shard
        rng = np.random.default_rng([self.seed, number])
        scenes = []
        for first in range(0, n, _PER_SCENE):
            scenes.append(_sample_scene(self.ranges, min(_PER_SCENE, n - first), rng))
        arrays = {name: np.concatenate([scene[name] for scene in scenes]) for name in scenes[0]}
        kept = _is_sound(arrays)
        return {name: np.ascontiguousarray(array[kept]) for name, array in arrays.items()}


def _sample_scene(ranges: ScalingRanges, n: int, rng: np.random.Generator) -> Arrays:
    """n trajectories of the same bodies, as `scale_data` returns them."""
    low, high = ranges.length
    length = float(low * (high / low) ** rng.uniform())
    bodies = _sample_bodies(ranges, length, rng)
    fixed_half = rng.uniform(*_FIXED_HALF, 3) * length if ranges.fixed_box else None
    rounding = rng.uniform(*ranges.rounding, (n, len(bodies))) * length
    starts: list[Start] = []
    usual = 1 / RATE * np.sqrt(9.81 / length)
    slow_enough = replace(ranges.start, speed=min(ranges.start.speed, _FARTHEST_STEP / usual))
    for i in range(n):
        starts.append(
            random_start(
                bodies,
                rounding[i],
                slow_enough,
                rng,
                length=length,
                planes=ranges.planes,
                fixed_half=fixed_half,
            )
        )
    unit_contact = rng.uniform(-1, 1, (n, len(ranges.contact)))
    domain = replace(MESHES, contact=ranges.contact)
    contact = domain.contact_from_unit(unit_contact, dt=1 / RATE, length=length)
    values = SceneValues(
        mass=_sample_masses(ranges, bodies, n, rng),
        inertia=np.zeros(0),
        centre=np.array([body.centre for body in bodies])
        + rng.uniform(-ranges.centre, ranges.centre, (n, len(bodies), 3)) * length,
        rounding=rounding,
        contact=contact,
        gravity=_sample_gravity(ranges, n, rng),
        planes=np.array([start.planes for start in starts]),
        fixed=np.array([start.fixed for start in starts]),
    )
    shape = (n, len(bodies), 1)
    factors = rng.uniform(*ranges.inertia, shape) * rng.uniform(*_AXIS_INERTIA, (*shape[:2], 3))
    even = np.array([body.inertia / body.mass for body in bodies])
    values = replace(values, inertia=even * values.mass[..., None] * factors)
    states = simulate_scene(
        bodies,
        values,
        np.array([start.state for start in starts]),
        fixed_half=fixed_half,
        frames=ranges.frames,
        dt=1 / RATE,
        threads=1,
    )
    fixed = np.zeros((n, 0, 3))
    if fixed_half is not None:
        fixed = ConvexMesh.box(fixed_half - SKIN * length).corners + values.fixed[:, None]
    own_contact = MESHES.contact_to_unit(contact, dt=1 / RATE, length=length)
    return {
        "motion": _principal_motion(bodies, values.centre, states).astype(np.float32),
        **_meshes(ranges, bodies, values.centre, length=length),
        "mass": values.mass.astype(np.float32),
        "inertia": values.inertia.astype(np.float32),
        "rounding": rounding.astype(np.float32),
        "contact": own_contact.astype(np.float32),
        "gravity": values.gravity.astype(np.float32),
        "planes": values.planes.astype(np.float32),
        "fixed": fixed.astype(np.float32),
        "length": np.full(n, length, np.float32),
    }


def _sample_bodies(
    ranges: ScalingRanges, length: float, rng: np.random.Generator
) -> list[ConvexBody]:
    """Random bodies of even density, the smallest of them of size `length`."""
    sizes = rng.uniform(1, ranges.size_ratio, ranges.bodies)
    sizes[rng.integers(ranges.bodies)] = 1.0
    bodies = []
    for kind, size in zip(choose_kinds(ranges.kinds, ranges.bodies, rng), sizes, strict=True):
        parts = random_parts(
            kind,
            rng,
            aspect=ranges.aspect,
            roundness=ranges.roundness,
            corners=ranges.corners,
        )
        scale = float(size * length)
        scaled = [ConvexMesh(scale * part.corners, part.faces) for part in parts]
        bodies.append(ConvexBody.even(scaled, float(size**3)))
    return bodies


def _sample_masses(
    ranges: ScalingRanges, bodies: list[ConvexBody], n: int, rng: np.random.Generator
) -> np.ndarray:
    """Masses (n, k), kg; the unit of mass has no effect on motion."""
    even = np.array([body.mass for body in bodies])
    exponent = rng.uniform(-0.5, 0.5, (n, len(bodies)))
    return even * ranges.mass_ratio**exponent


def _sample_gravity(ranges: ScalingRanges, n: int, rng: np.random.Generator) -> np.ndarray:
    """Gravity (n, 3), m/s^2."""
    low, high = ranges.gravity
    strength = rng.uniform(low, high, n)
    directions = np.tile([0.0, 0.0, -1.0], (n, 1))
    if ranges.tilt > 0:
        weightless = rng.uniform(size=n) < _WEIGHTLESS
        strength = np.where(weightless, rng.uniform(0, low, n), strength)
        angle = np.radians(ranges.tilt) * rng.uniform(size=n) * (rng.uniform(size=n) < _TILTED)
        yaw = rng.uniform(0, 2 * np.pi, n)
        axis = np.stack([np.cos(yaw), np.sin(yaw), np.zeros(n)], 1)
        directions = Rotation.from_rotvec(angle[:, None] * axis).apply(directions)
    return strength[:, None] * directions


def _principal_motion(
    bodies: list[ConvexBody], centre: np.ndarray, states: np.ndarray
) -> np.ndarray:
    """Motion (n, T, k, 13) of principal axes from states (n, T, 13 k) of the bodies' origins."""
    n, frames, _ = states.shape
    k = len(bodies)
    qpos = states[..., : 7 * k].reshape(n, frames, k, 7)
    qvel = states[..., 7 * k :].reshape(n, frames, k, 6)
    finite = np.nan_to_num(qpos[..., 3:])
    finite[..., 0] += np.linalg.norm(finite, axis=-1) == 0  # of diverged trajectories
    rotation = Rotation.from_quat(finite.reshape(-1, 4), scalar_first=True)
    axes = Rotation.from_matrix(np.array([body.axes for body in bodies]))
    all_axes = Rotation.from_quat(np.tile(axes.as_quat(), (n * frames, 1)))
    quaternion = (rotation * all_axes).as_quat(scalar_first=True)
    own_centre = np.broadcast_to(centre[:, None], (n, frames, k, 3)).reshape(-1, 3)
    arm = rotation.apply(own_centre)
    angular = rotation.apply(np.nan_to_num(qvel[..., 3:].reshape(-1, 3)))
    position = qpos[..., :3].reshape(-1, 3) + arm
    velocity = qvel[..., :3].reshape(-1, 3) + np.cross(angular, arm)
    columns = [position, quaternion, velocity, angular]
    return np.concatenate(columns, 1).reshape(n, frames, k, 13)


def _meshes(
    ranges: ScalingRanges, bodies: list[ConvexBody], centre: np.ndarray, *, length: float
) -> Arrays:
    """Meshes of n trajectories in principal axes, with places for the largest body."""
    n, k = centre.shape[:2]
    corners = ranges.corners
    faces = 2 * corners - 4  # by Euler's formula, the most that convex bodies have
    out: Arrays = {
        "corner": np.zeros((n, k, corners, 3), np.float32),
        "inner": np.zeros((n, k, corners, 3), np.float32),
        "real": np.zeros((n, k, corners), np.float32),
        "face": np.zeros((n, k, faces, 3), np.int16),
        "normal": np.zeros((n, k, faces, 3), np.float32),
    }
    for i, body in enumerate(bodies):
        mesh = flat_mesh(body, SKIN * length)
        c, f = len(mesh.corner), len(mesh.face)
        # From the centre of mass of each trajectory, in principal axes.
        offset = (centre[:, i] - body.centre) @ body.axes
        out["corner"][:, i, :c] = mesh.corner - offset[:, None]
        out["inner"][:, i, :c] = mesh.inner - offset[:, None]
        out["real"][:, i, :c] = 1
        out["face"][:, i, :f] = mesh.face
        out["normal"][:, i, :f] = mesh.normal
    return out


def _is_sound(arrays: Arrays) -> np.ndarray:
    """Whether trajectories (n,) are finite, not too fast, and do not sink too deep into planes."""
    motion = arrays["motion"].astype(float)
    finite = np.isfinite(motion).all((1, 2, 3))
    motion = np.nan_to_num(motion)
    slow = np.abs(motion[..., 7:]).max((1, 2, 3)) < _MAX_SPEED
    n, frames, k, _ = motion.shape
    quaternion = motion[..., 3:7].reshape(-1, 4)
    matrix = Rotation.from_quat(quaternion, scalar_first=True).as_matrix()
    matrix = matrix.reshape(n, frames, k, 3, 3)
    normals, heights = arrays["planes"][..., :3], arrays["planes"][..., 3]
    normal_in_body = np.einsum("ntkij,nwi->ntkwj", matrix, normals)
    reach = np.einsum("ntkwj,nkvj->ntkwv", normal_in_body, arrays["corner"])
    reach = np.where(arrays["real"][:, None, :, None] > 0, reach, np.inf).min(-1)
    middle = np.einsum("ntki,nwi->ntkw", motion[..., :3], normals)
    height = (middle + reach - heights[:, None, None]).min((1, 2, 3))
    deep = height <= -_DEEPEST * arrays["length"]
    return finite & slow & ~deep & ~_gains_energy(arrays, motion, matrix)


def _gains_energy(arrays: Arrays, motion: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Whether trajectories (n,) have more mechanical energy than at their start.

    Args:
        arrays: As `scale_data` returns them.
        motion: (n, T, k, 13), finite.
        matrix: (n, T, k, 3, 3), orientations.
    """
    mass, gravity = arrays["mass"].astype(float), arrays["gravity"].astype(float)
    in_body = np.einsum("ntkji,ntkj->ntki", matrix, motion[..., 10:13])
    rotational = (arrays["inertia"][:, None] * in_body**2).sum((2, 3)) / 2
    linear = (mass[:, None] * (motion[..., 7:10] ** 2).sum(3)).sum(2) / 2
    potential = -(mass[:, None] * np.einsum("ntki,ni->ntk", motion[..., :3], gravity)).sum(2)
    kinetic = rotational + linear
    gain = (kinetic + potential).max(1) - kinetic[:, 0] - potential[:, 0]
    resting = _RESTING_ENERGY * mass.sum(1) * 9.81 * arrays["length"]
    return gain > _ENERGY_GAIN * np.maximum(kinetic[:, 0], resting)
