"""A smaller network in place of an ensemble: one perceptron predicts for all of its members.

The network of a scene takes ten microseconds per impact on a core, because each member multiplies
wide layers. Members differ little, so that one narrow perceptron with a head for each of them gives
their mean and, roughly, their standard deviation in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import PLANAR_FEATURES, SPATIAL_FEATURES, frame_at_contact
from clashsim.core.params import to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.fit.distil import DistilledModel
from clashsim.fit.sample import sample_strikes
from clashsim.nets.effects import network_params
from clashsim.nets.impact import SharedNet

_WARMUP_SHARE = 0.1  # of the steps, in which the learning rate grows
_SIZE_FLOOR = 0.05  # of the approach speed: slower bodies count as this fast
_TINY = 1e-12  # under a root


@dataclass(frozen=True)
class CompressionConfig:
    """How a network is compressed.

    Attributes:
        width: Units of a hidden layer.
        layers: Number of layers.
        strikes: Strikes whose outcomes the ensemble predicts for training.
        steps: Training steps.
        batch: Strikes per step.
        rate: Learning rate.
    """

    width: int = 128
    layers: int = 4
    strikes: int = 200_000
    steps: int = 12_000
    batch: int = 1024
    rate: float = 4e-3


class CompressionError(NamedTuple):
    """How far a compressed network is from its ensemble, on strikes it was not trained on.

    Attributes:
        median: Relative error of the twist after the impact, at the median.
        p99: The same at the 99th percentile.
        float32: Largest relative difference of the network in single and in double precision.
    """

    median: float
    p99: float
    float32: float


def compress(
    model: DistilledModel,
    *,
    config: CompressionConfig = CompressionConfig(),
    seed: int = 0,
    progress: Progress = quiet,
) -> DistilledModel:
    """Train one small network to predict what each member of an ensemble predicts.

    Args:
        model: The ensemble.
        config: Size and training.
        seed: Of strikes, weights and batches.
        progress: Shows how far it is.

    Returns:
        A model that is used like the ensemble, for the same region.
    """
    scene = model.scene
    features, unit = _strikes(scene, config.strikes, seed)
    x = torch.cat([features, unit[:, network_params(scene)]], dim=-1)
    with torch.no_grad():
        targets = torch.cat([model.net(part) for part in x.split(4096)], dim=1)
    net = SharedNet(
        x.shape[1],
        targets.shape[2],
        width=config.width,
        layers=config.layers,
        activation=model.net.shape["activation"],
        seed=seed,
        heads=len(targets),
    )
    # Scaling by the ensemble's own numbers keeps inputs that it ignores ignored.
    net.mean.copy_(model.net.mean)
    net.scale.copy_(model.net.scale)
    net.size.copy_(model.net.size.repeat(len(targets)))
    size = _size_after(scene, features, targets)
    optimiser = torch.optim.AdamW(net.parameters(), lr=config.rate, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, config.rate, total_steps=config.steps, pct_start=_WARMUP_SHARE
    )
    generator = torch.Generator().manual_seed(seed)
    with progress("compressing the network", config.steps) as advance:
        for _ in range(config.steps):
            rows = torch.randint(len(x), (config.batch,), generator=generator)
            error = net(x[rows]) - targets[:, rows]
            loss = ((error.square().sum(-1) + _TINY).sqrt() / size[rows]).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            advance(1)
    return replace(model, net=net.requires_grad_(False))


def compression_error(
    compressed: DistilledModel, model: DistilledModel, *, strikes: int = 20_000, seed: int = 1
) -> CompressionError:
    """Compare a compressed network with its ensemble on strikes of another seed."""
    features, unit = _strikes(model.scene, strikes, seed)
    x = torch.cat([features, unit[:, network_params(model.scene)]], dim=-1)
    with torch.no_grad():
        expected = model.net(x)
        size = _size_after(model.scene, features, expected)
        found = compressed.net(x)
        double = compressed.net.double()(x.double())
        compressed.net.float()
    error = (found.mean(0) - expected.mean(0)).norm(dim=-1) / size
    rounding = (found - double).norm(dim=-1) / size
    return CompressionError(
        median=float(error.median()),
        p99=float(error.quantile(0.99)),
        float32=float(rounding.max()),
    )


def _size_after(scene: Scene, features: Tensor, change: Tensor) -> Tensor:
    """Size (N,) of twists after the impact over the approach speed, by which errors are divided."""
    k = change.shape[-1]
    first = _twist_column(scene)
    return (change.mean(0) + features[:, first : first + k]).norm(dim=-1) + _SIZE_FLOOR


def _twist_column(scene: Scene) -> int:
    """Index of the first of the features that are the struck body's twist before the impact."""
    names = PLANAR_FEATURES if scene.plane is not None else SPATIAL_FEATURES
    return names.index("struck_vn")


def _strikes(scene: Scene, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features (n, f), and theta on its unit scale (n, p), of random strikes."""
    batch = sample_strikes(scene, n, np.random.default_rng(seed))
    frame = frame_at_contact(scene, batch.before, batch.contact)
    features = torch.as_tensor(frame.features, dtype=torch.float32)
    unit = torch.as_tensor(to_unit(scene.params, batch.theta), dtype=torch.float32)
    return features, unit
