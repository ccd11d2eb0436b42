"""First bounces of tossed cubes: what is read of simulated tosses is what happened in them."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.data import datasets
from clashsim.data.public_sets import cube_tosses
from clashsim.evaluate.metrics import relative_error

STEPS = 68  # of MuJoCo per frame of the recordings
FRAMES = 40
RECORDED_LENGTH = 0.978
GYRATION = 0.0468  # m


def tossed(seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """A toss of the shipped scene's cube: its poses, and its twist when it leaves the floor.

    Returns:
        Poses (FRAMES, 7) at the rate of the recordings, and the twist (6,) after the first contact,
        or None where another contact follows within seven frames.
    """
    scene = Scene.load("cube").with_nominal({"stiffness": 4e6, "damping": 500.0})
    model = scene.model(scene.nominal)
    model.opt.timestep = 1 / cube_tosses.RATE / STEPS
    data = mujoco.MjData(model)
    rng = np.random.default_rng(seed)
    rotation = Rotation.random(rng=rng)
    data.qpos[:] = [0, 0, 0.2, *rotation.as_quat(scalar_first=True)]
    data.qvel[:] = [*rng.uniform(-0.5, 0.5, 2), -0.5, *rng.uniform(-3, 3, 3)]
    poses, contacts, after = [], [], None
    for step in range(STEPS * FRAMES):
        if step % STEPS == 0:
            poses.append(data.qpos.copy())
        touched = data.ncon > 0
        mujoco.mj_step(model, data)
        if data.ncon > 0:
            contacts.append(step)
        elif touched and after is None:
            rotation_now = data.xmat[1].reshape(3, 3)
            after = np.concatenate([data.qvel[:3], rotation_now @ data.qvel[3:]])
    gaps = np.diff([*contacts, STEPS * FRAMES])
    flight = int(gaps[np.flatnonzero(gaps > 1)[0]])  # steps until the next contact
    if flight < 7 * STEPS:
        return np.array(poses), None
    return np.array(poses), after


def write_tosses(root: Path, tosses: list[np.ndarray]) -> None:
    """Write tosses as the authors of the data do: lengths in half widths, one torch file each."""
    path = root / cube_tosses.FILE
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for number, poses in enumerate(tosses):
            table = np.zeros((1, len(poses), 19))
            table[0, :, :7] = poses
            table[0, :, :3] *= RECORDED_LENGTH / cube_tosses.HALF
            buffer = io.BytesIO()
            torch.save(torch.tensor(table), buffer)
            archive.writestr(f"tosses/{number}.pt", buffer.getvalue())


def test_a_simulated_bounce_is_recovered(tmp_path: Path) -> None:
    tosses = [tossed(seed) for seed in range(15)]
    alone = [(poses, after) for poses, after in tosses if after is not None]
    assert len(alone) >= 4
    write_tosses(tmp_path, [poses for poses, _ in alone])
    assert datasets.names(tmp_path) == ["contactnets_cube"]
    real = datasets.load("contactnets_cube", tmp_path)
    assert len(real.impacts) == len(alone) and not real.impacts.planar
    truth = np.array([after for _, after in alone])
    # Gravity acts during the contact in the simulation, but not between two fitted flights.
    assert relative_error(real.impacts.after, truth, GYRATION).max() < 0.05
    assert np.allclose(real.impacts.pose[:, 3:] ** 2 @ np.ones(4), 1)
    frame = contact_frame(Scene.load(real.scene), real.impacts)
    assert np.abs(frame.contact.point[:, 2]).max() < 1e-3
    assert real.gyration == pytest.approx(GYRATION, rel=1e-3)


def test_a_toss_without_a_flight_on_both_sides_is_left_out(tmp_path: Path) -> None:
    poses = next(poses for poses, after in map(tossed, range(12)) if after is not None)
    lowest = int(np.argmin(poses[:, 2]))
    resting = np.repeat(poses[:1], 20, 0)
    resting[:, 2] = 0.05
    write_tosses(tmp_path, [poses[: lowest - 3], resting])
    with pytest.raises(DataError, match="no first bounce"):
        datasets.load("contactnets_cube", tmp_path)


def test_real_bounces_lose_energy_at_a_corner() -> None:
    root = os.environ.get(datasets.DATA_ROOT_VARIABLE)
    if not root or "contactnets_cube" not in datasets.names(Path(root)):
        pytest.skip("no tosses: point CLASHSIM_DATA at a folder with them")
    real = datasets.load("contactnets_cube", Path(root))
    scene = Scene.load(real.scene)
    frame = contact_frame(scene, real.impacts)
    weights = np.r_[np.ones(3), np.full(3, real.gyration)]
    before = np.linalg.norm(real.impacts.twist * weights, axis=1)
    after = np.linalg.norm(real.impacts.after * weights, axis=1)
    assert np.mean(after < before) > 0.95
    moved = real.impacts.before.copy()
    body = MotionBefore.of(moved).struck
    closing = body.velocity_at(frame.contact.point)[:, 2].copy()
    body.twist[:] = real.impacts.after
    restitution = -body.velocity_at(frame.contact.point)[:, 2] / closing
    assert 0.1 < np.median(restitution) < 0.5
