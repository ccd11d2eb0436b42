"""Poses of bodies with planar tags: two solutions per tag, of which motion tells the right one.

A square seen from afar looks the same tilted towards the camera and away from it. Each tag gives
both poses (infinitesimal plane-based pose estimation: Collins and Bartoli, IJCV 2014, section 4.3),
each is refined on the corners of all tags of the body, and the path through the frames is taken
that explains the corners and rotates least from frame to frame (Viterbi).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.data.readers.frames import import_opencv

_MIN_CORNER_NOISE = 0.02  # px
_SAME_ROTATION = 0.02  # rad: closer solutions are one
_MAX_MISFIT = 30.0  # squared misfit over its variance, beyond which more does not count
_STILL_ROTATION = 0.03  # rad between frames that noise alone makes
_ROTATION_RATE = 15.0  # rad/s: a struck body rotates up to about this fast
_MAX_TURN_COST = 30.0


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A pose (4, 4) of a body in the camera, and its squared reprojection error, px^2."""

    pose: np.ndarray
    squared_error: float


@dataclass(frozen=True, eq=False)
class TagPoses:
    """Poses of a body in the camera's axes.

    Attributes:
        pose: Poses (T, 4, 4), m; NaN where no tag of the body was seen.
        error: Reprojection error (T,), root mean square over corners, px; NaN likewise.
        flipped: Whether (T,) the solution with the smaller error was not the one taken.
        margin: By how much the path of the other solutions explains the frames worse, as a
            difference of squared misfits over their variance; infinite where there are none.
        separation: Usual angle between the two solutions, rad; 0 where there is one.
    """

    pose: np.ndarray
    error: np.ndarray
    flipped: np.ndarray
    margin: float
    separation: float


def solve_poses(
    t: np.ndarray,
    seen: Sequence[Mapping[int, np.ndarray]],
    tags: Mapping[int, np.ndarray],
    intrinsics: np.ndarray,
) -> TagPoses:
    """Find the poses of a body in all frames.

    Args:
        t: Times (T,), s.
        seen: Corners (4, 2) in px without distortion, by tag, of each frame.
        tags: Corners (4, 3) of the tags on the body, m, by tag.
        intrinsics: Camera matrix (3, 3), px.

    Returns:
        The poses.
    """
    candidates = []
    numbers = []
    for frame in seen:
        own = {number: corners for number, corners in frame.items() if number in tags}
        candidates.append(_candidates(own, tags, intrinsics))
        numbers.append(8 * len(own))
    poses = np.full((len(seen), 4, 4), np.nan)
    error = np.full(len(seen), np.nan)
    flipped = np.zeros(len(seen), bool)
    rows = [row for row, found in enumerate(candidates) if found]
    if not rows:
        return TagPoses(poses, error, flipped, np.inf, 0.0)
    found = [candidates[row] for row in rows]
    variance = _corner_variance(found, [numbers[row] for row in rows])
    chosen, margin = _best_path(t[rows], found, variance)
    for row, choice in zip(rows, chosen, strict=True):
        taken = candidates[row][choice]
        poses[row] = taken.pose
        error[row] = np.sqrt(taken.squared_error / (numbers[row] / 2))
        flipped[row] = choice > 0  # they are in the order of their errors
    angles = [rotation_angle(pair[0].pose, pair[1].pose) for pair in found if len(pair) == 2]
    separation = float(np.median(angles)) if angles else 0.0
    return TagPoses(poses, error, flipped, margin, separation)


def _candidates(
    seen: Mapping[int, np.ndarray], tags: Mapping[int, np.ndarray], intrinsics: np.ndarray
) -> list[_Candidate]:
    """At most two poses of a body in one frame, the one with the smaller error first."""
    if not seen:
        return []
    cv2 = import_opencv()
    points = np.concatenate([tags[number] for number in seen])
    corners = np.concatenate(list(seen.values()))
    found: list[_Candidate] = []
    for number, tag_corners in seen.items():
        for start in _planar_poses(cv2, tags[number], tag_corners, intrinsics):
            refined = _refine(cv2, start, points, corners, intrinsics)
            if refined is not None:
                found.append(refined)
    found.sort(key=lambda candidate: candidate.squared_error)
    distinct: list[_Candidate] = []
    for candidate in found:
        angles = [rotation_angle(candidate.pose, other.pose) for other in distinct]
        if all(angle > _SAME_ROTATION for angle in angles):
            distinct.append(candidate)
    return distinct[:2]


def _planar_poses(
    cv2: Any, tag: np.ndarray, corners: np.ndarray, intrinsics: np.ndarray
) -> list[np.ndarray]:
    """The two poses (4, 4) of a body that one tag on it gives.

    Args:
        cv2: The module.
        tag: Corners (4, 3) on the body, m.
        corners: Corners (4, 2) in the frame, px.
        intrinsics: Camera matrix (3, 3), px.
    """
    side = float(np.linalg.norm(tag[1] - tag[0]))
    square = side / 2 * np.array([[-1.0, 1, 0], [1, 1, 0], [1, -1, 0], [-1, -1, 0]])
    _, rotations, shifts, _ = cv2.solvePnPGeneric(
        square, corners, intrinsics, None, flags=cv2.SOLVEPNP_IPPE_SQUARE
    )
    tag_to_body = np.eye(4)
    tag_to_body[:3, 0] = (tag[1] - tag[0]) / side
    tag_to_body[:3, 1] = (tag[0] - tag[3]) / side
    tag_to_body[:3, 2] = np.cross(tag_to_body[:3, 0], tag_to_body[:3, 1])
    tag_to_body[:3, 3] = tag.mean(0)
    body_to_tag = np.linalg.inv(tag_to_body)
    return [
        _transform(cv2, rotation, shift) @ body_to_tag
        for rotation, shift in zip(rotations, shifts, strict=True)
        if np.isfinite(rotation).all() and np.isfinite(shift).all()
    ]


def _refine(
    cv2: Any, start: np.ndarray, points: np.ndarray, corners: np.ndarray, intrinsics: np.ndarray
) -> _Candidate | None:
    """The pose next to `start` with the least reprojection error; None if it is no pose."""
    rotation = cv2.Rodrigues(start[:3, :3])[0]
    shift = start[:3, 3:].copy()
    rotation, shift = cv2.solvePnPRefineLM(points, corners, intrinsics, None, rotation, shift)
    pose = _transform(cv2, rotation, shift)
    in_camera = points @ pose[:3, :3].T + pose[:3, 3]
    if not np.isfinite(pose).all() or (in_camera[:, 2] <= 0).any():
        return None
    projected = in_camera @ intrinsics.T
    difference = projected[:, :2] / projected[:, 2:] - corners
    return _Candidate(pose, float((difference**2).sum()))


def _transform(cv2: Any, rotation: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """A matrix (4, 4) from a rotation vector and a shift."""
    out = np.eye(4)
    out[:3, :3] = cv2.Rodrigues(rotation)[0]
    out[:3, 3] = np.ravel(shift)
    return out


def rotation_angle(one: np.ndarray, other: np.ndarray) -> float:
    """Angle in rad between the rotations of two matrices (4, 4)."""
    difference = np.linalg.norm(one[:3, :3] - other[:3, :3])  # 2 sqrt(2) sin(angle / 2)
    return float(2 * np.arcsin(min(difference / np.sqrt(8), 1.0)))


def _corner_variance(found: Sequence[Sequence[_Candidate]], numbers: Sequence[int]) -> float:
    """Variance of a coordinate of a corner, px^2, from the usual error of the best solutions."""
    freedoms = np.array(numbers) - 6.0
    errors = np.array([candidates[0].squared_error for candidates in found])
    # The median of a chi-squared variable (Wilson and Hilferty, PNAS 17, 1931).
    medians = freedoms * (1 - 2 / (9 * freedoms)) ** 3
    return max(float(np.median(errors / medians)), _MIN_CORNER_NOISE**2)


def _best_path(
    t: np.ndarray, found: Sequence[Sequence[_Candidate]], variance: float
) -> tuple[list[int], float]:
    """Choose a solution in each frame.

    Args:
        t: Times (n,) of the frames, s.
        found: The solutions of each frame, one or two.
        variance: Of a coordinate of a corner, px^2.

    Returns:
        Which solution is taken in each frame, and the margin of `TagPoses`.
    """
    misfits = []
    for candidates in found:
        errors = np.array([candidate.squared_error for candidate in candidates])
        misfits.append(np.minimum((errors - errors[0]) / variance, _MAX_MISFIT))
    turns = []
    for i in range(1, len(found)):
        allowed = _STILL_ROTATION + _ROTATION_RATE * (t[i] - t[i - 1])
        angles = [[rotation_angle(a.pose, b.pose) for b in found[i]] for a in found[i - 1]]
        turns.append(np.minimum((np.array(angles) / allowed) ** 2, _MAX_TURN_COST))
    cost = misfits[0]
    came_from = []
    for misfit, turn in zip(misfits[1:], turns, strict=True):
        total = cost[:, None] + turn
        came_from.append(total.argmin(0))
        cost = total.min(0) + misfit
    chosen = [int(cost.argmin())]
    for back in reversed(came_from):
        chosen.append(int(back[chosen[-1]]))
    chosen.reverse()
    if all(len(candidates) == 1 for candidates in found):
        return chosen, np.inf
    other = [
        (1 - choice) if len(m) == 2 else choice for choice, m in zip(chosen, misfits, strict=True)
    ]
    return chosen, _path_cost(other, misfits, turns) - float(cost.min())


def _path_cost(
    path: Sequence[int], misfits: Sequence[np.ndarray], turns: Sequence[np.ndarray]
) -> float:
    """Sum of the costs along a path of solutions."""
    total = float(misfits[0][path[0]])
    for i, turn in enumerate(turns):
        total += float(turn[path[i], path[i + 1]] + misfits[i + 1][path[i + 1]])
    return total
