"""Which strikes to make next: those after which most is expected to be known about the strikes that
matter.

What is unsure is taken from the linearised model: parameters as fields through their slopes, and a
residual that is wider and of shorter reach than the one a calibration fits, since that is where
models err; disagreement of the fits of a calibration is added. A strike is good as far as it lowers
the logarithm of the variance, averaged over the strikes that matter. The mean of the variance
itself (A-optimal) is ruled by a few extreme strikes, on which the model errs whatever is measured,
and was worse than random draws (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.errors import DataError, RunError
from clashsim.core.impacts import Impacts
from clashsim.fit.calibrate import Calibration, Scale, prior_sd
from clashsim.fit.distil import DistilledModel
from clashsim.fit.fields import Context, Data, Posterior, Strength, covariance, predict, slopes

_WIDE = Strength(residual=0.15, span=0.45)  # what is believed to be missed when strikes are chosen
# Ten more strikes after which more than this share of the error is left are not worth making
_WORTH = 0.9
_AHEAD = 10


@dataclass(frozen=True, eq=False)
class Advice:
    """Rows (k,) of the candidates to make next, best first, and what is expected of them.

    error (k + 1,): relative error of predictions over the strikes that matter, root mean square,
    noise of the measurement included, before any of the strikes and after each; after_ten: after
    ten; floor: what the noise alone leaves.
    """

    rows: np.ndarray
    error: np.ndarray
    after_ten: float
    floor: float

    @property
    def worthwhile(self) -> bool:
        """Whether ten more strikes are expected to help."""
        return self.after_ten < _WORTH * float(self.error[0])


def advise(
    model: Calibration | DistilledModel,
    candidates: Impacts,
    k: int,
    *,
    weights: np.ndarray | None = None,
) -> Advice:
    """Choose `k` of the candidates, whose outcomes are not looked at, one after the other.

    model: a calibration, or a distilled model of which no impact was recorded yet. weights (N,):
    how much each candidate matters as a strike to be predicted; all alike by default.
    """
    n = len(candidates)
    if not 1 <= k <= n:
        raise DataError(f"{k} strikes cannot be chosen from {n}")
    share = np.ones(n) if weights is None else np.asarray(weights, float)
    if share.shape != (n,) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
        raise DataError(f"weights are {n} numbers that are not negative and not all zero")
    share = share / share.sum()
    belief = (
        _before(model, candidates)
        if isinstance(model, DistilledModel)
        else _after(model, candidates)
    )
    rows, left = choose(belief.unsure, belief.noise, max(k, min(n, _AHEAD)), torch.as_tensor(share))
    # How large the error is, the model itself says; how much of that is left, the wider belief that
    # strikes are chosen by.
    now, floor = float(share @ belief.now), belief.floor
    error = np.sqrt(floor + max(now - floor, 0.0) * left / max(float(left[0]), 1e-300))
    return Advice(rows[:k], error[: k + 1], float(error[min(_AHEAD, n)]), float(np.sqrt(floor)))


def choose(unsure: Tensor, noise: Tensor, k: int, share: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The greedy choice of rows (k,) for a Gaussian of covariance (N d, N d), measured with noise
    (N, d, d), of which shares (N,) matter.

    Also the variance that is left before any and after each, (k + 1,): the geometric mean of that
    of one more measurement, less its noise.
    """
    n, d = noise.shape[:2]
    floor = (share @ noise.diagonal(dim1=1, dim2=2).sum(1)).clamp_min(1e-12)
    unsure, rows = unsure.clone(), list[int]()

    def left(variance: Tensor) -> Tensor:
        return ((variance.clamp_min(0.0) + floor).log() @ share).exp() - floor

    trace = [float(left(_variance(unsure, n)))]
    for _ in range(k):
        blocks = unsure.reshape(n, d, n, d).diagonal(dim1=0, dim2=2).permute(2, 0, 1) + noise
        towards = unsure.reshape(n * d, n, d).permute(1, 2, 0)
        told = (
            (torch.linalg.solve(blocks, towards) * towards).sum(1).reshape(n, n, d).sum(2)
        )  # (measured, predicted)
        after = left(_variance(unsure, n) - told)
        after[rows] = torch.inf
        i = int(after.argmin())
        part = slice(i * d, (i + 1) * d)
        unsure = unsure - unsure[:, part] @ torch.linalg.solve(
            unsure[part, part] + noise[i], unsure[part, :]
        )
        rows.append(i)
        trace.append(float(left(_variance(unsure, n))))
    return np.array(rows), np.maximum(trace, 0.0)


@dataclass(frozen=True, eq=False)
class _Belief:
    """Covariance (N k, N k) of outcomes over their size and noise of measuring them (N, k, k), to
    choose by.

    now (N,): squared relative error that the model itself expects, noise included; floor: that of
    the noise alone.
    """

    unsure: Tensor
    noise: Tensor
    now: np.ndarray
    floor: float


def _variance(unsure: Tensor, n: int) -> Tensor:
    """Variance (n,) of whole outcomes."""
    return unsure.diagonal().reshape(n, -1).sum(1)


def _before(base: DistilledModel, candidates: Impacts) -> _Belief:
    """What is believed when nothing was recorded."""
    plain, frame = Strength(), contact_frame(base.scene, candidates)
    data = Scale.of(base, frame, candidates.known).data(base, frame, candidates.known)
    sd = prior_sd(base.scene, candidates.known)
    slope, _ = slopes(data, torch.zeros(len(candidates), len(sd), dtype=torch.float64))
    here, floor = (slope, data.context), slope.shape[1] * plain.noise**2
    now = _variance(covariance(here, here, sd, plain), len(candidates)).numpy() + floor
    return _Belief(covariance(here, here, sd, _WIDE), _noise(slope, sd), now, floor)


def _after(model: Calibration, candidates: Impacts) -> _Belief:
    """What a calibration leaves unsure."""
    fitted, scene = (
        model.posteriors[0],
        model.base.scene,
    )  # the first is of the most probable strength
    if fitted.slope is None:
        raise RunError(
            "the run was made by a version of clashsim that did not keep what advice needs: calibrate again"
        )
    frame = contact_frame(scene, candidates)
    data = model.scale.data(model.base, frame, candidates.known)
    slope, size = slopes(data, predict(fitted, data)[1][0])
    # What counts as a step is told by the strikes to choose from, not by the few that were made.
    scale = _widened(Scale.of(model.base, frame, candidates.known), model.scale)
    here, there = (
        (slope, scale.data(model.base, frame, candidates.known).context),
        (fitted.slope, _moved(fitted.context, model.scale, scale)),
    )
    measured = covariance(there, there, fitted.sd, _WIDE) + torch.block_diag(
        *_noise(fitted.slope, fitted.sd)
    )
    told = torch.linalg.solve_triangular(
        torch.linalg.cholesky(measured), covariance(there, here, fitted.sd, _WIDE), upper=False
    )
    unsure = (
        covariance(here, here, fitted.sd, _WIDE) - told.T @ told + _disagreement(model, data, size)
    )
    centre, spread = model.predict_with_std(candidates, frame)
    linear, gyration = 2 if candidates.planar else 3, inertia(scene, scene.struck_body).gyration
    unit = np.r_[np.ones(linear), np.full(centre.shape[1] - linear, gyration)]
    now = ((spread * unit) ** 2).sum(1) / np.maximum(
        ((centre * unit) ** 2).sum(1), (0.02 * frame.speed) ** 2
    )  # the floor of `rollout_with_jacobian`
    floor = len(unit) * sum(
        w * p.strength.noise**2 for w, p in zip(model.weights, model.posteriors, strict=True)
    )
    return _Belief(unsure, _noise(slope, fitted.sd), now, floor)


def _widened(scale: Scale, fitted: Scale) -> Scale:
    """A scale without the columns that did not count when impacts were fitted."""
    return replace(
        scale,
        widths=tuple(
            np.where(np.isfinite(f), w, np.inf)
            for w, f in zip(scale.widths, fitted.widths, strict=True)
        ),
    )


def _moved(context: Context, was: Scale, to: Scale) -> Context:
    """A context on another scale."""
    groups = []
    for g, *numbers in zip(
        context.groups, was.centres, was.widths, to.centres, to.widths, strict=True
    ):
        old, width, new, wide = map(torch.as_tensor, numbers)
        groups.append(
            torch.where(width.isfinite(), (torch.nan_to_num(g * width) + old - new) / wide, 0.0)
        )
    return Context(tuple(groups), torch.cat(groups, 1))


def _noise(slope: Tensor, sd: Tensor) -> Tensor:
    """What differs from hit to hit, (N, k, k): scatter of the parameters through their slopes (N,
    k, p), and noise of the measurement.
    """
    scaled = _WIDE.white * slope * sd
    return scaled @ scaled.transpose(1, 2) + (_WIDE.noise**2 + 1e-6) * torch.eye(
        slope.shape[1], dtype=slope.dtype
    )


def _disagreement(model: Calibration, data: Data, size: Tensor) -> Tensor:
    """Covariance (N k, N k) between the fits of different strength, over the outcomes' size (N,)."""

    def said(p: Posterior) -> Tensor:
        return (predict(p, data)[0].mean(0) / size[:, None]).flatten()

    each, share = (
        torch.stack([said(p) for p in model.posteriors]),
        torch.tensor(model.weights, dtype=torch.float64),
    )
    off = (each - share @ each) * share.sqrt()[:, None]
    return off.T @ off
