"""Which parts of recordings are predicted from which frames, and which contacts occur in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import mujoco
import numpy as np

from clashsim.core.joint_params import body_radius
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import ObservedMotion
from clashsim.fit.joint_states import JointStates
from clashsim.fit.motion_problem import Segment

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_STOP_MARGIN = 0.01  # of a joint's range, within which it counts as at its end
_MAX_FRAMES = 240  # of a trial, at which distances are measured
_TOUCHING = 0.01  # radii of the smaller body, below which two bodies count as touching
_FEWEST_START_FRAMES = 6
_START_TIME = 0.1  # s, of the first frames, where nothing touches
_FLIGHT_TIME = 0.3  # s, of the first frames, if contacts follow
_EARLY_TIME = 0.15  # s after the first contact, of a window of its own
_FEWEST_FRAMES = 12  # of a segment


@dataclass(frozen=True, eq=False)
class ContactTimes:
    """When bodies touch in recordings.

    Attributes:
        touching: Names of the contacts that occur.
        first: Index of the first frame of each trial with a contact; the number of frames if there
            is none.
        from_start: Which trials begin in contact.
        stops: Names of the hinges and slides that come to an end of their range.
    """

    touching: frozenset[str]
    first: np.ndarray
    from_start: np.ndarray
    stops: frozenset[str] = frozenset()


def find_contacts(
    scene: MotionScene, motion: ObservedMotion, states: Sequence[JointStates]
) -> ContactTimes:
    """Measure distances between bodies along recordings.

    Args:
        scene: The scene.
        motion: The recordings.
        states: Their joint coordinates.

    Returns:
        Which contacts occur, and when the first one does.
    """
    model = scene.author
    data = mujoco.MjData(model)
    stops = _reached_stops(model, states)
    if model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_CONTACT):
        lengths = np.array([len(trial.t) for trial in motion.trials])
        return ContactTimes(frozenset(), lengths, np.zeros(len(lengths), bool), stops)
    touching: set[str] = set()
    first = []
    for state in states:
        rows = np.unique(np.linspace(0, len(state.qpos) - 1, _MAX_FRAMES).astype(int))
        found = len(state.qpos)
        for row in rows:
            data.qpos[:] = state.qpos[row]
            mujoco.mj_kinematics(model, data)
            touching_now = {name for name in scene.contacts if _touches(scene, data, name)}
            touching |= touching_now
            if touching_now:
                found = min(found, int(row))
        first.append(found)
    starts = np.array(first)
    return ContactTimes(frozenset(touching), starts, starts == 0, stops)


def _reached_stops(model: mujoco.MjModel, states: Sequence[JointStates]) -> frozenset[str]:
    """Names of the hinges and slides that come to an end of their range in recordings."""
    found = set()
    for joint in range(model.njnt):
        if not model.jnt_limited[joint] or int(model.jnt_type[joint]) not in _SCALAR:
            continue
        address = int(model.jnt_qposadr[joint])
        visited = np.concatenate([state.qpos[:, address] for state in states])
        low, high = model.jnt_range[joint]
        margin = _STOP_MARGIN * (high - low)
        if visited.min() < low + margin or visited.max() > high - margin:
            found.add(str(model.joint(joint).name))
    return frozenset(found)


def _touches(scene: MotionScene, data: mujoco.MjData, contact: str) -> bool:
    """Whether two geoms of a contact touch."""
    model = scene.author
    for names in scene.contacts[contact]:
        a, b = (int(model.geom(name).id) for name in names)
        radii = [body_radius(model, int(model.geom_bodyid[g])) for g in (a, b) if _moves(model, g)]
        margin = _TOUCHING * min(radii)
        if mujoco.mj_geomDistance(model, data, a, b, 2 * margin, None) < margin:
            return True
    return False


def contact_depth(scene: MotionScene, data: mujoco.MjData, contact: str) -> float:
    """Largest depth (m) to which geoms of a contact are inside each other, 0 if they are apart.

    Args:
        scene: The scene.
        data: Its kinematics.
        contact: Name of the contact.
    """
    model = scene.author
    deepest = 0.0
    for names in scene.contacts[contact]:
        a, b = (int(model.geom(name).id) for name in names)
        distance = float(mujoco.mj_geomDistance(model, data, a, b, 1e-6, None))
        deepest = max(deepest, -distance)
    return deepest


def _moves(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom's body moves."""
    return int(model.body_weldid[model.geom_bodyid[geom]]) != 0


def whole_trials(
    motion: ObservedMotion, contacts: ContactTimes, longest: float = np.inf
) -> tuple[Segment, ...]:
    """Each trial as one segment that is predicted from its first frames.

    Args:
        motion: The recordings.
        contacts: When bodies touch in them.
        longest: Duration of a segment at most, s.
    """
    segments = []
    for i, trial in enumerate(motion.trials):
        first_contact = int(contacts.first[i])
        touches = first_contact < len(trial.t)
        seconds = _FLIGHT_TIME if touches else _START_TIME
        frames = int(np.searchsorted(trial.t, seconds, side="right"))
        frames = min(frames, first_contact) if touches else frames
        frames = min(max(frames, _FEWEST_START_FRAMES), len(trial.t))
        end = max(int(np.searchsorted(trial.t, longest, side="right")), frames)
        segments.append(Segment(i, 0, min(end, len(trial.t)), frames))
    return tuple(segments)


def segment_duration(motion: ObservedMotion, segment: Segment) -> float:
    """Duration of a segment, s.

    Args:
        motion: The recordings.
        segment: The segment.
    """
    t = motion.trials[segment.trial].t
    return float(t[segment.first + segment.frames - 1] - t[segment.first])


def segments_of(
    motion: ObservedMotion, whole: Sequence[Segment], seconds: float
) -> tuple[Segment, ...]:
    """Trials cut into segments of about the same duration, for motion without contact.

    Args:
        motion: The recordings.
        whole: The trials as segments.
        seconds: Duration of a segment.
    """
    segments = []
    for segment in whole:
        trial = motion.trials[segment.trial]
        duration = float(trial.t[-1])
        parts = max(1, min(round(duration / seconds), segment.frames // (2 * _FEWEST_FRAMES)))
        edges = np.searchsorted(trial.t, np.linspace(0, duration, parts + 1) - 1e-9)
        for first, last in pairwise(edges):
            frames = int(last - first) + 1
            if frames < _FEWEST_FRAMES and parts > 1:
                continue
            start = min(segment.start_frames, frames)
            segments.append(Segment(segment.trial, int(first), min(frames, len(trial.t)), start))
    return tuple(segments)


def shortened(
    motion: ObservedMotion, segments: Sequence[Segment], ends: np.ndarray
) -> tuple[Segment, ...]:
    """Segments that end at given times (n,), s from their first frame, or earlier."""
    found = []
    for segment, end in zip(segments, ends, strict=True):
        t = motion.trials[segment.trial].t
        last = int(np.searchsorted(t - t[segment.first], end, side="right"))
        frames = int(np.clip(last - segment.first, segment.start_frames, segment.frames))
        found.append(Segment(segment.trial, segment.first, frames, segment.start_frames))
    return tuple(found)


def early_ends(
    motion: ObservedMotion, segments: Sequence[Segment], contacts: ContactTimes
) -> np.ndarray:
    """Ends (n,) of the windows just after the first contact, s; infinite without contact."""
    ends = []
    for segment in segments:
        t = motion.trials[segment.trial].t
        first = int(contacts.first[segment.trial])
        ends.append(t[first] + _EARLY_TIME if first < len(t) else np.inf)
    return np.array(ends)
