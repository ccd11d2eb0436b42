"""Finds bodies, joints and units by the names of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clashsim.data.readers.mapping import BodyMapping
from clashsim.data.readers.streams import Columns

_UNIT_SUFFIX = re.compile(
    r"(?:[_ .]*[\[(]|[_ .])(mm|cm|m|deg|degrees|rad|s|ms|us|ns)[\])]?$", re.IGNORECASE
)
_WORD_BREAK = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])")
_POSITION_WORDS = (
    "p",
    "pos",
    "position",
    "t",
    "trans",
    "translation",
    "loc",
    "location",
    "xyz",
    "c",
    "centre",
    "center",
)
_QUATERNION_WORDS = (
    "q",
    "quat",
    "quaternion",
    "o",
    "ori",
    "orientation",
    "rot",
    "rotation",
    "r",
)
_MATRIX_WORDS = ("r", "rot", "rotation", "m", "mat", "matrix", "rotmat")
# Indices of the nine columns of a rotation matrix: by row and column, or counted.
_MATRIX_INDICES = (
    tuple(f"{i}{j}" for i in (1, 2, 3) for j in (1, 2, 3)),
    tuple(f"{i}{j}" for i in (0, 1, 2) for j in (0, 1, 2)),
    tuple("012345678"),
    tuple("123456789"),
)
_NUMBERED = re.compile(r"([a-z]+)(\d{1,2})")  # a word such as q1 or r11
_NUMBERED_QUATERNIONS = (tuple("0123"), tuple("1234"))
_YAW_WORDS = ("yaw", "theta", "heading", "angle", "phi", "psi")
_EULER_WORDS = (("roll", "pitch", "yaw"), ("rx", "ry", "rz"))
# Words that mean a joint, in names such as `joint_3` or `left_elbow`.
_JOINT_WORDS = {"joint", "joints", "jnt", "qpos", "hinge", "revolute"}
_JOINT_WORDS |= {"shoulder", "elbow", "wrist", "waist", "forearm", "hip", "knee", "ankle"}
# Words of joints that slide, whether or not the name has a unit.
_SLIDE_WORDS = {"slide", "slider", "prismatic", "rail"}
_JOINT_WORDS |= _SLIDE_WORDS
# Letters of joints that are only numbered, as in `q1` or `A3`, and of those with a name: `q_elbow`.
_JOINT_LETTERS = {"q", "j", "a", "axis"}
# What may be known of a joint besides its angle.
_OTHER_QUANTITIES = {
    *("v", "vel", "velocity", "velocities", "speed", "dq", "qd", "qvel", "acc", "acceleration"),
    *("torque", "torques", "tau", "effort", "current", "force", "temperature", "temp", "voltage"),
    *(
        "action",
        "actions",
        "cmd",
        "command",
        "commanded",
        "desired",
        "target",
        "ref",
        "reference",
        "setpoint",
        "error",
    ),
}
_LENGTH_UNITS = ("mm", "cm", "m")
_UNIT_LENGTH = 1e-2  # deviation from 1 of the length of what is taken for a quaternion


def words_of(name: str) -> list[str]:
    """The words of a name such as `box pos`, `box_pos` or `boxPos`, in lower case."""
    return [word.lower() for word in _WORD_BREAK.split(name) if word]


def unit_in_name(name: str, choices: Sequence[str]) -> str:
    """The unit with which a name ends, if it is one of the choices; empty otherwise."""
    match = _UNIT_SUFFIX.search(name)
    if match is None or match[1].lower() not in choices:
        return ""
    return match[1].lower()


class _Part(NamedTuple):
    """The body of one column, and what of that body the column holds.

    Attributes:
        stem: The part of the column's name that names the body.
        kind: position, quaternion, matrix, x, y, z, qw, qx, qy, qz, the name of an angle, or q or
            m with an index after a blank.
    """

    stem: str
    kind: str


def find_bodies(columns: Columns, fallback: str) -> list[BodyMapping]:
    """Find the bodies whose columns share a stem.

    A body has x, y and maybe z (or one column with three numbers). It may also have a quaternion,
    three angles or a yaw. The stem is the part of a column's name that names the body.

    Args:
        columns: Columns by name.
        fallback: Name of a body whose columns have no stem.

    Returns:
        The bodies in the order of their first columns.
    """
    parts_by_stem: dict[str, dict[str, str]] = {}
    for name, values in columns.items():
        bare = _UNIT_SUFFIX.sub("", name) if len(name) > 2 else name
        words = words_of(bare)
        if not words:
            continue
        part = _vector_part(words, values) if values.ndim == 2 else _number_part(words)
        if part is not None:
            parts_by_stem.setdefault(part.stem, {}).setdefault(part.kind, name)
    bodies = []
    for stem, parts in parts_by_stem.items():
        if "position" in parts:
            position: tuple[str, ...] = (parts["position"],)
        elif "x" in parts and "y" in parts:
            position = tuple(parts[axis] for axis in "xyz" if axis in parts)
        else:
            continue
        bodies.append(_make_body(stem or fallback, position, parts, columns))
    return bodies


class JointColumns(NamedTuple):
    """References to columns by the name of the joint.

    Attributes:
        joints: Of angles.
        slides: Of lengths.
    """

    joints: dict[str, str]
    slides: dict[str, str]


def find_joints(columns: Columns) -> JointColumns:
    """Find columns that look like the angle, or the way, of a joint.

    Columns of vectors are the joints of an arm in order: joint1, joint2, ...

    Args:
        columns: Columns by name, without those of bodies.
    """
    found = JointColumns({}, {})
    for name, values in columns.items():
        bare = _UNIT_SUFFIX.sub("", name) if len(name) > 2 else name
        if not _means_joint(words_of(bare)):
            continue
        is_slide = unit_in_name(name, _LENGTH_UNITS) or _SLIDE_WORDS.intersection(words_of(bare))
        kind = found.slides if is_slide else found.joints
        if values.ndim == 1:
            kind[bare] = name
        elif not _are_quaternions(values):
            kind.update({f"joint{i + 1}": f"{name}[{i}]" for i in range(values.shape[1])})
    return found


def _means_joint(words: Sequence[str]) -> bool:
    """Whether the words of a name mean the coordinate of a joint."""
    if not words or _OTHER_QUANTITIES.intersection(words):
        return False
    bare = [word.rstrip("0123456789") for word in words]
    if _JOINT_WORDS.intersection(bare):
        return True
    is_numbered = words[0] != bare[0] or (len(words) > 1 and words[1].isdigit())
    return bare[0] in _JOINT_LETTERS and (is_numbered or bare[0] == "q")


def _are_quaternions(values: np.ndarray) -> bool:
    """Whether vectors (N, k) have four numbers and length 1."""
    if values.shape[1] != 4:
        return False
    return bool(np.nanmedian(np.abs(np.linalg.norm(values, axis=1) - 1)) < _UNIT_LENGTH)


def _vector_part(words: Sequence[str], values: np.ndarray) -> _Part | None:
    """What a column of vectors (N, k) holds.

    The first word of its name that means a position or a quaternion tells; the other words are the
    stem.
    """
    meanings = {
        3: ("position", _POSITION_WORDS),
        4: ("quaternion", _QUATERNION_WORDS),
        9: ("matrix", _MATRIX_WORDS),
    }
    if values.shape[1] not in meanings:
        return None
    kind, kind_words = meanings[values.shape[1]]
    for i, word in enumerate(words):
        if word in kind_words:
            return _Part("_".join([*words[:i], *words[i + 1 :]]), kind)
    return None


def _number_part(words: Sequence[str]) -> _Part | None:
    """What a column of single numbers holds, by the last one or two words of its name."""
    last = words[-1]
    previous = words[-2] if len(words) > 1 else ""
    without_last = "_".join(words[:-1])
    without_last_two = "_".join(words[:-2])
    if previous == "euler" and last in ("x", "y", "z"):
        return _Part(without_last_two, f"r{last}")
    if last in ("roll", "pitch", "rx", "ry", "rz", *_YAW_WORDS):
        return _Part(without_last, last)
    if last in ("x", "y", "z", "w") and previous in _QUATERNION_WORDS:
        return _Part(without_last_two, f"q{last}")
    if last in ("qx", "qy", "qz", "qw"):
        return _Part(without_last, last)
    if last in ("x", "y", "z"):
        return _Part(without_last_two if previous in _POSITION_WORDS else without_last, last)
    if last in ("px", "py", "pz", "tx", "ty", "tz"):
        return _Part(without_last, last[1])
    match = _NUMBERED.fullmatch(last)
    if match is not None:
        return _indexed_part(without_last, match[1], match[2])
    if last.isdigit() and previous:
        return _indexed_part(without_last_two, previous, last)
    return None


def _indexed_part(stem: str, word: str, index: str) -> _Part | None:
    """A number of a quaternion such as q1, or of a rotation matrix such as r11 or rot[0]."""
    if word in ("q", "quat", "quaternion"):
        return _Part(stem, f"q {index}")
    if word in _MATRIX_WORDS:
        return _Part(stem, f"m {index}")
    return None


def _make_body(
    name: str, position: tuple[str, ...], parts: dict[str, str], columns: Columns
) -> BodyMapping:
    """A body with the best orientation of its columns: quaternion, matrix, three angles, or yaw."""
    if {"qx", "qy", "qz", "qw"} <= parts.keys():
        quaternion = tuple(parts[f"q{axis}"] for axis in "wxyz")
        return BodyMapping(name, position, quaternion=quaternion)
    if "quaternion" in parts:
        column = parts["quaternion"]
        order = "wxyz" if scalar_first_evidence(columns[column]) > 0 else "xyzw"
        return BodyMapping(name, position, quaternion=(column,), order=order)
    numbered = _numbered_quaternion(parts, columns)
    if numbered:
        values = np.column_stack([columns[column] for column in numbered])
        order = "wxyz" if scalar_first_evidence(values) > 0 else "xyzw"
        return BodyMapping(name, position, quaternion=numbered, order=order)
    matrix = _matrix_columns(parts)
    if matrix:
        return BodyMapping(name, position, matrix=matrix)
    for angles in _EULER_WORDS:
        if set(angles) <= parts.keys():
            euler = tuple(parts[angle] for angle in angles)
            return BodyMapping(name, position, euler=euler, sequence="xyz")
    yaw = next((parts[word] for word in _YAW_WORDS if word in parts), "")
    return BodyMapping(name, position, yaw=yaw)


def _numbered_quaternion(parts: dict[str, str], columns: Columns) -> tuple[str, ...]:
    """Four columns q1 to q4, or q0 to q3, whose numbers have length 1; empty if there are none.

    More columns of that name are the joints of an arm.
    """
    indices = {kind[2:] for kind in parts if kind.startswith("q ")}
    for choice in _NUMBERED_QUATERNIONS:
        if indices == set(choice):
            found = tuple(parts[f"q {index}"] for index in choice)
            values = np.column_stack([columns[column] for column in found])
            return found if _are_quaternions(values) else ()
    return ()


def _matrix_columns(parts: dict[str, str]) -> tuple[str, ...]:
    """The nine columns of a rotation matrix, or one of nine numbers; empty if there are none."""
    if "matrix" in parts:
        return (parts["matrix"],)
    indices = {kind[2:] for kind in parts if kind.startswith("m ")}
    for choice in _MATRIX_INDICES:
        if indices == set(choice):
            return tuple(parts[f"m {index}"] for index in choice)
    return ()


def is_order_open(body: BodyMapping) -> bool:
    """Whether the names of a body's quaternion do not say which of its numbers comes first."""
    is_numbered = all(column[-1:].isdigit() for column in body.quaternion)
    return bool(body.quaternion) and (len(body.quaternion) == 1 or is_numbered)


def scalar_first_evidence(quaternions: np.ndarray) -> float:
    """How much larger the first number of quaternions (N, 4) is than the last, on average.

    A positive result speaks for wxyz, a negative one for xyzw: bodies are mostly near the
    orientation in which they were defined, where the scalar part is the largest.
    """
    size = np.nanmean(np.abs(quaternions), axis=0)
    return float(size[0] - size[3])
