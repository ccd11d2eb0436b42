"""Finds AprilTags in a frame, and measures their corners to a few hundredths of a pixel.

OpenCV finds and decodes the tags. Its corners are good to about half a pixel, so each side of the
black square is measured again: brightness is sampled across it at many places, the area under each
profile says where it changes, and a line is fitted to these points. Corners are where two lines
meet. How wide the change is, in pixels, says how sharp the frame is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.camera_file import FAMILIES, Camera
from clashsim.data.readers.frames import import_opencv

# Cells along a side of the black square, its border of one cell on either side included.
_CELLS = {"tag16h5": 6, "tag25h9": 7, "tag36h10": 8, "tag36h11": 8}
_MARGIN = 0.12  # of a side, next to corners, where the other side blurs the profile
_SPACING = 1.5  # px between profiles
_MIN_PROFILES, _MAX_PROFILES = 6, 32  # on a side
_STEP = 0.25  # px between samples of a profile
_REACH = 0.8  # of a cell, to either side: both the border and the white margin have one
_MIN_REACH, _MAX_REACH = 1.5, 16.0  # px
_PASSES = 2  # the second looks around the lines of the first
_MIN_CONTRAST = 12.0  # grey values between black and white
_OUTLIER_FACTOR = 4.0  # times the usual distance from the line
_MIN_OUTLIER = 0.1  # px: points that are nearer to the line than this are always used
_MAX_SHIFT = 3.0  # px by which a measured corner may differ from the detector's


@dataclass(frozen=True, eq=False)
class TagImage:
    """A tag in a frame: corners (4, 2) in px without lens distortion, and width of its edges, px.

    Corners go from the printed top left on, clockwise as printed.
    """

    corners: np.ndarray
    edge_width: float


class TagDetector:
    """Finds the tags of a camera file in frames."""

    def __init__(self, camera: Camera) -> None:
        self._cv2 = import_opencv()
        self._camera = camera
        self._cells = _CELLS[camera.family]
        self._detector = self._opencv_detector(camera.family)
        self._wanted = {tag.tag for tag in camera.tags}
        self._check_numbers()

    def detect(self, grey: np.ndarray) -> tuple[dict[int, TagImage], set[int]]:
        """Find tags.

        Args:
            grey: Grey values (height, width) of 8 bits.

        Returns:
            The tags of the camera file that are seen once, by number; and all numbers seen.
        """
        corners, numbers, _ = self._detector.detectMarkers(grey)
        if numbers is None:
            return {}, set()
        seen = [int(number) for number in np.ravel(numbers)]
        found: dict[int, TagImage] = {}
        for number, tag_corners in zip(seen, corners, strict=True):
            # Of a tag that is seen twice, as in a mirror, it is not known which is real.
            if number in self._wanted and seen.count(number) == 1:
                image = self._measure(grey, np.asarray(tag_corners, dtype=float).reshape(4, 2))
                if image is not None:
                    found[number] = image
        return found, set(seen)

    def other_families(self, grey: np.ndarray) -> list[str]:
        """Families other than that of the camera file of which tags are seen."""
        found = []
        for family in FAMILIES:
            if family != self._camera.family and family != "tag16h5":  # that one is seen anywhere
                _, numbers, _ = self._opencv_detector(family).detectMarkers(grey)
                if numbers is not None:
                    found.append(family)
        return found

    def _opencv_detector(self, family: str) -> Any:
        aruco = self._cv2.aruco
        name = "DICT_APRILTAG_" + family.removeprefix("tag")
        parameters = aruco.DetectorParameters()
        parameters.cornerRefinementMethod = aruco.CORNER_REFINE_NONE
        dictionary = aruco.getPredefinedDictionary(getattr(aruco, name))
        return aruco.ArucoDetector(dictionary, parameters)

    def _check_numbers(self) -> None:
        """Raise a DataError for a tag that the family does not have."""
        count = len(self._detector.getDictionary().bytesList)
        unknown = sorted(number for number in self._wanted if not 0 <= number < count)
        if unknown:
            family = self._camera.family
            raise DataError(f"{family} has tags 0 to {count - 1}, and no tag {unknown[0]}")

    def _measure(self, grey: np.ndarray, corners: np.ndarray) -> TagImage | None:
        """Measure a tag whose corners (4, 2) are known to about a pixel; None if that fails."""
        lines = []
        contrasts = []
        steepest = []
        for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            side = _measure_side(grey, start, end, self._cells)
            if side is None:
                return None
            lines.append(_fit_line(self._without_distortion(side.points)))
            contrasts.append(side.contrast)
            steepest.append(side.steepest)
        # Motion blurs the sides across it, also in brightness; those along it have the contrast.
        width = max(contrasts) / min(steepest)
        found = np.empty((4, 2))
        for i in range(4):
            corner = _intersection(lines[i - 1], lines[i])
            if corner is None:
                return None
            found[i] = corner
        expected = self._without_distortion(corners)
        if np.abs(found - expected).max() > _MAX_SHIFT + width:
            return None
        return TagImage(found, width)

    def _without_distortion(self, points: np.ndarray) -> np.ndarray:
        """Where points (n, 2) in px would be without distortion of the lens."""
        camera = self._camera
        if not camera.distortion:
            return points
        matrix = camera.intrinsics
        distortion = np.array(camera.distortion)
        undistorted = self._cv2.undistortPoints(points[:, None], matrix, distortion, P=matrix)
        return np.asarray(undistorted).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class _Side:
    """Points (n, 2) on a side, px; its contrast, grey values; and steepest change, 1/px."""

    points: np.ndarray
    contrast: float
    steepest: float


def _measure_side(grey: np.ndarray, start: np.ndarray, end: np.ndarray, cells: int) -> _Side | None:
    """Measure a side of the black square; None if there is no edge."""
    length = float(np.linalg.norm(end - start))
    if length < 4:
        return None
    reach = float(np.clip(_REACH * length / cells, _MIN_REACH, _MAX_REACH))
    offsets = np.arange(-reach, reach + _STEP / 2, _STEP)
    count = int(np.clip(length / _SPACING, _MIN_PROFILES, _MAX_PROFILES))
    shares = np.linspace(_MARGIN, 1 - _MARGIN, count)
    for _ in range(_PASSES):
        direction = (end - start) / np.linalg.norm(end - start)
        outward = np.array([direction[1], -direction[0]])  # corners are clockwise, y is down
        base = start + shares[:, None] * (end - start)
        profiles = _sample(grey, base[:, None] + offsets[:, None] * outward)
        mean = profiles.mean(0)
        # Beyond its darkest and brightest place, a profile shows cells and what is around the tag.
        first = int(mean[: len(mean) // 2 + 1].argmin())
        last = int(mean[len(mean) // 2 :].argmax()) + len(mean) // 2
        black, white = mean[first], mean[last]
        if not white - black > _MIN_CONTRAST:  # NaN at the border of the frame
            return None
        brightness = np.clip((profiles[:, first : last + 1] - black) / (white - black), -0.2, 1.2)
        # The area under a profile is that of a step at the place of the edge.
        area = (brightness.sum(1) - brightness[:, [0, -1]].mean(1)) * _STEP
        points = base + (offsets[last] - area)[:, None] * outward
        steepest = float(np.diff(mean[first : last + 1]).max()) / _STEP
        middle, along = _fit_line(points)
        start = middle + along * ((start - middle) @ along)
        end = middle + along * ((end - middle) @ along)
    return _Side(points, float(white - black), steepest)


def _sample(grey: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Grey values at points (..., 2) in px between pixels (bilinear); NaN outside the frame."""
    height, width = grey.shape
    x, y = points[..., 0], points[..., 1]
    inside = (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1)
    x = np.where(inside, x, 0)
    y = np.where(inside, y, 0)
    column = np.minimum(x.astype(int), width - 2)
    row = np.minimum(y.astype(int), height - 2)
    right = x - column
    down = y - row
    above = (1 - right) * grey[row, column] + right * grey[row, column + 1]
    below = (1 - right) * grey[row + 1, column] + right * grey[row + 1, column + 1]
    return np.where(inside, (1 - down) * above + down * below, np.nan)


def _fit_line(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point (2,) on the line through points (n, 2), and its direction (2,); outliers left out."""
    used = np.ones(len(points), bool)
    for _ in range(2):
        middle = points[used].mean(0)
        direction = np.linalg.svd(points[used] - middle, full_matrices=False)[2][0]
        normal = np.array([-direction[1], direction[0]])
        distance = np.abs((points - middle) @ normal)
        limit = max(_MIN_OUTLIER, _OUTLIER_FACTOR * float(np.median(distance)))
        used = distance <= limit
    return middle, direction


def _intersection(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> np.ndarray | None:
    """Where two lines meet (2,); None if they are nearly parallel."""
    matrix = np.column_stack([one[1], -other[1]])
    if abs(np.linalg.det(matrix)) < 0.05:
        return None
    along = np.linalg.solve(matrix, other[0] - one[0])
    return one[0] + along[0] * one[1]
