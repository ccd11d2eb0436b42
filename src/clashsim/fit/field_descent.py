"""Gauss-Newton with a line search for parameter fields and residual.

The unknowns are the dual coefficients of the fields: phi = mean + std^2 K dual, with phi the
parameters of each impact and K the kernel of the smooth fields. All members of an ensemble
(posterior samples) are solved at once. There is a line search instead of damping, since the prior
regularises every direction.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from clashsim.fit.field_kernels import PriorScales, fitted_kernel, residual_kernel
from clashsim.fit.leave_group_out import LeaveGroupOut, leave_groups_out
from clashsim.fit.leave_one_out import LeaveOneOut, leave_one_out
from clashsim.fit.linear_gaussian import (
    DEGREES_OF_FREEDOM,
    add_to_blocks,
    evidence,
    other_covariance,
    outer,
    scaled,
)
from clashsim.fit.lockstep import FieldData, PhysicsAnswer, PhysicsRequest
from clashsim.fit.priors import FIXED_STD

_MIN_WEIGHT = 0.01  # of an impact, so that the fit cannot dismiss most of them as outliers
# A descent ends when no member's cost changes by more than this, relative to 1 + cost. The cost is
# half a sum of squared standardised errors: differences of a few per cent change no prediction.
_CONVERGED = 0.02
_LINE_SEARCH = (1.0, 0.4, 0.15, 0.05)  # shares of a Gauss-Newton step, the longest first

FREE_STD = 2 * FIXED_STD  # parameters with a smaller prior standard deviation stay at its mean
# Variance of what was not measured, over the squared size of the outcome: it says nothing then.
_UNMEASURED_VARIANCE = 1e4
# Prior of a noise that is fitted: median, and standard deviation of its logarithm. In each round it
# is multiplied by one of these factors; a fit that finds its way lowers it much at once.
_NOISE_MEDIAN = 0.03
_NOISE_STD = 0.7
_NOISE_FACTORS = (1.0, 1.4, 1 / 1.4, 1 / 1.4**3)
_NOISE_RANGE = (0.003, 0.3)


@dataclass(frozen=True, eq=False)
class FieldSolution:
    """Where Gauss-Newton ended, for M members.

    Attributes:
        dual: Coefficients of the fields (M, N, p).
        phi: Parameters of each impact (M, N, p).
        residual_dual: Dual coefficients (M, N, s) of the residual of the struck body's outcome.
        outcome_shape: Fitted outcomes over their size (M, N, k).
        cost: Robust misfit plus prior (M,).
        evidence: Logarithm of the marginal likelihood, of the first member.
        noise: Noise of the measurement, relative to the outcome.
        constants_std: Laplace standard deviations (p,) of the constants, of the first member.
        jacobian: Derivative (N, k, p) of the first member's outcomes over their size with respect
            to the parameters.
        factor: Cholesky factor (N k, N k) of the covariance of the first member's observations.
        leave_one_out: Errors of leaving each impact out, of the first member.
        leave_group_out: Errors of leaving groups of impacts out, of the first member.
    """

    dual: Tensor
    phi: Tensor
    residual_dual: Tensor
    outcome_shape: Tensor
    cost: Tensor
    evidence: float
    noise: float
    constants_std: Tensor
    jacobian: Tensor
    factor: Tensor
    leave_one_out: LeaveOneOut
    leave_group_out: LeaveGroupOut


@dataclass(frozen=True, eq=False)
class _Linearised:
    """The problem linearised at some parameters.

    Attributes:
        phi: Parameters of each impact (M, N, p).
        jacobian: Derivative of the prediction over the outcome's size by the parameters
            (M, N, k, p).
        miss: Target minus prediction (M, N, k).
        outcome_shape: Outcomes over their size (M, N, k).
    """

    phi: Tensor
    jacobian: Tensor
    miss: Tensor
    outcome_shape: Tensor

    @property
    def first(self) -> _Linearised:
        """The linearised problem of the first member."""
        one = slice(0, 1)
        return _Linearised(
            self.phi[one], self.jacobian[one], self.miss[one], self.outcome_shape[one]
        )


class _Improved(NamedTuple):
    """Where Gauss-Newton has come to: dual coefficients (M, N, p), weights (M, N), costs (M,).

    The evidence is that of the first member. The problem has the noise that was fitted.
    """

    problem: FieldProblem
    dual: Tensor
    weight: Tensor
    cost: Tensor
    evidence: float


@dataclass(frozen=True, eq=False)
class FieldProblem:
    """The fit of M members to N impacts.

    Attributes:
        data: The impacts.
        target: Observed change of twist over the outcome's size, perturbed for each member,
            (M, N, k).
        size: Size of the observed outcomes (N,).
        mean: Prior means of the parameters (M, p).
        std: Prior standard deviations (p,).
        scales: Prior scales.
        ratio: Size of the outcome that the constants alone predict over its observed size (M, N).
        fit_noise: Whether the noise is chosen by the evidence; `scales.noise` is where it begins.
            Only with one member.
    """

    data: FieldData
    target: Tensor
    size: Tensor
    mean: Tensor
    std: Tensor
    scales: PriorScales
    ratio: Tensor
    fit_noise: bool = False

    @cached_property
    def _smooth(self) -> Tensor:
        """Kernel (N, N) of a parameter: its constant and its smooth field."""
        return fitted_kernel(self.data.context, self.data.context, self.scales)

    @cached_property
    def _residual_kernel(self) -> Tensor:
        """Kernel (N, N) of the residual."""
        return residual_kernel(self.data.context, self.data.context, self.scales)

    @property
    def residual_response(self) -> Tensor:
        """How the observed outcomes (N, k, s) follow the residual of the struck body's."""
        n, k = self.data.change.shape
        if self.data.response is not None:
            return self.data.response
        return torch.eye(k, dtype=torch.float64).expand(n, k, k)

    def descend(self, dual: Tensor, *, rounds: int) -> Descent:
        """Descend from dual coefficients (M, N, p); see `run_fits`.

        Each round lowers the weight of impacts that stay unexplained (Student-t noise), so that
        recording errors and double hits have little influence.
        """
        found = yield from self._improve(dual, rounds)
        at = yield from found.problem._linearise(found.dual)
        return found.problem._solution(found, at)

    def search(self, dual: Tensor, *, rounds: int) -> Search:
        """`descend`, where only the coefficients and costs at the end matter."""
        found = yield from self._improve(dual, rounds)
        return found.dual, found.cost

    def _improve(
        self, dual: Tensor, rounds: int
    ) -> Generator[PhysicsRequest, PhysicsAnswer, _Improved]:
        """Gauss-Newton from dual coefficients (M, N, p), for members that have not converged."""
        m, n, k = self.target.shape
        dual = dual.clone()
        weight = torch.ones(m, n, dtype=torch.float64)
        log_evidence = -math.inf
        cost = torch.full((m,), torch.inf, dtype=torch.float64)
        members = torch.arange(m)
        whole = self
        for _ in range(rounds):
            problem = whole if len(members) == m else whole._select(members)
            at = yield from problem._linearise(dual[members])
            last_noise = problem.scales.noise
            if problem.fit_noise:
                whole = problem = problem._with_better_noise(at, weight)
            other = problem._other_covariance(at, weight[members])
            factor = problem._factor(at, other)
            linear_target = problem._linear_target(at)
            alpha = torch.cholesky_solve(linear_target, factor).reshape(-1, n, k)
            if members[0] == 0:
                log_evidence = evidence(weight[0], linear_target[0], alpha[0], factor[0])
            proposed = torch.einsum("mnkp,mnk->mnp", at.jacobian, alpha)
            last_cost = cost[members]
            dual[members], new_cost = yield from problem._line_search(
                dual[members], proposed, miss=at.miss, factor=torch.linalg.cholesky(other)
            )
            cost[members] = new_cost
            noise_variance = problem.scales.noise**2
            explained_by_noise = (noise_variance / weight[members])[..., None] * alpha
            misfit = explained_by_noise.square().sum(-1) / noise_variance
            counts = self.data.counts
            lowered = (DEGREES_OF_FREEDOM + counts) / (DEGREES_OF_FREEDOM + misfit)
            weight[members] = lowered.clamp_min(_MIN_WEIGHT)
            if problem.scales.noise == last_noise:
                members = members[(last_cost - new_cost).abs() > _CONVERGED * (1 + new_cost)]
            if len(members) == 0:
                break
        return _Improved(whole, dual, weight, cost, log_evidence)

    def _factor(self, at: _Linearised, other: Tensor) -> Tensor:
        """Cholesky factor (M, N k, N k) of the covariance of all observations.

        Args:
            at: The linearised problem.
            other: Covariance of everything but the smooth fields, as `_other_covariance` gives it.
        """
        return torch.linalg.cholesky(other + outer(at.jacobian, self._smooth, self.std))

    def _with_better_noise(self, at: _Linearised, weight: Tensor) -> FieldProblem:
        """The problem with a noise that the observations make more probable, if there is one.

        Args:
            at: The linearised problem, of one member.
            weight: Weights of the impacts (1, N).
        """
        target = self._linear_target(at)
        n, k = self.target.shape[1:]
        best, highest = self, -math.inf
        for factor in _NOISE_FACTORS:
            noise = self.scales.noise * factor
            if not _NOISE_RANGE[0] < noise < _NOISE_RANGE[1]:
                continue
            trial = replace(self, scales=replace(self.scales, noise=noise))
            chosen = trial._factor(at, trial._other_covariance(at, weight))
            alpha = torch.cholesky_solve(target, chosen).reshape(-1, n, k)
            likelihood = evidence(weight[0], target[0], alpha[0], chosen[0])
            standardised = math.log(noise / _NOISE_MEDIAN) / _NOISE_STD
            if likelihood - 0.5 * standardised**2 > highest:
                best, highest = trial, likelihood - 0.5 * standardised**2
        return best

    def _select(self, members: Tensor) -> FieldProblem:
        """The problem of some of the members, by their indices."""
        return replace(
            self,
            target=self.target[members],
            mean=self.mean[members],
            ratio=self.ratio[members],
        )

    def _solution(self, found: _Improved, at: _Linearised) -> FieldSolution:
        """The solution that was found, with the quantities that need its linearisation."""
        m, n, k = self.target.shape
        miss = at.miss.reshape(m, n * k, 1)
        first_jacobian = at.jacobian[0].reshape(n * k, -1)
        # Of the covariance of all observations under the first member.
        other = self._other_covariance(at, found.weight)
        first_factor = self._factor(at.first, other[:1])[0]
        target = self._linear_target(at)[0]
        explained = (first_jacobian * torch.cholesky_solve(first_jacobian, first_factor)).sum(0)
        variance = self.std.square() - self.std.pow(4) * explained
        residual_dual = torch.cholesky_solve(miss, torch.linalg.cholesky(other)).reshape(m, n, k)
        if self.data.response is not None:
            residual_dual = torch.einsum("mnk,nks->mns", residual_dual, self.data.response)
        return FieldSolution(
            dual=found.dual,
            phi=at.phi,
            residual_dual=residual_dual,
            outcome_shape=at.outcome_shape,
            cost=found.cost,
            evidence=found.evidence,
            noise=self.scales.noise,
            constants_std=variance.clamp_min(1e-12).sqrt(),
            jacobian=at.jacobian[0],
            factor=first_factor,
            leave_one_out=leave_one_out(
                first_factor,
                target,
                self.data,
                size=self.size,
                weight=found.weight[0],
                noise=self.scales.noise,
            ),
            leave_group_out=leave_groups_out(
                first_factor,
                target,
                self.data,
                weight=found.weight[0],
                noise=self.scales.noise,
            ),
        )

    def _linearise(self, dual: Tensor) -> Generator[PhysicsRequest, PhysicsAnswer, _Linearised]:
        """The problem at dual coefficients (M, N, p)."""
        phi = self.mean[:, None] + apply_kernel(self._smooth, self.std, dual)
        value, jacobian = yield PhysicsRequest(self.data.rows, phi, self.std > FREE_STD)
        assert jacobian is not None
        value = value / self.size[:, None]
        jacobian = jacobian / self.size[:, None, None]
        shape = (value + self.data.twist_before / self.size[:, None])[..., self.data.struck]
        return _Linearised(phi, jacobian, self.target - value, shape)

    def _other_covariance(self, at: _Linearised, weight: Tensor) -> Tensor:
        """Covariance (M, N k, N k) of residual and noise: of everything but the fields.

        Args:
            at: The linearised problem.
            weight: Weights (M, N) of the impacts.
        """
        shape = at.outcome_shape
        like_outcome = self.scales.outcome_linear**2 * shape @ shape.transpose(1, 2)
        other = other_covariance(
            scaled(self._residual_kernel + like_outcome, self.ratio),
            self.scales.noise**2 / weight,
            self.residual_response,
        )
        if self.data.unmeasured is not None:
            add_to_blocks(other, _UNMEASURED_VARIANCE * self.data.unmeasured)
        return other

    def _linear_target(self, at: _Linearised) -> Tensor:
        """Target (M, N k, 1) of the linearised model, as a difference from its prior mean."""
        moved = torch.einsum("mnkp,mnp->mnk", at.jacobian, at.phi - self.mean[:, None])
        return (at.miss + moved).reshape(len(self.target), -1, 1)

    def _line_search(
        self, old: Tensor, new: Tensor, *, miss: Tensor, factor: Tensor
    ) -> Generator[PhysicsRequest, PhysicsAnswer, tuple[Tensor, Tensor]]:
        """For each member the longest of a few steps that lowers the cost, or none.

        Args:
            old: Dual coefficients (M, N, p) to begin with.
            new: Those that Gauss-Newton proposes.
            miss: Target minus prediction (M, N, k) at `old`.
            factor: Cholesky factor (M, N k, N k) of `_other_covariance`.

        Returns:
            Dual coefficients (M, N, p) and costs (M,).
        """
        best = old.clone()
        best_cost = self._cost(old, miss, factor)
        pending = torch.arange(len(old))
        # The whole step is nearly always taken; the shorter ones are tried in one call of physics.
        for steps in (_LINE_SEARCH[:1], _LINE_SEARCH[1:]):
            trials = [old[pending] + step * (new - old)[pending] for step in steps]
            moves = [apply_kernel(self._smooth, self.std, trial) for trial in trials]
            phi = torch.cat([self.mean[pending, None] + move for move in moves])
            values, _ = yield PhysicsRequest(self.data.rows, phi)
            taken = torch.zeros(len(pending), dtype=torch.bool)
            for trial, value in zip(trials, values.split(len(pending)), strict=True):
                trial_miss = self.target[pending] - value / self.size[:, None]
                cost = self._cost(trial, trial_miss, factor[pending])
                take = (cost < best_cost[pending]) & ~taken
                best[pending[take]] = trial[take]
                best_cost[pending[take]] = cost[take]
                taken |= take
            pending = pending[~taken]
            if len(pending) == 0:
                break
        return best, best_cost

    def _cost(self, dual: Tensor, miss: Tensor, factor: Tensor) -> Tensor:
        """Misfit plus prior (M,).

        Args:
            dual: Dual coefficients (M, N, p).
            miss: Target minus prediction (M, N, k) there.
            factor: Cholesky factor (M, N k, N k) of `_other_covariance`.
        """
        move = apply_kernel(self._smooth, self.std, dual)
        white = torch.linalg.solve_triangular(factor, miss.reshape(len(dual), -1, 1), upper=False)
        return 0.5 * white.square().sum((1, 2)) + 0.5 * (dual * move).sum((1, 2))


# A descent returns where it ended; a search returns only the coefficients and costs there.
Descent = Generator[PhysicsRequest, PhysicsAnswer, FieldSolution]
Search = Generator[PhysicsRequest, PhysicsAnswer, tuple[Tensor, Tensor]]


def apply_kernel(kernel: Tensor, std: Tensor, dual: Tensor) -> Tensor:
    """Departures (M, n, p) from the prior mean for dual coefficients (M, n', p)."""
    return torch.einsum("nl,mlp->mnp", kernel, dual) * std.square()
