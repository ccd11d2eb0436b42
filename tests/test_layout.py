"""Who may import whom, as the design says: data moves one way, and heavy packages stay where they
belong.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import clashsim

ROOT = Path(clashsim.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MAY = {
    "core": {"core"},
    "nets": {"core", "nets"},
    "sim": {"core", "nets", "sim"},
    "data": {"core", "data"},
    "fit": {"core", "nets", "sim", "data", "fit"},
    "plan": {"core", "plan"},
    "rl": {"core", "rl"},
    "lab": {"core", "lab"},
    "report": {"core", "report"},
    "scale": {"core", "scale"},
    # The viewer stands above the others: it shows what was recorded, steps it in sim, plans with
    # plan and follows routes with rl. Runs are put together in commands.
    "view": {"core", "data", "sim", "fit", "plan", "rl", "view"},
}
HEAVY = {
    "torch": re.compile(
        r"(nets|fit|rl|bench|commands|scale)/|plan/(gradient|batch)\.py|sim/(hybrid|graph)\.py|cli\.py"
    ),
    "jax": re.compile(r"sim/(mjx\w*|augmented\w*)\.py|fit/|bench/|commands/"),
    "pydrake": re.compile(r"lab/"),
    "ray": re.compile(r"scale/"),
    "fsspec": re.compile(r"data/parts\.py"),
    "viser": re.compile(r"view/(page|stage)\.py|commands/view\.py"),
}


def imports(path: Path) -> set[str]:
    """Modules that a file imports when it runs; those for type checking only do not count."""
    tree = ast.parse(path.read_text())
    typing = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for n in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide who imports whom"
            found |= {str(node.module)} | {
                f"{node.module}.{a.name}" for a in node.names if node.module == "clashsim"
            }
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports(path):
    place = path.relative_to(ROOT).as_posix()
    folder = place.split("/")[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "clashsim" and folder in MAY and len(parts) > 1:
            assert parts[1] in MAY[folder], (
                f"{place} imports {name}: {folder} may see {sorted(MAY[folder])} only"
            )
        if parts[0] in HEAVY:
            assert HEAVY[parts[0]].match(place), (
                f"{place} imports {parts[0]}, which belongs elsewhere"
            )
        assert parts[0] not in ("pickle", "shelve", "marshal", "dill", "cloudpickle"), (
            f"{place} imports {name}: results are never pickled"
        )


def test_every_folder_has_a_rule():
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert folders <= {*MAY, "bench", "commands", "loop"}


def test_no_utils():
    assert not [p for p in FILES if p.stem in ("utils", "util", "common", "helpers", "misc")]


def test_public_names_exist():
    for name in clashsim.__all__:
        assert getattr(clashsim, name) is not None
