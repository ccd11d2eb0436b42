"""Random rigid bodies for training: boxes, convex hulls, prisms, and compounds of two or three.

A body of size 1 has the volume of a cube with a side of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.convex_mesh import ConvexBody, ConvexMesh

Kind = Literal["cube", "box", "hull", "prism", "compound"]
_MAX_TRIES = 1000
_HULL_POINTS = (4, 16)  # of a convex hull
_HULL_RADII = (0.75, 1.0)  # of its points, before it is stretched
_PRISM_SIDES = (5, 12)
_PART_CORNERS = 8  # of a mesh of a compound
_OVERLAP = 0.1  # of the next mesh of a compound, over its length towards the first one
_PART_SIZES = (0.5, 1.0)  # of the next meshes of a compound


def random_parts(
    kind: Kind, rng: np.random.Generator, *, aspect: float, roundness: float, corners: int
) -> tuple[ConvexMesh, ...]:
    """The meshes of a random body of size 1, centred on its centre of mass.

    Args:
        kind: Kind of the body.
        rng: Random numbers.
        aspect: Largest ratio of its sides.
        roundness: Smallest inner radius of a mesh, over the body's size.
        corners: Largest number of corners of all meshes.
    """
    for _ in range(_MAX_TRIES):
        parts = _of_kind(kind, rng, aspect)
        body = ConvexBody.even(parts, 1.0)
        scale = 1 / body.size
        parts = tuple(
            ConvexMesh(scale * (part.corners - body.centre), part.faces) for part in parts
        )
        fits = sum(len(part.corners) for part in parts) <= corners
        round_enough = min(part.inner_radius for part in parts) >= roundness
        if fits and round_enough and body.aspect <= aspect:
            return parts
    raise AssertionError(f"no random {kind} within its limits")


def _of_kind(kind: Kind, rng: np.random.Generator, aspect: float) -> tuple[ConvexMesh, ...]:
    """Meshes of any size, which may be outside of the limits."""
    if kind == "cube":
        return (ConvexMesh.box(np.ones(3)),)
    if kind == "box":
        return (ConvexMesh.box(_sides(rng, aspect)),)
    if kind == "hull":
        return (_hull(rng, aspect, int(rng.integers(*_HULL_POINTS, endpoint=True))),)
    if kind == "prism":
        radius, height, _ = _sides(rng, aspect)
        return (ConvexMesh.prism(radius, height, int(rng.integers(*_PRISM_SIDES, endpoint=True))),)
    return _compound(rng, aspect)


def _sides(rng: np.random.Generator, aspect: float) -> np.ndarray:
    """Half sizes (3,) of a random box: the ratio of the longest to the shortest is log-uniform."""
    longest = aspect ** rng.uniform()
    middle = longest ** rng.uniform()
    return rng.permutation([1.0, middle, longest])


def _hull(rng: np.random.Generator, aspect: float, points: int) -> ConvexMesh:
    """The hull of random points near a sphere that is stretched along random axes."""
    directions = rng.normal(size=(points, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radii = rng.uniform(*_HULL_RADII, (points, 1))
    rotation = Rotation.random(rng=rng).as_matrix()
    return ConvexMesh.hull(radii * directions * _sides(rng, aspect) @ rotation.T)


def _compound(rng: np.random.Generator, aspect: float) -> tuple[ConvexMesh, ...]:
    """A box or hull, with one or two others attached to its sides."""
    first = _part(rng, np.sqrt(aspect))
    parts = [first]
    for _ in range(int(rng.integers(1, 2, endpoint=True))):
        part = _part(rng, np.sqrt(aspect))
        scale = rng.uniform(*_PART_SIZES)
        axis = int(rng.integers(3))
        sign = float(rng.choice([-1, 1]))
        corners = scale * part.corners
        reach = np.ptp(corners[:, axis])
        shift = np.zeros(3)
        # The sides touch, or overlap a little, so that the body is one piece.
        own_end = (sign * corners[:, axis]).min()
        shift[axis] = sign * ((sign * first.corners[:, axis]).max() - own_end - _OVERLAP * reach)
        sideways = [i for i in range(3) if i != axis]
        shift[sideways] += (
            rng.uniform(-0.5, 0.5, 2) * np.ptp(first.corners[:, sideways], axis=0) / 2
        )
        parts.append(ConvexMesh(corners + shift, part.faces))
    return tuple(parts)


def _part(rng: np.random.Generator, aspect: float) -> ConvexMesh:
    """A mesh of a compound."""
    if rng.uniform() < 0.7:
        return ConvexMesh.box(_sides(rng, aspect))
    return _hull(rng, aspect, _PART_CORNERS)


def choose_kinds(kinds: Sequence[Kind], count: int, rng: np.random.Generator) -> list[Kind]:
    """Kinds of `count` bodies, each equally likely."""
    return [kinds[int(i)] for i in rng.integers(len(kinds), size=count)]
