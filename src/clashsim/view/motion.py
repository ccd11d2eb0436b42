"""Motions that the page plays: poses of bodies over time, recorded or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.scene import Scene
from clashsim.core.trials import Trial

_AT_REST = 1e-4  # m and quaternion units between samples: a body that moves less is at rest
_GAP = 1e-3  # s between two motions that are played one after the other


@dataclass(frozen=True, eq=False)
class BodyMotion:
    """Poses of bodies over time.

    Attributes:
        t: Times (T,) of the samples in s from the contact, rising.
        poses: Poses (T, 7) of each body by its number in MuJoCo: x y z (m), qw qx qy qz, world.
    """

    t: np.ndarray
    poses: Mapping[int, np.ndarray]

    def at(self, time: float) -> dict[int, np.ndarray]:
        """Return the poses (7,) at a time (s) by body, interpolated between samples.

        Before the first sample and after the last one, the poses are those of that sample.
        """
        if len(self.t) == 1:
            return {body: poses[0] for body, poses in self.poses.items()}
        time = float(np.clip(time, self.t[0], self.t[-1]))
        k = int(np.clip(np.searchsorted(self.t, time) - 1, 0, len(self.t) - 2))
        share = (time - self.t[k]) / (self.t[k + 1] - self.t[k])
        interpolated = {}
        for body, poses in self.poses.items():
            earlier = poses[k]
            later = poses[k + 1].copy()
            # A quaternion and its negative are the same rotation: take the one that is closer.
            if earlier[3:] @ later[3:] < 0:
                later[3:] = -later[3:]
            pose = (1 - share) * earlier + share * later
            pose[3:] /= np.linalg.norm(pose[3:])
            interpolated[body] = pose
        return interpolated

    def trail(self, body: int) -> np.ndarray:
        """Return the positions (T, 3) of a body's origin in m, world."""
        return self.poses[body][:, :3]

    def cut(self, body: int, *, after: float = 0.1, max_distance: float = np.inf) -> BodyMotion:
        """Return the motion until a body is at rest, or far away.

        Args:
            body: Number of the body in MuJoCo.
            after: Time (s) that is kept after the body has come to rest; for as long after the
                contact, `max_distance` does not apply.
            max_distance: Distance (m) from the body's position at the contact, beyond which the
                motion is cut off.
        """
        poses = self.poses[body]
        changes = np.abs(np.diff(poses, axis=0))
        change = changes[:, :3].max(1) + changes[:, 3:].max(1)  # of position and orientation
        moving = np.flatnonzero(change > _AT_REST)
        rest_time = self.t[int(moving[-1]) + 1] if len(moving) else self.t[0]
        distance = np.linalg.norm(poses[:, :3] - self.at(0.0)[body][:3], axis=1)
        is_far = (distance > max_distance) & (self.t > after)
        was_far = np.logical_or.accumulate(is_far)
        is_in_time = self.t <= max(rest_time, 0.0) + after
        return self.only(is_in_time & ~was_far)

    def only(self, rows: np.ndarray) -> BodyMotion:
        """Return some of the samples, by a mask (T,)."""
        return BodyMotion(self.t[rows], {body: p[rows] for body, p in self.poses.items()})

    def then(self, other: BodyMotion) -> BodyMotion:
        """Return this motion followed by another one; times remain from the contact of this one."""
        shift = self.t[-1] - other.t[0] + _GAP
        poses = {body: np.vstack([p, other.poses[body]]) for body, p in self.poses.items()}
        return BodyMotion(np.concatenate([self.t, other.t + shift]), poses)


def motion_of_trial(
    scene: Scene,
    trial: Trial,
    *,
    touch_time: float = 0.0,
    names: Sequence[str | None] = (None, None),
) -> BodyMotion:
    """Return a recording as motion; where a body was not seen, its pose is interpolated.

    Args:
        scene: Scene of the recording.
        trial: The recording.
        touch_time: Time of the contact in the recording, s.
        names: Names of struck body and striker in the recording; None: as in the scene.
    """
    poses = {}
    for mobility, name in zip((scene.struck_body, scene.striker_body), names, strict=True):
        name = name or mobility.name
        if mobility.fixed or name not in trial.poses:
            continue
        seen_times, seen = trial.seen(name)
        if len(seen_times):
            rows = np.hstack([seen[:, :3], _with_same_signs(seen[:, 3:])])
            filled = np.column_stack([np.interp(trial.t, seen_times, c) for c in rows.T])
            filled[:, 3:] /= np.linalg.norm(filled[:, 3:], axis=1, keepdims=True)
            poses[mobility.body] = filled
    return BodyMotion(trial.t - touch_time, poses)


def motion_of_states(model: mujoco.MjModel, t: np.ndarray, states: np.ndarray) -> BodyMotion:
    """Return states of a simulation as motion of all bodies that move.

    Args:
        model: The simulated model.
        t: Time (T,) in s from the contact.
        states: States (T, s), qpos first. The motion ends before the first non-finite state.
    """
    is_finite = np.isfinite(states).all(1)
    count = len(states) if is_finite.all() else max(1, int(np.argmin(is_finite)))
    data = mujoco.MjData(model)
    # Bodies that are welded to their parent are left out: they move with it.
    bodies = [body for body in range(1, model.nbody) if int(model.body_weldid[body]) == body]
    poses = {body: np.empty((count, 7)) for body in bodies}
    for k in range(count):
        data.qpos[:] = states[k, : model.nq]
        mujoco.mj_kinematics(model, data)
        for body in bodies:
            poses[body][k, :3] = data.xpos[body]
            poses[body][k, 3:] = data.xquat[body]
    return BodyMotion(t[:count], poses)


def time_range(motions: Mapping[str, BodyMotion]) -> tuple[float, float]:
    """Return the first and the last time (s) of motions that are played together."""
    first = min(float(motion.t[0]) for motion in motions.values())
    last = max(float(motion.t[-1]) for motion in motions.values())
    return first, last


def _with_same_signs(quaternions: np.ndarray) -> np.ndarray:
    """Return the same rotations as quaternions (T, 4) whose signs do not jump between samples."""
    cosines = np.einsum("ti,ti->t", quaternions[1:], quaternions[:-1])
    jumps_so_far = np.cumsum(np.r_[0, cosines < 0])
    return quaternions * np.where(jumps_so_far % 2, -1.0, 1.0)[:, None]
