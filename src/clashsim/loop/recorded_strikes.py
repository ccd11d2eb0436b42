"""Strikes that were made on a rig, and how far a simulator's predictions are from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.core.trials import Trial, Trials, yaw
from clashsim.rl.task import motion_in_body_frame

_FRAMES_AT_REST = 10  # camera frames at each end of a trial whose median is the pose at rest


@dataclass(frozen=True, eq=False)
class RecordedStrikes:
    """Strikes that were made, and where the struck body lay before and after each.

    Attributes:
        strikes: (n, d), with columns as in `StrikeModel.names`.
        before: Poses (n, 3) before each strike: x, y (m), yaw (rad), world frame.
        after: Poses (n, 3) at rest after each strike.
        trials: Recordings of the strikes, in the same order.
    """

    strikes: np.ndarray
    before: np.ndarray
    after: np.ndarray
    trials: Trials

    @staticmethod
    def of(strikes: np.ndarray, trials: Trials, body: str) -> RecordedStrikes:
        """Return strikes with the poses of a body at rest, measured in recordings.

        Args:
            strikes: (n, d), in the order of the recordings.
            trials: One recording per strike.
            body: Name of the struck body.
        """
        rests = np.array([_poses_at_rest(trial, body) for trial in trials])  # (n, 2, 3)
        return RecordedStrikes(strikes, before=rests[:, 0], after=rests[:, 1], trials=trials)

    def __add__(self, other: RecordedStrikes) -> RecordedStrikes:
        return RecordedStrikes(
            np.vstack([self.strikes, other.strikes]),
            np.vstack([self.before, other.before]),
            np.vstack([self.after, other.after]),
            Trials((*self.trials, *other.trials)),
        )

    def prediction_errors(self, model: StrikeModel) -> tuple[np.ndarray, np.ndarray]:
        """How far bodies came to rest from where a model predicts.

        Args:
            model: The simulator.

        Returns:
            Distances (n,) in m and angles (n,) in rad, both at least 0.
        """
        predicted = model.rest(self.before, self.strikes)
        error = motion_in_body_frame(predicted, self.after)
        distances = np.hypot(error[:, 0], error[:, 1])
        return distances, np.abs(error[:, 2])


class StrikeRig(Protocol):
    """A real rig on which a body is struck, or the virtual laboratory."""

    def begin(self, pose: np.ndarray, seed: Sequence[int]) -> None:
        """Put the body down at a pose (3,): x, y (m), yaw (rad), world frame.

        The seed is for rigs that are simulated.
        """

    def look(self) -> np.ndarray:
        """Measured pose (3,) of the body at rest: x, y (m), yaw (rad), world frame."""

    def strike(self, strike: Mapping[str, float], name: str) -> Trial:
        """Strike the body, wait until it rests, and return the recording.

        Args:
            strike: Numbers of the strike by name, in SI units.
            name: Name of the recorded trial.
        """


def _poses_at_rest(trial: Trial, body: str) -> tuple[np.ndarray, np.ndarray]:
    """Poses (3,) of a body at rest before and after a recorded strike: x, y (m), yaw (rad)."""
    _, poses = trial.seen(body)
    if len(poses) < 2 * _FRAMES_AT_REST:
        raise DataError(
            f"trial {trial.name!r} shows the body {body!r} in {len(poses)} frames only: "
            "record it from before the strike until it rests"
        )
    yaws = yaw(poses[:, 3:])
    first = slice(0, _FRAMES_AT_REST)
    last = slice(-_FRAMES_AT_REST, None)
    return _median_pose(poses[first], yaws[first]), _median_pose(poses[last], yaws[last])


def _median_pose(poses: np.ndarray, yaws: np.ndarray) -> np.ndarray:
    """Median planar pose (3,) of poses (n, 7), whose yaws (n,) are given."""
    x, y = np.median(poses[:, :2], axis=0)
    return np.array([x, y, np.median(yaws)])
