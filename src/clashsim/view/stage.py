"""The scene in 3D: what stands still, the bodies once for each kind of motion, and what is planned.

A kind of motion is recorded, MuJoCo or hybrid. Ghosts are faint bodies at given poses. A frame here
is a node of viser, with which its children move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import viser

from clashsim.core.impacts import MotionBefore
from clashsim.core.outline import outline
from clashsim.core.scene import Scene
from clashsim.rl.corridor_picture import corridor_corners
from clashsim.rl.routes import GOAL_RADIUS, Route
from clashsim.view.camera import point_cameras
from clashsim.view.figures import COLOURS
from clashsim.view.motion import BodyMotion
from clashsim.view.poses import matrix_to_quaternion, world_pose
from clashsim.view.scene_nodes import Colour, MeshStyle, SceneNodes, set_pose
from clashsim.view.session import KINDS
from clashsim.view.shapes import scene_shapes

_KIND_STYLES = {
    "recorded": MeshStyle(COLOURS["recorded"]),
    "MuJoCo": MeshStyle(COLOURS["MuJoCo"], opacity=0.35, scale=1.012),
    "hybrid": MeshStyle(COLOURS["hybrid"], opacity=0.35, scale=1.024),
}
START_COLOUR = (120, 120, 120)  # of the body's ghost where it lies before a strike
_ARROW_COLOUR = (90, 90, 90)
_ARROW_SECONDS = 0.15  # an arrow is as long as the way of the striker in this time
_CORRIDOR_COLOUR = (190, 205, 225)
_MAX_STRIKES = 30  # most arrows that are drawn with a number, and so have to be removed
_MAX_SEGMENTS = 100  # most corridors that are drawn, and so have to be removed
_MAX_SHADOWS = 20  # most ghosts along a route
_CIRCLE_ANGLES = np.linspace(0, 2 * np.pi, 49)  # rad: 48 segments
_RECTANGLE_FACES = np.array([[0, 1, 2], [0, 2, 3]])  # of four corners in order
# In half thicknesses of the struck body: just above its top, which is at 2 where its origin lies on
# the ground.
_TRAIL_HEIGHT = 2.15
_CLOUD_HEIGHT = 2.1
_CLOUD_TINT = 0.45  # 0: white, 1: the colour that is given
# In bounding radii of the struck body:
_FADE_DISTANCE = 40
_GIZMO_SIZE = 1.7
_MAX_ARROW_LENGTH = 3
_ARROW_RADIUS = 0.06
_CORRIDOR_HEIGHT = 0.01
_GOAL_HEIGHT = 0.02
_CORRIDOR_STEP = 1e-5  # m by which each corridor is higher than the last


class Stage:
    """All nodes of the 3D scene.

    Attributes:
        not_drawn: A sentence for each geom that cannot be drawn.
        size: Bounding radius of the struck body, m.
        has_grid: Whether there is a ground with a grid.

    Args:
        server: The server of the page.
        scene: The scene.
        height: Height (m) of the struck body's origin when it lies on the ground; None: as in the
            scene.
    """

    def __init__(
        self, server: viser.ViserServer, scene: Scene, height: float | None = None
    ) -> None:
        self.scene = scene
        self._server = server
        self._height = height
        self._struck = scene.struck_body.body
        needed = {scene.struck, scene.striker}
        if scene.ground:
            needed.add(scene.ground)
        self._shapes, self.not_drawn = scene_shapes(scene.base, needed)
        self._nodes = SceneNodes(server.scene, self._shapes)
        self.size = float(scene.base.geom(scene.struck).rbound[0])
        self.has_grid = any(shape.is_plane and not shape.moves for shape in self._shapes)
        self._nodes.add_static_shapes(
            cell_width=self.cell_width, fade_distance=_FADE_DISTANCE * self.size
        )
        self._kind_frames: dict[str, Any] = {}
        self._body_frames: dict[str, dict[int, Any]] = {}
        for kind in KINDS:
            self._add_kind(kind)
        self.look([scene.struck_body.position])
        self._outline = np.zeros((0, 2))
        if scene.plane is not None:
            self._outline = outline(scene, scene.struck, scene.struck_body)

    @property
    def cell_width(self) -> float:
        """Width of the grid's cells, m: the largest power of ten that is at most `size`."""
        return float(10.0 ** np.floor(np.log10(self.size)))

    def look_at(self, motions: Iterable[BodyMotion]) -> None:
        """Point all cameras at the trails of the struck body."""
        trails = [motion.trail(self._struck) for motion in motions if self._struck in motion.poses]
        if trails:
            self.look(np.concatenate(trails))

    def look(self, positions: Sequence[np.ndarray] | np.ndarray) -> None:
        """Point all cameras, also those of later visitors, at positions (N, 3) in the world.

        Where they look from is described at `point_cameras`.
        """
        plane = self.scene.plane if self.scene.plane is not None else np.eye(3)
        point_cameras(self._server, np.asarray(positions), plane=plane, size=self.size)

    def move_bodies(self, kind: str, motion: BodyMotion, time: float) -> None:
        """Put the bodies of a kind where a motion has them at a time (s) from the contact."""
        for body, pose in motion.at(time).items():
            frame = self._body_frames[kind].get(body)
            if frame is not None:
                set_pose(frame, pose)

    def where(self, kind: str, body: int) -> np.ndarray:
        """Return the world pose (7,) at which a body of a kind is drawn now."""
        frame = self._body_frames[kind][body]
        return np.concatenate([frame.position, frame.wxyz])

    def show(self, kind: str, visible: bool) -> None:
        """Show or hide the bodies and the trail of a kind."""
        self._kind_frames[kind].visible = visible

    def trail(self, kind: str, motion: BodyMotion | None) -> None:
        """Draw the path of the struck body's origin in a motion; None removes it."""
        name = f"/{kind}/trail"
        if motion is None or self._struck not in motion.poses:
            self._nodes.remove(name)
            return
        points = motion.trail(self._struck)
        if self.scene.plane is not None and self.scene.ground is not None:
            # Drawn at one height above the body: simulated bodies hop a little as they slide.
            in_plane = points @ self.scene.plane[:2].T
            points = self._in_world(in_plane) + self._up(_TRAIL_HEIGHT * self._half_thickness)
        segments = np.stack([points[:-1], points[1:]], 1)
        self._nodes.add_lines(name, segments, colour=COLOURS[kind], width=2.5)

    def ghost(
        self, name: str, pose: np.ndarray | None, colour: Colour, *, opacity: float = 0.25
    ) -> None:
        """Draw the struck body at a planar pose (3,), or remove it.

        Args:
            name: Name of the ghost.
            pose: Planar pose of the ghost; None: remove it.
            colour: Red, green, blue: 0..255.
            opacity: 0..1.
        """
        node = f"/{name}"
        if pose is None:
            self._nodes.remove(node)
            return
        if not self._nodes.has(node):
            self._nodes.keep(node, self._nodes.add_frame(node))
            self._nodes.add_body(node, self._struck, MeshStyle(colour, opacity=opacity))
        self._nodes.move(node, world_pose(self.scene, pose, height=self._height))

    def gizmo(self, name: str, pose: np.ndarray, colour: Colour) -> viser.TransformControlsHandle:
        """Draw the struck body with handles that move and rotate it in the plane.

        Args:
            name: Name of the node.
            pose: First planar pose (3,) of the body.
            colour: Red, green, blue: 0..255.

        Returns:
            The handles; their axes are those of the plane, rotated with the body.
        """
        assert self.scene.plane is not None
        handle_pose = self.handle_pose(pose)
        handle = self._server.scene.add_transform_controls(
            name,
            scale=_GIZMO_SIZE * self.size,
            line_width=4.0,
            opacity=0.8,
            depth_test=False,
            active_axes=(True, True, False),
            position=handle_pose[:3],
            wxyz=handle_pose[3:],
        )
        body_in_handle = self.scene.plane @ self.scene.struck_body.rotation
        self._nodes.add_frame(f"{name}/body", wxyz=matrix_to_quaternion(body_in_handle))
        style = MeshStyle(colour, opacity=0.5, scale=1.03, bold=True)
        self._nodes.add_body(f"{name}/body", self._struck, style)
        return handle

    def handle_pose(self, pose: np.ndarray) -> np.ndarray:
        """Return the world pose (7,) of a gizmo's handles for a body at a planar pose (3,)."""
        return world_pose(self.scene, pose, height=self._height, use_plane_axes=True)

    def cloud(self, poses: np.ndarray, colour: Colour) -> None:
        """Draw outlines of the struck body at planar poses (M, 3); M = 0 removes them."""
        if not len(poses):
            self._nodes.remove("/cloud")
            return
        edges = np.stack([self._outline, np.roll(self._outline, -1, 0)], 1)  # (E, 2 ends, 2)
        cos, sin = np.cos(poses[:, 2]), np.sin(poses[:, 2])
        rotations = np.stack([np.stack([cos, -sin], 1), np.stack([sin, cos], 1)], 1)
        placed = np.einsum("mij,ekj->meki", rotations, edges) + poses[:, None, None, :2]
        above_body = self._up(_CLOUD_HEIGHT * self._half_thickness)
        segments = self._in_world(placed.reshape(-1, 2, 2)) + above_body
        light_colour = [int(255 - _CLOUD_TINT * (255 - value)) for value in colour]
        self._nodes.add_lines("/cloud", segments, colour=light_colour, width=1.2)

    def arrows(self, before: np.ndarray) -> None:
        """Draw an arrow for each strike, with numbers where there are several strikes.

        Args:
            before: Both bodies at each contact (K, 12), as in `Impacts.before`; K = 0 removes the
                arrows.
        """
        for k in range(_MAX_STRIKES):
            self._nodes.remove(f"/number/{k}")
        if not len(before):
            self._nodes.remove("/arrows")
            return
        motion = MotionBefore.of(before)
        body, moving = self.scene.striker_body, motion.striker
        if body.fixed:  # where the striker is a wall, the arrow is that of the struck body
            body, moving = self.scene.struck_body, motion.struck
        tip = moving.position
        velocity = moving.velocity
        height = np.zeros(3)
        if self.scene.plane is not None:
            height = self._up(float(body.position @ self.scene.plane[2]))
        longest = _MAX_ARROW_LENGTH * self.size
        tail = tip - np.clip(_ARROW_SECONDS * velocity, -longest, longest)
        arrows = self._in_world(np.stack([tail, tip], 1)) + height
        radius = _ARROW_RADIUS * self.size
        api = self._server.scene
        handle = api.add_arrows(
            "/arrows",
            arrows,
            _ARROW_COLOUR,
            shaft_radius=radius,
            head_radius=2.4 * radius,
            head_length=6 * radius,
        )
        self._nodes.keep("/arrows", handle)
        if len(arrows) > 1:
            for k, position in enumerate(arrows[:, 0]):
                label = api.add_label(f"/number/{k}", str(k + 1), position=position)
                self._nodes.keep(f"/number/{k}", label)

    def route(self, route: Route | None) -> None:
        """Draw the corridors of a route and circles around its sub-goals; None removes them."""
        for k in range(_MAX_SEGMENTS):
            self._nodes.remove(f"/route/{k}")
        self._nodes.remove("/route/goals")
        if route is None:
            return
        circle = GOAL_RADIUS * np.stack([np.cos(_CIRCLE_ANGLES), np.sin(_CIRCLE_ANGLES)], 1)
        goals = []
        for k, (start, end) in enumerate(pairwise(np.asarray(route.points))):
            # At different heights, because coinciding faces would flicker where corridors overlap.
            height = self._up(_CORRIDOR_HEIGHT * self.size + _CORRIDOR_STEP * k)
            handle = self._server.scene.add_mesh_simple(
                f"/route/{k}",
                self._in_world(corridor_corners(start, end)) + height,
                _RECTANGLE_FACES,
                color=_CORRIDOR_COLOUR,
                opacity=0.55,
                side="double",
                cast_shadow=False,
            )
            self._nodes.keep(f"/route/{k}", handle)
            goals.append(np.stack([circle[:-1] + end, circle[1:] + end], 1))
        segments = self._in_world(np.concatenate(goals)) + self._up(_GOAL_HEIGHT * self.size)
        self._nodes.add_lines("/route/goals", segments, colour=COLOURS["target"], width=2.5)

    def shadows(self, poses: np.ndarray, colour: Colour) -> None:
        """Draw faint ghosts at planar poses (M, 3), where the body lay between strikes.

        Ghosts of an earlier call are removed; M = 0 removes all.
        """
        for k in range(_MAX_SHADOWS):
            pose = poses[k] if k < len(poses) else None
            self.ghost(f"between/{k}", pose, colour, opacity=0.12)

    def clear_plan(self) -> None:
        """Remove all that a plan or a strike by hand has drawn."""
        no_colour = ()
        no_poses = np.zeros((0, 3))
        no_strikes = np.zeros((0, 12))
        for name in ("start", "expected"):
            self.ghost(name, None, no_colour)
        self.cloud(no_poses, no_colour)
        self.arrows(no_strikes)

    @property
    def _half_thickness(self) -> float:
        """Half of the height of the struck body's highest point over its origin, m."""
        if self.scene.plane is None:
            return 0.0
        normal_in_body = self.scene.struck_body.rotation.T @ self.scene.plane[2]
        highest = max(
            float((shape.vertices @ normal_in_body).max())
            for shape in self._shapes
            if shape.body == self._struck
        )
        return highest / 2

    def _add_kind(self, kind: str) -> None:
        """Add a frame for a kind of motion, and under it one for each body that moves."""
        self._kind_frames[kind] = self._nodes.add_frame(f"/{kind}")
        self._body_frames[kind] = {}
        for body in sorted({shape.body for shape in self._shapes if shape.moves}):
            name = f"/{kind}/{body}"
            self._body_frames[kind][body] = self._nodes.add_frame(name)
            self._nodes.add_body(name, body, _KIND_STYLES[kind])

    def _in_world(self, points: np.ndarray) -> np.ndarray:
        """Return planar points (..., 2) in the world (..., 3); without a plane, points as given."""
        if self.scene.plane is None:
            return points
        return points @ self.scene.plane[:2]

    def _up(self, height: float) -> np.ndarray:
        """Return a vector (3,) of this length (m) along the normal of the plane."""
        normal = self.scene.plane[2] if self.scene.plane is not None else np.array([0.0, 0.0, 1.0])
        return height * normal
