"""The tossed cube of ContactNets (Pfrommer, Halm, Posa 2020), as trials."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from clashsim.core.box import Box
from clashsim.core.errors import DataError
from clashsim.core.trials import Trial, Trials
from clashsim.data.readers.sources import read_zip_members

FILE = "contactnets_cube/tosses_processed.zip"
SOURCE = "DAIRLab/contact-nets"
RATE = 148.0  # frames per second
HALF = 0.0524  # m, half side of the cube; the file has lengths in this unit
_MASS = 0.37  # kg
_INERTIA = 8.1e-4  # kg m^2, about each axis
CUBE = Box((HALF, HALF, HALF), _MASS, (_INERTIA, _INERTIA, _INERTIA))
BODY = "box0"
# Recorded lengths are too short by this factor: cubes lie at 0.978 of their half width, and fall
# with 9.60 m/s^2.
RECORDED_LENGTH = 0.978
_FEWEST_FRAMES = 8
_POSE_COLUMNS = 7  # position, then quaternion wxyz
_ANGULAR_COLUMN = 10  # after the velocity in world axes; angular velocity is in the cube's axes
_STATE_COLUMNS = 13
_MAX_LENGTH_ERROR = 1e-2  # of a quaternion
_MAX_REASON = 80  # characters of a reader's message that are shown


def load(root: Path) -> Trials:
    """Load all tosses of the data root, by the number in their names."""
    return Trials(tuple(_to_trial(name, table) for name, table in _read_tables(root)))


def recorded_starts(root: Path) -> dict[str, np.ndarray]:
    """States at row 0 of all tosses, with the velocities of the file.

    These are differences of two frames, the earlier of which is not in the file, after a median
    filter over three. So they are those of half a frame before row 0.

    Args:
        root: The data root.

    Returns:
        States (13,) by name of the toss, as of a free joint in MuJoCo: position (m), quaternion
        (wxyz), velocity (m/s) in world axes, angular velocity (rad/s) in the cube's axes.
    """
    starts = {}
    for name, table in _read_tables(root):
        if table.shape[1] < _STATE_COLUMNS or not np.isfinite(table[0]).all():
            raise DataError(f"toss {name!r} holds no velocities at its first row")
        velocity = HALF * table[0, _POSE_COLUMNS:_ANGULAR_COLUMN]
        angular_velocity = table[0, _ANGULAR_COLUMN:_STATE_COLUMNS]
        starts[name] = np.concatenate([_poses(table)[0], velocity, angular_velocity])
    return starts


def _read_tables(root: Path) -> list[tuple[str, np.ndarray]]:
    """Names and tables (T, C) of all tosses as they are in the file."""
    path = root / FILE
    if not path.is_file():
        raise DataError(
            f"the data root {str(root)!r} holds no {FILE}; download it from github.com/{SOURCE}"
        )
    contents = read_zip_members(path, ".pt")
    if not contents:
        raise DataError(f"{path.name} holds no toss (*.pt)")
    members = sorted(contents, key=lambda name: (_number(name), name))
    tables = []
    for member in members:
        name = member.rsplit("/", 1)[-1].removesuffix(".pt")
        tables.append((name, _read_table(member, contents[member])))
    return tables


def _number(name: str) -> int:
    """The last number in a name, 0 if there is none."""
    numbers = re.findall(r"\d+", name) or ["0"]
    return int(numbers[-1])


def _read_table(name: str, content: bytes) -> np.ndarray:
    """The table (T, C) of one toss from the content of its file."""
    import torch  # takes seconds, and no other public set needs it

    try:
        table = np.asarray(torch.load(io.BytesIO(content), weights_only=True), dtype=float)
    except Exception as error:  # torch's reader raises almost anything on a damaged file
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise DataError(f"toss {name!r} cannot be read ({reason})") from None
    is_one_toss = table.ndim == 3 and table.shape[0] == 1
    if not is_one_toss or table.shape[1] < _FEWEST_FRAMES or table.shape[2] < _POSE_COLUMNS:
        raise DataError(
            f"toss {name!r} should have shape (1, T, C) with T at least {_FEWEST_FRAMES} and "
            f"C at least {_POSE_COLUMNS}, "
            f"got {table.shape}"
        )
    return table[0]


def _poses(table: np.ndarray) -> np.ndarray:
    """Poses (T, 7), m and wxyz, of a table (T, C)."""
    pose = table[:, :_POSE_COLUMNS].copy()
    pose[:, :3] *= HALF
    return pose


def _to_trial(name: str, table: np.ndarray) -> Trial:
    """One toss from its table (T, C)."""
    pose = _poses(table)
    length_error = np.abs(np.linalg.norm(pose[:, 3:], axis=1) - 1)
    if not np.isfinite(pose).all() or (length_error > _MAX_LENGTH_ERROR).any():
        raise DataError(
            f"toss {name!r} holds values that are not finite, "
            "or quaternions that are not of length 1"
        )
    return Trial(name, np.arange(len(pose)) / RATE, {BODY: pose})
