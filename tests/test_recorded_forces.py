"""Impulses of force sensors beside those that recorded and predicted motions need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from clashsim import cli
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data import logs
from clashsim.data.readers import mapping
from clashsim.data.readers.mapping import LoggerMapping, LogMapping
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.evaluate.recorded_forces import force_signals, momentum_changes, sensor_impulse
from clashsim.fit.run_folder import read_notes
from clashsim.pipeline.recordings import find_impacts

EXAMPLES = Path(__file__).parents[1] / "examples"
# A free body whose mass centre is far from its origin, and a ball that hits it beside the centre.
SPATIAL = """<mujoco><option timestep="1e-5" gravity="0 0 0"/>
<default><geom solref="-1e7 -1000"/></default><worldbody>
<body name="block"><freejoint/><geom name="block" type="box" size=".05 .03 .02" pos=".04 .02 0"
  mass=".3"/></body>
<body name="ball" pos=".04 -.2 .01"><freejoint/><geom name="ball" type="sphere" size=".02"
  mass=".2"/></body></worldbody></mujoco>"""


def half_sine(t: np.ndarray, time: float, impulse: float, duration: float = 0.008) -> np.ndarray:
    """A force (N) that begins at a time and has an impulse (N s)."""
    phase = np.clip((t - time) / duration, 0, 1)
    return 0.5 * np.pi * impulse / duration * np.sin(np.pi * phase)


@pytest.mark.parametrize("rate", [500, 1000, 5000])
def test_the_impulse_of_a_sensor_without_what_it_shows_before(rate):
    t = np.arange(0, 1, 1 / rate)
    rng = np.random.default_rng(0)
    direction = np.array([0.6, 0.0, 0.8])
    force = np.outer(half_sine(t, 0.5, 0.25), direction)
    force += np.array([0.0, 9.81, -3.0])
    force += 0.05 * rng.normal(size=force.shape)
    # Four samples of a contact of 8 ms are enough.
    assert sensor_impulse(t, force, 0.5) == pytest.approx(0.25, rel=0.07)
    assert np.isnan(sensor_impulse(t[:3], force[:3], 0.5))
    assert np.isnan(sensor_impulse(t, force, 0.01))  # nothing was recorded before it


def test_a_change_of_momentum_is_the_impulse_that_mujoco_applies(tmp_path):
    (tmp_path / "scene.xml").write_text(SPATIAL)
    scene = Scene.load(str(tmp_path / "scene.xml"), struck="block", striker="ball")
    model = scene.model()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(1)
    data.qpos[3:7] = [np.cos(0.1), 0, 0, np.sin(0.1)]
    data.qvel[:3] = rng.normal(scale=0.05, size=3)
    data.qvel[6:9] = [0, 1.0, 0]
    before = np.zeros(26)
    mujoco.mj_forward(model, data)

    def twist() -> np.ndarray:
        """Of the block's origin, world axes."""
        velocity = np.zeros(6)
        kind = mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(model, data, kind, model.body("block").id, velocity, 0)
        return np.r_[velocity[3:], velocity[:3]]

    while not data.ncon:
        before[:7] = data.qpos[:7]
        before[7:13] = twist()
        mujoco.mj_step(model, data)
    impulse = np.zeros(3)
    while data.ncon:
        for k in range(data.ncon):
            wrench = np.zeros(6)
            mujoco.mj_contactForce(model, data, k, wrench)
            axes = data.contact[k].frame.reshape(3, 3)
            impulse += axes.T @ wrench[:3] * model.opt.timestep
        mujoco.mj_step(model, data)
    assert np.linalg.norm(impulse) > 0.01
    impacts = Impacts(False, before[None], twist()[None])
    found = momentum_changes(scene, impacts, impacts.after)
    assert found[0] == pytest.approx(np.linalg.norm(impulse), rel=0.05)


def test_in_a_plane_the_momentum_is_that_of_the_mass_centre():
    scene = Scene.load("semi_cylinder")
    model = scene.model()
    data = mujoco.MjData(model)
    body = scene.struck_body
    rng = np.random.default_rng(0)
    for yaw in (0.0, 0.7, -2.0):
        before = rng.normal(scale=0.2, size=(1, 12))
        before[0, 2] = yaw
        after = rng.normal(size=(1, 3))
        momenta = []
        for twist in (before[0, 3:6], after[0]):
            mujoco.mj_resetData(model, data)
            data.qpos[body.qpos[3:7]] = [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
            data.qvel[body.qvel] = [*twist[:2], 0, 0, 0, twist[2]]
            mujoco.mj_forward(model, data)
            mujoco.mj_subtreeVel(model, data)
            momenta.append(data.subtree_linvel[body.body] * model.body_subtreemass[body.body])
        expected = np.linalg.norm(momenta[1] - momenta[0])
        found = momentum_changes(scene, Impacts(True, before, after), after)
        assert found[0] == pytest.approx(expected, rel=1e-6)


def test_components_and_gaps_of_signals():
    t = np.arange(10) / 100
    signals = {"wrist_force_x": t, "wrist_force_y": 2 * t, "wrist_force_z": 0 * t, "torque": t}
    signals["Force plate"] = np.where(np.arange(10) % 2, np.nan, 1.0)
    found = force_signals(Trial("a", t, {}, signals=signals))
    assert set(found) == {"wrist_force", "Force plate"}
    assert found["wrist_force"][1].shape == (10, 3) and len(found["Force plate"][0]) == 5


def test_part_of_a_vector_may_be_a_signal(tmp_path):
    t = np.arange(30) / 100
    wrench = np.random.default_rng(0).normal(size=(30, 6))
    np.savez(tmp_path / "a.npz", t=t, wrench=wrench, q=np.sin(t))
    logger = LoggerMapping((), time="t", joints={"q": "q"}, signals={"force": "wrench[0:3]"})
    how = mapping.loads(mapping.dump(LogMapping((logger,))))
    (trial,) = logs.read_logs([tmp_path / "a.npz"], mapping=how).trials
    assert np.array_equal(trial.signals["force"], wrench[:, :3])


@pytest.fixture(scope="module")
def with_forces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded strikes, with the forces of a sensor of 1 kHz that shows 1.1 times the impulses."""
    folder = tmp_path_factory.mktemp("forces")
    out = folder / "trials.safetensors"
    strikes = EXAMPLES / "strikes"
    arguments = ["import", str(strikes), "--mapping", str(EXAMPLES / "strikes.toml")]
    assert cli.main([*arguments, "-o", str(out)]) == 0
    trials = read_trials(out)
    scene = Scene.load("semi_cylinder")
    found = find_impacts(trials, scene)
    needed = momentum_changes(scene, found.impacts, found.impacts.after)
    loaded = []
    for trial in trials:
        force = np.zeros((len(trial.t), 2))
        for impact, impulse in zip(found.found, needed, strict=True):
            if impact.trial == trial.name:
                one = half_sine(trial.t, impact.time - 0.004, 1.1 * impulse)
                force += np.outer(one, [0.8, 0.6])
        force += np.array([3.0, -1.0])
        signals = {"wrist_force_x": force[:, 0], "wrist_force_y": force[:, 1]}
        loaded.append(replace(trial, signals={**trial.signals, **signals}))
    write_trials(out, Trials(tuple(loaded)))
    return out


@pytest.mark.usefixtures("quick_report")
def test_the_report_compares_forces_with_motions(with_forces, tmp_path, capsys):
    run = tmp_path / "run"
    assert cli.main(["calibrate", "semi_cylinder", str(with_forces), "-o", str(run)]) == 0
    (sentence,) = read_notes(run)["metrics"]["forces"]
    words = sentence.split()
    of_motion = float(words[words.index("need") + 1])
    assert sentence.startswith("Force sensor wrist_force (")
    assert of_motion == pytest.approx(1 / 1.1, abs=0.05)
    page = (run / "report.html").read_text()
    assert "Recorded forces" in page and "impulse by wrist_force" in page
    capsys.readouterr()
    assert cli.main(["show", str(run)]) == 0
    assert "Force sensor wrist_force" in capsys.readouterr().out
