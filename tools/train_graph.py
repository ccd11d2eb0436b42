"""Make the graph network that comes with clashsim.

First sample trajectories in MuJoCo, then train on any machine with torch, then put the weights into
the package. The calls that made the shipped network are in docs/graph.md:

    python tools/train_graph.py sample data
    python tools/train_graph.py train data first.npz --device cuda --seconds 480 --lengths 1 2 4 8
    python tools/train_graph.py ship first.npz

Sampling takes minutes on two cores, and a second call continues from finished shards.
"""

import argparse
import io
from pathlib import Path

import numpy as np
import torch

from clashsim.core.files import write_atomic
from clashsim.fit.graph_train import GraphTrainingConfig, TrajectorySet, drift, train
from clashsim.nets.mesh_graph import GraphNet

# Sets of trajectories: cubes like the recorded one, and one, two or three cubes of all kinds.
SETS = ("near", "one", "two", "three")
FRAME_RATE = 148  # Hz, of the recorded tosses
NUM_CONTACT_PARAMETERS = 5
SHARES = [0.7, 0.15, 0.15]  # of the batch, by set
SHARES_WITH_NEAR = [0.6, 0.16, 0.14, 0.1]


def sample(folder: Path) -> None:
    """Sample all sets; the ranges of `near` are those around values of the real cube."""
    from clashsim.fit.data_scaling import ScalingRanges, scale_data

    near = ScalingRanges(
        half=(0.0455, 0.0495),
        mass=(0.36, 0.38),
        inertia=(1.25, 2.1),
        rounding=(0.001, 0.006),
        frames=100,
        speed=1.6,
        gravity=(9.55, 9.9),
        contact=((-0.25, 0.2, 0.1, 0.2, -0.1), (0.35, 0.5, 0.5, 0.7, 0.7)),
    )
    jobs = {
        "one": (ScalingRanges(), 12000, 1),
        "two": (ScalingRanges(boxes=2, frames=60, speed=1.6, centre=0.004), 2500, 2),
        "three": (ScalingRanges(boxes=3, frames=60, speed=1.6, centre=0.004), 1500, 3),
        "near": (near, 12000, 11),
    }
    for name, (ranges, n, seed) in jobs.items():
        arrays = scale_data(ranges, n, seed, checkpoint_dir=folder / f"parts-{name}")
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_atomic(folder / f"{name}.npz", buffer.getvalue())
        print(name, arrays["states"].shape)


def fit(args: argparse.Namespace) -> None:
    """Train on 95 % of each set, and print the errors on the other 5 %."""
    torch.manual_seed(0)
    names = SETS if args.near else SETS[1:]
    training = []
    held_out = []
    for name in names:
        table = dict(np.load(args.folder / f"{name}.npz"))
        num_held_out = len(table["mass"]) // 20
        longest = max(args.lengths)
        for part, sets in (
            (slice(num_held_out, None), training),
            (slice(None, num_held_out), held_out),
        ):
            rows = {key: values[part] for key, values in table.items()}
            sets.append(TrajectorySet.of(rows, 1 / FRAME_RATE, args.device, longest))
    net = GraphNet(NUM_CONTACT_PARAMETERS)
    if args.init is not None:
        load_weights(net, args.init)
    config = GraphTrainingConfig(
        steps=10**6,
        batch=args.batch,
        lengths=tuple(args.lengths),
        rate=args.rate,
        seconds=args.seconds,
        report=250,
    )
    shares = SHARES_WITH_NEAR if args.near else SHARES
    net = train(net, training, config, seed=2 if args.near else 1, shares=shares)
    weights = {key: value.detach().cpu().numpy() for key, value in net.state_dict().items()}
    buffer = io.BytesIO()
    np.savez(buffer, **weights)
    write_atomic(args.out, buffer.getvalue())
    for name, data in zip(names, held_out, strict=True):
        print(name, drift(net, data, steps=40, count=200))


def load_weights(net: GraphNet, path: Path) -> None:
    """Set the weights of a network from an .npz file."""
    net.load_state_dict({key: torch.tensor(value) for key, value in np.load(path).items()})


def ship(path: Path) -> None:
    """Put weights (.npz) into the package, as safetensors."""
    import clashsim
    from clashsim.nets.network_file import SHIPPED, net_bytes

    net = GraphNet(NUM_CONTACT_PARAMETERS)
    load_weights(net, path)
    write_atomic(
        Path(clashsim.__file__).parent / "nets" / SHIPPED,
        net_bytes(net, {"trained": "tools/train_graph.py"}),
    )


def arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sample").add_argument("folder", type=Path)
    training = commands.add_parser("train")
    training.add_argument("folder", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--device", default="cpu")
    training.add_argument("--seconds", type=float, default=480)
    training.add_argument("--rate", type=float, default=1.5e-3)
    training.add_argument("--batch", type=int, default=1024)
    training.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 4, 8])
    training.add_argument("--init", type=Path)
    training.add_argument("--near", action="store_true", help="also the set like the real cube")
    commands.add_parser("ship").add_argument("weights", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.command == "sample":
        sample(given.folder)
    elif given.command == "train":
        fit(given)
    else:
        ship(given.weights)
