"""`clashsim train` and `clashsim evaluate`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import console, engine, needs_drake, not_negative, refuse_file
from clashsim.core.errors import DataError, ParamError
from clashsim.core.executor import map_items
from clashsim.core.extras import require
from clashsim.core.files import complete_files
from clashsim.core.progress import Progress, bar, quiet
from clashsim.fit.threads import one_thread

if TYPE_CHECKING:
    from clashsim.cli import Evaluate, Train
    from clashsim.core.scene import Scene
    from clashsim.rl.device_ppo import PpoConfig
    from clashsim.rl.follow import RouteResult
    from clashsim.rl.policy import Policy
    from clashsim.rl.routes import Route

POLICY = "policy.safetensors"


def train(verb: Train) -> None:
    """`clashsim train`."""
    not_negative(seed=verb.seed)
    if verb.steps is not None and verb.steps < 1000:
        raise ParamError(f"--steps must be at least 1000, got {verb.steps}")
    if (
        verb.device is not None and verb.where.on is None
    ):  # workers elsewhere may have what is not here
        _card_recipe(verb)
    elif verb.device is None and verb.num_envs is not None:
        raise ParamError(
            "--copies is for training on a device: name one with --device, as in --device cuda"
        )
    if verb.seeds < 1:
        raise ParamError(f"--seeds must be at least 1, got {verb.seeds}")
    if verb.seeds > 1:
        return _many(verb)
    if verb.where.on is not None:
        raise ParamError("--on trains several policies at once: say how many with --seeds")
    begin = time.perf_counter()
    policy = _learn(verb, bar)
    took, notes = time.perf_counter() - begin, policy.notes
    if verb.device is None:
        print(
            f"policy of {notes['recipe']['steps']} strikes written to {verb.out / POLICY} in {took:.0f} s; log for TensorBoard in {verb.out / 'log'}"
        )
    else:
        print(
            f"policy of {notes['strikes']} strikes written to {verb.out / POLICY} in {took:.0f} s"
        )
        print(
            f"in the run's own map it reaches the sub-goal in {100 * notes['reached']:.1f} % of episodes, with a mean return of {notes['return']:.2f}"
        )
    print(f"next: clashsim evaluate {verb.out / POLICY} --route 1")


def _many(verb: Train) -> None:
    """A policy of each seed, in a folder each; those that are there are kept."""
    out = verb.out.absolute()  # workers stand elsewhere
    jobs = [
        replace(verb, run=verb.run.absolute(), out=out / f"seed-{seed}", seed=seed, seeds=1)
        for seed in range(verb.seed, verb.seed + verb.seeds)
    ]
    left, begin = (
        [job for job in jobs if verb.overwrite or not (job.out / POLICY).exists()],
        time.perf_counter(),
    )
    with engine(verb.where) as run_on, bar("training", len(left)) as advance:
        for i, _ in map_items(run_on, _learn_alone, left):
            if not (left[i].out / POLICY).is_file():
                raise DataError(
                    f"the policy of seed {left[i].seed} was written on another machine: name an output that all machines see"
                )
            advance(1)
    took, told = (
        time.perf_counter() - begin,
        "" if verb.steps is None else f" of {verb.steps} strikes",
    )
    print(
        f"{len(left)} policies{told} trained in {took:.0f} s, {len(jobs) - len(left)} were there; they are in {verb.out}/seed-*/{POLICY}"
    )


def _learn_alone(verb: Train) -> None:
    with one_thread():
        _learn(verb, quiet)


def _learn(verb: Train, progress: Progress) -> Policy:
    """Train one policy, or go on with it, and write it."""
    if verb.device is None:
        require("stable_baselines3", "Stable-Baselines3", "rl")
    from clashsim.fit.run_folder import load

    if verb.out.exists() and not verb.out.is_dir():
        raise DataError(f"{str(verb.out)!r} already exists and is not a folder")
    ours = (POLICY, "checkpoint.safetensors")
    # A kill before the first checkpoint leaves the log, and perhaps a part of the checkpoint.
    others = (
        [name for name in complete_files(verb.out) if name != "log"] if verb.out.is_dir() else []
    )
    if others and not any(name in others for name in ours):
        raise DataError(f"{str(verb.out)!r} holds other files; choose another folder")
    if (verb.out / POLICY).exists() and not verb.overwrite:
        raise DataError(
            f"{str(verb.out / POLICY)!r} already exists; choose another output, or replace it with --overwrite"
        )
    made = load(verb.run)
    if verb.overwrite:
        for name in ours:
            (verb.out / name).unlink(missing_ok=True)
    if verb.device is None:
        from clashsim.rl.sac_training import PAPER, SacConfig
        from clashsim.rl.sac_training import train as learn

        config = PAPER if verb.config == "paper" else SacConfig()
        config = config if verb.steps is None else replace(config, steps=verb.steps)
        policy = learn(
            made.scene,
            made.strikes(),
            config=config,
            seed=verb.seed,
            folder=verb.out,
            progress=progress,
        )
    else:
        from clashsim.rl import device_training

        policy = device_training.train(
            made.scene,
            made.strikes(),
            config=_card_recipe(verb),
            seed=verb.seed,
            device=verb.device,
            folder=verb.out,
            progress=progress,
        )
    policy.save(verb.out / POLICY)
    return policy


def _card_recipe(verb: Train) -> PpoConfig:
    """How a policy is trained on a device, which must be there."""
    import torch

    from clashsim.evaluate.device import device_available
    from clashsim.rl.device_ppo import PpoConfig

    assert verb.device is not None
    if verb.config != "default":
        raise ParamError(
            f"--recipe {verb.config} is of Stable-Baselines3, which trains without --device"
        )
    if verb.num_envs is not None and verb.num_envs < 1:
        raise ParamError(f"--copies must be at least 1, got {verb.num_envs}")
    if not device_available(verb.device):
        raise ParamError(f"this torch has no device {verb.device!r} (torch {torch.__version__})")
    config = PpoConfig()
    config = replace(
        config, num_envs=verb.num_envs or config.num_envs, steps=verb.steps or config.steps
    )
    if config.steps < config.num_envs * config.horizon:
        raise ParamError(
            f"{config.num_envs} copies are struck {config.horizon} times a round: --steps must be at least {config.num_envs * config.horizon}, got {config.steps}"
        )
    return config


def evaluate(verb: Evaluate) -> None:
    """`clashsim evaluate`."""
    from clashsim import lab
    from clashsim.core.scene import Scene
    from clashsim.loop.lab_routes import follow_in_lab
    from clashsim.rl.policy import Policy
    from clashsim.rl.routes import route

    not_negative(seed=verb.seed)
    if verb.times < 1:
        raise ParamError(f"--times must be at least 1, got {verb.times}")
    if verb.out is not None:
        refuse_file(verb.out, (".gif",), overwrite=verb.overwrite)
    policy, way = Policy.load(verb.policy), route(verb.route)
    if set(policy.names) != {"speed", "point", "deflection"}:
        raise DataError(
            f"the laboratory takes speed, point and deflection of a strike, but the policy gives {', '.join(policy.names)}"
        )
    if np.abs(way.points).max() > lab.REACH:
        raise DataError(
            f"route {way.name!r} leaves the arm's reach of {lab.REACH} m about the table's middle"
        )
    needs_drake()
    name = str(policy.notes.get("scene"))
    setting = lab.Setting(name, verb.material, verb.surface)
    with bar("striking", verb.times) as advance:
        done = []
        for i in range(verb.times):
            done.append(follow_in_lab(policy, way, setting, seed=verb.seed + i))
            advance(1)
    from rich.table import Table

    table = Table(
        title=f"Route {way.name} in the laboratory, a stand-in for reality", title_justify="left"
    )
    for column in ("trial", "sub-goals", "strikes", "ended"):
        table.add_column(column, justify="right" if column != "ended" else "left")
    for i, d in enumerate(done):
        table.add_row(str(i), f"{d.reached} of {len(way)}", str(len(d.strikes)), d.reason)
    console().print(table)
    print(
        f"success {sum(d.success for d in done)}/{len(done)}, sub-goals {sum(d.reached for d in done)}/{len(done) * len(way)}"
    )
    if verb.out is not None:
        _animate(verb.out, done[0], policy, way, Scene.load(name))
        print(f"the first trial drawn in {verb.out}")


def _animate(path: Any, done: RouteResult, policy: Policy, way: Route, scene: Scene) -> None:
    from clashsim.core.outline import outline
    from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
    from clashsim.rl.corridor_picture import animate, draw_corridor

    body = outline(scene, scene.struck, scene.struck_body)
    before = move_pair_to(
        before_from_strikes(scene, dict(zip(policy.names, done.strikes.T, strict=True)))[0],
        done.poses[:-1],
    )
    frames = []
    for k, (pose, pair) in enumerate(zip(done.poses, [*before, None], strict=True)):
        tip = None if pair is None else np.r_[pair[6:8], pair[9:11]]
        frames.append(
            draw_corridor(
                body,
                pose,
                way.points,
                tip=tip,
                title=f"strike {k + 1}" if tip is not None else done.reason,
            )
        )
    animate(path, frames)
