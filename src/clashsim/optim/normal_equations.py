"""Normal equations of least squares: blocks that can be eliminated, and robust weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class EliminatedBlocks:
    """Normal equations of v shared parameters after each of N blocks of z others was eliminated.

    Attributes:
        matrix: What each block leaves for the shared parameters, (N, v, v).
        gradient: Likewise, (N, v).
        response: How a block's own parameters follow, (N, z, v + 1): by the shared step, and
            without one.
    """

    matrix: np.ndarray
    gradient: np.ndarray
    response: np.ndarray

    def own_steps(self, shared_step: np.ndarray) -> np.ndarray:
        """Steps (N, z) of the blocks' own parameters for a step (v,) of the shared ones."""
        return -(self.response[..., -1] + self.response[..., :-1] @ shared_step)


def eliminate_blocks(
    matrix: np.ndarray, gradient: np.ndarray, own_matrix: np.ndarray
) -> EliminatedBlocks:
    """Eliminate the parameters that only one block depends on (Schur complement).

    Args:
        matrix: Normal matrices (N, v + z, v + z), shared parameters first.
        gradient: Gradients (N, v + z).
        own_matrix: The blocks' own part of the matrices, (N, z, z), with its damping.

    Returns:
        The normal equations of the shared parameters, block by block.
    """
    shared = matrix.shape[-1] - own_matrix.shape[-1]
    right = np.concatenate([matrix[:, shared:, :shared], gradient[:, shared:, None]], 2)
    response = np.linalg.solve(own_matrix, right)
    coupling = matrix[:, :shared, shared:]
    return EliminatedBlocks(
        matrix[:, :shared, :shared] - coupling @ response[..., :shared],
        gradient[:, :shared] - (coupling @ response[..., shared:])[..., 0],
        response,
    )


def huber_cost(residuals: np.ndarray, threshold: float) -> float:
    """Sum of Huber's loss, in which residuals beyond a threshold count by size, not by square."""
    size = np.abs(residuals)
    linear = 2 * threshold * size - threshold**2
    return float(np.where(size < threshold, size**2, linear).sum())


def huber_weights(residuals: np.ndarray, threshold: float) -> np.ndarray:
    """Weights, shaped as the residuals, that make least squares minimise Huber's loss."""
    return np.minimum(1.0, threshold / np.maximum(np.abs(residuals), 1e-12))
