"""Regression of recorded impacts without any physics: a Gaussian process.

It is a baseline of the benchmarks, and the local correction of a calibration. Near recorded impacts
it is often better than any contact model, but far from them it predicts only their mean; its
variance and `RegressionInputs.proximity` tell the two cases apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from clashsim.core.angles import wrap_angle
from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.leave_group_out import consecutive_groups

_WEAK_RELEVANCE = 0.3  # of inputs that may matter, relative to those that surely do
# Standard deviation (rad) below which angles are used directly and not as cosine and sine: the
# cosine of a small angle carries hardly any information.
_NARROW = 0.3
_CLIP = 6.0  # standard deviations at which inputs are clipped
_NEAR = 2.5  # an impact is near the fitted ones if no input is farther from their mean than this
_MIN_WIDTH = 1e-6  # relative width of an input that varies among the fitted impacts
_BIAS = 0.01  # variance of the constant in the linear kernel, over that of its coefficients
# Indices among the hyper-parameters, all of them logarithms.
_AMPLITUDE = 0
_LINEAR = 1
_NOISE = 2
_LENGTH_SCALES = slice(3, None)
_INITIAL_NOISE = 0.1  # prior median of the noise, over the standard deviation of the outcomes
_JITTER = 1e-6  # added to the kernel's diagonal


def approach(frame: ContactFrame, impacts: Impacts) -> np.ndarray:
    """Velocity of the struck body's contact point relative to the striker before a planar impact.

    Args:
        frame: The impacts in their contact frames.
        impacts: N impacts.

    Returns:
        Normal and tangential velocity (N, 2) over the approach speed.
    """
    normal = frame.contact.normal
    tangent = np.stack([-normal[:, 1], normal[:, 0]], 1)
    twist = frame.twist_before / frame.speed[:, None]  # (N, 3): normal, tangent, gyration * w
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
    """Whether both geoms are boxes: then the first point of contact says little."""
    box = int(mujoco.mjtGeom.mjGEOM_BOX)
    kinds = [int(scene.base.geom(geom).type[0]) for geom in (scene.struck, scene.striker)]
    return all(kind == box for kind in kinds)


@dataclass(frozen=True, eq=False)
class RegressionInputs:
    """Converts impacts to regression inputs: standardised columns times their relevance.

    Attributes:
        heading: Mean orientation of the bodies relative to each other, rad.
        narrow: Whether the relative orientation enters as one angle about the heading; otherwise it
            enters as cosine and sine.
        live: Indices (f,) of the raw columns that vary among the fitted impacts.
        centre: Means (f,) of the live columns over the fitted impacts.
        width: Standard deviations (f,) of the live columns over the fitted impacts.
        relevance: How much each live column is expected to matter (f,), 1 or less.
    """

    heading: float
    narrow: bool
    live: tuple[int, ...]
    centre: np.ndarray
    width: np.ndarray
    relevance: np.ndarray

    @staticmethod
    def of(scene: Scene, frame: ContactFrame, impacts: Impacts) -> RegressionInputs:
        """Inputs scaled by the impacts that are fitted."""
        cosine = frame.relative_orientation[:, 0].mean()
        sine = frame.relative_orientation[:, 1].mean()
        heading = float(np.arctan2(sine, cosine))
        narrow = impacts.planar and bool(_angle(frame, heading).std() < _NARROW)
        x, relevance = _columns(scene, frame, impacts, heading if narrow else None)
        centre = x.mean(0)
        width = x.std(0)
        live = np.flatnonzero(width > _MIN_WIDTH * (1 + np.abs(centre)))
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
        """Proximity (N,) of inputs (N, f) to the fitted impacts.

        It is 1 near the fitted impacts and falls to 0 as soon as any one input is far from theirs.
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

    The outcome of a point contact depends mainly on lever arms, approach velocity, and the outcomes
    of a frictionless and of a sticking rigid contact; that of two flat faces on the angle between
    them and on where they touch. Other inputs have a lower relevance, so that only clear data give
    them influence.

    Args:
        scene: The scene.
        frame: The impacts in their contact frames.
        impacts: N impacts.
        heading: Angle (rad) about which the orientation is taken; None for cosine and sine.
    """
    index = frame.names.index
    measured = [impacts.known[name] for name in sorted(impacts.known)]
    no_columns = np.zeros((len(impacts), 0))
    extras = np.column_stack([no_columns, *measured])
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
    """Impulses of a frictionless and of a sticking rigid contact, up to a factor.

    Args:
        arm: Lever arms (N, 2) along normal and tangent, over the radius of gyration.
        velocities: Normal and tangential approach velocity (N, 2) over the approach speed.

    Returns:
        (N, 4): normal impulse and its angular impulse, tangential impulse and its angular impulse.
    """
    along_normal, along_tangent = arm.T
    normal, tangential = velocities.T
    # Inverse effective masses of the contact point along normal and tangent.
    inverse_normal_mass = 1 + along_tangent * along_tangent
    inverse_tangential_mass = 1 + along_normal * along_normal
    return np.column_stack(
        [
            normal / inverse_normal_mass,
            along_tangent * normal / inverse_normal_mass,
            tangential / inverse_tangential_mass,
            along_normal * tangential / inverse_tangential_mass,
        ]
    )


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A fitted Gaussian process: linear plus squared-exponential, one kernel for all outputs.

    Attributes:
        x: Fitted inputs (n, f).
        dual: Dual coefficients (n, k): inverse kernel times standardised outputs.
        factor: Cholesky factor (n, n) of the kernel with noise.
        hyper: Hyper-parameters (3 + f,), as logarithms: standard deviations of the
            squared-exponential part, of the linear part and of the noise, then length scales.
        centre: Means of the outputs (k,).
        scale: Standard deviations of the outputs (k,).
        centre_variance: Variance of the estimated means, over the variance of the outputs.
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

    def left_out_errors(self) -> np.ndarray:
        """Errors (n, k) of predicting each fitted outcome from the other groups of impacts."""
        inverse = torch.cholesky_inverse(self.factor)
        error = torch.empty_like(self.dual)
        for group in consecutive_groups(len(self.dual)):
            error[group] = torch.linalg.solve(inverse[group][:, group], self.dual[group])
        return (error * self.scale).numpy()

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (N, k) at inputs (N, f), without the noise of a new measurement."""
        inputs = torch.as_tensor(x)
        amplitude = (2 * self.hyper[_AMPLITUDE]).exp()
        linear = (2 * self.hyper[_LINEAR]).exp()
        scaled = inputs * (-self.hyper[_LENGTH_SCALES]).exp()
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
    """Fit a Gaussian process by maximum marginal likelihood, with log-normal priors.

    Args:
        x: Inputs (n, f).
        y: Outcomes (n, k).
        size: Sizes (n,) of the outcomes; the standard deviation of the noise is proportional to it.
        floor: Smallest standard deviation of the outcomes, over their size, that is assumed.
        amplitude: Standard deviation of the prior of the log amplitude. Together with the floor it
            prevents that a few similar impacts make the process too certain about all others.

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
    # The distance between two points with f inputs of unit variance is about sqrt(f): the prior
    # median of the length scales.
    log_length = 0.5 * np.log(max(1, f))
    prior_mean = torch.tensor(
        [0.0, 0.0, np.log(_INITIAL_NOISE), *[log_length] * f], dtype=torch.float64
    )
    prior_width = torch.tensor([amplitude, 0.7, 1.0, *[0.6] * f], dtype=torch.float64)

    def factor(hyper: Tensor) -> Tensor:
        diagonal = torch.diag((2 * hyper[_NOISE]).exp() * noise + _JITTER)
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
    """Covariance (n, n') of outputs at inputs p (n, f) and q (n', f), without noise."""
    u = p * (-hyper[_LENGTH_SCALES]).exp()
    v = q * (-hyper[_LENGTH_SCALES]).exp()
    squared_exponential = (-0.5 * torch.cdist(u, v).square()).exp()
    linear = u @ v.T + _BIAS
    return (2 * hyper[_AMPLITUDE]).exp() * squared_exponential + (2 * hyper[_LINEAR]).exp() * linear


def _minimise(cost: Callable[[Tensor], Tensor], start: Tensor, steps: int = 60) -> Tensor:
    """Minimise by L-BFGS from a start; return the start if a kernel has no Cholesky factor."""

    def cost_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        hyper = torch.from_numpy(point).requires_grad_(True)
        value = cost(hyper)
        (gradient,) = torch.autograd.grad(value, hyper)
        return float(value.detach()), gradient.numpy()

    try:
        # Not torch's own L-BFGS, whose import takes longer than a whole calibration.
        end = minimize(
            cost_and_gradient,
            start.numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxcor": 12, "ftol": 1e-9, "gtol": 1e-6},
        )
    except torch.linalg.LinAlgError:
        return start
    return torch.from_numpy(end.x) if np.isfinite(end.x).all() else start
