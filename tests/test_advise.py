"""Advice on the next strikes: known answers of the greedy choice, the verb, and its bench in short
form.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from clashsim import cli
from clashsim.bench import advise as bench
from clashsim.bench.lab_sets import load_lab_set
from clashsim.bench.options import BenchOptions
from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import ClashError, DataError, ParamError, SceneError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.recorded_joints import joint_motion
from clashsim.core.scene import Scene, scene_params
from clashsim.fit.advise import advise, choose
from clashsim.fit.base import distilled_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.candidates import candidates
from clashsim.fit.field_kernels import Context, PriorScales, prior_covariance
from clashsim.fit.run_folder import RunRecord, load, save_run
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.mujoco.impacts import simulate_impacts

N = 12
D = 2
DOOR = """
<mujoco><worldbody>
  <body name="door" pos="0.3 0.15 0.16"><joint name="hinge" axis="0 0 1"/>
    <geom name="panel" type="box" size="0.008 0.14 0.15" pos="0 -0.14 0" mass="0.65"/></body>
  <body name="ball"><freejoint/><geom name="ball" type="sphere" size="0.03" mass="0.1"/></body>
</worldbody></mujoco>
"""
GANTRY = """
<mujoco><worldbody>
  <geom name="table" type="plane" size="1 1 .1"/>
  <body name="box" pos="0 0 0.04"><freejoint/>
    <geom name="box" type="box" size="0.05 0.07 0.04" mass="0.4"/></body>
  <body name="rail" pos="-0.4 0 0.04"><joint name="rail_x" type="slide" axis="1 0 0"/>
    <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
    <body name="cross"><joint name="rail_y" type="slide" axis="0 1 0" range="-0.1 0.1"/>
      <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
      <body name="tool"><joint name="wrist" axis="0 0 1" pos="0.01 0 0" range="-1 1"/>
        <geom name="tool" type="box" size="0.015 0.04 0.02" mass="0.3"/></body></body></body>
</worldbody></mujoco>
"""
EVEN = torch.full((N,), 1 / N, dtype=torch.float64)


@pytest.fixture(scope="module")
def strikes():
    return load_lab_set("square", "square", "nylon", "low")


@pytest.fixture(scope="module")
def few(strikes):
    """A calibration on eight strikes."""
    return calibrate(distilled_model(Scene.load("square")), strikes.impacts[np.arange(8)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory, few):
    """Runs of today, and of before Jacobians were kept."""
    folder = tmp_path_factory.mktemp("runs")
    save_run(folder / "run", few)
    save_run(
        folder / "old",
        replace(few, posteriors=tuple(replace(p, jacobian=None) for p in few.posteriors)),
    )
    return folder


def gaussian(seed: int = 0):
    """Covariance (N D, N D) of N outcomes that share a few causes, and their noise (N, D, D)."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(N * D, 5))
    noise = torch.as_tensor(rng.uniform(0.1, 0.5, N))[:, None, None] * torch.eye(
        D, dtype=torch.float64
    )
    return torch.as_tensor(causes @ causes.T + 0.1 * np.eye(N * D)), noise


def left_after(covariance, noise, rows) -> np.ndarray:
    """Variance (N,) of each outcome given measurements of rows, by conditioning on all at once."""
    at = np.concatenate([np.arange(D) + D * r for r in rows])
    c = covariance.numpy()
    measured = c[np.ix_(at, at)] + torch.block_diag(*noise[list(rows)]).numpy()
    return np.diag(c - c[:, at] @ np.linalg.solve(measured, c[at])).reshape(N, D).sum(1)


def typical(variance, noise, share) -> float:
    floor = float(share.numpy() @ noise.numpy().trace(axis1=1, axis2=2))
    return float(np.exp(share.numpy() @ np.log(variance + floor)) - floor)


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_brute_force_and_what_is_reported_is_true(seed):
    covariance, noise = gaussian(seed)
    share = torch.as_tensor(np.random.default_rng(seed).dirichlet(np.ones(N)))
    rows, left = choose(covariance, noise, 4, share)
    assert rows[0] == np.argmin(
        [typical(left_after(covariance, noise, [i]), noise, share) for i in range(N)]
    )
    assert len(set(rows)) == 4
    for k in range(1, 5):
        assert left[k] == pytest.approx(
            typical(left_after(covariance, noise, rows[:k]), noise, share), rel=1e-9
        )
    assert (np.diff(left) < 0).all()
    for k in range(1, 4):  # each is the best beside those before it
        others = [i for i in range(N) if i not in rows[:k]]
        assert rows[k] == min(
            others,
            key=lambda i: typical(left_after(covariance, noise, [*rows[:k], i]), noise, share),
        )


def test_what_was_measured_often_is_not_chosen():
    covariance = torch.eye(N * D, dtype=torch.float64)
    covariance[:D] *= 1e-4  # known already
    rows, _ = choose(covariance, 0.1 * torch.eye(D, dtype=torch.float64).expand(N, D, D), N, EVEN)
    assert rows[-1] == 0


def test_weights_decide_what_matters():
    covariance = torch.eye(N * D, dtype=torch.float64)
    share = torch.zeros(N, dtype=torch.float64)
    share[[3, 7]] = 0.5
    rows, left = choose(
        covariance, 0.1 * torch.eye(D, dtype=torch.float64).expand(N, D, D), 3, share
    )
    assert set(rows[:2]) == {3, 7}
    assert left[3] == pytest.approx(left[2])


def test_covariance_is_that_of_sampled_parameters():
    """With constants alone the covariance is J S J^T, as many samples of the parameters have it."""
    rng = np.random.default_rng(1)
    jacobian = torch.as_tensor(rng.normal(size=(3, 2, 4)))
    std = torch.tensor([0.5, 1.0, 0.1, 2.0], dtype=torch.float64)
    none = torch.zeros(3, 0, dtype=torch.float64)
    side = (jacobian, Context((none,), none))
    scales = PriorScales(field=0.0, residual=0.0, linear=0.0)
    covariance = prior_covariance(side, side, std, scales)
    flat = jacobian.flatten(0, 1).numpy()
    sampled = flat @ (rng.normal(size=(4, 400_000)) * std.numpy()[:, None])
    error = np.abs(np.cov(sampled) - covariance.numpy()).max()
    assert error < 0.02 * float(covariance.diagonal().max())


def test_advice_does_not_look_at_outcomes_and_is_the_same_from_a_run(strikes, few, runs):
    pool = strikes.impacts[np.arange(8, 60)]
    first = advise(few, pool, 5)
    hidden = advise(few, replace(pool, after=np.zeros_like(pool.after)), 5)
    read = advise(load(runs / "run").calibration, pool, 5)
    for other in (hidden, read):
        assert (first.rows == other.rows).all()
        assert (first.error == other.error).all()
    assert (np.diff(first.error) < 0).all()
    assert first.floor < first.after_ten < first.error[-1]


def test_strikes_like_those_recorded_tell_less(strikes, few):
    """Of one recorded strike and a copy, both recorded already, and fresh ones, the fresh are
    chosen; more weight attracts strikes.
    """
    pool = strikes.impacts[np.r_[np.arange(8), np.arange(8, 60)]]
    assert (advise(few, pool, 8).rows >= 8).mean() > 0.8
    fast = np.linalg.norm(pool.striker_twist[:, :2], axis=1) > 0.6
    chosen = advise(few, pool, 6, weights=fast.astype(float)).rows
    assert fast[chosen].mean() > fast[advise(few, pool, 6).rows].mean()


def test_ten_more_help_after_few_strikes_and_not_after_many(strikes):
    base = distilled_model(Scene.load("square"))
    choice = candidates(base.scene, 0, 128)
    advice = {
        n: advise(calibrate(base, strikes.impacts[np.arange(n)]), choice.impacts, 1)
        for n in (5, 100)
    }
    assert advice[5].worthwhile
    assert not advice[100].worthwhile
    assert advice[100].error[0] < advice[5].error[0] < advise(base, choice.impacts, 1).error[0]


def test_candidates_keep_to_side_and_speed():
    choice = candidates(Scene.load("square"), 3, 64, speed=(0.3, 0.4), side=(np.pi / 2, -np.pi / 2))
    speed = choice.strikes[:, choice.names.index("speed")]
    assert len(choice.strikes) == 64
    assert speed.min() >= 0.3
    assert speed.max() <= 0.4
    assert (choice.impacts.striker_pose[:, 0] < 0).all()
    assert (choice.impacts.pose == 0).all()
    assert (
        candidates(Scene.load("square"), 3, 64).strikes
        == candidates(Scene.load("square"), 3, 64).strikes
    ).all()


def thrown_at_the_door(num=15, seed=0) -> np.ndarray:
    """Motion before impacts of a ball that comes from one side, at 1 to 2 m/s."""
    rng = np.random.default_rng(seed)
    before, motion = MotionBefore.at_origin(num, planar=False)
    angle = rng.uniform(-0.2, 0.2, num)
    motion.struck.position[:] = [0.3, 0.15, 0.16]
    motion.struck.quaternion[:, 0] = np.cos(angle / 2)
    motion.struck.quaternion[:, 3] = np.sin(angle / 2)
    motion.striker.quaternion[:, 0] = 1
    motion.striker.position[:, 0] = 0.2
    motion.striker.position[:, 1:] = rng.uniform([-0.1, 0.05], [0.05, 0.15], (num, 2))
    motion.striker.velocity[:, 0] = rng.uniform(1, 2, num)
    return before


def hit_by_the_gantry(num=15, seed=0) -> np.ndarray:
    """Motion before impacts of a tool that comes from -x, at 0.5 to 1 m/s."""
    rng = np.random.default_rng(seed)
    before, motion = MotionBefore.at_origin(num, planar=False)
    motion.struck.position[:, 2] = 0.04
    motion.struck.quaternion[:, 0] = 1
    angle = rng.uniform(-0.2, 0.2, num)
    motion.striker.quaternion[:, 0] = np.cos(angle / 2)
    motion.striker.quaternion[:, 3] = np.sin(angle / 2)
    motion.striker.position[:, 0] = -0.07
    motion.striker.position[:, 1] = rng.uniform(-0.05, 0.05, num)
    motion.striker.position[:, 2] = 0.04
    motion.striker.velocity[:, 0] = rng.uniform(0.5, 1.0, num)
    return before


def test_strikes_on_a_hinged_body_are_like_the_recorded_ones_and_on_its_surface():
    scene = Scene(DOOR, "panel", "ball", name="door")
    choice = candidates(scene, 0, 100, recorded=thrown_at_the_door())
    assert len(choice.strikes) == 100
    speed = choice.strikes[:, choice.names.index("speed")]
    assert 0.9 < speed.min() < 1.1 and 1.9 < speed.max() < 2.2
    size = np.array([0.008, 0.14, 0.15])
    from_middle = np.abs(choice.touch - [0, -0.14, 0])
    assert (from_middle <= size + 1e-4).all()
    assert np.allclose(choice.touch[:, 0], -0.008, atol=1e-4)  # the side that was recorded
    assert contact_frame(scene, choice.impacts).contact.touching.all()
    motion = choice.impacts.motion
    assert np.allclose(motion.struck.position, [0.3, 0.15, 0.16])
    slow = candidates(scene, 0, 50, speed=(1.0, 1.2), recorded=thrown_at_the_door())
    assert (slow.strikes[:, 0] <= 1.2).all()
    with pytest.raises(ParamError, match=r"within 0\.9"):
        candidates(scene, 0, speed=(0.1, 0.2), recorded=thrown_at_the_door())
    with pytest.raises(SceneError, match="joints carry its struck body 'door'"):
        candidates(scene, 0)


def test_strikes_of_a_tool_on_joints_can_be_made_by_them():
    scene = Scene(GANTRY, "box", "tool", ground="table", in_space=True, name="gantry")
    choice = candidates(scene, 0, 100, recorded=hit_by_the_gantry())
    assert len(choice.strikes) > 50
    assert np.allclose(choice.touch[:, 0], -0.05, atol=1e-4)
    striker = choice.impacts.motion.striker
    assert np.allclose(striker.position[:, 2], 0.04)  # the rails are at one height
    assert np.allclose(striker.velocity[:, 2], 0)
    joints = joint_motion(scene, choice.impacts.before)
    assert list(joints) == [
        name + ending for name in ("rail_x", "rail_y", "wrist") for ending in ("", "_velocity")
    ]
    assert np.abs(joints["rail_y"]).max() <= 0.1 + 1e-6
    assert 0.4 < joints["rail_x_velocity"].min() < joints["rail_x_velocity"].max() < 1.15
    with pytest.raises(SceneError, match="joints carry its striker 'tool'"):
        candidates(scene, 0)


def test_a_calibration_keeps_the_recorded_strikes(few, runs):
    assert few.recorded is not None and len(few.recorded) == 8
    kept = load(runs / "run").calibration.recorded
    assert (kept == few.recorded).all()


def test_advice_for_a_hinged_body_is_written_with_its_motion(tmp_path, capsys):
    scene = Scene(DOOR, "panel", "ball", name="door")
    scene = scene.with_params(scene_params(scene))
    before = thrown_at_the_door()
    planned = Impacts(False, before, np.zeros((len(before), 6)))
    frame = contact_frame(scene, planned)
    theta = np.tile(scene.nominal, (len(before), 1))
    after = simulate_impacts(scene, frame.before, theta).after
    fitted = calibrate(SolvedModel(scene), replace(planned, after=after))
    worse = {"accuracy_0.1": 0.2, "accuracy_0.2": 0.5, "median": 0.3}
    better = {"accuracy_0.1": 0.9, "accuracy_0.2": 1.0, "median": 0.02}
    metrics = {
        "impacts": len(before),
        "held_out": 0,
        "judged": "on impacts left out in turn",
        "models": {"MuJoCo, identified": better, "clashsim": worse},
    }
    save_run(tmp_path / "run", fitted, record=RunRecord(metrics=metrics))
    out = tmp_path / "next.csv"
    assert cli.main(["advise", str(tmp_path / "run"), "-k", "2", "-o", str(out)]) == 0
    assert "do not use it" in capsys.readouterr().out  # as plan, export and train say
    row = next(csv.DictReader(out.open()))
    assert float(row["hinge_velocity"]) == pytest.approx(0, abs=1e-9)
    assert float(row["striker_vx"]) > 0.5 and float(row["x"]) == pytest.approx(0.3)
    save_run(tmp_path / "old", replace(fitted, recorded=None))
    assert cli.main(["advise", str(tmp_path / "old")]) == 2
    assert "calibrate again" in capsys.readouterr().err


def test_what_cannot_be_advised_is_refused(few, strikes):
    pool = strikes.impacts[np.arange(20)]
    for wrong in (
        {"k": 0},
        {"k": 21},
        {"k": 2, "weights": np.zeros(20)},
        {"k": 2, "weights": -np.ones(20)},
        {"k": 2, "weights": np.ones(3)},
    ):
        with pytest.raises(DataError):
            advise(few, pool, **wrong)


def test_the_verb_prints_and_writes(runs, tmp_path, capsys):
    table = tmp_path / "next.csv"
    whole = tmp_path / "next.json"
    assert cli.main(["advise", str(runs / "run"), "-k", "4", "-o", str(table)]) == 0
    text = capsys.readouterr().out
    assert "ten more strikes would help" in text
    assert "speed, m/s" in text
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 4
    assert list(rows[0]) == [
        "speed",
        "point",
        "deflection",
        "touch_x",
        "touch_y",
        "expected_error",
    ]
    assert all(0.2 <= float(r["speed"]) <= 0.8 for r in rows)
    assert cli.main(["advise", str(runs / "run"), "-k", "4", "-o", str(whole)]) == 0
    content = json.loads(whole.read_text())
    assert content["worthwhile"] is True
    assert [str(s["speed"]) for s in content["strikes"]] == [r["speed"] for r in rows]
    assert content["error_now"] > content["strikes"][0]["expected_error"] > content["floor"]
    assert cli.main(["advise", "square", "-k", "1"]) == 0  # the first strike of all
    assert "ten more strikes would help" in capsys.readouterr().out


def test_mistakes_are_said_in_a_sentence(runs, tmp_path, capsys):
    run = str(runs / "run")
    (tmp_path / "there.csv").write_text("")
    for arguments, words in (
        ([str(tmp_path / "none")], "no run folder"),
        ([run, "-k", "0"], "1 to 100"),
        ([run, "-o", "next.txt"], "must end in"),
        ([run, "-o", str(tmp_path / "there.csv")], "exists"),
        ([run, "--speed", "0.5", "9"], "within 0.2 to 0.8"),
        ([run, "--side", "10", "10"], "two different"),
        ([run, "--side", "nan", "10"], "bearings"),
        ([run, "--side", "0", "0.1"], "too few"),
        ([run, "--seed", "-1"], "seed"),
        ([str(runs / "old")], "calibrate again"),
        (["puck"], "striker"),
    ):
        assert cli.main(["advise", *arguments]) == 2, arguments
        err = capsys.readouterr().err
        assert err.startswith("clashsim: ") and err.count("\n") == 1 and words in err, (
            arguments,
            err,
        )


@pytest.mark.slow
def test_the_bench_has_its_rows_and_keeps_them(tmp_path):
    options = BenchOptions(quick=True, resume=tmp_path / "rows.jsonl")
    rows = bench.run(options)
    assert [(r["set"], r["method"], r["n"], r["seeds"]) for r in rows] == [
        ("semi-cylinder", m, 10, 1) for m in ("random", "advised", "advised-5-5")
    ]
    assert all(r["accuracy_0.1"] > 0.9 and 0 < r["median"] < 0.06 for r in rows)
    assert bench.run(options) == rows
    assert (
        cli.main(
            [
                "bench",
                "advise",
                "--quick",
                "--resume",
                str(tmp_path / "rows.jsonl"),
                "--json",
                str(tmp_path / "out.json"),
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "out.json").read_text())["rows"] == rows
    with pytest.raises(ClashError, match="no set"):
        bench.run(BenchOptions(sets=["cube"]))
