"""What a strike would teach: a bonus where simulator and reality disagree and data is rare (RSR).

The published cost is a product: how far real transitions diverge from simulated ones, times how far
a new one moves what was collected. Both factors are estimated here with one kernel on scaled
transitions, from pairs of what a strike did and what the simulator predicts. With the typical
error e and n = sum_i k(x, x_i):

    disagreement(x) = (c e + sum_i k(x, x_i) e_i) / (c + n)    e where no transition is close
    novelty(x)      = 1 / (1 + n)                              the weight of one more transition

So the bonus falls to zero where the simulator is right, and where reality has been seen often. At
most `_MAX_TRANSITIONS` are kept, far from each other, so that the cost of a call does not grow with
what was collected.
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
_PRIOR_COUNT = 0.5  # c: transitions that the typical error weighs
_MAX_TRANSITIONS = 512


@dataclass(frozen=True, eq=False)
class InformationBonus:
    """Real transitions, and how well the simulator predicts them.

    Attributes:
        transitions: Scaled actions and motions (M, c).
        scale: What they were multiplied by (c,).
        misses: Error of the simulator (M,), relative to the size of what strikes do.
        typical_error: Root mean square of all such errors.
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
            real: Motions (n, 3) in the body frame that they caused.
            simulated: Motions (n, 3) that the simulator predicts.
            gyration: Radius of gyration (m), which turns a rotation into a length.
            most: Transitions that are kept.
        """
        if len(actions) < 1 or not (len(actions) == len(real) == len(simulated)):
            raise DataError(
                "as many real and simulated moves as actions are needed, "
                f"got {len(real)}, {len(simulated)} and {len(actions)}"
            )
        to_length = np.array([1.0, 1.0, gyration])
        size = float(np.sqrt(((simulated * to_length) ** 2).sum(1).mean())) + 1e-9
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
        """Return both factors (N,) for simulated transitions.

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
        """Return the bonus (N,), at most of the order of the simulator's relative error."""
        disagreement, novelty = self.disagreement_and_novelty(actions, moves)
        return disagreement * novelty


def farthest_point_rows(points: np.ndarray, most: int) -> np.ndarray:
    """Return rows (most,) of points (n, c) that lie far from each other.

    Each is the farthest from those before it; the first is row 0.
    """
    rows = np.zeros(most, int)
    distance = np.linalg.norm(points - points[0], axis=1)
    for i in range(1, most):
        rows[i] = int(distance.argmax())
        from_new = np.linalg.norm(points - points[rows[i]], axis=1)
        distance = np.minimum(distance, from_new)
    return rows


class InformativeVecEnv(VecEnvWrapper):
    """Environments whose rewards include what each strike would teach.

    Any algorithm of Stable-Baselines3 takes them.

    Args:
        env: The environments.
        information: The bonus.
        weight: Of the bonus in the reward.
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
        """Keep the actions (N, d)."""
        self._action = np.clip(np.asarray(actions, float), -1, 1)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Strike in all environments once."""
        observation, reward, done, infos = self.venv.step_wait()
        bonus = self._weight * self._information(self._action, self._env.moves)
        return observation, (reward + bonus).astype(np.float32), done, infos

    def guide(self) -> np.ndarray:
        """Return the actions of the environments' own lookahead."""
        return self._env.guide()
