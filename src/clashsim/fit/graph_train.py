"""Training of the graph network on simulated trajectories, on a CPU or a GPU.

The loss is the error of short differentiable rollouts that begin at states of the trajectories.
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

# Pairs of faces of two boxes that collision detection examines on a GPU; more of them do not change
# the result.
_FACE_PAIRS_ON_GPU = 16
_GRADIENT_NORM = 0.5  # at which gradients are clipped
_WARMUP_STEPS = 200  # in which the learning rate rises
_LAST_RATE = 0.01  # final learning rate, as a share of the highest one
_GROWTH = 1.25  # windows have their final length after 1 / _GROWTH of the training
_ROUNDING = 0.001  # error, in units of LENGTH, at which the loss turns from quadratic to linear
_SMOOTHING_EVERY = 10  # steps after which the reported loss is updated
_SMOOTHING = 0.9  # share of the old value in the reported loss
_WEIGHT_DECAY = 1e-5
_MIN_BATCH = 16  # windows
_AVERAGING_START = 10  # steps over which the running average of the weights becomes slow
_CORNERS = 8  # of a box


@dataclass(frozen=True)
class GraphTrainingConfig:
    """How the network is trained.

    Attributes:
        steps: Steps of AdamW.
        batch: Windows per step for sets of one box; for k boxes it is divided by k^2.
        lengths: Lengths of the windows in time steps, used one after the other during training.
        rate: Highest learning rate.
        seconds: Time limit; the schedule of the learning rate ends with it.
        average: Share of the old value in each update of the averaged weights.
        report: Steps between two reports.
    """

    steps: int = 6000
    batch: int = 2048
    lengths: tuple[int, ...] = (1, 2, 4, 6, 8)
    rate: float = 1e-3
    seconds: float = float("inf")
    average: float = 0.998
    report: int = 200

    def learning_rate(self, step: int, done: float) -> float:
        """Learning rate at a step after a share `done` of the training: warm-up, then cosine."""
        warmup = min(1.0, (step + 1) / _WARMUP_STEPS)
        cosine = 0.5 * (1 + float(np.cos(np.pi * done)))
        return self.rate * warmup * (_LAST_RATE + (1 - _LAST_RATE) * cosine)

    def window_length(self, done: float) -> int:
        """Length of a window in time steps after a share `done` of the training."""
        index = int(done * _GROWTH * len(self.lengths))
        return self.lengths[min(index, len(self.lengths) - 1)]


@dataclass(frozen=True, eq=False)
class ContactSearch:
    """The pairs that collision detection examines.

    Attributes:
        pairs: Indices (P, 2) of bodies that may collide; None if each body is alone in its scene.
        face_pairs: Number of pairs of faces of two boxes that are examined; None for all.
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
    """Simulate bodies with the network, differentiably, with batched collision detection.

    Args:
        net: The network.
        bodies: Properties of the O bodies.
        state: State of the bodies at the start.
        gravity: Acceleration of each body (O, 3), m/s^2.
        steps: Number of steps.
        dt: Duration of a step, s.
        search: The pairs that collision detection examines.

    Returns:
        The states after each step.
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
    """Robust error of the corners' positions and velocities.

    Args:
        bodies: Properties of the O bodies.
        state: Predicted state.
        true: True state.
        dt: Duration of a step, s.

    Returns:
        Sum of position error (in units of LENGTH) and velocity error (in LENGTH per step), the mean
        over the corners of each body, (O,).
    """
    owner = bodies.owner  # body of each corner
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
    return per_body.index_add(0, owner, total) / _CORNERS


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

    On a GPU a step consists of thousands of small kernels. To save their launch times, the step of
    each set and window length is recorded once as a CUDA graph and then replayed.

    Args:
        net: The network.
        sets: Trajectories, one set for each number of boxes.
        config: How to train.
        seed: Seed of the choice of windows.
        shares: Shares of the steps in which each set is used; equal by default.
        log: Called with one line per report.

    Returns:
        The network with averaged weights.
    """
    device = sets[0].motion.device
    net = net.to(device).train()
    generator = torch.Generator().manual_seed(seed)
    weights = list(net.parameters())
    rate = torch.tensor(config.rate, device=device)
    optimiser = torch.optim.AdamW(
        weights, lr=rate, weight_decay=_WEIGHT_DECAY, capturable=device.type == "cuda"
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
        chosen_set = int(torch.multinomial(share, 1, generator=generator))
        length = config.window_length(done)
        data = sets[chosen_set]
        num_boxes = data.motion.shape[2]
        size = max(config.batch // num_boxes**2, _MIN_BATCH)
        chosen = torch.randint(len(data.starts), (size,), generator=generator)
        if (chosen_set, length) not in steppers:
            steppers[chosen_set, length] = _Stepper(net, optimiser, data, length)
        loss = steppers[chosen_set, length](data.starts[chosen.to(device)])
        # At first the average follows the weights quickly.
        new_share = 1 - min(config.average, step / (step + _AVERAGING_START))
        torch._foreach_lerp_(averaged, [w.detach() for w in weights], new_share)
        if step == 0:
            smoothed_loss = float(loss)
        elif step % _SMOOTHING_EVERY == 0:
            smoothed_loss = _SMOOTHING * smoothed_loss + (1 - _SMOOTHING) * float(loss)
        if (step + 1) % config.report == 0:
            seconds = time.monotonic() - begin
            log(f"step {step + 1} length {length} loss {smoothed_loss:.5f} {seconds:.0f} s")
    with torch.no_grad():
        for weight, average in zip(weights, averaged, strict=True):
            weight.copy_(average)
    return net.eval()


class _Stepper:
    """One step of the optimiser on windows of one set and one length.

    On a GPU the first call records the step as a CUDA graph, and all calls replay it.
    """

    def __init__(
        self, net: GraphNet, optimiser: torch.optim.Optimizer, data: TrajectorySet, length: int
    ) -> None:
        self.net = net
        self.optimiser = optimiser
        self.data = data
        self.length = length
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: Window | None = None  # the windows that a step reads, always the same tensors
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
        """Record a step as a CUDA graph, after two steps as the warm-up that CUDA graphs need."""
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
        """Copy new windows into the tensors that the recorded graph reads."""
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
        """One step of the optimiser on `self.held`; the loss is left in `self.loss`."""
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
    """Scale gradients in place to at most `_GRADIENT_NORM`; to zero if their norm is not finite."""
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
    """Errors of rollouts from the first frame of trajectories.

    Args:
        net: The network.
        data: Trajectories.
        steps: Time steps of the rollouts.
        count: Number of trajectories.
        seed: Seed of the choice of trajectories.

    Returns:
        "position" and "rotation": mean errors of position (% of 2 LENGTH) and rotation (degrees)
        after a quarter, half and all of the steps; "position_mean" and "rotation_mean": the means
        over all steps.
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
