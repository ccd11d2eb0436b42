"""The striker's change of twist from that of the struck body, in the units of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.impacts import MotionBefore
from clashsim.core.params import from_unit
from clashsim.core.scene import Scene
from clashsim.sim.contact.impulse_response import ImpulseResponse

_DIFFERENCE = 0.01  # step of finite differences on the unit scale


class StrikerResponse:
    """N impacts in their contact frames, and what their impulses do to the striker.

    The striker's twists are those of its origin in the axes of the scene, as (v, gyration * w) in
    m/s, with the striker's radius of gyration.

    Attributes:
        frame: The impacts in their contact frames.
        twist_before: (N, k), the striker's twist before over the approach speed.
    """

    def __init__(self, scene: Scene, frame: ContactFrame) -> None:
        self.frame = frame
        self._scene = scene
        self._response = ImpulseResponse(scene, frame.before, frame.contact)
        striker = MotionBefore.of(frame.before).striker
        k = striker.twist.shape[1]
        linear = 2 if striker.planar else 3
        gyration = inertia(scene, scene.striker_body).gyration
        self._weights = np.concatenate([np.ones(linear), np.full(k - linear, gyration)])
        self.twist_before = self.encode(striker.twist)

    def encode(self, twist: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Twists (M, k) of the striker, m/s and rad/s, over the approach speed of impacts (M,)."""
        return twist * self._weights / self.frame.speed[rows][:, None]

    def decode(self, twist: np.ndarray) -> np.ndarray:
        """Twists (N, k) of the striker, m/s and rad/s; the inverse of `encode`."""
        return twist * self.frame.speed[:, None] / self._weights

    def __call__(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Change of the striker's twist per change of the struck body's, both over the speed.

        Args:
            rows: (M,), indices of impacts.
            theta: (M, p), their parameters, natural units.

        Returns:
            (M, k, k), from changes of the struck body's twist as `ContactFrame.encode` gives them.
        """
        per_twist = self._response.striker_per_struck(rows, theta)
        return self._weights[:, None] * per_twist @ np.linalg.inv(self.frame.axes[rows])

    def apply(self, change: Tensor, rows: Tensor, unit: Tensor) -> Tensor:
        """Changes of the striker's twist (R, k), differentiable in change and theta.

        Args:
            change: Changes of the struck body's twist (R, k).
            rows: Indices of impacts (R,).
            unit: Theta on its unit scale (R, p).
        """
        apply: Callable[..., Tensor] = _Response.apply
        return apply(change, unit, rows, self)

    def at_unit(self, rows: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """`__call__` for theta on its unit scale (M, p)."""
        return self(rows, from_unit(self._scene.params, unit))


class _Response(torch.autograd.Function):
    """The response to changes of twist, with its derivatives by theta by finite differences."""

    @staticmethod
    def forward(
        context: Any, change: Tensor, unit: Tensor, rows: Tensor, response: StrikerResponse
    ) -> Tensor:
        """Changes of the striker's twist (R, k)."""
        at = unit.detach().double().numpy()
        matrix = response.at_unit(rows.numpy(), at)
        if context.needs_input_grad[1]:
            context.by_theta = _by_theta(response, rows.numpy(), at, matrix, change.detach())
        context.matrix = torch.as_tensor(matrix)
        return torch.einsum("rij,rj->ri", context.matrix, change.detach())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """Gradients by the changes (R, k) and by theta (R, p)."""
        by_change = torch.einsum("rij,ri->rj", context.matrix, gradients[0])
        if not context.needs_input_grad[1]:
            return by_change, None, None, None
        return by_change, torch.einsum("rip,ri->rp", context.by_theta, gradients[0]), None, None


def _by_theta(
    response: StrikerResponse,
    rows: np.ndarray,
    unit: np.ndarray,
    matrix: np.ndarray,
    change: Tensor,
) -> Tensor:
    """Derivatives (R, k, p) of the striker's changes by theta, where the response is a matrix."""
    columns = []
    for i in range(unit.shape[1]):
        moved = unit.copy()
        moved[:, i] += _DIFFERENCE
        derivative = (response.at_unit(rows, moved) - matrix) / _DIFFERENCE
        columns.append(torch.einsum("rij,rj->ri", torch.as_tensor(derivative), change))
    return torch.stack(columns, dim=2)
