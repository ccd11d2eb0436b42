"""Prior covariances of parameter fields and of the residual.

Every parameter is a constant plus a smooth field over the circumstances of an impact; what no
parameter explains is a small residual of the outcome. Both are Gaussian processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class PriorScales:
    """How far the fit may depart from constant parameters and from MuJoCo, as standard deviations.

    Attributes:
        field: Amplitude of each group's field, in standard deviations of the parameter's prior.
        residual: Standard deviation of the smooth residual, relative to the outcome.
        linear: Standard deviation of the residual's part that is linear in the circumstances.
        outcome_linear: Standard deviation of the residual's part that is linear in the predicted
            outcome: errors of its scale or direction.
        noise: Noise of the measurement, relative to the outcome.
        field_length_scale: Length scale of fields, in standard deviations of their group.
        residual_length_scale: Length scale of the residual, over the root of the number of its
            columns.
        about_mean: Whether a field is a departure from its own mean over the fitted impacts. Far
            from these, parameters then return to the constants that fit them best, and not to
            values between these and the nominal ones.
    """

    field: float = 0.3
    residual: float = 0.04
    linear: float = 0.01
    outcome_linear: float = 0.02
    noise: float = 0.03
    field_length_scale: float = 1.5
    residual_length_scale: float = 1.0
    about_mean: bool = False

    @property
    def has_residual(self) -> bool:
        """Whether anything but parameters may explain an outcome."""
        return max(self.residual, self.linear, self.outcome_linear) > 0


# Plain identification of constant parameters: no fields, no residual.
CONSTANTS_ONLY = PriorScales(field=0.0, residual=0.0, linear=0.0, outcome_linear=0.0, noise=0.05)


@dataclass(frozen=True, eq=False)
class Context:
    """The circumstances of N impacts (where and how the bodies met), for fields and residual.

    Attributes:
        groups: Groups of standardised columns, (N, g) each.
        all: All columns side by side, (N, c).
    """

    groups: tuple[Tensor, ...]
    all: Tensor

    def __getitem__(self, rows: Tensor) -> Context:
        """The circumstances of some impacts."""
        return Context(tuple(group[rows] for group in self.groups), self.all[rows])


def fitted_kernel(a: Context, fitted: Context, scales: PriorScales) -> Tensor:
    """Covariance of one parameter between impacts and the fitted ones, over its prior variance.

    Args:
        a: n impacts.
        fitted: n' impacts; the same object if their own covariance is wanted.
        scales: Prior scales.

    Returns:
        (n, n'), the constant part included.
    """
    kernel = _field_kernel(a, fitted, scales)
    if scales.about_mean:
        among_fitted = kernel if a is fitted else _field_kernel(fitted, fitted, scales)
        kernel = kernel - kernel.mean(1, keepdim=True) - among_fitted.mean(0) + among_fitted.mean()
    return 1 + kernel


def _field_kernel(a: Context, b: Context, scales: PriorScales) -> Tensor:
    """Covariance (n, n') of the field of one parameter, over the parameter's prior variance."""
    kernel = torch.zeros(len(a.all), len(b.all), dtype=torch.float64)
    if scales.field > 0:
        for x, y in zip(a.groups, b.groups, strict=True):
            if x.shape[1]:
                kernel = kernel + scales.field**2 * _rbf(x, y, scales.field_length_scale)
    return kernel


def field_variance(context: Context, fitted: Context, scales: PriorScales) -> Tensor:
    """Variance (n, 1) of one parameter at each of n impacts, over its prior variance.

    Args:
        context: The n impacts.
        fitted: The fitted impacts.
        scales: Prior scales.
    """
    num_fields = sum(group.shape[1] > 0 for group in context.groups)
    variance = torch.full((len(context.all),), 1 + num_fields * scales.field**2).double()
    if scales.about_mean:
        to_fitted = _field_kernel(context, fitted, scales).mean(1)
        variance = variance - 2 * to_fitted + _field_kernel(fitted, fitted, scales).mean()
    return variance[:, None]


def residual_variance(context: Context, scales: PriorScales) -> Tensor:
    """Variance (n, 1) of each output's residual at n impacts, relative to the outcome's size."""
    columns = max(1, context.all.shape[1])
    of_linear = 1 + context.all.square().sum(1, keepdim=True) / columns
    return scales.residual**2 + scales.linear**2 * of_linear


def residual_kernel(a: Context, b: Context, scales: PriorScales) -> Tensor:
    """Covariance (n, n') of each output's residual, relative to the outcome's size."""
    columns = max(1, a.all.shape[1])
    length_scale = scales.residual_length_scale * np.sqrt(columns)
    kernel = scales.residual**2 * _rbf(a.all, b.all, length_scale)
    return kernel + scales.linear**2 * (1 + a.all @ b.all.T / columns)


def prior_covariance(
    a: tuple[Tensor, Context], b: tuple[Tensor, Context], std: Tensor, scales: PriorScales
) -> Tensor:
    """Covariance of outcomes over their size before any impact is fitted, linearised.

    Parameters enter as fields through their Jacobian, and the residual is added. Noise is left to
    the caller.

    Args:
        a: Jacobian (n, k, p) of outcomes by the parameters, and the context of the n impacts.
        b: The same for n' impacts.
        std: Prior standard deviations (p,) of the parameters.
        scales: Prior scales.

    Returns:
        (n k, n' k).
    """
    jacobian_a, context_a = a
    jacobian_b, context_b = b
    k = jacobian_a.shape[1]
    smooth = 1 + _field_kernel(context_a, context_b, scales)
    gram = (jacobian_a * std).flatten(0, 1) @ (jacobian_b * std).flatten(0, 1).T
    of_residual = torch.einsum(
        "nl,ij->nilj",
        residual_kernel(context_a, context_b, scales),
        torch.eye(k, dtype=gram.dtype),
    )
    return gram * repeat_outputs(smooth, k) + of_residual.reshape(gram.shape)


def repeat_outputs(kernel: Tensor, k: int) -> Tensor:
    """A kernel (n, n') of impacts as one (n k, n' k) of their k outputs."""
    return kernel.repeat_interleave(k, 0).repeat_interleave(k, 1)


def _rbf(x: Tensor, y: Tensor, length_scale: float) -> Tensor:
    """Squared-exponential kernel (n, n') of inputs (n, g) and (n', g)."""
    return torch.exp(-0.5 * (torch.cdist(x, y) / length_scale).square())
