"""Seconds per call on a torch device, whose work may go on after a call has returned."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_WARM_UP_CALLS = 3
_CALLS_PER_WAIT = 4  # calls before the device is waited for and the clock is read


def wait_for(device: str | torch.device) -> None:
    """Wait until all work on a device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds_per_call(
    work: Callable[[], object], device: str | torch.device, *, at_least: float = 0.5
) -> float:
    """Mean duration of a call, after warming up.

    Args:
        work: The function to call.
        device: Torch device on which the function computes.
        at_least: Seconds for which calls are repeated.
    """
    for _ in range(_WARM_UP_CALLS):
        work()
    wait_for(device)
    calls = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < at_least:
        for _ in range(_CALLS_PER_WAIT):
            work()
        wait_for(device)
        calls += _CALLS_PER_WAIT
    return (time.perf_counter() - begin) / calls
