"""What surrounds the bodies of a graph simulator, and what a network was not trained for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.box import Box
from clashsim.core.convex_mesh import ConvexBody, ConvexMesh
from clashsim.core.errors import SceneError
from clashsim.nets.contact_features import GRAVITY
from clashsim.nets.network_file import shipped_net
from clashsim.nets.trained_domain import TrainedDomain

_ROUNDING_ERROR = 1e-6  # relative, of comparisons with trained ranges


@dataclass(frozen=True)
class Surroundings:
    """What surrounds the bodies of a graph simulator.

    Attributes:
        gravity: (3,), m/s^2, world axes.
        floor_normal: (3,), world axes, of any length.
        floor_height: m, along the normal.
        drag: 1/s, rate at which the velocity of bodies decays in flight.
        walls: Further planes, each a normal (3,) of any length and a height along it, m.
        fixed: Fixed convex meshes, world axes.
    """

    gravity: Sequence[float] = (0.0, 0.0, -9.81)
    floor_normal: Sequence[float] = (0.0, 0.0, 1.0)
    floor_height: float = 0.0
    drag: float = 0.0
    walls: Sequence[tuple[Sequence[float], float]] = ()
    fixed: Sequence[ConvexMesh] = ()

    def planes(self) -> list[tuple[np.ndarray, float]]:
        """Unit normal (3,) and height (m) of the floor, then of the walls."""
        planes = []
        for normal, height in [(self.floor_normal, self.floor_height), *self.walls]:
            vector = np.asarray(normal, float)
            planes.append((vector / np.linalg.norm(vector), float(height)))
        return planes


def unit_of_length(domain: TrainedDomain, bodies: Sequence[ConvexBody]) -> float:
    """The network's unit of length in a scene of bodies, m."""
    if domain.length is not None:
        return domain.length
    return min(body.size for body in bodies)


def shipped_contact(body: Box | ConvexBody, values: np.ndarray, *, dt: float) -> np.ndarray:
    """Contact parameters (5,) on the unit scale of the network that comes with clashsim.

    Args:
        body: The smallest body of the scene.
        values: (5,), SI units, in the order of `CONTACT_NAMES`.
        dt: s, duration of a step.
    """
    domain = shipped_net().domain
    shape = ConvexBody.of_box(body) if isinstance(body, Box) else body
    return domain.contact_to_unit(values, dt=dt, length=unit_of_length(domain, [shape]))


def refuse_untrained(
    domain: TrainedDomain,
    bodies: Sequence[ConvexBody],
    surroundings: Surroundings,
    *,
    dt: float,
) -> None:
    """Raise a `SceneError` that names what a network was not trained for.

    Args:
        domain: What it was trained for.
        bodies: The bodies of a scene.
        surroundings: Gravity, planes and fixed meshes.
        dt: s, duration of a step.
    """
    for body in bodies:
        _refuse_shape(domain, body)
    sizes = [body.size for body in bodies]
    ratio = max(sizes) / min(sizes)
    if ratio > domain.size_ratio:
        raise _refusal(
            f"the largest body is {ratio:.2g} times as large as the smallest, and it was trained "
            f"for {domain.size_ratio:g} times"
        )
    step = dt * np.sqrt(GRAVITY / unit_of_length(domain, bodies))
    if not _within(domain.relative_step, step):
        low, high = (1e3 * bound * dt / step for bound in domain.relative_step)
        raise _refusal(
            f"a step of {1e3 * dt:.4g} ms, and for bodies of this size it was trained for "
            f"{low:.4g} to {high:.4g} ms"
        )
    _refuse_surroundings(domain, surroundings)


def _refuse_shape(domain: TrainedDomain, body: ConvexBody) -> None:
    """Raise a `SceneError` if a body's shape is outside of the domain."""
    if not _within(domain.size, body.size):
        low, high = domain.size
        raise _refusal(
            f"{body.name} is as large as a cube with a side of {2e3 * body.size:.0f} mm, and it "
            f"was trained for {2e3 * low:.0f} to {2e3 * high:.0f} mm"
        )
    if len(body.parts) > domain.parts:
        raise _refusal(f"{body.name} has {len(body.parts)} meshes, and it takes {domain.parts}")
    for part in body.parts:
        if len(part.corners) > domain.corners:
            raise _refusal(
                f"a mesh of {body.name} has {len(part.corners)} corners, and it was trained for "
                f"{domain.corners} or fewer"
            )
    if body.aspect > domain.aspect * (1 + _ROUNDING_ERROR):
        raise _refusal(
            f"{body.name} has sides of a ratio of {body.aspect:.2g}, and it was trained for "
            f"{domain.aspect:g} or less"
        )
    roundness = min(part.inner_radius for part in body.parts) / body.size
    if roundness < domain.roundness:
        raise _refusal(
            f"{body.name} has an inner radius of {roundness:.2g} of its size, and it was trained "
            f"for {domain.roundness:g} or more (a cube has 1)"
        )


def _refuse_surroundings(domain: TrainedDomain, surroundings: Surroundings) -> None:
    """Raise a `SceneError` if gravity or the fixed surfaces are outside of the domain."""
    planes = surroundings.planes()
    if len(planes) > domain.planes:
        raise _refusal(f"{len(planes)} planes, and it was trained for {domain.planes}")
    if len(surroundings.fixed) > domain.fixed_boxes:
        count = len(surroundings.fixed)
        raise _refusal(f"{count} fixed boxes, and it was trained for {domain.fixed_boxes}")
    gravity = float(np.linalg.norm(surroundings.gravity))
    if not _within(domain.gravity, gravity):
        low, high = domain.gravity
        raise _refusal(
            f"gravity of {gravity:.3g} m/s^2, and it was trained for {low:g} to {high:g}"
        )
    if gravity > 0:
        cosine = -float(planes[0][0] @ np.asarray(surroundings.gravity, float)) / gravity
        tilt = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
        if tilt > domain.tilt:
            raise _refusal(
                f"a floor that is tilted by {tilt:.0f} degrees, and it was trained for "
                f"{domain.tilt:g} degrees"
            )


def _within(bounds: tuple[float, float], value: float) -> bool:
    """Whether a value is in a range, up to rounding."""
    low, high = bounds
    return low * (1 - _ROUNDING_ERROR) <= value <= high * (1 + _ROUNDING_ERROR)


def _refusal(reason: str) -> SceneError:
    """A sentence on what the network was not trained for."""
    return SceneError(f"the graph network was not trained for this scene: {reason}")
