"""The least-squares problem of fitting one slide model to several slides.

Each slide has its own start, and its own friction that differs a little from the common one: the
friction of real tables varies by some per cent from place to place and from slide to slide. In
every step of the descent these own constants are eliminated, slide by slide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from clashsim.optim.levenberg_marquardt import DescentSchedule, descend
from clashsim.optim.normal_equations import eliminate_blocks, huber_cost, huber_weights
from clashsim.slides.law import SlideModel
from clashsim.slides.value_priors import bounded_values, natural_values

# Own constants of each slide: x, y, yaw, vx, vy, yaw rate at its start, and the logarithm of its
# friction over the common friction.
NUM_OWN = 7
OWN_FRICTION = 6
_FRICTION = 0  # index of the common friction among the values
# Independent samples per slide: fewer than are compared, because the path of a slide that differs
# from the model differs smoothly.
_INDEPENDENT_SAMPLES = 6.0
_HUBER = 2.0  # standardised residuals beyond this enter the cost linearly, not squared
_DIFFERENCE = 1e-4  # step of the finite differences, in standard deviations of the prior
SCHEDULE = DescentSchedule(
    initial=1e-2,
    decrease=5.0,
    increase=6.0,
    rounds=8,
    steps=30,
    absolute_tolerance=1e-3,
    relative_tolerance=1e-3,
)


@dataclass(frozen=True, eq=False)
class SlideProblem:
    """N recorded slides at T times each, with noise and priors.

    Attributes:
        body: A slide model whose body, gravity and Runge-Kutta steps are used; its values are not.
        t: Times since the start of each slide (N, T), s.
        pose: Recorded poses (N, T, 3).
        rest: Recorded poses at rest (N, 3).
        start: Poses and twists at the first samples (N, 6), as measured or estimated.
        own_std: Prior standard deviations (7,) of the slides' own constants.
        mean: Prior means (11,) of the common values, on the scale of the fit.
        std: Prior standard deviations (11,) of the common values, on the scale of the fit.
        noise: Standard deviations (3,) of x, y (m) and yaw (rad) along the paths.
        rest_std: Standard deviations (N, 3) of the poses at rest that are predicted from the
            measured starts with the common friction; None if starts were not measured.
    """

    body: SlideModel
    t: np.ndarray
    pose: np.ndarray
    rest: np.ndarray
    start: np.ndarray
    own_std: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    noise: np.ndarray
    rest_std: np.ndarray | None

    def paths(self, common: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Poses (M, N, T, 3) for M sets of common values (M, 11) and own constants (M, N, 7)."""
        m, n, _ = own.shape
        values = np.repeat(common[:, None], n, 1)
        values[..., _FRICTION] += own[..., OWN_FRICTION]
        rows = torch.as_tensor(own.reshape(m * n, NUM_OWN))
        natural = torch.as_tensor(natural_values(values.reshape(m * n, -1)))
        times = torch.as_tensor(np.tile(self.t, (m, 1)))
        out = self.body.with_values(natural).path(rows[:, :3], rows[:, 3:6], times)
        return out.numpy().reshape(m, n, *self.pose.shape[1:])

    def rest_poses(self, common: np.ndarray) -> np.ndarray:
        """Poses at rest (M, N, 3) from the measured starts, for M sets of common values (M, 11).

        The model is later used in this way: the friction of the next slide is not known.
        """
        m = len(common)
        n = len(self.start)
        rows = torch.as_tensor(np.tile(self.start, (m, 1)))
        natural = torch.as_tensor(natural_values(np.repeat(common, n, 0)))
        rest = self.body.with_values(natural).rest(rows[:, :3], rows[:, 3:6])
        return rest.numpy().reshape(m, n, 3)

    def residuals(self, common: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Standardised residuals of each slide.

        Args:
            common: M sets of common values (M, 11).
            own: Own constants of the slides (M, N, 7).

        Returns:
            (M, N, 3 T + 7), or (M, N, 3 T + 10) with measured starts: of the poses along the path,
            of the own constants about their priors, and of the pose at rest.
        """
        weight = np.sqrt(_INDEPENDENT_SAMPLES / self.pose.shape[1])
        along = (self.paths(common, own) - self.pose) / self.noise * weight
        expected_log_friction = np.zeros((len(self.start), 1))
        expected = np.concatenate([self.start, expected_log_friction], 1)  # (N, 7)
        parts = [along.reshape(*own.shape[:2], -1), (own - expected) / self.own_std]
        if self.rest_std is not None:
            at_rest = (self.rest_poses(common) - self.rest) / self.rest_std
            parts.append(np.broadcast_to(at_rest, (len(own), *at_rest.shape[1:])))
        return np.concatenate(parts, -1)

    def solve(
        self, common: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Minimise the Huber cost of the residuals plus the cost of the common values' prior.

        Args:
            common: Common values (11,) to begin with.
            own: Own constants of the slides (N, 7) to begin with.

        Returns:
            Fitted common values (11,), own constants (N, 7), and the covariance (11, 11) of the
            common values.
        """
        end = descend(_state(self, common, own), lambda at: _Linearised.at(self, at), SCHEDULE)
        model = end.model
        assert isinstance(model, _Linearised)
        return end.state.common, end.state.own, model.covariance()


@dataclass(frozen=True, eq=False)
class _State:
    """A point of the fit: common values (11,), constants (N, 7), residuals (N, R) and the cost."""

    common: np.ndarray
    own: np.ndarray
    residuals: np.ndarray
    cost: float


def _state(problem: SlideProblem, common: np.ndarray, own: np.ndarray) -> _State:
    """Evaluate residuals and cost at common values (11,) and own constants (N, 7)."""
    residuals = problem.residuals(common[None], own[None])[0]
    prior = (((common - problem.mean) / problem.std) ** 2).sum()
    return _State(common, own, residuals, huber_cost(residuals, _HUBER) + float(prior))


@dataclass(frozen=True, eq=False)
class _Linearised:
    """Normal matrices (N, 18, 18) and gradients (N, 18) of the slides at a point.

    The 18 unknowns of a slide are the 11 common values, then its 7 own constants.
    """

    problem: SlideProblem
    state: _State
    normal: np.ndarray
    gradient: np.ndarray

    @staticmethod
    def at(problem: SlideProblem, state: _State) -> _Linearised:
        """Linearise by finite differences; all shifted points are evaluated in one batch."""
        num_common = len(state.common)
        step = _DIFFERENCE * np.concatenate([problem.std, problem.own_std])
        common_shifts = np.concatenate(
            [np.diag(step[:num_common]), np.zeros((NUM_OWN, num_common))]
        )
        own_shifts = np.concatenate([np.zeros((num_common, NUM_OWN)), np.diag(step[num_common:])])
        shifted = problem.residuals(state.common + common_shifts, state.own + own_shifts[:, None])
        differences = (shifted - state.residuals) / step[:, None, None]
        jacobian = np.moveaxis(differences, 0, -1)  # (N, residuals, 11 + 7)
        weights = huber_weights(state.residuals, _HUBER)
        return _Linearised(
            problem,
            state,
            np.einsum("nri,nr,nrj->nij", jacobian, weights, jacobian),
            np.einsum("nri,nr->ni", jacobian, weights * state.residuals),
        )

    def trial(self, damping: float) -> _State:
        """The point after a damped step; the prior's part of the matrix is damped as well."""
        problem = self.problem
        num_common = len(self.state.common)
        precision = problem.std**-2.0
        damped = self.normal * (1 + damping * np.eye(self.normal.shape[1]))
        blocks = eliminate_blocks(damped, self.gradient, damped[:, num_common:, num_common:])
        matrix = blocks.matrix.sum(0) + np.diag((1 + damping) * precision)
        prior_gradient = (self.state.common - problem.mean) * precision
        step = np.linalg.solve(matrix, -(blocks.gradient.sum(0) + prior_gradient))
        common = bounded_values(self.state.common + step)
        return _state(problem, common, self.state.own + blocks.own_steps(step))

    def covariance(self) -> np.ndarray:
        """Laplace covariance (11, 11) of the common values, marginal over the own constants."""
        num_common = len(self.state.common)
        own_matrix = self.normal[:, num_common:, num_common:]
        blocks = eliminate_blocks(self.normal, self.gradient, own_matrix)
        return np.linalg.inv(blocks.matrix.sum(0) + np.diag(self.problem.std**-2.0))
