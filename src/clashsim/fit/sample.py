"""Draw strikes from a scene's ranges and run them in MuJoCo or MJX."""

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
from clashsim.fit.shards import Arrays, Shard, shards
from clashsim.fit.strike_engines import ENGINES, Strike, marks, speed, striker, together
from clashsim.nets.effects import analytic_params, apply_analytic_effects
from clashsim.sim.mjx.model import UnsupportedByMjx
from clashsim.sim.mujoco.impacts import ImpactEnd, ImpactOutcome


@dataclass(frozen=True, eq=False)
class Strikes:
    """Strikes that are about to happen: before (N, d) touching, theta (N, p), their contacts."""

    before: np.ndarray
    theta: np.ndarray
    contact: Contact


def sample_strikes(scene: Scene, n: int, rng: np.random.Generator) -> Strikes:
    """Draw `n` strikes and their theta; ranges from `scene.strikes` and `scene.params`."""
    theta = from_unit(scene.params, rng.uniform(-1, 1, (n, len(scene.params))))
    before, contact = _planar(scene, n, rng) if scene.plane is not None else _free(scene, n, rng)
    return Strikes(before, theta, contact)


def _uniform(rng: np.random.Generator, bounds: tuple[float, float], n: int) -> np.ndarray:
    return rng.uniform(*bounds, n) if bounds[1] > bounds[0] else np.full(n, bounds[0])


def _planar(scene: Scene, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Contact]:
    names = ("yaw", "offset") if scene.strikes.offset is not None else ("turn", "point")
    ranges = {
        name: getattr(scene.strikes, name)
        for name in (*names, "speed", "deflection", "spin", "slip")
    }
    return before_from_strikes(
        scene, {name: _uniform(rng, r, n) for name, r in ranges.items() if r is not None}
    )


def _free(scene: Scene, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Contact]:
    poser, d = PairPoser(scene), scene.strikes
    before = poser.striker_at_reference(n)
    motion = MotionBefore.of(before)
    motion.struck.quaternion[:] = Rotation.random(n, rng=rng).as_quat(scalar_first=True)
    geom = scene.base.geom(scene.striker)
    if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_PLANE) or poser.striker.fixed:
        data = mujoco.MjData(scene.base)
        mujoco.mj_kinematics(scene.base, data)
        out = np.tile(data.geom(scene.striker).xmat.reshape(3, 3)[:, 2], (n, 1))
    else:
        out = Rotation.random(n, rng=rng).as_matrix()[:, :, 0]
    motion.struck.position[:] = motion.striker.position
    contact, before = advance_to_contact(scene, before, -out)
    motion = MotionBefore.of(before)
    speed, angle, spin = (
        _uniform(rng, d.speed, n),
        _uniform(rng, d.deflection, n),
        _uniform(rng, d.spin, n),
    )
    into = contact.normal  # from the striker into the struck body
    cone = Rotation.from_rotvec(np.cross(into, _perpendicular(into, rng)) * np.abs(angle)[:, None])
    velocity = speed[:, None] * cone.apply(into)
    axis = rng.normal(size=(n, 3))
    unit_axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    motion.struck.angular_velocity[:] = unit_axis * spin[:, None]
    # The struck body moves if the striker cannot.
    if poser.striker.fixed:
        motion.struck.velocity[:] = -velocity
    else:
        motion.striker.velocity[:] = velocity
    return before, contact


def _perpendicular(v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    side = np.cross(v, rng.normal(size=v.shape))
    return side / np.linalg.norm(side, axis=1, keepdims=True)


_SHARD = 4096


def sample(
    scene: Scene,
    n: int,
    seed: int,
    *,
    by: str = "mujoco",
    checkpoint_dir: Path | str | None = None,
    threads: int = 0,
    engine: Executor = local,
    progress: Progress = quiet,
) -> Impacts:
    """Draw and run `n` strikes; the same bits for a seed at any number of threads and workers,
    interrupted or not.

    With `checkpoint_dir`, a folder or a URL that fsspec knows, each shard of the work is written there as it
    is done, and a later call with the same arguments goes on from them. `engine` runs the shards,
    `threads` are those of each of its workers.
    by: "mujoco", or "mjx" for the same strikes in MJX on jax's device (docs/mjx.md says how far
    their impacts are from MuJoCo's). Impacts that did not end in time or went unstable are left out
    and counted in `end_counts`.
    """
    if n < 1:
        raise DataError(f"the number of strikes must be at least 1, got {n}")
    if by != "mujoco":
        striker(
            by, scene, min(n, _SHARD * together(by))
        )  # is kept there; what it refuses is refused before a place is claimed
    job = {
        "scene": fingerprint(scene),
        "n": n,
        "seed": seed,
        "shard": _SHARD,
        "mujoco": mujoco.__version__,
    } | marks(by)
    made = shards(
        _Sampler(scene, n, seed, threads, by),
        n,
        _SHARD,
        job=job,
        checkpoint_dir=checkpoint_dir,
        engine=engine,
        progress=progress,
        title="sampling",
    )
    whole = {k: np.concatenate([s[k] for s in made]) for k in ("before", "after", "theta", "end")}
    usable = whole["end"] <= ImpactEnd.SETTLED
    ends = {e.name.lower(): int((whole["end"] == e).sum()) for e in ImpactEnd} | {
        "missed": int((whole["end"] == _MISSED).sum())
    }
    source = "simulated" if by == "mujoco" else f"simulated in {ENGINES[by]}"
    return Impacts(
        scene.plane is not None,
        whole["before"][usable],
        whole["after"][usable],
        whole["theta"][usable],
        source=source,
        end_counts=ends,
    )


def fastest_engine(scene: Scene, n: int, seed: int, *, threads: int = 0) -> tuple[str, str]:
    """The engine that runs most strikes a second, in one call each as `sample` would make it, and a
    sentence with what was measured.
    """
    rates, told = {}, []
    for by, name in ENGINES.items():
        try:
            size = min(n, _SHARD * together(by))
            strikes = sample_strikes(scene, size, np.random.default_rng([seed, 0]))
            rates[by], built = speed(
                striker(by, scene, size, threads=threads), strikes.before, strikes.theta
            )
            told.append(f"{name} runs {rates[by]:.0f} strikes/s after {built:.0f} s of building")
        except (UnsupportedByMjx, MissingExtraError) as refusal:
            told.append(f"{name} is out ({refusal})")
    best = max(rates, key=rates.__getitem__)
    return best, f"{'; '.join(told)}: {ENGINES[best]} is taken"


@dataclass(frozen=True, eq=False)
class _Sampler:
    """Makes shards of one job; its simulations are built at the first one and used again.

    Where one call runs several shards, the ones that follow are kept until they are asked for.
    """

    scene: Scene
    n: int
    seed: int
    threads: int
    by: str

    @cached_property
    def together(self) -> int:
        return together(self.by)

    @cached_property
    def strike(self) -> Strike:
        return striker(
            self.by, self.scene, min(self.n, _SHARD * self.together), threads=self.threads
        )

    @cached_property
    def _ahead(self) -> dict[int, Arrays]:
        return {}

    def __call__(self, shard: Shard) -> Arrays:
        i = shard[0]
        if i not in self._ahead:
            self._ahead.clear()
            numbers = [j for j in range(i, i + self.together) if j * _SHARD < self.n]
            drawn = [
                sample_strikes(
                    self.scene,
                    min(_SHARD, self.n - j * _SHARD),
                    np.random.default_rng([self.seed, j]),
                )
                for j in numbers
            ]
            whole = self.strike(
                np.concatenate([d.before for d in drawn]), np.concatenate([d.theta for d in drawn])
            )
            for k, (j, d) in enumerate(zip(numbers, drawn, strict=True)):
                own = slice(k * _SHARD, k * _SHARD + len(d.before))
                self._ahead[j] = _seen(
                    self.scene, d, ImpactOutcome(whole.after[own], whole.end[own], whole.steps[own])
                )
        return self._ahead.pop(i)


_MISSED = 9  # the draw's bodies never meet


def run_shard(scene: Scene, strike: Strike, n: int, rng: np.random.Generator) -> Arrays:
    """Draw and run one shard of `n` strikes, those that do not end included (`end`), with the steps
    that each took.
    """
    strikes = sample_strikes(scene, n, rng)
    return _seen(scene, strikes, strike(strikes.before, strikes.theta))


def _seen(scene: Scene, strikes: Strikes, outcome: ImpactOutcome) -> Arrays:
    """A shard of strikes as a recording would show them, with the effects that no engine has."""
    end = np.where(strikes.contact.touching, outcome.end, _MISSED)
    before, after = with_effects(
        scene, strikes.before, outcome.after, strikes.theta, usable=end <= ImpactEnd.SETTLED
    )
    if before is not strikes.before:
        frame = contact_frame(scene, Impacts(scene.plane is not None, before, after), strict=False)
        end = np.where(
            frame.contact.touching, end, _MISSED
        )  # as recorded through an offset frame, a glancing hit may look like a miss
        if analytic_params(scene):
            unit = torch.as_tensor(to_unit(scene.params, strikes.theta))
            change = apply_analytic_effects(
                scene,
                torch.as_tensor(frame.encode(after)),
                torch.as_tensor(frame.twist_before / frame.speed[:, None]),
                torch.as_tensor(frame.speed),
                unit,
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
    ranges = [
        {k: v for k, v in asdict(p).items() if k != "sd"} for p in scene.params
    ]  # what is expected of a value does not change samples
    text = json.dumps(
        [scene.xml, scene.struck, scene.striker, scene.ground, ranges, asdict(scene.strikes)]
    )
    digest = hashlib.sha256(text.encode())
    for name in sorted(scene.assets):
        digest.update(name.encode() + scene.assets[name])
    return digest.hexdigest()[:16]
