"""Baselines on measured impacts: simple physics, regression, a Gaussian process and networks.

Each baseline is a function (problem, rows, seed) -> twists after impact (N, k) of all impacts; it
uses the measured outcomes of `rows` only.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import contact_frame
from clashsim.core.params import to_unit
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.fit.distil import PAPER
from clashsim.fit.network_regression import regress_network
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.regression import RegressionInputs, regress

_RIDGE_PENALTIES = np.geomspace(1e-8, 1e2, 31)
_CONSTANT_PENALTY = 1e-6  # of the constant input, relative to the others
_JITTER = 1e-12  # added to the diagonal, so that the matrix can be inverted
_MIN_RESIDUAL_SHARE = 1e-9  # least 1 - leverage, so that no division is by zero
_PAPER_THETA_STEPS = 1000  # CLASH paper, Eq. 3: identification with the network frozen
_PAPER_WEIGHT_STEPS = 10  # then fine-tuning with theta fixed


def regression_inputs(problem: FewShotProblem, rows: np.ndarray) -> np.ndarray:
    """Inputs of the regressions: contact geometry and approach, in the contact frame.

    Args:
        problem: The data set of N impacts.
        rows: Impacts by whose statistics the inputs are scaled, (n,).

    Returns:
        Inputs, (N, f).
    """
    few = problem.impacts[rows]
    inputs = RegressionInputs.of(problem.scene, contact_frame(problem.scene, few), few)
    return inputs(problem.scene, problem.frames, problem.impacts)


def newton_coulomb(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Predict with a rigid point contact: normal and tangential restitution, Coulomb friction.

    The three coefficients are fitted by grid and simplex search.

    Args:
        problem: The data set of N impacts.
        rows: Impacts whose outcome may be used, (n,).
        seed: Not used.

    Returns:
        Twists after impact, (N, k).
    """
    inputs = point_contact_inputs(problem.scene, problem.frames, problem.impacts)
    fit = fit_point_contact(inputs[rows], problem.twist_change[rows], problem.twist_size[rows])
    return problem.frames.decode(point_contact(fit.law[None], inputs))


def ridge(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Predict by linear regression in the contact frame.

    The penalty is the one with the least leave-one-out error.

    Args:
        problem: The data set of N impacts.
        rows: Impacts whose outcome may be used, (n,).
        seed: Not used.

    Returns:
        Twists after impact, (N, k).
    """
    features = regression_inputs(problem, rows)
    inputs = np.column_stack([features, np.ones(len(features))])
    weight = 1 / problem.twist_size[rows, None]  # makes residuals relative errors
    weighted_inputs = inputs[rows] * weight
    weighted_targets = problem.twist_change[rows] * weight
    gram = weighted_inputs.T @ weighted_inputs
    # The constant is hardly penalised: the mean outcome should not be pulled to zero.
    relative_penalty = np.r_[np.ones(features.shape[1]), _CONSTANT_PENALTY]
    jitter = _JITTER * np.eye(len(relative_penalty))
    least_error = np.inf
    best_coefficients = np.zeros((inputs.shape[1], weighted_targets.shape[1]))
    for penalty in _RIDGE_PENALTIES:
        inverse = np.linalg.inv(gram + penalty * len(rows) * np.diag(relative_penalty) + jitter)
        coefficients = inverse @ weighted_inputs.T @ weighted_targets
        residual = weighted_targets - weighted_inputs @ coefficients
        leverage = np.einsum("ni,ij,nj->n", weighted_inputs, inverse, weighted_inputs)
        residual_share = np.maximum(1 - leverage, _MIN_RESIDUAL_SHARE)
        left_out_residual = residual / residual_share[:, None]
        error = float(np.square(left_out_residual).mean())
        if error < least_error:
            least_error = error
            best_coefficients = coefficients
    return problem.frames.decode(inputs @ best_coefficients)


def gp(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Predict by an exact Gaussian process in the contact frame.

    Hyper-parameters maximise the marginal likelihood.

    Args:
        problem: The data set of N impacts.
        rows: Impacts whose outcome may be used, (n,).
        seed: Not used.

    Returns:
        Twists after impact, (N, k).
    """
    inputs = regression_inputs(problem, rows)
    posterior = regress(inputs[rows], problem.twist_change[rows], problem.twist_size[rows])
    mean = posterior(inputs)[0]
    return problem.frames.decode(mean)


def scratch(
    problem: FewShotProblem, rows: np.ndarray, seed: int, *, steps: int = 600
) -> np.ndarray:
    """Predict by the paper's network without pre-training, on the inputs of the other regressions.

    Args:
        problem: The data set of N impacts.
        rows: Impacts whose outcome may be used, (n,).
        seed: Seed of the first weights and of the folds of cross-validation.
        steps: The most training steps.

    Returns:
        Twists after impact, (N, k).
    """
    change = regress_network(
        regression_inputs(problem, rows),
        problem.twist_change[rows],
        problem.twist_size[rows],
        rows=rows,
        config=PAPER,
        steps=steps,
        seed=seed,
    )
    return problem.frames.decode(change)


def clash_paper(problem: FewShotProblem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Predict with the training steps of the CLASH paper (Eq. 3), on inputs in the contact frame.

    1,000 steps of AdamW on theta with the network frozen, then 10 on the weights with theta fixed.

    Args:
        problem: The data set of N impacts.
        rows: Impacts whose outcome may be used, (n,).
        seed: Not used.

    Returns:
        Twists after impact, (N, k).
    """
    params = problem.mujoco_scene.params
    measured = problem.impacts.known
    theta = np.tile(problem.mujoco_scene.nominal, (len(problem.impacts), 1))
    for i, param in enumerate(params):
        if param.name in measured:
            theta[:, i] = measured[param.name]
    unit_theta = _single(to_unit(params, theta))
    is_free = torch.tensor([float(param.name not in measured) for param in params])
    features = _single(problem.frames.features)
    targets = _single(problem.twist_change[rows])
    net = copy.deepcopy(problem.paper_base.net)

    def predict(which: np.ndarray | slice, shift: Tensor) -> Tensor:
        """Change of twist of the impacts `which`, at theta moved by `shift` (p,), unit scale.

        Parameters that were measured with each impact stay at their measured values.
        """
        moved = (unit_theta[which] + is_free * shift).clamp(-1, 1)
        change: Tensor = net(torch.cat([features[which], moved], -1))[0]
        return change

    shift = torch.zeros(len(params), requires_grad=True)
    stages = (([shift], _PAPER_THETA_STEPS), (list(net.parameters()), _PAPER_WEIGHT_STEPS))
    for parameters, steps in stages:
        for parameter in parameters:
            parameter.requires_grad_(True)
        optimiser = torch.optim.AdamW(parameters, lr=PAPER.rate, weight_decay=PAPER.decay)
        for _ in range(steps):
            optimiser.zero_grad(set_to_none=True)
            (predict(rows, shift) - targets).square().mean().backward()
            optimiser.step()
        shift.requires_grad_(False)
    with torch.no_grad():
        change = predict(slice(None), shift)
    return problem.frames.decode(change.double().numpy())


def _single(values: np.ndarray) -> Tensor:
    """Values in single precision."""
    return torch.as_tensor(values, dtype=torch.float32)
