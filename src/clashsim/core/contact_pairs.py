"""The contact pairs of a scene: named `<pair>` elements for the strike and for the ground.

Contact parameters are identified on a named pair, so a scene in which only geoms define the contact
gets a pair with the same contact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.params import Param

# Names given to the two contact pairs where the author's file has none.
STRIKE = "strike"
GROUND = "ground"

IMMOVABLE_MASS = 1e4  # kg, of a body that follows a recorded motion whatever it hits
# Ranges of the default parameters.
_DAMPING_RATIO_RANGE = (0.1, 3.0)
_DAMPING_RANGE = (0.005, 2)  # of critical damping; spans restitution 0 to 1
_MIN_STRIKE_FRICTION = 0.05
_MIN_GROUND_FRICTION = 0.02
_MAX_FRICTION = 1.0
_MAX_PARTS = 128  # pairs of geoms of two bodies
_MIN_SOLMIX = 1e-15  # as in MuJoCo: below this sum of solmix, both geoms weigh the same


def name_geoms(spec: mujoco.MjSpec) -> None:
    """Name the geoms that have no name after their bodies: "hammer/0" is the first of "hammer"."""
    taken = {geom.name for geom in spec.geoms}
    for number, body in enumerate(spec.bodies):
        for i, geom in enumerate(body.geoms):
            if not geom.name:
                name = f"{body.name or f'body{number}'}/{i}"
                while name in taken:
                    name += "'"
                geom.name = name
                taken.add(name)


def is_generated_name(geom: str, body: str) -> bool:
    """Whether a geom has a name of `name_geoms`, and not one that the author wrote.

    Args:
        geom: Name of the geom.
        body: Name of its body, empty without one.
    """
    stem, _, number = geom.rstrip("'").rpartition("/")
    return number.isdigit() and (stem == body or (not body and stem.startswith("body")))


def free_from_mocap(spec: mujoco.MjSpec, geoms: Iterable[str]) -> None:
    """Give mocap bodies that carry given geoms a free joint and a mass that no impact moves.

    MuJoCo moves a mocap body without a velocity, so that it cannot strike.

    Args:
        spec: The scene's specification, changed in place.
        geoms: Names of geoms.
    """
    wanted = set(geoms)
    for geom in spec.geoms:
        if geom.name not in wanted:
            continue
        body = geom.parent
        while body.name != "world" and not body.mocap:
            body = body.parent
        if not body.mocap:
            continue
        body.mocap = False
        body.add_freejoint()
        body.gravcomp = 1.0
        body.explicitinertial = True
        body.mass = IMMOVABLE_MASS
        body.ipos = np.zeros(3)
        body.inertia = np.full(3, IMMOVABLE_MASS)


def name_pairs(spec: mujoco.MjSpec, scene: str, a: str, b: str, name: str) -> list[tuple[str, str]]:
    """Name the `<pair>` elements of two bodies, and add those that are missing.

    The pair of the given geoms gets the contact's name; pairs of further geoms of the two bodies
    get that name and a number.

    Args:
        spec: The scene's specification, changed in place.
        scene: The scene's name, for messages.
        a: Name of a geom of one body.
        b: Name of a geom of the other body.
        name: Name of the contact.

    Returns:
        Names of the geoms of each pair, the given ones first.

    Raises:
        SceneError: A pair has another name already, or the geoms cannot collide.
    """
    geoms = {geom.name: geom for geom in spec.geoms}
    model = spec.copy().compile()
    parts = colliding_geoms(spec, model, scene, a, b)
    for i, (first, second) in enumerate(parts):
        part = f"{name}/{i}" if i else name
        ensure_named_pair(spec, scene, geoms[first], geoms[second], part, model=model)
    return parts


def colliding_geoms(
    spec: mujoco.MjSpec, model: mujoco.MjModel, scene: str, a: str, b: str
) -> list[tuple[str, str]]:
    """Find the geoms of two bodies that may collide.

    Args:
        spec: The scene's specification.
        model: The same, compiled.
        scene: The scene's name, for messages.
        a: Name of a geom of one body.
        b: Name of a geom of the other body.

    Returns:
        Names of the geoms of each pair, the given ones first (even where they cannot collide).

    Raises:
        SceneError: There are too many.
    """
    geoms = {geom.name: geom for geom in spec.geoms}
    more = [
        (first, second)
        for first in geoms_moving_with(model, a)
        for second in geoms_moving_with(model, b)
        if (first, second) != (a, b) and geoms_collide(spec, geoms[first], geoms[second])
    ]
    if len(more) >= _MAX_PARTS:
        raise SceneError(
            f"scene {scene!r}: the bodies of {a!r} and {b!r} have {len(more) + 1} pairs of geoms "
            f"that can collide, and at most {_MAX_PARTS} are supported: "
            "describe them by fewer geoms"
        )
    return [(a, b), *more]


def geoms_moving_with(model: mujoco.MjModel, geom: str) -> list[str]:
    """Names of the geoms that move together with a geom, itself among them.

    Of what is fixed to the world, only geoms of the same body; the world's own are separate things.
    """
    body = int(model.geom(geom).bodyid[0])
    if body == 0:
        return [geom]
    root = int(model.body_weldid[body])
    names = []
    for i in range(model.ngeom):
        other = int(model.geom_bodyid[i])
        if other == body or (root != 0 and int(model.body_weldid[other]) == root):
            names.append(model.geom(i).name)
    return names


def geoms_collide(spec: mujoco.MjSpec, a: mujoco.MjsGeom, b: mujoco.MjsGeom) -> bool:
    """Decide whether two geoms of different bodies collide in the author's scene.

    Args:
        spec: The scene's specification.
        a: One geom.
        b: The other geom.
    """
    if any({pair.geomname1, pair.geomname2} == {a.name, b.name} for pair in spec.pairs):
        return True
    bodies = {a.parent.name, b.parent.name}
    if any({exclude.bodyname1, exclude.bodyname2} == bodies for exclude in spec.excludes):
        return False
    return bool(a.contype & b.conaffinity or b.contype & a.conaffinity)


def ensure_named_pair(
    spec: mujoco.MjSpec,
    scene: str,
    a: mujoco.MjsGeom,
    b: mujoco.MjsGeom,
    name: str,
    *,
    model: mujoco.MjModel | None = None,
) -> None:
    """Name the author's `<pair>` of two geoms, or add one that keeps the contact of the geoms.

    Args:
        spec: The scene's specification, changed in place.
        scene: The scene's name, for messages.
        a: One geom.
        b: The other geom.
        name: Name of the pair.
        model: The specification compiled, where the caller has it.

    Raises:
        SceneError: The pair has another name already, or the geoms cannot collide.
    """
    for pair in spec.pairs:
        if {pair.geomname1, pair.geomname2} != {a.name, b.name}:
            continue
        if pair.name and pair.name != name:
            raise SceneError(
                f"scene {scene!r}: the pair of {a.name!r} and {b.name!r} is named {pair.name!r}; "
                f"name it {name!r} or leave it unnamed"
            )
        pair.name = name
        return
    _refuse_excluded(spec, scene, a, b)
    attributes = mixed_attributes(model or spec.copy().compile(), a.name, b.name)
    spec.add_pair(name=name, geomname1=a.name, geomname2=b.name, **attributes)


def _refuse_excluded(spec: mujoco.MjSpec, scene: str, a: mujoco.MjsGeom, b: mujoco.MjsGeom) -> None:
    """Raise a `SceneError` if the author's scene excludes contact between two geoms."""
    bodies = {a.parent.name, b.parent.name}
    for exclude in spec.excludes:
        if {exclude.bodyname1, exclude.bodyname2} == bodies:
            raise SceneError(
                f"scene {scene!r} excludes contact between {a.name!r} and {b.name!r} (<exclude>): "
                "remove that to learn their collision"
            )
    if a.parent == b.parent:
        raise SceneError(
            f"scene {scene!r}: geoms {a.name!r} and {b.name!r} belong to one body "
            "and cannot collide"
        )
    if not (a.contype & b.conaffinity or b.contype & a.conaffinity):
        raise SceneError(
            f"scene {scene!r} excludes contact between {a.name!r} and {b.name!r} "
            "(contype and conaffinity do not match): change that to learn their collision"
        )


def mixed_attributes(model: mujoco.MjModel, first: str, second: str) -> dict[str, Any]:
    """Combine the contact attributes of two geoms as MuJoCo does for contacts without a `<pair>`.

    The geom of higher priority decides alone. At equal priority, friction is the maximum of both,
    and solver parameters are averaged with the geoms' solmix as weights.

    Args:
        model: The compiled scene.
        first: Name of a geom.
        second: Name of the other geom.

    Returns:
        Attributes of a `<pair>` by name.
    """
    a = model.geom(first)
    b = model.geom(second)
    if a.priority[0] > b.priority[0]:
        b = a
    elif b.priority[0] > a.priority[0]:
        a = b
    total = float(a.solmix[0] + b.solmix[0])
    share = float(a.solmix[0]) / total if total > _MIN_SOLMIX else 0.5
    both_standard = a.solref[0] > 0 and b.solref[0] > 0
    if both_standard:
        solref = share * a.solref + (1 - share) * b.solref
    else:
        solref = np.minimum(a.solref, b.solref)
    sliding, torsional, rolling = np.maximum(a.friction, b.friction)
    return {
        "condim": int(max(a.condim[0], b.condim[0])),
        "friction": [sliding, sliding, torsional, rolling, rolling],
        "solref": solref,
        "solimp": share * a.solimp + (1 - share) * b.solimp,
        "margin": float(max(a.margin[0], b.margin[0])),
        "gap": float(max(a.gap[0], b.gap[0])),
    }


def default_pair_params(model: mujoco.MjModel) -> tuple[Param, ...]:
    """Name friction and damping of the contact pairs of a model as parameters.

    Args:
        model: A model with a pair `strike`, and perhaps a pair `ground`.

    Returns:
        Two parameters for each pair, with the author's values as nominal ones.
    """
    found: list[Param] = []
    for pair, label in ((STRIKE, ""), (GROUND, "ground_")):
        row = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_PAIR, pair)
        if row < 0:
            continue
        friction = float(model.pair_friction[row, 0])
        lowest = _MIN_STRIKE_FRICTION if pair == STRIKE else _MIN_GROUND_FRICTION
        found.append(
            Param(
                name=f"{label}friction",
                target=f"pair/{pair}/friction[0:2]",
                nominal=float(np.clip(friction, lowest, _MAX_FRICTION)),
                low=lowest,
                high=_MAX_FRICTION,
            )
        )
        found.append(_damping_param(model.pair_solref[row], f"pair/{pair}/solref[1]", label))
    return tuple(found)


def _damping_param(solref: np.ndarray, target: str, label: str) -> Param:
    """The damping ratio of a pair, or its damping where solref (2,) has the direct form."""
    if solref[0] >= 0:
        low, high = _DAMPING_RATIO_RANGE
        nominal = float(np.clip(solref[1], low, high))
        return Param(f"{label}damping_ratio", target, nominal, low, high, scale="log")
    # The direct form of solref holds -stiffness and -damping.
    critical = 2 * float(np.sqrt(-solref[0]))
    low = _DAMPING_RANGE[0] * critical
    high = _DAMPING_RANGE[1] * critical
    return Param(
        name=f"{label}damping",
        target=target,
        nominal=float(np.clip(-solref[1], low, high)),
        low=low,
        high=high,
        unit="1/s",
        scale="log",
        sign=-1,
    )
