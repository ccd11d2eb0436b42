"""`import_logs`: from a laboratory's logs to a file of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.progress import Progress, quiet
from clashsim.data import logs
from clashsim.data.checks.findings import FINDING_NAMES, Finding, check_finding_names
from clashsim.data.readers import mapping as mapping_files
from clashsim.data.readers.mapping import QUATERNION_ORDERS, LogMapping
from clashsim.data.trial_files import write_trials
from clashsim.pipeline.arguments import check_not_negative
from clashsim.report.findings import finding_sentences


@dataclass(frozen=True)
class ImportConfig:
    """How logs are read.

    Attributes:
        mapping: Mapping file (.toml) that says which column means what; formats that name their
            bodies need none.
        guess: Whether to guess the mapping from column names and values.
        rate: Frame rate in Hz, for a guess with logs that count frames and have no times; 0 if they
            have times.
        order: Order of quaternions (wxyz or xyzw), for a guess where no column names it.
        accept: Names of findings that would stop the import but are accepted.
        camera: Camera file (.yaml, .json or .toml), for videos and folders of frames with tags.
    """

    mapping: Path | None = None
    guess: bool = False
    rate: float = 0.0
    order: str = ""
    accept: tuple[str, ...] = ()
    camera: Path | None = None

    def __post_init__(self) -> None:
        check_finding_names(self.accept)
        check_not_negative(rate=self.rate)
        if self.rate and not self.guess:
            raise DataError("a rate is for a guess (--guess); in a mapping file it is rate = 120.0")
        if self.order and not self.guess:
            raise DataError('an order is for a guess (--guess); a mapping file has order = "xyzw"')
        if self.order not in ("", *QUATERNION_ORDERS):
            choices = ", ".join(QUATERNION_ORDERS)
            raise DataError(f"the order of quaternions is {self.order!r}; choices: {choices}")
        if self.guess and self.camera is not None:
            raise DataError("a camera file names the bodies, so that nothing is left to --guess")
        if self.guess and self.mapping is not None:
            raise DataError("a guess (--guess) proposes a mapping, so it cannot go with --mapping")


class RefusedLogsError(DataError):
    """Logs that are not imported because of a problem in them.

    Args:
        message: What stops the import.
        findings: All findings; the message has room for the first few only.
    """

    def __init__(self, message: str, findings: Sequence[Finding]) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


def import_logs(
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    config: ImportConfig = ImportConfig(),
    progress: Progress = quiet,
) -> logs.ImportedLogs:
    """Read logs as trials in SI units on one clock, check them, and write them to a file.

    Args:
        paths: Files, folders and archives with logs.
        out: File of trials to write (.safetensors).
        config: How to read the logs.
        progress: Shows how many trials were read.

    Returns:
        The trials, the findings (problems of the logs), and the mapping that was used.

    Raises:
        RefusedLogsError: The logs cannot be read, or a finding that stops the import is not in
            `config.accept`.
    """
    mapping = None if config.mapping is None else mapping_files.load(config.mapping)
    if config.camera is not None:
        mapping = mapping_files.with_camera(config.camera, mapping)
    try:
        imported = logs.read_logs(
            paths,
            mapping=mapping,
            guess=config.guess,
            rate=config.rate,
            order=config.order,
            accept=config.accept,
            progress=progress,
        )
    except DataError as error:
        findings = _all_findings(paths, mapping, config)
        raise RefusedLogsError(str(error), findings) from None
    notes = finding_sentences(imported.findings)
    write_trials(out, replace(imported.trials, notes=notes))
    return imported


def _all_findings(
    paths: Sequence[Path | str], mapping: LogMapping | None, config: ImportConfig
) -> tuple[Finding, ...]:
    """All findings, as if each were accepted; none if the logs cannot be read at all."""
    try:
        imported = logs.read_logs(
            paths,
            mapping=mapping,
            guess=config.guess,
            rate=config.rate,
            order=config.order,
            accept=tuple(FINDING_NAMES),
        )
    except DataError:
        return ()
    return imported.findings


@dataclass(frozen=True, eq=False)
class ProposedMapping:
    """A mapping guessed for logs.

    Attributes:
        text: The mapping as a .toml file holds it.
        without_orientation: Bodies for whose orientation no columns were found.
    """

    text: str
    without_orientation: tuple[str, ...]


def propose_mapping(
    paths: Sequence[Path | str], out: Path | None = None, *, rate: float = 0.0, order: str = ""
) -> ProposedMapping:
    """Guess a mapping for logs from column names and values, and write it if a file is given.

    Args:
        paths: Files, folders and archives with logs.
        out: Mapping file (.toml) to write.
        rate: Frame rate in Hz, for logs that count frames and have no times; 0 if they have times.
        order: Order of quaternions (wxyz or xyzw), where no column names it.

    Returns:
        The mapping as text, and the bodies without orientation.
    """
    guessed = logs.guess_mapping(paths, rate=rate, order=order)
    text = mapping_files.dump(guessed)
    if out is not None:
        write_atomic(out, text.encode())
    without_orientation = []
    for log in guessed.logs:
        for body in log.bodies:
            orientation = (body.quaternion, body.matrix, body.euler, body.yaw)
            if not any((*orientation, body.source, body.markers)):
                without_orientation.append(body.name)
    return ProposedMapping(text, tuple(without_orientation))
