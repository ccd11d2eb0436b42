"""Ways to set a body in motion, as named numbers: a throw of it, or a strike at it.

Each is a box of numbers to choose, and turns points of the box into states of the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.contact_geometry import PairPoser, advance_to_contact
from clashsim.core.errors import DataError, SceneError
from clashsim.core.impacts import MotionBefore
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

Range = tuple[float, float]  # low, high
UNITS = {
    "speed": "m/s",
    "direction": "rad",
    "lift": "m/s",
    "elevation": "rad",
    "spin_x": "rad/s",
    "spin_y": "rad/s",
    "spin_z": "rad/s",
    "turn": "rad",
    "x": "m",
    "y": "m",
    "z": "m",
    "offset": "m",
    "height": "m",
}
_LEAD_TIME = 0.002  # s, from the start of a simulated strike to the contact
_LEAD_DISTANCE = 0.001  # m, of the striker from the body at the start, at least
_DROPS = 20  # steps in which a body is lowered onto uneven ground
_LOWERED = 1e-5  # m: a body this near to the ground touches it
_SEARCH_DISTANCE = 100.0  # m, within which the ground is looked for


class Launch(Protocol):
    """Numbers that set bodies in motion.

    Attributes:
        kind: "throw" or "strike".
        ranges: Low and high of each number by name, in the units of `UNITS`; a number whose range
            is a single value is not chosen.
        start: (7,), pose of the body that should come to rest, before it is set in motion.
    """

    @property
    def kind(self) -> str: ...

    @property
    def ranges(self) -> Mapping[str, Range]: ...

    @property
    def start(self) -> np.ndarray: ...

    def states(self, numbers: Mapping[str, np.ndarray], twist_noise: np.ndarray) -> np.ndarray:
        """Return the states (N, s) that bodies set in motion start with.

        Args:
            numbers: (N,) each, by the names of `ranges`.
            twist_noise: (N, 6), m/s and rad/s, added to the twist of the body that is moved.
        """


@dataclass(frozen=True, eq=False)
class Throw:
    """A free body is let go with a velocity and a spin.

    Numbers: horizontal `speed` in `direction` (rad, from that of the target), vertical `lift`,
    `spin_x` along that direction, `spin_y` to its left and `spin_z` upwards, `turn` of the body
    about the vertical, and its place `x`, `y`, `z`.

    Attributes:
        scene: The scene; the body is its struck body.
        ranges: Of the numbers.
        bearing: rad, of the target from where the body is let go.
    """

    scene: Scene
    ranges: Mapping[str, Range]
    bearing: float
    kind: str = "throw"

    @property
    def start(self) -> np.ndarray:
        """Pose (7,) at which the body is let go: the middle of the ranges."""
        middle = {name: np.array([np.mean(limits)]) for name, limits in self.ranges.items()}
        qpos = self.states(middle, np.zeros((1, 6)))[0]
        pose: np.ndarray = qpos[self.scene.struck_body.qpos]
        return pose

    def states(self, numbers: Mapping[str, np.ndarray], twist_noise: np.ndarray) -> np.ndarray:
        """Return the states (N, s) of thrown bodies."""
        heading = self.bearing + numbers["direction"]
        forward, left = _axes(heading)
        before = PairPoser(self.scene).striker_at_reference(len(heading))
        body = MotionBefore.of(before).struck
        body.position[:] = np.stack([numbers["x"], numbers["y"], numbers["z"]], 1)
        body.quaternion[:] = _rotated(self.scene.struck_body, numbers["turn"])
        body.velocity[:] = numbers["speed"][:, None] * forward
        body.velocity[:, 2] += numbers["lift"]
        body.angular_velocity[:] = (
            numbers["spin_x"][:, None] * forward + numbers["spin_y"][:, None] * left
        )
        body.angular_velocity[:, 2] += numbers["spin_z"]
        body.twist[:] += twist_noise
        return _states(self.scene, before)


@dataclass(frozen=True, eq=False)
class FlyingStrike:
    """A striker flies at a body that lies on the ground.

    Numbers: `speed` of the striker in `direction` (rad, from that of the target), downwards by the
    angle `elevation`; the line along which it comes passes the body's origin at `offset` to the
    left, and at `height` above the ground level of the body.

    Attributes:
        scene: The scene; the body that lies is its struck body.
        ranges: Of the numbers.
        bearing: rad, of the target from the body.
        start: (7,), pose in which the body lies.
        level: m, world, of the ground below the body.
    """

    scene: Scene
    ranges: Mapping[str, Range]
    bearing: float
    start: np.ndarray
    level: float
    kind: str = "strike"

    def states(self, numbers: Mapping[str, np.ndarray], twist_noise: np.ndarray) -> np.ndarray:
        """Return the states (N, s) in which strikers are about to hit."""
        heading = self.bearing + numbers["direction"]
        forward, left = _axes(heading)
        elevation = numbers["elevation"][:, None]
        down = np.array([0.0, 0.0, -1.0])
        towards = np.cos(elevation) * forward + np.sin(elevation) * down
        before = PairPoser(self.scene).striker_at_reference(len(heading))
        motion = MotionBefore.of(before)
        motion.struck.pose[:] = self.start
        aim = self.start[:3] + numbers["offset"][:, None] * left
        aim[:, 2] = self.level + numbers["height"]
        motion.striker.position[:] = aim
        motion.striker.quaternion[:] = _rotated(self.scene.striker_body, heading)
        motion.striker.velocity[:] = numbers["speed"][:, None] * towards
        _, touching = advance_to_contact(self.scene, before, -towards)
        # The struck body was moved to the striker: move the striker by as much instead.
        shift = MotionBefore.of(touching).struck.position - self.start[:3]
        lead = np.maximum(_LEAD_TIME * numbers["speed"], _LEAD_DISTANCE)
        motion.striker.position[:] -= shift + lead[:, None] * towards
        motion.striker.twist[:] += twist_noise
        return _states(self.scene, before)


def ground_distance(scene: Scene, pose: np.ndarray) -> float:
    """Distance (m) of the struck body at a pose (7,) to what is fixed below or beside it.

    Args:
        scene: The scene.
        pose: Position (m) and quaternion wxyz of the body.

    Returns:
        The signed distance of the nearest geoms; infinite where nothing is fixed.
    """
    model = scene.base
    data = mujoco.MjData(model)
    data.qpos[scene.struck_body.qpos] = pose
    mujoco.mj_kinematics(model, data)
    own, fixed = [], []
    for geom in range(model.ngeom):
        body = int(model.body_weldid[model.geom_bodyid[geom]])
        collides = bool(model.geom_contype[geom] or model.geom_conaffinity[geom])
        if body == scene.struck_body.body and (collides or _is_in_pair(model, geom)):
            own.append(geom)
        elif body == 0 and (collides or _is_in_pair(model, geom)):
            fixed.append(geom)
    distances = [
        mujoco.mj_geomDistance(model, data, one, other, _SEARCH_DISTANCE, None)
        for one in own
        for other in fixed
    ]
    nearest = min(distances, default=_SEARCH_DISTANCE)
    return float(nearest) if nearest < _SEARCH_DISTANCE else np.inf


def ground_level(scene: Scene, pose: np.ndarray) -> float:
    """Height (m), world, of what is fixed straight below the struck body at a pose (7,)."""
    model = scene.base
    data = mujoco.MjData(model)
    data.qpos[scene.struck_body.qpos] = pose
    mujoco.mj_kinematics(model, data)
    down = np.array([0.0, 0.0, -1.0])
    geom = np.zeros(1, np.int32)
    distance = mujoco.mj_ray(model, data, pose[:3], down, None, 1, scene.struck_body.body, geom)
    return float(pose[2] - max(0.0, distance))


def lowered_onto_ground(scene: Scene, pose: np.ndarray) -> np.ndarray:
    """The pose (7,) of the struck body above the ground, lowered until it touches it.

    Args:
        scene: The scene.
        pose: Pose (7,) of the body; where it overlaps the ground it is lifted.
    """
    pose = pose.copy()
    for _ in range(_DROPS):
        distance = ground_distance(scene, pose)
        if not np.isfinite(distance):
            raise SceneError(
                f"scene {scene.name!r} has no ground on which {scene.struck_body.name!r} could "
                "come to rest: add a floor, as in "
                '<geom name="floor" type="plane" size="2 2 .1"/>'
            )
        pose[2] -= distance
        if abs(distance) < _LOWERED:
            break
    return pose


def check_can_be_launched(scene: Scene) -> None:
    """Raise a `SceneError` for a scene in space in which neither throw nor strike is defined."""
    if not scene.struck_body.free:
        raise SceneError(
            f"throws and strikes in space are planned for bodies with a free joint, but "
            f"{scene.struck_body.name!r} of scene {scene.name!r} has other joints"
        )
    striker = scene.striker_body
    if striker.fixed:
        return
    if not striker.free or scene.base.nu:
        raise SceneError(
            "strikes in space are planned for strikers that fly freely (a free joint, no "
            f"actuators), but {striker.name!r} of scene {scene.name!r} is carried by joints: "
            "simulate its strikes with clashsim.load(RUN).hybrid(), or record them with a plane "
            "as --ground, which plans strikes in that plane"
        )


def chosen_names(ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """Names of the numbers that are chosen: those whose range has more than one value."""
    for name, (low, high) in ranges.items():
        if not (np.isfinite([low, high]).all() and low <= high):
            raise DataError(
                f"the limits of {name} must be two finite numbers, low first, got {low:g}, {high:g}"
            )
    return tuple(name for name, (low, high) in ranges.items() if low < high)


def _axes(heading: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Horizontal unit vectors (N, 3) along headings (N,), rad, and to their left."""
    zero = np.zeros_like(heading)
    forward = np.stack([np.cos(heading), np.sin(heading), zero], 1)
    left = np.stack([-np.sin(heading), np.cos(heading), zero], 1)
    return forward, left


def _rotated(body: Mobility, angle: np.ndarray) -> np.ndarray:
    """Quaternions wxyz (N, 4) of a body rotated from its reference about the vertical (N,), rad."""
    reference = Rotation.from_matrix(body.rotation)
    rotated = Rotation.from_euler("z", angle[:, None]) * reference
    quaternion: np.ndarray = rotated.as_quat(scalar_first=True)
    return quaternion


def _states(scene: Scene, before: np.ndarray) -> np.ndarray:
    """States (N, s) of the simulator: other bodies as the scene's author placed them."""
    model = scene.base
    qpos = np.tile(model.qpos0, (len(before), 1))
    qvel = np.zeros((len(before), model.nv))
    PairPoser(scene).write(before, qpos, qvel)
    return np.concatenate([qpos, qvel, np.zeros((len(before), model.na))], axis=1)


def _is_in_pair(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom is part of a contact pair of the model."""
    return bool((model.pair_geom1 == geom).any() or (model.pair_geom2 == geom).any())
