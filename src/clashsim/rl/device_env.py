"""Sequential pushing on one torch device, for thousands to a million environments.

The task is that of `rl.push`. A step copies nothing between host and device. Only torch and numpy
are needed, so that it runs where MuJoCo and Stable-Baselines3 are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from clashsim.rl.corridor_formulas import (
    LOOKAHEAD_TRIES,
    MAX_STRIKES,
    START_SAMPLES,
    StartDistribution,
    StrikeOutcome,
    judge_poses,
    lookahead_value,
    observations,
    start_poses,
    strikes_from_actions,
)
from clashsim.rl.push import STATE_ARRAYS, heading_offset_of
from clashsim.rl.routes import SEGMENT_LENGTH

if TYPE_CHECKING:
    from clashsim.core.scene import Scene


class DeviceModel(Protocol):
    """A `StrikeModel` that takes tensors of its device, for example a strike table."""

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    takes_noise: bool

    def __call__(self, pose: Tensor, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return poses at rest (N, 3), as `StrikeModel.rest`."""


@dataclass
class DevicePush:
    """N environments of the pushing task on a device.

    Attributes:
        model: Predicts where a struck body comes to rest, on the same device.
        heading_offset: Angle from a body's yaw to its heading (rad).
        starts: Where episodes start.
        low: Lowest strike (d,).
        high: Highest strike (d,).
        rng: Generator on the same device, of all random numbers.
        pose: Poses (N, 3) of the bodies in the frame of the segment: x, y (m), yaw (rad).
        heading_change: By how much the route turns at the sub-goal, (N,) in rad.
        strikes_made: Strikes of the episode so far, (N,): whole numbers, in the dtype of the poses.
    """

    model: DeviceModel
    heading_offset: float
    starts: StartDistribution
    low: Tensor
    high: Tensor
    rng: torch.Generator
    pose: Tensor
    heading_change: Tensor
    strikes_made: Tensor
    state_arrays: ClassVar[Mapping[str, str]] = STATE_ARRAYS

    @staticmethod
    def of(
        scene: Scene,
        model: DeviceModel,
        n: int,
        *,
        starts: StartDistribution = StartDistribution(),
        device: str = "cpu",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> DevicePush:
        """Return n environments of a scene, all at the start of an episode.

        Args:
            scene: Its [strikes] table defines which side may be struck.
            model: Predicts where a struck body comes to rest; on `device` and in `dtype`.
            n: Number of environments.
            starts: Where episodes start.
            device: A device of torch.
            seed: Seed of all random numbers.
            dtype: Type of the poses.
        """
        task = DevicePush(
            model=model,
            heading_offset=heading_offset_of(scene),
            starts=starts,
            low=torch.as_tensor(model.low, dtype=dtype, device=device),
            high=torch.as_tensor(model.high, dtype=dtype, device=device),
            rng=torch.Generator(device).manual_seed(seed),
            pose=torch.zeros((n, 3), dtype=dtype, device=device),
            heading_change=torch.zeros(n, dtype=dtype, device=device),
            strikes_made=torch.zeros(n, dtype=dtype, device=device),
        )
        task.restart(torch.ones(n, dtype=torch.bool, device=device))
        return task

    def restart(self, ended: Tensor) -> None:
        """Start new episodes in the environments where `ended` (N,) is true."""
        # Starts are sampled for all environments: with a number of starts that depends on `ended`
        # the host would have to wait for the device.
        uniform = self._uniform(START_SAMPLES, len(self.pose))
        pose, heading_change = start_poses(uniform, self.starts, self.heading_offset, xp=torch)
        self.pose = torch.where(ended[:, None], pose, self.pose)
        self.heading_change = torch.where(ended, heading_change, self.heading_change)
        self.strikes_made = torch.where(ended, 0.0, self.strikes_made)

    def observe(self) -> Tensor:
        """Return the observations (N, 7) in single precision."""
        return observations(
            self.pose,
            self.heading_offset,
            self.heading_change,
            length=SEGMENT_LENGTH,
            strikes_made=self.strikes_made,
            xp=torch,
        ).float()

    def guide(self, *, tries: int = LOOKAHEAD_TRIES) -> Tensor:
        """Return the actions (N, d) that look best one strike ahead, among `tries` random ones."""
        best_value = torch.full_like(self.heading_change, -torch.inf)
        best_action = torch.zeros(
            len(self.pose), len(self.low), dtype=self.pose.dtype, device=self.pose.device
        )
        # One try of all environments at a time: all tries of a million environments at once would
        # not fit into memory.
        for _ in range(tries):
            action = 2 * self._uniform(*best_action.shape) - 1
            pose = self.model(self.pose, self._strikes(action))
            value = lookahead_value(pose, self.heading_offset, self.heading_change, xp=torch)
            is_better = (value > best_value)[:, None]
            best_action = torch.where(is_better, action, best_action)
            best_value = torch.maximum(best_value, value)
        return best_action

    def strike(self, action: Tensor) -> StrikeOutcome:
        """Strike all bodies by actions (N, d) in [-1, 1], as `Push.strike`."""
        noise = None
        if self.starts.noise and self.model.takes_noise:
            noise = self.starts.noise * torch.randn(
                self.pose.shape, generator=self.rng, dtype=self.pose.dtype, device=self.pose.device
            )
        strikes = self._strikes(action.to(self.pose.dtype))
        return self.arrive(self.model(self.pose, strikes, noise))

    def arrive(self, pose: Tensor) -> StrikeOutcome:
        """Return the outcome of a strike made elsewhere, which left bodies at poses (N, 3)."""
        self.pose = pose
        self.strikes_made = self.strikes_made + 1
        return judge_poses(
            pose,
            self.heading_offset,
            self.heading_change,
            strikes_made=self.strikes_made,
            xp=torch,
        )

    def step(self, action: Tensor) -> StrikeOutcome:
        """Strike, and start new episodes where one ended."""
        outcome = self.strike(action)
        self.restart(outcome.ended)
        return outcome

    def _strikes(self, action: Tensor) -> Tensor:
        return strikes_from_actions(self.low, self.high, action, xp=torch)

    def _uniform(self, *shape: int) -> Tensor:
        """Return uniform random numbers in [0, 1) on the device."""
        return torch.rand(
            *shape, generator=self.rng, dtype=self.pose.dtype, device=self.pose.device
        )


@torch.no_grad()
def play_episodes(task: DevicePush, act: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Play one episode in every environment from a new start.

    Args:
        task: The environments.
        act: Returns actions (N, d) for observations (N, 7).

    Returns:
        Whether the sub-goal was reached (N,), and the return of the episode (N,).
    """
    running = torch.ones_like(task.heading_change, dtype=torch.bool)
    task.restart(running)
    reached = torch.zeros_like(running)
    episode_return = torch.zeros_like(task.heading_change)
    for _ in range(MAX_STRIKES):
        outcome = task.strike(act(task.observe()))
        episode_return = episode_return + running * outcome.reward
        reached = reached | (running & outcome.reached)
        # Where an episode is over, the body is still struck but the outcome is ignored.
        running = running & ~outcome.ended
    return reached, episode_return
