"""Fits the pose of a rigid body to its markers, frame by frame, by least squares.

A pose is the rotation and shift that bring the markers' known positions on the body closest to the
positions that were seen (Kabsch, Acta Crystallographica A32, 1976).
"""

from __future__ import annotations

import numpy as np

from clashsim.core.errors import DataError

# In a frame with a residual beyond both limits, one marker was taken for another.
_MAX_RESIDUAL = 0.01  # m
_RESIDUAL_FACTOR = 5.0  # times the usual residual
_MIN_MARKERS = 3  # that show a pose
_MIN_EXTENT = 1e-3  # m: markers that extend less in a second direction lie on one line
_MIN_DEPTH_SHARE = 0.05  # of the extent: flatter markers look the same in a mirror
_MIN_MIRROR_RESIDUAL = 1e-3  # m: markers that fit better are not mirrored
_MIN_DIVISOR = 1e-4  # m: smaller residuals of the mirror image are taken as this


def fit_marker_poses(
    points: np.ndarray, positions: np.ndarray | None, name: str
) -> tuple[np.ndarray, float]:
    """Fit the poses of a body to its markers.

    Args:
        points: Markers (T, M, 3) in world axes, m; NaN where they are not seen.
        positions: Markers (M, 3) in the body's axes, m. None to take them from the first frame in
            which all are seen: the body's origin is then in their middle, and its axes are those of
            the world.
        name: Name of the body, for error messages.

    Returns:
        Poses (T, 7), m and wxyz, NaN where fewer than three markers are seen or they do not fit;
        and the residual of the body over that of its mirror image, 0 if that is not known.
    """
    visible = np.isfinite(points).all(2)
    if positions is None:
        positions = _positions_in_first_frame(points, visible, name)
    extents = _extents(positions)
    if extents[1] < _MIN_EXTENT:
        raise DataError(
            f"the markers of body {name!r} lie on one line,"
            " so its rotation about that line is not known"
        )
    pose = np.full((len(points), 7), np.nan)
    residual = np.full(len(points), np.nan)
    mirror_residual = np.full(len(points), np.nan)
    # Frames in which the same markers are visible are fitted together.
    for subset in np.unique(visible, axis=0):
        used = positions[subset]
        if subset.sum() < _MIN_MARKERS or _extents(used)[1] < _MIN_EXTENT:
            continue
        rows = np.flatnonzero((visible == subset).all(1))
        seen = points[rows][:, subset]
        pose[rows], residual[rows], mirror_residual[rows] = _fit_rigid_body(seen, used)
    if not np.isfinite(residual).any():
        return pose, 0.0
    usual = np.nanmedian(residual)
    with np.errstate(invalid="ignore"):
        pose[residual > max(_MAX_RESIDUAL, _RESIDUAL_FACTOR * usual)] = np.nan
    is_solid = extents[2] > _MIN_DEPTH_SHARE * extents[0]
    if not (is_solid and usual > _MIN_MIRROR_RESIDUAL):
        return pose, 0.0
    return pose, float(usual / max(np.nanmedian(mirror_residual), _MIN_DIVISOR))


def _positions_in_first_frame(points: np.ndarray, visible: np.ndarray, name: str) -> np.ndarray:
    """Markers (M, 3) about their middle, in the first frame in which all are seen."""
    complete = np.flatnonzero(visible.all(1))
    if not complete.size:
        raise DataError(
            f"body {name!r} has no frame in which all its {points.shape[1]} markers are seen;"
            " give their places in the mapping"
        )
    first = points[complete[0]]
    return first - first.mean(0)


def _extents(positions: np.ndarray) -> np.ndarray:
    """How far markers (M, 3) extend in three directions (3,), from the longest to the shortest, m.

    These are the singular values of their positions about their middle.
    """
    return np.linalg.svd(positions - positions.mean(0), compute_uv=False)


def _fit_rigid_body(
    points: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit poses to markers that are all seen.

    Args:
        points: Markers (T, M, 3) in world axes, m.
        positions: Markers (M, 3) in the body's axes, m.

    Returns:
        Poses (T, 7), and root mean square distances (T,) in m that the best rotation and the best
        rotation of the mirror image leave.
    """
    from scipy.spatial.transform import Rotation

    middle = points.mean(1)
    body_middle = positions.mean(0)
    seen = points - middle[:, None]
    body = positions - body_middle
    u, singular, vt = np.linalg.svd(np.einsum("tmi,mj->tij", seen, body))
    handedness = np.sign(np.linalg.det(u @ vt))
    correction = np.ones((len(points), 3))
    correction[:, 2] = handedness
    rotation = (u * correction[:, None]) @ vt
    total = (seen**2).sum((1, 2)) + (body**2).sum()
    two_axes = singular[:, 0] + singular[:, 1]
    third_axis = handedness * singular[:, 2]
    squared = total - 2 * (two_axes + third_axis)
    mirror_squared = total - 2 * (two_axes - third_axis)
    quaternion = Rotation.from_matrix(rotation).as_quat()[:, [3, 0, 1, 2]]  # xyzw to wxyz
    pose = np.column_stack([middle - rotation @ body_middle, quaternion])
    count = len(positions)
    residual = np.sqrt(np.maximum(squared, 0) / count)
    mirror_residual = np.sqrt(np.maximum(mirror_squared, 0) / count)
    return pose, residual, mirror_residual
