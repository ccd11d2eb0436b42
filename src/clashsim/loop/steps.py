"""The steps of a round: learn a simulator from what was recorded, train a policy further in it, and
collect or propose the next strikes.
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
from clashsim.fit.calibrate import calibrate
from clashsim.fit.calibrated_run import CalibratedRun, with_ground_friction
from clashsim.fit.distil import DistilledModel
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
    "sac": AgentTrainingConfig(30_000, 6_000, 10_000),
    "ppo": AgentTrainingConfig(200_000, 0, 40_000),
}
_ENVS = 64
_DRAWS = 24  # actions of the policy of which the one that teaches most is made
_NOISE = 0.3  # standard deviations of the model's own by which outcomes scatter in training
# Of what a strike would teach: as much as a task pays for a fast arrival, where a simulator is
# wrong by its whole size
WEIGHT = 5.0


@dataclass(frozen=True)
class LoopConfig:
    """What a loop is: its task, how policies are trained, which strikes are made, and how many each
    round.
    """

    task: Literal["push", "pose"] = "push"
    algorithm: Algorithm = "sac"
    collect: Collect = "informative"
    strikes: int = 6
    weight: float = WEIGHT
    training: AgentTrainingConfig | None = None
    seed: int = 0

    @property
    def trained(self) -> AgentTrainingConfig:
        """How long policies are trained."""
        return self.training or AGENT_TRAINING[self.algorithm]


@dataclass(frozen=True, eq=False)
class RoundSimulator:
    """What a round knows: the collision model and slides, and the map of strikes made of them."""

    scene: Scene
    model: StrikeModel
    run: CalibratedRun | None = None


def author_simulator(base: DistilledModel) -> RoundSimulator:
    """The simulator before any strike: MuJoCo's collision and slides at the author's values."""
    scene = base.scene
    return RoundSimulator(
        scene,
        strike_table(HybridSim(scene, base, scene.nominal, slide_model=scene_slide_model(scene))),
    )


def learned(base: DistilledModel, made: RecordedStrikes, *, seed: int = 0) -> RoundSimulator:
    """The simulator that recordings tell: identified and fine-tuned, with slides where there are
    enough.
    """
    scene = base.scene
    found = segment(made.trials, scene=scene)
    calibration = calibrate(base, found.impacts, seed=seed)
    slide, _ = fit_slides_of_impacts(scene, found.found, [])
    if slide is not None:
        calibration = with_ground_friction(calibration, slide)
    run = CalibratedRun(calibration, scene_slide_model(scene) if slide is None else slide.model)
    return RoundSimulator(scene, run.strikes(), run)


def make_task(
    kind: str, simulator: RoundSimulator, n: int, *, training: bool = False
) -> StrikeTask:
    """Copies of a task in a simulator."""
    noise = _NOISE if training else 0.0
    if kind == "push":
        return Push.of(
            simulator.scene,
            simulator.model,
            n,
            StartDistribution(anywhere_share=0.5 if training else 0.0, noise=noise),
        )
    return ToPose.of(simulator.model, n, noise=noise)


def train_agent(
    simulator: RoundSimulator,
    options: LoopConfig,
    seed: int,
    made: RecordedStrikes | None,
    last: Agent | None,
) -> Agent:
    """The policy, trained further in a simulator; what was made tells what would be worth making."""
    env: Any = StrikeVecEnv(make_task(options.task, simulator, _ENVS, training=True), seed=seed)
    how = options.trained
    if made is not None and options.collect == "informative":
        env = InformativeVecEnv(env, information(simulator, made), options.weight)
    if last is None:
        return train_on_env(
            env, options.algorithm, strikes=how.first, guided_strikes=how.guided, seed=seed
        )
    return train_on_env(
        env,
        options.algorithm,
        strikes=how.later,
        guided_strikes=how.guided * how.later // how.first,
        seed=seed,
        last=last.weights,
    )


def information(simulator: RoundSimulator, made: RecordedStrikes) -> InformationBonus:
    """What further strikes would teach, after those that were made."""
    low, high = simulator.model.low, simulator.model.high
    said = motion_in_body_frame(made.before, simulator.model.rest(made.before, made.strikes))
    gyration = inertia(simulator.scene, simulator.scene.struck_body).gyration
    return InformationBonus.of(
        2 * (made.strikes - low) / (high - low) - 1,
        motion_in_body_frame(made.before, made.after),
        said,
        gyration=gyration,
    )


def chosen(task: StrikeTask, agent: Agent, told: InformationBonus | None, seed: int) -> np.ndarray:
    """An action (1, d) of the policy as it draws them in training; of several, the one that teaches
    most where that is told.
    """
    seen = np.repeat(task.observe(), 1 if told is None else _DRAWS, 0)
    action = agent.act(seen, seed=seed)
    if told is None:
        return action
    pose = np.repeat(task.pose, _DRAWS, 0)
    return action[
        [
            int(
                told(
                    action,
                    motion_in_body_frame(pose, task.model.rest(pose, strikes(task.model, action))),
                ).argmax()
            )
        ]
    ]


def collect(
    simulator: RoundSimulator,
    agent: Agent | None,
    options: LoopConfig,
    world: StrikeRig,
    turn: int,
    made: RecordedStrikes | None = None,
) -> RecordedStrikes:
    """The strikes of one round: by the policy, as it draws them in training, or at random without
    one; made: those of earlier rounds.
    """
    task, rng = make_task(options.task, simulator, 1), np.random.default_rng([options.seed, turn])

    def strike(fresh: RecordedStrikes | None) -> np.ndarray:
        if agent is None:
            return rng.uniform(task.model.low, task.model.high)
        known = [m for m in (made, fresh) if m is not None]
        told = (
            information(simulator, sum(known[1:], known[0]))
            if options.collect == "informative" and known
            else None
        )
        return strikes(task.model, chosen(task, agent, told, int(rng.integers(2**31))))[0]

    place = RecordingConfig(
        simulator.scene.struck_body.name, [options.seed, turn], f"round-{turn:02d}-{{:02d}}"
    )
    return record_strikes(task, strike, world, place, options.strikes, rng, anew=agent is None)


@dataclass(frozen=True)
class RecordingConfig:
    """What strikes are recorded as: the struck body, the seed of a world that is begun, and a
    pattern for the trials' names.
    """

    body: str
    seed: list[int]
    name: str


def record_strikes(
    task: StrikeTask,
    strike: Callable[[RecordedStrikes | None], np.ndarray],
    world: StrikeRig,
    place: RecordingConfig,
    n: int,
    rng: np.random.Generator,
    *,
    anew: bool = False,
) -> RecordedStrikes:
    """`n` strikes in a world, each (d,) told by `strike` from those before it; episode after
    episode, or a new one for each strike (anew).
    """
    made: RecordedStrikes | None = None
    ended = True
    for i in range(n):
        if ended or anew:
            task.restart(np.arange(1), rng)
            world.begin(task.pose[0], [*place.seed, i])
        task.pose = world.look()[None]
        row = strike(made)
        trial = world.strike(
            dict(zip(task.model.names, row.tolist(), strict=True)), place.name.format(i)
        )
        fresh = RecordedStrikes.of(row[None], Trials((trial,)), place.body)
        made = fresh if made is None else made + fresh
        ended = bool(task.arrive(world.look()[None])[1][0])
    assert made is not None
    return made


def proposed(
    simulator: RoundSimulator, agent: Agent | None, options: LoopConfig, turn: int
) -> np.ndarray:
    """Strikes (n, d) of one round for a body that is put back between them, as the policy makes
    them where its simulator leads it.
    """
    task, rng = (
        make_task(options.task, simulator, options.strikes),
        np.random.default_rng([options.seed, turn]),
    )
    task.restart(np.arange(options.strikes), rng)
    if agent is None:
        return rng.uniform(task.model.low, task.model.high, (options.strikes, len(task.model.low)))
    return strikes(task.model, agent.act(task.observe(), seed=int(rng.integers(2**31))))


def count_successes(
    simulator: RoundSimulator,
    agent: Agent,
    options: LoopConfig,
    world: StrikeRig,
    trials: int,
    seed: int = 1000,
) -> int:
    """How many of so many trials the policy at its best brings to the goal."""
    task, there = make_task(options.task, simulator, 1), 0
    for i in range(trials):
        rng = np.random.default_rng([seed, i])
        task.restart(np.arange(1), rng)
        world.begin(task.pose[0], [seed, i])
        ended = False
        while not ended:
            task.pose = world.look()[None]
            strike = strikes(task.model, agent.act(task.observe()))[0]
            world.strike(dict(zip(task.model.names, strike.tolist(), strict=True)), "trial")
            _, over, reached = task.arrive(world.look()[None])
            ended, there = bool(over[0]), there + int(reached[0])
    return there
