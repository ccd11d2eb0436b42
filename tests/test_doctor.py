"""`clashsim doctor`: what is installed, what gives the rest, and a self-test that passes here and
fails where something is broken.
"""

from __future__ import annotations

import json

import pytest

from clashsim import cli
from clashsim.commands import doctor
from clashsim.commands.self_test import SelfTest


def test_all_is_well(capsys):
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out.count("... pass: ") == 6 and "FAIL" not in out and "all is well" in out and not err
    assert "mujoco" in out and "cores" in out and "GPU" in out and "strikes held out" in out


def test_json_without_the_self_test(capsys):
    assert cli.main(["doctor", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["healthy"] and told["self_test"] == [] and not err
    assert {"numpy", "torch", "mujoco"} <= set(told["packages"]) and all(told["packages"].values())
    assert {"viser", "lab", "rl", "mjx", "io"} <= {e["name"] for e in told["extras"]}
    assert told["machine"]["cores"] >= 1 and told["machine"]["threads_of_torch"] >= 1


def test_a_missing_extra_is_no_failure_and_says_what_gives_it(capsys, monkeypatch):
    there = doctor._version
    monkeypatch.setattr(
        doctor,
        "_version",
        lambda name: None if name == "viser" else "0.1" if name == "gymnasium" else there(name),
    )
    monkeypatch.setattr(
        doctor,
        "_broken",
        lambda module: (
            "pydrake is installed but does not import (ImportError: libX)"
            if module == "pydrake"
            else None
        ),
    )
    assert cli.main(["doctor", "--quick"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "viser is not installed: pip install 'clashsim[viser]'" in out
    found = {e.name: e for e in doctor.extras()}
    assert (
        found["viser"].lacks
        and found["lab"].lacks
        and "gymnasium is 0.1, needed is" in found["rl"].lacks[0]
    )
    assert doctor.extras()[-1].lacks  # what is missing comes last
    assert doctor.extras()[0].lacks == ()


def test_a_module_that_does_not_import_is_told():
    assert doctor._broken("json") is None
    assert "ModuleNotFoundError" in str(doctor._broken("no_such_module"))


def test_what_is_broken_fails_with_a_sentence(capsys, monkeypatch):
    def broken(self):
        raise ValueError("the solver\nis gone")

    for name in ("_sample", "_distilled", "_calibrate"):
        monkeypatch.setattr(
            SelfTest, name, broken if name == "_calibrate" else lambda self: (True, "fine")
        )
    assert cli.main(["doctor", "--json"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert not told["healthy"] and [c["passed"] for c in told["self_test"]] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert (
        told["self_test"][2]["found"] == "ValueError: the solver is gone"
        and "nothing was calibrated" in told["self_test"][3]["found"]
    )
    assert (
        err.startswith("clashsim: the self-test failed: recorded strikes calibrate it")
        and err.count("\n") == 1
    )


@pytest.mark.parametrize("flag", ["--quick", "--json"])
def test_help_has_both_flags(flag, capsys):
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--help"])
    assert flag in capsys.readouterr().out
