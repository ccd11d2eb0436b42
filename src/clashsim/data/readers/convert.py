"""From columns and a logger's mapping to streams: units, quaternion order, and the axis up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.trials import quaternion
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping
from clashsim.data.readers.streams import Columns, Log, Stream

_MAX_COORDINATE = 1e9  # m: numbers beyond it are damage, and their squares may overflow
_SCALAR_FIRST = [3, 0, 1, 2]  # indices that turn a quaternion xyzw into wxyz
_MAX_MATRIX = 2.0  # an element beyond is no part of a rotation
_MATRIX_ERROR = 0.02  # of the products of a rotation matrix's rows; files have 3 to 6 digits
# A reference to some numbers of a column of vectors: name[i] or name[i:j].
_REFERENCE = re.compile(r"(.+?)\[(\d{1,6})(?::(\d{1,6}))?\]")
# By the file's axis that points up: a rotation to axes with z up. Its rows are the new x, y and z
# in the file's axes.
AXES_FOR_UP = {
    "z": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "y": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "x": ((0, 1, 0), (0, 0, 1), (1, 0, 0)),
    "-z": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "-y": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "-x": ((0, 1, 0), (0, 0, -1), (-1, 0, 0)),
}


def column_of(reference: str, names: Sequence[str] | Columns) -> str:
    """The name of the column that a reference `name`, `name[i]` or `name[i:j]` is to.

    A column whose own name is the whole reference, brackets included, comes first.
    """
    if reference in names:
        return reference
    match = _REFERENCE.fullmatch(reference)
    if match and match[1] in names:
        return match[1]
    raise DataError(f"there is no column {reference[:60]!r}; {did_you_mean(reference, names)}")


def pick_columns(columns: Columns, references: Sequence[str], width: int) -> np.ndarray:
    """Put the referenced columns side by side.

    Args:
        columns: Columns (N,) or (N, k) by name.
        references: References to columns, or to some numbers of them.
        width: How many numbers per row all references must give together.

    Returns:
        The numbers (N, width).
    """
    parts = [_referenced_values(columns, reference) for reference in references]
    lengths = {len(part) for part in parts}
    names = ", ".join(references)
    if len(lengths) > 1:
        raise DataError(f"the columns {names} differ in length: {sorted(lengths)}")
    table = np.concatenate(parts, 1) if parts else np.empty((0, 0))
    if table.shape[1] != width:
        raise DataError(f"{names} give {table.shape[1]} numbers per row, where {width} are needed")
    return table


def _referenced_values(columns: Columns, reference: str) -> np.ndarray:
    """The numbers (N, k) that one reference means."""
    values = columns[column_of(reference, columns)]
    if values.ndim == 1:
        values = values[:, None]
    match = _REFERENCE.fullmatch(reference)
    if reference in columns or match is None:
        return values
    first = int(match[2])
    last = int(match[3] or first + 1)
    if not first < last <= values.shape[1]:
        raise DataError(f"{reference!r} is outside the {values.shape[1]} numbers of its column")
    return values[:, first:last]


def log_from_columns(
    columns: Columns, logger: LoggerMapping, *, header: Columns | None = None
) -> Log:
    """Make the streams, signals and known numbers of one log.

    Args:
        columns: The columns of the file.
        logger: Its mapping.
        header: Values in the lines before a table's header, by name.

    Returns:
        The log, in SI units with z up.
    """
    if not (logger.bodies or logger.joints or logger.slides):
        raise DataError(
            "the mapping names no body ([[logs.bodies]]) and no joints, so there is nothing to read"
        )
    poses = {}
    angles = {}
    for body in logger.bodies:
        poses[body.name], angles[body.name] = _pose(columns, body, logger)
    joints = _joints(columns, logger)
    t = _times(columns, logger, rows=len(next(iter([*poses.values(), *joints.values()]))))
    other_lengths = sorted({str(len(pose)) for pose in poses.values()} - {str(len(t))})
    if other_lengths:
        raise DataError(f"the time has {len(t)} rows, but a body has {', '.join(other_lengths)}")
    streams = []
    for body in logger.bodies:
        stream = Stream(
            body.name,
            t,
            poses[body.name],
            angles[body.name],
            has_orientation=bool(body.quaternion or body.matrix or body.euler or body.yaw),
        )
        streams.append(turn_upright(stream, logger.up or "z", logger.flip))
    signals = {}
    for name, reference in logger.signals.items():
        signals[name] = (t, _signal(columns, name, reference, rows=len(t)))
    for name, values in joints.items():
        if len(values) != len(t):
            raise DataError(f"joint {name!r} has {len(values)} rows, where the time has {len(t)}")
        signals[name] = (t, values)
    fields = header or {}
    known = {}
    for name, reference in logger.header.items():
        known[name] = float(pick_columns(fields, [reference], 1)[0, 0])
    moments = {}
    for name, reference in logger.moments.items():
        time = float(pick_columns(fields, [reference], 1)[0, 0])
        moments[name] = time * logger.unit("time", "s") + logger.offset
    return Log(tuple(streams), signals, known, moments)


def _joints(columns: Columns, logger: LoggerMapping) -> dict[str, np.ndarray]:
    """Coordinates (N,) of joints by name, rad or m."""
    found = {}
    for references, factor in (
        (logger.joints, logger.unit("angle", "rad")),
        (logger.slides, logger.unit("length", "m")),
    ):
        for name, reference in references.items():
            found[name] = pick_columns(columns, [reference], 1)[:, 0] * factor
    return found


def _times(columns: Columns, logger: LoggerMapping, *, rows: int) -> np.ndarray:
    """Times (N,) of the logger's clock, s."""
    if logger.time:
        step = 1 / logger.rate if logger.rate else logger.unit("time", "s")
        return pick_columns(columns, [logger.time], 1)[:, 0] * step + logger.offset
    if logger.rate:
        return np.arange(rows) / logger.rate + logger.offset
    raise DataError("the mapping names neither a column with the time nor a rate")


def _signal(columns: Columns, name: str, reference: str, *, rows: int) -> np.ndarray:
    """Values (N,) or (N, c) of a signal."""
    match = _REFERENCE.fullmatch(reference)
    if reference not in columns and match is not None:
        first = int(match[2])
        values = pick_columns(columns, [reference], int(match[3] or first + 1) - first)
    else:
        values = columns[column_of(reference, columns)]
    if len(values) != rows:
        raise DataError(f"signal {name!r} has {len(values)} rows, where the time has {rows}")
    is_single = values.ndim == 2 and values.shape[1] == 1
    return values[:, 0] if is_single else values


def _pose(
    columns: Columns, body: BodyMapping, logger: LoggerMapping
) -> tuple[np.ndarray, np.ndarray | None]:
    """Poses (N, 7) in the file's axes, m and wxyz; and angles (N, k) in rad if the log has them."""
    if not body.position:
        raise DataError(f"body {body.name!r} has no columns for its position")
    is_planar = len(body.position) == 2
    length = logger.unit("length", "m")
    position = pick_columns(columns, body.position, 2 if is_planar else 3) * length
    if is_planar:
        position = np.column_stack([position, np.zeros(len(position))])
        if logger.up not in ("", "z"):
            raise DataError(
                f"body {body.name!r} has two numbers for its position, which lie in the plane"
                f" with z up, but up is {logger.up!r}"
            )
    orientation, angles = _orientation(columns, body, logger, rows=len(position))
    if len(orientation) != len(position):
        raise DataError(
            f"body {body.name!r} has {len(position)} positions and {len(orientation)} orientations"
        )
    return np.concatenate([position, orientation], 1), angles


def _orientation(
    columns: Columns, body: BodyMapping, logger: LoggerMapping, *, rows: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Quaternions wxyz (N, 4) in the file's axes; and angles (N, k) in rad if the log has them."""
    if body.quaternion:
        numbers = pick_columns(columns, body.quaternion, 4)
        return (numbers if body.order == "wxyz" else numbers[:, _SCALAR_FIRST]), None
    radians_per_unit = logger.unit("angle", "rad")
    if body.matrix:
        numbers = pick_columns(columns, body.matrix, 9).reshape(-1, 3, 3)
        matrices = numbers if body.matrix_order == "rows" else numbers.transpose(0, 2, 1)
        return quaternions_from_matrices(matrices), None
    if body.euler:
        angles = pick_columns(columns, body.euler, 3) * radians_per_unit
        return quaternions_from_angles(body.sequence, angles), angles
    if body.yaw:
        angles = pick_columns(columns, [body.yaw], 1) * radians_per_unit
        about_z = quaternion(angles[:, 0])
        # The yaw is about the file's own axis up, which `turn_upright` turns to z later.
        up = np.array(AXES_FOR_UP[logger.up or "z"][2], float)
        sine = about_z[:, [3]]  # of half the yaw: the z component of a rotation about z
        about_up = np.column_stack([about_z[:, 0], sine * up])
        return about_up, angles
    identity = np.zeros((rows, 4))
    identity[:, 0] = 1.0
    return identity, None


def select_bodies(
    bodies: Mapping[str, Stream], logger: LoggerMapping, *, length: str, up: str
) -> Log:
    """The bodies of a file that describes itself, under the names the mapping gives them.

    Args:
        bodies: All bodies of the file, by its own names.
        logger: The mapping; all bodies are taken when it names none.
        length: Unit of length of the file, where the mapping has none.
        up: Axis of the file that points up, where the mapping has none.

    Returns:
        The log, in SI units with z up.
    """
    names = {body.source_name: body.name for body in logger.bodies}
    if not names:
        names = {name: name for name in bodies}
    scale = np.array([logger.unit("length", length)] * 3 + [1.0] * 4)  # position, quaternion
    streams = []
    for source, name in names.items():
        if source not in bodies:
            raise DataError(f"there is no body {source[:60]!r}; {did_you_mean(source, bodies)}")
        stream = bodies[source]
        in_metres = replace(stream, body=name, t=stream.t + logger.offset, pose=stream.pose * scale)
        streams.append(turn_upright(in_metres, logger.up or up, logger.flip))
    return Log(tuple(streams))


def quaternions_from_angles(sequence: str, angles: np.ndarray) -> np.ndarray:
    """Quaternions of angles; NaN where an angle is NaN.

    Args:
        sequence: Axes of the angles as scipy names them, or `vector` for a rotation vector.
        angles: Angles (N, 3), rad.

    Returns:
        Quaternions wxyz (N, 4).
    """
    from scipy.spatial.transform import Rotation

    quaternions = np.full((len(angles), 4), np.nan)
    seen = np.isfinite(angles).all(1)
    if not seen.any():
        return quaternions
    if sequence == "vector":
        rotation = Rotation.from_rotvec(angles[seen])
    else:
        rotation = Rotation.from_euler(sequence, angles[seen])
    quaternions[seen] = rotation.as_quat()[:, _SCALAR_FIRST]
    return quaternions


def quaternions_from_matrices(matrices: np.ndarray) -> np.ndarray:
    """Quaternions of rotation matrices; NaN where a matrix is none, as of a body that was not seen.

    Args:
        matrices: (N, 3, 3), from axes of the body to axes of the world.

    Returns:
        Quaternions wxyz (N, 4).

    Raises:
        DataError: None of the matrices is a rotation.
    """
    from scipy.spatial.transform import Rotation

    quaternions = np.full((len(matrices), 4), np.nan)
    seen = np.isfinite(matrices).all((1, 2)) & (np.abs(matrices) < _MAX_MATRIX).all((1, 2))
    finite = np.where(seen[:, None, None], matrices, 0.0)
    error = np.abs(finite @ finite.transpose(0, 2, 1) - np.eye(3)).max((1, 2))
    determinant = np.linalg.det(finite)
    is_rotation = seen & (error < _MATRIX_ERROR) & (determinant > 0)
    if not is_rotation.any():
        is_mirrored = seen & (error < _MATRIX_ERROR)
        if is_mirrored.any():
            raise DataError("the rotation matrices are mirror images: an axis has the wrong sign")
        if (np.isfinite(matrices) & (matrices != 0)).any():  # a body that is not seen has zeros
            raise DataError("the nine numbers of an orientation are no rotation matrices")
        return quaternions
    rotation = Rotation.from_matrix(matrices[is_rotation])
    quaternions[is_rotation] = rotation.as_quat()[:, _SCALAR_FIRST]
    return quaternions


def turn_upright(stream: Stream, up: str, flip: Sequence[str] = ()) -> Stream:
    """Turn a stream so that z is up, after mirroring the axes in `flip`.

    The body's own axes are turned as the world's are, so a body that is not rotated in the file is
    not rotated afterwards.

    Args:
        stream: The stream in the file's axes.
        up: The file's axis that points up, such as "y" or "-z".
        flip: Axes of the file whose positions have the wrong sign.

    Returns:
        The stream with z up.
    """
    pose = np.where(np.abs(stream.pose) < _MAX_COORDINATE, stream.pose, np.nan)
    for axis in flip:
        pose[:, "xyz".index(axis)] *= -1
    axes = np.array(AXES_FOR_UP[up], float)
    pose[:, :3] = pose[:, :3] @ axes.T
    # The vector part of a quaternion turns as a vector does.
    pose[:, 4:] = pose[:, 4:] @ axes.T
    return replace(stream, pose=pose, up=up)
