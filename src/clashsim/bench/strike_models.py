"""The same strikes of one scene by MuJoCo, by the hybrid simulator and by a strike table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clashsim.bench.step_choice import (
    TRIED_STRIKES,
    Chosen,
    HybridSteps,
    ScheduledMujoco,
    StepSchedule,
    fastest_within,
    hybrid_steps,
    mujoco_schedules,
)
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.fit.base import distilled_model
from clashsim.fit.distil import DistilledModel
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes, planar_pose
from clashsim.slides.identify import fit_slides
from clashsim.slides.law import SlideModel
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import support_patch

_SECONDS_TO_REST = 0.8  # after which every block lies still
_SLIDE_STRIKES = 32  # strikes from which a slide model of MuJoCo's slides is fitted
_SLIDE_TIMESTEP = 0.005  # s, of these slides
_AFTER_IMPACT = 1e-3  # s after the impact, at which a slide begins
# Standard deviations of twists after impact, m/s, m/s, rad/s: small, because a simulator gives them
# exactly.
_TWIST_STD = (1e-3, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class StrikeModels:
    """Simulators of one scene at its nominal parameters.

    Drag is set to 0, because MuJoCo does not have it.

    Attributes:
        scene: The scene.
        slide_seed: Seed of the strikes from which the slide model is fitted.
        tried_strikes: Number of strikes that choose the lengths of steps.
    """

    scene: Scene
    slide_seed: int
    tried_strikes: int = TRIED_STRIKES

    @cached_property
    def theta(self) -> np.ndarray:
        """Parameters of all simulators, (p,)."""
        theta = self.scene.nominal.copy()
        for i, param in enumerate(self.scene.params):
            if param.target == "effect/drag":
                theta[i] = 0.0
        return theta

    @cached_property
    def base(self) -> DistilledModel:
        """The learned collision."""
        return distilled_model(self.scene)

    @cached_property
    def mujoco(self) -> SteppedStrikes:
        """Collision and slide by MuJoCo, with the scene's own steps throughout."""
        return self._stepped(MujocoSim(self.scene, self.theta))

    @cached_property
    def mujoco_choice(self) -> Chosen[StepSchedule]:
        """The fewest steps of MuJoCo that agree with the scene's own steps."""
        return fastest_within(
            mujoco_schedules(self.mujoco.dt),
            lambda schedule: ScheduledMujoco(self.mujoco, schedule),
            self.mujoco,
            strikes=self.tried_strikes,
        )

    @cached_property
    def strongest_mujoco(self) -> ScheduledMujoco:
        """MuJoCo as a skilled user runs it: the rival that all ratios are quoted against."""
        return ScheduledMujoco(self.mujoco, self.mujoco_choice.steps)

    @cached_property
    def hybrid_choice(self) -> Chosen[HybridSteps]:
        """The fewest steps of the hybrid simulator that agree with the scene's own steps."""
        return fastest_within(
            hybrid_steps(self.mujoco.dt),
            self.hybrid_with,
            self.fine_hybrid(),
            strikes=self.tried_strikes,
        )

    @cached_property
    def hybrid(self) -> SteppedStrikes:
        """Learned collision, slide by MuJoCo with long steps."""
        return self.hybrid_with(self.hybrid_choice.steps)

    def fine_hybrid(self) -> SteppedStrikes:
        """Learned collision, slide by MuJoCo with the scene's own steps."""
        return self._stepped(HybridSim(self.scene, self.base, self.theta))

    def with_slide_model(self) -> HybridSim:
        """Learned collision, then a slide model that was fitted to MuJoCo's slides."""
        slides = self._stepped(
            HybridSim(self.scene, self.base, self.theta, timestep=_SLIDE_TIMESTEP)
        )
        slide = slide_model_of(slides, self.slide_seed)
        return HybridSim(self.scene, self.base, self.theta, slide_model=slide)

    def hybrid_with(self, steps: HybridSteps) -> SteppedStrikes:
        """Learned collision, slide by MuJoCo with some steps."""
        config = HybridConfig(first_timestep=steps.first, step_growth=steps.growth)
        simulator = HybridSim(
            self.scene, self.base, self.theta, timestep=steps.timestep, config=config
        )
        return self._stepped(simulator)

    def _stepped(self, simulator: MujocoSim | HybridSim) -> SteppedStrikes:
        return SteppedStrikes(simulator, self.scene, self.theta, seconds=_SECONDS_TO_REST)


def states_before(
    scene: Scene, names: tuple[str, ...], strikes: np.ndarray, pose: np.ndarray
) -> np.ndarray:
    """States of both bodies just before impact.

    Args:
        scene: The scene.
        names: Names of the columns of `strikes`.
        strikes: Strikes, (N, d).
        pose: Pose of the struck body, (N, 3) or (3,): x, y (m), yaw (rad).

    Returns:
        States as `Impacts.before` has them, (N, 12).
    """
    by_name = dict(zip(names, strikes.T, strict=True))
    before, *_ = before_from_strikes(scene, by_name)
    return move_pair_to(before, pose)


def slide_model_of(stepped: SteppedStrikes, seed: int) -> SlideModel:
    """Fit a slide model to the slides after some random strikes.

    Args:
        stepped: Strikes of the hybrid simulator, whose slides are MuJoCo's.
        seed: Seed of the strikes.
    """
    shape = (_SLIDE_STRIKES, len(stepped.names))
    strikes = np.random.default_rng(seed).uniform(stepped.low, stepped.high, shape)
    pose = np.zeros((_SLIDE_STRIKES, 3))
    before = states_before(stepped.scene, stepped.names, strikes, pose)
    unknown_after = np.zeros((len(before), 3))
    impacts = Impacts(True, before, unknown_after)
    after = stepped.simulator.outcome(before)  # type: ignore[attr-defined]
    paths = planar_pose(stepped.scene, stepped.path(pose, strikes))
    start_states, _ = stepped.starts(pose, strikes)
    striker = stepped.scene.striker_body
    start_positions = start_states[:, striker.qpos[:2]] + striker.position[:2]
    run_up = np.linalg.norm(start_positions - impacts.striker_pose[:, :2], axis=1)
    impact_time = run_up / np.linalg.norm(impacts.striker_twist[:, :2], axis=1)
    slides = []
    for path, first_pose, impact in zip(paths, impacts.pose, impact_time, strict=True):
        time = np.arange(len(path)) * stepped.dt - impact
        sliding = time > _AFTER_IMPACT
        poses = np.vstack([first_pose, path[sliding]])
        slides.append(Slide(np.r_[0.0, time[sliding]], poses[:, :2], np.unwrap(poses[:, 2])))
    patch = support_patch(stepped.scene)
    return fit_slides(slides, patch, twists=after, twist_std=_TWIST_STD).model
