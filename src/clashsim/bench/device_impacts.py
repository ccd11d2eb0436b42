"""Impacts and strikes a second on a torch device, beside what the device could do at most. Needs no
MuJoCo, so that it runs where that is not installed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.bench.rows import Row, optional
from clashsim.core.errors import ParamError
from clashsim.nets.impact import ImpactNet
from clashsim.nets.strike_table import StrikeTable
from clashsim.plan.planner import plan_batch
from clashsim.plan.tasks import PlanningTask, PlanStatus

_MATRIX = 8192  # side of the matrices whose product tells a device's limit


def device_available(device: str) -> bool:
    """Whether torch can compute there."""
    try:
        torch.zeros(1, device=device).item()  # the device "meta" has shapes and no numbers
    except (RuntimeError, AssertionError):
        return False
    return True


def measure_rates(
    net: ImpactNet, strikes: StrikeTable, device: str, *, n: int = 1 << 22
) -> list[dict[str, Any]]:
    """Rows of what, method, per_second, `limit` (the share of the fastest matrix product for a
    network, of the fastest copy for a map, that it comes to),
    and `off`: how far it is from double precision on the CPU, the 99th percentile (of the size of
    the outcome for impacts, m for poses).
    """
    slide = strikes.slide
    assert slide is not None
    card = torch.device(device).type == "cuda"
    exact, precise = copy.deepcopy(net).cpu().double(), copy.deepcopy(strikes).cpu().double()
    net, strikes = copy.deepcopy(net).to(device), copy.deepcopy(strikes).to(device).float()
    product, copied = _product(device, torch.bfloat16 if card else torch.float32), _copied(device)
    draws = torch.Generator(device).manual_seed(0)
    live = net.scale > 0
    x = (
        torch.randn(n // 8, len(live), device=device, generator=draws)
        * torch.where(live, 1 / net.scale.clamp_min(1e-6), 0)
        + net.mean
    )
    low, high = (
        torch.as_tensor(v, dtype=torch.float32, device=device) for v in (strikes.low, strikes.high)
    )
    strike = low + (high - low) * torch.rand(n, len(strikes.names), device=device, generator=draws)
    pose = torch.zeros(n, 3, device=device)
    few = slice(0, min(n // 8, 4096))
    seen, struck, at = (a[few].cpu().double() for a in (x, strike, pose))
    with torch.no_grad():
        wanted = {
            "impacts": exact(seen),
            "twists": precise.twist(struck),
            "rest": precise(at, struck),
        }
    rows: list[Row] = []

    def add(
        what: str,
        method: str,
        work: Callable[[], Tensor],
        count: int,
        share: Callable[[float], float],
        against: str,
    ) -> None:
        with optional(rows, what=what, method=method):
            rows.append(measured(what, method, work, count, share, against))

    def measured(
        what: str,
        method: str,
        work: Callable[[], Tensor],
        count: int,
        share: Callable[[float], float],
        against: str,
    ) -> Row:
        found, truth = work(), wanted[against]
        gap = (
            found[..., few, :].cpu().double() - truth[: found.shape[0]]
            if found.dim() == 3
            else found[few].cpu().double() - truth
        )
        off = (
            gap[..., :2].norm(dim=-1)
            if against == "rest"
            else gap.norm(dim=-1) / truth[: len(gap)].norm(dim=-1)
        )
        per_second = count / _seconds(work, device)
        return {
            "what": what,
            "method": method,
            "per_second": per_second,
            "limit": share(per_second),
            "off": float(off.quantile(0.99)),
        }

    def flops(members: int) -> Callable[[float], float]:
        one = 2 * sum(w[0].numel() for w in net.weights)
        return lambda r: r * members * one / product

    # Bytes that have to move at the least: a strike and a pose in, three numbers out.
    moved = 4 * (len(strikes.names) + 3)
    members = net.shape["members"]
    with torch.no_grad():
        add(
            "impacts",
            f"network of {members}, float32 on {device}",
            lambda: net(x),
            len(x),
            flops(members),
            "impacts",
        )
        if card:
            with optional(
                rows, what="impacts", method=f"network of {members}, one kernel in half precision"
            ):
                fused = _fused()
                if fused.fits(net):
                    packed = fused.PackedNet(net)
                    for count in sorted({members, 1}, reverse=True):
                        method = f"network of {count}, one kernel in half precision"
                        add(
                            "impacts",
                            method,
                            partial(packed, x, members=count),
                            len(x),
                            flops(count),
                            "impacts",
                        )
        add(
            "impacts",
            f"map of strikes on {device}",
            lambda: strikes.twist(strike),
            n,
            lambda r: r * moved / copied,
            "twists",
        )
        add(
            "strikes to rest",
            f"map of twists, then slide model on {device}",
            lambda: slide.rest(pose, strikes.twist(strike)),
            n,
            lambda r: r * (moved + 12) / copied,
            "rest",
        )
        add(
            "strikes to rest",
            f"map of strikes on {device}",
            lambda: strikes(pose, strike),
            n,
            lambda r: r * (moved + 12) / copied,
            "rest",
        )
    return rows


def _fused() -> Any:
    """The network as one kernel, which is compiled by Triton."""
    try:
        from clashsim.nets import fused
    except ImportError as error:
        raise ParamError(f"the kernel needs Triton, which cannot be imported ({error})") from None
    return fused


def planned(
    strikes: StrikeTable, device: str, *, n: int = 1000, seed: int = 7
) -> list[dict[str, Any]]:
    """A row of so many targets that one strike can reach, planned in one call: per_second, seconds,
    the share reached, and the median distance (m) that is left.
    """
    strike = np.random.default_rng(seed).uniform(strikes.low, strikes.high, (n, len(strikes.names)))
    tasks = [PlanningTask(tuple(pose)) for pose in strikes.rest(np.zeros((n, 3)), strike).tolist()]
    options: dict[str, Any] = {"device": device, "population": 96, "rounds": 48}
    plan_batch(strikes, tasks[:2], **options)
    begin = time.perf_counter()
    plans = plan_batch(strikes, tasks, **options)
    seconds = time.perf_counter() - begin
    left = [float(np.hypot(*(p.predicted[-1][:2] - np.array(p.task.target)[:2]))) for p in plans]
    return [
        {
            "what": f"{n} targets in one call",
            "method": f"CMA-ES on {device}",
            "per_second": n / seconds,
            "seconds": seconds,
            "evaluations": sum(p.evaluations for p in plans),
            "reached": float(np.mean([p.status is PlanStatus.FOUND for p in plans])),
            "off": float(np.median(left)),
        }
    ]


def _product(device: str, kind: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    side = _MATRIX if torch.device(device).type == "cuda" else 1024
    a = torch.randn(side, side, device=device, dtype=kind)
    return 2 * side**3 / _seconds(lambda: a @ a, device)


def _copied(device: str) -> float:
    """Bytes a second that can be read and written."""
    a = torch.empty(
        1 << (30 if torch.device(device).type == "cuda" else 26), dtype=torch.uint8, device=device
    )
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
