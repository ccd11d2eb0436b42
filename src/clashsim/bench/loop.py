"""The real-sim-real loop in the virtual laboratory, whose block differs from the scene's.

Change `heavier`: mass and friction differ, which parameters can describe. Change `ballast`: a
weight is fixed off the block's middle, which no parameter describes.

All methods begin with the author's simulator and a policy trained in it, and collect the same
number of strikes per round:

    informative  strikes of the policy, which is also rewarded for strikes that teach much
    plain        strikes of the policy
    random       random strikes
    randomised   domain randomisation: one training over wide ranges, no strikes

The error of a simulator is measured on test strikes that no method has seen: strikes that the
author's simulator predicts to be best for the task, executed in the changed laboratory. All methods
learn their simulators in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import cast

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose
from clashsim.bench.loop_summary import ALGORITHMS, CHANGES, METHODS, with_summary
from clashsim.bench.options import BenchOptions
from clashsim.bench.randomised_model import RandomisedStrikeModel
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, optional
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.core.workers import exit_with_parent
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit.solved_model import SolvedModel
from clashsim.loop.lab_rig import LabRig
from clashsim.loop.recorded_strikes import RecordedStrikes
from clashsim.loop.rounds import RealSimRealLoop, Round
from clashsim.loop.steps import (
    Collect,
    LoopConfig,
    RecordingConfig,
    RoundSimulator,
    author_simulator,
    count_successes,
    make_task,
    record_strikes,
    train_agent,
)
from clashsim.rl.agents import Agent, AgentTrainingConfig, Algorithm
from clashsim.rl.push import strikes

OPTIONS = frozenset({"seeds", "sets", "methods", "resume"})
_SCENE = "semi_cylinder"
_BODY = "block"
_TEST_SEED = 99  # of the test strikes, which are the same for all seeds of a loop
_DEFAULT_WORKERS = 2  # processes


@dataclass(frozen=True)
class LoopSize:
    """How much a loop does.

    Attributes:
        rounds: Number of rounds.
        strikes_per_round: Number of strikes that are collected in each round.
        tested: Number of strikes on which simulators are tested.
        trials: Number of trials of the last policy.
    """

    rounds: int = 4
    strikes_per_round: int = 5
    tested: int = 40
    trials: int = 5

    def as_row(self) -> dict[str, int]:
        """The size by the keys that it has in rows."""
        return {
            "rounds": self.rounds,
            "each": self.strikes_per_round,
            "tested": self.tested,
            "trials": self.trials,
        }


_QUICK_SIZE = LoopSize(rounds=1, tested=4, trials=1)
_QUICK_TRAINING = AgentTrainingConfig(first=4_000, guided=0, later=2_000)


@dataclass(frozen=True)
class _Job:
    """All loops of one algorithm and seed, which share the first policy."""

    algorithm: Algorithm
    seed: int
    changes: Sequence[str]
    methods: Sequence[str]
    size: LoopSize
    resume: Path | None
    training: AgentTrainingConfig | None


def run(options: BenchOptions = BenchOptions(), *, size: LoopSize = LoopSize()) -> list[Row]:
    """Run loops of all changes, algorithms, methods and seeds.

    Args:
        options: What to measure; its sets are names of changes.
        size: How much each loop does.

    Returns:
        Rows of change, algorithm, method, seed, round, strikes made and the error of the simulator
        (mm, rad); the last round of each loop also has the numbers of successes and of trials.
        Means over seeds follow, then the number of strikes after which each method reached the
        error that random strikes reached in the last round.
    """
    changes = choose(options.sets, CHANGES, what="change")
    methods = choose(options.methods, METHODS, what="method")
    algorithms = ALGORITHMS
    training = None
    if options.quick:
        size = replace(_QUICK_SIZE, strikes_per_round=size.strikes_per_round)
        changes = ["heavier"]
        methods = ["random", "informative"]
        algorithms = ("ppo",)
        training = _QUICK_TRAINING
    jobs = []
    for seed in range(options.repetitions(3)):
        for algorithm in algorithms:
            jobs.append(_Job(algorithm, seed, changes, methods, size, options.resume, training))
    for change in changes:
        # Recorded before the workers start: otherwise each worker would record them again.
        _test_strikes(change, size.tested, options.resume)
    rows: list[Row] = []
    with options.progress("loops", len(jobs)) as advance:
        for new in _run_jobs(jobs, options.workers or _DEFAULT_WORKERS):
            rows += new
            options.save(with_summary(rows))
            advance(1)
    return with_summary(rows)


def _run_jobs(jobs: Sequence[_Job], workers: int) -> Iterator[list[Row]]:
    """Rows of each job, as jobs finish."""
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            yield _run_job(job)
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=exit_with_parent
    ) as pool:
        for done in as_completed([pool.submit(_run_job, job) for job in jobs]):
            yield done.result()


def _run_job(job: _Job) -> list[Row]:
    """Rows of all loops of a job; loops that an earlier run finished are not run again."""
    done = read_rows(job.resume)
    rows: list[Row] = []
    scene = Scene.load(_SCENE)
    config = LoopConfig(
        algorithm=job.algorithm,
        strikes=job.size.strikes_per_round,
        seed=job.seed,
        training=job.training,
    )
    first_round: Round | None = None
    for change in job.changes:
        rig = LabRig(lab.Setting(change=change))
        for method in job.methods:
            head = {
                "change": change,
                "algorithm": job.algorithm,
                "method": method,
                "seed": job.seed,
            }
            tail = {"size": job.size.as_row()}
            # Rows that have all keys and values of head and tail.
            finished = [row for row in done if row | head | tail == row]
            if finished:
                rows += finished
                continue
            with optional(rows, **head):
                if first_round is None:
                    first_round = RealSimRealLoop(scene, config).begin()
                test = _test_strikes(change, job.size.tested, job.resume)
                measurement = _Measurement(first_round, config, rig, test, job.size)
                if method == "randomised":
                    found = measurement.randomised()
                else:
                    found = measurement.loop(replace(config, collect=cast(Collect, method)))
                new = [head | row | tail for row in found]
                append_rows(job.resume, new)
                rows += new
    return rows


@dataclass(frozen=True, eq=False)
class _Measurement:
    """Runs loops in a changed laboratory and measures them.

    Attributes:
        first_round: The author's simulator and the policy trained in it.
        config: What a loop does.
        rig: The changed laboratory.
        test: Test strikes, recorded in the changed laboratory.
        size: How much a loop does.
    """

    first_round: Round
    config: LoopConfig
    rig: LabRig
    test: RecordedStrikes
    size: LoopSize

    def loop(self, config: LoopConfig) -> list[Row]:
        """Rows of all rounds of a loop that collects strikes as its config says."""
        first = self.first_round
        assert first.agent is not None
        loop = RealSimRealLoop(first.simulator.scene, config)
        if config.collect == "random":
            loop.rounds = [replace(first, agent=None)]
        else:
            loop.rounds = [first]
        rows = [self._error_row(0, first.simulator)]
        for number in range(1, self.size.rounds + 1):
            done = loop.advance(self.rig)
            rows.append(self._error_row(number, done.simulator))
        last = loop.rounds[-1]
        agent = last.agent
        if agent is None:
            plain = replace(config, collect="plain")
            agent = train_agent(last.simulator, plain, config.seed, recorded=None, last=first.agent)
        rows[-1] |= self._successes(last.simulator, agent)
        return rows

    def randomised(self) -> list[Row]:
        """The row of a policy trained over wide ranges; its simulator is the author's."""
        simulator = self.first_round.simulator
        seed = self.config.seed
        randomised = RoundSimulator(simulator.scene, RandomisedStrikeModel(simulator.scene, seed))
        plain = replace(self.config, collect="plain")
        agent = train_agent(randomised, plain, seed, recorded=None, last=None)
        return [self._error_row(0, simulator) | self._successes(simulator, agent)]

    def _error_row(self, number: int, simulator: RoundSimulator) -> Row:
        """Mean errors of a round's simulator on the test strikes."""
        distance, angle = self.test.prediction_errors(simulator.model)
        return {
            "round": number,
            "strikes": self.size.strikes_per_round * number,
            "error_mm": 1e3 * float(distance.mean()),
            "error_rad": float(angle.mean()),
        }

    def _successes(self, simulator: RoundSimulator, agent: Agent) -> Row:
        """How many trials of a policy succeed in the changed laboratory."""
        trials = self.size.trials
        return {
            "success": count_successes(simulator, agent, self.config, self.rig, trials),
            "trials": trials,
        }


def _test_strikes(change: str, n: int, resume: Path | None) -> RecordedStrikes:
    """The n test strikes in the changed laboratory, kept in a file beside `resume`.

    Each is the strike that the author's simulator predicts to be best for the task.
    """
    scene = Scene.load(_SCENE)
    task = make_task("push", author_simulator(SolvedModel(scene)), num_envs=1)
    names = task.model.names
    path = None if resume is None else resume.with_name(f"{resume.stem}-{change}-{n}.safetensors")
    if path is not None and path.is_file():
        trials = read_trials(path)
        executed = np.array([[trial.known[name] for name in names] for trial in trials])
        return RecordedStrikes.of(executed, trials, _BODY)
    rng = np.random.default_rng(_TEST_SEED)

    def best_strike(_: object) -> np.ndarray:
        best_action = task.guide(rng)
        return strikes(task.model, best_action)[0]

    recorded = record_strikes(
        task,
        best_strike,
        LabRig(lab.Setting(change=change)),
        RecordingConfig(_BODY, [_TEST_SEED], "test-{:03d}"),
        n,
        rng,
    )
    if path is not None:
        with_strikes = []
        for trial, row in zip(recorded.trials, recorded.strikes, strict=True):
            known = dict(zip(names, row.tolist(), strict=True))
            with_strikes.append(replace(trial, known=known))
        write_trials(path, Trials(tuple(with_strikes)))
    return recorded
