"""What `segment` returns: impacts with their errors, and the slides that follow them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.impacts import Impacts
from clashsim.data.segmentation.fitted_motion import FittedMotion
from clashsim.data.segmentation.trajectory import Trajectory
from clashsim.slides.slide import Slide

# The last part of a slide, which shows whether the body has come to rest: the longer of the two.
_END_FRAMES = 5
_END_DURATION = 0.025  # s
# Share of the slide's first speed below which it has ended: a hundredth of its path is left then.
_REST_SHARE = 0.1
_MIN_SLIDE_FRAMES = 8


@dataclass(frozen=True, eq=False)
class MeasuredImpact:
    """One impact of one trial.

    Attributes:
        trial: Name of the trial.
        time: Time of the impact in the trial, s.
        before: State (d,) before the impact, as a row of `Impacts.before`.
        after: Twist (k,) of the struck body after it, as a row of `Impacts.after`.
        before_std: Standard deviations (2 k,) of the twists before: struck body, then striker.
        after_std: Standard deviations (k,) of `after`.
        flags: Reasons why the impact may be wrong; empty if there are none.
        slide: The slide that follows; None in space or where it is too short.
        motion: Motion of the struck body after the impact.
        trajectory: The frames that `motion` was fitted to.
        reference: The `reference` (s) of `Trajectory.coordinates` that `motion` was fitted with.
        striker_after: Twist (k,) of the striker after it; None where it is driven, or was not seen.
        one_contact: Whether it is one contact; False in space where frames do not follow the
            motions on its two sides, or these do not meet. Its twists are then those around several
            contacts.
    """

    trial: str
    time: float
    before: np.ndarray
    after: np.ndarray
    before_std: np.ndarray
    after_std: np.ndarray
    flags: tuple[str, ...]
    slide: Slide | None
    motion: FittedMotion
    trajectory: Trajectory
    reference: float
    striker_after: np.ndarray | None = None
    one_contact: bool = True

    def after_at(self, lag: float) -> np.ndarray:
        """Twist (k,) of the struck body's origin `lag` seconds after the impact."""
        _, twist = origin_state(self.trajectory, self.motion, self.reference, self.time + lag)
        return twist

    def slide_at(self, lag: float) -> tuple[Slide, np.ndarray] | None:
        """The slide of the struck body's origin from `lag` seconds after the impact.

        Args:
            lag: Time after the impact at which the slide starts, s.

        Returns:
            The slide and the twist (3,) at its start. None where nothing slid, or the body was not
            seen to come to rest: hit again, lost from view, or recorded too briefly.
        """
        if self.slide is None:
            return None
        start = self.time + lag
        start_pose, start_twist = origin_state(self.trajectory, self.motion, self.reference, start)
        later = self.slide.t > start
        t = self.slide.t[later]
        coordinates = np.column_stack([self.slide.xy, self.slide.yaw])[later]
        if len(t) < _MIN_SLIDE_FRAMES:
            return None
        # Sliding and turning end together, so the position alone shows whether the body is at rest.
        at_end = t >= min(t[-_END_FRAMES], t[-1] - _END_DURATION)
        line = np.polynomial.polynomial.polyfit(t[at_end] - t[-1], coordinates[at_end, :2], 1)
        _, end_velocity = line
        end_speed = np.linalg.norm(end_velocity)
        start_speed = np.linalg.norm(self.motion.rate(np.array([start]))[0, :2])
        if end_speed > _REST_SHARE * start_speed:
            return None
        unused_rate = np.zeros(3)  # the pose does not depend on it
        poses = [start_pose]
        for time, row in zip(t, coordinates, strict=True):
            pose, _ = self.trajectory.origin_state(
                self.reference, time, coordinates=row, rate=unused_rate
            )
            poses.append(pose)
        origin_pose = np.array(poses)  # x, y, yaw
        slide = Slide(np.append(start, t), origin_pose[:, :2], origin_pose[:, 2])
        return slide, start_twist


@dataclass(frozen=True, eq=False)
class Segmentation:
    """All impacts found in trials.

    Attributes:
        planar: Whether motion was described in a plane.
        found: The impacts, in order of trial and time.
        notes: One sentence for each thing that was left out.
        known: Values (N,) that the trials give for each impact, by parameter name.
    """

    planar: bool
    found: tuple[MeasuredImpact, ...]
    notes: tuple[str, ...]
    known: dict[str, np.ndarray]

    @property
    def impacts(self) -> Impacts:
        """The impacts as one table; N may be 0."""
        # Before: pose and twist of two bodies. After: one twist.
        before_width, after_width = (12, 3) if self.planar else (26, 6)
        return Impacts(
            self.planar,
            np.array([impact.before for impact in self.found]).reshape(-1, before_width),
            np.array([impact.after for impact in self.found]).reshape(-1, after_width),
            known=self.known,
            striker_after=self._striker_after,
        )

    @property
    def _striker_after(self) -> np.ndarray | None:
        """Twists (N, k) of the strikers after; None where none was measured."""
        twists = [impact.striker_after for impact in self.found]
        if all(twist is None for twist in twists):
            return None
        unknown = np.full(3 if self.planar else 6, np.nan)
        return np.array([unknown if twist is None else twist for twist in twists])

    @property
    def trial(self) -> np.ndarray:
        """Names (N,) of the trials."""
        return np.array([impact.trial for impact in self.found], dtype=str)

    @property
    def time(self) -> np.ndarray:
        """Times (N,) of the impacts in their trials, s."""
        return np.array([impact.time for impact in self.found], dtype=float)

    @property
    def after_std(self) -> np.ndarray:
        """Standard deviations (N, k) of `impacts.after`."""
        width = 3 if self.planar else 6  # one twist
        stds = [impact.after_std for impact in self.found]
        return np.array(stds).reshape(len(self.found), width)

    @property
    def before_std(self) -> np.ndarray:
        """Standard deviations (N, 2 k) of the twists before: struck body, then striker."""
        width = 6 if self.planar else 12  # two twists
        stds = [impact.before_std for impact in self.found]
        return np.array(stds).reshape(len(self.found), width)

    @property
    def clean(self) -> np.ndarray:
        """Which impacts (N,) have no flag."""
        return np.array([not impact.flags for impact in self.found], dtype=bool)

    def select(self, rows: np.ndarray) -> Segmentation:
        """Those of the impacts, by mask (N,) or indices (m,)."""
        found = tuple(self.found[row] for row in np.arange(len(self.found))[rows])
        known = {name: values[rows] for name, values in self.known.items()}
        return replace(self, found=found, known=known)

    @property
    def one_contact(self) -> np.ndarray:
        """Which impacts (N,) are one contact."""
        return np.array([impact.one_contact for impact in self.found], dtype=bool)

    @property
    def slides(self) -> tuple[Slide, ...]:
        """The slides after the impacts, from which the ground's friction follows."""
        return tuple(impact.slide for impact in self.found if impact.slide is not None)

    def after_at(self, lag: float) -> np.ndarray:
        """Twists (N, k) of the struck body `lag` seconds after each impact."""
        twists = [impact.after_at(lag) for impact in self.found]
        return np.array(twists).reshape(self.after_std.shape)


def origin_state(
    trajectory: Trajectory, motion: FittedMotion, reference: float, time: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pose and twist of a body's origin, from the motion fitted to its mass centre.

    Args:
        trajectory: The frames of the body.
        motion: Motion fitted to the trajectory's coordinates.
        reference: The `reference` (s) of `Trajectory.coordinates` that `motion` was fitted with.
        time: Time (s) of the state.

    Returns:
        Pose (3,) and twist (3,) in the plane's axes, or pose (7,) and twist (6,) in world axes.
    """
    now = np.array([time])
    return trajectory.origin_state(
        reference, time, coordinates=motion.coordinates(now)[0], rate=motion.rate(now)[0]
    )
