"""How long the steps of a calibration take, measured and expected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clashsim.core.progress import about

_TESTING = 4.0  # times a fit, that cross-validation and fits to fewer impacts take
_WORTH_SAYING = 10.0  # s
_FIT = 0.04  # s, that an impact adds to a fit, on an ordinary core
# That fits to fewer impacts take in addition where impacts are held out, in times of a fit.
_FITS_TO_FEWER = 1.0


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
        self.notify(f"{step} takes about {about(seconds)}")

    def expect_compilation(self) -> None:
        """Say that the contact solver will be compiled, where that was not done before."""
        sentence = compilation_sentence()
        if sentence is not None:
            self.notify(sentence)

    def expect_fit(self, num_impacts: int) -> None:
        """Say how long a fit will take, where that is long."""
        self.expect(f"fitting {num_impacts} impacts", _FIT * num_impacts)

    def expect_testing(self, *, held_out: bool) -> None:
        """Say how long testing will take after the step "calibration", where that is long.

        Args:
            held_out: Whether impacts are held out, so that no folds are fitted.
        """
        fits = _FITS_TO_FEWER if held_out else _TESTING
        step = "testing on impacts that were not fitted"
        self.expect(step, fits * self.seconds["calibration"])


def compilation_sentence() -> str | None:
    """What to say before the contact solver is used for the first time on a machine."""
    from clashsim.sim.contact.impact import is_compiled

    if is_compiled():
        return None
    return "first use on this machine: compiling the contact solver takes 10 to 30 s, once"
