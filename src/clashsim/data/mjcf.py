"""Write identified parameters into the author's MJCF as the smallest textual edit; every other byte
stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import mujoco
import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.params import Slot
from clashsim.core.scene import GROUND, STRIKE, Scene

# Model fields whose attribute has another name in MJCF.
_ATTRIBUTES = {
    "dof_solref": "solreffriction",
    "dof_solimp": "solimpfriction",
    "body_mass": "mass",
    "body_inertia": "diaginertia",
    "body_ipos": "pos",
    "body_iquat": "quat",
}
_INERTIAL = ("body_ipos", "body_iquat", "body_mass", "body_inertia")
_PAIR = ("friction", "solref", "solreffriction", "solimp", "margin", "gap")
_ATTRIBUTE = re.compile(rb"""([^\s=/<>"']+)\s*=\s*("[^"]*"|'[^']*')""")


@dataclass(frozen=True)
class EditedMjcf:
    """The edited MJCF text, and the names of parameters that MJCF has no place for."""

    xml: str
    unwritten: tuple[str, ...]


@dataclass
class _Element:
    """One element of the text: its start tag at bytes begin..end, its attributes, and where its
    content ends (None if it has none).
    """

    tag: str
    attributes: dict[str, str]
    begin: int
    end: int
    path: tuple[str, ...]
    children: list[_Element] = field(default_factory=list)
    close: int | None = None


@dataclass(frozen=True)
class _Value:
    """What one parameter writes: `value` into the entries `columns` of an attribute, whose whole
    compiled value is `whole`.
    """

    attribute: str
    columns: tuple[int, ...]
    value: float
    whole: np.ndarray


def write_back(xml: str, scene: Scene, theta: np.ndarray | Sequence[float]) -> EditedMjcf:
    """The author's text with theta (p,) in it; what it compiles to is compared with
    `scene.model(theta)` before it is returned.
    """
    theta = np.asarray(theta, float)
    text = xml.encode()
    elements = _parse(text, scene.name)
    edits: list[tuple[int, int, bytes]] = []
    values: dict[int, list[_Value]] = {}  # by the place of their element in the text
    fresh: dict[
        str, list[_Value]
    ] = {}  # values of elements that are not there yet: a pair, <option>, a body's <inertial>
    homes: dict[int, _Element] = {}
    for param, slot, number in zip(scene.params, scene.slots, theta, strict=True):
        if slot is None:
            continue
        kind, name = param.target.split("/")[0], "/".join(param.target.split("/")[1:-1])
        home = _home(elements, scene, kind, name, slot)
        for value in _values(scene, slot, param.sign * float(number)):
            if isinstance(home, str):
                fresh.setdefault(home, []).append(value)
            else:
                homes[home.begin] = home
                values.setdefault(home.begin, []).append(value)
    for place, element in homes.items():
        edits += _edit_tag(text, element, values[place])
    for word, wanted in fresh.items():
        edits.append(_insert(text, elements, scene, word, wanted))
    out = text
    for begin, end, new in sorted(edits, reverse=True):
        out = out[:begin] + new + out[end:]
    edited = EditedMjcf(
        out.decode(),
        tuple(p.name for p, s in zip(scene.params, scene.slots, strict=True) if s is None),
    )
    _verify(scene, edited.xml, theta)
    return edited


def _parse(text: bytes, scene: str) -> list[_Element]:
    """All elements of the text in order, with the places of their tags."""
    found: list[_Element] = []
    stack: list[_Element] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        begin = parser.CurrentByteIndex
        element = _Element(
            tag, attributes, begin, _tag_end(text, begin), tuple(e.tag for e in stack)
        )
        if stack:
            stack[-1].children.append(element)
        found.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        element = stack.pop()
        if not text[element.begin : element.end].endswith(b"/>"):
            element.close = parser.CurrentByteIndex

    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise SceneError(f"scene {scene!r} is not well-formed XML: {error}") from None
    return found


def _tag_end(text: bytes, begin: int) -> int:
    quote = b""
    for i in range(begin, len(text)):
        c = text[i : i + 1]
        if quote:
            quote = b"" if c == quote else quote
        elif c in (b'"', b"'"):
            quote = c
        elif c == b">":
            return i + 1
    return len(text)


def _home(
    elements: list[_Element], scene: Scene, kind: str, name: str, slot: Slot
) -> _Element | str:
    """The element that holds a parameter, or a word for one that is to be added."""
    live = [e for e in elements if "default" not in e.path]
    if kind == "option":
        attribute = slot.field.removeprefix("opt.")
        options = [e for e in live if e.tag == "option" and e.path == ("mujoco",)]
        return next(
            (e for e in reversed(options) if attribute in e.attributes),
            options[-1] if options else "option",
        )
    if kind == "pair":
        pairs = [e for e in live if e.tag == "pair" and e.path[-1:] == ("contact",)]
        mine = [e for e in pairs if e.attributes.get("name") == name] or [
            e
            for e in pairs
            if {e.attributes.get("geom1"), e.attributes.get("geom2")} == _geoms(scene, name)
        ]
        if mine:
            return _only(mine, f"pair {name!r}", scene)
        if any(e.tag == "include" for e in live) and _compiled_pair(scene, name):
            raise SceneError(
                f"the pair {name!r} of scene {scene.name!r} comes from an <include> file, which is not edited: write it there by hand"
            )
        return f"pair/{name}"
    tags = {"geom": ("geom",), "body": ("body",), "joint": ("joint", "freejoint")}.get(kind)
    named = [
        e
        for e in live
        if e.attributes.get("name") == name
        and (e.tag in tags if tags else e.path[-1:] == ("actuator",))
    ]
    if not named:
        origin = (
            "an <include> file"
            if any(e.tag == "include" for e in live)
            else "an element that makes others, such as <replicate>"
        )
        raise SceneError(
            f"the {kind} {name!r} of scene {scene.name!r} comes from {origin}, which is not edited: write its values by hand"
        )
    home = _only(named, f"{kind} {name!r}", scene)
    if slot.field in _INERTIAL:
        return next((c for c in home.children if c.tag == "inertial"), f"inertial/{name}")
    return home


def _only(found: list[_Element], what: str, scene: Scene) -> _Element:
    if len(found) > 1:
        raise SceneError(
            f"scene {scene.name!r} has {len(found)} elements that could be the {what}: give it one name"
        )
    return found[0]


def _geoms(scene: Scene, pair: str) -> set[str | None]:
    return {scene.struck, {STRIKE: scene.striker, GROUND: scene.ground}.get(pair)}


def _compiled_pair(scene: Scene, name: str) -> bool:
    """Whether the author's own scene, includes and all, has the pair."""
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    return any(
        p.name == name or {p.geomname1, p.geomname2} == _geoms(scene, name) for p in spec.pairs
    )


def _values(scene: Scene, slot: Slot, value: float) -> Iterator[_Value]:
    """What a slot writes; joints with several degrees of freedom share one attribute, so the first
    row speaks for all.
    """
    if slot.field.startswith("opt."):
        name = slot.field[4:]
        yield _Value(name, slot.columns, value, np.array(getattr(scene.base.opt, name)))
        return
    whole = np.atleast_1d(getattr(scene.base, slot.field)[slot.rows[0]])
    name = _ATTRIBUTES.get(slot.field, slot.field.split("_", 1)[1])
    yield _Value(name, slot.columns or (0,), value, np.array(whole, float))


def _edit_tag(text: bytes, element: _Element, values: list[_Value]) -> list[tuple[int, int, bytes]]:
    """Edits that put values into the attributes of one start tag, number by number where the
    attribute is there.
    """
    spans = {
        m[1].decode(): (element.begin + m.start(2), element.begin + m.end(2))
        for m in _ATTRIBUTE.finditer(text[element.begin : element.end])
    }
    edits, added = [], b""
    for name, group in _grouped(values).items():
        if name in spans:
            begin, end = spans[name]
            edits.append((begin, end, _renumbered(text[begin:end], group)))
        else:
            added += f" {name}={quoteattr(_joined(group))}".encode()
    if added:
        tail = re.search(rb"\s*/?>$", text[element.begin : element.end])
        assert tail is not None
        place = element.begin + tail.start()
        edits.append((place, place, added))
    return edits


def _grouped(values: Sequence[_Value]) -> dict[str, list[_Value]]:
    out: dict[str, list[_Value]] = {}
    for v in values:
        out.setdefault(v.attribute, []).append(v)
    return out


def _renumbered(quoted: bytes, group: list[_Value]) -> bytes:
    """A quoted attribute with some of its numbers replaced, and the compiled ones added up to
    those; its spacing stays.
    """
    mark, inner = quoted[:1], quoted[1:-1].decode()
    words = re.findall(r"\S+|\s+", inner)
    numbers = [i for i, w in enumerate(words) if not w.isspace()]
    for v in group:
        for column in v.columns:
            while len(numbers) <= column:  # the author left the rest to defaults
                words += (
                    [" ", _exact(v.whole[len(numbers)])]
                    if words
                    else [_exact(v.whole[len(numbers)])]
                )
                numbers.append(len(words) - 1)
            words[numbers[column]] = _short(v.value)
    return mark + "".join(words).encode() + mark


def _joined(group: list[_Value]) -> str:
    words = [_exact(x) for x in group[0].whole]
    for v in group:
        for column in v.columns:
            words[column] = _short(v.value)
    return " ".join(words)


def _insert(
    text: bytes, elements: list[_Element], scene: Scene, key: str, values: list[_Value]
) -> tuple[int, int, bytes]:
    """The edit that adds an element: `<option>` at the top, `<inertial>` in its body, a `<pair>` in
    `<contact>`.
    """
    kind, _, name = key.partition("/")
    groups = {n: _joined(g) for n, g in _grouped(values).items()}
    root = elements[0]
    if kind == "option":
        return _child(text, root, _element("option", groups), first=True)
    if kind == "inertial":
        row = scene.base.body(name).id
        whole = {
            _ATTRIBUTES[f]: " ".join(_exact(x) for x in np.atleast_1d(getattr(scene.base, f)[row]))
            for f in _INERTIAL
        }
        body = next(
            e
            for e in elements
            if e.tag == "body" and e.attributes.get("name") == name and "default" not in e.path
        )
        return _child(text, body, _element("inertial", whole | groups), first=True)
    row = scene.base.pair(name).id
    dims = {
        f: " ".join(_exact(x) for x in np.atleast_1d(getattr(scene.base, f"pair_{f}")[row]))
        for f in _PAIR
    }
    names = {
        g: mujoco.mj_id2name(
            scene.base, mujoco.mjtObj.mjOBJ_GEOM, int(getattr(scene.base, f"pair_{g}")[row])
        )
        for g in ("geom1", "geom2")
    }
    pair = _element(
        "pair",
        {"name": name} | names | {"condim": str(int(scene.base.pair_dim[row]))} | dims | groups,
    )
    contact = next(
        (
            e
            for e in elements
            if e.tag == "contact" and e.path == ("mujoco",) and e.close is not None
        ),
        None,
    )
    if contact is not None:
        return _child(text, contact, pair)
    return _child(text, root, pair, around="contact")


def _element(tag: str, attributes: dict[str, str]) -> str:
    return f"<{tag} " + " ".join(f"{k}={quoteattr(v)}" for k, v in attributes.items()) + "/>"


def _child(
    text: bytes, parent: _Element, element: str, *, first: bool = False, around: str | None = None
) -> tuple[int, int, bytes]:
    """The edit that adds a child as first or last of an element, on a line of its own where the
    author writes so.
    """
    if parent.close is None:
        raise SceneError(f"<{parent.tag}> is empty in the scene, so nothing can be added to it")
    line = b"\r\n" if b"\r\n" in text else b"\n"
    if parent.children:
        before = re.search(rb"\n([ \t]*)$", text[: parent.children[0].begin])
        indent = before[1] if before else None
    else:
        own = re.search(rb"\n([ \t]*)$", text[: parent.begin])
        indent = own[1] + b"  " if own else None
    if indent is None:
        body = f"<{around}>{element}</{around}>" if around else element
        place = parent.end if first else parent.close
        return place, place, body.encode()
    lines = [f"<{around}>", f"  {element}", f"</{around}>"] if around else [element]
    block = b"".join(line + indent + part.encode() for part in lines)
    place = parent.end if first else len(text[: parent.close].rstrip())
    return place, place, block


def _verify(scene: Scene, xml: str, theta: np.ndarray) -> None:
    """Compile the edited text and hold every field that theta addresses against the model with
    theta in it.
    """
    wanted = scene.model(theta)
    try:
        got = replace(scene, xml=xml).base
    except SceneError as error:
        raise SceneError(f"theta cannot be written into scene {scene.name!r}: {error}") from None
    for param, slot in zip(scene.params, scene.slots, strict=True):
        if slot is None:
            continue
        a, b = (
            np.asarray(
                getattr(m.opt, slot.field[4:])
                if slot.field.startswith("opt.")
                else getattr(m, slot.field)
            )
            for m in (wanted, got)
        )
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-8, atol=1e-12):
            raise SceneError(
                f"{param.target!r} cannot be written into scene {scene.name!r}: a default class or the compiler gives it another value; write it by hand"
            )


def _short(value: float) -> str:
    return f"{value:.9g}"


def _exact(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
