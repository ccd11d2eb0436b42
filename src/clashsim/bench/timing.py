"""Seconds per call on a torch device, whose work must be waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_WARM_UP_CALLS = 3
_CALLS_PER_LOOK = 4  # calls between two looks at the clock


def wait_for(device: str | torch.device) -> None:
    """Wait until all work on a device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds_per_call(
    work: Callable[[], object], device: str | torch.device, *, at_least: float = 0.5
) -> float:
    """Mean duration of a call, after warming up.

    Args:
        work: The call.
        device: Where it computes.
        at_least: Seconds to measure for.
    """
    for _ in range(_WARM_UP_CALLS):
        work()
    wait_for(device)
    calls = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < at_least:
        for _ in range(_CALLS_PER_LOOK):
            work()
        wait_for(device)
        calls += _CALLS_PER_LOOK
    return (time.perf_counter() - begin) / calls
