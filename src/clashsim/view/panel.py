"""Interfaces between a panel and the page that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clashsim.view.motion import BodyMotion
from clashsim.view.session import ViewerSession
from clashsim.view.stage import Stage
from clashsim.view.worker import Worker


class Panel(Protocol):
    """The controls of one mode of the page.

    Attributes:
        folder: Folder of the controls; the page hides it in other modes.
    """

    folder: Any

    def enter(self) -> None:
        """Show what belongs to the panel in the 3D scene."""

    def leave(self) -> None:
        """Remove what `enter` has drawn."""


class PanelHost(Protocol):
    """The part of the page that panels use.

    Attributes:
        session: The run that is shown.
        worker: The thread that simulates and plans.
        stage: The scene in 3D.
        mode: Name of the panel that is open.
    """

    session: ViewerSession
    worker: Worker
    stage: Stage
    mode: str

    @property
    def values(self) -> str:
        """Name of the parameter values that MuJoCo is run with."""
        ...

    def show(self, motions: Mapping[str, BodyMotion], figures: str, *, play: bool = False) -> None:
        """Show motions by kind, and figures."""

    def show_status(self, sentence: str, *, busy: bool = False) -> None:
        """Show one sentence above the figures, with an hourglass if `busy`."""

    def reporter(self, mode: str) -> Callable[[str], None]:
        """Return a function that shows a sentence, unless the visitor has left this mode."""
        ...
