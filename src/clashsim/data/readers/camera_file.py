"""The camera file: intrinsics, time of the frames, place of the camera, and tags on bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.core.parsing import TOML_BYTES, parse_json, parse_toml, read_bounded
from clashsim.core.typed import build_dataclass
from clashsim.data.readers.mapping import TIME_UNITS

WORLD = "world"  # as the body of a tag: it is fixed in the world
FAMILIES = ("tag16h5", "tag25h9", "tag36h10", "tag36h11")
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_MAX_SIDE = 8192  # pixels
_MAX_TAGS = 64
_MAX_RATE = 1e6  # Hz
_MAX_SIZE = 10.0  # m
_MAX_ROTATION_ERROR = 1e-2  # of a matrix, from rounding
# Numbers of OpenCV's distortion models: k1 k2 p1 p2 (k3 (k4 k5 k6)).
_DISTORTION_COUNTS = (0, 4, 5, 8)
# What calibration programs (OpenCV's sample, ROS camera_calibration) write and call otherwise.
_OTHER_NAMES = {
    "image_width": "width",
    "image_height": "height",
    "distortion_coefficients": "distortion",
}
_UNUSED_NAMES = (
    *("camera_name", "distortion_model", "rectification_matrix", "projection_matrix"),
    *("calibration_time", "avg_reprojection_error", "nframes", "flags", "board_width"),
    *("board_height", "square_size"),
)


@dataclass(frozen=True)
class Placement:
    """A pose: position in m, and at most one of quaternion (wxyz) and matrix (three rows)."""

    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quaternion: tuple[float, float, float, float] | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None

    def transform(self, place: str) -> np.ndarray:
        """The pose as a matrix (4, 4).

        Args:
            place: Where in the camera file it is, for messages.
        """
        from scipy.spatial.transform import Rotation

        out = np.eye(4)
        out[:3, 3] = self.position
        if self.quaternion is not None and self.matrix is not None:
            raise DataError(f"{place} has both a quaternion and a matrix")
        if self.quaternion is not None:
            if np.linalg.norm(self.quaternion) < 0.5:
                raise DataError(f"{place} has a quaternion that is not of length 1")
            out[:3, :3] = Rotation.from_quat(np.roll(self.quaternion, -1)).as_matrix()
        if self.matrix is not None:
            rows = self.matrix
            if len(rows) != 3 or any(len(row) != 3 for row in rows):
                raise DataError(f"{place} has a matrix that is not three rows of three numbers")
            rotation = np.array(rows)
            error = np.abs(rotation @ rotation.T - np.eye(3)).max()
            if error > _MAX_ROTATION_ERROR or np.linalg.det(rotation) < 0:
                raise DataError(f"{place} has a matrix that is no rotation")
            out[:3, :3] = rotation
        return out


@dataclass(frozen=True)
class TagPlacement:
    """A tag: its number, the body that it is on, and its pose on that body.

    A tag's origin is its middle; x points right and y up as the tag is printed, z out of it.

    Attributes:
        tag: Number in the family.
        body: Name of the body; `world` for a tag that is fixed in the world.
        position: Middle of the tag in the axes of the body, m.
        quaternion: Rotation from the tag's axes to those of the body, wxyz.
        matrix: The same as three rows; give one of both, or none where the axes agree.
        size: Side of its black square, m; None for that of the camera file.
    """

    tag: int
    body: str
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quaternion: tuple[float, float, float, float] | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    size: float | None = None


@dataclass(frozen=True)
class Camera:
    """What a camera file says.

    Attributes:
        width: Of a frame, pixels.
        height: Of a frame, pixels.
        camera_matrix: Rows fx 0 cx, 0 fy cy, 0 0 1 in pixels; the middle of the first pixel is
            0, 0.
        family: Family of the tags.
        tags: Which tag is on which body.
        size: Side of a tag's black square, m.
        distortion: OpenCV's k1 k2 p1 p2 (k3 (k4 k5 k6)); none for a lens without distortion.
        rate: Frames per second; 0 to take the times that a video file has.
        stamps: Unit (s, ms, us, ns) of times that are the names of the frames, as in 1403715.png.
        pose: Of the camera in the world (x right, y down, z forward); None where a tag on the body
            `world` shows it. The world's z points up.
    """

    width: int
    height: int
    camera_matrix: tuple[tuple[float, ...], ...]
    family: str
    tags: tuple[TagPlacement, ...]
    size: float = 0.0
    distortion: tuple[float, ...] = ()
    rate: float = 0.0
    stamps: str = ""
    pose: Placement | None = None

    @property
    def intrinsics(self) -> np.ndarray:
        """Camera matrix (3, 3), pixels."""
        return np.array(self.camera_matrix)

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies with tags, without the world."""
        names = dict.fromkeys(tag.body for tag in self.tags)
        return tuple(name for name in names if name != WORLD)

    def corners(self, body: str) -> dict[int, np.ndarray]:
        """Corners (4, 3) of the tags of a body in its axes, m, by number of the tag.

        The order is that of the printed tag: top left, top right, bottom right, bottom left.
        """
        square = np.array([[-1, 1, 0], [1, 1, 0], [1, -1, 0], [-1, -1, 0]]) / 2
        found = {}
        for tag in self.tags:
            if tag.body == body:
                placement = Placement(tag.position, tag.quaternion, tag.matrix)
                transform = placement.transform(f"tag {tag.tag}")
                side = self.size if tag.size is None else tag.size
                found[tag.tag] = side * square @ transform[:3, :3].T + transform[:3, 3]
        return found


def load_camera(path: Path | str) -> Camera:
    """Read a camera file (.yaml, .json or .toml).

    Args:
        path: The file. The names that OpenCV's and ROS' calibration programs write are understood.

    Returns:
        The camera.
    """
    path = Path(path)
    what = f"camera file {str(path)!r}"
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{what} should end in {', '.join(SUFFIXES)}")
    content = read_bounded(path, what, limit=TOML_BYTES)
    if suffix == ".toml":
        raw: Any = parse_toml(content, what)
    elif suffix == ".json":
        raw = parse_json(content, what)
    else:
        raw = _parse_yaml(content, what)
    if not isinstance(raw, dict):
        raise DataError(f"{what} is not a table of names and values")
    raw = _with_our_names(raw)
    missing = [name for name in ("camera_matrix", "width", "height") if name not in raw]
    if missing:
        raise DataError(
            f"{what} has no calibration: it lacks {', '.join(missing)}"
            " (calibrate the camera, with OpenCV's or ROS' calibration program)"
        )
    try:
        camera: Camera = build_dataclass(Camera, raw)
        _check_camera(camera)
    except DataError as error:
        raise DataError(f"in {what}: {error}") from None
    return camera


def _parse_yaml(content: bytes, what: str) -> Any:
    """Parse YAML text; OpenCV's first line and types of matrices are left out."""
    with needs("PyYAML (yaml)", "video"):
        import yaml
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{what} is not UTF-8 text") from None
    text = text.replace("%YAML:1.0", "").replace("!!opencv-matrix", "")
    if "&" in text and "*" in text:  # few lines of aliases stand for gigabytes
        raise DataError(f"{what} has YAML anchors; write the values out")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{what} is damaged, not valid YAML: {reason}") from None


def _with_our_names(raw: dict[Any, Any]) -> dict[str, Any]:
    """Names and matrices of calibration programs ({rows, cols, data}) as those of `Camera`."""
    out: dict[str, Any] = {}
    for key, value in raw.items():
        name = _OTHER_NAMES.get(str(key), str(key))
        if name in _UNUSED_NAMES:
            continue
        if isinstance(value, dict) and "data" in value:
            value = value["data"]
        is_flat = isinstance(value, list) and value and not isinstance(value[0], list)
        if name == "camera_matrix" and is_flat and len(value) == 9:
            value = [value[0:3], value[3:6], value[6:9]]
        if name == "distortion" and isinstance(value, list) and value and not is_flat:
            value = value[0]  # a matrix of one row
        out[name] = value
    return out


def _check_camera(camera: Camera) -> None:
    """Raise a DataError for values that no camera has."""
    if not (16 <= camera.width <= _MAX_SIDE and 16 <= camera.height <= _MAX_SIDE):
        raise DataError(f"width and height must be 16 to {_MAX_SIDE} pixels")
    _check_intrinsics(camera)
    if camera.family not in FAMILIES:
        raise DataError(f"family is {camera.family!r}; choices: {', '.join(FAMILIES)}")
    if not 0 <= camera.rate <= _MAX_RATE:
        raise DataError(f"rate must be 0 to {_MAX_RATE:.0f} frames per second")
    if camera.stamps and camera.stamps not in TIME_UNITS:
        raise DataError(f"stamps is {camera.stamps!r}; choices: {', '.join(TIME_UNITS)}")
    if camera.stamps and camera.rate:
        raise DataError("it has both stamps and a rate")
    _check_tags(camera)
    if camera.pose is not None:
        camera.pose.transform("pose")


def _check_intrinsics(camera: Camera) -> None:
    rows = camera.camera_matrix
    if len(rows) != 3 or any(len(row) != 3 for row in rows):
        raise DataError("camera_matrix must be three rows of three numbers")
    (fx, skew, cx), (zero, fy, cy), last = rows
    if fx <= 0 or fy <= 0 or skew or zero or tuple(last) != (0.0, 0.0, 1.0):
        raise DataError("camera_matrix must be fx 0 cx, 0 fy cy, 0 0 1, in pixels")
    if not (0 < cx < camera.width and 0 < cy < camera.height):
        raise DataError(
            f"the principal point ({cx:.0f}, {cy:.0f}) is not in a frame of"
            f" {camera.width} x {camera.height} pixels; was it calibrated at another size?"
        )
    if len(camera.distortion) not in _DISTORTION_COUNTS:
        raise DataError(f"distortion has {len(camera.distortion)} numbers; choices: 0, 4, 5, 8")


def _check_tags(camera: Camera) -> None:
    numbers: Sequence[int] = [tag.tag for tag in camera.tags]
    if not camera.bodies or len(numbers) > _MAX_TAGS:
        raise DataError(f"it needs tags on bodies, {_MAX_TAGS} at most")
    duplicate = next((n for n in numbers if numbers.count(n) > 1), None)
    if duplicate is not None:
        raise DataError(f"tag {duplicate} is named twice")
    for tag in camera.tags:
        if not tag.body:
            raise DataError(f"tag {tag.tag} needs the name of a body")
        size = camera.size if tag.size is None else tag.size
        if not 0 < size <= _MAX_SIZE:
            raise DataError(f"tag {tag.tag} needs a size (side of its black square) in m")
        Placement(tag.position, tag.quaternion, tag.matrix).transform(f"tag {tag.tag}")
    has_world_tag = any(tag.body == WORLD for tag in camera.tags)
    if camera.pose is None and not has_world_tag:
        raise DataError(
            "the place of the camera is not known: give its pose, or a tag whose body is world"
        )
    if camera.pose is not None and has_world_tag:
        raise DataError("it has both a pose of the camera and a tag whose body is world")
