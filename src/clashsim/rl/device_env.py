"""Sequential pushing on one torch device: the task of `rl.push` for thousands to a million copies,
none of which leaves the device in a step.

Needs torch and numpy alone, so that it runs where MuJoCo and the training library are not
installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from clashsim.rl.push import (
    DRAWS,
    MAX_STRIKES,
    TRIES,
    StartDistribution,
    heading_offset_of,
    judged,
    seen,
    spanned,
    starts,
    worth,
)
from clashsim.rl.routes import SEGMENT_LENGTH

if TYPE_CHECKING:
    from clashsim.core.scene import Scene


class DeviceModel(Protocol):
    """A `StrikeModel` that takes tensors of its device: a map of strikes."""

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    takes_noise: bool

    def __call__(self, pose: Tensor, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Pose at rest (N, 3), as `StrikeModel.rest`."""


@dataclass
class DevicePush:
    """N copies of the task: pose (N, 3) of bodies, turn (N,) of the way at the sub-goal, strikes
    made (N,), which are whole numbers of the poses' type.

    low, high (d,): the box of strikes. rng: of the same device; all that is drawn comes from it.
    """

    model: DeviceModel
    heading_offset: float  # rad, from a body's yaw to its heading
    starts: StartDistribution
    low: Tensor
    high: Tensor
    rng: torch.Generator
    pose: Tensor
    turn: Tensor
    made: Tensor
    kept = ("pose", "turn", "made")

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
        """The task of a scene, begun in all copies; the model lies on that device, in that type."""
        low, high = (
            torch.as_tensor(v, dtype=dtype, device=device) for v in (model.low, model.high)
        )
        rng = torch.Generator(device).manual_seed(seed)
        pose, turn, made = (
            torch.zeros(shape, dtype=dtype, device=device) for shape in ((n, 3), (n,), (n,))
        )
        task = DevicePush(model, heading_offset_of(scene), starts, low, high, rng, pose, turn, made)
        task.restart(torch.ones(n, dtype=torch.bool, device=device))
        return task

    def restart(self, ended: Tensor) -> None:
        """Begin anew where an episode ended (N,). Starts are drawn for all, for to count those that
        need one would wait for the device.
        """
        draws = torch.rand(
            DRAWS,
            len(self.pose),
            generator=self.rng,
            dtype=self.pose.dtype,
            device=self.pose.device,
        )
        pose, turn = starts(draws, self.starts, self.heading_offset, xp=torch)
        self.pose, self.turn = (
            torch.where(ended[:, None], pose, self.pose),
            torch.where(ended, turn, self.turn),
        )
        self.made = torch.where(ended, 0.0, self.made)

    def observe(self) -> Tensor:
        """Observations (N, 7), in single precision."""
        return seen(
            self.pose, self.heading_offset, self.turn, SEGMENT_LENGTH, self.made, xp=torch
        ).float()

    def guide(self, *, tries: int = TRIES) -> Tensor:
        """Actions (N, d) that a look one strike ahead finds best among `tries` random ones; one try
        of all copies at a time, which a million need.
        """
        best, chosen = (
            torch.full_like(self.turn, -torch.inf),
            torch.zeros(
                len(self.pose), len(self.low), dtype=self.pose.dtype, device=self.pose.device
            ),
        )
        for _ in range(tries):
            action = (
                2
                * torch.rand(
                    chosen.shape, generator=self.rng, dtype=chosen.dtype, device=chosen.device
                )
                - 1
            )
            value = worth(
                self.model(self.pose, spanned(self.low, self.high, action, xp=torch)),
                self.heading_offset,
                self.turn,
                xp=torch,
            )
            best, chosen = (
                torch.maximum(best, value),
                torch.where((value > best)[:, None], action, chosen),
            )
        return chosen

    def strike(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Strike by actions (N, d) in [-1, 1]: rewards (N,), whether an episode ended (N,), and
        whether at the sub-goal (N,), as `Push.strike`.
        """
        noise = None
        if self.starts.noise and self.model.takes_noise:
            noise = self.starts.noise * torch.randn(
                self.pose.shape, generator=self.rng, dtype=self.pose.dtype, device=self.pose.device
            )
        return self.arrive(
            self.model(
                self.pose, spanned(self.low, self.high, action.to(self.pose.dtype), xp=torch), noise
            )
        )

    def arrive(self, pose: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `strike` says, for bodies that came to rest at pose (N, 3) wherever they were
        struck.
        """
        self.pose, self.made = pose, self.made + 1
        return judged(pose, self.heading_offset, self.turn, self.made, xp=torch)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Strike, and begin anew where an episode ended."""
        out = self.strike(action)
        self.restart(out[1])
        return out


@torch.no_grad()
def play_episodes(task: DevicePush, act: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """One episode of every copy from a new start, by what `act` does on observations: whether it
    reached its sub-goal (N,), and its return (N,).
    """
    running = torch.ones_like(task.turn, dtype=torch.bool)
    task.restart(running)
    reached, total = torch.zeros_like(running), torch.zeros_like(task.turn)
    for _ in range(MAX_STRIKES):
        reward, ended, there = task.strike(act(task.observe()))
        total, reached = total + running * reward, reached | (running & there)
        running = (
            running & ~ended
        )  # where an episode is over the body is struck on, and nothing counts
    return reached, total
