"""Proximal policy optimisation of the pushing task, all on one torch device. Needs torch and numpy
alone.

The policy is a Gaussian whose draws go through a tanh, which belongs to the task: its mean is then
the strike that `Policy` tells, and the ratio of probabilities needs no term for the tanh.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from clashsim.rl.device_env import DevicePush
from clashsim.rl.push import OBSERVATION_SIZE, StartDistribution

_INNER = 0.99  # of an action that is imitated, for the greatest one has no finite draw


@dataclass(frozen=True)
class PpoConfig:
    """How a policy is trained: `num_envs` are struck `horizon` times, then all of these strikes are
    gone over `epochs` times in batches of about `batch`.
    """

    steps: int = 2_000_000
    num_envs: int = 4096
    horizon: int = 4
    epochs: int = 4
    batch: int = 1024
    width: int = 128
    learning_rate: float = 1e-3  # at first; it falls to nothing evenly
    gamma: float = 0.95
    gae_lambda: float = 0.9  # lambda of the generalised advantage
    clip: float = 0.2
    # Logarithm of the policy's first standard deviation: with much more, strikes miss so often that
    # to stay in the corridor pays better
    initial_log_std: float = -2.5
    # Strikes by a look one strike ahead, to begin with, which the policy imitates: at random, two
    # in three leave the corridor
    guided: int = 200_000
    anywhere_share: float = 0.5  # share of starts anywhere in the corridor
    noise: float = 1.0  # standard deviations of the model's own by which outcomes scatter
    checkpoint_interval: int = 200_000  # strikes between checkpoints

    @property
    def starts(self) -> StartDistribution:
        """What the training meets."""
        return StartDistribution(anywhere_share=self.anywhere_share, noise=self.noise)

    @property
    def rounds(self) -> int:
        """Rounds of strikes and updates."""
        return max(1, self.steps // (self.num_envs * self.horizon))

    @property
    def guided_rounds(self) -> int:
        """Those that a look ahead strikes, never more than a quarter of all."""
        return min(-(-self.guided // (self.num_envs * self.horizon)), self.rounds // 4)


class PpoLearner(nn.Module):
    """A policy in training on the device of its task; done: rounds so far."""

    def __init__(self, task: DevicePush, config: PpoConfig) -> None:
        super().__init__()
        self.task, self.config, self.rounds_done, d = task, config, 0, len(task.low)
        device = task.pose.device
        self.actor, self.critic = (
            _perceptron(OBSERVATION_SIZE, config.width, out, task.rng, gain)
            for out, gain in ((d, 0.01), (1, 1.0))
        )
        self.log_std = nn.Parameter(torch.full((d,), config.initial_log_std, device=device))
        self.optimiser = torch.optim.Adam(self.parameters(), lr=config.learning_rate, eps=1e-5)

    def act(self, observation: Tensor) -> Tensor:
        """The policy's best actions (N, d)."""
        return torch.tanh(self.actor(observation))

    def train_round(self) -> None:
        """Strike all copies some times, and learn from that."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * max(
                0.0, 1 - self.rounds_done / self.config.rounds
            )
        seen, drawn, before, advantage, value = self._collect_round()
        target = advantage + value
        n = len(seen)
        for _ in range(self.config.epochs):
            for rows in torch.randperm(n, generator=self.task.rng, device=seen.device).chunk(
                max(1, n // self.config.batch)
            ):
                self._update(seen[rows], drawn[rows], before[rows], advantage[rows], target[rows])
        self.rounds_done += 1

    @torch.no_grad()
    def _collect_round(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Observations, draws, logarithms of their probability, advantages and values of one round,
        (horizon * N, ...) each.
        """
        task, rows = self.task, []
        for _ in range(self.config.horizon):
            seen = task.observe()
            mean = self.actor(seen)
            drawn = (
                torch.atanh(_INNER * task.guide().float())
                if self._guided
                else mean
                + self.log_std.exp()
                * torch.randn(mean.shape, generator=task.rng, device=mean.device)
            )
            reward, ended, _ = task.step(torch.tanh(drawn))
            rows.append(
                (
                    seen,
                    drawn,
                    self._log(mean, drawn),
                    self.critic(seen)[:, 0],
                    reward.float(),
                    ended.float(),
                )
            )
        seen, drawn, before, value, reward, ended = (
            torch.stack(part) for part in zip(*rows, strict=True)
        )
        then, advantage, carried = (
            self.critic(task.observe())[:, 0],
            torch.zeros_like(value),
            torch.zeros_like(value[0]),
        )
        for t in reversed(range(self.config.horizon)):
            going = self.config.gamma * (
                1 - ended[t]
            )  # the last strike allowed ends an episode for good
            carried = reward[t] + going * then - value[t] + going * self.config.gae_lambda * carried
            advantage[t], then = carried, value[t]
        return (
            seen.flatten(0, 1),
            drawn.flatten(0, 1),
            before.flatten(),
            advantage.flatten(),
            value.flatten(),
        )

    def _update(
        self, seen: Tensor, drawn: Tensor, before: Tensor, advantage: Tensor, target: Tensor
    ) -> None:
        mean = self.actor(seen)
        if self._guided:
            gain = -(torch.tanh(mean) - torch.tanh(drawn)).square().mean()
        else:
            ratio = (self._log(mean, drawn) - before).exp()
            scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.minimum(
                ratio * scaled, ratio.clamp(1 - self.config.clip, 1 + self.config.clip) * scaled
            ).mean()
        self.optimiser.zero_grad()
        (0.5 * (self.critic(seen)[:, 0] - target).square().mean() - gain).backward()
        nn.utils.clip_grad_norm_(self.parameters(), 0.5)
        self.optimiser.step()

    @property
    def _guided(self) -> bool:
        return self.rounds_done < self.config.guided_rounds

    def _log(self, mean: Tensor, drawn: Tensor) -> Tensor:
        """Logarithm of a draw's probability (N,), up to a constant."""
        return (-0.5 * ((drawn - mean) / self.log_std.exp()).square() - self.log_std).sum(1)


def _perceptron(
    inputs: int, width: int, outputs: int, rng: torch.Generator, gain: float
) -> nn.Sequential:
    """Rectifiers between three layers, as `Policy` has them; drawn from `rng`, on its device, and
    the last one small.
    """
    layers: list[nn.Module] = []
    for (a, b), scale in zip(
        pairwise((inputs, width, width, outputs)), (2**0.5, 2**0.5, gain), strict=True
    ):
        linear = nn.utils.skip_init(
            nn.Linear, a, b, device=rng.device
        )  # which would draw from the generator that all share
        nn.init.orthogonal_(linear.weight, scale, generator=rng)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
