"""What `segment` finds: impacts with their errors, where they came from, and the slides that
follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.impacts import Impacts
from clashsim.data.segmentation.polynomial_motion import FittedMotion
from clashsim.data.segmentation.trajectory import Trajectory
from clashsim.slides.slide import Slide

_LAST = (
    5,
    0.025,
)  # frames and s at the end of a slide, the longer of the two, by which it is judged whether the body has come to rest
# Of the speed at its start: a slide that ends slower than this has a hundredth of its way left
_REST = 0.1


@dataclass(frozen=True, eq=False)
class MeasuredImpact:
    """One impact of one trial.

    time: s, of the kink; before (d,), after (k,) as a row of `Impacts`; before_sd (2 k,): of the
    twists of struck body and striker; after_sd (k,); flags: what a user should know, empty if
    nothing; slide: what follows, None in space or where too short.
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
    reference: float  # s, the moment for which the track's coordinates were made

    def after_at(self, lag: float) -> np.ndarray:
        """Twist (k,) of the struck body's origin `lag` seconds after the kink."""
        return origin_state(self.trajectory, self.motion, self.reference, self.time + lag)[1]

    def slide_at(self, lag: float) -> tuple[Slide, np.ndarray] | None:
        """The slide of the struck body's origin from `lag` seconds after the kink, and its twist
        (3,) there.

        None where nothing slid, or the body was not seen to come to rest: hit again, lost from
        view, or recorded too briefly.
        """
        if self.slide is None:
            return None
        at = self.time + lag
        first, twist = origin_state(self.trajectory, self.motion, self.reference, at)
        later = self.slide.t > at
        t, places = self.slide.t[later], np.column_stack([self.slide.xy, self.slide.yaw])[later]
        if len(t) < 8:
            return None
        last = t >= min(t[-_LAST[0]], t[-1] - _LAST[1])
        drift = np.polynomial.polynomial.polyfit(t[last] - t[-1], places[last, :2], 1)[
            1
        ]  # sliding and turning end together, so the way alone will do
        if np.linalg.norm(drift) > _REST * np.linalg.norm(self.motion.rate(np.array([at]))[0, :2]):
            return None
        poses = np.array(
            [
                first,
                *(
                    self.trajectory.origin(self.reference, now, place, np.zeros(3))[0]
                    for now, place in zip(t, places, strict=True)
                ),
            ]
        )
        return Slide(np.append(at, t), poses[:, :2], poses[:, 2]), twist


@dataclass(frozen=True, eq=False)
class Segmentation:
    """All impacts found, in order of trial and time, and a sentence for whatever was left out."""

    planar: bool
    found: tuple[MeasuredImpact, ...]
    notes: tuple[str, ...]
    known: dict[str, np.ndarray]

    @property
    def impacts(self) -> Impacts:
        """The impacts as one table; N may be 0."""
        d, k = (12, 3) if self.planar else (26, 6)
        return Impacts(
            self.planar,
            np.array([f.before for f in self.found]).reshape(-1, d),
            np.array([f.after for f in self.found]).reshape(-1, k),
            known=self.known,
        )

    @property
    def trial(self) -> np.ndarray:
        """Names (N,) of the trials."""
        return np.array([f.trial for f in self.found], dtype=str)

    @property
    def time(self) -> np.ndarray:
        """Times (N,) of the impacts in their trials, s."""
        return np.array([f.time for f in self.found], dtype=float)

    @property
    def after_std(self) -> np.ndarray:
        """Standard deviations (N, k) of `impacts.after`."""
        return np.array([f.after_std for f in self.found]).reshape(
            len(self.found), 3 if self.planar else 6
        )

    @property
    def before_std(self) -> np.ndarray:
        """Standard deviations (N, 2 k) of the twists before: struck body, then striker."""
        return np.array([f.before_std for f in self.found]).reshape(
            len(self.found), 6 if self.planar else 12
        )

    @property
    def clean(self) -> np.ndarray:
        """Which impacts (N,) have no flag."""
        return np.array([not f.flags for f in self.found], dtype=bool)

    @property
    def slides(self) -> tuple[Slide, ...]:
        """The slides after the impacts, for the ground's friction."""
        return tuple(f.slide for f in self.found if f.slide is not None)

    def after_at(self, lag: float) -> np.ndarray:
        """Twists (N, k) of the struck body `lag` seconds after each kink."""
        return np.array([f.after_at(lag) for f in self.found]).reshape(self.after_std.shape)


def origin_state(
    track: Trajectory, motion: FittedMotion, reference: float, moment: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pose and twist of the body's origin at `moment`, of a motion fitted to the track's
    coordinates for `reference`.
    """
    here = np.array([moment])
    return track.origin(reference, moment, motion.coordinates(here)[0], motion.rate(here)[0])
