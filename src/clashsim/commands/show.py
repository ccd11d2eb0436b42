"""`clashsim show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clashsim.commands.results import report

if TYPE_CHECKING:
    from clashsim.cli import Show


def run(verb: Show) -> None:
    """`clashsim show`."""
    from clashsim.fit.run_folder import load, read_notes

    shown, notes = load(verb.run), read_notes(verb.run)
    report(shown, notes)
    for sentence in notes["metrics"].get("segmented", ()):
        print(sentence)
    trials = ", ".join(f"{t['name']} ({t['impacts']} impacts)" for t in notes["trials"])
    made = ", ".join(f"{k} {v}" for k, v in notes["versions"].items())
    print(f"scene {shown.scene.name}; data: {trials or 'not named'}; made with {made}")
