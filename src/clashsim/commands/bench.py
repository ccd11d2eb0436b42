"""`clashsim bench`."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import cache, console, engine
from clashsim.core.errors import DataError, ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Bench

_BENCHES = {"real-impacts": "real_impacts", "shapes": "shapes", "materials": "materials", "real-slides": "real_slides", "sampling": "sampling", "base": "base",
            "throughput": "throughput", "planning": "planning", "search-time": "search_time", "routes": "routes", "loop": "loop", "advise": "advise",
            "basin-hopping": "basin_hopping", "real-pendulum": "real_pendulum",
            "real-tosses": "real_tosses", "push-to-stop": "push_to_stop", "bowling": "bowling", "scaling": "scaling"}
# What --quick means to benches that have a size instead.
_QUICK: dict[str, dict[str, Any]] = {"sampling": {"n": 8192}, "throughput": {"n": 256}, "base": {"n": 8192, "held_out": 1000, "scenes": ("puck",)}}


def run(verb: Bench) -> None:
    """`clashsim bench`."""
    from inspect import signature

    from clashsim.core.files import write_atomic
    from clashsim.fit.runs import versions
    from clashsim.report.tables import plain

    if verb.seeds is not None and verb.seeds < 1:
        raise ParamError(f"--seeds must be at least 1, got {verb.seeds}")
    module = import_module(f"clashsim.bench.{_BENCHES[verb.name]}")
    if verb.plot is not None and not hasattr(module, "plot"):
        raise ParamError(f"the bench {verb.name} has no option --plot")
    data = verb.data or (Path(os.environ["CLASHSIM_DATA"]) if os.environ.get("CLASHSIM_DATA") else None)
    root = signature(module.run).parameters.get("root")
    if root is not None:
        if data is None and root.default is root.empty:
            raise DataError("this bench needs the public recordings: name their folder with --data, or in CLASHSIM_DATA")
        if data is not None and not data.is_dir():
            raise DataError(f"there is no folder {str(data)!r} with the public recordings")
    takes = signature(module.run).parameters
    given: dict[str, Any] = {"seeds": verb.seeds, "sets": verb.sets, "methods": verb.methods, "resume": verb.resume, "device": verb.device}
    given |= _QUICK.get(verb.name, {"quick": True}) if verb.quick else {}
    given = {k: v for k, v in given.items() if v}  # what was not given is left to the bench's own defaults
    for name in (*given, *(["on"] if verb.where.on is not None and "engine" not in takes else [])):
        if name not in takes:
            raise ParamError(f"the bench {verb.name} has no option --{name}")
    start = time.perf_counter()
    with engine(verb.where) as made:
        given |= {"engine": made} if verb.where.on is not None else {}
        rows = module.run(**given, **{k: v for k, v in {"root": data, "cache": cache(), "progress": bar}.items() if k in takes})
    seconds = time.perf_counter() - start
    console().print(plain(f"{verb.name}, {seconds:.0f} s", rows))
    if verb.json is not None:
        machine = {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()}
        content = {"bench": verb.name, "versions": versions(), "machine": machine, "seconds": round(seconds, 1), "rows": _plain_numbers(rows)}
        write_atomic(verb.json, (json.dumps(content, indent=1) + "\n").encode())
    if verb.plot is not None:
        module.plot(rows, verb.plot)


def _plain_numbers(value: Any) -> Any:
    """What JSON can hold: numpy numbers as Python's, those that are not finite as null."""
    if isinstance(value, dict):
        return {k: _plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
