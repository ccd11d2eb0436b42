"""Strike: by hand, with a slider for each number of a strike, and what follows in both simulators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.errors import ClashError
from clashsim.view.figures import AIMS, COLOURS, ends, said, strike_figures, twists
from clashsim.view.motion import BodyMotion
from clashsim.view.outcome import expected
from clashsim.view.strike_sources import aimed, ranges

if TYPE_CHECKING:
    from clashsim.view.page import Page

_HINTS = {
    "point": "Bearing of the striker seen from the body, in the body's axes.",
    "deflection": "Of the velocity from the contact normal.",
    "offset": "The body's origin to the left of the striker's heading.",
    "slip": "Speed along the wall.",
}


class StrikePanel:
    """The panel."""

    def __init__(self, page: Page, gui: Any) -> None:
        self._page, self._why = page, ""
        self.sliders: dict[str, Any] = {}
        self.folder = gui.add_folder("Strike by hand", visible=False)
        try:
            found = ranges(page.session.scene)
        except ClashError as error:
            found, self._why = {}, str(error)
        with self.folder:
            gui.add_html(
                said(
                    self._why
                    or "Choose where and how fast the body is struck. It is simulated when you let go; the ranges are those the model was made for."
                )
            )
            for name, (low, high) in found.items():
                label, unit, scale = AIMS[name]
                step = 0.01 if unit == "m/s" else 1.0
                a, b = np.ceil(scale * low / step) * step, np.floor(scale * high / step) * step
                middle = round(float(np.round((0.35 * a + 0.65 * b) / step) * step), 6)
                self.sliders[name] = gui.add_slider(
                    f"{label}, {unit}",
                    min=round(float(a), 6),
                    max=round(float(b), 6),
                    step=step,
                    initial_value=middle,
                    hint=_HINTS.get(name),
                )
        for slider in self.sliders.values():
            slider.on_update(lambda event: self.enter() if event.client is not None else None)

    def aims(self) -> dict[str, float]:
        """The strike that is chosen, in SI units."""
        return {name: float(slider.value) / AIMS[name][2] for name, slider in self.sliders.items()}

    def enter(self) -> None:
        """Strike as the sliders say."""
        page = self._page
        if self._why:
            return
        page.say("Simulating the strike ...", busy=True)
        page.worker.do("strike", lambda: self._strike(self.aims()), page.teller("Strike"))

    def leave(self) -> None:
        """Take arrow and expectation out of the scene."""
        stage = self._page.stage
        for name in ("start", "expected"):
            stage.ghost(name, None, ())
        stage.cloud(np.zeros((0, 3)), ())
        stage.arrows(np.zeros((0, 12)))

    def _strike(self, aims: dict[str, float]) -> None:
        page, session, stage = self._page, self._page.session, self._page.stage
        before = aimed(session.scene, aims, np.zeros(3))
        if page.mode != "Strike":
            return
        stage.arrows(before[None])
        if not session.scene.striker_body.fixed:
            stage.ghost("start", np.zeros(3), (120, 120, 120), opacity=0.15)
        figures = self._expected(aims)
        motions: dict[str, BodyMotion] = {}
        for kind in ("MuJoCo", "hybrid"):
            if page.worker.waits("strike") or page.mode != "Strike":
                return
            motions[kind] = session.rolled(before, kind, page.values)
        page.show(
            motions,
            figures
            + (
                ends(session.rests(motions))
                if session.slides
                else twists(session.twists(before, page.values))
            ),
            play=True,
        )
        page.say("")

    def _expected(self, aims: dict[str, float]) -> str:
        """Figures of what the map of strikes expects, drawn as well; a sentence where the run has
        no map.
        """
        page = self._page
        try:
            found = expected(page.session.scene, page.session.map, aims, np.zeros(3))
        except ClashError as error:
            return said(f"Where it comes to rest is not foretold: {error}.")
        page.stage.ghost("expected", found.rest, COLOURS["hybrid"], opacity=0.2)
        page.stage.cloud(found.cloud, COLOURS["hybrid"])
        return strike_figures(found)
