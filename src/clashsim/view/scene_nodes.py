"""Nodes of the 3D scene as viser draws them: meshes, lines, and what can be removed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.view.poses import matrix_to_quaternion
from clashsim.view.shapes import Shape

_TABLE_COLOUR = (248, 248, 246)
_CELL_COLOUR = (238, 238, 235)
_SECTION_COLOUR = (214, 214, 208)
_SECTION_CELLS = 5  # every fifth line of the grid is stronger

Colour = Sequence[int]  # red, green, blue: 0..255


@dataclass(frozen=True)
class MeshStyle:
    """How a body is drawn.

    Attributes:
        colour: Red, green, blue: 0..255.
        opacity: 0..1; None: opaque.
        scale: About its middle. Bodies at the same place are drawn in slightly different sizes,
            or they would flicker through each other.
        bold: Whether its edges are thick.
    """

    colour: Colour
    opacity: float | None = None
    scale: float = 1.0
    bold: bool = False


class SceneNodes:
    """The nodes of a page.

    Args:
        api: The scene of a viser server.
        shapes: Geoms of the scene.
    """

    def __init__(self, api: Any, shapes: Sequence[Shape]) -> None:
        self._api = api
        self._shapes = shapes
        self._handles: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Whether there is a node of that name that `remove` can remove."""
        return name in self._handles

    def keep(self, name: str, handle: Any) -> None:
        """Remember a node, so that it can be moved and removed."""
        self._handles[name] = handle

    def remove(self, name: str) -> None:
        """Remove a node, if it is there."""
        if name in self._handles:
            self._handles.pop(name).remove()

    def move(self, name: str, pose: np.ndarray) -> None:
        """Put a node at a pose (7,) in the world."""
        set_pose(self._handles[name], pose)

    def add_frame(self, name: str, **options: Any) -> Any:
        """Add a frame without axes, which other nodes hang on, and return it."""
        return self._api.add_frame(name, show_axes=False, **options)

    def add_lines(self, name: str, segments: np.ndarray, *, colour: Colour, width: float) -> None:
        """Draw line segments (N, 2, 3) in the world, `width` pixels wide."""
        handle = self._api.add_line_segments(
            name,
            segments.astype(np.float32),
            np.array(colour),
            thickness=width,
            thickness_units="screen",
        )
        self.keep(name, handle)

    def add_body(self, name: str, body: int, style: MeshStyle) -> None:
        """Draw all shapes of a body under a node."""
        for shape in self._shapes:
            if shape.body == body:
                self.add_shape(f"{name}/{shape.name}", shape, style)

    def add_shape(self, name: str, shape: Shape, style: MeshStyle) -> None:
        """Draw a shape and its edges."""
        middle = shape.vertices.mean(0)
        self._api.add_mesh_simple(
            name,
            middle + style.scale * (shape.vertices - middle),
            shape.faces,
            color=np.array(style.colour),
            opacity=style.opacity,
            flat_shading=True,
            side="double" if style.opacity is None else "front",
        )
        if len(shape.edges):
            brightness = 0.85 if style.bold else 0.6
            self._api.add_line_segments(
                f"{name}/edges",
                middle + style.scale * (shape.edges - middle),
                (brightness * np.array(style.colour)).astype(int),
                thickness=3.5 if style.bold else 1.3,
                thickness_units="screen",
            )

    def add_static_shapes(self, *, cell_width: float, fade_distance: float) -> None:
        """Draw all that does not move; planes become grids with cells of `cell_width` (m)."""
        for shape in self._shapes:
            if shape.moves:
                continue
            name = f"/still/{shape.name}"
            if shape.is_plane:
                self._add_grid(name, shape, cell_width=cell_width, fade_distance=fade_distance)
                continue
            red, green, blue, opacity = shape.colour
            style = MeshStyle(
                colour=(int(255 * red), int(255 * green), int(255 * blue)),
                opacity=None if opacity >= 1 else opacity,
            )
            self.add_shape(name, shape, style)

    def _add_grid(
        self, name: str, shape: Shape, *, cell_width: float, fade_distance: float
    ) -> None:
        """Draw a plane as a grid."""
        corners = shape.vertices
        along_x = corners[1] - corners[0]
        along_y = corners[3] - corners[0]
        width = float(np.linalg.norm(along_x))
        height = float(np.linalg.norm(along_y))
        normal = np.cross(along_x, along_y) / (width * height)
        rotation = np.column_stack([along_x / width, along_y / height, normal])
        self._api.add_grid(
            name,
            width,
            height,
            cell_size=cell_width,
            section_size=_SECTION_CELLS * cell_width,
            cell_color=_CELL_COLOUR,
            section_color=_SECTION_COLOUR,
            plane_color=_TABLE_COLOUR,
            plane_opacity=1.0,
            shadow_opacity=0.18,
            fade_distance=fade_distance,
            wxyz=matrix_to_quaternion(rotation),
            position=corners.mean(0),
        )


def set_pose(handle: Any, pose: np.ndarray) -> None:
    """Put a node of viser at a pose (7,): x y z (m), qw qx qy qz."""
    handle.position = pose[:3]
    handle.wxyz = pose[3:]
