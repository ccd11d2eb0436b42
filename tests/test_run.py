"""A run in one line: its simulator, its ranges and samples, its MJCF, and the slide model that it
carries.
"""

from __future__ import annotations

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import clashsim
from clashsim import lab
from clashsim.core.errors import ClashError, DataError, ParamError, RunError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.scene import Scene
from clashsim.data.folders import read_folder, write_folder
from clashsim.data.segmentation.segment import segment
from clashsim.fit.base import distilled_model
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.calibrated_run import (
    CalibratedRun,
    ground_friction_index,
    ground_indices,
    theta_in_ranges,
    with_ground_friction,
)
from clashsim.fit.distil import DistillationConfig, distil
from clashsim.fit.run_folder import read_notes, save_run
from clashsim.fit.sample import sample
from clashsim.fit.slides_from_trials import fit_slides_of_impacts
from clashsim.pipeline.recorded_impacts import single_contacts
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.slides.identify import SlideFit

START = torch.tensor([[0.01, 0.02, 0.3]], dtype=torch.float64)
TWIST = torch.tensor([[0.4, -0.1, 3.0]], dtype=torch.float64)

GROUND = (1, 5)  # indices of ground_friction and ground_damping_ratio


@pytest.fixture(scope="module")
def found():
    """What is found in eight recorded strikes of the laboratory; the slide of the third is cut
    short by a drop-out.
    """
    return segment(lab.recorded()[:8], scene=Scene.load("semi_cylinder"))


@pytest.fixture(scope="module")
def made(found) -> tuple[Calibration, SlideFit]:
    scene = Scene.load("semi_cylinder")
    fit, _ = fit_slides_of_impacts(scene, found.found, ())
    assert fit is not None
    return calibrate(distilled_model(scene), found.impacts), fit


@pytest.fixture
def folder(made, tmp_path):
    save_run(tmp_path / "run", made[0], slide=made[1])
    return tmp_path / "run"


@pytest.fixture(scope="module")
def puck():
    scene = Scene.load("puck")
    return distil(
        scene,
        sample(scene, 200, 0),
        config=DistillationConfig(width=16, layers=3, members=2, steps=30, batch=64),
    ), replace(sample(scene, 12, 1), theta=None, end_counts={})


def with_estimates(
    run: CalibratedRun, *estimates: tuple[float, float, float, EstimateStatus]
) -> CalibratedRun:
    """The run with other estimates (value, low, high, status) of its first parameters."""
    theta = run.calibration.theta
    own = tuple(Estimate(e.name, *v) for e, v in zip(theta, estimates, strict=False))
    return replace(run, calibration=replace(run.calibration, theta=own + theta[len(own) :]))


def test_a_slide_model_comes_back_with_its_run(made, folder, tmp_path):
    run = clashsim.load(folder)
    assert isinstance(run, CalibratedRun)
    assert run.slide is not None
    assert run.scene.name == "semi_cylinder"
    assert torch.equal(run.slide.rest(START, TWIST), made[1].model.rest(START, TWIST))
    assert run.slide.content() == made[1].model.content()
    figures = read_notes(folder)["slide"]["fit"]
    assert figures["slides"] == 7
    assert figures["estimates"][0]["name"] == "friction"
    assert len(figures["misfit"]) == 3
    save_run(tmp_path / "again", run.calibration, slide=run.slide)
    assert clashsim.load(tmp_path / "again").slide.content() == run.slide.content()


def test_a_run_without_slides_has_no_slide_model(made, tmp_path):
    save_run(tmp_path / "run", made[0])
    assert "slide.json" not in read_folder(tmp_path / "run")
    assert read_notes(tmp_path / "run")["slide"] is None
    run = clashsim.load(tmp_path / "run")
    assert ground_indices(run.scene) == GROUND
    assert run.slide is None
    assert run.hybrid().slide_model is None
    assert run.hybrid().theta[1] == run.scene.nominal[1]


@pytest.mark.parametrize(
    "change", [{"values": {}}, {"values": {"friction": -1.0}}, {"gyration": None}, {"centre": 3}]
)
def test_a_slide_model_that_is_none_is_refused(folder, tmp_path, change):
    files = read_folder(folder)
    write_folder(
        tmp_path / "bad",
        files | {"slide.json": json.dumps(json.loads(files["slide.json"]) | change).encode()},
    )
    with pytest.raises(ClashError) as error:
        clashsim.load(tmp_path / "bad")
    assert "\n" not in str(error.value)
    write_folder(tmp_path / "worse", files | {"slide.json": b"[]"})
    with pytest.raises(RunError):
        clashsim.load(tmp_path / "worse")


def test_a_loaded_run_steps(folder):
    run = clashsim.load(folder)
    hybrid = run.hybrid(timestep=0.002)
    assert isinstance(hybrid, HybridSim)
    assert hybrid.model.opt.timestep == 0.002
    assert np.array_equal(np.delete(hybrid.theta, GROUND), np.delete(run.theta, GROUND))
    assert 0.33 < hybrid.theta[1] < 0.43
    assert hybrid.theta[5] == run.scene.nominal[5]
    assert run.hybrid(slide_model=None).slide_model is None
    assert run.hybrid(theta=run.scene.nominal).theta is not None
    data = mujoco.MjData(hybrid.model)
    data.qpos[7:9] = (0.22, 0.1)
    data.qvel[7] = -0.5
    for _ in range(200):
        data.ctrl[1] = -0.5 if data.time < 0.1 else 0.5
        hybrid.step(data)
    assert hybrid.collision_stats.learned == 1
    assert np.linalg.norm(data.qpos[:2]) > 0.03
    assert np.abs(data.qvel[:2]).max() < 1e-3
    states = hybrid.rollout(
        np.concatenate([hybrid.model.qpos0, np.zeros(hybrid.model.nv)])[None], np.zeros((1, 3, 2))
    )
    assert np.isfinite(states).all()


def test_what_was_measured_with_each_impact_is_at_its_median(puck):
    base, impacts = puck
    drag = np.linspace(0.1, 0.3, len(impacts))
    run = CalibratedRun(
        calibrate(base, replace(impacts, known={"friction": drag, "warmth": 20 + drag}))
    )
    hybrid = run.hybrid(timestep=0.001)
    assert np.isclose(run.theta[0], 0.2)
    assert run.ranges()["friction"] == (0.1, 0.3)
    hybrid.rollout(np.array([[-0.05, 0.0, 0.0, -3.0, -1.0, 0.0]]), np.zeros((1, 200, 0)))
    assert hybrid.collision_stats.hits == 1
    with pytest.raises(ClashError, match="warmth"):
        run.hybrid(known={"friction": 0.2}, timestep=0.001).rollout(
            np.array([[-0.05, 0.0, 0.0, -3.0, -1.0, 0.0]]), np.zeros((1, 200, 0))
        )


def test_ranges_and_draws_stay_within_bounds(made):
    run = CalibratedRun(made[0])
    low, high = (np.array([getattr(p, k) for p in run.scene.params]) for k in ("low", "high"))
    ends = np.array(list(run.ranges().values()))
    assert list(run.ranges()) == [p.name for p in run.scene.params]
    assert (ends[:, 0] >= low).all()
    assert (ends[:, 1] <= high).all()
    assert (ends[:, 0] <= run.theta).all()
    assert (run.theta <= ends[:, 1]).all()
    samples = run.posterior_samples(4000, 3)
    assert samples.shape == (4000, len(low))
    assert (samples >= low).all()
    assert (samples <= high).all()
    assert np.array_equal(samples, run.posterior_samples(4000, 3))
    assert np.array_equal(samples[:5], run.posterior_samples(5, 3))
    assert not np.array_equal(samples, run.posterior_samples(4000, 4))
    inside = (
        (samples >= ends[:, 0] * (1 - 1e-12 * np.sign(ends[:, 0])))
        & (samples <= ends[:, 1] * (1 + 1e-12 * np.sign(ends[:, 1])))
    ).mean(0)
    assert (inside > 0.87).all()  # 90 %, and more where the range cuts an interval short
    for n, seed in ((0, 0), (1, -1)):
        with pytest.raises(ParamError, match="samples"):
            run.posterior_samples(n, seed)


def test_draws_are_normal_on_each_scale_and_even_for_what_is_known(made):
    run = with_estimates(
        CalibratedRun(made[0]),
        (0.3, 0.2, 0.4, EstimateStatus.FITTED),
        (0.3, 0.1, 0.5, EstimateStatus.KNOWN),
        (1e6, 5e5, 2e6, EstimateStatus.FITTED),
        (30.0, 30.0, 60.0, EstimateStatus.AT_BOUND),
    )
    samples = run.posterior_samples(20_000, 0)
    assert samples[:, 0].mean() == pytest.approx(0.3, abs=0.002)
    assert samples[:, 0].std() == pytest.approx(0.1 / 1.64, rel=0.03)
    assert np.allclose(
        np.quantile(samples[:, 1], [0, 0.25, 0.5, 1]), [0.1, 0.2, 0.3, 0.5], atol=0.005
    )
    assert np.log(samples[:, 2]).mean() == pytest.approx(np.log(1e6), abs=0.02)
    assert np.log(samples[:, 2]).std() == pytest.approx(np.log(2) / 1.64, rel=0.03)
    assert (samples[:, 3] < 30.001).mean() == pytest.approx(0.5, abs=0.02)
    assert np.quantile(samples[:, 3], 0.95) == pytest.approx(60, rel=0.05)


def test_mjcf_holds_what_was_identified_together(made):
    run = with_estimates(
        CalibratedRun(made[0]),
        (0.41, 0.2, 0.6, EstimateStatus.UNIDENTIFIABLE),
        (0.1, 0.02, 0.5, EstimateStatus.UNIDENTIFIABLE),
        (2e6, 1e6, 4e6, EstimateStatus.FITTED),
    )
    model = mujoco.MjModel.from_xml_string(run.mjcf().xml)
    ground = ground_friction_index(run.scene)
    assert ground == 1
    assert ground not in run.written_params
    assert np.allclose(model.pair("strike").friction[:2], 0.41)
    assert np.isclose(model.pair("strike").solref[0], -2e6)
    assert np.allclose(
        model.pair("ground").friction[:2], 0.3
    )  # as the author has it: strikes hardly show what slides live on
    identified = with_estimates(
        run, (0.41, 0.2, 0.6, EstimateStatus.KNOWN), (0.1, 0.02, 0.5, EstimateStatus.FITTED)
    )
    model = mujoco.MjModel.from_xml_string(identified.mjcf().xml)
    assert np.allclose(model.pair("strike").friction[:2], 0.3)
    assert np.allclose(model.pair("ground").friction[:2], 0.1)


def test_slides_tell_the_friction_of_the_ground(made, found):
    calibration, fit = made
    other = with_ground_friction(calibration, fit)
    run = CalibratedRun(other, fit.model)
    index = ground_friction_index(run.scene)
    assert (
        index in run.written_params
        and 0.33 < run.theta[index] < 0.43
        and other.theta[index].status is EstimateStatus.FITTED
    )  # the sand has 0.37
    assert other.theta[index].low < run.theta[index] < other.theta[index].high
    assert np.array_equal(other.predict(found.impacts), calibration.predict(found.impacts))
    assert np.array_equal(
        np.delete(theta_in_ranges(other), index), np.delete(theta_in_ranges(calibration), index)
    )
    measured = replace(
        calibration, theta=tuple(replace(e, status=EstimateStatus.KNOWN) for e in calibration.theta)
    )
    assert with_ground_friction(measured, fit) is measured
    assert ground_friction_index(Scene.load("puck")) is None


def test_slides_are_of_the_origin_and_come_to_rest(found):
    trials = {t.name: t for t in lab.recorded()}
    kept = [(f, f.slide_at(0.015)) for f in found.found]
    assert [both is None for _, both in kept] == [
        False,
        False,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    for f, both in kept:
        if both is not None:
            slide, twist = both
            t, pose = trials[f.trial].seen("block")
            assert np.isclose(slide.t[0], f.time + 0.015) and np.allclose(
                slide.xy[1:], pose[np.isin(t, slide.t[1:]), :2], atol=2e-4
            )  # a tilted block hides some
            assert np.allclose(twist, f.after_at(0.015))


def test_slides_that_are_too_few_or_none_are_said(found):
    scene = Scene.load("semi_cylinder")
    fit, figures = fit_slides_of_impacts(scene, found.found[:3], ())
    assert fit is None
    assert figures["words"].startswith("no slide model: 2 of 3 slides")
    flagged = [replace(f, flags=("uncertain",)) for f in found.found]
    assert fit_slides_of_impacts(scene, flagged, ())[0] is None
    still = [
        replace(f, slide=replace(f.slide, xy=np.full_like(f.slide.xy, np.nan))) for f in found.found
    ]
    assert fit_slides_of_impacts(scene, still, ())[0] is None
    assert fit_slides_of_impacts(Scene.load("puck"), (), ()) == (None, {})
    fit, figures = fit_slides_of_impacts(scene, found.found[:7], found.found[7:])
    assert fit is not None
    assert figures["held_out"] == 1
    assert figures["position_m"] < 0.01
    assert "ground_friction is taken from it" in figures["words"]


def test_several_contacts_in_quick_succession_are_left_out_and_named(found):
    scene = Scene.load("semi_cylinder")
    trials = lab.recorded()
    said = []

    def usable(impacts):
        segmentation = replace(found, found=tuple(impacts))
        return single_contacts(
            segmentation, scene, (), trials, notify=said.append, summary=["8 impacts"]
        )

    assert len(usable(found.found).impacts) == 8
    assert not said
    marked = [replace(f, one_contact=i not in (2, 5)) for i, f in enumerate(found.found)]
    recorded = usable(marked)
    assert len(recorded.impacts) == len(recorded.found) == 6
    assert said[0] == recorded.notes["left_out"][0]
    assert said[0].startswith("left out: 2 of 8 impacts, which are several contacts in quick")
    for row in (2, 5):
        impact = found.found[row]
        assert f"trial {impact.trial} at {impact.time:.3f} s" in said[0]
    assert "only 6 impacts are left: clashsim fit" in said[1]
    assert recorded.notes["num_left_out"] == 2
    with pytest.raises(DataError, match=r"no impact is left to fit.*clashsim fit takes whole"):
        usable(replace(f, one_contact=False) for f in found.found)
