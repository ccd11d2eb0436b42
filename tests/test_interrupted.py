"""Full disks, kills, processes that share a cache, other numbers of threads.

Kills are real (SIGKILL) and come when a file is put in place (`killed.py`), so that they find the
same state on every machine.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import killed
from clashsim import cli
from clashsim.bench import resume
from clashsim.core.errors import ClashError
from clashsim.core.files import append_lines, complete_files, write_atomic
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.checkpoints import CheckpointStore
from clashsim.data.folders import write_folder
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.readers import sources
from clashsim.data.trial_files import write_trials
from clashsim.fit.base import distilled_model, load_base
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistillationConfig, DistilledModel, distil
from clashsim.fit.run_folder import load, save_run
from clashsim.fit.sample import sample
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.report.figure_files import write_figure
from clashsim.rl import checkpoint
from clashsim.rl.corridor_picture import animate
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.slides.support_patch import scene_slide_model

TINY = DistillationConfig(width=16, layers=3, members=2, steps=20, batch=64)
ROUNDING = 1e-12  # sums in another order: relative, in double precision
LIMIT = 1000  # bytes that a file may have on the full disk of these tests
BIG = bytes(2 * LIMIT)
NOISE = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)


def slow(test):
    """For `make test-all`: about a minute each, and more on a machine with other work."""
    return pytest.mark.slow(pytest.mark.timeout(1200)(test))


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Within, the system refuses to write more than `LIMIT` bytes to any file, whoever asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def impacts(n: int = 100):
    return replace(sample(Scene.load("puck"), n, 0), theta=None, end_counts={})


def trials() -> Trials:
    t = np.linspace(0, 1, 200)
    return Trials((Trial("long", t, {"block": np.tile([0, 0, 0, 1.0, 0, 0, 0], (200, 1))}),))


def figure(path: Path) -> None:
    from matplotlib.figure import Figure

    write_figure(path, Figure(), dpi=100)


def unpacked(path: Path) -> None:
    """Open a log in an archive that is larger than the disk has room for."""
    with contextlib.ExitStack() as stack:
        sources.gather([path], (".csv",), stack)


WRITERS = {
    "a.bin": lambda path: write_atomic(path, BIG),
    "impacts.safetensors": lambda path: write_impacts(path, impacts()),
    "trials.safetensors": lambda path: write_trials(path, trials()),
    "shard-00000.safetensors": lambda path: CheckpointStore.of(path.parent).write(path.name, BIG),
    "rows.jsonl": lambda path: resume.append_rows(path, [{"text": "x" * 2 * LIMIT}]),
    "weights.safetensors": lambda path: write_folder(path.parent / "run", {path.name: BIG}),
    "checkpoint.safetensors": lambda path: checkpoint.write_checkpoint(
        path.parent, {"a": torch.zeros(LIMIT)}, {}, steps=1, of=2
    ),
    "figure.png": figure,
    "route.gif": lambda path: animate(path, [NOISE]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_to_a_full_disk_names_its_file_and_leaves_no_part_of_it(tmp_path, name):
    with full_disk(), pytest.raises((ClashError, OSError)) as error:
        WRITERS[name](tmp_path / name)
    raised = error.value
    sentence = (
        str(raised) if isinstance(raised, ClashError) else f"{raised.filename}: {raised.strerror}"
    )
    assert name in sentence
    assert "File too large" in sentence
    assert "\n" not in sentence
    assert not any(tmp_path.iterdir()) or name == "rows.jsonl"  # lines are added in place
    WRITERS[name](tmp_path / name)  # there is room again
    assert any(tmp_path.iterdir())


def test_sampling_goes_on_when_a_full_disk_has_room_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["sample", "puck", "-n", "100", "-o", "s.safetensors"]
    with full_disk():
        assert cli.main(command) == 2
    file = tmp_path / "s.safetensors.parts" / "shard-00000.safetensors"
    assert capsys.readouterr().err == f"clashsim: {file}: File too large\n"
    assert [path.name for path in file.parent.iterdir()] == ["job.json"]
    assert cli.main(command) == 0
    assert len(read_impacts("s.safetensors")) > 90


def test_an_archive_that_finds_no_room_is_told(tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(BIG))
    sentence = r"'.*log.csv.gz' cannot be unpacked to '.*': File too large"
    with full_disk(), pytest.raises(ClashError, match=sentence):
        unpacked(tmp_path / "log.csv.gz")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is Linux's")
def test_output_that_cannot_be_written_is_told(monkeypatch, capsys):
    command = cli.COMMANDS["show"]._replace(run=lambda options: print("a table"))
    monkeypatch.setitem(cli.COMMANDS, "show", command)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["show", "run"]) == 2
        full.flush()  # nothing is left that Python would try to write at exit
    assert capsys.readouterr().err == "clashsim: standard output: No space left on device\n"


def test_lines_after_one_that_was_cut_short_are_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    resume.append_rows(path, [{"a": 1}, {"a": 2}])
    path.write_bytes(path.read_bytes()[:-4])  # as a kill leaves it
    resume.append_rows(path, [{"a": 3}])
    append_lines(path, json.dumps({"a": 4}) + "\n")
    assert [row["a"] for row in resume.read_rows(path)] == [1, 3, 4]


def test_files_are_written_in_one_place():
    """By other means the file is not named when that fails, and parts of it are left by a kill."""
    root = Path(cli.__file__).parent
    # The second unpacks archives into a folder that is removed.
    allowed = {"core/files.py", "data/readers/sources.py"}
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _writes(node):
                found.append(f"{path.relative_to(root).as_posix()}:{node.lineno}")
    assert [place for place in found if place.split(":")[0] not in allowed] == []
    assert {place.split(":")[0] for place in found} == allowed


def _writes(call: ast.Call) -> bool:
    """Whether a call writes a file: Path.write_*, open() for writing, or a library's own save."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_bytes", "write_text", "save_file", "imsave"):
        return True
    if name == "savefig":
        target = call.args[0]
        return not (isinstance(target, ast.Name) and target.id == "content")
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    words = [value.value for value in given if isinstance(value, ast.Constant)]
    modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwaxbt+")]
    return name == "open" and any(set(mode) & set("wax+") for mode in modes)


def test_what_a_kill_leaves_of_a_file_is_not_taken_for_a_file_of_the_user(tmp_path, capsys):
    """As when the first checkpoint of a training, or the marker of a loop, was being written."""
    pytest.importorskip("stable_baselines3", reason="policies need the extra rl")
    for folder, name in (("push", "checkpoint.safetensors"), ("loop", "loop.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f".{name}.a_1bcd2e").write_bytes(b"a part")
        assert complete_files(tmp_path / folder) == []
    train = ["train", str(tmp_path / "no-run"), "-o", str(tmp_path / "push"), "--device", "cpu"]
    loop = ["loop", "puck", "-o", str(tmp_path / "loop")]
    for command, next_mistake in ((train, "no run folder"), (loop, "the laboratory has no block")):
        assert cli.main(command) == 2
        assert next_mistake in capsys.readouterr().err
        (Path(command[3]) / "thesis.txt").touch()
        assert cli.main(command) == 2
        assert "holds other files" in capsys.readouterr().err


Weights = dict[str, bytes]


def weights(base: DistilledModel) -> Weights:
    """The bits of a model by name; a file of them has its names in any order."""
    return {name: value.numpy().tobytes() for name, value in base.net.state_dict().items()}


def test_the_second_maker_of_a_model_waits_for_the_first_and_takes_its_own(tmp_path, monkeypatch):
    """The first is held in its samples until the second has come and either waits or is done."""
    scene = Scene.load("puck")
    waits = threading.Event()
    comes = []
    replace_file = os.replace
    made: dict[str, Weights] = {}

    @contextlib.contextmanager
    def waiting(title: str, total: int):
        if title.startswith("waiting"):
            waits.set()
        yield lambda n: None

    def make(who: str) -> None:
        made[who] = weights(
            distilled_model(scene, config=TINY, n=100, cache=tmp_path, progress=waiting)
        )
        waits.set()

    def held(source: str, target: Path) -> None:
        if Path(target).name.startswith("shard-") and not comes:
            comes.append(threading.Thread(target=make, args=("second",)))
            comes[0].start()
            waits.wait()
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", held)
    make("first")
    comes[0].join()
    assert made["first"] == made["second"]
    models = [name for name in complete_files(tmp_path) if not name.endswith(".lock")]
    assert len(models) == 1
    assert weights(load_base(scene, tmp_path / models[0])) == made["first"]


def test_a_damaged_model_in_the_cache_is_made_again(tmp_path):
    scene = Scene.load("puck")
    first = distilled_model(scene, config=TINY, n=100, cache=tmp_path)
    (kept,) = tmp_path.glob("*.safetensors")
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    again = distilled_model(scene, config=TINY, n=100, cache=tmp_path)
    assert weights(first) == weights(again) == weights(load_base(scene, kept))


def test_samples_have_the_same_bits_with_one_thread_and_two():
    """Documented, since shards that several processes make are put together."""
    one, two = (
        sample(Scene.load("ellipse"), 300, 3, engine=StrikeEngine(threads=threads))
        for threads in (1, 2)
    )
    assert one.before.tobytes() == two.before.tobytes()
    assert one.after.tobytes() == two.after.tobytes()


@pytest.mark.parametrize("kind", ["hybrid", "mujoco"])
def test_rollouts_do_not_depend_on_the_number_of_threads(kind):
    scene = Scene.load("square")
    start = np.tile(np.concatenate([scene.base.qpos0, np.zeros(scene.base.nv)]), (6, 1))
    start[:, scene.base.nq :] = 0.2 * np.random.default_rng(0).normal(size=(6, scene.base.nv))
    control = np.full((6, 200, scene.base.nu), 0.3)

    def simulator(threads: int):
        if kind == "mujoco":
            return MujocoSim(scene, threads=threads)
        return HybridSim(scene, distilled_model(scene), config=HybridConfig(threads=threads))

    one, two = (simulator(threads).rollout(start, control) for threads in (1, 2))
    np.testing.assert_allclose(two, one, rtol=ROUNDING, atol=ROUNDING)


@contextlib.contextmanager
def torch_threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@slow
def test_a_model_is_the_same_within_rounding_with_one_thread_of_torch_and_two():
    """Not to the bit: sums are added up in another order, and training carries that on."""
    scene = Scene.load("puck")
    sampled = sample(scene, 3000, 0)
    found = []
    config = DistillationConfig(width=128, layers=3, members=2, steps=20, batch=1024)
    for threads in (1, 2):
        with torch_threads(threads):
            calibration = calibrate(distil(scene, sampled, config=config), impacts(10))
        theta = np.array([estimate.value for estimate in calibration.theta])
        found.append((calibration.predict(impacts(10)), theta))
    (predicted, theta), (others, other) = found
    np.testing.assert_allclose(others, predicted, rtol=1e-4, atol=1e-4)  # m/s
    np.testing.assert_allclose(other, theta, rtol=1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with slides, to train policies in."""
    folder = tmp_path_factory.mktemp("made")
    scene = Scene.load("semi_cylinder")
    recorded = replace(sample(scene, 10, 1), theta=None, end_counts={})
    calibration = calibrate(distilled_model(scene), recorded)
    save_run(folder / "run", calibration, slide=scene_slide_model(scene))
    assert load(folder / "run").slide is not None
    return folder / "run"


# Policies of few strikes with checkpoints in between; the command has one in 20,000 strikes.
TRAIN = """
import sys
from functools import partial
from clashsim import cli
from clashsim.rl import device_ppo, sac_training
sac_training.SacConfig = partial(
    sac_training.SacConfig, num_envs=16, gradient_steps=1, batch=32, width=16, guided=128,
    checkpoint_interval=256,
)
device_ppo.PpoConfig = partial(device_ppo.PpoConfig, checkpoint_interval=1024)
sys.exit(cli.main(sys.argv[1:]))
"""


OPTIONS = {
    "sac": ["--steps", "1024"],
    "device": ["--device", "cpu", "--num-envs", "64", "--steps", "8192"],
}


@slow
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_training_that_is_killed_goes_on_to_the_same_bytes(run, tmp_path, kind):
    pytest.importorskip("stable_baselines3", reason="policies need the extra rl")
    whole, part = (tmp_path / name / "policy.safetensors" for name in ("whole", "killed"))

    def trained(policy: Path, **stop) -> int:
        env = killed.environment(tmp_path / "stop", **stop)
        command = ["train", str(run), "-o", str(policy.parent), *OPTIONS[kind]]
        return killed.run(["-c", TRAIN, *command], env).returncode

    assert trained(whole) == 0
    # With no checkpoint yet, with one, and with all of the training done.
    stops = (
        ("kill before", "checkpoint", 1),
        ("kill after", "checkpoint", 2),
        ("kill before", "policy", 1),
    )
    for action, name, count in stops:
        code = trained(part, pattern=f"{name}.safetensors", count=count, action=action)
        assert code == -signal.SIGKILL
        assert not part.exists()
    assert trained(part) == 0
    assert part.read_bytes() == whole.read_bytes()


LOOP = """
import sys
from clashsim import cli
from clashsim.loop import steps
from clashsim.rl.agents import AgentTrainingConfig
steps.AGENT_TRAINING["ppo"] = AgentTrainingConfig(2048, 0, 1024)
sys.exit(cli.main(sys.argv[1:]))
"""


@slow
def test_a_loop_that_is_killed_goes_on_to_the_same_bytes(tmp_path):
    """With recordings from a folder; those of the laboratory are in test_loop.py."""
    pytest.importorskip("stable_baselines3", reason="policies need the extra rl")
    from clashsim import lab

    options = ["--env", "folder", "--algorithm", "ppo", "--rounds", "1", "--strikes", "6"]

    def looped(out: str, **stop) -> int:
        env = killed.environment(tmp_path / "stop", **stop)
        command = ["loop", "semi_cylinder", *options, "-o", str(tmp_path / out)]
        return killed.run(["-c", LOOP, *command], env).returncode

    def record(out: str) -> None:
        folder = tmp_path / out / "round-01"
        strikes = lab.recorded_strikes()[:6]
        rows = "".join(f"{s.speed},{s.point},{s.deflection}\n" for s in strikes)
        (folder / "strikes.csv").write_text("speed,point,deflection\n" + rows)
        write_trials(folder / "trials.safetensors", lab.recorded()[:6])

    def stopped(pattern: str) -> None:
        assert looped("killed", pattern=pattern, action="kill before") == -signal.SIGKILL

    assert looped("whole") == 0
    record("whole")
    assert looped("whole") == 0
    stopped("loop.json")
    stopped("agent.safetensors")  # that of round 0
    stopped("strikes.csv")
    assert looped("killed") == 0
    record("killed")
    stopped("agent.safetensors")  # that of round 1, whose run is there
    stopped("round.json")
    assert looped("killed") == 0
    for path in (tmp_path / "whole").rglob("*"):
        other = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert path.is_dir() or other.read_bytes() == path.read_bytes(), path


CACHE = """
import sys
from pathlib import Path
from clashsim.core.scene import Scene
from clashsim.fit.base import base_bytes, distilled_model
from clashsim.fit.distil import DistillationConfig
scene = Scene.load("puck")
config = DistillationConfig(width=16, layers=3, members=2, steps=20, batch=64)
base = distilled_model(scene, config=config, n=9000, cache=Path(sys.argv[1]))
Path(sys.argv[2]).write_bytes(base_bytes(base))
"""


@slow
def test_processes_that_share_a_cache_all_succeed_and_leave_it_whole(tmp_path):
    """Three at once, after one that was killed with some of the samples made."""
    scene = Scene.load("puck")
    cache = tmp_path / "cache"
    env = killed.environment(tmp_path)
    stop = killed.environment(tmp_path / "stop", "shard-*", count=2)
    first = killed.run(["-c", CACHE, str(cache), str(tmp_path / "none")], stop)
    assert first.returncode == -signal.SIGKILL
    command = [sys.executable, "-c", CACHE, str(cache)]
    jobs = [subprocess.Popen([*command, str(tmp_path / f"{i}.out")], env=env) for i in range(3)]
    assert [job.wait() for job in jobs] == [0, 0, 0]
    models = [name for name in complete_files(cache) if not name.endswith(".lock")]
    assert len(models) == 1
    kept = weights(load_base(scene, cache / models[0]))
    assert all(weights(load_base(scene, tmp_path / f"{i}.out")) == kept for i in range(3))


@slow
def test_a_calibration_is_the_same_within_rounding_with_other_threads_of_all_libraries(tmp_path):
    """OpenMP, OpenBLAS and MKL read their variables when they are loaded: a process for each."""
    write_impacts(tmp_path / "impacts.csv", impacts(10))
    command = ["-m", "clashsim", "calibrate", "puck", str(tmp_path / "impacts.csv"), "-o"]
    values = []
    for threads in ("1", "2"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        env = killed.environment(tmp_path) | dict.fromkeys(names, threads)
        out = tmp_path / f"run-{threads}"
        done = killed.run([*command, str(out)], env)
        assert done.returncode == 0, done.stderr
        values.append(np.array([e.value for e in load(out).calibration.theta]))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)
