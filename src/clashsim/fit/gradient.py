"""Constant parameters by gradients: many starts on the base model, then a few on MuJoCo.

The base model has gradients and evaluates all starts at once, so it is used to find the basin
of the optimum. A few Gauss-Newton steps on MuJoCo by finite differences then remove the error of
the distillation. Intervals come from the Laplace approximation: the curvature at the optimum plus
the prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import contact_frame
from clashsim.core.estimates import Estimate
from clashsim.core.impacts import Impacts
from clashsim.core.params import to_unit
from clashsim.fit.base import BaseModel
from clashsim.fit.fields import fit_constants
from clashsim.fit.identification_problem import IdentificationProblem, identification_problem
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.lockstep import run_fits
from clashsim.fit.priors import estimates_of_free, theta_prior
from clashsim.optim.levenberg_marquardt import (
    BatchDamping,
    BatchModel,
    BatchStopping,
    descend_batch,
)

NOISE_FLOOR = 0.005  # smallest relative noise that is assumed of a recording
# Step of finite differences on the unit scale: smaller steps show the roughness of the contact
# simulation, not the trend.
_DIFFERENCE = 4e-2
_PRIOR_STD = 0.5  # of the parameters on the unit scale, in the steps on MuJoCo
_DAMPING = BatchDamping(
    initial=1e-2,
    decrease=4.0,
    increase=8.0,
    lowest=0.0,
    highest=np.inf,
    relative_floor=0.0,
    absolute_floor=0.0,
)
_STOPPING = BatchStopping(steps=12, smallest_step=1e-3, largest_step=0.4)


@dataclass(frozen=True, eq=False)
class ConstantEstimates:
    """Identified constants.

    Attributes:
        estimates: In `scene.params` order.
        error: Root mean square relative error of MuJoCo with these constants.
    """

    estimates: tuple[Estimate, ...]
    error: float

    @property
    def theta(self) -> np.ndarray:
        """Values (p,), natural units."""
        return np.array([estimate.value for estimate in self.estimates])


@dataclass(frozen=True, eq=False)
class _Optimum:
    """An optimum of the misfit of MuJoCo.

    Attributes:
        unit: Parameters (q,) on the unit scale.
        squared_error: Sum of squared relative errors over the impacts.
        std: Standard deviations (q,) on the unit scale.
    """

    unit: np.ndarray
    squared_error: float
    std: np.ndarray


def identify_by_gradient(base: BaseModel, impacts: Impacts) -> ConstantEstimates:
    """Identify the scene's MuJoCo parameters.

    Args:
        base: The base model.
        impacts: The recorded impacts.

    Returns:
        The identified constants.
    """
    impacts = impacts.checked()
    scene = base.scene
    problem = identification_problem(scene, impacts)
    frame = contact_frame(scene, impacts)
    scaling = InputScaling.of(base, frame, impacts.known)
    data = scaling.data(base, frame, impacts.known, impacts.after)
    prior = theta_prior(scene, impacts.known)
    ((ends,),) = run_fits(data.physics, [fit_constants(data, [prior])])
    centre = to_unit(scene.params, scene.nominal)
    free = list(problem.free)
    points = [np.clip(centre + end.constants.numpy(), -1, 1)[free] for end in ends]
    optima = [_polish(problem, point, centre[free]) for point in points]
    best = min(optima, key=lambda optimum: optimum.squared_error)
    # Optima below this error are not distinguishable from the best one.
    limit = 2 * best.squared_error + len(impacts) * NOISE_FLOOR**2
    rivals = [optimum.unit for optimum in optima if optimum.squared_error < limit]
    return ConstantEstimates(
        estimates_of_free(
            scene,
            free,
            best.unit,
            widen_for_rivals(best.std, best.unit, rivals),
            base=scene.nominal,
            known=impacts.known,
        ),
        float(np.sqrt(best.squared_error / len(impacts))),
    )


def widen_for_rivals(std: np.ndarray, best: np.ndarray, rivals: list[np.ndarray]) -> np.ndarray:
    """Standard deviations (q,), widened to reach half-way to rival optima.

    Rivals with an almost equal error show that the data do not distinguish between the values.

    Args:
        std: Standard deviations (q,) at the best optimum.
        best: The best optimum (q,).
        rivals: Optima (q,) with an error almost as small.
    """
    half_distances = [np.abs(rival - best) / 2 for rival in rivals]
    return np.max([std, *half_distances], axis=0)


def laplace_std(jacobian: np.ndarray, noise: float, prior: np.ndarray | float) -> np.ndarray:
    """Standard deviations (q,) at an optimum by the Laplace approximation.

    Args:
        jacobian: Derivatives (n, q) of the residuals with respect to the parameters.
        noise: Variance of the residuals.
        prior: Prior standard deviations (q,), or one for all.
    """
    q = jacobian.shape[1]
    precision = jacobian.T @ jacobian / noise + np.eye(q) / prior**2
    return np.sqrt(np.diag(np.linalg.inv(precision)))


def _polish(problem: IdentificationProblem, unit: np.ndarray, centre: np.ndarray) -> _Optimum:
    """Levenberg-Marquardt on MuJoCo from one point (q,).

    The prior about `centre` (q,) influences the steps, but whether a step is accepted depends only
    on the misfit.
    """

    def linearise(points: np.ndarray) -> BatchModel:
        residual, jacobian = _residual_and_jacobian(problem, points[0])
        noise = _noise_variance(residual)
        precision = np.eye(len(unit)) / _PRIOR_STD**2
        hessian = jacobian.T @ jacobian / noise + precision
        gradient = jacobian.T @ residual / noise + (points[0] - centre) / _PRIOR_STD**2
        return BatchModel(
            np.array([(residual**2).sum()]),
            hessian[None],
            gradient[None],
            {"residual": residual[None], "jacobian": jacobian[None]},
        )

    end = descend_batch(
        linearise, unit[None], low=-1.0, high=1.0, damping=_DAMPING, stopping=_STOPPING
    )
    residual = end.model.details["residual"][0]
    jacobian = end.model.details["jacobian"][0]
    std = laplace_std(jacobian, _noise_variance(residual), _PRIOR_STD)
    return _Optimum(end.points[0], float((residual**2).sum()), std)


def _noise_variance(residual: np.ndarray) -> float:
    """Variance of residuals (n,), at least `NOISE_FLOOR` squared."""
    return max(NOISE_FLOOR**2, float((residual**2).mean()))


def _residual_and_jacobian(
    problem: IdentificationProblem, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (N k,) and Jacobian (N k, q) by central differences, all points in one batch."""
    q = len(unit)
    rows = np.arange(len(problem.before))
    shifts = _DIFFERENCE * np.concatenate([np.zeros((1, q)), np.eye(q), -np.eye(q)])
    points = np.clip(unit + shifts, -1, 1)
    residuals = problem.residual(problem.simulate(points, rows), rows).reshape(len(points), -1)
    ahead = slice(1, q + 1)
    behind = slice(q + 1, None)
    width = (points[ahead] - points[behind]).diagonal()
    jacobian = ((residuals[ahead] - residuals[behind]) / width[:, None]).T
    return residuals[0], jacobian
