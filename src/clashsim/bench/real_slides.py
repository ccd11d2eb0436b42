"""Where a struck object stops (BENCHMARKS.md, real-slides): slides of struck boxes by others, and
of the laboratory's shapes.

input `twist`: from the pose and twist that were measured after the strike. input `strike`: from the
motion before it, through clashsim's calibrated collision model, the same for all methods. All that
a method may use are n slides (and their strikes); the others are for the test.
draw `random`: n of all. draw `session`: n of one session, tested on the others of that session: one
table on one day, which is what a laboratory calibrates. Errors are means over slides and
repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from clashsim.bench import slide_sets
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, measured, optional
from clashsim.bench.slide_sets import SlideSet
from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.progress import Progress, quiet
from clashsim.fit.base import base_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistilledModel
from clashsim.slides.identify import SlideFit, fit_slides

NS = (10, 50)
_MOST = 400  # slides of a set: MuJoCo simulates each at fifteen frictions
_STRIKES, _TESTED = (
    5,
    100,
)  # repetitions from the strike and slides tested in each: they slide anew in MuJoCo every time
_FRICTION = np.geomspace(0.6, 1 / 0.6, 5)  # of what a slide without turn would need
_TORSIONAL = (1e-5, 0.005, 0.02)  # m; the second is MuJoCo's default
_DEFAULT = 1
Draws = list[tuple[np.ndarray, np.ndarray]]
# (problem, rows to use) -> what tells poses at rest (N, 3) from poses and twists (N, 3)
Way = Callable[["Problem", np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]


@dataclass(frozen=True, eq=False)
class Problem:
    """One set, and what methods compute of it once."""

    data: SlideSet

    @cached_property
    def base(self) -> DistilledModel:
        """The collision model before any real data."""
        return base_model(self.data.scene)

    @cached_property
    def frictions(self) -> np.ndarray:
        """Sliding frictions (5,) of the table."""
        d = self.data
        way = np.linalg.norm(d.rest[:, :2] - d.pose[:, :2], axis=1)
        return _FRICTION * float(
            np.median((d.twist[:, :2] ** 2).sum(1) / (2 * 9.81 * np.maximum(way, 1e-4)))
        )

    @cached_property
    def table(self) -> np.ndarray:
        """Way and turn (5, 3, N, 3) of all slides in MuJoCo, times the sliding friction, which
        makes them nearly the same along the first axis.
        """
        d = self.data
        out = [
            [
                mu * (d.slider.rest(d.pose, d.twist, np.array([mu, torsional])) - d.pose)
                for torsional in _TORSIONAL
            ]
            for mu in self.frictions
        ]
        return np.array(out)

    def simulated(self, friction: float, torsional: int) -> np.ndarray:
        """Poses at rest (N, 3) in MuJoCo, from the table."""
        place = np.clip(
            np.interp(np.log(friction), np.log(self.frictions), np.arange(5.0)), 0, 4 - 1e-9
        )
        i, share = int(place), place % 1
        return (
            self.data.pose
            + ((1 - share) * self.table[i, torsional] + share * self.table[i + 1, torsional])
            / friction
        )

    def errors(
        self, rest: np.ndarray, rows: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances (N,) m and angles (N,) rad from where the slides ended, all or those of `rows`."""
        far = rest - self.data.rest[rows]
        return np.linalg.norm(far[:, :2], axis=1), np.abs(far[:, 2])


def _mujoco(
    problem: Problem, rows: np.ndarray, torsional: Sequence[int], turns: bool
) -> tuple[float, int]:
    """Friction of the fine grid that brings the slides of `rows` nearest to where they ended, in
    place alone or in place and heading.
    """
    gain = np.abs(problem.data.rest - problem.data.pose)[rows]
    best = (np.inf, 0.0, 0)
    for friction in np.geomspace(problem.frictions[0], problem.frictions[-1], 61):
        for j in torsional:
            far, angle = problem.errors(problem.simulated(friction, j))
            cost = far[rows].mean() / gain[:, :2].max(1).mean() + (
                angle[rows].mean() / gain[:, 2].mean() if turns else 0.0
            )
            best = min(best, (float(cost), float(friction), j))
    return best[1], best[2]


def _mujoco_sliding(
    problem: Problem, rows: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    friction, j = _mujoco(problem, rows, (_DEFAULT,), turns=False)
    return lambda pose, twist: _in_mujoco(problem, pose, twist, friction, j)


def _mujoco_torsional(
    problem: Problem, rows: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    friction, j = _mujoco(problem, rows, range(len(_TORSIONAL)), turns=True)
    return lambda pose, twist: _in_mujoco(problem, pose, twist, friction, j)


def mujoco_torsional(problem: Problem, rows: np.ndarray) -> tuple[float, float]:
    """Sliding and torsional friction (m) with which the slides of `rows` end nearest to where they
    did in MuJoCo.
    """
    friction, j = _mujoco(problem, rows, range(len(_TORSIONAL)), turns=True)
    return friction, _TORSIONAL[j]


def _in_mujoco(
    problem: Problem, pose: np.ndarray, twist: np.ndarray, friction: float, torsional: int
) -> np.ndarray:
    if pose is problem.data.pose and twist is problem.data.twist:
        return problem.simulated(friction, torsional)
    return problem.data.slider.rest(pose, twist, np.array([friction, _TORSIONAL[torsional]]))


def fitted(problem: Problem, rows: np.ndarray) -> SlideFit:
    """clashsim's slide model of the slides in `rows`."""
    return fit_slides(
        [problem.data.slides[i] for i in rows],
        problem.data.support_patch,
        twists=problem.data.twist[rows],
    )


def _clashsim(problem: Problem, rows: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    model = fitted(problem, rows).model
    return lambda pose, twist: model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()


WAYS: dict[str, Way] = {
    "mujoco-friction": _mujoco_sliding,
    "mujoco-torsional": _mujoco_torsional,
    "clashsim": _clashsim,
}


def draws(data: SlideSet, n: int, draw: str, *, seeds: int) -> Draws:
    """(rows to use, rows to test on) of each repetition; none where there are fewer than 2 n
    slides.
    """
    if draw == "random":
        if 2 * n > len(data):
            return []
        orders = [np.random.default_rng(seed).permutation(len(data)) for seed in range(seeds)]
        return [(order[:n], order[n:]) for order in orders]
    sessions = [
        rows
        for name in dict.fromkeys(data.session)
        if len(rows := np.flatnonzero(data.session == name)) >= 2 * n
    ]
    if not sessions or len(set(data.session)) == 1:
        return []
    orders = [
        np.random.default_rng(seed).permutation(sessions[seed % len(sessions)])
        for seed in range(seeds)
    ]
    return [(order[:n], order[n:]) for order in orders]


def _struck(problem: Problem, rows: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses and twists (N, 3) after the strikes as the collision model of the strikes in `rows`
    tells them.

    The pose is that before the strike, moved on by the twist for as long as the slides of `rows`
    say.
    """
    data = problem.data
    twist = calibrate(problem.base, data.impacts[rows], seed=seed).predict(data.impacts)
    before = data.impacts.pose
    moved = data.pose - before
    moved[:, 2] = wrap_angle(moved[:, 2])
    ahead = [
        float(
            (moved[rows, part] * data.twist[rows, part]).sum() / (data.twist[rows, part] ** 2).sum()
        )
        for part in (slice(0, 2), slice(2, 3))
    ]
    pose = before + twist * np.array([ahead[0], ahead[0], ahead[1]])
    pose[:, 2] += 2 * np.pi * np.round((data.pose[:, 2] - pose[:, 2]) / (2 * np.pi))
    return pose, twist


def run(
    root: Path | None = None,
    seeds: int = 20,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    ns: Sequence[int] | None = None,
    resume: Path | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of the bench; without a data root the laboratory's sets alone. With `resume`, finished
    rows are kept in that file (JSON lines) and a later call goes on from them.
    """
    present = slide_sets.names(root)
    for name, choices in [
        *((s, present) for s in sets or ()),
        *((m, list(WAYS)) for m in methods or ()),
    ]:
        if name not in choices:
            raise DataError(f"the bench has no {name!r}; {did_you_mean(name, choices)}")
    chosen = list(sets or ((present[0], "lab/square") if quick else present))
    rows: list[Row] = []
    with progress("measuring", len(chosen)) as advance:
        for name in chosen:
            with optional(rows, set=name):
                problem = Problem(slide_sets.load(name, root).thinned(40 if quick else _MOST))
                for draw in ("random", "session"):
                    for n in ns or ((10,) if quick else NS):
                        cut = draws(problem.data, n, draw, seeds=min(seeds, 3) if quick else seeds)
                        head = {"set": name, "draw": draw, "n": n, "of": len(cut)}
                        done = [row for row in kept(resume) if row | head == row]
                        finished = {row["method"] for row in done}
                        left = [m for m in methods or WAYS if m not in finished] if cut else []
                        new = _rows(problem, n, draw, left, cut) if left else []
                        keep(resume, measured(new))
                        rows += sorted(done + new, key=_order)
                        save(rows)
            advance(1)
    return rows


def _order(row: Row) -> tuple[bool, int]:
    """By what is predicted from, then by method."""
    return row.get("input") != "twist", list(WAYS).index(row["method"])


def _rows(problem: Problem, n: int, draw: str, methods: Sequence[str], cut: Draws) -> list[Row]:
    struck = [_struck(problem, rows, seed) for seed, (rows, _) in enumerate(cut[:_STRIKES])]
    out: list[Row] = []
    for method in methods:
        with optional(out, set=problem.data.name, method=method, n=n, draw=draw):
            errors: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"twist": [], "strike": []}
            for seed, (rows, test) in enumerate(cut):
                tell = WAYS[method](problem, rows)
                far, angle = problem.errors(tell(problem.data.pose, problem.data.twist))
                errors["twist"].append((far[test], angle[test]))
                if seed < len(struck):
                    some = test[:_TESTED]
                    errors["strike"].append(
                        problem.errors(tell(*(part[some] for part in struck[seed])), some)
                    )
            out += [
                _row(problem.data.name, method, kind, n, draw, found) | {"of": len(cut)}
                for kind, found in errors.items()
            ]
    return out


def _row(
    name: str,
    method: str,
    kind: str,
    n: int,
    draw: str,
    errors: list[tuple[np.ndarray, np.ndarray]],
) -> Row:
    far, angle = (np.concatenate(part) for part in zip(*errors, strict=True))
    worst = max(float(a.mean()) for _, a in errors)
    return {
        "set": name,
        "method": method,
        "input": kind,
        "n": n,
        "draw": draw,
        "position_m": round(float(far.mean()), 5),
        "yaw_rad": round(float(angle.mean()), 5),
        "position_median_m": round(float(np.median(far)), 5),
        "yaw_median_rad": round(float(np.median(angle)), 5),
        "yaw_worst_seed_rad": round(worst, 5),
        "seeds": len(errors),
    }
