"""Pairs of bodies whose collisions are learned, and what a scene needs to watch them.

Every two geoms of a learned pair get a named `<pair>` element, so that their contact can be taken
out of MuJoCo's solver, and contact sensors that report when they touch. The pair has two numbers of
memory in `userdata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from clashsim.core.contact_pairs import (
    colliding_geoms,
    ensure_named_pair,
    free_from_mocap,
    geoms_moving_with,
)
from clashsim.core.errors import SceneError, did_you_mean
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import Scene

MEMORY_PER_PAIR = 2  # numbers in userdata: `phase` and `since` of `CompiledPair`


@dataclass(frozen=True, eq=False)
class LearnedPair:
    """Two bodies of a scene and the model of their collision.

    Attributes:
        struck: Name of a geom of the body that is struck. The model is used for all geoms of the
            two bodies, but for two geoms that another learned pair names.
        striker: Name of a geom of the body that strikes it.
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


@dataclass(frozen=True)
class WatchedGeoms:
    """Two geoms of a learned pair in the spec of `add_learned_pairs`.

    Attributes:
        struck: Name of the geom of the struck body.
        striker: Name of the geom of the striker.
        pair: Name of their `<pair>` element.
        sensor: Name of the sensor that counts their contacts.
    """

    struck: str
    striker: str
    pair: str
    sensor: str


def add_learned_pairs(
    scene: Scene, pairs: tuple[LearnedPair, ...], *, sense_ground: bool = False
) -> tuple[mujoco.MjSpec, list[list[WatchedGeoms]]]:
    """Extend a scene by what watching its learned pairs needs.

    Args:
        scene: The scene that is simulated.
        pairs: The learned pairs.
        sense_ground: Add sensors that report whether a struck body touches anything but the ground.

    Returns:
        The extended spec, and for each pair the geoms of its bodies that may collide.
    """
    spec = scene.spec.copy()
    geoms = {geom.name: geom for geom in spec.geoms if geom.name}
    for pair in pairs:
        for geom_name in (pair.struck, pair.striker):
            if geom_name not in geoms:
                raise SceneError(
                    f"scene {scene.name!r} has no geom named {geom_name!r}; "
                    f"{did_you_mean(geom_name, geoms)}"
                )
        free_from_mocap(spec, (pair.struck, pair.striker))
    model = spec.copy().compile()
    taken: set[frozenset[str]] = set()
    for pair in pairs:
        if frozenset((pair.struck, pair.striker)) in taken:
            raise SceneError(f"the pair of {pair.struck!r} and {pair.striker!r} is given twice")
        taken.add(frozenset((pair.struck, pair.striker)))
    watched: list[list[WatchedGeoms]] = []
    for i, pair in enumerate(pairs):
        of_pair: list[WatchedGeoms] = []
        own, *more = colliding_geoms(spec, model, scene.name, pair.struck, pair.striker)
        parts = [own, *(part for part in more if frozenset(part) not in taken)]
        taken.update(map(frozenset, parts))
        for struck, striker in parts:
            place = f"{i}/{len(of_pair)}" if of_pair else f"{i}"
            name = _existing_pair_name(spec, struck, striker)
            if name is None:
                name = f"clashsim/{place}"
                ensure_named_pair(
                    spec, scene.name, geoms[struck], geoms[striker], name, model=model
                )
            sensor = _add_contact_counter(spec, f"found/{place}", struck, striker)
            of_pair.append(WatchedGeoms(struck, striker, name, sensor))
        watched.append(of_pair)
        if sense_ground and scene.ground is not None:
            own_geoms = geoms_moving_with(model, pair.struck)
            for j, geom_name in enumerate(own_geoms):
                _add_contact_counter(spec, f"all/{i}/{j}", geom_name, None)
                _add_contact_counter(spec, f"ground/{i}/{j}", geom_name, scene.ground)
    spec.nuserdata = max(spec.nuserdata, 0) + MEMORY_PER_PAIR * len(pairs)
    return spec, watched


def _existing_pair_name(spec: mujoco.MjSpec, struck: str, striker: str) -> str | None:
    """Name of the `<pair>` element that the scene already has for two geoms."""
    wanted = {struck, striker}
    for element in spec.pairs:
        if {element.geomname1, element.geomname2} == wanted:
            return element.name or None
    return None


def _add_contact_counter(spec: mujoco.MjSpec, name: str, geom: str, other: str | None) -> str:
    """Add a sensor for the number of contacts of a geom, with one other geom or with all.

    Returns:
        The sensor's name.
    """
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
    return f"clashsim/{name}"
