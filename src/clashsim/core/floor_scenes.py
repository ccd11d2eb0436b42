"""Boxes on a floor: the scenes in which whole trajectories are identified, scaled and learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clashsim.core.box import Box
from clashsim.core.errors import SceneError
from clashsim.core.params import Param
from clashsim.core.scene import Scene

# MuJoCo's own contact: solref as time constant and damping ratio, solimp, friction.
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


def boxes_mjcf(
    boxes: Sequence[Box],
    contact: Mapping[str, float],
    *,
    timestep: float,
    gravity: float = 9.81,
    drag: float = 0.0,
) -> str:
    """MJCF of free boxes named box0, box1, ... on a floor; contact: friction, stiffness and damping
    (or time_constant and damping_ratio), and solimp's five.
    """
    if not boxes:
        raise SceneError("a scene of boxes needs at least one box")
    c = {**DEFAULTS, **contact}
    solref = (
        (-c["stiffness"], -c["damping"])
        if "stiffness" in c
        else (c["time_constant"], c["damping_ratio"])
    )
    solimp = [c[k] for k in ("d0", "dwidth", "width", "midpoint", "power")]
    attributes = f'friction="{c["friction"]:.9g} 0.005 0.0001" solref="{solref[0]:.9g} {solref[1]:.9g}" solimp="{_text(solimp)}" condim="3"'
    bodies = "".join(
        f'<body name="box{i}" pos="{3 * b.half[0] * i:.6g} 0 {1 + b.half[2]:.6g}"><joint name="box{i}" type="free" damping="{drag * b.mass:.9g}"/>'
        f'<inertial pos="{_text(b.centre)}" mass="{b.mass:.9g}" diaginertia="{_text(b.inertia)}"/>'
        f'<geom name="box{i}" type="box" size="{_text(b.half)}" rgba="{_COLOURS[min(i, 1)]}"/></body>'
        for i, b in enumerate(boxes)
    )
    return (
        f'<mujoco model="boxes"><option timestep="{timestep:.12g}" integrator="Euler" cone="elliptic" gravity="0 0 {-gravity:.9g}"/>'
        f"<default><geom {attributes}/></default>"
        f'<worldbody><light pos="0 -1 3"/><geom name="floor" type="plane" size="5 5 0.1" rgba="0.9 0.9 0.88 1"/>{bodies}</worldbody></mujoco>\n'
    )


_COLOURS = ("0.15 0.4 0.75 1", "0.3 0.65 0.35 1")


def _text(values: Sequence[float]) -> str:
    return " ".join(f"{v:.9g}" for v in values)


def box_contact_params(form: str = "direct") -> tuple[Param, ...]:
    """Friction, solref and solimp of the contact with the floor; solref direct, or "standard"
    within the ranges of Table II of the few-shot paper.
    """
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
    """Centre of mass, expected within 6 mm or so of the centre, and principal inertia."""
    centre = tuple(
        Param(f"centre_{a}", f"body/box0/ipos[{i}]", 0.0, -0.015, 0.015, "m", sd=0.006)
        for i, a in enumerate("xyz")
    )
    sides = enumerate(zip("xyz", box.inertia, strict=True))
    return (
        *centre,
        *(
            Param(
                f"inertia_{a}",
                f"body/box0/inertia[{i}]",
                v,
                0.6 * v,
                1.6 * v,
                "kg m^2",
                "log",
                sd=0.5,
            )
            for i, (a, v) in sides
        ),
    )


def box_shape_params(box: Box, gravity: float = 9.81) -> tuple[Param, ...]:
    """What the box and the camera are like: a box drawn in to `half` and rounded by `rounding`, and
    gravity in recorded metres (a camera's scale may be off).
    """
    return (
        Param(
            "half",
            "geom/box0/size[0:3]",
            box.half[0] - 0.004,
            0.85 * box.half[0],
            1.02 * box.half[0],
            "m",
            sd=0.0015,
        ),
        Param("rounding", "pair/strike/margin", 0.0035, 0.0, 0.01, "m", sd=0.0015),
        Param(
            "gravity",
            "option/gravity[2]",
            gravity,
            0.95 * gravity,
            1.02 * gravity,
            "m/s^2",
            sign=-1,
            sd=0.01 * gravity,
        ),
    )


def box_scene(box: Box, params: Sequence[Param], *, timestep: float) -> Scene:
    """One box and a floor, with a body whose centre of mass may be moved (a box whose inertia is
    even is compiled as if it could not).
    """
    start = {p.name: p.nominal for p in box_contact_params()}
    off = Box(
        box.half,
        box.mass,
        (box.inertia[0], box.inertia[1] * 1.0001, box.inertia[2] * 1.0002),
        (1e-6, 1e-6, 1e-6),
    )
    return Scene(
        boxes_mjcf([off], start, timestep=timestep),
        "box0",
        "floor",
        None,
        tuple(params),
        name="box",
    )
