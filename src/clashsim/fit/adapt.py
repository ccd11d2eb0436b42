"""Adaptation of a graph network to a few real tosses.

Physical values of the box, contact parameters and the weights of the network are fitted together,
by gradients through whole rollouts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from clashsim.core.box import Box
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.params import to_unit
from clashsim.data.segmentation.free_flight import Flight
from clashsim.fit.graph_train import rollout_states
from clashsim.fit.recorded_tosses import RecordedTosses
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.rigid_bodies import (
    BoxTensors,
    RigidBodies,
    RigidBodyState,
    boxes_from_tensors,
    join_bodies,
    rotate,
)

CONTACT = ("friction", "stiffness", "damping", "d0", "width")
# Prior standard deviations about the values that were identified in MuJoCo.
_STD = {
    "contact": 0.3,  # unit scale
    "centre": 0.002,  # m
    "inertia": 0.08,  # logarithm
    "size": 0.0007,  # m
    "rounding": 0.001,  # m
    "gravity": 0.06,  # m/s^2
    "drag": 0.05,  # 1/s
}
_CONTACT_LIMIT = 1.2  # contact parameters are clipped here on the unit scale
_HALF_WIDTH = 0.05  # m, the unit of misfits
_SATURATION = 0.6  # misfit, in half widths, at which a frame's loss is half its misfit
_GROWTH = 1.4  # the horizon has its final length after 1 / _GROWTH of the epochs
_PRIOR_SCALE = 200  # by which the prior of the values is divided in the loss
_VALUES_GRADIENT_NORM = 1.0  # at which the gradients of the values are clipped
_WEIGHTS_GRADIENT_NORM = 0.1  # at which the gradients of the network's weights are clipped
_MIN_SQUARED_MISFIT = 1e-8  # m^2, keeps the gradient of the root finite


@dataclass(frozen=True)
class AdaptationConfig:
    """How values and network are adapted.

    Attributes:
        epochs: Steps over all tosses.
        values: Learning rate of the physical values, in their standard deviations.
        weights: Learning rate of the network's weights.
        anchor: Weight of the penalties that hold weights and values near their initial ones.
        horizons: Numbers of frames after the first contact that enter the loss, one after the other
            in the course of the epochs.
    """

    epochs: int = 60
    values: float = 0.05
    weights: float = 1e-4
    anchor: float = 1.0
    horizons: tuple[int, ...] = (12, 20, 30, 45, 60)

    def horizon(self, done: float) -> int:
        """Frames after the first contact that enter the loss after a share `done` of the epochs."""
        index = int(done * _GROWTH * len(self.horizons))
        return self.horizons[min(index, len(self.horizons) - 1)]


class BoxParameters(nn.Module):
    """Trainable values of a box and its contact, as differences from their initial values.

    The differences (`moves`) are in prior standard deviations; indexing by name gives the values.

    Args:
        theta: Identified values by name; missing ones are nominal, or those of the box.
        box: The box.
    """

    def __init__(self, theta: Mapping[str, float], box: Box) -> None:
        super().__init__()
        params = box_contact_params()
        contact = np.array([theta.get(param.name, param.nominal) for param in params])
        inertia = []
        for axis, value in zip("xyz", box.inertia, strict=True):
            inertia.append(theta.get(f"inertia_{axis}", value))
        start = {
            "contact": to_unit(params, contact),
            "centre": [theta.get(f"centre_{axis}", 0.0) for axis in "xyz"],
            "inertia": np.log(inertia),
            "size": [theta.get("half", box.half[0])],
            "rounding": [theta.get("rounding", 0.0)],
            "gravity": [theta.get("gravity", 9.81)],
            "drag": [theta.get("drag", 0.0)],
        }
        self.mass = box.mass
        self.start = {}
        moves = {}
        for name, numbers in start.items():
            self.start[name] = torch.tensor(np.asarray(numbers, float))
            moves[name] = nn.Parameter(torch.zeros_like(self.start[name]))
        self.moves = nn.ParameterDict(moves)

    def __getitem__(self, name: str) -> Tensor:
        return self.start[name] + _STD[name] * self.moves[name]

    def bodies(self, n: int) -> RigidBodies:
        """n equal boxes, each alone in its scene."""
        contact = self["contact"].clamp(-_CONTACT_LIMIT, _CONTACT_LIMIT)
        boxes = BoxTensors(
            half=self["size"].expand(n, 3),
            mass=torch.full((n,), self.mass, dtype=torch.float64),
            inertia=torch.exp(self["inertia"]).expand(n, 3),
            centre=self["centre"].expand(n, 3),
            contact=contact.expand(n, -1),
            scene=torch.arange(n),
            drag=self["drag"].clamp(min=0.0).expand(n),
            rounding=self["rounding"].clamp(min=0.0).expand(n),
        )
        return boxes_from_tensors(boxes)

    def gravity_vectors(self, n: int) -> Tensor:
        """Gravity (n, 3) of n boxes, m/s^2."""
        zero = torch.zeros(1, dtype=torch.float64)
        return torch.stack([zero, zero, -self["gravity"]], 1).expand(n, 3)

    def named(self) -> dict[str, list[float]]:
        """The present values by name."""
        return {name: self[name].detach().tolist() for name in self.start}

    def prior(self) -> Tensor:
        """Sum of the squared differences from the initial values, in prior standard deviations."""
        squares = [(move * move).sum() for move in self.moves.values()]
        return sum(squares, start=torch.zeros((), dtype=torch.float64))


def predict_tosses(
    net: GraphNet,
    values: Sequence[BoxParameters],
    flights: Sequence[Flight],
    *,
    longest: int = 10_000,
    batch: int = 128,
) -> np.ndarray:
    """Simulate tosses from their first frame; tosses of similar length form a batch.

    Args:
        net: The network.
        values: m sets of values of the box.
        flights: n recorded flights.
        longest: Largest number of frames of a toss; later ones are dropped.
        batch: Largest number of rollouts in one batch.

    Returns:
        Poses (m, n, T, 7) of the body's recorded origin: position (m), quaternion (wxyz). After its
        own end a toss keeps its last pose.
    """
    lengths = [len(flight.position) for flight in flights]
    order = np.argsort(lengths)
    out = np.zeros((len(values), len(flights), min(max(lengths), longest), 7))
    count = len(order) * len(values)
    chunks = [order]
    if count > batch:
        num_chunks = -(-count // batch)  # rounded up
        chunks = np.array_split(order, num_chunks)
    for chunk in chunks:
        tosses = RecordedTosses.of([flights[i] for i in chunk], longest)
        position, orientation = _origin_paths(net, values, tosses)
        t = position.shape[2]
        matrices = Rotation.from_matrix(orientation.reshape(-1, 3, 3))
        quaternion = matrices.as_quat(scalar_first=True).reshape(*orientation.shape[:3], 4)
        out[:, chunk, :t, :3] = position
        out[:, chunk, :t, 3:] = quaternion
        out[:, chunk, t:] = out[:, chunk, t - 1 : t]
    return out


@torch.no_grad()
def _origin_paths(
    net: GraphNet, values: Sequence[BoxParameters], tosses: RecordedTosses
) -> tuple[np.ndarray, np.ndarray]:
    """Simulated positions (m, n, T, 3), m, and orientations (m, n, T, 3, 3) of the origin."""
    n = len(tosses.position)
    shape = (len(values), n)
    bodies = join_bodies([one.bodies(n) for one in values])
    starts = [tosses.start(one["centre"], one["gravity"]) for one in values]
    start = RigidBodyState(
        torch.cat([state.position for state in starts]),
        torch.cat([state.orientation for state in starts]),
        torch.cat([state.velocity for state in starts]),
        torch.cat([state.angular_velocity for state in starts]),
    )
    gravity = torch.cat([one.gravity_vectors(n) for one in values])
    steps = tosses.position.shape[1] - 1
    later = rollout_states(net, bodies, start, gravity, steps=steps, dt=tosses.dt)
    positions = []
    orientations = []
    for state in [start, *later]:
        origin = state.position - rotate(state.orientation, bodies.centre)
        positions.append(origin.numpy().reshape(*shape, 3))
        orientations.append(state.orientation.numpy().reshape(*shape, 3, 3))
    return np.stack(positions, 2), np.stack(orientations, 2)


def adapt(
    net: GraphNet,
    theta: Mapping[str, float],
    box: Box,
    flights: Sequence[Flight],
    config: AdaptationConfig = AdaptationConfig(),
    *,
    log: Callable[[str], None] = lambda text: None,
) -> tuple[GraphNet, BoxParameters]:
    """Minimise the misfit of rollouts from the first frame, with a growing horizon.

    Penalties hold values and weights near their initial ones.

    Args:
        net: The network.
        theta: Values identified in MuJoCo, by name.
        box: The box.
        flights: The recorded flights.
        config: How to adapt.
        log: Called with one line per epoch.

    Returns:
        The adapted network and values.
    """
    net = copy.deepcopy(net).train()
    values = BoxParameters(theta, box)
    tosses = RecordedTosses.of(flights)
    initial_weights = [weight.detach().clone() for weight in net.parameters()]
    rates = (config.values, config.weights)
    optimiser = torch.optim.Adam(
        [
            {"params": list(values.parameters()), "lr": config.values},
            {"params": list(net.parameters()), "lr": config.weights},
        ]
    )
    for epoch in range(config.epochs):
        done = epoch / config.epochs
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * 0.5 * (1 + float(np.cos(np.pi * done)))
        horizon = config.horizon(done)
        loss = _misfit(net, values, tosses, horizon)
        moved = torch.zeros((), dtype=torch.float64)
        for weight, initial in zip(net.parameters(), initial_weights, strict=True):
            moved = moved + ((weight - initial) ** 2).sum()
        pull = values.prior() / _PRIOR_SCALE + moved * config.anchor
        optimiser.zero_grad(set_to_none=True)
        total = loss + config.anchor * pull / len(flights)
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(values.parameters(), _VALUES_GRADIENT_NORM)
        nn.utils.clip_grad_norm_(net.parameters(), _WEIGHTS_GRADIENT_NORM)
        optimiser.step()
        log(f"epoch {epoch} horizon {horizon} loss {float(loss.detach()):.4f}")
    return net.eval(), values


def _misfit(net: GraphNet, values: BoxParameters, tosses: RecordedTosses, horizon: int) -> Tensor:
    """Robust mean misfit of the corners, in half widths, from the first contact over a horizon."""
    n = len(tosses.position)
    bodies = values.bodies(n)
    last_frame = tosses.position.shape[1] - 1
    steps = min(int(tosses.contact_frames.max()) + horizon, last_frame)
    states = rollout_states(
        net,
        bodies,
        tosses.start(values["centre"], values["gravity"]),
        values.gravity_vectors(n),
        steps=steps,
        dt=tosses.dt,
    )
    corners = bodies.corner.reshape(n, 8, 3).detach()
    total = torch.zeros((), dtype=torch.float64)
    count = 0.0
    for i, state in enumerate(states, start=1):
        after_contact = i - tosses.contact_frames
        in_loss = (after_contact >= 0) & (after_contact <= horizon) & tosses.recorded[:, i]
        weight = in_loss.to(torch.float64)
        if not bool(in_loss.any()):
            continue
        orientation = tosses.orientation[:, i]
        centre = tosses.position[:, i] + rotate(orientation, values["centre"].expand(n, 3))
        rotation_error = rotate((state.orientation - orientation)[:, None], corners)
        off = (state.position - centre)[:, None] + rotation_error
        distance = torch.sqrt((off * off).sum(2).mean(1) + _MIN_SQUARED_MISFIT) / _HALF_WIDTH
        total = total + (weight * distance / (1 + distance / _SATURATION)).sum()
        count += float(weight.sum())
    return total / max(count, 1.0)
