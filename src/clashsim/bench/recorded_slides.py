"""Recorded slides: where each began, how fast, and where the body came to rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import mujoco
import numpy as np

from clashsim.bench.mujoco_slider import MujocoSlider
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import SupportPatch

REST_FRAMES = 10  # last frames of a recording; their median is the pose at rest


@dataclass(frozen=True, eq=False)
class SlideSet:
    """N slides of one body.

    Attributes:
        name: Name of the data set.
        scene: The scene with the struck body and the striker.
        support_patch: Where the body touches the ground.
        model: The body on its ground in MuJoCo.
        slides: Recorded paths, N.
        pose: Pose of the body's origin where the slide begins, (N, 3): x, y (m), yaw (rad).
        twist: Twist of the body's origin where the slide begins, (N, 3), m/s and rad/s.
        rest: Pose of the body's origin at rest, (N, 3).
        impacts: The strikes before the slides.
        session: Name of the recording session of each slide, (N,).
    """

    name: str
    scene: Scene
    support_patch: SupportPatch
    model: mujoco.MjModel
    slides: tuple[Slide, ...]
    pose: np.ndarray
    twist: np.ndarray
    rest: np.ndarray
    impacts: Impacts
    session: np.ndarray

    def __len__(self) -> int:
        return len(self.slides)

    def subset(self, rows: np.ndarray) -> SlideSet:
        """The slides of some rows."""
        return replace(
            self,
            slides=tuple(self.slides[i] for i in rows),
            pose=self.pose[rows],
            twist=self.twist[rows],
            rest=self.rest[rows],
            impacts=self.impacts[rows],
            session=self.session[rows],
        )

    def thinned(self, most: int) -> SlideSet:
        """At most `most` slides, chosen evenly."""
        rows = np.linspace(0, len(self) - 1, min(most, len(self))).astype(int)
        return self.subset(np.unique(rows))

    @cached_property
    def slider(self) -> MujocoSlider:
        """Simulator of this body's slides in MuJoCo, built once."""
        return MujocoSlider(self.model)


@dataclass(frozen=True, eq=False)
class RecordedSlide:
    """One slide: its path, and the pose at rest (3,)."""

    path: Slide
    rest: np.ndarray

    @staticmethod
    def of(time: np.ndarray, poses: np.ndarray, start: float, first: np.ndarray) -> RecordedSlide:
        """Cut a slide out of a recording.

        Args:
            time: Times of the frames, (T,), s.
            poses: Recorded poses of the body, (T, 3): x, y (m), yaw (rad).
            start: Time at which the slide begins, s.
            first: Pose at that time, (3,). It replaces all poses that were recorded earlier.
        """
        later = time > start
        path = Slide(
            np.append(start, time[later]),
            np.vstack([first[:2], poses[later, :2]]),
            np.append(first[2], poses[later, 2]),
        )
        return RecordedSlide(path, np.median(poses[-REST_FRAMES:], 0))
