"""Laws that the impulses of the mesh graph network obey, whatever its weights.

Impulses lie in Coulomb's cone. Between two bodies they are equal and opposite, and act in the same
place, so that a free pair keeps its linear and angular momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clashsim.nets.contact_features import CornerContacts, FreeStep
from clashsim.nets.rigid_bodies import (
    cross,
    gather_rows,
    rotate,
    rotate_inverse,
)

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


def limit_to_cone(raw: Tensor, slip: Tensor, normal: Tensor, *, friction: Tensor) -> Tensor:
    """Turn raw outputs of the network into impulses within Coulomb's cones.

    MuJoCo's impulses lie in the cone at each substep, so their sums do. The impulse on a sliding
    body lies on the cone's edge, so that its deceleration is as exact as the normal impulse.
    Without the cone the network's friction is some percent off, and bodies stop elsewhere.

    Args:
        raw: (K, 2, 3), the network's outputs, world axes.
        slip: (K, 3), world axes, velocity of the corners relative to the other surface, in the unit
            of velocity.
        normal: (K, 3), direction of contact, unit vectors, world axes.
        friction: (K,), coefficients of friction.

    Returns:
        Impulses (K, 2, 3), world axes, in the network's unit: a push along the normal, and across
        it at most friction times as much.
    """
    along_normal = (raw * normal[:, None]).sum(-1)
    sliding = slip - (slip * normal).sum(-1, keepdim=True) * normal
    sliding_speed = torch.sqrt((sliding * sliding).sum(-1, keepdim=True) + _TINY_SQUARE)
    slip_direction = sliding / (sliding_speed + _SLIP_SPEED)
    tangential = raw - along_normal[..., None] * normal[:, None]
    across = _GRIP * tangential - _SLIP_SHARE * slip_direction[:, None]
    scaled = _SHARPNESS * _PUSH_SIZE * along_normal - _PUSH_OFFSET
    push = torch.nn.functional.softplus(scaled) / _SHARPNESS
    # At the cone's edge `across` has length 1; longer ones are divided by their length.
    divisor = (across * across).sum(-1, keepdim=True).clamp(min=1.0).sqrt()
    tangential_share = friction[:, None, None] * across / divisor
    return push[..., None] * (normal[:, None] + tangential_share)


@dataclass(frozen=True, eq=False)
class ContactLaws:
    """Turns outputs of the network into impulses, and impulses into motion.

    Attributes:
        step: The bodies in free motion.
        corners: The K corners of contacts.
        friction: (K,), coefficients of friction.
        unit: (K,), N s, impulse of an output of 1.
        speed_unit: (K,), m/s, the unit of velocity.
    """

    step: FreeStep
    corners: CornerContacts
    friction: Tensor
    unit: Tensor
    speed_unit: Tensor

    @staticmethod
    def of(step: FreeStep, corners: CornerContacts, friction: Tensor) -> ContactLaws:
        """Laws for the corners of contacts.

        Args:
            step: The bodies in free motion.
            corners: The corners.
            friction: (O,), coefficient of friction of each body.
        """
        speed_unit = gather_rows(step.travel, corners.body) / step.dt
        return ContactLaws(
            step,
            corners,
            friction=gather_rows(friction, corners.body),
            unit=corners.weight * corners.scale * speed_unit,
            speed_unit=speed_unit,
        )

    def impulses(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Impulses on bodies.

        Args:
            raw: (K, 2, 3), outputs of the network, in the axes of the corner's body.

        Returns:
            Linear (N s) and angular (N m s) impulses on every body, (O, 2, 3) each, world axes. The
            first of the two changes velocities over the step, the second displacements / dt.
        """
        corners = self.corners
        orientation = gather_rows(self.step.now.orientation, corners.body)
        outputs = rotate(orientation[:, None], raw.to(self.unit))
        limited = limit_to_cone(outputs, corners.slip, corners.normal, friction=self.friction)
        impulse = limited * self.unit[:, None, None]
        moment = cross(corners.arm[:, None].expand_as(impulse), impulse)
        zero = impulse.new_zeros(len(self.step.bodies), 2, 3)
        linear = zero.index_add(0, corners.body, impulse)
        angular = zero.index_add(0, corners.body, moment)
        if not corners.all_fixed:
            reaction = torch.where(corners.on_fixed[:, None, None], 0.0, -impulse)
            moment = cross(corners.other_arm[:, None].expand_as(impulse), reaction)
            some_body = corners.other.clamp(min=0)
            linear = linear.index_add(0, some_body, reaction)
            angular = angular.index_add(0, some_body, moment)
        return linear, angular

    def response(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Velocity of corners relative to the other body under the impulses of outputs.

        Args:
            raw: (K, 2, 3), outputs of the network, in the axes of the corner's body.

        Returns:
            The velocity after the step and the mean velocity over it, (K, 3) each, world axes, in
            the unit of velocity.
        """
        corners = self.corners
        velocity, angular_velocity = motion_change(self.step, *self.impulses(raw))
        change = gather_rows(velocity, corners.body)
        turning = gather_rows(angular_velocity, corners.body)
        change = change + cross(turning, corners.arm[:, None].expand_as(turning))
        if not corners.all_fixed:
            some_body = corners.other.clamp(min=0)
            turning = gather_rows(angular_velocity, some_body)
            other = gather_rows(velocity, some_body)
            other = other + cross(turning, corners.other_arm[:, None].expand_as(turning))
            change = change - torch.where(corners.on_fixed[:, None, None], 0.0, other)
        after = corners.slip[:, None] + change / self.speed_unit[:, None, None]
        return after[:, 0], after[:, 1]


def motion_change(step: FreeStep, linear: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
    """Changes (O, 2, 3) of velocities (m/s) and angular velocities (rad/s) by impulses (O, 2, 3).

    Args:
        step: The bodies in free motion.
        linear: (O, 2, 3), N s, world axes.
        angular: (O, 2, 3), N m s, world axes.
    """
    bodies = step.bodies
    orientation = step.free.orientation[:, None]
    in_body_axes = rotate_inverse(orientation, angular) / bodies.inertia[:, None]
    return linear / bodies.mass[:, None, None], rotate(orientation, in_body_axes)
