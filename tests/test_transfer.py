"""Transfer: what was identified on one object as the prior of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli
from clashsim.core.contact_frame import inertia
from clashsim.core.scene import Scene, scene_params
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.run_folder import load
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.transfer import with_prior_from

XML = """<mujoco><option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>
<worldbody><geom name="floor" type="plane" size="2 2 .1" zaxis="0 1 0"/>
<body name="body" pos="0 .2 0"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 1 0"/><joint type="hinge" axis="0 0 1"/>
<geom name="body" type="ellipsoid" size=".05 .03 .02" mass="{mass}"/></body></worldbody></mujoco>"""
TRUTH = {"friction": 0.15, "stiffness": 2e5, "damping": 300.0, "tangential_stiffness": 50.0}


def scene_of(mass: float) -> Scene:
    scene = Scene(XML.format(mass=mass), "body", "floor", name="body")
    return scene.with_params(scene_params(scene))


def recorded(scene: Scene, n: int, seed: int, **truth: float):
    """Impacts with known parameters."""
    values = {**TRUTH, **truth}
    fixed = []
    for param in scene.params:
        value = values.get(param.name, param.nominal)
        width = 1e-6 * (param.high - param.low)
        fixed.append(replace(param, nominal=value, low=value - width, high=value + width))
    impacts = sample(scene.with_params(fixed), n, seed)
    return replace(impacts, theta=None, source="real")


@pytest.fixture(scope="module")
def light() -> Calibration:
    scene = scene_of(0.1)
    return calibrate(SolvedModel(scene), recorded(scene, 10, 1))


def test_the_material_is_transferred_and_the_object_is_not(light: Calibration) -> None:
    heavy = scene_of(0.1)
    given = {param.name: param for param in with_prior_from(heavy, light).params}
    own = {param.name: param for param in heavy.params}
    assert given["friction"].nominal == pytest.approx(TRUTH["friction"], rel=0.1)
    assert given["friction"].sd is not None and given["friction"].sd < 0.2
    for name in ("x_offset", "y_offset", "yaw_offset"):
        assert given[name] == own[name]


def test_stiffness_goes_with_the_mass_that_is_moved(light: Calibration) -> None:
    """Stiffness is over the mass, and the restitution stays the same."""
    same = {p.name: p.nominal for p in with_prior_from(scene_of(0.1), light).params}
    heavy = {p.name: p.nominal for p in with_prior_from(scene_of(0.4), light).params}
    assert heavy["stiffness"] == pytest.approx(same["stiffness"] / 4)
    assert heavy["damping"] == pytest.approx(same["damping"] / 2)


def test_one_impact_and_a_transfer_are_better_than_one_alone(light: Calibration) -> None:
    """Some single impacts show all parameters, others hardly any: so it is a mean over impacts."""
    scene = scene_of(0.1)
    gyration = inertia(scene, scene.struck_body).gyration
    log_ratio = []
    for seed in range(2, 6):
        impacts = recorded(scene, 40, seed)
        fitted, test = impacts[np.arange(1)], impacts[np.arange(1, 40)]
        errors = []
        for prior in (scene, with_prior_from(scene, light)):
            model = calibrate(SolvedModel(prior), fitted)
            errors.append(np.median(relative_error(model.predict(test), test.after, gyration)))
        log_ratio.append(np.log(errors[1] / errors[0]))
    assert np.mean(log_ratio) < np.log(0.7)
    assert np.max(log_ratio) < np.log(1.5)


def test_the_command_takes_another_run(light: Calibration, tmp_path: Path, capsys) -> None:
    from clashsim.fit.run_folder import save_run

    save_run(tmp_path / "light", light)
    scene = scene_of(0.2)
    (tmp_path / "heavy.xml").write_text(scene.xml)
    write_impacts(tmp_path / "impacts.csv", recorded(scene, 4, 3))
    line = ["calibrate", str(tmp_path / "heavy.xml"), str(tmp_path / "impacts.csv")]
    line += ["-o", str(tmp_path / "run"), "--struck", "body", "--striker", "floor"]
    assert cli.main([*line, "--from", str(tmp_path / "light")]) == 0
    friction = load(tmp_path / "run").scene.params[0]
    assert friction.nominal == pytest.approx(TRUTH["friction"], rel=0.1)
    assert cli.main([*line, "--overwrite", "--from", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
