"""Checks of one stream row by row: its clock, rows without the body, repeated and frozen frames,
single frames elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clashsim.data.checks.findings import Finding, finding
from clashsim.data.readers.streams import Stream

GAP = 3.5  # times the usual step between rows
FREEZE, JUMP, TURN = 0.002, 0.005, 0.1  # m, m, rad: less than this is noise or motion


def clock(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Times that rise: rows without a time, at a time already seen or before it are taken out."""
    t, found = stream.t, []
    if (bad := np.flatnonzero(~np.isfinite(t))).size:
        found.append(
            finding(
                "time_missing",
                "warn",
                trial,
                stream.body,
                bad,
                f"{bad.size} of {t.size} rows have no time and are left out",
            )
        )
    latest = np.fmax.accumulate(np.where(np.isfinite(t), t, -np.inf))
    before = np.concatenate([[-np.inf], latest[:-1]])
    back = np.flatnonzero(t < before)
    if back.size:
        sentence = f"time runs backwards at row {back[0]} (by {before[back[0]] - t[back[0]]:.4g} s) and {back.size - 1} more rows"
        found.append(finding("time_backwards", "stop", trial, stream.body, back, sentence))
    same = np.flatnonzero(t == before)
    if same.size:
        found.append(
            finding(
                "time_repeated",
                "warn",
                trial,
                stream.body,
                same,
                f"{same.size} of {t.size} rows have the time of an earlier row and are left out",
            )
        )
    keep = np.isfinite(t) & (t > before)
    stream = replace(
        stream,
        t=t[keep],
        pose=stream.pose[keep],
        angles=None if stream.angles is None else stream.angles[keep],
    )
    step = np.diff(stream.t)
    if step.size:
        usual = float(np.median(step))
        if not 2e-5 <= usual <= 0.4:
            sentence = f"rows are {usual:.3g} s apart, which no recording of contact is; check the unit of time (ms, us or ns for s?)"
            found.append(finding("time_unit", "stop", trial, stream.body, (), sentence))
        gaps = np.flatnonzero(step > GAP * usual)
        if gaps.size:
            found.append(
                finding(
                    "time_gap",
                    "warn",
                    trial,
                    stream.body,
                    gaps,
                    f"{gaps.size} gaps in time, the longest {step.max():.3g} s where {usual:.3g} s is usual",
                )
            )
    return stream, found


def lost(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Rows at which the body was not seen become NaN: blanks, infinite numbers, zero quaternions,
    and the exact origin when the rest lies elsewhere.
    """
    pose, found = stream.pose.copy(), []
    pose[~np.isfinite(pose).all(1)] = np.nan
    norm = np.linalg.norm(pose[:, 3:], axis=1)
    pose[norm < 1e-6] = np.nan
    zero = (pose[:, :3] == 0).all(1)
    seen = np.isfinite(pose).all(1)
    if (
        zero.any()
        and (seen & ~zero).any()
        and np.linalg.norm(np.median(pose[seen & ~zero, :3], axis=0)) > 0.02
        and zero.sum() > 1
    ):
        pose[zero] = np.nan
    seen = np.isfinite(pose).all(1)
    away = np.flatnonzero(~seen)
    if not seen.any():
        found.append(
            finding("never_seen", "stop", trial, stream.body, (), "the body is seen in no row")
        )
    elif away.size:
        found.append(
            finding(
                "dropout",
                "warn",
                trial,
                stream.body,
                away,
                f"the body is not seen in {away.size} of {seen.size} rows",
            )
        )
    norm = np.linalg.norm(pose[:, 3:], axis=1)
    with np.errstate(invalid="ignore"):
        off = np.flatnonzero(np.abs(norm - 1) > 0.02)
    if off.size:
        many = off.size > 0.1 * seen.sum()
        sentence = (
            f"{off.size} of {seen.sum()} quaternions are not of length 1 (row {off[0]}: {norm[off[0]]:.4g})"
            + ("" if many else "; they count as not seen")
        )
        found.append(
            finding(
                "quaternion_norm", "stop" if many else "warn", trial, stream.body, off, sentence
            )
        )
        if not many:
            pose[off] = np.nan
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1)[:, None]
    return replace(stream, pose=_steady_sign(pose)), found


def frames(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Repeated and frozen frames, and single frames elsewhere, become NaN: each would spoil speeds."""
    found: list[Finding] = []
    pose = stream.pose.copy()
    rows = np.flatnonzero(np.isfinite(pose).all(1))
    if rows.size < 4:
        return stream, found
    seen = pose[rows]
    starts = np.flatnonzero(np.concatenate([[True], (seen[1:] != seen[:-1]).any(1)]))
    lengths = np.diff(np.append(starts, len(seen)))
    # A logger twice as fast as its stream shows every frame twice; a body at rest in a simulator is
    # one long run.
    usual = max(3, 2 * int(np.percentile(lengths, 75))) if len(lengths) >= 8 else 3
    again, frozen = np.zeros(len(seen), bool), np.zeros(len(seen), bool)
    for start, length in zip(starts[lengths > 1], lengths[lengths > 1], strict=True):
        run = slice(start + 1, start + length)
        if length <= usual:
            again[run] = True
        elif start + length + 1 < len(seen):
            out, after = (
                float(np.linalg.norm(seen[i + 1, :3] - seen[i, :3]))
                for i in (start + length - 1, start + length)
            )
            frozen[run] = out > max(
                FREEZE, 3 * after
            )  # a body at rest leaves with a step like the next one, a lost body catches up at once
    if again.any():
        found.append(
            finding(
                "repeated_frames",
                "warn",
                trial,
                stream.body,
                rows[again],
                f"{again.sum()} of {len(seen)} rows repeat the frame before and count as not seen",
            )
        )
    if frozen.any():
        found.append(
            finding(
                "freeze",
                "warn",
                trial,
                stream.body,
                rows[frozen],
                f"the body is frozen for {frozen.sum()} rows and then catches up; they count as not seen",
            )
        )
    pose[rows[again | frozen]] = np.nan
    single, step = _jumps(
        pose[np.isfinite(pose).all(1)], np.flatnonzero(np.isfinite(pose).all(1)), stream.t
    )
    if single.size:
        sentence = f"{single.size} single frames lie elsewhere than their neighbours (the first in row {single[0]}) and count as not seen"
        found.append(finding("jump", "warn", trial, stream.body, single, sentence))
        pose[single] = np.nan
    if step.size:
        found.append(
            finding(
                "jump",
                "warn",
                trial,
                stream.body,
                step,
                f"the body jumps and stays there, {step.size} times (the first in row {step[0]})",
            )
        )
    return replace(stream, pose=pose), found


def _jumps(pose: np.ndarray, rows: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of single frames that lie elsewhere, and rows after a step no body makes."""
    none = np.empty(0, int)
    if len(pose) < 6:
        return none, none
    single = np.zeros(len(pose), bool)
    place, turn = pose[:, :3], pose[:, 3:]
    step = np.linalg.norm(np.diff(place, axis=0), axis=1)
    angle = 2 * np.arccos(np.clip(np.abs((turn[1:] * turn[:-1]).sum(1)), 0, 1))
    over = np.linalg.norm(place[2:] - place[:-2], axis=1)
    around = 2 * np.arccos(np.clip(np.abs((turn[2:] * turn[:-2]).sum(1)), 0, 1))
    for steps, across, least in ((step, over, JUMP), (angle, around, TURN)):
        both = np.minimum(steps[:-1], steps[1:])
        # Out and back at once, while the steps beside it are small: a bounce comes in as fast as it
        # leaves.
        beside = np.maximum(np.concatenate([[0.0], steps[:-2]]), np.concatenate([steps[2:], [0.0]]))
        single[1:-1] |= both > np.maximum.reduce(
            [
                np.full(both.shape, least),
                4 * across,
                4 * beside,
                np.full(both.shape, 4 * np.median(steps)),
            ]
        )
    fast = step / np.diff(t[rows])
    far = (step > 0.05) & (fast > 30) & (step > 10 * np.median(step))
    stay = np.flatnonzero(far & ~single[1:] & ~single[:-1]) + 1
    return rows[single], rows[stay]


def _steady_sign(pose: np.ndarray) -> np.ndarray:
    """Of a quaternion and its negative, which are one turn, the one nearer to the row before; the
    first has its largest number positive, w if it is not small.
    """
    seen = np.isfinite(pose).all(1)
    if seen.any():
        turn = pose[seen, 3:]
        first = turn[0, 0] if abs(turn[0, 0]) > 0.1 else turn[0, np.argmax(np.abs(turn[0]))]
        sign = np.where((turn[1:] * turn[:-1]).sum(1) < 0, -1.0, 1.0)
        pose[seen, 3:] = (
            turn * np.cumprod(np.concatenate([[1.0 if first >= 0 else -1.0], sign]))[:, None]
        )
    return pose
