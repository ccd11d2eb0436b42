"""The tossed cube of ContactNets (Pfrommer, Halm, Posa 2020), as trials."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import torch

from clashsim.core.box import Box
from clashsim.core.errors import DataError
from clashsim.core.trials import Trial, Trials
from clashsim.data.readers.sources import read_zip_members

FILE, SOURCE = "contactnets_cube/tosses_processed.zip", "DAIRLab/contact-nets"
RATE, HALF = 148.0, 0.0524  # frames a second; m, the unit of recorded lengths
CUBE = Box((HALF, HALF, HALF), 0.37, (8.1e-4, 8.1e-4, 8.1e-4))
BODY = "box0"


def load(root: Path) -> Trials:
    """All tosses of the data root, by the number in their names."""
    path = root / FILE
    if not path.is_file():
        raise DataError(
            f"the data root {str(root)!r} holds no {FILE}; it is to be had from github.com/{SOURCE}"
        )
    contents = read_zip_members(path, ".pt")
    if not contents:
        raise DataError(f"{path.name} holds no toss (*.pt)")
    return Trials(
        tuple(
            _toss(n, contents[n])
            for n in sorted(contents, key=lambda n: (int((re.findall(r"\d+", n) or ["0"])[-1]), n))
        )
    )


def _toss(name: str, content: bytes) -> Trial:
    try:
        table = torch.load(io.BytesIO(content), weights_only=True)
        rows = np.asarray(table, dtype=float)
    except Exception as error:  # torch's reader raises almost anything on a damaged file
        raise DataError(
            f"toss {name!r} cannot be read ({' '.join(str(error).split())[:80]})"
        ) from None
    if rows.ndim != 3 or rows.shape[0] != 1 or rows.shape[2] < 7 or rows.shape[1] < 8:
        raise DataError(
            f"toss {name!r} should have shape (1, T, 19) with T at least 8, got {rows.shape}"
        )
    pose = rows[0, :, :7].copy()
    if (
        not np.isfinite(pose).all()
        or (np.abs(np.linalg.norm(pose[:, 3:], axis=1) - 1) > 1e-2).any()
    ):
        raise DataError(
            f"toss {name!r} holds values that are not finite or quaternions that are not of length 1"
        )
    pose[:, :3] *= HALF
    return Trial(
        name.rsplit("/", 1)[-1].removesuffix(".pt"), np.arange(len(pose)) / RATE, {BODY: pose}
    )
