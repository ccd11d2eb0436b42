"""The type of a public dataset of real impacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from clashsim.core.impacts import Impacts


@dataclass(frozen=True, eq=False)
class RealDataset:
    """Real impacts of one public set, in recorded order inside each session.

    Attributes:
        name: Name of the set.
        scene: Name of the shipped scene.
        impacts: The N impacts.
        gyration: Radius that weights the angular velocity in errors, m.
        session: Labels (N,) of the sessions.
        published: Predictions (N, 3) of the twist after, by the name of the published model, in the
            axes of `impacts`.
        nominal: What is expected of the scene's parameters here, by name.
    """

    name: str
    scene: str
    impacts: Impacts
    gyration: float
    session: np.ndarray
    published: Mapping[str, np.ndarray] = field(default_factory=dict)
    nominal: Mapping[str, float] = field(default_factory=dict)
