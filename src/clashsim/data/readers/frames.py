"""Reads frames in bounded memory: a folder of images, or a video file; one frame at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.data.readers.camera_file import Camera
from clashsim.data.readers.grouping import natural_key
from clashsim.data.readers.mapping import TIME_UNITS
from clashsim.data.readers.sources import IMAGE_SUFFIXES

_MAX_FRAMES = 200_000
_IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF")
# First bytes of video files. Others, such as playlists, could name files that are read as well.
_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")  # after four bytes: MP4, MOV
_MATROSKA = b"\x1a\x45\xdf\xa3"

Frame = tuple[float, np.ndarray]  # time in s, grey values (height, width)


def read_frames(path: Path, camera: Camera, *, rate: float = 0.0) -> Iterator[Frame]:
    """Read frames one after the other.

    Args:
        path: A folder of images, in the order of their names, or a video file.
        camera: Size of the frames, and where their times come from.
        rate: Frames per second that a mapping gives; 0 for those of the camera file.

    Yields:
        Times in s, and grey values (height, width) of 8 bits.
    """
    rate = rate or camera.rate
    if path.is_dir():
        yield from _folder_frames(path, camera, rate)
    else:
        yield from _video_frames(path, camera, rate)


def _folder_frames(path: Path, camera: Camera, rate: float) -> Iterator[Frame]:
    """Frames of a folder; damaged files are named."""
    if not rate and not camera.stamps:
        raise DataError(
            "a folder of frames has no times: give the camera file a rate, or stamps (the unit of"
            " times that are the names of the frames)"
        )
    files = [
        file
        for file in path.iterdir()
        if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".")
    ]
    if len(files) > _MAX_FRAMES:
        raise DataError(f"the folder holds more than {_MAX_FRAMES} frames")
    files.sort(key=lambda file: natural_key(file.name))
    for number, file in enumerate(files):
        time = number / rate if rate else _stamp(file, camera.stamps)
        yield time, _read_image(file, camera)


def _stamp(file: Path, unit: str) -> float:
    """Time in s that the name of a frame is."""
    try:
        time = float(file.stem)
    except ValueError:
        time = np.nan
    if not np.isfinite(time):
        raise DataError(f"the name of frame {file.name!r} is no time")
    return time * TIME_UNITS[unit]


def _read_image(file: Path, camera: Camera) -> np.ndarray:
    """Grey values of an image, which is decoded only if it has the camera's size."""
    from PIL import Image

    try:
        with Image.open(file, formats=_IMAGE_FORMATS) as image:
            _check_size(image.size, camera, f"frame {file.name!r}")
            return np.asarray(image.convert("L"))
    except DataError:
        raise
    except MemoryError:
        raise
    except Exception:  # Pillow's decoders raise errors of many kinds on damaged images
        raise DataError(f"frame {file.name!r} cannot be decoded") from None


def _check_size(size: tuple[int, int], camera: Camera, what: str) -> None:
    if size != (camera.width, camera.height):
        raise DataError(
            f"{what} has {size[0]} x {size[1]} pixels where the camera was calibrated"
            f" with {camera.width} x {camera.height}"
        )


def _video_frames(path: Path, camera: Camera, rate: float) -> Iterator[Frame]:
    """Frames of a video file, at its own times unless a rate is given."""
    if camera.stamps:
        raise DataError("stamps are for folders of frames; a video has times, or give a rate")
    _check_container(path)
    cv2 = import_opencv()
    video = cv2.VideoCapture(str(path.absolute()), cv2.CAP_FFMPEG)
    try:
        if not video.isOpened():
            raise DataError("the video cannot be decoded: it is damaged or of an unknown codec")
        size = (
            int(video.get(cv2.CAP_PROP_FRAME_WIDTH)),
            int(video.get(cv2.CAP_PROP_FRAME_HEIGHT)),
        )
        _check_size(size, camera, "the video")
        number = 0
        while video.grab():
            if number >= _MAX_FRAMES:
                raise DataError(f"the video has more than {_MAX_FRAMES} frames: cut it")
            time = number / rate if rate else 1e-3 * video.get(cv2.CAP_PROP_POS_MSEC)
            decoded, frame = video.retrieve()
            if decoded and frame.shape[:2] == (camera.height, camera.width):
                grey = frame if frame.ndim == 2 else cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
                yield time, grey
            number += 1
        if not number:
            raise DataError("the video cannot be decoded: no frame could be read")
    except cv2.error:
        raise DataError("the video cannot be decoded") from None
    finally:
        video.release()


def _check_container(path: Path) -> None:
    """Raise a DataError for a file that is not one of the known kinds of video files."""
    with path.open("rb") as file:
        head = file.read(12)
    is_mp4 = head[4:8] in _BOXES
    is_avi = head[:4] == b"RIFF" and head[8:12] == b"AVI "
    if not (is_mp4 or is_avi or head[:4] == _MATROSKA):
        raise DataError("the video cannot be decoded: it is no MP4, MOV, AVI, MKV or WebM file")


def import_opencv() -> Any:
    """OpenCV's module, or an error that says how to install it."""
    # OpenCV and FFmpeg write their own reports to the terminal, beside ours.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    with needs("OpenCV (cv2)", "video"):
        import cv2
    return cv2
