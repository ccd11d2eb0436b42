"""Replay: a recorded strike, and the same one in MuJoCo and in the hybrid simulator, over each
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.view.figures import ends, said, twists
from clashsim.view.motion import BodyMotion
from clashsim.view.strike_sources import ReplayedStrike

if TYPE_CHECKING:
    from clashsim.view.page import Page


class ReplayPanel:
    """The panel."""

    def __init__(self, page: Page, gui: Any) -> None:
        self._page, names = page, page.session.source.names
        first = page.session.source.first
        self.folder = gui.add_folder("Replay")
        with self.folder:
            gui.add_html(said(page.session.source.words))
            self.strike = gui.add_dropdown(
                "strike",
                names or ("none",),
                initial_value=names[first] if names else "none",
                hint="Which one to replay.",
            )
            self.number = gui.add_slider(
                "number",
                min=1,
                max=max(2, len(names)),
                step=1,
                initial_value=first + 1,
                visible=len(names) > 1,
            )
        self.strike.on_update(lambda event: self._chosen(names.index(self.strike.value), event))
        self.number.on_update(
            lambda event: self._chosen(min(int(self.number.value), len(names)) - 1, event)
        )
        self._names, self._i = names, first

    def enter(self) -> None:
        """Simulate the strike that is chosen, and show it."""
        page, i = self._page, self._i
        if not self._names:
            page.say("This run has no strikes to replay.")
            return
        page.say(f"Simulating {self._names[i]} ...", busy=True)
        page.worker.do("replay", lambda: self._replay(i), page.teller("Replay"))

    def leave(self) -> None:
        """Nothing of it stays."""

    def _chosen(self, i: int, event: Any) -> None:
        if event.client is None or i == self._i:
            return
        self._i = i
        self.strike.value, self.number.value = self._names[i], i + 1
        self.enter()

    def _replay(self, i: int) -> None:
        page, session = self._page, self._page.session
        strike = session.source[i]
        motions: dict[str, BodyMotion] = (
            {} if strike.recorded is None else {"recorded": strike.recorded}
        )
        for kind in ("MuJoCo", "hybrid") if strike.before is not None else ():
            if page.worker.waits("replay"):
                return
            motions[kind] = session.rolled(strike.before, kind, page.values)  # type: ignore[arg-type]
        if page.mode == "Replay":
            page.show(motions, self._figures(strike, motions))
            page.say(strike.says)

    def _figures(self, strike: ReplayedStrike, motions: dict[str, BodyMotion]) -> str:
        session = self._page.session
        rests = ends(session.rests(motions)) if session.slides else ""
        if strike.before is None:
            return rests
        found: dict[str, np.ndarray] = {} if strike.after is None else {"measured": strike.after}
        return rests + twists(found | session.twists(strike.before, self._page.values))
