"""Domain randomisation: one strike model made of simulators with widely different parameters."""

from __future__ import annotations

import numpy as np

from clashsim.core.params import from_unit, to_unit
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import GROUND, Scene
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.law import SlideModel
from clashsim.slides.support_patch import scene_slide_model

_NUM_SIMULATORS = 6
_HALF_WIDTH = 0.6  # largest distance of a drawn parameter from its nominal value, unit scale
_FRICTION_FACTORS = (0.5, 1.5)  # range of the ground's friction, divided by the scene's


class RandomisedStrikeModel:
    """A `StrikeModel` of several simulators with different parameters.

    In a call, each simulator simulates an equal share of the strikes.
    """

    takes_noise = False

    def __init__(self, scene: Scene, seed: int) -> None:
        rng = np.random.default_rng(seed)
        base = SolvedModel(scene)
        nominal_slide = scene_slide_model(scene)
        nominal_friction = float(scene.base.pair(GROUND).friction[0])
        nominal = to_unit(scene.params, scene.nominal)
        self._models: list[StrikeModel] = []
        for _ in range(_NUM_SIMULATORS):
            shift = rng.uniform(-_HALF_WIDTH, _HALF_WIDTH, len(nominal))
            theta = from_unit(scene.params, np.clip(nominal + shift, -1, 1))
            slide = SlideModel(
                {"friction": nominal_friction * rng.uniform(*_FRICTION_FACTORS)},
                gyration=nominal_slide.gyration,
                centre=nominal_slide.centre,
            )
            self._models.append(strike_table(HybridSim(scene, base, theta, slide_model=slide)))
        first = self._models[0]
        self.names = first.names
        self.low = first.low
        self.high = first.high

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Poses at rest (N, 3) of bodies struck at pose (N, 3) by strikes (N, d)."""
        rest = np.empty_like(pose)
        for i, model in enumerate(self._models):
            rows = slice(i, None, len(self._models))
            rest[rows] = model.rest(pose[rows], strike[rows])
        return rest
