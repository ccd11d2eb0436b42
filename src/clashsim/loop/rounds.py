"""The real-sim-real loop (RSR), round after round.

A round strikes with the current policy, learns the simulator from these strikes, and trains the
policy further in that simulator. Every round is a folder. Files that a round has written are not
computed again, so a loop that was killed continues and comes to the same result.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.parsing import JSON_BYTES, parse_json, read_bounded
from clashsim.core.progress import Progress, about, quiet
from clashsim.core.scene import Scene
from clashsim.data.folders import dumps
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit.run_folder import RunRecord, load, save_run
from clashsim.fit.solved_model import SolvedModel
from clashsim.loop.recorded_strikes import RecordedStrikes, StrikeRig
from clashsim.loop.steps import (
    LoopConfig,
    RoundSimulator,
    author_simulator,
    collect_strikes,
    learn_simulator,
    make_task,
    propose_strikes,
    train_agent,
)
from clashsim.rl.agents import Agent, load_agent
from clashsim.rl.env import StrikeVecEnv

LOOP_FILE = "loop.json"
STRIKES_FILE = "strikes.csv"
TRIALS_FILE = "trials.safetensors"
AGENT_FILE = "agent.safetensors"
RUN_FOLDER = "run"
_ROUND_FILE = "round.json"
# A round pays if it lowers the error on fresh strikes below this share of the best one before.
_WORTHWHILE = 0.9
_RECENT_ROUNDS = 2  # of which one has to lower the error
_MIN_ROUNDS = 4  # before which another round always pays
_SEEDS_PER_LOOP = 1000  # so that loops with different seeds never train with the same seed


def another_round_pays(errors: Sequence[float]) -> bool:
    """Whether another round is worth its strikes.

    Args:
        errors: Mean error (m) on the fresh strikes of each round so far.

    Returns:
        Whether one of the last two rounds lowered the error, or there were fewer than four rounds.
    """
    if len(errors) < _MIN_ROUNDS:
        return True
    best_before = min(errors[:-_RECENT_ROUNDS])
    return min(errors[-_RECENT_ROUNDS:]) < _WORTHWHILE * best_before


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round.

    Attributes:
        number: Number of the round; round 0 is before any strike.
        simulator: Simulator learned from all strikes so far.
        agent: Policy trained in that simulator; None where strikes are random.
        recorded: All strikes so far; None in round 0.
        error: Mean error (m, rad) of the previous round's simulator on the strikes of this round;
            None in round 0.
    """

    number: int
    simulator: RoundSimulator
    agent: Agent | None
    recorded: RecordedStrikes | None
    error: tuple[float, float] | None = None


@dataclass
class RealSimRealLoop:
    """A loop in a folder, or in memory without one.

    Attributes:
        scene: The scene.
        config: What the loop does.
        folder: Where rounds are kept; a folder with a loop of another config is refused.
        rounds: Finished rounds.
        cache: Folder of distilled models.
        progress: Shows how far sampling and distilling are.
        notify: Called with a sentence before each round.
    """

    scene: Scene
    config: LoopConfig
    folder: Path | None = None
    rounds: list[Round] = field(default_factory=list)
    cache: Path | None = None
    progress: Progress = quiet
    notify: Callable[[str], object] = lambda sentence: None

    def __post_init__(self) -> None:
        self._base = SolvedModel(self.scene)
        self._last_duration: float | None = None  # s, of the last round that trained a policy
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            _claim_folder(self.folder, self.scene, self.config)

    def begin(self) -> Round:
        """Do round 0: a policy trained in the simulator with the author's parameter values."""
        self._announce(0, "training a first policy, which takes one to several minutes")
        simulator = author_simulator(self._base)
        agent = self._agent(0, simulator, recorded=None, last=None)
        self.rounds = [Round(0, simulator, agent, recorded=None)]
        return self.rounds[0]

    def requested_strikes(self) -> Path:
        """Path of the file of strikes to make in the next round; written if it does not exist."""
        last = self.rounds[-1]
        number = last.number + 1
        path = self._path(number) / STRIKES_FILE
        if not path.is_file():
            strikes = propose_strikes(last.simulator, last.agent, self.config, number)
            _write_strikes(path, last.simulator.model.names, strikes)
        return path

    def advance(self, rig: StrikeRig | None) -> Round:
        """Do one more round.

        Args:
            rig: Where strikes are made; None takes the recordings in the folder of the round.
        """
        last = self.rounds[-1]
        number = last.number + 1
        duration = "" if self._last_duration is None else f", about {about(self._last_duration)}"
        self._announce(number, f"strikes, calibration and further training{duration}")
        start = time.perf_counter()
        if rig is None or self._has(number, TRIALS_FILE):
            fresh = self._read_recorded(number)
        else:
            fresh = self._collect(number, rig)
        distances, angles = fresh.prediction_errors(last.simulator.model)
        error = (float(distances.mean()), float(angles.mean()))
        recorded = fresh if last.recorded is None else last.recorded + fresh
        simulator = self._simulator(number, recorded)
        agent = self._agent(number, simulator, recorded, last.agent)
        self._last_duration = time.perf_counter() - start
        finished = Round(number, simulator, agent, recorded, error)
        self.rounds.append(finished)
        self._write_round(finished)
        return finished

    @property
    def next_is_recorded(self) -> bool:
        """Whether the recordings of the next round are in its folder."""
        return self._has(self.rounds[-1].number + 1, TRIALS_FILE)

    @property
    def another_pays(self) -> bool:
        """Whether another round is worth its strikes."""
        distances = [done.error[0] for done in self.rounds if done.error is not None]
        return another_round_pays(distances)

    def round_folder(self, number: int) -> Path:
        """Folder of a round."""
        assert self.folder is not None
        return self.folder / f"round-{number:02d}"

    def _announce(self, number: int, work: str) -> None:
        """Say what a round is about to do, unless it is only loaded or trains nothing."""
        if self.config.collect != "random" and not self._has(number, AGENT_FILE):
            self.notify(f"round {number}: {work}")

    def _collect(self, number: int, rig: StrikeRig) -> RecordedStrikes:
        """Make the strikes of a round on a rig, and save them."""
        last = self.rounds[-1]
        fresh = collect_strikes(last.simulator, last.agent, self.config, rig, number, last.recorded)
        if self.folder is not None:
            folder = self._path(number)
            _write_strikes(folder / STRIKES_FILE, last.simulator.model.names, fresh.strikes)
            write_trials(folder / TRIALS_FILE, fresh.trials)
        return fresh

    def _simulator(self, number: int, recorded: RecordedStrikes) -> RoundSimulator:
        """The simulator of a round: loaded if its folder exists, else learned and saved."""
        if self._has(number, RUN_FOLDER):
            run = load(self._path(number) / RUN_FOLDER)
            return RoundSimulator(self.scene, run.strike_table(), run)
        simulator = learn_simulator(self._base, recorded)
        if self.folder is not None and simulator.run is not None:
            save_run(
                self._path(number) / RUN_FOLDER,
                simulator.run.calibration,
                slide=simulator.run.slide,
                record=RunRecord(config={"loop": _saved_config(self.config), "round": number}),
            )
        return simulator

    def _agent(
        self,
        number: int,
        simulator: RoundSimulator,
        recorded: RecordedStrikes | None,
        last: Agent | None,
    ) -> Agent | None:
        """The policy of a round: loaded if its file exists, else trained and saved."""
        if self.config.collect == "random":
            return None
        if self._has(number, AGENT_FILE):
            env = StrikeVecEnv(make_task(self.config.task, simulator, num_envs=1))
            return load_agent(env, self.config.algorithm, self._path(number) / AGENT_FILE)
        seed = _SEEDS_PER_LOOP * self.config.seed + number
        agent = train_agent(simulator, self.config, seed, recorded, last)
        if self.folder is not None:
            agent.save(self._path(number) / AGENT_FILE)
        return agent

    def _read_recorded(self, number: int) -> RecordedStrikes:
        """Read the strikes and recordings in the folder of a round."""
        folder = self._path(number)
        strikes = _read_strikes(folder / STRIKES_FILE, self.rounds[-1].simulator.model.names)
        trials = read_trials(folder / TRIALS_FILE)
        if len(trials) != len(strikes):
            raise DataError(
                f"{str(folder)!r} has {len(trials)} recordings of {len(strikes)} strikes: "
                "record one for each, in their order, or take rows out of strikes.csv"
            )
        return RecordedStrikes.of(strikes, trials, self.scene.struck_body.name)

    def _write_round(self, finished: Round) -> None:
        """Write the errors of a round as JSON."""
        if self.folder is None:
            return
        assert finished.error is not None and finished.recorded is not None
        content = {
            "round": finished.number,
            "strikes": len(finished.recorded.strikes),
            "miss_m": finished.error[0],
            "miss_rad": finished.error[1],
            "another_pays": self.another_pays,
        }
        write_atomic(self._path(finished.number) / _ROUND_FILE, dumps(content))

    def _has(self, number: int, name: str) -> bool:
        """Whether the folder of a round has a file or folder of this name."""
        return self.folder is not None and (self._path(number) / name).exists()

    def _path(self, number: int) -> Path:
        """Folder of a round, created if it does not exist."""
        path = self.round_folder(number)
        path.mkdir(parents=True, exist_ok=True)
        return path


def _claim_folder(folder: Path, scene: Scene, config: LoopConfig) -> None:
    """Write loop.json, or refuse a folder whose loop.json has another scene or config."""
    path = folder / LOOP_FILE
    content = {"scene": scene.name, "options": _saved_config(config)}
    if not path.is_file():
        write_atomic(path, dumps(content))
        return
    try:
        existing = parse_json(read_bounded(path, LOOP_FILE, limit=JSON_BYTES), LOOP_FILE)
    except DataError:
        raise DataError(f"{str(path)!r} is damaged: begin in another folder") from None
    if existing != content:
        raise DataError(
            f"{str(folder)!r} holds another loop; choose another folder, "
            "or give the options it was started with"
        )


def _saved_config(config: LoopConfig) -> dict[str, Any]:
    """A config as loop.json and the run folders of rounds hold it."""
    training = None
    if config.training is not None:
        training = {
            "first": config.training.first,
            "guided": config.training.guided,
            "later": config.training.later,
        }
    return {
        "task": config.task,
        "algorithm": config.algorithm,
        "collect": config.collect,
        "strikes": config.strikes,
        "weight": config.weight,
        "practice": training,
        "seed": config.seed,
    }


def _write_strikes(path: Path, names: Sequence[str], strikes: np.ndarray) -> None:
    """Write strikes (n, d) as CSV, without rounding."""
    lines = [",".join(names)]
    for strike in strikes:
        lines.append(",".join(repr(float(value)) for value in strike))
    write_atomic(path, ("\n".join(lines) + "\n").encode())


def _read_strikes(path: Path, names: Sequence[str]) -> np.ndarray:
    """Read strikes (n, d) from a CSV file, whose columns must be `names`."""
    problem = DataError(
        f"{str(path)!r} must hold the columns {', '.join(names)} "
        "and a row of numbers for each strike that was made"
    )
    try:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        strikes = np.array(rows, float)
    except (OSError, ValueError):
        raise problem from None
    has_shape = strikes.shape == (len(rows), len(names))
    if tuple(header) != tuple(names) or not has_shape or not np.isfinite(strikes).all():
        raise problem
    return strikes
