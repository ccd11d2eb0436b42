"""A calibrated run: a calibration, and a slide model if one was fitted.

Simulating, planning and exporting all begin with a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.core.recorded_joints import with_motion_from_joints
from clashsim.core.scene import GROUND, Scene
from clashsim.core.strike_geometry import check_strikes_can_be_chosen
from clashsim.data.mjcf import EditedMjcf
from clashsim.data.mjcf_scene import write_scene
from clashsim.data.scene_impacts import read_scene_impacts
from clashsim.fit.calibrate import Calibration
from clashsim.fit.interval_samples import estimate_ranges, sample_estimates
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.identify import SlideFit, mujoco_friction
from clashsim.slides.law import SlideModel

_SLIDING = 0  # column of the sliding friction in MuJoCo's pair_friction


def theta_in_ranges(calibration: Calibration) -> np.ndarray:
    """Identified theta (p,), natural units, clipped to the ranges in which MuJoCo was sampled."""
    params = calibration.base.scene.params
    values = [estimate.value for estimate in calibration.theta]
    return np.clip(values, [p.low for p in params], [p.high for p in params])


def ground_indices(scene: Scene) -> tuple[int, ...]:
    """Indices of the parameters that belong to the contact with the ground."""
    if scene.ground is None:
        return ()
    row = int(scene.base.pair(GROUND).id)
    indices = []
    for i, slot in enumerate(scene.slots):
        if slot is not None and slot.field.startswith("pair_") and row in slot.rows:
            indices.append(i)
    return tuple(indices)


def ground_friction_index(scene: Scene) -> int | None:
    """Index of the ground's sliding friction among the parameters; None if it is not one."""
    for i in ground_indices(scene):
        slot = scene.slots[i]
        if slot is not None and slot.field == "pair_friction" and _SLIDING in slot.columns:
            return i
    return None


def with_ground_friction(calibration: Calibration, fit: SlideFit) -> Calibration:
    """Replace the estimate of the ground's sliding friction by that of the slides.

    Strikes hardly depend on this friction. The calibration's predictions do not change.

    Args:
        calibration: The calibration.
        fit: The fitted slide model.

    Returns:
        The calibration with the new estimate, or as it was if the ground's friction is not a free
        parameter.
    """
    index = ground_friction_index(calibration.base.scene)
    if index is None or calibration.theta[index].status is EstimateStatus.KNOWN:
        return calibration
    param = calibration.base.scene.params[index]
    friction = next(e for e in fit.estimates if e.name == "friction")
    # The slide model's friction may depend on speed, but MuJoCo's cannot.
    sliding, _ = mujoco_friction(fit.model)
    ratio = sliding / friction.value

    def in_range(value: float) -> float:
        return float(np.clip(ratio * value, param.low, param.high))

    estimate = Estimate(
        param.name,
        in_range(friction.value),
        in_range(friction.low),
        in_range(friction.high),
        friction.status,
    )
    theta = list(calibration.theta)
    theta[index] = estimate
    return replace(calibration, theta=tuple(theta))


@dataclass(frozen=True, eq=False)
class CalibratedRun:
    """The models of a run folder; `clashsim.load` reads one.

    Attributes:
        calibration: The calibration.
        slide: The slide model, or None.
        metrics: How well it was found to predict, the content of metrics.json; empty for a run
            that was not tested.
    """

    calibration: Calibration
    slide: SlideModel | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scene(self) -> Scene:
        """The scene that was calibrated, as its author wrote it."""
        return self.calibration.base.scene

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Estimate of each parameter."""
        return self.calibration.theta

    @property
    def theta(self) -> np.ndarray:
        """Identified parameters (p,) in natural units, clipped to their ranges."""
        return theta_in_ranges(self.calibration)

    @property
    def written_params(self) -> tuple[int, ...]:
        """Indices of the parameters that `mjcf` writes.

        These are all fitted parameters, including the unidentifiable ones, because the values were
        fitted jointly. The exception is the ground's friction if it is unidentifiable: strikes
        hardly depend on it but slides do, so the author's value is kept. One that the user gave is
        written.
        """
        ground = ground_friction_index(self.scene)
        indices = []
        for i, estimate in enumerate(self.calibration.theta):
            known = estimate.status is EstimateStatus.KNOWN
            unidentified = estimate.status is EstimateStatus.UNIDENTIFIABLE
            given = known and i == ground and self.slide is not None
            if given or not (known or (i == ground and unidentified)):
                indices.append(i)
        return tuple(indices)

    def read_impacts(self, path: Path | str) -> Impacts:
        """Read a file of impacts of this run's pair, as `clashsim calibrate` does.

        Columns may be the coordinates and velocities of joints, parameters, and what else was
        measured with each impact that was fitted.

        Args:
            path: The file; all its rows must be complete but for outcomes.

        Returns:
            The impacts, with the motion of bodies whose joints were recorded.

        Raises:
            DataError: The file is damaged, or has impacts of several pairs.
        """
        extras = self.calibration.scaling.extras
        impacts = read_scene_impacts(path, self.scene, known=extras)
        if impacts.bodies is not None and len(np.unique(impacts.bodies, axis=0)) > 1:
            raise DataError(
                f"{Path(path).name!r} has impacts of several pairs, and one is needed: "
                "clashsim show RUN --impacts FILE tests a run on those of its own pair"
            )
        return with_motion_from_joints(replace(impacts, bodies=None), self.scene)

    def hybrid(self, **options: Any) -> HybridSim:
        """MuJoCo with the calibrated collision, and with the slide model if there is one.

        Strikes are predicted by the calibration, so the ground's contact only has to support the
        struck body. It has the scene's nominal parameters and the friction of the slides, not the
        values with which MuJoCo's own strikes would fit best. Quantities that were measured with
        each impact have their medians unless `known` gives them.

        Args:
            options: Keyword arguments of `HybridSim`.

        Returns:
            The simulator.
        """
        defaults = {
            "theta": self.simulated_theta(),
            "slide_model": self.slide,
            "known": self.calibration.scaling.median_extras(),
        }
        return HybridSim(self.scene, self.calibration, **(defaults | options))

    def strike_table(self) -> StrikeTable:
        """The table from strikes to poses at rest, for planning and training; built in seconds."""
        check_strikes_can_be_chosen(self.scene)
        if self.slide is None:
            raise DataError(
                "this run has no slide model, so it does not predict where bodies come to rest: "
                "calibrate from trials that show the slides, or with --ground-friction, with a "
                "plane as the ground"
            )
        return self._strike_table

    @cached_property
    def _strike_table(self) -> StrikeTable:
        """The strike table, built on first use."""
        return strike_table(self.hybrid())

    def mjcf(self) -> EditedMjcf:
        """The author's MJCF with the values of `written_params` and no other changes.

        Where the author's text cannot hold them, as that of a URDF, it is the MJCF that MuJoCo
        makes of it.
        """
        indices = list(self.written_params)
        written = self.scene.with_params([self.scene.params[i] for i in indices])
        return write_scene(written, self.theta[indices])

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Ranges for domain randomisation.

        They are the 90 % intervals of the estimates. For an UNIDENTIFIABLE parameter this is nearly
        the prior, so it is wide; for a KNOWN one it goes from the lowest to the highest measured
        value.

        Returns:
            Low and high of each parameter by name, natural units.
        """
        return estimate_ranges(self.scene.params, self.calibration.theta)

    def posterior_samples(self, n: int, seed: int) -> np.ndarray:
        """Sample thetas for domain randomisation.

        Each parameter is sampled independently, from the normal distribution of its interval on its
        own scale, and clipped to its range; a parameter whose interval reaches an end of its range
        therefore often has the value of that end. KNOWN parameters are sampled uniformly between
        the lowest and the highest measured value. With the same seed, a larger number of samples
        begins with the same ones.

        Args:
            n: Number of samples.
            seed: Seed of the random numbers.

        Returns:
            Thetas (n, p), natural units.
        """
        return sample_estimates(
            self.scene.params, self.calibration.theta, self.theta, n=n, seed=seed
        )

    def simulated_theta(self) -> np.ndarray:
        """Theta (p,) of the hybrid simulator: identified, but nominal where the ground is meant.

        The ground's friction is that of the slides, if there is a slide model.
        """
        theta = self.theta
        friction = ground_friction_index(self.scene)
        for i in ground_indices(self.scene):
            param = self.scene.params[i]
            if self.calibration.theta[i].status is EstimateStatus.KNOWN:
                continue
            if i == friction and self.slide is not None:
                sliding, _ = mujoco_friction(self.slide)
                theta[i] = np.clip(sliding, param.low, param.high)
            else:
                theta[i] = param.nominal
        return theta
