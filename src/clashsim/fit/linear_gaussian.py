"""Covariances, evidence and leave-one-out errors of a linearised model with Gaussian unknowns."""

from __future__ import annotations

import torch
from torch import Tensor

from clashsim.fit.field_kernels import repeat_outputs

DEGREES_OF_FREEDOM = 4.0  # of the Student-t noise


def outlier_cost(weight: Tensor) -> Tensor:
    """Cost of lowered weights (N,) under the Student-t distribution; none is below zero."""
    return 0.5 * DEGREES_OF_FREEDOM * (weight - weight.log() - 1).sum()


def evidence(weight: Tensor, target: Tensor, alpha: Tensor, factor: Tensor) -> float:
    """Logarithm of the marginal likelihood of one member's linearised model."""
    fit = 0.5 * (target[:, 0] @ alpha.reshape(-1))
    return float((-outlier_cost(weight) - fit - factor.diagonal().log().sum()).item())


def scaled(kernel: Tensor, ratio: Tensor) -> Tensor:
    """Kernels (M, N, N) of a residual that each impact multiplies by its ratio (M, N)."""
    return ratio[:, :, None] * kernel * ratio[:, None, :]


def outer(jacobian: Tensor, kernel: Tensor, std: Tensor) -> Tensor:
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


def other_covariance(of_residual: Tensor, noise: Tensor, response: Tensor) -> Tensor:
    """Covariance (M, N k, N k) of residual and noise.

    Args:
        of_residual: Covariance of each output's residual (M, N, N).
        noise: Variances of the noise (M, N).
        response: How outputs follow the residual (N, k, s).
    """
    m, n, _ = of_residual.shape
    k = response.shape[1]
    shared = torch.einsum("nis,ljs->nilj", response, response)
    out = (of_residual[:, :, None, :, None] * shared).reshape(m, n * k, n * k)
    out.diagonal(dim1=1, dim2=2).add_(noise.repeat_interleave(k, 1) + 1e-10)
    return out


def add_to_blocks(covariance: Tensor, blocks: Tensor) -> None:
    """Add blocks (N, k, k) of single impacts to covariances (M, N k, N k), in place."""
    n, k, _ = blocks.shape
    by_impact = covariance.view(-1, n, k, n, k)
    by_impact.diagonal(dim1=1, dim2=3).add_(blocks.permute(1, 2, 0))
