"""Models of the real double pendulum, fitted to the same windows one after the other.

analytic   MuJoCo's double pendulum with identified parameters
geometry   the same with a calibrated camera
neural     the same with a network in each joint's torque
"""

from __future__ import annotations

from dataclasses import dataclass
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
    augmentation,
    camera_view,
    cut_windows,
    trajectory_windows,
)
from clashsim.core.augmentation_spec import NeuralScalar, initial_weights
from clashsim.core.errors import DataError
from clashsim.data.pendulum import RATE, PendulumRun
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
        free = FreeParameters(_ALL_PARAMS, _WHOLE_CAMERA, train=True, ridge=RIDGE)
        return self._fit(self.geometry, free)

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
    def _frame_by_frame(self) -> AugmentedSim:
        """An untrained simulator whose steps are single frames."""
        return AugmentedSim(SCENE, self.augmentation)

    def predict(self, model: ShootingFit, windows: np.ndarray) -> np.ndarray:
        """Predict the images of the markers from the first `OBSERVED` frames of windows.

        Args:
            model: The model.
            windows: Recorded windows, (N, T, 3, 2), m.

        Returns:
            Images, that is x and y of pivot, first and second bob, (N, T, 6), m.
        """
        sim = self._frame_by_frame.with_weights(model.sim.weights, model.sim.theta)
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
