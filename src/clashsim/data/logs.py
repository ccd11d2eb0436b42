"""Logs into trials: every format through one mapping, several loggers on one clock, and the checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.core.trials import Trial, Trials
from clashsim.data.checks import frames, rows
from clashsim.data.checks.findings import Finding, check_finding_names, finding, stop
from clashsim.data.readers.formats import SUFFIXES, describes_itself, read_columns, read_log
from clashsim.data.readers.grouping import Files, group
from clashsim.data.readers.infer_mapping import guess as guess_columns
from clashsim.data.readers.infer_mapping import header_lines
from clashsim.data.readers.join import join
from clashsim.data.readers.mapping import Mapping
from clashsim.data.readers.sources import gather
from clashsim.data.readers.streams import Log, Stream

HEAD = 4000  # rows that a guess looks at


@dataclass(frozen=True, eq=False)
class ImportedLogs:
    """Trials, what was found wrong with them, and the mapping they were read by."""

    trials: Trials
    findings: tuple[Finding, ...]
    mapping: Mapping


def read(
    paths: Sequence[Path | str],
    *,
    mapping: Mapping | None = None,
    guess: bool = False,
    rate: float = 0.0,
    accept: Sequence[str] = (),
    progress: Progress = quiet,
) -> ImportedLogs:
    """Trials from logs, folders of logs and archives; serious findings raise a DataError unless
    their names are in `accept`.

    Motive, Vicon, C3D and bags describe themselves. Tables and arrays need a mapping, or `guess`,
    which proposes one from names and numbers.
    rate: frames a second, for a guess where the logs count frames and have no times.
    """
    check_finding_names(accept)
    with _sentence(), ExitStack() as stack:
        found = gather([Path(path) for path in paths], SUFFIXES, stack)
        if mapping is None:
            mapping = _propose(found, rate) if guess else Mapping()
        groups = group(found, mapping, named={Path(path).name for path in paths})
        trials: list[Trial] = []
        findings: list[Finding] = []
        with progress("reading", len(groups)) as advance:
            for name, files in groups.items():
                trial, about = _trial(name, files, mapping, accept)
                trials += [] if trial is None else [trial]
                findings += about
                advance(1)
        stop(findings, accept)
        if not trials:
            raise DataError("the logs hold no trial: no body is seen in two rows")
    return ImportedLogs(Trials(tuple(trials)), tuple(findings), mapping)


def guess_mapping(paths: Sequence[Path | str], *, rate: float = 0.0) -> Mapping:
    """A mapping guessed for logs, to be looked at, written with `mapping.dump` and mended."""
    with _sentence(), ExitStack() as stack:
        return _propose(gather([Path(path) for path in paths], SUFFIXES, stack), rate)


def _propose(found: Sequence[tuple[str, Path]], rate: float) -> Mapping:
    heads = {}
    for name, path in found:
        with _inside(name):
            if not describes_itself(path):
                lines = header_lines(path)
                heads[name] = (lines, *read_columns(path, rows=HEAD, header_lines=lines))
    return guess_columns(heads, rate) if heads else Mapping()


def _trial(
    name: str, files: Files, mapping: Mapping, accept: Sequence[str]
) -> tuple[Trial | None, list[Finding]]:
    logs: list[Log] = []
    found: list[Finding] = []
    for log in mapping.logs:
        if not any(used is log for _, _, used in files):
            found.append(
                finding("missing_log", "stop", name, "", (), f"there is no file for {log.files!r}")
            )
    for label, path, log in files:
        with _inside(label):
            raw = read_log(path, log)
        checked = [_checked(name, stream) for stream in raw.streams]
        logs.append(replace(raw, streams=tuple(stream for stream, _ in checked)))
        found += [f for _, about in checked for f in about]
    streams = [stream for log in logs for stream in log.streams]
    found += frames.units(name, streams)
    spans = [
        (min(s.t[0] for s in log.streams), max(s.t[-1] for s in log.streams))
        for log in logs
        if log.streams and all(len(s.t) for s in log.streams)
    ]
    if spans and max(first for first, _ in spans) > min(last for _, last in spans):
        found.append(
            finding(
                "clocks",
                "stop",
                name,
                "",
                (),
                "two loggers of the trial share no time; check their clocks and offsets",
            )
        )
    if streams and not any(np.isfinite(stream.pose).all(1).any() for stream in streams):
        return None, found
    try:
        trial = join(name, logs, mapping.known)
    except DataError as error:
        stop(found, accept)  # what was found explains better why nothing is left
        raise DataError(f"in {files[0][0]!r}: {error}") from None
    return trial, found + frames.swapped(trial)


def _checked(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    found: list[Finding] = []
    if not stream.turned:
        found.append(
            finding(
                "no_orientation",
                "warn",
                trial,
                stream.body,
                (),
                "the log has no orientation of the body; it counts as never turned",
            )
        )
    for check in (rows.clock, rows.lost, rows.frames):
        stream, about = check(trial, stream)
        found += about
    for look in (frames.order, frames.upward, frames.mirrored):
        found += look(trial, stream)
    return stream, found


@contextmanager
def _sentence() -> Iterator[None]:
    """Keep a message to one line that a terminal shows as it is: names in a file may hold anything."""
    try:
        yield
    except DataError as error:
        raise DataError(
            "".join(letter if letter.isprintable() else "?" for letter in str(error))
        ) from None


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """Work on a file; what goes wrong names the file."""
    try:
        yield
    except DataError as error:
        raise DataError(f"in {name!r}: {error}") from None
    except OSError as error:
        raise DataError(
            f"{name!r} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    except MemoryError:
        raise DataError(f"{name!r} asks for more memory than there is") from None
