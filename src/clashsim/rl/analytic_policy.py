"""Training a pushing policy by gradients through the strike table; needs torch and numpy only.

The return of some strikes is differentiated with respect to the policy's weights: through rewards,
poses at rest, strikes and observations of all of them (an analytic policy gradient). PPO and SAC
estimate the same gradient from rewards alone.

The rewards of the task jump where the body reaches the sub-goal or leaves the corridor, and have no
gradient elsewhere. So both events have a probability here, which rises smoothly from 0 to 1 over
some centimetres. Episodes end as in the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clashsim.rl.corridor_formulas import (
    OBSERVATION_SIZE,
    StartDistribution,
    rewards,
)
from clashsim.rl.device_env import DevicePush
from clashsim.rl.device_ppo import perceptron, set_learning_rate
from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS, SEGMENT_LENGTH

_MAX_GRADIENT_NORM = 0.5
_ACTOR_GAIN = 0.01  # of the last layer: the first actions are close to the middle of all strikes


@dataclass(frozen=True)
class AnalyticConfig:
    """How a policy is trained by gradients through the strike table.

    Attributes:
        steps: Number of strikes in all.
        num_envs: Environments that are struck at once.
        horizon: Strikes of each environment in a round, over which gradients flow.
        width: Width of the two hidden layers.
        learning_rate: Learning rate of the first round; it falls linearly to zero.
        softness: Length over which probabilities of events change, m.
        anywhere_share: Share of the starts that are anywhere in the corridor.
        noise: Outcomes vary by this many of the model's own standard deviations.
    """

    steps: int = 10_000
    num_envs: int = 16
    horizon: int = 4
    width: int = 128
    learning_rate: float = 3e-3
    softness: float = 0.03
    anywhere_share: float = 0.5
    noise: float = 1.0

    @property
    def starts(self) -> StartDistribution:
        """Where episodes of the training start."""
        return StartDistribution(anywhere_share=self.anywhere_share, noise=self.noise)

    @property
    def round_strikes(self) -> int:
        """Strikes of all environments in a round."""
        return self.num_envs * self.horizon

    @property
    def rounds(self) -> int:
        """Number of rounds, at least one."""
        return max(1, self.steps // self.round_strikes)


class SoftOutcome(NamedTuple):
    """Differentiable outcome of a strike in each of N environments, (N,) each."""

    reward: Tensor
    going_on: Tensor  # probability that the episode goes on


class AnalyticLearner(nn.Module):
    """A policy in training by gradients through its model, on the device of its task.

    Args:
        task: The environments; their model must be differentiable.
        config: How to train.
    """

    def __init__(self, task: DevicePush, config: AnalyticConfig) -> None:
        super().__init__()
        self.task = task
        self.config = config
        self.rounds_done = 0
        self.actor = perceptron(
            (OBSERVATION_SIZE, config.width, config.width, len(task.low)),
            task.rng,
            last_gain=_ACTOR_GAIN,
        )
        self.optimiser = torch.optim.Adam(self.actor.parameters(), lr=config.learning_rate)

    def act(self, observation: Tensor) -> Tensor:
        """Return the policy's actions (N, d) for observations (N, 7)."""
        return torch.tanh(self.actor(observation))

    def train_round(self) -> None:
        """Strike in all environments `horizon` times, and make one gradient step."""
        share_left = max(0.0, 1 - self.rounds_done / self.config.rounds)
        set_learning_rate(self.optimiser, self.config.learning_rate * share_left)
        self.optimiser.zero_grad()
        (-self._soft_return().mean()).backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), _MAX_GRADIENT_NORM)
        self.optimiser.step()
        self.task.pose = self.task.pose.detach()
        self.rounds_done += 1

    def _soft_return(self) -> Tensor:
        """Sums of rewards (N,) over one round, weighted by the probability to get there."""
        task = self.task
        total = torch.zeros_like(task.heading_change)
        arrival = torch.ones_like(total)  # probability that the episode is not over
        for _ in range(self.config.horizon):
            outcome = task.strike(self.act(task.observe()))
            soft = soft_outcome(task, self.config.softness)
            total = total + arrival * soft.reward
            # Where an episode ended, the next one starts, with a weight of 1 again.
            arrival = torch.where(outcome.ended, 1.0, arrival * soft.going_on)
            task.restart(outcome.ended)
        return total


def soft_outcome(task: DevicePush, softness: float) -> SoftOutcome:
    """Differentiable outcome of the last strike.

    Args:
        task: The environments, before new episodes start.
        softness: Length over which probabilities of events change, m.
    """
    x, y, yaw = task.pose.unbind(1)
    distance = torch.hypot(x - SEGMENT_LENGTH, y)
    reached = torch.sigmoid((GOAL_RADIUS - distance) / softness)
    beside = torch.sigmoid((y.abs() - CORRIDOR_WIDTH / 2) / softness)
    beyond_ends = (x - SEGMENT_LENGTH / 2).abs() - SEGMENT_LENGTH / 2 - GOAL_RADIUS
    beyond = torch.sigmoid(beyond_ends / softness)
    left_corridor = (1 - reached) * (1 - (1 - beside) * (1 - beyond))
    reward = rewards(
        distance=distance,
        angle=yaw + task.heading_offset - task.heading_change,
        strikes_made=task.strikes_made,
        reached=reached,
        left_corridor=left_corridor,
        xp=torch,
    )
    return SoftOutcome(reward, (1 - reached) * (1 - left_corridor))
