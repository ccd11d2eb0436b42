"""Run folders that were damaged, or made to harm, end in one sentence."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from safetensors import numpy as tensor_file

import clashsim
import tiny_run
from clashsim import cli
from clashsim.commands.terminal import PlainConsole, plain
from clashsim.core.errors import ClashError, RunError
from clashsim.data.folders import read_folder, write_folder
from clashsim.fit.run_folder import read_notes

WEIGHTS = "weights.safetensors"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m\x07\b\r\u202e[/bold][link=http://x]"
# What a terminal obeys; line ends are ours.
OBEYED = set("\x1b\x07\b\r\x9b\u202e")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_run.write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def unsynced(monkeypatch):
    """Files are not flushed to the disk, which takes most of the time here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def changed(run, tmp_path, unsynced):
    """Writes the run with other content in one file: bytes, or a function of its JSON."""

    def write(name: str, content) -> Path:
        if callable(content):
            value = json.loads(read_folder(run)[name])
            content(value)
            content = json.dumps(value).encode()
        return tiny_run.rewritten(run, tmp_path / "bad", {name: content})

    return write


def shown(path: Path, capsys) -> tuple[int, str, str]:
    """Exit code of `clashsim show`, and what it printed."""
    capsys.readouterr()
    code = cli.main(["show", str(path)])
    return code, *capsys.readouterr()


def refused(path: Path, capsys) -> str:
    """The one sentence in which `show` refuses a run."""
    code, out, err = shown(path, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("clashsim: ")
    assert err.count("\n") == 1
    return err


def test_the_run_itself_is_shown(run, capsys):
    code, out, err = shown(run, capsys)
    assert (code, err) == (0, "")
    for words in ("friction", "restitution", "Slide model", "Accuracy on impacts", "four.csv"):
        assert words in out


# ---- weights


def with_tensors(run: Path, change) -> bytes:
    tensors = tensor_file.load(read_folder(run)[WEIGHTS])
    change(tensors)
    return tensor_file.save(tensors)


NET = "model.base.net.weights.0"
POSTERIOR = "model.posteriors.0.dual"
CENTRE = "model.scaling.centres.0"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [NET, POSTERIOR, CENTRE, "model.base.low", "model.base.net.scale"])
def test_weights_that_are_not_finite_are_refused(run, changed, name, value):
    def spoil(tensors):
        tensors[name].flat[-1] = value

    with pytest.raises(RunError, match=f"{name} holds numbers that are not finite"):
        clashsim.load(changed(WEIGHTS, with_tensors(run, spoil)))


def test_commands_refuse_weights_that_are_not_finite(run, changed, capsys):
    bad = changed(WEIGHTS, with_tensors(run, lambda tensors: tensors[NET].fill(np.nan)))
    assert "not finite" in refused(bad, capsys)
    assert cli.main(["export", str(bad), "-o", str(bad.parent / "out")]) == 2
    assert not (bad.parent / "out").exists()


@pytest.mark.parametrize("value", [np.nan, -np.inf, 0.0])
def test_only_widths_may_be_infinite(run, changed, value):
    widths = [f"model.scaling.widths.{i}" for i in range(4)]
    tensors = tensor_file.load(read_folder(run)[WEIGHTS])
    assert np.isinf(np.concatenate([tensors[name] for name in widths])).any()
    with pytest.raises(RunError, match="not finite"):
        clashsim.load(changed(WEIGHTS, with_tensors(run, lambda t: t[widths[1]].fill(value))))


@pytest.mark.parametrize("kind", ["int64", "float16", "bool"])
@pytest.mark.parametrize("name", [NET, POSTERIOR, CENTRE])
def test_numbers_of_another_kind_are_refused_at_once(run, changed, name, kind):
    def spoil(tensors):
        tensors[name] = tensors[name].astype(kind)

    with pytest.raises(RunError, match=f"{name} holds {kind}, not float"):
        clashsim.load(changed(WEIGHTS, with_tensors(run, spoil)))


@pytest.mark.parametrize("key", ["width", "layers", "members", "inputs"])
@pytest.mark.parametrize("value", [10**9, 1, "a", None])
def test_no_network_is_built_that_is_larger_than_its_weights(changed, key, value):
    def spoil(config):
        config["model"]["base"]["net"][key] = value

    with pytest.raises(RunError, match="does not fit"):
        clashsim.load(changed("config.json", spoil))


# ---- parameters and notes


def set_in(*path):
    """A change of JSON: the last of the path is put where the others point."""

    def change(value):
        for key in path[:-2]:
            value = value[key]
        value[path[-2]] = path[-1]

    return change


NAN = float("nan")
INF = float("inf")
DAMAGED = [
    ("theta.json", set_in(0, "value", NAN)),
    ("theta.json", set_in(0, "high", INF)),
    ("theta.json", set_in(0, "low", 10**400)),
    ("theta.json", set_in(0, "value", "0.3")),
    ("theta.json", set_in(0, "value", True)),
    ("theta.json", set_in(0, "name", "other")),
    ("theta.json", set_in(0, "status", "sure")),
    ("theta.json", set_in(0, [])),
    ("theta.json", lambda theta: theta.pop()),
    ("theta.json", b"[]"),
    ("theta.json", b"null"),
    ("theta.json", b"[" + b"1" * 200_000 + b"]"),
    ("theta.json", b"[" * 100_000),
    ("scene.json", set_in("params", 0, "nominal", NAN)),
    ("scene.json", set_in("params", 0, "scale", "cubic")),
    ("scene.json", set_in("assets", ["none.obj"])),
    ("scene.json", set_in("assets", 5)),
    ("scene.json", set_in("name", 5)),
    ("scene.json", b"[]"),
    ("config.json", set_in("model", "weights", [NAN])),
    ("config.json", set_in("model", "weights", [])),
    ("config.json", set_in("model", "posteriors", [])),
    ("config.json", set_in("options", [])),
    ("config.json", b"[]"),
    ("slide.json", set_in("values", "rate_dependence", NAN)),
    ("slide.json", set_in("values", "rate_dependence", "1")),
    ("slide.json", set_in("gyration", INF)),
    ("slide.json", set_in("steps", 10**9)),
    ("slide.json", set_in("steps", 2.5)),
    ("slide.json", set_in("centre", [0.0])),
    ("slide.json", set_in("fit", 5)),
    ("slide.json", set_in("fit", {"slides": 3, "estimates": [{"name": "x"}]})),
    ("metrics.json", b"[]"),
    ("metrics.json", b"5"),
    ("metrics.json", set_in("impacts", "many")),
    ("metrics.json", set_in("impacts", 10**400)),
    ("metrics.json", set_in("outside", {})),
    ("metrics.json", lambda metrics: metrics.pop("impacts")),
    ("metrics.json", lambda metrics: metrics.pop("judged")),
    ("metrics.json", set_in("models", "clashsim", {})),
    ("metrics.json", set_in("models", "clashsim", "median", None)),
    ("metrics.json", set_in("models", ["clashsim"])),
    ("metrics.json", set_in("restitution", 5)),
    ("metrics.json", set_in("restitution", "speeds", [0.2])),
    ("metrics.json", set_in("restitution", "nominal", ["a", "b"])),
    ("metrics.json", set_in("ground", {"slides": 2})),
    ("metrics.json", set_in("ground", "sliding", None)),
    ("metrics.json", set_in("segmented", 5)),
    ("metrics.json", set_in("segmented", [5])),
    ("metrics.json", set_in("slide", "words")),
    ("trials.json", b"{}"),
    ("trials.json", b"[5]"),
    ("trials.json", set_in(0, "impacts", None)),
    ("versions.json", b"[]"),
    ("versions.json", set_in("mujoco", 4)),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_show_refuses_a_run_that_was_edited_in_one_sentence(changed, capsys, name, content):
    refused(changed(name, content), capsys)


def test_parameters_that_are_not_finite_are_refused_by_name(changed):
    with pytest.raises(
        RunError, match=r"model\.theta\.0\.value is nan, which is not a finite number"
    ):
        clashsim.load(changed("theta.json", set_in(0, "value", NAN)))


def _leaves(value, path=()):
    """Paths of everything in a JSON value."""
    yield path
    keys = ()
    if isinstance(value, dict):
        keys = list(value)
    if isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        item = value[key]
        yield from _leaves(item, (*path, key))


def test_show_never_ends_in_a_traceback_whatever_is_in_a_run(run, tmp_path, capsys, unsynced):
    rng = random.Random(0)
    files = read_folder(run)
    values = [None, True, 0, -1, 10**30, 1e308, NAN, INF, "", ESCAPES, [], {}, [[]], {"a": 1}]
    names = ["theta", "metrics", "scene", "config", "slide", "trials"]
    for case in range(30):
        name = f"{rng.choice(names)}.json"
        value = {"whole": json.loads(files[name])}
        path = rng.choice([p for p in _leaves(value) if p])
        set_in(*path, rng.choice(values))(value)
        folder = tmp_path / str(case)
        write_folder(folder, files | {name: json.dumps(value["whole"]).encode()})
        code, out, err = shown(folder, capsys)
        assert code in (0, 2)
        assert not OBEYED & set(out + err)
        if code == 2:
            assert err.count("\n") == 1


# ---- text


def test_escape_codes_are_not_printed(changed, run, capsys):
    names = ("scene", "theta", "trials", "versions", "metrics")
    values = {name: json.loads(read_folder(run)[f"{name}.json"]) for name in names}
    values["scene"]["name"] = ESCAPES
    values["scene"]["params"][0] |= {"name": ESCAPES, "unit": ESCAPES}
    values["theta"][0]["name"] = ESCAPES
    values["trials"][0]["name"] = ESCAPES
    values["versions"][ESCAPES] = ESCAPES
    values["metrics"] |= {"judged": ESCAPES, "models": {ESCAPES: tiny_run.ACCURACY}}
    values["metrics"] |= {"segmented": [ESCAPES], "slide": {"words": ESCAPES}}
    contents = {f"{name}.json": json.dumps(value).encode() for name, value in values.items()}
    bad = tiny_run.rewritten(run, run.parent / "escapes", contents)
    code, out, err = shown(bad, capsys)
    assert code == 0
    assert not OBEYED & set(out + err)
    assert "[/bold][link=http://x]" in out  # neither is it taken for markup
    bad = changed("scene.json", set_in("struck", ESCAPES))
    assert cli.main(["export", str(bad), "-o", str(bad.parent / "out")]) == 2
    err = capsys.readouterr().err
    assert not OBEYED & set(err)
    assert "has no body or geom named" in err


def test_tables_keep_their_colours_and_nothing_else():
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=True, width=60, color_system="standard")
    table = Table(ESCAPES[-5:])
    table.add_row("\x1b[2Jfound\x07", style="red")
    console.print(table, markup=False)
    printed = stream.getvalue()
    assert "\x1b[31m" in printed
    assert "\x1b[2J" not in printed
    assert "\x07" not in printed


def test_plain_text_stays_as_it_is():
    text = "a\tb\nRöße ± 3\u00a0mm, 木\n"
    assert plain(text) == text
    assert plain("a\r\nb") == "a\nb"
    assert plain("\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x1b\\link") == "red and link"
    assert plain("a\x00b\x1bc\u202ed\re") == "a?b?c?d?e"


# ---- links


def test_a_linked_folder_in_a_run_is_not_followed(run, tmp_path):
    copy = tmp_path / "run"
    files = read_folder(run) | {"assets/a.obj": b"1", "pages/one.html": b"2"}
    write_folder(copy, files)
    shutil.move(copy / "assets", tmp_path / "away")
    os.symlink(tmp_path / "away", copy / "assets")
    with pytest.raises(RunError, match=r"assets/a.obj is a link"):
        read_folder(copy)
    os.unlink(copy / "assets")
    with pytest.raises(RunError, match=r"assets/a.obj is missing"):
        read_folder(copy)


@pytest.mark.parametrize("name", ["manifest.json", "theta.json"])
def test_a_linked_file_in_a_run_is_not_followed(run, tmp_path, name):
    copy = tmp_path / "run"
    write_folder(copy, read_folder(run))
    shutil.move(copy / name, tmp_path / name)
    os.symlink(tmp_path / name, copy / name)
    with pytest.raises(RunError, match="is a link"):
        clashsim.load(copy)
    os.unlink(copy / name)
    os.mkfifo(copy / name)  # reading it would wait without end
    with pytest.raises(RunError, match="is a link, or no file"):
        clashsim.load(copy)


def test_a_run_may_be_reached_by_a_link(run, tmp_path):
    os.symlink(run, tmp_path / "link")
    os.symlink(run.parent, tmp_path / "folder")
    for path in (tmp_path / "link", tmp_path / "folder" / run.name):
        assert read_folder(path) == read_folder(run)


def test_what_is_loaded_predicts_the_same_bits(run):
    made = tiny_run.calibration()
    again = clashsim.load(run).calibration
    for ours, theirs in zip(made.posteriors, again.posteriors, strict=True):
        assert np.array_equal(ours.dual, theirs.dual)
    for ours, theirs in zip(made.scaling.widths, again.scaling.widths, strict=True):
        assert np.array_equal(ours, theirs)
    assert read_notes(run)["metrics"] == tiny_run.METRICS
    assert issubclass(RunError, ClashError)
