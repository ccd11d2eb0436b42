"""`clashsim contact`: restitution and friction as parameters of MuJoCo, and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from clashsim.commands.option_types import OptionalName
from clashsim.commands.shared import console, say
from clashsim.core.errors import ParamError

if TYPE_CHECKING:
    from clashsim.core.material_pairs import MaterialPair
    from clashsim.sim.mujoco.contact_parameters import ConvertedContact

OptionalFloat = Annotated[float | None, arg(metavar="FLOAT")]
Numbers = Annotated[tuple[float, ...], arg(metavar="NUMBERS")]
_DEFAULT_FRICTION = 1.0  # MuJoCo's


@dataclass(frozen=True)
class ContactOptions:
    """Convert restitution, friction and contact time to MuJoCo's solref and solimp, and back.

    Example: clashsim contact --restitution 0.6 --friction 0.3 --mass 0.4

    Prints what a drop in MuJoCo results in with these values, and elements to paste into a model.
    With --solref, prints what values that you have do. No run or recording is needed.
    """

    restitution: OptionalFloat = None
    """Speed after an impact over the speed before it, 0 to 1."""
    friction: OptionalFloat = None
    """Coefficient of sliding friction; by default that of --material, or MuJoCo's 1."""
    mass: OptionalFloat = None
    """Mass of the moving body, kg; needed with --stiffness only."""
    other_mass: OptionalFloat = None
    """Mass of the body that it hits, kg, if that can move as well."""
    material: OptionalName = None
    """Pair of materials with published nominal values; "list" prints all."""
    contact_time: OptionalFloat = None
    """Duration of the contact, s; by default 20 time steps."""
    stiffness: OptionalFloat = None
    """Stiffness of the contact, N/m, instead of --contact-time."""
    penetration: OptionalFloat = None
    """Largest depth at --speed, m, instead of --contact-time."""
    form: Literal["direct", "timeconst"] = "direct"
    """How solref is written: -stiffness -damping, or time constant and damping ratio."""
    tolerance: float = 0.04
    """Largest error of the restitution, whenever within a time step the bodies touch."""
    solref: Numbers = field(default=())
    """Two numbers to convert back, as in: --solref 0.02 1, or --solref -9e4 -60.
    """
    solimp: Numbers = field(default=())
    """With --solref: up to five numbers; MuJoCo's defaults are the others."""
    timestep: float = 0.002
    """Time step of your simulation, s."""
    integrator: Literal["Euler", "RK4", "implicit", "implicitfast"] = "Euler"
    """Integrator of your simulation."""
    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    """Friction cone of your simulation."""
    speed: float = 1.0
    """Approach speed of the drop, m/s."""
    gravity: float = 9.81
    """Of the drop, m/s^2."""


def run(options: ContactOptions) -> None:
    """Run `clashsim contact`."""
    from clashsim.core.material_pairs import material_pair
    from clashsim.sim.mujoco.contact_parameters import (
        ContactRequest,
        contact_behaviour,
        contact_parameters,
    )
    from clashsim.sim.mujoco.drop import DropConditions

    if options.material == "list":
        _print_materials()
        return
    material = None if options.material is None else material_pair(options.material)
    friction = _chosen_friction(options, material)
    conditions = DropConditions(
        timestep=options.timestep,
        integrator=options.integrator,
        cone=options.cone,
        speed=options.speed,
        gravity=options.gravity,
    )
    mass = _mass(options)
    if options.solref:
        if options.restitution is not None or material is not None:
            raise ParamError("--solref is converted to a restitution: leave out --restitution")
        found = contact_behaviour(
            options.solref, options.solimp, friction=friction, conditions=conditions
        )
        _print_outcome(found, mass, asked=None)
        return
    if options.solimp:
        raise ParamError("--solimp is converted back together with --solref: give that as well")
    restitution = options.restitution
    if restitution is None and material is not None:
        restitution = material.restitution
    if restitution is None:
        raise ParamError(
            "which restitution is missing: give --restitution, a --material that has one, or "
            "--solref to convert back"
        )
    request = ContactRequest(
        restitution,
        friction,
        mass,
        contact_time=options.contact_time,
        stiffness=options.stiffness,
        penetration=options.penetration,
        form=options.form,
        tolerance=options.tolerance,
        conditions=conditions,
    )
    found = contact_parameters(request)
    _print_outcome(found, mass, asked=request.restitution)
    if material is not None:
        say(f"{options.material}, nominal values: {material.source}")
    print(f"\n{found.mjcf()}")


def _chosen_friction(options: ContactOptions, material: MaterialPair | None) -> float:
    """The friction that was given, or that of the material, or MuJoCo's."""
    if options.friction is not None:
        return options.friction
    if material is not None and material.friction is not None:
        return material.friction
    return _DEFAULT_FRICTION


def _mass(options: ContactOptions) -> float | None:
    """Mass that the contact accelerates, kg."""
    from clashsim.sim.mujoco.contact_parameters import effective_mass

    if options.mass is None:
        if options.other_mass is not None:
            raise ParamError("--other-mass is of the second body: give --mass as well")
        return None
    for name, value in (("mass", options.mass), ("other_mass", options.other_mass)):
        if value is not None and not 0 < value < float("inf"):
            raise ParamError(f"{name} must be a positive number, got {value:g}")
    return effective_mass(options.mass, options.other_mass)


def _print_outcome(found: ConvertedContact, mass: float | None, asked: float | None) -> None:
    """Print parameters and what drops with them resulted in."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    conditions, drops = found.conditions, found.drops
    table = Table(box=SIMPLE_HEAD)
    for heading in ("", "asked", "obtained", "from and to"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row(
        "restitution",
        "" if asked is None else f"{asked:.3f}",
        f"{drops.restitution.mean():.3f}",
        f"{drops.restitution.min():.3f} to {drops.restitution.max():.3f}",
    )
    for name, values in (
        ("penetration, mm", 1e3 * drops.penetration),
        ("contact time, ms", 1e3 * drops.contact_time),
    ):
        table.add_row(name, "", f"{values.mean():.3g}", f"{values.min():.3g} to {values.max():.3g}")
    table.add_row(
        "friction",
        f"{found.friction[0]:.3g}",
        f"{found.slid.mean():.3g}",
        f"{found.slid.min():.3g} to {found.slid.max():.3g}",
    )
    console().print(table)
    say(
        f"Dropped in MuJoCo at {conditions.speed:g} m/s with a time step of "
        f"{1e3 * conditions.timestep:g} ms, {conditions.integrator}, {conditions.cone} cone: the "
        "values hold for these only. Ranges are over moments within a time step at which bodies "
        "may touch; of friction, over directions."
    )
    spring = found.spring
    text = f"stiffness {spring.stiffness:.6g} 1/s^2, damping {spring.damping:.6g} 1/s"
    if mass is not None:
        newtons, damping = spring.stiffness * mass, spring.damping * mass
        text += f": {newtons:.4g} N/m and {damping:.4g} N s/m on {mass:.4g} kg"
    say(text)
    if found.lengthened:
        say("MuJoCo lengthens this time constant to two time steps (refsafe).", style="yellow")
    if asked is None and drops.restitution.max() > 1:
        say("This contact gains energy: the time step is too long for it.", style="yellow")


def _print_materials() -> None:
    """Print all pairs of materials with their sources."""
    from clashsim.core.material_pairs import MATERIAL_PAIRS

    for name, pair in MATERIAL_PAIRS.items():
        restitution = "-" if pair.restitution is None else f"{pair.restitution:g}"
        friction = "-" if pair.friction is None else f"{pair.friction:g}"
        say(f"{name}: restitution {restitution}, friction {friction}. {pair.source}")
