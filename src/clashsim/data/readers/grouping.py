"""Which files make one trial: each file its own, or the files of several loggers by the pattern of
their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from clashsim.core.errors import DataError
from clashsim.data.readers.mapping import LoggerMapping, Mapping

Files = list[tuple[str, Path, LoggerMapping]]  # name with folders, where it lies, how it is read


def group(
    found: Sequence[tuple[str, Path]], mapping: Mapping, *, named: set[str]
) -> dict[str, Files]:
    """Files by trial, in the order of the numbers in their names; `named` are files the user asked
    for, which must fit a pattern.
    """
    keyed: dict[tuple[str, ...], Files] = {}
    patterns = ", ".join(log.files for log in mapping.logs)
    for i, (name, path) in enumerate(found):
        place = PurePosixPath(name)
        fits = [
            (log, match) for log in mapping.logs if (match := _pattern(log.files).fullmatch(name))
        ]
        if fits:
            log, match = fits[0]
            trial = match.groupdict().get("trial") or place.stem
            # Without {trial} in its pattern every file is a trial of its own.
            key = (
                trial,
                match["folder"] or "",
                "" if "{trial}" in log.files else place.name,
                "" if "{trial}" in log.files else str(i),
            )
            keyed.setdefault(key, []).append((name, path, log))
        elif place.name in named:
            raise DataError(f"{name!r} fits none of the patterns in the mapping: {patterns}")
    if not keyed:
        raise DataError(f"none of {len(found)} files fits the patterns in the mapping: {patterns}")
    keyed = _across_folders(keyed)
    for (trial, *_), files in keyed.items():
        if len({id(log) for _, _, log in files}) < len(files):
            raise DataError(
                f"{files[0][0]!r} and {files[-1][0]!r} are both of trial {trial!r} and of one logger"
            )
    keys = sorted(keyed, key=lambda key: [_natural(part) for part in (key[1], key[0], *key[2:])])
    ways = (
        [k[0] for k in keys],
        [f"{k[1]}/{k[0]}" for k in keys],
        [f"{k[1]}/{k[2]}" for k in keys],
        [f"{k[1]}/{k[2]} {k[3]}" for k in keys],
    )
    labels = next(
        way for way in ways if len(set(way)) == len(way)
    )  # the shortest names that differ
    return {label.strip("/"): keyed[key] for label, key in zip(labels, keys, strict=True)}


def _across_folders(keyed: dict[tuple[str, ...], Files]) -> dict[tuple[str, ...], Files]:
    """Loggers that write into folders of their own: files of one trial from different loggers
    belong together.
    """
    merged: dict[tuple[str, ...], Files] = {}
    for trial in dict.fromkeys(key[0] for key in keyed):
        own = {key: files for key, files in keyed.items() if key[0] == trial}
        logs = [id(log) for files in own.values() for _, _, log in files]
        if len(own) > 1 and len(set(logs)) == len(logs):
            own = {next(iter(own)): [file for files in own.values() for file in files]}
        merged |= own
    return merged


def _pattern(files: str) -> re.Pattern[str]:
    parts = (
        re.escape(files or "*")
        .replace(r"\*", "[^/]*")
        .replace(r"\?", "[^/]")
        .replace(r"\{trial\}", "(?P<trial>[^/]+)")
    )
    return re.compile(rf"(?:(?P<folder>.*)/)?{parts}", re.DOTALL)


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() and part.isascii() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    ]
