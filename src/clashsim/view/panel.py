"""A panel of the page, and what it may use of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clashsim.view.motion import BodyMotion
from clashsim.view.session import ViewerSession
from clashsim.view.stage import Stage
from clashsim.view.worker import Worker


class Panel(Protocol):
    """One thing to do on the page."""

    folder: Any

    def enter(self) -> None:
        """Show what belongs to it in the scene."""

    def leave(self) -> None:
        """Take that away."""


class PanelHost(Protocol):
    """What a panel uses of the page.

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
        """Show one sentence above the figures."""

    def reporter(self, mode: str) -> Callable[[str], None]:
        """Return what shows a failure in a mode, unless the visitor has left that mode."""
        ...
