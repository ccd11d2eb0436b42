"""The page: a panel for what to do, the player, what is drawn, and figures; everything a visitor
sees is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import viser

from clashsim.view.figures import legend, said
from clashsim.view.motion import BodyMotion
from clashsim.view.plan_panel import PlanPanel
from clashsim.view.player import Player
from clashsim.view.replay_panel import ReplayPanel
from clashsim.view.route_panel import RoutePanel
from clashsim.view.session import KINDS, ViewerSession
from clashsim.view.stage import Stage
from clashsim.view.strike_panel import StrikePanel
from clashsim.view.worker import Worker


class Panel(Protocol):
    """One thing to do on the page. `enter` shows what belongs to it in the scene and `leave` takes
    it away.
    """

    folder: Any

    def enter(self) -> None: ...

    def leave(self) -> None: ...


class Page:
    """All of it on a server; visitors share one view."""

    def __init__(self, server: viser.ViserServer, session: ViewerSession) -> None:
        self.session, self.worker, gui = session, Worker(), server.gui
        self.mode, self._looked = "Replay", False
        self._motions: dict[str, BodyMotion] = {}
        self.stage = Stage(server, session.scene, session.height)
        gui.configure_theme(
            control_width="large",
            show_logo=False,
            show_share_button=False,
            brand_color=(0, 114, 178),
        )
        gui.set_panel_label(f"clashsim: {session.title}")
        for note in self.stage.left:
            gui.add_html(said(note))
        gui.add_html(legend((*KINDS, "target"), self.stage.cell if self.stage.grid else None))
        self._modes = gui.add_button_group("mode", ("Replay", "Plan", "Strike", "Route"))
        self._panels: dict[str, Panel] = {
            "Replay": ReplayPanel(self, gui),
            "Plan": PlanPanel(self, gui),
            "Strike": StrikePanel(self, gui),
            "Route": RoutePanel(self, gui),
        }
        self._status, self._figures = gui.add_html(""), gui.add_html("")
        with gui.add_folder("Time"):
            self.player = Player(gui, self.stage)
        with gui.add_folder("What is drawn"):
            hints = (
                "As it was recorded.",
                "MuJoCo with its own collision.",
                "MuJoCo with the learned collision.",
            )
            self._kinds = {
                kind: gui.add_checkbox(kind, True, hint=hint)
                for kind, hint in zip(KINDS, hints, strict=True)
            }
            self._values = gui.add_dropdown(
                "MuJoCo with",
                session.values,
                hint="Identified: what `clashsim export` writes. Author's: as the scene file has them.",
            )
        for kind, box in self._kinds.items():
            box.on_update(partial(self._toggled, kind))
        self._values.on_update(lambda _: self._panels[self.mode].enter())
        self._modes.on_click(lambda event: self.go(event.target.value))
        for name in self._panels:
            self._panels[name].folder.visible = name == self.mode
        self._panels[self.mode].enter()

    @property
    def values(self) -> str:
        """What MuJoCo is run with."""
        return str(self._values.value)

    @property
    def figures(self) -> str:
        """What the page says now, as HTML."""
        return str(self._figures.content)

    @property
    def status(self) -> str:
        """The sentence above the figures, as HTML."""
        return str(self._status.content)

    def panel(self, name: str) -> Any:
        """One of the panels."""
        return self._panels[name]

    def go(self, mode: str) -> None:
        """Do something else."""
        if mode == self.mode:
            return
        self._panels[self.mode].leave()
        self.mode, self._looked = mode, False
        for name, panel in self._panels.items():
            panel.folder.visible = name == mode
        self.show({}, "")
        self.say("")
        self._panels[mode].enter()

    def show(self, motions: Mapping[str, BodyMotion], figures: str, *, play: bool = False) -> None:
        """Show motions by kind, and figures. The first of a mode are turned to; after that,
        visitors look from where they like.
        """
        self._motions = dict(motions)
        if motions and not self._looked:
            self._looked = True
            self.stage.look_at(motions.values())
        self.player.load(motions, play=play)
        for kind in KINDS:
            self._visible(kind)
        self._figures.content = figures

    def teller(self, mode: str) -> Callable[[str], None]:
        """Says what goes wrong in a mode, unless the visitor has left it."""
        return lambda sentence: self.say(sentence) if self.mode == mode else None

    def say(self, sentence: str, *, busy: bool = False) -> None:
        """One sentence above the figures."""
        self._status.content = said(sentence, busy=busy)

    def end(self) -> bool:
        """Stop working; whether all work has ended."""
        self.player.end()
        return self.worker.end()

    def _toggled(self, kind: str, event: Any) -> None:
        self._visible(kind)

    def _visible(self, kind: str) -> None:
        self.stage.show(kind, bool(self._kinds[kind].value) and kind in self._motions)
