"""The identification problem for `mujoco.sysid`, MuJoCo's official toolbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.extras import needs
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.fit.identification_problem import IdentificationProblem

if TYPE_CHECKING:
    from mujoco import sysid

_START_RANGE = 0.99  # of the unit scale: a start must lie inside its bounds


def to_sysid(
    problem: IdentificationProblem, rows: np.ndarray | None = None
) -> tuple[sysid.ParameterDict, Callable[..., Any]]:
    """Convert an identification problem to the parameters and residuals of `mujoco.sysid`.

    `mujoco.sysid.optimize(*to_sysid(problem), eps=1e-2)` solves it. Values are on the unit scale
    [-1, 1] of each parameter, so that one step of finite differences suits all parameters; each
    parameter's modifier writes its natural value into an MjSpec.

    Args:
        problem: The identification problem.
        rows: Indices (n,) of the impacts to use; all by default.

    Returns:
        The parameters, and the residual function. The function takes points x (q,) or (q, m) and
        simulates all m points in one batch.
    """
    with needs("mujoco.sysid", "sysid"):
        from mujoco.sysid import Parameter, ParameterDict
    rows = np.arange(len(problem.before)) if rows is None else rows
    nominal = to_unit(problem.params, problem.scene.nominal[list(problem.free)])
    start = np.clip(nominal, -_START_RANGE, _START_RANGE)
    parameters = {}
    for param, value in zip(problem.params, start, strict=True):
        modifier = _modifier(param)
        parameters[param.name] = Parameter(param.name, value, -1.0, 1.0, modifier=modifier)

    def residual(x: np.ndarray, *_: object, **__: object) -> tuple[list[np.ndarray], None, None]:
        points = np.reshape(x, (len(problem.free), -1)).T
        residuals = problem.residual(problem.simulate(points, rows), rows)
        columns = residuals.reshape(len(points), -1).T / np.sqrt(len(rows))
        return [columns if np.ndim(x) == 2 else columns[:, 0]], None, None

    return ParameterDict(parameters), residual


def _modifier(param: Param) -> Callable[[Any, Any], None]:
    """A function (MjSpec, Parameter) that writes the parameter's natural value into the MjSpec.

    A target is "kind/name/attribute[index]", or "option/attribute" without a name.
    """
    if param.target.count("/") > 1:
        kind, name, path = param.target.split("/", 2)
    else:
        kind = "option"
        name = ""
        path = param.target.split("/")[1]
    attribute, _, index = path.rstrip("]").partition("[")

    def write(spec: Any, parameter: Any) -> None:
        value = param.sign * float(from_unit([param], parameter.as_vector())[0])
        element = spec.option if kind == "option" else getattr(spec, kind)(name)
        if not index:
            setattr(element, attribute, value)
            return
        first, _, last = index.partition(":")
        entries = np.array(getattr(element, attribute), float)
        entries[int(first) : int(last or int(first) + 1)] = value
        setattr(element, attribute, entries)

    return write
