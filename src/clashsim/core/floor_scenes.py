"""Scenes of free boxes on a floor, for fits and networks that use whole trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clashsim.core.box import Box
from clashsim.core.errors import SceneError
from clashsim.core.params import Param
from clashsim.core.scene import Scene

# MuJoCo's default contact: friction, solref (time constant in s, damping ratio), then solimp.
DEFAULTS = {
    "friction": 1.0,
    "time_constant": 0.02,
    "damping_ratio": 1.0,
    "d0": 0.9,
    "dwidth": 0.95,
    "width": 0.001,
    "midpoint": 0.5,
    "power": 2.0,
}
_SOLIMP = ("d0", "dwidth", "width", "midpoint", "power")
# Written after the sliding friction; without effect at condim 3.
_TORSIONAL_AND_ROLLING_FRICTION = "0.005 0.0001"
_FIRST_COLOUR = "0.15 0.4 0.75 1"  # red, green, blue, opacity
_OTHER_COLOUR = "0.3 0.65 0.35 1"


def boxes_mjcf(
    boxes: Sequence[Box],
    contact: Mapping[str, float],
    *,
    timestep: float,
    gravity: float = 9.81,
    drag: float = 0.0,
) -> str:
    """Write the MJCF of free boxes on a floor.

    Args:
        boxes: The boxes, named box0, box1, ...
        contact: Values by name: friction, stiffness and damping (or time_constant and
            damping_ratio), and the five numbers of solimp: d0, dwidth, width, midpoint, power.
            Those not given are as in `DEFAULTS`.
        timestep: s.
        gravity: m/s^2, downwards.
        drag: 1/s, damping of the boxes' free joints divided by the mass.

    Returns:
        The text of the MJCF.
    """
    if not boxes:
        raise SceneError("a scene of boxes needs at least one box")
    values = {**DEFAULTS, **contact}
    if "stiffness" in values:
        solref = (-values["stiffness"], -values["damping"])
    else:
        solref = (values["time_constant"], values["damping_ratio"])
    solimp = [values[name] for name in _SOLIMP]
    attributes = (
        f'friction="{values["friction"]:.9g} {_TORSIONAL_AND_ROLLING_FRICTION}" '
        f'solref="{solref[0]:.9g} {solref[1]:.9g}" solimp="{_joined(solimp)}" condim="3"'
    )
    bodies = "".join(_body_mjcf(i, box, drag) for i, box in enumerate(boxes))
    return (
        f'<mujoco model="boxes"><option timestep="{timestep:.12g}" integrator="Euler" '
        f'cone="elliptic" gravity="0 0 {-gravity:.9g}"/>'
        f"<default><geom {attributes}/></default>"
        '<worldbody><light pos="0 -1 3"/><geom name="floor" type="plane" size="5 5 0.1" '
        f'rgba="0.9 0.9 0.88 1"/>{bodies}</worldbody></mujoco>\n'
    )


def _body_mjcf(index: int, box: Box, drag: float) -> str:
    """MJCF of one free box, at an initial position beside the others and above the floor."""
    name = f"box{index}"
    colour = _FIRST_COLOUR if index == 0 else _OTHER_COLOUR
    x = 3 * box.half[0] * index  # half a box's width between neighbours
    z = 1 + box.half[2]  # 1 m between box and floor
    return (
        f'<body name="{name}" pos="{x:.6g} 0 {z:.6g}">'
        f'<joint name="{name}" type="free" damping="{drag * box.mass:.9g}"/>'
        f'<inertial pos="{_joined(box.centre)}" mass="{box.mass:.9g}" '
        f'diaginertia="{_joined(box.inertia)}"/>'
        f'<geom name="{name}" type="box" size="{_joined(box.half)}" rgba="{colour}"/></body>'
    )


def _joined(values: Sequence[float]) -> str:
    """Numbers as the text of an MJCF attribute."""
    return " ".join(f"{value:.9g}" for value in values)


def box_contact_params(form: str = "direct") -> tuple[Param, ...]:
    """Name the parameters of the contact with the floor: friction, solref and solimp.

    Args:
        form: "direct" for stiffness and damping; "standard" for time constant and damping ratio
            within the ranges of Table II of the few-shot paper.

    Returns:
        The parameters.
    """
    # Positional arguments: name, target, nominal, low, high, unit, scale, sign.
    if form == "standard":
        return (
            Param("friction", "pair/strike/friction[0:2]", 0.3, 0.01, 1.0),
            Param("time_constant", "pair/strike/solref[0]", 0.02, 0.004, 0.1, "s", "log"),
            Param("damping_ratio", "pair/strike/solref[1]", 1.0, 0.1, 10.0, "", "log"),
            Param("d0", "pair/strike/solimp[0]", 0.9, 0.9, 0.95),
            Param("dwidth", "pair/strike/solimp[1]", 0.95, 0.95, 0.99),
            Param("width", "pair/strike/solimp[2]", 0.001, 0.0001, 0.01, "m", "log"),
            Param("midpoint", "pair/strike/solimp[3]", 0.05, 0.001, 0.1),
            Param("power", "pair/strike/solimp[4]", 2.0, 1.0, 5.0),
        )
    return (
        Param("friction", "pair/strike/friction[0:2]", 0.2, 0.08, 0.6, "", "log"),
        Param(
            "stiffness", "pair/strike/solref[0]", 150000.0, 20000.0, 1000000.0, "1/s^2", "log", -1
        ),
        Param("damping", "pair/strike/solref[1]", 500.0, 100.0, 3000.0, "1/s", "log", -1),
        Param("d0", "pair/strike/solimp[0]", 0.85, 0.5, 0.97),
        Param("width", "pair/strike/solimp[2]", 0.002, 0.0005, 0.008, "m", "log"),
    )


def box_inertia_params(box: Box) -> tuple[Param, ...]:
    """Name mass centre and principal inertia of the box as parameters.

    Args:
        box: The box as measured, of even density.

    Returns:
        The parameters centre_x to centre_z, expected within about 6 mm of the middle, and inertia_x
        to inertia_z, expected within a factor of about exp(0.5) of the box's own.
    """
    params = []
    for i, axis in enumerate("xyz"):
        target = f"body/box0/ipos[{i}]"
        params.append(Param(f"centre_{axis}", target, 0.0, -0.015, 0.015, "m", sd=0.006))
    for i, axis in enumerate("xyz"):
        value = box.inertia[i]
        params.append(
            Param(
                name=f"inertia_{axis}",
                target=f"body/box0/inertia[{i}]",
                nominal=value,
                low=0.6 * value,
                high=1.6 * value,
                unit="kg m^2",
                scale="log",
                sd=0.5,
            )
        )
    return tuple(params)


def box_shape_params(box: Box, gravity: float = 9.81) -> tuple[Param, ...]:
    """Name size and rounding of a cube, and gravity as recorded, as parameters.

    The box is a cube of half size `half` whose contact surface is `rounding` further out. Gravity
    is a parameter because the camera's scale of length may be wrong.

    Args:
        box: The box as measured.
        gravity: m/s^2, expected value.

    Returns:
        The parameters half, rounding and gravity.
    """
    half = box.half[0]
    return (
        Param(
            name="half",
            target="geom/box0/size[0:3]",
            nominal=half - 0.004,  # the measured size includes the rounding
            low=0.85 * half,
            high=1.02 * half,
            unit="m",
            sd=0.0015,
        ),
        Param("rounding", "pair/strike/margin", 0.0035, 0.0, 0.01, "m", sd=0.0015),
        Param(
            name="gravity",
            target="option/gravity[2]",
            nominal=gravity,
            low=0.95 * gravity,
            high=1.02 * gravity,
            unit="m/s^2",
            sign=-1,
            sd=0.01 * gravity,
        ),
    )


def box_scene(
    box: Box, params: Sequence[Param], *, timestep: float, gravity: float = 9.81
) -> Scene:
    """Make a scene of one box and a floor, in which mass centre and inertia can be parameters.

    Args:
        box: The box.
        params: The parameters to identify.
        timestep: s.
        gravity: m/s^2, downwards.

    Returns:
        The scene.
    """
    nominal_contact = {param.name: param.nominal for param in box_contact_params()}
    # MuJoCo compiles a body with equal inertias and a centred mass in a simplified form in which
    # its mass centre cannot be moved later, so both are made slightly uneven.
    x, y, z = box.inertia
    uneven = Box(box.half, box.mass, (x, y * 1.0001, z * 1.0002), (1e-6, 1e-6, 1e-6))
    xml = boxes_mjcf([uneven], nominal_contact, timestep=timestep, gravity=gravity)
    return Scene(xml, "box0", "floor", None, tuple(params), name="box")
