"""The measurement of one impact: the twists on its two sides, their errors, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import rotate_planar
from clashsim.core.impacts import MotionBefore
from clashsim.data.segmentation.fitted_motion import FittedMotion
from clashsim.data.segmentation.pair_setup import PairSetup
from clashsim.data.segmentation.recorded_pair import RecordedPair
from clashsim.data.segmentation.result import MeasuredImpact, origin_state
from clashsim.data.segmentation.side_fits import (
    GUARDS_AFTER,
    MARGIN_BEFORE,
    MIN_SIDE_FRAMES,
    TIME_AFTER,
    TIME_BEFORE,
    FitWindow,
    SideFits,
    fit_free_motion,
    fit_sides,
)
from clashsim.data.segmentation.striker_outcome import striker_twist_after
from clashsim.data.segmentation.trajectory import Trajectory
from clashsim.data.segmentation.velocity_jumps import VelocityJump
from clashsim.slides.slide import Slide
from clashsim.slides.trajectory import SlideMotion

# Share of the speed after an impact that is added to its error: a struck body hops and rocks for a
# few frames, which no smooth motion follows.
_ROCKING_SHARE = 0.015
_MIN_JUMP_STD = 5.0  # standard deviations by which the velocities on the two sides must differ
# Rms residual over noise above which frames do not follow the motion fitted to them.
_MAX_MISFIT = 4.0
_FIRST_FRAMES = 0.05  # s after an impact in which a second hit or a push would show
# How far the fitted time of impact may be from the detected jump: some frames plus a fixed time.
_MAX_SHIFT_FRAMES = 3
_MAX_SHIFT = 0.02  # s: beyond this the change of velocity was not sudden
_MAX_REFINING_SHIFT = 0.01  # s: beyond this the fitted time is not used for the next fit
_QUICK_SUCCESSION = 0.05  # s between two jumps
_MAX_STRIKER_AGE = 0.1  # s since the striker's last frame
_MIN_SLIDE_FRAMES = 8
_TIME_AFTER_REST = 0.1  # s of a slide that are kept after the body has come to rest


class ImpactStatus(Enum):
    """Whether a velocity jump is an impact, and whether that impact could be measured."""

    MEASURED = "measured"
    NOT_MEASURABLE = "an impact that cannot be measured"
    NO_JUMP = "no sudden change of velocity"


@dataclass(frozen=True, eq=False)
class ImpactResult:
    """The impact at a velocity jump, or None and the reason why it is left out."""

    status: ImpactStatus
    impact: MeasuredImpact | None = None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _GuardedFits:
    """Fits around a refined time of impact.

    Attributes:
        fits: The motions on the two sides.
        reference: The `reference` (s) of `Trajectory.coordinates` that the fits used.
        guard: Time after the impact whose frames were left out, s.
        flags: Reasons why the fits may be wrong.
        one_contact: Whether they are the motions on the two sides of one contact.
    """

    fits: SideFits
    reference: float
    guard: float
    flags: tuple[str, ...]
    one_contact: bool


@dataclass(frozen=True, eq=False)
class _StrikerState:
    """The striker's origin at the impact.

    Attributes:
        pose: Pose (3,) in the plane's axes, or (7,) in world axes.
        twist: Twist (k,), m/s and rad/s.
        twist_std: Standard deviations (k,) of the twist.
    """

    pose: np.ndarray
    twist: np.ndarray
    twist_std: np.ndarray


def measure_impact(
    pair: RecordedPair, setup: PairSetup, *, jumps: Sequence[VelocityJump], index: int
) -> ImpactResult:
    """Measure the impact at one velocity jump.

    Args:
        pair: The recorded bodies.
        setup: What is the same for all trials.
        jumps: Velocity jumps of the struck body in order of time.
        index: Index in `jumps` of the one to measure.

    Returns:
        The impact, or the reason why there is none to measure.
    """
    jump = jumps[index]
    # Only frames between the neighbouring jumps belong to this one.
    start = jumps[index - 1].high if index else -np.inf
    end = jumps[index + 1].low if index + 1 < len(jumps) else np.inf
    frame_duration = pair.struck.frame_duration
    # The jump may be half a frame earlier or later, so that much is left out on each side.
    first_window = FitWindow(
        near=jump.time,
        start=start,
        end=end,
        guard=max(0.5 * frame_duration, GUARDS_AFTER[0]),
        margin=0.5 * frame_duration,
    )
    first = fit_sides(pair.struck, pair.noise, setup, window=first_window)
    if first.fits is None:
        reason = f"an impact with {first.reason}"
        if _is_quick_succession(jumps, index):
            reason += ": two hits in quick succession"
        return ImpactResult(ImpactStatus.NOT_MEASURABLE, reason=reason)
    guarded = _fit_with_guards(pair, setup, first=first.fits, window=first_window)
    fits = guarded.fits
    shift = abs(fits.time - jump.time)
    if shift > _MAX_SHIFT_FRAMES * frame_duration + _MAX_SHIFT:
        reason = (
            "a change of velocity that is not sudden"
            f" (its two sides meet {1e3 * shift:.0f} ms away)"
        )
        return ImpactResult(ImpactStatus.NO_JUMP, reason=reason)
    size, size_std = _jump_size(fits, setup.length_scale)
    if size < max(setup.min_jump, _MIN_JUMP_STD * size_std):
        reason = f"a change of velocity by {size:.3f} m/s, too small to be certain"
        return ImpactResult(ImpactStatus.NO_JUMP, reason=reason)

    pose, twist = origin_state(pair.struck, fits.before, guarded.reference, fits.time)
    separation_time = fits.time + setup.lag
    _, twist_after = origin_state(pair.struck, fits.after, guarded.reference, separation_time)
    at_rest = np.zeros(len(twist))
    striker = _StrikerState(setup.striker_rest_pose, twist=at_rest, twist_std=at_rest)
    if pair.striker is not None:
        seen = _striker_state(pair.striker, fits.time)
        if seen is None:
            reason = f"an impact at which striker {setup.striker!r} was not seen"
            return ImpactResult(ImpactStatus.NOT_MEASURABLE, reason=reason)
        striker = seen
        if not _can_be_strikers(
            setup, pose=pose, twist=twist, twist_after=twist_after, striker=striker
        ):
            reason = (
                "an impact that is not the striker's"
                f" ({setup.striker!r} is elsewhere or moves the other way)"
            )
            return ImpactResult(ImpactStatus.NOT_MEASURABLE, reason=reason)
    before_std = _origin_twist_std(pair.struck, fits.before.std)
    measured_after = twist_after
    if setup.measurable is not None:
        measured_after = np.where(setup.measurable, twist_after, np.nan)
    slide = None
    if not setup.rotates_on_joints:
        slide = _slide_after(pair.struck, guarded, end=end)
    impact = MeasuredImpact(
        trial=pair.trial,
        time=fits.time,
        before=np.concatenate([pose, twist, striker.pose, striker.twist]),
        after=measured_after,
        before_std=np.concatenate([before_std, striker.twist_std]),
        after_std=_origin_twist_std(pair.struck, _rate_std_after(fits, setup)),
        flags=guarded.flags,
        slide=slide,
        motion=fits.after,
        trajectory=pair.struck,
        reference=guarded.reference,
        striker_after=striker_twist_after(pair, setup, fits.time),
        one_contact=guarded.one_contact,
    )
    return ImpactResult(ImpactStatus.MEASURED, impact=impact)


def _is_quick_succession(jumps: Sequence[VelocityJump], index: int) -> bool:
    """Whether the previous or the next jump is less than `_QUICK_SUCCESSION` away."""
    with_neighbours = jumps[max(index - 1, 0) : index + 2]
    gaps = np.diff([jump.time for jump in with_neighbours])
    return min(gaps, default=np.inf) < _QUICK_SUCCESSION


def _fit_with_guards(
    pair: RecordedPair, setup: PairSetup, *, first: SideFits, window: FitWindow
) -> _GuardedFits:
    """Fit again around the refined time of impact.

    Longer and longer times after the impact are left out, until the remaining frames follow the
    motion that is fitted to them.

    Args:
        pair: The recorded bodies.
        setup: What is the same for all trials.
        first: Fits in the first window, whose time of impact is the refined one.
        window: The first window.

    Returns:
        The last fits, with a flag for everything that makes them doubtful.
    """
    near = window.near
    max_shift = _MAX_SHIFT_FRAMES * pair.struck.frame_duration + _MAX_REFINING_SHIFT
    if abs(first.time - near) < max_shift:
        near = first.time
    fits = first
    flags: list[str] = []
    for guard in GUARDS_AFTER:
        guarded = FitWindow(near, window.start, window.end, guard=guard)
        result = fit_sides(pair.struck, pair.noise, setup, window=guarded)
        if result.fits is None:
            break
        fits = result.fits
        first_misfit = _first_misfit(pair, fits.after, reference=near, start=near + guard)
        if first_misfit < _MAX_MISFIT and fits.after.misfit < _MAX_MISFIT:
            break
    else:
        flags.append("frames after it do not follow one motion: a double hit or a push")
    # Of motion in the plane, frames long before it may follow no polynomial: a push, a stop.
    if not setup.planar and fits.before.misfit > _MAX_MISFIT:
        flags.append("frames before it do not follow one motion: an earlier contact")
    if not fits.meet:
        flags.append("the motions before and after it do not meet: several contacts")
    is_long = guard > GUARDS_AFTER[0]
    if setup.rotates_on_joints:
        # Such a body does not rock, so it touched again, or came to rest against the striker.
        one_contact = not flags and not is_long
    else:
        # In the plane these flags do not show it: of 24 recorded strikes by a robot, the five after
        # which it pushed on agree as well with what their authors measured as the others.
        one_contact = setup.planar or not flags
    if is_long:
        flags.append(f"long contact: frames within {1e3 * guard:.0f} ms are left out")
    return _GuardedFits(fits, near, guard, tuple(flags), one_contact)


def _first_misfit(
    pair: RecordedPair, motion: FittedMotion, *, reference: float, start: float
) -> float:
    """Root mean square of residual over noise in the first frames after time `start`.

    All coordinates of the plane are compared, but only the position in space: there
    `RecordedPair.noise` has no values for rotations.
    """
    t = pair.struck.t
    rows = (t >= start) & (t < start + _FIRST_FRAMES)
    if not rows.any():
        return 0.0
    measured = pair.struck.coordinates(reference)[rows]
    residuals = (motion.coordinates(t[rows]) - measured)[:, :3] / pair.noise[rows, :3]
    return float(np.sqrt((residuals**2).mean()))


def _jump_size(fits: SideFits, length_scale: np.ndarray) -> tuple[float, float]:
    """Size of the velocity jump and its standard deviation along the jump, m/s.

    In the plane it includes the yaw rate, by `length_scale`. In space it is the linear velocity.
    """
    at_impact = np.array([fits.time])
    change = (fits.after.rate(at_impact) - fits.before.rate(at_impact))[0] * length_scale
    std = np.hypot(fits.after.std, fits.before.std) * length_scale
    jump = change[:3]
    size = float(np.linalg.norm(jump))
    size_std = float(np.linalg.norm(std[:3] * jump) / max(size, 1e-12))  # never divides by zero
    return size, size_std


def _rate_std_after(fits: SideFits, setup: PairSetup) -> np.ndarray:
    """Standard deviations (k,) of the rates after the impact.

    Poses do not show when the pair separates. The time is taken as uniformly distributed from 0 to
    2 lag after the impact, so the rate that friction removes in that time adds to the error. The
    rocking of the body adds to it as well.
    """
    at_impact = np.array([fits.time])
    latest_separation = np.array([fits.time + 2 * setup.lag])
    rate = fits.after.rate(at_impact)
    range_over_std = np.sqrt(12)  # of a uniform distribution
    separation_std = (rate - fits.after.rate(latest_separation))[0] / range_over_std
    speed = float(np.linalg.norm(rate[0] * setup.length_scale))
    rocking_std = _ROCKING_SHARE * speed / setup.length_scale
    return np.sqrt(fits.after.std**2 + separation_std**2 + rocking_std**2)


def _striker_state(striker: Trajectory, time: float) -> _StrikerState | None:
    """The striker at the time of impact; None where it was not seen."""
    rows = (striker.t > time - TIME_BEFORE) & (striker.t <= time - MARGIN_BEFORE)
    if rows.sum() < MIN_SIDE_FRAMES or time - striker.t[rows][-1] > _MAX_STRIKER_AGE:
        return None
    coordinates = striker.coordinates(time)[rows]
    # With zeros, `fit_free_motion` takes the noise that it estimates from these frames.
    no_noise = np.zeros_like(coordinates)
    motion = fit_free_motion(striker.t[rows], coordinates, no_noise, origin=time)
    pose, twist = origin_state(striker, motion, reference=time, time=time)
    return _StrikerState(pose, twist, motion.std)


def _can_be_strikers(
    setup: PairSetup,
    *,
    pose: np.ndarray,
    twist: np.ndarray,
    twist_after: np.ndarray,
    striker: _StrikerState,
) -> bool:
    """Whether the striker was near, approached, and pushed the struck body away from itself.

    Args:
        setup: What is the same for all trials.
        pose: Pose (3,) or (7,) of the struck body at the impact.
        twist: Twist (k,) of the struck body before the impact.
        twist_after: Twist (k,) of the struck body after the impact.
        striker: The striker at the impact.
    """
    axes = 2 if setup.planar else 3  # of position and linear velocity, which come first
    is_near = np.linalg.norm((pose - striker.pose)[:axes]) <= setup.max_distance
    if setup.rotates_on_joints:
        # The origin may be on the axis, and not move: what counts is the place that is hit.
        motion = MotionBefore.of(np.concatenate([pose, twist, striker.pose, striker.twist])[None])
        after = MotionBefore.of(
            np.concatenate([pose, twist_after, striker.pose, striker.twist])[None]
        )
        place = _striker_centre(setup, striker.pose)[None]
        struck_velocity = motion.struck.velocity_at(place)[0]
        approach = motion.striker.velocity_at(place)[0] - struck_velocity
        change = after.struck.velocity_at(place)[0] - struck_velocity
        return bool(change @ approach > 0 and is_near)
    separation = (pose - striker.pose)[:axes]
    approach = (striker.twist - twist)[:axes]
    change = (twist_after - twist)[:axes]
    is_pushed = change @ approach > 0
    is_approached = separation @ approach > 0
    return bool(is_pushed and is_approached and is_near)


def _striker_centre(setup: PairSetup, pose: np.ndarray) -> np.ndarray:
    """Centre (2,) or (3,) of the striker's geom, m, in the plane's or the world's axes."""
    plane = setup.striker_frame.plane
    if plane is None:
        rotation = Rotation.from_quat(pose[3:], scalar_first=True)
        return pose[:3] + rotation.apply(setup.striker_centre)
    at_zero_yaw = plane[:2] @ (setup.striker_frame.rotation @ setup.striker_centre)
    return pose[:2] + rotate_planar(at_zero_yaw[None], pose[2:3])[0]


def _slide_after(struck: Trajectory, guarded: _GuardedFits, *, end: float) -> Slide | None:
    """The slide after an impact in the plane, up to the time `end`; None where it is too short."""
    if not struck.frame.planar:
        return None
    motion = guarded.fits.after
    time = guarded.fits.time
    if isinstance(motion, SlideMotion):
        latest = motion.stop + _TIME_AFTER_REST
    else:
        latest = time + TIME_AFTER
    t = struck.t
    rows = (t > time + guarded.guard) & (t < end) & (t < latest)
    if rows.sum() < _MIN_SLIDE_FRAMES:
        return None
    coordinates = struck.coordinates(guarded.reference)[rows]
    return Slide(t[rows], coordinates[:, :2], coordinates[:, 2])


def _origin_twist_std(trajectory: Trajectory, rate_std: np.ndarray) -> np.ndarray:
    """Standard deviations (k,) of the origin's twist from those of the mass centre's rates.

    An error of the angular velocity moves the origin by up to its distance from the mass centre.
    """
    arm = float(np.linalg.norm(trajectory.frame.centre))
    linear_axes = 2 if trajectory.frame.planar else 3
    linear = rate_std[:linear_axes]
    angular = rate_std[linear_axes:]
    return np.concatenate([np.hypot(linear, arm * angular.max()), angular])
