"""`clashsim/Push-v0` for Gymnasium, and any task for hundreds of copies in one batch as
Stable-Baselines3 takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from clashsim.rl.task import StrikeTask, motion_in_body_frame


def _spaces(task: StrikeTask) -> tuple[spaces.Box, spaces.Box]:
    return spaces.Box(-10.0, 10.0, (task.observed,), np.float32), spaces.Box(
        -1.0, 1.0, (len(task.model.names),), np.float32
    )


class PushEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One body in one corridor. model: what says where it comes to rest; action: a strike, each of
    its numbers from -1 (least) to 1 (greatest).
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 4}  # noqa: RUF012, as Gymnasium has it

    def __init__(
        self,
        scene: Scene,
        model: StrikeModel,
        *,
        starts: StartDistribution = StartDistribution(),
        render_mode: str | None = None,
    ) -> None:
        self._push = Push.of(scene, model, 1, starts)
        self.observation_space, self.action_space = _spaces(self._push)
        self.render_mode, self._scene = render_mode, scene

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin anew; the same seed gives the same episodes."""
        super().reset(seed=seed)
        self._push.restart(np.arange(1), self.np_random)
        if self.render_mode == "human":
            self.render()
        return self._push.observe()[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Strike once, and wait until the body lies still."""
        reward, ended, there = self._push.strike(np.asarray(action, float)[None], self.np_random)
        if self.render_mode == "human":
            self.render()
        return (
            self._push.observe()[0],
            float(reward[0]),
            bool(ended[0]),
            False,
            {"reached": bool(there[0])},
        )

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """The corridor from above; `human` shows it in a window."""
        if self.render_mode is None:
            return None
        s = self._scene
        picture = draw_corridor(
            outline(s, s.struck, s.struck_body),
            self._push.pose[0],
            ((0.0, 0.0), (0.3, 0.0)),
            goal=float(self._push.turn[0] - self._push.heading_offset),
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
    """All copies of a task, struck in one batch; each begins anew as soon as its episode ends."""

    def __init__(self, task: StrikeTask, *, seed: int = 0) -> None:
        super().__init__(len(task.pose), *_spaces(task))
        self._task, self._rng = task, np.random.default_rng(seed)
        self._action = np.zeros((len(task.pose), len(task.model.names)))
        self._total = np.zeros(len(task.pose))
        self.moves = np.zeros(
            (len(task.pose), 3)
        )  # of the last strikes, as `motion_in_body_frame` tells them

    def reset(self) -> np.ndarray:
        """Begin all anew."""
        if self._seeds and self._seeds[0] is not None:
            self._rng = np.random.default_rng(self._seeds[0])
        self._reset_seeds()
        self._task.restart(np.arange(self.num_envs), self._rng)
        self._total[:] = 0
        return self._task.observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions."""
        self._action = np.asarray(actions, float)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Strike all of them once."""
        before = self._task.pose.copy()
        reward, done, there = self._task.strike(self._action, self._rng)
        self.moves = motion_in_body_frame(before, self._task.pose)
        made = self._task.made
        self._total += reward
        last = self._task.observe()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in map(int, np.flatnonzero(done)):
            infos[i] = {
                "terminal_observation": last[i],
                "TimeLimit.truncated": False,
                "reached": bool(there[i]),
                "episode": {"r": float(self._total[i]), "l": int(made[i]), "t": 0.0},
            }
        self._total[done] = 0
        self._task.restart(np.flatnonzero(done), self._rng)
        return self._task.observe(), reward.astype(np.float32), done, infos

    def guide(self) -> np.ndarray:
        """Actions (n, d) that look good one strike ahead."""
        return self._task.guide(self._rng).astype(np.float32)

    def state(self) -> dict[str, Any]:
        """All that later steps depend on, as JSON holds it."""
        return {name: getattr(self._task, name).tolist() for name in self._task.kept} | {
            "total": self._total.tolist(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> np.ndarray:
        """Go on from a `state`; the observations there."""
        for name in self._task.kept:
            setattr(self._task, name, np.array(state[name]))
        self._total = np.array(state["total"])
        self._rng.bit_generator.state = state["rng"]
        return self._task.observe()

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The same for all copies."""
        return [getattr(self, attr_name, None)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set for all copies, which are one object."""
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """Copies have no methods of their own."""
        raise AttributeError(
            f"the copies of a StrikeVecEnv are one batch and have no method {method_name!r}"
        )

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """They are not."""
        return [False] * len(self._chosen(indices))

    def _chosen(self, indices: Any) -> Sequence[int]:
        return (
            range(self.num_envs)
            if indices is None
            else [indices]
            if isinstance(indices, int)
            else indices
        )
