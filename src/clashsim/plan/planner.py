"""`plan`: strikes that bring a body to a target, by search or by gradient, for one target or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.plan.gradient import Tensor, as_tensor, descend, repeat
from clashsim.plan.search import Cem, CmaEs, apart, minimise, scatter
from clashsim.plan.tasks import Plan, Status, Task, box, breach, loss, off

Method = Literal["cmaes", "cem", "gradient"]
_LONGEST = 3  # strikes of a sequence
_BREACHED = 1e-4  # m2: a tenth of a millimetre is no breach
_STARTS = 3  # of CMA-ES
_SCATTER = 8  # populations scattered over all strikes to begin with
_SHOWN = 32  # draws from which the spread of a plan is told


def plan(model: StrikeModel, task: Task, *, method: Method = "cmaes", draws: int = 0, population: int = 24, rounds: int = 24, seed: int = 0) -> Plan:
    """Strikes for one task; as `plan_many`."""
    return plan_many(model, [task], method=method, draws=draws, population=population, rounds=rounds, seed=seed)[0]


def plan_few(model: StrikeModel, task: Task, **options: Any) -> Plan:
    """As few strikes as reach the target, three at most; if none do, the plan that comes nearest."""
    best: Plan | None = None
    for k in range(task.strikes, _LONGEST + 1):
        found = plan(model, replace(task, strikes=k), **options)
        if found.status is Status.FOUND:
            return found
        best = found if best is None or (found.breached, found.cost) < (best.breached, best.cost) else best
    assert best is not None
    return best


def plan_many(model: StrikeModel, tasks: Sequence[Task], *, method: Method = "cmaes", draws: int = 0, population: int = 24, rounds: int = 24,
              seed: int = 0) -> list[Plan]:
    """Strikes for tasks of equally many strikes and the same reach; a plan does not depend on what others are made beside it.

    Minimised is the loss of Eq. 5 where the body is expected to come to rest or, with `draws`, its mean over so many draws of what the model
    is unsure of: that avoids strikes with which little goes wrong by much, but ends short of the target where a model is less sure than it
    could be (in the laboratory it doubled the error of the semi-cylinder, so it is not the default). A population is evaluated in one batch
    for all tasks, `rounds` times, after one scattered over all strikes to begin with; gradient descent takes as many evaluations from the
    best of these. The same seed gives the same plans.
    """
    if not tasks:
        return []
    first = tasks[0]
    if any((t.strikes, t.reach, t.tau) != (first.strikes, first.reach, first.tau) for t in tasks):
        raise DataError("tasks that are planned together must have the same number of strikes, reach and tau")
    if method == "gradient" and not callable(model):
        raise DataError(f"a {type(model).__name__} has no gradient: plan with cmaes or cem, or through a map of strikes")
    problem = _Problem(model, tasks, draws, seed)
    size = population * first.strikes  # more strikes, more to search
    x, y = scatter(problem.cost, len(tasks), problem.dim, points=_SCATTER * size, seed=seed)
    count = _SCATTER * size
    if method == "gradient":
        point, _ = descend(problem.torch_cost, x[:, : max(4, size // 2)], steps=2 * rounds)
        count += max(4, size // 2) * 2 * rounds
    else:
        # The population is split among starts that lie apart: strikes on different sides of a body may end at the same place, and one valley is not enough.
        starts = _STARTS if method == "cmaes" else 1
        centre, value = (a.reshape(len(tasks) * starts, *a.shape[2:]) for a in apart(x, y, starts))
        each = max(4, size // starts)
        searcher = (CmaEs if method == "cmaes" else Cem)(centre, each, seed)

        def cost(points: np.ndarray) -> np.ndarray:
            return problem.cost(points.reshape(len(tasks), starts * each, problem.dim)).reshape(len(tasks) * starts, each)

        point, value = minimise(cost, searcher, (centre, value), rounds=rounds)
        best = value.reshape(len(tasks), starts).argmin(1)
        point = point.reshape(len(tasks), starts, problem.dim)[np.arange(len(tasks)), best]
        count += starts * each * rounds
    return [problem.told(i, point[i], count) for i in range(len(tasks))]


class _Problem:
    """Costs of strikes as points of the unit box, for all tasks at once."""

    def __init__(self, model: StrikeModel, tasks: Sequence[Task], draws: int, seed: int) -> None:
        self.model, self.tasks, self.k, self.d = model, tasks, tasks[0].strikes, len(model.names)
        self.low, self.high = box(model, tasks[0].reach)
        self.start, self.target = (np.array([getattr(t, name) for t in tasks]) for name in ("start", "target"))
        # In pairs of opposite sign, so that what is linear in the noise averages out whatever the draws.
        half = np.random.default_rng([seed, 1]).normal(size=(-(-max(draws, _SHOWN) // 2), self.k, 3))
        few = half[: -(-draws // 2)]
        self.noise = np.concatenate([few, -few]) if draws and model.unsure else None
        self.shown = np.concatenate([half, -half])

    @property
    def dim(self) -> int:
        return self.k * self.d

    def cost(self, x: np.ndarray) -> np.ndarray:
        """Costs (T, P) of points (T, P, k d)."""
        return self._cost(x, self.model.rest, lambda a: a, lambda a, n: np.repeat(a, n, 0))

    def torch_cost(self, x: Tensor) -> Tensor:
        """The same for tensors, with a gradient."""
        return self._cost(x, self.model, as_tensor, repeat)

    def _cost(self, x: Any, rest: Any, own: Any, repeat: Any) -> Any:
        tasks, points = x.shape[:2]
        draws = 1 if self.noise is None else len(self.noise)
        first, reach, names = self.tasks[0], self.tasks[0].reach, self.model.names
        strikes = repeat(own(self.low) + own(self.high - self.low) * x.reshape(tasks * points, self.k, self.d), draws)
        pose, target = (repeat(own(a), points * draws) for a in (self.start, self.target))
        total = 0.0
        for k in range(self.k):
            noise = None if self.noise is None else own(np.tile(self.noise[:, k], (tasks * points, 1)))
            end = rest(pose, strikes[:, k], noise)
            total = total + breach(reach, names, pose, strikes[:, k], end)
            pose = end
        total = total + loss(pose, target, first.tau)
        return total.reshape(tasks, points, draws).mean(2)

    def told(self, i: int, point: np.ndarray, evaluations: int) -> Plan:
        """The plan at a point (k d,)."""
        task, names = self.tasks[i], self.model.names
        strikes = self.low + (self.high - self.low) * point.reshape(self.k, self.d)
        poses, breached = [self.start[i]], 0.0
        for s in strikes:
            poses.append(self.model.rest(poses[-1][None], s[None])[0])
            breached += float(breach(task.reach, names, poses[-2][None], s[None], poses[-1][None])[0])
        far, turn = (float(abs(v)) for v in off(poses[-1], self.target[i]))
        many = np.repeat(self.start[i : i + 1], len(self.shown), 0)
        for k, s in enumerate(strikes if self.model.unsure else ()):
            many = self.model.rest(many, np.repeat(s[None], len(many), 0), self.shown[:, k])
        there = f"{1e3 * task.tolerance[0]:.0f} mm and {np.degrees(task.tolerance[1]):.0f} degrees count as there"
        status, reason = Status.FOUND, f"expected {1e3 * far:.1f} mm and {np.degrees(turn):.1f} degrees from the target ({there})"
        if breached > _BREACHED:
            status, reason = Status.OUT_OF_REACH, "no strike within the arm's reach brings the body to the target: allow another side, speed or workspace"
        elif far > task.tolerance[0] or turn > task.tolerance[1]:
            many_words = ("one strike", "two strikes", "three strikes")[self.k - 1]
            status = Status.OUT_OF_REACH
            reason = f"the nearest found that {many_words} can bring the body is {1e3 * far:.0f} mm and {np.degrees(turn):.0f} degrees from the target"
        return Plan(task, names, strikes, np.array(poses[1:]), many.std(0), float(loss(poses[-1], self.target[i], task.tau)), status, reason, evaluations, breached > _BREACHED)
