"""How well each fitted impact is predicted from the others, exactly for the linearised model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clashsim.fit.lockstep import FieldData


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Errors of predicting each of N fitted impacts from the others.

    They are those of the struck body's twist, in the contact frame.

    Attributes:
        error: Observed minus predicted outcome over its size (N, k); zero where nothing was
            measured.
        variance: Variances (N, k) of these errors that the model states for an impact whose weight
            was not lowered.
        size: Sizes (N,) of the outcomes over the approach speed.
        deviation: Standardised leave-one-out error (N,): the root of the mean square over what was
            measured, of all recorded bodies, in standard deviations of the prediction with the
            noise of an impact whose weight was not lowered.
        weight: Weight (N,) of each impact in the fit, 1 where it was not lowered (Student-t noise).
    """

    error: Tensor
    variance: Tensor
    size: Tensor
    deviation: Tensor
    weight: Tensor

    @property
    def miss(self) -> Tensor:
        """Observed minus predicted change of twist over the approach speed (N, k)."""
        return self.error * self.size[:, None]


def leave_one_out(
    factor: Tensor,
    target: Tensor,
    data: FieldData,
    *,
    size: Tensor,
    weight: Tensor,
    noise: float,
) -> LeaveOneOut:
    """Leave each impact out in turn.

    Args:
        factor: Cholesky factor (N k, N k) of the observations' covariance.
        target: Observations (N k, 1) over the size of the outcome, as differences from the prior
            mean.
        data: The impacts.
        size: Size (N,) of the outcomes over the approach speed.
        weight: Weights (N,) of the impacts, by which the covariance has the noise's variance
            divided.
        noise: Standard deviation of the noise over the size of the outcome.
    """
    inverse = torch.cholesky_inverse(factor)
    n, k = data.change.shape
    alpha = torch.cholesky_solve(target, factor).reshape(n, k, 1)
    # (n, k, k): inverse covariances of each impact given all others.
    blocks = inverse.reshape(n, k, n, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    error = torch.linalg.solve(blocks, alpha)
    added = noise**2 * (1 / weight - 1)  # to the variance of each, by lowering its weight
    identity = torch.eye(k, dtype=factor.dtype)
    covariance = torch.linalg.inv(blocks) - added[:, None, None] * identity
    if data.unmeasured is not None:
        error = error - data.unmeasured @ error
    squared = (error * torch.linalg.solve(covariance, error)).sum((1, 2))
    return LeaveOneOut(
        error=error[:, data.struck, 0],
        variance=covariance.diagonal(dim1=1, dim2=2)[:, data.struck],
        size=size,
        deviation=(squared / data.counts).sqrt(),
        weight=weight,
    )
