"""Segmentation: from recorded motion to impacts.

Each impact has the twists on its two sides, their errors, and the slide that follows. The steps for
one trial are: from poses to coordinates of the mass centre (`trajectory`), velocity jumps in them
(`velocity_jumps`), motions fitted on the two sides of each jump (`side_fits`), and from these the
impact (`measurement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.segmentation.measurement import ImpactStatus, measure_impact
from clashsim.data.segmentation.noise import estimate_noise, frame_noise
from clashsim.data.segmentation.pair_setup import (
    DecelerationPrior,
    PairSetup,
    SegmentConfig,
    make_setup,
)
from clashsim.data.segmentation.recorded_pair import RecordedPair
from clashsim.data.segmentation.result import MeasuredImpact, Segmentation
from clashsim.data.segmentation.side_fits import MIN_SIDE_FRAMES, is_one_slide
from clashsim.data.segmentation.trajectory import Trajectory
from clashsim.data.segmentation.velocity_jumps import VelocityJump, find_velocity_jumps
from clashsim.slides.trajectory import SlideMotion

_MIN_FRAMES = 12  # of a body, below which a trial is not looked at
_PILOT_TRIALS = 12  # from which the deceleration of slides is learned
_MIN_PILOT_SLIDES = 4
# Smallest standard deviation of the logarithm of decelerations on one table.
_MIN_DECELERATION_STD = 0.15
# Standard deviation of normal values over their median absolute deviation, about.
_STD_OVER_MEDIAN_DEVIATION = 1.5


def segment(
    trials: Trials | Sequence[Trial],
    *,
    scene: Scene | None = None,
    struck: str | None = None,
    striker: str | None = None,
    config: SegmentConfig = SegmentConfig(),
) -> Segmentation:
    """Find the impacts of the struck body and measure the twists on their two sides.

    The twist before is fitted to frames before the impact only, the twist after to frames after it.

    Args:
        trials: Recorded motion.
        scene: The scene, which gives the bodies, the plane, the mass centre and gravity.
        struck: Name of the struck body in the trials; None for the scene's.
        striker: Name of the striker in the trials; None for the scene's, or for a wall or floor
            that was not recorded.
        config: Further options.

    Returns:
        The impacts with their errors, and a note on each thing that was left out.

    Raises:
        DataError: An option is not valid, or the struck body is in no trial.
    """
    setup = make_setup(scene, struck, striker, config)
    if len(trials) == 0:
        raise DataError("there are no trials to look for impacts in")
    step = -(-len(trials) // _PILOT_TRIALS)  # rounded up
    pilot_trials = [trials[i] for i in range(0, len(trials), step)]
    setup = replace(setup, deceleration=_learn_deceleration(pilot_trials, setup))
    impacts: list[MeasuredImpact] = []
    notes: list[str] = []
    for trial in trials:
        found = _segment_trial(trial, setup)
        impacts += found.impacts
        notes += found.notes
    if not any(np.isfinite(trial.poses[setup.struck]).all(1).any() for trial in trials):
        raise DataError(
            f"the struck body {setup.struck!r} is not seen in any of the {len(trials)} trials"
        )
    known = _known_values(trials, impacts)
    return Segmentation(setup.planar, tuple(impacts), tuple(notes), known)


@dataclass(frozen=True, eq=False)
class _TrialImpacts:
    """Impacts of one trial, and a note on each jump that was left out."""

    impacts: list[MeasuredImpact]
    notes: list[str]


def _learn_deceleration(trials: Sequence[Trial], setup: PairSetup) -> DecelerationPrior:
    """The deceleration that the slides of these trials have in common, since they are on one table.

    It supports the fit of a short slide, whose own frames show the deceleration poorly.
    """
    if not setup.planar:
        return setup.deceleration
    decelerations = []
    for trial in trials:
        for impact in _segment_trial(trial, setup).impacts:
            if isinstance(impact.motion, SlideMotion):
                decelerations.append(impact.motion.deceleration)
    if len(decelerations) < _MIN_PILOT_SLIDES:
        return setup.deceleration
    logarithms = np.log(decelerations)
    median = np.median(logarithms)
    std = _STD_OVER_MEDIAN_DEVIATION * float(np.median(np.abs(logarithms - median)))
    return DecelerationPrior(float(median), max(_MIN_DECELERATION_STD, std))


def _known_values(
    trials: Trials | Sequence[Trial], impacts: Sequence[MeasuredImpact]
) -> dict[str, np.ndarray]:
    """Values (N,) of the parameters that all trials give, one for each impact, by name."""
    by_name = {trial.name: trial for trial in trials}
    shared = set.intersection(*(set(trial.known) for trial in trials))
    known = {}
    for key in sorted(shared):
        known[key] = np.array([by_name[impact.trial].known[key] for impact in impacts], float)
    return known


def _segment_trial(trial: Trial, setup: PairSetup) -> _TrialImpacts:
    """Find and measure the impacts of one trial."""
    label = f"trial {trial.name!r}"
    struck = Trajectory.of(trial, setup.struck, setup.frame)
    striker = None
    if setup.striker is not None:
        striker = Trajectory.of(trial, setup.striker, setup.striker_frame)
    if len(struck) < _MIN_FRAMES:
        seen = f"body {setup.struck!r} is seen in {len(struck)} frames"
        return _TrialImpacts([], [f"{label}: {seen}, at least {_MIN_FRAMES} are needed"])
    if striker is not None and len(striker) < MIN_SIDE_FRAMES:
        seen = f"striker {setup.striker!r} is seen in {len(striker)} frames"
        return _TrialImpacts([], [f"{label}: {seen}, at least {MIN_SIDE_FRAMES} are needed"])
    noise = _noise(struck)
    jumps = find_velocity_jumps(
        struck.t,
        struck.detection_coordinates(),
        noise[:, :3],
        length_scale=setup.length_scale[:3],
        min_jump=setup.min_jump,
    )
    striker_noise = None
    if striker is not None and len(striker) >= _MIN_FRAMES:
        striker_noise = _noise(striker)
    pair = RecordedPair(trial.name, struck, noise, striker, striker_noise)
    found = _measure_jumps(pair, setup, jumps)
    notes = [f"{label} at {note}" for note in found.notes]
    if not found.impacts:
        notes.append(f"no impact found in {label}")
    return _TrialImpacts(found.impacts, notes)


def _noise(body: Trajectory) -> np.ndarray:
    """Standard deviations (n, k) of the coordinates of a body."""
    coordinates = body.detection_coordinates()
    angles = 1 if body.frame.planar else 0  # how many of the three coordinates are angles
    rest_noise = estimate_noise(body.t, coordinates, angles=angles)
    noise = frame_noise(body.t, coordinates, rest_noise, angles=angles)
    if body.frame.planar:
        return noise
    # Zeros for the three coordinates of the rotation, whose noise `side_fits` estimates on each
    # side of an impact.
    return np.hstack([noise, np.zeros_like(noise)])


def _measure_jumps(
    pair: RecordedPair, setup: PairSetup, jumps: list[VelocityJump]
) -> _TrialImpacts:
    """Measure the impacts at velocity jumps.

    A jump that proves to be no sudden change of velocity is removed, and all others are measured
    again: the removed jump had cut the windows of its neighbours short.
    """
    notes: list[str] = []
    while True:
        impacts: list[MeasuredImpact] = []
        left_out: list[str] = []
        no_jumps: list[VelocityJump] = []
        index = 0
        while index < len(jumps):
            while index + 1 < len(jumps) and is_one_slide(
                pair.struck, pair.noise, setup, jumps=jumps, index=index
            ):
                # The next jump is only where the slide comes to rest.
                jumps = jumps[: index + 1] + jumps[index + 2 :]
            jump = jumps[index]
            result = measure_impact(pair, setup, jumps=jumps, index=index)
            if result.impact is not None:
                impacts.append(result.impact)
            elif result.status is ImpactStatus.NO_JUMP:
                no_jumps.append(jump)
                notes.append(f"{jump.time:.3f} s: {result.reason}")
            else:
                left_out.append(f"{jump.time:.3f} s: {result.reason}")
            index += 1
        if not no_jumps:
            return _TrialImpacts(impacts, notes + left_out)
        jumps = [jump for jump in jumps if not any(jump is other for other in no_jumps)]
