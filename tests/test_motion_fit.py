"""Fits to whole trajectories recover the parameters that recordings were made with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.core.errors import DataError, ParamError, RunError
from clashsim.core.trials import Trials
from clashsim.data.trial_files import write_trials
from clashsim.fit.recorded_scene import MotionFitConfig
from clashsim.pipeline.motion_fitting import AS_GIVEN, FitRunConfig, fit_run
from motion_scenes import (
    BOX,
    CONTACT_TRUTH,
    ELBOW,
    PENDULUM,
    PENDULUM_GUESS,
    PENDULUM_TRUTH,
    recorded,
    swings,
    tosses,
)

QUICK = MotionFitConfig(horizons=(0.3, 1.0), steps=6, generations=15, threads=1)


def written(folder: Path, name: str, xml: str, trials: Trials) -> tuple[str, Path]:
    (folder / f"{name}.xml").write_text(xml)
    write_trials(folder / f"{name}.safetensors", trials)
    return str(folder / f"{name}.xml"), folder / f"{name}.safetensors"


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    """Folder with a fitted pendulum, whose joints were recorded."""
    folder = tmp_path_factory.mktemp("pendulum")
    joints = {"shoulder": "q_shoulder", "elbow": "q_elbow"}
    trials = recorded(PENDULUM.format(**PENDULUM_TRUTH), swings(5), seconds=1, joints=joints)
    scene, path = written(folder, "pendulum", PENDULUM.format(**PENDULUM_GUESS), trials)
    config = FitRunConfig(params=("*_damping", "lower_mass", "lower_inertia"), fit=QUICK)
    fit_run(scene, path, folder / "run", config=config)
    return folder


def estimates(run) -> dict[str, float]:
    return {estimate.name: estimate.value for estimate in run.estimates}


def test_a_pendulum_is_recovered(pendulum):
    run = clashsim.load(pendulum / "run")
    found = estimates(run)
    assert found["shoulder_damping"] == pytest.approx(8e-3, rel=0.03)
    assert found["elbow_damping"] == pytest.approx(4e-4, rel=0.1)
    low, high = run.ranges()["elbow_damping"]
    assert low < 4.2e-4 and high > 3.8e-4
    models = run.metrics["models"]
    assert models["mujoco"]["error"] < 0.1 * models[AS_GIVEN]["error"]
    assert run.metrics["held_out"] == 1


def test_a_loaded_run_gives_the_same_bits(pendulum):
    start = np.array([[0.5, -0.3, 0.0, 0.1]])
    control = np.zeros((1, 50, 0))
    first = clashsim.load(pendulum / "run").simulator().rollout(start, control)
    second = clashsim.load(pendulum / "run").simulator().rollout(start, control)
    assert np.array_equal(first, second)
    model = mujoco.MjModel.from_xml_string(clashsim.load(pendulum / "run").mjcf().xml)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = start[0, :2], start[0, 2:]
    mujoco.mj_step(model, data, 50)
    np.testing.assert_allclose(first[0, -1, :2], data.qpos, atol=1e-7)


def test_show_and_export_know_such_runs(pendulum, capsys):
    run = str(pendulum / "run")
    assert cli.main(["show", run]) == 0
    assert "elbow_damping" in capsys.readouterr().out
    out = pendulum / "export"
    assert cli.main(["export", run, "-o", str(out), "--posterior-samples", "3"]) == 0
    assert len((out / "draws.csv").read_text().splitlines()) == 4
    assert {entry["name"] for entry in json.loads((out / "ranges.json").read_text())} >= {
        "lower_mass"
    }
    mujoco.MjModel.from_xml_path(str(out / "scene.xml"))
    page = (pendulum / "run" / "report.html").read_text()
    assert "Errors over time" in page and "elbow" in page


def test_a_run_folder_has_all_files_and_no_others_take_it(pendulum, capsys):
    names = {path.name for path in (pendulum / "run").iterdir()}
    assert names >= {
        *("config.json", "theta.json", "weights.safetensors", "scene.xml", "trials.json"),
        *("versions.json", "metrics.json", "report.html", "manifest.json"),
    }
    held_out = json.loads((pendulum / "run" / "trials.json").read_text())
    assert sum(trial["held_out"] for trial in held_out) == 1
    assert cli.main(["plan", str(pendulum / "run"), "--target", "0.1", "0", "0"]) == 2
    assert "calibrate" in capsys.readouterr().err


def test_a_damaged_run_is_refused(pendulum, tmp_path):
    from clashsim.data.folders import read_folder, write_folder

    files = read_folder(pendulum / "run")
    theta = json.loads(files["theta.json"])
    write_folder(tmp_path / "bad", files | {"theta.json": json.dumps(theta[:1]).encode()})
    with pytest.raises(RunError, match=r"theta\.json"):
        clashsim.load(tmp_path / "bad")


def test_a_tossed_box_is_recovered(tmp_path):
    xml = BOX.format(contact=CONTACT_TRUTH)
    trials = recorded(xml, tosses(7), seconds=0.5, bodies=["box"])
    scene, path = written(tmp_path, "box", BOX.format(contact='friction="0.6"'), trials)
    config = FitRunConfig(params=("contact",), fit=QUICK)
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    found = estimates(run)
    assert found["friction"] == pytest.approx(0.25, rel=0.1)
    assert found["damping"] == pytest.approx(120, rel=0.15)
    models = run.metrics["models"]
    assert models["mujoco"]["error"] < 0.3 * models[AS_GIVEN]["error"]
    assert run.metrics["penetration"]["mujoco"]["mean_mm"] >= 0


def test_a_tossed_elbow_needs_one_body_and_its_hinge(tmp_path):
    trials = recorded(
        ELBOW.format(damping=0.01),
        tosses(4, joints=1),
        seconds=0.15,
        bodies=["base"],
        joints={"hinge": "hinge"},
        noise=2e-5,
    )
    scene, path = written(tmp_path, "elbow", ELBOW.format(damping=0.002), trials)
    config = FitRunConfig(params=("hinge_damping",), fit=QUICK, hold_out=0.25)
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    assert estimates(run)["hinge_damping"] == pytest.approx(0.01, rel=0.3)


def test_mistakes_are_one_sentence(pendulum, tmp_path, capsys):
    scene, trials = str(pendulum / "pendulum.xml"), str(pendulum / "pendulum.safetensors")
    out = str(tmp_path / "run")
    for arguments, words in (
        ([scene, trials, "-o", str(pendulum / "run")], "already exists"),
        ([scene, trials, "-o", out, "--params", "nothing"], "no parameter 'nothing'"),
        ([scene, trials, "-o", out, "--hold-out", "1"], "hold out"),
        ([scene, trials, "-o", out, "--bodies", "lower"], "no body 'lower'"),
        ([str(tmp_path / "absent.xml"), trials, "-o", out], "no scene file"),
        ([scene, str(tmp_path / "absent.safetensors"), "-o", out], "no file"),
        ([scene, trials, "-o", out, "--duration", "0"], "duration"),
    ):
        assert cli.main(["fit", *arguments]) == 2
        message = capsys.readouterr().err
        assert words in message
        assert len(message.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_scene_without_the_recorded_body_is_refused(pendulum, tmp_path):
    trials = recorded(BOX.format(contact=""), tosses(3), seconds=0.2, bodies=["box"])
    scene, path = written(tmp_path, "other", PENDULUM.format(**PENDULUM_GUESS), trials)
    with pytest.raises(DataError, match="has no body 'box'"):
        fit_run(scene, path, tmp_path / "run")
    with pytest.raises(ParamError, match="no method"):
        fit_run(scene, path, tmp_path / "run", config=FitRunConfig(method="magic"))  # type: ignore[arg-type]


def test_changing_time_steps_make_no_difference(tmp_path):
    xml = PENDULUM.format(**PENDULUM_TRUTH)
    trials = recorded(xml, swings(3), seconds=1, bodies=["upper", "lower"], noise=0)
    kept = np.sort(np.random.default_rng(0).permutation(100)[:70])
    kept[0] = 0
    thinned = []
    for trial in trials:
        poses = {name: pose[kept] for name, pose in trial.poses.items()}
        thinned.append(type(trial)(trial.name, trial.t[kept], poses, "simulated"))
    guess = PENDULUM.format(**PENDULUM_GUESS)
    scene, path = written(tmp_path, "uneven", guess, Trials(tuple(thinned)))
    names = ("shoulder_damping", "elbow_damping", "lower_mass", "lower_inertia")
    config = FitRunConfig(params=names, fit=QUICK)
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    assert estimates(run)["shoulder_damping"] == pytest.approx(8e-3, rel=0.05)


class Killed(Exception):
    pass


def test_a_killed_fit_continues(pendulum, tmp_path):
    from contextlib import contextmanager

    scene, trials = str(pendulum / "pendulum.xml"), pendulum / "pendulum.safetensors"
    config = FitRunConfig(params=("*_damping",), fit=QUICK)
    whole = fit_run(scene, trials, tmp_path / "whole", config=config).run

    @contextmanager
    def killed_after_a_stage(title, total):
        def advance(n):
            if n and list(tmp_path.glob(".run.*.fit")):
                raise Killed

        yield advance

    with pytest.raises(Killed):
        fit_run(scene, trials, tmp_path / "run", config=config, progress=killed_after_a_stage)
    (checkpoint,) = tmp_path.glob(".run.*.fit")
    again = fit_run(scene, trials, tmp_path / "run", config=config).run
    assert not checkpoint.exists()
    np.testing.assert_allclose(again.theta, whole.theta, rtol=1e-9)


@pytest.mark.slow
def test_networks_learn_what_parameters_cannot(tmp_path):
    spring = PENDULUM.replace('name="shoulder"', 'name="shoulder" stiffness="0.3"')
    joints = {"shoulder": "shoulder", "elbow": "elbow"}
    trials = recorded(spring.format(**PENDULUM_GUESS), swings(6), seconds=0.6, joints=joints)
    scene, path = written(tmp_path, "spring", PENDULUM.format(**PENDULUM_GUESS), trials)
    config = FitRunConfig(
        method="neural", compare=("mujoco",), params=("shoulder_damping",), fit=QUICK
    )
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    models = run.metrics["models"]
    assert models["neural"]["error"] < 0.5 * models["mujoco"]["error"]
    start, control = np.array([[0.5, -0.3, 0.0, 0.1]]), np.zeros((1, 20, 0))
    first = run.simulator().rollout(start, control)
    assert np.array_equal(
        first, clashsim.load(tmp_path / "run").simulator().rollout(start, control)
    )


@pytest.mark.slow
def test_dry_friction_is_learned_and_written_as_a_formula(tmp_path, capsys):
    text = PENDULUM.format(**PENDULUM_GUESS)
    truth = text.replace('name="shoulder"', 'name="shoulder" frictionloss="0.03"')
    truth = truth.replace('name="elbow"', 'name="elbow" frictionloss="0.01"')
    joints = {"shoulder": "shoulder", "elbow": "elbow"}
    trials = recorded(truth, swings(8), seconds=2.0, joints=joints)
    scene, path = written(tmp_path, "dry", text, trials)
    config = FitRunConfig(
        method="neural",
        compare=("mujoco",),
        params=("*_damping",),
        fit=replace(QUICK, dissipative=True),
    )
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    models = run.metrics["models"]
    assert models["neural"]["error"] < 0.6 * models["mujoco"]["error"]
    for entry, loss in zip(run.metrics["friction"], (0.03, 0.01), strict=True):
        assert "dry" in entry["law"]
        assert entry["explained"] > 0.9
        assert entry["mjcf"]["frictionloss"] == pytest.approx(loss, rel=0.25)
    assert cli.main(["show", str(tmp_path / "run")]) == 0
    assert "Friction as learned" in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Friction as learned" in page and "tanh(v /" in page


def test_only_networks_can_be_dissipative(tmp_path):
    config = FitRunConfig(fit=MotionFitConfig(dissipative=True))
    with pytest.raises(ParamError, match="method neural"):
        fit_run("scene.xml", "trials.safetensors", tmp_path / "run", config=config)


def test_methods_refuse_what_they_do_not_cover(tmp_path):
    box = recorded(BOX.format(contact=""), tosses(3), seconds=0.2, bodies=["box"])
    elbow = ELBOW.format(damping=0.001)
    bent = recorded(elbow, tosses(3, joints=1), seconds=0.2, bodies=["base", "arm"])
    cases = (
        ("neural", BOX.format(contact=""), box, "moves freely"),
        ("graph", elbow, bent, "other joints than one free joint"),
    )
    for method, xml, trials, words in cases:
        scene, path = written(tmp_path, method, xml, trials)
        with pytest.raises(clashsim.ClashError, match=words):
            fit_run(scene, path, tmp_path / f"run-{method}", config=FitRunConfig(method=method))


def test_the_graph_network_simulates_a_box_that_it_has_not_seen(tmp_path):
    """A box of 100 x 80 x 60 mm at 100 Hz, with MuJoCo's parameters found by a short search."""
    xml = BOX.format(contact=CONTACT_TRUTH)
    trials = recorded(xml, tosses(5), seconds=0.6, bodies=["box"])
    scene, path = written(tmp_path, "box", BOX.format(contact=""), trials)
    quick = MotionFitConfig(generations=4, steps=2, threads=1)
    config = FitRunConfig(method="graph", fit=quick)
    done = fit_run(scene, path, tmp_path / "run", config=config)
    # The box flies and slides by several times its size.
    assert done.metrics["models"]["graph"]["bodies"]["box"]["position_pct"]["mean"] < 30
    again = clashsim.load(tmp_path / "run")
    start = np.zeros((1, 13))
    start[0, :7] = [0, 0, 0.04, 1, 0, 0, 0]
    states = done.run.simulator().rollout(start, np.zeros((1, 20, 0)))
    assert np.array_equal(states, again.simulator().rollout(start, np.zeros((1, 20, 0))))


@pytest.mark.slow
def test_gradients_in_mjx_find_the_same(tmp_path):
    joints = {"shoulder": "shoulder", "elbow": "elbow"}
    trials = recorded(PENDULUM.format(**PENDULUM_TRUTH), swings(3), seconds=0.4, joints=joints)
    scene, path = written(tmp_path, "mjx", PENDULUM.format(**PENDULUM_GUESS), trials)
    params = ("*_damping", "lower_mass", "lower_inertia")
    quick = MotionFitConfig(horizons=(1.0,), steps=6, threads=1)
    config = FitRunConfig(method="mjx", params=params, fit=quick)
    found = estimates(fit_run(scene, path, tmp_path / "run", config=config).run)
    assert found["shoulder_damping"] == pytest.approx(8e-3, rel=0.1)
