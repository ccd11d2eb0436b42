"""A recurrent network that predicts the double pendulum without any physics, trained until runs
kept aside say that it does not get better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from clashsim.bench.pendulum_camera import cut_windows
from clashsim.data.pendulum import ARM, PendulumRun

_WIDTH, _BATCH, _ROUND = (
    64,
    32,
    50,
)  # units, windows in a batch, batches between two looks at the runs kept aside
# Looks without anything better, after which the learning rate falls, and after three falls it ends
_PATIENCE = 5
_SPAN = (60, 200)  # frames predicted in training, one after the other


class _Net(nn.Module):
    """Reads turns and their changes of both arms, and says how the changes change; angles are their
    sum, so that it need not learn what a turn is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, _WIDTH)
        self.out = nn.Sequential(nn.Linear(_WIDTH + 6, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, 2))

    def forward(self, angle: torch.Tensor, steps: int) -> torch.Tensor:
        """Angles (N, steps, 2) after the observed ones (N, F, 2)."""
        hidden = angle.new_zeros(len(angle), _WIDTH)
        change = angle[:, 1] - angle[:, 0]
        for k in range(1, angle.shape[1]):
            change = angle[:, k] - angle[:, k - 1]
            hidden = self.cell(self._seen(angle[:, k], change), hidden)
        # The last change is as noisy as two frames: the network may correct where it begins.
        now, out = angle[:, -1], []
        for _ in range(steps):
            seen = self._seen(now, change)
            change = change + 0.01 * self.out(torch.cat([hidden, seen], 1))
            now = now + change
            hidden = self.cell(self._seen(now, change), hidden)
            out.append(now)
        return torch.stack(out, 1)

    def _seen(self, angle: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.sin(angle), torch.cos(angle), 10 * change], 1)


@dataclass(frozen=True, eq=False)
class Recurrent:
    """A trained network, the mean lengths (2,) of the arms, m, and how many batches it took."""

    net: _Net
    arms: np.ndarray
    batches: int

    def __call__(self, windows: np.ndarray, *, observed: int, steps: int) -> np.ndarray:
        """Places (N, steps, 2) of the second bob, m, after the observed frames of windows (N, T, 3,
        2).
        """
        with torch.no_grad():
            angle = (
                self.net(torch.tensor(_angles(windows[:, :observed]), dtype=torch.float32), steps)
                .double()
                .numpy()
            )
        return windows[:, :observed, 0].mean(1)[:, None] + _tip(angle, self.arms)


def train(
    runs: list[PendulumRun],
    aside: list[PendulumRun],
    *,
    seed: int,
    observed: int,
    quick: bool = False,
) -> Recurrent:
    """Train on runs; `aside` are others to see when to stop."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    spans = _SPAN[:1] if quick else _SPAN
    windows, kept = (
        cut_windows(r, frames=observed + spans[-1], every=e)[0]
        for r, e in ((runs, 25), (aside, 200))
    )
    if not len(windows) or not len(kept):
        windows = kept = cut_windows(runs + aside, frames=observed + spans[-1], every=25)[0]
    arms = np.linalg.norm(np.diff(windows, axis=2), axis=-1).mean((0, 1))
    data, check = (
        torch.tensor(_angles(w), dtype=torch.float32)
        for w in (windows, kept[:: max(1, len(kept) // 128)])
    )
    net, batches = _Net(), 0
    for span in spans:
        rate = 3e-3
        best, state, stale = np.inf, net.state_dict(), 0
        optimiser = torch.optim.Adam(net.parameters(), lr=rate)
        while rate > (2e-3 if quick else 1e-4):
            for _ in range(2 if quick else _ROUND):
                rows = torch.from_numpy(rng.integers(0, len(data), _BATCH))
                optimiser.zero_grad()
                _loss(net, data[rows], observed, span, arms).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimiser.step()
                batches += 1
            with torch.no_grad():
                found = float(_loss(net, check, observed, span, arms))
            if found < 0.995 * best:
                best, state, stale = found, {k: v.clone() for k, v in net.state_dict().items()}, 0
            else:
                stale += 1
            if stale > (0 if quick else _PATIENCE):
                rate, stale = rate / 4, 0
                net.load_state_dict(state)
                optimiser = torch.optim.Adam(net.parameters(), lr=rate)
        net.load_state_dict(state)
    return Recurrent(net, arms, batches)


def _angles(windows: np.ndarray) -> np.ndarray:
    """Turns (N, T, 2) of both arms from the first axis, unwrapped."""
    arm = np.diff(windows, axis=2)
    return np.unwrap(np.arctan2(arm[..., 1], arm[..., 0]), axis=1)


def _tip(angle: np.ndarray, arms: np.ndarray) -> np.ndarray:
    return (arms[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)).sum(-2)


def _loss(
    net: _Net, angle: torch.Tensor, observed: int, span: int, arms: np.ndarray
) -> torch.Tensor:
    """Distances of both bobs in arms' lengths, by their logarithm, as the physical models are
    fitted: a window that nobody can follow does not lead.
    """
    said, true = net(angle[:, :observed], span), angle[:, observed : observed + span]
    ratio = torch.tensor(arms / ARM, dtype=torch.float32)[:, None]
    off = ratio * torch.stack(
        [torch.cos(said) - torch.cos(true), torch.sin(said) - torch.sin(true)], -1
    )
    return torch.log1p(1e4 * (off.cumsum(2) ** 2).sum((-1, -2)).mean(1)).mean()
