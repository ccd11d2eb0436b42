"""Scenes of convex bodies in MuJoCo, the teacher of the graph network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import batch
from scipy.spatial.transform import Rotation

from clashsim.core.box import SUBSTEPS
from clashsim.core.convex_mesh import ConvexBody, ConvexMesh

# Contact parameters: name, field of MjModel, column of the field, sign of the value in the field.
CONTACT_FIELDS = (
    ("friction", "geom_friction", 0, 1),
    ("stiffness", "geom_solref", 0, -1),
    ("damping", "geom_solref", 1, -1),
    ("d0", "geom_solimp", 0, 1),
    ("width", "geom_solimp", 2, 1),
)
_DEFAULTS = (
    'friction="0.3 0.005 0.0001" solref="-100000 -500" solimp="0.9 0.95 0.001 0.5 2" condim="3"'
)
_FAR = 1e3  # m: where bodies are before their poses are set


@dataclass(frozen=True, eq=False)
class SceneValues:
    """What varies over n trajectories of the same k bodies.

    Attributes:
        mass: (n, k), kg.
        inertia: (n, k, 3), kg m^2, principal moments.
        centre: (n, k, 3), m, axes of the bodies' origins.
        rounding: (n, k), m.
        contact: (n, 5), SI units, in the order of `CONTACT_FIELDS`.
        gravity: (n, 3), m/s^2.
        planes: (n, W, 4), unit normals and heights (m) along them.
        fixed: (n, 3), m, where the fixed box is.
    """

    mass: np.ndarray
    inertia: np.ndarray
    centre: np.ndarray
    rounding: np.ndarray
    contact: np.ndarray
    gravity: np.ndarray
    planes: np.ndarray
    fixed: np.ndarray


def simulate_scene(
    bodies: Sequence[ConvexBody],
    values: SceneValues,
    start: np.ndarray,
    *,
    fixed_half: np.ndarray | None,
    frames: int,
    dt: float,
    threads: int = 0,
) -> np.ndarray:
    """Simulate trajectories of the same bodies in MuJoCo.

    Args:
        bodies: The k bodies.
        values: What varies over the n trajectories.
        start: (n, 13 k), initial states, qpos then qvel.
        fixed_half: (3,), m, half sizes of a fixed box; None for none.
        frames: Number of frames.
        dt: s, time between frames.
        threads: Threads of MuJoCo, 0 for all cores.

    Returns:
        States (n, frames + 1, 13 k).
    """
    n, k = values.mass.shape
    num_planes = values.planes.shape[1]
    xml = scene_mjcf(bodies, num_planes, fixed_half, timestep=dt / SUBSTEPS)
    model = mujoco.MjModel.from_xml_string(xml)
    simulations = batch.Batch(model, n, nthread=threads)
    geom_body = model.geom_bodyid
    on_body = geom_body > 0
    simulations.expand("geom_margin")[:, on_body] = values.rounding[:, geom_body[on_body] - 1]
    rows = np.arange(1, k + 1)
    simulations.expand("body_mass")[:, rows] = values.mass
    simulations.expand("body_inertia")[:, rows] = values.inertia
    simulations.expand("body_ipos")[:, rows] = values.centre
    simulations.expand("opt.gravity")[:] = values.gravity
    normals, heights = values.planes[..., :3], values.planes[..., 3]
    geom_position = simulations.expand("geom_pos")
    geom_position[:, :num_planes] = normals * heights[..., None]
    simulations.expand("geom_quat")[:, :num_planes] = plane_quaternions(normals)
    if fixed_half is not None:
        geom_position[:, num_planes] = values.fixed
    for i, (_, field, column, sign) in enumerate(CONTACT_FIELDS):
        simulations.expand(field)[:, :, column] = sign * values.contact[:, i, None]
    simulations.set_const()
    simulations.reset(stage=0)
    simulations.bind("qpos")[:] = start[:, : 7 * k]
    simulations.bind("qvel")[:] = start[:, 7 * k :]
    record = simulations.rollout(
        frames * SUBSTEPS,
        np.zeros((n, frames * SUBSTEPS, 0)),
        int(mujoco.mjtState.mjSTATE_CTRL),
        record=("qpos", "qvel"),
    )
    states = np.concatenate([record["qpos"], record["qvel"]], 2)
    return np.concatenate([start[:, None], states[:, SUBSTEPS - 1 :: SUBSTEPS]], 1)


def scene_mjcf(
    bodies: Sequence[ConvexBody],
    planes: int,
    fixed_half: np.ndarray | None,
    *,
    timestep: float,
) -> str:
    """MJCF of free bodies, planes and possibly a fixed box.

    Args:
        bodies: The bodies; boxes along their axes become box geoms, other meshes mesh geoms.
        planes: Number of planes, the first geoms.
        fixed_half: (3,), m, half sizes of the fixed box, the next geom; None for none.
        timestep: s.
    """
    assets = []
    texts = []
    for i, body in enumerate(bodies):
        geoms = []
        for j, part in enumerate(body.parts):
            name = f"body{i}_{j}"
            box = _as_box(part)
            if box is None:
                assets.append(f'<mesh name="{name}" vertex="{_joined(part.corners.ravel())}"/>')
                geoms.append(f'<geom name="{name}" type="mesh" mesh="{name}"/>')
            else:
                middle, half = box
                geoms.append(
                    f'<geom name="{name}" type="box" pos="{_joined(middle)}" '
                    f'size="{_joined(half)}"/>'
                )
        quaternion = Rotation.from_matrix(body.axes).as_quat(scalar_first=True)
        texts.append(
            f'<body pos="0 0 {_FAR * (i + 1)}" simple="false"><freejoint/>'
            f'<inertial pos="{_joined(body.centre)}" quat="{_joined(quaternion)}" '
            f'mass="{body.mass:.9g}" diaginertia="{_joined(body.inertia)}"/>{"".join(geoms)}</body>'
        )
    surfaces = "".join(
        f'<geom name="plane{i}" type="plane" size="1 1 0.1"/>' for i in range(planes)
    )
    if fixed_half is not None:
        surfaces += f'<geom name="fixed" type="box" size="{_joined(fixed_half)}"/>'
    return (
        f'<mujoco><compiler balanceinertia="true"/><option timestep="{timestep:.12g}" '
        f'integrator="Euler" cone="elliptic"/><default><geom {_DEFAULTS}/></default>'
        f"<asset>{''.join(assets)}</asset>"
        f"<worldbody>{surfaces}{''.join(texts)}</worldbody></mujoco>\n"
    )


def plane_quaternions(normals: np.ndarray) -> np.ndarray:
    """Quaternions wxyz (..., 4) that rotate the z axis to unit normals (..., 3)."""
    x, y, z = np.moveaxis(normals, -1, 0)
    # Half-way rotation: (1 + z . n, z x n), or about x where the normal is -z.
    quaternions = np.stack([1 + z, -y, x, np.zeros_like(z)], -1)
    quaternions[z < -1 + 1e-9] = [0.0, 1.0, 0.0, 0.0]
    return quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True)


def _as_box(mesh: ConvexMesh) -> tuple[np.ndarray, np.ndarray] | None:
    """Middle and half sizes of a mesh that is a box along the axes; None for other meshes."""
    low, high = mesh.corners.min(0), mesh.corners.max(0)
    tolerance = 1e-9 * np.abs(high - low).max()
    at_ends = np.isclose(mesh.corners, low, rtol=0, atol=tolerance) | np.isclose(
        mesh.corners, high, rtol=0, atol=tolerance
    )
    if len(mesh.corners) != 8 or not at_ends.all():
        return None
    return (low + high) / 2, (high - low) / 2


def _joined(values: Sequence[float] | np.ndarray) -> str:
    """Numbers as the text of an MJCF attribute."""
    return " ".join(f"{value:.9g}" for value in values)
