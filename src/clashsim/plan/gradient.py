"""Minimise costs by gradient descent through a differentiable model, from many starts at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.core.errors import ParamError

__all__ = ["Tensor", "as_tensor", "copy_to_device", "minimise_by_gradient", "repeat_rows"]

# Starts on a face of the box would have no gradient, because the sine is flat there.
_MAX_SINE = 0.98
_FINAL_RATE_SHARE = 0.05  # of the first learning rate, which is left at the last step


def as_tensor(array: np.ndarray) -> Tensor:
    """Return an array as a tensor."""
    return torch.as_tensor(array)


def copy_to_device(model: Any, device: str) -> Any:
    """Return a copy of a model on a device in single precision, in which a GPU is fast."""
    try:
        torch.zeros(1, device=device).item()  # fails on "meta", which has shapes and no numbers
        return copy.deepcopy(model).to(device).float()
    except (RuntimeError, AssertionError) as error:
        first_line = str(error).splitlines()[0][:100]
        raise ParamError(
            f"this torch has no device {device!r} (torch {torch.__version__}): {first_line}"
        ) from None


def repeat_rows(rows: Tensor, n: int) -> Tensor:
    """Return each row n times, its copies side by side, as `np.repeat` along the first axis."""
    return rows.repeat_interleave(n, 0)


def minimise_by_gradient(
    cost: Callable[[Tensor], Tensor],
    starts: np.ndarray | Tensor,
    *,
    steps: int,
    learning_rate: float = 0.08,
) -> np.ndarray:
    """Minimise costs over unit boxes with Adam, from several starts for each of T problems.

    Adam changes unbounded angles, whose sines are scaled to the box. So no penalty is needed to
    stay inside, and the faces of the box can be reached.

    Args:
        cost: Costs (T, S) of points (T, S, d).
        starts: First points (T, S, d) in the unit box.
        steps: Number of Adam steps, over which the learning rate falls.
        learning_rate: Learning rate of Adam at the first step; it falls to a twentieth of that.

    Returns:
        The best point of each start, (T, S, d).
    """
    sines = (2 * torch.as_tensor(starts) - 1).clamp(-_MAX_SINE, _MAX_SINE)
    angles = torch.arcsin(sines).requires_grad_(True)
    optimiser = torch.optim.Adam([angles], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, steps, eta_min=_FINAL_RATE_SHARE * learning_rate
    )
    best_costs = torch.full(starts.shape[:2], torch.inf, dtype=angles.dtype, device=angles.device)
    best_points = torch.zeros_like(angles)
    for step in range(steps + 1):
        points = 0.5 + 0.5 * torch.sin(angles)
        costs = cost(points)
        with torch.no_grad():
            is_better = costs < best_costs
            best_costs = torch.where(is_better, costs, best_costs)
            best_points = torch.where(is_better[..., None], points, best_points)
        if step < steps:
            optimiser.zero_grad(set_to_none=True)
            costs.sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return best_points.detach().cpu().numpy()
