"""The real-sim-real loop (RSR): strike with the current policy, learn the simulator from it, train
the policy further in that, and again.

Every round is a folder; what a round has finished is never done again, so a loop that was killed
goes on, and to the same result.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.parsing import JSON_BYTES, parse_json, read_bounded
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data.folders import dumps
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit.base import base_model
from clashsim.fit.run_folder import RunRecord, load, save_run
from clashsim.loop.recorded_strikes import RecordedStrikes, StrikeRig
from clashsim.loop.steps import (
    LoopConfig,
    RoundSimulator,
    author_simulator,
    collect,
    learned,
    make_task,
    proposed,
    train_agent,
)
from clashsim.rl.agents import Agent, load_agent
from clashsim.rl.env import StrikeVecEnv

# A round that does not lower the error on fresh strikes to this share of the best before has not
# paid
_WORSE = 0.9


def another_round_pays(misses: Sequence[float]) -> bool:
    """Whether another round is worth its strikes, by the errors on the fresh strikes of each round
    so far: the last two lowered it, or one of them.
    """
    return len(misses) < 4 or min(misses[-2:]) < _WORSE * min(misses[:-2])


@dataclass(frozen=True, eq=False)
class Round:
    """A round that is done: its simulator and policy, all strikes so far, and what it told. miss:
    error (m, rad) of the simulator before it on its strikes.
    """

    turn: int
    simulator: RoundSimulator
    agent: Agent | None
    made: RecordedStrikes | None
    miss: tuple[float, float] | None = None


@dataclass
class RealSimRealLoop:
    """A loop in a folder, or in memory without one."""

    scene: Scene
    options: LoopConfig
    folder: Path | None = None
    rounds: list[Round] = field(default_factory=list)
    cache: Path | None = None
    progress: Progress = quiet

    def __post_init__(self) -> None:
        self._base = base_model(self.scene, cache=self.cache, progress=self.progress)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            told = {
                "scene": self.scene.name,
                "options": json.loads(json.dumps(asdict(self.options))),
            }
            path = self.folder / "loop.json"
            if path.is_file():
                try:
                    content = read_bounded(path, "loop.json", limit=JSON_BYTES)
                    same = parse_json(content, "loop.json") == told
                except DataError:
                    raise DataError(f"{str(path)!r} is damaged: begin in another folder") from None
                if not same:
                    raise DataError(
                        f"{str(self.folder)!r} holds another loop; choose another folder, or give the options it was begun with"
                    )
            else:
                write_atomic(path, dumps(told))

    def begin(self) -> Round:
        """Round 0: the author's simulator and a policy trained in it."""
        simulator = author_simulator(self._base)
        self.rounds = [
            Round(
                0,
                simulator,
                None if self.options.collect == "random" else self._agent(0, simulator, None, None),
                None,
            )
        ]
        return self.rounds[0]

    def asked(self) -> Path:
        """The file of strikes to execute in the next round; written where it is not there yet."""
        last = self.rounds[-1]
        path = self._path(last.turn + 1) / "strikes.csv"
        if not path.is_file():
            _write_strikes(
                path,
                last.simulator.model.names,
                proposed(last.simulator, last.agent, self.options, last.turn + 1),
            )
        return path

    def advance(self, world: StrikeRig | None) -> Round:
        """One more round; without a world, from the recordings that lie in its folder."""
        last = self.rounds[-1]
        turn = last.turn + 1
        fresh = self._kept(turn) if world is None or self._has(turn, "trials.safetensors") else None
        if fresh is None:
            assert world is not None
            fresh = collect(last.simulator, last.agent, self.options, world, turn, last.made)
            if self.folder is not None:
                _write_strikes(
                    self._path(turn) / "strikes.csv", last.simulator.model.names, fresh.strikes
                )
                write_trials(self._path(turn) / "trials.safetensors", fresh.trials)
        far, off = fresh.prediction_errors(last.simulator.model)
        made = fresh if last.made is None else last.made + fresh
        simulator = self._simulator(turn, made)
        agent = (
            None
            if self.options.collect == "random"
            else self._agent(turn, simulator, made, last.agent)
        )
        self.rounds.append(
            Round(turn, simulator, agent, made, (float(far.mean()), float(off.mean())))
        )
        if self.folder is not None:
            write_atomic(
                self._path(turn) / "round.json",
                dumps(
                    {
                        "round": turn,
                        "strikes": len(made.strikes),
                        "miss_m": float(far.mean()),
                        "miss_rad": float(off.mean()),
                        "another_pays": self.another_pays,
                    }
                ),
            )
        return self.rounds[-1]

    @property
    def recorded(self) -> bool:
        """Whether the recordings of the next round lie in its folder."""
        return self._has(self.rounds[-1].turn + 1, "trials.safetensors")

    @property
    def another_pays(self) -> bool:
        """Whether another round is worth its strikes."""
        return another_round_pays([r.miss[0] for r in self.rounds if r.miss is not None])

    def _simulator(self, turn: int, made: RecordedStrikes) -> RoundSimulator:
        if self._has(turn, "run"):
            run = load(self._path(turn) / "run")
            return RoundSimulator(self.scene, run.strikes(), run)
        found = learned(self._base, made, seed=self.options.seed)
        if self.folder is not None and found.run is not None:
            save_run(
                self._path(turn) / "run",
                found.run.calibration,
                slide=found.run.slide,
                record=RunRecord({"loop": asdict(self.options), "round": turn}),
            )
        return found

    def _agent(
        self, turn: int, simulator: RoundSimulator, made: RecordedStrikes | None, last: Agent | None
    ) -> Agent:
        if self._has(turn, "agent.safetensors"):
            return load_agent(
                StrikeVecEnv(make_task(self.options.task, simulator, 1)),
                self.options.algorithm,
                self._path(turn) / "agent.safetensors",
            )
        agent = train_agent(simulator, self.options, 1000 * self.options.seed + turn, made, last)
        if self.folder is not None:
            agent.save(self._path(turn) / "agent.safetensors")
        return agent

    def _kept(self, turn: int) -> RecordedStrikes:
        folder, names = self._path(turn), self.rounds[-1].simulator.model.names
        try:
            with (folder / "strikes.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            told = np.array(rows[1:], float)
            if (
                tuple(rows[0]) != names
                or told.shape != (len(rows) - 1, len(names))
                or not np.isfinite(told).all()
            ):
                raise ValueError
        except (OSError, ValueError, IndexError):
            raise DataError(
                f"{str(folder / 'strikes.csv')!r} must hold the columns {', '.join(names)} and a row of numbers for each strike that was made"
            ) from None
        trials = read_trials(folder / "trials.safetensors")
        if len(trials) != len(told):
            raise DataError(
                f"{str(folder)!r} has {len(trials)} recordings of {len(told)} strikes: record one for each, in their order, or take rows out of strikes.csv"
            )
        return RecordedStrikes.of(told, trials, self.scene.struck_body.name)

    def _has(self, turn: int, name: str) -> bool:
        return self.folder is not None and (self._path(turn) / name).exists()

    def _path(self, turn: int) -> Path:
        assert self.folder is not None
        path = self.folder / f"round-{turn:02d}"
        path.mkdir(parents=True, exist_ok=True)
        return path


def _write_strikes(path: Path, names: Sequence[str], strikes: np.ndarray) -> None:
    """Strikes (n, d) as CSV, with all their digits."""
    lines = [",".join(names), *(",".join(repr(float(v)) for v in row) for row in strikes)]
    write_atomic(path, ("\n".join(lines) + "\n").encode())
