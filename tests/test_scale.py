"""Work on Ray: the same bits as in this process, workers and heads that are killed, mistakes as one
sentence, shards on any file system. Two local workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="many machines need Ray, the extra scale")
import fsspec

import killed
from clashsim import cli
from clashsim.bench import shapes
from clashsim.bench.options import BenchOptions
from clashsim.core.errors import ClashError, DataError, MissingExtraError, ParamError
from clashsim.core.executor import Executor, local, map_items, process_pool
from clashsim.core.progress import quiet
from clashsim.core.scene import Scene
from clashsim.data.checkpoints import CheckpointStore
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.fit.sample import sample
from clashsim.fit.shards import ShardedJob, clear_shards, run_shards
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.fit.threads import one_thread
from clashsim.scale import cluster
from clashsim.scale import ray_executor as engine_module
from clashsim.scale.ray_executor import RayExecutor, WorkerLostError, _prepare_worker, ray_executor


@pytest.fixture(scope="module")
def two() -> Iterator[RayExecutor]:
    """Two workers on this machine, which find the work of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with ray_executor("local", 2) as engine:
            yield engine


@pytest.fixture(scope="module")
def engines(two: RayExecutor) -> Iterator[dict[str, Executor]]:
    with process_pool(2) as pool:
        yield {"here": local, "processes": pool, "ray": two}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def squared(x: int) -> int:
    return x * x


def mistaken(x: int) -> int:
    if x == 1:
        raise DataError("the second item is bad")
    if x == 2:
        raise MissingExtraError("Ice", "cold")
    return x


def broken(x: int) -> int:
    raise ZeroDivisionError(f"item {x}")


def deadly(always: bool, place: Path) -> str:
    """Kills the process that does it: the first time, or always."""
    seen = place.with_name(f"{place.name}.{os.getpid()}")
    if always or not [*place.parent.glob(f"{place.name}.*")]:
        seen.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return place.name


def drawn(seed: int, shard: tuple[int, int]) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng([seed, shard[0]]).normal(size=(shard[1], 2))}


class Counter:
    """Counts its own calls: what it has built is there in the next one."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: int) -> tuple[int, int]:
        self.calls += 1
        return os.getpid(), self.calls


def counted(engine, made: list):
    """The same engine, which notes what it was asked for."""

    def run(work, items):
        made.extend(items)
        return engine(work, items)

    return run


def bits(impacts) -> bytes:
    return impacts.before.tobytes() + impacts.after.tobytes() + impacts.theta.tobytes()


@pytest.mark.parametrize("where", ["here", "processes", "ray"])
def test_engines_give_every_item_once(engines, where):
    found = [*engines[where](squared, range(50))]
    assert sorted(found) == [(i, i * i) for i in range(50)] and [*engines[where](squared, [])] == []


def test_work_travels_once_and_keeps_what_it_built(two):
    seen = [result for _, result in map_items(two, Counter(), range(12))]
    pids = {pid for pid, _ in seen}
    assert (
        os.getpid() not in pids and sum(max(n for p, n in seen if p == pid) for pid in pids) == 12
    )


def test_arrays_come_out_of_the_store_and_can_be_written(two):
    ((_, found),) = two(partial(drawn, 0), [(0, 100_000)])
    assert (found["x"] == drawn(0, (0, 100_000))["x"]).all()
    found["x"][0] = 0.0  # as in this process; a view of the store could not be


@pytest.mark.parametrize("where", ["here", "processes", "ray"])
def test_a_mistake_is_the_result_of_its_item_and_the_others_finish(engines, where):
    found = dict(engines[where](mistaken, range(4)))
    assert found[0] == 0 and found[3] == 3
    assert type(found[1]) is DataError and str(found[1]) == "the second item is bad"
    assert type(found[2]) is MissingExtraError and "clashsim[cold]" in str(found[2])
    with pytest.raises(DataError, match="the second item is bad"):
        [*map_items(engines[where], mistaken, range(2))]
    with pytest.raises(
        ZeroDivisionError, match="item 5"
    ):  # a bug is no mistake of the user, and is not hidden
        [*engines[where](broken, [5])]


def test_a_worker_that_is_killed_is_retried_in_silence(two, tmp_path, capfd):
    before = two.retried
    found = dict(two(partial(deadly, False), [tmp_path / "a"]))
    assert found == {0: "a"} and two.retried == before + 1
    out, err = capfd.readouterr()
    assert not out and not err


@pytest.mark.slow
def test_an_item_that_kills_every_worker_is_given_up_and_the_others_finish(
    two, tmp_path, monkeypatch
):
    monkeypatch.setattr(engine_module, "_MAX_TRIES", 2)
    found = dict(two(partial(deadly, True), [tmp_path / "a"]))
    assert isinstance(found[0], WorkerLostError) and "item 1 of 1 was given up" in str(found[0])
    assert len([*tmp_path.glob("a.*")]) == 2
    assert dict(two(squared, range(4))) == {i: i * i for i in range(4)}


@pytest.mark.slow
def test_sampling_has_the_same_bits_with_one_and_two_workers_and_here(two):
    scene, n = Scene.load("puck"), 2 * 4096 + 100
    wanted = bits(sample(scene, n, 7))
    assert (
        bits(sample(scene, n, 7, engine=StrikeEngine(threads=1), executor=two))
        == bits(
            sample(scene, n, 7, engine=StrikeEngine(threads=1), executor=RayExecutor(1, own=False))
        )
        == wanted
    )


@pytest.mark.parametrize("kind", ["memory", "file", "folder"])
@pytest.mark.parametrize("where", ["here", "ray"])
def test_shards_lie_on_any_file_system(two, tmp_path, kind, where):
    engine = two if where == "ray" else local
    url = {
        "memory": f"memory://shards-{where}",
        "file": f"file://{tmp_path}/shards",
        "folder": str(tmp_path / "shards"),
    }[kind]

    def whole(engine, seed=3):
        return np.concatenate(
            [
                s["x"]
                for s in run_shards(
                    partial(drawn, seed),
                    ShardedJob(200, 64, {"seed": seed}, "drawing"),
                    checkpoint_dir=url,
                    executor=engine,
                    progress=quiet,
                )
            ]
        )

    first, asked = whole(engine), []
    files, place = fsspec.core.url_to_fs(url)
    names = sorted(path.rsplit("/", 1)[1] for path in files.ls(place, detail=False))
    assert names == [
        "job.json",
        *(f"shard-{i:05d}.safetensors" for i in range(4)),
    ]  # and nothing under a temporary name
    files.rm_file(f"{place}/shard-00002.safetensors")
    files.pipe_file(f"{place}/shard-00000.safetensors", b"cut short")
    again = whole(counted(engine, asked))
    assert len(first) == 200 and (again == first).all() and asked == [(0, 64), (2, 64)]
    with pytest.raises(DataError, match="another sampling job"):
        whole(engine, seed=4)
    files.pipe_file(f"{place}/mine.txt", b"not a shard")
    clear_shards(url)
    assert [path.rsplit("/", 1)[1] for path in files.ls(place, detail=False)] == ["mine.txt"]


def test_a_place_that_cannot_be_used_is_told(tmp_path, monkeypatch):
    for url, words in (
        ("nowhere://x", "Protocol not known"),
        ("http://127.0.0.1:9/x", "cannot be used"),
    ):
        with pytest.raises(DataError, match=words):
            CheckpointStore.of(url).write("a", b"")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"clashsim\[scale\]"):
        CheckpointStore.of("memory://x").read("a")
    assert CheckpointStore.of(tmp_path).read("a") is None  # a folder needs nothing of it


def children(pid: int) -> set[int]:
    """All processes below one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                child = int(stat.parent.name)
                found |= {child} | children(child)
        except (OSError, IndexError):  # it has just ended
            continue
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def listening(pids: set[int]) -> dict[str, int]:
    """Local addresses, as /proc/net has them, on which these processes wait for connections."""
    sockets = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(descriptor)
            except OSError:  # it has just been closed
                continue
            if target.startswith("socket:["):
                sockets[target[len("socket:[") : -1]] = pid
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1], fields[3], fields[9]
            if state == "0A" and inode in sockets:
                found[address] = sockets[inode]
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="sockets are read from /proc")
def test_a_cluster_of_our_own_listens_on_the_loopback_alone(two):
    assert dict(two(squared, range(4))) == {i: i * i for i in range(4)}  # workers run, and listen
    found = listening(children(os.getpid()))
    assert found
    loopback = {
        "0100007F",  # 127.0.0.1
        "0000000000000000FFFF00000100007F",  # the same, as seen by IPv6
        "00000000000000000000000001000000",  # ::1
    }
    assert {address.split(":")[0] for address in found} <= loopback, found


def test_a_cluster_on_the_loopback_can_be_joined(two):
    import ray

    script = """
import sys
import ray
from clashsim.scale.cluster import cluster
with cluster(sys.argv[1], 0) as own:
    print(own, int(ray.cluster_resources()["CPU"]))
"""
    address = ray.get_runtime_context().gcs_address
    joined = killed.run(["-c", script, address], killed.environment(Path()))
    assert joined.stdout.split() == ["False", "2"], joined.stderr


def working(command: list[str], stop: Path) -> tuple[subprocess.Popen, set[int]]:
    """A command whose two workers on Ray have made two shards and are held before the next, and the
    workers.
    """
    held = killed.environment(stop, "shard-0000[2-9].safetensors", action="hold")
    head = subprocess.Popen(
        [sys.executable, "-m", "clashsim", *command],
        env=held,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while len(killed.held(stop)) < 2:
        assert head.poll() is None, head.stdout.read()
        time.sleep(0.05)
    return head, killed.held(stop)


@pytest.mark.slow
def test_a_head_that_is_lost_leaves_finished_shards_to_resume_from(two, folder):
    n, parts = 4 * 4096, Path("s.safetensors.parts")
    command = ["sample", "puck", "-n", str(n), "-o", "s.safetensors", "--executor"]
    head, workers = working([*command, "local", "--workers", "2"], folder / "stop")
    head.send_signal(signal.SIGKILL)
    head.wait()
    while any(map(runs, workers)):  # nobody works on for a head that is gone
        time.sleep(0.1)
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("shard-*")}
    assert sorted(path.name for path in kept) == [f"shard-0000{i}.safetensors" for i in (0, 1)]
    assert not Path("s.safetensors").exists()
    asked: list = []
    whole = sample(
        Scene.load("puck"),
        n,
        0,
        checkpoint_dir=parts,
        engine=StrikeEngine(threads=1),
        executor=counted(two, asked),
    )
    assert len(asked) == 2 and {path: path.stat().st_mtime_ns for path in kept} == kept
    assert cli.main([*command, "ray"]) == 0 and not parts.exists()
    wanted = sample(Scene.load("puck"), n, 0)
    assert bits(read_impacts("s.safetensors")) == bits(whole) == bits(wanted)


@pytest.mark.slow
def test_ctrl_c_is_one_sentence(folder):
    command = ["sample", "puck", "-n", str(4 * 4096), "-o", "s.safetensors"]
    job, _ = working([*command, "--executor", "local", "--workers", "2"], folder / "stop")
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does: to all of them
    out = job.communicate()[0]
    assert (
        job.returncode == 130
        and out
        == "clashsim: interrupted; long work keeps what was finished, "
        "and the same command continues from it\n"
    )


@pytest.mark.slow
def test_a_sweep_goes_on_and_tells_what_failed(two, folder, capsys):
    scene = Scene.load("puck")
    for name, seed in (("a", 3), ("b", 2)):
        write_impacts(
            folder / f"{name}.csv", replace(sample(scene, 10, seed), theta=None, end_counts={})
        )
    lines = (
        "scene,impacts,out,seed\npuck,a.csv,runs/a,0\npuck,c.csv,runs/c,0\npuck,b.csv,runs/b,1\n"
    )
    Path("pairs.csv").write_text(lines)
    sweep = ["sweep", "pairs.csv", "--hold-out", "0.5"]
    assert cli.main([*sweep, "--executor", "ray"]) == 2
    out, err = capsys.readouterr()
    assert (
        "there is no file" in out and "runs/c: " in out and "2 runs made, 0 existed already" in out
    )
    assert (
        err.strip()
        == "clashsim: 1 of 3 calibrations failed, the others are done; the same command tries again"
    )
    made = {
        path: path.read_bytes()
        for name in "ab"
        for path in Path(f"runs/{name}").rglob("*")
        if path.is_file()
    }
    (folder / "c.csv").write_bytes((folder / "a.csv").read_bytes())
    assert cli.main(sweep) == 0  # in this process: what is there is kept, what is missing is made
    assert "1 runs made, 2 existed already" in capsys.readouterr().out
    assert made == {path: path.read_bytes() for path in made}
    for name in ("theta.json", "weights.safetensors"):  # c has the impacts of a
        assert (
            Path(f"runs/c/{name}").read_bytes()
            == Path(f"runs/a/{name}").read_bytes()
            != Path(f"runs/b/{name}").read_bytes()
        )
    Path("pairs.csv").write_text(lines.replace("b.csv,runs/b,1", "b.csv,runs/b,2"))
    assert cli.main(sweep) == 2
    assert "runs/b: the run exists, but was made with another seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("list.csv", "scene,impacts\npuck,a.csv\n", "entry 1: out is missing"),
        ("list.csv", "scene,impacts,out,sed\npuck,a.csv,r,1\n", "did you mean seed"),
        ("list.csv", "scene,impacts,out,seed\npuck,a.csv,r,one\n", "seed must be a number"),
        ("list.csv", "scene,impacts,out\npuck,a.csv,r\npuck,b.csv,r\n", "2 times"),
        ("list.csv", "", "is empty"),
        ("list.toml", "[run]\nscene = 'puck'\n", r"a table [[run]]"),
        ("list.toml", "run = ", "not valid TOML"),
        ("list.txt", "puck", "must end in .csv or .toml"),
        ("other.csv", "", "no list 'list.csv'"),
    ],
)
def test_bad_lists_are_told_in_a_sentence(folder, capsys, name, content, sentence):
    Path(name).write_text(content)
    assert cli.main(["sweep", name if name != "other.csv" else "list.csv"]) == 2
    out, err = capsys.readouterr()
    assert sentence in err and err.count("\n") == 1 and "Traceback" not in out + err


def test_a_list_may_be_toml(folder, capsys):
    write_impacts("a.csv", replace(sample(Scene.load("puck"), 8, 2), theta=None, end_counts={}))
    Path("sub").mkdir()
    Path("sub/list.toml").write_text(
        '[[run]]\nscene = "puck"\nimpacts = "../a.csv"\nout = "run"\nhold_out = 0.5\n'
    )
    assert cli.main(["sweep", "sub/list.toml"]) == 0
    assert "1 runs made" in capsys.readouterr().out and Path("sub/run/report.html").is_file()


@pytest.mark.slow
def test_tasks_of_a_bench_go_through_the_engine(two, tmp_path):
    options = BenchOptions(seeds=2, sets=["semi-cylinder"], methods=["ridge"])
    on_workers = shapes.run(replace(options, executor=two, resume=tmp_path / "rows.jsonl"))
    kept = (tmp_path / "rows.jsonl").read_text()
    alone = shapes.run(replace(options, workers=1))
    plain = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
        for rows in (on_workers, alone)
    ]
    assert plain[0] == plain[1] and len(alone) == 2
    assert [json.loads(line) for line in kept.splitlines()] == on_workers


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["sample", "puck", "-o", "s.safetensors", "--workers", "2"], "give --executor as well"),
        (["sample", "puck", "-o", "s.safetensors", "--executor", "rya"], "--executor must be ray"),
        (
            ["sample", "puck", "-o", "s.safetensors", "--executor", "ray", "--workers", "-1"],
            "must not be negative",
        ),
        (
            ["sample", "puck", "-o", "s.safetensors", "--executor", "ray", "--threads", "2"],
            "with --executor each worker has one",
        ),
        (["bench", "sampling", "--executor", "ray"], "has no option --executor"),
        (["train", "none", "-o", "push", "--executor", "ray"], "--seeds"),
        (["train", "none", "-o", "push", "--seeds", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_sentence(folder, capsys, args, sentence):
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert (
        sentence in err
        and err.count("\n") == 1
        and "Traceback" not in out + err
        and not [*folder.iterdir()]
    )


def test_what_stands_in_the_way_of_a_cluster_is_told(monkeypatch):
    with pytest.raises(ParamError, match=r"no Ray cluster can be joined at '127\.0\.0\.1:9'"):
        cluster._join("127.0.0.1:9")
    with (
        one_thread(),
        pytest.raises(ClashError, match=r"the head has 0\.0\.1: install the same on all machines"),
    ):
        _prepare_worker({"mujoco": "0.0.1"})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"clashsim\[scale\]"), ray_executor():
        pass


@pytest.mark.slow
def test_policies_of_several_seeds(two, folder, capsys):
    assert cli.main(["demo", "-o", "run", "--impacts", "3"]) == 0
    train = ["train", "run", "-o", "push", "--steps", "1000", "--seeds", "2"]
    assert cli.main([*train, "--executor", "ray"]) == 0
    made = {seed: Path(f"push/seed-{seed}/policy.safetensors").read_bytes() for seed in (0, 1)}
    for path in Path("push/seed-1").glob("*.*"):
        path.unlink()
    assert [path.name for path in Path("push/seed-1").iterdir()] == [
        "log"
    ]  # as a kill before the first checkpoint leaves it
    capsys.readouterr()
    assert cli.main(train) == 0
    assert "1 policies of 1000 strikes trained" in capsys.readouterr().out
    assert {
        seed: Path(f"push/seed-{seed}/policy.safetensors").read_bytes() for seed in (0, 1)
    } == made and made[0] != made[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 2 minutes where nothing else runs
def test_the_bench_has_every_row():
    from clashsim.bench import scaling

    rows = scaling.run(BenchOptions(quick=True))
    both = {
        (what, *case)
        for what in ("sampling", "calibration")
        for case in ((0, False), (1, False), (2, False), (2, True))
    }
    assert {(r["what"], r["workers"], r["killed"]) for r in rows} == both | {
        ("nothing", 1, False),
        ("nothing", 2, False),
    }
    assert all(r["same"] for r in rows) and np.isfinite([r["efficiency"] for r in rows]).all()
    assert all(r["retried"] >= 1 for r in rows if r["killed"]) and all(
        r["retried"] == 0 for r in rows if not r["killed"]
    )
