"""Motion to be played: poses of bodies over time, recorded or simulated, and the pose at any
moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.scene import Scene
from clashsim.core.trials import Trial

_STILL = 1e-4  # m or rad between frames: what moves less lies still


@dataclass(frozen=True, eq=False)
class BodyMotion:
    """t (T,): s from the touch, rising; poses: for each body by its number, (T, 7) x y z qw qx qy
    qz in the world, m.
    """

    t: np.ndarray
    poses: Mapping[int, np.ndarray]

    def at(self, time: float) -> dict[int, np.ndarray]:
        """Poses (7,) at a moment: between frames in between, before and after them the first and
        the last.
        """
        time = float(np.clip(time, self.t[0], self.t[-1]))
        k = int(np.clip(np.searchsorted(self.t, time) - 1, 0, max(len(self.t) - 2, 0)))
        if len(self.t) == 1:
            return {body: pose[0] for body, pose in self.poses.items()}
        share = (time - self.t[k]) / (self.t[k + 1] - self.t[k])
        out = {}
        for body, pose in self.poses.items():
            a, b = pose[k], pose[k + 1]
            b = np.concatenate(
                [b[:3], b[3:] if a[3:] @ b[3:] >= 0 else -b[3:]]
            )  # a quaternion and its negative are the same turn
            now = (1 - share) * a + share * b
            now[3:] /= np.linalg.norm(now[3:])
            out[body] = now
        return out

    def trail(self, body: int) -> np.ndarray:
        """Where a body's origin went, (T, 3)."""
        return self.poses[body][:, :3]

    def cut(self, body: int, *, after: float = 0.1, away: float = np.inf) -> BodyMotion:
        """The same until `after` seconds after a body has come to rest, or until it has gone `away`
        (m) from where it was at the touch.
        """
        pose = self.poses[body]
        step = np.abs(np.diff(pose[:, :3], axis=0)).max(1) + np.abs(
            np.diff(pose[:, 3:], axis=0)
        ).max(1)
        moving = np.flatnonzero(step > _STILL)
        last = self.t[int(moving[-1]) + 1] if len(moving) else self.t[0]
        gone = (np.linalg.norm(pose[:, :3] - self.at(0.0)[body][:3], axis=1) > away) & (
            self.t > after
        )
        keep = (self.t <= max(last, 0.0) + after) & ~np.logical_or.accumulate(gone)
        return self.only(keep)

    def only(self, rows: np.ndarray) -> BodyMotion:
        """Some frames of it (T,)."""
        return BodyMotion(self.t[rows], {b: p[rows] for b, p in self.poses.items()})

    def then(self, other: BodyMotion) -> BodyMotion:
        """This motion, and another after it."""
        shift = self.t[-1] - other.t[0] + 1e-3
        return BodyMotion(
            np.concatenate([self.t, other.t + shift]),
            {b: np.vstack([p, other.poses[b]]) for b, p in self.poses.items()},
        )


def of_trial(
    scene: Scene, trial: Trial, *, touch: float = 0.0, names: Sequence[str | None] = (None, None)
) -> BodyMotion:
    """A recording as motion, with its time counted from `touch` (s); names: of struck body and
    striker in it, by default the scene's. Drop-outs are bridged.
    """
    poses = {}
    for mobility, name in zip((scene.struck_body, scene.striker_body), names, strict=True):
        name = name or mobility.name
        if mobility.fixed or name not in trial.poses:
            continue
        t, seen = trial.seen(name)
        if len(t):
            turn = (
                seen[:, 3:]
                * np.where(
                    np.cumsum(np.r_[0, np.einsum("ti,ti->t", seen[1:, 3:], seen[:-1, 3:]) < 0]) % 2,
                    -1.0,
                    1.0,
                )[:, None]
            )
            full = np.column_stack(
                [np.interp(trial.t, t, column) for column in np.hstack([seen[:, :3], turn]).T]
            )
            full[:, 3:] /= np.linalg.norm(full[:, 3:], axis=1, keepdims=True)
            poses[mobility.body] = full
    return BodyMotion(trial.t - touch, poses)


def of_states(model: mujoco.MjModel, t: np.ndarray, states: np.ndarray) -> BodyMotion:
    """States (T, s) of a simulation as motion of all bodies that move; t (T,): s. What is not
    finite ends it.
    """
    good = np.isfinite(states).all(1)
    n = len(good) if good.all() else max(1, int(np.argmin(good)))
    data = mujoco.MjData(model)
    bodies = [b for b in range(1, model.nbody) if int(model.body_weldid[b]) == b]
    poses = {b: np.empty((n, 7)) for b in bodies}
    for k in range(n):
        data.qpos[:] = states[k, : model.nq]
        mujoco.mj_kinematics(model, data)
        for b in bodies:
            poses[b][k, :3], poses[b][k, 3:] = data.xpos[b], data.xquat[b]
    return BodyMotion(t[:n], poses)


def flat(scene: Scene, pose: np.ndarray, *, upright: bool = False) -> np.ndarray:
    """Planar pose (3,) x, y (m), yaw (rad) of the struck body at a pose (7,), in the plane's axes;
    upright: as for `solid`.
    """
    assert scene.plane is not None
    turn = Rotation.from_quat(pose[3:], scalar_first=True).as_matrix() @ (
        scene.plane if upright else scene.struck_body.rotation.T
    )
    ahead = scene.plane[:2] @ turn @ scene.plane[0]
    return np.array([*(scene.plane[:2] @ pose[:3]), float(np.arctan2(ahead[1], ahead[0]))])


def solid(
    scene: Scene, pose: np.ndarray, *, height: float | None = None, upright: bool = False
) -> np.ndarray:
    """Pose (7,) in the world of the struck body at a planar pose (3,); height (m) along the plane's
    normal, by default the scene's.

    upright: with the plane's axes in the place of the body's, whose third is the normal.
    """
    assert scene.plane is not None
    body, normal = scene.struck_body, scene.plane[2]
    up = float(body.position @ normal) if height is None else height
    turn = Rotation.from_rotvec(float(pose[2]) * normal).as_matrix() @ (
        scene.plane.T if upright else body.rotation
    )
    return np.concatenate(
        [
            pose[:2] @ scene.plane[:2] + up * normal,
            Rotation.from_matrix(turn).as_quat(scalar_first=True),
        ]
    )
