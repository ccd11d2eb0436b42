"""Segment: from recorded motion to impacts, each with the twists on its two sides, their errors,
and the slide that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.segmentation.polynomial_motion import (
    Anchor,
    FittedMotion,
    crossing,
    in_space,
    smooth,
)
from clashsim.data.segmentation.result import MeasuredImpact, Segmentation, origin_state
from clashsim.data.segmentation.trajectory import MotionFrame, Trajectory, loudness, noise, thinned
from clashsim.data.segmentation.velocity_jumps import VelocityJump, velocity_jumps
from clashsim.slides.slide import Slide
from clashsim.slides.trajectory import SlideMotion, fit_slide_motion

_FEWEST = 12  # frames of a body below which a trial is not looked at
_SIDE = 4  # frames on each side of an impact below which its twists are not told
_BEFORE, _AFTER = 0.3, 1.5  # s before and after an impact that are looked at
_MARGIN = 0.002  # s before the kink that are left out: the pair may touch already
_GUARDS = (
    0.006,
    0.02,
    0.04,
)  # s after the kink that are left out because the pair may touch still; the first that fits is taken
# Share of the speed after an impact: a struck body hops and rocks for a few frames, which no smooth
# motion follows
_ROCK = 0.015
_SURE = 5.0  # standard deviations by which the velocities on the two sides must differ
_ANY = (float(np.log(2.0)), 1.0)  # deceleration of a slide before any was seen
_ALIKE = 0.15  # by how much decelerations of slides on one table differ at least, as logarithms
_PILOT = 12  # trials from which it is learned how strongly slides decelerate
_POOR = 4.0  # rms residual over noise above which frames do not follow the motion fitted to them
_NO_JUMP = "a change of velocity"
_Why = tuple[VelocityJump, str]


@dataclass(frozen=True, eq=False)
class _Setup:
    """What is the same for all trials."""

    struck: str
    striker: str | None
    view: MotionFrame
    striker_view: MotionFrame
    standing: np.ndarray  # (k',) pose of a striker that is not recorded
    lever: float
    least: float
    lag: float
    reach: float  # m between the origins beyond which the pair cannot touch
    friction: tuple[
        float, float
    ]  # what a slide's deceleration is expected to be: its logarithm (m/s^2) and standard deviation


def segment(
    trials: Trials | Sequence[Trial],
    *,
    struck: str | None = None,
    striker: str | None = None,
    scene: Scene | None = None,
    planar: bool | None = None,
    least: float = 0.05,
    lag: float | None = None,
    lever: float | None = None,
    centre: Sequence[float] = (0.0, 0.0, 0.0),
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
) -> Segmentation:
    """Find the impacts of the struck body in each trial and measure the twists on their two sides,
    never across.

    struck, striker: names of bodies in the trials, by default the scene's; a striker of None is a
    wall or floor that was not recorded.
    planar: whether motion is in the plane (the scene's plane, else x y); in space otherwise. least:
    m/s, the smallest jump of velocity
    that counts. lag: s from the kink to the parting, at which the twist after is told (default 11
    ms in the plane, 2 ms in space). Poses do not show when the pair parts, and friction or gravity
    act meanwhile: give it where contact is softer than some 15 ms or friction is high.
    lever: m, radius that turns angles into lengths; centre: m, the struck body's mass centre in its
    frame; gravity: m/s^2, in space. Lever, centre and gravity are the scene's where there is one;
    without one the lever is 0.05.
    """
    setup = _setup(struck, striker, scene, planar, least, lag, lever, centre, gravity)
    if len(trials) == 0:
        raise DataError("there are no trials to look for impacts in")
    setup = replace(
        setup,
        friction=_friction(
            [trials[i] for i in range(0, len(trials), -(-len(trials) // _PILOT))], setup
        ),
    )
    found: list[MeasuredImpact] = []
    notes: list[str] = []
    for trial in trials:
        some, said = _trial(trial, setup)
        found += some
        notes += said
    seen = [trial for trial in trials if np.isfinite(trial.poses[setup.struck]).all(1).any()]
    if not seen:
        raise DataError(
            f"the struck body {setup.struck!r} is not seen in any of the {len(trials)} trials"
        )
    by_name = {trial.name: trial for trial in trials}
    keys = set.intersection(*(set(trial.known) for trial in trials))
    known = {
        key: np.array([by_name[f.trial].known[key] for f in found], float) for key in sorted(keys)
    }
    return Segmentation(setup.view.plane is not None, tuple(found), tuple(notes), known)


def _setup(
    struck: str | None,
    striker: str | None,
    scene: Scene | None,
    planar: bool | None,
    least: float,
    lag: float | None,
    lever: float | None,
    centre: Sequence[float],
    gravity: Sequence[float],
) -> _Setup:
    for name, value in (("least", least), ("lever", lever if lever is not None else 1.0)):
        if not value > 0:
            raise DataError(f"{name} must be above zero, got {value}")
    spatial = planar is False if scene is None else scene.plane is None
    lag = lag if lag is not None else 0.002 if spatial else 0.011
    if not 0 <= lag < 0.5:
        raise DataError(f"lag must be from 0 to 0.5 s, got {lag}")
    if scene is None:
        if struck is None:
            raise DataError("say which body is struck, or give a scene that does")
        plane = None if spatial else np.eye(3)
        view = MotionFrame(plane, np.array(centre, float), np.eye(3), np.array(gravity, float))
        free = MotionFrame(plane, np.zeros(3), np.eye(3), np.zeros(3))
        standing = np.zeros(3) if plane is not None else np.array([0, 0, 0, 1.0, 0, 0, 0])
        return _Setup(
            struck, striker, view, free, standing, lever or 0.05, least, lag, np.inf, _ANY
        )
    if planar is not None and planar != (scene.plane is not None):
        raise DataError(
            f"scene {scene.name!r} is {'planar' if scene.plane is not None else 'spatial'}: leave out planar={planar}"
        )
    body = inertia(scene, scene.struck_body)
    if striker is None and not scene.striker_body.fixed:
        striker = scene.striker_body.name
    standing = MotionBefore.of(PairPoser(scene).striker_at_reference(1)).striker.pose[0]
    return _Setup(
        struck or scene.struck_body.name,
        striker,
        MotionFrame(
            scene.plane,
            np.array(body.centre),
            scene.struck_body.rotation,
            np.array(scene.base.opt.gravity),
        ),
        MotionFrame(scene.plane, np.zeros(3), scene.striker_body.rotation, np.zeros(3)),
        standing,
        lever or body.gyration,
        least,
        lag,
        _reach(scene),
        _ANY,
    )


def _friction(trials: Sequence[Trial], setup: _Setup) -> tuple[float, float]:
    """What slides of these trials have in common: one table, so one deceleration, which a single
    short slide tells poorly.
    """
    if setup.view.plane is None:
        return setup.friction
    slid = [
        f.motion
        for trial in trials
        for f in _trial(trial, setup)[0]
        if isinstance(f.motion, SlideMotion)
    ]
    if len(slid) < 4:
        return setup.friction
    logs = np.log([motion.deceleration for motion in slid])
    return float(np.median(logs)), max(
        _ALIKE, 1.5 * float(np.median(np.abs(logs - np.median(logs))))
    )


def _reach(scene: Scene) -> float:
    """Largest distance (m) of the two bodies' origins at which their geoms can touch, with room for
    what recordings are off.
    """
    total = 0.03
    for name in (scene.struck, scene.striker):
        geom = scene.base.geom(name)
        if float(geom.rbound[0]) == 0:  # a plane has no end
            return np.inf
        total += float(geom.rbound[0]) + float(np.linalg.norm(geom.pos))
    return 1.1 * total


def _trial(trial: Trial, setup: _Setup) -> tuple[list[MeasuredImpact], list[str]]:
    """Impacts of one trial, and what was left out."""
    says = f"trial {trial.name!r}"
    track = Trajectory.of(trial, setup.struck, setup.view)
    striker = (
        None if setup.striker is None else Trajectory.of(trial, setup.striker, setup.striker_view)
    )
    if len(track) < _FEWEST:
        return [], [
            f"{says}: body {setup.struck!r} is seen in {len(track)} frames, at least {_FEWEST} are needed"
        ]
    if striker is not None and len(striker) < _SIDE:
        return [], [
            f"{says}: striker {setup.striker!r} is seen in {len(striker)} frames, at least {_SIDE} are needed"
        ]
    pose, angles = track.watched(), 1 if setup.view.plane is not None else 0
    sigma = loudness(track.t, pose, noise(track.t, pose, angles=angles), angles=angles)
    marks = velocity_jumps(
        track.t,
        pose,
        sigma,
        scale=np.array([1.0, 1.0, setup.lever if angles else 1.0]),
        least=setup.least,
    )
    if not angles:
        sigma = np.hstack(
            [sigma, np.zeros_like(sigma)]
        )  # how loud the turns are is heard on each side
    notes: list[str] = []
    while True:
        found, left_out, fakes = _round(trial, track, striker, marks, sigma, setup)
        notes += [f"{says} at {mark.time:.3f} s: {why}" for mark, why in fakes]
        if not fakes:
            break
        marks = [
            mark for mark in marks if all(mark is not fake for fake, _ in fakes)
        ]  # they cut the windows of their neighbours short
    notes += [f"{says} at {mark.time:.3f} s: {why}" for mark, why in left_out]
    if not found:
        notes.append(f"no impact found in {says}")
    return found, notes


def _round(
    trial: Trial,
    track: Trajectory,
    striker: Trajectory | None,
    marks: list[VelocityJump],
    sigma: np.ndarray,
    setup: _Setup,
) -> tuple[list[MeasuredImpact], list[_Why], list[_Why]]:
    """Impacts at the knots, those that cannot be measured, and those that prove to be no jump at
    all.
    """
    found: list[MeasuredImpact] = []
    left_out: list[_Why] = []
    fakes: list[_Why] = []
    i = 0
    while i < len(marks):
        low = marks[i - 1].high if i else -np.inf
        while i + 1 < len(marks) and _same(track, sigma, marks, i, low, setup):
            del marks[
                i + 1
            ]  # one slide explains both sides: the body came to rest there, nothing hit it
        result = _impact(trial, track, striker, marks, i, sigma, setup)
        if isinstance(result, MeasuredImpact):
            found.append(result)
        else:
            (fakes if result.startswith(_NO_JUMP) else left_out).append((marks[i], result))
        i += 1
    return found, left_out, fakes


def _fit(
    track: Trajectory,
    sigma: np.ndarray,
    near: float,
    bounds: tuple[float, float],
    setup: _Setup,
    *,
    guard: float,
    margin: float,
) -> tuple[FittedMotion, FittedMotion, float] | str:
    """Motions before and after a kink near `near` between the times in `bounds`, and the kink; or
    why there are none.
    """
    t, pose = track.t, track.coordinates(near)
    old_rows = (t > max(bounds[0], near - _BEFORE)) & (t <= near - margin)
    new_rows = (t >= near + guard) & (t < min(bounds[1], near + _AFTER, _hiccup(t, near + 0.15)))
    if old_rows.sum() < _SIDE or new_rows.sum() < _SIDE:
        return f"{int(old_rows.sum())} frames before and {int(new_rows.sum())} after it, at least {_SIDE} are needed on each side"
    side = smooth if setup.view.plane is not None else in_space
    old: FittedMotion = side(*_heard(t[old_rows], pose[old_rows], sigma[old_rows]), origin=near)
    t, pose, loud = _heard(t[new_rows], pose[new_rows], sigma[new_rows])
    here = np.array([near])
    anchor = Anchor(
        near,
        old.coordinates(here)[0],
        old.rate(here)[0],
        np.hypot(old.coordinates_std, (0.3 if guard <= _GUARDS[0] else 1.5) * loud[:3].mean(0)),
    )
    if setup.view.plane is None:
        kink = crossing(
            old,
            in_space(t, pose, loud, origin=near),
            near,
            np.where(np.arange(6) < 3, 1 / loud.mean(0), 0.0),
        )
        return (
            old,
            in_space(
                t,
                pose,
                loud,
                origin=kink,
                anchor=Anchor(kink, old.coordinates(np.array([kink]))[0], anchor.rate, anchor.std),
            ),
            kink,
        )
    slid = fit_slide_motion(
        t, pose, loud, lever=setup.lever, friction=setup.friction, anchor=anchor
    )
    while slid.misfit > 1.3 and len(t) >= 12 and t[-1] - t[0] > 0.3:
        n = len(t) // 2  # a long way may hold what the model does not know: drag, a bend, a push
        t, pose, loud = t[:n], pose[:n], loud[:n]
        shorter = fit_slide_motion(
            t, pose, loud, lever=setup.lever, friction=setup.friction, anchor=anchor
        )
        if shorter.misfit > 0.8 * slid.misfit:
            break
        slid = shorter
    return old, slid, slid.kink


def _hiccup(t: np.ndarray, begin: float) -> float:
    """Time of the first gap after `begin` that is long enough to doubt that the clock ran on
    evenly.
    """
    gap = np.diff(t)
    late = np.flatnonzero((gap > max(0.02, 3.5 * float(np.median(gap)))) & (t[1:] > begin))
    return float(t[late[0] + 1]) if len(late) else np.inf


def _heard(
    t: np.ndarray, pose: np.ndarray, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames of one side, thinned, with their own noise where it is louder than the trial's: jitter
    of time stamps shows only in motion.
    """
    return thinned(
        t, pose, np.maximum(sigma, noise(t, pose, angles=1 if pose.shape[1] == 3 else 3))
    )


def _same(
    track: Trajectory,
    sigma: np.ndarray,
    marks: Sequence[VelocityJump],
    i: int,
    low: float,
    setup: _Setup,
) -> bool:
    """Whether one slide from knot i goes through knot i + 1."""
    this, other = marks[i], marks[i + 1]
    if setup.view.plane is None or other.time - this.time > _AFTER / 2:
        return False
    high = min(marks[i + 2].low if i + 2 < len(marks) else np.inf, other.time + 0.15)
    fit = _fit(track, sigma, this.time, (low, high), setup, guard=_GUARDS[0], margin=_MARGIN)
    if isinstance(fit, str):
        return False
    rows = (track.t > this.time + _GUARDS[0]) & (track.t > other.time - 0.1) & (track.t < high)
    left = (fit[1].coordinates(track.t[rows]) - track.coordinates(this.time)[rows]) / sigma[rows]
    return bool(rows.sum() >= _SIDE and np.sqrt((left**2).mean()) < 1.7)


def _impact(
    trial: Trial,
    track: Trajectory,
    striker: Trajectory | None,
    marks: Sequence[VelocityJump],
    i: int,
    sigma: np.ndarray,
    setup: _Setup,
) -> MeasuredImpact | str:
    """The impact at knot i, or why it is left out."""
    mark = marks[i]
    bounds = (
        marks[i - 1].high if i else -np.inf,
        marks[i + 1].low if i + 1 < len(marks) else np.inf,
    )
    frame = float(np.median(np.diff(track.t)))
    near = mark.time
    first = _fit(
        track, sigma, near, bounds, setup, guard=max(0.5 * frame, _GUARDS[0]), margin=0.5 * frame
    )
    if isinstance(first, str):
        return f"an impact with {first}" + (
            ": two hits in quick succession"
            if min(np.diff([m.time for m in marks[max(i - 1, 0) : i + 2]]), default=1.0) < 0.05
            else ""
        )
    if abs(first[2] - near) < 3 * frame + 0.01:
        near = first[2]
    scale = _scale(sigma.shape[1], setup.lever)
    flags: list[str] = []
    for guard in _GUARDS:
        fit = _fit(track, sigma, near, bounds, setup, guard=guard, margin=_MARGIN)
        if isinstance(fit, str):
            break
        first = fit
        if _early(track, fit[1], near, near + guard, sigma) < _POOR and fit[1].misfit < _POOR:
            break
    else:
        flags.append("frames after it do not follow one motion: a double hit or a push")
    old, new, kink = first
    if guard > _GUARDS[0]:
        flags.append(f"long contact: frames within {1e3 * guard:.0f} ms are left out")
    if abs(kink - mark.time) > 3 * frame + 0.02:
        return f"{_NO_JUMP} that is not sudden (its two sides meet {1e3 * abs(kink - mark.time):.0f} ms away)"
    here = np.array([kink])
    jump, doubt = (
        ((new.rate(here) - old.rate(here))[0] * scale)[:3],
        (np.hypot(new.std, old.std) * scale)[:3],
    )  # in space by position alone
    if np.linalg.norm(jump) < max(
        setup.least,
        _SURE * float(np.linalg.norm(doubt * jump) / max(float(np.linalg.norm(jump)), 1e-12)),
    ):
        return f"{_NO_JUMP} by {np.linalg.norm(jump):.3f} m/s, too small to be sure of"
    start, twist = origin_state(track, old, near, kink)
    _, after = origin_state(track, new, near, kink + setup.lag)
    # Where in the contact the twist after belongs is not seen: what friction takes off meanwhile is
    # part of the error.
    lost = (new.rate(here) - new.rate(np.array([kink + 2 * setup.lag])))[0] / np.sqrt(12)
    rocked = _ROCK * float(np.linalg.norm(new.rate(here)[0] * scale)) / scale
    after_std, twist_sd = (
        _origin_sd(track, np.sqrt(new.std**2 + lost**2 + rocked**2)),
        _origin_sd(track, old.std),
    )
    pose, rate, rate_sd = setup.standing, np.zeros(len(twist)), np.zeros(len(twist))
    if striker is not None:
        rows = (striker.t > kink - _BEFORE) & (striker.t <= kink - _MARGIN)
        if rows.sum() < _SIDE or kink - striker.t[rows][-1] > 0.1:
            return f"an impact at which striker {setup.striker!r} was not seen"
        place = striker.coordinates(kink)[rows]
        drive: FittedMotion = (smooth if setup.view.plane is not None else in_space)(
            *_heard(striker.t[rows], place, np.zeros_like(place)), origin=kink
        )
        pose, rate = origin_state(striker, drive, kink, kink)
        rate_sd = drive.std
        n = 2 if setup.view.plane is not None else 3
        apart, closing = (start - pose)[:n], (rate - twist)[:n]
        if (
            (after - twist)[:n] @ closing <= 0
            or apart @ closing <= 0
            or np.linalg.norm(apart) > setup.reach
        ):
            return f"an impact that is not the striker's ({setup.striker!r} is elsewhere or moves the other way)"
    t, placed = track.t, track.coordinates(near)
    rows = (
        (t > kink + guard)
        & (t < bounds[1])
        & (t < (new.stop + 0.1 if isinstance(new, SlideMotion) else kink + _AFTER))
    )
    slide = (
        Slide(t[rows], placed[rows, :2], placed[rows, 2])
        if setup.view.plane is not None and rows.sum() >= 8
        else None
    )
    return MeasuredImpact(
        trial.name,
        kink,
        np.concatenate([start, twist, pose, rate]),
        after,
        np.concatenate([twist_sd, rate_sd]),
        after_std,
        tuple(flags),
        slide,
        new,
        track,
        near,
    )


def _scale(k: int, lever: float) -> np.ndarray:
    """Factors (k,) that turn rates of coordinates into m/s."""
    return np.repeat([1.0, lever], (2, 1) if k == 3 else (3, 3))


def _early(
    track: Trajectory, motion: FittedMotion, near: float, begin: float, sigma: np.ndarray
) -> float:
    """Rms residual over noise of the first 50 ms after `begin`, where a second hit or a push would
    show.
    """
    rows = (track.t >= begin) & (track.t < begin + 0.05)
    left = (motion.coordinates(track.t[rows]) - track.coordinates(near)[rows])[:, :3] / sigma[
        rows, :3
    ]  # in space by position alone
    return float(np.sqrt((left**2).mean())) if rows.any() else 0.0


def _origin_sd(track: Trajectory, sd: np.ndarray) -> np.ndarray:
    """Standard deviations (k,) of the origin's twist from those of the mass centre's."""
    arm, n = float(np.linalg.norm(track.view.centre)), len(sd) // 2 + len(sd) % 2
    return np.concatenate([np.hypot(sd[:n], arm * sd[n:].max()), sd[n:]])
