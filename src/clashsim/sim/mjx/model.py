"""A scene put into MJX: the model's fields for given parameters, and their derivatives."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.extras import needs
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene_model import SceneModel, model_field
from clashsim.sim.mjx.refusals import UnsupportedByMjx, one_line, refuse_meshes, refuse_pairs

# Those constants that MuJoCo derives from masses, inertias and reference poses (mj_setConst) which
# MJX's dynamics read.
_DERIVED = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "tendon_length0",
    "tendon_invweight0",
    "actuator_acc0",
)
# Step, on the unit scale of a parameter, of central differences of these constants. They are smooth
# functions of it, so the differences have ten correct digits.
_DIFFERENCE_STEP = 1e-5
# N or N m: least friction loss of a joint whose friction loss is a parameter. A joint that had some
# when the scene was put into MJX and then has none would be locked.
_MIN_FRICTIONLOSS = 1e-9


@dataclass(frozen=True, eq=False)
class MjxScene:
    """A scene in MJX, without its sensors.

    Attributes:
        scene: The scene.
        mujoco_model: The MuJoCo model that was put into MJX.
        model: The MJX model.
        names: The model's fields that depend on theta.
    """

    scene: SceneModel
    mujoco_model: mujoco.MjModel
    model: Any
    names: tuple[str, ...]

    def fields(self, theta: np.ndarray | None, n: int) -> dict[str, np.ndarray]:
        """Fields of the model that depend on theta.

        Args:
            theta: (p,) or (n, p); the author's values where None.
            n: Number of simulations.

        Returns:
            Arrays (n, ...) by name.
        """
        out = {}
        for name in self.names:
            author = model_field(self.scene.base, name)
            out[name] = np.tile(author, (n,) + (1,) * author.ndim)
        if theta is not None:
            theta = np.broadcast_to(theta, (n, len(self.scene.params)))
            self.scene.write(theta, out.__getitem__)
            out |= self._derived_constants(theta)
        if "dof_frictionloss" in out:
            loss = out["dof_frictionloss"]
            rows = self._frictionloss_rows()
            loss[:, rows] = np.maximum(loss[:, rows], _MIN_FRICTIONLOSS)
        return out

    def field_tangents(self, theta: np.ndarray, free: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Derivatives of the fields that `fields` returns with respect to some parameters.

        Args:
            theta: (n, p), at which derivatives are taken.
            free: (q,), indices of the parameters; derivatives are with respect to their values on
                the unit scale.

        Returns:
            Arrays (n, q, ...) by name.
        """
        n, q = len(theta), len(free)
        params = self.scene.params
        tangents = {
            name: np.zeros((n, q, *model_field(self.scene.base, name).shape)) for name in self.names
        }
        for column, i in enumerate(free):
            slot = self.scene.slots[i]
            for part in () if slot is None else slot.parts:
                rate = params[i].sign * _natural_per_unit(params[i], theta[:, i])
                part.write(tangents[part.field][:, column], rate)
        if self.scene.needs_const:
            unit = to_unit(params, theta)
            for column, i in enumerate(free):
                shift = _DIFFERENCE_STEP * np.eye(len(params))[i]
                above = self._derived_constants(from_unit(params, unit + shift))
                below = self._derived_constants(from_unit(params, unit - shift))
                for name in above:
                    difference = above[name] - below[name]
                    tangents[name][:, column] = difference / (2 * _DIFFERENCE_STEP)
        return tangents

    def at(self, fields: dict[str, Any]) -> Any:
        """The MJX model with these fields, which may be traced by jax."""
        return self.model.tree_replace(fields)

    def _frictionloss_rows(self) -> list[int]:
        """Degrees of freedom whose friction loss is a parameter."""
        rows: set[int] = set()
        for slot in self.scene.slots:
            if slot is not None and slot.field == "dof_frictionloss":
                rows.update(slot.rows)
        return sorted(rows)

    def _derived_constants(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """MuJoCo's derived constants (n, ...) at theta (n, p), by name; empty if all are fixed."""
        if not self.scene.needs_const:
            return {}
        # A batch, because one model after the other takes several times as long.
        models = batch.Batch(self.mujoco_model, len(theta))
        derived = {name: models.expand(name) for name in _DERIVED if name in self.names}
        self.scene.write(theta, models.expand)
        models.set_const(ids=np.arange(len(theta)))
        return {name: np.array(values) for name, values in derived.items()}


def _natural_per_unit(param: Param, value: np.ndarray) -> np.ndarray:
    """Derivative of a parameter's natural value (n,) in its value on the unit scale."""
    if param.scale == "log":
        return value * np.log(param.high / param.low) / 2
    return np.full_like(value, (param.high - param.low) / 2)


def import_mjx() -> tuple[Any, Any]:
    """The modules jax, set to double precision, and mujoco.mjx."""
    with needs("mujoco-mjx", "mjx"):
        import jax

        # MJX prints that it could not import warp, which is not needed.
        with contextlib.redirect_stdout(io.StringIO()):
            # Not `from mujoco import mjx`, whose error hides that the module is missing.
            import mujoco.mjx as mjx
    jax.config.update("jax_enable_x64", True)
    return jax, mjx


@contextlib.contextmanager
def precision(single: bool) -> Iterator[None]:
    """A context in which jax computes in single or in double precision, whatever it is set to.

    Programs have to be compiled and called in it. Matrix products are in full precision, for which
    a GPU would otherwise round single-precision factors to 10 bits.
    """
    jax, _ = import_mjx()
    with jax.enable_x64(not single), jax.default_matmul_precision("highest"):
        yield


@lru_cache(maxsize=8)
def put_scene(
    scene: SceneModel,
    *,
    timestep: float | None = None,
    faithful: bool = False,
    iterations: int = 100,
    line_search_steps: int = 12,
    single: bool = False,
) -> MjxScene:
    """Put a scene into MJX, or refuse it with the reason.

    Args:
        scene: The scene.
        timestep: s, replaces the author's.
        faithful: Also refuse scenes whose collisions differ between MJX and MuJoCo.
        iterations: Of the constraint solver, at most.
        line_search_steps: In each iteration, at most. MJX takes all of them whether they are needed
            or not; 12 give the same states as MuJoCo's default of 50, in a quarter of the time.
        single: Store the model in single precision, for use within `precision(True)`.
    """
    jax, mjx = import_mjx()
    spec = scene.spec.copy()
    for sensor in list(spec.sensors):  # MJX lacks some of them, and none is needed
        spec.delete(sensor)
    mujoco_model = spec.compile()
    options = mujoco_model.opt
    options.iterations = min(options.iterations, iterations)
    options.ls_iterations = min(options.ls_iterations, line_search_steps)
    options.timestep = timestep or options.timestep
    for slot, param in zip(scene.slots, scene.params, strict=True):
        if slot is not None and slot.field == "dof_frictionloss":
            # MJX makes room only for the friction of joints that have some in this model.
            slot.write(mujoco_model.dof_frictionloss, param.high)
    refuse_pairs(scene, mujoco_model, faithful=faithful)
    try:
        with warnings.catch_warnings(record=True) as caught, precision(single):
            warnings.simplefilter("always")
            model = mjx.put_model(mujoco_model, impl="jax")
    except NotImplementedError as problem:
        raise UnsupportedByMjx(
            f"MJX cannot load scene {scene.name!r}: {one_line(problem)}; use MujocoSim for it"
        ) from None
    if faithful:
        refuse_meshes(scene, mujoco_model, [str(warning.message) for warning in caught])
    names = set()
    for param, slot in zip(scene.params, scene.slots, strict=True):
        for part in () if slot is None else slot.parts:
            if not isinstance(array_of(model, part.field), jax.Array):
                raise UnsupportedByMjx(
                    f"MJX fixes {part.field!r} when it compiles, so parameter {param.name!r} of "
                    f"scene {scene.name!r} cannot vary there: use MujocoSim for it"
                )
            names.add(part.field)
    if scene.needs_const:
        for name in _DERIVED:
            if isinstance(getattr(model, name), jax.Array) and getattr(mujoco_model, name).size:
                names.add(name)
    return MjxScene(scene, mujoco_model, model, tuple(sorted(names)))


def pad_rows(arrays: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The arrays with their first rows repeated until there are `rows`.

    Compiling for another number of rows costs more than computing rows that nobody needs.
    """
    padded = {}
    for name, values in arrays.items():
        filling = np.repeat(values[:1], rows - len(values), 0)
        padded[name] = np.concatenate([values, filling])
    return padded


def array_of(model: Any, name: str) -> Any:
    """The array of an MJX model that the name of a field stands for, or None."""
    for part in name.split("."):
        model = getattr(model, part, None)
    return model
