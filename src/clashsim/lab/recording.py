"""The recorded set: 110 strikes for each of the eighteen settings, shipped with the package.

It can be recorded again with `record_all`.
"""

from __future__ import annotations

import zlib
from importlib import resources
from pathlib import Path

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.lab.packed import pack, unpack
from clashsim.lab.session import execute_independently
from clashsim.lab.settings import Setting, settings
from clashsim.lab.strike import Strike, block_outline

# Number of trials of a setting: the first ones are for fitting, the others for testing (CLASH,
# Sec. IV-A).
FIT = 10
TEST = 100
SEED = 2025
# Standard deviations of x, y (m), yaw (rad) at which the operator puts the block down: near the
# middle of the table, with the side to be struck towards the arm.
_START_STD = (0.01, 0.01, 0.05)


def plan(
    setting: Setting, n: int = FIT + TEST, seed: int = SEED
) -> tuple[list[Strike], np.ndarray]:
    """Draw strikes from the ranges of the setting's scene.

    Args:
        setting: The block and the table.
        n: Number of strikes.
        seed: Seed of the random strikes and poses.

    Returns:
        The n strikes, and poses (n, 3), x, y (m), yaw (rad), at which the block is put down for
        each, rotated so that the tip moves along +x (with some scatter).
    """
    rng = np.random.default_rng([seed, zlib.crc32(setting.name.encode())])
    ranges = Scene.load(setting.shape).strikes
    outline = block_outline(setting.shape)
    starts = np.array(_START_STD) * rng.normal(size=(n, 3))
    strikes = []
    for i in range(n):
        strike = Strike.sample(ranges, rng)
        strikes.append(strike)
        _, direction = outline.touch(strike)
        starts[i, 2] = wrap_angle(starts[i, 2] - np.arctan2(direction[1], direction[0]))
    return strikes, starts


def record(
    setting: Setting,
    n: int = FIT + TEST,
    seed: int = SEED,
    *,
    workers: int | None = None,
    progress: Progress = quiet,
) -> Trials:
    """Record strikes of a setting with Drake.

    Args:
        setting: The block and the table.
        n: Number of strikes.
        seed: Trial i is the same for any n up to 110 and any number of workers.
        workers: Number of processes; by default the number of cores.
        progress: How progress is shown.

    Returns:
        n trials.
    """
    strikes, starts = plan(setting, max(n, FIT + TEST), seed)
    return execute_independently(
        strikes[:n], setting, seed, starts=starts[:n], workers=workers, progress=progress
    )


def record_all(
    folder: Path | str,
    *,
    n: int = FIT + TEST,
    seed: int = SEED,
    shape: str | None = None,
    workers: int | None = None,
    progress: Progress = quiet,
) -> list[Path]:
    """Record every setting into a folder, one file each.

    Existing files are kept, so that an interrupted call can be repeated to finish.

    Args:
        folder: Where the files are written.
        n: Number of strikes of each setting.
        seed: As in `record`.
        shape: Record only the settings of this shape; by default all.
        workers: Number of processes; by default the number of cores.
        progress: How progress is shown.

    Returns:
        Paths of the files, one for each setting.
    """
    paths = []
    for setting in settings(shape):
        path = Path(folder) / f"{setting.name}.npz"
        paths.append(path)
        if not path.is_file():
            trials = record(setting, n, seed, workers=workers, progress=progress)
            strikes, _ = plan(setting, max(n, FIT + TEST), seed)
            write_atomic(path, pack(trials, strikes[:n]))
    return paths


def recorded(
    shape: str = "semi_cylinder", material: str = "resin", surface: str = "high"
) -> Trials:
    """Read the recorded trials of a setting; this needs no Drake.

    Args:
        shape: One of `SHAPES`.
        material: One of `MATERIALS`.
        surface: One of `SURFACES`.

    Returns:
        110 trials: [:10] to fit, [10:] to test.
    """
    trials, _ = _read(Setting(shape, material, surface))
    return trials


def recorded_strikes(
    shape: str = "semi_cylinder", material: str = "resin", surface: str = "high"
) -> list[Strike]:
    """Read the commanded strikes of recorded trials.

    Args:
        shape: As in `recorded`.
        material: As in `recorded`.
        surface: As in `recorded`.

    Returns:
        110 strikes, in the order of the trials.
    """
    _, strikes = _read(Setting(shape, material, surface))
    return strikes


def _read(setting: Setting) -> tuple[Trials, list[Strike]]:
    """The shipped trials of a setting, and their commanded strikes."""
    path = resources.files("clashsim") / "lab" / "recorded" / f"{setting.name}.npz"
    if not path.is_file():
        raise DataError(
            f"the recorded set of {setting.name} is not in this installation; "
            "make it with clashsim.lab.record_all"
        )
    return unpack(path.read_bytes(), setting.name)
