"""Where visitors look from."""

from __future__ import annotations

from typing import Any

import numpy as np
import viser

_FIELD_OF_VIEW = 42.0  # degrees
# Directions from the target to the camera, in the axes of the plane that bodies move in.
_FROM_ABOVE = (0.35, -0.95, 1.05)
_FROM_FRONT = (0.15, 0.25, 1.0)


def point_cameras(
    server: viser.ViserServer, positions: np.ndarray, *, plane: np.ndarray, size: float
) -> None:
    """Point all cameras, also those of later visitors, at positions.

    They look from above and a little from the side, at an upright plane from its front.

    Args:
        server: The server of the page.
        positions: What to look at, (N, 3) in m, world.
        plane: Axes (3, 3) of the plane that bodies move in, as rows; the third is its normal.
        size: Bounding radius of the struck body, m.
    """
    low = np.min(positions, 0)
    high = np.max(positions, 0)
    middle = (low + high) / 2
    radius = 0.5 * float(np.linalg.norm(high - low)) + 1.6 * size
    stands_upright = abs(float(plane[2][2])) < 0.5
    direction = np.array(_FROM_FRONT if stands_upright else _FROM_ABOVE) @ plane
    distance = max(6.5 * size, 2.9 * radius) / float(np.linalg.norm(direction))
    sideways = np.cross([0.0, 0.0, 1.0], direction)
    # The panel covers the right of the page: cameras look to the right of the bodies, which then
    # appear on the left.
    target = middle + 0.11 * distance * sideways / float(np.linalg.norm(sideways))
    cameras: list[Any] = [server.initial_camera]
    for client in server.get_clients().values():
        cameras.append(client.camera)
    for camera in cameras:
        camera.position = target + distance * direction
        camera.look_at = target
        camera.fov = float(np.radians(_FIELD_OF_VIEW))
        camera.near = 0.02 * size
