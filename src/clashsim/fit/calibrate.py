"""From a distilled model and a few real impacts to a calibrated one: theta, its intervals and
verdicts, fields and residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.distil import DistilledModel, circumstances
from clashsim.fit.fields import (
    TEMPER,
    Context,
    Data,
    Physics,
    Posterior,
    Strength,
    constants,
    fit,
    predict,
)
from clashsim.fit.local_correction import LocalCorrection

RIGID = Strength(
    field=0.0, white=0.0, residual=0.0, linear=0.0, mix=0.0, noise=0.05
)  # constants only: plain identification
# Of the evidence that weighs strengths: with ten impacts a few nats are chance, with a hundred they
# are many
_TEMPERATURE = 4.0
_SHARE = 0.35  # of the base model's range of a circumstance that counts as a step in it
# Likewise, of a parameter measured with each impact: its zero or its scale may still be a little
# off
_KNOWN_SD = 0.1
STRENGTHS = (Strength(), Strength(field=0.1), Strength(noise=0.015), Strength(noise=0.06))
_NOISES = (0.02, 0.05, 0.1)  # relative noise that constants alone may leave, chosen by evidence
_PRIOR_SD = (
    0.5  # of theta on its unit scale [-1, 1]: the range is two standard deviations either way
)


class EstimateStatus(StrEnum):
    """What the impacts say about one parameter."""

    FITTED = "fitted"
    AT_BOUND = "at bound"
    UNIDENTIFIABLE = "unidentifiable"
    KNOWN = "known"  # measured with each impact


@dataclass(frozen=True)
class Estimate:
    """One parameter after calibration, natural units; low..high holds about 90 % of the posterior."""

    name: str
    value: float
    low: float
    high: float
    status: EstimateStatus


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated collision model; an `ImpactModel`.

    `posteriors` are fits of different strength, each with its draws, and `weights` how much each
    counts. `witness` recalls what similar
    impacts did, without physics: it has a say near the impacts that were fitted, as far as it is
    the surer of the two.
    """

    base: DistilledModel
    theta: tuple[Estimate, ...]
    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    scale: Scale
    witness: LocalCorrection | None

    def predict_samples(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> list[np.ndarray]:
        """Twist after impact of each draw of each posterior, (M, N, k) each."""
        frame = frame or contact_frame(self.base.scene, impacts)
        data = self.scale.data(self.base, frame, impacts.known)
        return [frame.decode(predict(p, data)[0].numpy()) for p in self.posteriors]

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Twist after impact (N, k)."""
        return self.predict_with_std(impacts)[0]

    def std(self, impacts: Impacts) -> np.ndarray:
        """One standard deviation of the twist after impact (N, k): what draws and strengths
        disagree on, and the fitted noise.
        """
        return self.predict_with_std(impacts)[1]

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`predict` and `std` at the cost of one; seen: the impacts in their contact frames,
        where these are known already.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        fits = self.predict_samples(impacts, frame)
        centre = sum(
            (w * f.mean(0) for w, f in zip(self.weights, fits, strict=True)),
            np.zeros_like(impacts.after),
        )
        rim = inertia(self.base.scene, self.base.scene.struck_body).gyration
        linear = 2 if impacts.planar else 3
        unit = np.r_[
            np.ones(linear), np.full(centre.shape[1] - linear, 1 / rim)
        ]  # the noise is relative to the size of (v, gyration * w)
        size = np.linalg.norm(centre / unit, axis=1, keepdims=True)
        variance = np.zeros_like(centre)
        for w, f, p in zip(self.weights, fits, self.posteriors, strict=True):
            variance += w * (
                f.var(0) / TEMPER**2
                + (f.mean(0) - centre) ** 2
                + (p.strength.noise * size * unit) ** 2
            )
        if self.witness is None:
            return centre, np.sqrt(variance)
        said, doubt, near = self.witness(self.base.scene, frame, impacts)
        surprise = sum(w * p.surprise for w, p in zip(self.weights, self.posteriors, strict=True))
        ours, theirs = (
            np.sqrt(surprise) * (variance / unit**2).sum(1),
            doubt.sum(1),
        )  # the root: ten impacts know their own surprise but roughly
        share = (near * ours / (ours + theirs + 1e-12))[:, None]
        noise = sum(
            w * p.strength.noise**2 for w, p in zip(self.weights, self.posteriors, strict=True)
        )
        variance = (1 - share) * variance + share * (
            theirs[:, None] / len(unit) + noise * size**2
        ) * unit**2
        return (1 - share) * centre + share * said, np.sqrt(variance)


@dataclass(frozen=True, eq=False)
class Scale:
    """Standardisation of what fields and residual depend on, taken from the impacts that were
    fitted.
    """

    centres: tuple[np.ndarray, ...]
    widths: tuple[np.ndarray, ...]
    extras: tuple[str, ...]

    @staticmethod
    def of(base: DistilledModel, frame: ContactFrame, known: Mapping[str, np.ndarray]) -> Scale:
        """Centre and width of each column: as the impacts spread, but not less than a share of what
        the base model was trained on.

        A session's first strikes may hardly differ in some respect; that must not turn a small step
        in it into a leap later.
        """
        extras = tuple(sorted(known))
        columns = _columns(frame, known, extras)
        ranges = {p.name: (p.high - p.low) / np.sqrt(12) for p in base.scene.params}
        extent = np.split(base.extent, np.cumsum([c.shape[1] for c in columns[:2]]))
        extent.append(np.array([ranges.get(k, 0.0) for k in extras]))
        centres = tuple(np.median(c, 0) for c in columns)
        widths = []
        for c, m, e in zip(columns, centres, extent, strict=True):
            spread = np.maximum(1.4826 * np.median(np.abs(c - m), 0), 0.5 * c.std(0))
            spread = np.maximum(spread, _SHARE * e)
            if (
                c is not columns[3]
            ):  # the cosine of a small angle says nothing that its sine does not say better
                spread = np.where(e < 0.15 * e.max(initial=0.0), 0.0, spread)
            widths.append(np.where(spread > 1e-6 * (1 + np.abs(m)), spread, np.inf))
        if base.scene.is_round:  # a disc or a ball looks the same from all sides
            widths[1] = np.full_like(widths[1], np.inf)
        return Scale(centres, tuple(widths), extras)

    def data(
        self,
        base: DistilledModel,
        frame: ContactFrame,
        known: Mapping[str, np.ndarray],
        after: np.ndarray | None = None,
    ) -> Data:
        """Impacts as the fit sees them; `after` (N, k) where it is known."""
        missing = [k for k in self.extras if k not in known]
        if missing:
            raise DataError(f"the impacts lack {missing[0]!r}, which the model was calibrated with")
        groups = tuple(
            torch.as_tensor((c - m) / w)
            for c, m, w in zip(
                _columns(frame, known, self.extras), self.centres, self.widths, strict=True
            )
        )
        groups = tuple(g.clamp(-6, 6) for g in groups)
        start = torch.as_tensor(frame.twist_before / frame.speed[:, None])
        change = (
            torch.as_tensor(frame.encode(after)) if after is not None else torch.zeros_like(start)
        )
        return Data(
            _physics(base, frame, known), change, start, Context(groups, torch.cat(groups, 1))
        )


def _columns(
    frame: ContactFrame, known: Mapping[str, np.ndarray], extras: tuple[str, ...]
) -> list[np.ndarray]:
    """Groups of raw columns: the circumstances of each impact, and what else was measured with it."""
    return [
        *circumstances(frame),
        np.column_stack([known[k] for k in extras]) if extras else np.zeros((len(frame.speed), 0)),
    ]


def _physics(base: DistilledModel, frame: ContactFrame, known: Mapping[str, np.ndarray]) -> Physics:
    """The distilled model as a function of (rows, phi), phi being the unit-scale parameters about
    their nominal values.
    """
    params = base.scene.params
    features = torch.as_tensor(frame.features, dtype=torch.float32)
    centre = (
        torch.as_tensor(to_unit(params, base.scene.nominal), dtype=torch.float32)
        .expand(len(features), -1)
        .clone()
    )
    for i, p in enumerate(params):
        if p.name in known:
            centre[:, i] = torch.as_tensor(
                to_unit([p], known[p.name][:, None])[:, 0], dtype=torch.float32
            )

    def physics(rows: Tensor, phi: Tensor) -> Tensor:
        unit = centre[rows] + phi
        unit = (
            unit + (unit.clamp(-1.1, 1.1) - unit).detach() * 0.98
        )  # hold to the trained range, yet keep a slope to come back by
        x = features[rows].expand(*unit.shape[:-1], -1)
        out = base.change(x.reshape(-1, x.shape[-1]), unit.reshape(-1, unit.shape[-1])).mean(0)
        return out.reshape(*unit.shape[:-1], -1)

    return physics


def calibrate(
    base: DistilledModel,
    impacts: Impacts,
    *,
    seed: int = 0,
    posterior_samples: int = 5,
    strengths: tuple[Strength, ...] | None = None,
) -> Calibration:
    """Fit a distilled model to real impacts; how far it may bend away from MuJoCo is weighed by the
    evidence of these impacts alone.
    """
    impacts = impacts.checked()
    frame = contact_frame(base.scene, impacts)
    scale = Scale.of(base, frame, impacts.known)
    data = scale.data(base, frame, impacts.known, impacts.after)
    sd = prior_sd(base.scene, impacts.known)
    choices = strengths or STRENGTHS
    anchor = constants(data, sd)
    rng = torch.Generator()
    evidence = np.array(
        [
            fit(
                data,
                sd,
                strength=s,
                posterior_samples=1,
                anchor=anchor,
                generator=rng.manual_seed(seed),
            ).evidence
            for s in choices
        ]
        if len(choices) > 1
        else [0.0]
    )
    weights = np.exp((evidence - evidence.max()) / _TEMPERATURE)
    kept = [i for i in np.argsort(-weights) if weights[i] > 0.1]
    share = weights[kept] / weights[kept].sum()
    posteriors = tuple(
        _keep(
            fit(
                data,
                sd,
                strength=choices[i],
                posterior_samples=posterior_samples,
                anchor=anchor,
                generator=rng.manual_seed(seed),
            )
        )
        for i in kept
    )
    # Values and verdicts are of constants alone, which is what a MuJoCo model can hold; fields and
    # residual only serve prediction.
    plain = max(
        (
            fit(
                data,
                sd,
                strength=replace(RIGID, noise=n),
                posterior_samples=1,
                anchor=anchor,
                generator=rng.manual_seed(seed),
            )
            for n in _NOISES
        ),
        key=lambda p: p.evidence,
    )
    return Calibration(
        base,
        _estimates(base, plain, impacts.known),
        posteriors,
        tuple(map(float, share)),
        scale,
        LocalCorrection.of(base.scene, frame, impacts),
    )


def prior_sd(scene: Scene, known: Mapping[str, np.ndarray]) -> Tensor:
    """Standard deviations (p,) of theta on its unit scale before any impact was seen."""
    return torch.tensor(
        [_KNOWN_SD if p.name in known else _expected(p) for p in scene.params], dtype=torch.float64
    )


def _expected(p: Param) -> float:
    return (
        _PRIOR_SD
        if p.sd is None
        else 2 * p.sd / (np.log(p.high / p.low) if p.scale == "log" else p.high - p.low)
    )


def identifiability_status(p: Param, unit: float, spread: float) -> EstimateStatus:
    """What an estimate of a parameter on its unit scale and its standard deviation amount to."""
    told = spread / _expected(p)
    if abs(unit) > 0.97 and told < 0.5:
        return EstimateStatus.AT_BOUND
    return EstimateStatus.UNIDENTIFIABLE if told > 0.25 else EstimateStatus.FITTED


def _keep(p: Posterior) -> Posterior:
    """Drop draws that ended in a poor local optimum."""
    middle = p.cost.median()
    good = p.cost <= middle + 5 + 4 * (p.cost - middle).abs().median()
    good[0] = True  # the maximum of the posterior, which values and intervals are taken about
    return replace(
        p,
        mean=p.mean[good],
        anchor=p.anchor[good],
        dual=p.dual[good],
        rest=p.rest[good],
        cost=p.cost[good],
        shape=p.shape[good],
    )


def _estimates(
    base: DistilledModel, posterior: Posterior, known: Mapping[str, np.ndarray]
) -> tuple[Estimate, ...]:
    params = base.scene.params
    unit = to_unit(params, base.scene.nominal) + posterior.theta[0].numpy()
    out = []
    for i, p in enumerate(params):
        if p.name in known:
            v = known[p.name]
            out.append(
                Estimate(
                    p.name, float(np.mean(v)), float(v.min()), float(v.max()), EstimateStatus.KNOWN
                )
            )
            continue
        centre, spread = float(unit[i]), float(posterior.deviation[i])
        ends = from_unit(
            [p], np.array([[centre - 1.64 * spread], [centre], [centre + 1.64 * spread]])
        )[:, 0]
        low, value, high = np.clip(ends, p.low, p.high)
        out.append(
            Estimate(
                p.name,
                float(value),
                float(low),
                float(high),
                identifiability_status(p, centre, spread),
            )
        )
    return tuple(out)
