"""Regression of recorded impacts without any physics: a Gaussian process.

It is a baseline of the benchmarks, and the local correction of a calibration. Near impacts that
were recorded it is often better than any contact model, far from them it knows nothing; its
variance and `RegressionInputs.proximity` tell the two cases apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from clashsim.core.angles import wrap_angle
from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene

_WEAK_RELEVANCE = 0.3  # of inputs that may matter, against those that must
_NARROW = 0.3  # rad: angles that vary less are taken as they are, since their cosine is only noise
_CLIP = 6.0  # standard deviations
_NEAR = 2.5  # standard deviations of the fitted impacts, in any one input, that are still near them
_BIAS = 0.01  # variance of the constant in the linear kernel, over that of its coefficients


def approach(frame: ContactFrame, impacts: Impacts) -> np.ndarray:
    """Approach velocity of the struck body's contact point relative to the striker; planar.

    Args:
        frame: The impacts in their contact frames.
        impacts: N impacts.

    Returns:
        Normal and tangential velocity (N, 2) over the approach speed.
    """
    normal = frame.contact.normal
    tangent = np.stack([-normal[:, 1], normal[:, 0]], 1)
    twist = frame.twist_before / frame.speed[:, None]
    along_normal, along_tangent = frame.arm.T
    striker_velocity = impacts.striker_twist[:, :2]
    striker_normal = (striker_velocity * normal).sum(1) / frame.speed
    striker_tangent = (striker_velocity * tangent).sum(1) / frame.speed
    return np.stack(
        [
            twist[:, 0] - along_tangent * twist[:, 2] - striker_normal,
            twist[:, 1] + along_normal * twist[:, 2] - striker_tangent,
        ],
        1,
    )


def faces_meet(scene: Scene) -> bool:
    """Whether two flat faces meet, so that the point where they touch first matters little."""
    box = int(mujoco.mjtGeom.mjGEOM_BOX)
    kinds = [int(scene.base.geom(geom).type[0]) for geom in (scene.struck, scene.striker)]
    return all(kind == box for kind in kinds)


@dataclass(frozen=True, eq=False)
class RegressionInputs:
    """How impacts become inputs of unit variance among those fitted, times their relevance.

    Attributes:
        heading: Mean orientation of the bodies relative to each other, rad.
        narrow: Whether that orientation is written as an angle about the heading, or as cosine and
            sine.
        live: Columns that change among the fitted impacts (f of them).
        centre: Centres of these columns (f,).
        width: Their standard deviations (f,).
        relevance: How much each is expected to matter (f,).
    """

    heading: float
    narrow: bool
    live: tuple[int, ...]
    centre: np.ndarray
    width: np.ndarray
    relevance: np.ndarray

    @staticmethod
    def of(scene: Scene, frame: ContactFrame, impacts: Impacts) -> RegressionInputs:
        """Scaling taken from the impacts that are fitted."""
        cosine = frame.relative_orientation[:, 0].mean()
        sine = frame.relative_orientation[:, 1].mean()
        heading = float(np.arctan2(sine, cosine))
        narrow = impacts.planar and bool(_angle(frame, heading).std() < _NARROW)
        x, relevance = _columns(scene, frame, impacts, heading if narrow else None)
        centre = x.mean(0)
        width = x.std(0)
        live = np.flatnonzero(width > 1e-6 * (1 + np.abs(centre)))
        return RegressionInputs(
            heading=heading,
            narrow=narrow,
            live=tuple(map(int, live)),
            centre=centre[live],
            width=width[live],
            relevance=relevance[live],
        )

    def __call__(self, scene: Scene, frame: ContactFrame, impacts: Impacts) -> np.ndarray:
        """Inputs (N, f) of any impacts."""
        x, _ = _columns(scene, frame, impacts, self.heading if self.narrow else None)
        standardised = (x[:, self.live] - self.centre) / self.width
        return np.clip(standardised, -_CLIP, _CLIP) * self.relevance

    def proximity(self, x: np.ndarray) -> np.ndarray:
        """Proximity weights (N,) of inputs (N, f) to the fitted ones.

        They are 1 among the fitted impacts and fall to 0 outside, whatever input it is that lies
        outside.
        """
        farthest = np.abs(x / self.relevance).max(1, initial=0.0)
        return np.exp(-0.5 * np.maximum(0.0, farthest - _NEAR) ** 2)


def _angle(frame: ContactFrame, heading: float) -> np.ndarray:
    """Orientation (N,) of the bodies relative to each other, from a heading, in [-pi, pi)."""
    cosine = frame.relative_orientation[:, 0]
    sine = frame.relative_orientation[:, 1]
    return wrap_angle(np.arctan2(sine, cosine) - heading)


def _columns(
    scene: Scene, frame: ContactFrame, impacts: Impacts, heading: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Raw inputs (N, c) and their relevance (c,).

    A point contact is decided by lever arms, approach, and what a frictionless and a sticking rigid
    contact would do with them; two flat faces by the angle between them and where they meet. The
    rest comes in as far as the data asks for it.
    """
    index = frame.names.index
    measured = [impacts.known[name] for name in sorted(impacts.known)]
    extras = np.column_stack([np.zeros((len(impacts), 0)), *measured])
    if heading is None:
        orientation = frame.relative_orientation
    else:
        orientation = _angle(frame, heading)[:, None]
    if not impacts.planar:
        strong = [frame.arm, frame.tangential_offset, orientation]
        weak = [frame.features[:, index("struck_vn") :], extras]
    else:
        velocities = approach(frame, impacts)
        rates = frame.features[:, [index("struck_w"), index("log_speed")]]
        if faces_meet(scene):
            strong = [frame.tangential_offset, orientation]
            weak = [velocities, rates, extras]
        else:
            strong = [frame.arm, velocities, _rigid_outcomes(frame.arm, velocities)]
            weak = [frame.tangential_offset, orientation, rates, extras]
    x = np.column_stack([*strong, *weak])
    num_strong = sum(columns.shape[1] for columns in strong)
    weak_relevance = np.full(x.shape[1] - num_strong, _WEAK_RELEVANCE)
    return x, np.r_[np.ones(num_strong), weak_relevance]


def _rigid_outcomes(arm: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """What a frictionless and a sticking rigid contact would do (N, 4), up to a factor."""
    b, a = arm.T
    normal, tangential = velocities.T
    return np.column_stack(
        [
            normal / (1 + a * a),
            a * normal / (1 + a * a),
            tangential / (1 + b * b),
            b * tangential / (1 + b * b),
        ]
    )


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A fitted Gaussian process: linear plus squared-exponential, one kernel for all outputs.

    Attributes:
        x: Fitted inputs (n, f).
        dual: Coefficients (n, k).
        factor: Cholesky factor (n, n) of the kernel.
        hyper: Logarithms (3 + f,) of amplitude, linear part, noise, length scales.
        centre: Centre of the outputs (k,).
        scale: Their standard deviations (k,).
        centre_variance: Variance of the centre, over that of the outputs.
        evidence: Logarithm of the marginal likelihood, priors of the hyper-parameters included.
    """

    x: Tensor
    dual: Tensor
    factor: Tensor
    hyper: Tensor
    centre: Tensor
    scale: Tensor
    centre_variance: float
    evidence: float

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (N, k) at inputs (N, f), the noise of a measurement left out."""
        inputs = torch.as_tensor(x)
        amplitude = (2 * self.hyper[0]).exp()
        linear = (2 * self.hyper[1]).exp()
        scaled = inputs * (-self.hyper[3:]).exp()
        prior = amplitude + linear * (scaled.square().sum(-1) + _BIAS)
        cross = _kernel(self.hyper, inputs, self.x)
        white = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        explained = white.square().sum(0)
        mean = (cross @ self.dual) * self.scale + self.centre
        variance = (prior - explained).clamp_min(0.0)[:, None] + self.centre_variance
        return mean.numpy(), (variance * self.scale.square()).numpy()


def regress(
    x: np.ndarray, y: np.ndarray, size: np.ndarray, *, floor: float = 0.0, amplitude: float = 0.7
) -> GaussianProcess:
    """Fit outcomes by the maximum of the marginal likelihood under log-normal priors.

    Args:
        x: Inputs (n, f).
        y: Outcomes (n, k).
        size: Sizes (n,) of the outcomes; their noise grows with it.
        floor: Least standard deviation of the outcomes, over their size, that is believed before
            seeing any.
        amplitude: Width of the prior of the amplitude. With the floor it keeps a few impacts that
            happen to be alike from making the process sure of all others.

    Returns:
        The fitted process.
    """
    inputs = torch.as_tensor(x)
    outcomes = torch.as_tensor(y)
    f = inputs.shape[1]
    centre = outcomes.mean(0)
    least = max(1e-3, floor * float(size.mean()) / np.sqrt(3))
    scale = outcomes.std(0).clamp_min(least)
    outcomes = (outcomes - centre) / scale
    noise = torch.as_tensor((size / size.mean()) ** 2)
    # Inputs of unit variance, f of them, change the outcome over about sqrt(f) standard deviations.
    log_length = 0.5 * np.log(max(1, f))
    prior_mean = torch.tensor([0.0, 0.0, np.log(0.1), *[log_length] * f], dtype=torch.float64)
    prior_width = torch.tensor([amplitude, 0.7, 1.0, *[0.6] * f], dtype=torch.float64)

    def factor(hyper: Tensor) -> Tensor:
        diagonal = torch.diag((2 * hyper[2]).exp() * noise + 1e-6)
        return torch.linalg.cholesky(_kernel(hyper, inputs, inputs) + diagonal)

    def cost(hyper: Tensor) -> Tensor:
        lower = factor(hyper)
        white = torch.linalg.solve_triangular(lower, outcomes, upper=False)
        return (
            0.5 * white.square().sum()
            + outcomes.shape[1] * lower.diagonal().log().sum()
            + 0.5 * ((hyper - prior_mean) / prior_width).square().sum()
        )

    hyper = _minimise(cost, prior_mean)
    lower = factor(hyper)
    evidence = -float(cost(hyper)) - len(outcomes) * float(scale.log().sum())
    return GaussianProcess(
        x=inputs,
        dual=torch.cholesky_solve(outcomes, lower),
        factor=lower,
        hyper=hyper,
        centre=centre,
        scale=scale,
        centre_variance=float(outcomes.var(0).mean()) / len(outcomes),
        evidence=evidence,
    )


def _kernel(hyper: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Covariance (n, n') of outputs at inputs (n, f) and (n', f)."""
    u = p * (-hyper[3:]).exp()
    v = q * (-hyper[3:]).exp()
    squared_exponential = (-0.5 * torch.cdist(u, v).square()).exp()
    linear = u @ v.T + _BIAS
    return (2 * hyper[0]).exp() * squared_exponential + (2 * hyper[1]).exp() * linear


def _minimise(cost: Callable[[Tensor], Tensor], start: Tensor, steps: int = 60) -> Tensor:
    """L-BFGS from a start; the start itself where a kernel cannot be factored."""
    hyper = start.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [hyper],
        max_iter=steps,
        history_size=12,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-6,
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = cost(hyper)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    try:
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    except torch.linalg.LinAlgError:
        return start
    return hyper.detach() if torch.isfinite(hyper).all() else start
