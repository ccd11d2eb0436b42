"""Plan: a target that is dragged in the scene, the strikes that bring the body there, and what is
expected of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.view.figures import COLOURS, plan_figures, said
from clashsim.view.motion import BodyMotion, flat
from clashsim.view.outcome import PlannedOutcome, planned

if TYPE_CHECKING:
    from clashsim.view.page import Page

_MANY = {"as few as needed": 0, "one": 1, "two": 2, "three": 3}


class PlanPanel:
    """The panel, and the gizmo."""

    def __init__(self, page: Page, gui: Any) -> None:
        self._page = page
        self.folder = gui.add_folder("Plan", visible=False)
        with self.folder:
            gui.add_html(
                said(
                    "Drag the pink target: arrows and the square move it, the arc turns it. The strike is planned while you drag and simulated when you let go."
                )
            )
            self.x, self.y = (
                gui.add_number(f"target {axis}, mm", 0.0, step=0.5) for axis in ("x", "y")
            )
            self.yaw = gui.add_number("target yaw, °", 0.0, step=0.5)
            self.many = gui.add_dropdown("strikes", tuple(_MANY))
        for box in (self.x, self.y, self.yaw):
            box.on_update(lambda event: self._typed() if event.client is not None else None)
        self.many.on_update(lambda _: self._ask(final=True))
        self.gizmo: Any = None
        self.found: PlannedOutcome | None = None
        self._why = ""

    def enter(self) -> None:
        """Show the target, and plan for it; the first time, make the map of strikes."""
        page = self._page
        if self._why:
            page.say(self._why)
            return
        page.stage.ghost("start", np.zeros(3), (120, 120, 120), opacity=0.15)
        page.say("Making the map of strikes, which takes some seconds ...", busy=True)
        page.worker.do("map", self._begin, self._failed)

    def leave(self) -> None:
        """Take target and plan out of the scene."""
        if self.gizmo is not None:
            self.gizmo.visible = False
        stage = self._page.stage
        for name in ("start", "expected"):
            stage.ghost(name, None, ())
        stage.cloud(np.zeros((0, 3)), ())
        stage.arrows(np.zeros((0, 12)))

    def target(self) -> np.ndarray:
        """Planar pose (3,) of the target."""
        assert self.gizmo is not None
        return flat(
            self._page.session.scene,
            np.concatenate([self.gizmo.position, self.gizmo.wxyz]),
            upright=True,
        )

    def aim(self, target: np.ndarray, *, final: bool = True) -> None:
        """Move the target to a planar pose (3,), and plan for it."""
        assert self.gizmo is not None
        at = self._page.stage.upright(target)
        self.gizmo.position, self.gizmo.wxyz = at[:3], at[3:]
        self._ask(final=final)

    def _failed(self, sentence: str) -> None:
        self._why = f"Nothing can be planned here: {sentence}."
        for box in (self.x, self.y, self.yaw, self.many):
            box.visible = False
        self._page.stage.ghost("start", None, ())
        self._page.teller("Plan")(self._why)

    def _begin(self) -> None:
        """With the map: put the target where an average strike brings the body, and plan."""
        page = self._page
        model = page.session.map
        if page.mode != "Plan":
            return
        if self.gizmo is None:
            first = model.rest(np.zeros((1, 3)), ((model.low + model.high) / 2)[None])[0] + [
                0.2 * page.stage.size,
                0.0,
                0.3,
            ]
            self.gizmo = page.stage.gizmo("/target", first, COLOURS["target"])
            self.gizmo.on_update(self._dragged)
        self.gizmo.visible = True
        self._ask(final=True)

    async def _dragged(self, event: Any) -> None:
        # Not a plain function: those run on a pool, where the last but one step of a drag could
        # come after its end, and take the place of the plan that is simulated.
        self._ask(final=event.phase == "end")

    def _typed(self) -> None:
        if self.gizmo is not None:
            self.aim(
                np.array([1e-3 * self.x.value, 1e-3 * self.y.value, np.radians(self.yaw.value)])
            )

    def _ask(self, *, final: bool) -> None:
        """Plan for where the target is now; `final`: and simulate that, too."""
        page = self._page
        if self.gizmo is None or page.mode != "Plan":
            return
        page.say("Planning ...", busy=True)
        page.worker.do("plan", lambda: self._plan(final), page.teller("Plan"))

    def _plan(self, final: bool) -> None:
        page, session, target = self._page, self._page.session, self.target()
        self.x.value, self.y.value, self.yaw.value = (
            round(1e3 * target[0], 1),
            round(1e3 * target[1], 1),
            round(float(np.degrees(target[2])), 1),
        )
        found = planned(
            session.scene, session.map, target, np.zeros(3), strikes=_MANY[self.many.value]
        )
        if page.mode != "Plan":
            return
        self.found, stage, e = found, page.stage, found.expected
        stage.ghost("expected", e.rest, COLOURS["hybrid"], opacity=0.15)
        stage.cloud(e.cloud, COLOURS["hybrid"])
        stage.arrows(e.before)
        page.show({}, plan_figures(found))
        page.say("" if not final else "Simulating it ...", busy=True)
        if final and not page.worker.waits("plan"):
            page.worker.do("rolled", lambda: self._roll(found), page.teller("Plan"))

    def _roll(self, found: PlannedOutcome) -> None:
        """Step the plan, strike after strike, each from where the last one left the body."""
        page, session = self._page, self._page.session
        motions: dict[str, BodyMotion] = {}
        for kind in ("hybrid", "MuJoCo"):
            if page.worker.waits("plan") or page.worker.waits("rolled") or page.mode != "Plan":
                return
            motions[kind] = session.struck(found.strikes, np.zeros(3), kind, page.values)
        page.show(motions, plan_figures(found, session.rests(motions)), play=True)
        page.say("")
