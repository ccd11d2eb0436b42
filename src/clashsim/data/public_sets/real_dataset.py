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
        scene: Name of the shipped scene that models the set.
        impacts: The N impacts.
        gyration: Radius that turns angular velocity into m/s where errors are added up, m.
        session: Label (N,) of the recording session of each impact.
        published: Twists after each impact (N, 3) that published models predict, by the name of the
            model, in the axes of `impacts`.
        nominal: Values expected for the scene's parameters in this set, by name.
        subsets: Whether each impact (N,) belongs to a kind that is also judged by itself, by the
            name of the kind.
    """

    name: str
    scene: str
    impacts: Impacts
    gyration: float
    session: np.ndarray
    published: Mapping[str, np.ndarray] = field(default_factory=dict)
    nominal: Mapping[str, float] = field(default_factory=dict)
    subsets: Mapping[str, np.ndarray] = field(default_factory=dict)
