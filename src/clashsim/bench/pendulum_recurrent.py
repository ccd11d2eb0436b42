"""A recurrent network that predicts the double pendulum without any physics.

It is trained until its error on validation recordings stops falling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from clashsim.bench.pendulum_camera import cut_windows
from clashsim.data.pendulum import ARM, PendulumRun

_HIDDEN_UNITS = 64
_NUM_INPUTS = 6  # of each frame: sine, cosine and change of two angles
_CHANGE_INPUT_SCALE = 10  # factor on changes of angles (rad per frame) as inputs
_CHANGE_SCALE = 0.01  # rad per frame, of one unit of the network's output
_BATCH_SIZE = 32  # windows
_CHECK_EVERY = 50  # batches between two checks of the validation error
_QUICK_CHECK_EVERY = 2
_PATIENCE = 5  # checks without improvement, after which the learning rate falls
_SPANS = (60, 200)  # frames predicted in training: first the short span, then the long one
_FIRST_RATE = 3e-3  # learning rate
_RATE_DIVISOR = 4  # by which the learning rate falls
_LAST_RATE = 1e-4  # training ends when the learning rate is at or below this
_QUICK_LAST_RATE = 2e-3
_IMPROVEMENT = 0.995  # an error below this share of the best one is an improvement
_MAX_GRADIENT = 1.0  # norm at which gradients are clipped
_TRAINING_EVERY = 25  # frames between the beginnings of two windows to train on
_VALIDATION_EVERY = 200  # frames between the beginnings of two windows to validate on
_VALIDATION_WINDOWS = 128  # approximate number of windows to validate on
# Factor on squared distances (in squared lengths of the upper arm) in the loss: distances above a
# hundredth of the arm enter by their logarithm.
_LOSS_SCALE = 1e4


class _Net(nn.Module):
    """Predicts the angles of both arms, frame by frame.

    It reads the angles and their changes per frame, and outputs what is added to the changes in the
    next frame. Predicted angles are sums of changes, so that the network need not learn that angles
    wrap around.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(_NUM_INPUTS, _HIDDEN_UNITS)
        self.out = nn.Sequential(
            nn.Linear(_HIDDEN_UNITS + _NUM_INPUTS, _HIDDEN_UNITS),
            nn.Tanh(),
            nn.Linear(_HIDDEN_UNITS, 2),
        )

    def forward(self, angle: Tensor, steps: int) -> Tensor:
        """Predict angles (N, steps, 2) that follow the observed ones (N, F, 2), rad."""
        hidden = angle.new_zeros(len(angle), _HIDDEN_UNITS)
        change = angle[:, 1] - angle[:, 0]
        for k in range(1, angle.shape[1]):
            change = angle[:, k] - angle[:, k - 1]
            hidden = self.cell(self._inputs(angle[:, k], change), hidden)
        # The last observed change has the noise of two frames. The network can correct it, because
        # its first output is added before the change is used.
        now = angle[:, -1]
        predicted = []
        for _ in range(steps):
            inputs = self._inputs(now, change)
            change = change + _CHANGE_SCALE * self.out(torch.cat([hidden, inputs], 1))
            now = now + change
            hidden = self.cell(self._inputs(now, change), hidden)
            predicted.append(now)
        return torch.stack(predicted, 1)

    def _inputs(self, angle: Tensor, change: Tensor) -> Tensor:
        return torch.cat([torch.sin(angle), torch.cos(angle), _CHANGE_INPUT_SCALE * change], 1)


@dataclass(frozen=True, eq=False)
class RecurrentModel:
    """A trained network.

    Attributes:
        net: Predicts later angles from observed ones.
        arm_lengths: Mean lengths of both arms, (2,), m.
        batches: Number of batches that training took.
    """

    net: _Net
    arm_lengths: np.ndarray
    batches: int

    def __call__(self, windows: np.ndarray, *, observed: int, steps: int) -> np.ndarray:
        """Predict the second bob.

        Args:
            windows: Positions of pivot and both bobs in the image, (N, T, 3, 2), m.
            observed: Number of frames at the beginning that the network sees.
            steps: Number of frames to predict.

        Returns:
            Positions of the second bob, (N, steps, 2), m.
        """
        seen = torch.tensor(_arm_angles(windows[:, :observed]), dtype=torch.float32)
        with torch.no_grad():
            angle = self.net(seen, steps).double().numpy()
        pivot = windows[:, :observed, 0].mean(1)[:, None]
        return pivot + _second_bob(angle, self.arm_lengths)


def train(
    runs: list[PendulumRun],
    validation: list[PendulumRun],
    *,
    seed: int,
    observed: int,
    quick: bool = False,
) -> RecurrentModel:
    """Train a network.

    Args:
        runs: Recordings to train on.
        validation: Other recordings, whose error decides when to stop.
        seed: Seed of the first weights and of the batches.
        observed: Number of frames at the beginning of a window that the network sees.
        quick: Whether to stop after a few batches.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    spans = _SPANS[:1] if quick else _SPANS
    frames = observed + spans[-1]
    windows, _ = cut_windows(runs, frames=frames, every=_TRAINING_EVERY)
    checked, _ = cut_windows(validation, frames=frames, every=_VALIDATION_EVERY)
    if not len(windows) or not len(checked):  # too few recordings to set any apart
        windows, _ = cut_windows(runs + validation, frames=frames, every=_TRAINING_EVERY)
        checked = windows
    arms = np.diff(windows, axis=2)  # from pivot to first bob, from first to second bob
    arm_lengths = np.linalg.norm(arms, axis=-1).mean((0, 1))
    checked = checked[:: max(1, len(checked) // _VALIDATION_WINDOWS)]
    train_angles = torch.tensor(_arm_angles(windows), dtype=torch.float32)
    check_angles = torch.tensor(_arm_angles(checked), dtype=torch.float32)
    net = _Net()
    batches = 0
    for span in spans:
        loss = _Loss(net, observed, span, arm_lengths)
        batches += _train_span(loss, train_angles, check_angles, rng=rng, quick=quick)
    return RecurrentModel(net, arm_lengths, batches)


def _train_span(
    loss: _Loss,
    train_angles: Tensor,
    check_angles: Tensor,
    *,
    rng: np.random.Generator,
    quick: bool,
) -> int:
    """Train on one span of frames until the learning rate has fallen.

    Args:
        loss: Loss of the network, on this span.
        train_angles: Windows to train on, (N, T, 2), rad.
        check_angles: Windows to validate on, (M, T, 2), rad.
        rng: Draws the batches.
        quick: Whether to stop after a few batches.

    Returns:
        Number of batches.
    """
    net = loss.net
    last_rate = _QUICK_LAST_RATE if quick else _LAST_RATE
    patience = 0 if quick else _PATIENCE
    rate = _FIRST_RATE
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    best = np.inf
    best_weights = net.state_dict()
    stale = 0
    batches = 0
    while rate > last_rate:
        for _ in range(_QUICK_CHECK_EVERY if quick else _CHECK_EVERY):
            rows = torch.from_numpy(rng.integers(0, len(train_angles), _BATCH_SIZE))
            optimiser.zero_grad()
            loss(train_angles[rows]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), _MAX_GRADIENT)
            optimiser.step()
            batches += 1
        with torch.no_grad():
            error = float(loss(check_angles))
        if error < _IMPROVEMENT * best:
            best = error
            best_weights = {name: value.clone() for name, value in net.state_dict().items()}
            stale = 0
        else:
            stale += 1
        if stale > patience:
            rate /= _RATE_DIVISOR
            stale = 0
            net.load_state_dict(best_weights)
            optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    net.load_state_dict(best_weights)
    return batches


@dataclass(frozen=True, eq=False)
class _Loss:
    """Logarithm of the squared distance of both bobs, in lengths of the upper arm.

    The physical models are fitted by the same loss. The logarithm limits the influence of windows
    that no model can follow.
    """

    net: _Net
    observed: int
    span: int
    arm_lengths: np.ndarray

    def __call__(self, angle: Tensor) -> Tensor:
        """Mean loss over windows of angles (N, T, 2), rad."""
        predicted = self.net(angle[:, : self.observed], self.span)
        true = angle[:, self.observed : self.observed + self.span]
        length = torch.tensor(self.arm_lengths / ARM, dtype=torch.float32)[:, None]
        gap_x = torch.cos(predicted) - torch.cos(true)
        gap_y = torch.sin(predicted) - torch.sin(true)
        arm_gap = length * torch.stack([gap_x, gap_y], -1)
        bob_gap = arm_gap.cumsum(2)  # the second arm hangs from the first
        squared = (bob_gap**2).sum((-1, -2)).mean(1)
        return torch.log1p(_LOSS_SCALE * squared).mean()


def _arm_angles(windows: np.ndarray) -> np.ndarray:
    """Angles of both arms from the image's first axis, (N, T, 2), rad, unwrapped over time."""
    arm = np.diff(windows, axis=2)
    return np.unwrap(np.arctan2(arm[..., 1], arm[..., 0]), axis=1)


def _second_bob(angle: np.ndarray, arm_lengths: np.ndarray) -> np.ndarray:
    """Position of the second bob from the pivot, (N, T, 2), m, at angles (N, T, 2)."""
    direction = np.stack([np.cos(angle), np.sin(angle)], -1)
    return (arm_lengths[:, None] * direction).sum(-2)
