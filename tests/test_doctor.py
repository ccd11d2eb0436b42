"""`clashsim doctor` reports what is installed and missing; its self-test finds what is broken."""

from __future__ import annotations

import json

import pytest

from clashsim import cli
from clashsim.commands import doctor
from clashsim.commands.self_test import SelfTest


@pytest.mark.slow
def test_all_is_well(capsys):
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert out.count("... pass: ") == 6 and "FAIL" not in out
    for text in ("all is well", "mujoco", "cores", "GPU", "strikes held out"):
        assert text in out


def test_json_without_the_self_test(capsys):
    assert cli.main(["doctor", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    report = json.loads(out)
    assert report["healthy"] and report["self_test"] == []
    assert {"numpy", "torch", "mujoco"} <= set(report["packages"])
    assert all(report["packages"].values())
    assert {"viser", "lab", "rl", "mjx", "io"} <= {extra["name"] for extra in report["extras"]}
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["threads_of_torch"] >= 1


def test_a_missing_extra_is_no_failure_and_comes_with_the_command_to_install_it(
    capsys, monkeypatch
):
    installed_version = doctor._version

    def version(name: str) -> str | None:
        faked = {"viser": None, "gymnasium": "0.1"}
        return faked[name] if name in faked else installed_version(name)

    def broken(module: str) -> str | None:
        if module == "pydrake":
            return "pydrake is installed but does not import (ImportError: libX)"
        return None

    monkeypatch.setattr(doctor, "_version", version)
    monkeypatch.setattr(doctor, "_broken", broken)
    assert cli.main(["doctor", "--quick"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "viser is not installed: pip install 'clashsim[viser]'" in out
    found = {extra.name: extra for extra in doctor.extras()}
    assert found["viser"].lacks and found["lab"].lacks
    assert "gymnasium is 0.1, needed is" in found["rl"].lacks[0]
    assert doctor.extras()[-1].lacks  # what is missing comes last
    assert doctor.extras()[0].lacks == ()


def test_a_module_that_does_not_import_is_reported():
    assert doctor._broken("json") is None
    assert "ModuleNotFoundError" in str(doctor._broken("no_such_module"))


def test_what_is_broken_fails_with_a_sentence(capsys, monkeypatch):
    def broken(self):
        raise ValueError("the solver\nis gone")

    monkeypatch.setattr(SelfTest, "_sample", lambda self: (True, "fine"))
    monkeypatch.setattr(SelfTest, "_solved", lambda self: (True, "fine"))
    monkeypatch.setattr(SelfTest, "_calibrate", broken)
    assert cli.main(["doctor", "--json"]) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    checks = report["self_test"]
    assert not report["healthy"]
    assert [check["passed"] for check in checks] == [True, True, False, False, False, False]
    assert checks[2]["found"] == "ValueError: the solver is gone"
    assert "nothing was calibrated" in checks[3]["found"]
    assert err.startswith("clashsim: the self-test failed: recorded strikes calibrate it")
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--quick", "--json"])
def test_help_has_both_flags(flag, capsys):
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--help"])
    assert flag in capsys.readouterr().out
