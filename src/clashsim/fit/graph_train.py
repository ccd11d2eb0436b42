"""Training of the graph network on scaled trajectories, on a CPU or a GPU.

The loss is that of short differentiable rollouts from recorded states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.fit.trajectory_set import TrajectorySet, Window
from clashsim.nets.mesh_graph import LENGTH, Floor, GraphNet, step_with_contacts
from clashsim.nets.nearest_points import attach_point_gradients, find_box_contacts
from clashsim.nets.rigid_bodies import (
    RigidBodies,
    RigidBodyState,
    cross,
    free_motion,
    gather_rows,
    rotate,
)

# Face pairs of two boxes that are looked at on a GPU; more do not change the answer.
_FACE_PAIRS_ON_GPU = 16
_GRADIENT_NORM = 0.5  # at which gradients are clipped
_WARMUP_STEPS = 200
_LAST_RATE = 0.01  # of the learning rate
_ROUNDING = 0.001  # of an error, in units of LENGTH, at which the loss turns from square to linear
_SMOOTHING_EVERY = 10  # steps after which the reported loss is updated


@dataclass(frozen=True)
class GraphTrainingConfig:
    """How the network is trained.

    Attributes:
        steps: Steps of AdamW.
        batch: Windows per step of one box; fewer for several boxes.
        lengths: Frames that windows grow through.
        rate: Learning rate.
        seconds: Time after which training ends early, with the rate brought down in time.
        average: Factor of the running average of the weights.
        report: Steps from one report to the next.
    """

    steps: int = 6000
    batch: int = 2048
    lengths: tuple[int, ...] = (1, 2, 4, 6, 8)
    rate: float = 1e-3
    seconds: float = float("inf")
    average: float = 0.998
    report: int = 200

    def learning_rate(self, step: int, done: float) -> float:
        """The rate at a step, a share `done` of the training being over: warm-up, then cosine."""
        warmup = min(1.0, (step + 1) / _WARMUP_STEPS)
        cosine = 0.5 * (1 + float(np.cos(np.pi * done)))
        return self.rate * warmup * (_LAST_RATE + (1 - _LAST_RATE) * cosine)

    def window_length(self, done: float) -> int:
        """Steps of a window when a share `done` of the training is over."""
        index = int(done * 1.25 * len(self.lengths))
        return self.lengths[min(index, len(self.lengths) - 1)]


@dataclass(frozen=True, eq=False)
class ContactSearch:
    """What collision detection looks at.

    Attributes:
        pairs: Bodies (P, 2) that may collide, or None if each is alone.
        face_pairs: Face pairs of two boxes that are looked at; None for all.
    """

    pairs: Tensor | None = None
    face_pairs: int | None = None


def rollout_states(
    net: GraphNet,
    bodies: RigidBodies,
    state: RigidBodyState,
    gravity: Tensor,
    *,
    steps: int,
    dt: float,
    search: ContactSearch = ContactSearch(),
) -> list[RigidBodyState]:
    """Roll bodies out, differentiably; collision detection is the batched search.

    Args:
        net: The network.
        bodies: What the O bodies are.
        state: Their state at the start.
        gravity: (O, 3), m/s^2.
        steps: Number of steps.
        dt: Time of a step, s.
        search: What collision detection looks at.

    Returns:
        States after each step.
    """
    up = torch.zeros(3, dtype=torch.float64, device=state.position.device)
    up[2] += 1.0
    floor = Floor(up)
    states = []
    for _ in range(steps):
        free = free_motion(bodies, state, gravity, dt)
        found = find_box_contacts(bodies, state, floor, search.pairs, kept=search.face_pairs)
        contacts = attach_point_gradients(bodies, state, found, floor)
        state = step_with_contacts(net, bodies, state, free, contacts, floor=floor, dt=dt)
        states.append(state)
    return states


def misfit(bodies: RigidBodies, state: RigidBodyState, true: RigidBodyState, dt: float) -> Tensor:
    """How far corners are off in position and in velocity, robustly.

    Args:
        bodies: What the O bodies are.
        state: Their state.
        true: The state that it should be.
        dt: Time of a step, s.

    Returns:
        (O,), in units of LENGTH and of LENGTH per step.
    """
    owner = bodies.owner
    arm = rotate(gather_rows(state.orientation, owner), bodies.corner)
    true_arm = rotate(gather_rows(true.orientation, owner), bodies.corner)
    position_error = gather_rows(state.position - true.position, owner) + arm - true_arm
    velocity_error = (
        gather_rows(state.velocity - true.velocity, owner)
        + cross(gather_rows(state.angular_velocity, owner), arm)
        - cross(gather_rows(true.angular_velocity, owner), true_arm)
    )
    total = torch.zeros_like(position_error[:, 0])
    for error in (position_error / LENGTH, velocity_error * dt / LENGTH):
        square = (error * error).sum(1)
        total = total + torch.sqrt(square + _ROUNDING**2) - _ROUNDING
    per_body = torch.zeros(len(bodies), dtype=total.dtype, device=total.device)
    return per_body.index_add(0, owner, total) / 8


def train(
    net: GraphNet,
    sets: Sequence[TrajectorySet],
    config: GraphTrainingConfig,
    *,
    seed: int,
    shares: Sequence[float] | None = None,
    log: Callable[[str], None] = print,
) -> GraphNet:
    """Train a network in place on windows of the sets.

    On a GPU a step is thousands of small kernels: each kind of step is recorded once as a CUDA
    graph and replayed.

    Args:
        net: The network.
        sets: Trajectories, one set for each number of boxes.
        config: How to train.
        seed: Seed of the windows.
        shares: Shares of the steps that the sets get; all alike by default.
        log: Gets a line per report.

    Returns:
        The network with averaged weights.
    """
    device = sets[0].motion.device
    net = net.to(device).train()
    generator = torch.Generator().manual_seed(seed)
    weights = list(net.parameters())
    rate = torch.tensor(config.rate, device=device)
    optimiser = torch.optim.AdamW(
        weights, lr=rate, weight_decay=1e-5, capturable=device.type == "cuda"
    )
    averaged = [w.detach().clone() for w in weights]
    steppers: dict[tuple[int, int], _Stepper] = {}
    share = torch.tensor(shares or [1.0] * len(sets))
    begin = time.monotonic()
    smoothed_loss = 0.0
    for step in range(config.steps):
        elapsed = time.monotonic() - begin
        done = max(step / config.steps, elapsed / config.seconds)
        if done >= 1:
            break
        rate.fill_(config.learning_rate(step, done))
        which = int(torch.multinomial(share, 1, generator=generator))
        length = config.window_length(done)
        data = sets[which]
        size = max(config.batch // data.motion.shape[2] ** 2, 16)
        chosen = torch.randint(len(data.starts), (size,), generator=generator)
        if (which, length) not in steppers:
            steppers[which, length] = _Stepper(net, optimiser, data, length)
        loss = steppers[which, length](data.starts[chosen.to(device)])
        new_share = 1 - min(config.average, step / (step + 10))
        torch._foreach_lerp_(averaged, [w.detach() for w in weights], new_share)
        if step == 0:
            smoothed_loss = float(loss)
        elif step % _SMOOTHING_EVERY == 0:
            smoothed_loss = 0.9 * smoothed_loss + 0.1 * float(loss)
        if (step + 1) % config.report == 0:
            seconds = time.monotonic() - begin
            log(f"step {step + 1} length {length} loss {smoothed_loss:.5f} {seconds:.0f} s")
    with torch.no_grad():
        for weight, average in zip(weights, averaged, strict=True):
            weight.copy_(average)
    return net.eval()


class _Stepper:
    """One step of the optimiser on windows of one set and length.

    On a GPU it is recorded at its first call and replayed after that.
    """

    def __init__(
        self, net: GraphNet, optimiser: torch.optim.Optimizer, data: TrajectorySet, length: int
    ) -> None:
        self.net = net
        self.optimiser = optimiser
        self.data = data
        self.length = length
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: Window | None = None
        self.loss = torch.zeros(())

    def __call__(self, rows: Tensor) -> Tensor:
        fresh = self.data.window(rows, self.length)
        if rows.device.type != "cuda":
            self.held = fresh
            self._step(None)
            return self.loss
        if self.held is None:
            self.held = fresh
            self._record()
        else:
            self._overwrite(self.held, fresh)
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _record(self) -> None:
        """Record a step as a CUDA graph, after two steps that warm up."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step(_FACE_PAIRS_ON_GPU)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step(_FACE_PAIRS_ON_GPU)

    @staticmethod
    def _overwrite(held: Window, new: Window) -> None:
        """Copy windows to where the recorded graph reads them."""
        for name in (
            "corner",
            "mass",
            "inertia",
            "centre",
            "contact",
            "drag",
            "rounding",
            "normal",
        ):
            getattr(held.bodies, name).copy_(getattr(new.bodies, name))
        held.motion.copy_(new.motion)
        held.gravity.copy_(new.gravity)

    def _step(self, face_pairs: int | None) -> None:
        """One step of the optimiser."""
        assert self.held is not None
        window = self.held
        states = rollout_states(
            self.net,
            window.bodies,
            window.state(0),
            window.gravity,
            steps=self.length,
            dt=self.data.dt,
            search=ContactSearch(window.pairs, face_pairs),
        )
        losses = []
        for i, state in enumerate(states):
            error = misfit(window.bodies, state, window.state(i + 1), self.data.dt)
            losses.append(error.mean())
        loss = torch.stack(losses).mean()
        weights = list(self.net.parameters())
        for weight in weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_zero_(gradients)
        loss.backward()  # type: ignore[no-untyped-call]
        _clip_gradients(gradients)
        self.optimiser.step()
        self.loss = loss.detach()


def _clip_gradients(gradients: list[Tensor]) -> None:
    """Clip gradients in place by their norm; to zero where it is not finite."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    clipped = (_GRADIENT_NORM / (norm + 1e-9)).clamp(max=1.0)
    scale = torch.where(torch.isfinite(norm), clipped, torch.zeros_like(norm))
    for gradient in gradients:
        gradient.nan_to_num_(0.0, 0.0, 0.0)
    torch._foreach_mul_(gradients, scale)


@torch.no_grad()
def drift(
    net: GraphNet, data: TrajectorySet, *, steps: int, count: int, seed: int = 0
) -> dict[str, list[float]]:
    """How far rollouts from the first frame are off.

    Args:
        net: The network.
        data: Trajectories.
        steps: Steps of the rollouts.
        count: Number of trajectories.
        seed: Seed of their choice.

    Returns:
        Mean position (% of 2 LENGTH) and rotation (degrees) after a quarter, half and all of the
        steps, and over all of them.
    """
    device = data.motion.device
    order = torch.randperm(len(data.motion), generator=torch.Generator().manual_seed(seed))
    rows = order[:count].to(device)
    window = data.window(torch.stack([rows, torch.zeros_like(rows)], 1), steps)
    face_pairs = _FACE_PAIRS_ON_GPU if device.type == "cuda" else None
    states = rollout_states(
        net,
        window.bodies,
        window.state(0),
        window.gravity,
        steps=steps,
        dt=data.dt,
        search=ContactSearch(window.pairs, face_pairs),
    )
    distances = []
    angles = []
    for i, state in enumerate(states):
        true = window.state(i + 1)
        distances.append((state.position - true.position).norm(dim=1) / (2 * LENGTH) * 100)
        cosine = ((state.orientation * true.orientation).sum((1, 2)) - 1) / 2
        angles.append(torch.rad2deg(torch.arccos(cosine.clamp(-1, 1))))
    shown = (steps // 4 - 1, steps // 2 - 1, steps - 1)
    return {
        "position": [float(distances[i].mean()) for i in shown],
        "rotation": [float(angles[i].mean()) for i in shown],
        "position_mean": [float(torch.stack(distances).mean())],
        "rotation_mean": [float(torch.stack(angles).mean())],
    }
