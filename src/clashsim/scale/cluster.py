"""A Ray cluster for as long as it is needed.

A cluster that runs already is joined and left as it was; else one is started here and ended. A
cluster that is started here can be reached from this machine alone, because whoever reaches one can
run code in it.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clashsim.core.errors import ParamError
from clashsim.core.extras import needs

_ADDRESS = re.compile(r"(ray://)?[\w.-]+:\d+")
# Bytes of shared memory of a cluster of our own: results are a megabyte, and few wait at a time.
_STORE_BYTES = 256 << 20
_CONNECT_TIMEOUT = 5.0  # s for an address to answer at all; Ray itself would try for minutes
# Read when ray is imported, and by the processes it starts.
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_QUIET_OPTIONS: dict[str, Any] = {"logging_level": "CRITICAL", "log_to_driver": False}


@contextmanager
def cluster(where: str, workers: int) -> Iterator[bool]:
    """Connect this process to a Ray cluster; a process that is connected already stays so.

    Args:
        where: "ray" joins the cluster of `ray start` or of RAY_ADDRESS if there is one and starts
            one if not; "local" always starts one; "auto" or an address ("host:port",
            "ray://host:port") joins.
        workers: Number of workers of a cluster that is started here; 0 for the number of cores.

    Yields:
        Whether the cluster was started here.
    """
    if where not in ("ray", "local", "auto") and not _ADDRESS.fullmatch(where):
        raise ParamError(
            "--executor must be ray, local, auto or the address of a Ray cluster as host:port "
            f"or ray://host:port, got {where!r}"
        )
    if workers < 0:
        raise ParamError(f"--workers must not be negative, got {workers}")
    require_ray()
    import ray

    if ray.is_initialized():
        yield False
        return
    with _without_loss_reports(), _on_loopback():
        own = where == "local" or not _join(where)
        if own:
            ray.init(
                address="local",
                num_cpus=workers or None,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                **_QUIET_OPTIONS,
            )
        try:
            yield own
        finally:
            ray.shutdown()


def require_ray() -> None:
    """Raise a `MissingExtraError` before any work where Ray cannot be imported."""
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with needs("Ray", "scale"):
        import ray  # noqa: F401


def _join(where: str) -> bool:
    """Join a cluster; False where "ray" finds none."""
    import ray
    from ray.exceptions import RayError

    address = where
    if where == "ray":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        if address != "auto":
            _check_address_answers(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below reports it
            ray.init(address=address, **_QUIET_OPTIONS)
    except (OSError, RuntimeError, ValueError, ImportError, RayError) as error:
        if where == "ray" and address == "auto":
            return False
        reason = " ".join(str(error).split())[:200]
        raise ParamError(
            f"no Ray cluster can be joined at {address!r}: start one with `ray start --head`, "
            "set RAY_AUTH_MODE=token here if it was started so, "
            f"or give --executor local ({reason})"
        ) from None
    return True


def _check_address_answers(address: str) -> None:
    """Raise OSError unless something listens at host:port."""
    host, port = address.removeprefix("ray://").rsplit(":", 1)
    socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray use the loopback where it would take the machine's address on the network instead.

    Ray has this as a constant, for systems whose firewall asks about every program that listens.
    With it, all processes of a cluster that is started listen on the loopback alone, and such a
    cluster can be joined by its address. Joining others does not depend on it.
    """
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _without_loss_reports() -> Iterator[None]:
    """Keep Ray's own thread from printing a paragraph for each worker that is lost.

    That is no error here, and Ray has no setting for it.
    """
    from ray._private import worker

    before = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = lambda *args, **options: None  # type: ignore[assignment]
    try:
        yield
    finally:
        worker.print_to_stdstream = before  # type: ignore[assignment]
