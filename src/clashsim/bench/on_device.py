"""Impacts and strikes a second on a torch device, beside what the device could do at most. Needs torch alone, so that it runs where MuJoCo does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clashsim.nets.impact import ImpactNet
from clashsim.nets.strike_map import StrikeMap

_MATRIX = 8192  # side of the matrices whose product tells a device's limit


def present(device: str) -> bool:
    """Whether torch can compute there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        return False
    return True


def rates(net: ImpactNet, strikes: StrikeMap, device: str, *, n: int = 1 << 22) -> list[dict[str, Any]]:
    """Rows of what, method, per_second, and `limit`: the share of the fastest matrix product (network) or of the fastest copy (map) that it comes to."""
    slide = strikes.slide
    assert slide is not None
    net, strikes = net.to(device), strikes.to(device).float()
    card = torch.device(device).type == "cuda"
    half = torch.bfloat16 if card else torch.float32
    product, copied = _product(device, half), _copied(device)
    flops = 2 * sum(w.numel() for w in net.weights)
    x = torch.randn(n // 8, net.weights[0].shape[1], device=device) / net.scale.clamp_min(1e-6) + net.mean
    low, high = (torch.as_tensor(v, dtype=torch.float32, device=device) for v in (strikes.low, strikes.high))
    strike = low + (high - low) * torch.rand(n, len(strikes.names), device=device)
    pose = torch.zeros(n, 3, device=device)
    rows: list[dict[str, Any]] = []

    def add(what: str, method: str, work: Callable[[], Tensor], count: int, share: Callable[[float], float]) -> None:
        per_second = count / _seconds(work, device)
        rows.append({"what": what, "method": method, "per_second": per_second, "limit": share(per_second)})

    # Bytes that have to move at the least: a strike and a pose in, three numbers out.
    moved = 4 * (len(strikes.names) + 3)
    with torch.no_grad():
        add("impacts", f"network, float32 on {device}", lambda: net(x), len(x), lambda r: r * flops / product)
        if card:
            small, y = net.to(half), x.to(half)
            quick = torch.compile(small)
            add("impacts", "network, bfloat16, compiled", lambda: quick(y), len(y), lambda r: r * flops / product)
        fast: Callable[[Any], Any] = torch.compile if card else lambda f: f
        look, then = fast(lambda s: _looked_up(strikes, s, 0, 1)), fast(lambda p, s: slide.rest(p, _looked_up(strikes, s, 0, 1)))
        whole = fast(lambda p, s: _moved(p, _looked_up(strikes, s, 3, 2)))
        add("impacts", f"map of strikes, float32 on {device}", lambda: look(strike), n, lambda r: r * moved / copied)
        add("strikes to rest", f"map of twists, then slide model on {device}", lambda: then(pose, strike), n, lambda r: r * (moved + 12) / copied)
        add("strikes to rest", f"map of strikes on {device}", lambda: whole(pose, strike), n, lambda r: r * (moved + 12) / copied)
    return rows


def _looked_up(strikes: StrikeMap, strike: Tensor, first: int, power: int) -> Tensor:
    """Three columns of the table times a power of the speed, written so that a compiler makes one kernel of it, without tables of indices and weights."""
    columns, out = strikes.table.rows[:, first : first + 3], torch.zeros(len(strike), 3, dtype=strike.dtype, device=strike.device)
    for row, weight in strikes.table.taps(strike):
        out = out + weight[:, None] * columns[row]
    return out * strike[:, strikes.names.index("speed"), None] ** power


def _moved(pose: Tensor, own: Tensor) -> Tensor:
    """Poses (N, 3) moved by own (N, 3), in the body's axes."""
    c, s = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
    return pose + torch.stack([c * own[:, 0] - s * own[:, 1], s * own[:, 0] + c * own[:, 1], own[:, 2]], 1)


def _product(device: str, kind: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    side = _MATRIX if torch.device(device).type == "cuda" else 1024
    a = torch.randn(side, side, device=device, dtype=kind)
    return 2 * side**3 / _seconds(lambda: a @ a, device)


def _copied(device: str) -> float:
    """Bytes a second that can be read and written."""
    a = torch.empty(1 << (30 if torch.device(device).type == "cuda" else 26), dtype=torch.uint8, device=device)
    b = torch.empty_like(a)
    return 2 * a.numel() / _seconds(lambda: b.copy_(a), device)


def _seconds(work: Callable[[], object], device: str, least: float = 0.5) -> float:
    """Seconds a call, after warming up."""
    def done() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        work()
    done()
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < least:
        for _ in range(4):
            work()
        done()
        calls += 4
    return (time.perf_counter() - begin) / calls
