"""Friction of a sliding body as a limit surface, and its motion until rest.

A body on a plane is braked by friction that couples sliding and turning. With v the velocity of its
mass centre and w its yaw rate, both in the body's own axes, friction acts as if at a point o, which
moves with u = v + w x o, and its size is that of a limit surface:

    s^2 = u.A u + k^2 w^2,    force = -mu(s) g A u / s,    torque = o x force - mu(s) g k^2 w / s
      (per unit of mass),

so that it dissipates the power mu(s) g s and can never add energy. What distinguishes a body from a
point:

- k, the torsion radius. A patch that slides along the unit vector e brakes its rotation with
  k^2 = e.S e, S the second moments of its pressure, so by how far it extends along its path; one
  that turns on the spot brakes with k = the mean distance of its pressure. In between k^2 is mixed
  by the shares of v^2 and k^2 w^2. MuJoCo's few contact points have neither.
- o, the centre of friction: the offset of the pressure's centre from the mass centre, and a shift
  towards where the body slides (the pressure offset), because friction at its support patch tips
  it forwards.
- A, the anisotropy: friction that differs along the body's axes. It has the trace of the identity.
- mu(s) = mu exp(c s / (1 + s)), s in m/s and c the rate dependence: friction that rises or falls
  with speed.

The integration steps over energy, not time: with rho^2 = v^2 + r^2 w^2 (r the radius of gyration),
d(twist)/d(log rho) is smooth until rest, although v and w themselves end with a kink. So a fixed
number of Runge-Kutta steps serves every slide, and what remains after the last one is known in
closed form.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG_SPEED_RANGE = 4.0  # by how many powers of e rho falls over the Runge-Kutta steps
_TINY = 1e-9  # m/s: keeps directions of a body at rest defined


class SlideState(NamedTuple):
    """Motion of a body's mass centre in the plane's axes, one number or tensor of shape (...) each.

    Attributes:
        vx: Velocity along x, m/s.
        vy: Velocity along y, m/s.
        yaw_rate: rad/s.
        yaw: rad.
        x: m.
        y: m.
        time: s since the start.
    """

    vx: Tensor
    vy: Tensor
    yaw_rate: Tensor
    yaw: Tensor
    x: Tensor
    y: Tensor
    time: Tensor


def steps_for(values: Tensor, gyration: float) -> int:
    """Runge-Kutta steps that keep errors of the rest pose below about 1e-3.

    More are needed where sliding and turning decay at very different rates.

    Args:
        values: Values (11,) of a slide model, as `VALUE_NAMES` orders them.
        gyration: Radius of gyration, m.

    Returns:
        Number of steps.
    """
    _, _, torsion_radius, radius_x, radius_y, radius_xy, x, y, *_ = values.tolist()
    radii = (torsion_radius, math.hypot(radius_x, radius_xy), radius_y)
    ratios = [(radius / gyration) ** 2 for radius in radii]
    stiffness = max(max(ratios), 1 / max(min(ratios), 1e-3)) + 4 * math.hypot(x, y) / gyration
    return min(max(round(4 + 4 * stiffness), 12), 48)


def integrate_slide(
    values: Tensor,
    start: SlideState,
    *,
    gyration: float,
    gravity: float,
    steps: int,
    until: Tensor | None = None,
) -> list[SlideState]:
    """Integrate slides from a start to rest.

    Args:
        values: Values (..., 11) of the slide model; they broadcast with the start.
        start: Where the slides begin, each entry of shape (...).
        gyration: Radius of gyration, m.
        gravity: m/s^2.
        steps: Runge-Kutta steps.
        until: Times (...), s, after which no more nodes are needed: a simulator that steps asks
            for little at a time.

    Returns:
        Motion at the nodes of the integration. The last one is rest, or lies after `until`.
    """
    columns = values.unbind(-1)
    gyration_squared = gyration**2
    h = LOG_SPEED_RANGE / steps
    now = start
    nodes = [now]
    for _ in range(steps):  # a fixed number, so that torch.compile can unroll the loop
        now = _runge_kutta_step(columns, now, gyration_squared, gravity, h)
        nodes.append(now)
        if until is not None and bool((now.time > until).all()):
            return nodes
    # From here the twist shrinks evenly: time falls with rho, distance with its square.
    rate = _rates(columns, now, gyration_squared, gravity)
    still = torch.zeros_like(now.vx)
    rest = SlideState(
        vx=still,
        vy=still,
        yaw_rate=still,
        yaw=now.yaw + 0.5 * rate.yaw,
        x=now.x + 0.5 * rate.x,
        y=now.y + 0.5 * rate.y,
        time=now.time + rate.time,
    )
    nodes.append(rest)
    return nodes


def _runge_kutta_step(
    columns: tuple[Tensor, ...],
    now: SlideState,
    gyration_squared: float,
    gravity: float,
    h: float,
) -> SlideState:
    """One step of the classical fourth-order method in -log rho."""
    first = _rates(columns, now, gyration_squared, gravity)
    second = _rates(columns, _ahead(now, first, 0.5 * h), gyration_squared, gravity)
    third = _rates(columns, _ahead(now, second, 0.5 * h), gyration_squared, gravity)
    fourth = _rates(columns, _ahead(now, third, h), gyration_squared, gravity)
    moved = []
    for value, a, b, c, d in zip(now, first, second, third, fourth, strict=True):
        moved.append(value + (a + 2 * (b + c) + d) * (h / 6))
    return SlideState(*moved)


def _rates(
    columns: tuple[Tensor, ...], now: SlideState, gyration_squared: float, gravity: float
) -> SlideState:
    """Derivatives of the motion by -log rho."""
    (
        friction,
        rate_dependence,
        torsion_radius,
        radius_x,
        radius_y,
        radius_xy,
        x0,
        y0,
        pressure_offset,
        anisotropy,
        anisotropy_xy,
    ) = columns
    vx, vy, w, yaw = now[:4]
    cos = torch.cos(yaw)
    sin = torch.sin(yaw)
    # Velocity of the mass centre in the body's axes.
    bx = cos * vx + sin * vy
    by = cos * vy - sin * vx
    torsion_speed2 = torsion_radius * torsion_radius * (w * w)
    share = 1 / (bx * bx + by * by + torsion_speed2 + _TINY**2)
    root = torch.sqrt(share)
    # Centre of friction o, its velocity u, and A u.
    ox = x0 + pressure_offset * bx * root
    oy = y0 + pressure_offset * by * root
    ux = bx - w * oy
    uy = by + w * ox
    ax = (1 + anisotropy) * ux + anisotropy_xy * uy
    ay = anisotropy_xy * ux + (1 - anisotropy) * uy
    # k^2: of turning on the spot, and of the extent along the path, mixed by their shares.
    along_path2 = (radius_x * bx + radius_xy * by) ** 2 + (radius_y * by) ** 2
    k2 = share * (torsion_radius * torsion_radius * torsion_speed2 + along_path2)
    s = torch.sqrt(ux * ax + uy * ay + k2 * (w * w) + _TINY**2)
    mu = friction * gravity * torch.exp(rate_dependence * s / (1 + s)) / s
    fx = -mu * ax
    fy = -mu * ay
    torque = ox * fy - oy * fx - mu * k2 * w
    # rho^2 over the dissipated power: dt / d(-log rho).
    duration = (vx * vx + vy * vy + gyration_squared * (w * w)) / (mu * s * s)
    force_x = cos * fx - sin * fy
    force_y = sin * fx + cos * fy
    return SlideState(
        vx=force_x * duration,
        vy=force_y * duration,
        yaw_rate=torque * duration / gyration_squared,
        yaw=w * duration,
        x=vx * duration,
        y=vy * duration,
        time=duration,
    )


def _ahead(now: SlideState, rate: SlideState, h: float) -> SlideState:
    """The motion a step ahead, only in what the rates depend on: velocities and yaw."""
    return SlideState(
        vx=now.vx + h * rate.vx,
        vy=now.vy + h * rate.vy,
        yaw_rate=now.yaw_rate + h * rate.yaw_rate,
        yaw=now.yaw + h * rate.yaw,
        x=now.x,
        y=now.y,
        time=now.time,
    )
