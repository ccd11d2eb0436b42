"""`plan`: strikes that bring a body to a target, by search or by gradient, for one target or many
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.optim import device_search
from clashsim.optim.search import Cem, CmaEs, evaluate_random_points, minimise, pick_distant
from clashsim.plan.gradient import Tensor, as_tensor, descend, moved_to, repeat
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus, box, breach, loss, pose_error

Method = Literal["cmaes", "cem", "gradient"]
_LONGEST = 3  # strikes of a sequence
_BREACHED = 1e-4  # m2: a tenth of a millimetre is no breach
_STARTS = 3  # of CMA-ES
_SCATTER = 8  # populations scattered over all strikes to begin with
_SHOWN = 32  # draws from which the spread of a plan is told


def plan(model: StrikeModel, task: PlanningTask, **options: Any) -> Plan:
    """Strikes for one task; as `plan_batch`."""
    return plan_batch(model, [task], **options)[0]


def plan_fewest_strikes(model: StrikeModel, task: PlanningTask, **options: Any) -> Plan:
    """As few strikes as reach the target, three at most; if none do, the plan that comes nearest."""
    return plan_fewest_strikes_batch(model, [task], **options)[0]


def plan_fewest_strikes_batch(
    model: StrikeModel, tasks: Sequence[PlanningTask], **options: Any
) -> list[Plan]:
    """The same for each of many tasks of equally many strikes at the least; those that one number
    of strikes does not bring there go on together to the next.
    """
    best: list[Plan | None] = [None] * len(tasks)
    left = list(range(len(tasks)))
    for k in range(min((t.strikes for t in tasks), default=1), _LONGEST + 1):
        for i, found in zip(
            left,
            plan_batch(model, [replace(tasks[i], strikes=k) for i in left], **options),
            strict=True,
        ):
            last = best[i]
            if (
                last is None
                or found.status is PlanStatus.FOUND
                or (found.breached, found.cost) < (last.breached, last.cost)
            ):
                best[i] = found
        left = [
            i for i in left if (made := best[i]) is not None and made.status is not PlanStatus.FOUND
        ]
    return [made for made in best if made is not None]


def plan_batch(
    model: StrikeModel,
    tasks: Sequence[PlanningTask],
    *,
    method: Method = "cmaes",
    draws: int = 0,
    population: int = 24,
    rounds: int = 24,
    seed: int = 0,
    device: str | None = None,
) -> list[Plan]:
    """Strikes for tasks of equally many strikes and the same reach; a plan does not depend on what
    others are made beside it.

    Minimised is the loss of Eq. 5 where the body is expected to come to rest or, with `draws`, its
    mean over so many draws of what the model
    is unsure of: that avoids strikes with which little goes wrong by much, but ends short of the
    target where a model is less sure than it could be (in the laboratory it doubled the error of
    the semi-cylinder, so it is not the default). A population is evaluated in one batch for all
    tasks, `rounds` times, after one scattered over all strikes to begin with; gradient descent
    takes as many evaluations from the best of these. The same seed gives the same plans.

    device: where torch searches, as in cuda, in single precision and one batch of all tasks and
    populations (`clashsim.optim.device_search`); a map of strikes can.
    """
    if not tasks:
        return []
    first = tasks[0]
    if any((t.strikes, t.reach, t.tau) != (first.strikes, first.reach, first.tau) for t in tasks):
        raise DataError(
            "tasks that are planned together must have the same number of strikes, reach and tau"
        )
    if method == "gradient" and not callable(model):
        raise DataError(
            f"a {type(model).__name__} has no gradient: plan with cmaes or cem, or through a map of strikes"
        )
    if device is not None and not callable(model):
        raise DataError(
            f"a {type(model).__name__} cannot be moved to a device: plan through a map of strikes"
        )
    problem = _Problem(model, tasks, draws, seed)
    size = population * first.strikes  # more strikes, more to search
    starts, descents = _STARTS if method == "cmaes" else 1, max(4, size // 2)
    each = max(4, size // starts)
    count = _SCATTER * size + (
        descents * 2 * rounds if method == "gradient" else starts * each * rounds
    )
    if device is not None:
        cost, shape = problem.cost_on(moved_to(model, device)), (len(tasks), problem.dim)
        if method == "gradient":
            near, _ = device_search.evaluate_random_points(
                cost,
                *shape,
                points=_SCATTER * size,
                generator=device_search.cpu_generator(seed),
                device=device,
            )
            return problem.told(descend(cost, near[:, :descents], steps=2 * rounds)[0], count)
        found = device_search.search_on_device(
            cost,
            *shape,
            config=device_search.DeviceSearchConfig(
                method=method,
                population=each,
                starts=starts,
                scattered=_SCATTER * size,
                rounds=rounds,
                seed=seed,
            ),
            device=device,
        )
        return problem.told(found, count)
    x, y = evaluate_random_points(
        problem.cost, len(tasks), problem.dim, points=_SCATTER * size, seed=seed
    )
    if method == "gradient":
        return problem.told(
            descend(problem.torch_cost, x[:, :descents], steps=2 * rounds)[0], count
        )
    # The population is split among starts that lie apart: strikes on different sides of a body may
    # end at the same place, and one valley is not enough.
    centre, value = (
        a.reshape(len(tasks) * starts, *a.shape[2:]) for a in pick_distant(x, y, starts)
    )
    searcher = (CmaEs if method == "cmaes" else Cem)(centre, each, seed)

    def together(points: np.ndarray) -> np.ndarray:
        return problem.cost(points.reshape(len(tasks), starts * each, problem.dim)).reshape(
            len(tasks) * starts, each
        )

    point, value = minimise(together, searcher, (centre, value), rounds=rounds)
    best = value.reshape(len(tasks), starts).argmin(1)
    return problem.told(
        point.reshape(len(tasks), starts, problem.dim)[np.arange(len(tasks)), best], count
    )


class _Problem:
    """Costs of strikes as points of the unit box, for all tasks at once."""

    def __init__(
        self, model: StrikeModel, tasks: Sequence[PlanningTask], draws: int, seed: int
    ) -> None:
        self.model, self.tasks, self.k, self.d = model, tasks, tasks[0].strikes, len(model.names)
        self.low, self.high = box(model, tasks[0].reach)
        self.start, self.target = (
            np.array([getattr(t, name) for t in tasks]) for name in ("start", "target")
        )
        # In pairs of opposite sign, so that what is linear in the noise averages out whatever the
        # draws.
        half = np.random.default_rng([seed, 1]).normal(
            size=(-(-max(draws, _SHOWN) // 2), self.k, 3)
        )
        few = half[: -(-draws // 2)]
        self.noise = np.concatenate([few, -few]) if draws and model.takes_noise else None
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
        strikes = repeat(
            own(self.low) + own(self.high - self.low) * x.reshape(tasks * points, self.k, self.d),
            draws,
        )
        pose, target = (repeat(own(a), points * draws) for a in (self.start, self.target))
        total = 0.0
        for k in range(self.k):
            noise = (
                None if self.noise is None else own(np.tile(self.noise[:, k], (tasks * points, 1)))
            )
            end = rest(pose, strikes[:, k], noise)
            total = total + breach(reach, names, pose, strikes[:, k], end)
            pose = end
        total = total + loss(pose, target, first.tau)
        return total.reshape(tasks, points, draws).mean(2)

    def cost_on(self, model: Any) -> Callable[[Tensor], Tensor]:
        """`torch_cost` by a copy of the model on a device."""
        return lambda x: self._cost(x, model, lambda a: as_tensor(a).to(x.device, x.dtype), repeat)

    def told(self, points: np.ndarray, evaluations: int) -> list[Plan]:
        """The plans at points (T, k d)."""
        strikes = self.low + (self.high - self.low) * points.reshape(
            len(self.tasks), self.k, self.d
        )
        reach, names, pose, shown = (
            self.tasks[0].reach,
            self.model.names,
            self.start,
            len(self.shown),
        )
        poses, breached, many = [], np.zeros(len(strikes)), np.repeat(pose, shown, 0)
        for k in range(self.k):
            end = self.model.rest(pose, strikes[:, k])
            breached += breach(reach, names, pose, strikes[:, k], end)
            if self.model.takes_noise:
                many = self.model.rest(
                    many,
                    np.repeat(strikes[:, k], shown, 0),
                    np.tile(self.shown[:, k], (len(strikes), 1)),
                )
            poses.append(end)
            pose = end
        spread = many.reshape(len(strikes), shown, 3).std(1)
        each = zip(
            self.tasks, strikes, np.stack(poses, 1), spread, breached > _BREACHED, strict=True
        )
        return [self._told(*one, evaluations) for one in each]

    def _told(
        self,
        task: PlanningTask,
        strikes: np.ndarray,
        poses: np.ndarray,
        spread: np.ndarray,
        breached: bool,
        evaluations: int,
    ) -> Plan:
        """One plan, in words."""
        target = np.array(task.target)
        far, turn = (float(abs(v)) for v in pose_error(poses[-1], target))
        there = f"{1e3 * task.tolerance[0]:.0f} mm and {np.degrees(task.tolerance[1]):.0f} degrees count as there"
        status, reason = (
            PlanStatus.FOUND,
            f"expected {1e3 * far:.1f} mm and {np.degrees(turn):.1f} degrees from the target ({there})",
        )
        if breached:
            status, reason = (
                PlanStatus.OUT_OF_REACH,
                "no strike within the arm's reach brings the body to the target: allow another side, speed or workspace",
            )
        elif far > task.tolerance[0] or turn > task.tolerance[1]:
            many_words = ("one strike", "two strikes", "three strikes")[self.k - 1]
            status = PlanStatus.OUT_OF_REACH
            reason = f"the nearest found that {many_words} can bring the body is {1e3 * far:.0f} mm and {np.degrees(turn):.0f} degrees from the target"
        return Plan(
            task,
            self.model.names,
            strikes,
            poses,
            spread,
            float(loss(poses[-1], target, task.tau)),
            status,
            reason,
            evaluations,
            bool(breached),
        )
