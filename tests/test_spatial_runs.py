"""A calibrated run of a body in space: inspected, advised, exported, viewed and simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import mujoco
import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.commands import view
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.contact_geometry import PairPoser, bring_into_contact
from clashsim.core.errors import ClashError, ParamError, SceneError
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.candidates import candidates
from clashsim.fit.run_folder import RunRecord
from clashsim.sim.mujoco.impacts import simulate_impacts
from clashsim.view.plan_panel import PlanPanel

NUM_FITTED = 12
TRUTH = {"friction": 0.2, "damping": 500.0, "centre_z": 0.006}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run `cube`, calibrated on bounces in MuJoCo with the values of TRUTH."""
    out = tmp_path_factory.mktemp("spatial")
    scene = Scene.load("cube")
    kept = [param for param in scene.params if param.name in TRUTH]
    scene = scene.with_params(kept)
    truth = np.array([TRUTH[param.name] for param in kept])
    before = clashsim.sample(scene, 40, seed=1).before
    found = simulate_impacts(scene, before, truth)
    impacts = clashsim.Impacts(False, before[found.usable], found.after[found.usable])
    clashsim.write_impacts(out / "impacts.csv", impacts)
    calibration = clashsim.calibrate(clashsim.SolvedModel(scene), impacts[np.arange(NUM_FITTED)])
    record = RunRecord({"impacts": str(out / "impacts.csv")})
    clashsim.save_run(out / "cube", calibration, record=record)
    return out


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What the command printed as its error, which must be one line."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and err.startswith("clashsim: ") and err.count("\n") == 1
    return err


def test_the_mass_centre_is_found_and_bounces_are_predicted(folder: Path) -> None:
    run = clashsim.load(folder / "cube")
    values = {estimate.name: estimate.value for estimate in run.calibration.theta}
    assert values["centre_z"] == pytest.approx(0.006, abs=1e-3)
    assert values["friction"] == pytest.approx(0.2, rel=0.1)
    test = clashsim.read_impacts(folder / "impacts.csv")[slice(NUM_FITTED, None)]
    gyration = inertia(run.scene, run.scene.struck_body).gyration
    error = relative_error(run.calibration.predict(test), test.after, gyration)
    assert np.mean(error < 0.1) > 0.8


def test_mass_centres_move_in_mujoco_as_in_the_solver() -> None:
    scene = Scene.load("cube")
    theta = scene.nominal.copy()
    names = [param.name for param in scene.params]
    theta[names.index("centre_x")] = 0.004
    theta[names.index("centre_z")] = -0.006
    strikes = clashsim.sample(scene, 40, seed=2)
    found = simulate_impacts(scene, strikes.before, np.tile(theta, (len(strikes), 1)))
    solved = clashsim.SolvedModel(scene).predict(replace(strikes, theta=None), theta)
    error = relative_error(solved, found.after, 0.0468)[found.usable]
    assert np.median(error) < 1e-3
    centred = clashsim.SolvedModel(scene).predict(replace(strikes, theta=None), scene.nominal)
    assert np.median(relative_error(centred, found.after, 0.0468)[found.usable]) > 0.02


def test_the_next_throws_are_advised(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "next.json"
    assert cli.main(["advise", str(folder / "cube"), "-k", "3", "-o", str(out)]) == 0
    assert "touch x, y, z" in " ".join(capsys.readouterr().out.split())
    strikes = json.loads(out.read_text())["strikes"]
    assert len(strikes) == 3
    for strike in strikes:
        assert 0.5 <= strike["speed"] <= 2.0 and 0 <= strike["deflection"] <= 1.0
        touch = np.abs([strike["touch_x"], strike["touch_y"], strike["touch_z"]])
        assert touch.max() == pytest.approx(0.0524, abs=1e-4)  # on the cube's surface
    scene = Scene.load("cube")
    fast = candidates(scene, 0, 64, speed=(1.5, 1.9))
    assert fast.strikes[:, 0].min() >= 1.5 and len(fast.strikes) > 50
    assert np.allclose(contact_frame(scene, fast.impacts).contact.touching, True)
    with pytest.raises(ParamError, match="move in space"):
        candidates(scene, 0, 64, side=(0.0, 1.0))
    with pytest.raises(ParamError, match=r"0\.5 to 2"):
        candidates(scene, 0, 64, speed=(0.1, 9.0))


def test_what_needs_strikes_in_a_plane_is_refused_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(folder / "cube")
    assert cli.main(["train", run, "-o", str(folder / "policy")]) == 2
    assert "'cube' move in space" in one_line(capsys)
    with pytest.raises(SceneError, match=r"hybrid\(\)"):
        clashsim.load(run).strike_table()


def test_the_export_has_the_mass_centre(folder: Path) -> None:
    out = folder / "export"
    assert cli.main(["export", str(folder / "cube"), "-o", str(out)]) == 0
    model = mujoco.MjModel.from_xml_path(str(out / "scene.xml"))
    assert model.body_ipos[model.body("cube").id, 2] == pytest.approx(0.006, abs=1e-3)


def test_the_hybrid_simulator_bounces_as_predicted(folder: Path) -> None:
    run = clashsim.load(folder / "cube")
    scene = run.scene
    impacts = clashsim.read_impacts(folder / "impacts.csv")[np.arange(6)]
    hybrid = run.hybrid(timestep=1e-3)
    _, start = bring_into_contact(scene, impacts.before)
    struck = MotionBefore.of(start).struck
    lead_time = 0.004
    struck.position[:] -= lead_time * struck.velocity
    struck.position[:, 2] -= 0.5 * 9.81 * lead_time**2
    struck.velocity[:, 2] += 9.81 * lead_time
    qpos = np.tile(scene.base.qpos0, (6, 1))
    qvel = np.zeros((6, scene.base.nv))
    PairPoser(scene).write(start, qpos, qvel)
    states = hybrid.rollout(np.hstack([qpos, qvel]), np.zeros((6, 12, 0)))
    assert hybrid.collision_stats.learned >= 5
    predicted = run.calibration.predict(impacts)
    soon = states[:, 6, 7:10]
    error = np.linalg.norm(soon - predicted[:, :3], axis=1) / np.linalg.norm(predicted, axis=1)
    assert np.median(error) < 0.05


def test_the_viewer_replays_bounces_and_says_why_it_plans_nothing(folder: Path) -> None:
    session = view.viewer_session(folder / "cube")
    assert not session.slides and "impacts.csv" in session.source.words
    strike = session.source[0]
    body = session.scene.struck_body.body
    for kind in ("MuJoCo", "hybrid"):
        motion = session.simulate(strike.before, kind, session.values[0])
        assert np.isfinite(motion.poses[body]).all() and motion.t[0] < 0 < motion.t[-1]
    page = MagicMock(mode="Plan", session=session)
    panel = PlanPanel(page, MagicMock())
    panel.enter()
    page.reporter.return_value.assert_called_once()
    (sentence,) = page.reporter.return_value.call_args.args
    assert sentence.startswith("Nothing can be planned here") and "move in space" in sentence
    page.worker.do.assert_not_called()
    panel.enter()  # again: the reason is kept
    assert page.show_status.call_args.args[0] == sentence


def test_other_scenes_still_say_what_they_lack() -> None:
    with pytest.raises(ClashError, match="'floor' moves"):
        candidates(Scene.load("ellipse"), 0)


@pytest.mark.slow
def test_a_throw_is_planned_and_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "throw"
    command = ["plan", str(folder / "cube"), "--target", "0.3", "0.1", "-o", str(out)]
    command += ["--launch.release", "0", "0", "0.09", "--launch.simulations", "130"]
    command += ["--launch.spin", "1", "--launch.lift", "0", "0", "--launch.tolerance", "0.1", "20"]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert "which takes" in printed and "with a probability of" in printed
    plan = json.loads((out / "plan.json").read_text())
    assert plan["kind"] == "throw" and plan["status"] in ("found", "not found")
    assert plan["velocity"][2] == 0.0 and max(np.abs(plan["angular_velocity"])) < 2**0.5
    # What the plan says is what the simulator does.
    rests = np.array(plan["rest_poses"])
    share = np.mean(np.linalg.norm(rests[:, :2] - [0.3, 0.1], axis=1) <= 0.1)
    assert share == pytest.approx(plan["probability"])
    path = np.loadtxt(out / "path.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(path[0, 1:4], [0.0, 0.0, 0.09], atol=1e-6)
    assert abs(path[-1, 3] - 0.0524) < 2e-3  # lies on the floor
    assert (out / "plan.png").stat().st_size > 5000
    for arguments, reason in (
        (["--target", "0.3"], "X Y or X Y YAW"),
        (["--target", "0.3", "0", "--strikes", "2"], "--strikes is not for this run"),
        (["--target", "0.3", "0", "--launch.release", "0", "0", "0.01"], "let it go higher"),
        (["--target", "0.3", "0", "--launch.offset", "0", "0.1"], "has no offset"),
        (["--target", "0.3", "0", "--launch.up", "top"], "no axis 'top'"),
        (["--target", "0.3", "0", "--launch.speed", "2", "1"], "low first"),
        (["--target", "0.3", "0", "--start", "0", "0.1", "0"], "--launch.release, not --start"),
    ):
        assert cli.main(["plan", str(folder / "cube"), *arguments]) == 2, arguments
        assert reason in one_line(capsys), arguments
    assert cli.main(["execute", str(out)]) == 2
    assert "this is a throw in space" in one_line(capsys)


def test_simulations_that_settle_do_not_wait_for_each_other(folder: Path) -> None:
    hybrid = clashsim.load(folder / "cube").hybrid(timestep=2e-3)
    rng = np.random.default_rng(0)
    start = np.zeros((3, 13))
    start[:, 2:4] = [0.09, 1.0]
    start[:, 7:9] = rng.uniform(-0.3, 0.3, (3, 2))
    settled = hybrid.settle(start)
    assert settled.at_rest.all() and (np.abs(settled.pose[:, 2] - 0.0524) < 2e-3).all()
    alone = hybrid.settle(start[1:2])
    np.testing.assert_allclose(alone.pose, settled.pose[1:2], atol=1e-4)
    steps = round(settled.time[1] / 2e-3)
    states = hybrid.rollout(start[1:2], np.zeros((1, steps, 0)))
    np.testing.assert_allclose(states[0, -1, :3], settled.pose[1, :3], atol=1e-4)
    noise = np.zeros((3, 4, 6))
    noise[1] = 200.0  # the run was fitted to impacts without noise, so its deviations are tiny
    moved = np.abs(hybrid.settle(start, noise=noise).pose - settled.pose).max(1)
    assert moved[1] > 1e-3 and moved[[0, 2]].max() < 1e-4
