"""Hostile and damaged files are refused in one sentence and little memory; and the fuzzer."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from clashsim.commands.sweep import SweepOptions, read_jobs
from clashsim.core.errors import ClashError, DataError, RunError, quoted
from clashsim.core.npz import MIN_ROOM, Npz
from clashsim.core.parsing import parse_json, parse_toml, read_bounded
from clashsim.core.trials import Trial, Trials
from clashsim.data.impact_files import read_impacts
from clashsim.data.logs import read_logs
from clashsim.data.readers import sources
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.pipeline.recordings import holds_trials, read_recording
from clashsim.plan.execution import plan_from_json
from fuzz.cases import FINDING, READ, Corpus, write_corpus
from fuzz.command import main as fuzz
from fuzz.kinds import kinds
from fuzz.trouble import ENDS, GROWS, HANGS, trouble
from fuzz.workers import Limits, Pool

DIGITS = "7" * 200_000
DEEP = "[" * 100_000
COLUMNS = ("vx", "vy", "w", "vx_after", "vy_after", "w_after")


def refused(
    read: Callable[[], object],
    words: str,
    *,
    memory: int = 30 << 20,
    error: type[ClashError] = DataError,
) -> None:
    """Read, and see that it is refused in one line and that little memory was asked for."""
    tracemalloc.start()
    try:
        with pytest.raises(error, match=words) as caught:
            read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < memory


def header(shape: tuple[int, ...], *, kind: str = "<f8") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def write_zeros(
    path: Path,
    megabytes: int,
    *,
    names: tuple[str, ...] = COLUMNS,
    method: int = zipfile.ZIP_DEFLATED,
) -> None:
    """An NPZ archive of zeros, which packs a thousand to one."""
    each = megabytes * 1_000_000 // len(names)
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        for name in names:
            with archive.open(f"{name}.npy", "w") as member:
                member.write(header((each // 8,)))
                for _ in range(each // 1_000_000):
                    member.write(bytes(1_000_000))
                member.write(bytes(each // 8 * 8 - each // 1_000_000 * 1_000_000))


@pytest.fixture(scope="module")
def zeros(tmp_path_factory):
    path = tmp_path_factory.mktemp("zeros") / "zeros.npz"
    write_zeros(path, 90)
    assert path.stat().st_size < 600_000
    return path


# --- NPZ ------------------------------------------------------------------------------------------


def test_archives_may_not_unpack_to_much_more_than_their_size(zeros):
    """A 10 MB file of impacts took 6.9 GB before it was refused; logs bounded each array only."""
    refused(lambda: read_impacts(zeros), "unpacks to .* MB allowed", memory=2 * MIN_ROOM)
    body = BodyMapping("box", ("vx", "vy", "w"), euler=("vx_after", "vy_after", "w_after"))
    refused(
        lambda: read_logs([zeros], mapping=LogMapping((LoggerMapping((body,), rate=100.0),))),
        "unpacks to .* MB allowed",
        memory=2 * MIN_ROOM,
    )


def test_one_array_that_is_too_large_is_not_unpacked(tmp_path):
    write_zeros(tmp_path / "a.npz", 70, names=("vx",))
    refused(
        lambda: read_impacts(tmp_path / "a.npz"),
        "with array 'vx' the archive unpacks to 70 MB, more than the 67.11 MB allowed",
    )


def test_numbers_that_do_not_pack_well_are_read(tmp_path):
    table = {name: np.random.default_rng(0).normal(size=1000) for name in COLUMNS}
    for save_as in (np.savez, np.savez_compressed):
        save_as(tmp_path / "a.npz", **table)
        assert len(read_impacts(tmp_path / "a.npz")) == 1000


@pytest.mark.parametrize("missing", [1, 2, 4, 30, 100, 400])
def test_an_archive_without_its_first_bytes(tmp_path, missing):
    np.savez(tmp_path / "a.npz", **{name: np.ones(5) for name in COLUMNS})
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[missing:])
    refused(lambda: read_impacts(tmp_path / "a.npz"), "cut off or damaged")
    refused(lambda: read_logs([tmp_path / "a.npz"], guess=True), "cut off or damaged")
    refused(lambda: read_recording(tmp_path / "a.npz"), "cut off or damaged")


def packed(method: int, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("vx.npy", content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            packed(zipfile.ZIP_BZIP2, header((5_000_000,)) + bytes(40_000_000)),
            "packed in a way that numpy does not use",
        ),
        # numpy reads a header of this size before it refuses it
        (
            packed(
                zipfile.ZIP_DEFLATED,
                b"\x93NUMPY\x02\x00" + struct.pack("<I", 50_000_000) + b" " * 50_000_000,
            ),
            "damaged",
        ),
        (packed(zipfile.ZIP_STORED, header((-1,))), "cut off or damaged"),
        (packed(zipfile.ZIP_STORED, header((10**9, 10**9))), "unpacks to"),
        (packed(zipfile.ZIP_STORED, header((3,)) + bytes(8)), "promises 24 bytes"),
        (
            packed(zipfile.ZIP_STORED, b"\x93NUMPY\x01\x00\x10\x00((((((((((((((((" + bytes(8)),
            "damaged",
        ),
    ],
)
def test_arrays_that_lie(content, words):
    with Npz(content, limit=1 << 30) as archive:
        refused(lambda: archive.array("vx"), words)


def test_recorded_trials_whose_parts_do_not_fit(tmp_path):
    parts = {
        "strikes": np.zeros((1, 3)),
        "frames": np.array([4], np.int32),
        "lost": np.zeros((2, 1), np.uint8),
    }
    parts |= {name: np.zeros((12, 4), np.uint8) for name in ("low", "high")}
    bad = {
        "frames": np.array([2**40]),
        "lost": np.zeros((2, 2), np.uint8),
        "low": np.zeros((12, 5), np.uint8),
        "high": np.zeros(48),
        "strikes": np.zeros(3),
    }
    for name, value in bad.items():
        np.savez(tmp_path / "a.npz", **(parts | {name: value}))
        refused(lambda: read_recording(tmp_path / "a.npz"), "cut off or damaged")


def test_archives_unpack_in_small_blocks(tmp_path, monkeypatch):
    """A member packed by bz2 unpacks all that a block of it holds, and blocks had a megabyte."""
    asked: list[int] = []

    class Source:
        def read(self, size: int) -> bytes:
            asked.append(size)
            return bytes(size) if len(asked) < 3 else b""

    sources._BoundedUnpacker("a", 1 << 20).copy(Source(), tmp_path / "a")
    assert max(asked) <= 1 << 12
    monkeypatch.setattr(sources, "FREE_UNPACKED_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.csv", bytes(2_000_000))
    refused(lambda: read_logs([tmp_path / "a.zip"], guess=True), "unpacks to more than")
    refused(lambda: sources.read_zip_members(tmp_path / "a.zip", ".csv"), "more than")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:-30])
    refused(lambda: sources.read_zip_members(tmp_path / "a.zip", ".csv"), "truncated")


# --- JSON and TOML --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [DIGITS, f'{{"a": -{DIGITS}}}', DEEP, '{"a":' * 100_000, "", '"\\x"', "[1, 2", b"\xff\xfe"],
    ids=map(str, range(8)),
)
def test_json_that_cannot_be_read(text):
    refused(
        lambda: parse_json(text, "the file 'a.json'", error=RunError),
        "the file 'a.json' is",
        error=RunError,
    )


@pytest.mark.parametrize(
    "text",
    [
        f"a = {DIGITS}",
        f"a = {DEEP}",
        "a." * 200_000 + "a = 1",
        "[" + "a." * 200_000 + "a]",
        "a = {" + "b." * 200_000 + "b = 1}",
        "a = 1\na = 2",
        b"a = '\xff'",
        "#" * (2 << 20),
    ],
    ids=map(str, range(8)),
)
def test_toml_that_cannot_be_read(text):
    """A dotted key of 400 kB took tomllib a quarter of an hour."""
    refused(
        lambda: parse_toml(text, "the file 'a.toml'", error=RunError),
        "the file 'a.toml' (is|has)",
        error=RunError,
    )


def test_toml_with_many_dots_is_read():
    assert parse_toml("# " + "." * 100 + "\na = [" + "0.1, " * 200 + "]\nb.c.d = 1.5", "it")[
        "b"
    ] == {"c": {"d": 1.5}}


def test_files_are_bounded_and_named(tmp_path):
    (tmp_path / "a").write_bytes(bytes(101))
    assert len(read_bounded(tmp_path / "a", "list 'a'", limit=101)) == 101
    refused(lambda: read_bounded(tmp_path / "a", "list 'a'", limit=100), "list 'a' is larger than")
    refused(lambda: read_bounded(tmp_path / "b", "list 'b'", limit=100), "there is no list 'b'")
    refused(lambda: read_bounded(tmp_path / "\0", "list", limit=100), "there is no list")


def described(text: str, name: str = "clashsim") -> bytes:
    """A safetensors file with this description."""
    return save({"before": np.zeros((1, 12)), "after": np.zeros((1, 3))}, {name: text})


@pytest.mark.parametrize(
    "text",
    [
        DIGITS,
        DEEP,
        f'{{"format": {DIGITS}}}',
        "[]",
        "3",
        "{",
        '{"format": 1, "planar": true, "ends": {"a": "b"}}',
        '{"format": 1, "planar": true, "ends": {"a": Infinity}}',
        '{"format": 1, "kind": "trials", "trials": [3]}',
    ],
    ids=map(str, range(9)),
)
def test_descriptions_in_safetensors(tmp_path, text):
    path = tmp_path / "a.safetensors"
    path.write_bytes(described(text))
    holds_trials(path)
    refused(lambda: read_impacts(path), "in 'a.safetensors'")
    refused(lambda: read_trials(path), "in 'a.safetensors'")


def test_trials_with_numbers_that_are_none(tmp_path):
    path = tmp_path / "a.safetensors"
    pose = np.tile([0, 0, 0, 1.0, 0, 0, 0], (3, 1))
    write_trials(path, Trials((Trial("a", np.arange(3.0), {"box": pose}, known={"mass": 1.0}),)))
    content = path.read_bytes()
    tensors, old = load(content), b'\\"known\\": [[\\"mass\\", 1.0]]'
    assert old in content
    for new in ('[["mass", "x"]]', f'[["mass", {"9" * 400}]]', '[["mass"]]', "3", "null"):
        about = json.loads(
            json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])["__metadata__"][
                "clashsim"
            ]
        )
        about["trials"][0]["known"] = json.loads(new)
        path.write_bytes(save(tensors, {"clashsim": json.dumps(about)}))
        refused(lambda: read_trials(path), "in 'a.safetensors'")


def test_impacts_in_json_with_other_things_than_numbers(tmp_path):
    """One long text made numpy reserve as much for every row."""
    path = tmp_path / "a.json"
    for value, words in (
        ("y" * 100_000, "impact 0 has 'yyy"),
        (True, "impact 0 has True"),
        (None, "impacts 0 .* lack a number"),
        ([1], r"impact 0 has \[1\]"),
        (10**400, "too large"),
    ):
        path.write_text(json.dumps({name: [value] + [1] * 3000 for name in COLUMNS}))
        refused(lambda: read_impacts(path), words)
    path.write_text(f'{{"vx": [{DIGITS}]}}')
    refused(lambda: read_impacts(path), "too many digits")


def test_plans_with_too_many_digits():
    refused(lambda: plan_from_json(f'{{"units": {DIGITS}}}'), "no plan .* too many digits")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("scene = 5", "scene is 5, where a text is needed"),
        ("seed = 'one'", "seed is 'one', where a whole number is needed"),
        ("hold_out = nan", "finite number"),
        ("known = [1]", r"known\[0\] is 1"),
        ("struck = true", "struck is True"),
        ("samples = 0x" + "f" * 6000, "outputs|samples|2 times"),
        ("sed = 1", "did you mean seed"),
    ],
)
def test_lists_of_sweeps(tmp_path, line, words):
    whole = {"scene": "'puck'", "impacts": "'a.csv'", "out": "'run'"}
    name, _, value = line.partition(" = ")
    text = "\n".join(f"{key} = {item}" for key, item in (whole | {name: value}).items())
    (tmp_path / "list.toml").write_text(f"[[run]]\n{text}\n" * 2)
    refused(lambda: read_jobs(SweepOptions(pairs=tmp_path / "list.toml")), words, error=ClashError)


def test_messages_are_one_printable_line():
    assert str(DataError("a\nb\x1b[31mc")) == "a b?[31mc"
    assert len(str(DataError("x" * 10_000))) < 2000
    assert (
        quoted(10**5000).startswith("something too long")
        and quoted("y" * 100) == "'" + "y" * 36 + "..."
    )


# --- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        '{"contact": 3, "hidden": 1000000000}',
        '{"contact": 3, "hidden": 4, "layers": 1000000000}',
        f'{{"contact": {DIGITS}}}',
        "[]",
        '{"contact": 3, "hidden": 4, "layers": 2}',
        '{"contact": 3, "hidden": 4.0}',
        DEEP,
    ],
    ids=map(str, range(7)),
)
def test_graph_networks_of_another_shape(tmp_path, shape):
    from clashsim.nets.mesh_graph import GraphNet
    from clashsim.nets.network_file import net_bytes, read_net

    net = GraphNet(3, hidden=4, layers=1)
    path = tmp_path / "a.safetensors"
    path.write_bytes(net_bytes(net))
    assert read_net(path).shape == net.shape
    path.write_bytes(save(load(path.read_bytes()), {"shape": shape}))
    refused(lambda: read_net(path), "no graph network of this version", error=RunError)


@pytest.mark.parametrize(
    "change",
    [
        {"low": [1e308, 0.3, -0.2]},
        {"ahead": float("nan")},
        {"names": "abc"},
        {"notes": []},
        {"ahead": 10**400},
        {"low": [DIGITS] * 3},
        {"high": None},
    ],
)
def test_policies_that_would_not_strike(tmp_path, change):
    from clashsim.rl.policy import Policy

    path = tmp_path / "policy.safetensors"
    kinds()["policy"].make(tmp_path)
    content = path.read_bytes()
    about = json.loads(
        json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])["__metadata__"]["about"]
    )
    path.write_bytes(save(load(content), {"about": json.dumps(about)}))
    Policy.load(path)
    path.write_bytes(save(load(content), {"about": json.dumps(about | change)}))
    refused(lambda: Policy.load(path), "is no policy")
    path.write_bytes(
        save(
            {name: np.full_like(values, 1e38) for name, values in load(content).items()},
            {"about": json.dumps(about)},
        )
    )
    refused(lambda: Policy.load(path), "is no policy")
    path.write_bytes(described(DEEP, "about"))
    refused(lambda: Policy.load(path), "is no policy")


# --- the fuzzer -----------------------------------------------------------------------------------


def test_two_hundred_mutated_files(tmp_path):
    """A short run of `make fuzz`, in this process.

    Scenes are left to it, because MuJoCo may end the process, and runs, which take long to make.
    """
    chosen = {name: kind for name, kind in kinds().items() if name not in ("scene", "run")}
    write_corpus(tmp_path / "corpus", chosen)
    corpus = Corpus(tmp_path / "corpus", chosen)
    outcomes = {index: corpus.run(19, index, tmp_path / "case") for index in range(200)}
    found = {
        f"{corpus.kind_of(index)}, case {index}": outcome.detail
        for index, outcome in outcomes.items()
        if outcome.status == FINDING
    }
    assert not found
    assert sum(outcome.status == READ for outcome in outcomes.values()) > 10
    assert {corpus.kind_of(index) for index in outcomes} == chosen.keys()
    assert corpus.files(19, 5) == corpus.files(19, 5) != corpus.files(20, 5)


def test_workers_survive_what_cases_do():
    with Pool(trouble, workers=1, limits=Limits(seconds=0.6, memory=50 << 20)) as pool:
        results = {result.index: result for result in pool.results(iter(range(6)))}
    assert sorted(results) == list(range(6))
    details = {index: result.outcome.detail for index, result in results.items()}
    assert "died with exit code -6" in details[ENDS]
    assert "hangs" in details[HANGS] and "trouble.py" in details[HANGS]  # and where
    assert "MB of memory" in details[GROWS]


@pytest.mark.slow
def test_the_fuzzer_as_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert (
        fuzz(
            [
                "--cases",
                "300",
                "--seed",
                "1",
                "--kinds",
                "log",
                "impacts",
                "settings",
                "mapping",
                "--workers",
                "1",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "seed 1" in out and "300 cases" in out and not Path("build").exists()


def test_a_finding_is_saved_and_read_again(tmp_path, monkeypatch, capsys):
    """A defect is put into a reader for it to find."""
    from fuzz import command

    chosen = {"route": kinds()["route"]}
    write_corpus(tmp_path / "corpus", chosen)
    corpus = Corpus(tmp_path / "corpus", chosen)
    monkeypatch.setattr("clashsim.rl.routes.split_long_segments", lambda route: 1 / 0)
    monkeypatch.setattr(command, "kinds", lambda: chosen)
    tally = command.CaseCounts(corpus, 3, tmp_path / "found")
    for index in range(40):
        tally.add(command.Result(index, corpus.run(3, index, tmp_path / "case"), 0.01, 0))
    tally.report(1.0)
    saved = sorted((tmp_path / "found").iterdir())
    assert tally.done == 40 and tally.found > 0 and len(saved) == min(tally.found, 3)
    assert "ZeroDivisionError at rl/routes.py" in capsys.readouterr().out
    assert (
        fuzz(["--reproduce", str(saved[0])]) == 1 and "ZeroDivisionError" in capsys.readouterr().out
    )
    monkeypatch.undo()
    assert fuzz(["--reproduce", str(saved[0])]) == 0
    shutil.rmtree(tmp_path / "found")
