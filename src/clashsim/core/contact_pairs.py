"""The contact pairs of a scene: named `<pair>` elements for the strike and for the ground.

Contact parameters are identified on a named pair, so a scene in which only geoms define the contact
gets a pair with the same contact.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.params import Param

# Names given to the two contact pairs where the author's file has none.
STRIKE = "strike"
GROUND = "ground"

# Ranges of the default parameters.
_DAMPING_RATIO_RANGE = (0.1, 3.0)
_DAMPING_RANGE = (0.005, 2)  # of critical damping; spans restitution 0 to 1
_MIN_STRIKE_FRICTION = 0.05
_MIN_GROUND_FRICTION = 0.02
_MAX_FRICTION = 1.0
_MIN_SOLMIX = 1e-15  # as in MuJoCo: below this sum of solmix, both geoms weigh the same


def ensure_named_pair(
    spec: mujoco.MjSpec, scene: str, a: mujoco.MjsGeom, b: mujoco.MjsGeom, name: str
) -> None:
    """Name the author's `<pair>` of two geoms, or add one that keeps the contact of the geoms.

    Args:
        spec: The scene's specification, changed in place.
        scene: The scene's name, for messages.
        a: One geom.
        b: The other geom.
        name: Name of the pair.

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
    attributes = _mixed_attributes(spec, a.name, b.name)
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


def _mixed_attributes(spec: mujoco.MjSpec, first: str, second: str) -> dict[str, Any]:
    """Combine the contact attributes of two geoms as MuJoCo does for contacts without a `<pair>`.

    The geom of higher priority decides alone. At equal priority, friction is the maximum of both,
    and solver parameters are averaged with the geoms' solmix as weights.
    """
    model = spec.copy().compile()
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
        return Param(f"{label}damping_ratio", target, nominal, low, high)
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
