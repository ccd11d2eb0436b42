"""Tosses of a cube in the three pipelines of Brax, identified as MuJoCo is.

Brax's authors do not maintain these pipelines any more. They are here because the published
comparison of the few-shot graph simulator is with Brax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import mujoco
import numpy as np

from clashsim.core.box import SUBSTEPS
from clashsim.core.extras import needs
from clashsim.core.params import Param
from clashsim.fit.toss_rollouts import TossRollouts

PIPELINES = ("spring", "positional", "generalized")
_BATCH = 256  # rollouts per call, so that one program is compiled for each length
_POSE_SIZE = 7  # position and quaternion
_FRICTION = Param("friction", "brax/friction", 0.2, 0.03, 1.0, "", "log")
_ELASTICITY = Param("elasticity", "brax/elasticity", 0.1, 0.0, 0.9)
# Parameters of the contact that a pipeline uses.
_CONTACT = {
    "spring": (
        _FRICTION,
        _ELASTICITY,
        Param("baumgarte_erp", "brax/baumgarte_erp", 0.1, 0.01, 0.5, "", "log"),
    ),
    "positional": (
        _FRICTION,
        _ELASTICITY,
        Param("collide_scale", "brax/collide_scale", 0.6, 0.1, 1.0),
    ),
    "generalized": (
        _FRICTION,
        Param("time_constant", "brax/solref[0]", 0.005, 0.0017, 0.1, "s", "log"),
        Param("damping_ratio", "brax/solref[1]", 0.5, 0.05, 5.0, "", "log"),
        Param("d0", "brax/solimp[0]", 0.9, 0.5, 0.97),
        Param("width", "brax/solimp[2]", 0.002, 0.0005, 0.008, "m", "log"),
    ),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class BraxRollouts(TossRollouts):
    """Brax rollouts of tosses with many thetas at once.

    Parameters are those of the pipeline's contact, then those of the scene: mass centre and
    moments of inertia.

    Attributes:
        pipeline: One of `PIPELINES`.
    """

    pipeline: str

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters that theta holds."""
        return (*_CONTACT[self.pipeline], *self.scene.params)

    def states(self, theta: np.ndarray) -> np.ndarray:
        """Poses (m, n, T, 7) at the recorded frames for thetas (m, p)."""
        m, n = len(theta), len(self.tosses.flights)
        starts = self.starts(theta).reshape(m * n, -1)
        thetas = np.repeat(theta, n, 0)
        padding = np.zeros(-len(starts) % _BATCH, int)  # row 0 again, to fill up the last call
        rows = np.r_[np.arange(len(starts)), padding]
        poses = [
            np.asarray(self._simulate(thetas[batch], starts[batch]))
            for batch in rows.reshape(-1, _BATCH)
        ]
        shape = (m, n, self.tosses.length, _POSE_SIZE)
        return np.concatenate(poses)[: m * n].astype(float).reshape(shape)

    @cached_property
    def _simulate(self) -> Callable[[np.ndarray, np.ndarray], Any]:
        """Poses (b, T, 7) for thetas (b, p) and initial states (b, 13), compiled."""
        with needs("brax", "brax"):
            import jax
            from brax.io import mjcf

            pipeline = import_module(f"brax.{self.pipeline}.pipeline")
        # Brax refuses elliptic cones; its contacts have its own ones.
        spec = mujoco.MjSpec.from_string(self.scene.xml)
        spec.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
        nominal = mjcf.load_model(spec.compile())
        names = [param.name for param in self.params]
        no_control = jax.numpy.zeros(0)

        def simulate(theta: Any, start: Any) -> Any:
            system = _system(nominal, dict(zip(names, theta, strict=True)))
            first = start[:_POSE_SIZE]
            state = pipeline.init(system, first, start[_POSE_SIZE:])

            def substep(_: int, state: Any) -> Any:
                return pipeline.step(system, state, no_control)

            def frame(state: Any, _: None) -> tuple[Any, Any]:
                state = jax.lax.fori_loop(0, SUBSTEPS, substep, state)
                return state, jax.numpy.concatenate([state.x.pos[0], state.x.rot[0]])

            _, poses = jax.lax.scan(frame, state, None, length=self.tosses.length - 1)
            return jax.numpy.concatenate([first[None], poses])

        compiled: Callable[[np.ndarray, np.ndarray], Any] = jax.jit(jax.vmap(simulate))
        return compiled


def _system(nominal: Any, values: Mapping[str, Any]) -> Any:
    """Brax's system of the cube with parameters by name."""
    import jax.numpy as jnp

    changed: dict[str, Any] = {}
    if "centre_x" in values:
        centre = jnp.stack([values[f"centre_{axis}"] for axis in "xyz"])
        moments = jnp.stack([values[f"inertia_{axis}"] for axis in "xyz"])
        changed["link.inertia.transform.pos"] = centre[None]
        changed["link.inertia.transform.rot"] = jnp.array([[1.0, 0.0, 0.0, 0.0]])
        changed["link.inertia.i"] = jnp.diag(moments)[None]
    system = nominal.tree_replace(changed)
    friction = system.geom_friction.at[:, 0].set(values["friction"])
    system = system.replace(geom_friction=friction)
    if "elasticity" in values:
        system = system.replace(elasticity=jnp.full(system.ngeom, values["elasticity"]))
    for name in ("baumgarte_erp", "collide_scale"):
        if name in values:
            system = system.replace(**{name: values[name]})
    if "time_constant" in values:
        solref = jnp.stack([values["time_constant"], values["damping_ratio"]])
        solimp = system.geom_solimp.at[:, 0].set(values["d0"]).at[:, 2].set(values["width"])
        system = system.replace(geom_solref=jnp.tile(solref, (system.ngeom, 1)), geom_solimp=solimp)
    return system
