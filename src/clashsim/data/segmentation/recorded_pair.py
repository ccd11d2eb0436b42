"""The two bodies of one trial, as they were recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.data.segmentation.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class RecordedPair:
    """The two bodies of one trial.

    Attributes:
        trial: Name of the trial.
        struck: Frames of the struck body.
        noise: Standard deviations (n, k) of the struck body's coordinates.
        striker: Frames of the striker; None if it was not recorded.
        striker_noise: Standard deviations (n, k) of its coordinates; None where it is hardly seen.
    """

    trial: str
    struck: Trajectory
    noise: np.ndarray
    striker: Trajectory | None
    striker_noise: np.ndarray | None = None
