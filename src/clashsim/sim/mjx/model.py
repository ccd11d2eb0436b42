"""A scene put into MJX: what MJX can hold of it, and the model's fields for given parameters."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.errors import SceneError
from clashsim.core.extras import needs
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene, model_field

# Constants that MuJoCo derives of masses, inertias and reference poses (mj_setConst), as far as
# MJX's dynamics read them.
_DERIVED = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "tendon_length0",
    "tendon_invweight0",
    "actuator_acc0",
)
# On the unit scale, of their central differences: they are smooth, so this gives about ten digits
_STEP = 1e-5
_LOSS = 1e-9  # least frictionloss: MJX takes a joint that had some and has none for a locked one
CORNERS = 20  # of a mesh's face that MJX keeps
# Pairs of kinds that MJX collides as MuJoCo does (docs/mjx.md has the figures), the first before
# the second in MuJoCo's order.
FAITHFUL = {
    *(
        (a, b)
        for a, them in {
            "plane": ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh"),
            "sphere": ("sphere", "capsule", "box", "mesh"),
            "capsule": ("capsule",),
        }.items()
        for b in them
    )
}
BLIND = {
    ("sphere", "box"),
    ("sphere", "mesh"),
}  # those of them that MJX calls 1 m apart when they do not overlap


class UnsupportedByMjx(SceneError):
    """MJX cannot do this scene; the message says why."""


@dataclass(frozen=True, eq=False)
class MjxScene:
    """A scene in MJX without its sensors; `plain` is the MuJoCo model that was put there, `names`
    the fields that theta decides.
    """

    scene: Scene
    plain: mujoco.MjModel
    model: Any
    names: tuple[str, ...]

    def fields(self, theta: np.ndarray | None, n: int) -> dict[str, np.ndarray]:
        """Arrays (n, ...) of the fields that theta (p,) or (n, p) decides, by name; the author's
        where theta is None.
        """
        out = {
            name: np.tile(
                model_field(self.scene.base, name),
                (n,) + (1,) * model_field(self.scene.base, name).ndim,
            )
            for name in self.names
        }
        if theta is not None:
            theta = np.broadcast_to(theta, (n, len(self.scene.params)))
            self.scene.write(theta, out.__getitem__)
            out |= self._constants(theta)
        if "dof_frictionloss" in out:
            rows = sorted(
                {
                    row
                    for slot in self.scene.slots
                    if slot is not None and slot.field == "dof_frictionloss"
                    for row in slot.rows
                }
            )
            out["dof_frictionloss"][:, rows] = np.maximum(out["dof_frictionloss"][:, rows], _LOSS)
        return out

    def rollout_with_jacobian(
        self, theta: np.ndarray, free: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Slopes (n, q, ...) of the same fields in the unit-scaled parameters `free` (q,), at theta
        (n, p).
        """
        n, q = len(theta), len(free)
        out = {
            name: np.zeros((n, q, *model_field(self.scene.base, name).shape)) for name in self.names
        }
        for j, i in enumerate(free):
            slot, p = self.scene.slots[i], self.scene.params[i]
            if slot is not None:
                slot.write(out[slot.field][:, j], p.sign * _unit_slope(p, theta[:, i]))
        if self.scene.needs_const:
            unit = to_unit(self.scene.params, theta)
            for j, i in enumerate(free):
                shift = _STEP * np.eye(len(self.scene.params))[i]
                above, below = (
                    self._constants(from_unit(self.scene.params, unit + s)) for s in (shift, -shift)
                )
                for name in above:
                    out[name][:, j] = (above[name] - below[name]) / (2 * _STEP)
        return out

    def at(self, fields: dict[str, Any]) -> Any:
        """The MJX model with these fields; they may be traced."""
        return self.model.tree_replace(fields)

    def _constants(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """MuJoCo's derived constants (n, ...) at theta (n, p), where a parameter moves them."""
        if not self.scene.needs_const:
            return {}
        many = batch.Batch(
            self.plain, len(theta)
        )  # one model after the other takes several times as long
        derived = {name: many.expand(name) for name in _DERIVED if name in self.names}
        self.scene.write(theta, many.expand)
        many.set_const(ids=np.arange(len(theta)))
        return {name: np.array(a) for name, a in derived.items()}


def _unit_slope(p: Param, value: np.ndarray) -> np.ndarray:
    """How fast a parameter's natural value (n,) moves with its unit-scaled one."""
    return (
        value * np.log(p.high / p.low) / 2
        if p.scale == "log"
        else np.full_like(value, (p.high - p.low) / 2)
    )


def import_mjx() -> tuple[Any, Any]:
    """jax, set to double precision, and MJX."""
    with needs("mujoco-mjx", "mjx"):
        import jax

        # MJX prints that it could not import warp, which is not needed.
        with contextlib.redirect_stdout(io.StringIO()):
            # And not `from mujoco import`, which hides that the module is missing.
            import mujoco.mjx as mjx
    jax.config.update("jax_enable_x64", True)
    return jax, mjx


@contextlib.contextmanager
def precision(single: bool) -> Iterator[None]:
    """Within, jax computes in single or in double precision, whatever it is set to; programs have
    to be compiled and called there.

    Products of matrices are in full: cards would cut single numbers to 10 bits there.
    """
    jax, _ = import_mjx()
    with jax.enable_x64(not single), jax.default_matmul_precision("highest"):
        yield


@lru_cache(maxsize=8)
def put(
    scene: Scene,
    *,
    timestep: float | None = None,
    faithful: bool = False,
    iterations: int = 100,
    searches: int = 12,
    single: bool = False,
) -> MjxScene:
    """Put a scene into MJX, with at most so many iterations of its solver and of the line search in
    each, or refuse it by name.

    faithful: also refuse what MJX collides otherwise than MuJoCo. single: numbers of 32 bits, to be
    used within `precision`. MJX goes through all searches whether they are needed or not; with 12
    states are those of MuJoCo's 50 in a quarter of the time.
    """
    jax, mjx = import_mjx()
    spec = scene.spec.copy()
    for sensor in list(spec.sensors):  # MJX lacks some of them, and none is needed
        spec.delete(sensor)
    plain = spec.compile()
    plain.opt.iterations, plain.opt.ls_iterations = (
        min(plain.opt.iterations, iterations),
        min(plain.opt.ls_iterations, searches),
    )
    plain.opt.timestep = timestep or plain.opt.timestep
    for slot, p in zip(scene.slots, scene.params, strict=True):
        if slot is not None and slot.field == "dof_frictionloss":
            slot.write(
                plain.dof_frictionloss, p.high
            )  # MJX makes room for the friction of joints that have some when they are put there
    _refuse_pairs(scene, plain, faithful=faithful)
    try:
        with warnings.catch_warnings(record=True) as told, precision(single):
            warnings.simplefilter("always")
            model = mjx.put_model(plain, impl="jax")
    except NotImplementedError as problem:
        raise UnsupportedByMjx(
            f"MJX cannot load scene {scene.name!r}: {' '.join(str(problem).split())}; use MujocoSim for it"
        ) from None
    if faithful:
        _refuse_meshes(scene, plain, [str(w.message) for w in told])
    names = {slot.field for slot in scene.slots if slot is not None}
    for p, slot in zip(scene.params, scene.slots, strict=True):
        if slot is not None and not isinstance(leaf(model, slot.field), jax.Array):
            raise UnsupportedByMjx(
                f"MJX fixes {slot.field!r} when it compiles, so parameter {p.name!r} of scene {scene.name!r} cannot vary there: use MujocoSim for it"
            )
    if scene.needs_const:
        names |= {
            name
            for name in _DERIVED
            if isinstance(getattr(model, name), jax.Array) and getattr(plain, name).size
        }
    return MjxScene(scene, plain, model, tuple(sorted(names)))


def padded(arrays: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The arrays with their first entries repeated until there are `rows`: compiling for another
    number costs more than computing.
    """
    return {
        name: np.concatenate([a, np.repeat(a[:1], rows - len(a), 0)]) for name, a in arrays.items()
    }


def check_finite(scene: Scene, *slopes: np.ndarray) -> None:
    """Refuse slopes that MJX could not tell."""
    if not all(np.isfinite(a).all() for a in slopes):
        kinds = sorted(
            _kind(scene.base, scene.base.geom(g).id) for g in (scene.struck, scene.striker)
        )
        raise UnsupportedByMjx(
            f"MJX gives slopes that are not finite for scene {scene.name!r} (its {'-'.join(kinds)} collision is not differentiable there)"
        )


def leaf(model: Any, name: str) -> Any:
    """The array of an MJX model that a slot's field names, or None."""
    for part in name.split("."):
        model = getattr(model, part, None)
    return model


def _refuse_pairs(scene: Scene, plain: mujoco.MjModel, *, faithful: bool) -> None:
    """Refuse pairs of geoms that MJX cannot collide at all or, if faithful, not as MuJoCo does."""
    from mujoco.mjx._src.collision_driver import geom_pairs, has_collision_fn

    for first, second, pair in geom_pairs(plain):
        missing = not has_collision_fn(plain.geom_type[first], plain.geom_type[second])
        kinds = _kind(plain, first), _kind(plain, second)
        if missing or (faithful and kinds not in FAITHFUL):
            a, b = (
                f"{plain.geom(g).name or int(g)!r} ({kind})"
                for g, kind in zip((first, second), kinds, strict=True)
            )
            partners = sorted(x if y == kinds[1] else y for x, y in FAITHFUL if kinds[1] in (x, y))
            advice = (
                f"beside a {kinds[1]}, a {' or a '.join(partners)} can be used"
                if partners
                else "a sphere, capsule, box or convex mesh can be used in place of one of them"
            )
            raise UnsupportedByMjx(
                f"MJX cannot collide geoms {a} and {b} of scene {scene.name!r}{'' if missing else ' as MuJoCo does'}: {advice}, or MujocoSim"
            )
        margin = (
            plain.pair_margin[pair]
            if pair >= 0
            else plain.geom_margin[first] + plain.geom_margin[second]
        )
        if faithful and kinds in BLIND and margin > 0:
            a, b = (repr(plain.geom(g).name or int(g)) for g in (first, second))
            raise UnsupportedByMjx(
                f"MJX sees no distance between geoms {a} ({kinds[0]}) and {b} ({kinds[1]}) of scene {scene.name!r} before they touch, "
                "so their margin would not count: set it to 0, or use MujocoSim"
            )


def _refuse_meshes(scene: Scene, plain: mujoco.MjModel, told: list[str]) -> None:
    """Refuse meshes of which MJX drops corners; it only warns."""
    for mesh in range(plain.nmesh):
        name = plain.mesh(mesh).name
        if any(f'"{name}"' in text and "coplanar face" in text for text in told):
            geoms = ", ".join(
                repr(plain.geom(g).name or g)
                for g in range(plain.ngeom)
                if _kind(plain, g) == "mesh" and int(plain.geom_dataid[g]) == mesh
            )
            raise UnsupportedByMjx(
                f"mesh {name!r} of geom {geoms} in scene {scene.name!r} has a flat face with more than {CORNERS} corners, of which MJX drops some: "
                f"use a convex mesh with at most {CORNERS} corners a face, a box, a sphere or a capsule, or MujocoSim"
            )


def _kind(model: mujoco.MjModel, geom: int) -> str:
    return mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()
