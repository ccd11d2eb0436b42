"""A scene of bodies whose whole motion is recorded: any MJCF or URDF, without a chosen pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import mujoco

from clashsim.core.contact_pairs import geoms_collide, mixed_attributes, name_geoms
from clashsim.core.errors import SceneError
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.params import Param
from clashsim.core.scene import read_scene_file
from clashsim.core.scene_model import SceneModel, compiler_error

WORLD = "world"
CONTACT = "contact"  # name of the only contact of a scene with one mechanism
_MAX_PAIRS = 512  # pairs of geoms whose contact parameters are identified


@dataclass(frozen=True, eq=False)
class MotionScene(SceneModel):
    """MJCF text and the parameters to identify.

    A mechanism is a body that moves in the world, with all that it carries. Contacts are between
    two mechanisms, or one and the world. Geoms of a contact whose parameters are identified get
    `<pair>` elements of one name, with the contact that the geoms have without them.

    Attributes:
        xml: The author's MJCF, with names for all bodies, joints and geoms.
        params: The parameters to identify, in the order of `theta`.
        assets: Content of the files that the MJCF names, by path.
        name: The scene's name in messages and file names.
    """

    xml: str
    params: tuple[Param, ...] = ()
    assets: Mapping[str, bytes] = field(default_factory=dict)
    name: str = "scene"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the fields; another process compiles its own models from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def spec(self) -> mujoco.MjSpec:
        """The author's scene, with named pairs for contacts whose parameters are identified."""
        spec = parse_scene(self.xml, self.assets, self.name)
        self.let_centres_move(spec)
        wanted = {param.target.split("/")[1] for param in self.params if "pair/" in param.target}
        contacts = {name: geoms for name, geoms in self.contacts.items() if name in wanted}
        if not contacts:
            return spec
        model = spec.copy().compile()
        for name, geoms in contacts.items():
            for i, (first, second) in enumerate(geoms):
                _name_pair(spec, model, (first, second), f"{name}/{i}" if i else name)
        return spec

    @cached_property
    def author(self) -> mujoco.MjModel:
        """The scene as its author wrote it, compiled."""
        try:
            return parse_scene(self.xml, self.assets, self.name).compile()
        except ValueError as error:
            raise compiler_error(self.name, error) from None

    @cached_property
    def contacts(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Pairs of geoms that may collide, by the name of their contact.

        The contact of a scene with one mechanism is named `CONTACT`, others after both mechanisms.
        """
        model = self.author
        spec = parse_scene(self.xml, self.assets, self.name)
        geoms = {geom.name: geom for geom in spec.geoms}
        owners = {name: mechanism_of(model, name) for name in geoms}
        alone = len({owner for owner in owners.values() if owner != WORLD}) == 1
        found: dict[str, list[tuple[str, str]]] = {}
        names = sorted(geoms, key=lambda name: int(model.geom(name).id))
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                a, b = owners[first], owners[second]
                if a == b or not geoms_collide(spec, geoms[first], geoms[second]):
                    continue
                bodies = sorted((a, b), key=lambda name: name == WORLD)
                contact = CONTACT if alone else f"{bodies[0]}-{bodies[1]}"
                found.setdefault(contact, []).append((first, second))
        if sum(map(len, found.values())) > _MAX_PAIRS:
            raise SceneError(
                f"scene {self.name!r} has more than {_MAX_PAIRS} pairs of geoms that may collide: "
                "describe its bodies by fewer geoms"
            )
        return {name: tuple(pairs) for name, pairs in found.items()}

    @staticmethod
    def load(source: str | Path) -> MotionScene:
        """Load an MJCF or URDF file, or a shipped scene by name.

        A text that leaves objects without names, includes other files or is URDF is rewritten by
        MuJoCo as one MJCF with names.

        Args:
            source: Name of a shipped scene, or a file ending in .xml or .urdf.

        Returns:
            The scene, without parameters.
        """
        path, xml, assets = read_scene_file(source)
        spec = parse_scene(xml, assets, path.stem)
        renamed = _name_objects(spec)
        try:
            spec.compile()
        except ValueError as error:
            raise compiler_error(path.stem, error) from None
        if renamed or "<include" in xml or path.suffix == ".urdf":
            xml = spec.to_xml()
        scene = MotionScene(xml, (), assets, path.stem)
        if not scene.author.nv:
            raise SceneError(
                f"nothing moves in scene {path.stem!r}: give a body a <freejoint> or a <joint>"
            )
        return scene


def mechanism_of(model: mujoco.MjModel, geom: str) -> str:
    """Name of the mechanism that a geom belongs to, that of its lowest body; or `WORLD`."""
    body = int(model.geom(geom).bodyid[0])
    return root_of(model, body)


def root_of(model: mujoco.MjModel, body: int) -> str:
    """Name of the mechanism that a body (by its index) belongs to; `WORLD` for what is fixed."""
    moving = int(model.body_weldid[body])
    if moving == 0:
        return WORLD
    while int(model.body_weldid[model.body_parentid[moving]]) != 0:
        moving = int(model.body_weldid[model.body_parentid[moving]])
    return str(model.body(moving).name)


def _name_objects(spec: mujoco.MjSpec) -> bool:
    """Name bodies, joints and geoms that have no name; returns whether there were any."""
    # No parameter needs the name of a free joint.
    joints = [joint for joint in spec.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]
    before = [item.name for item in (*spec.bodies, *joints, *spec.geoms)]
    for kind, items in (("body", list(spec.bodies)), ("joint", joints)):
        taken = {item.name for item in items}
        for i, item in enumerate(items):
            if not item.name:
                name = f"{kind}{i}"
                while name in taken:
                    name += "'"
                item.name = name
                taken.add(name)
    name_geoms(spec)
    return before != [item.name for item in (*spec.bodies, *joints, *spec.geoms)]


def _name_pair(
    spec: mujoco.MjSpec, model: mujoco.MjModel, geoms: tuple[str, str], name: str
) -> None:
    """Name the `<pair>` of two geoms, or add one that keeps their contact."""
    for pair in spec.pairs:
        if {pair.geomname1, pair.geomname2} == set(geoms):
            pair.name = name
            return
    first, second = geoms
    attributes = mixed_attributes(model, first, second)
    spec.add_pair(name=name, geomname1=first, geomname2=second, **attributes)
