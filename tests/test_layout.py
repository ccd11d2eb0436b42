"""Who may import whom: data moves one way, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import clashsim

ROOT = Path(clashsim.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# The packages that each package may import, besides itself.
MAY_IMPORT = {
    "core": set(),
    "optim": {"core"},
    "slides": {"core", "optim"},
    "nets": {"core", "slides"},
    "data": {"core", "slides"},
    "sim": {"core", "nets", "slides"},
    "fit": {"core", "nets", "sim", "data", "slides", "optim"},
    "evaluate": {"core", "data", "sim", "fit", "slides"},
    "plan": {"core", "optim"},
    "rl": {"core"},
    "lab": {"core"},
    "scale": {"core"},
    "report": {"core", "evaluate"},
    # The real-sim-real loop joins what collects, fits and trains.
    "loop": {"core", "data", "sim", "fit", "slides", "rl", "lab"},
    # The viewer replays recordings, steps simulators, plans, and follows routes with a policy.
    "view": {"core", "data", "sim", "fit", "plan", "rl"},
}
EVERY_PACKAGE = {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()}
MAY_IMPORT["pipeline"] = EVERY_PACKAGE - {"bench", "commands", "pipeline"}
MAY_IMPORT["bench"] = EVERY_PACKAGE - {"bench", "commands"}
MAY_IMPORT["commands"] = EVERY_PACKAGE - {"commands"}

# Libraries that are slow to import or optional, and the modules that may import them.
HEAVY = {
    "torch": r"(nets|fit|optim|slides|evaluate|rl|bench|commands|pipeline|scale)/"
    r"|data/public_sets/cube_tosses\.py"  # its authors' files are torch's
    r"|plan/(gradient|planner)\.py|sim/(hybrid|graph)/|cli\.py",
    "jax": r"sim/(mjx|augmented)/|fit/|bench/|commands/|pipeline/",
    "pydrake": r"lab/",
    "ray": r"scale/",
    "fsspec": r"data/checkpoints\.py",
    "cv2": r"data/readers/frames\.py",
    "viser": r"view/(page|stage|camera)\.py|commands/view\.py",
}
PICKLES = {"pickle", "shelve", "marshal", "dill", "cloudpickle"}


def imports(source: str, *, for_types: bool) -> set[str]:
    """Names of the modules that source code imports.

    Args:
        source: Python source code.
        for_types: Whether imports under `if TYPE_CHECKING` count too.
    """
    tree = ast.parse(source)
    only_for_types: set[int] = set()
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test):
            only_for_types |= {id(node) for node in ast.walk(block)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in only_for_types and not for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            found.add(str(node.module))
            if str(node.module).startswith("clashsim"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def violations(file: str, imported: set[str]) -> Iterator[str]:
    """Sentences about the imports of a file that are against the picture."""
    package = file.split("/")[0]
    for name in sorted(imported):
        parts = name.split(".")
        if parts[0] == "clashsim" and package in MAY_IMPORT and parts[1:2]:
            target = parts[1]
            if target in EVERY_PACKAGE and target not in {package, *MAY_IMPORT[package]}:
                yield f"{file} imports {name}: {package} may import {sorted(MAY_IMPORT[package])}"
        if parts[0] in HEAVY and not re.match(HEAVY[parts[0]], file):
            yield f"{file} imports {parts[0]}, which belongs elsewhere"
        if parts[0] in PICKLES:
            yield f"{file} imports {name}: results are never pickled"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of a directed graph as its nodes in order; empty if there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(node: str) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        path.append(node)
        for neighbour in sorted(graph.get(node, set())):
            found = visit(neighbour)
            if found:
                return found
        path.pop()
        done.add(node)
        return []

    for node in sorted(graph):
        found = visit(node)
        if found:
            return found
    return []


def test_imports():
    found = []
    for path in FILES:
        file = path.relative_to(ROOT).as_posix()
        found += violations(file, imports(path.read_text(), for_types=False))
    assert found == []


def test_imports_for_type_checking_follow_the_same_picture():
    found = []
    for path in FILES:
        ours = {m for m in imports(path.read_text(), for_types=True) if m.startswith("clashsim")}
        found += violations(path.relative_to(ROOT).as_posix(), ours)
    assert found == []


def test_a_wrong_import_is_seen():
    wrong = "import clashsim.fit.calibrate\nimport jax\nimport pickle\n"
    assert len(list(violations("core/scene.py", imports(wrong, for_types=False)))) == 3
    hidden = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from clashsim import fit\n"
    assert not list(violations("core/scene.py", imports(hidden, for_types=False)))
    assert list(violations("core/scene.py", imports(hidden, for_types=True)))


def test_no_cycle_of_modules_even_for_type_checking():
    modules = {module_of(path) for path in FILES}
    graph = {}
    for path in FILES:
        if path != ROOT / "__init__.py":  # Lists the public names of all packages.
            graph[module_of(path)] = imports(path.read_text(), for_types=True) & modules
    assert cycle(graph) == []


def test_a_cycle_is_seen():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_every_package_has_a_rule():
    assert set(MAY_IMPORT) == EVERY_PACKAGE


def test_no_module_without_an_idea():
    assert not [p for p in FILES if p.stem in ("utils", "util", "common", "helpers", "misc")]


def test_module_names_differ_by_more_than_a_letter():
    for package in {p.parent for p in FILES}:
        names = sorted(p.stem for p in package.glob("*.py"))
        for name in names:
            assert name + "s" not in names, f"{package.name}: {name} and {name}s"


def test_each_class_name_means_one_thing():
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_function_takes_more_than_seven_arguments():
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # A kernel for a GPU takes the address of every array.
                if any("triton" in ast.dump(d) for d in node.decorator_list):
                    continue
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(a.arg not in ("self", "cls") for a in arguments)
                if count > 7:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {count}")
    assert found == []


def test_public_names_exist():
    for name in clashsim.__all__:
        assert getattr(clashsim, name) is not None
