"""The doctor and the set-up show what they do while they do it."""

from __future__ import annotations

import sys
from pathlib import Path

from clashsim import cli
from clashsim.commands import doctor
from clashsim.commands.self_test import SelfTest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import install  # noqa: E402


def test_the_doctor_names_each_step_as_it_begins(capsys, monkeypatch):
    began = []

    def step(self):
        began.append(capsys.readouterr().out.splitlines()[-1])
        return True, "fine"

    for name in ("_sample", "_solved", "_calibrate", "_planned", "_stepped", "_kept"):
        monkeypatch.setattr(SelfTest, name, step)
    monkeypatch.setattr(doctor, "_extra", lambda name, needs: doctor.Extra(name, "", {}, ()))
    assert cli.main(["doctor"]) == 0
    assert (
        began[0] == "  MuJoCo samples strikes ... "
        and began[1] == "  their contact problems are solved ... "
    )
    last = capsys.readouterr().out
    assert last.startswith("pass: fine (") and last.endswith(" s)\nall is well\n")


def test_the_doctor_times_the_imports_of_each_extra(monkeypatch):
    said = []
    monkeypatch.setattr(
        doctor,
        "_extra",
        lambda name, needs: said.append(f"<{name}>") or doctor.Extra(name, "", {}, ()),
    )
    doctor.extras(lambda text, end=" ": said.append(text))
    at = said.index("<mjx>")
    assert said[at - 1] == " mjx" and float(said[at + 1]) >= 0


def test_no_page_promises_how_long_the_doctor_takes():
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *(ROOT / "src/clashsim/commands").glob("*.py"),
        ROOT / "src/clashsim/cli.py",
    ]
    assert not [page.name for page in pages if "ten seconds" in page.read_text()]


def test_setting_up_says_what_pip_does():
    progress = install.Progress()
    said = [
        progress.said(line)
        for line in (
            "Collecting rich>=13.9 (from clashsim==0.1.0)\n",
            "  Downloading rich-14.3.4-py3-none-any.whl (310 kB)\n",
            "  Downloading https://host/files/ray-2.60.0-cp311-cp311-manylinux.whl (79.1 MB)\n",
            "Requirement already satisfied: numpy in ./lib\n",
            "Installing collected packages: a, b, c\n",
            "Successfully installed a-1 b-1 c-1\n",
        )
    ]
    assert said == [None, None, "downloading ray (79 MB)", None, "installing 3 packages", None]
    many = [progress.said(f"Processing /wheels/p{i}.whl\n") for i in range(2 * install.EVERY)]
    assert [line for line in many if line] == [
        f"{install.EVERY} packages found",
        f"{2 * install.EVERY} packages found",
    ]


def test_a_set_up_that_fails_shows_why(tmp_path, capfd):
    log = tmp_path / "install.log"
    code = install.main(log, ["--no-index", "--dry-run", "surely-not-there"])
    assert (
        code == 1
        and "surely-not-there" in capfd.readouterr().err
        and "surely-not-there" in log.read_text()
    )
