"""The viewer in a real browser: it loads, the slider moves the block, a dragged target gives a plan, and the console stays clean."""

from __future__ import annotations

import contextlib
import io
import shutil
import time

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import view_run
from clashsim.commands import view

pytest.importorskip("viser", reason="the viewer needs viser: pip install 'clashsim[viser]'")
api = pytest.importorskip("playwright.sync_api", reason="a browser is driven by playwright: pip install 'clashsim[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"), pytest.mark.timeout(600)]
WIDE = {"width": 1000, "height": 620}  # small and coarse, for pictures are drawn without a GPU
SLOW = 120_000  # ms: on a busy machine


@pytest.fixture(scope="module")
def page():
    """The page of a small run, served in this process."""
    from clashsim.view.page import Page

    server = view.serve("127.0.0.1", 0)
    shown = Page(server, view_run.session())
    server.scene.configure_default_lights(cast_shadow=False)  # they cost most of the time of a browser that draws without a GPU
    yield server, shown
    assert shown.end()
    server.stop()


@pytest.fixture(scope="module")
def browser(page):
    """A tab on that page, and what its console said."""
    server, _ = page
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox",
                                                                                       "--disable-dev-shm-usage"])
        tab, errors = chromium.new_page(viewport=WIDE, device_scale_factor=0.5), []
        tab.set_default_timeout(SLOW)
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.get_port()}")
        tab.get_by_role("button", name="Strike").wait_for()
        yield tab, errors
        chromium.close()


def settled(shown, what, seconds: float = 100.0):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return
        time.sleep(0.05)
    raise AssertionError(f"not so after {seconds} s; the page says {shown.status!r} and {shown.figures!r}")


def picture(tab) -> np.ndarray:
    """The 3D part of what is seen, (H, W, 3)."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(tab.screenshot(clip={"x": 150, "y": 0, "width": 440, "height": 620}))).convert("RGB")).astype(int)


def changes(tab, was: np.ndarray, share: float, seconds: float = 60.0) -> bool:
    """Whether at least a share of the picture becomes another than it was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (np.abs(picture(tab) - was).max(2) > 25).mean() > share:
            return True
        time.sleep(0.2)
    return False


def on_screen(client, point: np.ndarray) -> tuple[float, float]:
    """Where a point of the world (3,) is on the page, in pixels."""
    camera = client.camera
    x, y, z = Rotation.from_quat(camera.wxyz, scalar_first=True).as_matrix().T @ (point - camera.position)
    focus = WIDE["height"] / 2 / np.tan(camera.fov / 2)
    return WIDE["width"] / 2 + focus * x / z, WIDE["height"] / 2 + focus * y / z


def test_it_loads_and_the_slider_moves_the_block(page, browser):
    (_, shown), (tab, errors) = page, browser
    settled(shown, lambda: "off by" in shown.figures)
    tab.get_by_text("after impact").wait_for()
    body = shown.session.scene.struck_body.body
    for text in ("hybrid: MuJoCo with the learned collision", "a stand-in for reality", "time, ms"):
        tab.get_by_text(text).wait_for()
    time.sleep(1.0)  # until what was sent is drawn
    at_rest = shown.stage.where("recorded", body), picture(tab)
    slider = tab.get_by_role("slider").nth(1)
    slider.focus()
    slider.press("Home")
    settled(shown, lambda: shown.player.slider.value == shown.player.slider.min)
    settled(shown, lambda: np.linalg.norm(shown.stage.where("recorded", body)[:3] - at_rest[0][:3]) > 0.02)
    assert changes(tab, at_rest[1], 0.005)  # the picture itself, by more than an outline
    tab.get_by_role("button", name="Play", exact=True).click()
    settled(shown, lambda: shown.player.slider.value > shown.player.slider.min + 5)
    tab.get_by_role("button", name="Pause", exact=True).click()
    assert not errors


def test_a_dragged_target_gives_a_plan(page, browser):
    (server, shown), (tab, errors) = page, browser
    tab.get_by_role("button", name="Plan").click()
    planning = shown.panel("Plan")
    settled(shown, lambda: planning.found is not None and "stepped" in shown.figures)
    assert shown.worker.join()
    time.sleep(1.0)  # the camera has turned to it
    client = next(iter(server.get_clients().values()))
    first, target = planning.found, planning.target()
    wanted = np.array([target[0] + 0.02, target[1] + 0.015, 0.0])

    def there() -> bool:
        return bool(np.linalg.norm(planning.target()[:2] - wanted[:2]) < 0.004)

    for _ in range(3):  # a mouse is quicker than pictures are drawn without a GPU, and may miss the handle while the camera still turns
        turn = Rotation.from_quat(planning.gizmo.wxyz, scalar_first=True).as_matrix()
        handle = planning.gizmo.position + turn @ (0.255 * planning.gizmo.scale * np.array([1.0, 1.0, 0.0]))  # the square that moves it in the plane
        way = np.append((wanted - planning.gizmo.position)[:2], 0.0)
        tab.mouse.move(*on_screen(client, handle))
        time.sleep(0.3)
        tab.mouse.down()
        for share in (0.25, 0.5, 0.75, 1.0):
            tab.mouse.move(*on_screen(client, handle + share * way), steps=2)
            time.sleep(0.1)
        tab.mouse.up()
        with contextlib.suppress(AssertionError):
            settled(shown, there, 15.0)
            break
    assert there(), planning.target()
    settled(shown, lambda: planning.found is not first and np.allclose(planning.found.plan.task.target, planning.target(), atol=1e-9) and "stepped" in shown.figures)
    tab.get_by_text("Planned in").wait_for()
    tab.get_by_text("hybrid, stepped").wait_for()
    assert not errors


def test_strikes_by_hand_toggles_and_a_missing_policy(page, browser):
    (_, shown), (tab, errors) = page, browser
    tab.get_by_role("button", name="Strike").click()
    settled(shown, lambda: "foretold" in shown.figures)
    tab.get_by_text("Choose where and how fast").wait_for()
    before = shown.figures
    slider = tab.get_by_role("slider").first
    slider.focus()
    slider.press("End")
    settled(shown, lambda: shown.figures != before and "foretold" in shown.figures)
    assert shown.worker.join()
    shown.player.pause()
    time.sleep(1.0)  # until what was sent is drawn
    drawn = picture(tab)
    tab.get_by_role("checkbox").nth(2).click()
    assert changes(tab, drawn, 0.002)  # the body of the learned collision is gone
    tab.get_by_role("button", name="Route").click()
    tab.get_by_text("No policy was given").wait_for()
    tab.set_viewport_size({"width": 420, "height": 860})
    tab.get_by_text("No policy was given").wait_for()
    assert not errors
