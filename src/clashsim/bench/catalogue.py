"""All benchmarks by their names on the command line, and how one is run by its name.

A benchmark is a module with

    OPTIONS             names of the `BenchOptions` that it uses and that a user may give
    run(options)        measures, and returns the rows of its table
    plot(rows, path)    draws these rows; not every benchmark has this function
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row
from clashsim.core.errors import ParamError

MODULES = {
    "real-impacts": "real_impacts",
    "shapes": "shapes",
    "materials": "materials",
    "real-slides": "real_slides",
    "sampling": "sampling",
    "base": "base",
    "contact": "contact",
    "video": "video",
    "transfer": "transfer",
    "scenes": "scenes",
    "trajectories": "trajectories",
    "throughput": "throughput",
    "planning": "planning",
    "search-time": "search_time",
    "routes": "routes",
    "loop": "loop",
    "advise": "advise",
    "basin-hopping": "basin_hopping",
    "real-pendulum": "real_pendulum",
    "real-tosses": "real_tosses",
    "push-to-stop": "push_to_stop",
    "policy-gradients": "policy_gradients",
    "throws": "throws",
    "bowling": "bowling",
    "scaling": "scaling",
    "growth": "growth",
}
# Options that a user may give but that some benchmarks do not have. All benchmarks have `quick`.
_REFUSABLE = ("seeds", "first_seed", "sets", "methods", "plain", "resume", "device", "executor")


def load_benchmark(name: str) -> Any:
    """Import the module of a benchmark."""
    return import_module(f"clashsim.bench.{MODULES[name]}")


def given_options(options: BenchOptions) -> list[str]:
    """Names of the options that were given, of those that some benchmarks do not have."""
    return [name for name in _REFUSABLE if getattr(options, name)]


def check_options(name: str, given: Iterable[str]) -> None:
    """Refuse options that a benchmark does not have.

    Args:
        name: A key of `MODULES`.
        given: Names of the options that a user gave.

    Raises:
        ParamError: The benchmark does not have one of these options.
    """
    known = load_benchmark(name).OPTIONS
    for option in given:
        if option not in known:
            raise ParamError(f"the bench {name} has no option --{option.replace('_', '-')}")


def run_benchmark(name: str, options: BenchOptions) -> list[Row]:
    """Run a benchmark by its name on the command line.

    Args:
        name: A key of `MODULES`.
        options: What to measure and where.

    Returns:
        The rows of its table; a row that could not be measured has a reason under `why`.

    Raises:
        ParamError: The benchmark does not have an option that was given.
        DataError: The benchmark reads public recordings, and their folder does not exist.
    """
    check_options(name, given_options(options))
    module = load_benchmark(name)
    if "root" in module.OPTIONS and options.root is not None:
        options.recordings()  # raises if the folder does not exist
    rows: list[Row] = module.run(options)
    return rows
