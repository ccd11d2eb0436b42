"""Code in the README and the docs: blocks by kind, and the commands in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHELL = re.compile(r"(clashsim|make|python|pip|cd) ")


@dataclass(frozen=True)
class Block:
    """A block of code: kind is sh, python, toml or other."""

    page: str
    kind: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Commands of a shell block, without comments."""
        return [
            line for raw in self.text.splitlines() if (line := re.sub(r"\s+# .*", "", raw).strip())
        ]


def blocks(path: Path) -> list[Block]:
    """Fenced and indented blocks of a page, in order."""
    page, lines, out, i = path.relative_to(ROOT).as_posix(), path.read_text().split("\n"), [], 0
    while i < len(lines):
        if fence := re.match(r"```(\w*)$", lines[i]):
            j = lines.index("```", i + 1)
            out.append(Block(page, fence[1] or "other", "\n".join(lines[i + 1 : j])))
            i = j + 1
        elif re.match(r" {4}\S", lines[i]) and not lines[i - 1].strip():
            j = i
            while j < len(lines) and (lines[j].startswith("    ") or not lines[j].strip()):
                j += 1
            text = "\n".join(line[4:] for line in lines[i:j]).rstrip()
            kind = (
                "sh"
                if _SHELL.match(text)
                else "python"
                if re.match(r"(from|import) ", text)
                else "other"
            )
            out.append(Block(page, kind, text))
            i = j
        else:
            i += 1
    return out


def inline(path: Path) -> list[str]:
    """Commands `clashsim VERB ...` in the text of a page, tables included."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    return [" ".join(found.split()) for found in re.findall(r"`(clashsim [a-z][^`]*)`", text)]
