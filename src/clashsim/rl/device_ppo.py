"""Proximal policy optimisation of the pushing task on one torch device; needs torch and numpy only.

The policy samples from a Gaussian; the tanh that bounds an action is treated as part of the task.
So the tanh of the mean is the action that `Policy` takes, and probabilities are those of the
Gaussian sample, without a correction for the tanh.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clashsim.rl.corridor_formulas import OBSERVATION_SIZE, StartDistribution
from clashsim.rl.device_env import DevicePush

# Scale of the lookahead's actions that are imitated: at -1 and 1 the inverse tanh is infinite.
_IMITATED_SCALE = 0.99
_MAX_GRADIENT_NORM = 0.5
_VALUE_LOSS_WEIGHT = 0.5
_ADAM_EPS = 1e-5
_ADVANTAGE_EPS = 1e-8  # against division by zero
_HIDDEN_GAIN = 2**0.5  # of orthogonal weights before a rectifier: keeps the variance
_ACTOR_GAIN = 0.01  # of the last layer: the first actions are close to the middle of all strikes
_CRITIC_GAIN = 1.0
_ROUNDS_PER_GUIDED = 4  # at most one round in this many is guided


@dataclass(frozen=True)
class PpoConfig:
    """How a policy is trained with PPO.

    In each round all environments are struck `horizon` times, then the network is trained on these
    strikes.

    Attributes:
        steps: Number of strikes in all.
        num_envs: Environments that are struck at once.
        horizon: Strikes of each environment in a round.
        epochs: How often the network is trained on all strikes of a round.
        batch: Approximate number of strikes in a gradient step.
        width: Width of the two hidden layers.
        learning_rate: Learning rate of the first round; it falls linearly to zero.
        gamma: Discount factor.
        gae_lambda: Lambda of the generalised advantage estimate.
        clip: Bound on how far the ratio of new to old probability is taken from 1.
        initial_log_std: Logarithm of the policy's initial standard deviation. With a much larger
            one strikes miss so often that staying in the corridor without arriving pays better.
        guided: Number of strikes at the beginning that a lookahead chooses and the policy imitates;
            of random strikes two in three leave the corridor.
        anywhere_share: Share of the starts that are anywhere in the corridor.
        noise: Outcomes vary by this many of the model's own standard deviations.
        checkpoint_interval: Strikes between checkpoints.
    """

    steps: int = 2_000_000
    num_envs: int = 4096
    horizon: int = 4
    epochs: int = 4
    batch: int = 1024
    width: int = 128
    learning_rate: float = 1e-3
    gamma: float = 0.95
    gae_lambda: float = 0.9
    clip: float = 0.2
    initial_log_std: float = -2.5
    guided: int = 200_000
    anywhere_share: float = 0.5
    noise: float = 1.0
    checkpoint_interval: int = 200_000

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

    @property
    def guided_rounds(self) -> int:
        """Number of rounds in which a lookahead chooses, never more than a quarter of all."""
        wanted = -(-self.guided // self.round_strikes)  # rounded up
        return min(wanted, self.rounds // _ROUNDS_PER_GUIDED)


class _Strikes(NamedTuple):
    """Strikes of a round, or some of them: (M, ...) each."""

    observation: Tensor
    sample: Tensor  # of the policy's Gaussian; its tanh is the action
    log_probability: Tensor  # of the sample under the policy that drew it, up to a constant
    advantage: Tensor
    value_target: Tensor

    def rows(self, rows: Tensor) -> _Strikes:
        """Return some of the strikes, by their indices."""
        return _Strikes(*(part[rows] for part in self))


class PpoLearner(nn.Module):
    """A policy in training on the device of its task.

    Args:
        task: The environments.
        config: How to train.
    """

    def __init__(self, task: DevicePush, config: PpoConfig) -> None:
        super().__init__()
        self.task = task
        self.config = config
        self.rounds_done = 0
        action_size = len(task.low)
        self.actor = perceptron(
            (OBSERVATION_SIZE, config.width, config.width, action_size),
            task.rng,
            last_gain=_ACTOR_GAIN,
        )
        self.critic = perceptron(
            (OBSERVATION_SIZE, config.width, config.width, 1), task.rng, last_gain=_CRITIC_GAIN
        )
        self.log_std = nn.Parameter(
            torch.full((action_size,), config.initial_log_std, device=task.pose.device)
        )
        self.optimiser = torch.optim.Adam(self.parameters(), lr=config.learning_rate, eps=_ADAM_EPS)

    def act(self, observation: Tensor) -> Tensor:
        """Return the policy's best actions (N, d) for observations (N, 7)."""
        return torch.tanh(self.actor(observation))

    def train_round(self) -> None:
        """Strike in all environments `horizon` times, and train on these strikes."""
        share_left = max(0.0, 1 - self.rounds_done / self.config.rounds)
        set_learning_rate(self.optimiser, self.config.learning_rate * share_left)
        strikes = self._collect_round()
        n = len(strikes.observation)
        batches = max(1, n // self.config.batch)
        for _ in range(self.config.epochs):
            order = torch.randperm(n, generator=self.task.rng, device=strikes.observation.device)
            for rows in order.chunk(batches):
                self._update(strikes.rows(rows))
        self.rounds_done += 1

    @torch.no_grad()
    def _collect_round(self) -> _Strikes:
        """Return the strikes of one round, (horizon * N, ...) each."""
        task = self.task
        steps = []
        for _ in range(self.config.horizon):
            observation = task.observe()
            mean = self.actor(observation)
            if self._is_guided:
                sample = torch.atanh(_IMITATED_SCALE * task.guide().float())
            else:
                noise = torch.randn(mean.shape, generator=task.rng, device=mean.device)
                sample = mean + self.log_std.exp() * noise
            outcome = task.step(torch.tanh(sample))
            log_probability = self._log_probability(mean, sample)
            value = self.critic(observation)[:, 0]
            steps.append(
                (
                    observation,
                    sample,
                    log_probability,
                    value,
                    outcome.reward.float(),
                    outcome.ended.float(),
                )
            )
        parts = [torch.stack(part) for part in zip(*steps, strict=True)]
        observations, samples, log_probabilities, values, rewards, ended = parts
        last_value = self.critic(task.observe())[:, 0]
        advantages = self._advantages(rewards, values, ended, last_value=last_value)
        return _Strikes(
            observation=observations.flatten(0, 1),
            sample=samples.flatten(0, 1),
            log_probability=log_probabilities.flatten(),
            advantage=advantages.flatten(),
            value_target=(advantages + values).flatten(),
        )

    def _advantages(
        self, rewards: Tensor, values: Tensor, ended: Tensor, *, last_value: Tensor
    ) -> Tensor:
        """Return generalised advantage estimates (horizon, N).

        Args:
            rewards: Rewards (horizon, N).
            values: Values (horizon, N) of the critic before each strike.
            ended: 1 where the strike ended an episode, else 0, (horizon, N).
            last_value: Values (N,) of the critic after the last strike.
        """
        advantages = torch.zeros_like(values)
        next_value = last_value
        next_advantage = torch.zeros_like(values[0])
        for t in reversed(range(self.config.horizon)):
            # Running out of strikes is a true end, so values after any end are discounted to 0.
            discount = self.config.gamma * (1 - ended[t])
            td_error = rewards[t] + discount * next_value - values[t]
            next_advantage = td_error + discount * self.config.gae_lambda * next_advantage
            advantages[t] = next_advantage
            next_value = values[t]
        return advantages

    def _update(self, strikes: _Strikes) -> None:
        """Make one gradient step of actor and critic."""
        mean = self.actor(strikes.observation)
        if self._is_guided:
            # Imitate the lookahead: its actions are the tanh of the samples.
            error = torch.tanh(mean) - torch.tanh(strikes.sample)
            objective = -error.square().mean()
        else:
            log_probability = self._log_probability(mean, strikes.sample)
            ratio = (log_probability - strikes.log_probability).exp()
            clipped = ratio.clamp(1 - self.config.clip, 1 + self.config.clip)
            centred = strikes.advantage - strikes.advantage.mean()
            advantage = centred / (strikes.advantage.std() + _ADVANTAGE_EPS)
            objective = torch.minimum(ratio * advantage, clipped * advantage).mean()
        value = self.critic(strikes.observation)[:, 0]
        value_loss = _VALUE_LOSS_WEIGHT * (value - strikes.value_target).square().mean()
        self.optimiser.zero_grad()
        (value_loss - objective).backward()
        nn.utils.clip_grad_norm_(self.parameters(), _MAX_GRADIENT_NORM)
        self.optimiser.step()

    @property
    def _is_guided(self) -> bool:
        """Whether a lookahead chooses the strikes of this round."""
        return self.rounds_done < self.config.guided_rounds

    def _log_probability(self, mean: Tensor, sample: Tensor) -> Tensor:
        """Return the log probabilities (N,) of samples (N, d) by their means, up to a constant."""
        standardised = (sample - mean) / self.log_std.exp()
        return (-0.5 * standardised.square() - self.log_std).sum(1)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters of an optimiser."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def perceptron(sizes: tuple[int, ...], rng: torch.Generator, *, last_gain: float) -> nn.Sequential:
    """Return linear layers with rectifiers between them, as `Policy` has them.

    Args:
        sizes: Numbers of inputs, of the outputs of each hidden layer, and of outputs.
        rng: Draws the orthogonal weights, on its device.
        last_gain: Scale of the last layer's weights.
    """
    gains = [_HIDDEN_GAIN] * (len(sizes) - 2) + [last_gain]
    layers: list[nn.Module] = []
    for (inputs, outputs), gain in zip(pairwise(sizes), gains, strict=True):
        # Without skip_init, `nn.Linear` would draw weights from torch's global generator.
        linear = nn.utils.skip_init(nn.Linear, inputs, outputs, device=rng.device)
        nn.init.orthogonal_(linear.weight, gain, generator=rng)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
