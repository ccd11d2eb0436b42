"""Impacts: the motion of two bodies just before contact, and just after it as far as recorded.

This module owns the layout of the array `before`. Other modules reach its columns by name, through
`MotionBefore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clashsim.core.angles import rotate_quarter_turn
from clashsim.core.errors import DataError, did_you_mean

_PLANAR_POSE = ("x", "y", "yaw")
_PLANAR_TWIST = ("vx", "vy", "w")
_SPATIAL_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_SPATIAL_TWIST = ("vx", "vy", "vz", "wx", "wy", "wz")
_PLANAR_WIDTH = 2 * len(_PLANAR_POSE + _PLANAR_TWIST)
_SPATIAL_WIDTH = 2 * len(_SPATIAL_POSE + _SPATIAL_TWIST)
_MAX_SPEED = 100.0  # m/s; faster impacts are taken for a mistake in the unit
_MAX_LISTED_ROWS = 8  # rows that an error message names one by one
# Columns with the names of the two bodies of each impact, in recordings of several pairs.
BODY_COLUMNS = ("struck", "striker")


def before_columns(planar: bool) -> tuple[str, ...]:
    """Name the columns of `before`: pose and twist of the struck body, then of the striker.

    Args:
        planar: Whether the bodies move in a plane.

    Returns:
        12 names in a plane, 26 in space.
    """
    one_body = _PLANAR_POSE + _PLANAR_TWIST if planar else _SPATIAL_POSE + _SPATIAL_TWIST
    return (*one_body, *(f"striker_{column}" for column in one_body))


def after_columns(planar: bool) -> tuple[str, ...]:
    """Name the columns of `after`, the twist of the struck body: 3 in a plane, 6 in space."""
    twist = _PLANAR_TWIST if planar else _SPATIAL_TWIST
    return tuple(f"{column}_after" for column in twist)


def striker_after_columns(planar: bool) -> tuple[str, ...]:
    """Name the columns of `striker_after`, the striker's twist: 3 in a plane, 6 in space."""
    return tuple(f"striker_{column}" for column in after_columns(planar))


@dataclass(frozen=True, eq=False)
class MovingBody:
    """Pose and twist of one body, as views into rows of `before`: writing to them changes the rows.

    SI units, world axes (in planar scenes the axes of the plane); the twist is that of the body's
    origin.

    Attributes:
        rows: (..., 6) in a plane or (..., 13) in space.
    """

    rows: np.ndarray

    @property
    def planar(self) -> bool:
        """Whether the body moves in a plane."""
        return self.rows.shape[-1] == _PLANAR_WIDTH // 2

    @property
    def pose(self) -> np.ndarray:
        """Position and yaw (..., 3), or position and quaternion wxyz (..., 7)."""
        return self.rows[..., :3] if self.planar else self.rows[..., :7]

    @property
    def twist(self) -> np.ndarray:
        """Velocity and angular velocity, (..., 3) or (..., 6)."""
        return self.rows[..., 3:] if self.planar else self.rows[..., 7:]

    @property
    def position(self) -> np.ndarray:
        """Position of the origin (..., 2) or (..., 3), m."""
        return self.rows[..., :2] if self.planar else self.rows[..., :3]

    @property
    def yaw(self) -> np.ndarray:
        """Rotation in the plane (...,), rad; bodies in a plane only."""
        if not self.planar:
            raise AttributeError("bodies that move in space have a quaternion and no yaw")
        return self.rows[..., 2]

    @property
    def quaternion(self) -> np.ndarray:
        """Orientation wxyz (..., 4); bodies in space only."""
        if self.planar:
            raise AttributeError("bodies that move in a plane have a yaw and no quaternion")
        return self.rows[..., 3:7]

    @property
    def velocity(self) -> np.ndarray:
        """Velocity of the origin (..., 2) or (..., 3), m/s."""
        return self.rows[..., 3:5] if self.planar else self.rows[..., 7:10]

    @property
    def angular_velocity(self) -> np.ndarray:
        """Angular velocity, (...,) in a plane or (..., 3) in space, rad/s."""
        return self.rows[..., 5] if self.planar else self.rows[..., 10:13]

    def velocity_at(self, point: np.ndarray) -> np.ndarray:
        """Compute the velocity of the body's material at points.

        Args:
            point: (..., 2) or (..., 3), m, in the axes of the positions.

        Returns:
            (..., 2) or (..., 3), m/s.
        """
        arm = point - self.position
        if self.planar:
            return self.velocity + self.angular_velocity[..., None] * rotate_quarter_turn(arm)
        return self.velocity + np.cross(self.angular_velocity, arm)


@dataclass(frozen=True, eq=False)
class MotionBefore:
    """The columns of `before` by name: the motions of the two bodies just before contact.

    Both bodies are views: `MotionBefore.of(before).striker.velocity[:] = ...` writes into `before`.

    Attributes:
        struck: The struck body.
        striker: The body that the struck body collides with.
    """

    struck: MovingBody
    striker: MovingBody

    @staticmethod
    def of(before: np.ndarray) -> MotionBefore:
        """View rows of `before`, (..., 12) in a plane or (..., 26) in space."""
        width = before.shape[-1]
        if width not in (_PLANAR_WIDTH, _SPATIAL_WIDTH):
            raise DataError(
                f"the motion before an impact has {_PLANAR_WIDTH} numbers in a plane and "
                f"{_SPATIAL_WIDTH} in space, got {width}"
            )
        half = width // 2
        return MotionBefore(MovingBody(before[..., :half]), MovingBody(before[..., half:]))

    @staticmethod
    def at_origin(n: int, *, planar: bool) -> tuple[np.ndarray, MotionBefore]:
        """Make rows of two bodies at rest at the origin, to be filled through the view.

        Args:
            n: Number of impacts.
            planar: Whether the bodies move in a plane.

        Returns:
            The rows `before`, (n, 12) or (n, 26), and a view of them. All numbers are zero, so in
            space the caller must set the quaternions.
        """
        before = np.zeros((n, _PLANAR_WIDTH if planar else _SPATIAL_WIDTH))
        return before, MotionBefore.of(before)

    @property
    def approach_velocity(self) -> np.ndarray:
        """Velocity of the struck body's origin relative to the striker's, (..., 2 or 3), m/s."""
        return self.struck.velocity - self.striker.velocity


@dataclass(frozen=True, eq=False)
class Impacts:
    """N impacts of a pair of bodies.

    SI units, radians; world axes, in planar scenes the axes of the plane. Twists are those of the
    bodies' origins.

    Attributes:
        planar: Whether the bodies move in a plane.
        before: (N, 12) in a plane or (N, 26) in space, columns as `before_columns(planar)`.
        after: (N, 3) or (N, 6), twist of the struck body after the bodies have separated; NaN for
            components that were not measured.
        striker_after: (N, 3) or (N, 6), twist of the striker then, as `after`; None where it was
            not recorded.
        theta: (N, p), parameters of simulated impacts; None for real ones.
        known: Parameters of the scene that were measured with each impact, by name, (N,) each.
        source: Where the impacts come from, such as "real" or "simulated".
        end_counts: Number of simulated impacts by how their simulation ended, discarded ones
            included.
        bodies: (N, 2), names of the struck body and the striker of each impact, as text; None where
            all impacts are of one pair, which the scene names.
        joints: Recorded coordinates of joints that carry the bodies, at contact, by the name of the
            joint, (N,) each, rad or m.
    """

    planar: bool
    before: np.ndarray
    after: np.ndarray
    theta: np.ndarray | None = None
    known: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = "real"
    end_counts: Mapping[str, int] = field(default_factory=dict)
    bodies: np.ndarray | None = None
    striker_after: np.ndarray | None = None
    joints: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.before)
        before_shape = (n, len(before_columns(self.planar)))
        after_shape = (n, len(after_columns(self.planar)))
        if self.before.shape != before_shape or self.after.shape != after_shape:
            raise DataError(
                f"impacts need before (N, {before_shape[1]}) and after (N, {after_shape[1]}), "
                f"got {self.before.shape} and {self.after.shape}"
            )
        if self.striker_after is not None and np.shape(self.striker_after) != after_shape:
            raise DataError(
                f"the striker's twist after impact needs shape (N, {after_shape[1]}), "
                f"got {np.shape(self.striker_after)}"
            )
        if self.bodies is not None and np.shape(self.bodies) != (n, len(BODY_COLUMNS)):
            raise DataError(
                f"bodies must be two names for each of the {n} impacts, "
                f"got shape {np.shape(self.bodies)}"
            )
        for kind, columns in (("known parameter", self.known), ("joint", self.joints)):
            for name, values in columns.items():
                if np.shape(values) != (n,):
                    raise DataError(
                        f"{kind} {name!r} needs one value per impact ({n}), "
                        f"got shape {np.shape(values)}"
                    )

    def __len__(self) -> int:
        return len(self.before)

    def __getitem__(self, rows: np.ndarray | slice | Sequence[int]) -> Impacts:
        picked = rows if isinstance(rows, slice) else np.asarray(rows)
        return replace(
            self,
            before=self.before[picked],
            after=self.after[picked],
            theta=None if self.theta is None else self.theta[picked],
            known={name: values[picked] for name, values in self.known.items()},
            bodies=None if self.bodies is None else self.bodies[picked],
            striker_after=None if self.striker_after is None else self.striker_after[picked],
            joints={name: values[picked] for name, values in self.joints.items()},
        )

    @property
    def motion(self) -> MotionBefore:
        """The columns of `before` by name."""
        return MotionBefore.of(self.before)

    @property
    def twist(self) -> np.ndarray:
        """Twist of the struck body before contact, (N, 3) or (N, 6)."""
        return self.motion.struck.twist

    @property
    def striker_twist(self) -> np.ndarray:
        """Twist of the striker before contact, (N, 3) or (N, 6)."""
        return self.motion.striker.twist

    @property
    def pose(self) -> np.ndarray:
        """Pose of the struck body before contact, (N, 3) or (N, 7)."""
        return self.motion.struck.pose

    @property
    def striker_pose(self) -> np.ndarray:
        """Pose of the striker before contact, (N, 3) or (N, 7)."""
        return self.motion.striker.pose

    @property
    def measured(self) -> np.ndarray:
        """Whether each component (N, k) of the struck body's outcome was measured."""
        return ~np.isnan(self.after)

    @property
    def striker_measured(self) -> np.ndarray:
        """Whether each component (N, k) of the striker's outcome was measured."""
        if self.striker_after is None:
            return np.zeros(self.after.shape, bool)
        return ~np.isnan(self.striker_after)

    def unusable(self) -> dict[str, np.ndarray]:
        """Find rows that cannot be used.

        Returns:
            Masks (N,) of such rows, by the reason; empty where all can be used.
        """
        not_finite = ~np.isfinite(self.before).all(1)
        for values in (*self.known.values(), *self.joints.values()):
            not_finite |= ~np.isfinite(np.asarray(values, float))
        is_still = (np.abs(self.twist).max(1) == 0) & (np.abs(self.striker_twist).max(1) == 0)
        of_struck = _is_changed(self.twist, self.after)
        has_struck_outcome = self.measured.any(1)
        has_no_outcome = ~has_struck_outcome & ~self.striker_measured.any(1)
        not_finite |= np.isinf(self.after).any(1)
        struck_is_unchanged = has_struck_outcome & ~of_struck & ~is_still
        striker_is_unchanged = np.zeros(len(self), bool)
        if self.striker_after is not None:
            not_finite |= np.isinf(self.striker_after).any(1)
            of_striker = _is_changed(self.striker_twist, self.striker_after)
            # A driven striker may go on as before where the struck body's outcome shows the hit.
            alone = ~has_struck_outcome & ~has_no_outcome & ~is_still
            striker_is_unchanged = alone & ~of_striker
        found = {
            "lack a number, or hold NaN or infinite values": not_finite,
            "have no measured outcome": has_no_outcome & ~not_finite,
            "have no velocity before contact, so nothing moves": is_still & ~not_finite,
            "have a struck body whose velocity does not change, so nothing was hit": (
                struck_is_unchanged & ~not_finite
            ),
            "have a striker whose velocity does not change, so nothing was hit": (
                striker_is_unchanged & ~not_finite
            ),
        }
        return {reason: rows for reason, rows in found.items() if rows.any()}

    def checked(self) -> Impacts:
        """Return the impacts unchanged, or raise if they would silently give a wrong calibration.

        Raises:
            DataError: There is no impact, a number is not finite, nothing moves, the velocity of
                a body does not change, all impacts are the same, or the unit is wrong.
        """
        if len(self) == 0:
            raise DataError("there are no impacts in the data")
        for reason, rows in self.unusable().items():
            raise DataError(f"impacts {listed_rows(rows)} {reason}")
        spreads = np.ptp(np.hstack([self.before, np.nan_to_num(self.after)]), axis=0)
        if len(self) > 1 and spreads.max() == 0:
            raise DataError(
                f"all {len(self)} impacts are identical: "
                "record strikes that differ in point, direction or speed"
            )
        fastest = self._largest_velocity_component()
        if fastest > _MAX_SPEED:
            raise DataError(
                f"the fastest impact has {fastest:.0f} m/s: "
                "velocities must be in m/s (are they in mm/s?)"
            )
        return self

    def _largest_velocity_component(self) -> float:
        """The largest component (m/s) of any linear velocity, before or after contact."""
        axes = self.motion.struck.velocity.shape[1]
        velocities = [self.motion.struck.velocity, self.motion.striker.velocity]
        velocities.append(self.after[:, :axes])
        if self.striker_after is not None:
            velocities.append(self.striker_after[:, :axes])
        return float(np.nanmax(np.abs(np.hstack(velocities))))


def from_columns(table: Mapping[str, np.ndarray], *, known: Sequence[str] = ()) -> Impacts:
    """Build impacts from named columns.

    Poses and twists before contact may be left out where they are zero or without rotation, and
    components of the outcome that were not measured.

    Args:
        table: Columns (N,) by the names of `before_columns`, `after_columns` and
            `striker_after_columns`, and of `BODY_COLUMNS` where impacts are of several pairs.
        known: Names of further columns: parameters measured with each impact.

    Returns:
        Impacts in space where a column is one of motion in space, such as `vz`; else in a plane.

    Raises:
        DataError: A column is missing or unknown.
    """
    planar = not any(_is_spatial_only(name) for name in table)
    n = len(next(iter(table.values()))) if table else 0
    names_before = before_columns(planar)
    names_after = after_columns(planar)
    names_striker_after = striker_after_columns(planar)
    _check_column_names(table, names_before, (*names_after, *names_striker_after), known)
    no_rotation = {"qw": 1.0, "striker_qw": 1.0}  # all other columns are zero by default
    before = []
    for name in names_before:
        column = table[name] if name in table else np.full(n, no_rotation.get(name, 0.0))
        before.append(np.asarray(column, float))
    measured = {name: np.asarray(table[name], float) for name in known if name in table}
    of_striker = None
    if any(name in table for name in names_striker_after):
        of_striker = _outcome_columns(table, names_striker_after, n)
    impacts = Impacts(
        planar,
        np.column_stack(before),
        _outcome_columns(table, names_after, n),
        known=measured,
        striker_after=of_striker,
    )
    if not set(BODY_COLUMNS) <= table.keys():
        return impacts
    bodies = np.column_stack([np.asarray(table[name], str) for name in BODY_COLUMNS])
    return replace(impacts, bodies=bodies)


def to_columns(impacts: Impacts) -> dict[str, np.ndarray]:
    """Name the columns (N,) of impacts; the inverse of `from_columns`."""
    table = dict(zip(before_columns(impacts.planar), impacts.before.T, strict=True))
    table.update(zip(after_columns(impacts.planar), impacts.after.T, strict=True))
    if impacts.striker_after is not None:
        names = striker_after_columns(impacts.planar)
        table.update(zip(names, impacts.striker_after.T, strict=True))
    table.update(impacts.known)
    table.update(impacts.joints)
    if impacts.bodies is not None:
        table.update(zip(BODY_COLUMNS, impacts.bodies.T, strict=True))
    return table


def _is_changed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Whether any measured component of twists (N, k) differs after an impact, (N,)."""
    change = np.where(np.isnan(after), 0.0, after - before)
    return np.abs(change).max(1) > 0


def _outcome_columns(table: Mapping[str, np.ndarray], names: Sequence[str], n: int) -> np.ndarray:
    """Twists (n, k) after impact from columns; NaN for those that were left out."""
    columns = []
    for name in names:
        columns.append(np.asarray(table[name], float) if name in table else np.full(n, np.nan))
    return np.column_stack(columns)


def _is_spatial_only(name: str) -> bool:
    """Whether a column describes motion in space, and none in a plane."""
    bare = name.removeprefix("striker_").removesuffix("_after")
    return bare in {*_SPATIAL_POSE, *_SPATIAL_TWIST} - {*_PLANAR_POSE, *_PLANAR_TWIST}


def _check_column_names(
    table: Mapping[str, np.ndarray],
    names_before: Sequence[str],
    names_after: Sequence[str],
    known: Sequence[str],
) -> None:
    """Raise a `DataError` where a needed column is missing or a column is unknown."""
    if not any(name in table for name in names_after) and not _ends_any(
        [name for name in known if name in table], "_velocity_after"
    ):
        first = names_after[0]
        raise DataError(
            f"impacts lack an outcome, such as the column {first!r}; {did_you_mean(first, table)}"
        )
    named = [name for name in BODY_COLUMNS if name in table]
    if len(named) == 1:
        missing = next(name for name in BODY_COLUMNS if name not in table)
        raise DataError(
            f"impacts have a column {named[0]!r} with names of bodies and no column {missing!r}: "
            "give both, or neither where all impacts are of one pair"
        )
    allowed = [*names_before, *names_after, *known, *BODY_COLUMNS]
    for name in table:
        if name not in allowed:
            raise DataError(
                f"impacts have an unknown column {name!r}; {did_you_mean(name, allowed)}"
            )
    twist_names = (*_PLANAR_TWIST, *_SPATIAL_TWIST)
    given = [name for name in names_before if name in table]
    if _ends_any([name for name in known if name in table], "_velocity"):
        return  # of a joint
    if not any(name.removeprefix("striker_") in twist_names for name in given):
        raise DataError(
            "impacts lack velocities before contact: give vx, vy, w of the struck body "
            "or striker_vx, striker_vy, striker_w"
        )


def _ends_any(names: Sequence[str], ending: str) -> bool:
    """Whether any name of a column ends so."""
    return any(name.endswith(ending) for name in names)


def listed_rows(mask: np.ndarray) -> str:
    """Name the rows that a mask (N,) marks: the first few by number, the others by their count.

    Args:
        mask: (N,), true for the rows to name.
    """
    rows = np.flatnonzero(mask)
    text = ", ".join(map(str, rows[:_MAX_LISTED_ROWS]))
    further = len(rows) - _MAX_LISTED_ROWS
    return f"{text} and {further} more" if further > 0 else text
