"""LeRobot datasets: Parquet files of episodes, and a folder `meta` that names their numbers.

Version 2 has a file per episode, version 3 many episodes in one file. Both are cut into one file of
arrays per episode, with a column for each named number, so that a mapping or a guess reads them as
it reads any table. Videos are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.parsing import parse_json, read_bounded
from clashsim.data.readers.parquet import read_parquet
from clashsim.data.readers.streams import Columns
from clashsim.data.readers.tables import MAX_NUMBERS

_INFO_BYTES = 16 << 20  # of meta/info.json; real ones have a few thousand
_MAX_FILES = 10_000
_MAX_EPISODES = 100_000
_MAX_NAME_LENGTH = 200
_EPISODE = "episode_index"
_STATE = "observation.state"
_POSITION_END = ".pos"  # of a motor's name; others are velocities and currents


def is_dataset(path: Path) -> bool:
    """Whether a folder is a LeRobot dataset."""
    return (path / "meta" / "info.json").is_file() and (path / "data").is_dir()


def write_episodes(dataset: Path, folder: Path) -> list[Path]:
    """Write each episode of a dataset as a file of arrays (.npz).

    Args:
        dataset: Folder of the dataset.
        folder: Empty folder to write to.

    Returns:
        The files in the order of the episodes, named as in episode_000003.npz.
    """
    names = _names_of_features(dataset)
    written: dict[int, Path] = {}
    numbers = 0
    for file in _data_files(dataset):
        place = file.relative_to(dataset).as_posix()
        try:
            columns = _named_columns(read_parquet(file), names)
            episodes = list(_episodes(columns, first=len(written)))
        except DataError as error:
            raise DataError(f"in {place!r}: {error}") from None
        for index, episode in episodes:
            numbers += sum(values.size for values in episode.values())
            if numbers > MAX_NUMBERS:
                limit = f"{MAX_NUMBERS / 1e6:.0f} million"
                raise DataError(f"the dataset holds more than {limit} numbers: import fewer files")
            if index in written:
                raise DataError(f"episode {index} is in two files, of which one is {place!r}")
            if len(written) >= _MAX_EPISODES:
                raise DataError(f"the dataset holds more than {_MAX_EPISODES} episodes")
            written[index] = folder / f"episode_{index:06d}.npz"
            arrays: dict[str, Any] = dict(episode)
            np.savez(written[index], **arrays)
    return [written[index] for index in sorted(written)]


def _data_files(dataset: Path) -> list[Path]:
    """The Parquet files of a dataset, in order."""
    files: list[Path] = []
    for chunk in sorted((dataset / "data").iterdir()):
        if chunk.is_dir() and not chunk.is_symlink():
            files += sorted(file for file in chunk.glob("*.parquet") if file.is_file())
        if len(files) > _MAX_FILES:
            raise DataError(f"the dataset holds more than {_MAX_FILES} files")
    if not files:
        raise DataError("the dataset holds no data/chunk-*/*.parquet")
    return files


def _names_of_features(dataset: Path) -> dict[str, list[str]]:
    """Names of the numbers of each feature that has them, as version 2 or 3 writes them."""
    path = dataset / "meta" / "info.json"
    what = f"{dataset.name}/meta/info.json"
    info = parse_json(read_bounded(path, what, limit=_INFO_BYTES), what)
    if not isinstance(info, dict) or not isinstance(info.get("features", {}), dict):
        raise DataError(f"{what} is not that of a LeRobot dataset")
    raw: dict[str, Any] = {}
    if isinstance(info.get("names"), dict):  # version 2.0
        raw |= info["names"]
    for key, feature in info.get("features", {}).items():
        if isinstance(feature, dict):
            raw[key] = feature.get("names")
    names = {}
    for key, given in raw.items():
        if isinstance(given, dict) and len(given) == 1:  # such as motors, axes
            (given,) = given.values()
        is_list = isinstance(given, list) and all(_is_name(name) for name in given)
        if is_list and len(set(given)) == len(given):
            names[key] = given
    return names


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_LENGTH


def _named_columns(columns: Columns, names: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """Columns with one for each named number; those of the state have the names of their motors."""
    named: dict[str, np.ndarray] = {}
    taken = set(columns)
    for key, values in columns.items():
        own = names.get(key, ())
        if values.ndim != 2 or len(own) != values.shape[1]:
            named[key] = values
            continue
        bare = [name.removesuffix(_POSITION_END) for name in own]
        is_state = key.startswith(_STATE) and len(set(bare)) == len(bare)
        if not is_state or taken.intersection(bare):
            bare = [f"{key}.{name}" for name in own]
        taken.update(bare)
        named.update(zip(bare, values.T, strict=True))
    return named


def _episodes(columns: Columns, first: int) -> Iterator[tuple[int, Columns]]:
    """Number and columns of each episode of a file; a file that numbers none is one, `first`."""
    numbers = columns.get(_EPISODE)
    if numbers is None:
        yield first, columns
        return
    if numbers.ndim != 1 or not (np.isfinite(numbers) & (numbers >= 0) & (numbers < 1e9)).all():
        raise DataError(f"column {_EPISODE} should number the episodes")
    for number in np.unique(numbers):
        rows = numbers == number
        yield int(number), {name: values[rows] for name, values in columns.items()}
