"""Impacts of which the striker's outcome was recorded too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import clashsim
from clashsim.bench.scenes import in_one_recording, recorded_impacts
from clashsim.bench.user_scenes import UserScene, hidden_model, record_motion, user_scenes
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial
from clashsim.data.checks.impact_conventions import check_impacts
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.segmentation.pair_setup import SegmentConfig, make_setup
from clashsim.data.segmentation.segment import segment
from clashsim.evaluate.holdout import HeldOutPredictions
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.striker_response import StrikerResponse
from clashsim.pipeline.arguments import load_scene
from clashsim.pipeline.calibration import CalibrationConfig, calibrate_run
from clashsim.sim.contact.impulse_response import ImpulseResponse
from clashsim.sim.hybrid.simulator import HybridSim

HIDDEN_MASS = 0.45  # kg, of the striker, for which its author gave 0.2
_CONTACT = ("friction", "stiffness", "damping")


def user_scene(name: str) -> UserScene:
    return next(scene for scene in user_scenes() if scene.name == name)


BRICKS = user_scene("block among others: brick")
PUCKS = user_scene("puck against puck")


def loaded(scene: UserScene, folder: Path, names: tuple[str, ...]) -> Scene:
    """The scene with some of its default parameters."""
    path = folder / "scene.xml"
    path.write_text(scene.xml)
    found = load_scene(
        str(path), struck=scene.arguments["struck"], striker=scene.arguments["striker"], ground=None
    )
    return replace(found, params=tuple(p for p in found.params if p.name in names))


def noise_free(scene: UserScene, model: mujoco.MjModel, n: int) -> Impacts:
    """Both outcomes of n impacts in a plane, as MuJoCo simulates them."""
    recorded = record_motion(scene, model, n, np.random.default_rng(5))
    motion = []
    for body in (recorded.before[:, :13], recorded.before[:, 13:]):
        yaw = 2 * np.arctan2(body[:, 6], body[:, 3])
        motion.append(np.column_stack([body[:, :2], yaw, body[:, 7:9], body[:, 12]]))
    struck = recorded.after[:, [0, 1, 5]]
    striker = recorded.striker_after[:, [0, 1, 5]]
    return Impacts(True, np.hstack(motion), struck, striker_after=striker)


def with_hidden_mass(model: mujoco.MjModel, body: str) -> mujoco.MjModel:
    model.body_mass[model.body(body).id] = HIDDEN_MASS
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def unmeasured(impacts: Impacts) -> np.ndarray:
    return np.full_like(impacts.after, np.nan)


def errors(calibration: Calibration, test: Impacts) -> tuple[float, float]:
    """Median relative errors of the struck body and of the striker."""
    scene = calibration.base.scene
    assert test.striker_after is not None
    gyration = [inertia(scene, body).gyration for body in (scene.struck_body, scene.striker_body)]
    of_struck = relative_error(calibration.predict(test), test.after, gyration[0])
    of_striker = relative_error(calibration.predict_striker(test), test.striker_after, gyration[1])
    return float(np.median(of_struck)), float(np.median(of_striker))


def test_a_striker_that_no_impact_moves_is_not_judged(tmp_path) -> None:
    """A paddle in a hand may have been tracked after the impact too."""
    scene = loaded(BRICKS, tmp_path, _CONTACT)
    impacts = noise_free(BRICKS, mujoco.MjModel.from_xml_string(BRICKS.xml), 3)
    judged = HeldOutPredictions(
        "held out",
        impacts,
        predicted={"clashsim": impacts.after},
        half_widths=np.ones((2, *impacts.after.shape)),
        rows=np.arange(3),
    )
    assert len(judged.of_struck(scene).rows) == 3
    assert len(judged.of_striker(scene).rows) == 0


@pytest.mark.parametrize("recorded", ["both", "striker"])
def test_parameters_are_recovered(tmp_path, recorded: str) -> None:
    scene = loaded(BRICKS, tmp_path, _CONTACT)
    model = hidden_model(BRICKS, np.random.default_rng(0))
    impacts = noise_free(BRICKS, model, 36)
    fitted, test = impacts[:12], impacts[12:]
    if recorded == "striker":
        fitted = replace(fitted, after=unmeasured(fitted))
    calibration = calibrate(SolvedModel(scene), fitted)
    estimates = {estimate.name: estimate.value for estimate in calibration.theta}
    assert estimates["friction"] == pytest.approx(model.geom_friction[0, 0], rel=0.05)
    assert estimates["stiffness"] == pytest.approx(-model.geom_solref[0, 0], rel=0.2)
    assert estimates["damping"] == pytest.approx(-model.geom_solref[0, 1], rel=0.1)
    assert max(errors(calibration, test)) < 0.02


def test_both_outcomes_show_the_mass_of_the_striker(tmp_path) -> None:
    scene = loaded(BRICKS, tmp_path, (*_CONTACT, "striker_mass"))
    model = hidden_model(BRICKS, np.random.default_rng(0))
    impacts = noise_free(BRICKS, with_hidden_mass(model, "brick"), 36)
    fitted, test = impacts[:12], impacts[12:]
    calibration = calibrate(SolvedModel(scene), fitted)
    mass = next(e for e in calibration.theta if e.name == "striker_mass")
    assert mass.value == pytest.approx(HIDDEN_MASS, rel=0.03)
    assert max(errors(calibration, test)) < 0.03


def test_cells_of_a_striker_may_be_empty_in_some_impacts(tmp_path) -> None:
    """Values that were not measured have no influence, whatever body they are of."""
    scene = loaded(BRICKS, tmp_path, _CONTACT)
    model = hidden_model(BRICKS, np.random.default_rng(0))
    impacts = noise_free(BRICKS, model, 30)
    fitted, test = impacts[:12], impacts[12:]
    after, striker_after = fitted.after.copy(), fitted.striker_after.copy()
    after[:4] = np.nan
    striker_after[4:8] = np.nan
    striker_after[8:, 2] = np.nan
    partly = replace(fitted, after=after, striker_after=striker_after)
    calibration = calibrate(SolvedModel(scene), partly)
    estimates = {estimate.name: estimate.value for estimate in calibration.theta}
    assert estimates["friction"] == pytest.approx(model.geom_friction[0, 0], rel=0.05)
    assert max(errors(calibration, test)) < 0.02


def test_predictions_of_two_free_bodies_keep_momentum(tmp_path) -> None:
    """Also where fields, residual and local correction have a part in them."""
    scene = loaded(BRICKS, tmp_path, (*_CONTACT, "tangential_stiffness"))
    model = hidden_model(BRICKS, np.random.default_rng(1))
    impacts = recorded_impacts(BRICKS, model, 24, np.random.default_rng(2), of_striker=True)
    calibration = calibrate(SolvedModel(scene), impacts[:12])
    test = impacts[12:]
    change = calibration.predict(test) - test.twist
    striker_change = calibration.predict_striker(test) - test.striker_twist
    bodies = [inertia(scene, body) for body in (scene.struck_body, scene.striker_body)]
    momentum = bodies[0].mass * change[:, :2]
    np.testing.assert_allclose(-bodies[1].mass * striker_change[:, :2], momentum, rtol=1e-6)
    # Angular momentum about the striker; in a long contact the bodies move, and it changes.
    frame = contact_frame(scene, test)
    motion = MotionBefore.of(frame.before)
    arm = motion.struck.position - motion.striker.position
    orbital = arm[:, 0] * momentum[:, 1] - arm[:, 1] * momentum[:, 0]
    spins = [
        body.mass * body.gyration**2 * twist[:, 2]
        for body, twist in zip(bodies, (change, striker_change), strict=True)
    ]
    size = np.abs(spins[0]).max()
    assert np.median(np.abs(orbital + sum(spins))) < 0.02 * size


def test_response_is_that_of_the_hybrid_simulator(tmp_path) -> None:
    """In space too: both take the striker's change from the impulse on the struck body."""
    thrown = user_scene("ball thrown at a block")
    for scene_of, planar in ((BRICKS, True), (thrown, False)):
        scene = loaded(scene_of, tmp_path, ())
        if not planar:
            scene = replace(scene, ground=None)
        model = hidden_model(scene_of, np.random.default_rng(0))
        impacts = recorded_impacts(scene_of, model, 4, np.random.default_rng(1))
        frame = contact_frame(scene, impacts)
        response = ImpulseResponse(scene, frame.before, frame.contact)
        found = response.striker_per_struck(np.arange(4), np.zeros((4, 0)))
        hybrid = HybridSim(scene, SolvedModel(scene))
        (compiled,) = hybrid.pairs
        motion = MotionBefore.of(frame.before)
        mechanics = compiled.contact_states_at(hybrid.probe(4), frame.before).mechanics
        for i in range(4):
            at_struck = -mechanics.striker_inverse_inertia[i] @ np.linalg.inv(
                mechanics.struck_inverse_inertia[i]
            )
            arm = (motion.striker.position - motion.struck.position)[i]
            shift = np.eye(len(at_struck))
            if planar:
                shift[:2, 2] = [-arm[1], arm[0]]
            else:
                shift[:3, 3:] = np.cross(np.eye(3), arm).T
            np.testing.assert_allclose(found[i], shift @ at_struck, rtol=1e-5, atol=1e-6)


def test_a_door_leaves_the_impulse_along_the_normal(tmp_path) -> None:
    """One number is known of a door's outcome, and the impulse that it shows has a direction."""
    door = user_scene("ball at a door")
    scene = loaded(door, tmp_path, ())
    impacts = recorded_impacts(
        door, hidden_model(door, np.random.default_rng(0)), 6, np.random.default_rng(1)
    )
    frame = contact_frame(scene, impacts, strict=False)
    frame = frame[np.flatnonzero(frame.contact.touching)]
    response = ImpulseResponse(scene, frame.before, frame.contact)
    per_struck = response.striker_per_struck(
        np.arange(len(frame.speed)), np.zeros((len(frame.speed), 0))
    )
    velocity = per_struck[:, :2, 2]  # of the ball by a rotation of the door
    along = np.abs((velocity * frame.contact.normal).sum(1))
    np.testing.assert_allclose(along, np.linalg.norm(velocity, axis=1), rtol=1e-3)
    assert (along > 0).all()


def test_response_has_derivatives_by_masses(tmp_path) -> None:
    import torch

    scene = loaded(PUCKS, tmp_path, ("friction", "striker_mass"))
    model = hidden_model(PUCKS, np.random.default_rng(0))
    impacts = recorded_impacts(PUCKS, model, 3, np.random.default_rng(1))
    response = StrikerResponse(scene, contact_frame(scene, impacts))
    change = torch.ones(3, 3, dtype=torch.float64)
    unit = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    response.apply(change, torch.arange(3), unit).square().sum().backward()
    assert unit.grad is not None
    assert (unit.grad[:, 0] == 0).all() and (unit.grad[:, 1] < 0).all()


def test_a_table_keeps_what_was_recorded_of_the_striker(tmp_path) -> None:
    path = tmp_path / "impacts.csv"
    header = "vx,vy,vx_after,vy_after,w_after,striker_vx_after,striker_w_after\n"
    path.write_text(header + "-1,0,0.5,0,0,-0.2,\n-1,0.1,,,,,0.7\n")
    impacts = read_impacts(path)
    nan = np.nan
    np.testing.assert_array_equal(impacts.striker_after, [[-0.2, nan, nan], [nan, nan, 0.7]])
    assert not impacts.unusable()  # either body's outcome is enough
    for name in ("impacts.csv", "impacts.safetensors"):
        write_impacts(tmp_path / name, impacts)
        again = read_impacts(tmp_path / name)
        np.testing.assert_array_equal(again.striker_after, impacts.striker_after)
        np.testing.assert_array_equal(again[1:].after, impacts.after[1:])
    path.write_text("x,y,z,vz,striker_vz_after\n0,0,1,-1,0.1\n")
    spatial = read_impacts(path)
    assert not spatial.planar and np.isnan(spatial.after).all()
    path.write_text("vx,vy,vx_after\n-1,0,0.5\n")
    assert read_impacts(path).striker_after is None
    path.write_text("vx,striker_vx_after,vx_after\n-1,,\n")
    with pytest.raises(DataError, match="no measured outcome"):
        read_impacts(path).checked()


def test_conventions_are_those_of_both_outcomes(tmp_path) -> None:
    scene = loaded(BRICKS, tmp_path, ())
    model = hidden_model(BRICKS, np.random.default_rng(0))
    impacts = noise_free(BRICKS, model, 12)
    assert check_impacts(scene, impacts) == []
    wrong = replace(impacts, before=impacts.before.copy(), after=impacts.after.copy())
    for body in (wrong.motion.struck, wrong.motion.striker):
        body.angular_velocity[:] *= 180 / np.pi
        body.yaw[:] *= 180 / np.pi
    wrong.after[:, 2] *= 180 / np.pi
    assert [found.name for found in check_impacts(scene, wrong)] == ["angle_unit"]


_PUCK = (
    '<body name="{0}" pos="{1} 0 .02"><freejoint/>'
    '<geom type="cylinder" size=".04 .02" mass="{2}"/></body>'
)
_TABLE = (
    '<mujoco><option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>'
    '<worldbody><geom name="table" type="plane" size="3 3 .1"/>'
    f"{_PUCK.format('target', 0, 0.3)}{_PUCK.format('cue', -0.4, 0.2)}</worldbody></mujoco>"
)


def recorded_trial(name: str, rng: np.random.Generator) -> tuple[Trial, np.ndarray]:
    """Two free pucks on a table, seen at 250 Hz, and the cue's twist just after they part."""
    model = mujoco.MjModel.from_xml_string(_TABLE)
    model.geom_friction[:, 0] = 0.15
    model.geom_solref[:] = [-2e5, -60]
    data = mujoco.MjData(model)
    data.qpos[8] = rng.uniform(-0.03, 0.03)
    data.qvel[6:8] = rng.uniform(1.0, 1.5), rng.uniform(-0.05, 0.05)
    times, poses = [], []
    after = np.zeros(3)
    touched = parted = False
    for step in range(3000):
        if step % 8 == 0:
            times.append(data.time)
            noise = np.zeros(14)
            noise[[0, 1, 7, 8]] = rng.normal(0, 5e-5, 4)
            poses.append(data.qpos + noise)
        mujoco.mj_step(model, data)
        touching = any(min(contact.geom) > 0 for contact in data.contact)
        touched |= touching
        if touched and not touching and not parted:
            parted = True
            after = np.array([*data.qvel[6:8], data.qvel[11]])
    assert parted
    seen = np.array(poses)
    return Trial(name, np.array(times), {"target": seen[:, :7], "cue": seen[:, 7:]}), after


def test_trials_of_two_free_bodies_give_both_outcomes(tmp_path) -> None:
    path = tmp_path / "scene.xml"
    path.write_text(_TABLE)
    scene = load_scene(str(path), struck="target", striker="cue", ground=None)
    rng = np.random.default_rng(0)
    trials, expected = zip(*[recorded_trial(f"t{i}", rng) for i in range(6)], strict=True)
    found = segment(list(trials), scene=scene)
    impacts = found.impacts
    assert len(impacts) == 6
    assert impacts.striker_after is not None
    np.testing.assert_allclose(impacts.striker_after[:, :2], np.array(expected)[:, :2], atol=0.03)
    # Momentum, with the friction of the table during the lag.
    masses = [inertia(scene, body).mass for body in (scene.struck_body, scene.striker_body)]
    gained = masses[0] * (impacts.after - impacts.twist)[:, 0]
    lost = masses[1] * (impacts.striker_twist - impacts.striker_after)[:, 0]
    np.testing.assert_allclose(gained, lost, rtol=0.1)


def test_a_held_striker_has_no_outcome_of_its_own() -> None:
    """A tool on slides or servos goes on as whatever holds it does."""
    for name in ("semi_cylinder", "puck"):
        setup = make_setup(Scene.load(name), None, None, SegmentConfig())
        assert setup.striker_gyration_radius is None


def test_a_run_judges_and_reports_both_bodies(tmp_path, capsys) -> None:
    from clashsim.commands.run_tables import print_run

    model = hidden_model(PUCKS, np.random.default_rng(0))
    impacts = recorded_impacts(PUCKS, model, 16, np.random.default_rng(1), of_striker=True)
    scene = tmp_path / "scene.xml"
    scene.write_text(PUCKS.xml)
    table = tmp_path / "impacts.csv"
    config = CalibrationConfig(struck="target", striker="cue", hold_out=0.4)
    write_impacts(table, impacts)
    result = calibrate_run(str(scene), table, tmp_path / "both", config=config)
    metrics = json.loads((tmp_path / "both" / "metrics.json").read_text())
    assert set(metrics["striker_models"]) == set(metrics["models"])
    assert metrics["striker_models"]["clashsim"]["accuracy_0.2"] > 0.6
    page = (tmp_path / "both" / "report.html").read_text()
    assert "Accuracy of the striker" in page
    print_run(result.run, metrics, None)
    assert "Accuracy of the striker" in capsys.readouterr().out
    again = clashsim.load(tmp_path / "both").calibration
    np.testing.assert_allclose(
        again.predict_striker(impacts), result.run.calibration.predict_striker(impacts), rtol=1e-9
    )
    # With the striker alone, its outcomes are what the run is judged by.
    write_impacts(table, replace(impacts, after=unmeasured(impacts)))
    result = calibrate_run(str(scene), table, tmp_path / "striker", config=config)
    assert "models" not in result.metrics and "clashsim" in result.metrics["striker_models"]
    page = (tmp_path / "striker" / "report.html").read_text()
    assert "outcomes alone were recorded" in page


def test_pairs_in_one_recording_keep_strikers_outcomes() -> None:
    scenes = [s for s in user_scenes() if s.name in (BRICKS.name, "block among others: wall")]
    model = hidden_model(scenes[0], np.random.default_rng(0))
    rng = np.random.default_rng(1)
    recorded = [recorded_impacts(scene, model, 3, rng, of_striker=True) for scene in scenes]
    joined = in_one_recording(scenes, recorded)
    assert joined.striker_after is not None
    assert np.isnan(joined.striker_after).all(1).sum() == 3
