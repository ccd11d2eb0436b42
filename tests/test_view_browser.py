"""The viewer in a real browser: it loads, the slider moves the block, a dragged target is planned.

Nothing here waits for a time: tests wait for what the page, the server or the picture has become,
and the mouse waits for the picture. `PATIENCE` is how long a test that fails takes to give up.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import view_run
from clashsim.commands import view

pytest.importorskip("viser", reason="the viewer needs viser: pip install 'clashsim[viser]'")
api = pytest.importorskip(
    "playwright.sync_api", reason="a browser is driven by playwright: pip install 'clashsim[dev]'"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path is not None), None)
PATIENCE = 300.0  # s
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
    pytest.mark.timeout(4 * PATIENCE),
]
WIDE = {"width": 1000, "height": 620}  # small and coarse, for pictures are drawn without a GPU
FLAGS = [
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--no-sandbox",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def page():
    """The page of a small run, served in this process."""
    from clashsim.view.page import Page

    server = view.serve("127.0.0.1", 0)
    shown = Page(server, view_run.session())
    # Shadows cost most of the time of a browser that draws without a GPU.
    server.scene.configure_default_lights(cast_shadow=False)
    yield server, shown
    assert shown.worker.join(PATIENCE)
    assert shown.end()
    server.stop()


@pytest.fixture(scope="module")
def browser(page):
    """A tab on that page, and what its console said."""
    server, _ = page
    patience = 1e3 * PATIENCE  # ms
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=patience)
        tab = chromium.new_page(viewport=WIDE, device_scale_factor=0.5)
        tab.set_default_timeout(patience)
        errors: list[str] = []

        def note_error(message: Any) -> None:
            if message.type == "error":
                errors.append(message.text)

        tab.on("console", note_error)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.get_port()}")
        tab.get_by_role("button", name="Strike").wait_for()
        yield tab, errors
        chromium.close()


def wait_until(shown, reached: Callable[[], Any]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not reached():
        said = f"the page says {shown.status!r} and {shown.figures!r}"
        assert time.monotonic() < until, f"not so after {PATIENCE} s; {said}"
        time.sleep(0.05)


def wait_for_frames(tab) -> None:
    """Wait until the browser has drawn what it knows now: the frame begun may be older."""
    tab.evaluate(
        "() => new Promise(done =>"
        " requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )


def picture(tab) -> np.ndarray:
    """The 3D part of what is seen, (H, W, 3)."""
    from PIL import Image

    part = {"x": 150, "y": 0, "width": 440, "height": 620}
    image = Image.open(io.BytesIO(tab.screenshot(clip=part))).convert("RGB")
    return np.asarray(image).astype(int)


def share_changed(now: np.ndarray, before: np.ndarray) -> float:
    """Share of pixels that are clearly others in one of two pictures."""
    return float((np.abs(now - before).max(2) > 25).mean())


def picture_at_rest(shown, tab) -> np.ndarray:
    """The picture once it no longer changes."""
    pictures = [picture(tab)]

    def at_rest() -> bool:
        wait_for_frames(tab)
        pictures.append(picture(tab))
        return share_changed(pictures[-1], pictures[-2]) == 0.0

    wait_until(shown, at_rest)
    return pictures[-1]


def on_screen(client, point: np.ndarray) -> tuple[float, float]:
    """Where a point of the world (3,) is on the page, in pixels."""
    camera = client.camera
    to_world = Rotation.from_quat(camera.wxyz, scalar_first=True).as_matrix()
    x, y, z = to_world.T @ (point - camera.position)
    focus = WIDE["height"] / 2 / np.tan(camera.fov / 2)
    return WIDE["width"] / 2 + focus * x / z, WIDE["height"] / 2 + focus * y / z


def drag_target(shown, tab, client, wanted: np.ndarray) -> None:
    """Drag the target by its square towards a position (3,), as far as the camera is known.

    Where the mouse misses the square, the camera turns instead. Whichever of the two happens, this
    returns once the server knows of it, so that the next try begins with what is true.
    """
    gizmo = shown.panel("Plan").gizmo
    phases: list[str] = []

    def note_phase(event: Any) -> None:
        phases.append(event.phase)

    gizmo.on_update(note_phase)
    camera_before = client.camera.position.copy()
    to_world = Rotation.from_quat(gizmo.wxyz, scalar_first=True).as_matrix()
    square = gizmo.position + to_world @ (0.255 * gizmo.scale * np.array([1.0, 1.0, 0.0]))
    way = np.append((wanted - gizmo.position)[:2], 0.0)
    tab.mouse.move(*on_screen(client, square))
    wait_for_frames(tab)
    tab.mouse.down()
    for share in (0.25, 0.5, 0.75, 1.0):
        tab.mouse.move(*on_screen(client, square + share * way), steps=2)
        wait_for_frames(tab)
    tab.mouse.up()

    def moved() -> bool:
        return "end" in phases or not np.allclose(client.camera.position, camera_before, atol=1e-4)

    wait_until(shown, moved)
    gizmo.remove_update_callback(note_phase)


def test_it_loads_and_the_slider_moves_the_block(page, browser, monkeypatch):
    (_, shown), (tab, errors) = page, browser
    from clashsim.view.player import _RATES as rates

    player = shown.player
    wait_until(shown, lambda: "off by" in shown.figures)
    tab.get_by_text("after impact").wait_for()
    for text in (
        "hybrid: MuJoCo with the learned collision",
        "a stand-in for reality",
        "time, ms",
    ):
        tab.get_by_text(text).wait_for()
    body = shown.session.scene.struck_body.body
    position_at_end = shown.stage.where("recorded", body)[:3]
    picture_at_end = picture_at_rest(shown, tab)

    def block_moved() -> bool:
        position = shown.stage.where("recorded", body)[:3]
        return bool(np.linalg.norm(position - position_at_end) > 0.02)

    slider = tab.get_by_role("slider").nth(1)
    slider.focus()
    slider.press("Home")
    wait_until(shown, lambda: player.slider.value == player.slider.min)
    wait_until(shown, block_moved)
    # The picture itself, by more than an outline.
    wait_until(shown, lambda: share_changed(picture(tab), picture_at_end) > 0.005)

    # So slow that it cannot reach its end, which would turn Pause into Play, before the click.
    monkeypatch.setitem(rates, "1/10 of real time", 0.002)
    tab.get_by_role("button", name="Play", exact=True).click()
    wait_until(shown, lambda: player.slider.value > player.slider.min)
    tab.get_by_role("button", name="Pause", exact=True).click()
    tab.get_by_role("button", name="Play", exact=True).wait_for()
    assert player.slider.value < player.slider.max
    assert not errors


def test_a_dragged_target_gives_a_plan(page, browser):
    (server, shown), (tab, errors) = page, browser
    tab.get_by_role("button", name="Plan").click()
    panel = shown.panel("Plan")
    wait_until(shown, lambda: panel.planned is not None and "stepped" in shown.figures)
    assert shown.worker.join(PATIENCE)
    shown.player.pause()
    wait_until(shown, server.get_clients)
    client = next(iter(server.get_clients().values()))
    first, target = panel.planned, panel.target()
    wanted = np.array([target[0] + 0.02, target[1] + 0.015, 0.0])

    def dragged() -> bool:
        if np.linalg.norm(panel.target()[:2] - wanted[:2]) < 0.004:
            return True
        picture_at_rest(shown, tab)  # the camera turns to what is shown first
        drag_target(shown, tab, client, wanted)
        return False

    def planned() -> bool:
        task = panel.planned.plan.task
        is_new = panel.planned is not first
        return is_new and np.allclose(task.target, panel.target(), atol=1e-9)

    wait_until(shown, dragged)
    wait_until(shown, lambda: planned() and "stepped" in shown.figures)
    tab.get_by_text("Planned in").wait_for()
    tab.get_by_text("hybrid, stepped").wait_for()
    assert not errors


def test_strikes_by_hand_toggles_and_a_missing_policy(page, browser):
    (_, shown), (tab, errors) = page, browser
    tab.get_by_role("button", name="Strike").click()
    wait_until(shown, lambda: "predicted" in shown.figures)
    tab.get_by_text("Choose where and how fast").wait_for()
    before = shown.figures
    slider = tab.get_by_role("slider").first
    slider.focus()
    slider.press("End")
    wait_until(shown, lambda: shown.figures != before and "predicted" in shown.figures)
    assert shown.worker.join(PATIENCE)
    shown.player.pause()
    with_hybrid = picture_at_rest(shown, tab)
    tab.get_by_role("checkbox").nth(2).click()
    # The body of the learned collision is gone.
    wait_until(shown, lambda: share_changed(picture(tab), with_hybrid) > 0.002)
    tab.get_by_role("button", name="Route").click()
    tab.get_by_text("No policy was given").wait_for()
    tab.set_viewport_size({"width": 420, "height": 860})
    tab.get_by_text("No policy was given").wait_for()
    assert not errors
