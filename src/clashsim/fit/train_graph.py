"""Make the graph network that comes with clashsim: `python -m clashsim.fit.train_graph`.

    python -m clashsim.fit.train_graph all build/graph --device cuda --call-seconds 560

samples trajectories in MuJoCo, trains, measures errors on shapes that training has not seen, and
writes `net.safetensors` and `metrics.json` into the folder. The same call again continues where it
was interrupted or where `--call-seconds` ended it. `ship build/graph` then puts the network into
the package. `sample`, `train` and `evaluate` are the single parts of `all`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from clashsim.core.errors import RunError
from clashsim.core.executor import Executor, local, process_pool
from clashsim.core.files import write_atomic
from clashsim.fit.data_scaling import RATE, ScalingRanges, StartRanges, scale_data
from clashsim.fit.graph_train import GraphTrainingConfig, drift, train
from clashsim.fit.random_bodies import Kind
from clashsim.fit.shards import Arrays
from clashsim.fit.trajectory_set import TrajectorySet
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.network_file import SHIPPED, net_bytes, read_net
from clashsim.nets.trained_domain import CONTACT_NAMES, MESHES

HELD_OUT = 20  # one in about this many trajectories is held out, the first of each set
FRAMES = 40  # of rollouts on held-out trajectories
_NET = "net.safetensors"
_CHECKPOINT = "checkpoint.safetensors"
_METRICS = "metrics.json"
_SEED = 24
_NEAR_UNIT = 0.0475  # m, half the side of the real cube without its rounding
# Contact of such cubes without units, in the order of `CONTACT_NAMES`.
_NEAR_CONTACT = ((0.12, 0.24), (3.6, 25.4), (1.9, 8.0), (0.62, 0.95), (0.014, 0.097))


@dataclass(frozen=True)
class SampledSet:
    """A set of trajectories.

    Attributes:
        ranges: What varies.
        n: Number of trajectories.
        share: Share of the training steps.
    """

    ranges: ScalingRanges
    n: int
    share: float


def sampled_sets() -> dict[str, SampledSet]:
    """The sets, by name: cubes like the recorded one, and all kinds of one to three bodies."""
    walls = StartRanges(walls=0.35)
    several: tuple[Kind, ...] = ("box", "cube", "hull")
    return {
        "near": SampledSet(_near_ranges(), 10000, 0.15),
        "one": SampledSet(ScalingRanges(), 16000, 0.22),
        "large": SampledSet(ScalingRanges(kinds=("prism", "compound"), corners=24), 8000, 0.13),
        "two": SampledSet(ScalingRanges(bodies=2, planes=3, start=walls, kinds=several), 5000, 0.2),
        "three": SampledSet(
            ScalingRanges(bodies=3, planes=3, start=walls, kinds=several), 3000, 0.13
        ),
        "fixed": SampledSet(ScalingRanges(fixed_box=True, planes=2, start=walls), 6000, 0.17),
    }


def _near_ranges() -> ScalingRanges:
    """Cubes like the recorded one, tossed as it was."""
    return ScalingRanges(
        kinds=("cube",),
        length=(0.0455, 0.0495),
        corners=8,
        inertia=(1.25, 2.1),
        centre=0.008 / _NEAR_UNIT,
        rounding=(0.001 / _NEAR_UNIT, 0.006 / _NEAR_UNIT),
        gravity=(9.55, 9.9),
        tilt=0.0,
        frames=100,
        contact=_NEAR_CONTACT,
    )


def sample(folder: Path, *, workers: int, scale: float = 1.0) -> None:
    """Sample all sets in shards; a second call continues.

    Args:
        folder: Where sets are written.
        workers: Processes.
        scale: Share of the trajectories that are sampled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if workers == 1:
        _sample(folder, local, scale)
    else:
        with process_pool(workers) as executor:
            _sample(folder, executor, scale)


def _sample(folder: Path, executor: Executor, scale: float) -> None:
    for seed, (name, wanted) in enumerate(sampled_sets().items()):
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        n = max(int(scale * wanted.n), 1)
        arrays = scale_data(
            wanted.ranges,
            n,
            _SEED + seed,
            checkpoint_dir=folder / f"parts-{name}",
            executor=executor,
        )
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomic(path, buffer.getvalue())
        print(name, arrays["motion"].shape, flush=True)


def start_network(*, hidden: int, layers: int) -> GraphNet:
    """The untrained network that training starts from.

    Args:
        hidden: Width of its layers.
        layers: Rounds of messages.
    """
    torch.manual_seed(_SEED)
    return GraphNet(len(CONTACT_NAMES), hidden, layers, domain=MESHES)


def fit(folder: Path, net: GraphNet, config: GraphTrainingConfig, *, device: str) -> bool:
    """Train on all sets but what is held out; write the network.

    Args:
        folder: Where the sets are, and the network is written.
        net: What training starts from.
        config: How to train.
        device: Torch device.

    Returns:
        Whether training is complete, and not to be continued by another call.
    """
    longest = max(config.lengths)
    sets = [_trajectories(_arrays(folder, name), device, longest) for name in sampled_sets()]
    shares = [wanted.share for wanted in sampled_sets().values()]
    checkpoint = folder / _CHECKPOINT
    trained = train(net, sets, config, seed=_SEED, shares=shares, checkpoint=checkpoint)
    write_atomic(folder / _NET, net_bytes(trained.cpu(), {"trained": "clashsim.fit.train_graph"}))
    return training_is_complete(checkpoint, config)


def training_is_complete(checkpoint: Path, config: GraphTrainingConfig) -> bool:
    """Whether a checkpoint is that of the end of a training."""
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt") as file:
        about = file.metadata()
    return float(about["seconds"]) >= config.seconds or int(about["step"]) >= config.steps


def evaluate(folder: Path, *, device: str, count: int = 400) -> dict[str, dict[str, list[float]]]:
    """Errors of the network on held-out trajectories, whose shapes it has not been trained on.

    Args:
        folder: Where the sets and the network are; the errors are written there.
        device: Torch device.
        count: Trajectories of each set.

    Returns:
        Errors by set, as `drift` returns them.
    """
    net = read_net(folder / _NET).to(device)
    errors = {}
    for name in sampled_sets():
        held_out = _trajectories(_arrays(folder, name, held_out=True), device, 1)
        errors[name] = drift(net, held_out, steps=FRAMES, count=count)
        position = errors[name]["position_mean"][0]
        rotation = errors[name]["rotation_mean"][0]
        print(f"{name}: {position:.2f} % of the size, {rotation:.2f} degrees", flush=True)
    write_atomic(folder / _METRICS, json.dumps(errors, indent=1).encode())
    return errors


def ship(folder: Path) -> None:
    """Put the network of a folder into the package."""
    import clashsim

    read_net(folder / _NET)  # refuses a damaged file
    target = Path(clashsim.__file__).parent / "nets" / SHIPPED
    write_atomic(target, (folder / _NET).read_bytes())


def _arrays(folder: Path, name: str, *, held_out: bool = False) -> Arrays:
    """The trajectories of a set that are trained on, or those held out."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise RunError(f"there is no {path.name!r}: run the command sample first")
    table = dict(np.load(path))
    limit = max(len(table["mass"]) // HELD_OUT, 1)
    # Trajectories of the same bodies have the same random unit of length, and stay together.
    is_held_out = np.isin(table["length"], table["length"][:limit])
    if is_held_out.all():
        raise RunError(f"{path.name!r} has too few trajectories to hold some out: sample more")
    rows = is_held_out if held_out else ~is_held_out
    return {key: values[rows] for key, values in table.items()}


def _trajectories(arrays: Arrays, device: str, longest: int) -> TrajectorySet:
    """Arrays of trajectories as tensors."""
    return TrajectorySet.of(arrays, 1 / RATE, device, longest)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("all", "sample", "train", "evaluate", "ship"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the trajectories")
    parser.add_argument("--seconds", type=float, default=1500.0, help="of training, in all calls")
    parser.add_argument("--call-seconds", type=float, default=float("inf"), help="of this call")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--start", type=Path, help="network file that training starts from")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=5)
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Run a command."""
    args = _arguments(given)
    config = GraphTrainingConfig(
        steps=10**7,
        batch=args.batch,
        lengths=tuple(args.lengths),
        rate=args.rate,
        seconds=args.seconds,
        call_seconds=args.call_seconds,
    )
    if args.command in ("all", "sample"):
        sample(args.folder, workers=args.workers, scale=args.scale)
    complete = False
    if args.command in ("all", "train"):
        if args.start is None:
            net = start_network(hidden=args.hidden, layers=args.layers)
        else:
            net = read_net(args.start)
        complete = fit(args.folder, net, config, device=args.device)
        if not complete:
            print("training is not complete: the same call continues it")
    if args.command == "evaluate" or complete:
        evaluate(args.folder, device=args.device)
    if args.command == "ship":
        ship(args.folder)


if __name__ == "__main__":
    main()
