"""What recorded impacts say without any physics: a Gaussian process over where and how the bodies
meet, in the contact frame.

It is a baseline of the benchmarks, and a witness in a calibration: near impacts that were recorded
it is often better than any contact model, far from them it knows nothing, and its variance and
`RegressionInputs.near` say which of the two it is.
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

_RELEVANCE = 0.3  # of inputs that may matter, against those that must
_NARROW = (
    0.3  # rad: angles that spread less are taken as they are, since their cosine is only noise
)
_CLIP = 6.0  # standard deviations
_NEAR = 2.5  # standard deviations of the fitted impacts, in any one input, that are still near them


def approach(frame: ContactFrame, impacts: Impacts) -> np.ndarray:
    """Normal and tangential velocity (N, 2) of the struck body's contact point relative to the
    striker, over the approach speed; planar.
    """
    n = frame.contact.normal
    t = np.stack([-n[:, 1], n[:, 0]], 1)
    start, (b, a) = frame.twist_before / frame.speed[:, None], frame.arm.T
    striker = [(impacts.striker_twist[:, :2] * axis).sum(1) / frame.speed for axis in (n, t)]
    return np.stack(
        [start[:, 0] - a * start[:, 2] - striker[0], start[:, 1] + b * start[:, 2] - striker[1]], 1
    )


def faces_meet(scene: Scene) -> bool:
    """Whether two flat faces meet, so that the point where they touch first says little."""
    return all(
        int(scene.base.geom(g).type[0]) == int(mujoco.mjtGeom.mjGEOM_BOX)
        for g in (scene.struck, scene.striker)
    )


@dataclass(frozen=True, eq=False)
class RegressionInputs:
    """How impacts become inputs of unit spread among those fitted, times how much each is expected
    to matter.

    heading (rad) and narrow: how the turn of the bodies against each other is written; live:
    columns that change among the fitted impacts; centre and width (f,) of those, and their
    relevance (f,).
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
        heading = float(
            np.arctan2(
                frame.relative_orientation[:, 1].mean(), frame.relative_orientation[:, 0].mean()
            )
        )
        narrow = impacts.planar and bool(_angle(frame, heading).std() < _NARROW)
        x, relevance = _columns(scene, frame, impacts, heading if narrow else None)
        centre, width = x.mean(0), x.std(0)
        live = np.flatnonzero(width > 1e-6 * (1 + np.abs(centre)))
        return RegressionInputs(
            heading, narrow, tuple(map(int, live)), centre[live], width[live], relevance[live]
        )

    def __call__(self, scene: Scene, frame: ContactFrame, impacts: Impacts) -> np.ndarray:
        """Inputs (N, f) of any impacts."""
        x, _ = _columns(scene, frame, impacts, self.heading if self.narrow else None)
        return np.clip((x[:, self.live] - self.centre) / self.width, -_CLIP, _CLIP) * self.relevance

    def near(self, x: np.ndarray) -> np.ndarray:
        """How far inputs (N, f) lie among the fitted ones, (N,): 1 there, falling to 0 outside,
        whatever input it is that lies outside.
        """
        far = np.abs(x / self.relevance).max(1, initial=0.0)
        return np.exp(-0.5 * np.maximum(0.0, far - _NEAR) ** 2)


def _angle(frame: ContactFrame, heading: float) -> np.ndarray:
    cosine, sine = frame.relative_orientation.T
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
    extras = np.column_stack(
        [np.zeros((len(impacts), 0)), *(impacts.known[k] for k in sorted(impacts.known))]
    )
    turn = frame.relative_orientation if heading is None else _angle(frame, heading)[:, None]
    if not impacts.planar:
        strong, weak = (
            [frame.arm, frame.tangential_offset, turn],
            [frame.features[:, index("struck_vn") :], extras],
        )
    else:
        speeds, rates = (
            approach(frame, impacts),
            frame.features[:, [index("struck_w"), index("log_speed")]],
        )
        if faces_meet(scene):
            strong, weak = [frame.tangential_offset, turn], [speeds, rates, extras]
        else:
            (b, a), (vn, vt) = frame.arm.T, speeds.T
            rigid = np.column_stack(
                [vn / (1 + a * a), a * vn / (1 + a * a), vt / (1 + b * b), b * vt / (1 + b * b)]
            )
            strong, weak = (
                [frame.arm, speeds, rigid],
                [frame.tangential_offset, turn, rates, extras],
            )
    x = np.column_stack([*strong, *weak])
    must = sum(c.shape[1] for c in strong)
    return x, np.r_[np.ones(must), np.full(x.shape[1] - must, _RELEVANCE)]


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted Gaussian process: linear plus RBF with a length for each input, one set of
    hyper-parameters for all outputs.

    x (n, f) fitted inputs; dual (n, k); factor (n, n) of the kernel; log hyper-parameters (3 + f,):
    amplitude, linear part, noise, lengths.
    """

    x: Tensor
    dual: Tensor
    factor: Tensor
    hyper: Tensor
    centre: Tensor
    spread: Tensor
    unsure: float  # variance of the centre, over that of the spread
    evidence: float  # logarithm of the marginal likelihood, priors of the hyper-parameters included

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (N, k) at inputs (N, f), the noise of a measurement left out."""
        z = torch.as_tensor(x)
        cross = _kernel(self.hyper, z, self.x)
        own = (2 * self.hyper[0]).exp() + (2 * self.hyper[1]).exp() * (
            (z * (-self.hyper[3:]).exp()).square().sum(-1) + 0.01
        )
        told = torch.linalg.solve_triangular(self.factor, cross.T, upper=False).square().sum(0)
        mean = (cross @ self.dual) * self.spread + self.centre
        return mean.numpy(), (
            ((own - told).clamp_min(0.0)[:, None] + self.unsure) * self.spread.square()
        ).numpy()


def regress(
    x: np.ndarray, y: np.ndarray, size: np.ndarray, *, floor: float = 0.0, amplitude: float = 0.7
) -> Regression:
    """Fit outcomes y (n, k), whose noise grows with their size (n,), by maximum of the marginal
    likelihood under log-normal priors.

    floor: least spread of the outcomes, over their size, that is believed before seeing any; with
    `amplitude`, the width of the prior of the amplitude, it keeps a few impacts that happen to be
    alike from making the process sure of all others.
    """
    inputs, y_ = torch.as_tensor(x), torch.as_tensor(y)
    f = inputs.shape[1]
    centre = y_.mean(0)
    spread = y_.std(0).clamp_min(max(1e-3, floor * float(size.mean()) / np.sqrt(3)))
    y_ = (y_ - centre) / spread
    noise = torch.as_tensor((size / size.mean()) ** 2)
    # Inputs of unit variance, f of them, change the outcome over about sqrt(f) standard deviations.
    mean = torch.tensor(
        [0.0, 0.0, np.log(0.1), *[0.5 * np.log(max(1, f))] * f], dtype=torch.float64
    )
    width = torch.tensor([amplitude, 0.7, 1.0, *[0.6] * f], dtype=torch.float64)

    def factor(h: Tensor) -> Tensor:
        return torch.linalg.cholesky(
            _kernel(h, inputs, inputs) + torch.diag((2 * h[2]).exp() * noise + 1e-6)
        )

    def cost(h: Tensor) -> Tensor:
        low = factor(h)
        white = torch.linalg.solve_triangular(low, y_, upper=False)
        return (
            0.5 * white.square().sum()
            + y_.shape[1] * low.diagonal().log().sum()
            + 0.5 * ((h - mean) / width).square().sum()
        )

    h = _minimise(cost, mean)
    low = factor(h)
    evidence = -float(cost(h)) - len(y_) * float(spread.log().sum())
    return Regression(
        inputs,
        torch.cholesky_solve(y_, low),
        low,
        h,
        centre,
        spread,
        float(y_.var(0).mean()) / len(y_),
        evidence,
    )


def _kernel(h: Tensor, p: Tensor, q: Tensor) -> Tensor:
    u, v = p * (-h[3:]).exp(), q * (-h[3:]).exp()
    return (2 * h[0]).exp() * (-0.5 * torch.cdist(u, v).square()).exp() + (2 * h[1]).exp() * (
        u @ v.T + 0.01
    )


def _minimise(cost: Callable[[Tensor], Tensor], start: Tensor, steps: int = 60) -> Tensor:
    h = start.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [h], max_iter=steps, history_size=12, line_search_fn="strong_wolfe", tolerance_change=1e-6
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = cost(h)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    try:
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    except torch.linalg.LinAlgError:
        return start  # a kernel that cannot be factored: stay with the prior
    return h.detach() if torch.isfinite(h).all() else start
