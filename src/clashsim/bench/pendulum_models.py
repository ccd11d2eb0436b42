"""Models of the real double pendulum, fitted to the same windows one after the other.

analytic     MuJoCo's double pendulum with identified parameters
geometry     the same with a calibrated camera
neural       the same with a network in each joint's torque
dissipative  with a network in each joint's damping, which stays positive
residual     with a network that is added to each joint's acceleration
formula      geometry with the friction formulas that suggest themselves for neural's torques
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clashsim.bench.pendulum_camera import (
    CAMERA,
    INITIAL_CAMERA,
    OBSERVATION,
    PARAMS,
    PLAIN_PARAMS,
    RADII,
    SCENE,
    NetworkForm,
    augmentation,
    camera_view,
    cut_windows,
    trajectory_windows,
)
from clashsim.core.augmentation_spec import AugmentationSpec, NeuralScalar, initial_weights
from clashsim.core.errors import DataError
from clashsim.core.friction_formula import FormulaScalar
from clashsim.data.pendulum import RATE, PendulumRun
from clashsim.fit.learned_friction import LearnedFriction, suggest_friction
from clashsim.fit.shooting import (
    FreeParameters,
    ShootingFit,
    fit_by_shooting,
    rollout_uncontrolled,
    shorten_windows,
)
from clashsim.sim.augmented.simulator import AugmentedSim

OBSERVED = 40  # frames at the beginning of a window that a model sees
FRAMES = (50, 100, 200, 400)  # after the observed ones, at which errors are measured
# The next four were chosen on validation recordings among those to fit on (docs/augmented.md).
UNITS = 8  # hidden units of each network
RIDGE = 1e-5  # penalty on the distance of the weights from where they began
MAX_WINDOWS = 512  # to fit on
LENGTHS = (64, 160, 320)  # frames of the windows: a model is fitted at one length after the other
# The most Levenberg-Marquardt steps
_STEPS = 15  # at each length, without networks
_TRAINING_STEPS = (12, 12, 30)  # at each of LENGTHS, with networks
_START_STEPS = 5  # for the starts alone, before each length
_TEST_START_STEPS = 8  # for the starts of windows to test on
# Frames per step of the simulator in fitting, which is as exact as 1 and half the work. Predictions
# step frame by frame.
_FRAMES_PER_STEP = 2
_TEST_EVERY = 200  # frames between the beginnings of two windows to test on
_FIT_EVERY = 60  # frames between the beginnings of two windows to fit on
_QUICK_TEST_EVERY = 4000
_QUICK_WINDOWS = 24
_QUICK_UNITS = 2
_QUICK_STEPS = 2
_ALL_PARAMS = tuple(range(len(PARAMS)))
_WHOLE_CAMERA = tuple(range(len(CAMERA)))
_EVERYTHING = FreeParameters(_ALL_PARAMS, _WHOLE_CAMERA, train=True, ridge=RIDGE)
_SECOND_BOB = 2  # index of the marker in recorded windows
_SECOND_BOB_IMAGE = slice(4, 6)  # columns of an image: x and y of pivot, first and second bob


@dataclass(frozen=True, eq=False)
class PendulumModels:
    """Models that are fitted to some recordings.

    Attributes:
        fit: Recordings to fit on.
        held_out: Recordings to test on.
        seed: Seed of the windows to fit on and of the first weights.
        quick: Whether to use small networks and few windows and steps.
    """

    fit: list[PendulumRun]
    held_out: list[PendulumRun]
    seed: int
    quick: bool

    @property
    def lengths(self) -> tuple[int, ...]:
        """Frames of a window, from short to long: the loss of long windows has many minima."""
        return LENGTHS[:1] if self.quick else LENGTHS

    @property
    def augmentation(self) -> tuple[NeuralScalar, ...]:
        """The networks of both joints."""
        return augmentation(_QUICK_UNITS if self.quick else UNITS)

    @cached_property
    def windows(self) -> np.ndarray:
        """Windows to fit on, (N, T, 3, 2), m."""
        windows, _ = cut_windows(
            self.fit,
            frames=self.lengths[-1] + 1,
            every=_FIT_EVERY,
            limit=_QUICK_WINDOWS if self.quick else MAX_WINDOWS,
            rng=np.random.default_rng([self.seed, 1]),
        )
        return windows

    @cached_property
    def _tested(self) -> tuple[np.ndarray, np.ndarray]:
        frames = OBSERVED + FRAMES[-1]
        every = _QUICK_TEST_EVERY if self.quick else _TEST_EVERY
        windows, recording = cut_windows(self.held_out, frames=frames, every=every)
        if not len(windows):
            raise DataError(f"no recording that is held out has {frames} frames")
        return windows, recording

    @property
    def test_windows(self) -> np.ndarray:
        """Windows to test on, (N, T, 3, 2), m."""
        return self._tested[0]

    @property
    def test_recordings(self) -> np.ndarray:
        """Number of the recording of each window to test on, (N,)."""
        return self._tested[1]

    @cached_property
    def analytic(self) -> ShootingFit:
        """Identified parameters, without geometry."""
        sim = AugmentedSim(
            SCENE,
            self.augmentation,
            theta=SCENE.nominal,
            weights=initial_weights(self.augmentation, seed=self.seed),
            timestep=_FRAMES_PER_STEP / RATE,
        )
        windows = trajectory_windows(self.windows, observed=OBSERVED, skip=_FRAMES_PER_STEP)
        no_errors_yet = np.zeros(0)
        first = ShootingFit(sim, INITIAL_CAMERA, windows.start, windows.own, no_errors_yet)
        return self._fit(first, FreeParameters(PLAIN_PARAMS, RADII))

    @cached_property
    def geometry(self) -> ShootingFit:
        """Camera calibrated as well: only now, when the other parameters are close."""
        return self._fit(self.analytic, FreeParameters(_ALL_PARAMS, _WHOLE_CAMERA))

    @cached_property
    def neural(self) -> ShootingFit:
        """Networks trained as well."""
        return self._fit(self.geometry, _EVERYTHING)

    @cached_property
    def dissipative(self) -> ShootingFit:
        """Networks that only brake, trained as well."""
        return self._fit(self._with_networks("damping"), _EVERYTHING)

    @cached_property
    def residual(self) -> ShootingFit:
        """Networks beside the simulator, trained as well."""
        return self._fit(self._with_networks("acceleration"), _EVERYTHING)

    @cached_property
    def friction(self) -> tuple[LearnedFriction, ...]:
        """The friction formulas that suggest themselves for the neural model's joints."""
        steps = self.lengths[-1] // _FRAMES_PER_STEP
        visited = rollout_uncontrolled(self.neural.sim, self.neural.start, steps=steps)
        return suggest_friction(self.neural.sim, visited)

    @cached_property
    def formula(self) -> ShootingFit:
        """These formulas in place of the networks, with their coefficients fitted as well."""
        geometry = self.geometry
        assert geometry.sim.theta is not None
        theta = geometry.sim.theta.copy()
        scalars = []
        for joint in self.friction:
            formula = joint.without_load.formula
            i = [param.name for param in PARAMS].index(f"{joint.joint}_damping")
            theta[i] = np.clip(formula.damping, PARAMS[i].low, PARAMS[i].high)
            # Viscous friction is the scene's damping, which is fitted as a parameter.
            terms = tuple(term for term in formula.terms if term != "viscous")
            if terms:
                scalars.append(FormulaScalar(f"force/{joint.joint}", replace(formula, terms=terms)))
        sim = AugmentedSim(SCENE, scalars, theta=theta, timestep=_FRAMES_PER_STEP / RATE)
        free = replace(_EVERYTHING, train=bool(scalars))
        return self._fit(replace(geometry, sim=sim), free)

    def _with_networks(self, form: NetworkForm) -> ShootingFit:
        """The model `geometry` with other networks, which are not trained yet."""
        networks = augmentation(_QUICK_UNITS if self.quick else UNITS, form)
        sim = AugmentedSim(
            SCENE,
            networks,
            theta=self.geometry.sim.theta,
            weights=initial_weights(networks, seed=self.seed),
            timestep=_FRAMES_PER_STEP / RATE,
        )
        return replace(self.geometry, sim=sim)

    def _fit(self, model: ShootingFit, free: FreeParameters) -> ShootingFit:
        """Fit a model further, at one length of windows after the other."""
        windows = trajectory_windows(self.windows, observed=OBSERVED, skip=_FRAMES_PER_STEP)
        first_weights = model.sim.weights
        for length, steps in self._schedule(free):
            starts = fit_by_shooting(
                model.sim,
                shorten_windows(windows, OBSERVED // _FRAMES_PER_STEP),
                OBSERVATION,
                camera=model.camera,
                steps=_START_STEPS,
            ).start
            model = fit_by_shooting(
                model.sim,
                shorten_windows(windows, length // _FRAMES_PER_STEP + 1, start=starts),
                OBSERVATION,
                camera=model.camera,
                free=free,
                steps=_QUICK_STEPS if self.quick else steps,
                origin=first_weights,
            )
        return model

    def _schedule(self, free: FreeParameters) -> list[tuple[int, int]]:
        """Pairs of length and steps; without networks, only the shortest and longest length."""
        if free.train:
            return list(zip(self.lengths, _TRAINING_STEPS, strict=False))
        ends = sorted({self.lengths[0], self.lengths[-1]})
        return [(length, _STEPS) for length in ends]

    @cached_property
    def _frame_by_frame(self) -> dict[AugmentationSpec, AugmentedSim]:
        """Simulators whose steps are single frames, by their augmentation spec."""
        return {}

    def predict(self, model: ShootingFit, windows: np.ndarray) -> np.ndarray:
        """Predict the images of the markers from the first `OBSERVED` frames of windows.

        Args:
            model: The model.
            windows: Recorded windows, (N, T, 3, 2), m.

        Returns:
            Images, that is x and y of pivot, first and second bob, (N, T, 6), m.
        """
        spec = model.sim.augmentation
        if spec not in self._frame_by_frame:
            self._frame_by_frame[spec] = AugmentedSim(SCENE, spec)
        sim = self._frame_by_frame[spec].with_weights(model.sim.weights, model.sim.theta)
        observed = shorten_windows(trajectory_windows(windows, observed=OBSERVED), OBSERVED)
        fit = fit_by_shooting(
            sim, observed, OBSERVATION, camera=model.camera, steps=_TEST_START_STEPS
        )
        states = rollout_uncontrolled(sim, fit.start, steps=windows.shape[1] - 1)
        pivot = fit.own
        return camera_view(states, model.camera, pivot)

    def errors(self, model: ShootingFit, windows: np.ndarray | None = None) -> np.ndarray:
        """Distances (N, T), mm, between predicted and recorded positions of the second bob.

        Args:
            model: The model.
            windows: Recorded windows, (N, T, 3, 2), m; those to test on by default.
        """
        if windows is None:
            windows = self.test_windows
        second_bob = self.predict(model, windows)[..., _SECOND_BOB_IMAGE]
        return 1e3 * np.linalg.norm(second_bob - windows[:, :, _SECOND_BOB], axis=-1)
