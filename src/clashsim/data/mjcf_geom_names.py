"""Names for geoms that the author of an MJCF text left without.

A `<pair>` and a parameter need the names of geoms. The scene calls those without a name after their
bodies (`clashsim.core.contact_pairs.name_geoms`); the text has to give them the same names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import mujoco

from clashsim.core.contact_pairs import name_geoms
from clashsim.core.errors import SceneError
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.scene_model import SceneModel
from clashsim.data.mjcf_text import (
    Edit,
    XmlElement,
    apply_edits,
    parse_elements,
    set_attribute,
)

_WORLD = "world"
_INSIDE_BODIES = ("frame", "replicate")  # elements whose geoms belong to the body around them


@dataclass
class _TextBody:
    """A body of the text: its name, empty where it has none, and its geoms in order."""

    name: str
    geoms: list[XmlElement] = field(default_factory=list)


def write_geom_names(xml: str, scene: SceneModel, wanted: Collection[str]) -> str:
    """Name geoms in the text as the scene does.

    Args:
        xml: The author's MJCF.
        scene: The scene that was made from it.
        wanted: Names of geoms; those that the author named stay as they are.

    Returns:
        The text with a name added to each of these geoms that had none.

    Raises:
        SceneError: Such a geom has no element of its own in the text.
    """
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    given = {geom.name for geom in spec.geoms}
    missing = set(wanted) - given
    if not missing:
        return xml
    names_before = [[geom.name for geom in body.geoms] for body in spec.bodies]
    name_geoms(spec)
    text = xml.encode()
    in_text = _bodies_of_text(parse_elements(text, scene.name))
    edits: list[Edit] = []
    for number, body in enumerate(spec.bodies):
        names = [geom.name for geom in body.geoms]
        if missing.isdisjoint(names):
            continue
        elements = _geoms_in_text(in_text, spec, number)
        if [element.attributes.get("name", "") for element in elements] != names_before[number]:
            raise SceneError(
                f"geoms of the body {body.name!r} of scene {scene.name!r} have no names, and come "
                "from an <include> file or from an element that makes others, such as <replicate>, "
                "which are not edited"
            )
        for name, element in zip(names, elements, strict=True):
            if name in missing:
                edits.append(set_attribute(text, element, "name", name))
    return apply_edits(text, edits).decode()


def _bodies_of_text(elements: list[XmlElement]) -> list[_TextBody]:
    """The bodies of a text in MuJoCo's order, parents before children; first the world."""
    world = _TextBody(_WORLD)
    found = [world]

    def collect(element: XmlElement, body: _TextBody) -> None:
        for child in element.children:
            if child.tag == "geom":
                body.geoms.append(child)
            elif child.tag == "body":
                inner = _TextBody(child.attributes.get("name", ""))
                found.append(inner)
                collect(child, inner)
            elif child.tag in _INSIDE_BODIES:
                collect(child, body)

    for element in elements:
        if element.tag == "worldbody" and len(element.path) == 1:
            collect(element, world)
    return found


def _geoms_in_text(in_text: list[_TextBody], spec: mujoco.MjSpec, number: int) -> list[XmlElement]:
    """The geoms in the text of a body of the specification, by its number; empty if unknown."""
    name = spec.bodies[number].name
    if len(in_text) == len(spec.bodies) and in_text[number].name == name:
        return in_text[number].geoms
    named = [body for body in in_text if name and body.name == name]
    return named[0].geoms if len(named) == 1 else []
