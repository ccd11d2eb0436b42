"""MJX behind the seam of a simulator: many simulations in one compiled call, and slopes of the
states in a few parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clashsim.core.scene import Scene
from clashsim.sim.inputs import check_rollout, check_theta, nothing_to_step
from clashsim.sim.mjx.chunked_rollout import Chunks, Once
from clashsim.sim.mjx.model import check_finite, import_mjx, put
from clashsim.sim.mjx.step import stepper


class MjxSim:
    """A scene at theta (author's values where None) in MJX, in double precision; `timestep` (s)
    replaces the author's.

    The first call takes 10 to 30 seconds to compile, the first one of `rollout_with_jacobian` as long again.
    Scenes that MJX would collide otherwise than MuJoCo are refused.
    """

    def __init__(
        self, scene: Scene, theta: np.ndarray | None = None, *, timestep: float | None = None
    ) -> None:
        self.scene, self.theta = scene, check_theta(scene.params, theta)
        self.held = put(scene, timestep=timestep, faithful=True)
        self.model = self.held.plain
        self._chunks = Chunks(self.model, self._once)

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu);
        theta (p,) or (N, p).
        """
        start, control = check_rollout(self.model, start, control)
        theta = check_theta(self.scene.params, theta, len(start))
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        return self._chunks.run(
            start, control, self.held.fields(self.theta if theta is None else theta, len(start))
        )[0]

    def rollout_with_jacobian(
        self,
        start: np.ndarray,
        control: np.ndarray,
        theta: np.ndarray | None = None,
        *,
        free: Sequence[int],
        finite: bool = True,
        start_jacobian: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same states, and their slopes (N, T + 1, s, q) in the unit-scaled parameters with
        indices `free` (q,).

        theta: (p,) or (N, p); that of the simulator where None, else the nominal one. The start
        does not move with the parameters unless `start_jacobian` (N, q, s) says how. finite: refuse slopes
        that are not; a search that takes such points back can do without.
        """
        start, control = check_rollout(self.model, start, control, finite=finite)
        n = len(start)
        if n == 0:
            states = np.zeros((0, control.shape[1] + 1, start.shape[1]))
            return states, np.zeros((*states.shape, len(free)))
        at = (
            theta
            if theta is not None
            else self.theta
            if self.theta is not None
            else self.scene.nominal
        )
        at = np.broadcast_to(at, (n, len(self.scene.params)))
        states, moved = self._chunks.run(
            start,
            control,
            self.held.fields(at, n),
            slopes=self.held.rollout_with_jacobian(at, tuple(free)),
            q=len(free),
            start_jacobian=start_jacobian,
        )
        if finite:
            check_finite(self.scene, moved)
        return states, moved

    def _once(self, differentiate: bool) -> Once:
        _, mjx = import_mjx()
        held, step = self.held, stepper(self.held, differentiate=differentiate)
        empty = mjx.make_data(held.model)

        def once(fields: Any, state: Any, control: Any) -> Any:
            """One step; only what the next one needs is carried, so that little has to be copied
            and differentiated.
            """
            data = step(held.at(fields), empty.replace(**state, ctrl=control))
            return {name: getattr(data, name) for name in state}

        return once
