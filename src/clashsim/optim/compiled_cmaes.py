"""CMA-ES with active weights for many searches at once, compiled (Hansen 2016, arXiv:1604.00772).

A search on a strike table takes longer to propose and rank its points in Python than to evaluate
them. Names of the constants in the paper are given in `clashsim.optim.device_search`, whose torch
code is the same algorithm for a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.core.compiled import compiled, forget_stale

forget_stale(Path(__file__).parent)

Arrays = tuple[np.ndarray, ...]
REDRAWS = 4  # times that a point outside of the unit box is drawn again, before it is clipped
_LEAST_EIGENVALUE = 1e-20
_LEAST_SIGMA = 1e-12
_GREATEST_SIGMA = 10.0
_WEIGHT_FLOOR = 1e-8


@compiled
def propose(
    mean: np.ndarray, sigma: np.ndarray, axes: np.ndarray, roots: np.ndarray, normal: np.ndarray
) -> np.ndarray:
    """Propose populations (B, P, d) of the unit box.

    Args:
        mean: (B, d).
        sigma: (B,), step sizes.
        axes: (B, d, d), eigenvectors of the covariances, in columns.
        roots: (B, d), square roots of their eigenvalues.
        normal: (1 + REDRAWS, P, d), standard normal numbers, the same for all searches.
    """
    searches, dim = mean.shape
    draws, population, _ = normal.shape
    points = np.empty((searches, population, dim))
    for b in range(searches):
        for p in range(population):
            for draw in range(draws):
                inside = True
                for i in range(dim):
                    value = mean[b, i]
                    for k in range(dim):
                        value += sigma[b] * axes[b, i, k] * roots[b, k] * normal[draw, p, k]
                    inside = inside and 0 <= value <= 1
                    points[b, p, i] = value
                if inside:
                    break
            for i in range(dim):
                points[b, p, i] = min(max(points[b, p, i], 0.0), 1.0)
    return points


@compiled
def learn(
    state: Arrays,
    points: np.ndarray,
    costs: np.ndarray,
    weights: np.ndarray,
    constants: np.ndarray,
    generation: int,
) -> None:
    """Learn from the costs of populations.

    Args:
        state: Written to: means (B, d), step sizes (B,), covariances (B, d, d), their eigenvectors
            (B, d, d) in columns, the square roots (B, d) of their eigenvalues, and the paths p_c
            and p_sigma (B, d) of the paper.
        points: (B, P, d).
        costs: (B, P).
        weights: (P,), by rank, negative for the worse half.
        constants: mu_eff, c_c, c_sigma, d_sigma, c_1, c_mu and E||N(0, I)||.
        generation: Populations so far, this one included.
    """
    mean, sigma, covariance, axes, roots, path, sigma_path = state
    effective, path_rate, sigma_rate, damping, rank_one, rank_mu, expected = constants
    searches, population, dim = points.shape
    path_gain = np.sqrt(path_rate * (2 - path_rate) * effective)
    sigma_gain = np.sqrt(sigma_rate * (2 - sigma_rate) * effective)
    for b in range(searches):
        order = np.argsort(costs[b], kind="mergesort")
        steps = np.empty((population, dim))
        mean_step = np.zeros(dim)
        for p in range(population):
            for i in range(dim):
                steps[p, i] = (points[b, order[p], i] - mean[b, i]) / sigma[b]
                mean_step[i] += max(weights[p], 0.0) * steps[p, i]
        in_axes = axes[b].T @ mean_step / roots[b]
        whitened = axes[b] @ in_axes
        length = 0.0
        for i in range(dim):
            mean[b, i] += sigma[b] * mean_step[i]
            sigma_path[b, i] = (1 - sigma_rate) * sigma_path[b, i] + sigma_gain * whitened[i]
            length += sigma_path[b, i] ** 2
        length = np.sqrt(length)
        unbiased = length / np.sqrt(1 - (1 - sigma_rate) ** (2 * generation))
        not_stalled = 1.0 if unbiased < (1.4 + 2 / (dim + 1)) * expected else 0.0
        kept = 1 - rank_one - rank_mu * weights.sum()
        kept += rank_one * (1 - not_stalled) * path_rate * (2 - path_rate)
        for i in range(dim):
            path[b, i] = (1 - path_rate) * path[b, i] + not_stalled * path_gain * mean_step[i]
        for i in range(dim):
            for k in range(dim):
                covariance[b, i, k] *= kept
                covariance[b, i, k] += rank_one * path[b, i] * path[b, k]
        for p in range(population):
            weight = weights[p]
            if weight < 0:
                # Divided by the squared step, so that the covariance stays positive however far
                # bad points are.
                squared = ((axes[b].T @ steps[p] / roots[b]) ** 2).sum()
                weight *= dim / (squared + _WEIGHT_FLOOR)
            for i in range(dim):
                for k in range(dim):
                    covariance[b, i, k] += rank_mu * weight * steps[p, i] * steps[p, k]
        growth = sigma_rate / damping * (length / expected - 1)
        sigma[b] = min(max(sigma[b] * np.exp(growth), _LEAST_SIGMA), _GREATEST_SIGMA)
        eigenvalues, vectors = np.linalg.eigh(covariance[b])
        axes[b] = vectors
        roots[b] = np.sqrt(np.maximum(eigenvalues, _LEAST_EIGENVALUE))
