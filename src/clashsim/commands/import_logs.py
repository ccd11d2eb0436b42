"""`clashsim import`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from clashsim.commands.shared import console, not_negative, refuse_file
from clashsim.core.errors import DataError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Import


def run(verb: Import) -> None:
    """`clashsim import`."""
    from clashsim.data import logs
    from clashsim.data.checks.findings import FINDING_NAMES, check_finding_names
    from clashsim.data.readers import mapping
    from clashsim.data.trial_files import write_trials
    from clashsim.report.findings import finding_sentences, findings_table

    check_finding_names(verb.accept)
    not_negative(rate=verb.rate)
    if verb.rate and not verb.guess:
        raise DataError("--rate is for --guess; in a mapping file it is rate = 120.0")
    if verb.guess and verb.mapping is not None:
        raise DataError("--guess proposes a mapping, so it cannot go with --mapping")
    if verb.out is None or verb.out.suffix == ".toml":
        _propose(verb)
        return
    refuse_file(verb.out, (".safetensors",), overwrite=verb.overwrite)
    how = None if verb.mapping is None else mapping.load(verb.mapping)
    try:
        got = logs.read_logs(
            verb.logs,
            mapping=how,
            guess=verb.guess,
            rate=verb.rate,
            accept=verb.accept,
            progress=bar,
        )
    except DataError:
        with suppress(
            DataError
        ):  # the sentence has room for the first few findings; the table has them all
            if findings := logs.read_logs(
                verb.logs,
                mapping=how,
                guess=verb.guess,
                rate=verb.rate,
                accept=tuple(FINDING_NAMES),
            ).findings:
                console().print(findings_table(findings), markup=False)
        raise
    if got.findings:
        console().print(findings_table(got.findings), markup=False)
    write_trials(verb.out, replace(got.trials, notes=finding_sentences(got.findings)))
    if verb.guess:
        print(
            f"the mapping was guessed; if it is wrong, write it to a file with --guess -o mapping.toml, mend it, and give it as --mapping\n\n{mapping.dump(got.mapping)}"
        )
    print(f"{len(got.trials)} trials of {', '.join(got.trials.bodies)} written to {verb.out}")


def _propose(verb: Import) -> None:
    """Print or write a guessed mapping."""
    from clashsim.core.files import write_atomic
    from clashsim.data import logs
    from clashsim.data.readers import mapping

    if not verb.guess:
        raise DataError(
            "say where the trials are to go, as in -o trials.safetensors, or ask for a mapping to be proposed with --guess"
        )
    if verb.out is not None:
        refuse_file(verb.out, (".toml",), overwrite=verb.overwrite)
    guessed = logs.guess_mapping(verb.logs, rate=verb.rate)
    text = mapping.dump(guessed)
    if verb.out is None:
        print(text, end="")
        return
    write_atomic(verb.out, text.encode())
    print(f"proposed mapping written to {verb.out}; look at it, mend it, and give it as --mapping")
    bare = [
        body.name
        for log in guessed.logs
        for body in log.bodies
        if not (body.quaternion or body.euler or body.yaw or body.source or body.markers)
    ]
    if bare:
        print(
            f"no columns were taken for the orientation of {', '.join(bare)}, which counts as never turned; if the logs have them, write them in as quaternion, euler or yaw"
        )
