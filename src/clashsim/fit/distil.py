"""Distil MuJoCo's collisions of one pair into a network.

The network predicts and differentiates outcomes for any theta.
"""

from __future__ import annotations

from collections.abc import Callable
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
from clashsim.fit.circumstances import circumstances
from clashsim.fit.striker_response import StrikerResponse
from clashsim.nets.effects import analytic_params, apply_analytic_effects, network_params
from clashsim.nets.impact import ImpactNet

# Share of the trained range by which inputs may lie outside of it: noise gives a body at rest a
# small velocity, and a network is still accurate slightly outside its training range.
_SLACK = 0.15
_MIN_RANGE = 1e-4  # an input that varied less in training counts as constant
# By how much a dimensionless input that was constant in training may differ from that constant.
_CONSTANT_TOLERANCE = 0.05
# Added to the size of outcomes in the relative loss: keeps it finite where a body nearly stops.
_SIZE_FLOOR = 0.05
_ERROR_FLOOR = 1e-8  # added to squared errors, keeps the gradient of their root finite
_WARMUP_SHARE = 0.1  # of the one-cycle schedule, in which the learning rate rises


@dataclass(frozen=True)
class DistillationConfig:
    """How a network is distilled.

    Attributes:
        width: Units of a hidden layer.
        layers: Number of layers.
        members: Number of networks in the ensemble.
        activation: Activation function.
        steps: Training steps.
        batch: Impacts per step.
        rate: Learning rate.
        decay: Weight decay.
        loss: Error relative to the twist after impact, or mean squared error.
        schedule: Whether the learning rate follows a one-cycle schedule.
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


# Configuration of the models that come with clashsim.
SHIPPED = DistillationConfig(width=192, layers=5, members=3, steps=20_000, batch=4096, rate=2e-3)
# The training of the CLASH paper; but the inputs are clashsim's, the impact in its contact frame.
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

    Attributes:
        scene: The scene.
        net: The network.
        low: Lowest value of each network input in training: contact features, then those entries of
            theta that the network takes, on the unit scale.
        high: Highest value of each network input in training.
        extent: Standard deviation in training of each column of `circumstances`.
    """

    scene: Scene
    net: ImpactNet
    low: np.ndarray
    high: np.ndarray
    extent: np.ndarray

    def change(self, features: Tensor, unit: Tensor) -> Tensor:
        """Change of twist that each ensemble member predicts; differentiable in both arguments.

        Args:
            features: Contact features (N, f).
            unit: Theta on its unit scale [-1, 1], (N, p).

        Returns:
            Change of twist over the approach speed (E, N, k), E members.
        """
        return predict_change(self.scene, self.net, features, unit)

    def physics(self, frame: ContactFrame) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
        """The mean of the members as a function of parameters, differentiable in them.

        Args:
            frame: N impacts in their contact frames.

        Returns:
            A function from indices of impacts (R,), theta on its unit scale (R, p) and, optionally,
            a mask of the derivatives that are needed (R, p) to the change of twist over the
            approach speed (R, k), in double precision.
        """
        features = _single(frame.features)

        def change(rows: Tensor, unit: Tensor, free: Tensor | None = None) -> Tensor:
            del free  # all derivatives come at once
            return self.change(features[rows], unit.float()).mean(0).double()

        return change

    def physics_of_both(
        self, frame: ContactFrame
    ) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
        """`physics` of both bodies; see `SolvedModel.physics_of_both`."""
        of_struck = self.physics(frame)
        response = StrikerResponse(self.scene, frame)

        def change(rows: Tensor, unit: Tensor, free: Tensor | None = None) -> Tensor:
            struck = of_struck(rows, unit, free)
            return torch.cat([struck, response.apply(struck, rows, unit)], dim=-1)

        return change

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Change of twist over the approach speed that each ensemble member predicts.

        Args:
            frame: N impacts in their contact frames.
            theta: Parameters (p,) or (N, p), natural units.

        Returns:
            (E, N, k), E members.
        """
        unit = self._unit(frame, theta)
        with torch.no_grad():
            return self.change(_single(frame.features), _single(unit)).double().numpy()

    def predict(self, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
        """Twist after impact (N, k), m/s and rad/s, for theta (p,) or (N, p) in natural units."""
        frame = contact_frame(self.scene, impacts)
        return frame.decode(self.members(frame, theta).mean(0))

    def std(self, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
        """Standard deviation (N, k) of the members' twists after impact, m/s and rad/s."""
        frame = contact_frame(self.scene, impacts)
        return frame.decode(self.members(frame, theta)).std(0)

    @property
    def needs_rest(self) -> bool:
        """Whether the struck body never moved in training."""
        planar = self.scene.plane is not None
        names = PLANAR_FEATURES if planar else SPATIAL_FEATURES
        first = names.index("struck_vn")  # of the components of the struck body's linear velocity
        columns = slice(first, first + (2 if planar else 3))
        largest = np.maximum(np.abs(self.low[columns]), np.abs(self.high[columns]))
        return bool((largest < _MIN_RANGE).all())

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Whether each impact's inputs lie in the range that training covered, (N,)."""
        unit = self._unit(frame, theta)
        x = np.column_stack([frame.features, unit[:, network_params(self.scene)]])
        trained_range = self.high - self.low
        varied = trained_range > _MIN_RANGE
        # The network ignores inputs that were constant in training, so they must still be so.
        slack = np.where(varied, _SLACK * trained_range, _CONSTANT_TOLERANCE)
        inside = (x >= self.low - slack) & (x <= self.high + slack)
        if self.scene.is_round:
            # Where on a round struck body the contact lies changes nothing, so the features that
            # say so, which come before those of the striker, may differ.
            of_struck = np.arange(x.shape[1]) < frame.names.index("striker_x")
            inside[:, of_struck & ~varied] = True
        return np.asarray(inside.all(1))

    def _unit(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Theta (p,) or (N, p) on its unit scale, (N, p)."""
        # One theta for all impacts is converted once.
        unit = to_unit(self.scene.params, np.asarray(theta))
        return unit if unit.ndim == 2 else np.tile(unit, (len(frame.features), 1))


def predict_change(scene: Scene, net: ImpactNet, features: Tensor, unit: Tensor) -> Tensor:
    """Change of twist by the network, with the analytic effects applied to it.

    Args:
        scene: The scene.
        net: The network.
        features: Contact features (N, f).
        unit: Theta on its unit scale (N, p).

    Returns:
        Change of twist over the approach speed that each member predicts (E, N, k).
    """
    out = net(torch.cat([features, unit[:, network_params(scene)]], -1))
    if not analytic_params(scene):
        return out
    k = out.shape[-1]
    names = PLANAR_FEATURES if scene.plane is not None else SPATIAL_FEATURES
    first = names.index("struck_vn")
    twist_before = features[:, first : first + k]  # over the approach speed
    speed = features[:, -1].exp()  # the last feature is the logarithm of the approach speed
    return apply_analytic_effects(scene, out, twist_before, speed, unit)


def distil(
    scene: Scene,
    impacts: Impacts,
    *,
    config: DistillationConfig = DistillationConfig(),
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = quiet,
) -> DistilledModel:
    """Train the network on simulated impacts.

    Args:
        scene: The scene.
        impacts: Simulated impacts, with their theta.
        config: How to train.
        seed: Seed of weights and batches.
        device: Torch device to train on; the result lives on the CPU.
        progress: Shows how far it is.

    Returns:
        The distilled model.
    """
    assert impacts.theta is not None
    frame = contact_frame(scene, impacts)
    features = _single(frame.features)
    unit = _single(to_unit(scene.params, impacts.theta))
    x = torch.cat([features, unit[:, network_params(scene)]], -1)
    y = _single(frame.encode(impacts.after))
    # The loss is relative to the twist after impact, as the error metric of the benchmarks is.
    twist_before = _single(frame.twist_before / frame.speed[:, None])
    size = (y + twist_before).norm(dim=-1) + _SIZE_FLOOR
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
    net = net.to(device)
    batches = _Batches(scene, features, unit, y, size, config, device)
    batches.train(net, seed, progress)
    extent = np.concatenate([columns.std(0) for columns in circumstances(frame)])
    return DistilledModel(
        scene=scene,
        net=net.cpu().requires_grad_(False),
        low=x.min(0).values.numpy(),
        high=x.max(0).values.numpy(),
        extent=extent,
    )


class _Batches:
    """Training data on a device, and the training on batches of it."""

    def __init__(
        self,
        scene: Scene,
        features: Tensor,
        unit: Tensor,
        change: Tensor,
        size: Tensor,
        config: DistillationConfig,
        device: str,
    ) -> None:
        self._scene = scene
        self._features = features.to(device)
        self._unit = unit.to(device)
        self._change = change.to(device)
        self._size = size.to(device)
        self._config = config
        self._device = device

    def train(self, net: ImpactNet, seed: int, progress: Progress) -> None:
        """Train a network in place."""
        config = self._config
        optimiser = torch.optim.AdamW(net.parameters(), lr=config.rate, weight_decay=config.decay)
        schedule = None
        if config.schedule:
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, config.rate, total_steps=config.steps, pct_start=_WARMUP_SHARE
            )
        generator = torch.Generator().manual_seed(seed)
        count = len(self._change)
        with progress("distilling", config.steps) as advance:
            for _ in range(config.steps):
                rows = torch.randint(count, (min(config.batch, count),), generator=generator)
                loss = self._loss(net, rows.to(self._device))
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if schedule is not None:
                    schedule.step()
                advance(1)

    def _loss(self, net: ImpactNet, rows: Tensor) -> Tensor:
        """Mean loss over the impacts with indices `rows` and over the members."""
        predicted = predict_change(self._scene, net, self._features[rows], self._unit[rows])
        error = predicted - self._change[rows]
        if self._config.loss == "mse":
            return error.square().mean()
        norm = (error.square().sum(-1) + _ERROR_FLOOR).sqrt()
        return (norm / self._size[rows]).mean()


def _single(array: np.ndarray) -> Tensor:
    """The array as a tensor in single precision."""
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)
