"""Training of the graph network on scaled trajectories: short differentiable rollouts from recorded
states, on a CPU or a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.nets.mesh_graph import LENGTH, Floor, GraphNet, step_with_contacts
from clashsim.nets.nearest_points import attach_point_gradients, find_box_contacts
from clashsim.nets.rigid_bodies import (
    BoxTensors,
    RigidBodies,
    RigidBodyState,
    boxes_from_tensors,
    cross,
    free_motion,
    gather_rows,
    rotate,
)

_KEPT = 16  # face pairs of two boxes that are looked at on a GPU; more do not change the answer
_CLIP = 0.5


@dataclass(frozen=True)
class GraphTrainingConfig:
    """steps of Adam at batches of `batch` windows; windows grow through `lengths` frames; `seconds`
    may end it early, with the rate brought down in time.
    """

    steps: int = 6000
    batch: int = 2048
    lengths: tuple[int, ...] = (1, 2, 4, 6, 8)
    rate: float = 1e-3
    seconds: float = float("inf")
    average: float = 0.998  # of the weights, over steps
    report: int = 200


@dataclass(frozen=True, eq=False)
class TrajectorySet:
    """Trajectories of one number of boxes on a device: motion (n, T, k, 18) of centres of mass,
    place, turn, velocity, spin; and what the boxes are.
    """

    motion: Tensor
    parts: Mapping[str, Tensor]
    starts: Tensor  # (w, 2) trajectory and frame of windows worth learning from
    dt: float

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], dt: float, device: str, longest: int) -> TrajectorySet:
        n, t, _ = arrays["states"].shape
        k = arrays["mass"].shape[1]
        rows = torch.tensor(arrays["states"], dtype=torch.float64, device=device)
        qpos, qvel = rows[..., : 7 * k].reshape(n, t, k, 7), rows[..., 7 * k :].reshape(n, t, k, 6)
        parts = {
            key: torch.tensor(value, dtype=torch.float64, device=device)
            for key, value in arrays.items()
            if key != "states"
        }
        turn = _matrices(qpos[..., 3:])
        arm, spin = (
            rotate(turn, parts["centre"][:, None].expand(n, t, k, 3)),
            rotate(turn, qvel[..., 3:]),
        )
        motion = torch.cat(
            [qpos[..., :3] + arm, turn.flatten(-2), qvel[..., :3] + cross(spin, arm), spin], -1
        )
        moving = (motion[..., 12:].abs().amax(-1) > 0.02).any(
            2
        )  # (n, T): what lies still is learnt from fewer windows
        keep = moving | (
            torch.rand(moving.shape, generator=torch.Generator().manual_seed(0)).to(device) < 0.1
        )
        keep[:, max(t - longest, 1) :] = False
        return TrajectorySet(motion, parts, torch.nonzero(keep), dt)

    def window(
        self, rows: Tensor, length: int
    ) -> tuple[RigidBodies, Tensor, Tensor, Tensor | None]:
        """Bodies of windows (b, 2), their motion (length + 1, b k, 18), gravity (b k, 3) and pairs
        that may collide.
        """
        i, f = rows[:, 0], rows[:, 1]
        k = self.motion.shape[2]
        frames = f[:, None] + torch.arange(length + 1, device=f.device)
        motion = self.motion[i[:, None], frames].permute(1, 0, 2, 3).reshape(length + 1, -1, 18)
        p = {key: value[i] for key, value in self.parts.items()}
        b = len(i)
        scene = torch.arange(b, device=i.device).repeat_interleave(k)
        boxes = BoxTensors(
            p["half"].reshape(-1, 3),
            p["mass"].reshape(-1),
            p["inertia"].reshape(-1, 3),
            p["centre"].reshape(-1, 3),
            p["contact"].repeat_interleave(k, 0),
            scene,
            torch.zeros(b * k, dtype=torch.float64, device=i.device),
            p["rounding"].reshape(-1),
        )
        bodies = boxes_from_tensors(boxes)
        down = torch.zeros(b * k, 3, dtype=torch.float64, device=i.device)
        down[:, 2] = -p["gravity"].repeat_interleave(k)
        return bodies, motion, down, all_pairs(b, k, i.device)


def all_pairs(scenes: int, k: int, device: str | torch.device) -> Tensor | None:
    """Pairs (P, 2) of bodies in the same of many scenes of k bodies each."""
    if k == 1:
        return None
    one = torch.triu_indices(k, k, 1, device=device).T
    return (one + k * torch.arange(scenes, device=device)[:, None, None]).reshape(-1, 2)


def unpacked(motion: Tensor) -> RigidBodyState:
    """A state from rows (O, 18)."""
    return RigidBodyState(
        motion[:, :3], motion[:, 3:12].reshape(-1, 3, 3), motion[:, 12:15], motion[:, 15:]
    )


def rollout_states(
    net: GraphNet,
    bodies: RigidBodies,
    state: RigidBodyState,
    gravity: Tensor,
    *,
    steps: int,
    dt: float,
    pairs: Tensor | None,
    kept: int | None = None,
) -> list[RigidBodyState]:
    """States after each of some steps, differentiable; collision detection by the batched search."""
    up = torch.zeros(3, dtype=torch.float64, device=state.position.device)
    up[2] += 1.0
    floor = Floor(up)
    out = []
    for _ in range(steps):
        free = free_motion(bodies, state, gravity, dt)
        contacts = find_box_contacts(bodies, state, floor, pairs, kept=kept)
        state = step_with_contacts(
            net,
            bodies,
            state,
            free,
            attach_point_gradients(bodies, state, contacts, floor),
            floor=floor,
            dt=dt,
        )
        out.append(state)
    return out


def misfit(bodies: RigidBodies, state: RigidBodyState, true: RigidBodyState, dt: float) -> Tensor:
    """How far corners are off in place and in velocity (O,), in units of LENGTH and of LENGTH a
    step, robust.
    """
    owner = bodies.owner
    arms = [rotate(gather_rows(s.orientation, owner), bodies.corner) for s in (state, true)]
    off = gather_rows(state.position - true.position, owner) + arms[0] - arms[1]
    speed = (
        gather_rows(state.velocity - true.velocity, owner)
        + cross(gather_rows(state.angular_velocity, owner), arms[0])
        - cross(gather_rows(true.angular_velocity, owner), arms[1])
    )
    total = torch.zeros_like(off[:, 0])
    for e, small in ((off / LENGTH, 0.001), (speed * dt / LENGTH, 0.001)):
        square = (e * e).sum(1)
        total = total + torch.sqrt(square + small**2) - small
    return (
        torch.zeros(len(bodies), dtype=off.dtype, device=off.device).index_add(0, owner, total) / 8
    )


def train(
    net: GraphNet,
    sets: Sequence[TrajectorySet],
    config: GraphTrainingConfig,
    *,
    seed: int,
    shares: Sequence[float] | None = None,
    log: Callable[[str], None] = print,
) -> GraphNet:
    """Train a network in place on windows of the sets, in turn by their shares; returns it with
    averaged weights.

    On a GPU a step is thousands of small kernels: each kind of step is recorded once as a CUDA
    graph and replayed.
    """
    device = sets[0].motion.device
    net = net.to(device).train()
    generator = torch.Generator().manual_seed(seed)
    weights = list(net.parameters())
    rate = torch.tensor(config.rate, device=device)
    optimiser = torch.optim.AdamW(
        weights, lr=rate, weight_decay=1e-5, capturable=device.type == "cuda"
    )
    slow = [w.detach().clone() for w in weights]
    steppers: dict[tuple[int, int], _Stepper] = {}
    begin, total, share = time.monotonic(), 0.0, torch.tensor(shares or [1.0] * len(sets))
    for step in range(config.steps):
        done = max(step / config.steps, (time.monotonic() - begin) / config.seconds)
        if done >= 1:
            break
        rate.fill_(
            config.rate
            * min(1.0, (step + 1) / 200)
            * (0.01 + 0.99 * 0.5 * (1 + float(np.cos(np.pi * done))))
        )
        which = int(torch.multinomial(share, 1, generator=generator))
        length = config.lengths[
            min(int(done * 1.25 * len(config.lengths)), len(config.lengths) - 1)
        ]
        data = sets[which]
        size = max(config.batch // data.motion.shape[2] ** 2, 16)
        rows = data.starts[torch.randint(len(data.starts), (size,), generator=generator).to(device)]
        if (which, length) not in steppers:
            steppers[which, length] = _Stepper(net, optimiser, data, length)
        loss = steppers[which, length](rows)
        torch._foreach_lerp_(
            slow, [w.detach() for w in weights], 1 - min(config.average, step / (step + 10))
        )
        if step % 10 == 0:
            total = 0.9 * total + 0.1 * float(loss) if step else float(loss)
        if (step + 1) % config.report == 0:
            log(
                f"step {step + 1} length {length} loss {total:.5f} {time.monotonic() - begin:.0f} s"
            )
    with torch.no_grad():
        for w, s in zip(weights, slow, strict=True):
            w.copy_(s)
    return net.eval()


class _Stepper:
    """One step of the optimiser on windows of one set and length; on a GPU recorded at its first
    call.
    """

    def __init__(
        self, net: GraphNet, optimiser: torch.optim.Optimizer, data: TrajectorySet, length: int
    ) -> None:
        self.net, self.optimiser, self.data, self.length = net, optimiser, data, length
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: tuple[RigidBodies, Tensor, Tensor, Tensor | None] | None = None
        self.loss = torch.zeros(())

    def __call__(self, rows: Tensor) -> Tensor:
        fresh = self.data.window(rows, self.length)
        if rows.device.type != "cuda":
            self.held = fresh
            self._step(None)
            return self.loss
        if self.held is None:
            self.held = fresh
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self._step(_KEPT)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step(_KEPT)
        else:
            held, new = self.held, fresh
            for f in (
                "corner",
                "mass",
                "inertia",
                "centre",
                "contact",
                "drag",
                "rounding",
                "normal",
            ):
                getattr(held[0], f).copy_(getattr(new[0], f))
            held[1].copy_(new[1])
            held[2].copy_(new[2])
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _step(self, kept: int | None) -> None:
        assert self.held is not None
        bodies, motion, gravity, pairs = self.held
        states = rollout_states(
            self.net,
            bodies,
            unpacked(motion[0]),
            gravity,
            steps=self.length,
            dt=self.data.dt,
            pairs=pairs,
            kept=kept,
        )
        loss = torch.stack(
            [
                misfit(bodies, s, unpacked(motion[i + 1]), self.data.dt).mean()
                for i, s in enumerate(states)
            ]
        ).mean()
        weights = [w for w in self.net.parameters()]
        for w in weights:
            if w.grad is None:
                w.grad = torch.zeros_like(w)
        slopes = [w.grad for w in weights if w.grad is not None]
        torch._foreach_zero_(slopes)
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(slopes)))
        scale = torch.where(
            torch.isfinite(norm), (_CLIP / (norm + 1e-9)).clamp(max=1.0), torch.zeros_like(norm)
        )
        for s in slopes:
            s.nan_to_num_(0.0, 0.0, 0.0)
        torch._foreach_mul_(slopes, scale)
        self.optimiser.step()
        self.loss = loss.detach()


@torch.no_grad()
def drift(
    net: GraphNet, data: TrajectorySet, *, steps: int, count: int, seed: int = 0
) -> dict[str, list[float]]:
    """Mean place (% of 2 LENGTH) and turn (degrees) by which rollouts from the first frame are off
    after a quarter, half and all of the steps.
    """
    device = data.motion.device
    rows = torch.randperm(len(data.motion), generator=torch.Generator().manual_seed(seed))[
        :count
    ].to(device)
    bodies, motion, gravity, pairs = data.window(
        torch.stack([rows, torch.zeros_like(rows)], 1), steps
    )
    kept = _KEPT if device.type == "cuda" else None
    states = rollout_states(
        net, bodies, unpacked(motion[0]), gravity, steps=steps, dt=data.dt, pairs=pairs, kept=kept
    )
    out: dict[str, list[float]] = {"place": [], "turn": [], "place_mean": [], "turn_mean": []}
    far, turned = [], []
    for i, s in enumerate(states):
        true = unpacked(motion[i + 1])
        far.append((s.position - true.position).norm(dim=1) / (2 * LENGTH) * 100)
        cosine = ((s.orientation * true.orientation).sum((1, 2)) - 1) / 2
        turned.append(torch.rad2deg(torch.arccos(cosine.clamp(-1, 1))))
    for i in (steps // 4 - 1, steps // 2 - 1, steps - 1):
        out["place"].append(float(far[i].mean()))
        out["turn"].append(float(turned[i].mean()))
    out["place_mean"], out["turn_mean"] = (
        [float(torch.stack(far).mean())],
        [float(torch.stack(turned).mean())],
    )
    return out


def _matrices(quaternion: Tensor) -> Tensor:
    w, x, y, z = (quaternion / quaternion.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, -1).reshape(*quaternion.shape[:-1], 3, 3)
