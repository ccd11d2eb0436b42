"""Which of many contacts of a pair of geoms act: four, as in MuJoCo."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.columns import AT, AXES, GAP, GROUP
from clashsim.sim.contact.compiled import compiled

_MAX_CONTACTS = 4  # of a group, as in MuJoCo


@compiled
def keep_four(group: int, kinds: np.ndarray, placed: np.ndarray) -> None:
    """Open all contacts of a group but four, as MuJoCo does.

    Kept are the deepest, the one that is farthest from it, the one that is farthest from the line
    through both, and the one that is farthest from these three on the other side of that line.
    """
    count = 0
    first = -1
    for k in range(len(kinds)):
        if kinds[k, GROUP] == group and placed[k, GAP] < 0.0:
            count += 1
            if first < 0 or placed[k, GAP] < placed[first, GAP]:
                first = k
    if count <= _MAX_CONTACTS:
        return
    second = first
    largest = -1.0
    for k in range(len(kinds)):
        if kinds[k, GROUP] == group and placed[k, GAP] < 0.0:
            squared = 0.0
            for i in range(3):
                squared += (placed[k, AT + i] - placed[first, AT + i]) ** 2
            if squared > largest:
                second, largest = k, squared
    left, right = first, first
    most, least = 0.0, 0.0
    for k in range(len(kinds)):
        if kinds[k, GROUP] == group and placed[k, GAP] < 0.0:
            side = _side_of_line(k, first, second, placed)
            if side > most:
                left, most = k, side
            if side < least:
                right, least = k, side
    for k in range(len(kinds)):
        if kinds[k, GROUP] == group and k not in (first, second, left, right):
            placed[k, GAP] = 0.0


@compiled
def _side_of_line(k: int, first: int, second: int, placed: np.ndarray) -> float:
    """On which side of the line through two contacts a third one lies, and how far, m^2."""
    x = placed[second, AT] - placed[first, AT]
    y = placed[second, AT + 1] - placed[first, AT + 1]
    z = placed[second, AT + 2] - placed[first, AT + 2]
    u = placed[k, AT] - placed[first, AT]
    v = placed[k, AT + 1] - placed[first, AT + 1]
    w = placed[k, AT + 2] - placed[first, AT + 2]
    return (
        placed[first, AXES] * (y * w - z * v)
        + placed[first, AXES + 1] * (z * u - x * w)
        + placed[first, AXES + 2] * (x * v - y * u)
    )
