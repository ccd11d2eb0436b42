"""Strike by hand: a slider for each number of a strike, which both simulators then simulate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.errors import ClashError
from clashsim.core.strike_distribution import Range
from clashsim.view.figures import (
    COLOURS,
    STRIKE_LABELS,
    rest_table,
    sentence_html,
    strike_figures,
    twist_table,
)
from clashsim.view.motion import BodyMotion
from clashsim.view.outcome import strike_outcome
from clashsim.view.session import SIMULATED_KINDS
from clashsim.view.stage import START_COLOUR
from clashsim.view.strike_sources import adjustable_ranges, before_of_strike

if TYPE_CHECKING:
    from clashsim.view.panel import PanelHost

_EXPLANATION = (
    "Choose where and how fast the body is struck. The strike is simulated when you let go; "
    "the ranges are those the model was made for."
)
_HINTS = {
    "point": "Bearing of the striker seen from the body, in the body's axes.",
    "deflection": "Angle of the velocity from the contact normal.",
    "offset": "How far the body's origin is to the left of the striker's heading.",
    "slip": "Speed along the wall.",
}
_DECIMALS = 6  # of the sliders' values: not 0.30000000000000004
_INITIAL_SHARE = 0.65  # first value of a slider: 0 is its lowest, 1 its highest value
_START = np.zeros(3)  # planar pose of the body before the strike


class StrikePanel:
    """The controls: a slider for each number of a strike.

    Args:
        page: The page that it belongs to.
        gui: Where its controls are added.
    """

    def __init__(self, page: PanelHost, gui: Any) -> None:
        self._page = page
        self._why_not = ""  # why nothing can be struck by hand, if so
        self.sliders: dict[str, Any] = {}
        self.folder = gui.add_folder("Strike by hand", visible=False)
        ranges: dict[str, Range] = {}
        try:
            ranges = adjustable_ranges(page.session.scene)
        except ClashError as error:
            self._why_not = str(error)
        with self.folder:
            gui.add_html(sentence_html(self._why_not or _EXPLANATION))
            for name, limits in ranges.items():
                self.sliders[name] = self._add_slider(gui, name, limits)
        for slider in self.sliders.values():
            slider.on_update(lambda event: self.enter() if event.client is not None else None)

    def strike(self) -> dict[str, float]:
        """Return the chosen strike in SI units, by the names of its numbers."""
        strike = {}
        for name, slider in self.sliders.items():
            strike[name] = float(slider.value) / STRIKE_LABELS[name].scale
        return strike

    def enter(self) -> None:
        """Simulate the strike that the sliders are set to."""
        page = self._page
        if self._why_not:
            return
        page.show_status("Simulating the strike ...", busy=True)
        page.worker.do("strike", lambda: self._simulate(self.strike()), page.reporter("Strike"))

    def leave(self) -> None:
        """Remove arrow and expected pose from the scene."""
        self._page.stage.clear_plan()

    def _add_slider(self, gui: Any, name: str, limits: Range) -> Any:
        """Add a slider for a number of the strike; its ends are whole steps.

        Args:
            gui: Where the slider is added.
            name: Name of the number.
            limits: Lowest and highest value in SI units.
        """
        label = STRIKE_LABELS[name]
        step = 0.01 if label.unit == "m/s" else 1.0
        low = np.ceil(label.scale * limits[0] / step) * step
        high = np.floor(label.scale * limits[1] / step) * step
        initial = (1 - _INITIAL_SHARE) * low + _INITIAL_SHARE * high
        return gui.add_slider(
            f"{label.name}, {label.unit}",
            min=round(float(low), _DECIMALS),
            max=round(float(high), _DECIMALS),
            step=step,
            initial_value=round(float(np.round(initial / step) * step), _DECIMALS),
            hint=_HINTS.get(name),
        )

    def _simulate(self, strike: dict[str, float]) -> None:
        """Draw a strike and its expected outcome, then simulate it with both simulators."""
        page = self._page
        session = page.session
        stage = page.stage
        before = before_of_strike(session.scene, strike, _START)
        if page.mode != "Strike":
            return
        stage.arrows(before[None])
        if not session.scene.striker_body.fixed:
            stage.ghost("start", _START, START_COLOUR, opacity=0.15)
        figures = self._show_expected(strike)
        motions: dict[str, BodyMotion] = {}
        for kind in SIMULATED_KINDS:
            if page.worker.waits("strike") or page.mode != "Strike":
                return
            motions[kind] = session.simulate(before, kind, page.values)
        if session.slides:
            figures += rest_table(session.rests(motions))
        else:
            figures += twist_table(session.twists(before, page.values))
        page.show(motions, figures, play=True)
        page.show_status("")

    def _show_expected(self, strike: dict[str, float]) -> str:
        """Draw the outcome that the strike table expects, and return its figures as HTML.

        Where the run has no strike table, the figures are a sentence that says so.
        """
        page = self._page
        try:
            expected = strike_outcome(
                page.session.scene, page.session.strike_table, strike, start=_START
            )
        except ClashError as error:
            return sentence_html(f"Where it comes to rest is not predicted: {error}.")
        page.stage.ghost("expected", expected.rest, COLOURS["hybrid"], opacity=0.2)
        page.stage.cloud(expected.cloud, COLOURS["hybrid"])
        return strike_figures(expected)
