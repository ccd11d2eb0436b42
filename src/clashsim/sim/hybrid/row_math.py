"""Vector and quaternion arithmetic whose result for a row does not depend on the other rows.

Products are written out by components: matrix products round differently with the number of rows,
and a simulation must give the same bits alone and in a batch.
"""

from __future__ import annotations

import numpy as np


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Scalar products (...,) of vectors (..., 3)."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Vector products (..., 3); numpy's own takes longer to find its axes than to multiply."""
    out = np.empty(np.broadcast_shapes(a.shape, b.shape))
    ax, ay, az = a.T
    bx, by, bz = b.T
    out.T[0] = ay * bz - az * by
    out.T[1] = az * bx - ax * bz
    out.T[2] = ax * by - ay * bx
    return out


def component(vectors: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Components (n,) of vectors (n, 3) along a unit vector (3,)."""
    return vectors[:, 0] * axis[0] + vectors[:, 1] * axis[1] + vectors[:, 2] * axis[2]


def rotate(quaternion: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, 3) rotated by quaternions wxyz (n, 4)."""
    across = 2 * cross(quaternion[:, 1:], vectors)
    return vectors + quaternion[:, :1] * across + cross(quaternion[:, 1:], across)


def rotate_inverse(quaternion: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, 3) rotated by the inverses of quaternions wxyz (n, 4)."""
    return rotate(quaternion * [1, -1, -1, -1], vectors)


def compose_rotation(quaternion: np.ndarray, rotation_vector: np.ndarray) -> np.ndarray:
    """Orientations after a further rotation.

    Args:
        quaternion: (n, 4), wxyz.
        rotation_vector: (n, 3), rad, world axes.

    Returns:
        Unit quaternions (n, 4), wxyz.
    """
    angle = np.sqrt(dot(rotation_vector, rotation_vector))[:, None]
    w = quaternion[:, :1]
    xyz = quaternion[:, 1:]
    added_w = np.cos(angle / 2)
    added_xyz = 0.5 * np.sinc(angle / (2 * np.pi)) * rotation_vector
    out = np.concatenate(
        [
            added_w * w - dot(added_xyz, xyz)[:, None],
            added_w * xyz + w * added_xyz + cross(added_xyz, xyz),
        ],
        axis=1,
    )
    return out / np.sqrt(out[:, :1] ** 2 + dot(out[:, 1:], out[:, 1:])[:, None])
