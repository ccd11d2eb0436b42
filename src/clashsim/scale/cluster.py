"""Connects to a Ray cluster for as long as it is needed.

A cluster that is already running is joined, and left running; otherwise one is started here and
shut down afterwards. A cluster that is started here accepts connections from this machine only,
because anyone who can connect can run code in it.
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
# Shared memory of a cluster that is started here: results have about a megabyte each, and only a
# few wait to be fetched.
_STORE_BYTES = 256 << 20
_CONNECT_TIMEOUT = 5.0  # s, checked first because Ray itself would try for minutes
_MAX_REASON_LENGTH = 200  # characters of Ray's error that a message quotes
# Environment variables that Ray reads when it is imported, as do the processes it starts.
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_QUIET_OPTIONS: dict[str, Any] = {"logging_level": "CRITICAL", "log_to_driver": False}


@contextmanager
def cluster(where: str, workers: int) -> Iterator[bool]:
    """Connect this process to a Ray cluster, unless it is already connected to one.

    Args:
        where: "ray" joins the cluster of `ray start` or of RAY_ADDRESS if there is one and else
            starts one; "local" always starts one; "auto" or an address ("host:port",
            "ray://host:port") only joins a running one.
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
        started_here = where == "local" or not _join(where)
        if started_here:
            ray.init(
                address="local",
                num_cpus=workers or None,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                **_QUIET_OPTIONS,
            )
        try:
            yield started_here
        finally:
            ray.shutdown()


def require_ray() -> None:
    """Raise a `MissingExtraError`, before any work is done, if Ray cannot be imported."""
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with needs("Ray", "scale"):
        import ray  # noqa: F401


def _join(where: str) -> bool:
    """Join a running cluster; returns False where `where` is "ray" and there is none."""
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
        reason = " ".join(str(error).split())[:_MAX_REASON_LENGTH]
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
    """Make a cluster that is started within listen on the loopback address only.

    Ray has a constant for this, meant for systems whose firewall asks about every program that
    listens on the network. It has no effect on joining other clusters.
    """
    from ray._private import ray_constants

    previous = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = previous


@contextmanager
def _without_loss_reports() -> Iterator[None]:
    """Keep Ray from printing a paragraph for each worker that is lost.

    A lost worker is not an error here (its item is tried again), and Ray has no setting for it.
    """
    from ray._private import worker

    previous = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = lambda *args, **options: None  # type: ignore[assignment]
    try:
        yield
    finally:
        worker.print_to_stdstream = previous  # type: ignore[assignment]
