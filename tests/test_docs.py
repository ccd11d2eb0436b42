"""Examples run, the README's snippet runs, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_readme_snippets_run() -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert snippets
    for snippet in snippets:
        done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr


def test_verbs_and_targets_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    help_text = subprocess.run([sys.executable, "-m", "clashsim.cli", "--help"], capture_output=True, text=True, timeout=120).stdout
    for verb in set(re.findall(r"^ {4}clashsim ([a-z]+)", text, re.M)):
        assert verb in help_text
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^ {4}make ([a-z-]+)", text, re.M)):
        assert f"\n{target}:" in makefile


def test_no_file_names_a_machine_path() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".xml", "") and path.is_file():
            assert "/work/" + "main" not in path.read_text(errors="ignore"), name
