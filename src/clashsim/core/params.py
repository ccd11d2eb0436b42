"""Named scalar parameters of a scene, and where each one lives in a compiled MuJoCo model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, did_you_mean, quoted

_KINDS: dict[str, tuple[Any, str]] = {
    "geom": (mujoco.mjtObj.mjOBJ_GEOM, "geom_"),
    "body": (mujoco.mjtObj.mjOBJ_BODY, "body_"),
    "pair": (mujoco.mjtObj.mjOBJ_PAIR, "pair_"),
    "joint": (mujoco.mjtObj.mjOBJ_JOINT, "jnt_"),
    "actuator": (mujoco.mjtObj.mjOBJ_ACTUATOR, "actuator_"),
}
_TARGET = re.compile(
    r"^(?P<kind>\w+)(?:/(?P<name>.+))?/(?P<field>\w+)(?:\[(?P<index>\d+(?::\d+)?)\])?$"
)
# Joint attributes that MuJoCo stores per degree of freedom.
_DOF_FIELDS = ("damping", "frictionloss", "armature", "solref", "solimp")


@dataclass(frozen=True)
class Param:
    """One scalar: `target` says where it lives, `low`..`high` is its range and its prior.

    target: "geom/block/friction[0]", "pair/strike/solref[1]", "joint/elbow/damping",
    "body/block/mass", "option/gravity[2]"; "[0:2]" writes one value to several entries. `scale` is
    how the range is drawn and normalised. `sign` -1 stores the negative (MuJoCo's direct solref
    holds -stiffness and -damping). `sd`: how far from nominal the value is expected to lie, one
    standard deviation on its scale (as a factor's logarithm if that is "log"); by default a quarter
    of the range.
    """

    name: str
    target: str
    nominal: float
    low: float
    high: float
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    sign: int = 1
    sd: float | None = None

    def __post_init__(self) -> None:
        is_finite = np.isfinite([self.nominal, self.low, self.high]).all()
        if not (is_finite and 0 < self.high - self.low < np.inf):
            raise ParamError(
                f"parameter {self.name!r} needs finite low < high, got {self.low} and {self.high}"
            )
        if not self.low <= self.nominal <= self.high:
            raise ParamError(
                f"parameter {self.name!r}: nominal {self.nominal} lies outside {self.low} to {self.high}"
            )
        if self.sd is not None and not (np.isfinite(self.sd) and self.sd > 0):
            raise ParamError(f"parameter {self.name!r} needs sd > 0, got {self.sd}")
        if self.scale not in ("linear", "log"):
            raise ParamError(
                f"parameter {self.name!r}: scale {self.scale!r} is neither 'linear' nor 'log'"
            )
        if self.sign not in (-1, 1):
            got = quoted(self.sign)
            raise ParamError(f"parameter {self.name!r} needs sign = 1 or -1, got {got}")
        if self.scale == "log" and self.low <= 0:
            raise ParamError(f"parameter {self.name!r}: a log scale needs low > 0, got {self.low}")


@dataclass(frozen=True)
class Slot:
    """Where a parameter lives: a model field (or "opt.<name>") and the entries of it that hold the
    value.
    """

    field: str
    rows: tuple[int, ...]  # first-axis indices; empty for option fields
    columns: tuple[int, ...]  # second-axis indices; empty for scalar fields

    def write(self, array: np.ndarray, values: np.ndarray | float) -> None:
        """Write `values` (scalar, or (n,) for an array with a leading simulation axis) into a
        field's array.
        """
        value = np.asarray(values, float)
        if self.columns:
            for row in self.rows or (None,):
                for column in self.columns:
                    array[(..., row, column) if row is not None else (..., column)] = value
        else:
            for row in self.rows or (None,):
                array[(..., row) if row is not None else ...] = value


def nominal(params: Sequence[Param]) -> np.ndarray:
    """Nominal values, (p,), in natural units."""
    return np.array([p.nominal for p in params], float)


def to_unit(params: Sequence[Param], theta: np.ndarray) -> np.ndarray:
    """Map theta (..., p) in natural units to [-1, 1] on each parameter's own scale."""
    out = np.array(theta, float, copy=True)
    for i, p in enumerate(params):
        a, b, x = p.low, p.high, out[..., i]
        if p.scale == "log":
            a, b, x = np.log(a), np.log(b), np.log(np.maximum(x, 1e-300))
        out[..., i] = 2 * (x - a) / (b - a) - 1
    return out


def from_unit(params: Sequence[Param], unit: np.ndarray) -> np.ndarray:
    """Inverse of `to_unit`."""
    out = np.array(unit, float, copy=True)
    for i, p in enumerate(params):
        a, b = (np.log(p.low), np.log(p.high)) if p.scale == "log" else (p.low, p.high)
        x = a + (out[..., i] + 1) / 2 * (b - a)
        out[..., i] = np.exp(x) if p.scale == "log" else x
    return out


def locate_param(model: mujoco.MjModel, target: str) -> Slot:
    """Find the entries of `model` that `target` names, or raise with the nearest names there are."""
    match = _TARGET.match(target)
    if match is None:
        raise ParamError(
            f"parameter target {target!r} is not of the form kind/name/field[index], as in geom/block/friction[0]"
        )
    kind, name, field, index = match["kind"], match["name"], match["field"], match["index"]
    if kind == "option":
        array = getattr(model.opt, field, None)
        if array is None:
            raise ParamError(
                f"no option {field!r} in {target!r}; {did_you_mean(field, _numeric_fields(model.opt))}"
            )
        return Slot(f"opt.{field}", (), _columns(target, index, np.shape(array)))
    if kind not in _KINDS:
        raise ParamError(
            f"no kind {kind!r} in parameter target {target!r}; {did_you_mean(kind, [*_KINDS, 'option'])}"
        )
    obj, prefix = _KINDS[kind]
    row = mujoco.mj_name2id(model, obj, name or "")
    if row < 0:
        names = [
            mujoco.mj_id2name(model, obj, i) or ""
            for i in range(
                getattr(
                    model, {"joint": "njnt"}.get(kind, "n" + kind if kind != "actuator" else "nu")
                )
            )
        ]
        raise ParamError(
            f"no {kind} named {name!r} in parameter target {target!r}; {did_you_mean(name or '', filter(None, names))}"
        )
    rows: tuple[int, ...] = (row,)
    if kind == "joint" and field in _DOF_FIELDS:
        prefix = "dof_"
        first = int(model.jnt_dofadr[row])
        size = {0: 6, 1: 3}.get(int(model.jnt_type[row]), 1)
        rows = tuple(range(first, first + size))
    array = getattr(model, prefix + field, None)
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
        fields = [f[len(prefix) :] for f in _numeric_fields(model) if f.startswith(prefix)] + list(
            _DOF_FIELDS if kind == "joint" else ()
        )
        raise ParamError(
            f"a {kind} has no numeric field {field!r} (in {target!r}); {did_you_mean(field, fields)}"
        )
    return Slot(prefix + field, rows, _columns(target, index, array.shape[1:]))


def _columns(target: str, index: str | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not shape:
        if index is not None:
            raise ParamError(
                f"parameter target {target!r} has an index, but its field is a single number"
            )
        return ()
    size = int(np.prod(shape))
    if index is None:
        raise ParamError(f"parameter target {target!r} needs an index, 0 to {size - 1}")
    first, _, last = index.partition(":")
    columns = tuple(range(int(first), int(last) if last else int(first) + 1))
    if not columns or columns[-1] >= size:
        raise ParamError(
            f"index [{index}] in parameter target {target!r} is outside 0 to {size - 1}"
        )
    return columns


def _numeric_fields(thing: object) -> list[str]:
    names = []
    for f in dir(thing):
        if not f.startswith("_"):
            value = getattr(thing, f, None)
            if isinstance(value, float) or (
                isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)
            ):
                names.append(f)
    return names
