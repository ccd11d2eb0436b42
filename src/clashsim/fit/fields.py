"""Parameters as Gaussian-process fields, identified together with a small residual by Gauss-Newton.

A real contact is not one set of parameters: restitution varies along a floor, friction over a
surface. So every parameter is a constant plus a smooth field over where and how the bodies meet,
and what no parameter explains is a small residual of the outcome:

    y = f(x, phi(x)) + r(x) + noise,   phi_p ~ GP(nominal_p, sd_p^2 (1 + sum_g a^2 k_g) + white),
      r ~ GP(0, k_r)

With fields and residual switched off this is plain identification of constant parameters. Draws of
the posterior come from repeating the fit with the prior mean and the data perturbed by draws of
their own uncertainty (randomise, then optimise).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Of the perturbations of draws: their mean predicts better than that of whole ones, and deviations
# scale back by 1 / TEMPER
TEMPER = 0.3
_NU, _LEAST = (
    4.0,
    0.15,
)  # degrees of freedom of the noise, and the least weight of an impact: not half of them can be outliers

Physics = Callable[
    [Tensor, Tensor], Tensor
]  # rows (N,) of a context, phi (M, N, p) -> dimensionless change of twist (M, N, k)


@dataclass(frozen=True)
class Strength:
    """How much the fit may bend: all in units of the prior's standard deviation, or relative to the
    size of the outcome.
    """

    field: float = 0.3  # amplitude of each group's field
    white: float = 0.12  # of the scatter from hit to hit
    residual: float = 0.04  # of the residual, relative to the outcome
    linear: float = 0.01  # of its linear part
    # Of its part that is linear in the predicted outcome itself: a scale or a direction that is a
    # little off
    mix: float = 0.02
    noise: float = 0.03  # of the measurement, relative to the outcome
    reach: float = 1.5  # length scale of fields, in standard deviations of their group
    span: float = 1.0  # length scale of the residual, over the root of the number of its columns


@dataclass(frozen=True, eq=False)
class Context:
    """What fields and residual depend on: groups of standardised columns (N, g), and all of them
    side by side for the residual.
    """

    groups: tuple[Tensor, ...]
    all: Tensor


@dataclass(frozen=True, eq=False)
class Data:
    """N impacts to fit: change (N, k) and its size (N,), the twist after over the approach speed."""

    physics: Physics
    change: Tensor
    start: Tensor  # (N, k): twist before over the approach speed
    context: Context


@dataclass(frozen=True, eq=False)
class Posterior:
    """M draws of the fit. mean (M, p): prior means used; dual (M, N, p): coefficients of the
    fields; rest (M, N, k): of the residual.
    """

    strength: Strength
    sd: Tensor
    mean: Tensor
    anchor: Tensor  # (M, p): constants alone, whose predictions the residual is relative to
    dual: Tensor
    rest: Tensor
    shape: Tensor  # (M, N, k): fitted outcomes over their size
    cost: Tensor  # (M,) robust misfit plus prior
    evidence: float
    # Of impacts left out in turn: mean squared error over the variance that was expected of it
    surprise: float
    deviation: Tensor  # (p,): standard deviations of the constants
    context: Context
    slope: Tensor | None = (
        # (N, k, p): of the first draw's outcomes over their size, by the parameters; None in runs
        # of before it was kept
        None
    )

    @property
    def theta(self) -> Tensor:
        """The constant part of each draw, (M, p)."""
        return self.mean + self.sd.square() * self.dual.sum(1)


def constants(data: Data, sd: Tensor) -> Tensor:
    """The most probable constant parameters (p,), robustly, from the nominal values (more starts
    fitted ten impacts better and others worse).
    """
    n, p = len(data.change), len(sd)
    rigid = Strength(field=0.0, white=0.0, residual=0.0, linear=0.0, mix=0.0, noise=0.1)
    size, target = _relative(data)
    zero = torch.zeros(1, p, dtype=torch.float64)
    return _descend(
        data,
        target[None],
        size,
        zero,
        sd,
        rigid,
        torch.zeros(1, n, p, dtype=torch.float64),
        torch.ones(1, n, dtype=torch.float64),
        rounds=8,
    ).phi[0, 0]


def _relative(data: Data) -> tuple[Tensor, Tensor]:
    """Size (N,) of the observed outcomes, and the change of twist (N, k) relative to it."""
    size = (data.change + data.start).norm(dim=-1).clamp_min(0.02)
    return size, data.change / size[:, None]


def fit(
    data: Data,
    sd: Tensor,
    *,
    strength: Strength,
    posterior_samples: int,
    anchor: Tensor,
    generator: torch.Generator,
) -> Posterior:
    """Fit constants, fields and residual of `posterior_samples` members at once, all from the constants
    `anchor` (p,).
    """
    n, k = data.change.shape
    p = len(sd)
    size, target = _relative(data)
    mean = TEMPER * torch.randn(posterior_samples, p, generator=generator, dtype=torch.float64) * sd
    blur = (
        TEMPER
        * torch.randn(posterior_samples, n, k, generator=generator, dtype=torch.float64)
        * strength.noise
    )
    mean[0], blur[0] = 0.0, 0.0  # the first member is the plain maximum of the posterior
    # The residual is relative to what the constants alone predict: the final prediction may be far
    # off without its residual, and would then scale it wrongly.
    ratio = (_sizes(data, anchor[None]) / size).clamp(0.5, 2.0).expand(posterior_samples, n)
    eye = torch.eye(n, dtype=torch.float64)
    smooth, _ = field_kernels(data.context, data.context, strength)
    dual = torch.linalg.solve(
        smooth + 1e-5 * eye,
        ((anchor - mean) / sd.square())[:, None].expand(posterior_samples, n, p),
    )
    last = _descend(data, target + blur, size, mean, sd, strength, dual, ratio, rounds=6)
    rest = last.left * ratio[..., None]
    return Posterior(
        strength,
        sd,
        mean,
        anchor.expand(posterior_samples, p).clone(),
        last.dual,
        rest,
        last.shape,
        last.cost,
        last.evidence,
        last.surprise,
        last.deviation,
        data.context,
        last.slope,
    )


@dataclass(frozen=True, eq=False)
class _Descent:
    """Where Gauss-Newton has arrived: dual and phi (M, N, p), what the residual has to explain
    (left) and the outcome's shape (M, N, k).
    """

    dual: Tensor
    phi: Tensor
    left: Tensor
    shape: Tensor
    cost: Tensor
    evidence: float  # of the first member
    surprise: float  # likewise
    deviation: Tensor  # (p,): of the constants, Laplace's at the first member
    slope: Tensor  # (N, k, p): likewise


def _descend(
    data: Data,
    target: Tensor,
    size: Tensor,
    mean: Tensor,
    sd: Tensor,
    how: Strength,
    dual: Tensor,
    ratio: Tensor,
    *,
    rounds: int,
) -> _Descent:
    """Gauss-Newton with a line search; each round re-weighs the noise of impacts that stay
    unexplained.
    """
    m, n, k = target.shape
    smooth, scatter = field_kernels(data.context, data.context, how)
    plain_rest = residual_kernel(data.context, data.context, how)
    weight = torch.ones(m, n, dtype=torch.float64)
    evidence, cost = -float("inf"), torch.full((m,), torch.inf, dtype=torch.float64)
    for i in range(rounds + 1):
        phi = mean[:, None] + _apply(smooth, sd, dual)
        value, slope = _linearise(data.physics, phi)
        value, slope = value / size[:, None], slope / size[:, None, None]
        miss = target - value
        shape = value + data.start / size[:, None]
        rest = _gram(
            slope,
            scatter,
            sd,
            _scaled(plain_rest + how.mix**2 * shape @ shape.transpose(1, 2), ratio),
            how.noise**2 / weight,
        )
        rest_factor = torch.linalg.cholesky(rest)
        if i == rounds:
            left = torch.cholesky_solve(miss.reshape(m, n * k, 1), rest_factor).reshape(m, n, k)
            seen = slope[0].reshape(
                n * k, -1
            )  # what a change of each constant does to all outcomes
            whole = torch.linalg.cholesky(rest[0] + _outer(slope[:1], smooth, sd)[0])
            deviation = (
                (sd.square() - sd.pow(4) * (seen * torch.cholesky_solve(seen, whole)).sum(0))
                .clamp_min(1e-12)
                .sqrt()
            )
            z = (miss[0] + torch.einsum("nkp,np->nk", slope[0], phi[0] - mean[0])).reshape(n * k, 1)
            return _Descent(
                dual, phi, left, shape, cost, evidence, _surprise(whole, z, k), deviation, slope[0]
            )
        factor = torch.linalg.cholesky(rest + _outer(slope, smooth, sd))
        z = (miss + torch.einsum("mnkp,mnp->mnk", slope, phi - mean[:, None])).reshape(m, n * k, 1)
        alpha = torch.cholesky_solve(z, factor).reshape(m, n, k)
        doubt = (
            0.5 * _NU * (weight[0].log() - weight[0] + 1).sum()
        )  # what the t distribution charges for calling impacts outliers
        evidence = float(
            (
                doubt - 0.5 * (z[0, :, 0] @ alpha[0].reshape(-1)) - factor[0].diagonal().log().sum()
            ).item()
        )
        dual, cost = _search(
            data.physics,
            target,
            size,
            mean,
            sd,
            smooth,
            rest_factor,
            dual,
            torch.einsum("mnkp,mnk->mnp", slope, alpha),
        )
        # Student-t weights on the noise: a missed frame or a double hit must not steer the fit.
        noise = (how.noise**2 / weight)[..., None] * alpha
        weight = ((_NU + k) / (_NU + noise.square().sum(-1) / how.noise**2)).clamp_min(_LEAST)
    raise AssertionError("unreachable: the loop returns in its last pass")


def _surprise(factor: Tensor, z: Tensor, k: int) -> float:
    """Mean squared standardised error of leaving each impact out: exact for the linearised model,
    of covariance L L^T and data z.
    """
    inverse = torch.cholesky_inverse(factor)
    n = len(z) // k
    alpha = torch.cholesky_solve(z, factor).reshape(n, k, 1)
    blocks = (
        inverse.reshape(n, k, n, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    )  # (n, k, k): inverse covariances given all others
    return float((alpha * torch.linalg.solve(blocks, alpha)).mean())


def predict(posterior: Posterior, data: Data) -> tuple[Tensor, Tensor]:
    """Dimensionless change of twist of each draw (M, N, k) at new impacts, and their parameters (M,
    N, p).
    """
    smooth, _ = field_kernels(data.context, posterior.context, posterior.strength)
    phi = posterior.mean[:, None] + _apply(smooth, posterior.sd, posterior.dual)
    value = data.physics(torch.arange(len(data.start)), phi.float()).double()
    kernel = residual_kernel(data.context, posterior.context, posterior.strength)
    after = value + data.start
    shape = after / after.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    kernel = kernel + posterior.strength.mix**2 * shape @ posterior.shape.transpose(1, 2)
    return value + _sizes(data, posterior.anchor)[..., None] * torch.einsum(
        "mnl,mlk->mnk", kernel, posterior.rest
    ), phi


def slopes(data: Data, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes (N, k, p) of outcomes over their size (N,) by the parameters, at phi (N, p), and these
    sizes.
    """
    value, slope = _linearise(data.physics, phi[None])
    size = (value[0] + data.start).norm(dim=-1).clamp_min(0.02)
    return slope[0] / size[:, None, None], size


def covariance(
    a: tuple[Tensor, Context], b: tuple[Tensor, Context], sd: Tensor, how: Strength
) -> Tensor:
    """What is expected before any impact is fitted of outcomes over their size, (n k, n' k), for
    slopes (n, k, p) and contexts of each side.

    Linearised: parameters as fields through their slopes, plus the residual; scatter from hit to
    hit and noise are left to the caller.
    """
    k = a[0].shape[1]
    smooth, _ = field_kernels(a[1], b[1], how)
    gram = (a[0] * sd).flatten(0, 1) @ (b[0] * sd).flatten(0, 1).T
    rest = torch.einsum(
        "nl,ij->nilj", residual_kernel(a[1], b[1], how), torch.eye(k, dtype=gram.dtype)
    )
    return gram * smooth.repeat_interleave(k, 0).repeat_interleave(k, 1) + rest.reshape(gram.shape)


def _sizes(data: Data, constants: Tensor) -> Tensor:
    """Size (M, N) of the outcome that constants (M, p) predict, over the approach speed."""
    with torch.no_grad():
        value = data.physics(
            torch.arange(len(data.start)),
            constants[:, None].expand(-1, len(data.start), -1).float(),
        ).double()
    return (value + data.start).norm(dim=-1).clamp_min(0.02)


def _scaled(kernel: Tensor, ratio: Tensor) -> Tensor:
    return ratio[:, :, None] * kernel * ratio[:, None, :]


def field_kernels(a: Context, b: Context, strength: Strength) -> tuple[Tensor, Tensor]:
    """Covariance of a field over the prior's variance (n, n'), and of its scatter from hit to hit
    (the diagonal, if a is b).
    """
    kernel = torch.ones(len(a.all), len(b.all), dtype=torch.float64)
    if strength.field > 0:
        for x, y in zip(a.groups, b.groups, strict=True):
            if x.shape[1]:
                kernel = kernel + strength.field**2 * _rbf(x, y, strength.reach)
    white = (
        torch.eye(len(a.all), dtype=torch.float64) * strength.white**2
        if a is b
        else torch.zeros(1, dtype=torch.float64)
    )
    return kernel, white


def residual_kernel(a: Context, b: Context, strength: Strength) -> Tensor:
    """Covariance of the residual of each output, relative to the outcome's size, (n, n')."""
    d = max(1, a.all.shape[1])
    kernel = strength.residual**2 * _rbf(a.all, b.all, strength.span * np.sqrt(d))
    return kernel + strength.linear**2 * (1 + a.all @ b.all.T / d)


def _rbf(x: Tensor, y: Tensor, reach: float) -> Tensor:
    return torch.exp(-0.5 * (torch.cdist(x, y) / reach).square())


def _apply(kernel: Tensor, sd: Tensor, dual: Tensor) -> Tensor:
    return torch.einsum("nl,mlp->mnp", kernel, dual) * sd.square()


def _outer(slope: Tensor, kernel: Tensor, sd: Tensor) -> Tensor:
    """sum_p J_p K_p J_p^T as (M, N k, N k), where all parameters share one kernel up to their
    variance.
    """
    m, n, k, _ = slope.shape
    flat = (slope * sd).reshape(m, n * k, -1)
    gram = flat @ flat.transpose(1, 2)
    return gram * kernel.repeat_interleave(k, 0).repeat_interleave(k, 1)


def _gram(slope: Tensor, scatter: Tensor, sd: Tensor, rest: Tensor, noise: Tensor) -> Tensor:
    """Covariance (M, N k, N k) of all but the smooth fields: scatter of parameters, residual (M, N,
    N) of each output, noise.
    """
    m, n, k, _ = slope.shape
    out = torch.einsum("mnl,ij->mnilj", rest, torch.eye(k, dtype=torch.float64)).reshape(
        m, n * k, n * k
    )
    if scatter.any():
        out = out + _outer(slope, scatter, sd)
    out.diagonal(dim1=1, dim2=2).add_(noise.repeat_interleave(k, 1) + 1e-10)
    return out


def _linearise(physics: Physics, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Value (M, N, k) and slope (M, N, k, p); rows do not see each other, so one backward pass an
    output does.
    """
    leaf = phi.float().requires_grad_(True)
    value = physics(torch.arange(phi.shape[1]), leaf)
    k = value.shape[-1]
    slopes = [
        torch.autograd.grad(value[..., i].sum(), leaf, retain_graph=i + 1 < k)[0] for i in range(k)
    ]
    return value.detach().double(), torch.stack(slopes, 2).double()


def _search(
    physics: Physics,
    target: Tensor,
    size: Tensor,
    mean: Tensor,
    sd: Tensor,
    kernel: Tensor,
    factor: Tensor,
    old: Tensor,
    new: Tensor,
) -> tuple[Tensor, Tensor]:
    """For each member the longest of a few steps from `old` to `new` that lowers misfit plus prior,
    or none.
    """
    m, _n = old.shape[:2]
    best, best_cost = old.clone(), _cost(physics, target, size, mean, sd, kernel, factor, old)
    done = torch.zeros(m, dtype=torch.bool)
    for step in (1.0, 0.5, 0.25, 0.1, 0.03):
        trial = old + step * (new - old)
        cost = _cost(physics, target, size, mean, sd, kernel, factor, trial)
        take = (cost < best_cost) & ~done
        best[take], best_cost[take] = trial[take], cost[take]
        done |= take
        if done.all():
            break
    return best, best_cost


def _cost(
    physics: Physics,
    target: Tensor,
    size: Tensor,
    mean: Tensor,
    sd: Tensor,
    kernel: Tensor,
    factor: Tensor,
    dual: Tensor,
) -> Tensor:
    move = _apply(kernel, sd, dual)
    with torch.no_grad():
        value = physics(torch.arange(len(size)), (mean[:, None] + move).float()).double()
    miss = (target - value / size[:, None]).reshape(len(dual), -1, 1)
    white = torch.linalg.solve_triangular(factor, miss, upper=False)
    return 0.5 * white.square().sum((1, 2)) + 0.5 * (dual * move).sum((1, 2))
