"""`clashsim show`: print the results of a run, or test it on a second recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clashsim.commands.motion_tables import print_motion_run
from clashsim.commands.option_types import Names, OptionalPath, RunArgument
from clashsim.commands.run_tables import print_pairs, print_run, print_test
from clashsim.commands.shared import announce_compilation, say
from clashsim.core.errors import DataError, ParamError, RunError


@dataclass(frozen=True)
class ShowOptions:
    """Print the results of a run: parameters with intervals and status, and accuracy.

    Example: clashsim show runs/first

    With --impacts, test the run on impacts that it was not fitted to.
    """

    run: RunArgument
    """Run folder of clashsim calibrate, fit or demo."""
    details: bool = False
    """A run of several pairs: also print the tables of each pair."""
    impacts: OptionalPath = None
    """Second file of impacts, or of trials, to test the run on, instead of printing its results."""
    accept: Names = ()
    """With --impacts: findings to accept, as of clashsim calibrate."""


def run(options: ShowOptions) -> None:
    """Run `clashsim show`."""
    from clashsim.fit.motion_run import is_motion_run
    from clashsim.fit.pairs_folder import pair_folders, pairs_notes
    from clashsim.fit.run_folder import read_notes

    if options.impacts is not None:
        _test(options.run, options.impacts, options.accept)
        return
    if options.accept:
        raise ParamError("--accept is about a second recording: give --impacts as well")
    if is_motion_run(options.run):
        _show_motion(options.run)
        return
    folders = pair_folders(options.run)
    if not folders:
        _show(options.run)
        return
    for name, folder in folders.items():
        if options.details:
            print(f"\nPair {name}")
            _show(folder)
    for sentence in pairs_notes(options.run):
        say(sentence)
    metrics = {name: read_notes(path)["metrics"] for name, path in folders.items()}
    print_pairs(metrics, options.run, detailed=options.details)


def _show_motion(folder: Path) -> None:
    """Print the results of a fit to whole trajectories."""
    from clashsim.fit.motion_run import load_motion_run

    fitted = load_motion_run(folder)
    print_motion_run(fitted)
    for note in fitted.notes:
        say(note)


def _show(folder: Path) -> None:
    """Print the results of one pair."""
    from clashsim.fit.run_folder import load, read_notes

    calibrated = load(folder)
    notes = read_notes(folder)
    print_run(calibrated, notes["metrics"], notes["slide"])
    metrics = notes["metrics"]
    sentences: list[str] = []
    for key in ("segmented", "left_out", "forces"):
        sentences += metrics.get(key, ())
    for sentence in sentences:
        say(sentence)
    trials = [f"{trial['name']} ({trial['impacts']} impacts)" for trial in notes["trials"]]
    data = ", ".join(trials) or "not named"
    versions = ", ".join(f"{name} {version}" for name, version in notes["versions"].items())
    say(f"scene {calibrated.scene.name}; data: {data}; made with {versions}")


def _test(folder: Path, recording: Path, accept: tuple[str, ...]) -> None:
    """Test a run on a second recording, each pair on its own impacts."""
    from clashsim.data.checks.findings import check_finding_names
    from clashsim.fit.motion_run import is_motion_run
    from clashsim.fit.pairs_folder import pair_folders

    check_finding_names(accept)
    if is_motion_run(folder):
        raise RunError(
            f"the run {str(folder)!r} was fitted to whole trajectories, and --impacts tests runs "
            "of clashsim calibrate: hold out trials with clashsim fit --hold-out"
        )
    folders = pair_folders(folder)
    if not folders:
        _test_pair(folder, recording, accept)
        return
    failures = []
    for name, own in folders.items():
        print(f"\nPair {name}")
        try:
            _test_pair(own, recording, accept)
        except DataError as error:  # other pairs may have impacts
            failures.append(error)
            say(f"not tested: {error}", style="yellow")
    if len(failures) == len(folders):
        raise failures[0]


def _test_pair(folder: Path, recording: Path, accept: tuple[str, ...]) -> None:
    """Test the run of one pair on a second recording."""
    import hashlib

    from clashsim.data.impact_files import to_bytes
    from clashsim.fit.run_folder import load, read_notes
    from clashsim.pipeline.second_test import judge_run

    run = load(folder)
    announce_compilation()
    test = judge_run(run, recording, accept=accept, notify=say)
    digest = hashlib.sha256(to_bytes(test.impacts)).hexdigest()
    if any(trial.get("sha256") == digest for trial in read_notes(folder)["trials"]):
        say("These are the impacts that the run was fitted to: this is no test.", "bold yellow")
    print_test(test, recording.name)
