"""Checks that every simulator makes before it steps: shapes, finite numbers, the right model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.impacts import before_columns
from clashsim.core.params import Param

_FIELDS = ("qpos", "qvel", "act", "ctrl")  # what a step starts from, as MjData names it
_STATE = sum(int(getattr(mujoco.mjtState, f"mjSTATE_{field.upper()}")) for field in _FIELDS)
_BOX_QPOS = 7  # entries of qpos for a free box
_BOX_QVEL = 6  # entries of qvel for a free box


def numbers(what: str, values: object) -> np.ndarray:
    """The values as an array of floats; raises a DataError about `what` if they are no numbers."""
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError, RuntimeError):
        kind = type(values).__name__
        raise DataError(f"{what} must be an array of numbers, got {kind}") from None


def refuse_non_finite(
    what: str,
    values: np.ndarray,
    column_name: Callable[[int], str],
    *,
    error: type[ClashError] = DataError,
) -> None:
    """Refuse NaN and infinite numbers, naming the first of them.

    Args:
        what: The argument, as the user knows it.
        values: (N, columns), or (N, T, columns) for what changes from step to step.
        column_name: The name of a column by its index, asked for only when it is needed.
        error: The class that is raised.
    """
    if np.isfinite(values).all():
        return
    row, *step, column = np.argwhere(~np.isfinite(values))[0].tolist()
    value = values[(row, *step, column)]
    where = f"row {row}, step {step[0]}" if step else f"row {row}"
    raise error(f"{what} must be finite, but {where} has {value} in {column_name(column)}")


def check_rollout(
    model: mujoco.MjModel, start: object, control: object, *, finite: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Check the start and control of a rollout.

    Args:
        model: Of the simulator.
        start: (N, s), states: qpos, qvel and act.
        control: (N, T, nu).
        finite: False lets NaN and infinite numbers pass, for an optimiser that rejects such points.

    Returns:
        Start and control as arrays of floats.
    """
    size = model.nq + model.nv + model.na
    start = _start(start, size, "qpos, qvel and act")
    control = _control(control, len(start), model.nu)
    if finite:
        refuse_non_finite("start", start, lambda i: state_name(model, i))
        refuse_non_finite("control", control, lambda i: _named("ctrl", i, model.actuator(i).name))
    return start, control


def check_boxes(boxes: int, start: object, control: object) -> tuple[np.ndarray, np.ndarray]:
    """Check the start (N, 13 boxes) and control (N, T, 0) of free boxes without actuators."""
    nq = _BOX_QPOS * boxes
    start = _start(start, nq + _BOX_QVEL * boxes, f"qpos and qvel of {boxes} boxes")
    control = _control(control, len(start), 0, why=", for boxes have no actuators")

    def column_name(i: int) -> str:
        return f"qpos[{i}]" if i < nq else f"qvel[{i - nq}]"

    refuse_non_finite("start", start, column_name)
    quaternions = start[:, :nq].reshape(len(start), boxes, _BOX_QPOS)[:, :, 3:]
    without_direction = ~quaternions.any(2)
    if without_direction.any():
        row, box = np.argwhere(without_direction)[0].tolist()
        raise DataError(f"start has a quaternion of length 0 in row {row}, box {box}")
    return start, control


def nothing_to_step(start: np.ndarray, control: np.ndarray) -> np.ndarray | None:
    """The states (N, T + 1, s) of a rollout without rows or without steps, None for any other."""
    if control.shape[0] and control.shape[1]:
        return None
    return np.repeat(start[:, None], control.shape[1] + 1, axis=1)


def check_before(before: object, *, planar: bool) -> np.ndarray:
    """Check impacts `before` (N, d), columns as in `Impacts`."""
    return check_table("before", before, before_columns(planar))


def check_table(what: str, values: object, names: Sequence[str]) -> np.ndarray:
    """Check that values are finite and of shape (N, len(names)), and return them as floats."""
    values = numbers(what, values)
    if values.ndim != 2 or values.shape[1] != len(names):
        raise DataError(f"{what} needs shape (N, {len(names)}), got {values.shape}")
    refuse_non_finite(what, values, lambda i: repr(names[i]))
    return values


def check_theta(params: Sequence[Param], theta: object, n: int | None = None) -> np.ndarray | None:
    """Check theta (p,) or, for `n` simulations, (n, p) too; None stays None."""
    if theta is None:
        return None
    return check_vector("theta", theta, n, [p.name for p in params])


def check_vector(what: str, values: object, n: int | None, names: Sequence[str]) -> np.ndarray:
    """Check that values are finite and have an entry for each name.

    Args:
        what: The argument, as the user knows it.
        values: (len(names),) or, where `n` is given, also (n, len(names)).
        n: Number of simulations.
        names: Of the entries.

    Returns:
        The values as an array of floats.
    """
    values = numbers(what, values)
    shapes: list[tuple[int, ...]] = [(len(names),)]
    if n is not None:
        shapes.append((n, len(names)))
    if values.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ParamError(f"{what} needs shape {wanted}, got {values.shape}")
    refuse_non_finite(what, np.atleast_2d(values), lambda i: repr(names[i]), error=ParamError)
    return values


def check_data(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Refuse an MjData that was made from another model, or that holds NaN or infinite numbers.

    This runs in every step, so one copy of the whole state is looked at, which takes about 2 us.
    """
    if not isinstance(data, mujoco.MjData):
        raise DataError(f"step() needs an MjData made from the simulator's own model, got {data!r}")
    if data.signature != model.signature:
        raise DataError(
            "the MjData was made from another model: make it from the simulator's own, "
            "as mujoco.MjData(sim.model)"
        )
    state = np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_getState(model, data, state, _STATE)
    if np.isfinite(state).all():
        return
    for field in _FIELDS:
        values = getattr(data, field)
        if not np.isfinite(values).all():
            entry = int(np.argmin(np.isfinite(values)))
            raise DataError(f"the MjData must be finite, but {field}[{entry}] is {values[entry]}")


def state_name(model: mujoco.MjModel, column: int) -> str:
    """Name of a column of a state (qpos, qvel, act), with its joint where that has a name."""
    if column < model.nq:
        joint = int(np.searchsorted(model.jnt_qposadr, column, side="right")) - 1
        return _named("qpos", column, model.joint(joint).name)
    column -= model.nq
    if column < model.nv:
        return _named("qvel", column, model.joint(int(model.dof_jntid[column])).name)
    return f"act[{column - model.nv}]"


def _named(field: str, column: int, owner: str) -> str:
    """An entry of a field in a message."""
    return f"{field}[{column}] ({owner!r})" if owner else f"{field}[{column}]"


def _start(start: object, size: int, parts: str) -> np.ndarray:
    """Check the shape of a start; `parts` describes its entries."""
    start = numbers("start", start)
    if start.ndim != 2 or start.shape[1] != size:
        raise DataError(f"start needs shape (N, {size}): {parts}, got {start.shape}")
    return start


def _control(control: object, n: int, actuators: int, *, why: str = "") -> np.ndarray:
    """Check the shape of a control; `why` explains the number of actuators."""
    control = numbers("control", control)
    if control.ndim != 3 or control.shape[0] != n or control.shape[2] != actuators:
        raise DataError(f"control needs shape ({n}, T, {actuators}){why}, got {control.shape}")
    return control
