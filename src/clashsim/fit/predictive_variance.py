"""Variance of predictions of a fit: what the fitted impacts leave open at other impacts.

Parameters enter as Gaussian-process fields through their Jacobian, and the residual is added. Far
from the fitted impacts, the variance grows to that of the prior of the fields.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clashsim.core.effects import offset_params
from clashsim.core.scene import Scene
from clashsim.fit.field_kernels import Context, field_variance, fitted_kernel, residual_kernel
from clashsim.fit.field_kernels import residual_variance as prior_residual_variance
from clashsim.fit.fields import Posterior
from clashsim.fit.priors import unit_std

_MAX_ROWS = 4096  # impacts at once, to bound the memory it takes


def predictive_variance(
    posterior: Posterior, context: Context, jacobian: Tensor, shape: Tensor
) -> Tensor:
    """Variance of predicted outcomes over their squared size, without noise.

    Args:
        posterior: A fit.
        context: Circumstances of N impacts.
        jacobian: Derivative (N, k, p) of their outcomes over their size by the parameters.
        shape: Predicted outcomes over their size (N, k).

    Returns:
        (N, k).
    """
    parts = []
    for rows in torch.arange(len(shape)).split(_MAX_ROWS):
        parts.append(_variance(posterior, context[rows], jacobian[rows], shape[rows]))
    return torch.cat(parts)


def pose_variance(scene: Scene, jacobian: Tensor) -> Tensor:
    """Variance of outcomes because each recorded pose is a little off, over their squared size.

    How far is not known. The prior of the offset of the recorded frame is of the same order, and
    intervals are corrected by errors on left-out impacts. What matters is where outcomes depend
    much on the pose: at corners a millimetre turns the contact normal.

    Args:
        scene: The scene.
        jacobian: Derivative (N, k, p) of N outcomes over their size by the parameters.

    Returns:
        (N, k); zero for a scene whose parameters have no offsets of the recorded frame.
    """
    variance = jacobian.new_zeros(jacobian.shape[:2])
    for index in offset_params(scene):
        variance = variance + (jacobian[..., index] * unit_std(scene.params[index])).square()
    return variance


def _variance(posterior: Posterior, context: Context, jacobian: Tensor, shape: Tensor) -> Tensor:
    """`predictive_variance` of some impacts."""
    scales = posterior.scales
    n, k = shape.shape
    scaled = jacobian * posterior.std
    scaled_fitted = posterior.jacobian * posterior.std
    kernel = fitted_kernel(context, posterior.context, scales)
    by_parameters = torch.einsum("nip,ljp->nilj", scaled, scaled_fitted)
    by_parameters = by_parameters * kernel[:, None, :, None]
    like_outcome = scales.outcome_linear**2 * shape @ posterior.outcome_shape.T
    of_residual = residual_kernel(context, posterior.context, scales) + like_outcome
    of_residual = of_residual * posterior.ratio
    by_residual = torch.einsum("nl,lji->nilj", of_residual, posterior.response)
    cross = (by_parameters + by_residual).reshape(n * k, -1)
    white = torch.linalg.solve_triangular(posterior.factor, cross.T, upper=False)
    explained = white.square().sum(0).reshape(n, k)
    of_parameters = scaled.square().sum(-1) * field_variance(context, posterior.context, scales)
    of_residual = prior_residual_variance(context, scales) + scales.outcome_linear**2
    return (of_parameters + of_residual - explained).clamp_min(0.0)
