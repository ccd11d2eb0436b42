"""From restitution and contact time to MuJoCo's solref and solimp, and back, by drops in MuJoCo.

The spring of `ContactSpring` has a restitution that follows from its damping ratio alone only in
continuous time and without gravity. So the damping ratio is searched for with drops at the time
step, integrator and cone that will be used, until their mean restitution is the one asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from clashsim.core.contact_spring import (
    ContactSpring,
    SolrefForm,
    constant_solimp,
    spring_of,
)
from clashsim.core.errors import ParamError
from clashsim.sim.mujoco.drop import (
    DropConditions,
    Drops,
    drop,
    drop_model,
    heights_within_a_step,
    sliding_friction,
)

STEPS_OF_CONTACT = 20  # of a contact whose duration was not asked for
_NUM_DROPS = 12  # moments within a time step
_NUM_LONG_DROPS = 3  # of a contact of so many steps that the moment hardly matters
_LONG = 100  # steps of such a contact
_LONGEST = 12.0  # contact times after which a sphere that has not left the surface stays
_FEWEST_STEPS = 3  # of a contact, below which nothing is searched for
_MOST_STEPS = 1000
_BISECTIONS = 16
_ADJUSTMENTS = 6  # of the frequency, for a contact time or penetration
_SAME = 0.01  # relative error of a contact time or penetration that needs no further adjustment
_LONGER = 1.25  # factor between the contact times that are tried for an advice
_ADVISED_STEPS = 400  # of the longest contact that is advised
_TORSION, _ROLLING = 0.005, 0.0001  # MuJoCo's defaults, m
_LEAST_FRICTION = 1e-5  # MuJoCo's
_MOST_FRICTION = 10.0
_DEFAULT_SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
# In which drops are simulated.
_RANGES = {
    "timestep": (1e-6, 0.1, "s"),
    "speed": (1e-3, 100.0, "m/s"),
    "gravity": (0.0, 100.0, "m/s^2"),
}
_NO_DROPS = Drops(np.empty(0), np.empty(0), np.empty(0))


@dataclass(frozen=True)
class ContactRequest:
    """What a contact is to do.

    At most one of contact_time, stiffness and penetration is given; without any, the contact takes
    20 time steps, about as short as the time step resolves.

    Attributes:
        restitution: Speed after over speed before, 0 to 1.
        friction: Coefficient of sliding friction.
        mass: Mass that the contact accelerates, kg: of the body that hits a fixed one, or
            m1 m2 / (m1 + m2) of two free ones (`effective_mass`). Only a stiffness in N/m depends
            on it.
        contact_time: Duration of the force, s.
        stiffness: N/m.
        penetration: Largest depth at the conditions' speed, m.
        form: How solref is written.
        tolerance: Largest error of the restitution, at any moment within a time step at which
            bodies may touch.
        conditions: Time step, integrator, cone, speed and gravity.
    """

    restitution: float
    friction: float = 1.0
    mass: float | None = None
    contact_time: float | None = None
    stiffness: float | None = None
    penetration: float | None = None
    form: SolrefForm = "direct"
    tolerance: float = 0.04
    conditions: DropConditions = field(default_factory=DropConditions)


@dataclass(frozen=True)
class ConvertedContact:
    """Solver parameters of a contact, and what they do.

    Attributes:
        solref: Two numbers.
        solimp: Five numbers.
        friction: Five numbers, as of a `<pair>`.
        spring: The spring that they mean.
        drops: What drops in MuJoCo resulted in.
        slid: (3,), coefficients of friction of a sphere that slid in MuJoCo, from an axis of the
            friction cone to the diagonal of two.
        conditions: Of the drops.
        lengthened: Whether MuJoCo lengthens the time constant at this time step.
    """

    solref: tuple[float, float]
    solimp: tuple[float, float, float, float, float]
    friction: tuple[float, float, float, float, float]
    spring: ContactSpring
    drops: Drops
    conditions: DropConditions
    lengthened: bool = False
    slid: np.ndarray = field(default_factory=lambda: np.empty(0))

    def mjcf(self, geom1: str = "GEOM1", geom2: str = "GEOM2") -> str:
        """Elements to paste into a model: the options that the values belong to, and the pair."""
        options = self.conditions
        return "\n".join(
            (
                f'<option timestep="{options.timestep:g}" integrator="{options.integrator}" '
                f'cone="{options.cone}"/>',
                "<contact>",
                f'  <pair geom1="{geom1}" geom2="{geom2}" condim="3" '
                f'friction="{numbers(self.friction)}"',
                f'        solref="{numbers(self.solref)}" solimp="{numbers(self.solimp)}"/>',
                "</contact>",
            )
        )


def numbers(values: Sequence[float]) -> str:
    """Numbers as an attribute of MJCF."""
    return " ".join(f"{value:.6g}" for value in values)


def effective_mass(mass: float, other: float | None = None) -> float:
    """Mass that a head-on contact accelerates.

    Args:
        mass: Of one body, kg.
        other: Of the other, kg; None for a fixed one.
    """
    return mass if other is None else mass * other / (mass + other)


def contact_parameters(request: ContactRequest) -> ConvertedContact:
    """Find solref and solimp for a restitution.

    Args:
        request: What the contact is to do, and in which simulation.

    Returns:
        The parameters, with drops that show what they do.

    Raises:
        ParamError: MuJoCo cannot represent this; the message has the nearest that it can.
    """
    _check(request)
    found = _search(request)
    if _error(request, found) > request.tolerance:
        raise ParamError(_refusal(request, found))
    solref = found.spring.solref(request.form, request.conditions.timestep)
    return _tested(replace(found, solref=solref))


def contact_behaviour(
    solref: Sequence[float],
    solimp: Sequence[float] = (),
    *,
    friction: float = 1.0,
    conditions: DropConditions = DropConditions(),
) -> ConvertedContact:
    """What solver parameters do: restitution, penetration and contact time of drops.

    Args:
        solref: Two numbers, in either form.
        solimp: Up to five numbers; MuJoCo's defaults are the others.
        friction: Coefficient of sliding friction.
        conditions: Time step, integrator, cone, speed and gravity.
    """
    _check_conditions(conditions)
    _check_friction(friction)
    if len(solimp) > len(_DEFAULT_SOLIMP):
        raise ParamError(f"solimp has at most {len(_DEFAULT_SOLIMP)} numbers, got {len(solimp)}")
    first, second, width, middle, power = (*solimp, *_DEFAULT_SOLIMP[len(solimp) :])
    five = (first, second, width, middle, power)
    spring, lengthened = spring_of(solref, five, conditions.timestep)
    _check_steps(math.pi / spring.frequency / conditions.timestep)
    contact = ConvertedContact(
        (float(solref[0]), float(solref[1])),
        five,
        _five_frictions(friction),
        spring,
        _NO_DROPS,
        conditions,
        lengthened,
    )
    return _tested(contact)


def _tested(contact: ConvertedContact) -> ConvertedContact:
    """The parameters with drops, and with a sphere that slid."""
    conditions = contact.conditions
    if not conditions.gravity:
        conditions = replace(conditions, gravity=DropConditions.gravity)
    duration = math.pi / contact.spring.frequency
    return replace(
        contact,
        drops=_drops(contact),
        slid=sliding_friction(_model(contact, conditions), duration),
    )


def _model(contact: ConvertedContact, conditions: DropConditions) -> mujoco.MjModel:
    """The model that drops and slides are simulated in."""
    return drop_model(
        conditions, solref=contact.solref, solimp=contact.solimp, friction=contact.friction
    )


def _search(request: ContactRequest) -> ConvertedContact:
    """The parameters whose restitution and duration, stiffness or depth are as asked for."""
    conditions = request.conditions
    if request.stiffness is not None:
        assert request.mass is not None
        return _with_restitution(request, math.sqrt(request.stiffness / request.mass))
    if request.contact_time is not None:
        wanted, frequency = request.contact_time, math.pi / request.contact_time
    elif request.penetration is not None:
        wanted, frequency = request.penetration, conditions.speed / request.penetration
    else:
        return _with_restitution(request, math.pi / (STEPS_OF_CONTACT * conditions.timestep))
    found = _with_restitution(request, frequency)
    for _ in range(_ADJUSTMENTS):
        drops = found.drops
        obtained = drops.penetration if request.contact_time is None else drops.contact_time
        ratio = float(obtained.mean()) / wanted
        if abs(ratio - 1) < _SAME:
            break
        # A spring of the same damping ratio is twice as deep, and lasts twice as long, at half the
        # frequency.
        frequency *= ratio
        found = _with_restitution(request, frequency)
    return found


def _with_restitution(request: ContactRequest, frequency: float) -> ConvertedContact:
    """The parameters with a frequency (rad/s) whose restitution is as asked for, or nearest."""
    step = request.conditions.timestep
    steps = math.pi / (frequency * step)
    if steps < _FEWEST_STEPS:
        raise ParamError(_too_few_steps(request, frequency, "it is not resolved"))
    _check_steps(steps)
    # From this ratio on, one time step of damping reverses the velocity.
    low, high = 0.0, 0.5 / (frequency * step)
    elastic = _contact(request, ContactSpring(frequency, low))
    if _mean(elastic) <= request.restitution:
        return elastic
    damped = _contact(request, ContactSpring(frequency, high))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        contact = _contact(request, ContactSpring(frequency, middle))
        if _mean(contact) > request.restitution:
            low = middle
        else:
            high, damped = middle, contact
    return damped


def _contact(request: ContactRequest, spring: ContactSpring) -> ConvertedContact:
    """Parameters of a spring in the direct form, with drops."""
    conditions = request.conditions
    contact = ConvertedContact(
        spring.solref("direct", conditions.timestep),
        constant_solimp(),
        _five_frictions(request.friction),
        spring,
        _NO_DROPS,
        conditions,
    )
    return replace(contact, drops=_drops(contact))


def _drops(contact: ConvertedContact) -> Drops:
    """Drops with given parameters, at several moments within a time step."""
    conditions = contact.conditions
    model = _model(contact, conditions)
    duration = math.pi / contact.spring.frequency + _FEWEST_STEPS * conditions.timestep
    num_drops = _NUM_DROPS if duration < _LONG * conditions.timestep else _NUM_LONG_DROPS
    heights = heights_within_a_step(conditions, num_drops)
    return drop(model, conditions.speed, heights=heights, longest=_LONGEST * duration)


def _mean(contact: ConvertedContact) -> float:
    return float(contact.drops.restitution.mean())


def _error(request: ContactRequest, contact: ConvertedContact) -> float:
    """Largest error of the restitution."""
    return float(np.abs(contact.drops.restitution - request.restitution).max())


def _refusal(request: ContactRequest, found: ConvertedContact) -> str:
    """Why a request cannot be represented, and the nearest one that can."""
    restitution = found.drops.restitution
    if abs(_mean(found) - request.restitution) <= request.tolerance:
        return _too_few_steps(
            request,
            found.spring.frequency,
            f"between {restitution.min():.3f} and {restitution.max():.3f} result, depending on "
            "when within a step bodies touch",
        )
    return (
        f"MuJoCo does not give a restitution of {request.restitution:g} with this contact at "
        f"{request.conditions.speed:g} m/s: the nearest that it gives is {_mean(found):.3f}; "
        "gravity holds slow bodies down, so take a shorter contact time and time step, or a "
        "higher speed"
    )


def _too_few_steps(request: ContactRequest, frequency: float, reason: str) -> str:
    """That the time step is too long for a contact, and the nearest contact that it resolves.

    Args:
        request: What was asked for.
        frequency: Of the contact, rad/s.
        reason: A clause that says what happens otherwise.
    """
    step = request.conditions.timestep
    asked = math.pi / (frequency * step)
    sentence = (
        f"a time step of {step:g} s is too long for this contact, which takes {asked:.2g} steps: "
        f"{reason}"
    )
    steps = max(asked, _FEWEST_STEPS)
    while steps < _ADVISED_STEPS:
        steps *= _LONGER
        contact = _with_restitution(request, math.pi / (steps * step))
        if _error(request, contact) <= request.tolerance:
            duration = float(contact.drops.contact_time.mean())
            return (
                f"{sentence}; nearest that MuJoCo gives: a contact time of {duration:.2g} s, or "
                f"this contact at a time step of {step * asked / steps:.2g} s"
            )
    return f"{sentence}; take a shorter time step"


def _five_frictions(friction: float) -> tuple[float, float, float, float, float]:
    return friction, friction, _TORSION, _ROLLING, _ROLLING


def _check(request: ContactRequest) -> None:
    """Refuse numbers that no contact has."""
    _check_conditions(request.conditions)
    _check_friction(request.friction)
    if not 0 <= request.restitution <= 1:
        raise ParamError(
            "restitution is the speed after an impact over the speed before it, and must be "
            f"between 0 and 1, got {request.restitution:g}"
        )
    if not 0 < request.tolerance < 1:
        raise ParamError(f"tolerance must be above 0 and below 1, got {request.tolerance:g}")
    lengths = {
        "contact_time": request.contact_time,
        "stiffness": request.stiffness,
        "penetration": request.penetration,
    }
    for name, value in (lengths | {"mass": request.mass}).items():
        if value is not None:
            _check_positive(name, value)
    given = [name for name, value in lengths.items() if value is not None]
    if len(given) > 1:
        raise ParamError(f"{' and '.join(given)} determine each other: give one of them")
    if request.stiffness is not None and request.mass is None:
        raise ParamError(
            "a stiffness in N/m needs the mass that the contact accelerates, because MuJoCo's "
            "contact acts on accelerations: give mass as well"
        )


def _check_conditions(conditions: DropConditions) -> None:
    for name, (low, high, unit) in _RANGES.items():
        value = getattr(conditions, name)
        if not low <= value <= high:
            raise ParamError(f"{name} must be from {low:g} to {high:g} {unit}, got {value:g}")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ParamError(f"{name} must be a positive number, got {value:g}")


def _check_friction(friction: float) -> None:
    if not _LEAST_FRICTION <= friction <= _MOST_FRICTION:
        raise ParamError(
            f"friction must be from {_LEAST_FRICTION:g}, MuJoCo's smallest, to "
            f"{_MOST_FRICTION:g}, got {friction:g}"
        )


def _check_steps(steps: float) -> None:
    """Refuse contacts of too many time steps to be simulated."""
    if steps > _MOST_STEPS:
        raise ParamError(
            f"this contact would take {steps:.3g} time steps, and at most {_MOST_STEPS} are "
            "simulated: take a longer time step"
        )
