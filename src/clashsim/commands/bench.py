"""`clashsim bench`."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import cache, console, engine
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Bench

def run(verb: Bench) -> None:
    """`clashsim bench`."""
    from clashsim.bench.catalogue import check_options, given_options, load_benchmark, run_benchmark
    from clashsim.bench.options import BenchOptions

    if verb.seeds is not None and verb.seeds < 1:
        raise ParamError(f"--seeds must be at least 1, got {verb.seeds}")
    module = load_benchmark(verb.name)
    if verb.plot is not None and not hasattr(module, "plot"):
        raise ParamError(f"the bench {verb.name} has no option --plot")
    if verb.json is not None and verb.json.is_dir():
        raise DataError(f"--json {str(verb.json)!r} is a folder, not a file")
    results = Results(verb.name, verb.json)
    data = os.environ.get("CLASHSIM_DATA")
    options = BenchOptions(
        root=verb.data or (Path(data) if data else None),
        seeds=verb.seeds,
        quick=verb.quick,
        sets=verb.sets,
        methods=verb.methods,
        resume=verb.resume,
        device=verb.device,
        cache=cache(),
        progress=bar,
        save=results.save,
    )
    remote = verb.where.on is not None
    check_options(verb.name, given_options(options) + (["executor"] if remote else []))
    try:
        with engine(verb.where) as executor:
            if remote:
                options = replace(options, executor=executor)
            results.save(run_benchmark(verb.name, options))
    finally:
        # Whatever ended the bench, an interrupt included: what was measured is shown.
        results.show()
    results.refuse_empty()
    if verb.plot is not None:
        module.plot(results.rows, verb.plot)


@dataclass
class Results:
    """Rows of a bench so far: in its JSON file as they are made, in tables when it ends.

    Args:
        bench: Name of the bench.
        file: JSON file that is replaced whenever there are more rows; none is written without.
    """

    bench: str
    file: Path | None
    rows: Sequence[Mapping[str, Any]] = ()
    start: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since the bench began."""
        return time.perf_counter() - self.start

    def save(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take over all rows that there are, and write them."""
        from clashsim.core.files import write_atomic
        from clashsim.fit.run_folder import versions

        self.rows = list(rows)
        if self.file is None:
            return
        machine = {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        }
        content = {
            "bench": self.bench,
            "versions": versions(),
            "machine": machine,
            "seconds": round(self.seconds, 1),
            "rows": _plain_numbers(self.rows),
        }
        write_atomic(self.file, (json.dumps(content, indent=1) + "\n").encode())

    def show(self) -> None:
        """Print the rows, if there are any."""
        from clashsim.report.tables import tabulate_rows

        if self.rows:
            out = console()
            out.print(
                tabulate_rows(f"{self.bench}, {self.seconds:.0f} s", self.rows, width=out.width)
            )

    def refuse_empty(self) -> None:
        """Fail where every row is missing: some may be, for what is not installed here."""
        if self.rows and all("why" in row for row in self.rows):
            raise ClashError(
                f"no row of the bench {self.bench} could be measured: {self.rows[0]['why']}"
            )


def _plain_numbers(value: Any) -> Any:
    """What JSON can hold: numpy numbers as Python's, those that are not finite as null."""
    if isinstance(value, Mapping):
        return {k: _plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
