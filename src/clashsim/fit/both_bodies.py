"""Impacts of which the striker's outcome was recorded too: in the fit, and in predictions.

Both outcomes show the same impulse, each with errors of its own. In a fit the outcomes of both are
targets. The errors of each are taken relative to the size of its own outcome: the striker's entries
are scaled so that its outcomes have the sizes of the struck body's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.base import BaseModel
from clashsim.fit.input_scaling import InputScaling, physics_of, unit_centres
from clashsim.fit.lockstep import FieldData, Physics
from clashsim.fit.striker_response import StrikerResponse

# Relative size of what an outcome shows of a direction, below which it shows nothing of it.
_UNSEEN = 1e-3
_MIN_SIZE = 0.02  # of an outcome over the approach speed, as in `fields`


class FittedImpacts:
    """Impacts to fit, with the outcomes of all bodies of which some were recorded.

    Attributes:
        base: The base model.
        impacts: N impacts.
        frame: The impacts in their contact frames.
        physics: The base model as a function of parameters, for the bodies whose outcomes are
            fitted.
    """

    def __init__(self, base: BaseModel, impacts: Impacts, frame: ContactFrame) -> None:
        self.base = base
        self.impacts = impacts
        self.frame = frame
        self.physics = physics_of(base, frame, impacts.known)
        self._striker = _striker_outcomes(base.scene, impacts, frame)
        if self._striker is not None:
            of_both = physics_of(base, frame, impacts.known, of_both=True)
            self.physics = _scaled(of_both, self._striker.scale)

    def data(self, scaling: InputScaling, rows: np.ndarray) -> FieldData:
        """Some of the impacts in the form that the fit of fields needs.

        Args:
            scaling: Standardisation of their circumstances.
            rows: Their indices (M,).
        """
        subset = self.impacts[rows]
        data = scaling.data(
            self.base, self.frame[rows], subset.known, subset.after, shared=(self.physics, rows)
        )
        if self._striker is None:
            return data
        return self._striker.beside(data, rows)

    def reconciled(self, scaling: InputScaling, rows: np.ndarray, constants: Tensor) -> Impacts:
        """Some of the impacts, with the struck body's outcomes that both bodies show together.

        Both outcomes show one impulse. Its estimate is the one that comes closest to both, each
        relative to its size.

        Args:
            scaling: Standardisation of their circumstances.
            rows: Their indices (M,).
            constants: Parameters (p,) of the masses, on the unit scale, from nominal values.

        Returns:
            The impacts; components of `after` are NaN where neither body shows them.
        """
        subset = self.impacts[rows]
        if self._striker is None:
            return subset
        data = self.data(scaling, rows)
        phi = constants.expand(len(rows), -1)
        with torch.no_grad():
            predicted = data.evaluate(phi[None])[0]
        unit = unit_centres(self.base.scene, subset.known, len(rows)) + phi
        per_struck = self._striker.per_struck(rows, unit.numpy())
        k = per_struck.shape[2]
        response = np.concatenate([np.broadcast_to(np.eye(k), per_struck.shape), per_struck], 1)
        if data.unmeasured is not None:
            response = response - data.unmeasured.numpy() @ response
        miss = (data.change - predicted).numpy()
        moved = np.einsum("nij,nj->ni", np.linalg.pinv(response, _UNSEEN), miss)
        seen = np.linalg.matrix_rank(response, rtol=_UNSEEN) == k
        together = self.frame[rows].decode(predicted.numpy()[:, :k] + moved)
        return replace(subset, after=np.where(seen[:, None], together, subset.after))


class _StrikerOutcomes:
    """Recorded outcomes of the strikers of N impacts, in the units of the fit.

    Attributes:
        scale: (N,), by which the striker's entries are multiplied.
    """

    def __init__(self, scene: Scene, impacts: Impacts, frame: ContactFrame) -> None:
        unit = unit_centres(scene, impacts.known, len(impacts))
        response = StrikerResponse(scene, frame)
        self._response = response
        per_struck = response.at_unit(np.arange(len(impacts)), unit.numpy())
        self._missing = ~impacts.striker_measured
        assert impacts.striker_after is not None
        recorded = np.where(self._missing, impacts.striker_twist, impacts.striker_after)
        change = response.encode(recorded) - response.twist_before
        # Of a body that was not recorded at all, the change that the other one's implies.
        known = np.where(impacts.measured, impacts.after, impacts.twist)
        struck_change = frame.encode(known)
        self._unseen = np.logical_not(impacts.measured.any(1))
        implied = np.einsum("nij,nj->ni", np.linalg.pinv(per_struck), change)
        struck_change[self._unseen] = implied[self._unseen]
        unseen = self._missing.all(1)
        change[unseen] = np.einsum("nij,nj->ni", per_struck, struck_change)[unseen]
        struck_after = struck_change + frame.twist_before / frame.speed[:, None]
        size = np.maximum(np.linalg.norm(struck_after, axis=1), _MIN_SIZE)
        own_size = np.linalg.norm(change + response.twist_before, axis=1)
        self.scale = size / np.maximum(own_size, _MIN_SIZE)
        self._struck_change = struck_change
        self._change = change * self.scale[:, None]
        self._twist_before = response.twist_before * self.scale[:, None]
        self._per_struck = per_struck * self.scale[:, None, None]

    def per_struck(self, rows: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """The striker's entries per change of the struck body's twist, (M, k, k).

        Args:
            rows: Indices (M,) of impacts.
            unit: Their parameters (M, p) on the unit scale.
        """
        return self.scale[rows, None, None] * self._response.at_unit(rows, unit)

    def beside(self, data: FieldData, rows: np.ndarray) -> FieldData:
        """Data of the struck body with that of the striker appended.

        Args:
            data: The impacts with their struck bodies' outcomes.
            rows: Indices (M,) of these impacts.
        """
        m, k = data.change.shape
        struck_change = data.change.clone()
        unseen = torch.as_tensor(self._unseen[rows])
        struck_change[unseen] = torch.as_tensor(self._struck_change[rows])[unseen]
        identity = torch.eye(k, dtype=torch.float64).expand(m, k, k)
        missing = torch.as_tensor(self._missing[rows])
        unmeasured = None
        if missing.any() or data.unmeasured is not None:
            unmeasured = torch.zeros(m, 2 * k, 2 * k, dtype=torch.float64)
            if data.unmeasured is not None:
                unmeasured[:, :k, :k] = data.unmeasured
            unmeasured[:, k:, k:] = torch.diag_embed(missing.double())
        return replace(
            data,
            change=torch.cat([struck_change, torch.as_tensor(self._change[rows])], 1),
            twist_before=torch.cat(
                [data.twist_before, torch.as_tensor(self._twist_before[rows])], 1
            ),
            unmeasured=unmeasured,
            response=torch.cat([identity, torch.as_tensor(self._per_struck[rows])], 1),
        )


def _striker_outcomes(
    scene: Scene, impacts: Impacts, frame: ContactFrame
) -> _StrikerOutcomes | None:
    """The strikers' outcomes; None where none was recorded, or nothing can move the striker."""
    if not scene.striker_yields or not impacts.striker_measured.any():
        return None
    return _StrikerOutcomes(scene, impacts, frame)


def _scaled(physics: Physics, scale: np.ndarray) -> Physics:
    """Physics of both bodies with the striker's entries times a factor (N,) of each impact."""
    factor = torch.as_tensor(scale)[:, None]

    def scaled(rows: Tensor, phi: Tensor, free: Tensor | None = None) -> Tensor:
        struck, striker = physics(rows, phi, free).chunk(2, dim=-1)
        return torch.cat([struck, factor[rows] * striker], dim=-1)

    return scaled


def predict_striker(
    base: BaseModel,
    impacts: Impacts,
    frame: ContactFrame,
    *,
    phi: Tensor,
    twist_after: np.ndarray,
) -> np.ndarray:
    """The striker's twists after impacts whose struck bodies' twists are predicted.

    The base model predicts both; the striker follows what else changes the struck body's twist.

    Args:
        base: The base model.
        impacts: N impacts; their outcomes are not used.
        frame: The impacts in their contact frames.
        phi: Parameters (N, p), on the unit scale, as differences from measured or nominal values.
        twist_after: (N, k), predicted twists of the struck body, m/s and rad/s.

    Returns:
        (N, k), m/s and rad/s.
    """
    response = StrikerResponse(base.scene, frame)
    rows = torch.arange(len(impacts))
    with torch.no_grad():
        both = physics_of(base, frame, impacts.known, of_both=True)(rows, phi).numpy()
    struck, striker = np.split(both, 2, axis=1)
    unit = unit_centres(base.scene, impacts.known, len(impacts)) + phi
    per_struck = response.at_unit(rows.numpy(), unit.numpy())
    added = frame.encode(twist_after) - struck
    striker = striker + np.einsum("nij,nj->ni", per_struck, added)
    return response.decode(striker + response.twist_before)
