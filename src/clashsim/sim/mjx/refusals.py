"""Refusals of scenes that MJX cannot simulate, or whose collisions differ from MuJoCo's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.scene import Scene
from clashsim.core.scene_model import SceneModel

MAX_FACE_CORNERS = 20  # most corners that MJX keeps of a mesh's face
_MAX_REASON = 160  # characters of MJX's error that a message quotes
# Kinds of geoms whose collisions are the same in MJX and MuJoCo (docs/mjx.md has the figures): for
# each kind its partners, as far as they do not come before it in MuJoCo's order of kinds.
_FAITHFUL_PARTNERS = {
    "plane": ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh"),
    "sphere": ("sphere", "capsule", "box", "mesh"),
    "capsule": ("capsule",),
}
FAITHFUL = {(kind, other) for kind, others in _FAITHFUL_PARTNERS.items() for other in others}
# Pairs among these that MJX reports to be 1 m apart whenever they do not overlap.
WITHOUT_DISTANCE = {("sphere", "box"), ("sphere", "mesh")}


class UnsupportedByMjx(SceneError):
    """MJX cannot do this scene; the message explains why."""


def one_line(error: Exception, length: int | None = None) -> str:
    """The message of an error on one line, cut to `length` characters where given."""
    return " ".join(str(error).split())[:length]


def refusing_scene(scene: SceneModel, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled program, with jax's errors raised as `UnsupportedByMjx` for the scene."""

    def run(*arrays: Any) -> Any:
        try:
            return compiled(*arrays)
        except (NotImplementedError, TypeError) as problem:
            raise UnsupportedByMjx(
                f"MJX cannot run scene {scene.name!r}: {one_line(problem, _MAX_REASON)}"
            ) from None

    return run


def refuse_non_finite_gradients(scene: SceneModel, *gradients: np.ndarray) -> None:
    """Refuse gradients that MJX could not compute."""
    if all(np.isfinite(values).all() for values in gradients):
        return
    which = "the motion"
    if isinstance(scene, Scene):
        geoms = (scene.struck, scene.striker)
        kinds = sorted(geom_kind(scene.base, scene.base.geom(name).id) for name in geoms)
        which = f"its {'-'.join(kinds)} collision"
    raise UnsupportedByMjx(
        f"MJX gives gradients that are not finite for scene {scene.name!r} "
        f"({which} is not differentiable there)"
    )


def refuse_pairs(scene: SceneModel, model: mujoco.MjModel, *, faithful: bool) -> None:
    """Refuse geoms that MJX cannot collide or, if faithful, collides differently from MuJoCo."""
    from mujoco.mjx._src.collision_driver import geom_pairs, has_collision_fn

    for first, second, pair in geom_pairs(model):
        kinds = geom_kind(model, first), geom_kind(model, second)
        if not has_collision_fn(model.geom_type[first], model.geom_type[second]):
            _refuse_pair(scene, model, (first, second), how="")
        if not faithful:
            continue
        if kinds not in FAITHFUL:
            _refuse_pair(scene, model, (first, second), how=" as MuJoCo does")
        if pair >= 0:
            margin = model.pair_margin[pair]
        else:
            margin = model.geom_margin[first] + model.geom_margin[second]
        if kinds in WITHOUT_DISTANCE and margin > 0:
            raise UnsupportedByMjx(
                f"MJX sees no distance between geoms {_geom_text(model, first)} and "
                f"{_geom_text(model, second)} of scene {scene.name!r} before they touch, "
                "so their margin would have no effect: set it to 0, or use MujocoSim"
            )


def refuse_meshes(scene: SceneModel, model: mujoco.MjModel, warnings: list[str]) -> None:
    """Refuse meshes of which MJX drops corners, which it only reports by these `warnings`."""
    for mesh in range(model.nmesh):
        name = model.mesh(mesh).name
        dropped = any(f'"{name}"' in text and "coplanar face" in text for text in warnings)
        if not dropped:
            continue
        geoms = []
        for geom in range(model.ngeom):
            if geom_kind(model, geom) == "mesh" and int(model.geom_dataid[geom]) == mesh:
                geoms.append(repr(model.geom(geom).name or geom))
        raise UnsupportedByMjx(
            f"mesh {name!r} of geom {', '.join(geoms)} in scene {scene.name!r} has a flat face "
            f"with more than {MAX_FACE_CORNERS} corners, of which MJX drops some: use a convex "
            f"mesh with at most {MAX_FACE_CORNERS} corners per face, a box, a sphere or a "
            "capsule, or MujocoSim"
        )


def geom_kind(model: mujoco.MjModel, geom: int) -> str:
    """The type of a geom, as MJCF names it."""
    return mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def _refuse_pair(
    scene: SceneModel, model: mujoco.MjModel, geoms: tuple[int, int], *, how: str
) -> None:
    """Refuse a pair of geoms, and name kinds of geoms that could be used instead."""
    first, second = geoms
    kind = geom_kind(model, second)
    partners = sorted(a if b == kind else b for a, b in FAITHFUL if kind in (a, b))
    if partners:
        advice = f"beside a {kind}, a {' or a '.join(partners)} can be used"
    else:
        advice = "a sphere, capsule, box or convex mesh can be used in place of one of them"
    raise UnsupportedByMjx(
        f"MJX cannot collide geoms {_geom_text(model, first)} and {_geom_text(model, second)} of "
        f"scene {scene.name!r}{how}: {advice}, or MujocoSim"
    )


def _geom_text(model: mujoco.MjModel, geom: int) -> str:
    """A geom in a message: its name, or number, and kind."""
    return f"{model.geom(geom).name or int(geom)!r} ({geom_kind(model, geom)})"
