"""The viewer's target while it is dragged: the plan at its end is the one that is simulated."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from clashsim.view.plan_panel import PlanPanel


def call_back(callback: Callable[[Any], Any], phases: tuple[str, ...]) -> None:
    """Report a drag as viser does: to coroutines in order, to functions on a pool of threads."""
    with ThreadPoolExecutor() as pool:
        for phase in phases:
            event = SimpleNamespace(phase=phase)
            if inspect.iscoroutinefunction(callback):
                asyncio.run(callback(event))
            else:
                pool.submit(callback, event)


def test_the_end_of_a_drag_is_not_overtaken_by_the_step_before_it(monkeypatch):
    page = MagicMock(mode="Plan")
    page.stage.size = 0.05  # m, of which the first target is made
    panel = PlanPanel(page, MagicMock())
    panel._begin()  # makes the gizmo
    callback = panel.gizmo.on_update.call_args.args[0]
    planned: list[bool] = []
    overtaken = threading.Event()

    def do_at_once(name: str, job: Callable[[], None], failed: Any) -> None:
        job()
        overtaken.set()

    def be_slow_once(*args: Any, **options: Any) -> None:
        page.show_status = MagicMock()
        overtaken.wait(0.3)  # gives the next step the time to overtake this one

    monkeypatch.setattr(panel, "_plan", planned.append)
    page.worker.do = do_at_once
    page.show_status = be_slow_once
    call_back(callback, ("update", "end"))
    assert planned == [False, True]
