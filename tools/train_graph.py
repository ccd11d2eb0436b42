"""Make the network that comes with clashsim: scale data in MuJoCo, then train, here or on a machine
that has torch and a GPU but no MuJoCo.

python tools/train_graph.py sample data/           # minutes on two cores; goes on from finished
  shards
python tools/train_graph.py train data/ first.npz --device cuda --seconds 480 --rate 1.5e-3
  --lengths 1 2 4 8
python tools/train_graph.py train data/ second.npz --device cuda --seconds 110 --rate 8e-4 --lengths
  8 16 --init first.npz --near
python tools/train_graph.py ship second.npz        # into the package, as safetensors
"""

import argparse
import io
from pathlib import Path

import numpy as np
import torch

from clashsim.core.files import write_atomic
from clashsim.fit.graph_train import GraphTrainingConfig, TrajectorySet, drift, train
from clashsim.nets.mesh_graph import GraphNet

SETS = ("near", "one", "two", "three")


def sample(folder: Path) -> None:
    """Trajectories of one, two and three boxes; `near` is about what a few tosses of the real cube
    call for.
    """
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
    """Train; a twentieth of each set is kept back to judge the result."""
    torch.manual_seed(0)
    names = SETS if args.near else SETS[1:]
    tables = {n: dict(np.load(args.folder / f"{n}.npz")) for n in names}
    cut = {n: len(t["mass"]) // 20 for n, t in tables.items()}
    sets = [
        TrajectorySet.of(
            {k: v[cut[n] :] for k, v in t.items()}, 1 / 148, args.device, max(args.lengths)
        )
        for n, t in tables.items()
    ]
    held = [
        TrajectorySet.of(
            {k: v[: cut[n]] for k, v in t.items()}, 1 / 148, args.device, max(args.lengths)
        )
        for n, t in tables.items()
    ]
    net = GraphNet(5)
    if args.init is not None:
        net.load_state_dict({k: torch.tensor(v) for k, v in np.load(args.init).items()})
    config = GraphTrainingConfig(
        steps=10**6,
        batch=args.batch,
        lengths=tuple(args.lengths),
        rate=args.rate,
        seconds=args.seconds,
        report=250,
    )
    shares = [0.6, 0.16, 0.14, 0.1] if args.near else [0.7, 0.15, 0.15]
    net = train(net, sets, config, seed=2 if args.near else 1, shares=shares)
    buffer = io.BytesIO()
    np.savez(buffer, **{k: v.detach().cpu().numpy() for k, v in net.state_dict().items()})
    write_atomic(args.out, buffer.getvalue())
    for name, data in zip(names, held, strict=True):
        print(name, drift(net, data, steps=40, count=200))


def ship(path: Path) -> None:
    """Weights (.npz) into the package."""
    import clashsim
    from clashsim.nets.network_file import SHIPPED, net_bytes

    net = GraphNet(5)
    net.load_state_dict({k: torch.tensor(v) for k, v in np.load(path).items()})
    write_atomic(
        Path(clashsim.__file__).parent / "nets" / SHIPPED,
        net_bytes(net, {"trained": "tools/train_graph.py"}),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("sample").add_argument("folder", type=Path)
    t = verbs.add_parser("train")
    t.add_argument("folder", type=Path)
    t.add_argument("out", type=Path)
    t.add_argument("--device", default="cpu")
    t.add_argument("--seconds", type=float, default=480)
    t.add_argument("--rate", type=float, default=1.5e-3)
    t.add_argument("--batch", type=int, default=1024)
    t.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 4, 8])
    t.add_argument("--init", type=Path)
    t.add_argument("--near", action="store_true", help="also the set near the real cube")
    verbs.add_parser("ship").add_argument("weights", type=Path)
    given = parser.parse_args()
    if given.verb == "sample":
        sample(given.folder)
    elif given.verb == "train":
        fit(given)
    else:
        ship(given.weights)
