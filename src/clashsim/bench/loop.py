"""The real-sim-real loop in the laboratory, a stand-in for reality, whose block is not as the
scene's author believes.

`heavier`: mass and frictions are others, which parameters can tell. `ballast`: a weight has been
fixed off its middle, which none describes. Methods begin alike, with the author's simulator and a
policy trained in it, and collect as many strikes a round: the policy paid for what teaches
(informative), the policy as it is (plain), or strikes at random; domain randomisation trains once
over wide ranges and collects none. The error of a simulator is told on strikes that the task uses:
those of a look one strike ahead in the author's simulator, made in the changed laboratory, which no
method has seen. All simulators are learned in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from clashsim import lab
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, measured, optional
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.params import from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.core.workers import exit_with_parent
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit.base import base_model
from clashsim.loop.lab_rig import LabRig
from clashsim.loop.recorded_strikes import RecordedStrikes
from clashsim.loop.rounds import RealSimRealLoop, Round
from clashsim.loop.steps import (
    LoopConfig,
    RecordingConfig,
    RoundSimulator,
    author_simulator,
    count_successes,
    make_task,
    record_strikes,
    train_agent,
)
from clashsim.rl.agents import Agent, AgentTrainingConfig
from clashsim.rl.push import strikes
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.law import SlideModel
from clashsim.slides.support_patch import scene_slide_model

CHANGED = ("heavier", "ballast")
METHODS = ("informative", "plain", "random", "randomised")
ALGORITHMS = ("sac", "ppo")
_MAPS, _WIDE = (
    6,
    0.6,
)  # simulators of domain randomisation, and how much of each parameter's range they span
_FRICTION = (0.5, 1.5)  # their ground's friction over the author's


def run(
    seeds: int = 3,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    rounds: int = 4,
    each: int = 5,
    tested: int = 40,
    trials: int = 5,
    resume: Path | None = None,
    workers: int = 2,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of change, algorithm, method, seed, round, strikes made, error of the simulator (mm,
    rad), and at the end successes of `trials`; sets are changes. Means over seeds follow, and at
    how many strikes each method reached the error at which random strikes ended.
    """
    for name, choices in [
        *((s, CHANGED) for s in sets or ()),
        *((m, METHODS) for m in methods or ()),
    ]:
        if name not in choices:
            raise DataError(f"the bench has no {name!r}; {did_you_mean(name, choices)}")
    if quick:
        seeds, rounds, tested, trials, sets, methods = (
            1,
            1,
            4,
            1,
            ["heavier"],
            ["random", "informative"],
        )
    size = {"rounds": rounds, "each": each, "tested": tested, "trials": trials}
    algorithms = ALGORITHMS[1:] if quick else ALGORITHMS
    practice = AgentTrainingConfig(4_000, 0, 2_000) if quick else None
    jobs = [
        (a, s, list(sets or CHANGED), list(methods or METHODS), size, resume, practice)
        for s in range(seeds)
        for a in algorithms
    ]
    rows: list[Row] = []
    for change in sets or CHANGED:
        _tests(change, tested, resume)  # before the workers, which would each make their own
    with progress("loops", len(jobs)) as advance:
        if workers > 1 and len(jobs) > 1:
            with ProcessPoolExecutor(
                workers, mp_context=get_context("spawn"), initializer=exit_with_parent
            ) as pool:
                for done in as_completed([pool.submit(_job, job) for job in jobs]):
                    rows += done.result()
                    save(_with_means(rows))
                    advance(1)
        else:
            for job in jobs:
                rows += _job(job)
                save(_with_means(rows))
                advance(1)
    return _with_means(rows)


def _with_means(rows: list[Row]) -> list[Row]:
    """All rows in order, and after them what they come to."""
    figures = measured(rows)
    return sorted(rows, key=_order) + _means(figures) + _needed(figures)


def _order(row: Row) -> tuple[int, int, int, int, int]:
    change = CHANGED.index(row["change"])
    algorithm = ALGORITHMS.index(row["algorithm"])
    return change, algorithm, METHODS.index(row["method"]), row["seed"], row.get("round", 0)


def _job(job: tuple[Any, ...]) -> list[Row]:
    """All loops of one algorithm and seed, which share the first policy."""
    algorithm, seed, changes, methods, size, resume, practice = job
    done, rows = kept(resume), list[Row]()
    scene = Scene.load("semi_cylinder")
    usual = LoopConfig(algorithm=algorithm, strikes=size["each"], seed=seed, training=practice)
    begun: Round | None = None
    for change in changes:
        world = LabRig(lab.Setting(change=change))
        for method in methods:
            told = [
                r
                for r in done
                if (r["change"], r["algorithm"], r["method"], r["seed"], r["size"])
                == (change, algorithm, method, seed, size)
            ]
            if told:
                rows += told
                continue
            key = {"change": change, "algorithm": algorithm, "method": method, "seed": seed}
            with optional(rows, **key):
                begun = begun or RealSimRealLoop(scene, usual).begin()
                assert begun.agent is not None
                test = _tests(change, size["tested"], resume)
                if method == "randomised":
                    found = _randomised(begun, usual, world, test, size)
                else:
                    found = _looped(begun, replace(usual, collect=method), world, test, size)
                new = [key | row | {"size": size} for row in found]
                keep(resume, new)
                rows += new
    return rows


def _looped(
    begun: Round, options: LoopConfig, world: LabRig, test: RecordedStrikes, size: dict[str, int]
) -> list[Row]:
    loop = RealSimRealLoop(begun.simulator.scene, options)
    loop.rounds = [replace(begun, agent=None) if options.collect == "random" else begun]
    rows = [_row(0, 0, begun.simulator, test)]
    for turn in range(1, size["rounds"] + 1):
        done = loop.advance(world)
        rows.append(_row(turn, size["each"] * turn, done.simulator, test))
    last = loop.rounds[-1]
    agent = last.agent or train_agent(
        last.simulator, replace(options, collect="plain"), options.seed, None, begun.agent
    )
    return [*rows[:-1], rows[-1] | _executed(last.simulator, agent, options, world, size)]


def _randomised(
    begun: Round, options: LoopConfig, world: LabRig, test: RecordedStrikes, size: dict[str, int]
) -> list[Row]:
    """A policy trained over wide ranges at once; its simulator is the author's."""
    scene = begun.simulator.scene
    agent = train_agent(
        RoundSimulator(scene, Randomised(scene, options.seed)),
        replace(options, collect="plain"),
        options.seed,
        None,
        None,
    )
    return [
        _row(0, 0, begun.simulator, test) | _executed(begun.simulator, agent, options, world, size)
    ]


def _row(turn: int, made: int, simulator: RoundSimulator, test: RecordedStrikes) -> Row:
    far, off = test.prediction_errors(simulator.model)
    return {
        "round": turn,
        "strikes": made,
        "error_mm": 1e3 * float(far.mean()),
        "error_rad": float(off.mean()),
    }


def _executed(
    simulator: RoundSimulator,
    agent: Agent,
    options: LoopConfig,
    world: LabRig,
    size: dict[str, int],
) -> Row:
    return {
        "success": count_successes(simulator, agent, options, world, size["trials"]),
        "trials": size["trials"],
    }


class Randomised:
    """A `StrikeModel` of several simulators with parameters drawn from wide ranges, each of which
    moves its share of the bodies.
    """

    takes_noise = False

    def __init__(self, scene: Scene, seed: int) -> None:
        rng, base, slide = np.random.default_rng(seed), base_model(scene), scene_slide_model(scene)
        centre = to_unit(scene.params, scene.nominal)
        self._maps: list[StrikeModel] = []
        for _ in range(_MAPS):
            theta = from_unit(
                scene.params, np.clip(centre + rng.uniform(-_WIDE, _WIDE, len(centre)), -1, 1)
            )
            own = SlideModel(
                {
                    "friction": float(scene.base.pair("ground").friction[0])
                    * rng.uniform(*_FRICTION)
                },
                gyration=slide.gyration,
                centre=slide.centre,
            )
            self._maps.append(strike_table(HybridSim(scene, base, theta, slide_model=own)))
        first = self._maps[0]
        self.names, self.low, self.high = first.names, first.low, first.high

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Pose at rest (N, 3)."""
        out = np.empty_like(pose)
        for i, one in enumerate(self._maps):
            out[i :: len(self._maps)] = one.rest(
                pose[i :: len(self._maps)], strike[i :: len(self._maps)]
            )
        return out


def _tests(change: str, n: int, resume: Path | None) -> RecordedStrikes:
    """Strikes that the task uses, made in the changed laboratory; kept beside `resume`."""
    scene = Scene.load("semi_cylinder")
    task, world, rng = (
        make_task("push", author_simulator(base_model(scene)), 1),
        LabRig(lab.Setting(change=change)),
        np.random.default_rng(99),
    )
    path = None if resume is None else resume.with_name(f"{resume.stem}-{change}-{n}.safetensors")
    if path is not None and path.is_file():
        trials = read_trials(path)
        return RecordedStrikes.of(
            np.array([[t.known[name] for name in task.model.names] for t in trials]),
            trials,
            "block",
        )
    made = record_strikes(
        task,
        lambda _: strikes(task.model, task.guide(rng))[0],
        world,
        RecordingConfig("block", [99], "test-{:03d}"),
        n,
        rng,
    )
    if path is not None:
        known = [dict(zip(task.model.names, row.tolist(), strict=True)) for row in made.strikes]
        write_trials(
            path,
            Trials(
                tuple(replace(trial, known=k) for trial, k in zip(made.trials, known, strict=True))
            ),
        )
    return made


def _means(rows: list[Row]) -> list[Row]:
    """Means over seeds of each round, and sums of successes."""
    out = []
    for key in dict.fromkeys(
        (r["change"], r["algorithm"], r["method"], r["round"], r["strikes"]) for r in rows
    ):
        mine = [
            r
            for r in rows
            if (r["change"], r["algorithm"], r["method"], r["round"], r["strikes"]) == key
        ]
        row = dict(zip(("change", "algorithm", "method", "round", "strikes"), key, strict=True)) | {
            "seed": "mean",
            "seeds": len(mine),
        }
        row |= {k: float(np.mean([r[k] for r in mine])) for k in ("error_mm", "error_rad")}
        if "success" in mine[0]:
            row |= {k: sum(r[k] for r in mine) for k in ("success", "trials")}
        out.append(row)
    return out


def _needed(rows: list[Row]) -> list[Row]:
    """At how many strikes the mean error of each method is at or below that at which random strikes
    ended, None where never.
    """
    means = [r for r in _means(rows) if r["method"] != "randomised"]
    out = []
    for change, algorithm in dict.fromkeys((r["change"], r["algorithm"]) for r in means):
        mine = [r for r in means if (r["change"], r["algorithm"]) == (change, algorithm)]
        random = [r for r in mine if r["method"] == "random"]
        if not random:
            continue
        last = random[-1]
        for method in ("informative", "plain", "random"):
            there = [
                r["strikes"]
                for r in mine
                if r["method"] == method and r["error_mm"] <= last["error_mm"]
            ]
            if any(r["method"] == method for r in mine):
                out.append(
                    {
                        "change": change,
                        "algorithm": algorithm,
                        "method": method,
                        "seed": "needed",
                        "random_ended_mm": last["error_mm"],
                        "random_strikes": last["strikes"],
                        "strikes": min(there, default=None),
                    }
                )
    return out
