"""A stand-in for reality where no recordings are at hand: a MuJoCo that differs from the shipped scene."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from clashsim.core.frame import inertia
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.sample import draw
from clashsim.sim.mujoco import simulate

_TRUTH = {"friction": 0.55, "damping_ratio": 0.4, "ground_friction": 0.5}
_NOISE = 0.02  # of the size of the twist


def stand_in(scene: Scene, n: int, seed: int) -> Impacts:
    """`n` impacts of the semi-cylinder with another theta, and with another timestep, impratio and mass, which no parameter can express."""
    spec = mujoco.MjSpec.from_string(scene.xml)
    spec.option.timestep, spec.option.impratio = 0.0003, 4.0
    spec.geom("block").density *= 1.25
    other = replace(scene, xml=spec.to_xml(), name="perturbed")
    theta = np.array([_TRUTH.get(p.name, p.nominal) for p in scene.params])
    rng = np.random.default_rng([seed, 7])
    strikes = draw(other, round(n * 1.1) + 10, rng)  # a few may have no end
    outcome = simulate(other, strikes.before, theta)
    rows = np.flatnonzero(outcome.usable & strikes.contact.touching)[:n]
    after = outcome.after[rows]
    scale = np.array([1.0, 1.0, 1 / inertia(scene, scene.struck_body).gyration])
    size = np.linalg.norm(after / scale, axis=1, keepdims=True)
    noise = _NOISE / np.sqrt(3) * size * scale * rng.standard_normal(after.shape)
    return Impacts(True, strikes.before[rows], after + noise, source="stand-in")
