"""The collision of a scene's pair, solved for any theta: nothing is sampled and nothing trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, contact_frame, frame_at_contact
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.effects import (
    TANGENTIAL_SPRING,
    as_recorded,
    offset_params,
    with_effects,
    without_frame_offset,
)
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.striker_response import StrikerResponse
from clashsim.nets.effects import (
    analytic_params,
    apply_analytic_effects,
    apply_delay,
    apply_drag,
    apply_tipping,
    network_params,
)
from clashsim.sim.contact.pair_solver import PairSolver
from clashsim.sim.contact.problem import STRIKER, STRUCK

# Step of finite differences on the unit scale. Outcomes jump a little where a contact takes one
# time step more; a step that is larger than these jumps sees the trend across them.
_DIFFERENCE = 0.03
_LEAST_SHARE = 0.1  # of the lowest value of a parameter that can only be positive
_UNIT_LIMIT = 1.2  # parameters are simulated at most this far on the unit scale
# Expected standard deviations of `circumstances`, for impacts from anywhere.
_OFFSET_SHARE = 0.3  # of the struck geom's bounding radius: offset along a striker's surface
_PLANAR_DIRECTION = 0.7  # of the entries of a unit vector in a plane
_SPATIAL_DIRECTION = 0.58  # of the entries of a unit vector in space
_RATE = 0.4  # of velocities over the approach speed, and of the logarithm of that speed

# From rows of impacts (M,) and theta on the unit scale (M, p) to changes of twist (M, k).
_Evaluate = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class SolvedModel:
    """The collision of a scene's pair by solving its contact problem, for any theta.

    Attributes:
        scene: The scene.
    """

    scene: Scene

    @cached_property
    def extent(self) -> np.ndarray:
        """Expected standard deviation of each column of `circumstances`."""
        planar = self.scene.plane is not None
        striker = self.scene.striker_body
        radius = float(self.scene.base.geom(self.scene.struck).rbound[0])
        offset = 0.0 if striker.fixed else _OFFSET_SHARE * radius
        direction = _PLANAR_DIRECTION if planar else _SPATIAL_DIRECTION
        offsets, directions, rates = (1, 4, 7) if planar else (3, 7, 13)
        return np.r_[
            np.full(offsets, offset), np.full(directions, direction), np.full(rates, _RATE)
        ]

    def physics(self, frame: ContactFrame) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
        """The model as a function of parameters; see `DistilledModel.physics`."""
        impacts = _FramedImpacts(self.scene, frame)
        start = torch.as_tensor(frame.twist_before / frame.speed[:, None])
        speed = torch.as_tensor(frame.speed)
        fall = _fall(self.scene, frame)
        by_formula = bool(analytic_params(self.scene))

        def change(rows: Tensor, unit: Tensor, free: Tensor | None = None) -> Tensor:
            solved = _Solved.apply(unit, rows, free, impacts)  # type: ignore[no-untyped-call]
            if by_formula:
                solved = apply_analytic_effects(self.scene, solved, start[rows], speed[rows], unit)
                solved = apply_delay(self.scene, solved, fall[rows], unit)
            return solved

        return change

    def physics_of_both(
        self, frame: ContactFrame
    ) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
        """`physics` of both bodies: changes of twist (R, 2 k), of the struck body first.

        Those of the striker are as `StrikerResponse` has them.
        """
        response = StrikerResponse(self.scene, frame)
        falling = self.scene.striker_body.free_fall(self.scene.base, self.scene.plane)
        striker_fall = torch.as_tensor(response.encode(np.tile(falling, (len(frame.speed), 1))))
        impacts = _FramedImpacts(self.scene, frame, response)
        start = torch.as_tensor(frame.twist_before / frame.speed[:, None])
        speed = torch.as_tensor(frame.speed)
        fall = _fall(self.scene, frame)
        by_formula = bool(analytic_params(self.scene))

        def change(rows: Tensor, unit: Tensor, free: Tensor | None = None) -> Tensor:
            both = _Solved.apply(unit, rows, free, impacts)  # type: ignore[no-untyped-call]
            if not by_formula:
                return both
            solved, of_striker = both.chunk(2, dim=-1)
            tipped = apply_tipping(self.scene, solved, unit)
            if tipped is not solved:
                # The body that tips takes less of the impulse. The drag is no impulse between them.
                of_striker = of_striker + response.apply(tipped - solved, rows, unit)
            struck = apply_drag(self.scene, tipped, start[rows], speed[rows], unit)
            struck = apply_delay(self.scene, struck, fall[rows], unit)
            of_striker = apply_delay(self.scene, of_striker, striker_fall[rows], unit)
            return torch.cat([struck, of_striker], dim=-1)

        return change

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Change of twist over the approach speed, as an ensemble of one.

        Args:
            frame: N impacts in their contact frames.
            theta: Parameters (p,) or (N, p), natural units.

        Returns:
            (1, N, k).
        """
        params = self.scene.params
        n = len(frame.speed)
        unit = torch.as_tensor(to_unit(params, np.broadcast_to(theta, (n, len(params)))))
        with torch.no_grad():
            return self.physics(frame)(torch.arange(n), unit, None).numpy()[None]

    def predict(self, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
        """Twist after impact (N, k), m/s and rad/s, for theta (p,) or (N, p) in natural units."""
        frame = contact_frame(self.scene, impacts)
        return frame.decode(self.members(frame, theta)[0])

    def predict_striker(
        self, impacts: Impacts, frame: ContactFrame | None = None, *, theta: np.ndarray
    ) -> np.ndarray:
        """The striker's twist after impact (N, k), m/s and rad/s, for theta (p,) or (N, p)."""
        frame = frame or contact_frame(self.scene, impacts)
        params = self.scene.params
        n = len(frame.speed)
        unit = torch.as_tensor(to_unit(params, np.broadcast_to(theta, (n, len(params)))))
        with torch.no_grad():
            both = self.physics_of_both(frame)(torch.arange(n), unit, None).numpy()
        response = StrikerResponse(self.scene, frame)
        change = both[:, both.shape[1] // 2 :]
        return response.decode(change + response.twist_before)

    @property
    def needs_rest(self) -> bool:
        """False: the model holds for struck bodies at any velocity."""
        return False

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Whether each impact (N,) is one that the model holds for: all of them."""
        del theta
        return np.ones(len(frame.speed), bool)


def _fall(scene: Scene, frame: ContactFrame) -> Tensor:
    """Change of twist (N, k) by a second of free fall, as `ContactFrame.encode` gives it."""
    return torch.as_tensor(frame.axes @ scene.free_fall / frame.speed[:, None])


class _FramedImpacts:
    """N impacts whose outcomes are solved again and again for different parameters.

    With the response of the striker, the outcomes are those of both bodies, the striker's last.
    """

    def __init__(
        self, scene: Scene, frame: ContactFrame, response: StrikerResponse | None = None
    ) -> None:
        self.scene = scene
        self.frame = frame
        self._response = response
        self.simulated = network_params(scene)
        self.offsets = offset_params(scene)
        self._solver = PairSolver(scene, frame.before)

    def outcomes(self, rows: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Changes of twist (M, k) of impacts `rows` (M,) for theta on its unit scale (M, p)."""
        theta = self._theta(unit)
        frame, after = self._solve(rows, theta)
        return self._with_effects(rows, theta, frame, after)

    def outcomes_and_jacobian(
        self, rows: np.ndarray, unit: np.ndarray, free: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`outcomes` and their derivatives (M, k, p) by the parameters, by forward differences.

        Derivatives that are not `free` (M, p) are zero.
        """
        count, p = unit.shape
        # A tangential spring acts on the solved outcome, which need not be solved for it again.
        solved = [i for i in self.simulated if self.scene.params[i].target != TANGENTIAL_SPRING]
        moved = [np.flatnonzero(free[:, i]) for i in solved]  # rows with a derivative by each
        blocks = [_shifted(unit[at], i) for at, i in zip(moved, solved, strict=True)]
        theta = self._theta(np.concatenate([unit, *blocks]))
        all_rows = np.concatenate([rows, *(rows[at] for at in moved)])
        frame, after = self._solve(all_rows, theta)
        changes = self._with_effects(all_rows, theta, frame, after)
        change, *shifted = np.split(changes, np.cumsum([count, *map(len, moved)])[:-1])
        jacobian = np.zeros((count, change.shape[1], p))
        for i, at, moved_change in zip(solved, moved, shifted, strict=True):
            jacobian[at, :, i] = (moved_change - change[at]) / _DIFFERENCE
        for i in set(self.simulated) - set(solved):
            at = np.flatnonzero(free[:, i])
            theta = self._theta(_shifted(unit[at], i))
            moved_change = self._with_effects(rows[at], theta, frame[at], after[at])
            jacobian[at, :, i] = (moved_change - change[at]) / _DIFFERENCE
        return change, jacobian

    def _theta(self, unit: np.ndarray) -> np.ndarray:
        """Theta (M, p) in natural units; what can only be positive stays so beyond its range."""
        theta = from_unit(self.scene.params, np.clip(unit, -_UNIT_LIMIT, _UNIT_LIMIT))
        least = [_LEAST_SHARE * p.low if p.low > 0 else -np.inf for p in self.scene.params]
        return np.maximum(theta, least)

    def _solve(self, rows: np.ndarray, theta: np.ndarray) -> tuple[ContactFrame, np.ndarray]:
        """The bodies' own motion in M contact frames, and twists after (M, 1 or 2, k)."""
        if not self.offsets:
            return self.frame[rows], self._solved(self._solver, rows, theta)
        before = without_frame_offset(self.scene, self.frame.before[rows], theta)
        contact, before = bring_into_contact(self.scene, before)
        frame = frame_at_contact(self.scene, before, contact)
        solver = PairSolver(self.scene, before)
        return frame, self._solved(solver, np.arange(len(before)), theta)

    def _solved(self, solver: PairSolver, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Twists (M, 1 or 2, k) after impact of the bodies whose outcomes are wanted."""
        if self._response is None:
            return solver.solve(rows, theta)[:, None]
        return solver.solve_both(rows, theta)

    def _with_effects(
        self, rows: np.ndarray, theta: np.ndarray, frame: ContactFrame, both: np.ndarray
    ) -> np.ndarray:
        """Changes of twist (M, k) or (M, 2 k) of solved impacts as they would be recorded."""
        after = both[:, STRUCK]
        usable = np.isfinite(after).all(1)
        _, recorded = with_effects(
            self.scene, frame.before, after, theta, usable=usable, frame=frame
        )
        change = self.frame[rows].encode(recorded)
        if self._response is None:
            return np.nan_to_num(change)
        # The striker takes part in what the effects add to the impulse.
        _, without = as_recorded(self.scene, frame.before, after, theta)
        added = change - self.frame[rows].encode(without)
        of_striker = both[:, STRIKER] - MotionBefore.of(frame.before).striker.twist
        solved = self._response.encode(of_striker, rows)
        by_added = np.einsum("nij,nj->ni", self._response(rows, theta), added)
        return np.nan_to_num(np.concatenate([change, solved + by_added], axis=1))


class _Solved(torch.autograd.Function):
    """Outcomes of impacts, with their Jacobian by finite differences."""

    @staticmethod
    def forward(
        context: Any, unit: Tensor, rows: Tensor, free: Tensor | None, impacts: _FramedImpacts
    ) -> Tensor:
        """Changes of twist (R, k) of impacts `rows` (R,) for theta on its unit scale (R, p)."""
        theta = unit.detach().double().numpy()
        if not context.needs_input_grad[0]:
            return torch.as_tensor(impacts.outcomes(rows.numpy(), theta))
        wanted = np.ones(unit.shape, bool) if free is None else free.numpy()
        change, jacobian = impacts.outcomes_and_jacobian(rows.numpy(), theta, wanted)
        context.jacobian = torch.as_tensor(jacobian)
        return torch.as_tensor(change)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Gradient by theta (R, p) from the gradient by the changes (R, k)."""
        return torch.einsum("rk,rkp->rp", gradients[0], context.jacobian), None, None, None


def _shifted(unit: np.ndarray, index: int) -> np.ndarray:
    """Parameters (M, p) with one of them moved by the step of finite differences."""
    shifted = unit.copy()
    shifted[:, index] += _DIFFERENCE
    return shifted
