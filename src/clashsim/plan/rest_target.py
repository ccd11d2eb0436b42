"""Where a body in space should come to rest, and how far poses at rest are from that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError, did_you_mean

# Axes of a body by the names that users give them.
BODY_AXES = {
    "x": (1.0, 0.0, 0.0),
    "-x": (-1.0, 0.0, 0.0),
    "y": (0.0, 1.0, 0.0),
    "-y": (0.0, -1.0, 0.0),
    "z": (0.0, 0.0, 1.0),
    "-z": (0.0, 0.0, -1.0),
}
_MAX_COORDINATE = 100.0  # m or rad: a larger value is a mistake in units
_MAX_ANGLE = math.pi
# Loss of a body that has not come to rest: more than that of one 1000 tolerances away.
_NOT_AT_REST = 20.0


@dataclass(frozen=True)
class RestTarget:
    """A place on the ground, with or without the orientation there.

    Attributes:
        position: x, y (m) of the body's origin, world.
        yaw: rad, rotation about the vertical from the orientation at yaw zero; None for any.
        up: Name in `BODY_AXES` of the axis of the body that should point up; None for any, unless
            a yaw is given: then it is the one that points up in `reference`.
        reference: (9,), rotation matrix of the body in its scene, row by row.
        tolerance: Distance (m) and angle (rad) within which the target counts as reached.
    """

    position: tuple[float, float]
    yaw: float | None = None
    up: str | None = None
    reference: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    tolerance: tuple[float, float] = (0.05, 0.35)

    def __post_init__(self) -> None:
        numbers = [*self.position, 0.0 if self.yaw is None else self.yaw]
        is_finite = len(numbers) == 3 and all(map(math.isfinite, numbers))
        if not is_finite or max(map(abs, numbers)) > _MAX_COORDINATE:
            raise DataError(
                "a target is two finite numbers x, y (m) and possibly a yaw (rad), "
                f"none beyond {_MAX_COORDINATE:g}, got {self.position} and {self.yaw}"
            )
        if self.up is not None and self.up not in BODY_AXES:
            raise DataError(
                f"the body has no axis {self.up!r} to point up; {did_you_mean(self.up, BODY_AXES)}"
            )
        distance, angle = self.tolerance
        if not (0 < distance < math.inf and 0 < angle <= _MAX_ANGLE):
            raise DataError(
                "tolerances are a distance above zero and an angle of up to 180 degrees, "
                f"got {distance:g} m and {math.degrees(angle):g} degrees"
            )

    def errors(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far poses at rest are from the target.

        Args:
            pose: (N, 7), positions (m) and quaternions wxyz.

        Returns:
            Distance (N,), m, and angle (N,), rad: the larger one of tilt and yaw error; zero where
            any orientation will do.
        """
        distance = np.linalg.norm(pose[:, :2] - np.array(self.position), axis=1)
        if self.up is None and self.yaw is None:
            return distance, np.zeros(len(pose))
        rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True).as_matrix()
        upright = self._at_zero_yaw()
        rotation_from_zero = (
            rotation @ upright.T
        )  # from the orientation at yaw zero to the present one
        tilt = np.arccos(np.clip(rotation_from_zero[:, 2, 2], -1.0, 1.0))
        if self.yaw is None:
            return distance, tilt
        return distance, np.maximum(tilt, np.abs(wrap_angle(_yaw(rotation_from_zero) - self.yaw)))

    def yaw_of(self, pose: np.ndarray) -> np.ndarray:
        """Yaws (N,), rad, of poses (N, 7) from the orientation at yaw zero."""
        rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True).as_matrix()
        return _yaw(rotation @ self._at_zero_yaw().T)

    def is_reached(self, pose: np.ndarray, at_rest: np.ndarray) -> np.ndarray:
        """Whether bodies (N,) have come to rest within the tolerance, at poses (N, 7)."""
        distance, angle = self.errors(pose)
        within = (distance <= self.tolerance[0]) & (angle <= self.tolerance[1])
        reached: np.ndarray = within & at_rest
        return reached

    def loss(self, pose: np.ndarray, at_rest: np.ndarray) -> np.ndarray:
        """Losses (N,) of poses at rest (N, 7).

        It grows with the logarithm of the error in tolerances, so that a throw that mostly ends at
        the target is preferred to one that is never far off and never there.
        """
        distance, angle = self.errors(pose)
        loss = np.log1p((distance / self.tolerance[0]) ** 2)
        loss += np.log1p((angle / self.tolerance[1]) ** 2)
        return loss + np.where(at_rest, 0.0, _NOT_AT_REST)

    def _at_zero_yaw(self) -> np.ndarray:
        """Rotation matrix (3, 3) of the body at yaw zero, with the wanted axis up."""
        if self.up is None:
            return np.array(self.reference).reshape(3, 3)
        axis = np.array(BODY_AXES[self.up])
        if axis[2] < 0:  # half a turn: about x
            return np.diag([1.0, -1.0, -1.0])
        cosine = axis[2]
        across = np.cross(axis, [0.0, 0.0, 1.0])
        angle = np.arccos(cosine)
        return Rotation.from_rotvec(angle * across).as_matrix()


def axis_up(pose: np.ndarray) -> np.ndarray:
    """Names (N,) of the body axes that point up most, at poses (N, 7)."""
    rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True).as_matrix()
    axes = np.array(list(BODY_AXES.values()))
    height = rotation[:, 2, :] @ axes.T
    found: np.ndarray = np.array(list(BODY_AXES))[height.argmax(1)]
    return found


def _yaw(rotation: np.ndarray) -> np.ndarray:
    """The part of rotations (N, 3, 3) that is about the vertical, (N,), rad."""
    angle: np.ndarray = np.arctan2(
        rotation[:, 1, 0] - rotation[:, 0, 1], rotation[:, 0, 0] + rotation[:, 1, 1]
    )
    return angle
