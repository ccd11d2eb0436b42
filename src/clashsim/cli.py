"""The command line: one frozen dataclass per verb; the only place where things are wired together."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg, subcommand

from clashsim.core.errors import ClashError, DataError, ParamError, SceneError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.core.impacts import Impacts
    from clashsim.core.scene import Scene
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.distil import Distilled

SceneArg = Positional[Annotated[str, arg(metavar="SCENE")]]
Out = Annotated[Path, arg(aliases=["-o"], metavar="PATH")]
Name = Annotated[str | None, arg(metavar="NAME")]
Place = Annotated[Path | None, arg(metavar="PATH")]
_BENCHES = {"real-impacts": "real_impacts", "sampling": "sampling", "base": "base"}
# What --quick means to benches that have a size instead.
_QUICK: dict[str, dict[str, Any]] = {"sampling": {"n": 8192}, "base": {"n": 8192, "held_out": 1000, "scenes": ("puck",)}}
_SPEEDS = (0.1, 0.5, 0.9)  # quantiles of the approach speed at which restitution is read


@dataclass(frozen=True)
class Pair:
    """Which geoms collide, for an MJCF file without a settings file (.toml) beside it."""

    struck: Name = None
    """Name of the geom whose motion is predicted."""
    striker: Name = None
    """Name of the geom that it meets."""
    ground: Name = None
    """Name of the geom on which the struck body slides, if there is one."""


@dataclass(frozen=True)
class Sample:
    """Draw strikes from a scene's ranges and run them in MuJoCo.

    Example: clashsim sample semi_cylinder -n 100000 -o strikes.safetensors

    Work that is interrupted goes on where it stopped when the same command is given again.
    """

    scene: SceneArg
    """A shipped scene (semi_cylinder, square, triangle, ellipse, puck, ...) or an MJCF file ending in .xml."""
    out: Out
    """File to write, ending in .safetensors."""
    n: Annotated[int, arg(aliases=["-n"])] = 100_000
    """Number of strikes."""
    seed: int = 0
    """The same seed gives the same file, with any number of threads."""
    threads: int = 0
    """Threads to use; 0 is all cores."""
    overwrite: bool = False
    """Replace the file if it exists."""
    pair: OmitArgPrefixes[Pair] = Pair()


@dataclass(frozen=True)
class Calibrate:
    """Fit a scene's collision model to recorded impacts.

    Example: clashsim calibrate semi_cylinder impacts.csv -o runs/first --hold-out 0.3

    The impacts are a .csv, .npz, .json or .safetensors file with columns vx, vy, w, striker_vx, ..., vx_after, vy_after, w_after (SI units).
    The first run of a scene samples and distils it, which takes minutes; later ones take that from --base.
    """

    scene: SceneArg
    """A shipped scene or an MJCF file ending in .xml."""
    impacts: Positional[Annotated[Path, arg(metavar="IMPACTS")]]
    """File with recorded impacts."""
    out: Out
    """Folder to write the run to."""
    samples: int = 100_000
    """Simulated strikes to distil from."""
    base: Place = None
    """Folder where distilled models are kept; by default clashsim's folder in the user's cache."""
    seed: int = 0
    """Of sampling, distilling, fitting and holding out."""
    hold_out: float = 0.0
    """Share of the impacts kept back to judge the result; 0 judges by leaving each fifth out in turn."""
    known: Annotated[tuple[str, ...], arg(metavar="NAMES")] = ()
    """Further columns of the file that were measured with each impact and may explain it."""
    overwrite: bool = False
    """Replace the run if it exists."""
    write_mjcf: Place = None
    """File to write the scene to, with the identified values in it and otherwise as it was."""
    pair: OmitArgPrefixes[Pair] = Pair()


@dataclass(frozen=True)
class Show:
    """Print what a run found: parameters with intervals and verdicts, and its accuracy.

    Example: clashsim show runs/first
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Folder of a run."""


@dataclass(frozen=True)
class Bench:
    """Measure what the README claims.

    Example: clashsim bench real-impacts --data data --json real-impacts.json
    """

    name: Positional[Literal["real-impacts", "sampling", "base"]]
    """real-impacts: accuracy on public recordings; sampling: rate against bare MuJoCo; base: accuracy before any real data."""
    data: Place = None
    """Folder of the public sets; by default what CLASHSIM_DATA says."""
    seeds: Annotated[int | None, arg(metavar="INT")] = None
    """Repetitions; by default what the bench calls for."""
    sets: Annotated[tuple[str, ...], arg(metavar="NAMES")] = ()
    """Only these sets, as in: --sets mit_ellipse lasa/D1 (real-impacts only)."""
    methods: Annotated[tuple[str, ...], arg(metavar="NAMES")] = ()
    """Only these methods, as in: --methods gp clashsim (real-impacts only)."""
    resume: Place = None
    """File that keeps finished rows, so that an interrupted run goes on from them (real-impacts only)."""
    quick: bool = False
    """A small version, to see that it runs."""
    json: Place = None
    """File to write the rows to."""
    plot: Place = None
    """File to draw accuracy against the number of impacts to (real-impacts only)."""


@dataclass(frozen=True)
class Demo:
    """Calibrate the shipped semi-cylinder against a stand-in for reality, in about two minutes.

    Example: clashsim demo -o runs/demo
    """

    out: Out = Path("runs/demo")
    """Folder to write the run and its picture to."""
    impacts: int = 20
    """Impacts to calibrate with."""
    seed: int = 0
    """Of everything drawn."""
    overwrite: bool = False
    """Replace the run if it exists."""
    samples: int = 30_000
    """Simulated strikes to distil from."""
    steps: int = 2000
    """Steps of distillation."""


Verb = (Annotated[Sample, subcommand("sample")] | Annotated[Calibrate, subcommand("calibrate")] | Annotated[Show, subcommand("show")]
        | Annotated[Bench, subcommand("bench")] | Annotated[Demo, subcommand("demo")])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one sentence on standard error and exit code 2."""
    about = "From a MuJoCo scene and about ten recorded impacts to a calibrated collision model."
    try:
        verb: Any = tyro.cli(Verb, prog="clashsim", args=argv, description=about, config=(FlagCreatePairsOff,))  # type: ignore[call-overload]
        _RUN[type(verb)](verb)
    except ClashError as error:
        print(f"clashsim: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, which is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"clashsim: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("clashsim: interrupted", file=sys.stderr)
        return 130
    return 0


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=160)


def _load_scene(source: str, pair: Pair) -> Scene:
    from clashsim.core.scene import Scene

    try:
        scene = Scene.load(source, **asdict(pair))
    except UnicodeDecodeError:
        raise SceneError(f"scene file {source!r} is not text") from None
    _ = scene.slots  # compiles the scene and finds every parameter, so that mistakes show before any work
    return scene


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if value < 0:
            raise ParamError(f"--{name} must not be negative, got {value}")


def _enough_samples(samples: int) -> None:
    if samples < 100:
        raise ParamError(f"--samples must be at least 100, got {samples}: a network cannot be distilled from fewer")


def run_sample(verb: Sample) -> None:
    """`clashsim sample`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.fit.sample import sample

    _not_negative(seed=verb.seed, threads=verb.threads)
    if verb.out.suffix != ".safetensors":
        raise DataError(f"the output {str(verb.out)!r} must end in .safetensors")
    if verb.out.exists() and not verb.overwrite:
        raise DataError(f"{str(verb.out)!r} already exists; choose another output, or replace it with --overwrite")
    scene = _load_scene(verb.scene, verb.pair)
    parts = verb.out.with_name(verb.out.name + ".parts")
    impacts = sample(scene, verb.n, verb.seed, parts=parts, threads=verb.threads, progress=bar)
    write_impacts(verb.out, impacts)
    shutil.rmtree(parts)
    print(f"{len(impacts)} impacts of {verb.n} strikes in {verb.out}: " + ", ".join(f"{count} {end}" for end, count in impacts.ends.items()))


def run_calibrate(verb: Calibrate) -> None:
    """`clashsim calibrate`."""
    from clashsim.core.frame import frame
    from clashsim.data.impact_files import read_impacts
    from clashsim.data.store import refuse_taken
    from clashsim.fit.base import base_model

    _not_negative(seed=verb.seed)
    _enough_samples(verb.samples)
    if not 0 <= verb.hold_out < 1:
        raise ParamError(f"--hold-out must be at least 0 and below 1, got {verb.hold_out}")
    scene = _load_scene(verb.scene, verb.pair)
    impacts = read_impacts(verb.impacts, known=[*(p.name for p in scene.params), *verb.known]).checked()
    refuse_taken(verb.out, overwrite=verb.overwrite)
    order = np.random.default_rng(verb.seed).permutation(len(impacts))
    kept = len(impacts) - round(verb.hold_out * len(impacts))
    if kept < 1:
        raise ParamError(f"--hold-out {verb.hold_out} leaves none of the {len(impacts)} impacts to fit")
    fitted, held_out = impacts[np.sort(order[:kept])], impacts[np.sort(order[kept:])]
    frame(scene, impacts)  # refuses bodies that never meet, before minutes are spent on sampling
    base = base_model(scene, n=verb.samples, seed=verb.seed, cache=verb.base or _cache(), progress=bar)
    options = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(verb).items()}
    calibration, metrics = _finish(base, fitted, held_out, verb.out, options=options, name=verb.impacts.name, overwrite=verb.overwrite)
    if verb.write_mjcf is not None:
        _write_mjcf(verb, calibration)
    _report(calibration, metrics)
    print(f"run written to {verb.out}")


def _finish(base: Distilled, fitted: Impacts, held_out: Impacts, out: Path, *, options: dict[str, Any], name: str, overwrite: bool) -> tuple[Calibration, dict[str, Any]]:
    """Calibrate, judge and save."""
    from clashsim.bench.judge import judge, within
    from clashsim.core.frame import frame
    from clashsim.fit.calibrate import calibrate
    from clashsim.fit.reading import physical
    from clashsim.fit.runs import save_run

    seed, scene = int(options["seed"]), base.scene
    calibration = calibrate(base, fitted, seed=seed)
    metrics: dict[str, Any] = {"impacts": len(fitted), "held_out": len(held_out)} | judge(calibration, fitted, held_out, seed=seed)
    speeds = np.unique(np.round(np.quantile(frame(scene, fitted).speed, _SPEEDS), 2)).tolist()
    thetas = {"nominal": scene.nominal, "identified": within(calibration)}
    metrics["restitution"] = {"speeds": speeds} | {name: list(physical(scene, theta, speeds).values()) for name, theta in thetas.items()}
    save_run(out, calibration, config=options, metrics=metrics, trials={name: fitted}, overwrite=overwrite)
    return calibration, metrics


def _write_mjcf(verb: Calibrate, calibration: Calibration) -> None:
    """Write what was identified into the author's MJCF; what the impacts say nothing about stays as the author has it."""
    from clashsim.bench.judge import within
    from clashsim.core.files import write_atomic
    from clashsim.data.mjcf import write_back
    from clashsim.fit.calibrate import Status

    assert verb.write_mjcf is not None
    if verb.write_mjcf.exists() and not verb.overwrite:
        raise SceneError(f"{str(verb.write_mjcf)!r} already exists; choose another file, or replace it with --overwrite (the run is in {str(verb.out)!r})")
    scene, source = calibration.base.scene, Path(verb.scene)
    said = [i for i, e in enumerate(calibration.theta) if e.status in (Status.FITTED, Status.AT_BOUND)]
    text = source.read_bytes().decode() if source.suffix == ".xml" else scene.xml
    edited = write_back(text, scene.with_params([scene.params[i] for i in said]), within(calibration)[said])
    write_atomic(verb.write_mjcf, edited.xml.encode())
    left = [p.name for i, p in enumerate(scene.params) if i not in said]
    print(f"scene with identified values written to {verb.write_mjcf}"
          + (f"; left as they were: {', '.join(left)}" if left else "") + (f"; MJCF has no place for: {', '.join(edited.unwritten)}" if edited.unwritten else ""))


def _report(calibration: Calibration, metrics: dict[str, Any]) -> None:
    """Print a run's tables."""
    from clashsim.report.tables import accuracies, parameters, readings

    console, params = _console(), calibration.base.scene.params
    console.print(parameters(params, calibration.theta))
    reading = metrics.get("restitution")
    if reading:
        console.print(readings(dict(zip(reading["speeds"], reading["nominal"], strict=True)), dict(zip(reading["speeds"], reading["identified"], strict=True))))
    if "models" in metrics:
        console.print(accuracies(f"Accuracy {metrics['judged']}", metrics["models"]))
    free = sum(e.status != "known" for e in calibration.theta)
    if metrics.get("impacts", free) < free:
        console.print(f"There are fewer impacts ({metrics['impacts']}) than parameters ({free}): priors decide what these impacts cannot.", style="yellow")


def run_show(verb: Show) -> None:
    """`clashsim show`."""
    from clashsim.fit.runs import load_run, read_notes

    calibration, notes = load_run(verb.run), read_notes(verb.run)
    _report(calibration, notes["metrics"])
    trials = ", ".join(f"{t['name']} ({t['impacts']} impacts)" for t in notes["trials"])
    made = ", ".join(f"{k} {v}" for k, v in notes["versions"].items())
    print(f"scene {calibration.base.scene.name}; data: {trials or 'not named'}; made with {made}")


def run_bench(verb: Bench) -> None:
    """`clashsim bench`."""
    from inspect import signature

    from clashsim.core.files import write_atomic
    from clashsim.fit.runs import versions
    from clashsim.report.tables import plain

    if verb.seeds is not None and verb.seeds < 1:
        raise ParamError(f"--seeds must be at least 1, got {verb.seeds}")
    module = import_module(f"clashsim.bench.{_BENCHES[verb.name]}")
    if verb.plot is not None and not hasattr(module, "plot"):
        raise ParamError(f"the bench {verb.name} has no option --plot")
    data = verb.data or (Path(os.environ["CLASHSIM_DATA"]) if os.environ.get("CLASHSIM_DATA") else None)
    if "root" in signature(module.run).parameters:
        if data is None:
            raise DataError("this bench needs the public recordings: name their folder with --data, or in CLASHSIM_DATA")
        if not data.is_dir():
            raise DataError(f"there is no folder {str(data)!r} with the public recordings")
    takes = signature(module.run).parameters
    given: dict[str, Any] = {"seeds": verb.seeds, "sets": verb.sets, "methods": verb.methods, "resume": verb.resume}
    given |= _QUICK.get(verb.name, {"quick": True}) if verb.quick else {}
    given = {k: v for k, v in given.items() if v}  # what was not given is left to the bench's own defaults
    for name in given:
        if name not in takes:
            raise ParamError(f"the bench {verb.name} has no option --{name}")
    start = time.perf_counter()
    rows = module.run(**given, **{k: v for k, v in {"root": data, "cache": _cache(), "progress": bar}.items() if k in takes})
    seconds = time.perf_counter() - start
    _console().print(plain(f"{verb.name}, {seconds:.0f} s", rows))
    if verb.json is not None:
        machine = {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()}
        content = {"bench": verb.name, "versions": versions(), "machine": machine, "seconds": round(seconds, 1), "rows": _plain_numbers(rows)}
        write_atomic(verb.json, (json.dumps(content, indent=1) + "\n").encode())
    if verb.plot is not None:
        module.plot(rows, verb.plot)


def _plain_numbers(value: Any) -> Any:
    """What JSON can hold: numpy numbers as Python's, those that are not finite as null."""
    if isinstance(value, dict):
        return {k: _plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_demo(verb: Demo) -> None:
    """`clashsim demo`."""
    from clashsim.bench.judge import guesses
    from clashsim.bench.stand_in import stand_in
    from clashsim.core.scene import Scene
    from clashsim.data.store import refuse_taken
    from clashsim.fit.base import base_model
    from clashsim.fit.distil import Recipe
    from clashsim.report.plots import predicted_against_measured

    _not_negative(seed=verb.seed)
    _enough_samples(verb.samples)
    if verb.impacts < 1 or verb.steps < 1:
        raise ParamError(f"--impacts and --steps must be at least 1, got {verb.impacts} and {verb.steps}")
    refuse_taken(verb.out, overwrite=verb.overwrite)
    scene = Scene.load("semi_cylinder")
    console = _console()
    console.print("[bold]A stand-in for reality:[/bold] no recordings are at hand here, so the impacts come from a perturbed MuJoCo: other friction, damping ratio and\n"
                  "ground friction than the scene has, another timestep, impratio and mass (which no parameter can express), and 2 % noise.\n"
                  "On real recordings: clashsim bench real-impacts.")
    impacts = stand_in(scene, verb.impacts + 300, verb.seed)
    fitted, held_out = impacts[: verb.impacts], impacts[verb.impacts :]
    recipe = Recipe(width=128, layers=4, members=2, steps=verb.steps)
    base = base_model(scene, recipe=recipe, n=verb.samples, seed=verb.seed, cache=_cache(), progress=bar)
    options = asdict(verb) | {"out": str(verb.out)}
    calibration, metrics = _finish(base, fitted, held_out, verb.out, options=options, name="perturbed MuJoCo", overwrite=verb.overwrite)
    _report(calibration, metrics)
    picture = verb.out / "predicted.png"
    predicted_against_measured(picture, held_out.after, guesses(calibration, held_out),
                               title=f"{len(held_out)} held-out impacts of a perturbed MuJoCo, {len(fitted)} to calibrate with")
    print(f"run written to {verb.out}, picture in {picture}")


def _cache() -> Path:
    """Where distilled models are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clashsim"


_RUN: dict[type, Any] = {Sample: run_sample, Calibrate: run_calibrate, Show: run_show, Bench: run_bench, Demo: run_demo}

if __name__ == "__main__":
    sys.exit(main())
