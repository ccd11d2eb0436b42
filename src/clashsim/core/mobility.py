"""How the body of a geom moves: fixed, on slides and a hinge, or free; poses and twists in and out
of MuJoCo's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import SceneError

_FREE, _BALL, _SLIDE, _HINGE = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class Mobility:
    """The root body that carries a geom, its joints and its reference pose (world axes, metres)."""

    body: int
    name: str
    free: bool
    slides: np.ndarray  # (s, 3) unit axes of the slide joints, world
    hinge: np.ndarray | None  # (3,) unit axis of the hinge joint through the body's origin, world
    qpos: np.ndarray  # indices of the body's coordinates in qpos: free 7, else slides then hinge
    qvel: np.ndarray  # likewise in qvel: free 6
    position: np.ndarray  # (3,) reference position of the body's origin
    rotation: np.ndarray  # (3, 3) reference orientation

    @staticmethod
    def of(model: mujoco.MjModel, geom: str) -> Mobility:
        """Read the mobility of the body that carries `geom`, or say why impacts of it cannot be
        posed.
        """
        carrier = int(model.geom(geom).bodyid[0])
        if int(model.body_mocapid[int(model.body_rootid[carrier])]) >= 0:
            raise SceneError(
                f"geom {geom!r} is carried by a mocap body, which MuJoCo moves without a velocity: give it slide joints and velocity servos instead"
            )
        body = int(model.body_weldid[carrier])
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"body {body}"
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        joints = (
            range(
                int(model.body_jntadr[body]),
                int(model.body_jntadr[body]) + int(model.body_jntnum[body]),
            )
            if body
            else range(0)
        )
        types = [int(model.jnt_type[j]) for j in joints]
        pose = (data.xpos[body].copy(), data.xmat[body].reshape(3, 3).copy())
        if body and int(model.body_weldid[model.body_parentid[body]]) != 0:
            raise SceneError(
                f"geom {geom!r} is carried by {name!r}, a link of a chain; give the struck and striking bodies joints of their own to the world"
            )
        if types == [_FREE]:
            q, v = int(model.jnt_qposadr[joints[0]]), int(model.jnt_dofadr[joints[0]])
            return Mobility(
                body, name, True, np.eye(3), None, np.arange(q, q + 7), np.arange(v, v + 6), *pose
            )
        slides = [j for j in joints if int(model.jnt_type[j]) == _SLIDE]
        hinges = [j for j in joints if int(model.jnt_type[j]) == _HINGE]
        if len(slides) + len(hinges) != len(types) or len(hinges) > 1:
            raise SceneError(
                f"body {name!r} moves by joints that cannot be posed for an impact: use a free joint, or slides and at most one hinge"
            )
        axes = np.array([data.xaxis[j] for j in slides]).reshape(-1, 3)
        if len(axes) and not np.allclose(axes @ axes.T, np.eye(len(axes)), atol=1e-6):
            raise SceneError(f"the slide joints of body {name!r} are not at right angles")
        if hinges and (
            np.abs(data.xanchor[hinges[0]] - pose[0]).max() > 1e-9
            or (len(axes) and np.abs(axes @ data.xaxis[hinges[0]]).max() > 1e-6)
        ):
            raise SceneError(
                f"the hinge of body {name!r} must pass through the body's origin at right angles to its slides"
            )
        order = [*slides, *hinges]
        return Mobility(
            body,
            name,
            False,
            axes,
            data.xaxis[hinges[0]].copy() if hinges else None,
            np.array([int(model.jnt_qposadr[j]) for j in order], int),
            np.array([int(model.jnt_dofadr[j]) for j in order], int),
            *pose,
        )

    @property
    def fixed(self) -> bool:
        """Whether the body belongs to the world."""
        return len(self.qvel) == 0

    @property
    def plane(self) -> np.ndarray | None:
        """Rows (e1, e2, n) of the plane of motion of two slides and a hinge; None otherwise."""
        if self.free or self.hinge is None or len(self.slides) != 2:
            return None
        return np.stack([self.slides[0], np.cross(self.hinge, self.slides[0]), self.hinge])

    def coordinates(self, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """qpos entries (n, len(qpos)) that put the body's origin at position (n, 3) with
        orientation rotation (n, 3, 3), world.
        """
        if self.free:
            return np.concatenate(
                [position, Rotation.from_matrix(rotation).as_quat(scalar_first=True)], axis=1
            )
        out = (position - self.position) @ self.slides.T
        if self.hinge is not None:
            turn = Rotation.from_matrix(rotation @ self.rotation.T).as_rotvec()
            out = np.concatenate([out, turn @ self.hinge[:, None]], axis=1)
        return out

    def rates(self, linear: np.ndarray, angular: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """qvel entries (n, len(qvel)) for a twist of the body's origin: linear, angular (n, 3) in
        world axes.
        """
        if self.free:  # MuJoCo keeps the angular part of a free joint in the body's own axes
            return np.concatenate([linear, np.einsum("nji,nj->ni", rotation, angular)], axis=1)
        out = linear @ self.slides.T
        if self.hinge is not None:
            out = np.concatenate([out, angular @ self.hinge[:, None]], axis=1)
        return out

    def twist(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inverse of `rates`: linear and angular velocity (n, 3) of the body's origin, world axes,
        from whole qpos and qvel rows.
        """
        v = qvel[:, self.qvel]
        if self.free:
            rotation = Rotation.from_quat(qpos[:, self.qpos[3:]], scalar_first=True)
            return v[:, :3], rotation.apply(v[:, 3:])
        linear = v[:, : len(self.slides)] @ self.slides
        angular = v[:, -1:] * self.hinge if self.hinge is not None else np.zeros((len(v), 3))
        return linear.reshape(-1, 3), angular
