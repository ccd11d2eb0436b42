"""Laws that the impulses of the mesh graph network obey, whatever its weights.

Impulses from fixed surfaces lie in Coulomb's cone. Between two bodies, impulses and their moments
sum to zero, so that a free pair keeps its momentum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clashsim.nets.contact_features import CornerContacts
from clashsim.nets.rigid_bodies import RigidBodyState, cross, gather_rows

# A push off the floor is softplus(_SHARPNESS * _PUSH_SIZE * output - _PUSH_OFFSET) / _SHARPNESS,
# never negative, and close to linear in positive outputs.
_SHARPNESS = 400.0
_PUSH_SIZE = 0.05  # about the push at an output of 1, in the unit of velocity
_PUSH_OFFSET = 2.0  # so that an output of zero gives nearly no push
# The network's output across the floor is multiplied by _GRIP before it is cut to the cone's edge,
# and slip itself adds up to _SLIP_SHARE against it, half of that at _SLIP_SPEED. The network for
# cubes was trained with a grip of 1 and a share of 0, and these values were chosen after that, by
# comparison with MuJoCo. Networks for meshes are trained with them from the beginning.
_GRIP = 2.0
_SLIP_SHARE = 0.3
_SLIP_SPEED = 0.5 / 148 / 0.05  # in the unit of velocity: 0.5 m/s for cubes of 100 mm
_TINY_SQUARE = 1e-14  # under the root of a speed, whose gradient at zero is not finite
_CORNERS = 6  # of a contact between two bodies: three of each face


def limit_to_cone(raw: Tensor, slip: Tensor, normal: Tensor, *, friction: Tensor) -> Tensor:
    """Turn raw outputs of the network into impulses within Coulomb's cones.

    MuJoCo's impulses lie in the cone at each substep, so their sums do. The impulse on a sliding
    body lies on the cone's edge, so that its deceleration is as exact as the normal impulse.
    Without the cone the network's friction is some percent off, and bodies stop elsewhere.

    Args:
        raw: (K, 2, 3), the network's outputs, world axes.
        slip: (K, 3), world axes, velocity of the corners relative to the fixed surface, in the unit
            of velocity.
        normal: (K, 3), of the surface, unit vectors, world axes.
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


def balance_impulses(corners: CornerContacts, impulse: Tensor, count: int) -> Tensor:
    """Impulses (K, 2, 3) shifted so that those of each of `count` body contacts sum to zero."""
    between_bodies = (corners.other >= 0)[:, None, None]
    zero = torch.zeros(count, 2, 3, dtype=impulse.dtype, device=impulse.device)
    total = zero.index_add(0, corners.contact, impulse * between_bodies)
    return impulse - gather_rows(total, corners.contact) / _CORNERS * between_bodies


def excess_moment(
    corners: CornerContacts, now: RigidBodyState, body: Tensor, *, impulse: Tensor, count: int
) -> Tensor:
    """Angular momentum that balanced impulses add to a pair, in equal shares for its six corners.

    Subtracted from the moments of the impulses, it makes the pair keep its angular momentum.

    Args:
        corners: The corners of near faces.
        now: State of the bodies.
        body: (K,), index of the body that each corner belongs to.
        impulse: (K, 2, 3), N s, world axes.
        count: Number of contacts.

    Returns:
        Moments (K, 2, 3), N m s, about the world's origin.
    """
    between_bodies = (corners.other >= 0)[:, None, None]
    position = (gather_rows(now.position, body) + corners.arm)[:, None].expand_as(impulse)
    zero = torch.zeros(count, 2, 3, dtype=impulse.dtype, device=impulse.device)
    total = zero.index_add(0, corners.contact, cross(position, impulse) * between_bodies)
    return gather_rows(total, corners.contact) / _CORNERS * between_bodies
