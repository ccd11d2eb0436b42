"""Trajectory: one body of one trial as smooth coordinates of its mass centre, and back.

Coordinates are x, y, yaw in the plane, and position and rotation vector in space. They describe the
mass centre, not the recorded origin, because it is the mass centre that slides straight and flies
on a parabola.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.trials import Trial

_MAX_NORM_ERROR = 0.1  # of a quaternion's length: beyond it the frame is not used
_UNWRAP_ANGLE = 1.5  # rad: a shorter rotation vector is far from half a turn, where they jump


@dataclass(frozen=True, eq=False)
class MotionFrame:
    """The axes, and the point of the body, by which a motion is described.

    Attributes:
        plane: Rows e1, e2, n (3, 3) of the plane in world axes, or None in space.
        centre: Mass centre (3,) in the body's frame, m; in the plane, of a body that only rotates
            about an axis, a point of that axis.
        rotation: The body's orientation (3, 3) at yaw 0.
        gravity: Acceleration (3,) that is subtracted from motion in space, m/s^2, world axes.
    """

    plane: np.ndarray | None
    centre: np.ndarray
    rotation: np.ndarray
    gravity: np.ndarray

    @property
    def planar(self) -> bool:
        """Whether motion is described in a plane."""
        return self.plane is not None


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The frames in which a body was seen.

    Attributes:
        t: Times (n,), s.
        centre: Mass centre (n, 3), m, world axes.
        orientations: Orientations (n,) of the body, body to world axes.
        frame: In which axes the motion is described.
    """

    t: np.ndarray
    centre: np.ndarray
    orientations: Rotation
    frame: MotionFrame

    @staticmethod
    def of(trial: Trial, body: str, frame: MotionFrame) -> Trajectory:
        """The frames in which a trial saw a body with a valid quaternion."""
        t, pose = trial.seen(body)
        norm = np.linalg.norm(pose[:, 3:], axis=1)
        valid = np.abs(norm - 1) < _MAX_NORM_ERROR
        t = t[valid]
        pose = pose[valid]
        if len(t) == 0:
            return Trajectory(t, pose[:, :3], Rotation.identity(0), frame)
        orientations = Rotation.from_quat(pose[:, 3:], scalar_first=True)
        centre = pose[:, :3] + orientations.apply(frame.centre)
        return Trajectory(t, centre, orientations, frame)

    def __len__(self) -> int:
        return len(self.t)

    @property
    def frame_duration(self) -> float:
        """Usual time between two frames, s."""
        return float(np.median(np.diff(self.t)))

    def coordinates(self, reference: float) -> np.ndarray:
        """Smooth coordinates of the mass centre.

        Args:
            reference: Time (s) at which the coordinates in space are defined: rotations are taken
                against the orientation near it, and the fall since then is subtracted.

        Returns:
            (n, 3) x, y, yaw in the plane, or (n, 6) position and rotation vector in space.
        """
        plane = self.frame.plane
        if plane is not None:
            zero_rotation = Rotation.from_matrix(self.frame.rotation)
            quaternion = (self.orientations * zero_rotation.inv()).as_quat(scalar_first=True)
            half_yaw = np.arctan2(quaternion[:, 1:] @ plane[2], quaternion[:, 0])
            yaw = np.unwrap(2 * half_yaw)
            return np.column_stack([self.centre @ plane[:2].T, yaw])
        without_fall = self._without_fall(reference)
        relative = self.orientations * self._orientation_near(reference).inv()
        return np.column_stack([without_fall, _unwrap_rotation_vectors(relative.as_rotvec())])

    def detection_coordinates(self) -> np.ndarray:
        """Coordinates (n, 3) in which impacts are looked for.

        These are x, y, yaw in the plane, and the position only in space, since tumbling is not
        smooth enough to show a jump.
        """
        if self.frame.planar:
            return self.coordinates(reference=0.0)  # which has no effect in the plane
        return self._without_fall(self.t[0])

    def origin_state(
        self, reference: float, time: float, *, coordinates: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pose and twist of the body's origin, which is what was recorded.

        Args:
            reference: The `reference` (s) with which `coordinates` were computed.
            time: Time (s) of the state.
            coordinates: Coordinates (k,) of the mass centre at `time`.
            rate: Their rates (k,) per second.

        Returns:
            Pose (3,) and twist (3,) in the plane's axes, or pose (7,) and twist (6,) in world axes.
        """
        if self.frame.plane is not None:
            return self._planar_origin_state(self.frame.plane, coordinates, rate)
        orientation = Rotation.from_rotvec(coordinates[3:]) * self._orientation_near(reference)
        arm = orientation.apply(self.frame.centre)
        angular_velocity = _left_jacobian(coordinates[3:]) @ rate[3:]
        fall_velocity = self.frame.gravity * (time - reference)
        position = coordinates[:3] + 0.5 * fall_velocity * (time - reference) - arm
        quaternion = orientation.as_quat(scalar_first=True, canonical=True)
        velocity = rate[:3] + fall_velocity - np.cross(angular_velocity, arm)
        return np.concatenate([position, quaternion]), np.concatenate([velocity, angular_velocity])

    def _planar_origin_state(
        self, plane: np.ndarray, coordinates: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pose (3,) and twist (3,) of the origin for coordinates x, y, yaw of the mass centre."""
        x, y, yaw = coordinates
        vx, vy, yaw_rate = rate
        # From the origin to the mass centre: first at yaw 0, then at this yaw.
        arm_x, arm_y = plane[:2] @ (self.frame.rotation @ self.frame.centre)
        cos = np.cos(yaw)
        sin = np.sin(yaw)
        arm = np.array([cos * arm_x - sin * arm_y, sin * arm_x + cos * arm_y])
        pose = np.array([x - arm[0], y - arm[1], yaw])
        twist = np.array([vx + yaw_rate * arm[1], vy - yaw_rate * arm[0], yaw_rate])
        return pose, twist

    def _without_fall(self, reference: float) -> np.ndarray:
        """Mass centre (n, 3) with the fall since a reference time subtracted."""
        elapsed = (self.t - reference)[:, None]
        return self.centre - 0.5 * self.frame.gravity * elapsed**2

    def _orientation_near(self, time: float) -> Rotation:
        """The recorded orientation nearest in time."""
        return self.orientations[int(np.argmin(np.abs(self.t - time)))]


def _unwrap_rotation_vectors(vectors: np.ndarray) -> np.ndarray:
    """Continue rotation vectors (n, 3) past half a turn, where their shortest form jumps."""
    out = vectors.copy()
    for i in range(1, len(out)):
        angle = np.linalg.norm(out[i])
        if angle > _UNWRAP_ANGLE:
            axis = out[i] / angle
            whole_turns = np.round((out[i - 1] @ axis - angle) / (2 * np.pi))
            out[i] += 2 * np.pi * whole_turns * axis
    return out


def _left_jacobian(vector: np.ndarray) -> np.ndarray:
    """Matrix (3, 3) from the rate of a rotation vector to the angular velocity in world axes."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    if angle < 1e-6:  # the closed form would divide by zero
        return np.eye(3) + 0.5 * cross
    linear_factor = (1 - np.cos(angle)) / angle**2
    quadratic_factor = (angle - np.sin(angle)) / angle**3
    return np.eye(3) + linear_factor * cross + quadratic_factor * cross @ cross
