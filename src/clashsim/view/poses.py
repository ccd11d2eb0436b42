"""Poses in the plane that bodies move in, and the same poses in the world."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.scene import Scene


def planar_pose(scene: Scene, pose: np.ndarray, *, use_plane_axes: bool = False) -> np.ndarray:
    """Return the planar pose of the struck body.

    Args:
        scene: A scene in which bodies move in a plane.
        pose: Pose (7,) in the world: x y z (m), qw qx qy qz.
        use_plane_axes: Whether `pose` is that of the plane's axes moved with the body, as for
            `world_pose`.

    Returns:
        x, y (m), yaw (rad) in the axes of the plane, (3,).
    """
    assert scene.plane is not None
    reference = scene.plane.T if use_plane_axes else scene.struck_body.rotation
    rotation = quaternion_to_matrix(pose[3:]) @ reference.T  # from yaw 0
    forward = scene.plane[:2] @ rotation @ scene.plane[0]  # the plane's x axis after the rotation
    yaw = float(np.arctan2(forward[1], forward[0]))
    return np.array([*(scene.plane[:2] @ pose[:3]), yaw])


def world_pose(
    scene: Scene,
    pose: np.ndarray,
    *,
    height: float | None = None,
    use_plane_axes: bool = False,
) -> np.ndarray:
    """Return the pose in the world of the struck body at a planar pose.

    Args:
        scene: A scene in which bodies move in a plane.
        pose: x, y (m), yaw (rad) in the axes of the plane, (3,).
        height: Height along the plane's normal (m); None: as in the scene.
        use_plane_axes: Return the orientation of the plane's axes (the third is the normal) moved
            with the body, instead of the orientation of the body's own axes.

    Returns:
        x y z (m), qw qx qy qz, (7,).
    """
    assert scene.plane is not None
    body = scene.struck_body
    normal = scene.plane[2]
    if height is None:
        height = float(body.position @ normal)
    position = pose[:2] @ scene.plane[:2] + height * normal
    reference = scene.plane.T if use_plane_axes else body.rotation
    rotation = Rotation.from_rotvec(float(pose[2]) * normal).as_matrix() @ reference
    return np.concatenate([position, matrix_to_quaternion(rotation)])


def quaternion_to_matrix(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix (3, 3) of a quaternion (4,), w first."""
    return Rotation.from_quat(quaternion, scalar_first=True).as_matrix()


def matrix_to_quaternion(matrix: np.ndarray) -> np.ndarray:
    """Return the quaternion (4,), w first, of a rotation matrix (3, 3)."""
    return Rotation.from_matrix(matrix).as_quat(scalar_first=True)
