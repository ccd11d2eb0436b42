"""The slide model: from the planar twist after a collision to the pose at rest and over time.

It evaluates many slides at once and is differentiable. The friction law and its integration are in
`clashsim.slides.limit_surface`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.slides.limit_surface import SlideState, integrate_slide, steps_for

VALUE_NAMES = (
    "friction",
    "rate_dependence",
    "torsion_radius",
    "pressure_radius_x",
    "pressure_radius_y",
    "pressure_radius_xy",
    "pressure_x",
    "pressure_y",
    "pressure_offset",
    "anisotropy",
    "anisotropy_xy",
)
VALUE_UNITS = ("", "", "m", "m", "m", "m", "m", "m", "m", "", "")
_MAX_STEPS = 10_000
# Mean distance of the points of a uniform disc from its centre, in radii of gyration:
# (2 R / 3) / (R / sqrt(2)).
_DISC_MEAN_DISTANCE = 0.94
_MAX_DELAY = 1.0  # s
_MIN_NODE_SPACING = 1e-12  # s, keeps the interpolation between two nodes finite


class SlideModel(nn.Module):
    """Friction of one body on one plane.

    Pose (x, y, yaw) and twist (vx, vy, yaw rate) are those of the body's origin in the plane's
    axes, as in `Impacts`; m, rad, m/s, rad/s.

    Args:
        values: Values by the names in `VALUE_NAMES`. A missing radius is that of a uniform
            pressure under a uniform body; any other missing value is 0 and has no effect.
        gyration: Radius of gyration about the plane's normal, m.
        centre: Mass centre (2,) in the body's axes, m.
        gravity: m/s^2.
        steps: Number of Runge-Kutta steps; chosen from the values by default.
        delay: Time (s) for which the body moves at constant velocity before friction acts. The
            twist after a strike is measured when the bodies have separated, some milliseconds
            after they first touched, but it is applied from the first touch.
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
        rest_std: float = 0.0,
    ) -> None:
        super().__init__()
        _check_values(values)
        numbers = [*values.values(), gyration, *centre, gravity, delay, rest_std]
        if not all(math.isfinite(number) for number in numbers):
            raise ParamError("all values of a slide model must be finite numbers")
        if steps is not None and not 1 <= steps <= _MAX_STEPS:
            raise ParamError(f"a slide model takes 1 to {_MAX_STEPS} steps, got {steps}")
        _check_physical(values, gyration=gyration, gravity=gravity, delay=delay)
        if rest_std < 0:
            raise ParamError(f"a standard deviation may not be negative, got rest_std {rest_std}")
        defaults = {
            "torsion_radius": _DISC_MEAN_DISTANCE * gyration,
            "pressure_radius_x": gyration / math.sqrt(2),
            "pressure_radius_y": gyration / math.sqrt(2),
        }
        filled = [float(values.get(name, defaults.get(name, 0.0))) for name in VALUE_NAMES]
        self.gyration = float(gyration)
        self.centre = (float(centre[0]), float(centre[1]))
        self.gravity = float(gravity)
        self.delay = float(delay)
        self.rest_std = float(rest_std)
        self.register_buffer("values", torch.tensor(filled, dtype=torch.float64))
        self.steps = steps or steps_for(self.values, gyration)

    def rest(self, pose: Tensor, twist: Tensor) -> Tensor:
        """Pose at rest (N, 3) after sliding from pose (N, 3) with twist (N, 3)."""
        return self.settle(pose, twist)[0]

    def settle(self, pose: Tensor, twist: Tensor) -> tuple[Tensor, Tensor]:
        """Pose at rest (N, 3) and time until rest (N,), s, from pose (N, 3) and twist (N, 3)."""
        nodes = self._integrate(pose + self.delay * twist, twist)
        last = nodes[-1]
        return self._origin(last.x, last.y, last.yaw), last.time + self.delay

    def path(self, pose: Tensor, twist: Tensor, t: Tensor, delay: Tensor | None = None) -> Tensor:
        """Poses over time.

        Args:
            pose: Poses (N, 3) at the start.
            twist: Twists (N, 3) at the start.
            t: Times (T,) or (N, T) since the start, s. At negative times the pose is that of the
                start, and after the body has stopped it is the pose at rest.
            delay: Remaining delay (N,) of slides that have already begun, s; `self.delay` by
                default.

        Returns:
            Poses (N, T, 3).
        """
        if delay is None:
            remaining = torch.full((len(pose), 1), self.delay, dtype=pose.dtype, device=pose.device)
        else:
            remaining = delay[:, None]
        t = t.to(pose.dtype).expand(len(pose), t.shape[-1]).clamp_min(0.0)
        slid = self._path_without_delay(pose + remaining * twist, twist, t - remaining)
        # Before friction acts, `slid` is the pose at the end of the delay: go back from there.
        return slid - (remaining - t).clamp_min(0.0)[..., None] * twist[:, None]

    def _path_without_delay(self, pose: Tensor, twist: Tensor, t: Tensor) -> Tensor:
        """Poses (N, T, 3) at times (N, T), s, since friction began to act."""
        nodes = self._integrate(pose, twist, until=t.detach().amax(-1))
        columns = [torch.stack(column, -1) for column in zip(*nodes, strict=True)]
        at_nodes = SlideState(*columns)  # (N, nodes) each
        node_times = at_nodes.time
        at = t.to(pose.dtype).expand(len(pose), t.shape[-1]).contiguous()
        at = torch.minimum(at.clamp_min(0.0), node_times[:, -1:])
        # Each time lies between the nodes i - 1 and i, (N, T).
        i = torch.searchsorted(node_times.detach().contiguous(), at.detach(), right=True)
        i = i.clamp(1, node_times.shape[1] - 1)
        begin = node_times.gather(1, i - 1)
        duration = (node_times.gather(1, i) - begin).clamp_min(_MIN_NODE_SPACING)
        fraction = (at - begin) / duration
        # A cubic through positions and velocities at both nodes is exact for a constant
        # deceleration, which the body has between the last two nodes.
        coordinates = []
        for position, velocity in (
            (at_nodes.x, at_nodes.vx),
            (at_nodes.y, at_nodes.vy),
            (at_nodes.yaw, at_nodes.yaw_rate),
        ):
            positions = (position.gather(1, i - 1), position.gather(1, i))
            velocities = (velocity.gather(1, i - 1), velocity.gather(1, i))
            coordinates.append(_hermite(fraction, duration, positions, velocities))
        return self._origin(*coordinates)

    def forward(self, pose: Tensor, twist: Tensor) -> Tensor:
        """The same as `rest`: pose at rest (N, 3)."""
        return self.rest(pose, twist)

    def _integrate(
        self, pose: Tensor, twist: Tensor, until: Tensor | None = None
    ) -> list[SlideState]:
        """Motion of the mass centre at the nodes of the integration, from that of the origin.

        The last node is at rest, or lies after the times `until` (N,), s.
        """
        cos = torch.cos(pose[..., 2])
        sin = torch.sin(pose[..., 2])
        x, y = self.centre
        offset_x = cos * x - sin * y
        offset_y = sin * x + cos * y
        yaw_rate = twist[..., 2]
        start = SlideState(
            vx=twist[..., 0] - yaw_rate * offset_y,
            vy=twist[..., 1] + yaw_rate * offset_x,
            yaw_rate=yaw_rate,
            yaw=pose[..., 2],
            x=pose[..., 0] + offset_x,
            y=pose[..., 1] + offset_y,
            time=torch.zeros_like(offset_x),
        )
        return integrate_slide(
            self.values.to(pose.dtype),
            start,
            gyration=self.gyration,
            gravity=self.gravity,
            steps=self.steps,
            until=until,
        )

    def _origin(self, x: Tensor, y: Tensor, yaw: Tensor) -> Tensor:
        """Poses (..., 3) of the body's origin from the position of its mass centre."""
        centre_x, centre_y = self.centre
        if centre_x == 0 and centre_y == 0:
            return torch.stack([x, y, yaw], -1)
        cos = torch.cos(yaw)
        sin = torch.sin(yaw)
        origin_x = x - cos * centre_x + sin * centre_y
        origin_y = y - sin * centre_x - cos * centre_y
        return torch.stack([origin_x, origin_y, yaw], -1)

    def with_values(self, values: Tensor) -> SlideModel:
        """The same body with other values (11,) or (N, 11), through which gradients flow."""
        other = SlideModel(
            {"friction": 1.0},
            gyration=self.gyration,
            centre=self.centre,
            gravity=self.gravity,
            steps=self.steps,
            delay=self.delay,
            rest_std=self.rest_std,
        )
        other.values = values
        return other

    def content(self) -> dict[str, Any]:
        """The model as slide.json holds it; the inverse of `SlideModel.of`."""
        values = dict(zip(VALUE_NAMES, self.values.tolist(), strict=True))
        return {
            "values": values,
            "gyration": self.gyration,
            "centre": list(self.centre),
            "gravity": self.gravity,
            "steps": self.steps,
            "delay": self.delay,
            "rest_std": self.rest_std,
        }

    @staticmethod
    def of(content: Mapping[str, Any]) -> SlideModel:
        """The model whose `content` this is; raises `ParamError` on an unknown value."""
        return SlideModel(
            content["values"],
            gyration=content["gyration"],
            centre=content["centre"],
            gravity=content["gravity"],
            steps=content["steps"],
            delay=content.get("delay", 0.0),
            rest_std=content.get("rest_std", 0.0),
        )

    def delayed(self, delay: float) -> SlideModel:
        """The same model with another delay (s)."""
        return SlideModel.of(self.content() | {"delay": delay})

    def with_rest_std(self, rest_std: float) -> SlideModel:
        """The same model with another standard deviation of poses at rest."""
        return SlideModel.of(self.content() | {"rest_std": rest_std})


def _check_values(values: Mapping[str, float]) -> None:
    """Raise `ParamError` on a name that is not in `VALUE_NAMES`."""
    for name in values:
        if name not in VALUE_NAMES:
            raise ParamError(
                f"a slide model has no value {name!r}; {did_you_mean(name, VALUE_NAMES)}"
            )


def _check_physical(
    values: Mapping[str, float], *, gyration: float, gravity: float, delay: float
) -> None:
    """Raise `ParamError` on values with which friction would not slow the body down."""
    if not values.get("friction", 0.0) > 0:
        raise ParamError(f"a slide model needs a friction above zero, got {values.get('friction')}")
    if not gyration > 0 or not gravity > 0:
        raise ParamError(f"gyration and gravity must be above zero, got {gyration} and {gravity}")
    if not 0 <= delay < _MAX_DELAY:
        raise ParamError(f"the delay must be at least 0 and below 1 s, got {delay}")
    if math.hypot(values.get("anisotropy", 0.0), values.get("anisotropy_xy", 0.0)) >= 1:
        raise ParamError(
            "the vector (anisotropy, anisotropy_xy) must be shorter than 1: beyond, friction would "
            "accelerate the body"
        )


def _hermite(
    fraction: Tensor,
    duration: Tensor,
    positions: tuple[Tensor, Tensor],
    velocities: tuple[Tensor, Tensor],
) -> Tensor:
    """Cubic Hermite interpolation between two nodes.

    Args:
        fraction: Share of the duration that has passed (N, T), 0 to 1.
        duration: Time from the first node to the second (N, T), s.
        positions: At the two nodes, (N, T) each.
        velocities: At the two nodes, (N, T) each.
    """
    p0, p1 = positions
    v0, v1 = velocities
    step = p1 - p0
    cubic = duration * (v0 + v1) - 2 * step
    quadratic = 3 * step - duration * (2 * v0 + v1)
    return p0 + fraction * (duration * v0 + fraction * (quadratic + fraction * cubic))
