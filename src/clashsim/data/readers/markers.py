"""A rigid body from its markers: the turn and shift that bring known places on the body closest to
what was seen, frame by frame.
"""

from __future__ import annotations

import numpy as np

from clashsim.core.errors import DataError

# M: a frame whose markers fit worse than this, and much worse than others, has a marker taken for
# another
APART = 0.01


def follow(points: np.ndarray, places: np.ndarray | None, name: str) -> tuple[np.ndarray, float]:
    """Poses (T, 7) m and wxyz of a body from its markers (T, M, 3) m, NaN where fewer than three
    are seen; and how much better the mirror image fits.

    places (M, 3) m are the markers in the body's frame. Without them the first frame with all
    markers gives the body's frame: its origin in their middle, its axes along the world's. Kabsch,
    Acta Crystallographica A32 (1976).
    """
    visible = np.isfinite(points).all(2)
    if places is None:
        whole = np.flatnonzero(visible.all(1))
        if not whole.size:
            raise DataError(
                f"body {name!r} has no frame in which all its {points.shape[1]} markers are seen; give their places in the mapping"
            )
        places = points[whole[0]] - points[whole[0]].mean(0)
    flat = np.linalg.svd(places - places.mean(0), compute_uv=False)
    if flat[1] < 1e-3:
        raise DataError(
            f"the markers of body {name!r} lie on one line, so its turn about that line is not known"
        )
    pose = np.full((len(points), 7), np.nan)
    error = np.full((len(points), 2), np.nan)
    for pattern in np.unique(visible, axis=0):
        rows = np.flatnonzero((visible == pattern).all(1))
        used = places[pattern]
        if pattern.sum() >= 3 and np.linalg.svd(used - used.mean(0), compute_uv=False)[1] >= 1e-3:
            pose[rows], error[rows] = _fit(points[rows][:, pattern], used)
    if not np.isfinite(error).any():
        return pose, 0.0
    proper, mirror = np.nanmedian(error, axis=0)
    with np.errstate(invalid="ignore"):
        pose[error[:, 0] > max(APART, 5 * proper)] = np.nan
    solid = flat[2] > 0.05 * flat[0]  # markers in one plane look the same in a mirror
    return pose, float(proper / max(mirror, 1e-4)) if solid and proper > 1e-3 else 0.0


def _fit(points: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Poses (T, 7), and the root mean square distance (T, 2) m of the best turn and of the best
    mirrored turn.
    """
    from scipy.spatial.transform import Rotation

    middle, centre = points.mean(1), places.mean(0)
    seen, body = points - middle[:, None], places - centre
    u, s, vt = np.linalg.svd(np.einsum("tmi,mj->tij", seen, body))
    hand = np.sign(np.linalg.det(u @ vt))
    fix = np.ones((len(points), 3))
    fix[:, 2] = hand
    turn = (u * fix[:, None]) @ vt
    total = (seen**2).sum((1, 2)) + (body**2).sum()
    both = np.stack(
        [
            total - 2 * (s[:, 0] + s[:, 1] + hand * s[:, 2]),
            total - 2 * (s[:, 0] + s[:, 1] - hand * s[:, 2]),
        ],
        1,
    )
    quaternion = Rotation.from_matrix(turn).as_quat()[:, [3, 0, 1, 2]]
    return np.column_stack([middle - turn @ centre, quaternion]), np.sqrt(
        np.maximum(both, 0) / len(places)
    )
