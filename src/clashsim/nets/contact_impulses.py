"""Laws that the impulses of the graph network obey, whatever its weights.

Impulses lie in Coulomb's cone. Between two bodies they are equal and opposite, and act in the same
place, so that a free pair keeps its linear and angular momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from clashsim.nets.contact_features import CornerContacts, FreeStep
from clashsim.nets.rigid_bodies import cross, gather_rows

# A push off the floor is softplus(_SHARPNESS * _PUSH_SIZE * output - _PUSH_OFFSET) / _SHARPNESS,
# never negative, and close to linear in positive outputs.
_SHARPNESS = 400.0
_PUSH_SIZE = 0.05  # about the push at an output of 1, in the unit of velocity
_PUSH_OFFSET = 2.0  # so that an output of zero gives nearly no push
# The network's output across the floor is multiplied by _GRIP before it is cut to the cone's edge,
# and slip itself adds up to _SLIP_SHARE against it, half of that at _SLIP_SPEED.
_GRIP = 2.0
_SLIP_SHARE = 0.3
_SLIP_SPEED = 0.5 / 148 / 0.05  # in the unit of velocity: 0.5 m/s for cubes of 100 mm
_TINY_SQUARE = 1e-14  # under the root of a speed, whose gradient at zero is not finite


def opposed_slip(slip: Tensor, normal: Tensor) -> Tensor:
    """What slip (3, K) itself adds to the network's outputs across the normals (3, K)."""
    sliding = slip - (slip * normal).sum(0) * normal
    sliding_speed = torch.sqrt((sliding * sliding).sum(0) + _TINY_SQUARE)
    return -_SLIP_SHARE * sliding / (sliding_speed + _SLIP_SPEED)


def limit_to_cone(raw: Tensor, against_slip: Tensor, normal: Tensor, *, friction: Tensor) -> Tensor:
    """Turn raw outputs of the network into impulses within Coulomb's cones.

    MuJoCo's impulses lie in the cone at each substep, so their sums do. The impulse on a sliding
    body lies on the cone's edge, so that its deceleration is as exact as the normal impulse.
    Without the cone the network's friction is some percent off, and bodies stop elsewhere.

    Args:
        raw: (2, 3, K), the network's outputs.
        against_slip: (3, K), `opposed_slip`.
        normal: (3, K), direction of contact, unit vectors in the same axes.
        friction: (K,), coefficients of friction.

    Returns:
        Impulses (2, 3, K) in the network's unit: a push along the normal, and across it at most
        friction times as much.
    """
    along_normal = (raw * normal).sum(1, keepdim=True)
    across = _GRIP * (raw - along_normal * normal) + against_slip
    scaled = _PUSH_SIZE * along_normal - _PUSH_OFFSET / _SHARPNESS
    push = softplus(scaled, beta=_SHARPNESS)
    # At the cone's edge `across` has length 1; longer ones are divided by their length.
    divisor = (across * across).sum(1, keepdim=True).clamp(min=1.0).sqrt()
    return push * (normal + (friction / divisor) * across)


@dataclass(frozen=True, eq=False)
class ContactLaws:
    """Turns outputs of the network into impulses, and impulses into motion.

    Attributes:
        step: The bodies in free motion.
        corners: The K corners of contacts.
        friction: (K,), coefficients of friction.
        against_slip: (3, K), `opposed_slip`.
        unit: (K,), N s, impulse of an output of 1.
        jacobian: (12, 3, K), from impulses in the axes of the own body to linear and angular
            impulses on both ends, world axes. Its transpose gives the relative velocity.
    """

    step: FreeStep
    corners: CornerContacts
    friction: Tensor
    against_slip: Tensor
    unit: Tensor
    jacobian: Tensor

    @staticmethod
    def of(step: FreeStep, corners: CornerContacts, friction: Tensor) -> ContactLaws:
        """Laws for the corners of contacts.

        Args:
            step: The bodies in free motion.
            corners: The corners.
            friction: (O,), coefficient of friction of each body.
        """
        # Impulses on the two ends are equal and opposite; fixed surfaces take none.
        own, other = corners.present
        sign = torch.stack([own, -other])
        push = corners.orientation * sign[:, None, None]  # (2, 3, 3, K)
        moment = cross(corners.arm[:, :, None].expand_as(push), push, dim=1)
        return ContactLaws(
            step,
            corners,
            friction=gather_rows(friction, corners.ends[0]),
            against_slip=opposed_slip(corners.slip, corners.normal),
            unit=corners.weight * corners.scale * corners.speed_unit,
            jacobian=torch.cat([push, moment], 1).flatten(0, 1),
        )

    def impulses(self, raw: Tensor) -> Tensor:
        """Impulses on bodies.

        Args:
            raw: (K, 6), outputs of the network, in the axes of the corner's body.

        Returns:
            Linear (N s), then angular (N m s) impulses on every body, (O, 2, 6), world axes. The
            first of the two changes velocities over the step, the second displacements / dt.
        """
        outputs = raw.to(self.unit).T.contiguous().reshape(2, 3, -1)
        limited = limit_to_cone(
            outputs, self.against_slip, self.corners.normal, friction=self.friction
        )
        impulse = limited * self.unit
        on_ends = (self.jacobian * impulse[:, None]).sum(2)  # (2, 12, K)
        rows = on_ends.reshape(2, 2, 6, -1).permute(1, 3, 0, 2).reshape(-1, 12)
        total = rows.new_zeros(len(self.step.bodies), 12)
        return total.index_add(0, self.corners.ends.reshape(-1), rows).reshape(-1, 2, 6)

    def response(self, raw: Tensor) -> Tensor:
        """Velocity of corners relative to the other body under the impulses of outputs.

        Args:
            raw: (K, 6), outputs of the network, in the axes of the corner's body.

        Returns:
            The velocity after the step and the mean velocity over it, (2, 3, K), in the axes of the
            corner's body, in the unit of velocity.
        """
        corners = self.corners
        motion = motion_change(self.step, self.impulses(raw)).reshape(-1, 12)
        rows = gather_rows(motion, corners.ends)  # (2 ends, K, 12)
        of_ends = rows.reshape(2, -1, 2, 6).permute(2, 0, 3, 1).reshape(2, 12, 1, -1)
        change = (self.jacobian * of_ends).sum(1)
        return corners.slip + change / corners.speed_unit


def motion_change(step: FreeStep, impulses: Tensor) -> Tensor:
    """Changes (O, 2, 6) of linear (m/s) and angular (rad/s) velocities by impulses (O, 2, 6)."""
    linear, angular = impulses.split(3, 2)
    turning = angular @ step.inverse_inertia  # which is symmetric
    return torch.cat([linear / step.bodies.mass[:, None, None], turning], 2)
