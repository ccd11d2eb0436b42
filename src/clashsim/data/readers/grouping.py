"""Groups files into trials: each file is a trial, or the files of several loggers form one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from clashsim.core.errors import DataError
from clashsim.data.readers.mapping import LoggerMapping, LogMapping
from clashsim.data.readers.sources import FoundFile

_MAX_DIGITS = 18  # of a number in a name: more do not fit an integer of 64 bits


@dataclass(frozen=True)
class LogFile:
    """One file of a trial: its name with folders, its path on disk, and how it is read."""

    name: str
    path: Path
    logger: LoggerMapping


class _TrialKey(NamedTuple):
    """What tells trials apart.

    Attributes:
        trial: The part of the file's name that stands for {trial} in the pattern; without {trial},
            the name without its suffix.
        folder: The folder of the file.
        file: Name of the file, if the pattern has no {trial}: every file is then its own trial.
        number: Number of the file among all files, if the pattern has no {trial}.
    """

    trial: str
    folder: str
    file: str
    number: str


_Groups = dict[_TrialKey, list[LogFile]]


def group_by_trial(
    files: Sequence[FoundFile], mapping: LogMapping, *, named: set[str]
) -> dict[str, list[LogFile]]:
    """Group files by trial.

    Args:
        files: The files that were found.
        mapping: The mapping, whose patterns say which logger wrote a file.
        named: Names of files that the user asked for, which must fit a pattern.

    Returns:
        The files of each trial by a short name of the trial, with "trial 10" after "trial 9".
    """
    groups = _merge_folders(_group_by_pattern(files, mapping, named))
    for key, group in groups.items():
        if len({id(file.logger) for file in group}) < len(group):
            first = group[0].name
            last = group[-1].name
            raise DataError(
                f"{first!r} and {last!r} are both of trial {key.trial!r} and of one logger"
            )
    keys = sorted(groups, key=_sort_key)
    return dict(zip(_short_labels(keys), [groups[key] for key in keys], strict=True))


def _group_by_pattern(files: Sequence[FoundFile], mapping: LogMapping, named: set[str]) -> _Groups:
    """Group files by folder and trial, each by the first pattern of the mapping that fits it."""
    groups: _Groups = {}
    patterns = ", ".join(logger.files for logger in mapping.logs)
    for number, file in enumerate(files):
        file_name = PurePosixPath(file.name)
        for logger in mapping.logs:
            match = _pattern(logger.files).fullmatch(file.name)
            if match is None:
                continue
            trial = match.groupdict().get("trial") or file_name.stem
            folder = match["folder"] or ""
            if "{trial}" in logger.files:
                key = _TrialKey(trial, folder, "", "")
            else:
                key = _TrialKey(trial, folder, file_name.name, str(number))
            groups.setdefault(key, []).append(LogFile(file.name, file.path, logger))
            break
        else:
            if file_name.name in named:
                raise DataError(
                    f"{file.name!r} fits none of the patterns in the mapping: {patterns}"
                )
    if not groups:
        raise DataError(f"none of {len(files)} files fits the patterns in the mapping: {patterns}")
    return groups


def _merge_folders(groups: _Groups) -> _Groups:
    """Join groups of one trial in several folders, where each logger has a folder of its own."""
    merged: _Groups = {}
    for trial in dict.fromkeys(key.trial for key in groups):
        of_trial = {key: files for key, files in groups.items() if key.trial == trial}
        files = [file for group in of_trial.values() for file in group]
        is_one_per_logger = len({id(file.logger) for file in files}) == len(files)
        if len(of_trial) > 1 and is_one_per_logger:
            merged[next(iter(of_trial))] = files
        else:
            merged |= of_trial
    return merged


def _short_labels(keys: Sequence[_TrialKey]) -> list[str]:
    """Names of trials: the shortest of four forms in which no two are the same."""
    choices = (
        [key.trial for key in keys],
        [f"{key.folder}/{key.trial}" for key in keys],
        [f"{key.folder}/{key.file}" for key in keys],
        [f"{key.folder}/{key.file} {key.number}" for key in keys],
    )
    labels = next(names for names in choices if len(set(names)) == len(names))
    return [label.strip("/") for label in labels]


def _pattern(files: str) -> re.Pattern[str]:
    """The regular expression for a logger's pattern of file names, in any folder."""
    name = re.escape(files or "*")
    name = name.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    name = name.replace(r"\{trial\}", "(?P<trial>[^/]+)")
    return re.compile(rf"(?:(?P<folder>.*)/)?{name}", re.DOTALL)


def _sort_key(key: _TrialKey) -> list[list[tuple[int, int, str]]]:
    """A sort key by folder first."""
    return [natural_key(part) for part in (key.folder, key.trial, key.file, key.number)]


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A sort key that puts "trial 10" after "trial 9"."""
    parts: list[tuple[int, int, str]] = []
    for part in re.split(r"(\d+)", text):
        is_number = part.isdigit() and part.isascii() and len(part) <= _MAX_DIGITS
        parts.append((0, int(part), "") if is_number else (1, 0, part))
    return parts
