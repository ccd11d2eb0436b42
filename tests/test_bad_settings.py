"""Wrong settings: one sentence that names the key, the value and what was expected."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping as Table
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

import clashsim
from clashsim import cli
from clashsim.core.errors import ClashError, DataError, ParamError, SceneError
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.core.settings_file import SceneSettings, load_settings
from clashsim.core.typed import build_dataclass
from clashsim.data.readers import mapping
from fuzz.mutations import mutate

SCENES = Path(clashsim.__file__).parent / "scenes"
PAIR = 'struck = "puck"\nstriker = "wall"\n'
PARAM = {
    "name": "'friction'",
    "target": "'pair/strike/friction[0:2]'",
    "nominal": "0.2",
    "low": "0.02",
    "high": "1.0",
}


def param(**changed: str) -> str:
    return (
        PAIR
        + "[[param]]\n"
        + "\n".join(f"{name} = {value}" for name, value in (PARAM | changed).items())
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('struck = ["puck"]\nstriker = "wall"', "struck is ['puck'], where a text is needed"),
        ("struck = 3", "struck is 3, where a text is needed"),
        ("ground = true", "ground is True, where a text is needed"),
        (PAIR + "strikes = 5", "strikes is 5, where a table is needed"),
        (PAIR + "strikes = [1, 2]", "strikes is [1, 2], where a table is needed"),
        (
            PAIR + 'strikes.speed = ["a", 1]',
            "strikes.speed[0] is 'a', where a finite number is needed",
        ),
        (
            PAIR + "strikes.speed = 0.5",
            "strikes.speed is 0.5, where a list of 2 items, each a finite number, is needed",
        ),
        (PAIR + "strikes.speed = [0.1]", "strikes.speed is [0.1], where a list of 2 items"),
        (
            PAIR + "strikes.speed = [0.1, nan]",
            "strikes.speed[1] is nan, where a finite number is needed",
        ),
        (PAIR + "strikes.speed = [0.1, inf]", "strikes.speed[1] is inf"),
        (PAIR + "strikes.speed = [0.1, true]", "strikes.speed[1] is True"),
        (PAIR + f"strikes.speed = [0.1, {'9' * 400}]", "strikes.speed[1] is 9999"),
        (
            PAIR + f"strikes.speed = [0.1, 0x{'f' * 5000}]",
            "strikes.speed[1] is something too long to print",
        ),
        (
            PAIR + "strikes.speed = [0.8, 0.2]",
            "the range of speed must be two finite numbers, low first",
        ),
        (
            PAIR + "strikes.sped = [0.1, 0.2]",
            "strikes has an unknown entry 'sped'; did you mean speed",
        ),
        (PAIR + "strikes.slip = {}", "strikes.slip is {}, where a list of 2 items"),
        (
            PAIR + "[draw]\nspeed = [0.1, 0.2]",
            "the table [draw] is called [strikes] now; rename it",
        ),
        (PAIR + "param = 5", "param is 5, where a list with a table for each item is needed"),
        (PAIR + "param = [5]", "param[0] is 5, where a table is needed"),
        (PAIR + "[param]\nname = 'a'", "param is {'name': 'a'}, where a list"),
        (PAIR + "[[param]]\nname = 'a'", "param[0] lacks target, nominal, low, high"),
        (param(nominal="'much'"), "param[0].nominal is 'much', where a finite number is needed"),
        (param(low="[0.1]"), "param[0].low is [0.1], where a finite number is needed"),
        (
            param(high="1979-05-27"),
            "param[0].high is datetime.date(1979, 5, 27), where a finite number",
        ),
        (param(name="7"), "param[0].name is 7, where a text is needed"),
        (
            param(scale="'cubic'"),
            "param[0].scale is 'cubic', where one of 'linear', 'log' is needed",
        ),
        (param(sign="2"), "needs sign = 1 or -1, got 2"),
        (param(sign="-1.0"), "param[0].sign is -1.0, where a whole number is needed"),
        (param(sd="'a'"), "param[0].sd is 'a', where a finite number is needed"),
        (param(sd="-1.0"), "needs sd > 0"),
        (param(low="-1e308", high="1e308"), "needs finite low < high"),
        (param(target="'geom/none/friction[0]'"), "no geom named 'none'"),
        ("struk = 'puck'", "the file has an unknown entry 'struk'; did you mean struck"),
        ("struck = " + "[" * 5000, "not valid TOML: it is nested too deeply"),
        ("struck = " + "7" * 5000, "not valid TOML: a whole number has too many digits"),
        ("a." * 5000 + "a = 1", "a key of more than 64 parts"),
        ("struck = ", "not valid TOML: Invalid value"),
        (b"struck = '\xff'", "is not UTF-8 text"),
        ("#" * (2 << 20), "is larger than"),
    ],
    ids=map(str, range(39)),
)
def test_bad_settings(tmp_path, text, words):
    shutil.copy(SCENES / "puck.xml", tmp_path / "mine.xml")
    (tmp_path / "mine.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ClashError) as error:
        _ = Scene.load(tmp_path / "mine.xml").slots
    assert words in str(error.value) and "\n" not in str(error.value)


def test_settings_that_are_no_file(tmp_path):
    assert load_settings(tmp_path / "none.toml") == SceneSettings()
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(SceneError, match="no settings file"):
        load_settings(tmp_path / "mine.toml")


@pytest.mark.parametrize("path", sorted(SCENES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_settings_are_read_as_they_were(path):
    settings = load_settings(path)
    scene = Scene.load(path.stem)
    assert (settings.struck, settings.striker, settings.ground, settings.strikes) == (
        scene.struck,
        scene.striker,
        scene.ground,
        scene.strikes,
    )
    assert settings.param == scene.params


def test_mutated_settings(tmp_path):
    """54 of 500 ended in tracebacks."""
    shutil.copy(SCENES / "semi_cylinder.xml", tmp_path / "mine.xml")
    whole = (SCENES / "semi_cylinder.toml").read_bytes()
    outcomes = {"read": 0, "refused": 0}
    for number in range(50):
        rng = random.Random(number)
        (tmp_path / "mine.toml").write_bytes(mutate("mine.toml", whole, rng, [whole]))
        try:
            load_settings(tmp_path / "mine.toml")
            outcomes["read"] += 1
        except ClashError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert outcomes["read"] > 0 and outcomes["refused"] > 20


def test_the_command_says_it_in_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(SCENES / "puck.xml", "mine.xml")
    Path("mine.toml").write_text(PAIR + "strikes = 5")
    assert cli.main(["sample", "mine.xml", "-n", "10", "-o", "s.safetensors"]) == 2
    assert "in settings file 'mine.toml': strikes is 5, where a table is needed" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("known = { mass = nan }", "known.mass is nan, where a finite number is needed"),
        ("[[logs]]\nrate = '120'", "logs[0].rate is '120', where a finite number is needed"),
        (
            "[[logs]]\nheader_lines = 1.5",
            "logs[0].header_lines is 1.5, where a whole number is needed",
        ),
        (
            "[[logs]]\n[[logs.bodies]]\nname = 'a'\n[[logs.bodies]]\nname = 'b'\nposition = [1, 2]",
            "logs[0].bodies[1].position[0] is 1, where a text is needed",
        ),
        ("[[logs]]\n[[logs.bodies]]\nname = ''", "a name that is not empty"),
        (
            "[[logs]]\nsignals = { force = ['fz'] }",
            "logs[0].signals.force is ['fz'], where a text is needed",
        ),
        (
            "[[logs]]\n[[logs.bodies]]\nname = 'a'\nmarkers = { m = ['x', 0, 0] }",
            "markers.m[0] is 'x', where a finite number is needed",
        ),
        ("[[logs]]\noffset = " + "9" * 400, "logs[0].offset is 9999"),
        ("a." * 5000 + "a = 1", "a key of more than 64 parts"),
    ],
    ids=map(str, range(9)),
)
def test_bad_mappings_name_the_place(tmp_path, text, words):
    (tmp_path / "lab.toml").write_text(text)
    with pytest.raises(DataError) as error:
        mapping.load(tmp_path / "lab.toml")
    assert words in str(error.value) and str(error.value).startswith("in 'lab.toml': ")


@dataclass(frozen=True)
class Inner:
    size: float
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    pair: tuple[int, float]
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    names: tuple[str, ...] = ()
    table: Table[str, tuple[float, ...]] = field(default_factory=dict)
    flag: bool = False


def test_tables_become_dataclasses():
    raw = {
        "pair": [1, 2],
        "inner": {"size": 3, "kind": "b"},
        "many": [{"size": 0.5}],
        "names": "one",
        "table": {"x": [1, 2]},
        "flag": True,
    }
    assert build_dataclass(Outer, raw) == Outer(
        (1, 2.0), Inner(3.0, "b"), (Inner(0.5),), ("one",), {"x": (1.0, 2.0)}, True
    )
    for name, value in {
        "pair": [1],
        "inner": {"size": "x"},
        "many": {},
        "names": 3,
        "table": {"x": 1},
        "flag": 1,
        "other": 1,
    }.items():
        with pytest.raises(ParamError, match=name):
            build_dataclass(Outer, raw | {name: value}, error=ParamError)


def test_parameters_check_their_sign():
    with pytest.raises(ParamError, match="sign = 1 or -1, got 0"):
        Param("a", "geom/a/friction[0]", 0.5, 0.0, 1.0, sign=0)
