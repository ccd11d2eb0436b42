"""Camera video with AprilTags, as poses of bodies: a folder of frames, or a video file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.readers.camera_file import WORLD, Camera, load_camera
from clashsim.data.readers.frames import read_frames
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping
from clashsim.data.readers.streams import Log, Sightings, Stream
from clashsim.data.readers.tag_corners import TagDetector, TagImage
from clashsim.data.readers.tag_poses import TagPoses, solve_poses

_MAX_SIGHTINGS = 1_000_000  # tags over all frames
_PROBED_FRAMES = 10  # in which other families are looked for
_MAX_WORLD_MOTION = 1.5  # px by which a tag that is fixed in the world may be elsewhere
_MAX_NUMBERS_SHOWN = 8


@dataclass(frozen=True, eq=False)
class _World:
    """Pose (4, 4) of the camera in the world, and how sure it is (as in `Sightings`)."""

    pose: np.ndarray
    margin: float = np.inf
    separation: float = 0.0
    moved: int = 0


def read_video(path: Path, logger: LoggerMapping) -> Log:
    """Read the poses of bodies with tags.

    Args:
        path: A folder of images, or a video file.
        logger: Its mapping: the camera file; names of the bodies, offset of the clock and frame
            rate, if given.

    Returns:
        A stream for each body with tags, with a row for each frame.
    """
    if not logger.camera:
        raise DataError(
            "a video needs a camera file (--camera camera.yaml): the calibration of the camera,"
            " and which tag is on which body"
        )
    camera = load_camera(logger.camera)
    bodies = logger.bodies or tuple(BodyMapping(name) for name in camera.bodies)
    for body in bodies:
        if body.source_name not in camera.bodies:
            suggestion = did_you_mean(body.source_name, camera.bodies)
            raise DataError(f"the camera file has no body {body.source_name!r}; {suggestion}")
    t, frames = _detect(path, logger, camera)
    world = _camera_in_world(t, frames, camera)
    streams = [_stream(body, t + logger.offset, frames, camera, world) for body in bodies]
    return Log(tuple(streams))


def _detect(
    path: Path, logger: LoggerMapping, camera: Camera
) -> tuple[np.ndarray, list[dict[int, TagImage]]]:
    """Times (T,) of the frames, s, and the tags in each of them."""
    detector = TagDetector(camera)
    times: list[float] = []
    frames: list[dict[int, TagImage]] = []
    strangers: set[int] = set()
    probes: list[np.ndarray] = []
    count = 0
    for time, grey in read_frames(path, camera, rate=logger.rate):
        found, seen = detector.detect(grey)
        times.append(time)
        frames.append(found)
        strangers |= seen - set(found)
        count += len(found)
        if count > _MAX_SIGHTINGS:
            raise DataError(f"the video shows more than {_MAX_SIGHTINGS} tags: cut it into trials")
        if not count and len(probes) < _PROBED_FRAMES:
            probes.append(grey)
    if not count:
        raise DataError(_why_none(camera, detector, strangers, probes))
    return np.array(times), frames


def _why_none(
    camera: Camera, detector: TagDetector, strangers: set[int], probes: Sequence[np.ndarray]
) -> str:
    """Sentence on why no tag of the camera file was found."""
    wanted = ", ".join(str(tag.tag) for tag in camera.tags[:_MAX_NUMBERS_SHOWN])
    start = f"no frame shows a tag of the camera file ({camera.family}: {wanted})"
    others = sorted(strangers)[:_MAX_NUMBERS_SHOWN]
    if others:
        return f"{start}; they show {', '.join(map(str, others))}"
    families = dict.fromkeys(name for grey in probes for name in detector.other_families(grey))
    if families:
        return f"{start}; they show tags of family {', '.join(families)}"
    return f"{start}, and none of another family"


def _camera_in_world(
    t: np.ndarray, frames: Sequence[Mapping[int, TagImage]], camera: Camera
) -> _World:
    """Where the camera stands: as the camera file says, or from tags that are fixed in the world.

    The camera does not move, so that the corners of these tags are averaged over all frames.
    """
    if camera.pose is not None:
        return _World(camera.pose.transform("pose"))
    tags = camera.corners(WORLD)
    seen: dict[int, np.ndarray] = {}
    moved = np.zeros(len(frames), bool)
    for number in tags:
        rows = [row for row, frame in enumerate(frames) if number in frame]
        if rows:
            corners = np.array([frames[row][number].corners for row in rows])
            seen[number] = np.median(corners, axis=0)
            shift = (corners - seen[number]).mean(1)
            moved[rows] |= np.hypot(*shift.T) > _MAX_WORLD_MOTION
    if not seen:
        numbers = ", ".join(map(str, tags))
        raise DataError(f"no frame shows a tag that is fixed in the world (tag {numbers})")
    solved = solve_poses(t[:1], [seen], tags, camera.intrinsics)
    pose = solved.pose[0]
    if not np.isfinite(pose).all():
        raise DataError("the tags that are fixed in the world show no pose of the camera")
    return _World(np.linalg.inv(pose), solved.margin, solved.separation, int(moved.sum()))


def _stream(
    body: BodyMapping,
    t: np.ndarray,
    frames: Sequence[Mapping[int, TagImage]],
    camera: Camera,
    world: _World,
) -> Stream:
    """The poses of one body in the world."""
    tags = camera.corners(body.source_name)
    seen = [
        {number: image.corners for number, image in frame.items() if number in tags}
        for frame in frames
    ]
    solved = solve_poses(t, seen, tags, camera.intrinsics)
    widths = [
        max((frame[number].edge_width for number in own), default=np.nan)
        for frame, own in zip(frames, seen, strict=True)
    ]
    is_world_unsure = world.margin < solved.margin
    sightings = Sightings(
        solved.error,
        np.array(widths),
        solved.flipped,
        world.margin if is_world_unsure else solved.margin,
        world.separation if is_world_unsure else solved.separation,
        world.moved,
    )
    return Stream(body.name, t, _in_world(solved, world.pose), sightings=sightings)


def _in_world(solved: TagPoses, camera_pose: np.ndarray) -> np.ndarray:
    """Poses (T, 7), m and wxyz, from those in the camera."""
    from scipy.spatial.transform import Rotation

    pose = np.full((len(solved.pose), 7), np.nan)
    rows = np.isfinite(solved.error)
    transforms = camera_pose @ solved.pose[rows]
    if rows.any():
        pose[rows, :3] = transforms[:, :3, 3]
        quaternion = Rotation.from_matrix(transforms[:, :3, :3]).as_quat()  # xyzw
        pose[rows, 3:] = np.roll(quaternion, 1, axis=1)
    return pose
