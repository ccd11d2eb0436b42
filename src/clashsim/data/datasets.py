"""Public recordings of real impacts, by name, from a folder that the user chooses.

The recordings are not part of this package; users download them.
"""

from __future__ import annotations

import os
from pathlib import Path

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.public_sets import cube_bounces, cube_tosses, ellipse, lasa, puck
from clashsim.data.public_sets.real_dataset import RealDataset as RealDataset

DATA_ROOT_VARIABLE = "CLASHSIM_DATA"
# The file of each set under the data root, and the public repository it comes from.
_FILES = {
    "mit_ellipse": (ellipse.FILE, "mcubelab/planar-impact-dataset"),
    "lasa": (lasa.FILE, "epfl-lasa/air_hockey"),
    "tud_puck": (puck.FILE, "mrdinghr/air-hockey"),
    cube_bounces.NAME: (cube_tosses.FILE, cube_tosses.SOURCE),
}
_READERS = {
    "mit_ellipse": ellipse.read_ellipse,
    "tud_puck": puck.read_puck,
    cube_bounces.NAME: cube_bounces.read_cube,
}


def find_data_root(root: Path | None) -> Path:
    """The folder with public recordings, given by --data or by the environment.

    Args:
        root: The folder given by --data; None to take the environment variable.

    Returns:
        The folder, which exists.

    Raises:
        DataError: No folder was given, or it does not exist; the message says where the recordings
            can be obtained.
    """
    chosen = root
    if chosen is None and os.environ.get(DATA_ROOT_VARIABLE):
        chosen = Path(os.environ[DATA_ROOT_VARIABLE])
    if chosen is None:
        files = [f"{file} from github.com/{repository}" for file, repository in _FILES.values()]
        raise DataError(
            f"no real recordings: put {', '.join(files)} into one folder (any part of them will do)"
            f" and point at it with --data FOLDER or the environment variable {DATA_ROOT_VARIABLE}"
        )
    if not chosen.is_dir():
        needed = ", ".join(file for file, _ in _FILES.values())
        raise DataError(
            f"the data root {str(chosen)!r} is not a folder: give --data or {DATA_ROOT_VARIABLE}"
            f" a folder that holds {needed}"
        )
    return chosen


def names(root: Path) -> list[str]:
    """Names of the sets that the data root holds."""
    found = []
    for kind, (file, _) in _FILES.items():
        if (root / file).is_file():
            found += lasa.lasa_names(root) if kind == "lasa" else [kind]
    return sorted(found)


def load(name: str, root: Path) -> RealDataset:
    """Read one set by name; raises a DataError that lists the sets there are for any other."""
    kind = name.split("/")[0]
    is_present = kind in _FILES and (root / _FILES[kind][0]).is_file()
    dataset = None
    if is_present and kind == "lasa":
        dataset = lasa.read_lasa(name, root)
    elif is_present and name in _READERS:
        dataset = _READERS[name](root)
    if dataset is None:
        hint = did_you_mean(name, names(root))
        raise DataError(f"the data root holds no set {name!r}; {hint}")
    return dataset
