"""Parameters as Gaussian-process fields, identified together with a small residual.

A real contact is not one set of parameters: restitution varies along a floor, friction over a
surface. So every parameter is a constant plus a smooth field over where and how the bodies meet,
and what no parameter explains is a small residual of the outcome:

    y = f(x, phi(x)) + r(x) + noise,   phi_p ~ GP(nominal_p, sd_p^2 (1 + sum_g a^2 k_g) + scatter),
      r ~ GP(0, k_r)

With fields and residual switched off this is plain identification of constant parameters.
A fit is the maximum of the posterior. What it leaves open is that of the model linearised there
(`predictive_variance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clashsim.fit.field_descent import (
    FREE_STD,
    Descent,
    FieldProblem,
    FieldSolution,
    apply_kernel,
)
from clashsim.fit.field_kernels import (
    CONSTANTS_ONLY,
    Context,
    PriorScales,
    fitted_kernel,
    residual_kernel,
)
from clashsim.fit.leave_group_out import LeaveGroupOut
from clashsim.fit.leave_one_out import LeaveOneOut
from clashsim.fit.lockstep import FieldData, Fit, value_and_jacobian
from clashsim.fit.priors import ThetaPrior

# Smallest size of an outcome over the approach speed: keeps errors relative to it finite where a
# body nearly stops.
_MIN_SIZE = 0.02
_SMOOTHING = 1e-5  # added to the kernel's diagonal when it is inverted
_CONSTANTS_NOISE = 0.1  # relative noise with which `fit_constants` fits
# Starts of `fit_constants`, rounds of Gauss-Newton of all of them, how many of them are followed
# further, and rounds of these.
_CONSTANTS_STARTS = 12
_FIRST_ROUNDS = 2
_FOLLOWED_STARTS = 3
_CONSTANTS_ROUNDS = 6
_POSTERIOR_ROUNDS = 8  # of Gauss-Newton
_SIZE_RATIO_RANGE = (0.5, 2.0)  # of the predicted outcome over the observed one


@dataclass(frozen=True, eq=False)
class Posterior:
    """A fit to N impacts: the maximum of the posterior, and the model linearised there.

    Attributes:
        scales: Prior scales of the fit.
        std: Prior standard deviations of the parameters (p,).
        mean: Prior means of the parameters (p,).
        anchor: Constants (p,) of a fit without fields; the residual is relative to the size of
            the outcomes that they predict.
        dual: Coefficients of the fields (N, p).
        residual_dual: Coefficients of the residual (N, k).
        outcome_shape: Fitted outcomes over their size (N, k).
        evidence: Logarithm of the marginal likelihood.
        constants_std: Standard deviations of the constants (p,).
        context: Circumstances of the fitted impacts.
        jacobian: Derivative (N, k, p) of the outcomes, of all recorded bodies, over their size
            with respect to the parameters.
        factor: Cholesky factor (N k, N k) of the covariance of these observations.
        response: How the observations follow the residual of the struck body's (N, k, s).
        ratio: Size of the outcomes that the anchor predicts over their observed size (N,).
        leave_one_out: Errors of predicting each impact from the others.
        leave_group_out: Errors of predicting groups of impacts from the others.
    """

    scales: PriorScales
    std: Tensor
    mean: Tensor
    anchor: Tensor
    dual: Tensor
    residual_dual: Tensor
    outcome_shape: Tensor
    evidence: float
    constants_std: Tensor
    context: Context
    jacobian: Tensor
    factor: Tensor
    response: Tensor
    ratio: Tensor
    leave_one_out: LeaveOneOut
    leave_group_out: LeaveGroupOut

    @property
    def struck_jacobian(self) -> Tensor:
        """The part (N, s, p) of the Jacobian for the struck body's outcomes."""
        return self.jacobian[:, : self.response.shape[2]]

    @property
    def theta(self) -> Tensor:
        """The constant part of the parameters (p,), on the unit scale about the nominal values."""
        return self.mean + self.std.square() * self.dual.sum(0)


@dataclass(frozen=True, eq=False)
class FittedConstants:
    """Constant parameters at a local maximum of the posterior of N impacts.

    Attributes:
        constants: (p,), on the unit scale, as differences from nominal values.
        sizes: (N,), of the outcomes that they predict, over the approach speed.
    """

    constants: Tensor
    sizes: Tensor


def fit_constants(
    data: FieldData, priors: Sequence[ThetaPrior], near: Tensor | None = None
) -> Fit[list[list[FittedConstants]]]:
    """Constant parameters for each prior, by descents from several starts.

    The first start is the prior's mean, the others are drawn from the prior.

    Args:
        data: The impacts.
        priors: Of the parameters.
        near: Constants (p,) on the unit scale, as differences from nominal values, of a fit to
            nearly the same impacts: the only start besides the prior's mean.

    Returns:
        For each prior the constants at the ends of the best descents, the most probable first.
    """
    n = len(data.change)
    begins = [_starts(prior, n, near) for prior in priors]
    ends = yield [
        _constants_problem(data, prior, len(begin)).search(begin, rounds=_FIRST_ROUNDS)
        for prior, begin in zip(priors, begins, strict=True)
    ]
    # Only the most promising starts are followed to their end.
    descents = []
    for prior, (dual, cost) in zip(priors, ends, strict=True):
        best = cost.argsort()[:_FOLLOWED_STARTS]
        problem = _constants_problem(data, prior, len(best))
        descents.append(problem.descend(dual[best], rounds=_CONSTANTS_ROUNDS))
    solutions = yield descents
    size, _ = _relative(data)
    ends_of_priors = []
    for solution in solutions:
        ends_of_prior = []
        for start in solution.cost.argsort().tolist():
            predicted = solution.outcome_shape[start] * size[:, None]
            ends_of_prior.append(FittedConstants(solution.phi[start, 0], _size(predicted)))
        ends_of_priors.append(ends_of_prior)
    return ends_of_priors


def _constants_problem(data: FieldData, prior: ThetaPrior, m: int) -> FieldProblem:
    """The fit of constants alone, from m starts."""
    size, target = _relative(data)
    return FieldProblem(
        data=data,
        target=target.expand(m, -1, -1),
        size=size,
        mean=prior.mean.expand(m, -1),
        std=prior.std,
        scales=replace(CONSTANTS_ONLY, noise=_CONSTANTS_NOISE),
        ratio=torch.ones(m, len(size), dtype=torch.float64),
    )


def _starts(prior: ThetaPrior, n: int, near: Tensor | None) -> Tensor:
    """Dual coefficients (M, n, p) of starts: the prior's mean, and draws from it or `near`."""
    if near is None:
        generator = torch.Generator().manual_seed(0)
        shape = (_CONSTANTS_STARTS, len(prior.std))
        departures = torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        departure = torch.where(prior.std > FREE_STD, (near - prior.mean) / prior.std, 0.0)
        departures = departure.expand(2, -1).clone()
    departures[0] = 0.0
    # All impacts have the same parameters here, so each has an equal part in the departure.
    return (departures / (n * prior.std))[:, None].expand(-1, n, -1)


@dataclass(frozen=True, eq=False)
class PlannedFit:
    """A fit of constants, fields and residual.

    Attributes:
        scales: Prior scales; the noise is only where its choice by the evidence begins.
        prior: Of the constants.
        anchor: Constants at which the descent begins.
    """

    scales: PriorScales
    prior: ThetaPrior
    anchor: FittedConstants


def fit_posteriors(data: FieldData, fits: Sequence[PlannedFit]) -> Fit[list[Posterior]]:
    """Fit constants, fields and residual of several fits at once.

    Args:
        data: The impacts.
        fits: The fits.

    Returns:
        The posterior of each fit.
    """
    begun = [_begin_fit(data, fit) for fit in fits]
    solutions = yield [fit.descent for fit in begun]
    return [fit.posterior(end) for fit, end in zip(begun, solutions, strict=True)]


@dataclass(frozen=True, eq=False)
class _BegunFit:
    """A fit that has begun: its problem and its descent."""

    problem: FieldProblem
    anchor: Tensor
    descent: Descent

    def posterior(self, end: FieldSolution) -> Posterior:
        """The posterior at the end of the descent."""
        problem = self.problem
        return Posterior(
            scales=replace(problem.scales, noise=end.noise),
            std=problem.std,
            mean=problem.mean[0],
            anchor=self.anchor,
            dual=end.dual[0],
            residual_dual=end.residual_dual[0] * problem.ratio[0, :, None],
            outcome_shape=end.outcome_shape[0],
            evidence=end.evidence,
            constants_std=end.constants_std,
            context=problem.data.context,
            jacobian=end.jacobian,
            factor=end.factor,
            response=problem.residual_response,
            ratio=problem.ratio[0],
            leave_one_out=end.leave_one_out,
            leave_group_out=end.leave_group_out,
        )


def _begin_fit(data: FieldData, fit: PlannedFit) -> _BegunFit:
    """State the problem of one fit."""
    n = len(data.change)
    std = fit.prior.std
    size, target = _relative(data)
    # The residual is relative to the size that the constants alone predict. The final prediction
    # may be far off before its residual is added, and would then scale the residual wrongly.
    ratio = (fit.anchor.sizes / size).clamp(*_SIZE_RATIO_RANGE)
    smooth = fitted_kernel(data.context, data.context, fit.scales)
    identity = torch.eye(n, dtype=torch.float64)
    # The coefficients with which every impact begins at the anchor.
    departure = ((fit.anchor.constants - fit.prior.mean) / std.square()).expand(n, -1)
    dual = torch.linalg.solve(smooth + _SMOOTHING * identity, departure)
    problem = FieldProblem(
        data=data,
        target=target[None],
        size=size,
        mean=fit.prior.mean[None],
        std=std,
        scales=fit.scales,
        ratio=ratio[None],
        fit_noise=True,
    )
    descent = problem.descend(dual[None], rounds=_POSTERIOR_ROUNDS)
    return _BegunFit(problem, fit.anchor.constants, descent)


def predict_posteriors(
    posteriors: Sequence[Posterior], data: FieldData
) -> list[tuple[Tensor, Tensor]]:
    """Predict new impacts by each of several fits, with one call of the physics.

    Args:
        posteriors: The fits.
        data: N impacts, whose outcomes are not used.

    Returns:
        For each fit the change of twist over the approach speed (N, k), and the parameters of each
        impact (N, p) on the unit scale about the nominal values.
    """
    n = len(data.twist_before)
    parameters = []
    for posterior in posteriors:
        smooth = fitted_kernel(data.context, posterior.context, posterior.scales)
        move = apply_kernel(smooth, posterior.std, posterior.dual[None])[0]
        parameters.append(posterior.mean + move)
        # The residual is relative to the size of what constants alone predict.
        if posterior.scales.has_residual:
            parameters.append(posterior.anchor.expand(n, -1))
    values = iter(data.evaluate(torch.stack(parameters)))
    moved = iter(parameters)
    predictions = []
    for posterior in posteriors:
        phi, value = next(moved), next(values)
        if posterior.scales.has_residual:
            next(moved)
            size = _size(next(values) + data.twist_before)
            value = value + size[:, None] * _residual(posterior, data, value)
        predictions.append((value, phi))
    return predictions


def _residual(posterior: Posterior, data: FieldData, value: Tensor) -> Tensor:
    """Residual (N, k) of changes `value` (N, k), relative to the size of the outcome."""
    after = value + data.twist_before
    shape = after / after.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    scaled_shape = posterior.scales.outcome_linear**2 * shape
    kernel = residual_kernel(data.context, posterior.context, posterior.scales)
    return (kernel + scaled_shape @ posterior.outcome_shape.T) @ posterior.residual_dual


def outcome_jacobian(data: FieldData, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Derivative of outcomes over their size with respect to the parameters.

    Args:
        data: N impacts.
        phi: Parameters (N, p).

    Returns:
        Jacobian (N, k, p), and the sizes (N,) of the outcomes over the approach speed.
    """
    value, jacobian = value_and_jacobian(data, phi[None])
    size = _size(value[0] + data.twist_before)
    return jacobian[0] / size[:, None, None], size


def _relative(data: FieldData) -> tuple[Tensor, Tensor]:
    """Size (N,) of the struck body's outcomes, and the change of twist (N, k) relative to it."""
    size = _size((data.change + data.twist_before)[:, data.struck])
    return size, data.change / size[:, None]


def _size(twist: Tensor) -> Tensor:
    """Norm (...) of twists over the approach speed (..., k), at least `_MIN_SIZE`."""
    return twist.norm(dim=-1).clamp_min(_MIN_SIZE)
