"""Strikes in the laboratory: strikes go in and recorded trials come out.

A trial holds only what a real robot and motion-capture system would record.
"""

from __future__ import annotations

import multiprocessing
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clashsim.core.angles import rotate_planar
from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.core.trials import Trial, Trials, quaternion, yaw
from clashsim.core.workers import exit_with_parent
from clashsim.lab.arm import tip_path
from clashsim.lab.mocap import RATE, frame_error, observe
from clashsim.lab.settings import Setting
from clashsim.lab.strike import Strike, block_outline

if TYPE_CHECKING:
    from clashsim.lab.rig import Rig

# Standard deviation of the error with which a block is put down: x, y (m), yaw (rad).
PLACEMENT_STD = (5e-4, 5e-4, 5e-3)
POSE_FRAMES = 20  # camera frames over which the block's pose is averaged before each strike
REACH = 0.5  # m, largest |x| and |y| at which a block can be struck; the table's middle is 0
_BODIES = ("block", "striker")
_CHUNK = 4  # strikes that a worker gets at a time


class Session:
    """A block on the table that is struck repeatedly and stays where each strike leaves it.

    Each strike is planned from the measured pose of the block.
    """

    def __init__(
        self,
        setting: Setting,
        seed: int | Sequence[int],
        *,
        start: Sequence[float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Put a block down on the table, with a small random error.

        Args:
            setting: The block and the table.
            seed: Seed of all random errors and noise.
            start: x, y (m), yaw (rad) at which the block is put down.
        """
        self.setting = setting
        self._rng = np.random.default_rng(seed)
        self._pose = _checked_pose(start) + np.array(PLACEMENT_STD) * self._rng.normal(size=3)
        # Markers are attached once, so the error of their position is the same in all sessions of
        # a setting.
        marker_rng = np.random.default_rng(zlib.crc32(setting.name.encode()))
        self._frame_errors = {body: frame_error(marker_rng) for body in _BODIES}
        self._rig = _rig_of(setting)

    def look(self) -> np.ndarray:
        """Measure the pose (3,) of the resting block: x, y (m), yaw (rad)."""
        x, y, angle = self._pose
        pose = np.array([x, y, 0.0, *quaternion(angle)])
        times = np.array([0.0, POSE_FRAMES / RATE])
        while True:
            _, measured = observe(
                times, np.stack([pose, pose]), self._frame_errors["block"], self._rng
            )
            measured = measured[np.isfinite(measured).all(1)]
            if len(measured):
                return np.array([*measured[:, :2].mean(0), yaw(measured[:, 3:]).mean()])

    def strike(self, strike: Strike, *, name: str = "strike") -> Trial:
        """Do one strike and record it, from 0.1 s before the planned contact until the block rests.

        Args:
            strike: The strike, relative to the block's measured pose.
            name: Name of the trial.

        Returns:
            The trial, with the bodies `block` and `striker`.
        """
        measured = self.look()
        _checked_pose(measured)
        tip_in_block, direction_in_block = block_outline(self.setting.shape).touch(strike)
        tip = measured[:2] + rotate_planar(tip_in_block, measured[2])
        velocity = strike.speed * rotate_planar(direction_in_block, measured[2])
        motion = self._rig.run(self._pose, tip_path(tip, velocity, self._rng))
        final_pose = motion.block[-1]  # (7,)
        self._pose = np.array([*final_pose[:2], yaw(final_pose[None, 3:])[0]])
        true_poses = {"block": motion.block, "striker": motion.striker}
        stamps = np.zeros(0)
        poses = {}
        for body in _BODIES:
            stamps, poses[body] = observe(
                motion.t, true_poses[body], self._frame_errors[body], self._rng
            )
        return Trial(name, stamps, poses, source="lab")


def execute(
    strikes: Strike | Sequence[Strike],
    setting: Setting,
    seed: int,
    *,
    start: Sequence[float] = (0.0, 0.0, 0.0),
) -> Trials:
    """Do one strike, or a sequence in which each starts where the block last came to rest.

    Args:
        strikes: One strike, or many in their order.
        setting: The block and the table.
        seed: The same seed gives the same trials.
        start: x, y (m), yaw (rad) at which the block is put down.

    Returns:
        One trial for each strike.
    """
    session = Session(setting, seed, start=start)
    sequence = [strikes] if isinstance(strikes, Strike) else list(strikes)
    trials = []
    for i, strike in enumerate(sequence):
        trials.append(session.strike(strike, name=_trial_name(setting, i)))
    return Trials(tuple(trials))


def execute_independently(
    strikes: Sequence[Strike],
    setting: Setting,
    seed: int,
    *,
    starts: np.ndarray | None = None,
    workers: int | None = None,
    progress: Progress = quiet,
) -> Trials:
    """Do independent strikes in parallel, each on a block that is put down for it.

    With more than one worker, the calling script needs the usual `if __name__ == "__main__":`,
    because each worker process imports it again.

    Args:
        strikes: N strikes.
        setting: The block and the table.
        seed: The same seed gives the same trials with any number of workers.
        starts: (N, 3), x, y (m), yaw (rad) at which the blocks are put down; by default all zero.
        workers: Number of processes; by default the number of cores.
        progress: How progress is shown.

    Returns:
        N trials.
    """
    poses = np.zeros((len(strikes), 3)) if starts is None else np.asarray(starts, float)
    if poses.shape != (len(strikes), 3):
        raise DataError(
            f"{len(strikes)} strikes need starts of shape ({len(strikes)}, 3), got {poses.shape}"
        )
    jobs = []
    for i, (strike, pose) in enumerate(zip(strikes, poses, strict=True)):
        jobs.append(_Job(strike, setting, (seed, i), tuple(pose), _trial_name(setting, i)))
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    trials = []
    with progress("striking", len(jobs)) as advance:
        if workers <= 1:
            for job in jobs:
                trials.append(_do_job(job))
                advance(1)
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(
                workers, mp_context=context, initializer=exit_with_parent
            ) as pool:
                for trial in pool.map(_do_job, jobs, chunksize=_CHUNK):
                    trials.append(trial)
                    advance(1)
    return Trials(tuple(trials))


@dataclass(frozen=True)
class _Job:
    """One independent strike, as it is sent to a worker process."""

    strike: Strike
    setting: Setting
    seed: tuple[int, int]  # of the call, and index of the strike
    start: tuple[float, ...]  # x, y (m), yaw (rad)
    name: str


def _do_job(job: _Job) -> Trial:
    """Do one independent strike in a session of its own."""
    session = Session(job.setting, job.seed, start=job.start)
    return session.strike(job.strike, name=job.name)


def _trial_name(setting: Setting, i: int) -> str:
    """Name of the i-th trial of a setting."""
    return f"{setting.name}-{i:03d}"


def _rig_of(setting: Setting) -> Rig:
    """The rig of a setting. Imported here so that recorded trials can be read without Drake."""
    from clashsim.lab.rig import rig_of

    return rig_of(setting)


def _checked_pose(pose: Sequence[float] | np.ndarray) -> np.ndarray:
    """A block's pose (3,); raises a `DataError` where it is malformed or out of the arm's reach."""
    checked = np.asarray(pose, float)
    if checked.shape != (3,) or not np.isfinite(checked).all():
        raise DataError(f"the block's pose must be three finite numbers x, y, yaw, got {pose}")
    if np.abs(checked[:2]).max() > REACH:
        raise DataError(
            f"the block is at x {checked[0]:.2f}, y {checked[1]:.2f} m, "
            f"out of the arm's reach of {REACH} m about the table's middle"
        )
    return checked
