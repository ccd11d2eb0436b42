"""Data scaling (few-shot paper, Sec. III-B): from a few boxes to thousands of MuJoCo trajectories
that vary number, shape, mass, contact and start.
"""

from __future__ import annotations

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
from clashsim.fit.shards import Arrays, Shard, shards

SHARD = 250  # trajectories
_CONTACT_FIELDS = (
    ("friction", "geom_friction", 0, 1),
    ("stiffness", "geom_solref", 0, -1),
    ("damping", "geom_solref", 1, -1),
    ("d0", "geom_solimp", 0, 1),
    ("width", "geom_solimp", 2, 1),
)


@dataclass(frozen=True)
class ScalingRanges:
    """What is varied. half (m), mass (kg), inertia (times that of a hollow box), centre (m),
    rounding (m), gravity (m/s^2), speed (m/s), spin (rad/s), drop (m).

    contact: unit scale of `box_contact_params`, centre and half width of what is drawn, (5,) each, or
    None for all of it. frames of a trajectory at `rate` (1/s).
    """

    half: tuple[float, float] = (0.046, 0.054)
    flatness: float = 0.0  # sides differ by up to this share
    mass: tuple[float, float] = (0.2, 0.6)
    inertia: tuple[float, float] = (0.85, 1.6)
    centre: float = 0.008
    rounding: tuple[float, float] = (0.0, 0.006)
    gravity: tuple[float, float] = (9.5, 9.9)
    speed: float = 1.8
    spin: float = 6.0
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
    engine: Executor = local,
    progress: Progress = quiet,
) -> Arrays:
    """`n` trajectories: states (n, frames + 1, 13 boxes), half, inertia, centre (n, boxes, 3),
    mass, rounding (n, boxes), contact (n, 5) unit, gravity (n,).

    With `checkpoint_dir` (a folder or a URL) each shard is written there as it is done, and a later call
    goes on from them; the same bits for a seed either way.
    """
    if n < 1:
        raise DataError(f"the number of trajectories must be at least 1, got {n}")
    job = {
        "ranges": repr(ranges),
        "n": n,
        "seed": seed,
        "shard": SHARD,
        "mujoco": mujoco.__version__,
    }
    made = shards(
        _Scaler(ranges, seed, threads),
        n,
        SHARD,
        job=job,
        checkpoint_dir=checkpoint_dir,
        engine=engine,
        progress=progress,
        title="scaling",
    )
    return {k: np.concatenate([s[k] for s in made]) for k in made[0]}


@dataclass(frozen=True)
class _Scaler:
    """Makes shards of one job."""

    ranges: ScalingRanges
    seed: int
    threads: int

    def __call__(self, shard: Shard) -> Arrays:
        i, n = shard
        return _shard(self.ranges, n, np.random.default_rng([self.seed, i]), self.threads)


def _shard(r: ScalingRanges, n: int, rng: np.random.Generator, threads: int) -> Arrays:
    k = r.boxes
    low, high = (
        (-np.ones(5), np.ones(5))
        if r.contact is None
        else (np.array(r.contact[0]) - r.contact[1], np.array(r.contact[0]) + r.contact[1])
    )
    half = (
        rng.uniform(*r.half, (n, k, 1)) * rng.uniform(1 - r.flatness, 1 + r.flatness, (n, k, 3))
        if r.flatness
        else np.repeat(rng.uniform(*r.half, (n, k, 1)), 3, 2)
    )
    mass = rng.uniform(*r.mass, (n, k))
    even = np.array(
        [
            Box.even(h.tolist(), float(m)).inertia
            for h, m in zip(half.reshape(-1, 3), mass.reshape(-1), strict=True)
        ],
        float,
    ).reshape(n, k, 3)
    draw = {
        "half": half,
        "mass": mass,
        "inertia": even * rng.uniform(*r.inertia, (n, k, 1)) * rng.uniform(0.93, 1.07, (n, k, 3)),
        "centre": rng.uniform(-r.centre, r.centre, (n, k, 3)),
        "rounding": rng.uniform(*r.rounding, (n, k)),
        "contact": np.clip(rng.uniform(low, high, (n, 5)), -1, 1),
        "gravity": rng.uniform(*r.gravity, n),
    }
    start = _tossed(r, draw, rng) if k == 1 else _pushed(r, draw, rng)
    states = simulate(draw, start, r.frames, dt=1 / r.rate, threads=threads)
    fine = np.isfinite(states).all((1, 2)) & (np.abs(states).max((1, 2)) < 100)
    return {
        key: np.ascontiguousarray(value[fine].astype(np.float32))
        for key, value in {**draw, "states": states}.items()
    }


def simulate(
    draw: Arrays, start: np.ndarray, frames: int, *, dt: float, threads: int = 0
) -> np.ndarray:
    """States (n, frames + 1, 13 boxes) of MuJoCo, each trajectory with its own bodies and contact."""
    n, k = draw["mass"].shape
    boxes = [Box((0.05, 0.05, 0.05), 0.37, (8e-4, 8.1e-4, 8.2e-4), (1e-6, 1e-6, 1e-6))] * k
    contact = {p.name: p.nominal for p in box_contact_params()}
    model = mujoco.MjModel.from_xml_string(boxes_mjcf(boxes, contact, timestep=dt / SUBSTEPS))
    geoms = [model.geom(f"box{i}").id for i in range(k)]
    model.geom_rbound[geoms] = 0.2  # sizes vary
    engine = batch.Batch(model, n, nthread=threads)
    bodies = np.arange(1, k + 1)
    engine.expand("geom_size")[:, geoms] = draw["half"]
    engine.expand("geom_margin")[:, geoms] = draw["rounding"]
    engine.expand("body_mass")[:, bodies] = draw["mass"]
    engine.expand("body_inertia")[:, bodies] = draw["inertia"]
    engine.expand("body_ipos")[:, bodies] = draw["centre"]
    engine.expand("opt.gravity")[:, 2] = -draw["gravity"]
    theta = contact_values(draw["contact"])
    for name, field, column, sign in _CONTACT_FIELDS:
        engine.expand(field)[:, :, column] = sign * theta[name][:, None]
    engine.set_const()
    engine.reset(stage=0)
    engine.bind("qpos")[:], engine.bind("qvel")[:] = start[:, : 7 * k], start[:, 7 * k :]
    record = engine.rollout(
        frames * SUBSTEPS,
        np.zeros((n, frames * SUBSTEPS, 0)),
        int(mujoco.mjtState.mjSTATE_CTRL),
        record=("qpos", "qvel"),
    )
    after = np.concatenate([record["qpos"], record["qvel"]], 2)[:, SUBSTEPS - 1 :: SUBSTEPS]
    return np.concatenate([start[:, None], after], 1)


def contact_values(unit: np.ndarray) -> dict[str, np.ndarray]:
    """Natural values (n,) of contact parameters (n, 5) on the unit scale, by name."""
    params: tuple[Param, ...] = box_contact_params()
    return {p.name: v for p, v in zip(params, from_unit(params, unit).T, strict=True)}


def _tossed(r: ScalingRanges, draw: Arrays, rng: np.random.Generator) -> np.ndarray:
    """One box each, turned at random, a little above the floor, moving mostly sideways and down."""
    n = len(draw["gravity"])
    turns = Rotation.random(n, rng=rng)
    corners = (
        np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)])
        * draw["half"][:, 0][:, None]
    )
    low = np.einsum("nj,ncj->nc", turns.as_matrix()[:, 2], corners).min(1) - draw["rounding"][:, 0]
    angle, speed = rng.uniform(0, 2 * np.pi, n), r.speed * np.sqrt(rng.uniform(0, 1, n))
    out = np.zeros((n, 13))
    out[:, :3] = np.stack([np.zeros(n), np.zeros(n), rng.uniform(0, r.drop, n) - low], 1)
    out[:, 3:7] = turns.as_quat(scalar_first=True)
    out[:, 7:10] = np.stack(
        [speed * np.cos(angle), speed * np.sin(angle), rng.uniform(-1.6, 0.3, n)], 1
    )
    out[:, 10:] = rng.normal(size=(n, 3)) * r.spin / np.sqrt(3)
    return out


def _pushed(r: ScalingRanges, draw: Arrays, rng: np.random.Generator) -> np.ndarray:
    """Several boxes that lie on the floor side by side in a loose bunch; the first slides into
    them.
    """
    n, k = draw["mass"].shape
    size = draw["half"].max(2) + draw["rounding"]
    place, heading = np.zeros((n, k, 2)), rng.uniform(0, 2 * np.pi, n)
    yaw = rng.uniform(0, 2 * np.pi, (n, 1)) + np.where(
        rng.uniform(size=(n, 1)) < 0.5,
        rng.normal(size=(n, k)) * 0.05,
        rng.uniform(0, np.pi / 2, (n, k)),
    )
    wide = size * np.where(np.abs(np.sin(2 * (yaw - yaw[:, :1]))) < 0.3, 1.2, 1.45)
    gap = rng.uniform(0.003, 0.05, (n, k))
    way = np.cumsum(
        np.concatenate([np.zeros((n, 1)), wide[:, 1:] + wide[:, :-1] + gap[:, 1:]], 1), 1
    )
    aside = rng.uniform(-0.7, 0.7, (n, k)) * size
    along, across = (
        np.stack([np.cos(heading), np.sin(heading)], 1),
        np.stack([-np.sin(heading), np.cos(heading)], 1),
    )
    place = way[..., None] * along[:, None] + aside[..., None] * across[:, None]
    out = np.zeros((n, 13 * k))
    for i in range(k):
        out[:, 7 * i : 7 * i + 2] = place[:, i]
        out[:, 7 * i + 2] = draw["half"][:, i, 2] + draw["rounding"][:, i]
        out[:, 7 * i + 3], out[:, 7 * i + 6] = np.cos(yaw[:, i] / 2), np.sin(yaw[:, i] / 2)
    v = 7 * k
    out[:, v : v + 2] = rng.uniform(0.2, r.speed, (n, 1)) * along
    out[:, v + 5] = rng.normal(size=n) * 0.3 * r.spin * (rng.uniform(size=n) < 0.5)
    return out
