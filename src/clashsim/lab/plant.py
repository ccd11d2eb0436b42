"""The rig in Drake: block, tip and table with hydroelastic contact.

Hydroelastic contacts are patches with pressure, with the dissipation law of Hunt and Crossley. The
block is rigid; the arm's tip and the table are compliant, each with a pressure field. The block's
underside rests on the table on a patch, so friction against rotation follows from the pressure
under it. Only this module of the package imports Drake.
"""

# Drake's type stubs use array types that do not match numpy's, so its calls cannot be checked.
# mypy: disable-error-code="arg-type, call-overload"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import Delaunay

from clashsim.core.extras import needs
from clashsim.lab.arm import DAMPING, MASS, STIFFNESS, CommandedPath
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

TILE_SIZE = 0.05  # m, edge of a table tile; each tile has its own friction
TABLE_HALF_WIDTH = 0.6  # m
# Over the 25 mm from a tile's surface to its middle, this gives 40 MN/m^3, as of a bed of sand; a
# block sinks in by 6 micrometres and does not bounce.
TABLE_MODULUS = 1e6  # Pa
TABLE_DISSIPATION = 5.0  # s/m
TABLE_MESH_SIZE = 1.0  # m; larger than a tile, so that tiles get the coarsest mesh
TIP_MESH_SIZE = 0.0012  # m, edges of the tip's pressure mesh
UNDERSIDE_EDGE = 0.016  # m, length of the chords that approximate arcs of the underside
_SHARP_CORNER = 0.3  # rad, change of direction above which a corner is always kept
_CART_MASS = 1e-3  # kg, negligible; of the body between the tip's two slides
_RIGID_MESH_SIZE = 1.0  # m, unused for convex shapes and meshes
_BLOCK_FRICTION = 1.0  # of the block's own material, which Drake combines with the other body's


@dataclass(frozen=True, eq=False)
class PlantState:
    """Drake's state vector with its entries by name, as views; SI units, world axes.

    Attributes:
        values: (..., 17): position x y of the tip, coordinates qw qx qy qz x y z of the block,
            velocity of the tip (2), then angular (3) and linear (3) velocity of the block.
    """

    values: np.ndarray

    @property
    def tip_position(self) -> np.ndarray:
        """Position x, y of the tip over the table (..., 2), m."""
        return self.values[..., :2]

    @property
    def block_coordinates(self) -> np.ndarray:
        """Drake's coordinates of the block (..., 7): qw qx qy qz x y z."""
        return self.values[..., 2:9]

    @property
    def block_quaternion(self) -> np.ndarray:
        """Orientation of the block wxyz (..., 4)."""
        return self.values[..., 2:6]

    @property
    def block_position(self) -> np.ndarray:
        """Position of the block's origin (..., 3), m."""
        return self.values[..., 6:9]

    @property
    def tip_velocity(self) -> np.ndarray:
        """Velocity of the tip (..., 2), m/s."""
        return self.values[..., 9:11]

    @property
    def block_angular_velocity(self) -> np.ndarray:
        """Angular velocity of the block (..., 3), rad/s."""
        return self.values[..., 11:14]

    @property
    def block_velocity(self) -> np.ndarray:
        """Velocity of the block's origin (..., 3), m/s."""
        return self.values[..., 14:]


class Plant:
    """One Drake plant with a fixed time step; its states are arrays (17,) as in `PlantState`."""

    def __init__(self, setting: Setting, shape: Outline, step: float) -> None:
        """Build the plant.

        Args:
            setting: Material, surface and change of block and table.
            shape: Outline of the block.
            step: s, time step.
        """
        self.step = step
        builder = DiagramBuilder()
        config = MultibodyPlantConfig(
            time_step=step,
            contact_model="hydroelastic",
            discrete_contact_approximation="lagged",
            use_sampled_output_ports=False,
        )
        self.plant, scene = AddMultibodyPlant(config, builder)
        wall, underside = _add_block(self.plant, setting, shape)
        tip, arm_model = _add_arm(self.plant, setting)
        tiles = _add_table(self.plant, setting)
        self.plant.Finalize()
        # The block has two shapes, each as fine as its contact needs: only its wall can touch the
        # tip, and only its underside the table.
        excluded = (
            CollisionFilterDeclaration()
            .ExcludeBetween(GeometrySet(tiles), GeometrySet([tip, wall]))
            .ExcludeBetween(GeometrySet(tip), GeometrySet(underside))
        )
        scene.collision_filter_manager().Apply(excluded)
        no_path_yet = PiecewisePolynomial(np.zeros((2, 1)))  # replaced by `command`
        self.source: Any = builder.AddSystem(
            TrajectorySource(
                no_path_yet,
                output_derivative_order=1,
                zero_derivatives_beyond_limits=True,
            )
        )
        builder.Connect(
            self.source.get_output_port(), self.plant.get_desired_state_input_port(arm_model)
        )
        self.diagram = builder.Build()
        self.context = self.diagram.CreateDefaultContext()
        self.plant_context = self.plant.GetMyMutableContextFromRoot(self.context)

    def command(self, path: CommandedPath) -> None:
        """Give the servo its path; cubic Hermite splines represent its quadratic pieces exactly."""
        mean_velocities = 0.5 * (path.velocities[1:] + path.velocities[:-1])
        moves = np.cumsum(mean_velocities * np.diff(path.times)[:, None], 0)
        positions = np.vstack([path.start, path.start + moves])
        self.source.UpdateTrajectory(
            PiecewisePolynomial.CubicHermite(path.times, positions.T, path.velocities.T)
        )

    def start(self, pose: np.ndarray, path: CommandedPath) -> np.ndarray:
        """Make the state with the block at rest and the tip at the start of its path.

        Args:
            pose: (3,), x, y (m) and yaw (rad) of the block.
            path: The path of the tip.

        Returns:
            The state, (17,).
        """
        quaternion = RollPitchYaw(0, 0, float(pose[2])).ToQuaternion().wxyz()
        height = [0.0]
        block_at_rest = np.zeros(6)
        return np.concatenate(
            [path.start, quaternion, pose[:2], height, path.velocities[0], block_at_rest]
        )

    def advance(self, state: np.ndarray, t: float, steps: int) -> np.ndarray:
        """Simulate some time steps.

        Args:
            state: (17,), state at time t.
            t: s, time of the path.
            steps: Number of time steps.

        Returns:
            The state after these steps, (17,).
        """
        self.plant.SetPositionsAndVelocities(self.plant_context, state)
        for i in range(steps):
            # Drake integrates the servo implicitly, so it needs the target at the end of the step.
            self.context.SetTime(t + (i + 1) * self.step)
            update = self.diagram.EvalUniquePeriodicDiscreteUpdate(self.context)
            self.context.SetDiscreteState(update)
        return self.plant.GetPositionsAndVelocities(self.plant_context).copy()


def _add_block(plant: Any, setting: Setting, shape: Outline) -> tuple[Any, Any]:
    """Add the block, with its convex hull (wall) and an open mesh of its underside as geometries.

    Returns the identifiers of the two geometries, wall and underside.
    """
    bottom = np.column_stack([shape.corners, np.zeros(len(shape.corners))])
    top = np.column_stack([shape.corners, np.full(len(shape.corners), shape.height)])
    hull = Convex(np.ascontiguousarray(np.vstack([bottom, top]).T), "block")
    change = CHANGES[setting.change]
    density = change.mass * MATERIALS[setting.material].density
    inertia = CalcSpatialInertia(hull, density)
    if change.ballast:
        position = np.array(change.at)
        ballast_mass = change.ballast * inertia.get_mass()
        inertia += SpatialInertia(ballast_mass, position, UnitInertia.PointMass(position))
    body = plant.AddRigidBody("block", plant.AddModelInstance("block"), inertia)
    rigid = ProximityProperties()
    AddRigidHydroelasticProperties(_RIGID_MESH_SIZE, rigid)
    own_friction = CoulombFriction(_BLOCK_FRICTION, _BLOCK_FRICTION)  # static, dynamic
    AddContactMaterial(dissipation=0.0, friction=own_friction, properties=rigid)
    mesh = Mesh(InMemoryMesh(mesh_file=MemoryFile(_underside_obj(shape), ".obj", "underside")))
    wall = plant.RegisterCollisionGeometry(body, RigidTransform(), hull, "wall", rigid)
    underside = plant.RegisterCollisionGeometry(body, RigidTransform(), mesh, "underside", rigid)
    return wall, underside


def _underside_obj(shape: Outline) -> str:
    """OBJ text of the underside: the outline without short edges, as triangles that face down."""
    kept = [shape.corners[0]]
    for corner in shape.corners[1:]:
        is_far = np.linalg.norm(corner - kept[-1]) >= UNDERSIDE_EDGE
        if is_far or _is_sharp(shape, corner):
            kept.append(corner)
    # A point in the middle, so that no triangle spans the whole underside.
    points = np.vstack([np.array(kept), np.array(kept).mean(0)])
    lines = [f"v {x:.9g} {y:.9g} 0\n" for x, y in points]
    for a, b, c in Delaunay(points).simplices:
        u = points[b] - points[a]
        v = points[c] - points[a]
        is_counter_clockwise = u[0] * v[1] - u[1] * v[0] > 0
        first, second, third = (a, c, b) if is_counter_clockwise else (a, b, c)
        lines.append(f"f {first + 1} {second + 1} {third + 1}\n")  # OBJ counts vertices from 1
    return "".join(lines)


def _is_sharp(shape: Outline, corner: np.ndarray) -> bool:
    """Whether the outline changes its direction by more than `_SHARP_CORNER` at a corner (2,)."""
    i = int(np.linalg.norm(shape.corners - corner, axis=1).argmin())
    edge_before = corner - shape.corners[i - 1]
    edge_after = shape.corners[(i + 1) % len(shape.corners)] - corner
    lengths = np.linalg.norm(edge_before) * np.linalg.norm(edge_after)
    return bool(edge_before @ edge_after < np.cos(_SHARP_CORNER) * lengths)


def _add_arm(plant: Any, setting: Setting) -> tuple[Any, Any]:
    """Add the arm's tip on two slides with a servo each.

    Returns the identifier of the tip's geometry, and the model instance to command.
    """
    model = plant.AddModelInstance("striker")
    sphere = UnitInertia.SolidSphere(TIP_RADIUS)
    cart = plant.AddRigidBody("cart", model, SpatialInertia(_CART_MASS, np.zeros(3), sphere))
    tip = plant.AddRigidBody("striker", model, SpatialInertia(MASS, np.zeros(3), sphere))
    x = plant.AddJoint(PrismaticJoint("x", plant.world_frame(), cart.body_frame(), [1, 0, 0]))
    y = plant.AddJoint(PrismaticJoint("y", cart.body_frame(), tip.body_frame(), [0, 1, 0]))
    for joint in (x, y):
        actuator = plant.AddJointActuator(joint.name(), joint)
        actuator.set_controller_gains(PdControllerGains(p=STIFFNESS, d=DAMPING))
    material = MATERIALS[setting.material]
    compliant = _compliant_properties(
        friction=CHANGES[setting.change].friction * material.friction,
        modulus=material.modulus,
        dissipation=material.dissipation,
        mesh_size=TIP_MESH_SIZE,
    )
    geometry = plant.RegisterCollisionGeometry(
        tip, RigidTransform([0, 0, TIP_RADIUS]), Sphere(TIP_RADIUS), "tip", compliant
    )
    return geometry, model


def _add_table(plant: Any, setting: Setting) -> list[Any]:
    """Add the table as cubes side by side, and return the identifiers of their geometries.

    Cubes have the simplest pressure field. Each has the table's friction at its middle.
    """
    n = round(2 * TABLE_HALF_WIDTH / TILE_SIZE)
    middles = -TABLE_HALF_WIDTH + (np.arange(n) + 0.5) * TILE_SIZE  # along x, and along y
    centres = np.stack(np.meshgrid(middles, middles, indexing="ij"), -1).reshape(-1, 2)
    frictions = table_friction(setting, centres)
    tiles = []
    for i, (centre, friction) in enumerate(zip(centres, frictions, strict=True)):
        compliant = _compliant_properties(
            friction=float(friction),
            modulus=TABLE_MODULUS,
            dissipation=TABLE_DISSIPATION,
            mesh_size=TABLE_MESH_SIZE,
        )
        tile = plant.RegisterCollisionGeometry(
            plant.world_body(),
            RigidTransform([*centre, -TILE_SIZE / 2]),  # upper face at height zero
            Box(TILE_SIZE, TILE_SIZE, TILE_SIZE),
            f"tile{i}",
            compliant,
        )
        tiles.append(tile)
    return tiles


def _compliant_properties(
    *, friction: float, modulus: float, dissipation: float, mesh_size: float
) -> Any:
    """Contact properties of a compliant body that has a given friction against the block."""
    properties = ProximityProperties()
    AddCompliantHydroelasticProperties(mesh_size, modulus, properties)
    # Drake takes the harmonic mean of the frictions of both bodies, and the block's own is 1.
    own = friction / (2 - friction)
    own_friction = CoulombFriction(own, own)  # static, dynamic
    AddContactMaterial(dissipation=dissipation, friction=own_friction, properties=properties)
    return properties
