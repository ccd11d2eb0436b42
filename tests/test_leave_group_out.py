"""Leaving groups of consecutive impacts out, against the conditional normal distribution."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import multivariate_normal

from clashsim.bench.lab_sets import strikes_on_corners
from clashsim.core.contact_frame import contact_frame
from clashsim.core.scene import Scene
from clashsim.fit.field_kernels import Context
from clashsim.fit.fields import outcome_jacobian
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.interval_widths import IntervalWidths
from clashsim.fit.leave_group_out import consecutive_groups, leave_groups_out
from clashsim.fit.linear_gaussian import outlier_cost
from clashsim.fit.lockstep import FieldData
from clashsim.fit.predictive_variance import pose_variance
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel

N, K = 11, 3
NOISE = 0.1


def field_data() -> FieldData:
    nothing = torch.zeros(N, K, dtype=torch.float64)
    return FieldData(lambda *_: nothing, torch.arange(N), nothing, nothing, Context((), nothing))


def test_groups_are_neighbours_and_hold_each_impact_once() -> None:
    groups = consecutive_groups(N)
    assert np.concatenate(groups).tolist() == list(range(N))
    assert {len(group) for group in groups} == {2, 3}
    assert [len(group) for group in consecutive_groups(3)] == [1, 1, 1]


def test_errors_and_densities_are_those_of_the_conditional_distribution() -> None:
    rng = np.random.default_rng(0)
    jacobian = rng.normal(size=(N * K, 4))
    weight = rng.uniform(0.3, 1.0, N)
    noise = np.repeat(NOISE**2 / weight, K)
    covariance = jacobian @ jacobian.T + np.diag(noise)
    target = np.linalg.cholesky(covariance) @ rng.normal(size=N * K)
    found = leave_groups_out(
        torch.linalg.cholesky(torch.as_tensor(covariance)),
        torch.as_tensor(target)[:, None],
        field_data(),
        weight=torch.as_tensor(weight),
        noise=NOISE,
    )
    total = 0.0
    for group in consecutive_groups(N):
        own = (group[:, None] * K + np.arange(K)).ravel()
        others = np.setdiff1d(np.arange(N * K), own)
        gain = covariance[np.ix_(own, others)] @ np.linalg.inv(covariance[np.ix_(others, others)])
        mean = gain @ target[others]
        conditional = covariance[np.ix_(own, own)] - gain @ covariance[np.ix_(others, own)]
        np.testing.assert_allclose(found.error[group].ravel(), target[own] - mean, atol=1e-9)
        without_lowered_weight = conditional.diagonal() - noise[own] + NOISE**2
        np.testing.assert_allclose(found.variance[group].ravel(), without_lowered_weight)
        total += float(multivariate_normal(mean, conditional).logpdf(target[own]))
    constant = 0.5 * N * K * np.log(2 * np.pi)
    outliers = float(outlier_cost(torch.as_tensor(weight)))
    np.testing.assert_allclose(found.log_density, total + constant - outliers)


def test_what_exceeds_the_usual_variance_is_not_narrowed() -> None:
    narrow = IntervalWidths(std=0.5, tail=1.65, usual_variance=0.04)
    np.testing.assert_allclose(narrow.corrected(np.array([0.02, 0.04, 1.0])), [0.005, 0.01, 0.97])
    wide = IntervalWidths(std=2.0, tail=1.65, usual_variance=0.04)
    np.testing.assert_allclose(wide.corrected(np.array([0.02, 1.0])), [0.08, 4.0])


def test_poses_that_are_a_little_off_matter_most_at_corners() -> None:
    scene = Scene.load("square")
    impacts = sample(scene, 60, 1)
    base = SolvedModel(scene)
    frame = contact_frame(scene, impacts)
    scaling = InputScaling.of(base, frame, impacts.known)
    data = scaling.data(base, frame, impacts.known, impacts.after)
    nominal = torch.zeros(len(impacts), len(scene.params), dtype=torch.float64)
    jacobian, _ = outcome_jacobian(data, nominal)
    variance = pose_variance(scene, jacobian).sum(1).numpy()
    on_corner = strikes_on_corners(scene, impacts)
    assert 3 < on_corner.sum() < 40
    assert np.median(variance[on_corner]) > 2 * np.median(variance[~on_corner])
    without_offsets = scene.with_params(scene.params[:2])
    assert not pose_variance(without_offsets, jacobian).any()
