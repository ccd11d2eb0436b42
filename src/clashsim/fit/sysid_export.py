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


def to_sysid(
    problem: IdentificationProblem, rows: np.ndarray | None = None
) -> tuple[sysid.ParameterDict, Callable[..., Any]]:
    """The same problem for the official toolbox.

    `mujoco.sysid.optimize(*to_sysid(problem), eps=1e-2)` solves it, and all else there goes on
    from it. Values are on the unit scale [-1, 1] of each parameter, where one step of finite
    differences fits all; each parameter's modifier writes its natural value into an MjSpec.

    Args:
        problem: The identification problem.
        rows: Which impacts (n,); all by default.

    Returns:
        The parameters, and the residual function. It takes x (q,) or (q, m) and runs all m points
        in one batch.
    """
    with needs("mujoco.sysid", "sysid"):
        from mujoco.sysid import Parameter, ParameterDict
    rows = np.arange(len(problem.before)) if rows is None else rows
    nominal = to_unit(problem.params, problem.scene.nominal[list(problem.free)])
    start = np.clip(nominal, -0.99, 0.99)
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
    """A function (MjSpec, Parameter) that writes a unit-scale value into the author's scene."""
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
