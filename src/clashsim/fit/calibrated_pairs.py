"""Several calibrated pairs of one scene, and the simulator that uses them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import RunError, did_you_mean
from clashsim.core.params import locate_param, pair_rows
from clashsim.core.scene import STRIKE, Scene, model_field
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.sim.hybrid.pairs import LearnedPair
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.slides.law import SlideModel

# Fields of a contact pair that parameters may change.
_PAIR_FIELDS = ("pair_friction", "pair_solref", "pair_solreffriction", "pair_solimp")
_OF_PAIR = "pair/"  # how targets of parameters in a contact pair begin


@dataclass(frozen=True, eq=False)
class CalibratedPairs:
    """The models of a run folder with several pairs of one scene; `clashsim.load` reads one.

    Attributes:
        runs: The run of each pair by its name, that with the most impacts first.
    """

    runs: Mapping[str, CalibratedRun]

    def __getitem__(self, name: str) -> CalibratedRun:
        if name not in self.runs:
            raise RunError(f"the run has no pair {name!r}; {did_you_mean(name, self.runs)}")
        return self.runs[name]

    @property
    def scene(self) -> Scene:
        """The scene with the first pair, as its author wrote it."""
        return self._first.scene

    @property
    def _first(self) -> CalibratedRun:
        return next(iter(self.runs.values()))

    @property
    def _slide_model(self) -> SlideModel | None:
        """The slide model of the struck body; None where pairs have several struck bodies."""
        struck = {run.scene.struck_body.body for run in self.runs.values()}
        models = [run.slide for run in self.runs.values() if run.slide is not None]
        return models[0] if models and len(struck) == 1 else None

    def hybrid(self, **options: Any) -> HybridSim:
        """MuJoCo with the calibrated collisions of all pairs.

        Where MuJoCo resolves a collision of a pair, it has the values identified for that pair. A
        body's mass that several pairs identified is that of the first of them.

        Args:
            options: Keyword arguments of `HybridSim`; `theta` is of the first pair.

        Returns:
            The simulator; its learned pairs are in the order of `runs`.
        """
        pairs = [_learned_pair(run) for run in self.runs.values()]
        defaults = {"theta": self._first.simulated_theta(), "slide_model": self._slide_model}
        hybrid = HybridSim(self.scene, pairs, **(defaults | options))
        taken = {param.target for param in self.scene.params}
        for run in list(self.runs.values())[1:]:
            _write_identified(hybrid.model, run, taken)
            taken |= {param.target for param in run.scene.params}
        mujoco.mj_setConst(hybrid.model, mujoco.MjData(hybrid.model))
        return hybrid


def _learned_pair(run: CalibratedRun) -> LearnedPair:
    """The pair of a run, which stands for all geoms of its two bodies."""
    scene = run.scene
    known = run.calibration.scaling.median_extras()
    return LearnedPair(
        scene.struck, scene.striker, run.calibration, scene, run.simulated_theta(), known
    )


def _write_identified(model: mujoco.MjModel, run: CalibratedRun, taken: set[str]) -> None:
    """Write what was identified for a pair into a model of the scene.

    Args:
        model: The model, which is changed; it may have further pairs.
        run: The run of the pair.
        taken: Targets of parameters of bodies that other pairs decide.
    """
    scene = run.scene
    theta = run.simulated_theta()
    own = scene.model(theta)
    rows_of_geoms = {_geoms(model, row): row for row in range(model.npair)}
    for row in pair_rows(own, STRIKE):
        for name in _PAIR_FIELDS:
            getattr(model, name)[rows_of_geoms[_geoms(own, row)]] = getattr(own, name)[row]
    for param, slot, value in zip(scene.params, scene.slots, theta, strict=True):
        is_of_body = slot is not None and not param.target.startswith(_OF_PAIR)
        if is_of_body and param.target not in taken:
            place = locate_param(model, param.target)
            place.write(model_field(model, place.field), np.asarray(param.sign * value))


def _geoms(model: mujoco.MjModel, row: int) -> frozenset[str]:
    """Names of the geoms of a contact pair."""
    geoms = (int(model.pair_geom1[row]), int(model.pair_geom2[row]))
    return frozenset(model.geom(geom).name for geom in geoms)
