"""A Ray cluster for as long as it is needed: one that runs already is joined and left as it was, else one is started here and ended."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any, TextIO

from clashsim.core.errors import MissingExtraError, ParamError

_ADDRESS = re.compile(r"(ray://)?[\w.-]+:\d+")
_STORE = 256 << 20  # bytes of shared memory of a cluster of our own: results are a megabyte, and few wait at a time
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextmanager
def cluster(where: str, workers: int) -> Iterator[bool]:
    """Connect this process; gives whether the cluster is our own, of `workers` workers (0: as many as there are cores).

    where: "ray" joins the cluster of `ray start` or of RAY_ADDRESS if there is one and starts one if not, "local" always starts one,
    "auto" or an address ("host:port", "ray://host:port") joins. A process that is connected already stays so.
    """
    if where not in ("ray", "local", "auto") and not _ADDRESS.fullmatch(where):
        raise ParamError(f"--on must be ray, local, auto or the address of a Ray cluster as host:port or ray://host:port, got {where!r}")
    if workers < 0:
        raise ParamError(f"--workers must not be negative, got {workers}")
    if find_spec("ray") is None:
        raise MissingExtraError("Ray", "scale")
    os.environ.update({k: v for k, v in _SILENT.items() if k not in os.environ})  # read when ray is imported, and by the processes it starts
    import ray

    if ray.is_initialized():
        yield False
        return
    with redirect_stdout(_Ours(sys.stdout)):
        own = where == "local" or not _joined(where)
        if own:
            ray.init(address="local", num_cpus=workers or None, include_dashboard=False, object_store_memory=_STORE, **_quiet())
        try:
            yield own
        finally:
            ray.shutdown()


def _joined(where: str) -> bool:
    """Whether there is a cluster to join, and it was joined."""
    import ray

    try:
        ray.init(address="auto" if where == "ray" else where, **_quiet())
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        if where == "ray" and not os.environ.get("RAY_ADDRESS"):
            return False
        said = " ".join(str(error).split())[:200]
        raise ParamError(f"no Ray cluster can be joined at {where!r}, start one with `ray start --head` or give --on local ({said})") from None
    return True


def _quiet() -> dict[str, Any]:
    return {"logging_level": "CRITICAL", "log_to_driver": False}


class _Ours:
    """Standard output without the lines of Ray's own threads: it prints a paragraph for each worker that is lost, which is not an error here."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what does not come from Ray."""
        return len(text) if threading.current_thread().name.startswith("ray_") else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
