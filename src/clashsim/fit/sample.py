"""Sample strikes from a scene's ranges and run them in MuJoCo or MJX."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import mujoco
import numpy as np
import torch
from scipy.spatial.transform import Rotation

from clashsim.core.contact_frame import contact_frame
from clashsim.core.contact_geometry import Contact, PairPoser, advance_to_contact
from clashsim.core.effects import with_effects
from clashsim.core.errors import DataError, MissingExtraError
from clashsim.core.executor import Executor, local
from clashsim.core.ground_surface import GroundSurface
from clashsim.core.impacts import Impacts, MotionBefore, MovingBody
from clashsim.core.params import from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.resting import settled_on_ground
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes
from clashsim.fit.shards import Arrays, Shard, ShardedJob, run_shards
from clashsim.fit.strike_engines import ENGINES, RunStrikes, StrikeEngine, measure_rate
from clashsim.nets.effects import analytic_params, apply_analytic_effects
from clashsim.sim.mjx.model import UnsupportedByMjx
from clashsim.sim.mujoco.impacts import ImpactEnd, ImpactOutcome

_SHORTEST = 1e-9  # of a unit vector's part along the ground that still has a direction
_SHARD = 4096  # strikes per shard
_MISSED = 9  # code in addition to those of `ImpactEnd`: the bodies of this strike never touch


@dataclass(frozen=True, eq=False)
class StrikeBatch:
    """N strikes at the moment of the first touch.

    Attributes:
        before: States before impact (N, d), with the bodies touching.
        theta: Parameters (N, p), natural units.
        contact: Contact of each strike.
    """

    before: np.ndarray
    theta: np.ndarray
    contact: Contact


def sample_strikes(scene: Scene, n: int, rng: np.random.Generator) -> StrikeBatch:
    """Sample strikes and their theta from the ranges of `scene.strikes` and `scene.params`.

    Args:
        scene: The scene.
        n: Number of strikes.
        rng: Random numbers.

    Returns:
        The strikes.
    """
    theta = from_unit(scene.params, rng.uniform(-1, 1, (n, len(scene.params))))
    if scene.plane is not None:
        before, contact = _planar_strikes(scene, n, rng)
    else:
        before, contact = _spatial_strikes(scene, n, rng)
    return StrikeBatch(before, theta, contact)


def _uniform(rng: np.random.Generator, bounds: tuple[float, float], n: int) -> np.ndarray:
    """Uniform numbers (n,) within bounds; equal bounds do not advance the random numbers."""
    low, high = bounds
    if high > low:
        return rng.uniform(low, high, n)
    return np.full(n, low)


def _planar_strikes(scene: Scene, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Contact]:
    """States before (n, d) of strikes in the plane, touching, and their contacts."""
    # Two ways to say where the striker hits, of which a scene uses one.
    where = ("yaw", "offset") if scene.strikes.offset is not None else ("turn", "point")
    sampled = {}
    for name in (*where, "speed", "deflection", "spin", "slip"):
        bounds = getattr(scene.strikes, name)
        if bounds is not None:
            sampled[name] = _uniform(rng, bounds, n)
    return before_from_strikes(scene, sampled)


def _spatial_strikes(scene: Scene, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Contact]:
    """States before (n, d) of strikes in space, touching, and their contacts."""
    poser = PairPoser(scene)
    before = poser.striker_at_reference(n)
    motion = MotionBefore.of(before)
    motion.struck.quaternion[:] = Rotation.random(n, rng=rng).as_quat(scalar_first=True)
    geom = scene.base.geom(scene.striker)
    is_plane = int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_PLANE)
    if is_plane or poser.striker.fixed:
        data = mujoco.MjData(scene.base)
        mujoco.mj_kinematics(scene.base, data)
        normal = data.geom(scene.striker).xmat.reshape(3, 3)[:, 2]
        outwards = np.tile(normal, (n, 1))
    else:
        outwards = Rotation.random(n, rng=rng).as_matrix()[:, :, 0]  # a random unit vector each
    motion.struck.position[:] = motion.striker.position
    if scene.ground is not None:
        outwards = _lay_on_ground(scene, motion.struck, outwards, rng)
    contact, before = advance_to_contact(scene, before, -outwards)
    motion = MotionBefore.of(before)
    speed = _uniform(rng, scene.strikes.speed, n)
    deflection = _uniform(rng, scene.strikes.deflection, n)
    angular_speed = _uniform(rng, scene.strikes.spin, n)
    into = contact.normal  # from the striker into the struck body
    tilt_axis = np.cross(into, _perpendicular(into, rng))
    tilt = Rotation.from_rotvec(tilt_axis * np.abs(deflection)[:, None])
    velocity = speed[:, None] * tilt.apply(into)
    axis = rng.normal(size=(n, 3))
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    motion.struck.angular_velocity[:] = axis * angular_speed[:, None]
    if poser.striker.fixed:  # then the struck body moves towards the striker
        motion.struck.velocity[:] = -velocity
    else:
        motion.striker.velocity[:] = velocity
    return before, contact


def _lay_on_ground(
    scene: Scene, struck: MovingBody, outwards: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Lay struck bodies on the ground, as in the reference configuration but for their headings.

    Args:
        scene: The scene, in space and with a ground.
        struck: The bodies, changed in place; they stay as they are where none lies there.
        outwards: (n, 3), unit vectors from the strikers to the bodies.
        rng: Random numbers.

    Returns:
        Unit vectors (n, 3) from the strikers along the ground; as given where no body lies.
    """
    assert scene.ground is not None
    normal = GroundSurface.of(scene.base, scene.ground).normal
    reference = PairPoser(scene).striker_at_reference(1)
    body = MotionBefore.of(reference).struck
    body.position[:] = scene.struck_body.position
    rotation = Rotation.from_matrix(scene.struck_body.rotation)
    body.quaternion[:] = rotation.as_quat(scalar_first=True)
    settled = settled_on_ground(scene, reference)
    if not settled.lies[0]:
        return outwards
    at_rest = MotionBefore.of(settled.before).struck
    heading = Rotation.from_rotvec(rng.uniform(-np.pi, np.pi, (len(outwards), 1)) * normal)
    lying = heading * Rotation.from_quat(at_rest.quaternion[0], scalar_first=True)
    struck.quaternion[:] = lying.as_quat(scalar_first=True)
    raised = (at_rest.position - struck.position) @ normal
    struck.position[:] += raised[:, None] * normal
    along = outwards - (outwards @ normal)[:, None] * normal
    length = np.linalg.norm(along, axis=1, keepdims=True)
    level: np.ndarray = along / np.maximum(length, _SHORTEST)
    return level


def _perpendicular(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random unit vectors (n, 3) perpendicular to vectors (n, 3)."""
    side = np.cross(vectors, rng.normal(size=vectors.shape))
    return side / np.linalg.norm(side, axis=1, keepdims=True)


def sample(
    scene: Scene,
    n: int,
    seed: int,
    *,
    engine: StrikeEngine = StrikeEngine(),
    checkpoint_dir: Path | str | None = None,
    executor: Executor = local,
    progress: Progress = quiet,
) -> Impacts:
    """Sample and run strikes.

    The same seed gives bit-identical results with any number of threads and workers, also after an
    interruption. Impacts that did not end in time or became unstable are left out; `end_counts` of
    the result says how many.

    Args:
        scene: The scene.
        n: Number of strikes.
        seed: Seed of the strikes.
        engine: The simulator that runs the strikes.
        checkpoint_dir: A folder, or a URL that fsspec supports. Each finished shard is written
            there, and a later call with the same arguments continues from the shards it finds.
        executor: Where shards are run; each worker uses the engine's number of threads.
        progress: Shows the progress.

    Returns:
        The simulated impacts, each with its theta.
    """
    if n < 1:
        raise DataError(f"the number of strikes must be at least 1, got {n}")
    if engine.name != "mujoco":
        # Built here so that a scene that MJX does not support is refused before `run_shards` writes
        # to the folder. The simulator is cached, so it is not built twice.
        engine.simulator(scene, min(n, _SHARD * engine.shards_per_call()))
    identity = {
        "scene": fingerprint(scene),
        "n": n,
        "seed": seed,
        "shard": _SHARD,
        "mujoco": mujoco.__version__,
    }
    shards = run_shards(
        _Sampler(scene, n, seed, engine),
        ShardedJob(n, _SHARD, identity | engine.job_marks(), "sampling"),
        checkpoint_dir=checkpoint_dir,
        executor=executor,
        progress=progress,
    )
    whole = {}
    for name in ("before", "after", "theta", "end"):
        whole[name] = np.concatenate([shard[name] for shard in shards])
    counts = {end.name.lower(): int((whole["end"] == end).sum()) for end in ImpactEnd}
    counts["missed"] = int((whole["end"] == _MISSED).sum())
    usable = whole["end"] <= ImpactEnd.SETTLED
    if engine.name == "mujoco":
        source = "simulated"
    else:
        source = f"simulated in {ENGINES[engine.name]}"
    return Impacts(
        scene.plane is not None,
        whole["before"][usable],
        whole["after"][usable],
        whole["theta"][usable],
        source=source,
        end_counts=counts,
    )


def fastest_engine(scene: Scene, n: int, seed: int, *, threads: int = 0) -> tuple[str, str]:
    """Find the engine that runs the most strikes per second.

    Each engine is measured on one call of the size that `sample` would use.

    Args:
        scene: The scene.
        n: Number of strikes that are to be sampled.
        seed: Seed of the strikes.
        threads: Threads of MuJoCo.

    Returns:
        Name of the engine, and a sentence with the measured rates.
    """
    rates = {}
    findings = []
    for name, title in ENGINES.items():
        engine = StrikeEngine(name, threads)
        try:
            size = min(n, _SHARD * engine.shards_per_call())
            strikes = sample_strikes(scene, size, np.random.default_rng([seed, 0]))
            run = engine.simulator(scene, size)
            rates[name], seconds = measure_rate(run, strikes.before, strikes.theta)
        except (UnsupportedByMjx, MissingExtraError) as refusal:
            findings.append(f"{title} is out ({refusal})")
        else:
            findings.append(
                f"{title} runs {rates[name]:.0f} strikes/s after {seconds:.0f} s of building"
            )
    best = max(rates, key=rates.__getitem__)
    return best, f"{'; '.join(findings)}: {ENGINES[best]} is taken"


@dataclass(frozen=True, eq=False)
class _Sampler:
    """Makes shards of one job; the simulator is built at the first shard and reused.

    If the engine runs several shards in one call, those that were not asked for yet are kept until
    they are.
    """

    scene: Scene
    n: int
    seed: int
    engine: StrikeEngine

    @cached_property
    def shards_per_call(self) -> int:
        """Number of shards that the engine runs in one call."""
        return self.engine.shards_per_call()

    @cached_property
    def run_strikes(self) -> RunStrikes:
        """The simulator of strikes, built on first use."""
        return self.engine.simulator(self.scene, min(self.n, _SHARD * self.shards_per_call))

    @cached_property
    def _run_in_advance(self) -> dict[int, Arrays]:
        """Shards that have been run but not returned yet, by number."""
        return {}

    def __call__(self, shard: Shard) -> Arrays:
        number, _ = shard
        if number not in self._run_in_advance:
            self._run_in_advance.clear()
            self._run_from(number)
        return self._run_in_advance.pop(number)

    def _run_from(self, first: int) -> None:
        """Run the shard number `first` and those that follow it in the same call of the engine."""
        numbers = [i for i in range(first, first + self.shards_per_call) if i * _SHARD < self.n]
        sampled = []
        for i in numbers:
            size = min(_SHARD, self.n - i * _SHARD)
            sampled.append(sample_strikes(self.scene, size, np.random.default_rng([self.seed, i])))
        outcome = self.run_strikes(
            np.concatenate([strikes.before for strikes in sampled]),
            np.concatenate([strikes.theta for strikes in sampled]),
        )
        begin = 0
        for i, strikes in zip(numbers, sampled, strict=True):
            rows = slice(begin, begin + len(strikes.before))
            begin = rows.stop
            own = ImpactOutcome(outcome.after[rows], outcome.end[rows], outcome.steps[rows])
            self._run_in_advance[i] = _as_recorded(self.scene, strikes, own)


def run_shard(scene: Scene, run: RunStrikes, n: int, rng: np.random.Generator) -> Arrays:
    """Sample and run n strikes; strikes that do not end are included.

    Args:
        scene: The scene.
        run: The simulator of strikes.
        n: Number of strikes.
        rng: Random numbers.

    Returns:
        By name: "before", states (n, d); "after", twists (n, k); "theta" (n, p); "end", how each
        strike ended (n,); "steps", its simulation steps (n,).
    """
    strikes = sample_strikes(scene, n, rng)
    return _as_recorded(scene, strikes, run(strikes.before, strikes.theta))


def _as_recorded(scene: Scene, strikes: StrikeBatch, outcome: ImpactOutcome) -> Arrays:
    """Simulated strikes as a recording would show them, as a shard's arrays.

    Effects that the engines do not simulate (measurement offsets, analytic effects) are added.
    """
    end = np.where(strikes.contact.touching, outcome.end, _MISSED)
    before, after = with_effects(
        scene, strikes.before, outcome.after, strikes.theta, usable=end <= ImpactEnd.SETTLED
    )
    if before is not strikes.before:
        impacts = Impacts(scene.plane is not None, before, after)
        frame = contact_frame(scene, impacts, strict=False)
        # With measurement offsets in the recorded poses, a glancing hit may look like a miss.
        end = np.where(frame.contact.touching, end, _MISSED)
        if analytic_params(scene):
            change = apply_analytic_effects(
                scene,
                torch.as_tensor(frame.encode(after)),
                torch.as_tensor(frame.twist_before / frame.speed[:, None]),
                torch.as_tensor(frame.speed),
                torch.as_tensor(to_unit(scene.params, strikes.theta)),
            )
            after = frame.decode(change.numpy())
    return {
        "before": before,
        "after": after,
        "theta": strikes.theta,
        "end": end.astype(np.int8),
        "steps": outcome.steps.astype(np.int32),
    }


def fingerprint(scene: Scene) -> str:
    """A hash of everything in a scene that its samples depend on."""
    params = []
    for param in scene.params:
        fields = asdict(param)
        del fields["sd"]  # a parameter's prior does not change the samples
        params.append(fields)
    strikes = asdict(scene.strikes)
    identity = [scene.xml, scene.struck, scene.striker, scene.ground, params, strikes]
    text = json.dumps([*identity, "in space"] if scene.in_space else identity)
    digest = hashlib.sha256(text.encode())
    for name in sorted(scene.assets):
        digest.update(name.encode() + scene.assets[name])
    return digest.hexdigest()[:16]
