"""Recordings of several pairs: which impact belongs to which pair of bodies of a scene."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.contact_pairs import is_generated_name
from clashsim.core.errors import DataError, ParamError, did_you_mean
from clashsim.core.impacts import BODY_COLUMNS, Impacts, listed_rows
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


def named_pairs(path: Path, given: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Names of the bodies of each pair of a recording.

    Args:
        path: File with impacts, which may name their bodies, or with trials.
        given: Pairs of bodies in trials, as in "block:wall": the struck body first.

    Returns:
        Struck body and striker of each pair, in order; empty where no bodies are named.
    """
    if holds_trials(path):
        return [_split_pair(pair) for pair in given]
    if given:
        raise ParamError(
            f"--pairs is for trials, and {path.name!r} has impacts: name the bodies of each in "
            f"columns {' and '.join(BODY_COLUMNS)}"
        )
    bodies = read_impacts(path, known=None, incomplete=True).bodies
    if bodies is None:
        return []
    return list(dict.fromkeys((str(struck), str(striker)) for struck, striker in bodies))


def _split_pair(pair: str) -> tuple[str, str]:
    """Struck body and striker of a pair that a user named."""
    names = pair.split(":")
    if len(names) != len(BODY_COLUMNS) or not all(names):
        raise ParamError(f"a pair is named STRUCK:STRIKER, as in block:wall, got {pair!r}")
    return names[0], names[1]


def pairs_of_trials(
    names: Sequence[tuple[str, str]], model: mujoco.MjModel, scene: str
) -> list[NamedPair]:
    """The pairs that a user named; arguments as for `assign_to_pairs`, and no rows."""
    pairs, left_out = assign_to_pairs(np.array(names), model, scene)
    if left_out or len(pairs) != len(names):
        geoms = [model.geom(i).name for i in range(model.ngeom)]
        listed = ", ".join(":".join(pair) for pair in names)
        raise ParamError(
            f"--pairs must name different pairs of bodies or geoms of scene {scene!r} "
            f"({', '.join(geoms)}), got {listed}"
        )
    return pairs


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
    choices = {model.body(i).name for i in range(1, model.nbody)}
    for i in range(model.ngeom):
        geom = model.geom(i)
        if not is_generated_name(geom.name, model.body(geom.bodyid[0]).name):
            choices.add(geom.name)
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
    rows = rows_of_pair(impacts, scene)
    return impacts if rows is None else replace(impacts[rows], bodies=None)


def rows_of_pair(impacts: Impacts, scene: Scene) -> np.ndarray | None:
    """Indices of the impacts of a scene's own pair; None where no impact names its bodies.

    Args:
        impacts: The impacts.
        scene: Scene of the pair.
    """
    if impacts.bodies is None:
        return None
    own = [collision_key(scene.base, geom) for geom in (scene.struck, scene.striker)]
    pairs, _ = assign_to_pairs(impacts.bodies, scene.base, scene.name)
    for pair in pairs:
        if [collision_key(scene.base, geom) for geom in (pair.struck, pair.striker)] == own:
            return pair.rows
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
