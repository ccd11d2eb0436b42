"""What every kind of scene has: MJCF text, named parameters, and the model that follows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, SceneError, did_you_mean
from clashsim.core.params import Param, Slot, locate_param, nominal

# Effects of real impacts that MuJoCo's contact does not have. These are added to simulated impacts
# (`clashsim.core.effects`), and their values are sampled like those of any other parameter.
DELAY = "effect/delay"
SAMPLED_EFFECTS = ("effect/tangential_stiffness", "effect/x", "effect/y", "effect/yaw")
# These are added to a predicted outcome by a formula (`clashsim.nets.effects`), so that no network
# has to learn them.
EXACT_EFFECTS = (
    "effect/drag",
    DELAY,
    "effect/height",
    "effect/pitch",
    "effect/tip_height",
    "effect/tip_reach",
    "effect/tip_pitch",
    "effect/tip_gyration",
)
_EFFECTS = SAMPLED_EFFECTS + EXACT_EFFECTS
# Fields of MjModel from which MuJoCo derives constants; mj_setConst must follow a write to them.
_CONST_FIELDS = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_armature", "qpos0")
# Targets of parameters that move a body's mass centre or turn its principal axes.
_MOVED_CENTRE = re.compile(r"body/(?P<body>.+)/(ipos|iquat)\[.*\]")


class SceneModel(ABC):
    """A scene with named parameters. Its kinds say what else is known of it.

    Attributes:
        xml: The author's MJCF.
        params: The parameters to identify, in the order of `theta`.
        assets: Content of the files that the MJCF names, by path.
        name: The scene's name in messages and file names.
    """

    xml: str
    params: tuple[Param, ...]
    assets: Mapping[str, bytes]
    name: str

    @property
    @abstractmethod
    def spec(self) -> mujoco.MjSpec:
        """The author's scene, with what this kind of scene adds to it."""

    def let_centres_move(self, spec: mujoco.MjSpec) -> None:
        """Compile bodies whose mass centre or principal axes are parameters in the general form.

        In the simpler form of a body whose axes are those of its inertia, they cannot be moved.

        Args:
            spec: The scene's specification, changed in place.
        """
        for param in self.params:
            match = _MOVED_CENTRE.fullmatch(param.target)
            body = None if match is None else spec.body(match.group("body"))
            if body is not None:
                body.simple = 0

    @cached_property
    def base(self) -> mujoco.MjModel:
        """The compiled model at the author's own parameter values."""
        try:
            return self.spec.compile()
        except ValueError as error:
            raise compiler_error(self.name, error) from None

    @cached_property
    def slots(self) -> tuple[Slot | None, ...]:
        """Where each parameter lives in the model, in `params` order.

        None for effects ("effect/NAME"), which MuJoCo's model does not have.
        """
        names = [param.name for param in self.params]
        for name in names:
            if names.count(name) > 1:
                raise ParamError(f"two parameters are both named {name!r}")
        slots: list[Slot | None] = []
        for param in self.params:
            if param.target in _EFFECTS:
                slots.append(None)
            elif param.target.startswith("effect/"):
                raise ParamError(
                    f"there is no effect {param.target!r}; {did_you_mean(param.target, _EFFECTS)}"
                )
            else:
                slots.append(locate_param(self.base, param.target))
        return tuple(slots)

    def write(self, theta: np.ndarray, field: Callable[[str], np.ndarray]) -> None:
        """Write parameters into the arrays of one model, or of n simulations of a batch.

        Args:
            theta: (p,) for a model or (n, p) for a batch, in natural units.
            field: Returns the array to write to, given the name of a field as in `Slot`.
        """
        values = np.asarray(theta, float).T
        for slot, param, value in zip(self.slots, self.params, values, strict=True):
            for part in () if slot is None else slot.parts:
                part.write(field(part.field), param.sign * value)

    def model(self, theta: np.ndarray | None = None) -> mujoco.MjModel:
        """Compile a fresh model.

        Args:
            theta: (p,), in natural units; None leaves the author's values.

        Returns:
            A model that the caller may change.
        """
        model = self.spec.compile()
        if theta is not None:
            self.write(theta, lambda name: model_field(model, name))
            mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    @property
    def nominal(self) -> np.ndarray:
        """Nominal theta (p,), in natural units."""
        return nominal(self.params)

    @property
    def needs_const(self) -> bool:
        """Whether MuJoCo's derived constants must be recomputed after theta is written."""
        return any(slot is not None and slot.field in _CONST_FIELDS for slot in self.slots)

    def with_params(self, params: Sequence[Param]) -> Self:
        """Copy the scene with other parameters to identify."""
        return self._changed(params=tuple(params))

    def with_xml(self, xml: str) -> Self:
        """Copy the scene with another MJCF text."""
        return self._changed(xml=xml)

    def _changed(self, **changes: Any) -> Self:
        """A copy with other fields; every kind of scene is a dataclass."""
        return cast(Self, replace(cast(Any, self), **changes))


def model_field(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Look up the array of a model that holds a parameter.

    Args:
        model: The model.
        name: The field of a `Slot`, such as "pair_friction" or "opt.gravity".

    Returns:
        The array; writing to it changes the model.
    """
    if not name.startswith("opt."):
        return getattr(model, name)
    option = name.removeprefix("opt.")
    value = getattr(model.opt, option)
    if not isinstance(value, np.ndarray):
        raise ParamError(
            f"option {option!r} is a single number; "
            "only vector options such as gravity can be parameters"
        )
    return value


def compiler_error(name: str, error: ValueError) -> SceneError:
    """What is wrong with a scene, in one line.

    Args:
        name: Name of the scene.
        error: What MuJoCo's compiler raised.
    """
    if "mass and inertia of moving bodies" in str(error):
        body = re.search(r"Element name '([^']*)'", str(error))
        which = f"body {body.group(1)!r}" if body else "a body"
        return SceneError(
            f"scene {name!r}: {which} moves and has no mass: give its geoms a density or mass "
            "above zero, or the body an <inertial>"
        )
    return SceneError(f"scene {name!r} does not compile: {' '.join(str(error).split())}")
