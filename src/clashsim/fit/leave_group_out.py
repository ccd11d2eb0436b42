"""How well a fit predicts groups of consecutive impacts from the other groups.

Neighbours in a recording are alike: the same speed, wall or posture. So leaving out one impact only
shows how a fit interpolates between its neighbours. Leaving out a group of neighbours also shows
how it extrapolates, as it must for strikes that differ from the recorded ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.fit.linear_gaussian import outlier_cost
from clashsim.fit.lockstep import FieldData

_NUM_GROUPS = 5


@dataclass(frozen=True, eq=False)
class LeaveGroupOut:
    """Errors of predicting each of N fitted impacts from those of the other groups.

    They are those of the struck body's twist, in the contact frame.

    Attributes:
        error: Observed minus predicted outcome over its size (N, k); zero where nothing was
            measured.
        variance: Variances (N, k) of these errors that the model states for an impact whose weight
            was not lowered, in the directions that were measured.
        log_density: Sum of the logarithms of the densities of the groups, each given the others,
            of all recorded bodies; without a constant that all fits share.
    """

    error: Tensor
    variance: Tensor
    log_density: float


def consecutive_groups(n: int) -> list[np.ndarray]:
    """Indices of n impacts in groups of neighbours, as equal in size as can be."""
    return np.array_split(np.arange(n), min(n, _NUM_GROUPS))


def leave_groups_out(
    factor: Tensor, target: Tensor, data: FieldData, *, weight: Tensor, noise: float
) -> LeaveGroupOut:
    """Leave each group of `consecutive_groups` out in turn, exactly for the linearised model.

    Args:
        factor: Cholesky factor (N k, N k) of the observations' covariance.
        target: Observations (N k, 1) over the size of the outcome, as differences from the prior
            mean.
        data: The impacts.
        weight: Weights (N,) of the impacts, by which the covariance has the noise's variance
            divided.
        noise: Standard deviation of the noise over the size of the outcome.
    """
    inverse = torch.cholesky_inverse(factor)
    alpha = torch.cholesky_solve(target, factor)
    n, k = data.change.shape
    error = torch.empty(n, k, dtype=factor.dtype)
    covariance = torch.empty(n, k, k, dtype=factor.dtype)
    log_density = -float(outlier_cost(weight))
    for group in consecutive_groups(n):
        first, last = int(group[0]) * k, (int(group[-1]) + 1) * k
        block = inverse[first:last, first:last]  # inverse covariance given the other groups
        block_factor = torch.linalg.cholesky(block)
        miss = torch.cholesky_solve(alpha[first:last], block_factor)
        log_density += float(block_factor.diagonal().log().sum() - 0.5 * miss.T @ block @ miss)
        error[group] = miss.reshape(-1, k)
        of_group = torch.cholesky_inverse(block_factor).reshape(len(group), k, len(group), k)
        covariance[group] = of_group.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    identity = torch.eye(k, dtype=factor.dtype)
    covariance = covariance - (noise**2 * (1 / weight - 1))[:, None, None] * identity
    if data.unmeasured is not None:
        measured = identity - data.unmeasured
        error = (measured @ error[..., None])[..., 0]
        covariance = measured @ covariance @ measured.transpose(1, 2)
    variance = covariance.diagonal(dim1=1, dim2=2)
    return LeaveGroupOut(error[:, data.struck], variance[:, data.struck], log_density)
