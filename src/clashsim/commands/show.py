"""`clashsim show`: print the results of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clashsim.commands.motion_tables import print_motion_run
from clashsim.commands.option_types import RunArgument
from clashsim.commands.run_tables import print_pairs, print_run
from clashsim.commands.shared import say


@dataclass(frozen=True)
class ShowOptions:
    """Print the results of a run: parameters with intervals and status, and accuracy.

    Example: clashsim show runs/first
    """

    run: RunArgument
    """Run folder of clashsim calibrate, fit or demo."""
    details: bool = False
    """A run of several pairs: also print the tables of each pair."""


def run(options: ShowOptions) -> None:
    """Run `clashsim show`."""
    from clashsim.fit.motion_run import is_motion_run
    from clashsim.fit.pairs_folder import pair_folders, pairs_notes
    from clashsim.fit.run_folder import read_notes

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
    for sentence in (*metrics.get("segmented", ()), *metrics.get("left_out", ())):
        say(sentence)
    trials = [f"{trial['name']} ({trial['impacts']} impacts)" for trial in notes["trials"]]
    data = ", ".join(trials) or "not named"
    versions = ", ".join(f"{name} {version}" for name, version in notes["versions"].items())
    say(f"scene {calibrated.scene.name}; data: {data}; made with {versions}")
