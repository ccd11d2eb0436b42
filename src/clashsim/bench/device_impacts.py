"""Impacts and strikes per second on a torch device, compared with the limits of the device.

Needs no MuJoCo, so that it runs where that is not installed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.bench.rows import Row, optional
from clashsim.bench.timing import seconds_per_call
from clashsim.core.errors import ParamError
from clashsim.nets.impact import ImpactNet
from clashsim.nets.strike_table import StrikeTable
from clashsim.plan.planner import PlannerConfig, plan_batch
from clashsim.plan.tasks import PlanningTask, PlanStatus

_GPU_MATRIX_SIDE = 8192  # rows and columns of the matrices whose product shows a device's limit
_CPU_MATRIX_SIDE = 1024
_GPU_COPY_BYTES = 1 << 30
_CPU_COPY_BYTES = 1 << 26
_MAX_COMPARED = 4096  # rows that are compared with double precision
# Strikes by a table for each impact by the network, which takes much longer.
_STRIKES_PER_IMPACT = 8
_BYTES_PER_NUMBER = 4  # single precision
_TWIST_NUMBERS = 3  # vx, vy and yaw rate
_POSE_NUMBERS = 3  # x, y, yaw; a planar twist has three numbers as well
_MIN_SCALE = 1e-6  # of a network input, so that no division is by zero
_OFF_QUANTILE = 0.99  # of the errors, shown as `off`


@dataclass(frozen=True, eq=False)
class _Computation:
    """Something to time on a device.

    Attributes:
        what: Kind of result: "impacts" or "strikes to rest".
        method: How it is computed.
        work: Computes `count` results once: (count, k), or (members, count, k) by a network of
            several members.
        count: Number of results of one call.
        limit_share: Gives the share of the device's limit that some results per second reach.
        expected: The first results in double precision on the CPU, with the axes of `work`'s.
    """

    what: str
    method: str
    work: Callable[[], Tensor]
    count: int
    limit_share: Callable[[float], float]
    expected: Tensor

    def measure(self, device: str) -> Row:
        """The row of this computation."""
        error = self._error(self.work())
        per_second = self.count / seconds_per_call(self.work, device)
        return {
            "what": self.what,
            "method": self.method,
            "per_second": per_second,
            "limit": self.limit_share(per_second),
            "off": float(error.quantile(_OFF_QUANTILE)),
        }

    def _error(self, computed: Tensor) -> Tensor:
        """Distance of poses (m), or relative error of twists."""
        rows = self.expected.shape[-2]
        expected = self.expected
        if computed.dim() == 3:  # a network, perhaps with fewer members than the exact one
            expected = expected[: computed.shape[0]]
        gap = computed[..., :rows, :].cpu().double() - expected
        if self.what == "strikes to rest":
            return gap[..., :2].norm(dim=-1)
        return gap.norm(dim=-1) / expected.norm(dim=-1)


class _DeviceRates:
    """Inputs on a device, and the computations that are timed on them."""

    def __init__(self, net: ImpactNet, table: StrikeTable, device: str, n: int) -> None:
        self.device = device
        self.is_gpu = torch.device(device).type == "cuda"
        self.exact_net = copy.deepcopy(net).cpu().double()
        self.exact_table = copy.deepcopy(table).cpu().double()
        self.net = copy.deepcopy(net).to(device)
        self.table = copy.deepcopy(table).to(device).float()
        assert table.slide is not None
        self.slide = table.slide
        self.n = n
        rng = torch.Generator(device).manual_seed(0)
        self.inputs = self._draw_inputs(n // _STRIKES_PER_IMPACT, rng)
        self.strikes = self._draw_strikes(n, rng)
        self.poses = torch.zeros(n, _POSE_NUMBERS, device=device)
        compared = min(len(self.inputs), _MAX_COMPARED)
        self.some_inputs = self.inputs[:compared].cpu().double()
        self.some_strikes = self.strikes[:compared].cpu().double()
        self.some_poses = self.poses[:compared].cpu().double()

    def _draw_inputs(self, n: int, rng: torch.Generator) -> Tensor:
        """Inputs of the network (n, f), with the mean and spread of its training inputs."""
        scale = self.net.scale
        varies = scale > 0
        std = torch.where(varies, 1 / scale.clamp_min(_MIN_SCALE), 0)
        noise = torch.randn(n, len(scale), device=self.device, generator=rng)
        return noise * std + self.net.mean

    def _draw_strikes(self, n: int, rng: torch.Generator) -> Tensor:
        """Strikes (n, d), evenly over the table."""
        low = torch.as_tensor(self.table.low, dtype=torch.float32, device=self.device)
        high = torch.as_tensor(self.table.high, dtype=torch.float32, device=self.device)
        share = torch.rand(n, len(self.table.names), device=self.device, generator=rng)
        return low + (high - low) * share

    @cached_property
    def operations_per_second(self) -> float:
        """Additions and multiplications per second of a large matrix product."""
        side = _GPU_MATRIX_SIDE if self.is_gpu else _CPU_MATRIX_SIDE
        dtype = torch.bfloat16 if self.is_gpu else torch.float32
        matrix = torch.randn(side, side, device=self.device, dtype=dtype)
        operations = 2 * side**3
        return operations / seconds_per_call(lambda: matrix @ matrix, self.device)

    @cached_property
    def bytes_per_second(self) -> float:
        """Bytes per second that a large copy reads and writes."""
        size = _GPU_COPY_BYTES if self.is_gpu else _CPU_COPY_BYTES
        source = torch.empty(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / seconds_per_call(lambda: target.copy_(source), self.device)

    def _network_share(self, members: int) -> Callable[[float], float]:
        """From impacts per second to the share of the rate of a large matrix product."""
        operations_per_member = 2 * sum(weight[0].numel() for weight in self.net.weights)
        operations = members * operations_per_member
        return lambda rate: rate * operations / self.operations_per_second

    def _table_share(self, numbers: int) -> Callable[[float], float]:
        """From strikes per second to the share of the rate of a large copy.

        A strike reads and writes `numbers` numbers in single precision.
        """
        return lambda rate: rate * _BYTES_PER_NUMBER * numbers / self.bytes_per_second

    def network(self) -> _Computation:
        """All members of the network in single precision."""
        members = self.net.shape["members"]
        return _Computation(
            "impacts",
            f"network of {members}, float32 on {self.device}",
            lambda: self.net(self.inputs),
            len(self.inputs),
            self._network_share(members),
            self.exact_net(self.some_inputs),
        )

    def fused_network(self, packed: Any, members: int) -> _Computation:
        """Some members of the network as one kernel."""
        return _Computation(
            "impacts",
            _fused_name(members),
            partial(packed, self.inputs, members=members),
            len(self.inputs),
            self._network_share(members),
            self.exact_net(self.some_inputs),
        )

    def tabulated(self) -> list[_Computation]:
        """Twists after impact and poses at rest by the strike table."""
        # Numbers moved per strike at least: the strike is read and a twist is written; for a rest
        # pose the pose before is read too.
        numbers_for_twist = len(self.table.names) + _TWIST_NUMBERS
        numbers_for_rest = numbers_for_twist + _POSE_NUMBERS
        expected_rest = self.exact_table(self.some_poses, self.some_strikes)
        twists = _Computation(
            "impacts",
            f"strike table on {self.device}",
            lambda: self.table.twist(self.strikes),
            self.n,
            self._table_share(numbers_for_twist),
            self.exact_table.twist(self.some_strikes),
        )
        twists_then_slide = _Computation(
            "strikes to rest",
            f"table of twists, then slide model on {self.device}",
            lambda: self.slide.rest(self.poses, self.table.twist(self.strikes)),
            self.n,
            self._table_share(numbers_for_rest),
            expected_rest,
        )
        rests = _Computation(
            "strikes to rest",
            f"strike table on {self.device}",
            lambda: self.table(self.poses, self.strikes),
            self.n,
            self._table_share(numbers_for_rest),
            expected_rest,
        )
        return [twists, twists_then_slide, rests]


def measure_rates(
    net: ImpactNet, strikes: StrikeTable, device: str, *, n: int = 1 << 22
) -> list[dict[str, Any]]:
    """Measure impacts and strikes per second of a network and a strike table on a device.

    Args:
        net: Predicts impacts.
        strikes: Strike table with a slide model.
        device: Torch device, as in "cuda".
        n: Number of strikes in a call.

    Returns:
        Rows of what, method, per_second; `limit`, the share of the device's limit that is reached
        (for a network, the rate of a large matrix product; for a table, that of a large copy); and
        `off`, the 99th percentile of the difference from double precision on the CPU (relative for
        impacts, m for poses).
    """
    rows: list[Row] = []
    with torch.no_grad():
        on_device = _DeviceRates(net, strikes, device, n)

        def add(computation: _Computation) -> None:
            with optional(rows, what=computation.what, method=computation.method):
                rows.append(computation.measure(device))

        add(on_device.network())
        if on_device.is_gpu:
            members = on_device.net.shape["members"]
            with optional(rows, what="impacts", method=_fused_name(members)):
                fused = _import_fused()
                if fused.fits(on_device.net):
                    packed = fused.PackedNet(on_device.net)
                    for count in sorted({members, 1}, reverse=True):
                        add(on_device.fused_network(packed, count))
        for computation in on_device.tabulated():
            add(computation)
    return rows


def _fused_name(members: int) -> str:
    return f"network of {members}, one kernel in half precision"


def _import_fused() -> Any:
    """Import the module of the network as one kernel, which needs Triton."""
    try:
        from clashsim.nets import fused
    except ImportError as error:
        raise ParamError(f"the kernel needs Triton, which cannot be imported ({error})") from None
    return fused


def measure_planning(
    strikes: StrikeTable, device: str, *, n: int = 1000, seed: int = 7
) -> list[dict[str, Any]]:
    """Plan many targets in one call, each of which one strike can reach.

    Args:
        strikes: The model to plan in.
        device: Torch device, as in "cuda".
        n: Number of targets.
        seed: Seed of the targets.

    Returns:
        One row: per_second, seconds, evaluations, the share of targets reached, and `off`, the
        median distance (m) between predicted end and target.
    """
    rng = np.random.default_rng(seed)
    reachable = rng.uniform(strikes.low, strikes.high, (n, len(strikes.names)))
    struck_poses = np.zeros((n, _POSE_NUMBERS))
    targets = strikes.rest(struck_poses, reachable)
    tasks = [PlanningTask(tuple(target)) for target in targets.tolist()]
    search = PlannerConfig(device=device, population=96, rounds=48)
    plan_batch(strikes, tasks[:2], search)  # warms up
    begin = time.perf_counter()
    plans = plan_batch(strikes, tasks, search)
    seconds = time.perf_counter() - begin
    ends = np.array([plan.predicted[-1] for plan in plans])
    distance = np.hypot(ends[:, 0] - targets[:, 0], ends[:, 1] - targets[:, 1])
    return [
        {
            "what": f"{n} targets in one call",
            "method": f"CMA-ES on {device}",
            "per_second": n / seconds,
            "seconds": seconds,
            "evaluations": sum(plan.evaluations for plan in plans),
            "reached": float(np.mean([plan.status is PlanStatus.FOUND for plan in plans])),
            "off": float(np.median(distance)),
        }
    ]
