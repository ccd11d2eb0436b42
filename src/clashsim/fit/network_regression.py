"""Regression by a network without pre-training, stopped early by cross-validation."""

from __future__ import annotations

import numpy as np
import torch

from clashsim.fit.distil import DistillationConfig
from clashsim.nets.impact import ImpactNet

_NUM_FOLDS = 5  # of cross-validation
_CHECK_EVERY = 20  # training steps between two evaluations of the cross-validation error
_MAX_SQUARED_ERROR = 1.0  # at which squared relative errors are clipped in cross-validation


def regress_network(
    inputs: np.ndarray,
    targets: np.ndarray,
    size: np.ndarray,
    *,
    rows: np.ndarray,
    config: DistillationConfig,
    steps: int = 600,
    seed: int = 0,
) -> np.ndarray:
    """Predict the targets of all inputs by a network that is trained on some of them.

    One network per fold and one on all rows are trained together as members of one ensemble. The
    predictions are those of the network on all rows at the step where the held-out error of the
    folds is smallest.

    Args:
        inputs: Scaled inputs of all N samples, (N, f).
        targets: Targets of the n samples to train on, (n, k).
        size: Sizes (n,) of these targets, by which errors are divided.
        rows: Indices (n,) of the samples to train on.
        config: Size of the network, learning rate and weight decay; its other fields are not used.
        steps: Largest number of training steps.
        seed: Seed of the initial weights and of the folds.

    Returns:
        Predicted targets, (N, k).
    """
    x = torch.as_tensor(inputs, dtype=torch.float32)
    y = torch.as_tensor(targets, dtype=torch.float32)
    y_size = torch.as_tensor(size, dtype=torch.float32)
    squared_size = torch.as_tensor(size**2, dtype=torch.float32)
    y_mean = y.mean(0)
    n = len(rows)
    num_folds = min(_NUM_FOLDS, n)
    net = ImpactNet(
        x.shape[1],
        y.shape[1],
        width=config.width,
        layers=config.layers,
        members=num_folds + 1,
        activation=config.activation,
        seed=seed,
    )
    net.size.copy_(y.std(0).clamp_min(1e-6))  # the inputs are scaled already
    fold = torch.as_tensor(np.random.default_rng(seed).permutation(n) % num_folds)
    held_out_of_folds = fold[None] == torch.arange(num_folds)[:, None]
    held_out_of_last = torch.zeros(1, n, dtype=torch.bool)  # the last member sees all rows
    held_out = torch.cat([held_out_of_folds, held_out_of_last])  # (members, n)
    # Held-out errors are not weighted here; they are divided by the size where they are checked.
    weight = torch.where(held_out, 1.0, 1 / squared_size)
    optimiser = torch.optim.AdamW(net.parameters(), lr=config.rate, weight_decay=config.decay)
    least_error = np.inf
    best_prediction = np.zeros((len(x), y.shape[1]))
    for step in range(steps + 1):
        error = (net(x[rows]) + y_mean - y).square().sum(-1) * weight
        if step % _CHECK_EVERY == 0:
            held_out_size = y_size.expand_as(held_out)[held_out]
            squared_relative = error.detach()[held_out] / held_out_size**2
            held_out_error = float(squared_relative.clamp_max(_MAX_SQUARED_ERROR).mean())
            if held_out_error < least_error:
                least_error = held_out_error
                with torch.no_grad():
                    best_prediction = (net(x)[-1] + y_mean).double().numpy()
        optimiser.zero_grad(set_to_none=True)
        (error * ~held_out).mean(1).sum().backward()
        optimiser.step()
    return best_prediction
