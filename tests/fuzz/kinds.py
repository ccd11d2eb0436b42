"""What clashsim reads: for each kind of file how a valid one is made, and how it is read."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Files = dict[str, bytes]  # by path relative to the folder of a case
_ROWS = 24  # of a log; short files have more of their bytes in headers


def _as_they_are(files: Files, changed: str) -> None:
    """No file follows from another."""


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    make: writes a valid input into a folder. read: reads it, as a command of clashsim would.
    changes: patterns of the files that are mutated. finish: makes other files fit a changed one, by
    its name, so that what it holds is reached. weight: how many cases it gets, against the others.
    """

    make: Callable[[Path], object]
    read: Callable[[Path, random.Random], object]
    changes: tuple[str, ...] = ("*",)
    finish: Callable[[Files, str], None] = _as_they_are
    weight: int = 1


def kinds() -> dict[str, Kind]:
    """All kinds by name; those of one group have the same first word."""
    import log_writers

    out = {f"log {name}": _log(name) for name in log_writers.WRITERS}
    out |= {
        f"log in {name}": Kind(partial(_write_archive, suffix=name), _read_log, (f"motion.{name}",))
        for name in ("zip", "csv.gz")
    }
    for name in ("forces.bag", "forces"):
        patterns = (name, f"{name}/*")
        out[f"log {name}"] = Kind(partial(_write_forces, name=name), _read_log, patterns, weight=2)
    for name, write in _IMPACTS.items():
        out[f"impacts {name}"] = Kind(write, _read_impacts, weight=3)
    out |= {
        f"trials {name}": Kind(write, _read_trials, weight=2) for name, write in _TRIALS.items()
    }
    out |= {
        "settings": Kind(_write_settings, _read_scene, ("*.toml",), weight=10),
        "mapping": Kind(_write_mapping, _read_mapping, weight=8),
        "sweep toml": Kind(partial(_write_sweep, suffix="toml"), _read_sweep, weight=3),
        "sweep csv": Kind(partial(_write_sweep, suffix="csv"), _read_sweep, weight=2),
        "targets": Kind(_write_targets, _read_targets, weight=2),
        "route": Kind(_write_route, _read_route, weight=2),
        "plan": Kind(_write_plan, _read_plan, weight=4),
        "policy": Kind(_write_policy, _read_policy, weight=4),
        "checkpoint": Kind(_write_checkpoint, _read_checkpoint, weight=2),
        "graph network": Kind(_write_graph, _read_graph, weight=2),
        "scene": Kind(_write_settings, _read_scene, ("*.xml",), weight=8),
        "run": Kind(
            _write_run, _read_run, ("*.json", "*.xml", "*.safetensors"), _list_again, weight=8
        ),
    }
    return out


# --- logs -----------------------------------------------------------------------------------------


def _log(name: str) -> Kind:
    import log_writers

    file, _ = log_writers.WRITERS[name]
    return Kind(partial(_write_log, name=name), _read_log, (file, f"{file}/*"), weight=2)


def _write_log(folder: Path, *, name: str) -> None:
    import log_writers
    from clashsim.data.readers import mapping

    poses = {body: pose[:_ROWS] for body, pose in log_writers.motion().items()}
    _, how = log_writers.write(name, folder, log_writers.T[:_ROWS], poses)
    if how is not None:
        (folder / "lab.toml").write_text(mapping.dump(how))


def _write_forces(folder: Path, *, name: str) -> None:
    import log_writers

    log_writers.write_force_bag(folder / name, ros1=name.endswith(".bag"), rows=_ROWS)


def _write_archive(folder: Path, *, suffix: str) -> None:
    _write_log(folder, name="csv")
    text = (folder / "motion.csv").read_bytes()
    (folder / "motion.csv").unlink()
    if suffix == "zip":
        with zipfile.ZipFile(folder / "motion.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("motion.csv", text)
    else:
        (folder / "motion.csv.gz").write_bytes(gzip.compress(text, mtime=0))


def _read_log(folder: Path, rng: random.Random) -> object:
    from clashsim.data import logs
    from clashsim.data.checks.findings import FINDING_NAMES
    from clashsim.data.readers import mapping

    how = folder / "lab.toml"
    log = next(path for path in folder.iterdir() if path != how)
    if how.is_file() and rng.random() < 0.8:
        return logs.read_logs([log], mapping=mapping.load(how), accept=list(FINDING_NAMES))
    return logs.read_logs([log], guess=True, accept=list(FINDING_NAMES))


# --- impacts and trials ---------------------------------------------------------------------------


def _columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    names = ("x", "yaw", "vx", "vy", "w", "striker_vx", "vx_after", "vy_after", "w_after", "mass")
    return {name: np.round(rng.normal(size=6), 3) for name in names}


def _write_table(folder: Path, *, rows: bool) -> None:
    table = {name: values.tolist() for name, values in _columns().items()}
    lines = [dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True)]
    (folder / "impacts.json").write_text(json.dumps(lines if rows else table))


def _impacts(simulated: bool) -> Any:
    from clashsim.core.impacts import from_columns

    impacts = from_columns(_columns(), known=["mass"])
    if simulated:
        return replace(
            impacts,
            theta=np.ones((6, 2)),
            source="simulated",
            end_counts={"parted": 6, "settled": 0},
        )
    return impacts


def _write_impacts(folder: Path, *, suffix: str, simulated: bool = False) -> None:
    from clashsim.data.impact_files import write_impacts

    write_impacts(folder / f"impacts.{suffix}", _impacts(simulated))


def _write_tensors(folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file(_columns(), folder / "impacts.safetensors")


_IMPACTS: dict[str, Callable[[Path], object]] = {
    "csv": partial(_write_impacts, suffix="csv"),
    "json columns": partial(_write_table, rows=False),
    "json rows": partial(_write_table, rows=True),
    "npz": lambda folder: np.savez(folder / "impacts.npz", **_columns()),
    "npz packed": lambda folder: np.savez_compressed(folder / "impacts.npz", **_columns()),
    "safetensors": partial(_write_impacts, suffix="safetensors", simulated=True),
    "safetensors columns": _write_tensors,
}


def _read_impacts(folder: Path, rng: random.Random) -> object:
    from clashsim.data.impact_files import read_impacts
    from clashsim.pipeline.recordings import holds_trials

    path = next(folder.iterdir())
    holds_trials(path)
    return read_impacts(path, known=["mass"]).checked()


def _trials() -> Any:
    import log_writers
    from clashsim.core.trials import Trial, Trials

    poses = {body: pose[:_ROWS] for body, pose in log_writers.motion().items()}
    t = log_writers.T[:_ROWS]
    return Trials(
        tuple(
            Trial(name, t, poses, signals={"force": t}, known={"mass": 0.3}) for name in ("a", "b")
        ),
        ("a note",),
    )


def _write_trials(folder: Path) -> None:
    from clashsim.data.trial_files import write_trials

    write_trials(folder / "trials.safetensors", _trials())


def _write_packed(folder: Path) -> None:
    from clashsim import lab
    from clashsim.lab.packed import pack

    (folder / "trials.npz").write_bytes(pack(lab.recorded()[:2], lab.recorded_strikes()[:2]))


_TRIALS: dict[str, Callable[[Path], object]] = {"safetensors": _write_trials, "npz": _write_packed}


def _read_trials(folder: Path, rng: random.Random) -> object:
    from clashsim.pipeline.recordings import holds_trials, read_recording

    path = next(folder.iterdir())
    holds_trials(path)
    return read_recording(path)


# --- settings, mappings, lists --------------------------------------------------------------------


def _write_settings(folder: Path) -> None:
    from importlib import resources

    for suffix in ("xml", "toml"):
        shutil.copy(
            str(resources.files("clashsim") / "scenes" / f"semi_cylinder.{suffix}"),
            folder / f"scene.{suffix}",
        )


def _read_scene(folder: Path, rng: random.Random) -> object:
    from clashsim.core.scene import Scene

    scene = Scene.load(folder / "scene.xml")
    return (
        scene.slots,
        scene.model(scene.nominal),
        scene.struck_body,
        scene.striker_body,
        scene.plane,
    )


def _write_mapping(folder: Path) -> None:
    from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping, dump

    box = BodyMapping(
        "box",
        ("box_x", "box_y", "box_z"),
        quaternion=("qx", "qy", "qz", "qw"),
        order="xyzw",
        markers={"box:1": (0.1, 0.0, 2.0)},
    )
    tool = BodyMapping(
        "tool", ("tool[0:3]",), euler=("a", "b", "c"), sequence="zyx", source="/tool/pose"
    )
    log = LoggerMapping(
        (box, tool),
        files="{trial}/*.csv",
        time="t",
        rate=120.0,
        offset=0.5,
        header_lines=1,
        header={"mass": "Mass"},
        moments={"hit": "Hit"},
        signals={"force": "fz"},
        units={"time": "ms", "length": "mm", "angle": "deg"},
        up="y",
        flip=("x",),
    )
    (folder / "lab.toml").write_text(
        dump(LogMapping((log, replace(log, files="{trial}.h5")), {"mass": 0.3}))
    )


def _read_mapping(folder: Path, rng: random.Random) -> object:
    from clashsim.data.readers import mapping

    how = mapping.load(folder / "lab.toml")
    return mapping.loads(mapping.dump(how))


def _write_sweep(folder: Path, *, suffix: str) -> None:
    lines = [
        {
            "scene": "puck",
            "impacts": "a.csv",
            "out": "runs/a",
            "seed": 1,
            "hold_out": 0.5,
            "known": "mass",
            "struck": "puck",
        }
    ]
    lines.append({**lines[0], "out": "runs/b"})
    rows = []
    if suffix == "toml":
        for line in lines:
            rows.append("[[run]]")
            rows += [f"{name} = {json.dumps(value)}" for name, value in line.items()]
    else:
        rows.append(",".join(lines[0]))
        for line in lines:
            rows.append(",".join(map(str, line.values())))
    text = "\n".join(rows)
    (folder / f"list.{suffix}").write_text(text + "\n")


def _read_sweep(folder: Path, rng: random.Random) -> object:
    from clashsim.commands.sweep import SweepOptions, read_jobs

    return read_jobs(SweepOptions(pairs=next(folder.iterdir())))


def _write_targets(folder: Path) -> None:
    (folder / "targets.csv").write_text(
        "x,y,yaw,start_x,start_y,start_yaw\n0.1,0.2,30,0,0,0\n-0.1,0.15,-20,0.01,0,5\n"
    )


def _read_targets(folder: Path, rng: random.Random) -> object:
    from clashsim.commands.target_files import read_targets
    from clashsim.plan.tasks import PlanningTask

    return read_targets(folder / "targets.csv", PlanningTask((0.1, 0.1, 0.0)))


def _write_route(folder: Path) -> None:
    (folder / "route.csv").write_text("x,y\n0,0\n0.3,0\n0.3,0.3\n")


def _read_route(folder: Path, rng: random.Random) -> object:
    from clashsim.rl.routes import load_route

    return load_route(str(folder / "route.csv"))


# --- plans, policies, networks --------------------------------------------------------------------


def _write_plan(folder: Path) -> None:
    from clashsim.core.scene import Scene
    from clashsim.plan.execution import plan_to_dict
    from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, Reach

    task = PlanningTask(
        (0.1, 0.2, 0.3), reach=Reach(speed=(0.2, 0.8), workspace=(-1.0, 1.0, -1.0, 1.0))
    )
    strikes, ends = np.array([[0.5, 1.5, 0.0]]), np.array([[0.1, 0.2, 0.3]])
    plan = Plan(
        task,
        ("speed", "point", "deflection"),
        strikes,
        ends,
        np.full(3, 0.01),
        1e-4,
        PlanStatus.FOUND,
        "within reach",
        100,
    )
    (folder / "plan.json").write_text(
        json.dumps(plan_to_dict(plan, Scene.load("semi_cylinder")), indent=1)
    )


def _read_plan(folder: Path, rng: random.Random) -> object:
    from clashsim.commands.execute import block_shape
    from clashsim.plan.execution import plan_from_json

    text = (folder / "plan.json").read_bytes().decode(errors="replace")
    return plan_from_json(text), block_shape(text)


def _write_policy(folder: Path) -> None:
    from clashsim.rl.policy import Policy
    from clashsim.rl.push import OBSERVATION_SIZE

    rng = np.random.default_rng(0)
    sizes = (OBSERVATION_SIZE, 8, 3)
    layers = tuple(
        (rng.normal(size=(b, a)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in pairwise(sizes)
    )
    low, high = np.array([0.2, 0.3, -0.2]), np.array([0.8, 2.8, 0.2])
    Policy(
        layers, ("speed", "point", "deflection"), low, high, 1.5, {"scene": "semi_cylinder"}
    ).save(folder / "policy.safetensors")


def _read_policy(folder: Path, rng: random.Random) -> object:
    from clashsim.rl.policy import Policy
    from clashsim.rl.push import OBSERVATION_SIZE

    strike = Policy.load(folder / "policy.safetensors")(np.ones((2, OBSERVATION_SIZE)))
    assert np.isfinite(strike).all(), "a policy that was loaded gives NaN"
    return strike


def _write_checkpoint(folder: Path) -> None:
    import torch

    from clashsim.rl import checkpoint

    about = {"job": {"seed": 0}, "done": 3}
    checkpoint.write_checkpoint(
        folder, {"weights.a": torch.ones(3), "weights.b": torch.zeros(2, 2)}, about, steps=10, of=20
    )


def _read_checkpoint(folder: Path, rng: random.Random) -> object:
    from clashsim.rl import checkpoint

    found: list[object] = []
    checkpoint.resume(
        folder,
        {"seed": 0},
        lambda about, tensors: found.append((int(about["done"]), tensors["weights.a"].sum())),
    )
    return found


def _write_graph(folder: Path) -> None:
    from clashsim.nets.mesh_graph import GraphNet
    from clashsim.nets.network_file import net_bytes

    (folder / "net.safetensors").write_bytes(net_bytes(GraphNet(3, hidden=4, layers=1)))


def _read_graph(folder: Path, rng: random.Random) -> object:
    from clashsim.nets.network_file import read_net

    return read_net(folder / "net.safetensors")


# --- run folders ----------------------------------------------------------------------------------


def _write_run(folder: Path) -> None:
    from clashsim.core.scene import Scene
    from clashsim.fit.calibrate import calibrate
    from clashsim.fit.distil import DistillationConfig, distil
    from clashsim.fit.run_folder import RunRecord, save_run
    from clashsim.fit.sample import sample
    from clashsim.slides.law import SlideModel

    scene = Scene.load("ellipse")
    base = distil(
        scene,
        sample(scene, 100, 0),
        config=DistillationConfig(width=8, layers=2, members=2, steps=5, batch=32),
    )
    impacts = replace(sample(scene, 12, 1), theta=None, end_counts={})
    slide = SlideModel({"friction": 0.3}, gyration=0.02)
    figures = {"accuracy_0.1": 0.5, "accuracy_0.2": 0.7, "median": 0.11}
    restitution = {"speeds": [0.2, 0.5], "nominal": [0.1, 0.2], "identified": [0.3, 0.4]}
    ground = {
        "slides": 3,
        "sliding": 0.3,
        "sliding_error": 0.01,
        "torsional": 0.1,
        "torsional_error": None,
    }
    metrics = {
        "impacts": 12,
        "held_out": 3,
        "judged": "on 3 impacts held out",
        "models": {"clashsim": figures},
        "restitution": restitution,
        "ground": ground,
        "outside": 1,
        "segmented": ["12 impacts in 12 trials"],
        "slide": {"words": "slides end 3 mm from where they should"},
    }
    save_run(
        folder / "run",
        calibrate(base, impacts),
        slide=slide,
        record=RunRecord({"seed": 3, "known": []}, metrics, {"a.csv": impacts}),
    )


def _list_again(files: Files, changed: str) -> None:
    """Give the manifest the hash of the file that was changed."""
    manifest = "run/manifest.json"
    if changed != manifest:
        listed = json.loads(files[manifest])
        listed["files"][changed.removeprefix("run/")] = hashlib.sha256(files[changed]).hexdigest()
        files[manifest] = json.dumps(listed).encode()


def _read_run(folder: Path, rng: random.Random) -> object:
    from clashsim.commands.show import ShowOptions, run

    with contextlib.redirect_stdout(io.StringIO()):
        return run(ShowOptions(run=folder / "run"))


def changeable(kind: Kind, files: Mapping[str, bytes]) -> list[str]:
    """Which files of an input are mutated."""
    return sorted(name for name in files if any(fnmatch(name, pattern) for pattern in kind.changes))
