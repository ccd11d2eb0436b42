"""Impacts of the recorded laboratory strikes, a stand-in for reality, in the form in which the
benches take real sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim import lab
from clashsim.core.contact_frame import inertia
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.scene import Scene
from clashsim.data.datasets import RealDataset
from clashsim.data.segmentation.segment import segment


def load_lab_set(name: str, shape: str, material: str, surface: str) -> RealDataset:
    """The 110 strikes of one setting in recorded order, seen as any log would be: segmented, the
    first impact of each trial.
    """
    scene = Scene.load(shape)
    found = segment(lab.recorded(shape, material, surface), scene=scene)
    first = np.sort(np.unique(found.trial, return_index=True)[1])
    return RealDataset(
        name,
        shape,
        found.impacts[first],
        inertia(scene, scene.struck_body).gyration,
        np.full(len(first), name),
    )


def choose(sets: Sequence[str] | None, present: list[str]) -> list[str]:
    """The sets asked for, all by default."""
    for name in sets or ():
        if name not in present:
            raise DataError(f"the bench has no set {name!r}; {did_you_mean(name, present)}")
    return list(sets or present)
