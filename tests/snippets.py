"""Code in the README and the docs: blocks by kind, and the commands in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHELL = re.compile(r"(clashsim|make|python|pip|cd) ")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: Path of the page, relative to the repository.
        kind: "sh", "python", "toml", "xml", "py" (of other packages), "text" (drawn) or "other".
        text: The block without its fence or indentation.
    """

    page: str
    kind: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Commands of a shell block, without comments."""
        without_comments = [re.sub(r"\s+# .*", "", line).strip() for line in self.text.splitlines()]
        return [line for line in without_comments if line]


def blocks(path: Path) -> list[Block]:
    """Fenced and indented blocks of a page, in order."""
    page = path.relative_to(ROOT).as_posix()
    lines = path.read_text().split("\n")
    found: list[Block] = []
    i = 0
    while i < len(lines):
        fence = re.match(r"```(\w*)$", lines[i])
        if fence:
            end = lines.index("```", i + 1)
            text = "\n".join(lines[i + 1 : end])
            found.append(Block(page, fence[1] or "other", text))
            i = end + 1
        elif re.match(r" {4}\S", lines[i]) and not lines[i - 1].strip():
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(line[4:] for line in lines[i:end]).rstrip()
            found.append(Block(page, _kind(text), text))
            i = end
        else:
            i += 1
    return found


def _kind(text: str) -> str:
    """The language of an indented block, from how it begins."""
    if _SHELL.match(text):
        return "sh"
    if re.match(r"(from|import) ", text):
        return "python"
    return "other"


def inline(path: Path) -> list[str]:
    """Commands `clashsim COMMAND ...` in the text of a page, tables included."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    return [" ".join(found.split()) for found in re.findall(r"`(clashsim [a-z][^`]*)`", text)]
