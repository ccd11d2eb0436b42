"""Few-shot prediction of impacts: the data set of one comparison, as every method sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.fit.base import distilled_model
from clashsim.fit.distil import PAPER, DistillationConfig, DistilledModel
from clashsim.fit.identify import GridTable, IdentificationProblem, grid, identification_problem
from clashsim.fit.solved_model import SolvedModel

_SMALLEST_TWIST = 0.05  # dimensionless: keeps relative errors finite for a body that hardly moves


@dataclass(frozen=True, eq=False)
class FewShotProblem:
    """Measured impacts of one data set, and what several methods compute from them, once.

    Attributes:
        scene: The struck body and the striker.
        impacts: N impacts; a method may use the outcomes of a few of them only.
        gyration: Radius of gyration of the struck body, m; weights angular velocity in errors.
        cache: Folder of base models that were distilled before.
        num_samples: Simulated impacts to distil a base model from.
        config: How the network of the pair's own is distilled; None takes the shipped one.
        tabulate_grid: Whether grid search simulates all impacts once and looks them up later, which
            pays off when many subsets of the same impacts are fitted.
        progress: Shows how far distillation is.
    """

    scene: Scene
    impacts: Impacts
    gyration: float
    cache: Path | None = None
    num_samples: int = 100_000
    config: DistillationConfig | None = None
    tabulate_grid: bool = True
    progress: Progress = quiet

    @cached_property
    def frames(self) -> ContactFrame:
        """The impacts in their contact frames."""
        return contact_frame(self.scene, self.impacts)

    @cached_property
    def twist_change(self) -> np.ndarray:
        """Dimensionless change of the twist in the contact frame, (N, k)."""
        return self.frames.encode(self.impacts.after)

    @cached_property
    def twist_size(self) -> np.ndarray:
        """Dimensionless size of the twist after impact, (N,), which errors are relative to."""
        start = self.frames.twist_before / self.frames.speed[:, None]
        return np.linalg.norm(self.twist_change + start, axis=1) + _SMALLEST_TWIST

    @cached_property
    def identification_problem(self) -> IdentificationProblem:
        """The impacts as MuJoCo simulates them."""
        return identification_problem(self.scene, self.impacts, gyration=self.gyration)

    @cached_property
    def grid(self) -> GridTable:
        """Outcomes of all impacts at all points of the grid search."""
        return grid(self.identification_problem)

    @cached_property
    def mujoco_scene(self) -> Scene:
        """The scene with only those parameters that MuJoCo itself has."""
        in_mujoco = [
            param
            for param, slot in zip(self.scene.params, self.scene.slots, strict=True)
            if slot is not None
        ]
        return self.scene.with_params(in_mujoco)

    @cached_property
    def paper_base(self) -> DistilledModel:
        """The base model of the CLASH paper."""
        return distilled_model(
            self.mujoco_scene,
            config=PAPER,
            n=self.num_samples,
            cache=self.cache,
            progress=self.progress,
        )

    @cached_property
    def clashsim_base(self) -> SolvedModel:
        """clashsim's base model."""
        return SolvedModel(self.scene)

    @cached_property
    def network_base(self) -> DistilledModel:
        """clashsim's base model as a network of the pair's own."""
        return distilled_model(
            self.scene,
            config=self.config,
            n=self.num_samples,
            cache=self.cache,
            progress=self.progress,
        )
