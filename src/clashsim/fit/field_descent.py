"""Gauss-Newton with a line search for parameter fields and residual.

The unknowns are the dual coefficients of the fields: phi = mean + std^2 K dual, with phi the
parameters of each impact and K the kernel of the smooth fields. All members of an ensemble
(posterior samples) are solved at once. There is a line search instead of damping, since the prior
regularises every direction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from clashsim.fit.field_kernels import (
    Context,
    PriorScales,
    field_kernels,
    repeat_outputs,
    residual_kernel,
)
from clashsim.fit.priors import FIXED_STD

_DEGREES_OF_FREEDOM = 4.0  # of the Student-t noise
_MIN_WEIGHT = 0.01  # of an impact, so that the fit cannot dismiss most of them as outliers
# A descent ends when no member's cost changes by more than this, relative to 1 + cost. The cost is
# half a sum of squared standardised errors: differences of a few per cent change no prediction.
_CONVERGED = 0.02
_LINE_SEARCH = (1.0, 0.4, 0.15, 0.05)  # shares of a Gauss-Newton step, the longest first

FREE_STD = 2 * FIXED_STD  # parameters with a smaller prior standard deviation stay at its mean
# Variance of what was not measured, over the squared size of the outcome: it says nothing then.
_UNMEASURED_VARIANCE = 1e4
_MAX_ROWS = 8192  # that the physics is evaluated for at once, to bound the memory it takes


class Physics(Protocol):
    """A collision model of some impacts, as a function of their parameters."""

    def __call__(self, rows: Tensor, phi: Tensor, free: Tensor | None = None) -> Tensor:
        """Change of twist over the approach speed (R, k), differentiable in `phi`.

        Args:
            rows: Indices (R,) of impacts.
            phi: Their parameters (R, p).
            free: (R, p), by which parameters derivatives are needed; None for all of them.
        """
        ...


class PhysicsRequest(NamedTuple):
    """Where a descent needs the physics.

    Attributes:
        rows: Indices of the impacts (N,).
        phi: Their parameters (M, N, p).
        free: (p,), by which parameters derivatives are needed; None needs no derivatives.
    """

    rows: Tensor
    phi: Tensor
    free: Tensor | None = None


class PhysicsAnswer(NamedTuple):
    """Change of twist (M, N, k), and its Jacobian (M, N, k, p) if it was asked for."""

    value: Tensor
    jacobian: Tensor | None


@dataclass(frozen=True, eq=False)
class FieldData:
    """N impacts to fit.

    Attributes:
        physics: The base model as a function of parameters; it may know more impacts than these N.
        rows: Indices (N,) of these impacts among those of `physics`.
        change: Observed change of twist over the approach speed (N, k).
        twist_before: Twist before over the approach speed, (N, k).
        context: The circumstances of the impacts.
        unmeasured: Projections (N, k, k) onto the directions in which `change` was not measured;
            None where all of it was.
        response: (N, k, s), by how much the observed changes follow those of the struck body, the
            first s of them; None where k = s, and only that body was observed. What no parameter
            explains is a residual of the struck body's change, which the others follow.
    """

    physics: Physics
    rows: Tensor
    change: Tensor
    twist_before: Tensor
    context: Context
    unmeasured: Tensor | None = None
    response: Tensor | None = None

    @property
    def struck(self) -> slice:
        """The struck body's entries among those of `change`."""
        return slice(self.change.shape[1] if self.response is None else self.response.shape[2])

    @property
    def counts(self) -> Tensor:
        """How many entries of each impact's change were measured, (N,)."""
        n, k = self.change.shape
        counts = torch.full((n,), float(k), dtype=torch.float64)
        if self.unmeasured is None:
            return counts
        return counts - self.unmeasured.diagonal(dim1=1, dim2=2).sum(1)

    def evaluate(self, phi: Tensor) -> Tensor:
        """Change of twist over the approach speed (M, N, k) at parameters (M, N, p)."""
        request = PhysicsRequest(self.rows, phi)
        return _answers(self.physics, [request])[0].value


@dataclass(frozen=True, eq=False)
class FieldSolution:
    """Where Gauss-Newton ended, for M members.

    Attributes:
        dual: Coefficients of the fields (M, N, p).
        phi: Parameters of each impact (M, N, p).
        residual_dual: Dual coefficients (M, N, k) of the residual.
        outcome_shape: Fitted outcomes over their size (M, N, k).
        cost: Robust misfit plus prior (M,).
        evidence: Logarithm of the marginal likelihood, of the first member.
        loo_error: Mean squared standardised leave-one-out error, of the first member.
        loo_median: Median leave-one-out error over the size of the outcome, of the first member.
        constants_std: Laplace standard deviations (p,) of the constants, of the first member.
        jacobian: Derivative (N, k, p) of the first member's outcomes over their size with respect
            to the parameters.
    """

    dual: Tensor
    phi: Tensor
    residual_dual: Tensor
    outcome_shape: Tensor
    cost: Tensor
    evidence: float
    loo_error: float
    loo_median: float
    constants_std: Tensor
    jacobian: Tensor


@dataclass(frozen=True, eq=False)
class _Linearised:
    """The problem linearised at some parameters.

    Attributes:
        phi: Parameters of each impact (M, N, p).
        jacobian: Derivative of the prediction over the outcome's size by the parameters
            (M, N, k, p).
        miss: Target minus prediction (M, N, k).
        outcome_shape: Outcomes over their size (M, N, k).
        other: Covariance (M, N k, N k) of scatter, residual and noise, that is of everything but
            the smooth fields.
        other_factor: Cholesky factor of `other`.
    """

    phi: Tensor
    jacobian: Tensor
    miss: Tensor
    outcome_shape: Tensor
    other: Tensor
    other_factor: Tensor


class _Improved(NamedTuple):
    """Where Gauss-Newton has come to: dual coefficients (M, N, p), weights (M, N), costs (M,).

    The evidence is that of the first member.
    """

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
    """

    data: FieldData
    target: Tensor
    size: Tensor
    mean: Tensor
    std: Tensor
    scales: PriorScales
    ratio: Tensor

    @cached_property
    def _kernels(self) -> tuple[Tensor, Tensor]:
        """Kernels (N, N) of the smooth fields, and of the scatter."""
        return field_kernels(self.data.context, self.data.context, self.scales)

    @cached_property
    def _residual_kernel(self) -> Tensor:
        """Kernel (N, N) of the residual."""
        return residual_kernel(self.data.context, self.data.context, self.scales)

    @property
    def _residual_response(self) -> Tensor:
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
        at = yield from self._linearise(found.dual, found.weight)
        return self._solution(found.dual, at, found.cost, found.evidence)

    def search(self, dual: Tensor, *, rounds: int) -> Search:
        """`descend`, where only the coefficients and costs at the end matter."""
        found = yield from self._improve(dual, rounds)
        return found.dual, found.cost

    def _improve(
        self, dual: Tensor, rounds: int
    ) -> Generator[PhysicsRequest, PhysicsAnswer, _Improved]:
        """Gauss-Newton from dual coefficients (M, N, p), for members that have not converged."""
        m, n, k = self.target.shape
        smooth, _ = self._kernels
        dual = dual.clone()
        weight = torch.ones(m, n, dtype=torch.float64)
        evidence = -float("inf")
        cost = torch.full((m,), torch.inf, dtype=torch.float64)
        members = torch.arange(m)
        for _ in range(rounds):
            problem = self if len(members) == m else self._select(members)
            at = yield from problem._linearise(dual[members], weight[members])
            factor = torch.linalg.cholesky(at.other + _outer(at.jacobian, smooth, self.std))
            linear_target = problem._linear_target(at)
            alpha = torch.cholesky_solve(linear_target, factor).reshape(-1, n, k)
            if members[0] == 0:
                evidence = _evidence(weight[0], linear_target[0], alpha[0], factor[0])
            proposed = torch.einsum("mnkp,mnk->mnp", at.jacobian, alpha)
            last_cost = cost[members]
            dual[members], new_cost = yield from problem._line_search(dual[members], proposed, at)
            cost[members] = new_cost
            explained_by_noise = (self.scales.noise**2 / weight[members])[..., None] * alpha
            misfit = explained_by_noise.square().sum(-1) / self.scales.noise**2
            counts = self.data.counts
            lowered = (_DEGREES_OF_FREEDOM + counts) / (_DEGREES_OF_FREEDOM + misfit)
            weight[members] = lowered.clamp_min(_MIN_WEIGHT)
            members = members[(last_cost - new_cost).abs() > _CONVERGED * (1 + new_cost)]
            if len(members) == 0:
                break
        return _Improved(dual, weight, cost, evidence)

    def _select(self, members: Tensor) -> FieldProblem:
        """The problem of some of the members, by their indices."""
        return replace(
            self,
            target=self.target[members],
            mean=self.mean[members],
            ratio=self.ratio[members],
        )

    def _solution(
        self, dual: Tensor, at: _Linearised, cost: Tensor, evidence: float
    ) -> FieldSolution:
        """The solution at dual coefficients, with the quantities that need its linearisation."""
        m, n, k = self.target.shape
        smooth, _ = self._kernels
        miss = at.miss.reshape(m, n * k, 1)
        first_jacobian = at.jacobian[0].reshape(n * k, -1)
        # Covariance of all observations under the first member.
        whole = at.other[0] + _outer(at.jacobian[:1], smooth, self.std)[0]
        whole_factor = torch.linalg.cholesky(whole)
        explained = (first_jacobian * torch.cholesky_solve(first_jacobian, whole_factor)).sum(0)
        variance = self.std.square() - self.std.pow(4) * explained
        linear_target = self._linear_target(at)[0]
        loo_error, loo_median = _leave_one_out(whole_factor, linear_target, self.data)
        residual_dual = torch.cholesky_solve(miss, at.other_factor).reshape(m, n, k)
        if self.data.response is not None:
            residual_dual = torch.einsum("mnk,nks->mns", residual_dual, self.data.response)
        return FieldSolution(
            dual=dual,
            phi=at.phi,
            residual_dual=residual_dual,
            outcome_shape=at.outcome_shape,
            cost=cost,
            evidence=evidence,
            loo_error=loo_error,
            loo_median=loo_median,
            constants_std=variance.clamp_min(1e-12).sqrt(),
            jacobian=at.jacobian[0, :, self.data.struck],
        )

    def _linearise(
        self, dual: Tensor, weight: Tensor
    ) -> Generator[PhysicsRequest, PhysicsAnswer, _Linearised]:
        """The problem at dual coefficients (M, N, p), with weights (M, N) of the impacts."""
        smooth, scatter = self._kernels
        phi = self.mean[:, None] + apply_kernel(smooth, self.std, dual)
        value, jacobian = yield PhysicsRequest(self.data.rows, phi, self.std > FREE_STD)
        assert jacobian is not None
        value = value / self.size[:, None]
        jacobian = jacobian / self.size[:, None, None]
        shape = (value + self.data.twist_before / self.size[:, None])[..., self.data.struck]
        like_outcome = self.scales.outcome_linear**2 * shape @ shape.transpose(1, 2)
        of_residual = _scaled(self._residual_kernel + like_outcome, self.ratio)
        other = _other_covariance(
            _outer(jacobian, scatter, self.std) if scatter.any() else None,
            of_residual,
            self.scales.noise**2 / weight,
            self._residual_response,
        )
        if self.data.unmeasured is not None:
            _add_to_blocks(other, _UNMEASURED_VARIANCE * self.data.unmeasured)
        return _Linearised(
            phi=phi,
            jacobian=jacobian,
            miss=self.target - value,
            outcome_shape=shape,
            other=other,
            other_factor=torch.linalg.cholesky(other),
        )

    def _linear_target(self, at: _Linearised) -> Tensor:
        """Target (M, N k, 1) of the linearised model, as a difference from its prior mean."""
        moved = torch.einsum("mnkp,mnp->mnk", at.jacobian, at.phi - self.mean[:, None])
        return (at.miss + moved).reshape(len(self.target), -1, 1)

    def _line_search(
        self, old: Tensor, new: Tensor, at: _Linearised
    ) -> Generator[PhysicsRequest, PhysicsAnswer, tuple[Tensor, Tensor]]:
        """For each member the longest of a few steps that lowers the cost, or none.

        Args:
            old: Dual coefficients (M, N, p) to begin with.
            new: Those that Gauss-Newton proposes.
            at: The problem linearised at `old`.

        Returns:
            Dual coefficients (M, N, p) and costs (M,).
        """
        best = old.clone()
        best_cost = self._cost(old, at.miss, at.other_factor)
        pending = torch.arange(len(old))
        # The whole step is nearly always taken; the shorter ones are tried in one call of physics.
        for steps in (_LINE_SEARCH[:1], _LINE_SEARCH[1:]):
            trials = [old[pending] + step * (new - old)[pending] for step in steps]
            moves = [apply_kernel(self._kernels[0], self.std, trial) for trial in trials]
            phi = torch.cat([self.mean[pending, None] + move for move in moves])
            values, _ = yield PhysicsRequest(self.data.rows, phi)
            taken = torch.zeros(len(pending), dtype=torch.bool)
            for trial, value in zip(trials, values.split(len(pending)), strict=True):
                miss = self.target[pending] - value / self.size[:, None]
                cost = self._cost(trial, miss, at.other_factor[pending])
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
            factor: Cholesky factor (M, N k, N k) of the covariance `_Linearised.other`.
        """
        smooth, _ = self._kernels
        move = apply_kernel(smooth, self.std, dual)
        white = torch.linalg.solve_triangular(factor, miss.reshape(len(dual), -1, 1), upper=False)
        return 0.5 * white.square().sum((1, 2)) + 0.5 * (dual * move).sum((1, 2))


# A descent asks for the physics and is sent the answer, until it returns where it ended; a search
# returns only the coefficients and costs there.
Descent = Generator[PhysicsRequest, PhysicsAnswer, FieldSolution]
Search = Generator[PhysicsRequest, PhysicsAnswer, tuple[Tensor, Tensor]]
_AnyDescent = Generator[PhysicsRequest, PhysicsAnswer, Any]

# A fit asks for descents and is sent where they ended, until it returns its result.
Result = TypeVar("Result")
Fit = Generator[Sequence[_AnyDescent], list[Any], Result]


def run_fits(physics: Physics, fits: Sequence[Fit[Result]]) -> list[Result]:
    """Run several fits in lockstep: their descents are run together.

    Args:
        physics: Of the impacts of all fits.
        fits: The fits.

    Returns:
        The result of each.
    """
    results: dict[int, Result] = {}
    wanted = {i: next(fit) for i, fit in enumerate(fits)}
    while wanted:
        descents = [descent for asked in wanted.values() for descent in asked]
        solutions = iter(_run_together(physics, descents))
        for i, asked in list(wanted.items()):
            try:
                wanted[i] = fits[i].send(list(islice(solutions, len(asked))))
            except StopIteration as end:
                results[i] = end.value
                del wanted[i]
    return [results[i] for i in range(len(fits))]


def _run_together(physics: Physics, descents: Sequence[_AnyDescent]) -> list[Any]:
    """Run several descents in lockstep.

    A call of the physics takes hardly longer for many members than for one, so the requests of all
    descents are answered by one call.

    Args:
        physics: Of the impacts.
        descents: As `FieldProblem.descend` makes them.

    Returns:
        Where each ended.
    """
    solutions: dict[int, Any] = {}
    requests = {i: next(descent) for i, descent in enumerate(descents)}
    while requests:
        for with_jacobian in (True, False):
            asking = [
                i for i, asked in requests.items() if (asked.free is not None) == with_jacobian
            ]
            answers = _answers(physics, [requests.pop(i) for i in asking])
            for i, answer in zip(asking, answers, strict=True):
                try:
                    requests[i] = descents[i].send(answer)
                except StopIteration as end:
                    solutions[i] = end.value
    return [solutions[i] for i in range(len(descents))]


def _answers(physics: Physics, requests: Sequence[PhysicsRequest]) -> list[PhysicsAnswer]:
    """Evaluate the physics for several requests, all with their Jacobian or all without."""
    if not requests:
        return []
    shapes = [request.phi.shape[:2] for request in requests]
    rows = torch.cat([request.rows.repeat(len(request.phi)) for request in requests])
    phi = torch.cat([request.phi.flatten(0, 1) for request in requests])
    free = [
        request.free.expand(len(request.phi) * len(request.rows), -1)
        for request in requests
        if request.free is not None
    ]
    parts = []
    for start in range(0, len(rows), _MAX_ROWS):
        part = slice(start, start + _MAX_ROWS)
        if free:
            parts.append(_value_and_jacobian(physics, rows[part], phi[part], torch.cat(free)[part]))
        else:
            with torch.no_grad():
                parts.append((physics(rows[part], phi[part]), phi[part, :0]))
    counts = [m * n for m, n in shapes]
    values = torch.cat([value for value, _ in parts]).split(counts)
    jacobians = torch.cat([jacobian for _, jacobian in parts]).split(counts)
    answers = []
    for shape, value, jacobian in zip(shapes, values, jacobians, strict=True):
        derivative = jacobian.reshape(*shape, *jacobian.shape[1:]) if free else None
        answers.append(PhysicsAnswer(value.reshape(*shape, -1), derivative))
    return answers


def apply_kernel(kernel: Tensor, std: Tensor, dual: Tensor) -> Tensor:
    """Departures (M, n, p) from the prior mean for dual coefficients (M, n', p)."""
    return torch.einsum("nl,mlp->mnp", kernel, dual) * std.square()


def value_and_jacobian(data: FieldData, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Change of twist (M, N, k) and its Jacobian (M, N, k, p) at parameters (M, N, p)."""
    free = torch.ones(phi.shape[-1], dtype=torch.bool)
    (answer,) = _answers(data.physics, [PhysicsRequest(data.rows, phi, free)])
    assert answer.jacobian is not None
    return answer.value, answer.jacobian


def _value_and_jacobian(
    physics: Physics, rows: Tensor, phi: Tensor, free: Tensor
) -> tuple[Tensor, Tensor]:
    """Change of twist (R, k) and its Jacobian (R, k, p) at parameters (R, p) of impacts (R,).

    Rows do not depend on each other, so one backward pass per output is enough.
    """
    leaf = phi.detach().clone().requires_grad_(True)
    value = physics(rows, leaf, free)
    k = value.shape[-1]
    gradients = []
    for i in range(k):
        gradient = torch.autograd.grad(value[:, i].sum(), leaf, retain_graph=i + 1 < k)[0]
        gradients.append(gradient)
    return value.detach(), torch.stack(gradients, 1)


def _evidence(weight: Tensor, target: Tensor, alpha: Tensor, factor: Tensor) -> float:
    """Logarithm of the marginal likelihood of one member's linearised model."""
    # Cost of the lowered weights under the Student-t distribution.
    outliers = 0.5 * _DEGREES_OF_FREEDOM * (weight.log() - weight + 1).sum()
    fit = 0.5 * (target[:, 0] @ alpha.reshape(-1))
    return float((outliers - fit - factor.diagonal().log().sum()).item())


def _leave_one_out(factor: Tensor, target: Tensor, data: FieldData) -> tuple[float, float]:
    """Mean squared standardised error of leaving each impact out in turn, and its median size.

    They are exact for the linearised model. The size is that of the struck body's error.

    Args:
        factor: Cholesky factor (n k, n k) of the observations' covariance.
        target: Observations (n k, 1) as differences from the prior mean.
        data: The impacts.
    """
    inverse = torch.cholesky_inverse(factor)
    n, k = data.change.shape
    alpha = torch.cholesky_solve(target, factor).reshape(n, k, 1)
    # (n, k, k): inverse covariances of each impact given all others.
    blocks = inverse.reshape(n, k, n, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    error = torch.linalg.solve(blocks, alpha)
    if data.unmeasured is not None:
        error = error - data.unmeasured @ error
    standardised = (alpha * error).sum() / data.counts.sum()
    return float(standardised), float(error[:, data.struck].norm(dim=(1, 2)).median())


def _scaled(kernel: Tensor, ratio: Tensor) -> Tensor:
    """Kernels (M, N, N) of a residual that each impact multiplies by its ratio (M, N)."""
    return ratio[:, :, None] * kernel * ratio[:, None, :]


def _outer(jacobian: Tensor, kernel: Tensor, std: Tensor) -> Tensor:
    """Covariance (M, N k, N k) of outcomes due to the parameters: sum_p std_p^2 J_p K J_p^T.

    Args:
        jacobian: J (M, N, k, p).
        kernel: K (N, N), the same for all parameters.
        std: Prior standard deviations (p,).
    """
    m, n, k, _ = jacobian.shape
    flat = (jacobian * std).reshape(m, n * k, -1)
    gram = flat @ flat.transpose(1, 2)
    return gram * repeat_outputs(kernel, k)


def _other_covariance(
    scatter: Tensor | None, of_residual: Tensor, noise: Tensor, response: Tensor
) -> Tensor:
    """Covariance (M, N k, N k) of scatter, residual and noise.

    Args:
        scatter: Covariance due to the scatter of parameters (M, N k, N k), if there is any.
        of_residual: Covariance of each output's residual (M, N, N).
        noise: Variances of the noise (M, N).
        response: How outputs follow the residual (N, k, s).
    """
    m, n, _ = of_residual.shape
    k = response.shape[1]
    shared = torch.einsum("nis,ljs->nilj", response, response)
    out = (of_residual[:, :, None, :, None] * shared).reshape(m, n * k, n * k)
    if scatter is not None:
        out = out + scatter
    out.diagonal(dim1=1, dim2=2).add_(noise.repeat_interleave(k, 1) + 1e-10)
    return out


def _add_to_blocks(covariance: Tensor, blocks: Tensor) -> None:
    """Add blocks (N, k, k) of single impacts to covariances (M, N k, N k), in place."""
    n, k, _ = blocks.shape
    by_impact = covariance.view(-1, n, k, n, k)
    by_impact.diagonal(dim1=1, dim2=3).add_(blocks.permute(1, 2, 0))
