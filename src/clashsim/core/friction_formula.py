"""Formulas of joint friction: dry, viscous, Stribeck and load-dependent, and sums of these.

A formula is what an engineer writes down in place of a network. `FormulaScalar` lets one take part
in a simulation as a neural scalar does, with its coefficients in place of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from clashsim.core.errors import ParamError, did_you_mean

FrictionTerm = Literal["viscous", "dry", "stribeck", "load"]
# The coefficients of each term: those that the torque is proportional to, then the speeds. Terms
# other than viscous share one smoothing speed.
TERM_FACTORS: dict[FrictionTerm, str] = {
    "viscous": "damping",
    "dry": "frictionloss",
    "stribeck": "stribeck",
    "load": "load",
}
_SILENT = -50.0  # logarithm of a factor that leaves nothing of a torque


@dataclass(frozen=True)
class FrictionFormula:
    """Friction torque over speed v and load N: minus the sum of these terms.

    viscous: damping v; dry: frictionloss tanh(v / smoothing);
    stribeck: stribeck exp(-(v / stribeck_speed)^2) tanh(v / smoothing);
    load: load N tanh(v / smoothing). Units are those of a hinge; for a slide N m becomes N and rad
    becomes m.

    Attributes:
        terms: The terms of the sum; none for no friction.
        damping: N m s, as the attribute of that name in MJCF.
        frictionloss: N m, as in MJCF; there it is not smoothed.
        stribeck: N m, by which friction at rest exceeds that in motion.
        stribeck_speed: rad/s, over which that excess vanishes.
        load: N m per N of the force in the bearing.
        smoothing: rad/s, speed at which dry friction has 76 % of its value.
    """

    terms: tuple[FrictionTerm, ...] = ()
    damping: float = 0.0
    frictionloss: float = 0.0
    stribeck: float = 0.0
    stribeck_speed: float = 1.0
    load: float = 0.0
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        for term in self.terms:
            if term not in TERM_FACTORS:
                raise ParamError(f"no friction term {term!r}; {did_you_mean(term, TERM_FACTORS)}")
        if not (self.smoothing > 0 and self.stribeck_speed > 0):
            raise ParamError(
                "a friction formula needs speeds above 0, got smoothing "
                f"{self.smoothing} and stribeck_speed {self.stribeck_speed}"
            )

    @property
    def name(self) -> str:
        """The terms in words, such as "dry + viscous"."""
        return " + ".join(self.terms) or "none"

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the attributes that the terms use."""
        names = [TERM_FACTORS[term] for term in self.terms]
        if set(self.terms) - {"viscous"}:
            names.append("smoothing")
        if "stribeck" in self.terms:
            names.append("stribeck_speed")
        return tuple(names)

    @property
    def text(self) -> str:
        """The formula with its numbers, over speed v and load N."""
        smooth = f"tanh(v / {self.smoothing:.3g})"
        parts = {
            "viscous": f"{self.damping:.3g} v",
            "dry": f"{self.frictionloss:.3g} {smooth}",
            "stribeck": f"{self.stribeck:.3g} exp(-(v / {self.stribeck_speed:.3g})^2) {smooth}",
            "load": f"{self.load:.3g} N {smooth}",
        }
        if not self.terms:
            return "0"
        return "-" + " - ".join(parts[term] for term in self.terms)

    def columns(self, speed: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
        """Torques of all terms for coefficients of 1.

        Args:
            speed: rad/s, (n,).
            load: N, (n,); needed for the term "load".

        Returns:
            Torques (n, k) of the k terms.
        """
        torques = _term_torques(self.terms, self._values, speed, load, np)
        return np.stack(torques, axis=-1) if torques else np.zeros((len(speed), 0))

    def torque(self, speed: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
        """Friction torques (n,), N m; arguments as `columns`."""
        factors = [getattr(self, TERM_FACTORS[term]) for term in self.terms]
        return self.columns(speed, load) @ np.array(factors, float)

    @property
    def _values(self) -> dict[str, float]:
        """The coefficients that the terms use, by name."""
        return {name: getattr(self, name) for name in self.coefficients}


def _term_torques(
    terms: Sequence[FrictionTerm],
    values: Mapping[str, Any],
    speed: Any,
    load: Any,
    xp: Any,
) -> list[Any]:
    """Torques (...) of some terms for factors of 1; `values` has their speeds by name."""
    if "load" in terms and load is None:
        raise ParamError("friction by load needs the loads")
    smooth = xp.tanh(speed / values.get("smoothing", 1.0))
    torques = []
    for term in terms:
        if term == "viscous":
            torques.append(-speed)
        elif term == "dry":
            torques.append(-smooth)
        elif term == "stribeck":
            torques.append(-smooth * xp.exp(-((speed / values["stribeck_speed"]) ** 2)))
        else:
            torques.append(-smooth * load)
    return torques


@dataclass(frozen=True)
class FormulaScalar:
    """A friction formula in the torque of a joint, with coefficients that can be fitted.

    Its weights (count,) are the logarithms of the factors on the coefficients, so that zero is the
    formula as given, and friction never drives.

    Attributes:
        target: "force/JOINT".
        formula: The formula, without the term "load".
    """

    target: str
    formula: FrictionFormula

    def __post_init__(self) -> None:
        if not self.target.startswith("force/"):
            raise ParamError(f"a friction formula acts on force/JOINT, not on {self.target!r}")
        if "load" in self.formula.terms:
            raise ParamError(f"the formula of {self.target!r} cannot read the load of a bearing")

    @property
    def reads(self) -> tuple[str, ...]:
        """The one quantity that is read."""
        return (f"qvel/{self.target.partition('/')[2]}",)

    @property
    def mode(self) -> Literal["add"]:
        """How the torque enters the joint's."""
        return "add"

    @property
    def count(self) -> int:
        """Number of coefficients."""
        return len(self.formula.coefficients)

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        """Weights (count,) of the formula as given."""
        return np.zeros(self.count)

    def silenced(self, weights: np.ndarray) -> np.ndarray:
        """Weights (count,) with which there is no torque."""
        factors = set(TERM_FACTORS.values())
        is_factor = np.array([name in factors for name in self.formula.coefficients], bool)
        return np.where(is_factor, _SILENT, weights)

    def fitted(self, weights: np.ndarray) -> FrictionFormula:
        """The formula with fitted coefficients.

        Args:
            weights: (count,).
        """
        factors = dict(zip(self.formula.coefficients, np.exp(weights), strict=True))
        changed: dict[str, Any] = {}
        for name, factor in factors.items():
            changed[name] = getattr(self.formula, name) * float(factor)
        return replace(self.formula, **changed)

    def output(self, weights: Any, values: Any, xp: Any = np) -> Any:
        """Evaluate the formula.

        Args:
            weights: (count,).
            values: Speed of the joint, (..., 1).
            xp: numpy or jax.numpy.

        Returns:
            The torque, (...,).
        """
        given = [getattr(self.formula, name) for name in self.formula.coefficients]
        fitted = [value * xp.exp(weights[i]) for i, value in enumerate(given)]
        by_name = dict(zip(self.formula.coefficients, fitted, strict=True))
        speed = values[..., 0]
        terms = self.formula.terms
        torques = _term_torques(terms, by_name, speed, None, xp)
        total = 0 * speed
        for term, torque in zip(terms, torques, strict=True):
            total = total + by_name[TERM_FACTORS[term]] * torque
        return total

    def combine(self, value: Any, output: Any, xp: Any = np) -> Any:
        """Add the torque (...) to a joint's (...)."""
        return value + output
