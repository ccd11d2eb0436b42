"""What a graph network was trained for, and the scale of its contact parameters.

Contact parameters enter the network without units: friction, stiffness dt^2, damping dt, the first
impedance, and the width of the impedance over the unit of length. Bodies of other sizes in steps of
another duration are then the same problem, as long as these numbers and `relative_step` are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

Range = tuple[float, float]
CONTACT_NAMES = ("friction", "stiffness", "damping", "d0", "width")
_LARGEST = sys.float_info.max
_LINEAR = "d0"  # the others have a logarithmic scale
_FRICTION = 0  # index of friction
_ANY: Range = (0.0, 1e9)
# Of networks for meshes. Stiffness and damping are those per step and mass, squared for stiffness.
_MESH_CONTACT: tuple[Range, ...] = (
    (0.05, 1.2),
    (0.1, 50.0),
    (0.3, 8.2),  # MuJoCo's own limit for damping that steps resolve, 1 per substep
    (0.5, 0.97),
    (0.003, 0.3),
)


@dataclass(frozen=True)
class TrainedDomain:
    """Ranges in which a network was trained. A body's size is half the side of an equal cube.

    Attributes:
        contact: Ranges of the contact parameters without units, in the order of `CONTACT_NAMES`.
        length: m, the unit of length; None for the size of the smallest body of a scene.
        size: m, of bodies.
        size_ratio: Largest ratio of the sizes of two bodies in a scene.
        relative_step: dt sqrt(9.81 m/s^2 / length).
        aspect: Largest ratio of the sides of a body.
        roundness: Smallest radius inside of a mesh over its body's size.
        corners: Largest number of corners of a mesh.
        parts: Largest number of meshes of a body.
        gravity: m/s^2.
        tilt: degrees, largest angle between gravity and the first plane.
        planes: Largest number of planes.
        fixed_boxes: Largest number of fixed boxes.
    """

    contact: tuple[Range, ...] = _MESH_CONTACT
    length: float | None = None
    size: Range = _ANY
    size_ratio: float = 1e9
    relative_step: Range = _ANY
    aspect: float = 1e9
    roundness: float = 0.0
    corners: int = 10**9
    parts: int = 10**9
    gravity: Range = _ANY
    tilt: float = 180.0
    planes: int = 10**9
    fixed_boxes: int = 10**9

    def friction(self, unit: Tensor) -> Tensor:
        """Coefficients of friction from values on the unit scale (-1 to 1) of their parameter."""
        low, high = self.contact[_FRICTION]
        return low * (high / low) ** ((unit + 1) / 2)

    def contact_to_unit(self, values: np.ndarray, *, dt: float, length: float) -> np.ndarray:
        """Contact parameters on the network's unit scale.

        Args:
            values: (..., 5), in the order of `CONTACT_NAMES`: friction, stiffness (1/s^2), damping
                (1/s), first impedance, width (m).
            dt: s, duration of a step.
            length: m, unit of length of the scene.

        Returns:
            (..., 5), beyond -1 to 1 where a value is outside of the trained range.
        """
        plain = np.asarray(values, float) * _without_units(dt, length)
        return _scaled(self.contact, plain)

    def contact_from_unit(self, unit: np.ndarray, *, dt: float, length: float) -> np.ndarray:
        """Contact parameters (..., 5) in SI units; the inverse of `contact_to_unit`."""
        plain = np.empty(np.shape(unit))
        for i, (name, bounds) in enumerate(zip(CONTACT_NAMES, self.contact, strict=True)):
            low, high = _on_scale(name, np.array(bounds))
            value = low + (np.asarray(unit)[..., i] + 1) / 2 * (high - low)
            plain[..., i] = value if name == _LINEAR else np.exp(value)
        return plain / _without_units(dt, length)

    def as_json(self) -> dict[str, Any]:
        """The domain as JSON values."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> TrainedDomain:
        """The domain of JSON values; raises KeyError, TypeError or ValueError if they are none."""
        known = asdict(UNTRAINED)
        if set(values) != set(known):
            raise ValueError("its trained domain has other fields")
        contact = tuple(_range(bounds) for bounds in values["contact"])
        if len(contact) != len(CONTACT_NAMES):
            raise ValueError("its trained domain has another number of contact parameters")
        fields: dict[str, Any] = {"contact": contact}
        for name, sample in known.items():
            value = values[name]
            if name == "contact":
                continue
            if isinstance(sample, tuple):
                fields[name] = _range(value)
            elif value is None and name == "length":
                fields[name] = None
            else:
                fields[name] = type(sample if sample is not None else 0.0)(_number(value))
        return TrainedDomain(**fields)


def _without_units(dt: float, length: float) -> np.ndarray:
    """Factors (5,) that take the units from contact parameters."""
    return np.array([1.0, dt * dt, dt, 1.0, 1 / length])


def _on_scale(name: str, values: np.ndarray) -> np.ndarray:
    """Values on the scale of the parameter: logarithms, except for the impedance."""
    return values if name == _LINEAR else np.log(np.maximum(values, 1e-300))


def _scaled(ranges: tuple[Range, ...], plain: np.ndarray) -> np.ndarray:
    """Contact parameters (..., 5) without units on the unit scale."""
    unit = np.empty(plain.shape)
    for i, (name, bounds) in enumerate(zip(CONTACT_NAMES, ranges, strict=True)):
        low, high = _on_scale(name, np.array(bounds))
        unit[..., i] = 2 * (_on_scale(name, plain[..., i]) - low) / (high - low) - 1
    return unit


def _number(value: Any) -> float:
    """A finite number of a file."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_LARGEST <= value <= _LARGEST:  # a whole number may be too large
        raise ValueError("its trained domain holds something that is not a finite number")
    return value


def _range(bounds: Any) -> Range:
    """A range of a file."""
    low, high = bounds
    return (float(_number(low)), float(_number(high)))


# Networks that were made in this process have no ranges yet.
UNTRAINED = TrainedDomain()
# What `clashsim.fit.train_graph` trains a network for meshes on.
MESHES = TrainedDomain(
    size=(0.005, 0.25),
    size_ratio=2.5,
    relative_step=(0.03, 0.15),
    aspect=6.0,
    roundness=0.2,
    corners=24,
    parts=3,
    gravity=(0.0, 10.8),
    tilt=15.0,
    planes=3,
    fixed_boxes=1,
)
