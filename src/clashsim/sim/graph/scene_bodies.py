"""The graph simulator of a MuJoCo model: triangles of its geoms, planes, and contact parameters."""

from __future__ import annotations

import itertools
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.box import SUBSTEPS
from clashsim.core.convex_mesh import ConvexBody, ConvexMesh
from clashsim.core.errors import SceneError
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.network_file import read_net, shipped_net
from clashsim.nets.trained_domain import CONTACT_NAMES
from clashsim.sim.graph.simulator import GraphSim
from clashsim.sim.graph.surroundings import Surroundings, unit_of_length

_CYLINDER_SIDES = 12
END_IMPEDANCE = 0.95  # at the end of its width (`solimp[1]`), of all scenes in training
_CONTACT_TOLERANCE = 1e-3  # relative, up to which the contacts of a scene count as the same
_OUTSIDE = 1e-6  # on the unit scale
_TYPES = {int(value): name[7:].lower() for name, value in mujoco.mjtGeom.__members__.items()}


def scene_simulator(
    model: mujoco.MjModel,
    *,
    net: GraphNet | Path | None = None,
    nearest_contact: bool = False,
) -> GraphSim:
    """The graph simulator of a model: free bodies of convex geoms on planes and fixed boxes.

    A step of the network is as long as eight time steps of the model, as in training.

    Args:
        model: The model. Moving bodies have a free joint each; cylinders become prisms.
        net: A network or its file; by default the one that comes with clashsim.
        nearest_contact: Replace contact parameters outside of the trained ranges by the nearest
            ones, instead of refusing them.

    Raises:
        SceneError: The model has something that the network does not cover.
    """
    if net is None:
        net = shipped_net()
    elif isinstance(net, Path):
        net = read_net(net)
    bodies = free_bodies(model)
    dt = SUBSTEPS * float(model.opt.timestep)
    length = unit_of_length(net.domain, bodies)
    values, rounding = contact_values(model)
    unit = net.domain.contact_to_unit(values, dt=dt, length=length)
    if nearest_contact:
        unit = np.clip(unit, -1, 1)
    for name, value, on_unit in zip(CONTACT_NAMES, values, unit, strict=True):
        if abs(on_unit) > 1 + _OUTSIDE:
            bounds = net.domain.contact_from_unit(
                np.array([[-1.0] * len(unit), [1.0] * len(unit)]), dt=dt, length=length
            )
            low, high = bounds[:, CONTACT_NAMES.index(name)]
            raise _refusal(
                f"the contact's {name} is {value:.4g}, and for this size and step it was trained "
                f"for {low:.3g} to {high:.3g}"
            )
    return GraphSim(
        bodies,
        unit,
        net=net,
        dt=dt,
        rounding=rounding,
        surroundings=model_surroundings(model),
    )


def free_bodies(model: mujoco.MjModel) -> list[ConvexBody]:
    """The moving bodies of a model; raises a `SceneError` where one is not free."""
    bodies = []
    for i in range(1, model.nbody):
        if model.body_weldid[i] == 0:
            continue
        name = model.body(i).name or f"body {i}"
        joints = [int(model.jnt_type[j]) for j in np.flatnonzero(model.jnt_bodyid == i)]
        if joints != [int(mujoco.mjtJoint.mjJNT_FREE)]:
            raise _refusal(f"body {name!r} moves by other joints than one free joint")
        geoms = [g for g in np.flatnonzero(model.geom_bodyid == i) if _collides(model, int(g))]
        parts = tuple(geom_mesh(model, int(g)) for g in geoms)
        if not parts:
            raise _refusal(f"body {name!r} has no geom that collides")
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.body_iquat[i])
        bodies.append(
            ConvexBody(
                parts,
                float(model.body_mass[i]),
                np.array(model.body_inertia[i]),
                np.array(model.body_ipos[i]),
                matrix.reshape(3, 3),
                name,
            )
        )
    if not bodies:
        raise _refusal("it has no free body")
    return bodies


def geom_mesh(model: mujoco.MjModel, geom: int) -> ConvexMesh:
    """Triangles of a geom, in the axes of its body; raises a `SceneError` for shapes that roll."""
    kind = _TYPES[int(model.geom_type[geom])]
    size = model.geom_size[geom]
    if kind == "box":
        mesh = ConvexMesh.box(size)
    elif kind == "cylinder":
        mesh = ConvexMesh.prism(float(size[0]), float(size[1]), _CYLINDER_SIDES)
    elif kind == "mesh":
        asset = int(model.geom_dataid[geom])
        first = int(model.mesh_vertadr[asset])
        vertices = model.mesh_vert[first : first + int(model.mesh_vertnum[asset])]
        mesh = ConvexMesh.hull(np.array(vertices, float))
    else:
        raise _refusal(
            f"geom {_geom_name(model, geom)!r} is a {kind}; it takes box, mesh and cylinder"
        )
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
    return mesh.moved(matrix.reshape(3, 3), model.geom_pos[geom])


def model_surroundings(model: mujoco.MjModel) -> Surroundings:
    """Gravity, and the planes and fixed boxes that bodies may touch."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    planes = []
    fixed = []
    for geom in range(model.ngeom):
        moves = model.body_weldid[model.geom_bodyid[geom]] != 0
        if moves or not _collides(model, geom):
            continue
        rotation = data.geom_xmat[geom].reshape(3, 3)
        kind = _TYPES[int(model.geom_type[geom])]
        if kind == "plane":
            normal = rotation[:, 2]
            planes.append((normal.tolist(), float(normal @ data.geom_xpos[geom])))
        elif kind == "box":
            mesh = ConvexMesh.box(model.geom_size[geom])
            fixed.append(mesh.moved(rotation, data.geom_xpos[geom]))
        else:
            raise _refusal(
                f"fixed geom {_geom_name(model, geom)!r} is a {kind}; it takes plane and box"
            )
    if not planes:
        # The floor is then far below, where nothing comes.
        planes.append(([0.0, 0.0, 1.0], -1e6))
    up = -np.array(model.opt.gravity)
    planes.sort(key=lambda plane: -float(np.dot(plane[0], up)))  # the floor first
    (normal, height), *walls = planes
    return Surroundings(
        gravity=np.array(model.opt.gravity).tolist(),
        floor_normal=normal,
        floor_height=height,
        walls=walls,
        fixed=fixed,
    )


def contact_values(model: mujoco.MjModel) -> tuple[np.ndarray, float]:
    """Contact parameters (5,) of a model, in the order of `CONTACT_NAMES`, and the rounding, m.

    Raises a `SceneError` if its contacts differ.
    """
    rows = [_values(row) for row in _pair_rows(model)]
    if not rows:
        raise _refusal("no two geoms of it may touch")
    if not np.allclose(rows, rows[0], rtol=_CONTACT_TOLERANCE):
        raise _refusal("its contacts differ in friction, solref, solimp or margin")
    return rows[0][:5], float(rows[0][5])


PairRow = tuple[float, np.ndarray, np.ndarray, float]  # friction, solref, solimp, margin


def _pair_rows(model: mujoco.MjModel) -> list[PairRow]:
    """Contact parameters of each pair of geoms that may touch, by MuJoCo's rules."""
    rows: list[PairRow] = []
    explicit = set()
    for pair in range(model.npair):
        explicit.add(frozenset((int(model.pair_geom1[pair]), int(model.pair_geom2[pair]))))
        friction = float(model.pair_friction[pair, 0])
        margin = float(model.pair_margin[pair])
        rows.append((friction, model.pair_solref[pair], model.pair_solimp[pair], margin))
    geoms = [g for g in range(model.ngeom) if model.geom_contype[g] or model.geom_conaffinity[g]]
    for first, second in itertools.combinations(geoms, 2):
        welds = model.body_weldid[model.geom_bodyid[[first, second]]]
        allowed = (model.geom_contype[first] & model.geom_conaffinity[second]) | (
            model.geom_contype[second] & model.geom_conaffinity[first]
        )
        if allowed and welds[0] != welds[1] and frozenset((first, second)) not in explicit:
            rows.append(_mixed(model, first, second))
    return rows


def _mixed(model: mujoco.MjModel, first: int, second: int) -> PairRow:
    """Contact parameters of two geoms: those of higher priority, else mixed."""
    margin = float(model.geom_margin[first] + model.geom_margin[second])
    priority = model.geom_priority[[first, second]]
    if priority[0] != priority[1]:
        own = first if priority[0] > priority[1] else second
        friction = float(model.geom_friction[own, 0])
        return friction, model.geom_solref[own], model.geom_solimp[own], margin
    weights = model.geom_solmix[[first, second]]
    share = weights[0] / weights.sum() if weights.sum() > 0 else 0.5
    solref = model.geom_solref[[first, second]]
    # Direct forms are not mixed: the smaller (stiffer) numbers count.
    mixed = share * solref[0] + (1 - share) * solref[1] if (solref > 0).all() else solref.min(0)
    solimp = share * model.geom_solimp[first] + (1 - share) * model.geom_solimp[second]
    friction = float(max(model.geom_friction[first, 0], model.geom_friction[second, 0]))
    return friction, mixed, solimp, margin


def _values(row: PairRow) -> np.ndarray:
    """Values (6,) of a contact: those of `CONTACT_NAMES` in SI units, and the rounding."""
    friction, solref, solimp, margin = row
    if abs(float(solimp[1]) - END_IMPEDANCE) > 0.01 * END_IMPEDANCE:
        raise _refusal(f"a contact has solimp[1] of {solimp[1]:g}, and it was trained for 0.95")
    if (solref > 0).all():
        time_constant, ratio = (float(value) for value in solref)
        stiffness, damping = 1 / (time_constant * ratio) ** 2, 2 / time_constant
    else:
        stiffness, damping = -float(solref[0]), -float(solref[1])
    return np.array(
        [friction, stiffness, damping, float(solimp[0]), float(solimp[2]), margin], float
    )


def _collides(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom takes part in collisions at all."""
    in_pair = np.isin(geom, np.concatenate([model.pair_geom1, model.pair_geom2]))
    return bool(model.geom_contype[geom] or model.geom_conaffinity[geom] or in_pair)


def _geom_name(model: mujoco.MjModel, geom: int) -> str:
    return str(model.geom(geom).name) or f"geom {geom}"


def _refusal(reason: str) -> SceneError:
    """A sentence on what the network does not cover."""
    return SceneError(f"the graph network does not cover this scene: {reason}")
