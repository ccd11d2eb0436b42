"""Trajectories of boxes on a floor in MuJoCo, each with its own boxes and contact."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.floor_scenes import box_contact_params, boxes_mjcf
from clashsim.core.params import Param, from_unit
from clashsim.fit.shards import Arrays
from clashsim.fit.teacher_scene import CONTACT_FIELDS

_BOUNDING_RADIUS = 0.2  # m, larger than that of any box


def simulate(
    boxes: Arrays, start: np.ndarray, frames: int, *, dt: float, threads: int = 0
) -> np.ndarray:
    """Simulate trajectories in MuJoCo, each with its own boxes and contact.

    Args:
        boxes: Properties of the boxes of n trajectories, by name: half, inertia, centre (n, k, 3);
            mass, rounding (n, k); contact (n, 5) on the unit scale of `box_contact_params`;
            gravity (n,).
        start: Initial states (n, 13 boxes), qpos then qvel.
        frames: Number of frames.
        dt: Time between frames, s.
        threads: Threads of MuJoCo, 0 for all cores.

    Returns:
        States (n, frames + 1, 13 boxes).
    """
    n, k = boxes["mass"].shape
    # A placeholder: every property is set for each trajectory below.
    some_box = Box((0.05, 0.05, 0.05), 0.37, (8e-4, 8.1e-4, 8.2e-4), (1e-6, 1e-6, 1e-6))
    contact = {param.name: param.nominal for param in box_contact_params()}
    xml = boxes_mjcf([some_box] * k, contact, timestep=dt / SUBSTEPS)
    model = mujoco.MjModel.from_xml_string(xml)
    geoms = [model.geom(f"box{i}").id for i in range(k)]
    model.geom_rbound[geoms] = _BOUNDING_RADIUS  # as sizes vary
    simulations = batch.Batch(model, n, nthread=threads)
    bodies = np.arange(1, k + 1)
    simulations.expand("geom_size")[:, geoms] = boxes["half"]
    simulations.expand("geom_margin")[:, geoms] = boxes["rounding"]
    simulations.expand("body_mass")[:, bodies] = boxes["mass"]
    simulations.expand("body_inertia")[:, bodies] = boxes["inertia"]
    simulations.expand("body_ipos")[:, bodies] = boxes["centre"]
    simulations.expand("opt.gravity")[:, 2] = -boxes["gravity"]
    values = contact_values(boxes["contact"])
    for name, field, column, sign in CONTACT_FIELDS:
        simulations.expand(field)[:, :, column] = sign * values[name][:, None]
    simulations.set_const()
    simulations.reset(stage=0)
    simulations.bind("qpos")[:] = start[:, : 7 * k]
    simulations.bind("qvel")[:] = start[:, 7 * k :]
    no_control = np.zeros((n, frames * SUBSTEPS, 0))
    record = simulations.rollout(
        frames * SUBSTEPS,
        no_control,
        int(mujoco.mjtState.mjSTATE_CTRL),
        record=("qpos", "qvel"),
    )
    states = np.concatenate([record["qpos"], record["qvel"]], 2)
    at_frames = states[:, SUBSTEPS - 1 :: SUBSTEPS]
    return np.concatenate([start[:, None], at_frames], 1)


def contact_values(unit: np.ndarray) -> dict[str, np.ndarray]:
    """Natural values (n,) of contact parameters (n, 5) on the unit scale, by name."""
    params: tuple[Param, ...] = box_contact_params()
    natural = from_unit(params, unit)
    return {param.name: natural[:, i] for i, param in enumerate(params)}
