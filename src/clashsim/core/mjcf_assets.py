"""Which files a scene's MJCF names; known before MuJoCo opens any.

MuJoCo reads whatever file an MJCF names, from anywhere. A scene may come from somebody else, so
its text is read here first: an author's scene takes exactly the files that it names, and a scene is
only ever compiled from those.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import mujoco

from clashsim.core.errors import SceneError
from clashsim.core.mjcf_limits import Element, ModelText, Repeats, first_integer, refuse_large

_MAX_NESTING = 50  # of files that include or attach further files
_MAX_DEPTH = 500  # of elements in each other; MuJoCo refuses more

# One piece of markup as MuJoCo's parser sees it. Comments are left out before the text is parsed:
# many authors write "--" in them, which MuJoCo accepts and XML does not.
_MARKUP = re.compile(
    r"(?P<comment><!--.*?-->)"
    r"|<!\[CDATA\[.*?\]\]>"
    r"|<\?.*?\?>"
    r"""|<[^<>"'!?](?:[^<>"']|"[^<"]*"|'[^<']*')*>""",
    re.DOTALL,
)

# Given where MuJoCo asks for a file and where the file may lie: where it lies, and its content;
# None where it is absent. All paths are seen from the folder of the scene's own file.
_Source = Callable[[str, Sequence[str]], tuple[str, bytes] | None]


def scene_assets(path: Path, xml: str) -> dict[str, bytes]:
    """The files that an author's scene names, and no others.

    Args:
        path: The scene's file. Names are resolved as MuJoCo does: against its folder, or else that
            of the included file that names them.
        xml: Its text.

    Returns:
        Content by the path at which MuJoCo asks for a file, seen from the scene's folder: a file of
        the folder above begins with "..", an absolute path stays one.
    """
    found: dict[str, bytes] = {}

    def on_disk(asked: str, candidates: Sequence[str]) -> tuple[str, bytes] | None:
        for candidate in candidates:
            file = path.parent / candidate
            if not file.is_file():
                continue
            content = file.read_bytes()
            if found.setdefault(asked, content) != content:
                raise SceneError(
                    f"scene {path.stem!r} includes files from different folders that name "
                    f"different files {asked!r}: rename one of them"
                )
            return candidate, content
        return None

    reader = _Reader(path.stem, on_disk, "there is no file")
    refuse_large(reader.read(xml), path.stem)
    return found


def check_scene(xml: str, assets: Mapping[str, bytes], scene: str) -> None:
    """Raise unless all files that the MJCF names are assets and what it expands to is bounded.

    Args:
        xml: The scene's text.
        assets: Content by the path at which MuJoCo asks for a file.
        scene: The scene's name, for messages.
    """

    def among_assets(asked: str, candidates: Sequence[str]) -> tuple[str, bytes] | None:
        if asked in assets:
            return asked, assets[asked]
        # MuJoCo then goes by the name alone, which is safe as long as a single file has it.
        name = posixpath.basename(asked).lower()
        same = [key for key in assets if posixpath.basename(key).lower() == name]
        return (asked, assets[same[0]]) if len(same) == 1 else None

    reader = _Reader(scene, among_assets, "only files stored with the scene are read, and not")
    refuse_large(reader.read(xml), scene)


def parse_scene(xml: str, assets: Mapping[str, bytes], scene: str) -> mujoco.MjSpec:
    """The MJCF as MuJoCo parses it, after `check_scene`, with no other files than the assets.

    Args:
        xml: The scene's text.
        assets: Content by the path at which MuJoCo asks for a file.
        scene: The scene's name, for messages.
    """
    check_scene(xml, assets, scene)
    try:
        with mujoco.MjVfs() as files:
            for name, content in assets.items():
                files[name] = content
            spec = mujoco.MjSpec.from_string(xml, vfs=files)
        spec.assets = dict(assets)  # they are opened again whenever the spec is compiled
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise SceneError(f"scene {scene!r} is not a valid MJCF file: {reason}") from None
    return spec


@dataclass
class _OpenModel:
    """A model file that is being read.

    MuJoCo asks for it in one folder, and it may lie in another, if a file that is included names
    it.
    """

    asked_in: str = ""
    lies_in: str = ""
    name: str = ""
    elements: list[Element] = field(default_factory=list)
    included: set[str] = field(default_factory=set)
    repeats: Repeats = ()  # of the <replicate> elements that are open
    outer: list[Repeats] = field(default_factory=list)  # what `repeats` was before each of them
    defaults: int = 0  # <default> elements that are open


@dataclass
class _Directories:
    """Where <compiler> lets MuJoCo look for files."""

    mesh: str = ""
    texture: str = ""
    strip: bool = False


class _Reader:
    """Reads the text of a scene and of what it includes and attaches; finds all files they name."""

    def __init__(self, scene: str, source: _Source, absent: str) -> None:
        self.scene = scene
        self.source = source
        self.absent = absent  # how a message says that the source lacks a file
        self.identities = itertools.count()
        self.models: dict[str, ModelText] = {}  # by where MuJoCo asks for them; each is read once

    def read(self, xml: str) -> ModelText:
        """Read the scene's own text, and all that it includes and attaches."""
        return self._model(xml.encode(), _OpenModel(), ())

    def _model(self, text: bytes, model: _OpenModel, parents: tuple[str, ...]) -> ModelText:
        """Read one model file, attached within the files `parents`."""
        self._take(text, model, model.lies_in, len(parents))
        models = []
        for element in model.elements:
            if element.tag == "model" and element.attributes.get("file"):
                child = self._attached(element, model, parents)
                models.append((element.attributes.get("name") or child.name, child))
        directories = _directories(model.elements)
        contents = []
        for element in model.elements:
            for name in _files(element):
                contents.append((element, self._asset(element, name, model, directories)))
        return ModelText(model.name, tuple(model.elements), tuple(models), tuple(contents))

    def _take(self, text: bytes, model: _OpenModel, folder: str, nesting: int) -> None:
        """Add the elements of a text that lies in `folder`, and of what it includes, to a model."""
        parser = expat.ParserCreate("utf-8")  # as MuJoCo reads it, whatever the text declares
        depth = 0

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth > _MAX_DEPTH:
                raise SceneError(f"scene {self.scene!r} nests more than {_MAX_DEPTH} elements")
            if depth == 1:  # the root, which disappears where a text is included
                model.name = model.name or attributes.get("model", "")
                return
            element = Element(tag, attributes, folder, model.repeats, model.defaults > 0)
            if tag.lower() == "include":
                self._include(element, model, nesting)
                return
            model.elements.append(element)
            if tag == "replicate":
                self._repeat(model, first_integer(attributes, "count", 1))
            if tag == "default":
                model.defaults += 1

        def end(tag: str) -> None:
            nonlocal depth
            depth -= 1
            if depth and tag == "replicate":
                model.repeats = model.outer.pop()
            if depth and tag == "default":
                model.defaults -= 1

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        try:
            parser.Parse(self._without_comments(text).encode(), True)
        except expat.ExpatError as error:
            raise SceneError(f"scene {self.scene!r} is not a valid MJCF file: {error}") from None

    def _repeat(self, model: _OpenModel, count: int) -> None:
        """Note that what follows lies in a <replicate> of so many repetitions."""
        model.outer.append(model.repeats)
        if count > 1:
            model.repeats = (*model.repeats, (next(self.identities), count))

    def _without_comments(self, text: bytes) -> str:
        """The text of a file without its comments, or a `SceneError` where markup is unknown."""
        markup = text.decode(errors="replace")
        kept: list[str] = []
        position = 0
        while True:
            begin = markup.find("<", position)
            if begin < 0:
                return "".join([*kept, markup[position:]])
            piece = _MARKUP.match(markup, begin)
            if (
                piece is None
            ):  # a <!DOCTYPE> or entities, or what no parser should have to interpret
                shown = markup[begin : begin + 20]
                raise SceneError(
                    f"scene {self.scene!r} is not a valid MJCF file: {shown!r} is not accepted"
                )
            kept.append(markup[position:begin])
            if piece["comment"] is None:
                kept.append(piece[0])
            position = piece.end()

    def _include(self, element: Element, model: _OpenModel, nesting: int) -> None:
        """Add what an <include> names to a model."""
        name = element.attributes.get("file", "")
        asked = _joined(model.asked_in, name)
        if not name or asked in model.included:
            return  # MuJoCo refuses both
        model.included.add(asked)
        candidates = (_joined(model.lies_in, name), _joined(element.folder, name))
        lies, content = self._fetch(element, name, asked, candidates)
        self._refuse_deep(nesting)
        self._take(content, model, posixpath.dirname(lies), nesting + 1)

    def _attached(self, element: Element, model: _OpenModel, parents: tuple[str, ...]) -> ModelText:
        """Read the model file that a <model> names, once."""
        name = element.attributes["file"]
        asked = _joined(model.asked_in, name)
        if asked in parents:
            raise SceneError(f"scene {self.scene!r}: the model file {name!r} contains itself")
        self._refuse_deep(len(parents))
        if asked not in self.models:
            candidates = (_joined(model.lies_in, name), _joined(element.folder, name))
            lies, content = self._fetch(element, name, asked, candidates)
            child = _OpenModel(posixpath.dirname(asked), posixpath.dirname(lies))
            self.models[asked] = self._model(content, child, (*parents, asked))
        return self.models[asked]

    def _asset(
        self, element: Element, name: str, model: _OpenModel, directories: _Directories
    ) -> bytes:
        """Content of a file that an element names."""
        directory = directories.texture if element.tag == "texture" else directories.mesh
        path = name.replace("\\", "/")
        if directories.strip:
            path = posixpath.basename(path)
        asked = _joined(model.asked_in, directory, path)
        candidates = (_joined(model.lies_in, directory, path), _joined(element.folder, path))
        return self._fetch(element, path, asked, candidates)[1]

    def _fetch(
        self, element: Element, name: str, asked: str, candidates: Sequence[str]
    ) -> tuple[str, bytes]:
        """Where a file lies and its content, or a `SceneError` that names the element."""
        if ":/" in asked:
            raise SceneError(
                f"scene {self.scene!r} names {name!r} (<{element.tag}>): that is no file"
            )
        found = self.source(asked, candidates)
        if found is None:
            where = " or ".join(repr(path) for path in dict.fromkeys(candidates))
            raise SceneError(
                f"scene {self.scene!r} names the file {name!r} (<{element.tag}>), "
                f"but {self.absent} {where}"
            )
        return found

    def _refuse_deep(self, nesting: int) -> None:
        """Raise a `SceneError` where files nest too deeply."""
        if nesting >= _MAX_NESTING:
            raise SceneError(
                f"scene {self.scene!r} nests more than {_MAX_NESTING} files in each other"
            )


def _files(element: Element) -> list[str]:
    """Files that an element names, other than models: file, fileright, or filename in a URDF."""
    if element.tag == "model":
        return []
    return [value for key, value in element.attributes.items() if key.startswith("file") and value]


def _directories(elements: Sequence[Element]) -> _Directories:
    """The settings of all <compiler> elements; the last one that has a setting decides it."""
    found = _Directories()
    for element in elements:
        if element.tag == "compiler":
            both = element.attributes.get("assetdir")
            if both is not None:
                found.mesh = found.texture = both
            found.mesh = element.attributes.get("meshdir", found.mesh)
            found.texture = element.attributes.get("texturedir", found.texture)
            if "strippath" in element.attributes:
                found.strip = element.attributes["strippath"] == "true"
    return found


def _joined(*parts: str) -> str:
    """A path as MuJoCo joins and shortens it: an absolute part begins anew."""
    path = posixpath.join(*(part.replace("\\", "/") for part in parts))
    return re.sub("^//+", "/", posixpath.normpath(path))
