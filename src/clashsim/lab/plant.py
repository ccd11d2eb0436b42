"""The bench in Drake: block, tip and table with hydroelastic contact patches and the contact law of
Hunt and Crossley.

The block is rigid; the arm's tip and the table give way, each with a pressure field. The sole rests
on the table by a patch, so friction against spin comes out of the pressure under it. Only this
module of the package imports Drake.
"""

# Drake's stubs name array types that numpy's own do not meet, so its calls cannot be checked.
# mypy: disable-error-code="arg-type, call-overload"

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import Delaunay

from clashsim.core.extras import needs
from clashsim.lab import arm
from clashsim.lab.settings import CHANGES, MATERIALS, Setting, table_friction
from clashsim.lab.strike import TIP_RADIUS, Outline

with needs("Drake (pydrake)", "lab"):
    from pydrake.common import MemoryFile
    from pydrake.geometry import (
        AddCompliantHydroelasticProperties,
        AddContactMaterial,
        AddRigidHydroelasticProperties,
        Box,
        CollisionFilterDeclaration,
        Convex,
        GeometrySet,
        InMemoryMesh,
        Mesh,
        ProximityProperties,
        Sphere,
    )
    from pydrake.math import RigidTransform, RollPitchYaw
    from pydrake.multibody.plant import AddMultibodyPlant, CoulombFriction, MultibodyPlantConfig
    from pydrake.multibody.tree import (
        CalcSpatialInertia,
        PdControllerGains,
        PrismaticJoint,
        SpatialInertia,
        UnitInertia,
    )
    from pydrake.systems.framework import DiagramBuilder
    from pydrake.systems.primitives import TrajectorySource
    from pydrake.trajectories import PiecewisePolynomial

TILE, HALF = 0.05, 0.6  # m, edge of a table tile and half the table: each tile has its own friction
TABLE_MODULUS, TABLE_DISSIPATION = (
    1e6,
    5.0,
)  # Pa, s/m: 40 MN/m3, as of a bed of sand; a block sinks in by 6 micrometres and does not bounce
TIP_MESH = 0.0012  # m, edges of the tip's pressure mesh
SOLE_EDGE = 0.016  # m, arcs of the sole are cut into chords of about this length


class Plant:
    """One Drake plant. Its state (17,): tip x y, block qw qx qy qz x y z, then velocities: tip (2),
    block angular (3) and linear (3), world axes.
    """

    def __init__(self, setting: Setting, shape: Outline, step: float) -> None:
        self.step = step
        builder = DiagramBuilder()
        config = MultibodyPlantConfig(
            time_step=step,
            contact_model="hydroelastic",
            discrete_contact_approximation="lagged",
            use_sampled_output_ports=False,
        )
        self.plant, scene = AddMultibodyPlant(config, builder)
        wall, sole = _add_block(self.plant, setting, shape)
        tip, model = _add_arm(self.plant, setting)
        tiles = _add_table(self.plant, setting)
        self.plant.Finalize()
        # The wall meets the tip and the sole meets the table: two meshes, each as fine as its
        # contact needs.
        apart = (
            CollisionFilterDeclaration()
            .ExcludeBetween(GeometrySet(tiles), GeometrySet([tip, wall]))
            .ExcludeBetween(GeometrySet(tip), GeometrySet(sole))
        )
        scene.collision_filter_manager().Apply(apart)
        self.source: Any = builder.AddSystem(
            TrajectorySource(
                PiecewisePolynomial(np.zeros((2, 1))),
                output_derivative_order=1,
                zero_derivatives_beyond_limits=True,
            )
        )
        builder.Connect(
            self.source.get_output_port(), self.plant.get_desired_state_input_port(model)
        )
        self.diagram = builder.Build()
        self.context = self.diagram.CreateDefaultContext()
        self.inner = self.plant.GetMyMutableContextFromRoot(self.context)

    def command(self, path: arm.Path) -> None:
        """Give the servo its path; a cubic of Hermite meets the quadratic pieces exactly."""
        mean = 0.5 * (path.velocities[1:] + path.velocities[:-1])
        places = np.vstack(
            [path.start, path.start + np.cumsum(mean * np.diff(path.times)[:, None], 0)]
        )
        self.source.UpdateTrajectory(
            PiecewisePolynomial.CubicHermite(path.times, places.T, path.velocities.T)
        )

    def start(self, pose: np.ndarray, path: arm.Path) -> np.ndarray:
        """The state with the block at rest at pose (x, y, yaw) and the tip at the start of its
        path.
        """
        turn = RollPitchYaw(0, 0, float(pose[2])).ToQuaternion()
        return np.concatenate(
            [path.start, turn.wxyz(), pose[:2], [0.0], path.velocities[0], np.zeros(6)]
        )

    def advance(self, state: np.ndarray, t: float, steps: int) -> np.ndarray:
        """The state some steps after t."""
        self.plant.SetPositionsAndVelocities(self.inner, state)
        for i in range(steps):
            self.context.SetTime(
                t + (i + 1) * self.step
            )  # the servo is solved implicitly: its target is that of the step's end
            self.context.SetDiscreteState(
                self.diagram.EvalUniquePeriodicDiscreteUpdate(self.context)
            )
        return self.plant.GetPositionsAndVelocities(self.inner).copy()


def _add_block(plant: Any, setting: Setting, shape: Outline) -> tuple:
    """The block as the convex hull of its outline and, below, an open mesh of its sole."""
    material = MATERIALS[setting.material]
    corners = np.vstack(
        [
            np.column_stack([shape.corners, np.full(len(shape.corners), z)])
            for z in (0.0, shape.height)
        ]
    )
    hull = Convex(np.ascontiguousarray(corners.T), "block")
    change = CHANGES[setting.change]
    inertia = CalcSpatialInertia(hull, change.mass * material.density)
    if change.ballast:
        inertia += SpatialInertia(
            change.ballast * inertia.get_mass(),
            np.array(change.at),
            UnitInertia.PointMass(np.array(change.at)),
        )
    body = plant.AddRigidBody("block", plant.AddModelInstance("block"), inertia)
    rigid = ProximityProperties()
    AddRigidHydroelasticProperties(1.0, rigid)
    AddContactMaterial(dissipation=0.0, friction=CoulombFriction(1.0, 1.0), properties=rigid)
    mesh = Mesh(InMemoryMesh(mesh_file=MemoryFile(_sole(shape), ".obj", "sole")))
    return tuple(
        plant.RegisterCollisionGeometry(body, RigidTransform(), geometry, name, rigid)
        for geometry, name in ((hull, "wall"), (mesh, "sole"))
    )


def _sole(shape: Outline) -> str:
    """The sole as an OBJ text: the outline with short edges merged, cut into triangles that face
    down.
    """
    kept = [shape.corners[0]]
    for corner in shape.corners[1:]:
        if np.linalg.norm(corner - kept[-1]) >= SOLE_EDGE or _sharp(shape, corner):
            kept.append(corner)
    points = np.array(kept)
    points = np.vstack(
        [points, points.mean(0)]
    )  # a middle point, so that no triangle spans the whole sole
    faces = []
    for a, b, c in Delaunay(points).simplices:
        u, v = points[b] - points[a], points[c] - points[a]
        faces.append((a, c, b) if u[0] * v[1] - u[1] * v[0] > 0 else (a, b, c))
    return "".join(f"v {x:.9g} {y:.9g} 0\n" for x, y in points) + "".join(
        f"f {a + 1} {b + 1} {c + 1}\n" for a, b, c in faces
    )


def _sharp(shape: Outline, corner: np.ndarray) -> bool:
    """Whether the outline turns by more than 0.3 rad at a corner."""
    i = int(np.linalg.norm(shape.corners - corner, axis=1).argmin())
    before, after = (
        corner - shape.corners[i - 1],
        shape.corners[(i + 1) % len(shape.corners)] - corner,
    )
    return bool(before @ after < np.cos(0.3) * np.linalg.norm(before) * np.linalg.norm(after))


def _add_arm(plant: Any, setting: Setting) -> tuple:
    """The tip on two slides with a servo each; it never meets the table."""
    material, model = MATERIALS[setting.material], plant.AddModelInstance("striker")
    cart = plant.AddRigidBody(
        "cart", model, SpatialInertia(1e-3, np.zeros(3), UnitInertia.SolidSphere(TIP_RADIUS))
    )
    tip = plant.AddRigidBody(
        "striker", model, SpatialInertia(arm.MASS, np.zeros(3), UnitInertia.SolidSphere(TIP_RADIUS))
    )
    x = plant.AddJoint(PrismaticJoint("x", plant.world_frame(), cart.body_frame(), [1, 0, 0]))
    y = plant.AddJoint(PrismaticJoint("y", cart.body_frame(), tip.body_frame(), [0, 1, 0]))
    for joint in (x, y):
        plant.AddJointActuator(joint.name(), joint).set_controller_gains(
            PdControllerGains(p=arm.STIFFNESS, d=arm.DAMPING)
        )
    soft = _soft(
        CHANGES[setting.change].friction * material.friction,
        material.modulus,
        material.dissipation,
        TIP_MESH,
    )
    return plant.RegisterCollisionGeometry(
        tip, RigidTransform([0, 0, TIP_RADIUS]), Sphere(TIP_RADIUS), "tip", soft
    ), model


def _add_table(plant: Any, setting: Setting) -> list:
    """Cubes side by side: a cube's pressure field is the simplest, and each has the friction of its
    middle.
    """
    n = round(2 * HALF / TILE)
    middle = -HALF + (np.arange(n) + 0.5) * TILE
    places = np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).reshape(-1, 2)
    tiles = []
    for i, (place, friction) in enumerate(
        zip(places, table_friction(setting, places), strict=True)
    ):
        soft = _soft(float(friction), TABLE_MODULUS, TABLE_DISSIPATION, 1.0)
        tiles.append(
            plant.RegisterCollisionGeometry(
                plant.world_body(),
                RigidTransform([*place, -TILE / 2]),
                Box(TILE, TILE, TILE),
                f"tile{i}",
                soft,
            )
        )
    return tiles


def _soft(friction: float, modulus: float, dissipation: float, mesh: float) -> Any:
    """Properties of what gives way; Drake takes the harmonic mean of two frictions, and the block's
    is 1.
    """
    soft = ProximityProperties()
    AddCompliantHydroelasticProperties(mesh, modulus, soft)
    half = friction / (2 - friction)
    AddContactMaterial(
        dissipation=dissipation, friction=CoulombFriction(half, half), properties=soft
    )
    return soft
