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
# The names of the same values in slide.json.
STORED_NAMES = (
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
_FROM_STORED = dict(zip(STORED_NAMES, VALUE_NAMES, strict=True))
TO_STORED = dict(zip(VALUE_NAMES, STORED_NAMES, strict=True))
_MOST_STEPS = 10_000
_DISC_MEAN_DISTANCE = 0.94  # of an even disc, in radii of gyration: (2 / 3) / sqrt(1 / 2)


class SlideModel(nn.Module):
    """Friction of one body on one plane.

    Pose (x, y, yaw) and twist (vx, vy, yaw rate) are of the body's origin in the plane's axes, as
    in `Impacts`; SI units.

    Args:
        values: Values by the names in `VALUE_NAMES`. Those left out have no effect; the radii left
            out are those of an even pressure under an even body.
        gyration: Radius of gyration about the plane's normal, m.
        centre: Mass centre in the body's axes, m.
        gravity: m/s^2.
        steps: Runge-Kutta steps; chosen from the values by default.
        delay: Bodies move on evenly for so long (s) before friction sets in. A twist after a strike
            is measured when the bodies have parted, some milliseconds after they met.
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
        _check_values(values)
        numbers = [*values.values(), gyration, *centre, gravity, delay]
        if not all(math.isfinite(number) for number in numbers):
            raise ParamError("all values of a slide model must be finite numbers")
        if steps is not None and not 1 <= steps <= _MOST_STEPS:
            raise ParamError(f"a slide model takes 1 to {_MOST_STEPS} steps, got {steps}")
        _check_physical(values, gyration=gyration, gravity=gravity, delay=delay)
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
        self.register_buffer("values", torch.tensor(filled, dtype=torch.float64))
        self.steps = steps or steps_for(self.values, gyration)

    def rest(self, pose: Tensor, twist: Tensor) -> Tensor:
        """Pose at rest (N, 3) after sliding from pose (N, 3) with twist (N, 3)."""
        return self.settle(pose, twist)[0]

    def settle(self, pose: Tensor, twist: Tensor) -> tuple[Tensor, Tensor]:
        """Pose at rest (N, 3) and the time that it takes (N,), s."""
        nodes = self._integrate(pose + self.delay * twist, twist)
        last = nodes[-1]
        return self._origin(last.x, last.y, last.yaw), last.time + self.delay

    def path(self, pose: Tensor, twist: Tensor, t: Tensor, delay: Tensor | None = None) -> Tensor:
        """Poses over time.

        Args:
            pose: Poses (N, 3) at the start.
            twist: Twists (N, 3) at the start.
            t: Times (T,) or (N, T) since the start, s. Before it the pose is kept, and after rest
                that of rest.
            delay: What is left of the delay (N,), s, where it is not the whole.

        Returns:
            Poses (N, T, 3).
        """
        if delay is None:
            left = torch.full((len(pose), 1), self.delay, dtype=pose.dtype, device=pose.device)
        else:
            left = delay[:, None]
        t = t.to(pose.dtype).expand(len(pose), t.shape[-1]).clamp_min(0.0)
        slid = self._path_without_delay(pose + left * twist, twist, t - left)
        return slid - (left - t).clamp_min(0.0)[..., None] * twist[:, None]

    def _path_without_delay(self, pose: Tensor, twist: Tensor, t: Tensor) -> Tensor:
        """Poses (N, T, 3) at times (N, T) since friction set in."""
        nodes = self._integrate(pose, twist, until=t.detach().amax(-1))
        columns = [torch.stack(column, -1) for column in zip(*nodes, strict=True)]
        at_nodes = SlideState(*columns)  # (N, nodes) each
        clock = at_nodes.time
        at = t.to(pose.dtype).expand(len(pose), t.shape[-1]).contiguous()
        at = torch.minimum(at.clamp_min(0.0), clock[:, -1:])
        i = torch.searchsorted(clock.detach().contiguous(), at.detach(), right=True)
        i = i.clamp(1, clock.shape[1] - 1)
        begin = clock.gather(1, i - 1)
        duration = (clock.gather(1, i) - begin).clamp_min(1e-12)
        fraction = (at - begin) / duration
        # A cubic through positions and velocities at both nodes is exact for an even deceleration,
        # as the last stretch is.
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
        """`rest`."""
        return self.rest(pose, twist)

    def _integrate(
        self, pose: Tensor, twist: Tensor, until: Tensor | None = None
    ) -> list[SlideState]:
        """Motion of the mass centre at the nodes; the last one is rest, or lies after `until`."""
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
        )
        other.values = values
        return other

    def content(self) -> dict[str, Any]:
        """What `SlideModel.of` makes the model from again, as slide.json holds it."""
        values = dict(zip(STORED_NAMES, self.values.tolist(), strict=True))
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
        stored = content["values"]
        for name in stored:
            if name not in _FROM_STORED:
                hint = did_you_mean(name, STORED_NAMES)
                raise ParamError(f"a slide model has no value {name!r}; {hint}")
        return SlideModel(
            {_FROM_STORED[name]: value for name, value in stored.items()},
            gyration=content["gyration"],
            centre=content["centre"],
            gravity=content["gravity"],
            steps=content["steps"],
            delay=content.get("delay", 0.0),
        )

    def delayed(self, delay: float) -> SlideModel:
        """The same model with another delay (s)."""
        return SlideModel.of(self.content() | {"delay": delay})


def with_value_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of slide.json with its values, and their estimates, by `VALUE_NAMES`."""
    values = {_FROM_STORED.get(name, name): value for name, value in content["values"].items()}
    renamed = {**content, "values": values}
    if "fit" in content:
        estimates = []
        for estimate in content["fit"]["estimates"]:
            name = _FROM_STORED.get(estimate["name"], estimate["name"])
            estimates.append({**estimate, "name": name})
        renamed["fit"] = {**content["fit"], "estimates": estimates}
    return renamed


def _check_values(values: Mapping[str, float]) -> None:
    """Raise on a name that is none of `VALUE_NAMES`."""
    for name in values:
        if name not in VALUE_NAMES:
            raise ParamError(
                f"a slide model has no value {name!r}; {did_you_mean(name, VALUE_NAMES)}"
            )


def _check_physical(
    values: Mapping[str, float], *, gyration: float, gravity: float, delay: float
) -> None:
    """Raise on values under which friction would not brake."""
    if not values.get("friction", 0.0) > 0:
        raise ParamError(f"a slide model needs a friction above zero, got {values.get('friction')}")
    if not gyration > 0 or not gravity > 0:
        raise ParamError(f"gyration and gravity must be above zero, got {gyration} and {gravity}")
    if not 0 <= delay < 1:
        raise ParamError(f"the delay must be at least 0 and below 1 s, got {delay}")
    if math.hypot(values.get("anisotropy", 0.0), values.get("anisotropy_xy", 0.0)) >= 1:
        raise ParamError(
            "anisotropy and anisotropy_xy together must be shorter than 1: friction may not push"
        )


def _hermite(
    fraction: Tensor,
    duration: Tensor,
    positions: tuple[Tensor, Tensor],
    velocities: tuple[Tensor, Tensor],
) -> Tensor:
    """Cubic interpolation between two nodes at a fraction of the duration between them."""
    p0, p1 = positions
    v0, v1 = velocities
    step = p1 - p0
    cubic = duration * (v0 + v1) - 2 * step
    quadratic = 3 * step - duration * (2 * v0 + v1)
    return p0 + fraction * (duration * v0 + fraction * (quadratic + fraction * cubic))
