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
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.params import from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes
from clashsim.fit.shards import Arrays, Shard, ShardedJob, run_shards
from clashsim.fit.strike_engines import ENGINES, RunStrikes, StrikeEngine, measure_rate
from clashsim.nets.effects import analytic_params, apply_analytic_effects
from clashsim.sim.mjx.model import UnsupportedByMjx
from clashsim.sim.mujoco.impacts import ImpactEnd, ImpactOutcome

_SHARD = 4096  # strikes
_MISSED = 9  # end of a strike whose bodies never meet


@dataclass(frozen=True, eq=False)
class StrikeBatch:
    """Strikes that are about to happen.

    Attributes:
        before: States before (N, d), touching.
        theta: Parameters (N, p).
        contact: Their contacts.
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
    """Uniform numbers (n,); none are drawn for a range of no width."""
    low, high = bounds
    if high > low:
        return rng.uniform(low, high, n)
    return np.full(n, low)


def _planar_strikes(scene: Scene, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Contact]:
    """States before (n, d) of strikes in the plane, touching, and their contacts."""
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
        outwards = Rotation.random(n, rng=rng).as_matrix()[:, :, 0]
    motion.struck.position[:] = motion.striker.position
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
    if poser.striker.fixed:  # then the struck body moves
        motion.struck.velocity[:] = -velocity
    else:
        motion.striker.velocity[:] = velocity
    return before, contact


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

    A seed gives the same bits at any number of threads and workers, interrupted or not. Impacts
    that did not end in time or went unstable are left out and counted in `end_counts`.

    Args:
        scene: The scene.
        n: Number of strikes.
        seed: Seed of the strikes.
        engine: What runs them.
        checkpoint_dir: A folder or a URL that fsspec knows. Each shard of the work is written there
            as it is done, and a later call with the same arguments goes on from them.
        executor: Where shards are run; the engine's threads are those of each worker.
        progress: Shows how far it is.

    Returns:
        The impacts, with their theta.
    """
    if n < 1:
        raise DataError(f"the number of strikes must be at least 1, got {n}")
    if engine.name != "mujoco":
        # It is kept there; what it refuses is refused before a folder is claimed.
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
    """Find the engine that runs most strikes per second.

    Each is measured in one call as `sample` would make it.

    Args:
        scene: The scene.
        n: Number of strikes that are to be sampled.
        seed: Seed of the strikes.
        threads: Threads of MuJoCo.

    Returns:
        Name of the engine, and a sentence with what was measured.
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
    """Makes shards of one job; its simulations are built at the first one and used again.

    Where one call runs several shards, the ones that follow are kept until they are asked for.
    """

    scene: Scene
    n: int
    seed: int
    engine: StrikeEngine

    @cached_property
    def shards_per_call(self) -> int:
        """Shards that one call runs."""
        return self.engine.shards_per_call()

    @cached_property
    def run_strikes(self) -> RunStrikes:
        """What runs strikes, built on first use."""
        return self.engine.simulator(self.scene, min(self.n, _SHARD * self.shards_per_call))

    @cached_property
    def _ahead(self) -> dict[int, Arrays]:
        """Shards that were run and not asked for yet, by number."""
        return {}

    def __call__(self, shard: Shard) -> Arrays:
        number, _ = shard
        if number not in self._ahead:
            self._ahead.clear()
            self._run_from(number)
        return self._ahead.pop(number)

    def _run_from(self, first: int) -> None:
        """Run a shard and those that follow it in the same call."""
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
            self._ahead[i] = _as_recorded(self.scene, strikes, own)


def run_shard(scene: Scene, run: RunStrikes, n: int, rng: np.random.Generator) -> Arrays:
    """Sample and run one shard, those that do not end included.

    Args:
        scene: The scene.
        run: What runs strikes.
        n: Number of strikes.
        rng: Random numbers.

    Returns:
        States before (n, d), twists after (n, k), theta (n, p), how each ended, and its steps.
    """
    strikes = sample_strikes(scene, n, rng)
    return _as_recorded(scene, strikes, run(strikes.before, strikes.theta))


def _as_recorded(scene: Scene, strikes: StrikeBatch, outcome: ImpactOutcome) -> Arrays:
    """A shard of strikes as a recording would show them, with the effects that no engine has."""
    end = np.where(strikes.contact.touching, outcome.end, _MISSED)
    before, after = with_effects(
        scene, strikes.before, outcome.after, strikes.theta, usable=end <= ImpactEnd.SETTLED
    )
    if before is not strikes.before:
        impacts = Impacts(scene.plane is not None, before, after)
        frame = contact_frame(scene, impacts, strict=False)
        # As recorded through an offset frame, a glancing hit may look like a miss.
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
    """A hash of all that decides what a scene's samples are."""
    params = []
    for param in scene.params:
        fields = asdict(param)
        del fields["sd"]  # what is expected of a value does not change samples
        params.append(fields)
    strikes = asdict(scene.strikes)
    text = json.dumps([scene.xml, scene.struck, scene.striker, scene.ground, params, strikes])
    digest = hashlib.sha256(text.encode())
    for name in sorted(scene.assets):
        digest.update(name.encode() + scene.assets[name])
    return digest.hexdigest()[:16]
