"""Route: a trained policy strikes the body along a route, in the hybrid simulator or in MuJoCo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.view.figures import COLOURS, sentence_html, table
from clashsim.view.poses import world_pose

if TYPE_CHECKING:
    from clashsim.view.panel import PanelHost

_EXPLANATION = (
    "The policy strikes the body along the corridor, at most five times to each sub-goal; "
    "a strike that leaves the corridor ends the trial."
)

_NO_POSES = np.zeros((0, 3))


class RoutePanel:
    """The controls: route, simulator, seed of the start, and a button.

    Args:
        page: The page that it belongs to.
        gui: Where its controls are added.
    """

    def __init__(self, page: PanelHost, gui: Any) -> None:
        session = page.session
        self._page = page
        self._why_not = session.policy.reason  # why no route can be followed, or empty
        has_policy = not self._why_not
        self.folder = gui.add_folder("Route", visible=False)
        with self.folder:
            gui.add_html(sentence_html(self._why_not or _EXPLANATION))
            self.route = gui.add_dropdown(
                "route", tuple(session.routes) or ("none",), visible=has_policy
            )
            self.kind = gui.add_dropdown(
                "strikes made in", ("hybrid", "MuJoCo"), visible=has_policy
            )
            self.seed = gui.add_number(
                "start",
                0,
                min=0,
                max=10_000,
                step=1,
                hint="Seed of the heading with which the body begins.",
                visible=has_policy,
            )
            self.button = gui.add_button("Follow", visible=has_policy)
        self.route.on_update(lambda _: self._draw())
        self.button.on_click(lambda _: self.follow())

    def enter(self) -> None:
        """Draw the route, and follow it."""
        if not self._why_not:
            self._draw()
            self.follow()

    def leave(self) -> None:
        """Remove the route and the poses along it from the scene."""
        self._page.stage.route(None)
        self._page.stage.shadows(_NO_POSES, ())

    def follow(self) -> None:
        """Let the policy strike the body along the chosen route."""
        page = self._page
        page.show({}, figures="")
        page.show_status("The policy starts ...", busy=True)
        page.worker.do("route", self._follow, page.reporter("Route"))

    def _draw(self) -> None:
        """Draw the chosen route, and turn the cameras to it."""
        page = self._page
        if page.mode != "Route" or self._why_not:
            return
        page.stage.shadows(_NO_POSES, ())
        route = page.session.routes[self.route.value]
        page.stage.route(route)
        positions = []
        for point in route.points:
            positions.append(world_pose(page.session.scene, np.array([*point, 0.0]))[:3])
        page.stage.look(positions)

    def _report_strike(self, strikes_made: int) -> None:
        if self._page.mode == "Route":
            self._page.show_status(f"Strike {strikes_made + 1} ...", busy=True)

    def _follow(self) -> None:
        """Simulate all strikes along the route, then play them."""
        page = self._page
        session = page.session
        kind = str(self.kind.value)
        route = session.routes[self.route.value]
        result, motion = session.follow_route(
            route,
            kind=kind,
            values=page.values,
            seed=int(self.seed.value),
            on_strike=self._report_strike,
        )
        if page.mode != "Route" or page.worker.waits("route"):
            return
        page.stage.shadows(result.poses, COLOURS[kind])
        rows = [
            ["sub-goals", f"{result.reached} of {len(route)}"],
            ["strikes", str(len(result.strikes))],
            ["ended", result.reason],
        ]
        page.show({kind: motion}, table(["", ""], rows), play=True)
        page.show_status("")
