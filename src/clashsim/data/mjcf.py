"""Write identified parameters into the MJCF text that a user wrote, the author of the scene.

Only what holds the parameters is changed or added; every other byte of the text stays as it was,
and so does a parameter whose value describes the scene that the author wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.params import Slot
from clashsim.core.scene_model import SceneModel, compiler_error, model_field
from clashsim.data.mjcf_geom_names import write_geom_names
from clashsim.data.mjcf_text import (
    AttributeValue,
    Edit,
    XmlElement,
    add_child,
    apply_edits,
    attribute_text,
    by_attribute,
    edit_attributes,
    element_text,
    exact_number,
    parse_elements,
)

# MJCF attributes by field of MjModel, where their names differ. Those of all other fields have the
# field's name without its prefix, such as "friction" for "geom_friction".
_ATTRIBUTES = {
    "dof_solref": "solreffriction",
    "dof_solimp": "solimpfriction",
    "body_mass": "mass",
    "body_inertia": "diaginertia",
    "body_ipos": "pos",
    "body_iquat": "quat",
    "qpos_spring": "springref",
    "jnt_solref": "solreflimit",
    "tendon_lengthspring": "springlength",
}
_ANGLES = ("qpos_spring", "jnt_range")  # of hinges, in the text often in degrees
# Attributes of servos by the tag of their element and by field and column, with their signs.
_GAINS = {
    ("position", "actuator_gainprm", 0): ("kp", 1.0),
    ("position", "actuator_biasprm", 2): ("kv", -1.0),
    ("velocity", "actuator_gainprm", 0): ("kv", 1.0),
}
_IMPLIED_GAINS = (("position", 1), ("velocity", 2))  # tags, and columns of biasprm
_INERTIAL_FIELDS = ("body_ipos", "body_iquat", "body_mass", "body_inertia")
_PAIR_ATTRIBUTES = ("friction", "solref", "solreffriction", "solimp", "margin", "gap")
_TAGS = {"geom": ("geom",), "body": ("body",), "joint": ("joint", "freejoint")}
_OPTION_PREFIX = "opt."
# How far a value may be from the author's to count as that: MuJoCo itself writes six digits.
_SAME_VALUE = 1e-5
# How far compiled values may be from those of theta, whose numbers are written with nine digits.
_RELATIVE_TOLERANCE = 1e-8
_ABSOLUTE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class EditedMjcf:
    """The edited MJCF text.

    Attributes:
        xml: The text.
        unwritten: Names of the parameters that MJCF has no place for.
        unchanged: Names of the parameters that are as the author wrote them.
        rewritten: Why the text is not the author's own but what MuJoCo makes of it; empty if it is.
    """

    xml: str
    unwritten: tuple[str, ...]
    unchanged: tuple[str, ...] = ()
    rewritten: str = ""


@dataclass(frozen=True)
class _Home:
    """The element that holds a parameter, or what must be added to hold it.

    Attributes:
        element: The element, or None where one must be added.
        kind: Tag of the element that must be added: option, inertial or pair.
        name: Name of the body of the inertial, or of the pair; empty for an option.
    """

    element: XmlElement | None
    kind: str = ""
    name: str = ""


def write_back(xml: str, scene: SceneModel, theta: np.ndarray | Sequence[float]) -> EditedMjcf:
    """Write parameters into the author's text.

    The edited text is compiled and compared with `scene.model(theta)` before it is returned.

    Args:
        xml: The author's MJCF.
        scene: The scene that was made from it.
        theta: Values (p,) in the order of `scene.params`.

    Returns:
        The edited text, and the parameters that could not be written.

    Raises:
        SceneError: A parameter has no unique element, a default class overrides it, or the edited
            text does not compile.
    """
    if parse_elements(xml.encode(), scene.name)[0].tag != "mujoco":
        raise SceneError(f"scene {scene.name!r} is a URDF, which has no place for MuJoCo's values")
    theta = np.asarray(theta, float)
    unwritten, unchanged, written = [], [], []
    for i, (param, slot) in enumerate(zip(scene.params, scene.slots, strict=True)):
        if slot is None:
            unwritten.append(param.name)
        elif _describes_author(scene, slot, param.sign * float(theta[i])):
            unchanged.append(param.name)
        else:
            written.append(i)
    scene = scene.with_params([scene.params[i] for i in written])
    theta = theta[written]
    edited = _with_values(write_geom_names(xml, scene, _named_geoms(scene)), scene, theta)
    _verify(scene, edited, theta)
    return EditedMjcf(edited, tuple(unwritten), tuple(unchanged))


def _describes_author(scene: SceneModel, slot: Slot, value: float) -> bool:
    """Whether a value gives the same physics as what the author wrote.

    Moments of inertia are compared about the axes of the joints: one number may stand for all the
    moments of a hinged body.
    """
    author = scene.base
    changed = copy(author)
    for part in slot.parts:
        part.write(model_field(changed, part.field), value)
    if slot.field == "body_inertia":
        before, after = _mass_matrix(author), _mass_matrix(changed)
        smallest = float(before.diagonal().min(initial=np.inf))
        return np.allclose(after, before, rtol=_SAME_VALUE, atol=_SAME_VALUE * smallest)
    before, after = _model_values(author, slot), _model_values(changed, slot)
    return np.allclose(after, before, rtol=_SAME_VALUE, atol=_ABSOLUTE_TOLERANCE)


def _mass_matrix(model: mujoco.MjModel) -> np.ndarray:
    """Mass matrix (nv, nv) at the reference coordinates."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, matrix)
    return matrix


def _named_geoms(scene: SceneModel) -> set[str]:
    """Names of the geoms that the parameters of a scene belong to, also as those of pairs."""
    names: set[str] = set()
    for slot in scene.slots:
        if slot is None:
            continue
        for row in slot.rows:
            if slot.field.startswith("pair_"):
                names |= _geoms_of_pair(scene, scene.base.pair(row).name)
            elif slot.field.startswith("geom_"):
                names.add(scene.base.geom(row).name)
    return names


def _with_values(xml: str, scene: SceneModel, theta: np.ndarray) -> str:
    """The text with the values of all parameters of a scene, each of which has a slot."""
    text = xml.encode()
    elements = parse_elements(text, scene.name)
    # Elements to change and their new values, by the element's first byte in the text.
    changed: dict[int, XmlElement] = {}
    changed_values: dict[int, list[AttributeValue]] = {}
    # Values of elements to add, by kind and name as in `_Home`.
    added_values: dict[tuple[str, str], list[AttributeValue]] = {}
    for param, slot, number in zip(scene.params, scene.slots, theta, strict=True):
        assert slot is not None
        kind, *name_parts, _ = param.target.split("/")  # kind/name/field; names may have slashes
        names = ["/".join(name_parts)]
        if kind == "pair":  # a contact of bodies with several geoms has several pairs
            names = [scene.base.pair(row).name for row in slot.rows]
        value = param.sign * float(number)
        for name in names:
            home = _find_home(elements, scene, slot, kind=kind, name=name)
            if home.element is None:
                attribute = _attribute_value(scene, slot, value)
                added_values.setdefault((home.kind, home.name), []).append(attribute)
                continue
            changed[home.element.begin] = home.element
            for part in slot.parts:
                attributes = _values_in(home.element, scene, part, value)
                changed_values.setdefault(home.element.begin, []).extend(attributes)
    edits: list[Edit] = []
    for position, element in changed.items():
        edits += edit_attributes(text, element, changed_values[position])
    edits += _add_elements(text, elements, scene, added_values)
    return apply_edits(text, edits).decode()


def _find_home(
    elements: Sequence[XmlElement], scene: SceneModel, slot: Slot, *, kind: str, name: str
) -> _Home:
    """Find the element that holds the parameter of an object.

    Args:
        elements: All elements of the text; those inside <default> are passed over, since they
            describe classes and not objects.
        scene: The scene.
        slot: Where the parameter is in the compiled model.
        kind: Kind of the object: option, pair, geom, body, joint, actuator or tendon.
        name: Name of the object.
    """
    objects = [element for element in elements if "default" not in element.path]
    if kind == "option":
        return _option_home(objects, slot.field.removeprefix(_OPTION_PREFIX))
    has_include = any(element.tag == "include" for element in objects)
    if kind == "pair":
        return _pair_home(objects, scene, name, has_include=has_include)
    named = [element for element in objects if _is_element_of(element, kind, name)]
    if not named:
        origin = "an element that makes others, such as <replicate>"
        if has_include:
            origin = "an <include> file"
        raise SceneError(
            f"the {kind} {name!r} of scene {scene.name!r} comes from {origin}, which is not edited"
        )
    element = _only_one(named, f"{kind} {name!r}", scene)
    if slot.field not in _INERTIAL_FIELDS:
        return _Home(element)
    inertial = next((child for child in element.children if child.tag == "inertial"), None)
    return _Home(inertial, "inertial", name)


def _is_element_of(element: XmlElement, kind: str, name: str) -> bool:
    """Whether an element is the geom, body, joint, actuator or tendon with this name."""
    if element.attributes.get("name") != name:
        return False
    if kind in _TAGS:
        return element.tag in _TAGS[kind]
    return element.path[-1:] == (kind,)


def _option_home(objects: Sequence[XmlElement], attribute: str) -> _Home:
    """The last <option> with the attribute, since later ones override; else the last <option>."""
    options = [
        element for element in objects if element.tag == "option" and element.path == ("mujoco",)
    ]
    for element in reversed(options):
        if attribute in element.attributes:
            return _Home(element)
    return _Home(options[-1] if options else None, "option")


def _pair_home(
    objects: Sequence[XmlElement], scene: SceneModel, name: str, *, has_include: bool
) -> _Home:
    """The <pair> with this name, else the <pair> between the same two geoms."""
    pairs = [
        element
        for element in objects
        if element.tag == "pair" and element.path[-1:] == ("contact",)
    ]
    geoms = _geoms_of_pair(scene, name)
    named = [pair for pair in pairs if pair.attributes.get("name") == name]
    of_geoms = [
        pair
        for pair in pairs
        if {pair.attributes.get("geom1"), pair.attributes.get("geom2")} == geoms
    ]
    if named or of_geoms:
        return _Home(_only_one(named or of_geoms, f"pair {name!r}", scene))
    if has_include and _author_has_pair(scene, name):
        raise SceneError(
            f"the pair {name!r} of scene {scene.name!r} comes from an <include> file,"
            " which is not edited"
        )
    return _Home(None, "pair", name)


def _only_one(found: Sequence[XmlElement], what: str, scene: SceneModel) -> XmlElement:
    """The one element that was found for `what`; raises a SceneError where there are several."""
    if len(found) > 1:
        raise SceneError(
            f"scene {scene.name!r} has {len(found)} elements that could be the {what}:"
            " give it one name"
        )
    return found[0]


def _geoms_of_pair(scene: SceneModel, pair: str) -> set[str]:
    """Names of the two geoms of a pair."""
    model = scene.base
    row = int(model.pair(pair).id)
    return {model.geom(int(geoms[row])).name for geoms in (model.pair_geom1, model.pair_geom2)}


def _author_has_pair(scene: SceneModel, name: str) -> bool:
    """Whether the author's own scene, with the files that it includes, has the pair."""
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    geoms = _geoms_of_pair(scene, name)
    return any(
        pair.name == name or {pair.geomname1, pair.geomname2} == geoms for pair in spec.pairs
    )


def _values_in(
    element: XmlElement, scene: SceneModel, part: Slot, value: float
) -> list[AttributeValue]:
    """The attributes of an element that hold a parameter; none where another implies them."""
    if part.field not in ("actuator_gainprm", "actuator_biasprm"):
        return [_attribute_value(scene, part, value)]
    column = part.columns[0]
    found = _GAINS.get((element.tag, part.field, column))
    if found is not None:
        name, sign = found
        number = sign * part.factor * value
        return [AttributeValue(name, (0,), number, np.array([number]))]
    if part.field == "actuator_biasprm" and (element.tag, column) in _IMPLIED_GAINS:
        return []
    return [_attribute_value(scene, part, part.factor * value)]


def _attribute_value(scene: SceneModel, slot: Slot, value: float) -> AttributeValue:
    """The attribute to write for a parameter, and its value there.

    The degrees of freedom of a joint share one attribute, so their first row stands for all.
    """
    model = scene.base
    if slot.field.startswith(_OPTION_PREFIX):
        name = slot.field.removeprefix(_OPTION_PREFIX)
        compiled = np.array(getattr(model.opt, name))
        return AttributeValue(name, slot.columns, value, compiled)
    name = _ATTRIBUTES.get(slot.field, slot.field.split("_", 1)[1])
    compiled = np.array(np.atleast_1d(getattr(model, slot.field)[slot.rows[0]]), float)
    per_unit = 1.0
    if slot.field in _ANGLES and scene.spec.compiler.degree and _is_hinge(model, slot):
        per_unit = 180 / np.pi
    return AttributeValue(name, slot.columns or (0,), per_unit * value, per_unit * compiled)


def _is_hinge(model: mujoco.MjModel, slot: Slot) -> bool:
    """Whether the joint of a field in `_ANGLES` is a hinge."""
    joint = slot.rows[0]
    if slot.field == "qpos_spring":
        joint = int(np.flatnonzero(model.jnt_qposadr == slot.rows[0])[0])
    return int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_HINGE)


def _add_elements(
    text: bytes,
    elements: Sequence[XmlElement],
    scene: SceneModel,
    values: Mapping[tuple[str, str], Sequence[AttributeValue]],
) -> list[Edit]:
    """The edits that add an <option>, the <inertial> of bodies, and pairs.

    Args:
        text: The whole text.
        elements: All its elements.
        scene: The scene.
        values: The values of each element to add, by kind and name as in `_Home`.
    """
    root = elements[0]
    edits = []
    pairs = []
    for (kind, name), of_element in values.items():
        written = {key: attribute_text(group) for key, group in by_attribute(of_element).items()}
        if kind == "option":
            edits.append(add_child(text, root, element_text("option", written), first=True))
        elif kind == "inertial":
            body = next(
                element
                for element in elements
                if element.tag == "body"
                and element.attributes.get("name") == name
                and "default" not in element.path
            )
            inertial = element_text("inertial", _inertial_attributes(scene, name) | written)
            edits.append(add_child(text, body, inertial, first=True))
        else:
            pairs.append(element_text("pair", _pair_attributes(scene, name) | written))
    if not pairs:
        return edits
    for element in elements:
        is_contact = element.tag == "contact" and element.path == ("mujoco",)
        if is_contact and element.close is not None:
            return [*edits, add_child(text, element, *pairs)]
    return [*edits, add_child(text, root, *pairs, around="contact")]


def _inertial_attributes(scene: SceneModel, body: str) -> dict[str, str]:
    """All attributes of a body's <inertial>, as compiled."""
    model = scene.base
    row = model.body(body).id
    return {
        _ATTRIBUTES[field]: _numbers_text(getattr(model, field)[row]) for field in _INERTIAL_FIELDS
    }


def _pair_attributes(scene: SceneModel, pair: str) -> dict[str, str]:
    """All attributes of a <pair>, as compiled."""
    model = scene.base
    row = model.pair(pair).id
    attributes = {"name": pair}
    for geom in ("geom1", "geom2"):
        geom_id = int(getattr(model, f"pair_{geom}")[row])
        attributes[geom] = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, geom_id)
    attributes["condim"] = str(int(model.pair_dim[row]))
    for attribute in _PAIR_ATTRIBUTES:
        attributes[attribute] = _numbers_text(getattr(model, f"pair_{attribute}")[row])
    return attributes


def _numbers_text(values: np.ndarray | float) -> str:
    return " ".join(exact_number(value) for value in np.atleast_1d(values))


def _verify(scene: SceneModel, xml: str, theta: np.ndarray) -> None:
    """Compile the edited text, and compare every field of the model that a parameter is part of.

    The text must compile as it is, without what the scene adds to it.

    Raises:
        SceneError: The text does not compile, or a field differs from that of `scene.model(theta)`.
    """
    wanted = scene.model(theta)
    try:
        _compile_alone(xml, scene)
        compiled = scene.with_xml(xml).base  # an MjModel
    except SceneError as error:
        raise SceneError(f"theta cannot be written into scene {scene.name!r}: {error}") from None
    for param, slot in zip(scene.params, scene.slots, strict=True):
        assert slot is not None
        is_same = True
        for part in slot.parts:
            expected = _model_values(wanted, part)
            found = _model_values(compiled, part)
            is_same &= expected.shape == found.shape and np.allclose(
                expected, found, rtol=_RELATIVE_TOLERANCE, atol=_ABSOLUTE_TOLERANCE
            )
        if not is_same:
            raise SceneError(
                f"{param.target!r} cannot be written into scene {scene.name!r}: a default class"
                " or the compiler gives it another value; write it by hand"
            )


def _compile_alone(xml: str, scene: SceneModel) -> None:
    """Raise a SceneError unless the text and the scene's files compile."""
    try:
        parse_scene(xml, scene.assets, scene.name).compile()
    except ValueError as error:
        raise compiler_error(scene.name, error) from None


def _model_values(model: mujoco.MjModel, slot: Slot) -> np.ndarray:
    """All values of the model's field that a parameter is part of."""
    if slot.field.startswith(_OPTION_PREFIX):
        return np.asarray(getattr(model.opt, slot.field.removeprefix(_OPTION_PREFIX)))
    return np.asarray(getattr(model, slot.field))
