"""The local correction, without physics: certain near what was recorded, no weight elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import ParamError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.base import distilled_model, shipped_base
from clashsim.fit.calibrate import calibrate
from clashsim.fit.local_correction import LocalCorrection
from clashsim.fit.regression import RegressionInputs, regress
from clashsim.fit.sample import sample


def test_a_smooth_function_is_learned_and_its_variance_grows_away_from_the_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = np.column_stack([np.sin(x[:, 0]), x @ [0.3, -0.2]])
    model = regress(x[:30], y[:30], np.ones(30))
    mean, variance = model(x[30:])
    assert np.abs(mean - y[30:]).max() < 0.2
    assert np.abs(model(x[:30])[0] - y[:30]).max() < 0.05
    assert (model(np.full((1, 2), 6.0))[1] > 5 * variance.mean(0)).all()


def test_no_weight_far_from_the_fitted_impacts():
    scene = Scene.load("plate")
    impacts = sample(scene, 200, 0)
    order = np.argsort(
        np.abs(impacts.before[:, 2] - impacts.before[:, 8])
    )  # by the angle between the faces
    few = impacts[order[:30]]
    far = impacts[order[-20:]]
    inputs = RegressionInputs.of(scene, contact_frame(scene, few), few)
    assert inputs.proximity(inputs(scene, contact_frame(scene, few), few)).min() > 0.2
    assert inputs.proximity(inputs(scene, contact_frame(scene, far), far)).max() < 0.5


def test_it_needs_a_few_impacts_that_differ():
    scene = Scene.load("puck")
    impacts = sample(scene, 8, 0)
    assert _correction(scene, impacts[np.arange(3)]) is None
    assert _correction(scene, impacts) is not None


def _correction(scene, impacts):
    """The correction of a model that misses every outcome by a tenth."""
    n, k = impacts.after.shape
    return LocalCorrection.of(
        scene,
        contact_frame(scene, impacts),
        impacts,
        size=np.ones(n),
        reference=np.full((n, k), 0.1),
    )


def test_it_corrects_what_physics_cannot_explain_near_the_data():
    """An outcome depends on angular velocity for a reason that no parameter knows: with many
    impacts the local correction learns it.
    """
    scene = Scene.load("puck")
    impacts = sample(scene, 240, 1)
    odd = replace(
        impacts, theta=None, after=impacts.after * (1 + 0.2 * np.sin(impacts.twist[:, 2:] / 15))
    )
    model = calibrate(distilled_model(scene), odd[np.arange(120)])
    test = odd[np.arange(120, len(odd))]
    with_it, without = (
        np.linalg.norm(m.predict(test) - test.after, axis=1).mean()
        for m in (model, replace(model, local_correction=None))
    )
    assert with_it < without


def test_a_prior_of_ones_own_keeps_the_shipped_model():
    scene = Scene.load("plate")
    heavy = scene.with_nominal({"stiffness": 3000.0})
    base = shipped_base(heavy)
    assert base is not None
    assert base.scene.nominal[[p.name for p in heavy.params].index("stiffness")] == 3000.0
    with pytest.raises(ParamError, match="stiffness"):
        scene.with_nominal({"stifness": 1.0})
    with pytest.raises(ParamError, match="outside"):
        scene.with_nominal({"stiffness": 1.0})


def test_same_impacts_same_bits():
    scene = Scene.load("puck")
    impacts = sample(scene, 12, 3)
    real = Impacts(True, impacts.before, impacts.after)
    a, b = (calibrate(distilled_model(scene), real) for _ in range(2))
    assert (a.predict(impacts) == b.predict(impacts)).all()
    assert (a.std(impacts) == b.std(impacts)).all()
