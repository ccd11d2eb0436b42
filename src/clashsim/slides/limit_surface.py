"""Friction of a sliding body as a limit surface, and its motion until rest.

Friction slows a body on a plane down and couples its sliding and its turning. With v the velocity
of the mass centre and w the yaw rate, both in the body's own axes, friction acts as if at a point
o, which moves with u = v + w x o, and its size follows a limit surface:

    s^2 = u.A u + k^2 w^2,    force = -mu(s) g A u / s,    torque = o x force - mu(s) g k^2 w / s
      (per unit of mass),

so that it dissipates the power mu(s) g s and can never add energy. Compared with the friction of a
point there are four further effects:

- k, the torsion radius. In a patch that slides along the unit vector e, rotation is resisted with
  k^2 = e.S e, where S holds the second moments of the pressure: the farther the pressure extends
  along the path, the more. In a patch that turns on the spot, k is the mean distance of the
  pressure from the mass centre. In between, k^2 is the mean of both, weighted by the shares of
  v^2 and k^2 w^2. MuJoCo's few contact points have neither.
- o, the centre of friction: the offset of the pressure's centre from the mass centre, plus a shift
  in the direction of sliding (the pressure offset), because friction at the support patch tips the
  body forwards.
- A, the anisotropy: friction that differs along the body's axes. It has the trace of the identity.
- mu(s) = mu exp(c s / (1 + s)), s in m/s and c the rate dependence: friction that rises or falls
  with speed.

The variable of integration is -log rho, not time, with rho^2 = v^2 + r^2 w^2 (r the radius of
gyration): d(twist)/d(log rho) is smooth until rest, although v and w as functions of time end with
a kink. So a fixed number of Runge-Kutta steps is enough for every slide, and the motion after the
last step is known in closed form.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG_SPEED_RANGE = 4.0  # over all Runge-Kutta steps rho falls by the factor exp(4)
_TINY = 1e-9  # m/s, keeps the direction of motion of a body at rest defined
_STEPS_RANGE = (12, 48)  # fewest and most steps that `steps_for` returns


class SlideState(NamedTuple):
    """Motion of a body's mass centre in the plane's axes; each entry has the same shape (...).

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
    fewest, most = _STEPS_RANGE
    return min(max(round(4 + 4 * stiffness), fewest), most)


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
        until: Times (...), s, after which no more nodes are needed; without them the integration
            goes on to rest. They save work where a simulator needs only its next time step.

    Returns:
        Motion at the nodes of the integration. The last node is at rest, or lies after `until`.
    """
    columns = values.unbind(-1)
    gyration_squared = gyration**2
    h = LOG_SPEED_RANGE / steps  # step of -log rho
    now = start
    nodes = [now]
    for _ in range(steps):  # a fixed number, so that torch.compile can unroll the loop
        now = _runge_kutta_step(columns, now, gyration_squared, gravity, h)
        nodes.append(now)
        if until is not None and bool((now.time > until).all()):
            return nodes
    # From here the deceleration is taken as constant. With rates by -log rho, the remaining time is
    # then the rate of time, and the remaining distance is half the rate of the position.
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
    """One step h of the classical fourth-order Runge-Kutta method in -log rho.

    `columns` are the 11 values of the slide model, each of shape (...).
    """
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
    """Derivatives of the motion with respect to -log rho; symbols as in the module's docstring."""
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
    inverse_speed2 = 1 / (bx * bx + by * by + torsion_speed2 + _TINY**2)
    inverse_speed = torch.sqrt(inverse_speed2)
    # Centre of friction o, its velocity u, and A u.
    ox = x0 + pressure_offset * bx * inverse_speed
    oy = y0 + pressure_offset * by * inverse_speed
    ux = bx - w * oy
    uy = by + w * ox
    ax = (1 + anisotropy) * ux + anisotropy_xy * uy
    ay = anisotropy_xy * ux + (1 - anisotropy) * uy
    # k^2: that of turning on the spot and that of sliding, weighted by their shares of speed^2.
    along_path2 = (radius_x * bx + radius_xy * by) ** 2 + (radius_y * by) ** 2
    k2 = inverse_speed2 * (torsion_radius * torsion_radius * torsion_speed2 + along_path2)
    s = torch.sqrt(ux * ax + uy * ay + k2 * (w * w) + _TINY**2)
    mu_g_over_s = friction * gravity * torch.exp(rate_dependence * s / (1 + s)) / s
    fx = -mu_g_over_s * ax
    fy = -mu_g_over_s * ay
    torque = ox * fy - oy * fx - mu_g_over_s * k2 * w
    # dt / d(-log rho) is rho^2 over the dissipated power.
    duration = (vx * vx + vy * vy + gyration_squared * (w * w)) / (mu_g_over_s * s * s)
    # Force in the plane's axes.
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
    """Velocities and yaw after an Euler step h; position and time, which no rate needs, stay."""
    return SlideState(
        vx=now.vx + h * rate.vx,
        vy=now.vy + h * rate.vy,
        yaw_rate=now.yaw_rate + h * rate.yaw_rate,
        yaw=now.yaw + h * rate.yaw,
        x=now.x,
        y=now.y,
        time=now.time,
    )
