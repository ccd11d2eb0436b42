"""Training of the graph network on simulated trajectories, on a CPU or a GPU.

The loss is the error of short differentiable rollouts that begin at states of the trajectories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from clashsim.core.files import write_atomic
from clashsim.fit.trajectory_set import TrajectorySet, Window
from clashsim.nets.contact_features import GRAVITY, USUAL_STEP, FreeStep
from clashsim.nets.face_search import ContactSearch, SearchPlaces, find_contacts
from clashsim.nets.mesh_graph import GraphNet, step_with_contacts
from clashsim.nets.nearest_points import attach_point_gradients
from clashsim.nets.rigid_bodies import (
    RigidBodies,
    RigidBodyState,
    cross,
    free_motion,
    gather_rows,
    rotate,
)

_PLACES_MARGIN = 1.4  # places for contacts on a GPU, over the most that sampled batches have
_PLACES_BATCHES = 6  # batches that are sampled for it
_GRADIENT_NORM = 0.5  # at which gradients are clipped
_LAST_RATE = 0.01  # final learning rate, as a share of the highest one
_GROWTH = 1.25  # windows have their final length after 1 / _GROWTH of the training
# Error at which the loss turns from quadratic to linear, in the unit of velocity.
_ROUNDING = 0.001
_SMOOTHING_EVERY = 10  # steps after which the reported loss is updated
_SMOOTHING = 0.9  # share of the old value in the reported loss
_WEIGHT_DECAY = 1e-5
_MIN_BATCH = 16  # windows
_AVERAGING_START = 10  # steps over which the running average of the weights becomes slow


@dataclass(frozen=True)
class GraphTrainingConfig:
    """How the network is trained.

    Attributes:
        steps: Steps of AdamW.
        batch: Windows per step for sets of one body; for k bodies it is divided by k^2.
        lengths: Lengths of the windows in time steps, used one after the other during training.
        rate: Highest learning rate.
        seconds: Time limit; the schedule of the learning rate ends with it.
        average: Share of the old value in each update of the averaged weights.
        report: Steps between two reports.
        warmup: Steps in which the learning rate rises.
        call_seconds: Time limit of one call; a later one continues from the checkpoint.
        checkpoint_seconds: Time between two checkpoints.
    """

    steps: int = 6000
    batch: int = 2048
    lengths: tuple[int, ...] = (1, 2, 4, 6, 8)
    rate: float = 1e-3
    seconds: float = float("inf")
    average: float = 0.998
    report: int = 200
    warmup: int = 200
    call_seconds: float = float("inf")
    checkpoint_seconds: float = 60.0

    def learning_rate(self, step: int, done: float) -> float:
        """Learning rate at a step after a share `done` of the training: warm-up, then cosine."""
        warmup = min(1.0, (step + 1) / self.warmup)
        cosine = 0.5 * (1 + float(np.cos(np.pi * done)))
        return self.rate * warmup * (_LAST_RATE + (1 - _LAST_RATE) * cosine)

    def windows(self, num_bodies: int) -> int:
        """Windows per step of a set."""
        return max(self.batch // num_bodies**2, _MIN_BATCH)

    def window_length(self, done: float) -> int:
        """Length of a window in time steps after a share `done` of the training."""
        index = int(done * _GROWTH * len(self.lengths))
        return self.lengths[min(index, len(self.lengths) - 1)]


def rollout_states(
    net: GraphNet,
    bodies: RigidBodies,
    state: RigidBodyState,
    gravity: Tensor,
    *,
    steps: int,
    dt: float,
    search: ContactSearch,
) -> list[RigidBodyState]:
    """Simulate bodies with the network, differentiably, with batched collision detection.

    Args:
        net: The network.
        bodies: Properties of the O bodies.
        state: State of the bodies at the start.
        gravity: Acceleration of each body (O, 3), m/s^2.
        steps: Number of steps.
        dt: Duration of a step, s.
        search: What collision detection compares.

    Returns:
        The states after each step.
    """
    states = []
    for _ in range(steps):
        free = free_motion(bodies, state, gravity, dt)
        found = find_contacts(bodies, state, search)
        contacts = attach_point_gradients(bodies, state, found)
        state = step_with_contacts(net, FreeStep(bodies, state, free, gravity, dt), contacts)
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
        Sum of position error (in the way of the unit of velocity per step) and velocity error (in
        the unit of velocity), the mean over the corners of each body, (O,).
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
    travel = torch.sqrt(GRAVITY * bodies.length) * (dt / USUAL_STEP)
    total = torch.zeros_like(position_error[:, 0])
    for error in (position_error, velocity_error * dt):
        share = error / gather_rows(travel, owner)[:, None]
        square = (share * share).sum(1)
        total = total + torch.sqrt(square + _ROUNDING**2) - _ROUNDING
    zero = torch.zeros(len(bodies), dtype=total.dtype, device=total.device)
    corners = zero.index_add(0, owner, bodies.real)
    return zero.index_add(0, owner, bodies.real * total) / corners


def train(
    net: GraphNet,
    sets: Sequence[TrajectorySet],
    config: GraphTrainingConfig,
    *,
    seed: int,
    shares: Sequence[float] | None = None,
    checkpoint: Path | None = None,
    log: Callable[[str], None] = print,
) -> GraphNet:
    """Train a network in place on windows of the sets.

    On a GPU a step consists of thousands of small kernels. To save their launch times, the step of
    each set and window length is recorded once as a CUDA graph and then replayed.

    Args:
        net: The network.
        sets: Trajectories, one set for each number of bodies and of places.
        config: How to train.
        seed: Seed of the choice of windows.
        shares: Shares of the steps in which each set is used; equal by default.
        checkpoint: File that training is saved to, and continued from where it exists.
        log: Called with one line per report.

    Returns:
        The network with averaged weights.
    """
    device = sets[0].motion.device
    net = net.to(device).train()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    run = _Training(net, config)
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint)
        log(f"continues from step {run.step}, after {run.seconds:.0f} s of training")
    generator = torch.Generator().manual_seed(seed + run.step)
    steppers: dict[tuple[int, int], _Stepper] = {}
    share = torch.tensor(shares or [1.0] * len(sets))
    seconds_before = run.seconds
    begin = saved = time.monotonic()
    smoothed_loss = float("nan")
    while run.done < 1 and time.monotonic() - begin < config.call_seconds:
        run.rate.fill_(config.learning_rate(run.step, run.done))
        chosen_set = int(torch.multinomial(share, 1, generator=generator))
        length = config.window_length(run.done)
        if all(key[1] != length for key in steppers):
            steppers.clear()  # and with it the memory of graphs for another length
        data = sets[chosen_set]
        size = config.windows(data.num_bodies)
        chosen = torch.randint(len(data.starts), (size,), generator=generator)
        if (chosen_set, length) not in steppers:
            steppers[chosen_set, length] = _Stepper(net, run.optimiser, data, length)
        loss = steppers[chosen_set, length](data.starts[chosen.to(device)])
        run.average()
        if np.isnan(smoothed_loss):
            smoothed_loss = float(loss)
        elif run.step % _SMOOTHING_EVERY == 0:
            smoothed_loss = _SMOOTHING * smoothed_loss + (1 - _SMOOTHING) * float(loss)
        now = time.monotonic()
        run.step += 1
        run.seconds = seconds_before + now - begin
        if run.step % config.report == 0:
            log(f"step {run.step} length {length} loss {smoothed_loss:.5f} {run.seconds:.0f} s")
        if checkpoint is not None and now - saved > config.checkpoint_seconds:
            run.save(checkpoint)
            saved = now
    if checkpoint is not None:
        run.save(checkpoint)
    with torch.no_grad():
        for weight, average in zip(run.weights, run.averaged, strict=True):
            weight.copy_(average)
    return net.eval()


class _Training:
    """Weights, their running average and the optimiser's state, which a checkpoint holds.

    Attributes:
        weights: Of the network.
        averaged: Their running average.
        rate: Learning rate.
        optimiser: AdamW.
        step: Steps that were made.
        seconds: Time that they took, s.
    """

    def __init__(self, net: GraphNet, config: GraphTrainingConfig) -> None:
        self.config = config
        self.weights = list(net.parameters())
        device = self.weights[0].device
        self.averaged = [weight.detach().clone() for weight in self.weights]
        self.rate = torch.tensor(config.rate, device=device)
        self.optimiser = torch.optim.AdamW(
            self.weights,
            lr=self.rate,
            weight_decay=_WEIGHT_DECAY,
            capturable=device.type == "cuda",
        )
        self.step = 0
        self.seconds = 0.0

    @property
    def done(self) -> float:
        """Share of the training that is over."""
        return max(self.step / self.config.steps, self.seconds / self.config.seconds)

    def average(self) -> None:
        """Move the running average; at first it follows the weights quickly."""
        share = 1 - min(self.config.average, self.step / (self.step + _AVERAGING_START))
        torch._foreach_lerp_(self.averaged, [weight.detach() for weight in self.weights], share)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        tensors = {}
        for i, weight in enumerate(self.weights):
            tensors[f"weight.{i}"] = weight.detach()
            tensors[f"average.{i}"] = self.averaged[i]
            for name, value in self.optimiser.state.get(weight, {}).items():
                tensors[f"{name}.{i}"] = value
        content = {name: value.cpu().contiguous() for name, value in tensors.items()}
        about = {"step": str(self.step), "seconds": str(self.seconds)}
        write_atomic(path, save(content, metadata=about))

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        device = self.rate.device
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        with torch.no_grad():
            for i, weight in enumerate(self.weights):
                weight.copy_(tensors[f"weight.{i}"])
                self.averaged[i].copy_(tensors[f"average.{i}"])
        for i, weight in enumerate(self.weights):
            state = {}
            for name in ("step", "exp_avg", "exp_avg_sq"):
                if f"{name}.{i}" in tensors:
                    state[name] = tensors[f"{name}.{i}"]
            if state and not self.optimiser.defaults["capturable"]:
                state["step"] = state["step"].cpu()
            self.optimiser.state[weight].update(state)
        self.step = int(about["step"])
        self.seconds = float(about["seconds"])


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
            self.step(None)
            return self.loss
        if self.held is None:
            self.held = fresh
            self._record(measure_places(self.data, len(rows), seed=len(rows)))
        else:
            self.held.overwrite(fresh)
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _record(self, places: SearchPlaces) -> None:
        """Record a step as a CUDA graph, after two steps as the warm-up that CUDA graphs need."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step(places)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step(places)

    def step(self, places: SearchPlaces | None) -> None:
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
            search=window.search(places),
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


def measure_places(data: TrajectorySet, windows: int, *, seed: int) -> SearchPlaces:
    """Places that searches of batches of a set need, from several random batches."""
    generator = torch.Generator().manual_seed(seed)
    device = data.starts.device
    needed = torch.zeros(len(fields(SearchPlaces)), dtype=torch.long, device=device)
    for _ in range(_PLACES_BATCHES):
        chosen = torch.randint(len(data.starts), (windows,), generator=generator)
        window = data.window(data.starts[chosen.to(device)], 1)
        for frame in (0, 1):
            search = window.search(None, needed)
            find_contacts(window.bodies, window.state(frame), search)
    return SearchPlaces(*(int(_PLACES_MARGIN * count) + 1 for count in needed.tolist()))


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
        "position" and "rotation": mean errors of position (% of the width of an equal cube, twice
        the unit of length) and rotation (degrees) after a quarter, half and all of the steps;
        "position_mean" and "rotation_mean": the means over all steps; "position_median" and
        "rotation_median": medians over bodies of the means over all steps.
    """
    device = data.motion.device
    order = torch.randperm(len(data.motion), generator=torch.Generator().manual_seed(seed))
    rows = order[:count].to(device)
    window = data.window(torch.stack([rows, torch.zeros_like(rows)], 1), steps)
    states = rollout_states(
        net,
        window.bodies,
        window.state(0),
        window.gravity,
        steps=steps,
        dt=data.dt,
        search=window.search(None),
    )
    width = 2 * window.bodies.length
    distances = []
    angles = []
    for i, state in enumerate(states):
        true = window.state(i + 1)
        distances.append((state.position - true.position).norm(dim=1) / width * 100)
        cosine = ((state.orientation * true.orientation).sum((1, 2)) - 1) / 2
        angles.append(torch.rad2deg(torch.arccos(cosine.clamp(-1, 1))))
    shown = (steps // 4 - 1, steps // 2 - 1, steps - 1)
    position, rotation = torch.stack(distances), torch.stack(angles)
    return {
        "position": [float(position[i].mean()) for i in shown],
        "rotation": [float(rotation[i].mean()) for i in shown],
        "position_mean": [float(position.mean())],
        "rotation_mean": [float(rotation.mean())],
        "position_median": [float(position.mean(0).median())],
        "rotation_median": [float(rotation.mean(0).median())],
    }
