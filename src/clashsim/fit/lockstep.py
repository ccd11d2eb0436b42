"""Several fits that run in lockstep, so that one call of the physics answers all of them.

A descent asks for the physics and is sent the answer, until it returns where it ended. A fit asks
for descents and is sent where they ended, until it returns its result.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from clashsim.fit.field_kernels import Context

_MAX_ROWS = 8192  # that the physics is evaluated for at once, to bound the memory it takes


class Physics(Protocol):
    """A collision model of some impacts, as a function of their parameters."""

    def __call__(self, rows: Tensor, phi: Tensor, free: Tensor | None = None) -> Tensor:
        """Change of twist over the approach speed (R, k), differentiable in `phi`.

        Args:
            rows: Indices (R,) of impacts.
            phi: Their parameters (R, p).
            free: (R, p), by which parameters derivatives are needed; None for all of them.
        """
        ...


class PhysicsRequest(NamedTuple):
    """Where a descent needs the physics.

    Attributes:
        rows: Indices of the impacts (N,).
        phi: Their parameters (M, N, p).
        free: (p,), by which parameters derivatives are needed; None needs no derivatives.
    """

    rows: Tensor
    phi: Tensor
    free: Tensor | None = None


class PhysicsAnswer(NamedTuple):
    """Change of twist (M, N, k), and its Jacobian (M, N, k, p) if it was asked for."""

    value: Tensor
    jacobian: Tensor | None


@dataclass(frozen=True, eq=False)
class FieldData:
    """N impacts to fit.

    Attributes:
        physics: The base model as a function of parameters; it may know more impacts than these N.
        rows: Indices (N,) of these impacts among those of `physics`.
        change: Observed change of twist over the approach speed (N, k).
        twist_before: Twist before over the approach speed, (N, k).
        context: The circumstances of the impacts.
        unmeasured: Projections (N, k, k) onto the directions in which `change` was not measured;
            None where all of it was.
        response: (N, k, s), by how much the observed changes follow those of the struck body, the
            first s of them; None where k = s, and only that body was observed. What no parameter
            explains is a residual of the struck body's change, which the others follow.
    """

    physics: Physics
    rows: Tensor
    change: Tensor
    twist_before: Tensor
    context: Context
    unmeasured: Tensor | None = None
    response: Tensor | None = None

    @property
    def struck(self) -> slice:
        """The struck body's entries among those of `change`."""
        return slice(self.change.shape[1] if self.response is None else self.response.shape[2])

    @property
    def counts(self) -> Tensor:
        """How many entries of each impact's change were measured, (N,)."""
        n, k = self.change.shape
        counts = torch.full((n,), float(k), dtype=torch.float64)
        if self.unmeasured is None:
            return counts
        return counts - self.unmeasured.diagonal(dim1=1, dim2=2).sum(1)

    def evaluate(self, phi: Tensor) -> Tensor:
        """Change of twist over the approach speed (M, N, k) at parameters (M, N, p)."""
        request = PhysicsRequest(self.rows, phi)
        return answers(self.physics, [request])[0].value


AnyDescent = Generator[PhysicsRequest, PhysicsAnswer, Any]

# A fit asks for descents and is sent where they ended, until it returns its result.
Result = TypeVar("Result")
Fit = Generator[Sequence[AnyDescent], list[Any], Result]


def run_fits(physics: Physics, fits: Sequence[Fit[Result]]) -> list[Result]:
    """Run several fits in lockstep: their descents are run together.

    Args:
        physics: Of the impacts of all fits.
        fits: The fits.

    Returns:
        The result of each.
    """
    results: dict[int, Result] = {}
    wanted = {i: next(fit) for i, fit in enumerate(fits)}
    while wanted:
        descents = [descent for asked in wanted.values() for descent in asked]
        solutions = iter(_run_together(physics, descents))
        for i, asked in list(wanted.items()):
            try:
                wanted[i] = fits[i].send(list(islice(solutions, len(asked))))
            except StopIteration as end:
                results[i] = end.value
                del wanted[i]
    return [results[i] for i in range(len(fits))]


def _run_together(physics: Physics, descents: Sequence[AnyDescent]) -> list[Any]:
    """Run several descents in lockstep.

    A call of the physics takes hardly longer for many members than for one, so the requests of all
    descents are answered by one call.

    Args:
        physics: Of the impacts.
        descents: As `FieldProblem.descend` makes them.

    Returns:
        Where each ended.
    """
    solutions: dict[int, Any] = {}
    requests = {i: next(descent) for i, descent in enumerate(descents)}
    while requests:
        for with_jacobian in (True, False):
            asking = [
                i for i, asked in requests.items() if (asked.free is not None) == with_jacobian
            ]
            found = answers(physics, [requests.pop(i) for i in asking])
            for i, answer in zip(asking, found, strict=True):
                try:
                    requests[i] = descents[i].send(answer)
                except StopIteration as end:
                    solutions[i] = end.value
    return [solutions[i] for i in range(len(descents))]


def answers(physics: Physics, requests: Sequence[PhysicsRequest]) -> list[PhysicsAnswer]:
    """Evaluate the physics for several requests, all with their Jacobian or all without."""
    if not requests:
        return []
    shapes = [request.phi.shape[:2] for request in requests]
    rows = torch.cat([request.rows.repeat(len(request.phi)) for request in requests])
    phi = torch.cat([request.phi.flatten(0, 1) for request in requests])
    free = [
        request.free.expand(len(request.phi) * len(request.rows), -1)
        for request in requests
        if request.free is not None
    ]
    parts = []
    for start in range(0, len(rows), _MAX_ROWS):
        part = slice(start, start + _MAX_ROWS)
        if free:
            parts.append(_value_and_jacobian(physics, rows[part], phi[part], torch.cat(free)[part]))
        else:
            with torch.no_grad():
                parts.append((physics(rows[part], phi[part]), phi[part, :0]))
    counts = [m * n for m, n in shapes]
    values = torch.cat([value for value, _ in parts]).split(counts)
    jacobians = torch.cat([jacobian for _, jacobian in parts]).split(counts)
    found = []
    for shape, value, jacobian in zip(shapes, values, jacobians, strict=True):
        derivative = jacobian.reshape(*shape, *jacobian.shape[1:]) if free else None
        found.append(PhysicsAnswer(value.reshape(*shape, -1), derivative))
    return found


def value_and_jacobian(data: FieldData, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Change of twist (M, N, k) and its Jacobian (M, N, k, p) at parameters (M, N, p)."""
    free = torch.ones(phi.shape[-1], dtype=torch.bool)
    (answer,) = answers(data.physics, [PhysicsRequest(data.rows, phi, free)])
    assert answer.jacobian is not None
    return answer.value, answer.jacobian


def _value_and_jacobian(
    physics: Physics, rows: Tensor, phi: Tensor, free: Tensor
) -> tuple[Tensor, Tensor]:
    """Change of twist (R, k) and its Jacobian (R, k, p) at parameters (R, p) of impacts (R,).

    Rows do not depend on each other, so one backward pass per output is enough.
    """
    leaf = phi.detach().clone().requires_grad_(True)
    value = physics(rows, leaf, free)
    k = value.shape[-1]
    gradients = []
    for i in range(k):
        gradient = torch.autograd.grad(value[:, i].sum(), leaf, retain_graph=i + 1 < k)[0]
        gradients.append(gradient)
    return value.detach(), torch.stack(gradients, 1)
