"""Plan by gradient descent through a differentiable model, from many starts at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.core.errors import ParamError

__all__ = ["Tensor", "as_tensor", "descend", "moved_to", "repeat"]


def as_tensor(array: np.ndarray) -> Tensor:
    """An array as a tensor."""
    return torch.as_tensor(array)


def moved_to(model: Any, device: str) -> Any:
    """A copy of a model on a device in single precision, which is what a GPU is quick in."""
    try:
        torch.zeros(1, device=device).item()  # the device "meta" has shapes and no numbers
        return copy.deepcopy(model).to(device).float()
    except (RuntimeError, AssertionError) as error:
        raise ParamError(
            f"this torch has no device {device!r} (torch {torch.__version__}): {str(error).splitlines()[0][:100]}"
        ) from None


def repeat(rows: Tensor, n: int) -> Tensor:
    """Each row n times."""
    return rows.repeat_interleave(n, 0)


def descend(
    cost: Callable[[Tensor], Tensor], starts: np.ndarray | Tensor, *, steps: int, rate: float = 0.08
) -> tuple[np.ndarray, np.ndarray]:
    """The best points (T, d) and their costs (T,) of Adam on costs (T, S) at points (T, S, d) of
    unit boxes, from starts (T, S, d).

    Points move as the sines of free angles, so that the box needs no penalty and its faces can be
    reached.
    """
    z = torch.arcsin((2 * torch.as_tensor(starts) - 1).clamp(-0.98, 0.98)).requires_grad_(True)
    optimiser = torch.optim.Adam([z], lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=0.05 * rate)
    shape = starts.shape[:2]
    value, point = torch.full(shape, torch.inf, dtype=z.dtype, device=z.device), torch.zeros_like(z)
    for step in range(steps + 1):
        x = 0.5 + 0.5 * torch.sin(z)
        y = cost(x)
        with torch.no_grad():
            better = y < value
            value, point = torch.where(better, y, value), torch.where(better[..., None], x, point)
        if step < steps:
            optimiser.zero_grad(set_to_none=True)
            y.sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    i = value.argmin(1)
    rows = torch.arange(len(i), device=i.device)
    return point[rows, i].detach().cpu().numpy(), value[rows, i].detach().cpu().numpy()
