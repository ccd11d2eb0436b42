"""What users bring to `clashsim fit`: linkages, springs, servos, controls, and bad recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from clashsim.bench.articulated_scenes import SCENES, record_trials
from clashsim.core.errors import DataError
from clashsim.core.loop_closure import LoopClosure
from clashsim.core.motion_params import candidate_params, choose_params
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import observe_trials
from clashsim.core.params import locate_param
from clashsim.core.trials import Trial, Trials
from clashsim.data.mjcf import write_back
from clashsim.data.trial_files import write_trials
from clashsim.fit.joint_states import joint_states
from clashsim.fit.recorded_scene import MotionFitConfig
from clashsim.pipeline.motion_fitting import FitRunConfig, fit_run
from motion_scenes import BOX, PENDULUM, PENDULUM_GUESS, recorded, swings, tosses

QUICK = MotionFitConfig(horizons=(1.0,), steps=3, generations=3, threads=1)
BY_NAME = {scene.name: scene for scene in SCENES}


def loaded(folder: Path, xml: str) -> MotionScene:
    (folder / "scene.xml").write_text(xml)
    return MotionScene.load(folder / "scene.xml")


def written(folder: Path, xml: str, trials: Trials) -> tuple[str, Path]:
    (folder / "scene.xml").write_text(xml)
    write_trials(folder / "trials.safetensors", trials)
    return str(folder / "scene.xml"), folder / "trials.safetensors"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_parameters_of_joints_springs_stops_and_servos_are_written_back(scene, tmp_path):
    found = loaded(tmp_path, scene.xml)
    joints = [found.author.joint(i).name for i in range(found.author.njnt)]
    names = [c.param.name for c in candidate_params(found, found.contacts, joints) if c.default]
    found = found.with_params(choose_params(found, names, found.contacts, stops=joints))
    theta = 1.03 * found.nominal
    again = mujoco.MjModel.from_xml_string(write_back(found.xml, found, theta).xml)
    wanted = found.model(theta)
    for field in ("jnt_stiffness", "qpos_spring", "jnt_range", "jnt_solref", "tendon_stiffness"):
        np.testing.assert_allclose(getattr(again, field), getattr(wanted, field), rtol=1e-7)
    for field in ("actuator_gainprm", "actuator_biasprm", "dof_damping"):
        np.testing.assert_allclose(getattr(again, field), getattr(wanted, field), rtol=1e-7)


def test_a_servo_gain_is_one_parameter_in_two_places():
    model = mujoco.MjModel.from_xml_string(BY_NAME["block pushed by an arm"].xml)
    slot = locate_param(model, "actuator/servo/kp")
    assert [part.field for part in slot.parts] == ["actuator_gainprm", "actuator_biasprm"]
    for part in slot.parts:
        part.write(getattr(model, part.field), 14.0)
    assert model.actuator_gainprm[0, 0] == 14 and model.actuator_biasprm[0, 1] == -14


def test_masses_are_absolute_where_a_motor_acts(tmp_path):
    names = [p.name for p in choose_params(loaded(tmp_path, BY_NAME["cart-pole"].xml), (), ())]
    assert {"cart_mass", "pole_mass"} <= set(names) and "push_gear" not in names
    names = [p.name for p in choose_params(loaded(tmp_path, BY_NAME["drawer"].xml), (), ())]
    assert "drawer_mass" not in names


def test_a_linkage_follows_from_its_crank(tmp_path):
    scene = replace(BY_NAME["four-bar linkage"], seconds=0.5)
    found = loaded(tmp_path, scene.xml)
    motion = observe_trials(found, record_trials(scene, 1, 0))
    (state,) = joint_states(motion)
    closure = LoopClosure(found.author)
    assert np.abs(closure.residuals(state.qpos)).max() < 1e-4
    assert np.ptp(state.qpos[:, 2]) > 0.1
    projection = closure.projectors(state.qpos[:1])[0]
    assert np.linalg.matrix_rank(projection, tol=1e-6) == 1


def test_parameters_that_replace_each_other_are_not_called_fitted(tmp_path):
    xml = PENDULUM.format(**PENDULUM_GUESS)
    trials = recorded(
        xml, swings(3), seconds=0.6, joints={"shoulder": "shoulder", "elbow": "elbow"}
    )
    scene, path = written(tmp_path, xml, trials)
    # Torques of damping, inertia and gravity scale with all masses together.
    config = FitRunConfig(params=("*_mass", "*_inertia", "*_damping", "gravity"), fit=QUICK)
    estimates = fit_run(scene, path, tmp_path / "run", config=config).run.estimates
    masses = [e for e in estimates if e.name.endswith("_mass")]
    assert len(masses) == 2
    assert all(e.high / e.low > 1.3 for e in masses)


def test_a_refused_method_does_not_stop_a_comparison(tmp_path):
    trials = recorded(BOX.format(contact=""), tosses(4), seconds=0.15, bodies=["box"])
    scene, path = written(tmp_path, BOX.format(contact=""), trials)
    said: list[str] = []
    config = FitRunConfig(params=("box_centre_x",), compare=("neural",), fit=QUICK)
    metrics = fit_run(scene, path, tmp_path / "run", config=config, notify=said.append).metrics
    assert set(metrics["refused"]) == {"neural"}
    assert "moves freely" in metrics["refused"]["neural"]
    assert "mujoco" in metrics["models"] and "neural" not in metrics["models"]
    assert any(text.startswith("neural is not compared") for text in said)


def test_short_trials_are_left_out_and_one_trial_is_enough(tmp_path):
    xml = PENDULUM.format(**PENDULUM_GUESS)
    trials = recorded(
        xml, swings(2), seconds=0.4, joints={"shoulder": "shoulder", "elbow": "elbow"}
    )
    first, second = trials.items
    signals = {name: values[:3] for name, values in second.signals.items()}
    short = Trial("short", second.t[:3], {}, "simulated", signals)
    scene, path = written(tmp_path, xml, Trials((first, short)))
    config = FitRunConfig(params=("shoulder_damping",), fit=QUICK)
    result = fit_run(scene, path, tmp_path / "run", config=config)
    assert any("fewer than 6 frames: short" in note for note in result.run.notes)
    assert result.metrics["judged"] == "on the fitted trial itself"


def test_missing_controls_hold_and_absent_ones_are_refused(tmp_path):
    scene = replace(BY_NAME["cart-pole"], seconds=0.1)
    found = loaded(tmp_path, scene.xml)
    (trial,) = record_trials(scene, 1, 0)
    push = trial.signals["push"].copy()
    push[3:6] = np.nan
    gaps = replace(trial, signals={**trial.signals, "push": push})
    control = observe_trials(found, Trials((gaps,))).trials[0].control[:, 0]
    np.testing.assert_array_equal(control[3:6], push[2])
    nothing = replace(trial, signals={**trial.signals, "push": np.full(len(push), np.nan)})
    with pytest.raises(DataError, match="actuator 'push' has no number"):
        observe_trials(found, Trials((nothing,)))
    unseen = replace(trial, signals={**trial.signals, "pivot": np.full(len(push), np.nan)})
    with pytest.raises(DataError, match="no two frames"):
        joint_states(observe_trials(found, Trials((unseen,))))


def test_a_guess_keeps_other_columns_as_signals(tmp_path):
    from clashsim.data.logs import read_logs

    scene = replace(BY_NAME["cart-pole"], seconds=0.2)
    (trial,) = record_trials(scene, 1, 0)
    table = np.column_stack([trial.t, *(trial.signals[n] for n in ("rail", "pivot", "push"))])
    header = "time,rail,pivot,push"
    np.savetxt(tmp_path / "log.csv", table, delimiter=",", header=header, comments="")
    (read,) = read_logs([tmp_path / "log.csv"], guess=True).trials
    assert {"rail", "pivot", "push"} <= set(read.signals)


def test_a_scene_that_diverges_is_no_traceback(tmp_path):
    xml = PENDULUM.format(**PENDULUM_GUESS)
    trials = recorded(
        xml, swings(3), seconds=0.3, joints={"shoulder": "shoulder", "elbow": "elbow"}
    )
    stiff = xml.replace('integrator="implicitfast"', 'integrator="Euler"')
    stiff = stiff.replace('name="elbow"', 'name="elbow" stiffness="5000"')
    scene, path = written(tmp_path, stiff, trials)
    config = FitRunConfig(params=("shoulder_damping",), fit=QUICK)
    run = fit_run(scene, path, tmp_path / "run", config=config).run
    assert np.isfinite(run.metrics["models"]["mujoco"]["error"])
    assert any("smaller time step" in note for note in run.notes), run.metrics["models"]
