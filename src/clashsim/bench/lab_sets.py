"""Impacts of the recorded laboratory strikes, in the form of real data sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim import lab
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.outline import at_corner, outline
from clashsim.core.scene import Scene
from clashsim.data.datasets import RealDataset
from clashsim.data.segmentation.segment import segment

CORNERS = "corners"  # subset of strikes, which has rows of its own


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
    impacts = found.impacts[first_of_trial]
    on_corner = strikes_on_corners(scene, impacts)
    return RealDataset(
        name,
        shape,
        impacts,
        inertia(scene, scene.struck_body).gyration,
        np.full(len(first_of_trial), name),
        subsets={CORNERS: on_corner} if on_corner.any() else {},
    )


def strikes_on_corners(scene: Scene, impacts: Impacts) -> np.ndarray:
    """Whether the struck body of each impact (N,) in a plane is hit at a corner of its outline."""
    frame = contact_frame(scene, impacts)
    corners = outline(scene, scene.struck, scene.struck_body)
    struck = MotionBefore.of(frame.before).struck
    found = np.zeros(len(impacts), bool)
    for i, point in enumerate(frame.contact.point):
        cosine, sine = np.cos(struck.yaw[i]), np.sin(struck.yaw[i])
        to_body = np.array([[cosine, sine], [-sine, cosine]])
        found[i] = at_corner(corners, to_body @ (point - struck.position[i]))
    return found


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
