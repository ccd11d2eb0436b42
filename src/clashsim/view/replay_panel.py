"""Replay: a recorded strike, and the same one in MuJoCo and in the hybrid simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.view.figures import rest_table, sentence_html, twist_table
from clashsim.view.motion import BodyMotion
from clashsim.view.session import SIMULATED_KINDS
from clashsim.view.strike_sources import ReplayedStrike

if TYPE_CHECKING:
    from clashsim.view.panel import PanelHost

_NONE = "none"  # what the list shows where there is nothing to replay


class ReplayPanel:
    """The controls: a list and a slider, which choose the same strike.

    Args:
        page: The page that it belongs to.
        gui: Where its controls are added.
    """

    def __init__(self, page: PanelHost, gui: Any) -> None:
        source = page.session.source
        names = source.names
        self._page = page
        self._names = names
        self._number = source.first  # of the chosen strike, from 0
        self.folder = gui.add_folder("Replay")
        with self.folder:
            gui.add_html(sentence_html(source.words))
            self.strike = gui.add_dropdown(
                "strike",
                names or (_NONE,),
                initial_value=names[source.first] if names else _NONE,
                hint="The strike to replay.",
            )
            self.number = gui.add_slider(
                "number",
                min=1,
                max=max(2, len(names)),
                step=1,
                initial_value=source.first + 1,
                visible=len(names) > 1,
            )
        self.strike.on_update(lambda event: self._choose(names.index(self.strike.value), event))
        self.number.on_update(
            lambda event: self._choose(min(int(self.number.value), len(names)) - 1, event)
        )

    def enter(self) -> None:
        """Simulate the chosen strike, and show it."""
        page = self._page
        number = self._number
        if not self._names:
            page.show_status("This run has no strikes to replay.")
            return
        page.show_status(f"Simulating {self._names[number]} ...", busy=True)
        page.worker.do("replay", lambda: self._replay(number), page.reporter("Replay"))

    def leave(self) -> None:
        """Do nothing: the page removes motions and figures itself."""

    def _choose(self, number: int, event: Any) -> None:
        """Replay another strike, if a visitor chose it."""
        if event.client is None or number == self._number:
            return
        self._number = number
        self.strike.value = self._names[number]
        self.number.value = number + 1
        self.enter()

    def _replay(self, number: int) -> None:
        """Simulate a strike with all simulators, and show it with its recording."""
        page = self._page
        session = page.session
        strike = session.source[number]
        motions: dict[str, BodyMotion] = {}
        if strike.recorded is not None:
            motions["recorded"] = strike.recorded
        if strike.before is not None:
            for kind in SIMULATED_KINDS:
                if page.worker.waits("replay"):
                    return
                motions[kind] = session.simulate(strike.before, kind, page.values)
        if page.mode == "Replay":
            page.show(motions, self._figures(strike, motions))
            page.show_status(strike.note)

    def _figures(self, strike: ReplayedStrike, motions: dict[str, BodyMotion]) -> str:
        """Return poses at rest and twists after the impact, as HTML."""
        session = self._page.session
        figures = rest_table(session.rests(motions)) if session.slides else ""
        if strike.before is None:
            return figures
        twists: dict[str, np.ndarray] = {}
        if strike.after is not None:
            twists["measured"] = strike.after
        twists |= session.twists(strike.before, self._page.values)
        return figures + twist_table(twists)
