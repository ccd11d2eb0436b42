"""Slides: from the planar twist after a collision to the pose at rest, and the pose over time, many
at once and differentiable.

A body on a plane is braked by friction that couples sliding and turning. With v the velocity of its
mass centre and w its spin, both in the body's own axes, friction acts as if at a point o, which
moves with u = v + w x o, and its size is that of a limit surface:

    s^2 = u.A u + k^2 w^2,    force = -mu(s) g A u / s,    torque = o x force - mu(s) g k^2 w / s
      (per unit of mass),

so that it takes mu(s) g s of energy a second and can never add any. What makes it a body and not a
point:

- k, the lever of torsion. A patch that slides along the unit vector e brakes its turn with k^2 =
  e.S e, S the second moments of its
  pressure, so by how far it reaches along its way; one that turns on the spot brakes with k = the
  mean distance of its pressure. In between k^2 is mixed by the shares of v^2 and k^2 w^2. MuJoCo's
  few contact points have neither.
- o, the centre of friction: where the pressure's centre lies off the mass centre, and a shift
  towards where the body slides (`pressure_offset`),
  because friction at its sole tips it forwards.
- A, the grain: friction that differs along the body's axes. It has the trace of the unit matrix.
- mu(s) = mu exp(rise s / (1 + s)), s in m/s: friction that rises or falls with speed.

Energy, not time, is what is stepped over: with rho^2 = v^2 + r^2 w^2 (r the radius of gyration),
d(twist)/d(log rho) is smooth until rest, although v and w themselves end with a kink, so that a
fixed number of Runge-Kutta steps serves every slide and what remains after the last one is known in
closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clashsim.core.errors import ParamError, did_you_mean

VALUE_NAMES = (
    "friction",
    "rise",
    "spin",
    "reach_x",
    "reach_y",
    "reach_xy",
    "x",
    "y",
    "lean",
    "grain",
    "grain_xy",
)
VALUE_UNITS = ("", "", "m", "m", "m", "m", "m", "m", "m", "", "")
SPAN = 4.0  # by how many powers of e rho falls over the Runge-Kutta steps
_MOST_STEPS = 10_000
_TINY = 1e-9  # m/s: keeps directions of a body at rest defined
_Motion = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # vx, vy, w, yaw, x, y, t


class SlideModel(nn.Module):
    """Friction of one body on one plane. Pose (x, y, yaw) and twist (vx, vy, w) are of the body's
    origin in the plane's axes, as in `Impacts`; SI units.

    values: by the names in `VALUE_NAMES`; those left out are none of that effect, and spin and reach
    those of an even pressure under an even
    body. gyration (m): radius of gyration about the plane's normal. centre (m): mass centre in the
    body's axes. delay (s): bodies move on evenly for so long before friction sets in; a twist after
    a strike is told when the bodies have parted, some milliseconds after they met.
    """

    values: Tensor

    def __init__(
        self,
        values: Mapping[str, float],
        *,
        gyration: float,
        centre: Sequence[float] = (0.0, 0.0),
        gravity: float = 9.81,
        steps: int | None = None,
        delay: float = 0.0,
    ) -> None:
        super().__init__()
        for name in values:
            if name not in VALUE_NAMES:
                raise ParamError(
                    f"a slide model has no value {name!r}; {did_you_mean(name, VALUE_NAMES)}"
                )
        numbers = [*values.values(), gyration, *centre, gravity, delay]
        if not all(math.isfinite(number) for number in numbers):
            raise ParamError("all values of a slide model must be finite numbers")
        if steps is not None and not 1 <= steps <= _MOST_STEPS:
            raise ParamError(f"a slide model takes 1 to {_MOST_STEPS} steps, got {steps}")
        if not values.get("friction", 0.0) > 0:
            raise ParamError(
                f"a slide model needs a friction above zero, got {values.get('friction')}"
            )
        if not gyration > 0 or not gravity > 0:
            raise ParamError(
                f"gyration and gravity must be above zero, got {gyration} and {gravity}"
            )
        if not 0 <= delay < 1:
            raise ParamError(f"the delay must be at least 0 and below 1 s, got {delay}")
        if math.hypot(values.get("grain", 0.0), values.get("grain_xy", 0.0)) >= 1:
            raise ParamError(
                "grain and grain_xy together must be shorter than 1: friction may not push"
            )
        even = {
            "spin": 0.94 * gyration,
            "reach_x": gyration / math.sqrt(2),
            "reach_y": gyration / math.sqrt(2),
        }
        self.gyration, self.centre, self.gravity = (
            float(gyration),
            (float(centre[0]), float(centre[1])),
            float(gravity),
        )
        self.delay = float(delay)
        self.register_buffer(
            "values",
            torch.tensor(
                [float(values.get(name, even.get(name, 0.0))) for name in VALUE_NAMES],
                dtype=torch.float64,
            ),
        )
        self.steps = steps or steps_for(self.values, gyration)

    def rest(self, pose: Tensor, twist: Tensor) -> Tensor:
        """Pose at rest (N, 3) after sliding from pose (N, 3) with twist (N, 3)."""
        return self.settle(pose, twist)[0]

    def settle(self, pose: Tensor, twist: Tensor) -> tuple[Tensor, Tensor]:
        """Pose at rest (N, 3) and the time that it takes (N,), s."""
        nodes = self._slide(pose + self.delay * twist, twist)
        _, _, _, yaw, x, y, t = nodes[-1]
        return self._origin(x, y, yaw), t + self.delay

    def path(self, pose: Tensor, twist: Tensor, t: Tensor, delay: Tensor | None = None) -> Tensor:
        """Poses (N, T, 3) at times t (T,) or (N, T) since `pose` and `twist`; before that the pose
        is kept, and after rest that of rest.

        delay (N,): what is left of the delay, where it is not the whole.
        """
        left = (
            torch.full((len(pose), 1), self.delay, dtype=pose.dtype, device=pose.device)
            if delay is None
            else delay[:, None]
        )
        t = t.to(pose.dtype).expand(len(pose), t.shape[-1]).clamp_min(0.0)
        slid = self._path(pose + left * twist, twist, t - left)
        return slid - (left - t).clamp_min(0.0)[..., None] * twist[:, None]

    def _path(self, pose: Tensor, twist: Tensor, t: Tensor) -> Tensor:
        columns = [
            torch.stack(c, -1)
            for c in zip(*self._slide(pose, twist, until=t.detach().amax(-1)), strict=True)
        ]  # (N, nodes) each
        vx, vy, w, yaw, x, y, clock = columns
        at = t.to(pose.dtype).expand(len(pose), t.shape[-1]).contiguous()
        at = torch.minimum(at.clamp_min(0.0), clock[:, -1:])
        i = torch.searchsorted(clock.detach().contiguous(), at.detach(), right=True).clamp(
            1, clock.shape[1] - 1
        )
        begin, end = clock.gather(1, i - 1), clock.gather(1, i)
        h = (end - begin).clamp_min(1e-12)
        z = (at - begin) / h
        # Cubic through places and velocities at both nodes; exact for an even deceleration, as the
        # last stretch is.
        out = [
            _hermite(z, h, p.gather(1, i - 1), p.gather(1, i), v.gather(1, i - 1), v.gather(1, i))
            for p, v in ((x, vx), (y, vy), (yaw, w))
        ]
        return self._origin(*out)

    def forward(self, pose: Tensor, twist: Tensor) -> Tensor:
        """`rest`."""
        return self.rest(pose, twist)

    def _slide(self, pose: Tensor, twist: Tensor, until: Tensor | None = None) -> list[_Motion]:
        """Motion of the mass centre at the nodes, the last of which is rest, or after `until` (N,),
        s.
        """
        c, s = torch.cos(pose[..., 2]), torch.sin(pose[..., 2])
        x, y = self.centre
        ox, oy = c * x - s * y, s * x + c * y
        start = (
            twist[..., 0] - twist[..., 2] * oy,
            twist[..., 1] + twist[..., 2] * ox,
            twist[..., 2],
            pose[..., 2],
            pose[..., 0] + ox,
            pose[..., 1] + oy,
            torch.zeros_like(ox),
        )
        return slide(
            self.values.to(pose.dtype),
            start,
            gyration=self.gyration,
            gravity=self.gravity,
            steps=self.steps,
            until=until,
        )

    def _origin(self, x: Tensor, y: Tensor, yaw: Tensor) -> Tensor:
        """Poses (..., 3) of the body's origin from the place of its mass centre."""
        a, b = self.centre
        if a == 0 and b == 0:
            return torch.stack([x, y, yaw], -1)
        c, s = torch.cos(yaw), torch.sin(yaw)
        return torch.stack([x - c * a + s * b, y - s * a - c * b, yaw], -1)

    def with_values(self, values: Tensor) -> SlideModel:
        """The same body with other values (11,), through which gradients flow."""
        other = SlideModel(
            dict.fromkeys(VALUE_NAMES[:1], 1.0),
            gyration=self.gyration,
            centre=self.centre,
            gravity=self.gravity,
            steps=self.steps,
            delay=self.delay,
        )
        other.values = values
        return other

    def content(self) -> dict[str, Any]:
        """What `SlideModel.of` makes the model from again, as JSON holds it."""
        values = dict(zip(VALUE_NAMES, self.values.tolist(), strict=True))
        return {
            "values": values,
            "gyration": self.gyration,
            "centre": list(self.centre),
            "gravity": self.gravity,
            "steps": self.steps,
            "delay": self.delay,
        }

    @staticmethod
    def of(content: Mapping[str, Any]) -> SlideModel:
        """A model from its `content`."""
        return SlideModel(
            content["values"],
            gyration=content["gyration"],
            centre=content["centre"],
            gravity=content["gravity"],
            steps=content["steps"],
            delay=content.get("delay", 0.0),
        )

    def delayed(self, delay: float) -> SlideModel:
        """The same with another delay (s)."""
        return SlideModel.of(self.content() | {"delay": delay})


def steps_for(values: Tensor, gyration: float) -> int:
    """Runge-Kutta steps that keep errors of the rest below some 1e-3: more where sliding and
    turning decay at very different rates.
    """
    _, _, spin, reach_x, reach_y, reach_xy, x, y, *_ = values.tolist()
    levers = [(lever / gyration) ** 2 for lever in (spin, math.hypot(reach_x, reach_xy), reach_y)]
    stiff = max(max(levers), 1 / max(min(levers), 1e-3)) + 4 * math.hypot(x, y) / gyration
    return min(max(round(4 + 4 * stiff), 12), 48)


def slide(
    values: Tensor,
    start: _Motion,
    *,
    gyration: float,
    gravity: float,
    steps: int,
    until: Tensor | None = None,
) -> list[_Motion]:
    """Motion at the nodes of slides; each of `start` is of shape (...), and values (..., 11)
    broadcasts with them.

    until (...): s, after which no more nodes are needed: a simulator that steps asks for little at
    a time.
    """
    parts = values.unbind(-1)
    r2, h = gyration**2, SPAN / steps
    now = start
    nodes = [now]
    for _ in range(steps):  # fixed, so that it unrolls under torch.compile
        a = _rates(parts, now, r2, gravity)
        b = _rates(parts, _ahead(now, a, 0.5 * h), r2, gravity)
        c = _rates(parts, _ahead(now, b, 0.5 * h), r2, gravity)
        d = _rates(parts, _ahead(now, c, h), r2, gravity)
        now = _added(
            now, [(p + 2 * (q + r) + u) * (h / 6) for p, q, r, u in zip(a, b, c, d, strict=True)]
        )
        nodes.append(now)
        if until is not None and bool((now[6] > until).all()):
            return nodes
    # From here the twist shrinks evenly: time falls with rho, way with its square.
    _, _, _, yaw, x, y, t = _rates(parts, now, r2, gravity)
    still = torch.zeros_like(now[0])
    nodes.append(
        (still, still, still, now[3] + 0.5 * yaw, now[4] + 0.5 * x, now[5] + 0.5 * y, now[6] + t)
    )
    return nodes


def _rates(parts: tuple[Tensor, ...], now: _Motion, r2: float, gravity: float) -> _Motion:
    """Derivatives of the motion by -log rho."""
    (
        friction,
        rate_dependence,
        spin,
        reach_x,
        reach_y,
        reach_xy,
        x0,
        y0,
        pressure_offset,
        anisotropy,
        grain_xy,
    ) = parts
    vx, vy, w, yaw = now[:4]
    cos, sin = torch.cos(yaw), torch.sin(yaw)
    bx, by = cos * vx + sin * vy, cos * vy - sin * vx
    spin2 = spin * spin * (w * w)
    share = 1 / (bx * bx + by * by + spin2 + _TINY**2)
    root = torch.sqrt(share)
    px, py = x0 + pressure_offset * bx * root, y0 + pressure_offset * by * root
    ux, uy = bx - w * py, by + w * px
    ax, ay = (1 + anisotropy) * ux + grain_xy * uy, grain_xy * ux + (1 - anisotropy) * uy
    k2 = share * (
        spin * spin * spin2 + (reach_x * bx + reach_xy * by) ** 2 + (reach_y * by) ** 2
    )  # (..)^2: the reach along the way
    size = torch.sqrt(ux * ax + uy * ay + k2 * (w * w) + _TINY**2)
    mu = friction * gravity * torch.exp(rate_dependence * size / (1 + size)) / size
    fx, fy = -mu * ax, -mu * ay
    torque = px * fy - py * fx - mu * k2 * w
    length = (vx * vx + vy * vy + r2 * (w * w)) / (
        mu * size * size
    )  # rho^2 over the power: dt / d(-log rho)
    gx, gy = cos * fx - sin * fy, sin * fx + cos * fy
    return (
        gx * length,
        gy * length,
        torque * length / r2,
        w * length,
        vx * length,
        vy * length,
        length,
    )


def _ahead(now: _Motion, rate: _Motion, h: float) -> _Motion:
    """The part of the motion that rates depend on, a step ahead."""
    return (
        now[0] + h * rate[0],
        now[1] + h * rate[1],
        now[2] + h * rate[2],
        now[3] + h * rate[3],
        *now[4:],
    )


def _added(now: _Motion, gain: Sequence[Tensor]) -> _Motion:
    vx, vy, w, yaw, x, y, t = (a + b for a, b in zip(now, gain, strict=True))
    return vx, vy, w, yaw, x, y, t


def _hermite(z: Tensor, h: Tensor, p0: Tensor, p1: Tensor, v0: Tensor, v1: Tensor) -> Tensor:
    step = p1 - p0
    return p0 + z * (h * v0 + z * (3 * step - h * (2 * v0 + v1) + z * (h * (v0 + v1) - 2 * step)))
