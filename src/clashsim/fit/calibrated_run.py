"""Run: a calibration, and a slide model where one was fitted, as everything after calibrating takes
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from clashsim.core.errors import DataError, ParamError
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import GROUND, Scene
from clashsim.data.mjcf import EditedMjcf, write_back
from clashsim.fit.calibrate import Calibration, Estimate, EstimateStatus
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.identify import SlideFit, mujoco_friction
from clashsim.slides.law import SlideModel

_NORMAL = 1.64  # standard deviations either way of an estimate's interval


def theta_in_ranges(calibration: Calibration) -> np.ndarray:
    """Identified theta (p,), held to the ranges: beyond them MuJoCo was never asked."""
    return np.array(
        [
            np.clip(e.value, p.low, p.high)
            for p, e in zip(calibration.base.scene.params, calibration.theta, strict=True)
        ]
    )


def ground_places(scene: Scene) -> tuple[int, ...]:
    """Places of the ground's parameters."""
    if scene.ground is None:
        return ()
    row = int(scene.base.pair(GROUND).id)
    return tuple(
        i
        for i, s in enumerate(scene.slots)
        if s is not None and s.field.startswith("pair_") and row in s.rows
    )


def ground_friction_place(scene: Scene) -> int | None:
    """Place of the ground's sliding friction among the parameters; None where it is none of them."""
    slots = scene.slots
    return next(
        (
            i
            for i in ground_places(scene)
            if (s := slots[i]) is not None and s.field == "pair_friction" and 0 in s.columns
        ),
        None,
    )


def with_ground_friction(calibration: Calibration, fit: SlideFit) -> Calibration:
    """The calibration with the ground's sliding friction as slides tell it, which strikes hardly
    do; predictions are the same.
    """
    place = ground_friction_place(calibration.base.scene)
    if place is None or calibration.theta[place].status is EstimateStatus.KNOWN:
        return calibration
    p, e = (
        calibration.base.scene.params[place],
        next(e for e in fit.estimates if e.name == "friction"),
    )
    share = (
        mujoco_friction(fit.model)[0] / e.value
    )  # friction may rise or fall with speed, MuJoCo's does not
    value, low, high = (float(np.clip(share * x, p.low, p.high)) for x in (e.value, e.low, e.high))
    return replace(
        calibration,
        theta=(
            *calibration.theta[:place],
            Estimate(p.name, value, low, high, e.status),
            *calibration.theta[place + 1 :],
        ),
    )


@dataclass(frozen=True, eq=False)
class CalibratedRun:
    """What a run folder holds to simulate with; `clashsim.load` reads one."""

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
        """Places of the parameters that `mjcf` writes.

        All that were identified, for values belong together: one that the impacts cannot tell alone
        is still needed beside the others. Only friction of the ground is left to the author where
        it was not told: a strike hardly shows it, and a slide is all friction.
        """
        ground = ground_friction_place(self.scene)
        return tuple(
            i
            for i, e in enumerate(self.calibration.theta)
            if e.status is not EstimateStatus.KNOWN
            and not (i == ground and e.status is EstimateStatus.UNIDENTIFIABLE)
        )

    def hybrid(self, **options: Any) -> HybridSim:
        """MuJoCo with the calibrated collision, and with the slide model where there is one;
        options are those of `HybridSim`.

        Strikes are learned, so the ground only has to carry what was struck: it is as the scene has
        it by its nominal values, with friction as the slides tell it, and not as would make
        MuJoCo's own strikes come out right. Numbers that were measured with each impact are at
        their medians unless `known` says otherwise.
        """
        scale = self.calibration.scale
        usual = {
            "theta": self._standing(),
            "slide_model": self.slide,
            "known": dict(zip(scale.extras, map(float, scale.centres[-1]), strict=True)),
        }
        return HybridSim(self.scene, self.calibration, **(usual | options))

    def strikes(self) -> StrikeTable:
        """The map from strikes to poses at rest, to plan and train with; it takes seconds to make."""
        if self.slide is None:
            raise DataError(
                "this run has no slide model, so it does not tell where bodies come to rest: calibrate from trials that show the slides, with a plane as the ground"
            )
        return strike_table(self.hybrid())

    def mjcf(self) -> EditedMjcf:
        """The author's MJCF with the values of the parameters in `written_params`, and otherwise as it
        was.
        """
        places = list(self.written_params)
        return write_back(
            self.scene.xml,
            self.scene.with_params([self.scene.params[i] for i in places]),
            self.theta[places],
        )

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Domain randomisation: low and high of each parameter by name, natural units, holding
        about 90 % of what the impacts leave open.

        For an UNIDENTIFIABLE parameter that is about what was expected before any impact was seen,
        so it is wide; for a KNOWN one it is the least and the greatest value measured.
        """
        low, high = self._ends()
        return {
            p.name: (float(a), float(b))
            for p, a, b in zip(self.scene.params, low, high, strict=True)
        }

    def posterior_samples(self, n: int, seed: int) -> np.ndarray:
        """Thetas (n, p) for domain randomisation, natural units; more draws of a seed begin with
        the same ones.

        Each parameter is drawn for itself from the normal distribution of its interval, on its own
        scale, and held to its range, so that one whose interval reaches an end of its range is
        often there; KNOWN ones are drawn evenly between the values measured.
        """
        if not 1 <= n <= 10_000_000 or seed < 0:
            raise ParamError(
                f"one to ten million draws and a seed that is not negative are needed, got {n} and {seed}"
            )
        params, ends = self.scene.params, self._ends()
        centre, low, high = (to_unit(params, x) for x in (self.theta, *ends))
        sd = (
            np.maximum(high - centre, centre - low) / _NORMAL
        )  # where the range cuts one side short, the other still tells
        z = np.random.default_rng(seed).normal(size=(n, len(params)))
        drawn = from_unit(params, np.clip(centre + sd * z, -1, 1))
        known = [e.status is EstimateStatus.KNOWN for e in self.calibration.theta]
        drawn = np.where(known, ends[0] + (ends[1] - ends[0]) * ndtr(z), drawn)
        return np.clip(
            drawn, [p.low for p in params], [p.high for p in params]
        )  # a logarithm and back may end a bit beyond

    def _standing(self) -> np.ndarray:
        """Theta (p,) with a ground that does not follow the strikes."""
        theta, friction = self.theta, ground_friction_place(self.scene)
        for i in ground_places(self.scene):
            p = self.scene.params[i]
            if self.calibration.theta[i].status is not EstimateStatus.KNOWN:
                theta[i] = (
                    np.clip(mujoco_friction(self.slide)[0], p.low, p.high)
                    if i == friction and self.slide is not None
                    else p.nominal
                )
        return theta

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends (p,) of the intervals, held to the ranges."""
        params, theta = self.scene.params, self.calibration.theta
        bounds = np.array([p.low for p in params]), np.array([p.high for p in params])
        return np.clip([e.low for e in theta], *bounds), np.clip([e.high for e in theta], *bounds)
