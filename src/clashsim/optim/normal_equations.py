"""Normal equations of least squares: blocks that can be eliminated, and robust weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class EliminatedBlocks:
    """Normal equations of v shared parameters, after N blocks of z own parameters are eliminated.

    Attributes:
        matrix: Contribution of each block to the matrix of the shared parameters, (N, v, v).
        gradient: Contribution of each block to their gradient, (N, v).
        response: Negative step of a block's own parameters, (N, z, v + 1): first v columns per unit
            of the shared step, last column without a shared step.
    """

    matrix: np.ndarray
    gradient: np.ndarray
    response: np.ndarray

    def own_steps(self, shared_step: np.ndarray) -> np.ndarray:
        """Compute steps (N, z) of the blocks' own parameters for a step (v,) of the shared ones."""
        return -(self.response[..., -1] + self.response[..., :-1] @ shared_step)


def eliminate_blocks(
    matrix: np.ndarray, gradient: np.ndarray, own_matrix: np.ndarray
) -> EliminatedBlocks:
    """Eliminate the own parameters of each block (Schur complement).

    A block is a part of the data, such as one window of a recording; its own parameters affect only
    this part, the shared parameters affect all blocks.

    Args:
        matrix: Normal matrices (N, v + z, v + z), shared parameters first.
        gradient: Gradients (N, v + z).
        own_matrix: Normal matrices of the own parameters, (N, z, z), damping included.

    Returns:
        The normal equations of the shared parameters, as the contributions of the blocks.
    """
    shared = matrix.shape[-1] - own_matrix.shape[-1]
    right_sides = np.concatenate([matrix[:, shared:, :shared], gradient[:, shared:, None]], 2)
    response = np.linalg.solve(own_matrix, right_sides)
    coupling = matrix[:, :shared, shared:]
    return EliminatedBlocks(
        matrix=matrix[:, :shared, :shared] - coupling @ response[..., :shared],
        gradient=gradient[:, :shared] - (coupling @ response[..., shared:])[..., 0],
        response=response,
    )


def huber_cost(residuals: np.ndarray, threshold: float) -> float:
    """Sum Huber's loss: quadratic up to a threshold of the residuals' size, linear beyond it."""
    size = np.abs(residuals)
    linear = 2 * threshold * size - threshold**2
    return float(np.where(size < threshold, size**2, linear).sum())


def huber_weights(residuals: np.ndarray, threshold: float) -> np.ndarray:
    """Compute weights, of the residuals' shape, with which least squares minimises Huber's loss."""
    return np.minimum(1.0, threshold / np.maximum(np.abs(residuals), 1e-12))
