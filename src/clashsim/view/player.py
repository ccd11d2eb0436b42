"""The player of motions: a slider of the time, a button that plays, and the speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from clashsim.view.motion import BodyMotion, time_range
from clashsim.view.session import KINDS
from clashsim.view.stage import Stage

_RATES = {  # simulated seconds per second
    "1/20 of real time": 0.05,
    "1/10 of real time": 0.1,
    "1/4 of real time": 0.25,
    "real time": 1.0,
}
_UPDATE_TIME = 1 / 25  # s between updates of the 3D scene
_INITIAL_RANGE = (-10, 100)  # ms, until motions are loaded


class Player:
    """Plays motions of several kinds over each other on a stage.

    Args:
        gui: Where its controls are added.
        stage: The 3D scene.
    """

    def __init__(self, gui: Any, stage: Stage) -> None:
        self._stage = stage
        self._motions: dict[str, BodyMotion] = {}
        self._lock = threading.RLock()
        self._playing = threading.Event()
        self._ended = False
        self.slider = gui.add_slider(
            "time, ms",
            min=_INITIAL_RANGE[0],
            max=_INITIAL_RANGE[1],
            step=1,
            initial_value=0,
            hint="From the contact of striker and body; drag it, or play.",
        )
        self.button = gui.add_button(
            "Play", hint="Plays from the slider's time to the end; at the end, from the beginning."
        )
        self._rate = gui.add_dropdown("speed", tuple(_RATES), initial_value="1/10 of real time")
        self.slider.on_update(self._dragged)
        self.button.on_click(lambda _: self.pause() if self._playing.is_set() else self.play())
        threading.Thread(target=self._loop, daemon=True, name="clashsim-player").start()

    def load(self, motions: Mapping[str, BodyMotion], *, play: bool = False) -> None:
        """Show motions by kind: at their end, or from the beginning with `play`."""
        with self._lock:
            self._motions = dict(motions)
            for kind in KINDS:
                self._stage.trail(kind, self._motions.get(kind))
            if not motions:
                self.pause()
                return
            first, last = (round(1e3 * t) for t in time_range(motions))
            # The range is widened first and narrowed last: viser refuses a value outside of it.
            self.slider.min = min(first, int(self.slider.min))
            self.slider.max = max(last, int(self.slider.max))
            self.slider.value = first if play else last
            self.slider.min = first
            self.slider.max = max(last, first + 1)
            self.update_stage()
        if play:
            self.play()

    def update_stage(self) -> None:
        """Put all bodies where they are at the slider's time."""
        with self._lock:
            for kind, motion in self._motions.items():
                self._stage.move_bodies(kind, motion, 1e-3 * float(self.slider.value))

    def play(self) -> None:
        """Play from the slider's time, or from the beginning if it is at the end."""
        with self._lock:
            if int(self.slider.value) >= int(self.slider.max):
                self.slider.value = self.slider.min
            self.button.label = "Pause"
            self._playing.set()

    def pause(self) -> None:
        """Stop playing, and stay at the slider's time."""
        self._playing.clear()
        self.button.label = "Play"

    def end(self) -> None:
        """End the thread that plays."""
        self._ended = True
        self._playing.set()  # wakes the thread

    def _dragged(self, event: Any) -> None:
        if event.client is not None:  # a visitor moved the slider, not this program
            self.pause()
            self.update_stage()

    def _loop(self) -> None:
        """Move the slider while it plays, until the player ends."""
        while True:
            self._playing.wait()
            last_tick = time.monotonic()
            now = float(self.slider.value)  # ms
            while self._playing.is_set() and not self._ended:
                time.sleep(_UPDATE_TIME)
                with self._lock:
                    if not self._playing.is_set():
                        break
                    # The slider has whole milliseconds, `now` keeps fractions. They differ by more
                    # if a visitor has moved the slider.
                    if int(now) != int(self.slider.value):
                        now = float(self.slider.value)
                    tick = time.monotonic()
                    now += 1e3 * _RATES[self._rate.value] * (tick - last_tick)
                    last_tick = tick
                    now = min(now, float(self.slider.max))
                    self.slider.value = int(now)
                    self.update_stage()
                    if now >= self.slider.max:
                        self.pause()
            if self._ended:
                return
