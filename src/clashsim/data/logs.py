"""Import of logs as trials: files of all formats are read by a mapping, joined, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.core.trials import Trial, Trials
from clashsim.data.checks.conventions import (
    check_handedness,
    check_quaternion_order,
    check_swapped_bodies,
    check_units,
    check_up_axis,
)
from clashsim.data.checks.findings import (
    Finding,
    check_finding_names,
    finding,
    raise_if_serious,
)
from clashsim.data.checks.sightings import check_sightings
from clashsim.data.checks.time_series import (
    check_clock,
    check_dropouts,
    check_repeats_and_jumps,
)
from clashsim.data.readers.formats import SUFFIXES, describes_itself, read_columns, read_log
from clashsim.data.readers.grouping import LogFile, group_by_trial
from clashsim.data.readers.infer_mapping import TableHead, count_header_lines, infer_mapping
from clashsim.data.readers.join import join_logs
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from clashsim.data.readers.sources import FoundFile, gather
from clashsim.data.readers.streams import Log, Stream

_HEAD_ROWS = 4000  # rows of each file from which a mapping is guessed


@dataclass(frozen=True, eq=False)
class ImportedLogs:
    """Trials read from logs.

    Attributes:
        trials: The trials.
        findings: What was found wrong with the logs.
        mapping: The mapping by which the logs were read.
    """

    trials: Trials
    findings: tuple[Finding, ...]
    mapping: LogMapping


def read_logs(
    paths: Sequence[Path | str],
    *,
    mapping: LogMapping | None = None,
    guess: bool = False,
    rate: float = 0.0,
    order: str = "",
    accept: Sequence[str] = (),
    progress: Progress = quiet,
) -> ImportedLogs:
    """Read trials from logs, folders of logs and archives.

    Motive, Vicon, C3D and bags describe themselves. Tables and arrays need a mapping, given or
    guessed; videos and folders of frames one with a camera file
    (`clashsim.data.readers.mapping.with_camera`).

    Args:
        paths: Files, folders and archives.
        mapping: Which columns are the time, and the position and orientation of which body.
        guess: Whether to guess the mapping from names and numbers where none is given.
        rate: Frames per second, for a guess where the logs count frames and have no times.
        order: Order of quaternions (wxyz or xyzw), for a guess where their columns do not name it.
        accept: Names of serious findings that should not stop the import.
        progress: Shows how many trials have been read.

    Returns:
        The trials, and what was found wrong with them.

    Raises:
        DataError: A file cannot be read, or a serious finding was not accepted.
    """
    check_finding_names(accept)
    with _printable_errors(), ExitStack() as stack:
        has_camera = mapping is not None and any(logger.camera for logger in mapping.logs)
        files = gather([Path(path) for path in paths], SUFFIXES, stack, frames=has_camera)
        if mapping is None:
            mapping = _propose_mapping(files, rate, order) if guess else LogMapping()
        named = {Path(path).name for path in paths}
        groups = group_by_trial(files, mapping, named=named)
        trials: list[Trial] = []
        findings: list[Finding] = []
        with progress("reading", len(groups)) as advance:
            for name, trial_files in groups.items():
                trial, trial_findings = _read_trial(name, trial_files, mapping, accept)
                if trial is not None:
                    trials.append(trial)
                findings += trial_findings
                advance(1)
        raise_if_serious(findings, accept)
        if not trials:
            raise DataError("the logs hold no trial: no body is seen in two rows")
    return ImportedLogs(Trials(tuple(trials)), tuple(findings), mapping)


def guess_mapping(paths: Sequence[Path | str], *, rate: float = 0.0, order: str = "") -> LogMapping:
    """Guess a mapping for logs, to be looked at, corrected, and written with `mapping.dump`.

    Args:
        paths: Files, folders and archives.
        rate: Frames per second, where the logs count frames and have no times.
        order: Order of quaternions (wxyz or xyzw), where their columns do not name it.

    Returns:
        The mapping.
    """
    with _printable_errors(), ExitStack() as stack:
        files = gather([Path(path) for path in paths], SUFFIXES, stack)
        if all(describes_itself(file.path) for file in files):
            return _named_bodies(files)
        return _propose_mapping(files, rate, order)


def _named_bodies(files: Sequence[FoundFile]) -> LogMapping:
    """The mapping of files that describe themselves: their bodies, which can be renamed in it.

    Those that not every file has are left out, since a mapping asks each file for all of its
    bodies.
    """
    shared: dict[str, None] | None = None
    for file in files:
        with _naming_file(file.name):
            found = dict.fromkeys(s.body for s in read_log(file.path, LoggerMapping()).streams)
        if shared is None:
            shared = found
        shared = {name: None for name in shared if name in found}
    bodies = tuple(BodyMapping(name, source=name) for name in shared or ())
    return LogMapping((LoggerMapping(bodies),))


def _propose_mapping(files: Sequence[FoundFile], rate: float, order: str) -> LogMapping:
    """Guess a mapping from the first rows of those files that do not describe themselves."""
    heads: dict[str, TableHead] = {}
    for file in files:
        with _naming_file(file.name):
            if describes_itself(file.path):
                continue
            lines = count_header_lines(file.path)
            columns, fields = read_columns(file.path, rows=_HEAD_ROWS, header_lines=lines)
            heads[file.name] = TableHead(lines, columns, fields)
    return infer_mapping(heads, rate, order=order) if heads else LogMapping()


def _read_trial(
    name: str,
    files: Sequence[LogFile],
    mapping: LogMapping,
    accept: Sequence[str],
) -> tuple[Trial | None, list[Finding]]:
    """Read and check the files of one trial; the trial is None when no body is seen in it."""
    findings: list[Finding] = []
    for logger in mapping.logs:
        if not any(file.logger is logger for file in files):
            message = f"there is no file for {logger.files!r}"
            findings.append(finding("missing_log", "stop", message, trial=name))
    logs: list[Log] = []
    for file in files:
        with _naming_file(file.name):
            raw = read_log(file.path, file.logger)
        streams = []
        for raw_stream in raw.streams:
            stream, stream_findings = _check_stream(name, raw_stream)
            streams.append(stream)
            findings += stream_findings
        logs.append(replace(raw, streams=tuple(streams)))
    all_streams = [stream for log in logs for stream in log.streams]
    findings += check_units(name, all_streams)
    findings += _check_shared_time(name, logs)
    is_seen = any(np.isfinite(stream.pose).all(1).any() for stream in all_streams)
    if all_streams and not is_seen:
        return None, findings
    try:
        trial = join_logs(name, logs, mapping.known)
    except DataError as error:
        # A serious finding explains better than this error why the logs cannot be joined.
        raise_if_serious(findings, accept)
        raise DataError(f"in {files[0].name!r}: {error}") from None
    return trial, findings + check_swapped_bodies(trial)


def _check_stream(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Run all checks of one stream.

    Args:
        trial: Name of the trial, for the findings.
        stream: One body in one log.

    Returns:
        The stream with bad rows removed or set to NaN, and what was found.
    """
    findings: list[Finding] = []
    if not stream.has_orientation:
        message = "the log has no orientation of the body; it counts as never rotated"
        findings.append(finding("no_orientation", "warn", message, trial=trial, body=stream.body))
    for clean in (check_sightings, check_clock, check_dropouts, check_repeats_and_jumps):
        stream, found = clean(trial, stream)
        findings += found
    for check in (check_quaternion_order, check_up_axis, check_handedness):
        findings += check(trial, stream)
    return stream, findings


def _check_shared_time(trial: str, logs: Sequence[Log]) -> list[Finding]:
    """Look for loggers whose recordings do not overlap in time."""
    starts = []
    ends = []
    for log in logs:
        times = [stream.t for stream in log.streams] + [t for t, _ in log.signals.values()]
        if times and all(len(t) for t in times):
            starts.append(min(t[0] for t in times))
            ends.append(max(t[-1] for t in times))
    if starts and max(starts) > min(ends):
        message = "two loggers of the trial share no time; check their clocks and offsets"
        return [finding("clocks", "stop", message, trial=trial)]
    return []


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Replace unprintable letters in error messages by ?.

    Names in a file may hold line ends and control sequences, which a terminal would carry out.
    """
    try:
        yield
    except DataError as error:
        message = "".join(letter if letter.isprintable() else "?" for letter in str(error))
        raise DataError(message) from None


@contextmanager
def _naming_file(name: str) -> Iterator[None]:
    """Add the name of a file to errors that are raised while it is read."""
    try:
        yield
    except DataError as error:
        raise DataError(f"in {name!r}: {error}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{name!r} cannot be read: {reason}") from None
    except MemoryError:
        raise DataError(f"{name!r} needs more memory than there is") from None
