"""The documentation site: it builds without a warning, needs no network, its links hold, and its
pages of verbs say what --help says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from snippets import ROOT

pytest.importorskip("mkdocs", reason="the site needs mkdocs-material: pip install 'clashsim[docs]'")
sys.path.insert(0, str(ROOT / "tools"))
import docs_hooks


class Page(HTMLParser):
    """Links, names that can be linked to, and files that a page asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.asked: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.asked.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.asked.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    return {path: Page(path) for path in sorted(out.rglob("*.html"))}


@pytest.mark.slow
def test_links_hold_and_nothing_is_fetched(site: dict[Path, Page]) -> None:
    root = min(site, key=lambda p: len(p.parts)).parent
    for path, page in site.items():
        for link in page.asked:
            assert not urlsplit(link).netloc, f"{path.name} asks for {link}"
        if path.name == "404.html":  # its links are for the root of a server
            continue
        for link in (*page.links, *page.asked):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file() and target.is_relative_to(root), f"{path.name} links to {link}"
            if parts.fragment and target in site:
                assert (
                    unquote(parts.fragment) in site[target].names or parts.fragment == "__skip"
                ), f"{path.name} links to {link}"


@pytest.mark.slow
def test_every_page_and_public_name_is_there(site: dict[Path, Page]) -> None:
    import clashsim

    names = {name for page in site.values() for name in page.names}
    for name, place in clashsim._PLACES.items():
        assert f"clashsim.{place}.{name}" in names, name
    titles = {path.stem for path in site}
    assert {
        "tutorial",
        "methods",
        "not",
        "how-it-works",
        "benchmarks",
        "calibration",
        *docs_hooks.verbs(),
    } <= titles


@pytest.mark.parametrize("verb", docs_hooks.verbs())
def test_pages_of_verbs_have_every_flag(verb: str) -> None:
    from clashsim import cli

    page = docs_hooks.verb_page(verb)
    assert page.startswith(f"# clashsim {verb}\n") and f"    clashsim {verb}" in page
    kind = next(c for c in cli.COMMANDS if c.__name__.lower() == verb)
    shown = set(re.findall(r"--[a-z][a-z.-]*", page))
    for name in kind.__dataclass_fields__:
        flag = "--" + {"world": "in"}.get(name, name).replace("_", "-")
        positional = f"| `{name.upper()}" in page or name in (
            "logs",
            "scene",
            "impacts",
            "trials",
            "run",
            "plan",
            "policy",
            "name",
            "pairs",
        )
        assert flag in shown or positional or name in ("pair", "bodies", "limits", "where"), (
            f"{verb}: {name}"
        )
    assert "None" not in page and "(default" not in page


def test_links_of_the_readme_hold() -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text()):
        assert urlsplit(link).scheme or (ROOT / link).exists(), link
