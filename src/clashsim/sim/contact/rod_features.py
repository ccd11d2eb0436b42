"""Features of a rod (a cylinder or capsule) whose side lies along the surface that it touches.

A rod that stands on end beside a block, as most pushers do, touches it along a line. MuJoCo makes
two contacts of it, at the ends of the part where both surfaces overlap.
"""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.ball_features import reach_on_polytope, set_polytope_kind
from clashsim.sim.contact.posed import Features, PosedGeom, PosedPair
from clashsim.sim.contact.problem import EDGE, STRUCK, VERTEX
from clashsim.sim.contact.surfaces import GEOM_BOX, GEOM_CAPSULE, GEOM_CYLINDER, GeomSurface

ROUND_ALONG_AXIS = (GEOM_CAPSULE, GEOM_CYLINDER)
_PARALLEL = 1e-3  # sine of the angle below which an axis is parallel to a surface or an edge


def of_rod(pair: PosedPair, rod: int) -> Features | None:
    """Two features of a rod against a polytope or another rod.

    Args:
        pair: The pair.
        rod: Which of its geoms is the rod.

    Returns:
        The features, which cover impacts in which the rod's side lies along the other surface; None
        where the other geom is neither a polytope nor a rod.
    """
    other = 1 - rod
    met = pair.geoms[other]
    surface = met.surface
    is_rod = met.kind in ROUND_ALONG_AXIS
    if not is_rod and (surface is None or not surface.is_polytope):
        return None
    geom = pair.geoms[rod]
    axis = geom.rotation[:, :, 2]
    radius = float(geom.size[0])
    features = Features.blank(len(pair), 2, carrier=rod, against=other)
    # The contact's normal points into the struck body; a feature's points towards its carrier.
    normal = pair.normal if rod == STRUCK else -pair.normal
    features.normal[:] = normal[:, None]
    features.rounding[:] = (radius**2 * (np.eye(3) - axis[:, :, None] * axis[:, None, :]))[:, None]
    features.covered[:] = np.abs(np.einsum("ni,ni->n", axis, normal)) < _PARALLEL
    touched = pair.points[other]
    height = np.einsum("ni,ni->n", touched - geom.position, axis)  # along the axis
    if is_rod:
        low, high = _span_of_rod(features, geom, met)
    else:
        assert surface is not None
        low, high = _span_on_polytope(surface, met, touched, axis)
        low, high = low + height, high + height
    low = np.maximum(low, -geom.size[1])
    high = np.minimum(high, geom.size[1])
    features.covered[:] &= high > low
    ends = np.stack([low, high], 1)
    features.point[:] = geom.position[:, None] + ends[..., None] * axis[:, None]
    if is_rod:
        features.target[:] = met.position[:, None]
        return features
    assert surface is not None
    features.target[:] = touched[:, None] + (ends - height[:, None])[..., None] * axis[:, None]
    middle = touched + (0.5 * (low + high) - height)[:, None] * axis
    _set_touched_part(features, surface, met, middle, axis, radius)
    if (geom.kind, met.kind) != (GEOM_CAPSULE, GEOM_BOX):
        # At an edge, MuJoCo's general collision detection takes the normal of one of the faces as
        # soon as the bodies penetrate.
        features.covered[:] &= features.kind[:, 0] != EDGE
    return features


def _span_of_rod(
    features: Features, geom: PosedGeom, met: PosedGeom
) -> tuple[np.ndarray, np.ndarray]:
    """Where a parallel rod begins and ends, (N,) each, m along the axis from the other's middle.

    Fills what features meet: the axis of that rod, at its radius.
    """
    axis = geom.rotation[:, :, 2]
    other_axis = met.rotation[:, :, 2]
    features.kind[:] = EDGE
    features.edge[:] = other_axis[:, None]
    features.radius[:] = met.size[0]
    features.covered[:] &= np.linalg.norm(np.cross(axis, other_axis), axis=1) < _PARALLEL
    middle = np.einsum("ni,ni->n", met.position - geom.position, axis)
    return middle - met.size[1], middle + met.size[1]


def _span_on_polytope(
    surface: GeomSurface, met: PosedGeom, touched: np.ndarray, axis: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How far a polytope goes on along an axis, (N,) each, m from the points touched (N, 3)."""
    local = met.to_local(touched)
    local_axis = np.einsum("nji,nj->ni", met.rotation, axis)
    rates = local_axis @ surface.face_normals.T
    gaps = surface.face_offsets - local @ surface.face_normals.T
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = gaps / rates
    high = np.where(rates > _PARALLEL, distance, np.inf).min(1)
    low = np.where(rates < -_PARALLEL, distance, -np.inf).max(1)
    return low, high


def _set_touched_part(
    features: Features,
    surface: GeomSurface,
    met: PosedGeom,
    middle: np.ndarray,
    axis: np.ndarray,
    radius: float,
) -> None:
    """Decide whether a polytope is touched on a face or an edge, and how far the rod may move on.

    Args:
        features: To be filled.
        surface: The polytope's.
        met: The polytope.
        middle: (N, 3), m, of the line that is touched.
        axis: (N, 3), of the rod.
        radius: m, of the rod.
    """
    local = met.to_local(middle)
    set_polytope_kind(features, surface, met.rotation, local)
    features.kind[:, 1] = features.kind[:, 0]
    features.edge[:, 1] = features.edge[:, 0]
    on_edge = features.kind[:, 0] == EDGE
    across = np.linalg.norm(np.cross(features.edge[:, 0], axis), axis=1)
    features.covered[:] &= features.kind[:, 0] != VERTEX
    features.covered[:] &= ~on_edge | (across < _PARALLEL)
    direction = np.einsum("nji,nj->ni", met.rotation, features.normal[:, 0])
    local_axis = np.einsum("nji,nj->ni", met.rotation, axis)
    reach = reach_on_polytope(surface, local, direction, radius, axis=local_axis)
    features.reach[:] = reach[:, None]
