"""Examples run, links hold, and no file names a machine; commands and snippets are run by
test_snippets.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


SLOW = "hybrid_strike.py"  # calibrates first, as the README's commands do
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name == SLOW else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_run(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_no_file_names_a_machine_path() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".xml", "") and path.is_file():
            assert "/work/" + "main" not in path.read_text(errors="ignore"), name
