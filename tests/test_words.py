"""The project speaks the field's language: words of the glossary's left column are not used."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import clashsim

SOURCE = Path(clashsim.__file__).parent
PROJECT = Path(__file__).parents[1]
CODE = sorted(SOURCE.rglob("*.py"))
# The glossary itself names the words that were replaced.
PAGES = [
    page
    for page in (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md")))
    if page.name != "glossary.md"
]

# Words that no identifier may have as one of its parts.
WORDS = frozenset(
    (
        *("slope", "slopes", "card", "cards", "copies", "spread", "told", "verdict", "verdicts"),
        *("witness", "surprise", "doubt", "doubted", "turned", "spin", "lever", "levers", "knot"),
        *("knots", "heard", "loudness", "sole", "soles", "grain", "lean", "shots", "eye"),
        *("blueprint", "recipe", "recipes", "practice", "practise", "verb", "verbs", "tally"),
        *("couple", "couples", "meeting", "mend", "dear"),
    )
)
# Names that hold such a word in its common sense, or that users write in their files.
COMMON = frozenset(("spin", "not_a_knot", "_QUARTER_TURNED_BOX"))
# Names that are words in themselves.
NAMES = frozenset(
    (
        *("Draw", "Many", "One", "Each", "Here", "Sole", "Track", "Knot", "Eye", "See", "Free"),
        *("Shots", "many", "each", "here"),
    )
)
# Sayings that neither text nor messages may have.
PHRASES = (
    r"\bslopes?\b",
    r"\bverdicts?\b",
    r"\bwitness(es)?\b",
    r"\bblueprints?\b",
    r"\brecipes?\b",
    r"\bmaps? of strikes\b",
    r"\bcards?\b",
    r"\bhas a say\b",
    r"\bmend(s|ed)?\b",
    r"\bshall\b",
    r"\bdear(er|est)?\b",
    r"\blest\b",
    r"\b(strikes|impacts|steps|frames|rows|evaluations|times|samples|trajectories) a second\b",
    r"\bone row an? (impact|trial|strike|body|parameter)\b",
    r"\bloudness\b",
    r"\bverbs?\b",
)
SAID_ONCE = "stand-in for reality"


def parts(identifier: str) -> list[str]:
    """The words of an identifier: `angular_velocity` and `StrikeTable` have two each."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier)
    return [part.lower() for part in spaced.split("_") if part]


def private_names(source: str) -> set[str]:
    """Identifiers of Python source that use a word of the glossary's left column."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names = [node.attr]
        used = {name for name in names if name in NAMES or WORDS & set(parts(name))}
        found |= used - COMMON
    return found


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and strings of Python source, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def phrases(text: str) -> list[str]:
    """What a text says in the private language; keys that files on disk have are no sentences."""
    if text.strip("\"'").isidentifier():
        return []
    return [match.group() for p in PHRASES for match in re.finditer(p, text, re.IGNORECASE)]


def test_code_uses_the_words_of_the_field():
    found = []
    for path in CODE:
        source = path.read_text()
        file = path.relative_to(SOURCE)
        found += [f"{file}: {name}" for name in sorted(private_names(source))]
        for line, text in texts(source):
            found += [f"{file}:{line}: {phrase}" for phrase in phrases(text)]
    assert found == []


def test_pages_use_the_words_of_the_field():
    found = []
    for page in PAGES:
        text = page.read_text()
        found += [f"{page.name}: {phrase}" for phrase in phrases(text)]
        if text.count(SAID_ONCE) > 1:
            found.append(f"{page.name}: {SAID_ONCE} is said more than once")
    assert found == []


def test_private_words_are_seen():
    assert private_names("def strike_slopes(told): pass\nclass Knot: pass") == {
        "strike_slopes",
        "told",
        "Knot",
    }
    assert private_names("def strike_gradients(estimated): pass") == set()
    assert phrases("10,000 strikes a second by a map of strikes") == [
        "map of strikes",
        "strikes a second",
    ]
    assert phrases("10,000 strikes per second by a strike table") == []
