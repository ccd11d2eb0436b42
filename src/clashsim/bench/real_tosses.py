"""Tosses of a real cube (BENCHMARKS.md, real-tosses): identified on n of them, the others rolled
out from their first frame.

All that a method may use of the recordings are the n tosses of its repetition. Errors are means
over tosses and repetitions: time mean of the position in % of the cube's width and of the rotation
in degrees, their medians, both 10 frames after the first contact, the share that ends on another
face.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clashsim.bench import toss_set
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.box import SUBSTEPS
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.floor_scenes import (
    box_contact_params,
    box_inertia_params,
    box_scene,
    box_shape_params,
)
from clashsim.core.params import Param
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data.segmentation.free_flight import Flight, estimate_gravity, fit_flight
from clashsim.fit.adapt import AdaptationConfig, BoxParameters, adapt, predict_tosses
from clashsim.fit.toss_cmaes import by_name, identify_tosses
from clashsim.fit.toss_rollouts import TossErrors, Tosses, TossRollouts
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.network_file import shipped_net

NS = (4, 16)
LONGEST = 100  # frames of a toss that identification rolls out
Found = tuple[TossErrors, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Problem:
    """One repetition: the tosses that may be used, those to predict, and what methods hand on to
    later ones (theta by method).
    """

    fit: tuple[Flight, ...]
    test: tuple[Flight, ...]
    seed: int
    quick: bool
    thetas: dict[str, dict[str, float]]

    @cached_property
    def gravity(self) -> float:
        """Of the flights that may be used, m/s^2 in recorded metres."""
        return estimate_gravity(self.fit)

    def tosses(self, flights: Sequence[Flight], longest: int = 10_000) -> Tosses:
        return Tosses(tuple(flights), 2 * toss_set.HALF, longest)


def scene_of(params: Sequence[Param]) -> Scene:
    """The cube and its floor."""
    return box_scene(toss_set.CUBE, params, timestep=1 / toss_set.RATE / SUBSTEPS)


def _judged(problem: Problem, scene: Scene, theta: np.ndarray) -> Found:
    """MuJoCo at theta (p,) on the tosses to predict."""
    rollouts = TossRollouts(scene, problem.tosses(problem.test), gravity=problem.gravity)
    return rollouts.tosses.errors(rollouts.states(theta[None])), by_name(scene.params, theta)


def _default(problem: Problem) -> Found:
    """MuJoCo's own contact, the cube as it is said to be."""
    standard = [
        p
        for p in box_contact_params("standard")
        if p.name in ("friction", "time_constant", "damping_ratio")
    ]
    scene = scene_of(standard)
    return _judged(problem, scene, np.array([1.0, 0.02, 1.0]))


def _identified(params: Sequence[Param]) -> Callable[[Problem], Found]:
    def run(problem: Problem) -> Found:
        scene = scene_of(params)
        generations = 3 if problem.quick else 100
        rollouts = TossRollouts(
            scene,
            problem.tosses(problem.fit, 30 if problem.quick else LONGEST),
            gravity=problem.gravity,
        )
        found = identify_tosses(rollouts, seed=problem.seed, generations=generations)
        return _judged(problem, scene, found.theta)

    return run


def _mjx(params: Sequence[Param]) -> Callable[[Problem], Found]:
    """Identified by slopes of MJX; what was found is rolled out in MuJoCo, whose states MJX's agree
    with.
    """

    def run(problem: Problem) -> Found:
        from clashsim.fit.toss_mjx import identify_tosses_mjx

        scene = scene_of(params)
        starts, steps = (1, 1) if problem.quick else (2, 8)
        found = identify_tosses_mjx(
            TossRollouts(scene, problem.tosses(problem.fit), gravity=problem.gravity),
            seed=problem.seed,
            starts=starts,
            steps=steps,
        )
        return _judged(problem, scene, found.theta)

    return run


def _graph(problem: Problem) -> Found:
    """The shipped network, trained on scaled data, told the cube and contact that MuJoCo identified
    on the same tosses.
    """
    theta = problem.thetas.get("mujoco-shape") or METHODS["mujoco-shape"](problem)[1]
    return _rolled(problem, shipped_net(), BoxParameters(theta, toss_set.CUBE)), theta


def _augmented(problem: Problem) -> Found:
    """A network that has seen nothing but the n tosses. Turning them about the vertical adds
    nothing: the network gives turned answers to turned questions.
    """
    torch.manual_seed(problem.seed)
    theta = {"gravity": problem.gravity, **{p.name: p.nominal for p in box_contact_params()}}
    config = AdaptationConfig(
        epochs=2 if problem.quick else 60, values=0.0, weights=1e-3, anchor=0.0, horizons=(3, 6, 12)
    )
    net, values = adapt(GraphNet(5), theta, toss_set.CUBE, problem.fit, config)
    return _rolled(problem, net, values), theta


def _rolled(problem: Problem, net: GraphNet, values: BoxParameters) -> TossErrors:
    tosses = problem.tosses(problem.test)
    return tosses.errors(
        predict_tosses(net, [values], problem.test)
        if not problem.quick
        else _padded(predict_tosses(net, [values], problem.test, longest=30), tosses.length)
    )


def _padded(states: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([states, np.repeat(states[:, :, -1:], length - states.shape[2], 2)], 2)


_CUBE = toss_set.CUBE
METHODS: dict[str, Callable[[Problem], Found]] = {
    "mujoco-default": _default,
    "mujoco-table-ii": _identified(box_contact_params("standard")),
    "mujoco-contact": _identified(box_contact_params()),
    "mujoco-inertia": _identified((*box_contact_params(), *box_inertia_params(_CUBE))),
    "mujoco-shape": _identified(
        (*box_contact_params(), *box_inertia_params(_CUBE), *box_shape_params(_CUBE))
    ),
    "mjx-inertia": _mjx((*box_contact_params(), *box_inertia_params(_CUBE))),
    "graph": _graph,
    "graph-augmented": _augmented,
}


def run(
    root: Path,
    seeds: int = 3,
    quick: bool = False,
    *,
    methods: Sequence[str] | None = None,
    ns: Sequence[int] | None = None,
    resume: Path | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of the bench. With `resume`, finished repetitions are kept in that file (JSON lines) and
    a later call goes on from them.
    """
    for name in methods or ():
        if name not in METHODS:
            raise DataError(f"the bench has no method {name!r}; {did_you_mean(name, METHODS)}")
    flights = [
        fit_flight(trial, toss_set.BODY, 0.98 * toss_set.CUBE.corners)
        for trial in toss_set.load(root)
    ]
    counts = list(ns or ((4,) if quick else NS))
    if len(flights) < max(counts) + 4:
        raise DataError(
            f"the data root holds {len(flights)} tosses; at least {max(counts) + 4} are needed"
        )
    chosen = list(methods or (METHODS if not quick else list(METHODS)[:3]))
    done, missing = kept(resume), list[Row]()
    with progress("tosses", len(counts) * len(chosen) * (1 if quick else seeds)) as advance:
        for n in counts:
            for seed in range(1 if quick else seeds):
                order = np.random.default_rng(seed).permutation(len(flights))
                test = order[n:][:12] if quick else order[n:]
                old = {row["method"]: row for row in done if (row["n"], row["seed"]) == (n, seed)}
                problem = Problem(
                    tuple(flights[i] for i in order[:n]),
                    tuple(flights[i] for i in test),
                    seed,
                    quick,
                    {m: row["theta"] for m, row in old.items()},
                )
                for method in chosen:
                    if method not in old:
                        with optional(missing, method=method, n=n, seed=seed):
                            errors, theta = METHODS[method](problem)
                            problem.thetas[method] = theta
                            done.append(_repetition(method, n, seed, errors, theta))
                            keep(resume, done[-1:])
                        save(_means(done, counts, chosen) + missing)
                    advance(1)
    return _means(done, counts, chosen) + missing


def _means(done: list[Row], counts: Sequence[int], methods: Sequence[str]) -> list[Row]:
    """One row per method and number of tosses, from the repetitions that are done."""
    rows = []
    for n in counts:
        for method in methods:
            repetitions = [r for r in done if (r["method"], r["n"]) == (method, n)]
            if repetitions:
                rows.append(_row(method, n, repetitions))
    return rows


_KEYS = (
    "position_pct",
    "rotation_deg",
    "position_median",
    "rotation_median",
    "position_soon",
    "rotation_soon",
    "wrong_face",
)


def _repetition(method: str, n: int, seed: int, e: TossErrors, theta: dict[str, Any]) -> Row:
    values = (
        e.position.mean(),
        e.rotation.mean(),
        np.median(e.position),
        np.median(e.rotation),
        e.soon_position.mean(),
        e.soon_rotation.mean(),
        e.wrong.mean(),
    )
    return {
        "method": method,
        "n": n,
        "seed": seed,
        **{k: round(float(v), 4) for k, v in zip(_KEYS, values, strict=True)},
        "tosses": int(e.position.size),
        "theta": theta,
    }


def _row(method: str, n: int, found: list[Row]) -> Row:
    means = {k: round(float(np.mean([r[k] for r in found])), 3) for k in _KEYS}
    worst = {f"{k}_worst": round(max(r[k] for r in found), 3) for k in _KEYS[:2]}
    return {
        "method": method,
        "n": n,
        **means,
        **worst,
        "seeds": len(found),
        "tosses": found[0]["tosses"],
    }
