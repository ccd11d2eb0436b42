"""A calibrated run: a calibration, and a slide model where one was fitted.

Everything after calibrating takes a run: simulating, planning, exporting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from clashsim.core.errors import DataError, ParamError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import GROUND, Scene
from clashsim.data.mjcf import EditedMjcf, write_back
from clashsim.fit.calibrate import Calibration
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.identify import SlideFit, mujoco_friction
from clashsim.slides.law import SlideModel

_NORMAL_90 = 1.64  # standard deviations either way of an estimate's interval
_MOST_SAMPLES = 10_000_000


def theta_in_ranges(calibration: Calibration) -> np.ndarray:
    """Identified theta (p,), held to the ranges: beyond them MuJoCo was never sampled."""
    params = calibration.base.scene.params
    values = [estimate.value for estimate in calibration.theta]
    return np.clip(values, [p.low for p in params], [p.high for p in params])


def ground_indices(scene: Scene) -> tuple[int, ...]:
    """Indices of the ground's parameters."""
    if scene.ground is None:
        return ()
    row = int(scene.base.pair(GROUND).id)
    indices = []
    for i, slot in enumerate(scene.slots):
        if slot is not None and slot.field.startswith("pair_") and row in slot.rows:
            indices.append(i)
    return tuple(indices)


def ground_friction_index(scene: Scene) -> int | None:
    """Index of the ground's sliding friction among the parameters; None if it is none of them."""
    for i in ground_indices(scene):
        slot = scene.slots[i]
        if slot is not None and slot.field == "pair_friction" and 0 in slot.columns:
            return i
    return None


def with_ground_friction(calibration: Calibration, fit: SlideFit) -> Calibration:
    """The calibration with the ground's sliding friction as slides show it.

    Strikes hardly show it. Predictions are the same.

    Args:
        calibration: The calibration.
        fit: The fitted slide model.

    Returns:
        The calibration, with another estimate if the ground's friction is a free parameter.
    """
    index = ground_friction_index(calibration.base.scene)
    if index is None or calibration.theta[index].status is EstimateStatus.KNOWN:
        return calibration
    param = calibration.base.scene.params[index]
    friction = next(e for e in fit.estimates if e.name == "friction")
    # Friction may rise or fall with speed, MuJoCo's does not.
    sliding, _ = mujoco_friction(fit.model)
    share = sliding / friction.value

    def in_range(value: float) -> float:
        return float(np.clip(share * value, param.low, param.high))

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
    """What a run folder holds to simulate with; `clashsim.load` reads one.

    Attributes:
        calibration: The calibration.
        slide: The slide model, or None.
    """

    calibration: Calibration
    slide: SlideModel | None = None

    @property
    def scene(self) -> Scene:
        """The scene that was calibrated, as its author wrote it."""
        return self.calibration.base.scene

    @property
    def theta(self) -> np.ndarray:
        """Identified parameters (p,) in natural units, held to their ranges."""
        return theta_in_ranges(self.calibration)

    @property
    def written_params(self) -> tuple[int, ...]:
        """Indices of the parameters that `mjcf` writes.

        These are all that were identified, for values belong together: one that the impacts cannot
        identify alone is still needed beside the others. Only friction of the ground is left to the
        author where it was not identified: a strike hardly shows it, and a slide is all friction.
        """
        ground = ground_friction_index(self.scene)
        indices = []
        for i, estimate in enumerate(self.calibration.theta):
            known = estimate.status is EstimateStatus.KNOWN
            unidentified = estimate.status is EstimateStatus.UNIDENTIFIABLE
            if not known and not (i == ground and unidentified):
                indices.append(i)
        return tuple(indices)

    def hybrid(self, **options: Any) -> HybridSim:
        """MuJoCo with the calibrated collision, and with the slide model where there is one.

        Strikes are learned, so the ground only has to carry what was struck: it is as the scene has
        it by its nominal values, with friction as the slides show it, and not as would make
        MuJoCo's own strikes come out right. Numbers that were measured with each impact are at
        their medians unless `known` gives them.

        Args:
            options: Those of `HybridSim`.

        Returns:
            The simulator.
        """
        defaults = {
            "theta": self._theta_with_nominal_ground(),
            "slide_model": self.slide,
            "known": self.calibration.scaling.median_extras(),
        }
        return HybridSim(self.scene, self.calibration, **(defaults | options))

    def strike_table(self) -> StrikeTable:
        """The table from strikes to poses at rest, to plan and train with; it takes seconds."""
        if self.slide is None:
            raise DataError(
                "this run has no slide model, so it does not predict where bodies come to rest: "
                "calibrate from trials that show the slides, with a plane as the ground"
            )
        return self._strike_table

    @cached_property
    def _strike_table(self) -> StrikeTable:
        """The strike table, built when it is first needed."""
        return strike_table(self.hybrid())

    def mjcf(self) -> EditedMjcf:
        """The author's MJCF with the values of `written_params`, and otherwise as it was."""
        indices = list(self.written_params)
        written = self.scene.with_params([self.scene.params[i] for i in indices])
        return write_back(self.scene.xml, written, self.theta[indices])

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Ranges for domain randomisation.

        They hold about 90 % of what the impacts leave open. For an UNIDENTIFIABLE parameter that is
        about the prior, so it is wide; for a KNOWN one it is the least and the greatest value
        measured.

        Returns:
            Low and high of each parameter by name, natural units.
        """
        low, high = self._interval_ends()
        found = {}
        for i, param in enumerate(self.scene.params):
            found[param.name] = (float(low[i]), float(high[i]))
        return found

    def posterior_samples(self, n: int, seed: int) -> np.ndarray:
        """Thetas for domain randomisation; more samples of a seed begin with the same ones.

        Each parameter is sampled for itself from the normal distribution of its interval, on its
        own scale, and held to its range, so that one whose interval reaches an end of its range is
        often there. KNOWN ones are sampled evenly between the values measured.

        Args:
            n: Number of samples.
            seed: Seed of the random numbers.

        Returns:
            Thetas (n, p), natural units.
        """
        if not 1 <= n <= _MOST_SAMPLES or seed < 0:
            raise ParamError(
                "one to ten million samples and a seed that is not negative are needed, "
                f"got {n} and {seed}"
            )
        params = self.scene.params
        low, high = self._interval_ends()
        centre = to_unit(params, self.theta)
        above = to_unit(params, high) - centre
        below = centre - to_unit(params, low)
        # Where the range cuts one side short, the other still shows the standard deviation.
        std = np.maximum(above, below) / _NORMAL_90
        z = np.random.default_rng(seed).normal(size=(n, len(params)))
        samples = from_unit(params, np.clip(centre + std * z, -1, 1))
        known = [e.status is EstimateStatus.KNOWN for e in self.calibration.theta]
        samples = np.where(known, low + (high - low) * ndtr(z), samples)
        # A logarithm and back may end a bit beyond the range.
        return np.clip(samples, [p.low for p in params], [p.high for p in params])

    def _theta_with_nominal_ground(self) -> np.ndarray:
        """Theta (p,) with a ground that does not follow the strikes."""
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

    def _interval_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends (p,) of the intervals, held to the ranges."""
        least = np.array([param.low for param in self.scene.params])
        greatest = np.array([param.high for param in self.scene.params])
        low = np.clip([e.low for e in self.calibration.theta], least, greatest)
        high = np.clip([e.high for e in self.calibration.theta], least, greatest)
        return low, high
