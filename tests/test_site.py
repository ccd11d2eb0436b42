"""The documentation site builds without a warning, needs no network and has no broken links.

The pages of commands have every option that --help has.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import typing
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from snippets import ROOT

pytest.importorskip("mkdocs", reason="the site needs mkdocs-material: pip install 'clashsim[docs]'")
sys.path.insert(0, str(ROOT / "tools"))
import docs_hooks


class Page(HTMLParser):
    """Links of a page, names on it that can be linked to, and files that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    return {path: Page(path) for path in sorted(out.rglob("*.html"))}


def check_link(link: str, path: Path, site: dict[Path, Page], root: Path) -> None:
    """A link to another page of the site leads to a file in it, and to a name on that page."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    message = f"{path.name} links to {link}"
    assert target.is_file() and target.is_relative_to(root), message
    if parts.fragment and parts.fragment != "__skip" and target in site:
        assert unquote(parts.fragment) in site[target].names, message


@pytest.mark.slow
def test_links_hold_and_nothing_is_fetched(site: dict[Path, Page]) -> None:
    root = min(site, key=lambda p: len(p.parts)).parent
    for path, page in site.items():
        for link in page.loaded:
            assert not urlsplit(link).netloc, f"{path.name} loads {link}"
        if path.name == "404.html":  # its links are for the root of a server
            continue
        for link in (*page.links, *page.loaded):
            check_link(link, path, site, root)


@pytest.mark.slow
def test_every_page_and_public_name_is_there(site: dict[Path, Page]) -> None:
    import clashsim

    names = {name for page in site.values() for name in page.names}
    for name, module in clashsim._HOMES.items():
        assert f"clashsim.{module}.{name}" in names, name
    titles = {path.stem for path in site}
    pages = {
        "tutorial",
        "methods",
        "not",
        "how-it-works",
        "architecture",
        "glossary",
        "benchmarks",
        "calibration",
    }
    assert pages | set(docs_hooks.command_names()) <= titles


# Arguments without a flag.
RENAMED = {"from_run": "from"}  # options whose flag is a word that Python reserves
POSITIONAL = {"logs", "scene", "impacts", "trials", "run", "plan", "policy", "name", "pairs"}


@pytest.mark.parametrize("command", docs_hooks.command_names())
def test_pages_of_commands_have_every_option(command: str) -> None:
    from clashsim import cli

    page = docs_hooks.command_page(command)
    assert page.startswith(f"# clashsim {command}\n") and f"    clashsim {command}" in page
    shown = set(re.findall(r"--[a-z][a-z.-]*", page))
    for name, kind in typing.get_type_hints(cli.COMMANDS[command].options).items():
        is_group = dataclasses.is_dataclass(kind)  # whose members have flags of their own
        positional = f"| `{name.upper()}" in page or name in POSITIONAL
        flag = "--" + RENAMED.get(name, name).replace("_", "-")
        assert flag in shown or positional or is_group, f"{command}: {name}"
    assert "None" not in page and "(default" not in page


def test_links_of_the_readme_hold() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text()):
            assert urlsplit(link).scheme or (ROOT / link).exists(), f"{name}: {link}"
