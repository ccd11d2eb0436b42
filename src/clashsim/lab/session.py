"""Strikes in the laboratory as a robot and a motion-capture system give them: strikes in, trials
out, and nothing else to be seen.
"""

from __future__ import annotations

import multiprocessing
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.core.trials import Trial, Trials, yaw
from clashsim.core.workers import exit_with_parent
from clashsim.lab import arm, mocap
from clashsim.lab.settings import Setting
from clashsim.lab.strike import Strike, block_outline, turned

if TYPE_CHECKING:
    from clashsim.lab.rig import Engine

PLACEMENT = (5e-4, 5e-4, 5e-3)  # m, m, rad: how well a block is put where it should be
LOOK = 20  # frames over which the block's pose is averaged before a strike is planned
REACH = 0.5  # m, a block must start within this square about the table's middle
_BODIES = ("block", "striker")


class Session:
    """A block on the table: each strike finds it where the last one left it, and is planned from
    its measured pose.

    start: x, y (m), yaw (rad) at which the block is put down, with the scatter of a careful hand.
    """

    def __init__(
        self,
        setting: Setting,
        seed: int | Sequence[int],
        *,
        start: Sequence[float] = (0.0, 0.0, 0.0),
    ) -> None:
        self.setting = setting
        self._rng = np.random.default_rng(seed)
        self._pose = _checked(start) + np.array(PLACEMENT) * self._rng.normal(size=3)
        marks = np.random.default_rng(
            zlib.crc32(setting.name.encode())
        )  # the markers were put on once
        self._error = {body: mocap.frame_error(marks) for body in _BODIES}
        self._engine = _engine(setting)

    def look(self) -> np.ndarray:
        """Measured pose x, y, yaw (3,) of the block at rest."""
        pose = _spatial(self._pose)
        while True:
            _, seen = mocap.observe(
                np.array([0.0, LOOK / mocap.RATE]),
                np.stack([pose, pose]),
                self._error["block"],
                self._rng,
            )
            seen = seen[np.isfinite(seen).all(1)]
            if len(seen):
                return np.array([*seen[:, :2].mean(0), yaw(seen[:, 3:]).mean()])

    def strike(self, strike: Strike, *, name: str = "strike") -> Trial:
        """Do one strike and record it from 0.1 s before the planned touch until the block rests."""
        seen = self.look()
        _checked(seen)
        centre, way = block_outline(self.setting.shape).touch(strike)
        command = arm.path(
            seen[:2] + turned(centre, seen[2]), strike.speed * turned(way, seen[2]), self._rng
        )
        motion = self._engine.run(self._pose, command)
        last = motion.block[-1]
        self._pose = np.array([*last[:2], yaw(last[None, 3:])[0]])
        stamps, poses = np.zeros(0), {}
        for body, true in zip(_BODIES, (motion.block, motion.striker), strict=True):
            stamps, poses[body] = mocap.observe(motion.t, true, self._error[body], self._rng)
        return Trial(name, stamps, poses, source="lab")


def execute(
    strikes: Strike | Sequence[Strike],
    setting: Setting,
    seed: int,
    *,
    start: Sequence[float] = (0.0, 0.0, 0.0),
) -> Trials:
    """One strike, or a sequence between which the block stays where it came to rest; the same seed
    gives the same trials.
    """
    session = Session(setting, seed, start=start)
    sequence = [strikes] if isinstance(strikes, Strike) else list(strikes)
    return Trials(
        tuple(session.strike(s, name=f"{setting.name}-{i:03d}") for i, s in enumerate(sequence))
    )


def execute_independently(
    strikes: Sequence[Strike],
    setting: Setting,
    seed: int,
    *,
    starts: np.ndarray | None = None,
    workers: int | None = None,
    progress: Progress = quiet,
) -> Trials:
    """Strikes that know nothing of each other, each on a block put down anew at its row of starts
    (N, 3), on all cores.

    The same seed gives the same trials with any number of workers. Python starts workers afresh, so
    a script that calls this with more than one needs the usual `if __name__ == "__main__":`.
    """
    places = np.zeros((len(strikes), 3)) if starts is None else np.asarray(starts, float)
    if places.shape != (len(strikes), 3):
        raise DataError(
            f"{len(strikes)} strikes need starts of shape ({len(strikes)}, 3), got {places.shape}"
        )
    jobs = [
        (s, setting, (seed, i), tuple(place), f"{setting.name}-{i:03d}")
        for i, (s, place) in enumerate(zip(strikes, places, strict=True))
    ]
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    done = []
    with progress("striking", len(jobs)) as advance:
        if workers <= 1:
            for job in jobs:
                done.append(_one(job))
                advance(1)
        else:
            with ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=exit_with_parent,
            ) as pool:
                for trial in pool.map(_one, jobs, chunksize=4):
                    done.append(trial)
                    advance(1)
    return Trials(tuple(done))


def _one(job: tuple[Strike, Setting, tuple[int, int], tuple[float, ...], str]) -> Trial:
    strike, setting, seed, start, name = job
    return Session(setting, seed, start=start).strike(strike, name=name)


def _engine(setting: Setting) -> Engine:
    from clashsim.lab.rig import (
        engine,
    )  # here, so that recorded trials can be read without Drake

    return engine(setting)


def _checked(pose: Sequence[float] | np.ndarray) -> np.ndarray:
    place = np.asarray(pose, float)
    if place.shape != (3,) or not np.isfinite(place).all():
        raise DataError(f"the block's pose must be three finite numbers x, y, yaw, got {pose}")
    if np.abs(place[:2]).max() > REACH:
        raise DataError(
            f"the block is at x {place[0]:.2f}, y {place[1]:.2f} m, out of the arm's reach of {REACH} m about the table's middle"
        )
    return place


def _spatial(pose: np.ndarray) -> np.ndarray:
    return np.array([*pose[:2], 0.0, np.cos(pose[2] / 2), 0.0, 0.0, np.sin(pose[2] / 2)])
