"""Routes: straight corridors in a chain, with sub-goals at their ends (CLASH, Sec. IV-C)."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError, did_you_mean

SEGMENT_LENGTH = 0.3  # m, of the corridors that policies are trained on
CORRIDOR_WIDTH = 0.08  # m
GOAL_RADIUS = 0.04  # m: a sub-goal counts as reached within this distance
_MAX_SEGMENT_LENGTH = 0.4  # m: policies trained on 0.3 m still reach the end of such a segment
_MAX_COORDINATE = 100.0  # m: a larger value is a mistake in units
_MIN_GAP = 0.05  # m between way points
_MAX_GAP = 1.0  # m between way points


@dataclass(frozen=True)
class Route:
    """A way through straight corridors.

    Attributes:
        name: Name of the route.
        points: Way points (W, 2) in m and world axes, W > 1.
        random: Whether a body begins with a random heading.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    random: bool = True

    def __post_init__(self) -> None:
        array = np.asarray(self.points, float)
        has_shape = array.ndim == 2 and array.shape[1] == 2 and len(array) >= 2
        if not has_shape or not (np.abs(array) < _MAX_COORDINATE).all():
            raise DataError(
                f"route {self.name!r} needs at least two points of two numbers in m each"
            )
        gaps = np.linalg.norm(np.diff(array, axis=0), axis=1)
        if gaps.min() < _MIN_GAP or gaps.max() > _MAX_GAP:
            raise DataError(
                f"way points of route {self.name!r} must be {_MIN_GAP:g} to {_MAX_GAP:g} m apart, "
                f"got {gaps.min():.3g} to {gaps.max():.3g} m: are they in m?"
            )
        object.__setattr__(self, "points", tuple((float(x), float(y)) for x, y in array))

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self.points) - 1

    @property
    def headings(self) -> np.ndarray:
        """Direction (S,) of each segment in the world, rad."""
        steps = np.diff(np.asarray(self.points), axis=0)
        return np.arctan2(steps[:, 1], steps[:, 0])

    @property
    def lengths(self) -> np.ndarray:
        """Length (S,) of each segment, m."""
        return np.linalg.norm(np.diff(np.asarray(self.points), axis=0), axis=1)

    def heading_change(self, segment: int) -> float:
        """Return by how much (rad) the route turns at the end of a segment; 0 at the last one."""
        if segment + 1 >= len(self):
            return 0.0
        headings = self.headings
        return float(wrap_angle(headings[segment + 1] - headings[segment]))

    def inside(self, position: np.ndarray) -> bool:
        """Whether a position (2,) lies in one of the corridors, whose ends are rounded off."""
        for start, end in pairwise(np.asarray(self.points)):
            step = end - start
            share = np.clip((position - start) @ step / (step @ step), 0, 1)  # along the segment
            from_centre_line = position - start - share * step
            if np.linalg.norm(from_centre_line) <= CORRIDOR_WIDTH / 2:
                return True
        return False


def _chain(
    name: str, start: tuple[float, float], heading_changes: Sequence[float], *, random: bool
) -> Route:
    """Return a route of segments of the paper's length, the first along x.

    Args:
        name: Name of the route.
        start: First way point, m.
        heading_changes: Angles (degrees) between successive segments.
        random: Whether a body begins with a random heading.
    """
    points = [start]
    heading = 0.0
    for change in (0.0, *heading_changes):
        heading += math.radians(change)
        x, y = points[-1]
        points.append(
            (x + SEGMENT_LENGTH * math.cos(heading), y + SEGMENT_LENGTH * math.sin(heading))
        )
    return Route(name, tuple(points), random)


# One, two and three segments, as in the paper, which does not give their heading changes. They lie
# within the reach of the virtual laboratory's arm, half a metre around the origin.
ROUTES = {
    route.name: route
    for route in (
        _chain("1", (-0.15, 0.0), (), random=True),
        _chain("2", (-0.25, -0.15), (90.0,), random=True),
        _chain("3", (-0.35, -0.15), (90.0, -90.0), random=False),
    )
}


def load_route(source: str) -> Route:
    """Return one of the three routes by name, or a route from a file.

    Args:
        source: "1", "2" or "3", or a .csv file of way points with a header x,y in m.
    """
    if source in ROUTES:
        return ROUTES[source]
    path = Path(source)
    if path.suffix != ".csv":
        raise DataError(
            f"there is no route {source!r}; {did_you_mean(source, ROUTES)}, "
            "or give a .csv file of way points"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [_without_spaces(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"the route {source!r} cannot be read: {reason}") from None
    try:
        points = tuple((float(row["x"]), float(row["y"])) for row in rows)
        return split_long_segments(Route(path.stem, points))
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"the route {source!r} needs a header x,y and a number in each row"
        ) from None


def _without_spaces(row: dict[str, str]) -> dict[str, str]:
    """Return a row of a CSV file without the spaces around the names of its columns."""
    return {str(name).strip(): value for name, value in row.items()}


def split_long_segments(route: Route) -> Route:
    """Return the same route in segments that are not much longer than those of training."""
    points = [route.points[0]]
    for start, end in pairwise(np.asarray(route.points)):
        length = float(np.linalg.norm(end - start))
        parts = max(1, math.ceil(length / _MAX_SEGMENT_LENGTH))
        for i in range(parts):
            x, y = start + (end - start) * (i + 1) / parts
            points.append((float(x), float(y)))
    return Route(route.name, tuple(points), route.random)
