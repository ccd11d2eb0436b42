"""The spring and damper of a contact, and MuJoCo's two ways of writing it as solref.

MuJoCo accelerates two bodies apart by `stiffness * depth - damping * speed`, whatever their mass
(its documentation, "Solver parameters"). That holds exactly where solimp has one impedance for all
depths, which is what is written here. Both forms of solref are the same spring:

    direct        (-stiffness, -damping), 1/s^2 and 1/s
    timeconst     (1 / (ratio * frequency), ratio)

with frequency = sqrt(stiffness) and ratio = damping / (2 * frequency).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clashsim.core.errors import ParamError, quoted

SolrefForm = Literal["direct", "timeconst"]
# One impedance for all depths: with MuJoCo's default of 0.9 to 0.95 over the first millimetre, the
# stiffness of a shallow contact depends on how deep it is.
IMPEDANCE = 0.95
# MuJoCo lengthens a shorter time constant (its refsafe flag).
STEPS_PER_TIMECONST = 2.0
_SOLIMP_NUMBERS = 5
_SMALLEST = 1e-12  # first number of a solref


@dataclass(frozen=True)
class ContactSpring:
    """A contact as a spring and damper, per mass that is moved.

    Attributes:
        frequency: Of the undamped spring, rad/s.
        damping_ratio: 0 for no loss; 1 is critical damping.
    """

    frequency: float
    damping_ratio: float

    @property
    def stiffness(self) -> float:
        """Stiffness over mass, 1/s^2."""
        return self.frequency**2

    @property
    def damping(self) -> float:
        """Damping over mass, 1/s."""
        return 2 * self.damping_ratio * self.frequency

    def solref(self, form: SolrefForm, timestep: float) -> tuple[float, float]:
        """The two numbers of solref.

        Args:
            form: Which of MuJoCo's two forms.
            timestep: s.

        Raises:
            ParamError: The form cannot represent this spring at this time step.
        """
        if form == "direct":
            return -self.stiffness, -self.damping if self.damping else 0.0
        if self.damping_ratio == 0:
            raise ParamError(
                "a contact without damping has no time constant, so the form timeconst cannot "
                "represent it: use the direct form"
            )
        timeconst = 1 / (self.damping_ratio * self.frequency)
        shortest = STEPS_PER_TIMECONST * timestep
        if timeconst < shortest:
            raise ParamError(
                f"the form timeconst needs a time constant of {timeconst:.3g} s, which is shorter "
                f"than two time steps, and MuJoCo lengthens it to {shortest:.3g} s: use the direct "
                "form, or a longer contact time"
            )
        return timeconst, self.damping_ratio


def constant_solimp(impedance: float = IMPEDANCE) -> tuple[float, float, float, float, float]:
    """A solimp with the same impedance at all depths."""
    return impedance, impedance, 0.001, 0.5, 2.0


def spring_of(
    solref: Sequence[float], solimp: Sequence[float], timestep: float
) -> tuple[ContactSpring, bool]:
    """The spring that solver parameters mean for deep contacts.

    Args:
        solref: Its two numbers, in either form.
        solimp: Its five numbers.
        timestep: s.

    Returns:
        The spring, and whether MuJoCo lengthens the time constant at this time step.
    """
    if len(solref) != 2 or not all(map(math.isfinite, solref)):
        raise ParamError(f"solref must have 2 numbers, got {quoted(tuple(solref))}")
    if len(solimp) != _SOLIMP_NUMBERS or not all(map(math.isfinite, solimp)):
        raise ParamError(f"solimp must have {_SOLIMP_NUMBERS} numbers, got {quoted(tuple(solimp))}")
    for name, value in (("first", solimp[0]), ("second", solimp[1])):
        if not 0 < value < 1:
            raise ParamError(f"the {name} number of solimp must be above 0 and below 1: {value:g}")
    first, second = solref
    if (first > 0) != (second > 0) and not (first < 0 and second == 0):
        raise ParamError(
            f"solref {quoted(tuple(solref))} mixes the two forms, for which MuJoCo takes its "
            'default: give two positive numbers (timeconst, dampratio), or "-stiffness -damping"'
        )
    if abs(first) < _SMALLEST:
        raise ParamError(
            f"the first number of solref must not be within {_SMALLEST:g} of 0, got {first:g}"
        )
    if first < 0:
        frequency = math.sqrt(-first)
        return ContactSpring(frequency, -second / (2 * frequency)), False
    timeconst = max(first, STEPS_PER_TIMECONST * timestep)
    return ContactSpring(1 / (timeconst * second), second), timeconst > first
