"""The command line: one frozen dataclass per verb; what a verb does is in `commands`, a module
each.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg, subcommand

from clashsim.commands import (
    advise,
    bench,
    calibrate,
    demo,
    doctor,
    export,
    import_logs,
    inspect,
    loop,
    plan,
    push,
    record,
    sample,
    segment,
    show,
    sweep,
    view,
)
from clashsim.commands.terminal import plain, plain_output
from clashsim.core.errors import ClashError

SceneArg = Positional[Annotated[str, arg(metavar="SCENE")]]
Out = Annotated[Path, arg(aliases=["-o"], metavar="PATH")]
Name = Annotated[str | None, arg(metavar="NAME")]
Place = Annotated[Path | None, arg(metavar="PATH")]
Names = Annotated[tuple[str, ...], arg(metavar="NAMES")]
TrialsArg = Positional[Annotated[Path, arg(metavar="TRIALS")]]


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
class Bodies:
    """Which bodies of the trials meet, where the scene's names for them are others, or where there
    is no scene.
    """

    struck: Name = None
    """Name of the struck body in the trials; of the geom, for an MJCF file without a settings file
    (.toml) beside it.
    """
    striker: Name = None
    """Name of the striker likewise; without a scene, none is a wall or floor that was not recorded.
    """
    ground: Name = None
    """Name of the scene's geom on which the struck body slides, for an MJCF file without settings.
    """


@dataclass(frozen=True)
class Where:
    """Where work that is many and independent is done."""

    on: Annotated[str | None, arg(metavar="WHERE")] = None
    """ray joins the cluster of `ray start`, or starts one on this machine; local always starts one;
    an address (host:port, ray://host:port) joins that one. By default all is done in this process.
    Needs clashsim[scale].
    """
    workers: int = 0
    """Workers there, a core each; 0 is all of them."""


@dataclass(frozen=True)
class Import:
    """Read a laboratory's logs as trials: SI units, one clock, named bodies, and a table of what is
    wrong with them.

    Example: clashsim import logs/ --mapping lab.toml -o trials.safetensors

    Logs are CSV, Parquet, HDF5, NPZ, MAT, Motive, Vicon, C3D, ROS bags or MCAP: files, folders or
    archives (.zip, .gz). A mapping file says which column is what (docs/logs.md); --guess proposes
    one: clashsim import logs/ --guess -o lab.toml
    """

    logs: Positional[Annotated[tuple[Path, ...], arg(metavar="LOG...")]]
    """Files, folders and archives with logs."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """File to write: trials (.safetensors), or with --guess a proposed mapping (.toml)."""
    mapping: Place = None
    """Mapping file (.toml); formats that describe themselves need none."""
    guess: bool = False
    """Guess the mapping from names and numbers; without -o it is printed."""
    rate: float = 0.0
    """Frames a second, for --guess where the logs count frames and have no times."""
    accept: Names = ()
    """Serious findings to go on with, by name, as in: --accept up_axis swapped"""
    overwrite: bool = False
    """Replace the file if it exists."""


@dataclass(frozen=True)
class Inspect:
    """Look at trials: what was recorded, which impacts are in it, and pictures of both.

    Example: clashsim inspect trials.safetensors --scene semi_cylinder -o trials.html

    For a scene of your own, --settings scene.toml proposes the file that lies beside scene.xml from
    then on.
    """

    trials: TrialsArg
    """File of clashsim import (.safetensors) or record (.npz)."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """Picture (.png, .svg, .pdf) or page (.html) to write."""
    scene: Annotated[str | None, arg(metavar="SCENE")] = None
    """Scene with which impacts are looked for; without one, --struck alone will do."""
    settings: Place = None
    """File (.toml) to propose the scene's settings in: which geoms collide, ranges of strikes that
    hold the impacts found, parameters.
    """
    overwrite: bool = False
    """Replace the files if they exist."""
    bodies: OmitArgPrefixes[Bodies] = Bodies()


@dataclass(frozen=True)
class Segment:
    """Find the impacts in trials and measure the motion just before and just after each.

    Example: clashsim segment trials.safetensors --scene semi_cylinder -o impacts.csv

    The file is what clashsim calibrate reads; clashsim calibrate takes trials directly, too.
    """

    trials: TrialsArg
    """File of clashsim import (.safetensors) or record (.npz)."""
    out: Out
    """File to write, ending in .csv or .safetensors."""
    scene: Annotated[str, arg(metavar="SCENE")]
    """A shipped scene or an MJCF file ending in .xml."""
    sure: bool = False
    """Leave out impacts that are in doubt: double hits, long contacts."""
    known: Names = ()
    """Numbers of the trials to write with each impact, beside those that are parameters of the
    scene.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    bodies: OmitArgPrefixes[Bodies] = Bodies()


@dataclass(frozen=True)
class Record:
    """Record strikes in the laboratory, a stand-in for reality: three materials on two kinds of
    sand for each shape. Needs clashsim[lab].

    Example: clashsim record -o recordings --shape semi_cylinder --strikes 12

    Files that are there are kept, so work that was interrupted goes on. What ships with clashsim is
    --strikes 110 --seed 2025 of all shapes.
    """

    out: Out
    """Folder to write to, one .npz file a setting."""
    shape: Annotated[str | None, arg(metavar="SHAPE")] = None
    """Only this shape: semi_cylinder, square or triangle."""
    strikes: int = 110
    """Strikes of each setting; a second or two each."""
    seed: int = 2025
    """Of strikes, placing and cameras."""


@dataclass(frozen=True)
class Sample:
    """Draw strikes from a scene's ranges and run them in MuJoCo.

    Example: clashsim sample semi_cylinder -n 100000 -o strikes.safetensors

    Work that is interrupted goes on where it stopped when the same command is given again.
    On all cores of a cluster: clashsim sample semi_cylinder -n 10000000 -o strikes.safetensors --on
    ray --parts s3://bucket/strikes
    """

    scene: SceneArg
    """A shipped scene or an MJCF file ending in .xml."""
    out: Out
    """File to write, ending in .safetensors."""
    samples: Annotated[int, arg(aliases=["-n"])] = 100_000
    """Strikes to draw."""
    seed: int = 0
    """The same seed gives the same file, with any number of threads and workers."""
    threads: int = 0
    """Threads to use in this process; 0 is all cores."""
    by: Literal["mujoco", "mjx", "auto"] = "mujoco"
    """What runs the strikes: MuJoCo on the processor, MJX on jax's device, or whichever is quicker
    in a call of each.
    """
    parts: Annotated[str | None, arg(metavar="PLACE")] = None
    """Folder, or URL of any file system that fsspec knows, for what is finished while the rest is
    not; by default beside the output.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    pair: OmitArgPrefixes[Pair] = Pair()
    where: OmitArgPrefixes[Where] = Where()


@dataclass(frozen=True)
class Calibrate:
    """Fit a scene's collision model to recorded impacts.

    Example: clashsim calibrate semi_cylinder impacts.csv -o runs/first --hold-out 0.3

    The impacts are a .csv, .npz, .json or .safetensors file with columns vx, vy, w, striker_vx,
    ..., vx_after, vy_after, w_after (SI units). Trials of clashsim import or record are taken as
    well: impacts are looked for in them, and the ground's friction and a slide model are told from
    the slides. The first run of a scene samples and distils it, which takes minutes; later ones
    take that from --base.
    """

    scene: SceneArg
    """A shipped scene or an MJCF file ending in .xml."""
    impacts: Positional[Annotated[Path, arg(metavar="IMPACTS")]]
    """File with recorded impacts, or with trials."""
    out: Out
    """Folder to write the run to."""
    samples: int = 100_000
    """Simulated strikes to distil from."""
    base: Place = None
    """Folder where distilled models are kept; by default clashsim's folder in the user's cache."""
    seed: int = 0
    """Of sampling, distilling, fitting and holding out."""
    hold_out: float = 0.0
    """Share of the impacts kept back to judge the result; 0 judges by leaving each fifth out in
    turn.
    """
    known: Names = ()
    """Further columns of the file (or numbers of the trials) that were measured with each impact
    and may explain it.
    """
    overwrite: bool = False
    """Replace the run if it exists."""
    write_mjcf: Place = None
    """File to write the scene to, with the identified values in it and otherwise as it was."""
    pair: OmitArgPrefixes[Pair] = Pair()


@dataclass(frozen=True)
class Sweep:
    """Calibrate many pairs: one run for each line of a list.

    Example: clashsim sweep pairs.csv --on ray

    The list is a .csv file with columns scene, impacts and out, or a .toml file with a table
    [[run]] of them each; seed, hold_out, samples, known, struck, striker and ground may be there as
    well, as clashsim calibrate has them. Paths are seen from the list. Runs that are there are
    kept, so that a sweep that was interrupted goes on; one that fails is told at the end, and the
    others finish.
    """

    pairs: Positional[Annotated[Path, arg(metavar="LIST")]]
    """File with the list, ending in .csv or .toml."""
    samples: int = 100_000
    """Simulated strikes to distil from, where the list does not say."""
    base: Place = None
    """Folder where distilled models are kept; by default clashsim's folder in the user's cache."""
    seed: int = 0
    """Of sampling, distilling, fitting and holding out, where the list does not say."""
    hold_out: float = 0.0
    """Share of the impacts kept back, where the list does not say; 0 judges by leaving each fifth
    out in turn.
    """
    overwrite: bool = False
    """Make runs again that are there."""
    where: OmitArgPrefixes[Where] = Where()


@dataclass(frozen=True)
class Show:
    """Print what a run found: parameters with intervals and verdicts, and its accuracy.

    Example: clashsim show runs/first
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo."""


@dataclass(frozen=True)
class View:
    """Open a run in the browser: replay its strikes in 3D, drag a target and see the strike
    planned, strike by hand, watch a policy on a route.

    Example: clashsim view runs/demo

    Works without a screen: the page listens on this machine only, and the command says how to reach
    it over SSH. Needs clashsim[viser].
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo."""
    trials: Place = None
    """Recordings to replay, a file of clashsim import or record; by default what the run was made
    from.
    """
    policy: Place = None
    """Policy to open on a route: a folder or file of clashsim train."""
    route: Annotated[str | None, arg(metavar="ROUTE")] = None
    """A further route beside 1, 2 and 3: a .csv file of way points with a header x,y in m."""
    host: str = "127.0.0.1"
    """Address to listen on; any other than this one lets other machines in."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""


@dataclass(frozen=True)
class Export:
    """Write a run as files for other tools: the scene with identified values, ranges for domain
    randomisation, draws from them.

    Example: clashsim export runs/first -o first --draws 100

    scene.xml is your own file with what was identified in it, beside its meshes; ranges.json has
    each parameter's value, 90 % interval and verdict; draws.csv has one set of parameters a row;
    slide.json is there if the run has a slide model. In Python: clashsim.load("runs/first").
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo."""
    out: Out
    """Folder to write to."""
    draws: int = 0
    """Sets of parameters to draw for domain randomisation."""
    seed: int = 0
    """Of the draws."""
    overwrite: bool = False
    """Replace the export if it exists."""


@dataclass(frozen=True)
class ArmLimits:
    """What the arm allows at its tip."""

    speed: float = 0.8
    """m/s"""
    acceleration: float = 10.0
    """m/s^2"""
    jerk: float = 500.0
    """m/s^3"""


@dataclass(frozen=True)
class Plan:
    """Plan the strike, or the strikes, that bring the struck body to a target, and write them as a
    robot executes them.

    Example: clashsim plan runs/demo --target -0.05 -0.02 -20 -o plan

    The folder gets plan.json, a picture, and for each strike the path of the tip at 1 kHz as
    path-1.csv and path-1.json.
    Many targets at once: clashsim plan runs/demo --targets targets.csv -o plans.csv
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo, with a slide model."""
    target: Annotated[tuple[float, float, float] | None, arg(metavar="X Y YAW")] = None
    """Where the body shall come to rest: m, m, degrees."""
    targets: Place = None
    """Instead of one: a .csv file with the columns x, y (m), yaw (degrees), and start_x, start_y,
    start_yaw if they differ.
    """
    start: Annotated[tuple[float, float, float], arg(metavar="X Y YAW")] = (0.0, 0.0, 0.0)
    """Where it lies: m, m, degrees."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """Folder to write to; with --targets a file, .csv or .json."""
    strikes: Annotated[int | None, arg(metavar="INT")] = None
    """How many strikes, 1 to 3; by default as few as reach the target."""
    method: Literal["cmaes", "cem", "gradient"] = "cmaes"
    """How to search."""
    side: Annotated[tuple[float, float] | None, arg(metavar="FROM TO")] = None
    """Side from which the arm can strike: bearings of the tip seen from the body, degrees,
    counter-clockwise.
    """
    workspace: Annotated[tuple[float, float, float, float] | None, arg(metavar="X0 X1 Y0 Y1")] = (
        None
    )
    """What the body may not leave, m."""
    draws: int = 0
    """Plan for the mean over so many draws of what the model is unsure of, instead of for what it
    expects.
    """
    seed: int = 0
    """Of the search."""
    overwrite: bool = False
    """Replace the folder or file if it exists."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Where torch searches, all targets and populations in one batch: cpu or cuda."""
    where: OmitArgPrefixes[Where] = Where()
    limits: ArmLimits = ArmLimits()


@dataclass(frozen=True)
class Advise:
    """Say which strikes to make next, what error is expected after each, and whether ten more would
    help.

    Example: clashsim advise runs/demo -k 5 -o next.csv
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo; or a scene, for the first strikes of all."""
    strikes: Annotated[int, arg(aliases=["-k"])] = 5
    """How many strikes, 1 to 100."""
    side: Annotated[tuple[float, float] | None, arg(metavar="FROM TO")] = None
    """Side from which strikes are made: bearings of the tip seen from the body, degrees,
    counter-clockwise.
    """
    speed: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """Speeds that the task uses, m/s."""
    seed: int = 0
    """Of the strikes to choose from."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """File to write the strikes to, .csv or .json."""
    overwrite: bool = False
    """Replace the file if it exists."""


@dataclass(frozen=True)
class Execute:
    """Execute a plan in the laboratory, a stand-in for reality, and show target, expectation and
    outcome. Needs clashsim[lab].

    Example: clashsim execute plan --times 3 -o outcome.png
    """

    plan: Positional[Annotated[Path, arg(metavar="PLAN")]]
    """Folder of clashsim plan, or its plan.json."""
    material: str = "resin"
    """resin, nylon or petg_cf."""
    surface: str = "high"
    """high or low friction."""
    times: int = 1
    """How often."""
    seed: int = 0
    """Of the scatter of arm, hand and camera."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """Picture (.png, .svg, .pdf) or trials (.safetensors) to write."""
    overwrite: bool = False
    """Replace the file if it exists."""


@dataclass(frozen=True)
class Train:
    """Train a policy that pushes the body along a corridor by repeated strikes, with SAC.

    Example: clashsim train runs/demo -o runs/push

    Interrupted, the same command goes on from the last checkpoint. Needs clashsim[rl].
    Several at once: clashsim train runs/demo -o runs/push --seeds 8 --on ray
    On a card: clashsim train runs/demo -o runs/push --device cuda, with PPO, which needs no
    clashsim[rl].
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder of clashsim calibrate or demo, with a slide model."""
    out: Out
    """Folder to write policy, checkpoints and a log for TensorBoard to."""
    config: Literal["default", "paper"] = "default"
    """default: many copies at once; paper: the library's own hyper-parameters, one copy."""
    steps: Annotated[int | None, arg(metavar="INT")] = None
    """Strikes to train with: 200,000, and with --device ten times that."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Device of torch on which thousands of copies are struck and the policy is trained, as in:
    --device cuda.
    """
    num_envs: Annotated[int | None, arg(metavar="INT")] = None
    """Copies struck at once with --device: 4096."""
    seed: int = 0
    """Of everything drawn."""
    seeds: int = 1
    """Policies to train, of as many seeds from --seed on, in folders seed-0, seed-1, ...; those
    that are there are kept.
    """
    overwrite: bool = False
    """Train again although there is a policy."""
    where: OmitArgPrefixes[Where] = Where()


@dataclass(frozen=True)
class Evaluate:
    """Follow a route with a policy in the laboratory, a stand-in for reality. Needs clashsim[lab].

    Example: clashsim evaluate runs/push/policy.safetensors --route 2 --in lab -o route.gif
    """

    policy: Positional[Annotated[Path, arg(metavar="POLICY")]]
    """File of clashsim train."""
    route: Annotated[str, arg(metavar="ROUTE")] = "1"
    """1, 2 or 3, in rising difficulty, or a .csv file of way points with a header x,y in m."""
    world: Annotated[Literal["lab"], arg(name="in")] = "lab"
    """Where: the laboratory."""
    times: int = 10
    """How often."""
    material: str = "resin"
    """resin, nylon or petg_cf."""
    surface: str = "high"
    """high or low friction."""
    seed: int = 0
    """Of the starts and of the scatter of arm, hand and camera."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH")] = None
    """Animated picture (.gif) of the first trial to write."""
    overwrite: bool = False
    """Replace the file if it exists."""


@dataclass(frozen=True)
class Loop:
    """Real-sim-real: strike with the current policy, learn the simulator from that, train the
    policy further in it, round after round.

    Example: clashsim loop semi_cylinder --in lab --rounds 4 -o runs/loop

    Each round is a folder with its strikes, recordings, run and policy; interrupted, the same
    command goes on. It ends before --rounds when the error on fresh strikes has stopped falling.
    With --in folder it stops at a file of strikes to make on a bench of your own, and goes on when
    their recordings lie beside it. Needs clashsim[rl], and clashsim[lab] for the laboratory.
    """

    scene: SceneArg
    """A shipped scene or an MJCF file ending in .xml; its values are where the first simulator
    begins.
    """
    out: Out
    """Folder of the loop."""
    rounds: int = 4
    """Rounds at most."""
    world: Annotated[Literal["lab", "folder"], arg(name="in")] = "lab"
    """Where strikes are made: in the laboratory, a stand-in for reality, or on a bench of your own.
    """
    task: Literal["push", "pose"] = "push"
    """push: along a corridor; pose: to a pose, for bodies that may be struck from all sides."""
    algorithm: Literal["sac", "ppo"] = "sac"
    """How policies are trained."""
    collect: Literal["informative", "plain", "random"] = "informative"
    """Strikes of the policy paid for what teaches, of the policy as it is, or at random (without a
    policy).
    """
    strikes: int = 6
    """Strikes a round."""
    material: str = "resin"
    """Of the laboratory's block: resin, nylon or petg_cf."""
    surface: str = "high"
    """High or low friction."""
    change: str = "none"
    """What is not as the scene says, in the laboratory: none, heavier or ballast."""
    all_rounds: bool = False
    """Go on to the last round although another is not expected to pay."""
    seed: int = 0
    """Of everything drawn."""


@dataclass(frozen=True)
class Bench:
    """Measure what the README claims.

    Example: clashsim bench real-impacts --data data --json real-impacts.json
    """

    name: Positional[
        Literal[
            "real-impacts",
            "shapes",
            "materials",
            "real-slides",
            "sampling",
            "base",
            "throughput",
            "planning",
            "search-time",
            "routes",
            "loop",
            "advise",
            "basin-hopping",
            "real-pendulum",
            "real-tosses",
            "push-to-stop",
            "bowling",
            "scaling",
        ]
    ]
    """real-impacts: accuracy on public recordings; shapes, materials: the same on strikes of the
    laboratory, a stand-in; real-slides: where a struck object stops; sampling: rate against bare
    MuJoCo; base: accuracy before any real data;
    throughput: strikes a second of MuJoCo and of the hybrid simulator; planning: planned strikes
    executed in the laboratory; search-time: how long planning takes in MuJoCo and in the hybrid
    simulator; routes: trained policies executed in the laboratory;
    loop: the real-sim-real loop where the laboratory is not as the scene's author believes; advise:
    ten advised strikes against ten random ones; basin-hopping: identification in MJX from poor
    guesses, against descent, multi-start and CMA-ES; real-pendulum: a real double pendulum
    predicted from 40 frames, with and without neural scalars; real-tosses: rollouts of a tossed
    cube on public recordings; push-to-stop: a pushing velocity found by slopes through the graph
    simulator;
    bowling: the graph simulator against MuJoCo with ten cubes;
    scaling: sampling and calibration with one and two workers of Ray, and with one of them killed.
    """
    data: Place = None
    """Folder of the public sets; by default what CLASHSIM_DATA says."""
    seeds: Annotated[int | None, arg(metavar="INT")] = None
    """Repetitions; by default what the bench calls for."""
    sets: Annotated[tuple[str, ...], arg(metavar="NAMES")] = ()
    """Only these sets, as in: --sets mit_ellipse lasa/D1 (accuracy benches only)."""
    methods: Annotated[tuple[str, ...], arg(metavar="NAMES")] = ()
    """Only these methods, as in: --methods gp clashsim (accuracy benches only)."""
    resume: Place = None
    """File that keeps finished rows, so that an interrupted run goes on from them (accuracy benches
    only).
    """
    device: Annotated[str | None, arg(metavar="NAME")] = None
    """Device of torch to measure on as well, as in: --device cuda (throughput and bowling only)."""
    quick: bool = False
    """A small version, to see that it runs."""
    json: Place = None
    """File to write the rows to, as they are made; a row that cannot be made says why."""
    plot: Place = None
    """File to draw accuracy against the number of impacts to (accuracy benches only)."""
    where: OmitArgPrefixes[Where] = Where()


@dataclass(frozen=True)
class Demo:
    """Calibrate the semi-cylinder on ten strikes recorded in the laboratory, a stand-in for
    reality, and judge it on a hundred.

    Example: clashsim demo -o runs/demo
    """

    out: Out = Path("runs/demo")
    """Folder to write the run and its report to."""
    impacts: int = 10
    """Strikes to calibrate with."""
    seed: int = 0
    """Of everything drawn."""
    overwrite: bool = False
    """Replace the run if it exists."""
    samples: int = 30_000
    """Simulated strikes to distil from."""
    steps: int = 2000
    """Steps of distillation."""


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, which extras are missing and what gives them, and test the main path.

    Example: clashsim doctor

    The self-test samples, calibrates on recorded strikes, plans and steps for real; if it fails,
    the exit code says so.
    """

    quick: bool = False
    """Leave the self-test out."""
    json: bool = False
    """Print everything as JSON."""


# In the order of the way from a recording to a judged model, which is the order in which --help
# lists them.
COMMANDS: dict[type, Callable[[Any], None]] = {
    Import: import_logs.run,
    Inspect: inspect.run,
    Segment: segment.run,
    Calibrate: calibrate.run,
    Sweep: sweep.run,
    Show: show.run,
    View: view.run,
    Export: export.run,
    Advise: advise.run,
    Plan: plan.run,
    Execute: plan.execute,
    Train: push.train,
    Evaluate: push.evaluate,
    Loop: loop.run,
    Sample: sample.run,
    Record: record.run,
    Bench: bench.run,
    Demo: demo.run,
    Doctor: doctor.run,
}
ABOUT = "From a MuJoCo scene and about ten recorded impacts to a calibrated collision model."


def overview() -> str:
    """All verbs, each with its first sentence, as wide as the terminal."""
    wide = shutil.get_terminal_size((100, 24)).columns
    lines = ["usage: clashsim VERB ...", "", ABOUT, ""]
    for kind in COMMANDS:
        name, first = kind.__name__.lower(), str(kind.__doc__).split("\n")[0]
        lines += textwrap.wrap(
            f"  {name:<10} {first}", max(40, wide), subsequent_indent=" " * 13, drop_whitespace=True
        )
    return "\n".join([*lines, "", "clashsim VERB --help has an example and all options of each."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one sentence on standard error and exit code 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given in (["-h"], ["--help"]):
        print(overview())
        return 0
    try:
        kinds = reduce(
            or_, (Annotated[kind, subcommand(kind.__name__.lower())] for kind in COMMANDS)
        )
        verb: Any = tyro.cli(
            kinds, prog="clashsim", args=given, description=ABOUT, config=(FlagCreatePairsOff,)
        )  # type: ignore[call-overload]
        with plain_output():
            COMMANDS[type(verb)](verb)
        _end_output()
    except ClashError as error:
        print(plain(f"clashsim: {error}"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, which is no mistake
        with suppress(OSError):
            _end_output()
        return 0
    except OSError as error:
        cause = error
        try:
            _end_output()
        except OSError as full:
            cause = error if error.filename else full
        file = f"{cause.filename}: " if cause.filename else ""
        sentence = f"clashsim: {file}{cause.strerror or cause}"
        print(plain(sentence), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "clashsim: interrupted; long work keeps what was finished, and the same command goes on from it",
            file=sys.stderr,
        )
        return 130
    return 0


def _end_output() -> None:
    """Flush standard output; where that fails, drop the rest, or Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from None


if __name__ == "__main__":
    sys.exit(main())
