"""The scene in 3D, as viser draws it: what stands still, the moving bodies once for each kind of
motion, ghosts, arrows and ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import viser

from clashsim.core.impacts import MotionBefore
from clashsim.core.outline import outline
from clashsim.core.scene import Scene
from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS, Route
from clashsim.view.figures import COLOURS
from clashsim.view.motion import BodyMotion, solid
from clashsim.view.session import KINDS
from clashsim.view.shapes import Shape, shapes

_GROW = {
    "recorded": 1.0,
    "MuJoCo": 1.012,
    "hybrid": 1.024,
}  # bodies at the same place would flicker through each other
_OPACITY = {"recorded": None, "MuJoCo": 0.35, "hybrid": 0.35}
_TABLE, _CELL, _SECTION = (248, 248, 246), (238, 238, 235), (214, 214, 208)


class Stage:
    """All scene nodes; `left`: sentences on what could not be drawn."""

    def __init__(
        self, server: viser.ViserServer, scene: Scene, height: float | None = None
    ) -> None:
        """height (m): of the struck body's origin when it lies on the ground."""
        self._height = height
        self.scene, self._server, self._api = scene, server, server.scene
        names = {scene.struck, scene.striker} | ({scene.ground} if scene.ground else set())
        self._shapes, self.left = shapes(scene.base, names)
        self.size = float(scene.base.geom(scene.struck).rbound[0])
        self._handles: dict[str, Any] = {}
        self.grid = any(s.flat and not s.moves for s in self._shapes)
        self._still()
        self._layers = {kind: self._layer(kind) for kind in KINDS}
        self._moving: dict[str, dict[int, Any]] = {
            kind: nodes for kind, (_, nodes) in self._layers.items()
        }
        self.look([scene.struck_body.position])
        self._flat = (
            outline(scene, scene.struck, scene.struck_body)
            if scene.plane is not None
            else np.zeros((0, 2))
        )

    def look_at(self, motions: Iterable[BodyMotion]) -> None:
        """Let visitors look at where the struck body goes."""
        ways = [
            m.trail(self.scene.struck_body.body)
            for m in motions
            if self.scene.struck_body.body in m.poses
        ]
        if ways:
            self.look(np.concatenate(ways))

    def look(self, places: Sequence[np.ndarray] | np.ndarray) -> None:
        """Let visitors, those to come as well, look at a body at places (N, 3), from above and a
        little aside of the plane that bodies move in.
        """
        low, high = np.min(places, 0), np.max(places, 0)
        middle, radius = (low + high) / 2, 0.5 * float(np.linalg.norm(high - low)) + 1.6 * self.size
        plane = self.scene.plane if self.scene.plane is not None else np.eye(3)
        upright = abs(float(plane[2][2])) < 0.5  # a plane that stands is looked at from the front
        way = np.array([0.15, 0.25, 1.0] if upright else [0.35, -0.95, 1.05]) @ plane
        far = max(6.5 * self.size, 2.9 * radius) / float(np.linalg.norm(way))
        aside = np.cross([0.0, 0.0, 1.0], way)
        at = middle + 0.11 * far * aside / float(
            np.linalg.norm(aside)
        )  # the panel covers the right of the page
        cameras: list[Any] = [
            self._server.initial_camera,
            *(client.camera for client in self._server.get_clients().values()),
        ]
        for camera in cameras:
            camera.position, camera.look_at = at + far * way, at
            camera.fov, camera.near = float(np.radians(42.0)), 0.02 * self.size

    def place(self, kind: str, motion: BodyMotion, time: float) -> None:
        """Put the bodies of a kind where they are at a moment."""
        for body, pose in motion.at(time).items():
            node = self._moving[kind].get(body)
            if node is not None:
                node.position, node.wxyz = pose[:3], pose[3:]

    def where(self, kind: str, body: int) -> np.ndarray:
        """Pose (7,) at which a body of a kind is drawn now."""
        node = self._moving[kind][body]
        return np.concatenate([node.position, node.wxyz])

    def show(self, kind: str, visible: bool) -> None:
        """Draw the bodies and the trail of a kind, or do not."""
        self._layers[kind][0].visible = visible

    def trail(self, kind: str, motion: BodyMotion | None) -> None:
        """Draw where the struck body's origin goes."""
        if motion is not None and self.scene.struck_body.body in motion.poses:
            way = motion.trail(self.scene.struck_body.body)
            if (
                self.scene.plane is not None and self.scene.ground is not None
            ):  # on top of the body, and even though it hops a little
                way = self._in_world(way @ self.scene.plane[:2].T) + self._up(2.15 * self._thick)
            self._lines(f"/{kind}/trail", np.stack([way[:-1], way[1:]], 1), COLOURS[kind], 2.5)
        else:
            self._remove(f"/{kind}/trail")

    def ghost(
        self, name: str, pose: np.ndarray | None, colour: Sequence[int], *, opacity: float = 0.25
    ) -> None:
        """Draw the struck body at a planar pose (3,) under a name, or remove it."""
        if pose is None:
            return self._remove(f"/{name}")
        if f"/{name}" not in self._handles:
            self._handles[f"/{name}"] = self._api.add_frame(f"/{name}", show_axes=False)
            self._body(f"/{name}", self.scene.struck_body.body, colour, opacity, 1.0)
        at = solid(self.scene, pose, height=self._height)
        self._handles[f"/{name}"].position, self._handles[f"/{name}"].wxyz = at[:3], at[3:]

    def gizmo(
        self, name: str, pose: np.ndarray, colour: Sequence[int]
    ) -> viser.TransformControlsHandle:
        """The struck body at a planar pose (3,) with handles that move and turn it in the plane;
        their axes are the plane's.
        """
        at, own = self.upright(pose), self.scene.struck_body.rotation
        handle = self._api.add_transform_controls(
            name,
            scale=1.7 * self.size,
            line_width=4.0,
            opacity=0.8,
            depth_test=False,
            active_axes=(True, True, False),
            position=at[:3],
            wxyz=at[3:],
        )
        assert self.scene.plane is not None
        self._api.add_frame(
            f"{name}/body", show_axes=False, wxyz=_quaternion(self.scene.plane @ own)
        )
        self._body(f"{name}/body", self.scene.struck_body.body, colour, 0.5, 1.03, bold=True)
        return handle

    def upright(self, pose: np.ndarray) -> np.ndarray:
        """Pose (7,) of handles for a body at a planar pose (3,)."""
        return solid(self.scene, pose, height=self._height, upright=True)

    def cloud(self, poses: np.ndarray, colour: Sequence[int]) -> None:
        """Outlines of the struck body at planar poses (M, 3)."""
        if not len(poses):
            return self._remove("/cloud")
        loop = np.stack([self._flat, np.roll(self._flat, -1, 0)], 1)
        c, s = np.cos(poses[:, 2]), np.sin(poses[:, 2])
        turn = np.stack([np.stack([c, -s], 1), np.stack([s, c], 1)], 1)
        ends = np.einsum("mij,ekj->meki", turn, loop) + poses[:, None, None, :2]
        light = [int(255 - 0.45 * (255 - v)) for v in colour]
        self._lines(
            "/cloud",
            self._in_world(ends.reshape(-1, 2, 2)) + self._up(2.1 * self._thick),
            light,
            1.2,
        )

    def arrows(self, before: np.ndarray) -> None:
        """How bodies are struck, `before` (K, 12): an arrow as long as the striker goes in 0.15 s,
        numbered where there are several.
        """
        for k in range(3 * 10):
            self._remove(f"/number/{k}")
        if not len(before):
            return self._remove("/arrows")
        fixed = self.scene.striker_body.fixed
        motion = MotionBefore.of(before)
        moving = motion.struck if fixed else motion.striker
        tip, velocity = moving.position, moving.velocity
        body = self.scene.struck_body if fixed else self.scene.striker_body
        height = (
            self._up(float(body.position @ self.scene.plane[2]))
            if self.scene.plane is not None
            else np.zeros(3)
        )
        ends = (
            self._in_world(
                np.stack([tip - np.clip(0.15 * velocity, -3 * self.size, 3 * self.size), tip], 1)
            )
            + height
        )
        r = 0.06 * self.size
        self._handles["/arrows"] = self._api.add_arrows(
            "/arrows", ends, (90, 90, 90), shaft_radius=r, head_radius=2.4 * r, head_length=6 * r
        )
        for k, at in enumerate(ends[:, 0] if len(ends) > 1 else ()):
            self._handles[f"/number/{k}"] = self._api.add_label(
                f"/number/{k}", str(k + 1), position=at
            )

    def route(self, route: Route | None) -> None:
        """Corridors, and circles in which sub-goals count as reached."""
        for k in range(100):
            self._remove(f"/route/{k}")
        self._remove("/route/goals")
        if route is None:
            return
        circle = np.linspace(0, 2 * np.pi, 49)
        ring = GOAL_RADIUS * np.stack([np.cos(circle), np.sin(circle)], 1)
        goals = []
        for k, (a, b) in enumerate(pairwise(np.asarray(route.points))):
            side = CORRIDOR_WIDTH / 2 * np.array([-(b - a)[1], (b - a)[0]]) / np.linalg.norm(b - a)
            corners = self._in_world(
                np.array([[a + side, a - side], [b - side, b + side]])
            ).reshape(4, 3) + self._up(0.01 * self.size + 1e-5 * k)
            self._handles[f"/route/{k}"] = self._api.add_mesh_simple(
                f"/route/{k}",
                corners,
                np.array([[0, 1, 2], [0, 2, 3]]),
                color=(190, 205, 225),
                opacity=0.55,
                side="double",
                cast_shadow=False,
            )
            goals.append(np.stack([ring[:-1] + b, ring[1:] + b], 1))
        self._lines(
            "/route/goals",
            self._in_world(np.concatenate(goals)) + self._up(0.02 * self.size),
            COLOURS["target"],
            2.5,
        )

    def shadows(self, poses: np.ndarray, colour: Sequence[int]) -> None:
        """Faint ghosts of the struck body at planar poses (M, 3), for where it lay between strikes."""
        for k in range(20):
            self.ghost(f"between/{k}", poses[k] if k < len(poses) else None, colour, opacity=0.12)

    @property
    def cell(self) -> float:
        """Width of the grid's cells, m; every fifth line is stronger."""
        return float(10.0 ** np.floor(np.log10(self.size)))

    @property
    def _thick(self) -> float:
        """Half of how high the struck body stands over the plane, m."""
        if self.scene.plane is None:
            return 0.0
        up = np.concatenate(
            [
                s.vertices @ self.scene.struck_body.rotation.T @ self.scene.plane[2]
                for s in self._shapes
                if s.body == self.scene.struck_body.body
            ]
        )
        return float(up.max()) / 2

    def _still(self) -> None:
        cell = self.cell
        for shape in (s for s in self._shapes if not s.moves):
            if shape.flat:
                corner = shape.vertices
                ahead, left = (corner[1] - corner[0]), (corner[3] - corner[0])
                wide, high = float(np.linalg.norm(ahead)), float(np.linalg.norm(left))
                turn = np.column_stack(
                    [ahead / wide, left / high, np.cross(ahead, left) / (wide * high)]
                )
                self._api.add_grid(
                    f"/still/{shape.name}",
                    wide,
                    high,
                    cell_size=cell,
                    section_size=5 * cell,
                    cell_color=_CELL,
                    section_color=_SECTION,
                    plane_color=_TABLE,
                    plane_opacity=1.0,
                    shadow_opacity=0.18,
                    fade_distance=40 * self.size,
                    wxyz=_quaternion(turn),
                    position=corner.mean(0),
                )
            else:
                self._mesh(
                    f"/still/{shape.name}",
                    shape,
                    tuple(int(255 * v) for v in shape.colour[:3]),
                    None if shape.colour[3] >= 1 else shape.colour[3],
                    1.0,
                )

    def _layer(self, kind: str) -> tuple[Any, dict[int, Any]]:
        """A frame for all bodies of a kind, and one for each body that moves."""
        top = self._api.add_frame(f"/{kind}", show_axes=False)
        nodes = {}
        for body in sorted({s.body for s in self._shapes if s.moves}):
            nodes[body] = self._api.add_frame(f"/{kind}/{body}", show_axes=False)
            self._body(f"/{kind}/{body}", body, COLOURS[kind], _OPACITY[kind], _GROW[kind])
        return top, nodes

    def _body(
        self,
        name: str,
        body: int,
        colour: Sequence[int],
        opacity: float | None,
        grow: float,
        *,
        bold: bool = False,
    ) -> None:
        for shape in (s for s in self._shapes if s.body == body):
            self._mesh(f"{name}/{shape.name}", shape, colour, opacity, grow, bold=bold)

    def _mesh(
        self,
        name: str,
        shape: Shape,
        colour: Sequence[int],
        opacity: float | None,
        grow: float,
        *,
        bold: bool = False,
    ) -> None:
        middle = shape.vertices.mean(0)
        self._api.add_mesh_simple(
            name,
            middle + grow * (shape.vertices - middle),
            shape.faces,
            color=np.array(colour),
            opacity=opacity,
            flat_shading=True,
            side="double" if opacity is None else "front",
        )
        if len(shape.edges):
            dark = ((0.85 if bold else 0.6) * np.array(colour)).astype(int)
            self._api.add_line_segments(
                f"{name}/edges",
                middle + grow * (shape.edges - middle),
                dark,
                thickness=3.5 if bold else 1.3,
                thickness_units="screen",
            )

    def _lines(self, name: str, points: np.ndarray, colour: Sequence[int], width: float) -> None:
        self._handles[name] = self._api.add_line_segments(
            name,
            points.astype(np.float32),
            np.array(colour),
            thickness=width,
            thickness_units="screen",
        )

    def _remove(self, name: str) -> None:
        if name in self._handles:
            self._handles.pop(name).remove()

    def _in_world(self, points: np.ndarray) -> np.ndarray:
        """Planar points (..., 2) in the world (..., 3)."""
        return points @ self.scene.plane[:2] if self.scene.plane is not None else points

    def _up(self, height: float) -> np.ndarray:
        return height * (
            self.scene.plane[2] if self.scene.plane is not None else np.array([0.0, 0.0, 1.0])
        )


def _quaternion(turn: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(turn).as_quat(scalar_first=True)


def shown(motions: Mapping[str, BodyMotion]) -> tuple[float, float]:
    """First and last moment (s) of motions that are played together."""
    return min(float(m.t[0]) for m in motions.values()), max(
        float(m.t[-1]) for m in motions.values()
    )
