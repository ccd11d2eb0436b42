"""Named scalar parameters of a scene, and where each one lives in a compiled MuJoCo model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, did_you_mean, quoted


@dataclass(frozen=True)
class _Kind:
    """A kind of object of a MuJoCo model."""

    object_type: Any  # mjtObj
    prefix: str  # of the names of its fields in MjModel
    count: str  # name of the field that holds the number of such objects


_KINDS = {
    "geom": _Kind(mujoco.mjtObj.mjOBJ_GEOM, "geom_", "ngeom"),
    "body": _Kind(mujoco.mjtObj.mjOBJ_BODY, "body_", "nbody"),
    "pair": _Kind(mujoco.mjtObj.mjOBJ_PAIR, "pair_", "npair"),
    "joint": _Kind(mujoco.mjtObj.mjOBJ_JOINT, "jnt_", "njnt"),
    "actuator": _Kind(mujoco.mjtObj.mjOBJ_ACTUATOR, "actuator_", "nu"),
    "tendon": _Kind(mujoco.mjtObj.mjOBJ_TENDON, "tendon_", "ntendon"),
}
_TARGET = re.compile(
    r"^(?P<kind>\w+)(?:/(?P<name>.+))?/(?P<field>\w+)(?:\[(?P<index>\d+(?::\d+)?)\])?$"
)
# Attributes whose field of MjModel has another name, by kind and attribute as in MJCF.
_RENAMED = {
    ("joint", "solreflimit"): "jnt_solref",
    ("tendon", "springlength"): "tendon_lengthspring",
}
# Gains of servos, as MJCF names them: entries of gainprm and biasprm, and their signs.
_SERVO_GAINS = {
    "kp": (("actuator_gainprm", 0, 1.0), ("actuator_biasprm", 1, -1.0)),
    "kv": (("actuator_biasprm", 2, -1.0),),
    "velocity_kv": (("actuator_gainprm", 0, 1.0), ("actuator_biasprm", 2, -1.0)),
}
# Joint attributes that MuJoCo stores per degree of freedom, in fields dof_NAME.
_DOF_FIELDS = ("damping", "frictionloss", "armature", "solref", "solimp")
_SMALLEST_VALUE = 1e-300  # on a log scale; keeps the logarithm of zero finite


@dataclass(frozen=True)
class Param:
    """One scalar parameter: where it lives in the model, its range and its prior.

    Attributes:
        name: Name in messages, files and tables.
        target: Where it lives: "geom/block/friction[0]", "pair/strike/solref[1]",
            "joint/elbow/damping", "body/block/mass", "option/gravity[2]"; "[0:2]" writes one value
            to several entries.
        nominal: Expected value, in natural units.
        low: Lowest value.
        high: Highest value.
        unit: Unit of the value, shown in tables.
        scale: Scale on which the range is sampled uniformly and normalised.
        sign: -1 to write the negative value to the model, since MuJoCo's direct solref holds
            -stiffness and -damping.
        sd: Standard deviation of the prior about `nominal`, on the parameter's scale (that of the
            natural logarithm if the scale is "log"); by default a quarter of the range.
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
                f"parameter {self.name!r}: nominal {self.nominal} lies outside "
                f"{self.low} to {self.high}"
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
    """Where a parameter lives in a compiled model.

    Attributes:
        field: Name of a field of MjModel, or "opt.NAME" for an option.
        rows: Indices into the field's first axis; empty for options.
        columns: Indices into the field's second axis; empty where a row is a single number.
        factor: What the parameter's value is multiplied with.
        others: Further places that hold the same parameter, as the gain of a servo has two.
    """

    field: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    factor: float = 1.0
    others: tuple[Slot, ...] = ()

    @property
    def parts(self) -> tuple[Slot, ...]:
        """All places that hold the parameter, this one first."""
        return (self, *self.others)

    def write(self, array: np.ndarray, values: np.ndarray | float) -> None:
        """Write the parameter's value into this field's array, in place; not into the others'.

        Args:
            array: The field of a model, or of n simulations with a leading axis (n, ...).
            values: One value, or one for each simulation, (n,).
        """
        value = self.factor * np.asarray(values, float)
        for entry in self._entries():
            index: tuple[Any, ...] = (..., *entry)
            array[index] = value

    def _entries(self) -> list[tuple[int, ...]]:
        """Indices, of the array's last axes, of all entries that hold the value."""
        if not self.columns:
            return [(row,) for row in self.rows] or [()]
        if not self.rows:
            return [(column,) for column in self.columns]
        return list(itertools.product(self.rows, self.columns))


def nominal(params: Sequence[Param]) -> np.ndarray:
    """Collect the nominal values of parameters, (p,), in natural units."""
    return np.array([p.nominal for p in params], float)


def to_unit(params: Sequence[Param], theta: np.ndarray) -> np.ndarray:
    """Map parameters from natural units to [-1, 1] on each parameter's own scale.

    Args:
        params: The parameters, in the order of theta.
        theta: (..., p), natural units.

    Returns:
        Unit theta (..., p); beyond [-1, 1] where theta lies outside of its range.
    """
    unit = np.array(theta, float, copy=True)
    for i, param in enumerate(params):
        low, high = _scaled_range(param)
        value = unit[..., i]
        if param.scale == "log":
            value = np.log(np.maximum(value, _SMALLEST_VALUE))
        unit[..., i] = 2 * (value - low) / (high - low) - 1
    return unit


def from_unit(params: Sequence[Param], unit: np.ndarray) -> np.ndarray:
    """Map parameters from [-1, 1] to natural units; the inverse of `to_unit`.

    Args:
        params: The parameters, in the order of theta.
        unit: (..., p), on each parameter's own scale.

    Returns:
        theta (..., p), natural units.
    """
    theta = np.array(unit, float, copy=True)
    for i, param in enumerate(params):
        low, high = _scaled_range(param)
        value = low + (theta[..., i] + 1) / 2 * (high - low)
        theta[..., i] = np.exp(value) if param.scale == "log" else value
    return theta


def _scaled_range(param: Param) -> tuple[float, float]:
    """Lowest and highest value on the parameter's own scale, logarithms if that is "log"."""
    if param.scale == "log":
        return np.log(param.low), np.log(param.high)
    return param.low, param.high


def locate_param(model: mujoco.MjModel, target: str) -> Slot:
    """Find the entries of a model that a target names.

    Args:
        model: The compiled model.
        target: As in `Param`.

    Returns:
        The entries, as a slot to which the parameter is written.

    Raises:
        ParamError: There are no such entries; the message suggests similar names.
    """
    match = _TARGET.match(target)
    if match is None:
        raise ParamError(
            f"parameter target {target!r} is not of the form kind/name/field[index], "
            "as in geom/block/friction[0]"
        )
    kind, name, field, index = match.group("kind", "name", "field", "index")
    if kind == "option":
        return _locate_option(model, target, field, index)
    if kind not in _KINDS:
        raise ParamError(
            f"no kind {kind!r} in parameter target {target!r}; "
            f"{did_you_mean(kind, [*_KINDS, 'option'])}"
        )
    row = _index_of(model, target, kind, name or "")
    rows: tuple[int, ...] = (row,)
    if kind == "pair":
        rows = pair_rows(model, name or "")
    if kind == "joint" and field == "springref":
        return _spring_reference(model, target, row)
    if kind == "actuator" and field in _SERVO_GAINS:
        places = [Slot(place, rows, (i,), factor) for place, i, factor in _SERVO_GAINS[field]]
        return replace(places[0], others=tuple(places[1:]))
    renamed = _RENAMED.get((kind, field))
    if renamed is not None:
        return Slot(renamed, rows, _columns(target, index, getattr(model, renamed).shape[1:]))
    prefix = _KINDS[kind].prefix
    if kind == "joint" and field in _DOF_FIELDS:
        prefix = "dof_"
        rows = _degrees_of_freedom(model, row)
    array = getattr(model, prefix + field, None)
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
        known = [f.removeprefix(prefix) for f in _numeric_fields(model) if f.startswith(prefix)]
        if kind == "joint":
            known += _DOF_FIELDS
        raise ParamError(
            f"a {kind} has no numeric field {field!r} (in {target!r}); {did_you_mean(field, known)}"
        )
    return Slot(prefix + field, rows, _columns(target, index, array.shape[1:]))


def _spring_reference(model: mujoco.MjModel, target: str, joint: int) -> Slot:
    """The coordinate of a hinge or slide at which its spring is at rest."""
    if int(model.jnt_type[joint]) not in (
        int(mujoco.mjtJoint.mjJNT_HINGE),
        int(mujoco.mjtJoint.mjJNT_SLIDE),
    ):
        raise ParamError(f"only hinges and slides have the springref of {target!r}")
    return Slot("qpos_spring", (int(model.jnt_qposadr[joint]),), ())


def pair_rows(model: mujoco.MjModel, name: str) -> tuple[int, ...]:
    """Indices of the `<pair>` elements of a contact.

    Where bodies have several geoms, the contact "strike" has the pairs strike, strike/1, strike/2
    and so on.

    Args:
        model: The model.
        name: Name of the contact.
    """
    rows = [int(model.pair(name).id)]
    number = 1
    while (row := mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_PAIR, f"{name}/{number}")) >= 0:
        rows.append(row)
        number += 1
    return tuple(rows)


def _locate_option(model: mujoco.MjModel, target: str, field: str, index: str | None) -> Slot:
    """Find the entries of an option of the model, such as gravity."""
    array = getattr(model.opt, field, None)
    if array is None:
        known = _numeric_fields(model.opt)
        raise ParamError(f"no option {field!r} in {target!r}; {did_you_mean(field, known)}")
    return Slot(f"opt.{field}", (), _columns(target, index, np.shape(array)))


def _index_of(model: mujoco.MjModel, target: str, kind: str, name: str) -> int:
    """Index of a named object of the model; raises a `ParamError` that suggests names."""
    entry = _KINDS[kind]
    row: int = mujoco.mj_name2id(model, entry.object_type, name)
    if row >= 0:
        return row
    count: int = getattr(model, entry.count)
    names = [mujoco.mj_id2name(model, entry.object_type, i) for i in range(count)]
    raise ParamError(
        f"no {kind} named {name!r} in parameter target {target!r}; "
        f"{did_you_mean(name, filter(None, names))}"
    )


def _degrees_of_freedom(model: mujoco.MjModel, joint: int) -> tuple[int, ...]:
    """Indices of the degrees of freedom of a joint."""
    first = int(model.jnt_dofadr[joint])
    joint_type = int(model.jnt_type[joint])
    if joint_type == int(mujoco.mjtJoint.mjJNT_FREE):
        size = 6
    elif joint_type == int(mujoco.mjtJoint.mjJNT_BALL):
        size = 3
    else:
        size = 1
    return tuple(range(first, first + size))


def _columns(target: str, index: str | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Columns that an index such as "1" or "0:2" names in a field with rows of a given shape."""
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
    end = int(last) if last else int(first) + 1
    columns = tuple(range(int(first), end))
    if not columns or columns[-1] >= size:
        raise ParamError(
            f"index [{index}] in parameter target {target!r} is outside 0 to {size - 1}"
        )
    return columns


def _numeric_fields(owner: object) -> list[str]:
    """Names of the attributes that are numbers or arrays of numbers."""
    names = []
    for name in dir(owner):
        if name.startswith("_"):
            continue
        value = getattr(owner, name, None)
        is_array = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)
        if isinstance(value, float) or is_array:
            names.append(name)
    return names
