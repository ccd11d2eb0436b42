"""Constant parameters by gradient: many starts through the frozen distilled model, the best of them
polished on MuJoCo itself.

The distilled model has gradients and sees every start at once, so it finds the basin; a few
Gauss-Newton steps on MuJoCo by finite differences then remove what the distillation got slightly
wrong. Intervals are Laplace's: curvature at the optimum, and the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clashsim.core.contact_frame import contact_frame
from clashsim.core.impacts import Impacts
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import (
    RIGID,
    Estimate,
    EstimateStatus,
    Scale,
    identifiability_status,
    prior_sd,
)
from clashsim.fit.distil import DistilledModel
from clashsim.fit.fields import constants, fit
from clashsim.fit.identify import IdentificationProblem, identification_problem

FLOOR = 0.005  # no recording is better than half a per cent
_STEP = 4e-2  # of the finite differences, on the unit scale: contact is rough at a finer look


@dataclass(frozen=True, eq=False)
class Constants:
    """Estimates in `scene.params` order, and the root mean square relative error of MuJoCo with
    them.
    """

    estimates: tuple[Estimate, ...]
    error: float

    @property
    def theta(self) -> np.ndarray:
        """Values (p,), natural units."""
        return np.array([e.value for e in self.estimates])


def identify_by_gradient(
    base: DistilledModel, impacts: Impacts, *, seed: int = 0, starts: int = 16, polish: int = 3
) -> Constants:
    """Identify the scene's MuJoCo parameters; `polish` is how many of the best starts go on to
    MuJoCo.
    """
    impacts = impacts.checked()
    scene, setup = base.scene, identification_problem(base.scene, impacts)
    frame = contact_frame(scene, impacts)
    data = Scale.of(base, frame, impacts.known).data(base, frame, impacts.known, impacts.after)
    sd = prior_sd(scene, impacts.known)
    found = fit(
        data,
        sd,
        strength=RIGID,
        posterior_samples=starts,
        anchor=constants(data, sd),
        generator=torch.Generator().manual_seed(seed),
    )
    order = np.argsort(found.cost.numpy())[:polish]
    centre = to_unit(scene.params, scene.nominal)
    free = list(setup.free)
    points = np.clip(centre + found.theta.numpy()[order], -1, 1)[:, free]
    ends = [_polish(setup, p, centre[free]) for p in points]
    unit, cost, spread = min(ends, key=lambda r: r[1])
    # Starts that end elsewhere with an error almost as small say that the impacts do not tell these
    # values apart.
    rivals = [np.abs(u - unit) / 2 for u, c, _ in ends if c < 2 * cost + len(impacts) * FLOOR**2]
    spread = np.max([spread, *rivals], axis=0)
    return Constants(
        told(scene, free, unit, spread, base=scene.nominal, known=impacts.known),
        float(np.sqrt(cost / len(impacts))),
    )


def told(
    scene: Scene,
    free: Sequence[int],
    unit: np.ndarray,
    spread: np.ndarray,
    *,
    base: np.ndarray,
    known: Mapping[str, np.ndarray],
) -> tuple[Estimate, ...]:
    """Estimates in `scene.params` order from the points (q,) and standard deviations (q,) of the
    parameters `free`; the others keep base (p,) or what is known.
    """
    estimates = []
    for i, p in enumerate(scene.params):
        if i not in free:
            value = float(np.mean(known[p.name])) if p.name in known else float(base[i])
            estimates.append(
                Estimate(
                    p.name,
                    value,
                    value,
                    value,
                    EstimateStatus.KNOWN if p.name in known else EstimateStatus.UNIDENTIFIABLE,
                )
            )
            continue
        j = list(free).index(i)
        value, low, high = from_unit(
            [p],
            np.clip([[unit[j]], [unit[j] - 1.64 * spread[j]], [unit[j] + 1.64 * spread[j]]], -1, 1),
        )[:, 0]
        estimates.append(
            Estimate(
                p.name,
                float(value),
                float(low),
                float(high),
                identifiability_status(p, unit[j], spread[j]),
            )
        )
    return tuple(estimates)


def deviation(slope: np.ndarray, noise: float, sd: np.ndarray | float) -> np.ndarray:
    """Standard deviations (q,) at an optimum with slopes (n, q) of residuals of variance `noise`,
    where `sd` was expected before.
    """
    return np.sqrt(np.diag(np.linalg.inv(slope.T @ slope / noise + np.eye(slope.shape[1]) / sd**2)))


def _polish(
    setup: IdentificationProblem, unit: np.ndarray, centre: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Gauss-Newton with damping on MuJoCo from one point (q,): the optimum, its summed squared
    error and its standard deviations.
    """
    rows, q = np.arange(len(setup.before)), len(unit)
    damp, sd = 1e-2, 0.5
    value, slope = _differences(setup, unit, rows)
    for _ in range(12):
        noise = max(FLOOR**2, float((value**2).mean()))
        hessian = slope.T @ slope / noise + np.eye(q) / sd**2
        pull = slope.T @ value / noise + (unit - centre) / sd**2
        move = np.linalg.solve(hessian + damp * np.diag(np.diag(hessian)), -pull)
        trial = np.clip(unit + np.clip(move, -0.4, 0.4), -1, 1)
        next_value, next_slope = _differences(setup, trial, rows)
        if (next_value**2).sum() < (value**2).sum():
            done = np.abs(trial - unit).max() < 1e-3
            unit, value, slope, damp = trial, next_value, next_slope, damp / 4
            if done:
                break
        else:
            damp *= 8
    return (
        unit,
        float((value**2).sum()),
        deviation(slope, max(FLOOR**2, float((value**2).mean())), sd),
    )


def _differences(
    setup: IdentificationProblem, unit: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (N k,) and their slopes (N k, q) by central differences, all points in one batch."""
    q = len(unit)
    points = unit + np.concatenate([np.zeros((1, q)), _STEP * np.eye(q), -_STEP * np.eye(q)])
    points = np.clip(points, -1, 1)
    out = setup.residual(setup.simulate(points, rows), rows).reshape(len(points), -1)
    width = (points[1 : q + 1] - points[q + 1 :]).diagonal()
    return out[0], ((out[1 : q + 1] - out[q + 1 :]) / width[:, None]).T
