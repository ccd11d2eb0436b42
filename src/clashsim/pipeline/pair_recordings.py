"""Recordings of several pairs: which impact belongs to which pair of bodies of a scene."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import Impacts, listed_rows
from clashsim.core.pair_choice import collision_key, geom_named
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts
from clashsim.pipeline.recordings import holds_trials

_ROLES = ("struck body", "striker")
_NOT_IN_FOLDER = r"[^\w.-]+"  # what the name of a pair's folder does not have


@dataclass(frozen=True, eq=False)
class NamedPair:
    """A pair of bodies that rows of a recording name.

    Attributes:
        name: Of the pair, as folders and reports have it.
        struck: Name of a geom of the struck body.
        striker: Name of a geom of the striker.
        rows: Indices of its impacts in the recording.
    """

    name: str
    struck: str
    striker: str
    rows: np.ndarray


def named_pairs(path: Path) -> list[tuple[str, str]]:
    """Names of the bodies of each pair that a file of impacts names.

    Args:
        path: File with impacts or with trials.

    Returns:
        Struck body and striker of each pair, in order; empty for files that name no bodies.
    """
    if holds_trials(path):
        return []
    bodies = read_impacts(path, known=None).bodies
    if bodies is None:
        return []
    return list(dict.fromkeys((str(struck), str(striker)) for struck, striker in bodies))


def assign_to_pairs(
    bodies: np.ndarray, model: mujoco.MjModel, scene: str
) -> tuple[list[NamedPair], list[str]]:
    """Find the pair of each impact.

    Two names of one body, such as its own and that of one of its geoms, are the same.

    Args:
        bodies: (N, 2), as in `Impacts`.
        model: The scene, compiled, all of whose geoms have names.
        scene: The scene's name, for messages.

    Returns:
        The pairs in the order of their first impacts, and a sentence for each reason why impacts
        belong to none.

    Raises:
        DataError: No impact belongs to a pair, or a pair is named in both orders.
    """
    geoms = {model.geom(i).name for i in range(model.ngeom)}
    choices = geoms | {model.body(i).name for i in range(1, model.nbody)}
    left_out: list[str] = []
    pairs: dict[tuple, NamedPair] = {}
    for names in dict.fromkeys(map(tuple, bodies.tolist())):
        is_pair = (bodies == names).all(1)
        of_rows = f"{int(is_pair.sum())} of {len(bodies)} impacts ({listed_rows(is_pair)})"
        unknown = [i for i, name in enumerate(names) if geom_named(model, name) not in geoms]
        if unknown:
            name = names[unknown[0]]
            left_out.append(
                f"left out: {of_rows}, whose {_ROLES[unknown[0]]} is called {name!r}, since scene "
                f"{scene!r} has no body or geom of that name; {did_you_mean(name, choices)}"
            )
            continue
        struck, striker = (geom_named(model, name) for name in names)
        key = (collision_key(model, struck), collision_key(model, striker))
        if key[0] == key[1]:
            left_out.append(
                f"left out: {of_rows}, in which {names[0]!r} and {names[1]!r} are the same body"
            )
        elif (key[1], key[0]) in pairs:
            raise DataError(
                f"impacts {listed_rows(is_pair)} have {names[0]!r} struck by {names[1]!r}, and "
                "others the same pair the other way around: name its bodies in one order"
            )
        elif key in pairs:
            known = pairs[key]
            rows = np.union1d(known.rows, np.flatnonzero(is_pair))
            pairs[key] = NamedPair(known.name, known.struck, known.striker, rows)
        else:
            name = _unused_name(names, {pair.name for pair in pairs.values()})
            pairs[key] = NamedPair(name, struck, striker, np.flatnonzero(is_pair))
    if not pairs:
        raise DataError("; ".join(left_out).removeprefix("left out: "))
    return list(pairs.values()), left_out


def impacts_of_pair(impacts: Impacts, scene: Scene) -> Impacts:
    """The impacts of a recording that are of a scene's own pair; all where they name no bodies.

    Args:
        impacts: The impacts.
        scene: Scene of the pair.
    """
    if impacts.bodies is None:
        return impacts
    own = [collision_key(scene.base, geom) for geom in (scene.struck, scene.striker)]
    pairs, _ = assign_to_pairs(impacts.bodies, scene.base, scene.name)
    for pair in pairs:
        if [collision_key(scene.base, geom) for geom in (pair.struck, pair.striker)] == own:
            return replace(impacts[pair.rows], bodies=None)
    raise DataError(f"no impact is of {scene.struck!r} and {scene.striker!r}")


def _unused_name(names: tuple[str, ...], used: set[str]) -> str:
    """A name for a pair of bodies, which can be that of a folder."""
    plain = re.sub(_NOT_IN_FOLDER, "_", "-".join(names)).lstrip(".") or "pair"
    name = plain
    number = 2
    while name in used:
        name = f"{plain}-{number}"
        number += 1
    return name
