"""Whether torch can compute on a device."""

from __future__ import annotations

import torch


def device_available(device: str) -> bool:
    """Whether torch can compute on a device, as in "cuda"."""
    try:
        torch.zeros(1, device=device).item()  # the device "meta" has shapes and no numbers
    except (RuntimeError, AssertionError):
        return False
    return True
