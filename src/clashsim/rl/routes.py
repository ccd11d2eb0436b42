"""Routes: straight corridors one after the other, and the sub-goals at their ends (CLASH, Sec.
IV-C).
"""

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

_LONGEST = 0.4  # m: a policy of 0.3 m segments still reaches the end of these
SEGMENT_LENGTH, CORRIDOR_WIDTH, GOAL_RADIUS = (
    0.3,
    0.08,
    0.04,
)  # m: of a corridor, and from a sub-goal within which it counts as reached


@dataclass(frozen=True)
class Route:
    """Way points (W, 2) in m, W > 1, and whether a body begins with a random heading."""

    name: str
    points: tuple[tuple[float, float], ...]
    random: bool = True

    def __post_init__(self) -> None:
        array = np.asarray(self.points, float)
        if (
            array.ndim != 2
            or array.shape[1] != 2
            or len(array) < 2
            or not (np.abs(array) < 100).all()
        ):
            raise DataError(
                f"route {self.name!r} needs at least two points of two numbers in m each"
            )
        gaps = np.linalg.norm(np.diff(array, axis=0), axis=1)
        if gaps.min() < 0.05 or gaps.max() > 1.0:
            raise DataError(
                f"way points of route {self.name!r} must be 0.05 to 1 m apart, got {gaps.min():.3g} to {gaps.max():.3g} m: are they in m?"
            )
        object.__setattr__(self, "points", tuple((float(x), float(y)) for x, y in array))

    def __len__(self) -> int:
        return len(self.points) - 1

    @property
    def headings(self) -> np.ndarray:
        """Direction (S,) of each segment, rad."""
        way = np.diff(np.asarray(self.points), axis=0)
        return np.arctan2(way[:, 1], way[:, 0])

    @property
    def lengths(self) -> np.ndarray:
        """Length (S,) of each segment, m."""
        return np.linalg.norm(np.diff(np.asarray(self.points), axis=0), axis=1)

    def turn(self, segment: int) -> float:
        """By how much (rad) the way turns at the end of a segment; the last one goes on straight."""
        headings = self.headings
        return (
            float(wrap_angle(headings[segment + 1] - headings[segment]))
            if segment + 1 < len(self)
            else 0.0
        )

    def inside(self, place: np.ndarray) -> bool:
        """Whether a place (2,) lies in one of the corridors, their ends rounded off."""
        points = np.asarray(self.points)
        for a, b in pairwise(points):
            along = np.clip((place - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
            if np.linalg.norm(place - a - along * (b - a)) <= CORRIDOR_WIDTH / 2:
                return True
        return False


def _chain(name: str, start: tuple[float, float], turns: Sequence[float], *, random: bool) -> Route:
    """Segments of the paper's length, turned against each other by degrees."""
    points, heading = [start], 0.0
    for turn in (0.0, *turns):
        heading += math.radians(turn)
        points.append(
            (
                points[-1][0] + SEGMENT_LENGTH * math.cos(heading),
                points[-1][1] + SEGMENT_LENGTH * math.sin(heading),
            )
        )
    return Route(name, tuple(points), random)


# One, two and three segments, as in the paper, which does not give their turns. The laboratory's
# arm reaches half a metre about the middle.
ROUTES = {
    r.name: r
    for r in (
        _chain("1", (-0.15, 0.0), (), random=True),
        _chain("2", (-0.25, -0.15), (90.0,), random=True),
        _chain("3", (-0.35, -0.15), (90.0, -90.0), random=False),
    )
}


def route(source: str) -> Route:
    """One of the three routes by name, or one from a CSV file of way points with a header x, y in
    m.
    """
    if source in ROUTES:
        return ROUTES[source]
    path = Path(source)
    if path.suffix != ".csv":
        raise DataError(
            f"there is no route {source!r}; {did_you_mean(source, ROUTES)}, or give a .csv file of way points"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [{str(k).strip(): v for k, v in row.items()} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"the route {source!r} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        return cut(Route(path.stem, tuple((float(r["x"]), float(r["y"])) for r in rows)))
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"the route {source!r} needs a header x,y and a number in each row"
        ) from None


def cut(route: Route) -> Route:
    """The same way in segments that are not much longer than those that policies are trained on."""
    points = [route.points[0]]
    for a, b in pairwise(np.asarray(route.points)):
        parts = max(1, math.ceil(float(np.linalg.norm(b - a)) / _LONGEST))
        points += [tuple(map(float, a + (b - a) * (i + 1) / parts)) for i in range(parts)]  # type: ignore[misc]
    return Route(route.name, tuple(points), route.random)
