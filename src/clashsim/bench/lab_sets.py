"""Impacts of the recorded laboratory strikes, in the form of real data sets."""

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
    """Load the 110 strikes of one laboratory setting, in recorded order.

    Impacts are found in the recorded trials as in any log; the first one of each trial is used.

    Args:
        name: Name of the data set, which is also that of its one session.
        shape: Shape of the block, one of `lab.SHAPES`.
        material: Material of the block, one of `lab.MATERIALS`.
        surface: Surface of the ground, one of `lab.SURFACES`.
    """
    scene = Scene.load(shape)
    found = segment(lab.recorded(shape, material, surface), scene=scene)
    first_of_trial = np.sort(np.unique(found.trial, return_index=True)[1])
    return RealDataset(
        name,
        shape,
        found.impacts[first_of_trial],
        inertia(scene, scene.struck_body).gyration,
        np.full(len(first_of_trial), name),
    )


def choose(names: Sequence[str] | None, present: Sequence[str], *, what: str = "set") -> list[str]:
    """Check names that a user gave.

    Args:
        names: Given names; None or an empty sequence takes all of `present`.
        present: All names that may be given.
        what: What a name stands for, as in "set" or "method".

    Returns:
        The names to use.

    Raises:
        DataError: A name is not present.
    """
    for name in names or ():
        if name not in present:
            raise DataError(f"the bench has no {what} {name!r}; {did_you_mean(name, present)}")
    return list(names or present)
