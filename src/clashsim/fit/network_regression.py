"""Regression by a network without pre-training, stopped where cross-validation is best."""

from __future__ import annotations

import numpy as np
import torch

from clashsim.fit.distil import DistillationConfig
from clashsim.nets.impact import ImpactNet

_NUM_FOLDS = 5  # of cross-validation
_CHECK_EVERY = 20  # steps of training between two looks at the cross-validation error


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

    One network per fold and one on all rows train side by side as members of one ensemble. The
    step at which the folds' held-out error is least is the one at which the predictions of the
    network on all rows are kept.

    Args:
        inputs: Scaled inputs of all N samples, (N, f).
        targets: Of the samples to train on, (n, k).
        size: What errors of these samples are relative to, (n,).
        rows: Which of the N samples are trained on, (n,).
        config: Size of the network, learning rate and weight decay; its other fields are not used.
        steps: Of training, at most.
        seed: Of the first weights and of the folds.

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
    held_out_of_last = torch.zeros(1, n, dtype=torch.bool)
    held_out = torch.cat([held_out_of_folds, held_out_of_last])  # (members, n)
    weight = torch.where(held_out, 1.0, 1 / squared_size)
    optimiser = torch.optim.AdamW(net.parameters(), lr=config.rate, weight_decay=config.decay)
    least_error = np.inf
    best_prediction = np.zeros((len(x), y.shape[1]))
    for step in range(steps + 1):
        error = (net(x[rows]) + y_mean - y).square().sum(-1) * weight
        if step % _CHECK_EVERY == 0:
            held_out_size = y_size.expand_as(held_out)[held_out]
            squared_relative = error.detach()[held_out] / held_out_size**2
            held_out_error = float(squared_relative.clamp_max(1.0).mean())
            if held_out_error < least_error:
                least_error = held_out_error
                with torch.no_grad():
                    best_prediction = (net(x)[-1] + y_mean).double().numpy()
        optimiser.zero_grad(set_to_none=True)
        (error * ~held_out).mean(1).sum().backward()
        optimiser.step()
    return best_prediction
