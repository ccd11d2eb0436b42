"""Whether torch can compute on a device."""

from __future__ import annotations

import torch


def device_available(device: str) -> bool:
    """Whether torch can compute on a device, as in "cuda"."""
    try:
        # `item` reads the value back. That fails on "meta", a device of shapes without numbers.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError):
        return False
    return True
