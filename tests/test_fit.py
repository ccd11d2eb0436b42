"""Distillation, identification, calibration: gradients, known truths, statuses, honest std."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.errors import DataError
from clashsim.core.estimates import EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.protocols import ImpactModel
from clashsim.core.scene import Scene, scene_params
from clashsim.core.strike_distribution import StrikeDistribution
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.base import distilled_model, scenes_with_network, shipped_base
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistillationConfig, DistilledModel, distil
from clashsim.fit.gradient import identify_by_gradient
from clashsim.fit.sample import sample, sample_strikes
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.mujoco.impacts import ImpactSimulator

SMALL = DistillationConfig(width=64, layers=4, members=1, steps=1200, batch=512)


def blind_puck() -> Scene:
    """A puck whose rolling friction no wall hit can see, as its contact has none."""
    scene = Scene.load("puck")
    own = [p for p in scene.params if not p.target.startswith("effect/")]
    return scene.with_params(
        [*own, Param("rolling", "pair/strike/friction[3:5]", 0.0003, 0.0001, 0.001, scale="log")]
    )


@pytest.fixture(scope="module")
def puck() -> DistilledModel:
    scene = blind_puck()
    return distil(scene, sample(scene, 8000, 0), config=SMALL)


def test_gradients_match_finite_differences(puck: DistilledModel) -> None:
    impacts = sample(puck.scene, 5, 1)
    features = torch.as_tensor(contact_frame(puck.scene, impacts).features)
    unit = torch.as_tensor(to_unit(puck.scene.params, impacts.theta)).requires_grad_(True)
    net = puck.net.double()
    model = DistilledModel(puck.scene, net, puck.low, puck.high, puck.extent)
    gradient = torch.autograd.grad(model.change(features, unit).sum(), unit)[0]
    for j in range(unit.shape[1]):
        step = torch.zeros_like(unit)
        step[:, j] = 1e-5
        numeric = (model.change(features, unit + step) - model.change(features, unit - step)).sum(
            (0, 2)
        ) / 2e-5
        assert torch.allclose(gradient[:, j], numeric, atol=1e-5)
    puck.net.float()


def test_known_truth_is_recovered_and_the_invisible_is_called_so(puck: DistilledModel) -> None:
    scene = puck.scene
    run = ImpactSimulator(puck.scene, 32)
    fitted = 0
    for k in range(20):
        rng = np.random.default_rng(1000 + k)
        truth = from_unit(scene.params, rng.uniform(-0.9, 0.9, len(scene.params)))
        strikes = sample_strikes(scene, 14, rng)
        outcome = run(strikes.before, truth)
        found = identify_by_gradient(
            puck,
            Impacts(True, strikes.before, outcome.after)[outcome.usable],
        )
        for estimate, value in zip(found.estimates, truth, strict=True):
            if estimate.status == EstimateStatus.FITTED:
                fitted += 1
                assert abs(estimate.value / value - 1) < 0.05, (k, estimate, value)
        assert found.estimates[-1].status == EstimateStatus.UNIDENTIFIABLE
    assert fitted > 40  # of 60 that can be seen


@pytest.mark.parametrize("name", scenes_with_network())
def test_shipped_base_models_belong_to_their_scenes_and_are_accurate(name: str) -> None:
    scene = Scene.load(name)
    base = shipped_base(scene)
    assert base is not None, (
        "the scene changed without its base model: run tools/ship_base_models.py"
    )
    unseen = sample(scene, 1000, 4242)
    error = relative_error(
        base.predict(unseen, unseen.theta), unseen.after, inertia(scene, scene.struck_body).gyration
    )
    assert (error < 0.1).mean() > 0.955  # 0.97 and more on larger samples: clashsim bench base


def test_calibration_beats_mujoco_and_its_std_is_honest() -> None:
    scene = Scene.load("puck")
    base = distilled_model(scene)
    truth = from_unit(scene.params, np.array([0.5, -0.4, 0.2, 0.4]))
    pinned = replace(
        scene,
        params=tuple(
            replace(p, nominal=t, low=t - 1e-9 * abs(t), high=t + 1e-9 * abs(t))
            for p, t in zip(scene.params, truth, strict=True)
        ),
    )
    real = replace(sample(pinned, 212, 5), theta=None)
    noisy = replace(
        real, after=real.after * (1 + 0.02 * np.random.default_rng(0).normal(size=real.after.shape))
    )
    model = calibrate(base, noisy[np.arange(12)])
    test = noisy[np.arange(12, 212)]
    gyration = inertia(scene, scene.struck_body).gyration
    ours = relative_error(model.predict(test), test.after, gyration)
    theirs = relative_error(base.predict(test, scene.nominal), test.after, gyration)
    assert (ours < 0.1).mean() > 0.9 > (theirs < 0.1).mean()
    inside = np.abs(model.predict(test) - test.after) < 2 * model.std(test)
    assert inside.mean() > 0.8
    again = calibrate(base, noisy[np.arange(12)])
    assert (again.predict(test) == model.predict(test)).all()


def test_fewer_impacts_than_parameters_are_fitted_with_priors() -> None:
    scene = Scene.load("plate")
    base = distilled_model(scene)
    impacts = sample(scene, 4, 0)
    model = calibrate(base, Impacts(True, impacts.before, impacts.after))
    assert any(e.status == EstimateStatus.UNIDENTIFIABLE for e in model.theta)
    assert all(
        p.low <= e.low <= e.value <= e.high <= p.high
        for e, p in zip(model.theta, scene.params, strict=True)
    )


def test_data_that_say_nothing_are_refused() -> None:
    scene = Scene.load("puck")
    base = distilled_model(scene)
    impacts = sample(Scene.load("puck"), 5, 0)
    same = Impacts(True, np.repeat(impacts.before[:1], 5, 0), np.repeat(impacts.after[:1], 5, 0))
    with pytest.raises(DataError, match="identical"):
        calibrate(base, same)
    with pytest.raises(DataError, match="no measured outcome"):
        calibrate(base, Impacts(True, impacts.before, impacts.after * np.nan))
    with pytest.raises(DataError, match="NaN"):
        calibrate(base, Impacts(True, impacts.before * np.nan, impacts.after))
    with pytest.raises(DataError, match="nothing moves"):
        calibrate(
            base, Impacts(True, impacts.before * np.array([1, 1, 1, *[0] * 9]), impacts.after)
        )
    with pytest.raises(DataError, match="mm/s"):
        calibrate(base, Impacts(True, impacts.before * 1000, impacts.after * 1000))


def test_same_config_same_weights() -> None:
    scene = Scene.load("puck")
    impacts = sample(scene, 500, 0)
    tiny = DistillationConfig(width=16, layers=3, members=2, steps=30, batch=64)
    a = distil(scene, impacts, config=tiny, seed=1)
    b = distil(scene, impacts, config=tiny, seed=1)
    assert all(
        torch.equal(x, y)
        for x, y in zip(a.net.state_dict().values(), b.net.state_dict().values(), strict=True)
    )


SPATIAL = """<mujoco><option gravity="0 0 0" timestep="0.0002"/><worldbody>
<geom name="wall" type="plane" size="1 1 .1"/><body name="a" pos="0 0 .5"><freejoint/>
<geom name="a" type="box" size=".05 .04 .03" density="800"/></body></worldbody>
<contact><pair name="strike" geom1="a" geom2="wall" solref="-200000 -100"
friction="0.3 0.3 .005 .0001 .0001"/></contact></mujoco>"""


def test_a_free_body_in_space_is_calibrated() -> None:
    scene = Scene(
        SPATIAL,
        "a",
        "wall",
        strikes=StrikeDistribution(speed=(0.5, 2.0), deflection=(-0.6, 0.6), spin=(-3, 3)),
    )
    scene = scene.with_params(scene_params(scene))
    names = [param.name for param in scene.params]
    assert names[:4] == ["friction", "stiffness", "damping", "centre_x"]
    assert names[-1] == "inertia_z"
    base = SolvedModel(scene)
    unit = np.zeros(len(names))
    unit[:6] = [0.4, 0.2, -0.2, 0.3, -0.3, 0.2]  # contact, and a mass centre that is off the middle
    sampled = sample(scene, 80, 5)
    real = Impacts(False, sampled.before, base.predict(sampled, from_unit(scene.params, unit)))
    model = calibrate(base, real[np.arange(12)])
    test = real[np.arange(12, len(real))]
    gyration = inertia(scene, scene.struck_body).gyration
    error = relative_error(model.predict(test), test.after, gyration)
    nominal = relative_error(base.predict(test, scene.nominal), test.after, gyration)
    assert (error < 0.1).mean() > 0.9
    assert np.median(error) < 0.2 * np.median(nominal)


def test_a_calibration_is_an_impact_model() -> None:
    def use(model: ImpactModel, impacts: Impacts) -> tuple[np.ndarray, np.ndarray]:
        return model.predict_with_std(impacts)

    scene = Scene.load("puck")
    impacts = sample(scene, 6, 0)
    predicted, std = use(
        calibrate(distilled_model(scene), Impacts(True, impacts.before, impacts.after)), impacts
    )
    assert predicted.shape == std.shape == impacts.after.shape
    assert (std > 0).all()


def test_a_base_model_knows_its_domain_and_where_its_members_disagree() -> None:
    scene = Scene.load("puck")
    base = distilled_model(scene)
    impacts = sample(scene, 100, 9)
    frame = contact_frame(scene, impacts)
    assert impacts.theta is not None
    assert base.in_training_region(frame, impacts.theta).mean() > 0.95
    beyond = from_unit(scene.params, np.full(len(scene.params), 1.5))
    assert not base.in_training_region(frame, beyond).any()
    assert (base.std(impacts, impacts.theta) >= 0).all()
    assert base.std(impacts, impacts.theta).max() > 0
