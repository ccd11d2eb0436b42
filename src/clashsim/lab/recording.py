"""The recorded set: 110 strikes for each of the eighteen settings, shipped with the package, and
how it is made again.
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

FIT, TEST = (
    10,
    100,
)  # the first trials of a set are for fitting, the others for testing (CLASH, Sec. IV-A)
SEED = 2025
_SPREAD = (
    0.01,
    0.01,
    0.05,
)  # m, m, rad: where the operator puts the block, about the middle of the table with the struck side to the arm


def plan(
    setting: Setting, n: int = FIT + TEST, seed: int = SEED
) -> tuple[list[Strike], np.ndarray]:
    """Strikes drawn from the ranges of the setting's scene, and starts (n, 3) that turn the block
    so that each goes along +x.
    """
    rng = np.random.default_rng([seed, zlib.crc32(setting.name.encode())])
    ranges, shape = Scene.load(setting.shape).strikes, block_outline(setting.shape)
    strikes, starts = [], np.array(_SPREAD) * rng.normal(size=(n, 3))
    for i in range(n):
        strikes.append(Strike.strikes(ranges, rng))
        way = shape.touch(strikes[i])[1]
        starts[i, 2] = wrap_angle(starts[i, 2] - np.arctan2(way[1], way[0]))
    return strikes, starts


def record(
    setting: Setting,
    n: int = FIT + TEST,
    seed: int = SEED,
    *,
    workers: int | None = None,
    progress: Progress = quiet,
) -> Trials:
    """Record `n` strikes of a setting with Drake; trial i is the same for any n up to 110 and any
    number of workers.
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
    """Record every setting (or those of one shape) into a folder, one file each; files that are
    there are kept, so a stopped call goes on.
    """
    paths = []
    for setting in settings(shape):
        paths.append(Path(folder) / f"{setting.name}.npz")
        if not paths[-1].is_file():
            trials = record(setting, n, seed, workers=workers, progress=progress)
            write_atomic(paths[-1], pack(trials, plan(setting, max(n, FIT + TEST), seed)[0][:n]))
    return paths


def recorded(
    shape: str = "semi_cylinder", material: str = "resin", surface: str = "high"
) -> Trials:
    """The 110 recorded trials of a setting: [:10] to fit, [10:] to test. Needs no Drake."""
    return _read(Setting(shape, material, surface))[0]


def recorded_strikes(
    shape: str = "semi_cylinder", material: str = "resin", surface: str = "high"
) -> list[Strike]:
    """The commanded strikes of `recorded`, in the same order."""
    return _read(Setting(shape, material, surface))[1]


def _read(setting: Setting) -> tuple[Trials, list[Strike]]:
    path = resources.files("clashsim") / "lab" / "recorded" / f"{setting.name}.npz"
    if not path.is_file():
        raise DataError(
            f"the recorded set of {setting.name} is not in this installation; make it with clashsim.lab.record_all"
        )
    return unpack(path.read_bytes(), setting.name)
