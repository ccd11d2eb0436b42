"""Frames with AprilTags, drawn by homography: known poses without a renderer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from clashsim.bench.tag_film import tag_picture
from clashsim.data.readers.camera_file import Camera, TagPlacement
from clashsim.data.readers.frames import import_opencv

WIDTH, HEIGHT, FOCAL = 320, 240, 400.0
INTRINSICS = ((FOCAL, 0.0, 161.0), (0.0, FOCAL, 118.0), (0.0, 0.0, 1.0))
# Looks down from 0.5 m: x of the frame is x of the world, y of the frame is -y.
DOWN = np.array([[1.0, 0, 0, 0], [0, -1, 0, 0], [0, 0, -1, 0.5], [0, 0, 0, 1]])
FINE = 4  # pixels that are averaged, in each direction


def camera(tags: Sequence[TagPlacement], **changes) -> Camera:
    """A camera file's content, with a camera 0.5 m above the world."""
    values = {
        "width": WIDTH,
        "height": HEIGHT,
        "camera_matrix": INTRINSICS,
        "family": "tag36h11",
        "tags": tuple(tags),
        "size": 0.04,
        "rate": 100.0,
    }
    return Camera(**(values | changes))


def camera_table(tags: Sequence[TagPlacement], **changes) -> dict:
    """The same as a table, as it is parsed from a file."""

    def plain(value):
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if v is not None}
        return [plain(v) for v in value] if isinstance(value, list | tuple) else value

    pose = {"position": [0, 0, 0.5], "matrix": DOWN[:3, :3].tolist()}
    return plain(asdict(camera(tags))) | {"pose": pose} | changes


def draw(
    tags: Mapping[int, np.ndarray], *, size: float = 0.04, distortion: Sequence[float] = ()
) -> np.ndarray:
    """Draw tags at poses (4, 4) in the world on grey, as the camera sees them."""
    cv2 = import_opencv()
    high = np.full((HEIGHT * FINE, WIDTH * FINE), 110, np.uint8)
    # The middle of a pixel of the frame is between those of the finer picture.
    finer = np.array([[FINE, 0, (FINE - 1) / 2], [0, FINE, (FINE - 1) / 2], [0, 0, 1.0]])
    for number, pose in tags.items():
        picture = tag_picture(number)
        n = len(picture)
        metres = size / (n * 8 / 10)  # per pixel; the black square has 8 of 10 cells
        middle = (n - 1) / 2
        to_tag = np.array(
            [[metres, 0, -metres * middle], [0, -metres, metres * middle], [0, 0, 0], [0, 0, 1]]
        )
        view = (np.linalg.inv(DOWN) @ pose @ to_tag)[:3]
        homography = finer @ np.array(INTRINSICS) @ view
        cv2.warpPerspective(
            picture,
            homography,
            (high.shape[1], high.shape[0]),
            dst=high,
            flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_TRANSPARENT,
        )
    if distortion:
        high = _distorted(high, finer @ np.array(INTRINSICS), np.array(distortion))
    return cv2.resize(high, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)


def _distorted(picture: np.ndarray, matrix: np.ndarray, distortion: np.ndarray) -> np.ndarray:
    """What a lens with distortion shows of a picture."""
    cv2 = import_opencv()
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]].astype(np.float64)
    pixels = np.column_stack([x.ravel(), y.ravel()])
    straight = cv2.undistortPoints(pixels[:, None], matrix, distortion, P=matrix)
    where = np.asarray(straight).reshape(*picture.shape, 2).astype(np.float32)
    return cv2.remap(picture, where[..., 0], where[..., 1], cv2.INTER_LINEAR, borderValue=110)


def write_frames(folder: Path, frames: Sequence[np.ndarray]) -> Path:
    """Write frames as PNG files."""
    from PIL import Image

    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{number}.png")
    return folder
