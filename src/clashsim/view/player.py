"""The time of what is shown: a slider, a button that lets it run, and how fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from clashsim.view.motion import BodyMotion
from clashsim.view.stage import Stage, shown

_RATES = {
    "1/20 of real time": 0.05,
    "1/10 of real time": 0.1,
    "1/4 of real time": 0.25,
    "real time": 1.0,
}
_TICK = 1 / 25  # s between frames sent


class Player:
    """Plays motions of several kinds over each other on a stage."""

    def __init__(self, gui: Any, stage: Stage) -> None:
        self._stage, self._motions = stage, dict[str, BodyMotion]()
        self._lock, self._run, self._ended = threading.RLock(), threading.Event(), False
        self.slider = gui.add_slider(
            "time, ms",
            min=-10,
            max=100,
            step=1,
            initial_value=0,
            hint="From the touch of striker and body; drag it, or play.",
        )
        self.button = gui.add_button(
            "Play", hint="Plays from here to the end, from the beginning if it is at its end."
        )
        self._rate = gui.add_dropdown("speed", tuple(_RATES), initial_value="1/10 of real time")
        self.slider.on_update(self._dragged)
        self.button.on_click(lambda _: self.pause() if self._run.is_set() else self.play())
        threading.Thread(target=self._loop, daemon=True, name="clashsim-player").start()

    def load(self, motions: Mapping[str, BodyMotion], *, play: bool = False) -> None:
        """Show these motions: at their end, or from the beginning with `play`."""
        with self._lock:
            self._motions = dict(motions)
            for kind in ("recorded", "MuJoCo", "hybrid"):
                self._stage.trail(kind, self._motions.get(kind))
            if not motions:
                self.pause()
                return
            first, last = (round(1e3 * t) for t in shown(motions))
            value = first if play else last
            # Widened first: a value outside the range would be refused.
            self.slider.min, self.slider.max = (
                min(first, int(self.slider.min)),
                max(last, int(self.slider.max)),
            )
            self.slider.value = value
            self.slider.min, self.slider.max = first, max(last, first + 1)
            self.place()
        if play:
            self.play()

    def place(self) -> None:
        """Put everything where it is at the slider's moment."""
        with self._lock:
            for kind, motion in self._motions.items():
                self._stage.place(kind, motion, 1e-3 * float(self.slider.value))

    def play(self) -> None:
        """Let time run."""
        with self._lock:
            if int(self.slider.value) >= int(self.slider.max):
                self.slider.value = self.slider.min
            self.button.label = "Pause"
            self._run.set()

    def pause(self) -> None:
        """Hold time."""
        self._run.clear()
        self.button.label = "Play"

    def end(self) -> None:
        """Stop for good."""
        self._ended = True
        self._run.set()

    def _dragged(self, event: Any) -> None:
        if event.client is not None:  # not our own writing
            self.pause()
            self.place()

    def _loop(self) -> None:
        while True:
            self._run.wait()
            last, now = time.monotonic(), float(self.slider.value)
            while self._run.is_set() and not self._ended:
                time.sleep(_TICK)
                with self._lock:
                    if not self._run.is_set():
                        break
                    # Fractions of a millisecond are kept, unless someone else has moved the slider
                    # meanwhile.
                    now = (
                        now if int(now) == int(self.slider.value) else float(self.slider.value)
                    ) + 1e3 * _RATES[self._rate.value] * (time.monotonic() - last)
                    last = time.monotonic()
                    now = min(now, float(self.slider.max))
                    self.slider.value = int(now)
                    self.place()
                    if now >= self.slider.max:
                        self.pause()
            if self._ended:
                return
