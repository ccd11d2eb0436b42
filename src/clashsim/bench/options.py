"""Options of all benchmarks: which part to run, where, and what is done with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clashsim.bench.rows import Save, discard
from clashsim.core.errors import DataError
from clashsim.core.executor import Executor
from clashsim.core.progress import Progress, quiet


@dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark run.

    Each benchmark module names in its constant `OPTIONS` which of root, seeds, first_seed, sets,
    methods, plain, resume, device and executor it uses.

    Attributes:
        root: Folder of the public recordings.
        seeds: Number of repetitions; None takes the default of the benchmark.
        first_seed: Seed of the first repetition; further ones count up from it.
        quick: Run a small part of the benchmark, to see that it works.
        sets: Names of the data sets to measure; None takes all.
        methods: Names of the methods to measure; None takes all.
        plain: Whether scenes have their shape and mass only, and no settings.
        resume: JSON-lines file of finished rows: a later run continues from it.
        device: Torch device, as in "cuda", to measure on in addition to the CPU.
        cache: Folder of distilled base models.
        workers: Number of processes on this machine; None takes the default of the benchmark.
        executor: Runs the tasks instead of processes on this machine.
        progress: Shows how far the benchmark is.
        save: Called with all rows so far whenever rows were added.
    """

    root: Path | None = None
    seeds: int | None = None
    first_seed: int = 0
    quick: bool = False
    sets: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    plain: bool = False
    resume: Path | None = None
    device: str | None = None
    cache: Path | None = None
    workers: int | None = None
    executor: Executor | None = None
    progress: Progress = quiet
    save: Save = discard

    def repetitions(self, default: int, *, quick: int = 1) -> int:
        """Number of repetitions.

        Args:
            default: The number if `seeds` is not given.
            quick: The largest number in a quick run.
        """
        seeds = default if self.seeds is None else self.seeds
        return min(seeds, quick) if self.quick else seeds

    def recordings(self) -> Path:
        """Folder of the public recordings.

        Raises:
            DataError: None was given, or there is no such folder.
        """
        if self.root is None:
            raise DataError(
                "this bench needs the public recordings: "
                "name their folder with --data, or in CLASHSIM_DATA"
            )
        if not self.root.is_dir():
            raise DataError(f"there is no folder {str(self.root)!r} with the public recordings")
        return self.root
