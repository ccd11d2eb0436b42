"""The laboratory as a world in which strikes are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim import lab
from clashsim.core.trials import Trial


class LabRig:
    """A block on the laboratory's table: each strike finds it where the last one left it."""

    def __init__(self, setting: lab.Setting) -> None:
        self.setting = setting
        self._session: lab.Session | None = None

    def begin(self, pose: np.ndarray, seed: int | Sequence[int]) -> None:
        """Put the block down at a pose (3,)."""
        self._session = lab.Session(self.setting, seed, start=np.asarray(pose, float).tolist())

    def look(self) -> np.ndarray:
        """Measured pose (3,)."""
        return self._on_table.look()

    def strike(self, strike: Mapping[str, float], name: str = "strike") -> Trial:
        """Strike it and record that."""
        return self._on_table.strike(lab.Strike(**strike), name=name)

    @property
    def _on_table(self) -> lab.Session:
        assert self._session is not None, "begin() puts a block on the table first"
        return self._session
