"""How well each fitted impact is predicted from the others, exactly for the linearised model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Errors of predicting each of N fitted impacts from the others.

    Attributes:
        miss: Observed minus predicted change of twist over the approach speed, in the contact frame
            (N, k); zero where nothing was measured.
        deviation: Standardised leave-one-out error (N,): the root of the mean square over what was
            measured, in standard deviations of the prediction with the noise of an impact whose
            weight was not lowered.
        weight: Weight (N,) of each impact in the fit, 1 where it was not lowered (Student-t noise).
    """

    miss: Tensor
    deviation: Tensor
    weight: Tensor


@dataclass(frozen=True, eq=False)
class LeaveOneOutErrors:
    """Those of each impact, and of all together.

    Attributes:
        of_each: By impact.
        mean: Mean squared standardised error, with weights as they were lowered.
        median: Median size of the error over the size of the outcome.
    """

    of_each: LeaveOneOut
    mean: float
    median: float


def leave_one_out(
    factor: Tensor,
    target: Tensor,
    *,
    size: Tensor,
    weight: Tensor,
    noise: float,
    unmeasured: Tensor | None,
) -> LeaveOneOutErrors:
    """Leave each impact out in turn.

    Args:
        factor: Cholesky factor (N k, N k) of the observations' covariance.
        target: Observations (N k, 1) over the size of the outcome, as differences from the prior
            mean.
        size: Size (N,) of the outcomes over the approach speed.
        weight: Weights (N,) of the impacts, by which the covariance has the noise's variance
            divided.
        noise: Standard deviation of the noise over the size of the outcome.
        unmeasured: Projections (N, k, k) onto the directions that were not measured; None where
            all of it was.
    """
    inverse = torch.cholesky_inverse(factor)
    n = len(weight)
    k = len(target) // n
    alpha = torch.cholesky_solve(target, factor).reshape(n, k, 1)
    # (n, k, k): inverse covariances of each impact given all others.
    blocks = inverse.reshape(n, k, n, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    error = torch.linalg.solve(blocks, alpha)
    added = noise**2 * (1 / weight - 1)  # to the variance of each, by lowering its weight
    identity = torch.eye(k, dtype=factor.dtype)
    covariance = torch.linalg.inv(blocks) - added[:, None, None] * identity
    measured = torch.full((n,), float(k), dtype=factor.dtype)
    if unmeasured is not None:
        error = error - unmeasured @ error
        measured = measured - unmeasured.diagonal(dim1=1, dim2=2).sum(1)
    squared = (error * torch.linalg.solve(covariance, error)).sum((1, 2))
    return LeaveOneOutErrors(
        of_each=LeaveOneOut(error[..., 0] * size[:, None], (squared / measured).sqrt(), weight),
        mean=float((alpha * error).mean()),
        median=float(error.norm(dim=(1, 2)).median()),
    )
