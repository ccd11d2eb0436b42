"""Standardisation of the circumstances that fields and residual depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.params import to_unit
from clashsim.core.scene import Scene
from clashsim.fit.base import BaseModel
from clashsim.fit.circumstances import circumstances
from clashsim.fit.field_kernels import Context
from clashsim.fit.lockstep import FieldData, Physics

_STRUCK_GROUP = 1  # index of the struck body's normal and orientation among `circumstances`
# Smallest width of a circumstance, as a share of its standard deviation in the training data.
_MIN_SHARE = 0.35
_NARROW = 0.15  # columns narrower than this share of the widest one in their group are ignored
_MIN_WIDTH = 1e-6  # relative width of a column that varies
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_CLIP = 6.0  # widths at which standardised circumstances are clipped
# Parameters beyond this limit of the unit scale are moved back by a share of the excess, since the
# network was not trained there; the gradient is kept, so that a descent can return.
_UNIT_LIMIT = 1.1
_HELD_BACK = 0.98


@dataclass(frozen=True, eq=False)
class InputScaling:
    """Centre and width of each circumstance, taken from the impacts that were fitted.

    Attributes:
        centres: Centres of the columns, one array (g,) per group of columns.
        widths: Widths of the columns, one array (g,) per group; infinite for ignored columns.
        extras: Names of further quantities measured with each impact; they are the last group.
    """

    centres: tuple[np.ndarray, ...]
    widths: tuple[np.ndarray, ...]
    extras: tuple[str, ...]

    @staticmethod
    def of(base: BaseModel, frame: ContactFrame, known: Mapping[str, np.ndarray]) -> InputScaling:
        """Compute the scaling from impacts.

        A width is the standard deviation over the impacts, but at least a share of that in the
        training data: if the first recorded strikes hardly differ in some circumstance, a small
        difference in later ones must not look like a large one.

        Args:
            base: The base model.
            frame: The impacts in their contact frames.
            known: Parameters and other quantities measured with each impact, (N,) each, by name.
        """
        extras = tuple(sorted(known))
        groups = _groups(frame, known, extras)
        trained = _trained_widths(base, groups, extras)
        centres = tuple(np.median(columns, 0) for columns in groups)
        widths = []
        for i, (columns, centre, extent) in enumerate(zip(groups, centres, trained, strict=True)):
            robust = _MAD * np.median(np.abs(columns - centre), 0)
            width = np.maximum(robust, 0.5 * columns.std(0))
            width = np.maximum(width, _MIN_SHARE * extent)
            is_extra = i == len(groups) - 1
            if not is_extra:
                # The cosine of a small angle carries no information beside its sine.
                width = np.where(extent < _NARROW * extent.max(initial=0.0), 0.0, width)
            varies = width > _MIN_WIDTH * (1 + np.abs(centre))
            widths.append(np.where(varies, width, np.inf))
        if base.scene.is_round:  # then the struck body's orientation has no effect
            widths[_STRUCK_GROUP] = np.full_like(widths[_STRUCK_GROUP], np.inf)
        return InputScaling(centres, tuple(widths), extras)

    def median_extras(self) -> dict[str, float]:
        """Medians of the quantities in `extras` over the fitted impacts, by name."""
        return dict(zip(self.extras, map(float, self.centres[-1]), strict=True))

    def data(
        self,
        base: BaseModel,
        frame: ContactFrame,
        known: Mapping[str, np.ndarray],
        after: np.ndarray | None = None,
        *,
        shared: tuple[Physics, np.ndarray] | None = None,
    ) -> FieldData:
        """Impacts in the form that the fit of fields needs.

        Args:
            base: The base model.
            frame: The impacts in their contact frames.
            known: Parameters and other quantities measured with each impact, (N,) each, by name.
            after: Twists after impact (N, k); None for impacts that are only predicted.
            shared: Physics of more impacts, and the indices (N,) of these among them; None prepares
                the physics of these alone.
        """
        missing = [name for name in self.extras if name not in known]
        if missing:
            raise DataError(f"the impacts lack {missing[0]!r}, which the model was calibrated with")
        groups = []
        raw = _groups(frame, known, self.extras)
        for columns, centre, width in zip(raw, self.centres, self.widths, strict=True):
            groups.append(torch.as_tensor((columns - centre) / width).clamp(-_CLIP, _CLIP))
        twist_before = torch.as_tensor(frame.twist_before / frame.speed[:, None])
        unmeasured = None
        if after is None:
            change = torch.zeros_like(twist_before)
        else:
            change, unmeasured = _outcomes(frame, after)
        context = Context(tuple(groups), torch.cat(groups, 1))
        physics, rows = shared or (physics_of(base, frame, known), np.arange(len(frame.speed)))
        return FieldData(physics, torch.as_tensor(rows), change, twist_before, context, unmeasured)


def _outcomes(frame: ContactFrame, after: np.ndarray) -> tuple[Tensor, Tensor | None]:
    """Changes of twist (N, k), and the directions in which they were not measured, if any.

    Args:
        frame: The impacts in their contact frames.
        after: Twists after impact (N, k); NaN for components that were not measured. In the changes
            these are as before the impact.

    Returns:
        The changes, and projections (N, k, k) onto the directions in which they are unknown.
    """
    missing = np.isnan(after)
    filled = np.where(missing, MotionBefore.of(frame.before).struck.twist, after)
    change = torch.as_tensor(frame.encode(filled))
    if not missing.any():
        return change, None
    # Columns: by how much the twist in the contact's axes changes with each component.
    directions = torch.as_tensor(frame.axes * missing[:, None, :])
    return change, directions @ torch.linalg.pinv(directions)


def _groups(
    frame: ContactFrame, known: Mapping[str, np.ndarray], extras: tuple[str, ...]
) -> list[np.ndarray]:
    """Groups of raw columns (N, g): `circumstances`, then the measured quantities `extras`."""
    measured = np.zeros((len(frame.speed), 0))
    if extras:
        measured = np.column_stack([known[name] for name in extras])
    return [*circumstances(frame), measured]


def _trained_widths(
    base: BaseModel, groups: list[np.ndarray], extras: tuple[str, ...]
) -> list[np.ndarray]:
    """Expected standard deviations of each group's columns."""
    first_ends = np.cumsum([columns.shape[1] for columns in groups[:2]])
    trained = np.split(base.extent, first_ends)
    # Parameters are uniform in training: a standard deviation is the range over sqrt(12).
    of_params = {p.name: (p.high - p.low) / np.sqrt(12) for p in base.scene.params}
    trained.append(np.array([of_params.get(name, 0.0) for name in extras]))
    return trained


def unit_centres(scene: Scene, known: Mapping[str, np.ndarray], n: int) -> Tensor:
    """Measured or nominal values (n, p) of the parameters of n impacts, on the unit scale.

    Args:
        scene: The scene.
        known: Parameters and other quantities measured with each impact, (n,) each, by name.
        n: Number of impacts.
    """
    centre = torch.as_tensor(to_unit(scene.params, scene.nominal)).expand(n, -1).clone()
    for i, param in enumerate(scene.params):
        if param.name in known:
            measured = to_unit([param], known[param.name][:, None])[:, 0]
            centre[:, i] = torch.as_tensor(measured)
    return centre


def physics_of(
    base: BaseModel,
    frame: ContactFrame,
    known: Mapping[str, np.ndarray],
    *,
    of_both: bool = False,
) -> Physics:
    """The base model as a function of parameters, for `FieldData`.

    Parameters are on the unit scale, as differences from their measured or nominal values.

    Args:
        base: The base model.
        frame: The impacts in their contact frames.
        known: Parameters and other quantities measured with each impact, (N,) each, by name.
        of_both: Whether the outcomes are those of both bodies, (R, 2 k).
    """
    centre = unit_centres(base.scene, known, len(frame.speed))
    change = base.physics_of_both(frame) if of_both else base.physics(frame)

    def physics(rows: Tensor, phi: Tensor, free: Tensor | None = None) -> Tensor:
        unit = centre[rows] + phi
        back_to_limit = (unit.clamp(-_UNIT_LIMIT, _UNIT_LIMIT) - unit).detach()
        return change(rows, unit + back_to_limit * _HELD_BACK, free)

    return physics
