"""Cases that do what no reader should, for a test of the workers."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz.cases import READ, Outcome
from fuzz.workers import Run

ENDS, HANGS, GROWS = 1, 2, 3


def trouble() -> Run:
    """What a worker runs cases with: most are read, three are not."""

    def run(index: int, folder: Path) -> Outcome:
        if index == ENDS:
            os.abort()
        while index == HANGS:
            pass
        if index == GROWS:
            bytearray(b"x") * (100 << 20)
        return Outcome(READ)

    return run
