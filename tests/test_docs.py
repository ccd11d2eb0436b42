"""Examples run, pages keep to their width, and no file names a path of a machine.

Commands and snippets of the pages are run by test_snippets.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clashsim.core.extras import importable

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WIDTH = 100
README_LINES = 120

# Words that pages do not use; docs/glossary.md has the standard terms. Flags and file keys in
# backticks are names and not prose.
FORBIDDEN = (
    "slope",
    "slopes",
    "card",
    "copies",
    "spread",
    "witness",
    "verdict",
    "verdicts",
    "told",
    "blueprint",
    "recipe",
    "map of strikes",
    "verb",
    "shall",
    "mend",
    "dear",
    "lest",
)
HISTORY = {"glossary.md", "CHANGELOG.md", "CONTRIBUTING.md"}  # name old words, or grammar

SLOW = ("hybrid_strike.py", "arm_strike.py")  # calibrate first
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_run(path: Path) -> None:
    if path.name == "video_strike.py" and not importable("cv2"):
        pytest.skip("OpenCV is not installed (pip install 'clashsim[video]')")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=240)
    if "MuJoCo has no renderer here" in done.stderr:
        pytest.skip("MuJoCo has no renderer here")
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


def prose(text: str) -> list[str]:
    """Lines of a page that can be wrapped: no tables, code blocks or pictures."""
    lines = []
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ", "![")):
            lines.append(line)
    return lines


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_pages_are_wrapped(path: Path) -> None:
    long = [line for line in prose(path.read_text()) if len(line) > WIDTH]
    assert not long


def test_the_readme_is_one_short_page() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("path", [p for p in PAGES if p.name not in HISTORY], ids=lambda p: p.name)
def test_pages_use_standard_terms(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.S)
    found = [word for word in FORBIDDEN if re.search(rf"\b{word}\b", text, re.I)]
    assert not found
