"""Which parameters the impacts ask for, in terminal and report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from clashsim import cli
from clashsim.bench.scenes import recorded_impacts
from clashsim.bench.user_scenes import hidden_model, user_scenes
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate.freed_parameters import Candidate, Freedom, candidate_sentences
from clashsim.evaluate.freed_parameters import weigh_candidates as weigh
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.priors import FIXED_STD
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel


def calibrated(**values: float) -> Calibration:
    """A calibration of pucks whose parameters are nominal, but for those given."""
    scene = Scene.load("puck")
    theta = scene.nominal.copy()
    for i, param in enumerate(scene.params):
        theta[i] = values.get(param.name, theta[i])
    model = SolvedModel(scene)
    impacts = sample(scene, 12, 2)
    noise = 1 + 0.01 * np.random.default_rng(2).standard_normal(impacts.after.shape)
    impacts = replace(impacts, after=model.predict(impacts, theta) * noise, theta=None)
    return calibrate(model, impacts)


def by_name(candidates: tuple[Candidate, ...]) -> dict[str, Candidate]:
    return {candidate.name: candidate for candidate in candidates}


def test_a_parameter_that_differs_is_needed_and_others_are_not():
    scene = Scene.load("puck")
    nominal = {param.name: param.nominal for param in scene.params}
    same = by_name(weigh(calibrated()))
    other = by_name(weigh(calibrated(friction=0.4 * nominal["friction"])))
    assert other["friction"].freedom is Freedom.NEEDED
    assert other["friction"].log_evidence > 10
    assert same["friction"].freedom is not Freedom.NEEDED
    assert same["friction"].log_evidence < 1


def test_evidence_for_what_left_out_impacts_do_not_ask_for_is_not_contradicted():
    scene = Scene.load("puck")
    nominal = {param.name: param.nominal for param in scene.params}
    calibration = calibrated(friction=0.4 * nominal["friction"])
    posterior = calibration.posteriors[0]
    fixed = replace(posterior, std=torch.full_like(posterior.std, FIXED_STD))
    mostly_fixed = replace(calibration, posteriors=(posterior, fixed), weights=(0.1, 0.9))
    candidates = weigh(mostly_fixed)
    asked_for = [found for found in candidates if (found.log_evidence or 0) > 1]
    assert asked_for
    assert all(found.freedom is Freedom.UNPREDICTIVE for found in asked_for)
    sentence = next(s for s in candidate_sentences(candidates) if "most fits" in s)
    assert "explained without" not in sentence and "friction (+" in sentence


def test_the_difference_is_that_of_two_evidences():
    """For a normal likelihood of one parameter, the ratio of densities is exact."""
    calibration = calibrated()
    posterior = calibration.posteriors[0]
    friction = [param.name for param in calibration.base.scene.params].index("friction")
    prior_std, noise, measured = 0.5, 0.1, 0.3
    variance = 1 / (1 / prior_std**2 + 1 / noise**2)
    std, mean = posterior.std.clone(), posterior.mean.clone()
    constants_std, dual = posterior.constants_std.clone(), posterior.dual.clone()
    std[friction], constants_std[friction] = prior_std, variance**0.5
    mean[friction], dual[:, friction] = variance * measured / noise**2, 0.0
    changed = replace(posterior, std=std, mean=mean, constants_std=constants_std, dual=dual)
    found = by_name(weigh(replace(calibration, posteriors=(changed,), weights=(1.0,))))

    def log_normal(x: float, var: float) -> float:
        return -0.5 * (x**2 / var + np.log(var))

    expected = log_normal(measured, prior_std**2 + noise**2) - log_normal(measured, noise**2)
    assert found["friction"].log_evidence == pytest.approx(expected, abs=1e-9)


def test_parameters_that_no_fit_frees_are_left():
    calibration = calibrated()
    fixed = [i for i, p in enumerate(calibration.base.scene.params) if p.name == "friction"]
    posteriors = []
    for posterior in calibration.posteriors:
        std = posterior.std.clone()
        std[fixed] = FIXED_STD
        posteriors.append(replace(posterior, std=std))
    found = weigh(replace(calibration, posteriors=tuple(posteriors)))
    friction = by_name(found)["friction"]
    assert friction.freedom is Freedom.LEFT
    assert friction.log_evidence is None and friction.free_share == 0
    assert any("friction." in s and "Left at" in s for s in candidate_sentences((friction,)))


def test_evidences_that_were_compared_replace_the_estimate():
    calibration = calibrated()
    found = by_name(weigh(calibration, {"friction": 7.25}))
    assert found["friction"].log_evidence == 7.25
    assert found["friction"].freedom is Freedom.NEEDED
    assert "friction (+7.2)" in candidate_sentences((found["friction"],))[0]


@pytest.mark.usefixtures("quick_report")
@pytest.mark.slow
def test_a_scene_without_settings_says_what_was_freed(tmp_path, capsys):
    scene = next(scene for scene in user_scenes() if scene.planar and scene.striker)
    rng = np.random.default_rng(0)
    (tmp_path / f"scene{scene.suffix}").write_text(scene.xml)
    for name, content in scene.assets.items():
        (tmp_path / name).write_bytes(content)
    impacts = recorded_impacts(scene, hidden_model(scene, rng), 10, rng)
    write_impacts(tmp_path / "impacts.csv", impacts)
    options = [f"--{name}={value}" for name, value in scene.arguments.items()]
    files = [str(tmp_path / f"scene{scene.suffix}"), str(tmp_path / "impacts.csv")]
    assert cli.main(["calibrate", *files, "-o", str(tmp_path / "run"), *options]) == 0
    printed = capsys.readouterr().out
    assert "Which parameters were freed" in printed
    assert "mass of the striker" in printed and "restitution (damping)" in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Which parameters were freed, and why" in page
    assert "tangential spring" in page
