"""The motions on the two sides of an impact, each fitted to its own frames and never across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clashsim.data.segmentation.closest_approach import MAX_DISTANCE, find_closest_approach
from clashsim.data.segmentation.fitted_motion import FittedMotion, closest_time
from clashsim.data.segmentation.noise import downsample, estimate_noise
from clashsim.data.segmentation.pair_setup import PairSetup
from clashsim.data.segmentation.polynomial_motion import (
    Anchor,
    SpatialMotion,
    fit_smooth_motion,
    fit_spatial_motion,
)
from clashsim.data.segmentation.trajectory import Trajectory
from clashsim.data.segmentation.velocity_jumps import VelocityJump
from clashsim.slides.trajectory import SlideMotion, fit_slide_motion

MIN_SIDE_FRAMES = 4  # on each side of an impact, below which its twists are not measured
TIME_BEFORE = 0.3  # s before an impact that are used
TIME_AFTER = 1.5  # s after an impact that are used
# Time before the impact that is left out, since the pair may touch already.
MARGIN_BEFORE = 0.002  # s
# Times after the impact that are left out, since the pair may still touch. They are tried in this
# order until the frames that remain follow one motion.
GUARDS_AFTER = (0.006, 0.02, 0.04)  # s

# The first gap in the frames later than this after an impact ends the fitted window, since the
# clock may have stood still during the gap.
_GAP_START = 0.15  # s
_MIN_GAP = 0.02  # s
_GAP_FACTOR = 3.5  # times the usual step
# How far the body may move during the contact, in standard deviations of a frame.
_SHORT_CONTACT_STD = 0.3
_LONG_CONTACT_STD = 1.5
_FIRST_FRAMES = 3  # after an impact, whose mean noise is that standard deviation of a frame
# Standard deviations of the two poses by which the motions of one contact may miss each other.
_MISS_STD = 3.0

_MAX_SLIDE_MISFIT = 1.3  # rms residual over noise, beyond which a shorter slide is tried
_MIN_SLIDE_FRAMES = 12
_MIN_SLIDE_DURATION = 0.3  # s
_SLIDE_IMPROVEMENT = 0.8  # by which a shorter slide must lower the misfit

# Two jumps may be one slide: its start, and where it comes to rest.
_MAX_SAME_INTERVAL = TIME_AFTER / 2  # s between the two jumps
_MAX_SAME_MISFIT = 1.7  # rms residual over noise around the second jump
_SAME_BEFORE = 0.1  # s before the second jump that are compared
_SAME_AFTER = 0.15  # s after the second jump that are compared


@dataclass(frozen=True)
class FitWindow:
    """Which frames near a jump are used.

    Attributes:
        near: Approximate time of the impact, s.
        start: Time (s) after which frames belong to this impact: the end of the jump before.
        end: Time (s) before which frames belong to this impact: the start of the next jump.
        guard: Time after the impact that is left out, s.
        margin: Time before the impact that is left out, s.
    """

    near: float
    start: float
    end: float
    guard: float
    margin: float = MARGIN_BEFORE


@dataclass(frozen=True, eq=False)
class SideFits:
    """Motions before and after an impact.

    Attributes:
        before: The motion before.
        after: The motion after.
        time: Time of the impact, where the two come closest, s.
        meet: Whether frames in space show that they meet, as on the two sides of one contact; True
            in the plane, where it is not looked at.
    """

    before: FittedMotion
    after: FittedMotion
    time: float
    meet: bool = True


@dataclass(frozen=True, eq=False)
class SideFitResult:
    """The fits, or None and the reason why there are none."""

    fits: SideFits | None
    reason: str = ""


def fit_sides(
    trajectory: Trajectory, noise: np.ndarray, setup: PairSetup, *, window: FitWindow
) -> SideFitResult:
    """Fit the motions before and after a jump.

    Args:
        trajectory: The frames of the struck body.
        noise: Standard deviations (n, k) of its coordinates.
        setup: The pair of bodies.
        window: Which frames are used.

    Returns:
        The two motions with their errors, or the reason why there are too few frames.
    """
    t = trajectory.t
    coordinates = trajectory.coordinates(window.near)
    earliest = max(window.start, window.near - TIME_BEFORE)
    latest = min(window.end, window.near + TIME_AFTER, _next_gap(t, window.near + _GAP_START))
    before = (t > earliest) & (t <= window.near - window.margin)
    after = (t >= window.near + window.guard) & (t < latest)
    if before.sum() < MIN_SIDE_FRAMES or after.sum() < MIN_SIDE_FRAMES:
        counts = f"{int(before.sum())} frames before and {int(after.sum())} after it"
        reason = f"{counts}, at least {MIN_SIDE_FRAMES} are needed on each side"
        return SideFitResult(None, reason)
    frames_before = (t[before], coordinates[before], noise[before])
    motion_before = fit_free_motion(*frames_before, origin=window.near)
    frames_after = _resample(t[after], coordinates[after], noise[after])
    _, _, noise_after = frames_after
    first_noise = noise_after[:_FIRST_FRAMES].mean(0)
    at_impact = np.array([window.near])
    is_short_contact = window.guard <= GUARDS_AFTER[0]
    contact_std = _SHORT_CONTACT_STD if is_short_contact else _LONG_CONTACT_STD
    anchor = Anchor(
        time=window.near,
        coordinates=motion_before.coordinates(at_impact)[0],
        rate=motion_before.rate(at_impact)[0],
        std=np.hypot(motion_before.coordinates_std, contact_std * first_noise),
    )
    if setup.planar and setup.rotates_on_joints:
        return SideFitResult(_fit_smooth_after(motion_before, frames_after, anchor))
    if setup.planar:
        slide = _fit_slide(frames_after, setup, anchor)
        return SideFitResult(SideFits(motion_before, slide, slide.impact_time))
    assert isinstance(motion_before, SpatialMotion)
    last_before = float(t[before][-1])
    radius = setup.gyration_radius
    fits = _fit_flight_after(
        motion_before, frames_after, anchor, last_before=last_before, radius=radius
    )
    return SideFitResult(fits)


def fit_free_motion(
    t: np.ndarray, coordinates: np.ndarray, noise: np.ndarray, *, origin: float
) -> FittedMotion:
    """Fit the motion before an impact: polynomials, over as many frames as agree with them.

    Args:
        t: Times (n,), s.
        coordinates: Coordinates (n, 3) in the plane or (n, 6) in space.
        noise: Standard deviations (n, k) of the coordinates.
        origin: Time of the impact, s.

    Returns:
        The motion with its errors at the impact.
    """
    frames = _resample(t, coordinates, noise)
    is_planar = coordinates.shape[1] == 3
    if is_planar:
        return fit_smooth_motion(*frames, origin=origin)
    return fit_spatial_motion(*frames, origin=origin)


def is_one_slide(
    trajectory: Trajectory,
    noise: np.ndarray,
    setup: PairSetup,
    *,
    jumps: Sequence[VelocityJump],
    index: int,
) -> bool:
    """Whether one slide from a jump goes through the next jump as well.

    Then nothing hit the body at the second jump: it came to rest there.

    Args:
        trajectory: The frames of the struck body.
        noise: Standard deviations (n, k) of its coordinates.
        setup: The pair of bodies.
        jumps: Jumps of the trajectory in order of time.
        index: Index in `jumps` of the first of the two.

    Returns:
        True if the frames around the second jump follow the slide that starts at the first.
    """
    first = jumps[index]
    second = jumps[index + 1]
    slides = setup.planar and not setup.rotates_on_joints
    if not slides or second.time - first.time > _MAX_SAME_INTERVAL:
        return False
    start = jumps[index - 1].high if index else -np.inf
    following = jumps[index + 2].low if index + 2 < len(jumps) else np.inf
    end = min(following, second.time + _SAME_AFTER)
    window = FitWindow(first.time, start, end, guard=GUARDS_AFTER[0])
    fits = fit_sides(trajectory, noise, setup, window=window).fits
    if fits is None:
        return False
    t = trajectory.t
    rows = (t > first.time + GUARDS_AFTER[0]) & (t > second.time - _SAME_BEFORE) & (t < end)
    if rows.sum() < MIN_SIDE_FRAMES:
        return False
    measured = trajectory.coordinates(first.time)[rows]
    residuals = (fits.after.coordinates(t[rows]) - measured) / noise[rows]
    return bool(np.sqrt((residuals**2).mean()) < _MAX_SAME_MISFIT)


_Frames = tuple[np.ndarray, np.ndarray, np.ndarray]  # times (n,), coordinates (n, k), noise (n, k)


def _fit_smooth_after(before: FittedMotion, frames: _Frames, anchor: Anchor) -> SideFits:
    """Fit the motion after an impact, in the plane, of a body that hinges carry.

    Gravity, springs and the hinges themselves may bend it, so that it is no slide.
    """
    t, coordinates, noise = frames
    rough = fit_smooth_motion(t, coordinates, noise, origin=anchor.time)
    impact_time = closest_time(before, rough, anchor.time, weight=1 / noise.mean(0))
    moved_anchor = replace(
        anchor, time=impact_time, coordinates=before.coordinates(np.array([impact_time]))[0]
    )
    after = fit_smooth_motion(t, coordinates, noise, origin=impact_time, anchor=moved_anchor)
    return SideFits(before, after, impact_time)


def _fit_flight_after(
    before: SpatialMotion, frames: _Frames, anchor: Anchor, *, last_before: float, radius: float
) -> SideFits:
    """Fit the motion after an impact in space, starting where the motion before comes closest.

    Args:
        before: The motion before.
        frames: The frames after.
        anchor: Where the motion after begins.
        last_before: Time of the last frame before, s.
        radius: Length that turns rotations into lengths, m.
    """
    t, coordinates, noise = frames
    near = anchor.time
    rough = fit_spatial_motion(t, coordinates, noise, origin=near)
    # The two motions meet in position; rotations (the last three coordinates) have no weight.
    position_weight = np.where(np.arange(6) < 3, 1 / noise.mean(0), 0.0)
    impact_time = closest_time(before, rough, near, weight=position_weight)
    moved_anchor = Anchor(
        time=impact_time,
        coordinates=before.coordinates(np.array([impact_time]))[0],
        rate=anchor.rate,
        std=anchor.std,
    )
    after = fit_spatial_motion(t, coordinates, noise, origin=impact_time, anchor=moved_anchor)
    closest = find_closest_approach(
        before, rough, start=last_before, end=float(t[0]), radius=radius
    )
    lengths = np.repeat([1.0, radius], 3)
    pose_std = np.hypot(before.coordinates_std, rough.coordinates_std) * lengths
    allowed = MAX_DISTANCE + _MISS_STD * float(np.linalg.norm(pose_std))
    return SideFits(before, after, impact_time, meet=closest.distance <= allowed)


def _fit_slide(frames: _Frames, setup: PairSetup, anchor: Anchor) -> SlideMotion:
    """Fit a slide to rest; while it fits poorly, only to the first half of its frames.

    Late frames may show what the model of a slide leaves out: drag, a bend in the ground, a push.
    """
    slide = _fit_slide_to(frames, setup, anchor)
    while slide.misfit > _MAX_SLIDE_MISFIT:
        t, coordinates, noise = frames
        if len(t) < _MIN_SLIDE_FRAMES or t[-1] - t[0] <= _MIN_SLIDE_DURATION:
            break
        half = len(t) // 2
        frames = (t[:half], coordinates[:half], noise[:half])
        shorter = _fit_slide_to(frames, setup, anchor)
        if shorter.misfit > _SLIDE_IMPROVEMENT * slide.misfit:
            break
        slide = shorter
    return slide


def _fit_slide_to(frames: _Frames, setup: PairSetup, anchor: Anchor) -> SlideMotion:
    """Fit a slide to all of the frames."""
    t, coordinates, noise = frames
    prior = setup.deceleration
    return fit_slide_motion(
        t,
        coordinates,
        noise,
        effective_radius=setup.gyration_radius,
        friction=(prior.log_mean, prior.log_std),
        anchor=anchor,
    )


def _resample(t: np.ndarray, coordinates: np.ndarray, noise: np.ndarray) -> _Frames:
    """Frames of one side, downsampled, with the larger of the given noise and their own.

    The noise is estimated once more from these frames, since jitter of the time stamps shows only
    while the body moves.
    """
    angles = 1 if coordinates.shape[1] == 3 else 3
    own_noise = estimate_noise(t, coordinates, angles=angles)
    return downsample(t, coordinates, np.maximum(noise, own_noise))


def _next_gap(t: np.ndarray, start: float) -> float:
    """Time (s) at which the first long gap in the frames after `start` ends; inf if none does."""
    steps = np.diff(t)
    is_long = steps > max(_MIN_GAP, _GAP_FACTOR * float(np.median(steps)))
    gaps = np.flatnonzero(is_long & (t[1:] > start))
    return float(t[gaps[0] + 1]) if len(gaps) else np.inf
