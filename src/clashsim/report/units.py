"""Numbers with their units in running text."""

from __future__ import annotations

import re

_NO_BREAK_SPACE = "\u00a0"


def keep_units(text: str) -> str:
    """Text in which no line break can separate a number from its unit."""
    return re.sub(r"(?<=\d) (?=(%|m/s|mm|s)\b|%)", _NO_BREAK_SPACE, text)
