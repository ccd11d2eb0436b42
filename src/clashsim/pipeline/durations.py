"""How long the steps of a calibration take, measured and expected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

TESTING_PER_FIT = 4.0  # times a fit, that cross-validation and fits to fewer impacts take
_WORTH_SAYING = 10.0  # s
_MINUTES = 100.0  # s, from which minutes are said


def say_nothing(sentence: str) -> None:
    """Ignore a sentence; the default where sentences are for the user."""


@dataclass
class Stopwatch:
    """Wall-clock time of named steps.

    Attributes:
        notify: Called with a sentence before a step that takes long.
        seconds: Duration of each finished step, by name.
    """

    notify: Callable[[str], object] = say_nothing
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Measure the wall-clock time of a step."""
        start = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - start

    def expect(self, step: str, seconds: float) -> None:
        """Say how long a step will take, where that is long."""
        if seconds < _WORTH_SAYING:
            return
        if seconds < _MINUTES:
            duration = f"{10 * round(seconds / 10)} s"
        else:
            duration = f"{seconds / 60:.0f} minutes"
        self.notify(f"{step} takes about {duration}")
