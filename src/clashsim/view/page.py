"""The page: a panel for each mode, the player, checkboxes of what is drawn, and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import viser

from clashsim.view.figures import COLOURS, legend, sentence_html
from clashsim.view.motion import BodyMotion
from clashsim.view.panel import Panel
from clashsim.view.plan_panel import PlanPanel
from clashsim.view.player import Player
from clashsim.view.replay_panel import ReplayPanel
from clashsim.view.route_panel import RoutePanel
from clashsim.view.session import KINDS, ViewerSession
from clashsim.view.stage import Stage
from clashsim.view.strike_panel import StrikePanel
from clashsim.view.worker import Worker

_KIND_HINTS = {
    "recorded": "As it was recorded.",
    "MuJoCo": "MuJoCo with its own collision.",
    "hybrid": "MuJoCo with the learned collision.",
}


class Page:
    """The controls of the page; all visitors of the server share them.

    Args:
        server: The server.
        session: The run that is shown.
    """

    def __init__(self, server: viser.ViserServer, session: ViewerSession) -> None:
        self.session = session
        self.worker = Worker()
        self.mode = "Replay"
        self._camera_is_set = False  # whether cameras were turned to the motions of this mode
        self._motions: dict[str, BodyMotion] = {}
        self.stage = Stage(server, session.scene, session.height)
        gui = server.gui
        gui.configure_theme(
            control_width="large",
            show_logo=False,
            show_share_button=False,
            brand_color=COLOURS["MuJoCo"],
        )
        gui.set_panel_label(f"clashsim: {session.title}")
        for sentence in self.stage.not_drawn:
            gui.add_html(sentence_html(sentence))
        cell_width = self.stage.cell_width if self.stage.has_grid else None
        gui.add_html(legend((*KINDS, "target"), cell_width))
        self._modes = gui.add_button_group("mode", ("Replay", "Plan", "Strike", "Route"))
        self._panels: dict[str, Panel] = {
            "Replay": ReplayPanel(self, gui),
            "Plan": PlanPanel(self, gui),
            "Strike": StrikePanel(self, gui),
            "Route": RoutePanel(self, gui),
        }
        self._status = gui.add_html("")
        self._figures = gui.add_html("")
        with gui.add_folder("Time"):
            self.player = Player(gui, self.stage)
        with gui.add_folder("What is drawn"):
            self._kinds = {
                kind: gui.add_checkbox(kind, True, hint=_KIND_HINTS[kind]) for kind in KINDS
            }
            self._values = gui.add_dropdown(
                "MuJoCo with",
                session.values,
                hint="Identified: what `clashsim export` writes. "
                "Author's: as the scene file has them.",
            )
        for kind, box in self._kinds.items():
            box.on_update(partial(self._toggled, kind))
        self._values.on_update(lambda _: self._panels[self.mode].enter())
        self._modes.on_click(lambda event: self.go(event.target.value))
        self._show_panel(self.mode)
        self._panels[self.mode].enter()

    @property
    def values(self) -> str:
        """Name of the parameter values that MuJoCo is run with."""
        return str(self._values.value)

    @property
    def figures(self) -> str:
        """The figures that are shown now, as HTML."""
        return str(self._figures.content)

    @property
    def status(self) -> str:
        """The sentence above the figures, as HTML."""
        return str(self._status.content)

    def panel(self, name: str) -> Any:
        """Return the panel of a mode."""
        return self._panels[name]

    def go(self, mode: str) -> None:
        """Change to another mode."""
        if mode == self.mode:
            return
        self._panels[self.mode].leave()
        self.mode = mode
        self._camera_is_set = False
        self._show_panel(mode)
        self.show({}, figures="")
        self.show_status("")
        self._panels[mode].enter()

    def show(self, motions: Mapping[str, BodyMotion], figures: str, *, play: bool = False) -> None:
        """Show motions by kind, and figures.

        Cameras turn to the first motions of a mode, and then stay as visitors have moved them.

        Args:
            motions: Motions by kind.
            figures: Tables below the status, as HTML.
            play: Whether to play the motions from the beginning.
        """
        self._motions = dict(motions)
        if motions and not self._camera_is_set:
            self._camera_is_set = True
            self.stage.look_at(motions.values())
        self.player.load(motions, play=play)
        for kind in KINDS:
            self._update_visibility(kind)
        self._figures.content = figures

    def reporter(self, mode: str) -> Callable[[str], None]:
        """Return a function that shows a sentence, unless the visitor has left this mode."""

        def report(sentence: str) -> None:
            if self.mode == mode:
                self.show_status(sentence)

        return report

    def show_status(self, sentence: str, *, busy: bool = False) -> None:
        """Show one sentence above the figures, with an hourglass if `busy`."""
        self._status.content = sentence_html(sentence, busy=busy)

    def end(self) -> bool:
        """Stop working, and return whether all work has ended."""
        self.player.end()
        return self.worker.end()

    def _show_panel(self, mode: str) -> None:
        for name, panel in self._panels.items():
            panel.folder.visible = name == mode

    def _toggled(self, kind: str, event: Any) -> None:
        self._update_visibility(kind)

    def _update_visibility(self, kind: str) -> None:
        is_wanted = bool(self._kinds[kind].value)
        self.stage.show(kind, is_wanted and kind in self._motions)
