"""Environments: `clashsim/Push-v0` for Gymnasium, and batches of a task for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clashsim.core.extras import needs

with needs("Stable-Baselines3", "rl"):
    import gymnasium
    from gymnasium import spaces
    from stable_baselines3.common.vec_env import VecEnv

from clashsim.core.outline import outline
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.rl.corridor_picture import draw_corridor
from clashsim.rl.push import Push, StartDistribution
from clashsim.rl.routes import SEGMENT_LENGTH
from clashsim.rl.task import StrikeTask, motion_in_body_frame

_MAX_OBSERVATION = 10.0  # bound of the declared space; observations are scaled to about 1
_ONLY_ENV = np.array([0])  # index of the environment of a task that has one


def _make_spaces(task: StrikeTask) -> tuple[spaces.Box, spaces.Box]:
    """Return the spaces of observations and of actions."""
    observation_space = spaces.Box(
        -_MAX_OBSERVATION, _MAX_OBSERVATION, (task.observation_size,), np.float32
    )
    action_space = spaces.Box(-1.0, 1.0, (len(task.model.names),), np.float32)
    return observation_space, action_space


class PushEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One body in one corridor; an action is a strike, each of its numbers from -1 to 1.

    Args:
        scene: Its [strikes] table defines which side may be struck.
        model: Predicts where a struck body comes to rest.
        starts: Where episodes start.
        render_mode: "rgb_array", "human" or None.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array", "human"],
        "render_fps": 4,
    }

    def __init__(
        self,
        scene: Scene,
        model: StrikeModel,
        *,
        starts: StartDistribution = StartDistribution(),
        render_mode: str | None = None,
    ) -> None:
        self._push = Push.of(scene, model, 1, starts)
        self.observation_space, self.action_space = _make_spaces(self._push)
        self.render_mode = render_mode
        self._scene = scene

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a new episode; the same seed gives the same episodes."""
        super().reset(seed=seed)
        self._push.restart(_ONLY_ENV, self.np_random)
        if self.render_mode == "human":
            self.render()
        return self._push.observe()[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Strike once, and wait until the body is at rest."""
        outcome = self._push.strike(np.asarray(action, float)[None], self.np_random)
        is_truncated = False  # running out of strikes ends an episode for good
        if self.render_mode == "human":
            self.render()
        info = {"reached": bool(outcome.reached[0])}
        return (
            self._push.observe()[0],
            float(outcome.reward[0]),
            bool(outcome.ended[0]),
            is_truncated,
            info,
        )

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return a picture (H, W, 3) of the corridor from above; "human" shows it in a window."""
        if self.render_mode is None:
            return None
        scene = self._scene
        goal_yaw = float(self._push.heading_change[0] - self._push.heading_offset)
        picture = draw_corridor(
            outline(scene, scene.struck, scene.struck_body),
            self._push.pose[0],
            points=((0.0, 0.0), (SEGMENT_LENGTH, 0.0)),
            goal_yaw=goal_yaw,
        )
        if self.render_mode == "human":
            import matplotlib.pyplot as plt

            plt.figure("clashsim/Push-v0", clear=True)
            plt.imshow(picture)
            plt.axis("off")
            plt.pause(1 / self.metadata["render_fps"])
            return None
        return picture


class StrikeVecEnv(VecEnv):
    """All environments of a task, struck in one batch; each restarts when its episode ends.

    Args:
        task: The environments.
        seed: Seed of the starts and of the noise.
    """

    def __init__(self, task: StrikeTask, *, seed: int = 0) -> None:
        observation_space, action_space = _make_spaces(task)
        n = len(task.pose)
        super().__init__(n, observation_space, action_space)
        self._task = task
        self._rng = np.random.default_rng(seed)
        self._action = np.zeros((n, len(task.model.names)))
        self._episode_return = np.zeros(n)
        # Motions by the last strikes, as `motion_in_body_frame` returns them.
        self.moves = np.zeros((n, 3))

    def reset(self) -> np.ndarray:
        """Start a new episode everywhere, and return the observations."""
        if self._seeds and self._seeds[0] is not None:
            self._rng = np.random.default_rng(self._seeds[0])
        self._reset_seeds()
        self._task.restart(np.arange(self.num_envs), self._rng)
        self._episode_return[:] = 0
        return self._task.observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions (N, d) for `step_wait`."""
        self._action = np.asarray(actions, float)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Strike in all environments once, and start new episodes where one ended.

        Returns:
            Observations (N, o), rewards (N,), whether episodes ended (N,), and an info for each
            environment, as Stable-Baselines3 defines them.
        """
        pose_before = self._task.pose.copy()
        reward, ended, reached = self._task.strike(self._action, self._rng)
        self.moves = motion_in_body_frame(pose_before, self._task.pose)
        strikes_made = self._task.strikes_made
        self._episode_return += reward
        last_observation = self._task.observe()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in map(int, np.flatnonzero(ended)):
            infos[i] = {
                "terminal_observation": last_observation[i],
                "TimeLimit.truncated": False,
                "reached": bool(reached[i]),
                "episode": {
                    "r": float(self._episode_return[i]),
                    "l": int(strikes_made[i]),
                    "t": 0.0,  # wall time, which is not measured
                },
            }
        self._episode_return[ended] = 0
        self._task.restart(np.flatnonzero(ended), self._rng)
        return self._task.observe(), reward.astype(np.float32), ended, infos

    def guide(self) -> np.ndarray:
        """Return actions (N, d) that look good one strike ahead."""
        return self._task.guide(self._rng).astype(np.float32)

    def state(self) -> dict[str, Any]:
        """Return all that later steps depend on, for JSON."""
        state: dict[str, Any] = {}
        for key, attribute in self._task.state_arrays.items():
            state[key] = getattr(self._task, attribute).tolist()
        state["total"] = self._episode_return.tolist()
        state["rng"] = self._rng.bit_generator.state
        return state

    def restore(self, state: dict[str, Any]) -> np.ndarray:
        """Continue from what `state` returned, and return the observations (N, o) there."""
        for key, attribute in self._task.state_arrays.items():
            setattr(self._task, attribute, np.array(state[key]))
        self._episode_return = np.array(state["total"])
        self._rng.bit_generator.state = state["rng"]
        return self._task.observe()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, which is the same for all environments."""
        return [getattr(self, attr_name, None)] * len(self._indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute for all environments, which are one object."""
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """Refuse: environments have no methods of their own."""
        raise AttributeError(
            f"the environments of a StrikeVecEnv are one batch and have no method {method_name!r}"
        )

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return that no environment is wrapped."""
        return [False] * len(self._indices(indices))

    def _indices(self, indices: Any) -> Sequence[int]:
        """Return indices of environments: None stands for all, a number for one."""
        if indices is None:
            return range(self.num_envs)
        if isinstance(indices, int):
            return [indices]
        return indices
