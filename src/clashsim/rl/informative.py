"""Bonus for informative strikes: where simulator and reality disagree and data is rare (RSR).

The published cost is a product of two factors: how far real transitions are from simulated ones,
and how much a new transition changes the distribution of those collected. Both are estimated here
with one kernel k on scaled transitions x. With the simulator's error e_i at the recorded transition
x_i, the typical error e, the weight c of that prior, and n = sum_i k(x, x_i):

    disagreement(x) = (c e + sum_i k(x, x_i) e_i) / (c + n)    e where no transition is close
    novelty(x)      = 1 / (1 + n)                              the weight of one more transition

So the bonus falls to zero where the simulator is right, and where many strikes were recorded. At
most `_MAX_TRANSITIONS` are kept, far from each other, so that the time of a call does not grow with
the number of recorded strikes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from clashsim.core.errors import DataError
from clashsim.core.extras import needs

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3.common.vec_env import VecEnvWrapper

from clashsim.rl.env import StrikeVecEnv

_LENGTH_SCALE = 0.6  # of the kernel on scaled transitions
_PRIOR_COUNT = 0.5  # c: the typical error weighs as much as this many transitions
_MIN_SIZE = 1e-9  # m, against division by zero
_MAX_TRANSITIONS = 512


@dataclass(frozen=True, eq=False)
class InformationBonus:
    """Real transitions, and how well the simulator predicts them.

    Attributes:
        transitions: Actions (d columns) and simulated motions (3 columns), scaled, (M, d + 3).
        scale: Factors (d + 3,) by which the columns were multiplied.
        misses: Errors of the simulator (M,), relative to the typical length of a motion.
        typical_error: Root mean square of the errors of all recorded strikes.
    """

    transitions: np.ndarray
    scale: np.ndarray
    misses: np.ndarray
    typical_error: float

    @staticmethod
    def of(
        actions: np.ndarray,
        real: np.ndarray,
        simulated: np.ndarray,
        *,
        gyration: float,
        most: int = _MAX_TRANSITIONS,
    ) -> InformationBonus:
        """Return the bonus after strikes that were made in reality.

        Args:
            actions: Actions (n, d) in [-1, 1].
            real: Motions (n, 3) that the actions caused, as from `motion_in_body_frame`.
            simulated: Motions (n, 3) that the simulator predicts for the actions.
            gyration: Radius of gyration (m), by which a rotation (rad) becomes a length.
            most: Number of transitions that are kept.
        """
        if len(actions) < 1 or not (len(actions) == len(real) == len(simulated)):
            raise DataError(
                "real motions, simulated motions and actions must be equally many, at least one, "
                f"got {len(real)}, {len(simulated)} and {len(actions)}"
            )
        to_length = np.array([1.0, 1.0, gyration])
        mean_square = ((simulated * to_length) ** 2).sum(1).mean()
        size = float(np.sqrt(mean_square)) + _MIN_SIZE  # typical length of a motion, m
        scale = np.r_[np.ones(actions.shape[1]), to_length / size]
        misses = np.linalg.norm((real - simulated) * to_length, axis=1) / size
        transitions = np.column_stack([actions, simulated]) * scale
        rows = farthest_point_rows(transitions, min(most, len(transitions)))
        return InformationBonus(
            transitions=transitions[rows],
            scale=scale,
            misses=misses[rows],
            typical_error=float(np.sqrt((misses**2).mean())),
        )

    def disagreement_and_novelty(
        self, actions: np.ndarray, moves: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the two factors of the bonus, (N,) each, for simulated transitions.

        Args:
            actions: Actions (N, d) in [-1, 1].
            moves: Motions (N, 3) in the body frame that the simulator predicts.
        """
        x = np.column_stack([actions, moves]) * self.scale
        squared_distance = cdist(x, self.transitions, "sqeuclidean")
        kernel = np.exp(-0.5 * squared_distance / _LENGTH_SCALE**2)
        count = kernel.sum(1)
        prior = _PRIOR_COUNT * self.typical_error
        disagreement = (prior + kernel @ self.misses) / (_PRIOR_COUNT + count)
        novelty = 1 / (1 + count)
        return disagreement, novelty

    def __call__(self, actions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """Return the bonus (N,), which is at most the simulator's largest relative error.

        Args:
            actions: Actions (N, d) in [-1, 1].
            moves: Motions (N, 3) in the body frame that the simulator predicts.
        """
        disagreement, novelty = self.disagreement_and_novelty(actions, moves)
        return disagreement * novelty


def farthest_point_rows(points: np.ndarray, most: int) -> np.ndarray:
    """Return rows (most,) of points (n, c) that lie far from each other.

    The first is row 0, and each further one is the farthest from all rows before it.
    """
    rows = np.zeros(most, int)
    distance = np.linalg.norm(points - points[0], axis=1)  # to the nearest chosen row
    for i in range(1, most):
        rows[i] = int(distance.argmax())
        from_new = np.linalg.norm(points - points[rows[i]], axis=1)
        distance = np.minimum(distance, from_new)
    return rows


class InformativeVecEnv(VecEnvWrapper):
    """Environments whose rewards include the information bonus of each strike.

    They work with any algorithm of Stable-Baselines3.

    Args:
        env: The environments.
        information: The bonus.
        weight: Weight of the bonus in the reward.
    """

    def __init__(self, env: StrikeVecEnv, information: InformationBonus, weight: float) -> None:
        super().__init__(env)
        self._env = env
        self._information = information
        self._weight = weight
        self._action = np.zeros((env.num_envs, 1))

    def reset(self) -> Any:
        """Start a new episode everywhere."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions (N, d) for `step_wait`."""
        self._action = np.clip(np.asarray(actions, float), -1, 1)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Strike in all environments once, and add the bonus to the rewards."""
        observation, reward, done, infos = self.venv.step_wait()
        bonus = self._weight * self._information(self._action, self._env.moves)
        return observation, (reward + bonus).astype(np.float32), done, infos

    def guide(self) -> np.ndarray:
        """Return the actions of the environments' own lookahead."""
        return self._env.guide()
