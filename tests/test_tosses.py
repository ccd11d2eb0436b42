"""Tosses: starts from free flight, identification on whole trajectories, data scaling, and the bench in short form."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from clashsim.bench import real_tosses, toss_set
from clashsim.core.boxes import SUBSTEPS, Box
from clashsim.core.cubes import box_scene, contact_params
from clashsim.core.errors import ClashError
from clashsim.core.trials import Trial
from clashsim.data.flight import flight, gravity
from clashsim.fit.scale import Ranges, scaled, simulate
from clashsim.fit.trajectories import Rollouts, Tosses, identify

CUBE = Box.even((0.05, 0.05, 0.05), 0.37)
DT = 1 / 148


def simulated(n: int, frames: int, friction: float = 0.0, centre: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> tuple[list[Trial], np.ndarray]:
    """Tosses of a cube in MuJoCo, from 8 cm above the floor."""
    rng = np.random.default_rng(0)
    start = np.zeros((n, 13))
    start[:, 2], start[:, 3:7] = 0.17, rng.normal(size=(n, 4))
    start[:, 3:7] /= np.linalg.norm(start[:, 3:7], axis=1, keepdims=True)
    start[:, 7:10], start[:, 10:] = rng.normal(size=(n, 3)) * [0.8, 0.8, 0.0], rng.normal(size=(n, 3)) * 3
    draw = {"half": np.full((n, 1, 3), 0.05), "mass": np.full((n, 1), 0.37), "inertia": np.tile(CUBE.inertia, (n, 1, 1)), "centre": np.tile(centre, (n, 1, 1)),
            "rounding": np.zeros((n, 1)),
            "contact": np.tile([friction, 0, 0, 0.5, 0], (n, 1)), "gravity": np.full(n, 9.81)}
    states = simulate(draw, start, frames, dt=DT)
    return [Trial(str(i), np.arange(frames + 1) * DT, {"box0": s[:, :7]}, source="simulated") for i, s in enumerate(states)], start


def test_the_start_agrees_with_the_flight_whatever_the_centre_of_mass():
    centre = (0.004, -0.006, 0.005)
    trials, start = simulated(6, 30, centre=centre)
    flights = [flight(t, "box0", CUBE.corners) for t in trials]
    assert min(f.frames for f in flights) >= 4
    right, wrong = (np.stack([f.start(np.array([c]), 9.81)[0] for f in flights]) for c in (centre, (0.0, 0.0, 0.0)))
    assert np.abs(right - start)[:, :3].max() < 5e-4 and np.abs(right - start)[:, 10:].max() < 0.1
    off = [np.linalg.norm((r - start)[:, 7:10], axis=1).mean() for r in (right, wrong)]
    assert off[0] < 0.02 and off[0] < 0.7 * off[1]
    assert gravity(flights) == pytest.approx(9.81, rel=0.05)


def test_friction_is_recovered_from_whole_trajectories():
    trials, _ = simulated(3, 50, friction=0.4)
    params = contact_params()[:1]
    scene = box_scene(CUBE, params, timestep=DT / SUBSTEPS)
    tosses = Tosses(tuple(flight(t, "box0", CUBE.corners) for t in trials), 0.1, 50)
    found = identify(Rollouts(scene, tosses), seed=0, generations=12)
    true = 0.08 * (0.6 / 0.08) ** 0.7
    other = Rollouts(scene, tosses).states(np.array([[0.1], [true]]))
    errors = tosses.errors(other).position.mean(1)
    assert errors[1] < errors[0]
    assert found.theta[0] == pytest.approx(true, rel=0.3)


def test_scaled_data_goes_on_from_finished_shards(tmp_path):
    ranges = Ranges(frames=6)
    first = scaled(ranges, 300, 0, parts=tmp_path / "parts")
    (tmp_path / "parts" / "shard-00001.safetensors").unlink()
    again = scaled(ranges, 300, 0, parts=tmp_path / "parts")
    assert first["states"].shape[1:] == (7, 13) and all(np.array_equal(first[k], again[k]) for k in first)
    with pytest.raises(ClashError, match="another"):
        scaled(ranges, 301, 0, parts=tmp_path / "parts")


def test_a_damaged_archive_is_said_in_a_sentence(tmp_path):
    place = tmp_path / toss_set.FILE
    place.parent.mkdir(parents=True)
    with pytest.raises(ClashError, match="contact-nets"):
        toss_set.load(tmp_path)
    place.write_bytes(b"not a zip")
    with pytest.raises(ClashError, match="cannot be read"):
        toss_set.load(tmp_path)
    buffer = io.BytesIO()
    torch.save(torch.zeros(1, 9, 19), buffer)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("tosses/0.pt", buffer.getvalue())
    with pytest.raises(ClashError, match="quaternions"):
        toss_set.load(tmp_path)


def test_the_bench_has_its_rows(tmp_path):
    root = os.environ.get("CLASHSIM_DATA")
    if not root or not (Path(root) / toss_set.FILE).is_file():
        pytest.skip("no tosses: point CLASHSIM_DATA at a folder with them")
    rows = real_tosses.run(Path(root), quick=True, resume=tmp_path / "rows.jsonl")
    assert [r["method"] for r in rows] == list(real_tosses.METHODS)[:3] and rows[0]["n"] == 4
    assert rows[0]["position_pct"] > rows[2]["position_pct"]  # identified is better than not
    assert real_tosses.run(Path(root), quick=True, resume=tmp_path / "rows.jsonl") == rows
