"""Route: a trained policy strikes the body along a route, in the hybrid simulator or in MuJoCo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.view.figures import COLOURS, said, table
from clashsim.view.motion import solid

if TYPE_CHECKING:
    from clashsim.view.page import Page


class RoutePanel:
    """The panel."""

    def __init__(self, page: Page, gui: Any) -> None:
        self._page, session = page, page.session
        self._why = session.policy if isinstance(session.policy, str) else ""
        self.folder = gui.add_folder("Route", visible=False)
        with self.folder:
            gui.add_html(
                said(
                    self._why
                    or "The policy strikes the body along the corridor, at most five times to each sub-goal; a strike that leaves the corridor ends it."
                )
            )
            self.route = gui.add_dropdown(
                "route", tuple(session.routes) or ("none",), visible=not self._why
            )
            self.world = gui.add_dropdown(
                "strikes made in", ("hybrid", "MuJoCo"), visible=not self._why
            )
            self.seed = gui.add_number(
                "start",
                0,
                min=0,
                max=10_000,
                step=1,
                hint="Seed of where it begins.",
                visible=not self._why,
            )
            self.button = gui.add_button("Follow", visible=not self._why)
        self.route.on_update(lambda _: self._draw())
        self.button.on_click(lambda _: self.follow())

    def enter(self) -> None:
        """Draw the route, and follow it."""
        if not self._why:
            self._draw()
            self.follow()

    def leave(self) -> None:
        """Take the route out of the scene."""
        self._page.stage.route(None)
        self._page.stage.shadows(np.zeros((0, 3)), ())

    def follow(self) -> None:
        """Let the policy strike."""
        page = self._page
        page.show({}, "")
        page.say("The policy looks ...", busy=True)
        page.worker.do("route", self._follow, page.teller("Route"))

    def _draw(self) -> None:
        page = self._page
        if page.mode == "Route" and not self._why:
            page.stage.shadows(np.zeros((0, 3)), ())
            route = page.session.routes[self.route.value]
            page.stage.route(route)
            page.stage.look(
                [solid(page.session.scene, np.array([*point, 0.0]))[:3] for point in route.points]
            )

    def _told(self, made: int) -> None:
        if self._page.mode == "Route":
            self._page.say(f"Strike {made + 1} ...", busy=True)

    def _follow(self) -> None:
        page, session, kind = self._page, self._page.session, str(self.world.value)
        route = session.routes[self.route.value]
        done, motion = session.followed(
            route, kind, page.values, seed=int(self.seed.value), told=self._told
        )
        if page.mode != "Route" or page.worker.waits("route"):
            return
        page.stage.shadows(done.poses, COLOURS[kind])
        rows = [
            ["sub-goals", f"{done.reached} of {len(route)}"],
            ["strikes", str(len(done.strikes))],
            ["ended", done.reason],
        ]
        page.show({kind: motion}, table(["", ""], rows), play=True)
        page.say("")
