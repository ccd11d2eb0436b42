"""What is the same for all trials of a segmentation: the pair of bodies and how it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.data.segmentation.trajectory import MotionFrame

# Usual times from an impact to the separation of the pair.
_PLANAR_LAG = 0.011  # s
_SPATIAL_LAG = 0.002  # s
_MAX_LAG = 0.5  # s
_GYRATION_RADIUS = 0.05  # m, of a body that no scene describes
_ON_AXIS = 1e-6  # m: a body's origin nearer to its axis does not move
_DISTANCE_MARGIN = 0.03  # m: recorded positions may be off by this much
_DISTANCE_FACTOR = 1.1  # of safety, on the largest distance at which the pair can touch


@dataclass(frozen=True)
class SegmentConfig:
    """Options of `segment` that a scene does not decide.

    Attributes:
        planar: Whether motion is in the plane (the scene's plane, else x y); None for what the
            scene says, and planar without a scene.
        min_jump: Smallest jump of velocity that counts as an impact, m/s.
        lag: Time from the impact to the separation of the pair, at which the twist after is
            reported, s; None for 11 ms in the plane and 2 ms in space. Poses do not show when the
            pair separates, and friction or gravity act meanwhile: set it where contact is softer
            than about 15 ms or friction is high.
        gyration_radius: Radius that turns angles into lengths, m; None for the scene's, or 0.05
            without a scene.
        centre: Mass centre of the struck body in its frame, m; used without a scene.
        gravity: Gravity in space, m/s^2; used without a scene.
    """

    planar: bool | None = None
    min_jump: float = 0.05
    lag: float | None = None
    gyration_radius: float | None = None
    centre: Sequence[float] = (0.0, 0.0, 0.0)
    gravity: Sequence[float] = (0.0, 0.0, -9.81)


@dataclass(frozen=True)
class DecelerationPrior:
    """What the deceleration of a slide is expected to be, before its frames are looked at.

    By default that is 2 m/s^2 (a friction of 0.2), uncertain by a factor of e.

    Attributes:
        log_mean: Mean of the logarithm of the deceleration in m/s^2.
        log_std: Standard deviation of that logarithm.
    """

    log_mean: float = float(np.log(2.0))
    log_std: float = 1.0


@dataclass(frozen=True, eq=False)
class PairSetup:
    """The pair of bodies, and the constants of its measurement.

    Attributes:
        struck: Name of the struck body in the trials.
        striker: Name of the striker in the trials; None if it was not recorded.
        frame: In which axes the struck body's motion is described.
        striker_frame: The same for the striker.
        striker_rest_pose: Pose (3,) or (7,) of a striker that was not recorded.
        gyration_radius: Radius that turns angles into lengths, m.
        min_jump: Smallest jump of velocity that counts, m/s.
        lag: Time after the impact at which the twist after is reported, s.
        max_distance: Distance of the two origins beyond which the pair cannot touch, m.
        deceleration: What slides on this ground have in common.
        striker_gyration_radius: Radius that turns the striker's angles into lengths, m; None where
            something holds it, so that its motion after an impact is not that of a free body.
        rotates_on_joints: Whether hinges carry the struck body, so that it does not slide on a
            ground, and its origin may stay where it is.
        measurable: Whether the joints of the struck body let it have each component (k,) of its
            twist; None where they let it have all.
        striker_centre: Centre (3,) of the striker's geom in its body's frame, m.
    """

    struck: str
    striker: str | None
    frame: MotionFrame
    striker_frame: MotionFrame
    striker_rest_pose: np.ndarray
    gyration_radius: float
    min_jump: float
    lag: float
    max_distance: float = np.inf
    deceleration: DecelerationPrior = DecelerationPrior()
    striker_gyration_radius: float | None = None
    rotates_on_joints: bool = False
    measurable: np.ndarray | None = None
    striker_centre: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @property
    def planar(self) -> bool:
        """Whether motion is described in a plane."""
        return self.frame.planar

    @property
    def length_scale(self) -> np.ndarray:
        """Factors (k,) that turn rates of coordinates into m/s."""
        linear_and_angular_axes = (2, 1) if self.planar else (3, 3)
        return np.repeat([1.0, self.gyration_radius], linear_and_angular_axes)


def make_setup(
    scene: Scene | None, struck: str | None, striker: str | None, config: SegmentConfig
) -> PairSetup:
    """Combine a scene and the options of a user; raises a DataError where they contradict."""
    if not config.min_jump > 0:
        raise DataError(f"min_jump must be above zero, got {config.min_jump}")
    if config.gyration_radius is not None and not config.gyration_radius > 0:
        raise DataError(f"gyration_radius must be above zero, got {config.gyration_radius}")
    if scene is None:
        return _setup_without_scene(struck, striker, config)
    scene_is_planar = scene.plane is not None
    # Nothing but gravity and its joints slows a body on hinges between impact and separation.
    rotates_on_joints = scene.struck_body.rotates_on_joints
    lag = _lag(config, planar=scene_is_planar and not rotates_on_joints)
    if config.planar is not None and config.planar != scene_is_planar:
        kind = "planar" if scene_is_planar else "spatial"
        raise DataError(f"scene {scene.name!r} is {kind}: leave out planar={config.planar}")
    if striker is None and not scene.striker_body.fixed:
        striker = scene.striker_body.name
    one_state = PairPoser(scene).striker_at_reference(1)  # (1, d)
    striker_pose = MotionBefore.of(one_state).striker.pose[0]
    body = inertia(scene, scene.struck_body)
    gravity = np.array(scene.base.opt.gravity)
    striker_is_free = _striker_is_free(scene)
    striker_inertia = inertia(scene, scene.striker_body)
    centre = np.array(body.centre)
    gyration_radius = body.gyration
    measurable = None
    pivot = scene.struck_body.pivot
    if pivot is not None and scene_is_planar:
        gyration_radius = float(np.hypot(body.gyration, np.linalg.norm(centre - pivot)))
        centre = pivot
        assert scene.plane is not None
        from_axis = scene.plane[:2] @ (scene.struck_body.rotation @ pivot)
        origin_moves = bool(np.linalg.norm(from_axis) > _ON_AXIS)
        measurable = np.array([origin_moves, origin_moves, True])
    return PairSetup(
        struck=struck or scene.struck_body.name,
        striker=striker,
        frame=MotionFrame(
            plane=scene.plane,
            centre=centre,
            rotation=scene.struck_body.rotation,
            gravity=gravity,
        ),
        # A driven striker does not fall, and its origin is what is followed.
        striker_frame=MotionFrame(
            plane=scene.plane,
            centre=np.array(striker_inertia.centre) if striker_is_free else np.zeros(3),
            rotation=scene.striker_body.rotation,
            gravity=gravity if striker_is_free else np.zeros(3),
        ),
        striker_rest_pose=striker_pose,
        gyration_radius=config.gyration_radius or gyration_radius,
        min_jump=config.min_jump,
        lag=lag,
        max_distance=_max_contact_distance(scene),
        striker_gyration_radius=striker_inertia.gyration if striker_is_free else None,
        rotates_on_joints=rotates_on_joints,
        measurable=measurable,
        striker_centre=np.array(scene.base.geom(scene.striker).pos),
    )


def _striker_is_free(scene: Scene) -> bool:
    """Whether the striker translates and rotates freely, in space or in the plane.

    Tools on slides, and on the joints of an arm, are held by something.
    """
    striker = scene.striker_body
    is_loose = striker.free or (striker.hinge is not None and len(striker.slides) == 2)
    if not is_loose:
        return False
    model = scene.base
    joints = {int(model.dof_jntid[dof]) for dof in striker.qvel}
    on_joint = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    return not joints & {int(joint) for joint in model.actuator_trnid[on_joint, 0]}


def _setup_without_scene(
    struck: str | None, striker: str | None, config: SegmentConfig
) -> PairSetup:
    """The setup of bodies that only the trials describe."""
    planar = config.planar is not False
    lag = _lag(config, planar=planar)
    if struck is None:
        raise DataError("name the struck body, or give a scene that does")
    plane = np.eye(3) if planar else None
    pose_at_origin = np.zeros(3) if planar else np.array([0, 0, 0, 1.0, 0, 0, 0])
    return PairSetup(
        struck=struck,
        striker=striker,
        frame=MotionFrame(
            plane=plane,
            centre=np.array(config.centre, float),
            rotation=np.eye(3),
            gravity=np.array(config.gravity, float),
        ),
        striker_frame=MotionFrame(
            plane=plane, centre=np.zeros(3), rotation=np.eye(3), gravity=np.zeros(3)
        ),
        striker_rest_pose=pose_at_origin,
        gyration_radius=config.gyration_radius or _GYRATION_RADIUS,
        min_jump=config.min_jump,
        lag=lag,
    )


def _lag(config: SegmentConfig, *, planar: bool) -> float:
    """The time from impact to separation that was asked for, or its default; checked."""
    lag = config.lag
    if lag is None:
        lag = _PLANAR_LAG if planar else _SPATIAL_LAG
    if not 0 <= lag < _MAX_LAG:
        raise DataError(f"lag must be from 0 to {_MAX_LAG} s, got {lag}")
    return lag


def _max_contact_distance(scene: Scene) -> float:
    """Largest distance (m) of the two bodies' origins at which their geoms can touch.

    It includes a margin for errors of the recorded positions.
    """
    total = _DISTANCE_MARGIN
    for name in (scene.struck, scene.striker):
        geom = scene.base.geom(name)
        bounding_radius = float(geom.rbound[0])
        if bounding_radius == 0:  # MuJoCo's value for a plane, which has no end
            return np.inf
        total += bounding_radius + float(np.linalg.norm(geom.pos))
    return _DISTANCE_FACTOR * total
