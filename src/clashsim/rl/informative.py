"""What a strike would teach: a bonus for transitions that lie where simulator and reality disagree
and where little was collected (RSR).

The published cost is a product: how far real transitions diverge from simulated ones, times how far
a new one moves what was collected. Both factors are estimated here with one kernel on scaled
transitions, from pairs of what a strike did and what the simulator says it does:

    disagreement(x) = (c e + sum_i k(x, x_i) e_i) / (c + sum_i k(x, x_i))     the usual error e
      where nothing is near
    novelty(x)      = 1 / (1 + sum_i k(x, x_i))                               the share by which one
                    more transition counts there

so that the bonus falls to nothing where the simulator is right, and where reality has been seen
often. At most `_MOST` transitions are kept, spread over all that were collected, so that the cost
of a call does not grow with them.
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

_LENGTH_SCALE = 0.6  # of scaled transitions, within which one tells about another
_PRIOR_COUNT = 0.5  # transitions that the usual error weighs
_MOST = 512


@dataclass(frozen=True, eq=False)
class InformationBonus:
    """Real transitions, scaled (M, c), by how much the simulator misses each (M,), relative to the
    size of what strikes do, and the usual miss.
    """

    places: np.ndarray
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
        most: int = _MOST,
    ) -> InformationBonus:
        """From actions (n, d) in [-1, 1], and moves (n, 3) that they made and that the simulator
        says; gyration (m) makes a turn a length.
        """
        if len(actions) < 1 or not (len(actions) == len(real) == len(simulated)):
            raise DataError(
                f"as many real and simulated moves as actions are needed, got {len(real)}, {len(simulated)} and {len(actions)}"
            )
        unit = np.array([1.0, 1.0, gyration])
        size = float(np.sqrt(((simulated * unit) ** 2).sum(1).mean())) + 1e-9
        scale = np.r_[np.ones(actions.shape[1]), unit / size]
        misses = np.linalg.norm((real - simulated) * unit, axis=1) / size
        places = np.column_stack([actions, simulated]) * scale
        rows = farthest_point_rows(places, min(most, len(places)))
        return InformationBonus(
            places[rows], scale, misses[rows], float(np.sqrt((misses**2).mean()))
        )

    def disagreement_and_novelty(
        self, actions: np.ndarray, moves: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Disagreement and novelty (N,) of simulated transitions: actions (N, d) and moves (N, 3)."""
        x = np.column_stack([actions, moves]) * self.scale
        kernel = np.exp(-0.5 * cdist(x, self.places, "sqeuclidean") / _LENGTH_SCALE**2)
        near = kernel.sum(1)
        return (_PRIOR_COUNT * self.typical_error + kernel @ self.misses) / (
            _PRIOR_COUNT + near
        ), 1 / (1 + near)

    def __call__(self, actions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """The bonus (N,), of the order of the simulator's relative error at most."""
        disagreement, novelty = self.disagreement_and_novelty(actions, moves)
        return disagreement * novelty


def farthest_point_rows(points: np.ndarray, most: int) -> np.ndarray:
    """Rows (most,) of points (n, c) that lie far from each other: each the farthest from those
    before it, the first being row 0.
    """
    rows = np.zeros(most, int)
    gap = np.linalg.norm(points - points[0], axis=1)
    for i in range(1, most):
        rows[i] = int(gap.argmax())
        gap = np.minimum(gap, np.linalg.norm(points - points[rows[i]], axis=1))
    return rows


class InformativeVecEnv(VecEnvWrapper):
    """An environment whose rewards hold `weight` times what each strike would teach; any algorithm
    of Stable-Baselines3 takes it.
    """

    def __init__(self, env: StrikeVecEnv, information: InformationBonus, weight: float) -> None:
        super().__init__(env)
        self._env, self._information, self._weight = env, information, weight
        self._action = np.zeros((env.num_envs, 1))

    def reset(self) -> Any:
        """Begin all anew."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions."""
        self._action = np.clip(np.asarray(actions, float), -1, 1)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Strike all of them once."""
        seen, reward, done, infos = self.venv.step_wait()
        bonus = self._weight * self._information(self._action, self._env.moves)
        return seen, (reward + bonus).astype(np.float32), done, infos

    def guide(self) -> np.ndarray:
        """As the environment's own."""
        return self._env.guide()
