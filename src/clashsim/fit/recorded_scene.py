"""A scene with recordings of its motion, and how a fit to them goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import ObservedMotion
from clashsim.fit.joint_states import JointStates
from clashsim.fit.motion_problem import MotionProblem, Segment
from clashsim.fit.motion_segments import ContactTimes, whole_trials


@dataclass(frozen=True)
class MotionFitConfig:
    """How a fit to trajectories goes on.

    Attributes:
        seed: Seed of CMA-ES.
        horizons: Durations of the segments of smooth motion, as shares of the longest trial.
        steps: Gauss-Newton steps on each set of segments, at most.
        generations: Generations of CMA-ES, at most, with contact.
        search: Whether CMA-ES searches, with contact; else Gauss-Newton steps begin at several
            points.
        starts: Number of these points.
        sigmas: First step sizes of CMA-ES, on the scale from -1 to 1: just after the first contact,
            then on whole trials.
        smooth_difference: Step of finite differences without contact, on the unit scale.
        stop_difference: The same where joints reach an end of their range.
        contact_differences: Steps of finite differences with contact, first a wide one that does
            not see the roughness of single contacts.
        frames: Frames of a segment that are compared, at most.
        observations: Independent numbers that a trial counts as, while the loss is minimised.
        search_steps: Time steps, over all trials, that one point of CMA-ES simulates at most; with
            more, evenly chosen trials stand for all.
        descent_steps: The same for Gauss-Newton steps.
        threads: Threads of MuJoCo, 0 for one per core.
        dissipative: Whether the networks of the method neural only brake joints.
        checkpoint: File that holds the finished stages, from which a killed fit continues; None for
            no such file.
    """

    seed: int = 0
    horizons: tuple[float, ...] = (0.1, 0.3, 1.0)
    steps: int = 12
    generations: int = 50
    search: bool = True
    starts: int = 3
    sigmas: tuple[float, float] = (0.4, 0.1)
    smooth_difference: float = 1e-3
    stop_difference: float = 3e-2
    contact_differences: tuple[float, float] = (2e-2, 3e-3)
    frames: int = 80
    observations: float = 30.0
    search_steps: int = 16_000
    descent_steps: int = 48_000
    threads: int = 0
    dissipative: bool = False
    checkpoint: Path | None = None


@dataclass(frozen=True, eq=False)
class RecordedScene:
    """A scene with its parameters, and recordings of it.

    Attributes:
        scene: The scene with the parameters to identify.
        motion: The recordings.
        states: Joint coordinates of the recordings.
        contacts: When bodies touch in them.
    """

    scene: MotionScene
    motion: ObservedMotion
    states: tuple[JointStates, ...]
    contacts: ContactTimes

    @property
    def has_contact(self) -> bool:
        """Whether bodies touch in the recordings."""
        return bool(self.contacts.touching)

    def subset(self, rows: Sequence[int] | np.ndarray) -> RecordedScene:
        """The same scene with only some of the trials."""
        kept = [int(row) for row in rows]
        trials = tuple(self.motion.trials[row] for row in kept)
        contacts = replace(
            self.contacts,
            first=self.contacts.first[kept],
            from_start=self.contacts.from_start[kept],
        )
        return replace(
            self,
            motion=replace(self.motion, trials=trials),
            states=tuple(self.states[row] for row in kept),
            contacts=contacts,
        )

    def whole(self) -> tuple[Segment, ...]:
        """Each trial as one segment."""
        return whole_trials(self.motion, self.contacts)

    def problem(
        self,
        segments: tuple[Segment, ...],
        config: MotionFitConfig,
        scene: MotionScene | None = None,
    ) -> MotionProblem:
        """Segments to simulate, of this scene or of the same with other parameters."""
        return MotionProblem(
            self.scene if scene is None else scene,
            self.motion,
            self.states,
            segments,
            frames=config.frames,
            threads=config.threads,
        )
