"""The virtual laboratory as a rig on which strikes are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim import lab
from clashsim.core.trials import Trial


class LabRig:
    """A block on the laboratory's table; each strike finds it where the last one left it.

    Args:
        setting: Block, material and surface.
    """

    def __init__(self, setting: lab.Setting) -> None:
        self.setting = setting
        self._session: lab.Session | None = None

    def begin(self, pose: np.ndarray, seed: int | Sequence[int]) -> None:
        """Put the block down at a pose (3,): x, y (m), yaw (rad), world frame.

        Args:
            pose: The pose.
            seed: Seed of the laboratory: measurement noise and what varies between strikes.
        """
        start = np.asarray(pose, float).tolist()
        self._session = lab.Session(self.setting, seed, start=start)

    def look(self) -> np.ndarray:
        """Measured pose (3,) of the block: x, y (m), yaw (rad), world frame."""
        return self._started_session.look()

    def strike(self, strike: Mapping[str, float], name: str = "strike") -> Trial:
        """Strike the block, and return the recording.

        Args:
            strike: Numbers of the strike by name: speed (m/s), point and deflection (rad).
            name: Name of the recorded trial.
        """
        return self._started_session.strike(lab.Strike(**strike), name=name)

    @property
    def _started_session(self) -> lab.Session:
        assert self._session is not None, "begin() puts a block on the table first"
        return self._session
