"""Plan: a target that is dragged in the scene, and the strikes that bring the body there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.errors import ClashError
from clashsim.core.strike_geometry import check_strikes_can_be_chosen
from clashsim.view.figures import COLOURS, plan_figures, sentence_html
from clashsim.view.motion import BodyMotion
from clashsim.view.outcome import PlannedOutcome, plan_outcome
from clashsim.view.poses import planar_pose
from clashsim.view.scene_nodes import set_pose
from clashsim.view.stage import START_COLOUR

if TYPE_CHECKING:
    from clashsim.view.panel import PanelHost

_EXPLANATION = (
    "Drag the pink target: arrows and the square move it, the arc rotates it. "
    "The strike is planned while you drag and simulated when you let go."
)
_START = np.zeros(3)  # planar pose of the body before the strikes
_FIRST_OFFSET = 0.2  # bounding radii from the end of an average strike to the first target, along x
_FIRST_ROTATION = 0.3  # rad, likewise
_STRIKE_COUNTS = {"as few as needed": 0, "one": 1, "two": 2, "three": 3}


class PlanPanel:
    """The controls, and the gizmo: handles in the 3D scene that move the target.

    Args:
        page: The page that it belongs to.
        gui: Where its controls are added.
    """

    def __init__(self, page: PanelHost, gui: Any) -> None:
        self._page = page
        self.folder = gui.add_folder("Plan", visible=False)
        with self.folder:
            gui.add_html(sentence_html(_EXPLANATION))
            self.x = gui.add_number("target x, mm", 0.0, step=0.5)
            self.y = gui.add_number("target y, mm", 0.0, step=0.5)
            self.yaw = gui.add_number("target yaw, °", 0.0, step=0.5)
            self.strike_count = gui.add_dropdown("strikes", tuple(_STRIKE_COUNTS))
        for box in (self.x, self.y, self.yaw):
            box.on_update(lambda event: self._typed() if event.client is not None else None)
        self.strike_count.on_update(lambda _: self._request_plan(final=True))
        self.gizmo: Any = None
        self.planned: PlannedOutcome | None = None
        self._why_not = ""  # why nothing can be planned, if so

    def enter(self) -> None:
        """Show the target, and plan for it; the first time, make the strike table."""
        page = self._page
        if self._why_not:
            page.show_status(self._why_not)
            return
        try:
            check_strikes_can_be_chosen(page.session.scene)
        except ClashError as error:
            self._failed(str(error))
            return
        page.stage.ghost("start", _START, START_COLOUR, opacity=0.15)
        page.show_status("Making the strike table, which takes some seconds ...", busy=True)
        page.worker.do("table", self._begin, self._failed)

    def leave(self) -> None:
        """Remove target and plan from the scene."""
        if self.gizmo is not None:
            self.gizmo.visible = False
        self._page.stage.clear_plan()

    def target(self) -> np.ndarray:
        """Return the planar pose (3,) of the target: x, y (m), yaw (rad)."""
        assert self.gizmo is not None
        pose = np.concatenate([self.gizmo.position, self.gizmo.wxyz])
        return planar_pose(self._page.session.scene, pose, use_plane_axes=True)

    def aim(self, target: np.ndarray) -> None:
        """Move the target to a planar pose (3,), plan for it and simulate the plan."""
        assert self.gizmo is not None
        set_pose(self.gizmo, self._page.stage.handle_pose(target))
        self._request_plan(final=True)

    def _failed(self, sentence: str) -> None:
        """Say why nothing can be planned, and hide the controls."""
        self._why_not = f"Nothing can be planned here: {sentence}."
        for box in (self.x, self.y, self.yaw, self.strike_count):
            box.visible = False
        self._page.stage.ghost("start", None, ())
        self._page.reporter("Plan")(self._why_not)

    def _begin(self) -> None:
        """Make the strike table, put the target near the end of an average strike, and plan."""
        page = self._page
        model = page.session.strike_table
        if page.mode != "Plan":
            return
        if self.gizmo is None:
            average_strike = (model.low + model.high) / 2
            rest = model.rest(_START[None], average_strike[None])[0]
            offset = np.array([_FIRST_OFFSET * page.stage.size, 0.0, _FIRST_ROTATION])
            self.gizmo = page.stage.gizmo("/target", rest + offset, COLOURS["target"])
            self.gizmo.on_update(self._dragged)
        self.gizmo.visible = True
        self._request_plan(final=True)

    async def _dragged(self, event: Any) -> None:
        # viser runs plain functions in a pool of threads, where an earlier step of a drag could be
        # handled after its end and replace the plan that is to be simulated; so this is async.
        self._request_plan(final=event.phase == "end")

    def _typed(self) -> None:
        if self.gizmo is not None:
            yaw = np.radians(self.yaw.value)
            self.aim(np.array([1e-3 * self.x.value, 1e-3 * self.y.value, yaw]))

    def _request_plan(self, *, final: bool) -> None:
        """Plan for the present target; `final`: simulate the plan, too."""
        page = self._page
        if self.gizmo is None or page.mode != "Plan":
            return
        page.show_status("Planning ...", busy=True)
        page.worker.do("plan", lambda: self._plan(final), page.reporter("Plan"))

    def _plan(self, final: bool) -> None:
        """Plan and draw the plan; `final`: simulate it, unless a newer plan was requested."""
        page = self._page
        session = page.session
        stage = page.stage
        target = self.target()
        self.x.value = round(1e3 * target[0], 1)
        self.y.value = round(1e3 * target[1], 1)
        self.yaw.value = round(float(np.degrees(target[2])), 1)
        planned = plan_outcome(
            session.scene,
            session.strike_table,
            target,
            start=_START,
            strikes=_STRIKE_COUNTS[self.strike_count.value],
        )
        if page.mode != "Plan":
            return
        planned = replace(planned, plan=planned.plan.by_unreliable_model(session.caution))
        self.planned = planned
        expected = planned.expected
        stage.ghost("expected", expected.rest, COLOURS["hybrid"], opacity=0.15)
        stage.cloud(expected.cloud, COLOURS["hybrid"])
        stage.arrows(expected.before)
        page.show({}, plan_figures(planned))
        page.show_status("Simulating it ..." if final else "", busy=True)
        if final and not page.worker.waits("plan"):
            page.worker.do("simulate", lambda: self._simulate(planned), page.reporter("Plan"))

    def _simulate(self, planned: PlannedOutcome) -> None:
        """Simulate the plan, strike after strike, each from where the last one left the body."""
        page = self._page
        session = page.session
        motions: dict[str, BodyMotion] = {}
        for kind in ("hybrid", "MuJoCo"):
            is_outdated = page.worker.waits("plan") or page.worker.waits("simulate")
            if is_outdated or page.mode != "Plan":
                return
            motions[kind] = session.simulate_strikes(
                planned.strikes, start=_START, kind=kind, values=page.values
            )
        page.show(motions, plan_figures(planned, session.rests(motions)), play=True)
        page.show_status("")
