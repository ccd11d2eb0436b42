"""A graph simulator adapted to a few real tosses: what the boxes are, what the contact is like, and
then the network itself, by slopes through whole rollouts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.params import to_unit
from clashsim.data.segmentation.free_flight import Flight
from clashsim.fit.graph_train import rollout_states
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
# How far each is expected from where MuJoCo's fit has it: contact on the unit scale, m, logarithms,
# m, m, m/s^2.
_SD = {
    "contact": 0.3,
    "centre": 0.002,
    "inertia": 0.08,
    "size": 0.0007,
    "rounding": 0.001,
    "gravity": 0.06,
    "drag": 0.05,
}


@dataclass(frozen=True)
class AdaptationConfig:
    """epochs over all tosses; rates: of the physical values (in their standard deviations) and of
    the network's weights; horizons in frames, from short to long.
    """

    epochs: int = 60
    values: float = 0.05
    weights: float = 1e-4
    anchor: float = 1.0  # pull of the weights to where they were, and of the values
    horizons: tuple[int, ...] = (12, 20, 30, 45, 60)
    seed: int = 0


class BoxParameters(nn.Module):
    """What a box and its contact are like, in standard deviations from where they were."""

    def __init__(self, theta: Mapping[str, float], box: Box) -> None:
        super().__init__()
        params = box_contact_params()
        unit = to_unit(params, np.array([theta.get(p.name, p.nominal) for p in params]))
        inertia = [theta.get(f"inertia_{a}", v) for a, v in zip("xyz", box.inertia, strict=True)]
        start = {
            "contact": unit,
            "centre": [theta.get(f"centre_{a}", 0.0) for a in "xyz"],
            "inertia": np.log(inertia),
            "size": [theta.get("half", box.half[0])],
            "rounding": [theta.get("rounding", 0.0)],
            "gravity": [theta.get("gravity", 9.81)],
            "drag": [theta.get("drag", 0.0)],
        }
        self.mass = box.mass
        self.start = {k: torch.tensor(np.asarray(v, float)) for k, v in start.items()}
        self.moves = nn.ParameterDict(
            {k: nn.Parameter(torch.zeros_like(v)) for k, v in self.start.items()}
        )

    def __getitem__(self, key: str) -> Tensor:
        return self.start[key] + _SD[key] * self.moves[key]

    def bodies(self, n: int) -> RigidBodies:
        """n boxes alike, each alone."""
        half, inertia = self["size"].expand(n, 3), torch.exp(self["inertia"]).expand(n, 3)
        mass, contact = (
            torch.full((n,), self.mass, dtype=torch.float64),
            self["contact"].clamp(-1.2, 1.2).expand(n, -1),
        )
        boxes = BoxTensors(
            half,
            mass,
            inertia,
            self["centre"].expand(n, 3),
            contact,
            torch.arange(n),
            self["drag"].clamp(min=0.0).expand(n),
            self["rounding"].clamp(min=0.0).expand(n),
        )
        return boxes_from_tensors(boxes)

    def named(self) -> dict[str, list[float]]:
        """Values as they are now."""
        return {k: [float(x) for x in self[k].detach()] for k in self.start}


@dataclass(frozen=True, eq=False)
class Ground:
    """Recorded tosses as tensors: place (n, T, 3) of the origin, turn (n, T, 3, 3), counts (n, T);
    weights (n, 2, T) that fit place and velocity to the flight.
    """

    position: Tensor
    orientation: Tensor
    counts: Tensor
    weights: Tensor
    angular_velocity: Tensor
    first: Tensor
    frames: Tensor
    dt: float

    @staticmethod
    def of(flights: Sequence[Flight], longest: int = 110) -> Ground:
        length = min(max(len(f.position) for f in flights), longest)
        index = [np.minimum(np.arange(length), len(f.position) - 1) for f in flights]
        weights = np.zeros((len(flights), 2, length))
        for i, f in enumerate(flights):
            n = min(f.frames, length)
            weights[i, :, :n] = np.linalg.pinv(np.stack([np.ones(n), np.arange(n) * f.dt], 1))
        stacked = [
            np.stack([f.position[k] for f, k in zip(flights, index, strict=True)]),
            np.stack([f.rotation[k] for f, k in zip(flights, index, strict=True)]),
            np.arange(length) < np.array([len(f.position) for f in flights])[:, None],
            weights,
            np.stack([f.angular_velocity for f in flights]),
            np.stack([f.orientation for f in flights]),
        ]
        place, turn, counts, w, spin, first = (torch.tensor(a) for a in stacked)
        return Ground(
            place,
            turn,
            counts,
            w,
            spin,
            first,
            torch.tensor([f.frames for f in flights]),
            flights[0].dt,
        )

    def start(self, centre: Tensor, gravity: Tensor) -> RigidBodyState:
        """Centres of mass at frame 0 on the parabolas that fit the flights, in the simulator's
        convention for velocities (`free_motion`).
        """
        t = torch.arange(self.position.shape[1], dtype=torch.float64) * self.dt
        fall = torch.zeros(len(t), 3, dtype=torch.float64)
        fall = torch.stack([fall[:, 0], fall[:, 1], -0.5 * t**2], 1) * gravity
        com = self.position + rotate(self.orientation, centre.expand_as(self.position)) - fall
        place, velocity = torch.einsum("nkt,nti->kni", self.weights, com)
        lift = torch.zeros(3, dtype=torch.float64)
        lift = torch.stack(
            [lift[0], lift[1], gravity[0] * self.dt / (2 * SUBSTEPS)]
        )  # the teacher's velocities run half a substep ahead
        return RigidBodyState(place, self.first, velocity + lift, self.angular_velocity)


def predict_tosses(
    net: GraphNet,
    values: Sequence[BoxParameters],
    flights: Sequence[Flight],
    *,
    longest: int = 10_000,
    batch: int = 128,
) -> np.ndarray:
    """qpos (m, n, T, 7) of the recorded origin over rollouts from the first frame, for m sets of
    values; tosses of like length are rolled out together.
    """
    order = np.argsort([len(f.position) for f in flights])
    width = min(max(len(f.position) for f in flights), longest)
    out = np.zeros((len(values), len(flights), width, 7))
    for chunk in (
        np.array_split(order, -(-len(order) * len(values) // batch))
        if len(order) * len(values) > batch
        else [order]
    ):
        ground = Ground.of([flights[i] for i in chunk], longest)
        place, turn = _origin_paths(net, values, ground)
        t = place.shape[2]
        out[:, chunk, :t, :3], out[:, chunk, :t, 3:] = (
            place,
            Rotation.from_matrix(turn.reshape(-1, 3, 3))
            .as_quat(scalar_first=True)
            .reshape(*turn.shape[:3], 4),
        )
        out[:, chunk, t:] = out[:, chunk, t - 1 : t]
    return out


@torch.no_grad()
def _origin_paths(
    net: GraphNet, values: Sequence[BoxParameters], ground: Ground
) -> tuple[np.ndarray, np.ndarray]:
    n = len(ground.position)
    bodies = join_bodies([v.bodies(n) for v in values])
    starts = [ground.start(v["centre"], v["gravity"]) for v in values]
    state = RigidBodyState(
        *(
            torch.cat([getattr(s, k) for s in starts])
            for k in ("position", "orientation", "velocity", "angular_velocity")
        )
    )
    gravity = torch.zeros(len(bodies), 3, dtype=torch.float64)
    gravity[:, 2] = -torch.cat([v["gravity"] for v in values]).repeat_interleave(n)
    path = [
        state,
        *rollout_states(
            net,
            bodies,
            state,
            gravity,
            steps=ground.position.shape[1] - 1,
            dt=ground.dt,
            pairs=None,
        ),
    ]
    shape = (len(values), n)
    place = np.stack(
        [
            (s.position - rotate(s.orientation, bodies.centre)).numpy().reshape(*shape, 3)
            for s in path
        ],
        2,
    )
    return place, np.stack([s.orientation.numpy().reshape(*shape, 3, 3) for s in path], 2)


def adapt(
    net: GraphNet,
    theta: Mapping[str, float],
    box: Box,
    flights: Sequence[Flight],
    config: AdaptationConfig = AdaptationConfig(),
    *,
    log: Callable[[str], None] = lambda text: None,
) -> tuple[GraphNet, BoxParameters]:
    """Descend on the misfit of whole rollouts from the first frame, over horizons that grow; values
    and weights are held near where they began.
    """
    net = copy.deepcopy(net).train()
    values, ground = BoxParameters(theta, box), Ground.of(flights)
    origin = [p.detach().clone() for p in net.parameters()]
    optimiser = torch.optim.Adam(
        [
            {"params": list(values.parameters()), "lr": config.values},
            {"params": list(net.parameters()), "lr": config.weights},
        ]
    )
    for epoch in range(config.epochs):
        done = epoch / config.epochs
        for group, rate in zip(
            optimiser.param_groups, (config.values, config.weights), strict=True
        ):
            group["lr"] = rate * 0.5 * (1 + float(np.cos(np.pi * done)))
        horizon = config.horizons[
            min(int(done * 1.4 * len(config.horizons)), len(config.horizons) - 1)
        ]
        steps = min(int(ground.frames.max()) + horizon, ground.position.shape[1] - 1)
        cost = _misfit(net, values, ground, steps, horizon)
        pull = (
            sum((m * m).sum() for m in values.moves.values()) / 200
            + sum(((p - o) ** 2).sum() for p, o in zip(net.parameters(), origin, strict=True))
            * config.anchor
        )
        optimiser.zero_grad(set_to_none=True)
        (cost + config.anchor * pull / len(flights)).backward()
        nn.utils.clip_grad_norm_(values.parameters(), 1.0)
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimiser.step()
        log(f"epoch {epoch} horizon {horizon} loss {float(cost.detach()):.4f}")
    return net.eval(), values


def _misfit(
    net: GraphNet, values: BoxParameters, ground: Ground, steps: int, horizon: int
) -> Tensor:
    """Robust mean misfit of corners, in half widths, from the last frame of flight to `horizon`
    frames on.
    """
    n = len(ground.position)
    bodies = values.bodies(n)
    gravity = torch.stack(
        [
            torch.zeros(1, dtype=torch.float64),
            torch.zeros(1, dtype=torch.float64),
            -values["gravity"],
        ],
        1,
    ).expand(n, 3)
    states = rollout_states(
        net,
        bodies,
        ground.start(values["centre"], values["gravity"]),
        gravity,
        steps=steps,
        dt=ground.dt,
        pairs=None,
    )
    corners = bodies.corner.reshape(n, 8, 3)
    fixed = corners.detach()
    total, count = torch.zeros((), dtype=torch.float64), 0.0
    for i, s in enumerate(states, start=1):
        use = ((i >= ground.frames) & (i <= ground.frames + horizon) & ground.counts[:, i]).to(
            torch.float64
        )
        if not bool(use.any()):
            continue
        turn = ground.orientation[:, i]
        place = ground.position[:, i] + rotate(turn, values["centre"].expand(n, 3))
        off = (s.position - place)[:, None] + rotate((s.orientation - turn)[:, None], fixed)
        far = torch.sqrt((off * off).sum(2).mean(1) + 1e-8) / 0.05
        total = total + (use * far / (1 + far / 0.6)).sum()
        count += float(use.sum())
    return total / max(count, 1.0)
