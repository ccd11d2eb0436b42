"""The cameras of the page's visitors."""

from __future__ import annotations

from typing import Any

import numpy as np
import viser

_FIELD_OF_VIEW = 42.0  # degrees
# Directions from the target to the camera, in the axes of the plane that bodies move in.
_FROM_ABOVE = (0.35, -0.95, 1.05)
_FROM_FRONT = (0.15, 0.25, 1.0)
_MAX_UPRIGHT_COSINE = 0.5  # between a plane's normal and the vertical, where the plane is upright
# In bounding radii of the struck body:
_MARGIN = 1.6  # around the positions
_MIN_DISTANCE = 6.5
_NEAR = 0.02  # what is closer to the camera is not drawn
_DISTANCE_PER_RADIUS = 2.9  # from the camera to the middle, by the radius of what is in view
_SIDEWAYS_SHARE = 0.11  # of the distance, by which cameras look to the right of the middle


def point_cameras(
    server: viser.ViserServer, positions: np.ndarray, *, plane: np.ndarray, size: float
) -> None:
    """Point all cameras, also those of later visitors, at positions.

    Cameras look from above and a little from the side; at an upright plane, from its front.

    Args:
        server: The server of the page.
        positions: Points to be in view, (N, 3) in m, world.
        plane: Axes (3, 3) of the plane that bodies move in, as rows; the third is its normal.
        size: Bounding radius of the struck body, m.
    """
    low = np.min(positions, 0)
    high = np.max(positions, 0)
    middle = (low + high) / 2
    radius = 0.5 * float(np.linalg.norm(high - low)) + _MARGIN * size
    stands_upright = abs(float(plane[2][2])) < _MAX_UPRIGHT_COSINE
    direction = np.array(_FROM_FRONT if stands_upright else _FROM_ABOVE) @ plane
    distance = max(_MIN_DISTANCE * size, _DISTANCE_PER_RADIUS * radius)
    distance /= float(
        np.linalg.norm(direction)
    )  # a multiple of `direction`, which is no unit vector
    sideways = np.cross([0.0, 0.0, 1.0], direction)
    # The panel covers the right of the page: cameras look to the right of the bodies, which then
    # appear on the left.
    target = middle + _SIDEWAYS_SHARE * distance * sideways / float(np.linalg.norm(sideways))
    cameras: list[Any] = [server.initial_camera]
    for client in server.get_clients().values():
        cameras.append(client.camera)
    for camera in cameras:
        camera.position = target + distance * direction
        camera.look_at = target
        camera.fov = float(np.radians(_FIELD_OF_VIEW))
        camera.near = _NEAR * size
