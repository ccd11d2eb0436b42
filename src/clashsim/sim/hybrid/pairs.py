"""Pairs of geoms whose collisions are learned, and what a scene needs to watch them.

A learned pair gets a named `<pair>` element, so that its contact can be taken out of MuJoCo's
solver, contact sensors that report when it touches, and two numbers of memory in `userdata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from clashsim.core.contact_pairs import ensure_named_pair, free_from_mocap
from clashsim.core.errors import SceneError, did_you_mean
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import Scene

MEMORY_PER_PAIR = 2  # numbers in userdata: `phase` and `since` of `CompiledPair`


@dataclass(frozen=True, eq=False)
class LearnedPair:
    """Two geoms of a scene and the model of their collision.

    Attributes:
        struck: Name of the geom that is struck.
        striker: Name of the geom that strikes it.
        model: Predicts the outcome of their collisions.
        model_scene: The scene in which the model was learned, where it is not the one that is
            simulated; origin and axes of either body must be the same in both scenes.
        theta: (p,), parameters of `model_scene`, for models that take them.
        known: Values of parameters that were measured, by name, for models that take them.
    """

    struck: str
    striker: str
    model: ImpactModel | ThetaModel
    model_scene: Scene | None = None
    theta: np.ndarray | None = None
    known: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int]:
        """Equal for pairs whose collisions one call of the model can predict together."""
        return id(self.model), id(self.scene)

    @cached_property
    def scene(self) -> Scene:
        """The scene in which the model was learned: as given, else the model's own."""
        distilled = getattr(self.model, "base", None)
        found = (
            self.model_scene
            or getattr(self.model, "scene", None)
            or getattr(distilled, "scene", None)
        )
        if found is None:
            raise SceneError(
                f"the pair of {self.struck!r} and {self.striker!r} needs `model_scene`: "
                "the scene that its model was learned in"
            )
        return found


def add_learned_pairs(
    scene: Scene, pairs: tuple[LearnedPair, ...], *, sense_ground: bool = False
) -> tuple[mujoco.MjSpec, list[str]]:
    """Extend a scene by what watching its learned pairs needs.

    Args:
        scene: The scene that is simulated.
        pairs: The learned pairs.
        sense_ground: Add sensors that report whether a struck body touches anything but the ground.

    Returns:
        The extended spec, and the names of its `<pair>` elements in the order of `pairs`.
    """
    spec = scene.spec.copy()
    geoms = {geom.name: geom for geom in spec.geoms if geom.name}
    names: list[str] = []
    for i, pair in enumerate(pairs):
        for geom_name in (pair.struck, pair.striker):
            if geom_name not in geoms:
                raise SceneError(
                    f"scene {scene.name!r} has no geom named {geom_name!r}; "
                    f"{did_you_mean(geom_name, geoms)}"
                )
        free_from_mocap(spec, (pair.struck, pair.striker))
        name = _existing_pair_name(spec, pair)
        if name is None:
            name = f"clashsim/{i}"
            ensure_named_pair(spec, scene.name, geoms[pair.struck], geoms[pair.striker], name)
        if name in names:
            raise SceneError(f"the pair of {pair.struck!r} and {pair.striker!r} is given twice")
        names.append(name)
        _add_contact_counter(spec, f"found/{i}", pair.struck, pair.striker)
        if sense_ground and scene.ground is not None:
            _add_contact_counter(spec, f"all/{i}", pair.struck, None)
            _add_contact_counter(spec, f"ground/{i}", pair.struck, scene.ground)
    spec.nuserdata = max(spec.nuserdata, 0) + MEMORY_PER_PAIR * len(pairs)
    return spec, names


def _existing_pair_name(spec: mujoco.MjSpec, pair: LearnedPair) -> str | None:
    """Name of the `<pair>` element that the scene already has for these geoms."""
    wanted = {pair.struck, pair.striker}
    for element in spec.pairs:
        if {element.geomname1, element.geomname2} == wanted:
            return element.name or None
    return None


def _add_contact_counter(spec: mujoco.MjSpec, name: str, geom: str, other: str | None) -> None:
    """Add a sensor for the number of contacts of a geom, with one other geom or with all."""
    number_of_contacts = 1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND)
    reference = {}
    if other is not None:
        reference = {"reftype": mujoco.mjtObj.mjOBJ_GEOM, "refname": other}
    spec.add_sensor(
        name=f"clashsim/{name}",
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        intprm=[number_of_contacts, 1, 1],  # MuJoCo's data, reduce (1: nearest first) and num
        objtype=mujoco.mjtObj.mjOBJ_GEOM,
        objname=geom,
        **reference,
    )
