"""Tosses: starts from free flight, identification on whole trajectories, and data scaling."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clashsim.bench import real_tosses, toss_brax, toss_methods
from clashsim.bench.options import BenchOptions
from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.errors import ClashError, DataError
from clashsim.core.floor_scenes import box_contact_params, box_inertia_params, box_scene
from clashsim.core.trials import Trial
from clashsim.data.public_sets import cube_tosses
from clashsim.data.segmentation.free_flight import cut_windows, estimate_gravity, fit_flight
from clashsim.fit.box_rollouts import simulate
from clashsim.fit.data_scaling import ScalingRanges, scale_data
from clashsim.fit.toss_cmaes import identify_tosses
from clashsim.fit.toss_rollouts import Tosses, TossRollouts
from clashsim.sim.mujoco.simulator import MujocoSim

CUBE = Box.even((0.05, 0.05, 0.05), 0.37)
DT = 1 / 148


def simulated(
    n: int, frames: int, friction: float = 0.0, centre: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> tuple[list[Trial], np.ndarray]:
    """Tosses of a cube in MuJoCo, from 8 cm above the floor."""
    rng = np.random.default_rng(0)
    start = np.zeros((n, 13))
    start[:, 2] = 0.17
    quaternion = rng.normal(size=(n, 4))
    start[:, 3:7] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    start[:, 7:10] = rng.normal(size=(n, 3)) * [0.8, 0.8, 0.0]
    start[:, 10:] = rng.normal(size=(n, 3)) * 3
    parameters = {
        "half": np.full((n, 1, 3), 0.05),
        "mass": np.full((n, 1), 0.37),
        "inertia": np.tile(CUBE.inertia, (n, 1, 1)),
        "centre": np.tile(centre, (n, 1, 1)),
        "rounding": np.zeros((n, 1)),
        "contact": np.tile([friction, 0, 0, 0.5, 0], (n, 1)),
        "gravity": np.full(n, 9.81),
    }
    states = simulate(parameters, start, frames, dt=DT)
    t = np.arange(frames + 1) * DT
    trials = []
    for i, state in enumerate(states):
        trials.append(Trial(str(i), t, {"box0": state[:, :7]}, source="simulated"))
    return trials, start


def test_the_start_agrees_with_the_flight_whatever_the_centre_of_mass():
    centre = (0.004, -0.006, 0.005)
    trials, start = simulated(6, 30, centre=centre)
    flights = [fit_flight(t, "box0", CUBE.corners) for t in trials]
    assert min(f.frames for f in flights) >= 4

    def errors_with(mass_centre):
        states = [flight.initial_state(np.array([mass_centre]), 9.81)[0] for flight in flights]
        return np.stack(states) - start

    right = errors_with(centre)
    wrong = errors_with((0.0, 0.0, 0.0))
    assert np.abs(right[:, :3]).max() < 5e-4 and np.abs(right[:, 10:]).max() < 0.1
    velocity_error = np.linalg.norm(right[:, 7:10], axis=1).mean()
    wrong_velocity_error = np.linalg.norm(wrong[:, 7:10], axis=1).mean()
    assert velocity_error < 0.02 and velocity_error < 0.7 * wrong_velocity_error
    assert estimate_gravity(flights) == pytest.approx(9.81, rel=0.05)


def test_friction_is_recovered_from_whole_trajectories():
    trials, _ = simulated(3, 50, friction=0.4)
    params = box_contact_params()[:1]
    scene = box_scene(CUBE, params, timestep=DT / SUBSTEPS)
    tosses = Tosses(tuple(fit_flight(t, "box0", CUBE.corners) for t in trials), 0.1, 50)
    found = identify_tosses(TossRollouts(scene, tosses), seed=0, generations=12)
    true = 0.08 * (0.6 / 0.08) ** 0.7
    other = TossRollouts(scene, tosses).states(np.array([[0.1], [true]]))
    errors = tosses.errors(other).position.mean(1)
    assert errors[1] < errors[0]
    assert found.theta[0] == pytest.approx(true, rel=0.3)


def test_scaled_data_goes_on_from_finished_shards(tmp_path):
    ranges = ScalingRanges(frames=6)
    first = scale_data(ranges, 300, 0, checkpoint_dir=tmp_path / "parts")
    (tmp_path / "parts" / "shard-00001.safetensors").unlink()
    again = scale_data(ranges, 300, 0, checkpoint_dir=tmp_path / "parts")
    assert first["motion"].shape[1:] == (7, 1, 13)
    assert all(np.array_equal(first[k], again[k]) for k in first)
    with pytest.raises(ClashError, match="another"):
        scale_data(ranges, 301, 0, checkpoint_dir=tmp_path / "parts")


def test_a_damaged_archive_is_said_in_a_sentence(tmp_path):
    path = tmp_path / cube_tosses.FILE
    path.parent.mkdir(parents=True)
    with pytest.raises(ClashError, match="contact-nets"):
        cube_tosses.load(tmp_path)
    path.write_bytes(b"not a zip")
    with pytest.raises(ClashError, match="cannot be read"):
        cube_tosses.load(tmp_path)
    buffer = io.BytesIO()
    torch.save(torch.zeros(1, 9, 19), buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tosses/0.pt", buffer.getvalue())
    with pytest.raises(ClashError, match="quaternions"):
        cube_tosses.load(tmp_path)


def test_the_bench_has_its_rows(tmp_path):
    root = os.environ.get("CLASHSIM_DATA")
    if not root or not (Path(root) / cube_tosses.FILE).is_file():
        pytest.skip("no tosses: point CLASHSIM_DATA at a folder with them")
    options = BenchOptions(root=Path(root), quick=True, resume=tmp_path / "rows.jsonl")
    rows = real_tosses.run(options)
    methods = list(real_tosses.METHODS)[:3]
    assert [(r["start"], r["method"]) for r in rows] == [
        (start, method) for start in real_tosses.STARTS for method in methods
    ]
    assert rows[0]["n"] == 4
    assert rows[0]["position_pct"] > rows[2]["position_pct"]  # identified is better than not
    assert 0 < rows[0]["penetration_pct"] < rows[0]["penetration_largest"] < 50
    assert rows[3]["position_pct"] != rows[0]["position_pct"]  # row 0 is another start
    assert real_tosses.run(options) == rows


def test_row_0_of_a_recording_is_a_start_that_is_not_fitted(tmp_path):
    table = torch.zeros(1, 9, 19, dtype=torch.float64)
    table[..., 3] = 1
    table[0, 0, :3] = torch.tensor([1.0, 2.0, 3.0])
    table[0, 0, 7:13] = torch.tensor([4.0, 5.0, 6.0, 0.7, 0.8, 0.9])
    path = tmp_path / cube_tosses.FILE
    path.parent.mkdir(parents=True)
    buffer = io.BytesIO()
    torch.save(table, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tosses/7.pt", buffer.getvalue())
    start = cube_tosses.recorded_starts(tmp_path)["7"]
    half = cube_tosses.HALF
    expected = [half, 2 * half, 3 * half, 1, 0, 0, 0, 4 * half, 5 * half, 6 * half, 0.7, 0.8, 0.9]
    assert np.allclose(start, expected)
    trials, _ = simulated(1, 30)
    flight = replace(fit_flight(trials[0], "box0", CUBE.corners), recorded_start=start)
    states = flight.initial_state(np.array([[0.0, 0.0, 0.0], [0.004, 0.0, 0.0]]), 9.81)
    assert np.array_equal(states, [start, start])


def test_penetration_is_that_of_the_lowest_corner():
    trials, _ = simulated(1, 9)
    tosses = Tosses((fit_flight(trials[0], "box0", CUBE.corners),), 0.1)
    states = np.zeros((1, 1, 10, 7))
    states[..., 2] = 0.2
    states[..., 3] = 1
    states[0, 0, 0, 2] = 0.049  # lies 1 mm too deep
    states[0, 0, 1, 2:] = 0.06, np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0  # stands on an edge
    depth = tosses.penetration(states, np.full(3, 0.05), 0.002)
    on_edge = 100 * (0.05 * np.sqrt(2) + 0.002 - 0.06) / 0.1
    assert depth.largest == pytest.approx(on_edge)
    assert depth.mean == pytest.approx((3 + on_edge) / 10)


def test_a_scene_of_recorded_lengths_moves_as_the_true_one():
    """Lengths and gravity times one factor, all else equal: the same motion in other metres."""
    paths = []
    for scale in (1.0, cube_tosses.RECORDED_LENGTH):
        scene = toss_methods.make_scene(box_contact_params()[:1], scale=scale)
        start = np.array([[0, 0, 0.08 * scale, 1, 0.2, 0.1, 0, 0.5 * scale, 0, 0, 1, 2, 3.0]])
        start[:, 3:7] /= np.linalg.norm(start[:, 3:7])
        states = MujocoSim(scene).rollout(start, np.zeros((1, 400, 0)))
        paths.append(np.concatenate([states[..., :3] / scale, states[..., 3:7]], -1))
    moved = np.abs(paths[0][0, -1] - paths[0][0, 0]).max()
    assert moved > 0.05
    # The contact's solimp width stays in metres, since it is identified in those of the recording.
    assert np.abs(paths[0] - paths[1]).max() < 5e-3


def test_the_graph_network_predicts_tosses_that_mujoco_identified():
    trials, _ = simulated(2, 40, friction=0.4)
    flights = tuple(fit_flight(t, "box0", CUBE.corners) for t in trials)
    theta = {
        param.name: param.nominal for param in toss_methods.make_scene(toss_methods.ALL).params
    }
    problem = toss_methods.TossProblem(
        fit=flights, test=flights, seed=0, quick=False, thetas={"mujoco-shape": theta}
    )
    result = toss_methods.METHODS["graph"](problem)
    assert result.theta == theta
    assert result.errors.position.shape == result.penetration.mean.shape == (1, 2)
    assert result.errors.position.max() < 20
    assert result.errors.soon_rotation.max() < 20


@pytest.mark.parametrize("pipeline", toss_brax.PIPELINES)
def test_brax_flies_as_mujoco_does_and_bounces(pipeline):
    pytest.importorskip("brax", reason="Brax is not installed: pip install 'clashsim[brax]'")
    trials, _ = simulated(2, 40, friction=0.4)
    flights = tuple(fit_flight(t, "box0", CUBE.corners) for t in trials)
    scene = toss_methods.make_scene(box_inertia_params(CUBE))
    tosses = Tosses(flights, 0.1)
    in_mujoco = TossRollouts(scene, tosses).states(scene.nominal[None])[0]
    rollouts = toss_brax.BraxRollouts(scene, tosses, pipeline=pipeline)
    nominal = np.array([param.nominal for param in rollouts.params])
    in_brax = rollouts.states(nominal[None])[0]
    for i, flight in enumerate(flights):
        before_contact = np.s_[i, : flight.frames, :7]
        assert np.abs(in_brax[before_contact] - in_mujoco[before_contact]).max() < 1e-3
    assert in_brax[..., 2].min() > 0.5 * CUBE.half[2]  # the floor holds


def test_held_out_tosses_choose_among_restarts_and_are_not_fitted():
    trials, _ = simulated(4, 40, friction=0.4)
    scene = box_scene(CUBE, box_contact_params()[:1], timestep=DT / SUBSTEPS)
    flights = tuple(fit_flight(t, "box0", CUBE.corners) for t in trials)
    few, all_of_them = (
        identify_tosses(
            TossRollouts(scene, Tosses(f, 0.1, 40)), seed=0, restarts=2, generations=4, hold_out=h
        )
        for f, h in ((flights, 2), (flights, 0))
    )
    assert few.held_out is not None and few.held_out < 0.2 and all_of_them.held_out is None
    assert few.evaluations * 2 == all_of_them.evaluations
    with pytest.raises(DataError, match="cannot be held out"):
        identify_tosses(TossRollouts(scene, Tosses(flights, 0.1, 40)), seed=0, hold_out=4)


def test_windows_begin_where_the_toss_is():
    trials, _ = simulated(1, 40)
    whole = fit_flight(trials[0], "box0", CUBE.corners)
    pieces = cut_windows(whole, 12, 10)
    assert len(pieces) == 3 and all(len(p.position) == 12 for p in pieces)
    for k, piece in zip((0, 10, 20), pieces, strict=True):
        start = piece.initial_state(np.zeros((1, 3)), 9.81)[0]
        assert np.abs(start[:3] - whole.position[k]).max() < 2e-3
        assert np.abs(piece.orientation - whole.rotation[k]).max() < 0.02
    with pytest.raises(DataError, match="windows need"):
        cut_windows(whole, 2, 1)


@pytest.mark.slow
def test_gradients_of_mjx_identify_friction_and_the_centre_of_mass():
    pytest.importorskip("mujoco.mjx")
    from clashsim.fit.toss_mjx import identify_tosses_mjx

    centre = (0.0, 0.0, 0.006)
    trials, _ = simulated(3, 40, friction=0.4, centre=centre)
    params = (box_contact_params()[0], box_inertia_params(CUBE)[2])
    scene = box_scene(CUBE, params, timestep=DT / SUBSTEPS)
    flights = tuple(fit_flight(t, "box0", CUBE.corners) for t in trials)
    found = identify_tosses_mjx(
        TossRollouts(scene, Tosses(flights, 0.1, 40)), seed=0, starts=2, after=8, steps=6
    )
    assert found.theta[1] == pytest.approx(0.006, abs=0.002)
    assert found.theta[0] == pytest.approx(0.08 * (0.6 / 0.08) ** 0.7, rel=0.3)
