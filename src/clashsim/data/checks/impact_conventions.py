"""Checks of what the numbers of recorded impacts mean: units, axes, signs, and which body is which.

Impacts in a table have no motion to look at, as logs have. But numbers that mean something else
contradict mechanics: bodies miss each other, or no impulse at the contact explains how the twist
changed. So impacts that contradict it are compared with themselves under other conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.errors import DataError, SceneError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data.checks.findings import Finding, Severity, finding
from clashsim.data.checks.impact_misfit import Misfit, measure_misfit

_MAX_IMPACTS = 60  # that are looked at
_MIN_IMPACTS = 5  # below which another convention may fit by chance
# Shares of a typical change of twist that no impulse explains: below the first, noise and several
# contacts; real recordings of boxes have up to 0.4; from the last, the impacts are surely wrong.
_MIN_SHARE = 0.2
_DOUBTFUL_SHARE = 0.4
_BAD_SHARE = 0.5
# Factors by which another convention is better, to stop at a share of these, or to warn.
_DOUBTFUL_GAIN = 5.0
_BAD_GAIN = 2.0
_WARNED_GAIN = 4.0
_FLOOR = 0.03  # of a typical change of twist: less is noise
# Conventions that explain the impacts as well as the best one: at most this factor, or this share.
_TIE_FACTOR = 1.5
_TIE_SHARE = 0.06
_TIE_DISTANCE = (2.0, 5e-3)  # factor, and m: further moved than the least is less likely
# Bodies further from where they touch than so many radii of gyration may be in another unit, if
# they are closer by a factor then.
_FAR_SIZES = 1.0
_MIN_CLOSER = 10.0
_MAX_ALTERNATIVES = 2  # that a message adds
_RADIANS = np.pi / 180
_XYZW = (3, 0, 1, 2)  # indices that turn it into wxyz

Convert = Callable[[Impacts], Impacts]


@dataclass(frozen=True)
class _Convention:
    """Another meaning that the numbers may have.

    Attributes:
        name: Name of the finding.
        cause: Clause that says what may be wrong.
        remedy: Clause that says what to do then.
        convert: Returns the impacts as they are if the cause is right.
        exchange: Whether struck and striking geom of the scene exchange their roles as well.
        enlarges: Whether distances between bodies become larger.
    """

    name: str
    cause: str
    remedy: str
    convert: Convert
    exchange: bool = False
    enlarges: bool = False


def check_impacts(scene: Scene, impacts: Impacts) -> list[Finding]:
    """Look for units, axes, signs and bodies that were confused in a table of impacts.

    Args:
        scene: Scene of the collision.
        impacts: The impacts; outcomes may hold NaN where they were not measured.

    Returns:
        At most one finding: what is probably wrong, and what to do about it.
    """
    if impacts.planar != (scene.plane is not None) or len(impacts) == 0:
        return []
    step = -(-len(impacts) // _MAX_IMPACTS)
    impacts = impacts[slice(None, None, step)]
    as_read = _misfit(scene, impacts)
    share = float(np.median(as_read.share))
    if share < _MIN_SHARE:
        return _check_distances(scene, impacts, float(np.median(as_read.moved)))
    others = [
        (convention, _misfit_under(convention, scene, impacts))
        for convention in _conventions(planar=impacts.planar)
    ]
    best = min(float(np.median(other.share)) for _, other in others)
    severity = _severity(share, share / max(best, _FLOOR), len(impacts))
    if severity is None:
        return []
    likely = _likely(others, best)
    message = _message(likely, share, best)
    return [finding(likely[0].name, severity, message, trial="")]


def _check_distances(scene: Scene, impacts: Impacts, moved: float) -> list[Finding]:
    """Look for lengths off by a factor where only the distance of the bodies can show it.

    Mechanics has no scale of its own where bodies are hit in their middle.

    Args:
        scene: Scene of the collision.
        impacts: The impacts.
        moved: m, by which bodies typically had to be moved to touch.
    """
    size = inertia(scene, scene.struck_body).gyration
    if not _FAR_SIZES * size < moved < np.inf:
        return []
    for convention in _lengths():
        other = _misfit_under(convention, scene, impacts)
        closer = float(np.median(other.moved))
        # Under a smaller unit bodies come closer too where one of both poses was left out.
        severity: Severity = "stop" if convention.enlarges else "warn"
        if float(np.median(other.share)) < _MIN_SHARE and closer * _MIN_CLOSER < moved:
            message = (
                f"bodies are {moved:.3g} m from where they touch, but {closer:.3g} m "
                f"if {convention.cause}; {convention.remedy}"
            )
            return [finding(convention.name, severity, message, trial="")]
    return []


def _severity(share: float, gain: float, num_impacts: int) -> Severity | None:
    """Whether a convention that is better by a factor `gain` stops, warns, or means nothing."""
    is_clear = share >= _BAD_SHARE and gain >= _BAD_GAIN
    is_clear |= share >= _DOUBTFUL_SHARE and gain >= _DOUBTFUL_GAIN
    if is_clear and num_impacts >= _MIN_IMPACTS:
        return "stop"
    return "warn" if is_clear or gain >= _WARNED_GAIN else None


def _likely(others: Sequence[tuple[_Convention, Misfit]], best: float) -> list[_Convention]:
    """Conventions that explain the impacts about as well as the best one, usual ones first.

    Of those, the ones under which the recorded bodies nearly touch, where poses were recorded.
    """
    limit = max(_TIE_FACTOR * best, _TIE_SHARE)
    equal = [(c, other) for c, other in others if float(np.median(other.share)) <= limit]
    moved = [float(np.median(other.moved)) for _, other in equal]
    nearest = _TIE_DISTANCE[0] * min(moved) + _TIE_DISTANCE[1]
    return [c for (c, _), distance in zip(equal, moved, strict=True) if distance <= nearest]


def _message(likely: Sequence[_Convention], share: float, best: float) -> str:
    """A sentence on conventions that explain the impacts equally well."""
    first = likely[0]
    causes = [first.cause]
    for other in likely[1:]:
        if other.name != first.name and len(causes) <= _MAX_ALTERNATIVES:
            causes.append(other.cause)
    return (
        f"typically {100 * share:.0f} % of a measured change of twist cannot come from an impulse "
        f"at the contact, but only {100 * best:.0f} % if {', or '.join(causes)}; {first.remedy}"
    )


def _misfit(scene: Scene, impacts: Impacts) -> Misfit:
    """Misfit of impacts; impossible where joints cannot bring the bodies to their poses."""
    try:
        return measure_misfit(scene, impacts)
    except DataError:
        return Misfit.impossible(len(impacts))


def _misfit_under(convention: _Convention, scene: Scene, impacts: Impacts) -> Misfit:
    """Misfit under another convention; impossible where the scene does not allow it."""
    impossible = Misfit.impossible(len(impacts))
    if convention.exchange:
        if scene.striker_body.fixed:
            return impossible
        scene = replace(scene, struck=scene.striker, striker=scene.struck, params=())
        try:
            if impacts.planar != (scene.plane is not None):
                return impossible
        except SceneError:
            return impossible
    return _misfit(scene, convention.convert(impacts))


def _conventions(*, planar: bool) -> list[_Convention]:
    """The mistakes that are looked for, the usual ones first."""
    remedy = "give them as qw, qx, qy, qz"
    order = _Convention("quaternion_order", "quaternions are xyzw", remedy, _from_xyzw)
    orders = [] if planar else [order]
    return [*_units(planar=planar), *_axes(planar=planar), *orders, *_exchanged_bodies()]


def _units(*, planar: bool) -> list[_Convention]:
    """Degrees for radians, and wrong lengths."""
    yaw = "yaw, w, w_after, striker_yaw and striker_w"
    turning = "w, w_after and striker_w" if planar else "wx, wy, wz, wx_after and so on"
    angles = [
        _Convention(
            "angle_unit",
            "angular velocities are in degrees per second",
            f"convert {turning} to rad/s",
            _scaled(angular=_RADIANS),
        )
    ]
    if planar:
        angles = [
            _Convention(
                "angle_unit",
                "angles are in degrees",
                f"convert {yaw} to radians",
                _scaled(yaw=_RADIANS, angular=_RADIANS),
            ),
            *angles,
            _Convention(
                "angle_unit",
                "yaws are in degrees",
                "convert yaw and striker_yaw to radians",
                _scaled(yaw=_RADIANS),
            ),
        ]
    return [*angles, *_lengths()]


def _lengths() -> list[_Convention]:
    """Millimetres for metres."""
    return [
        _Convention(
            "length_unit",
            "lengths are in mm",
            "convert positions and velocities to m and m/s",
            _scaled(position=1e-3, linear=1e-3),
        ),
        _Convention(
            "length_unit", "positions are in mm", "convert them to m", _scaled(position=1e-3)
        ),
        _Convention(
            "length_unit", "velocities are in mm/s", "convert them to m/s", _scaled(linear=1e-3)
        ),
        _Convention(
            "length_unit",
            "the scene is in mm",
            "give its positions and sizes in m",
            _scaled(position=1e3, linear=1e3),
            enlarges=True,
        ),
    ]


def _exchanged_bodies() -> list[_Convention]:
    """One body taken for the other."""
    return [
        _Convention(
            "swapped",
            "struck body and striker are exchanged",
            "exchange the columns x, vx and so on with striker_x, striker_vx and so on",
            _with_bodies_exchanged,
        ),
        _Convention(
            "swapped",
            "struck body and striker of the scene are exchanged",
            "rename the columns (x to striker_x, striker_x to x, and so on, also the outcomes), or "
            "give --struck and --striker the other way round",
            _unchanged,
            exchange=True,
        ),
        _Convention(
            "swapped",
            "the outcomes are those of the striker",
            "give the twist of the struck body after the impact",
            _with_bodies_exchanged,
            exchange=True,
        ),
    ]


def _axes(*, planar: bool) -> list[_Convention]:
    """Axes that are exchanged or have the other sign."""
    letters = "xy" if planar else "xyz"
    found = []
    unit = np.eye(len(letters))
    for i, first in enumerate(letters):
        for j in range(i + 1, len(letters)):
            second = letters[j]
            order = np.arange(len(letters))
            order[[i, j]] = [j, i]
            cause = f"{first} and {second} are exchanged"
            remedy = f"exchange {first} and {second}, v{first} and v{second} and so on"
            found.append(_Convention("axes", cause, remedy, _mapped(unit[order])))
            if not planar:
                cause += ", also in rotations"
                remedy += f", also q{first} and q{second}, w{first} and w{second}"
                rotated = _mapped(unit[order], rotations=True)
                found.append(_Convention("axes", cause, remedy, rotated))
    for i, letter in enumerate(letters):
        signs = np.where(np.arange(len(letters)) == i, -1.0, 1.0)
        cause = f"{letter} has the wrong sign"
        remedy = f"change the sign of {letter}, v{letter}, v{letter}_after and so on"
        found.append(_Convention("mirrored", cause, remedy, _mapped(np.diag(signs))))
    turning = "w, w_after and striker_w" if planar else "wx, wy, wz, wx_after and so on"
    if planar:
        cause = "angles are counted clockwise"
        remedy = f"change the sign of yaw, striker_yaw, {turning}"
        found.append(_Convention("mirrored", cause, remedy, _scaled(yaw=-1.0, angular=-1.0)))
    cause = "angular velocities have the wrong sign"
    remedy = f"change the sign of {turning}"
    found.append(_Convention("mirrored", cause, remedy, _scaled(angular=-1.0)))
    return found


def _copied(impacts: Impacts) -> Impacts:
    """Impacts whose numbers may be changed."""
    of_striker = None if impacts.striker_after is None else impacts.striker_after.copy()
    return replace(
        impacts, before=impacts.before.copy(), after=impacts.after.copy(), striker_after=of_striker
    )


def _outcomes(impacts: Impacts) -> list[np.ndarray]:
    """Twists (N, k) after impact of the bodies whose outcomes were recorded."""
    return [twist for twist in (impacts.after, impacts.striker_after) if twist is not None]


def _unchanged(impacts: Impacts) -> Impacts:
    return impacts


def _with_bodies_exchanged(impacts: Impacts) -> Impacts:
    """Impacts whose struck body and striker have exchanged their motions before."""
    half = impacts.before.shape[1] // 2
    return replace(impacts, before=np.roll(impacts.before, half, axis=1))


def _scaled(
    *, position: float = 1.0, linear: float = 1.0, yaw: float = 1.0, angular: float = 1.0
) -> Convert:
    """Multiply positions, velocities, yaws and angular velocities by factors."""

    def convert(impacts: Impacts) -> Impacts:
        converted = _copied(impacts)
        for body in (converted.motion.struck, converted.motion.striker):
            body.position[:] *= position
            body.velocity[:] *= linear
            body.angular_velocity[:] *= angular
            if impacts.planar:
                body.yaw[:] *= yaw
        split = body.velocity.shape[1]
        for twist in _outcomes(converted):
            twist[:, :split] *= linear
            twist[:, split:] *= angular
        return converted

    return convert


def _mapped(matrix: np.ndarray, *, rotations: bool = False) -> Convert:
    """Map positions and velocities by a matrix (d, d), and rotations too if they are wanted."""

    def convert(impacts: Impacts) -> Impacts:
        converted = _copied(impacts)
        split = len(matrix)
        for body in (converted.motion.struck, converted.motion.striker):
            body.position[:] = body.position @ matrix.T
            body.velocity[:] = body.velocity @ matrix.T
            if rotations:
                body.angular_velocity[:] = body.angular_velocity @ matrix.T
                body.quaternion[:, 1:] = body.quaternion[:, 1:] @ matrix.T
        for twist in _outcomes(converted):
            twist[:, :split] = twist[:, :split] @ matrix.T
            if rotations:
                twist[:, split:] = twist[:, split:] @ matrix.T
        return converted

    return convert


def _from_xyzw(impacts: Impacts) -> Impacts:
    """Impacts whose quaternions were in the order xyzw."""
    converted = _copied(impacts)
    for body in (converted.motion.struck, converted.motion.striker):
        body.quaternion[:] = body.quaternion[:, _XYZW]
    return converted
