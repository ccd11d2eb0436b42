"""Nodes of the 3D scene, which viser draws: meshes, lines and grids."""

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
_EDGE_BRIGHTNESS = 0.6  # of edges, relative to the colour of the body
_BOLD_EDGE_BRIGHTNESS = 0.85
_EDGE_WIDTH = 1.3  # pixels
_BOLD_EDGE_WIDTH = 3.5  # pixels

Colour = Sequence[int]  # red, green, blue: 0..255


@dataclass(frozen=True)
class MeshStyle:
    """How a body is drawn.

    Attributes:
        colour: Red, green, blue: 0..255.
        opacity: 0..1; None: opaque.
        scale: Factor of the size, about the body's middle. Bodies at the same place are drawn in
            slightly different sizes, because coinciding faces would flicker.
        bold: Whether its edges are thick.
    """

    colour: Colour
    opacity: float | None = None
    scale: float = 1.0
    bold: bool = False


class SceneNodes:
    """The nodes of a page's 3D scene.

    Args:
        api: The scene of a viser server.
        shapes: Geoms of the MuJoCo scene.
    """

    def __init__(self, api: Any, shapes: Sequence[Shape]) -> None:
        self._api = api
        self._shapes = shapes
        self._handles: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Whether a node of that name was kept, so that `remove` can remove it."""
        return name in self._handles

    def keep(self, name: str, handle: Any) -> None:
        """Remember a node, so that it can be moved and removed."""
        self._handles[name] = handle

    def remove(self, name: str) -> None:
        """Remove a node, if it exists."""
        if name in self._handles:
            self._handles.pop(name).remove()

    def move(self, name: str, pose: np.ndarray) -> None:
        """Put a node at a pose (7,) in the world: x y z (m), qw qx qy qz."""
        set_pose(self._handles[name], pose)

    def add_frame(self, name: str, **options: Any) -> Any:
        """Add an invisible coordinate frame, with which its child nodes move, and return it."""
        return self._api.add_frame(name, show_axes=False, **options)

    def add_lines(self, name: str, segments: np.ndarray, *, colour: Colour, width: float) -> None:
        """Draw line segments (N, 2, 3) in m, world, `width` pixels wide."""
        handle = self._api.add_line_segments(
            name,
            segments.astype(np.float32),
            np.array(colour),
            thickness=width,
            thickness_units="screen",
        )
        self.keep(name, handle)

    def add_body(self, name: str, body: int, style: MeshStyle) -> None:
        """Draw all shapes of a body, by its number in MuJoCo, as children of a node."""
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
            brightness = _BOLD_EDGE_BRIGHTNESS if style.bold else _EDGE_BRIGHTNESS
            self._api.add_line_segments(
                f"{name}/edges",
                middle + style.scale * (shape.edges - middle),
                (brightness * np.array(style.colour)).astype(int),
                thickness=_BOLD_EDGE_WIDTH if style.bold else _EDGE_WIDTH,
                thickness_units="screen",
            )

    def add_static_shapes(self, *, cell_width: float, fade_distance: float) -> None:
        """Draw all shapes that do not move; planes become grids.

        Args:
            cell_width: Width of the grids' cells, m.
            fade_distance: Distance (m) from the camera at which grids fade out.
        """
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
        """Draw a plane as a grid; its vertices are the corners (4, 3), in order."""
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
