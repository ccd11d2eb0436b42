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
_FEWEST_FRAMES = 8
_POSE_COLUMNS = 7  # position, then quaternion wxyz
_MAX_LENGTH_ERROR = 1e-2  # of a quaternion
_MAX_REASON = 80  # characters of a reader's message that are shown


def load(root: Path) -> Trials:
    """Load all tosses of the data root, by the number in their names."""
    path = root / FILE
    if not path.is_file():
        raise DataError(
            f"the data root {str(root)!r} holds no {FILE}; download it from github.com/{SOURCE}"
        )
    contents = read_zip_members(path, ".pt")
    if not contents:
        raise DataError(f"{path.name} holds no toss (*.pt)")
    names = sorted(contents, key=lambda name: (_number(name), name))
    return Trials(tuple(_read_toss(name, contents[name]) for name in names))


def _number(name: str) -> int:
    """The last number in a name, 0 if there is none."""
    numbers = re.findall(r"\d+", name) or ["0"]
    return int(numbers[-1])


def _read_toss(name: str, content: bytes) -> Trial:
    """One toss from the content of its file."""
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
    pose = table[0, :, :_POSE_COLUMNS].copy()
    length_error = np.abs(np.linalg.norm(pose[:, 3:], axis=1) - 1)
    if not np.isfinite(pose).all() or (length_error > _MAX_LENGTH_ERROR).any():
        raise DataError(
            f"toss {name!r} holds values that are not finite, "
            "or quaternions that are not of length 1"
        )
    pose[:, :3] *= HALF
    short_name = name.rsplit("/", 1)[-1].removesuffix(".pt")
    return Trial(short_name, np.arange(len(pose)) / RATE, {BODY: pose})
