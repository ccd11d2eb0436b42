"""Distil MuJoCo's collisions of one pair into a network that predicts, and differentiates, outcomes
for any theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import (
    PLANAR_FEATURES,
    SPATIAL_FEATURES,
    ContactFrame,
    contact_frame,
)
from clashsim.core.impacts import Impacts
from clashsim.core.params import to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.nets.effects import analytic_params, apply_analytic_effects, network_params
from clashsim.nets.impact import ImpactNet


@dataclass(frozen=True)
class DistillationConfig:
    """How a network is distilled. The defaults are clashsim's; `PAPER` is the recipe of the CLASH
    paper to the letter.
    """

    width: int = 160
    layers: int = 5
    members: int = 2
    activation: Literal["silu", "relu", "tanh"] = "silu"
    steps: int = 6000
    batch: int = 1024
    rate: float = 3e-3
    decay: float = 1e-4
    loss: Literal["relative", "mse"] = "relative"
    schedule: bool = True


SHIPPED = DistillationConfig(
    width=192, layers=5, members=3, steps=20_000, batch=4096, rate=2e-3
)  # of the models that come with clashsim
PAPER = DistillationConfig(
    width=128,
    layers=3,
    members=1,
    activation="relu",
    steps=1000,
    batch=1024,
    rate=1e-3,
    decay=0.01,
    loss="mse",
    schedule=False,
)


@dataclass(frozen=True, eq=False)
class DistilledModel:
    """MuJoCo's collision of a scene's pair as a network, for any theta.

    `low` and `high` (inputs,) bound the inputs seen in training: contact features, then theta on
    its unit scale. `extent` is the standard deviation there of each column of `circumstances`.
    """

    scene: Scene
    net: ImpactNet
    low: np.ndarray
    high: np.ndarray
    extent: np.ndarray

    def change(self, features: Tensor, unit: Tensor) -> Tensor:
        """Dimensionless change of twist of each member (E, N, k); unit (N, p) is theta on [-1, 1].
        Differentiable in both.
        """
        return change(self.scene, self.net, features, unit)

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Predictions of the members, dimensionless, (E, N, k), for theta (p,) or (N, p)."""
        unit = to_unit(
            self.scene.params, np.broadcast_to(theta, (len(frame.features), len(self.scene.params)))
        )
        with torch.no_grad():
            return self.change(_single(frame.features), _single(unit)).double().numpy()

    def predict(self, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
        """Twist after impact (N, k)."""
        frame = contact_frame(self.scene, impacts)
        return frame.decode(self.members(frame, theta).mean(0))

    def std(self, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
        """Disagreement of the members (N, k), one standard deviation, in the units of the twist."""
        frame = contact_frame(self.scene, impacts)
        return frame.decode(self.members(frame, theta)).std(0)

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Whether each impact lies in the box of inputs that training covered, (N,)."""
        unit = to_unit(
            self.scene.params, np.broadcast_to(theta, (len(frame.features), len(self.scene.params)))
        )
        x, live = (
            np.column_stack([frame.features, unit[:, network_params(self.scene)]]),
            self.high - self.low > 1e-4,
        )
        slack = 0.15 * (
            self.high - self.low
        )  # a resting body has a measured velocity too, and a network does not err at once
        return ((x >= self.low - slack) & (x <= self.high + slack))[:, live].all(1)


def change(scene: Scene, net: ImpactNet, features: Tensor, unit: Tensor) -> Tensor:
    """What a network makes of contact features (N, f) and unit theta (N, p), exact effects
    included: (E, N, k).
    """
    out = net(torch.cat([features, unit[:, network_params(scene)]], -1))
    if not analytic_params(scene):
        return out
    k, rates = (
        out.shape[-1],
        (PLANAR_FEATURES if scene.plane is not None else SPATIAL_FEATURES).index("struck_vn"),
    )
    return apply_analytic_effects(
        scene, out, features[:, rates : rates + k], features[:, -1].exp(), unit
    )


def distil(
    scene: Scene,
    impacts: Impacts,
    *,
    config: DistillationConfig = DistillationConfig(),
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = quiet,
) -> DistilledModel:
    """Train the network on simulated impacts (their theta included) on a torch device; what comes
    back lives on the CPU.
    """
    assert impacts.theta is not None
    frame = contact_frame(scene, impacts)
    features, unit = _single(frame.features), _single(to_unit(scene.params, impacts.theta))
    x = torch.cat([features, unit[:, network_params(scene)]], -1)
    y = _single(frame.encode(impacts.after))
    # The metric is the error relative to the twist after impact, so that is what the loss weighs
    # by; the floor keeps near-stops finite.
    size = (y + _single(frame.twist_before / frame.speed[:, None])).norm(dim=-1) + 0.05
    net = ImpactNet(
        x.shape[1],
        y.shape[1],
        width=config.width,
        layers=config.layers,
        members=config.members,
        activation=config.activation,
        seed=seed,
    )
    net.fit_scale(x, y)
    low, high = x.min(0).values.numpy(), x.max(0).values.numpy()
    net, features, unit, y, size = (
        net.to(device),
        features.to(device),
        unit.to(device),
        y.to(device),
        size.to(device),
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=config.rate, weight_decay=config.decay)
    schedule = (
        torch.optim.lr_scheduler.OneCycleLR(
            optimiser, config.rate, total_steps=config.steps, pct_start=0.1
        )
        if config.schedule
        else None
    )
    generator = torch.Generator().manual_seed(seed)
    with progress("distilling", config.steps) as advance:
        for _ in range(config.steps):
            rows = torch.randint(len(y), (min(config.batch, len(y)),), generator=generator).to(
                device
            )
            error = change(scene, net, features[rows], unit[rows]) - y[rows]
            if config.loss == "mse":
                loss = error.square().mean()
            else:
                loss = ((error.square().sum(-1) + 1e-8).sqrt() / size[rows]).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            if schedule is not None:
                schedule.step()
            advance(1)
    net = net.cpu().requires_grad_(False)
    return DistilledModel(
        scene, net, low, high, np.concatenate([c.std(0) for c in circumstances(frame)])
    )


def circumstances(frame: ContactFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where and how the bodies meet, in three groups of columns: place on the striker, place on the
    struck body, approach.
    """
    normal = [i for i, c in enumerate(frame.names) if c in ("struck_nx", "struck_ny", "struck_nz")]
    rates = frame.features[:, frame.names.index("struck_vn") :]
    return (
        frame.tangential_offset,
        np.column_stack([frame.features[:, normal], frame.relative_orientation]),
        rates,
    )


def _single(array: np.ndarray) -> Tensor:
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)
