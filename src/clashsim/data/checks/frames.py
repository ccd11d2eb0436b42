"""Checks of what a stream means: units, angles, quaternion order, which way is up, mirrored axes,
and bodies that change places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.trials import Trial
from clashsim.data.checks.findings import Finding, finding
from clashsim.data.readers.convert import TURNS
from clashsim.data.readers.streams import Stream

G = 9.81


def units(trial: str, streams: Sequence[Stream]) -> list[Finding]:
    """Lengths and angles that are off by a factor."""
    found = []
    reach = {}
    for stream in streams:
        place = stream.pose[np.isfinite(stream.pose).all(1), :3]
        if not len(place):
            continue
        far, span = (
            float(np.median(np.linalg.norm(place, axis=1))),
            float(np.linalg.norm(np.percentile(place, 95, 0) - np.percentile(place, 5, 0))),
        )
        reach[stream.body] = float(np.linalg.norm(place, axis=1).max())
        if far > 30 or span > 20:
            sentence = f"the body is {far:.3g} m from the origin and moves over {span:.3g} m; check the unit of length (mm for m?)"
            found.append(finding("length_unit", "stop", trial, stream.body, (), sentence))
        if stream.angles is not None:
            found += _angles(trial, stream, stream.angles)
    if reach and 0 < max(reach.values()) < 0.005:
        sentence = f"all bodies stay within {1e3 * max(reach.values()):.3g} mm of the origin; check the unit of length (m for mm?)"
        found.append(finding("length_unit", "stop", trial, "", (), sentence))
    return found


def _angles(trial: str, stream: Stream, angles: np.ndarray) -> list[Finding]:
    angles = angles[np.isfinite(angles).all(1)]
    if len(angles) < 3:
        return []
    steps = np.abs(np.diff(angles, axis=0))
    fast = float(np.percentile(steps, 99) / max(float(np.median(np.diff(stream.t))), 1e-9))
    largest = float(np.abs(angles).max())
    if float(np.abs(angles[0]).max()) > 4 * np.pi or (largest > 4 * np.pi and fast > 60):
        return [
            finding(
                "angle_unit",
                "stop",
                trial,
                stream.body,
                (),
                f"angles reach {largest:.4g} rad; check the unit of angle (degrees for radians?)",
            )
        ]
    wrap = (2 * np.pi) ** 2 / 360  # a step of a whole turn in radians, taken for degrees
    if (
        largest <= 1.01 * wrap
        and (np.abs(steps - wrap) < 0.05 * wrap).any()
        and float(np.median(steps)) < 0.1 * wrap
    ):
        sentence = f"angles step by {wrap:.3f} rad, a whole turn in other units; check the unit of angle (radians for degrees?)"
        return [finding("angle_unit", "stop", trial, stream.body, (), sentence)]
    return []


def order(trial: str, stream: Stream) -> list[Finding]:
    """A body that tumbles as read, but only turns about up when its quaternions are read in the
    other order.
    """
    if not stream.turned or stream.angles is not None:
        return []
    turn = np.array(TURNS[stream.up], float)
    read = stream.pose[np.isfinite(stream.pose).all(1), 3:]
    if len(read) < 4:
        return []
    file = np.column_stack(
        [read[:, 0], read[:, 1:] @ turn]
    )  # in the file's own axes, where the numbers can be exchanged
    here = _up(read)
    for other in (file[:, [3, 0, 1, 2]], file[:, [1, 2, 3, 0]]):
        other = np.column_stack([other[:, 0], other[:, 1:] @ turn.T])
        there = _up(other)
        odd = float(np.abs(read[:, 0]).max()) < 0.05 or float(np.median(here[:, 2])) < 0.5
        upright = float(np.percentile(there[:, 2], 5)) > 0.98
        if (
            odd
            and upright
            and _spread(here) > 0.08
            and _spread(there) < min(0.03, 0.1 * _spread(here))
        ):
            sentence = "the body tumbles as read, but only turns about up with the other order of quaternions; check order (xyzw or wxyz)"
            return [finding("quaternion_order", "stop", trial, stream.body, (), sentence)]
        if (
            odd
            and float(np.abs(other[:, 0]).min()) > np.cos(0.1)
            and float(np.abs(read[:, 0]).max()) < np.sin(0.1)
        ):
            sentence = "the body is half a turn from where it was defined, but not turned at all with the other order of quaternions; check order"
            return [finding("quaternion_order", "warn", trial, stream.body, (), sentence)]
    return []


def _up(turn: np.ndarray) -> np.ndarray:
    """The world's up (N, 3) along the body's axes."""
    w, x, y, z = turn.T
    return np.column_stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])


def _spread(directions: np.ndarray) -> float:
    """Angle within which 95 of 100 directions lie about their mean, rad."""
    mean = directions.mean(0)
    mean = mean / max(float(np.linalg.norm(mean)), 1e-9)
    return float(np.percentile(np.arccos(np.clip(directions @ mean, -1, 1)), 95))


def upward(trial: str, stream: Stream) -> list[Finding]:
    """A free fall that is not along -z, or a slide and turn in a plane that stands upright."""
    pose = stream.pose[np.isfinite(stream.pose).all(1)]
    fall = falls(stream)
    if fall is None:
        return _upright_slide(trial, stream, pose) if len(pose) >= 12 else []
    axis, rows = fall
    return (
        []
        if axis in ("", "-z")
        else [
            finding(
                "up_axis",
                "stop",
                trial,
                stream.body,
                rows,
                f"the body falls along {axis}, not along -z; check which axis is up",
            )
        ]
    )


def falls(stream: Stream) -> tuple[str, np.ndarray] | None:
    """The axis along which a body falls freely ("" for a slanted one) and the rows in which it
    does; None when it does not.
    """
    from scipy.signal import savgol_filter

    rows = np.flatnonzero(np.isfinite(stream.pose).all(1))
    t, place = stream.t[rows], stream.pose[rows, :3]
    dt = float(np.median(np.diff(t))) if len(t) >= 12 else 0.0
    size = max(5, 2 * round(0.04 / dt) + 1) if dt > 1e-6 else 0
    if not 0 < 2 * size < len(t):
        return None
    even = np.convolve(np.diff(t) > 1.5 * dt, np.ones(size), "same") < 0.5
    a = savgol_filter(place, size, 2, deriv=2, delta=dt, axis=0)
    off = np.linalg.norm(place - savgol_filter(place, size, 2, axis=0), axis=1)
    free = np.append(even, False) & (np.abs(np.linalg.norm(a, axis=1) - G) < 0.5) & (off < 1e-3)
    free[: size // 2] = free[-(size // 2) :] = False
    ends = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(int), [0]])))
    runs = [
        (i, j) for i, j in zip(ends[::2], ends[1::2], strict=True) if j - i >= max(4, size // 2)
    ]
    if not runs:
        return None
    first, last = max(runs, key=lambda run: run[1] - run[0])
    way = a[first:last].mean(0) / G
    k = int(np.argmax(np.abs(way)))
    return (("-" if way[k] < 0 else "+") + "xyz"[k] if abs(way[k]) > 0.95 else ""), rows[first:last]


def _upright_slide(trial: str, stream: Stream, pose: np.ndarray) -> list[Finding]:
    normal = slides_about(pose)
    if normal in (None, 2):
        return []
    sentence = f"the body moves and turns in a plane that stands upright (about {'xyz'[normal]}); if it slides on a table, another axis is up"
    return [finding("up_axis", "warn", trial, stream.body, (), sentence)]


def slides_about(pose: np.ndarray) -> int | None:
    """The axis (0 to 2) about which a body turns in poses (N, 7) while it moves at right angles to
    it and not along it; None where there is none.

    A body that rolls turns likewise, but stays level in z as well: that z varies much more than the
    axis tells it from one that slides in an upright plane.
    """
    span = np.ptp(pose[:, :3], axis=0)
    first = pose[0, 3:] * [1, -1, -1, -1]
    w = pose[:, 3] * first[0] - pose[:, 4:] @ first[1:]
    v = pose[:, 3, None] * first[1:] + first[0] * pose[:, 4:] + np.cross(pose[:, 4:], first[1:])
    v = v * np.sign(w)[:, None]
    angle = 2 * np.arcsin(np.clip(np.linalg.norm(v, axis=1), 0, 1))
    if angle.max() < 0.1:
        return None
    axis = np.abs(v[np.argmax(angle)]) / np.linalg.norm(v[np.argmax(angle)])
    normal = int(np.argmax(axis))
    level = span[normal] < 0.1 * span[[i for i in range(3) if i != normal]].max()
    if (
        axis[normal] < 0.97
        or not level
        or (normal != 2 and (span[2] < 0.01 or span[2] < 4 * span[normal]))
    ):
        return None
    return normal


def mirrored(trial: str, stream: Stream) -> list[Finding]:
    """A body that turns about a fixed point only when one axis of its positions is mirrored (p = c
    + R r), or whose markers fit as a mirror image only.
    """
    if stream.mirrored > 3:
        sentence = "the markers fit the mirror image of the body, not the body; an axis has the wrong sign, or two markers are exchanged"
        return [finding("mirrored", "stop", trial, stream.body, (), sentence)]
    pose = stream.pose[np.isfinite(stream.pose).all(1)]
    if len(pose) < 12 or not stream.turned:
        return []
    pose = pose[:: max(1, len(pose) // 2000)]
    spread = float(np.linalg.norm(pose[:, :3].std(0)))
    turned = 2 * np.arccos(np.clip(np.abs(pose[:, 3:] @ pose[0, 3:]).min(), 0, 1))
    if turned < 0.5 or spread < 0.01:
        return []
    here, _ = _pivot(pose[:, :3], pose[:, 3:])
    for i, axis in enumerate("xyz"):
        sign = np.where(np.arange(3) == i, -1.0, 1.0)
        there, arm = _pivot(pose[:, :3] * sign, pose[:, 3:])
        if here > 0.2 * spread and there < min(0.05 * spread, 0.2 * here) and arm < 2:
            sentence = f"the body turns about a fixed point only when {axis} is mirrored, so positions and turns are of different hands (flip = {axis!r}?)"
            return [finding("mirrored", "stop", trial, stream.body, (), sentence)]
    return []


def _pivot(place: np.ndarray, turn: np.ndarray) -> tuple[float, float]:
    """Root mean square (m) that p = c + R r leaves over, and the length of r (m)."""
    w, x, y, z = turn.T
    r = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)
    a = np.concatenate([np.broadcast_to(np.eye(3), r.shape), r], 2).reshape(-1, 6)
    best = np.linalg.lstsq(a, place.ravel(), rcond=1e-8)[0]
    return float(np.sqrt(np.mean((a @ best - place.ravel()) ** 2) * 3)), float(
        np.linalg.norm(best[3:])
    )


def swapped(trial: Trial) -> list[Finding]:
    """Rows at which two bodies take each other's place."""
    found = []
    names = list(trial.poses)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            rows = np.flatnonzero(
                np.isfinite(trial.poses[one]).all(1) & np.isfinite(trial.poses[other]).all(1)
            )
            a, b = trial.poses[one][rows, :3], trial.poses[other][rows, :3]
            if len(rows) < 2:
                continue
            stay = np.linalg.norm(np.diff(a, axis=0), axis=1) + np.linalg.norm(
                np.diff(b, axis=0), axis=1
            )
            cross = np.linalg.norm(a[1:] - b[:-1], axis=1) + np.linalg.norm(b[1:] - a[:-1], axis=1)
            at = np.flatnonzero((stay > 0.04) & (cross < 0.3 * stay)) + 1
            if at.size:
                found.append(
                    finding(
                        "swapped",
                        "stop",
                        trial.name,
                        one,
                        rows[at],
                        f"{one!r} and {other!r} take each other's place at {trial.t[rows[at[0]]]:.4g} s",
                    )
                )
    return found
