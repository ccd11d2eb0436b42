"""The steps of a round of the real-sim-real loop.

A round learns a simulator from recorded strikes, trains a policy further in that simulator, and
collects or proposes the next strikes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.data.segmentation.segment import segment
from clashsim.fit.base import BaseModel
from clashsim.fit.calibrate import calibrate
from clashsim.fit.calibrated_run import CalibratedRun, with_ground_friction
from clashsim.fit.slides_from_trials import fit_slides_of_impacts
from clashsim.loop.recorded_strikes import RecordedStrikes, StrikeRig
from clashsim.rl.agents import Agent, AgentTrainingConfig, Algorithm, train_on_env
from clashsim.rl.env import StrikeVecEnv
from clashsim.rl.informative import InformationBonus, InformativeVecEnv
from clashsim.rl.push import Push, StartDistribution, strikes
from clashsim.rl.task import StrikeTask, motion_in_body_frame
from clashsim.rl.to_pose import ToPose
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.support_patch import scene_slide_model

Collect = Literal["informative", "plain", "random"]
AGENT_TRAINING = {
    "sac": AgentTrainingConfig(first=30_000, guided=6_000, later=10_000),
    "ppo": AgentTrainingConfig(first=200_000, guided=0, later=40_000),
}
_NUM_ENVS = 64  # environments in training
_ONLY_ENV = np.array([0])  # index of the environment of a task that has one
_MAX_SEED = 2**31  # below which seeds are drawn
_ACTION_SAMPLES = 24  # actions of the policy of which the most informative one is taken
_TRAINING_NOISE = 0.3  # outcomes scatter by this share of the model's own standard deviations
_ANYWHERE_SHARE = 0.5  # of the episodes in training that start anywhere along the corridor
# Weight of the information bonus: where the simulator's error is as large as the motion itself, the
# bonus is as large as the task's reward for a fast arrival.
INFORMATION_WEIGHT = 5.0


@dataclass(frozen=True)
class LoopConfig:
    """What a loop does.

    Attributes:
        task: "push" along a corridor, or bring the body to a "pose".
        algorithm: Algorithm with which policies are trained.
        collect: Which strikes are made: those of a policy rewarded for informative strikes, those
            of the plain policy, or random ones without a policy.
        strikes: Strikes per round.
        weight: Weight of the information bonus in the reward.
        training: How long policies are trained; None takes `AGENT_TRAINING` of the algorithm.
        seed: Seed of all random numbers.
    """

    task: Literal["push", "pose"] = "push"
    algorithm: Algorithm = "sac"
    collect: Collect = "informative"
    strikes: int = 6
    weight: float = INFORMATION_WEIGHT
    training: AgentTrainingConfig | None = None
    seed: int = 0

    @property
    def agent_training(self) -> AgentTrainingConfig:
        """How long policies are trained."""
        return self.training or AGENT_TRAINING[self.algorithm]


@dataclass(frozen=True, eq=False)
class RoundSimulator:
    """The simulator of a round.

    Attributes:
        scene: The scene.
        model: Predicts where a struck body comes to rest.
        run: The calibrated run behind the model; None before any strike was recorded.
    """

    scene: Scene
    model: StrikeModel
    run: CalibratedRun | None = None


def author_simulator(base: BaseModel) -> RoundSimulator:
    """The simulator before any strike: MuJoCo's collision and slides, with the author's values.

    Args:
        base: Distilled model of the scene.
    """
    scene = base.scene
    hybrid = HybridSim(scene, base, scene.nominal, slide_model=scene_slide_model(scene))
    return RoundSimulator(scene, strike_table(hybrid))


def learn_simulator(base: BaseModel, recorded: RecordedStrikes) -> RoundSimulator:
    """Calibrate the simulator on recorded strikes.

    The slide model is fitted too where enough slides were recorded; else it is that of the scene.

    Args:
        base: Distilled model of the scene.
        recorded: All strikes so far.
    """
    scene = base.scene
    segmentation = segment(recorded.trials, scene=scene)
    calibration = calibrate(base, segmentation.impacts)
    slide, _ = fit_slides_of_impacts(scene, segmentation.found, held_out=[])
    if slide is None:
        slide_model = scene_slide_model(scene)
    else:
        slide_model = slide.model
        calibration = with_ground_friction(calibration, slide)
    run = CalibratedRun(calibration, slide_model)
    return RoundSimulator(scene, run.strike_table(), run)


def make_task(
    kind: str, simulator: RoundSimulator, num_envs: int, *, training: bool = False
) -> StrikeTask:
    """Return the environments of a task in a simulator.

    Args:
        kind: "push" or "pose".
        simulator: Where strikes are simulated.
        num_envs: Number of environments.
        training: Whether starts and outcomes scatter as in training.
    """
    noise = _TRAINING_NOISE if training else 0.0
    if kind != "push":
        return ToPose.of(simulator.model, num_envs, noise=noise)
    anywhere_share = _ANYWHERE_SHARE if training else 0.0
    starts = StartDistribution(anywhere_share=anywhere_share, noise=noise)
    return Push.of(simulator.scene, simulator.model, num_envs, starts)


def train_agent(
    simulator: RoundSimulator,
    config: LoopConfig,
    seed: int,
    recorded: RecordedStrikes | None,
    last: Agent | None,
) -> Agent:
    """Train a policy in a simulator.

    Args:
        simulator: Where strikes are simulated.
        config: What the loop does.
        seed: Seed of the training.
        recorded: All strikes so far, from which the information bonus is computed.
        last: Policy of the previous round, which is trained further; None: a new policy.
    """
    task = make_task(config.task, simulator, _NUM_ENVS, training=True)
    env: Any = StrikeVecEnv(task, seed=seed)
    if recorded is not None and config.collect == "informative":
        env = InformativeVecEnv(env, information_bonus(simulator, recorded), config.weight)
    training = config.agent_training
    if last is None:
        return train_on_env(
            env,
            config.algorithm,
            strikes=training.first,
            guided_strikes=training.guided,
            seed=seed,
        )
    return train_on_env(
        env,
        config.algorithm,
        strikes=training.later,
        guided_strikes=training.guided * training.later // training.first,
        seed=seed,
        last=last.weights,
    )


def information_bonus(simulator: RoundSimulator, recorded: RecordedStrikes) -> InformationBonus:
    """Return the bonus for further strikes, given all that were recorded."""
    model = simulator.model
    actions = 2 * (recorded.strikes - model.low) / (model.high - model.low) - 1  # in [-1, 1]
    predicted = model.rest(recorded.before, recorded.strikes)
    gyration = inertia(simulator.scene, simulator.scene.struck_body).gyration
    return InformationBonus.of(
        actions,
        real=motion_in_body_frame(recorded.before, recorded.after),
        simulated=motion_in_body_frame(recorded.before, predicted),
        gyration=gyration,
    )


def choose_action(
    task: StrikeTask, agent: Agent, bonus: InformationBonus | None, seed: int
) -> np.ndarray:
    """Sample an action from the policy; with a bonus, the most informative one of several.

    Args:
        task: The task, in one environment.
        agent: The policy.
        bonus: How informative actions are; None: a single sample is taken.
        seed: Seed of the samples.

    Returns:
        An action (1, d) in [-1, 1].
    """
    if bonus is None:
        return agent.act(task.observe(), seed=seed)
    observations = np.repeat(task.observe(), _ACTION_SAMPLES, axis=0)
    actions = agent.act(observations, seed=seed)
    poses = np.repeat(task.pose, _ACTION_SAMPLES, axis=0)
    rests = task.model.rest(poses, strikes(task.model, actions))
    bonuses = bonus(actions, motion_in_body_frame(poses, rests))
    best = int(bonuses.argmax())
    return actions[[best]]


@dataclass(frozen=True)
class RecordingConfig:
    """How strikes on a rig are recorded.

    Attributes:
        body: Name of the struck body.
        seed: First words of the seed of an episode; the number of its first strike is the last.
        name: Format string of the trials' names, filled with the number of the strike.
    """

    body: str
    seed: list[int]
    name: str


def collect_strikes(
    simulator: RoundSimulator,
    agent: Agent | None,
    config: LoopConfig,
    rig: StrikeRig,
    round_number: int,
    earlier: RecordedStrikes | None = None,
) -> RecordedStrikes:
    """Make and record the strikes of one round.

    Args:
        simulator: Simulator of the previous round.
        agent: Policy of the previous round; None makes random strikes.
        config: What the loop does.
        rig: Where strikes are made.
        round_number: Number of the round.
        earlier: Strikes of earlier rounds.
    """
    task = make_task(config.task, simulator, num_envs=1)
    rng = np.random.default_rng([config.seed, round_number])

    def choose_strike(fresh: RecordedStrikes | None) -> np.ndarray:
        """Return the next strike (d,), given those of this round so far."""
        if agent is None:
            return rng.uniform(task.model.low, task.model.high)
        bonus = None
        recorded = [part for part in (earlier, fresh) if part is not None]
        if config.collect == "informative" and recorded:
            all_recorded = sum(recorded[1:], recorded[0])  # `+` joins recorded strikes
            bonus = information_bonus(simulator, all_recorded)
        action = choose_action(task, agent, bonus, int(rng.integers(_MAX_SEED)))
        return strikes(task.model, action)[0]

    recording = RecordingConfig(
        simulator.scene.struck_body.name,
        seed=[config.seed, round_number],
        name=f"round-{round_number:02d}-{{:02d}}",
    )
    return record_strikes(
        task, choose_strike, rig, recording, config.strikes, rng, restart_each=agent is None
    )


def record_strikes(
    task: StrikeTask,
    choose_strike: Callable[[RecordedStrikes | None], np.ndarray],
    rig: StrikeRig,
    recording: RecordingConfig,
    n: int,
    rng: np.random.Generator,
    *,
    restart_each: bool = False,
) -> RecordedStrikes:
    """Make and record `n` strikes on a rig, episode after episode.

    Args:
        task: The task, in one environment.
        choose_strike: Returns the next strike (d,), given those that this call has recorded.
        rig: Where strikes are made.
        recording: How the strikes are recorded.
        n: Number of strikes, at least 1.
        rng: Draws the starts of episodes.
        restart_each: Whether each strike is an episode of its own.
    """
    recorded: RecordedStrikes | None = None
    ended = True
    for number in range(n):
        if ended or restart_each:
            task.restart(_ONLY_ENV, rng)
            rig.begin(task.pose[0], [*recording.seed, number])
        task.pose = rig.look()[None]  # the measured pose, in the one environment
        strike = choose_strike(recorded)
        numbers = dict(zip(task.model.names, strike.tolist(), strict=True))
        trial = rig.strike(numbers, recording.name.format(number))
        fresh = RecordedStrikes.of(strike[None], Trials((trial,)), recording.body)
        recorded = fresh if recorded is None else recorded + fresh
        _, ended_rows, _ = task.arrive(rig.look()[None])
        ended = bool(ended_rows[0])
    assert recorded is not None
    return recorded


def propose_strikes(
    simulator: RoundSimulator, agent: Agent | None, config: LoopConfig, round_number: int
) -> np.ndarray:
    """Return the strikes (n, d) of one round for a body that is put back before each strike.

    The policy chooses each strike at a random start. The most informative strikes are not chosen,
    because that needs the recording of each strike before the next one.
    """
    task = make_task(config.task, simulator, config.strikes)
    rng = np.random.default_rng([config.seed, round_number])
    task.restart(np.arange(config.strikes), rng)
    if agent is None:
        size = (config.strikes, len(task.model.low))
        return rng.uniform(task.model.low, task.model.high, size)
    actions = agent.act(task.observe(), seed=int(rng.integers(_MAX_SEED)))
    return strikes(task.model, actions)


def count_successes(
    simulator: RoundSimulator,
    agent: Agent,
    config: LoopConfig,
    rig: StrikeRig,
    trials: int,
    seed: int = 1000,
) -> int:
    """Return in how many of `trials` episodes on a rig the policy's best actions reach the goal."""
    task = make_task(config.task, simulator, num_envs=1)
    successes = 0
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial])
        task.restart(_ONLY_ENV, rng)
        rig.begin(task.pose[0], [seed, trial])
        ended = False
        while not ended:
            task.pose = rig.look()[None]
            strike = strikes(task.model, agent.act(task.observe()))[0]
            rig.strike(dict(zip(task.model.names, strike.tolist(), strict=True)), "trial")
            _, ended_rows, reached_rows = task.arrive(rig.look()[None])
            ended = bool(ended_rows[0])
            successes += int(reached_rows[0])
    return successes
