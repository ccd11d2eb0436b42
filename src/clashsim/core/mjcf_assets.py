"""Finds the files that a scene's MJCF names, before MuJoCo opens any of them.

MuJoCo reads whatever file an MJCF names, from anywhere on the disk. A scene may come from somebody
else, so its text is read here first, the content of exactly the files that it names is stored with
it as assets, and MuJoCo compiles it from these assets alone.
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

_MAX_NESTING = 50  # levels of files that include or attach further files
_MAX_DEPTH = 500  # levels of elements within elements; MuJoCo refuses more
_QUOTED_MARKUP = 20  # characters of unknown markup that an error message quotes

# One piece of markup as MuJoCo's parser sees it. Comments are left out before the text is parsed:
# many authors write "--" in them, which MuJoCo accepts and XML does not.
_MARKUP = re.compile(
    r"(?P<comment><!--.*?-->)"
    r"|<!\[CDATA\[.*?\]\]>"
    r"|<\?.*?\?>"
    r"""|<[^<>"'!?](?:[^<>"']|"[^<"]*"|'[^<']*')*>""",
    re.DOTALL,
)

# Finds a file, given the path that MuJoCo will request and the paths at which the file may be:
# returns the path at which it was found and its content, or None where it is absent. All paths are
# relative to the folder of the scene's own file.
_FindFile = Callable[[str, Sequence[str]], tuple[str, bytes] | None]


def scene_assets(path: Path, xml: str) -> dict[str, bytes]:
    """Read the files that an author's scene names.

    Args:
        path: The scene's file. Names of files are resolved as MuJoCo does: against the folder of
            the scene, or else that of the included file that contains the name.
        xml: The text of the scene's file.

    Returns:
        Content of each file by the path that MuJoCo requests, relative to the scene's folder: that
        of a file in the folder above begins with ".."; an absolute path stays absolute.
    """
    found: dict[str, bytes] = {}

    def on_disk(requested: str, candidates: Sequence[str]) -> tuple[str, bytes] | None:
        for candidate in candidates:
            file = path.parent / candidate
            if not file.is_file():
                continue
            content = file.read_bytes()
            if found.setdefault(requested, content) != content:
                raise SceneError(
                    f"scene {path.stem!r} includes files from different folders that name "
                    f"different files {requested!r}: rename one of them"
                )
            return candidate, content
        return None

    reader = _Reader(path.stem, on_disk, "there is no file")
    refuse_large(reader.read(xml), path.stem)
    return found


def check_scene(xml: str, assets: Mapping[str, bytes], scene: str) -> None:
    """Raise unless all files that the MJCF names are assets and it expands to a bounded size.

    Args:
        xml: The scene's text.
        assets: Content by the path at which MuJoCo asks for a file.
        scene: The scene's name, for messages.
    """

    def among_assets(requested: str, candidates: Sequence[str]) -> tuple[str, bytes] | None:
        if requested in assets:
            return requested, assets[requested]
        # MuJoCo then compares file names without folders, which is safe if only one asset matches.
        name = posixpath.basename(requested).lower()
        matches = [path for path in assets if posixpath.basename(path).lower() == name]
        return (requested, assets[matches[0]]) if len(matches) == 1 else None

    reader = _Reader(scene, among_assets, "only files stored with the scene are read, and not")
    refuse_large(reader.read(xml), scene)


def parse_scene(xml: str, assets: Mapping[str, bytes], scene: str) -> mujoco.MjSpec:
    """Check a scene with `check_scene` and let MuJoCo parse it, with only the assets as files.

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
        spec.assets = dict(assets)  # opened again whenever the spec is compiled
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise SceneError(f"scene {scene!r} is not a valid MJCF file: {reason}") from None
    return spec


@dataclass
class _OpenModel:
    """A model file that is being read.

    The folder in which MuJoCo requests the file differs from the one in which it was found if an
    included file names it.
    """

    requested_folder: str = ""
    actual_folder: str = ""
    name: str = ""
    elements: list[Element] = field(default_factory=list)
    included: set[str] = field(default_factory=set)
    repeats: Repeats = ()  # <replicate> elements that enclose the current position
    # For each enclosing <replicate>, what `repeats` was outside of it.
    outer_repeats: list[Repeats] = field(default_factory=list)
    open_defaults: int = 0  # number of <default> elements that enclose the current position


@dataclass
class _Directories:
    """The folders in which <compiler> makes MuJoCo look for files."""

    mesh: str = ""
    texture: str = ""
    strip: bool = False  # whether folders in file names are ignored (strippath)


class _Reader:
    """Reads the text of a scene and of all files that it includes and attaches."""

    def __init__(self, scene: str, find_file: _FindFile, absent_phrase: str) -> None:
        self.scene = scene
        self.find_file = find_file
        self.absent_phrase = absent_phrase  # in messages, before the path of a missing file
        self.identities = itertools.count()  # numbers the <replicate> elements
        self.models: dict[str, ModelText] = {}  # attached models by requested path, each read once

    def read(self, xml: str) -> ModelText:
        """Read the scene's own text and all files that it includes and attaches."""
        return self._read_model(xml.encode(), _OpenModel(), ())

    def _read_model(self, text: bytes, model: _OpenModel, parents: tuple[str, ...]) -> ModelText:
        """Read one model file; `parents` are the model files that attach it, outermost first."""
        self._collect_elements(text, model, model.actual_folder, len(parents))
        models = []
        for element in model.elements:
            if element.tag == "model" and element.attributes.get("file"):
                child = self._read_attached(element, model, parents)
                models.append((element.attributes.get("name") or child.name, child))
        directories = _directories(model.elements)
        contents = []
        for element in model.elements:
            for name in _named_files(element):
                contents.append((element, self._read_asset(element, name, model, directories)))
        return ModelText(model.name, tuple(model.elements), tuple(models), tuple(contents))

    def _collect_elements(self, text: bytes, model: _OpenModel, folder: str, nesting: int) -> None:
        """Add the elements of a file in `folder`, and of the files it includes, to a model."""
        parser = expat.ParserCreate("utf-8")  # as MuJoCo does, whatever encoding the text declares
        depth = 0

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth > _MAX_DEPTH:
                raise SceneError(f"scene {self.scene!r} nests more than {_MAX_DEPTH} elements")
            if depth == 1:  # the root element, which is dropped when a file is included
                model.name = model.name or attributes.get("model", "")
                return
            element = Element(tag, attributes, folder, model.repeats, model.open_defaults > 0)
            if tag.lower() == "include":
                self._read_include(element, model, nesting)
                return
            model.elements.append(element)
            if tag == "replicate":
                self._repeat(model, first_integer(attributes, "count", 1))
            if tag == "default":
                model.open_defaults += 1

        def end(tag: str) -> None:
            nonlocal depth
            depth -= 1
            if depth and tag == "replicate":
                model.repeats = model.outer_repeats.pop()
            if depth and tag == "default":
                model.open_defaults -= 1

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        try:
            parser.Parse(self._without_comments(text).encode(), True)
        except expat.ExpatError as error:
            raise SceneError(f"scene {self.scene!r} is not a valid MJCF file: {error}") from None

    def _repeat(self, model: _OpenModel, count: int) -> None:
        """Note that the elements that follow are within a <replicate> of `count` repetitions."""
        model.outer_repeats.append(model.repeats)
        if count > 1:
            model.repeats = (*model.repeats, (next(self.identities), count))

    def _without_comments(self, text: bytes) -> str:
        """The text of a file without its comments; raises a `SceneError` at unknown markup."""
        markup = text.decode(errors="replace")
        kept: list[str] = []
        position = 0
        while True:
            begin = markup.find("<", position)
            if begin < 0:
                return "".join([*kept, markup[position:]])
            piece = _MARKUP.match(markup, begin)
            if piece is None:  # such as <!DOCTYPE> with entities, which could expand without bound
                shown = markup[begin : begin + _QUOTED_MARKUP]
                line = markup.count("\n", 0, begin) + 1
                is_cut_off = ">" not in markup[begin:]
                reason = "is not closed: is the file cut off?" if is_cut_off else "is not accepted"
                raise SceneError(
                    f"scene {self.scene!r} is not a valid MJCF file: {shown!r} in line {line} "
                    f"{reason}"
                )
            kept.append(markup[position:begin])
            is_comment = piece["comment"] is not None
            # The lines of a comment stay, so that errors name the right line.
            kept.append("\n" * piece[0].count("\n") if is_comment else piece[0])
            position = piece.end()

    def _read_include(self, element: Element, model: _OpenModel, nesting: int) -> None:
        """Add the elements of the file that an <include> names to a model."""
        name = element.attributes.get("file", "")
        requested = _join_path(model.requested_folder, name)
        if not name or requested in model.included:
            return  # MuJoCo itself reports a missing name or a file included twice
        model.included.add(requested)
        candidates = (_join_path(model.actual_folder, name), _join_path(element.folder, name))
        found_at, content = self._fetch(element, name, requested, candidates)
        self._refuse_deep(nesting)
        self._collect_elements(content, model, posixpath.dirname(found_at), nesting + 1)

    def _read_attached(
        self, element: Element, model: _OpenModel, parents: tuple[str, ...]
    ) -> ModelText:
        """Read the model file that a <model> names, unless it has been read before."""
        name = element.attributes["file"]
        requested = _join_path(model.requested_folder, name)
        if requested in parents:
            raise SceneError(f"scene {self.scene!r}: the model file {name!r} contains itself")
        self._refuse_deep(len(parents))
        if requested not in self.models:
            candidates = (_join_path(model.actual_folder, name), _join_path(element.folder, name))
            found_at, content = self._fetch(element, name, requested, candidates)
            child = _OpenModel(posixpath.dirname(requested), posixpath.dirname(found_at))
            self.models[requested] = self._read_model(content, child, (*parents, requested))
        return self.models[requested]

    def _read_asset(
        self, element: Element, name: str, model: _OpenModel, directories: _Directories
    ) -> bytes:
        """Content of the file `name`, such as a mesh or a texture, that an element names."""
        directory = directories.texture if element.tag == "texture" else directories.mesh
        path = name.replace("\\", "/")
        if directories.strip:
            path = posixpath.basename(path)
        requested = _join_path(model.requested_folder, directory, path)
        candidates = (
            _join_path(model.actual_folder, directory, path),
            _join_path(element.folder, path),
        )
        return self._fetch(element, path, requested, candidates)[1]

    def _fetch(
        self, element: Element, name: str, requested: str, candidates: Sequence[str]
    ) -> tuple[str, bytes]:
        """Path and content of a file; raises a `SceneError` that names the element where absent."""
        if ":/" in requested:
            raise SceneError(
                f"scene {self.scene!r} names {name!r} (<{element.tag}>): that is no file"
            )
        found = self.find_file(requested, candidates)
        if found is None:
            where = " or ".join(repr(path) for path in dict.fromkeys(candidates))
            raise SceneError(
                f"scene {self.scene!r} names the file {name!r} (<{element.tag}>), "
                f"but {self.absent_phrase} {where}"
            )
        return found

    def _refuse_deep(self, nesting: int) -> None:
        """Raise a `SceneError` where files nest too deeply."""
        if nesting >= _MAX_NESTING:
            raise SceneError(
                f"scene {self.scene!r} nests more than {_MAX_NESTING} files in each other"
            )


def _named_files(element: Element) -> list[str]:
    """Files other than models that an element names: file, fileright, or filename in a URDF."""
    if element.tag == "model":
        return []
    return [value for key, value in element.attributes.items() if key.startswith("file") and value]


def _directories(elements: Sequence[Element]) -> _Directories:
    """The folders set by all <compiler> elements; the last one that has a setting decides it."""
    found = _Directories()
    for element in elements:
        if element.tag == "compiler":
            common = element.attributes.get("assetdir")
            if common is not None:
                found.mesh = found.texture = common
            found.mesh = element.attributes.get("meshdir", found.mesh)
            found.texture = element.attributes.get("texturedir", found.texture)
            if "strippath" in element.attributes:
                found.strip = element.attributes["strippath"] == "true"
    return found


def _join_path(*parts: str) -> str:
    """Join and normalise paths as MuJoCo does: an absolute part discards those before it."""
    path = posixpath.join(*(part.replace("\\", "/") for part in parts))
    return re.sub("^//+", "/", posixpath.normpath(path))
