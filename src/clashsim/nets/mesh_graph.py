"""A mesh graph network for rigid contact, after FIGNet and the few-shot paper.

FIGNet is Allen et al. 2023; the equations cited here are those of the few-shot paper (2 to 4). Mesh
nodes are the corners of bodies, object nodes are the bodies; edges are mesh-mesh, object-mesh and
face-face. The network's outputs are impulses on the corners of near faces; the laws that these
impulses obey are in `clashsim.nets.contact_impulses`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clashsim.nets.contact_features import (
    GRAVITY,
    Contacts,
    CornerContacts,
    FreeStep,
    corner_contacts,
)
from clashsim.nets.contact_impulses import balance_impulses, excess_moment, limit_to_cone
from clashsim.nets.rigid_bodies import (
    RigidBodyState,
    cross,
    gather_rows,
    match_shape,
    rotate,
    rotate_inverse,
)
from clashsim.nets.trained_domain import UNTRAINED, TrainedDomain

# Numbers that describe each kind of node and edge to the network.
_NODE_FEATURES = 6
_BODY_FEATURES = 10  # without the contact parameters, which are added to them
_BODY_FEATURES_BEFORE_CONTACT = 6
_MESH_EDGE_FEATURES = 4
_CONTACT_FEATURES = 27
_OUTPUTS = 6  # two impulses: one changes velocities, the other displacements / dt


def _mlp(inputs: int, hidden: int, outputs: int, *, norm: bool = True) -> nn.Sequential:
    """A perceptron with one hidden layer, its outputs normalised or not."""
    layers: list[nn.Module] = [nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs)]
    if norm:
        layers.append(nn.LayerNorm(outputs))
    return nn.Sequential(*layers)


# The attribute names of the modules below are the names of the tensors in network files.


class _EdgeUpdate(nn.Module):
    """A perceptron whose inputs are an edge's state and the states of the edge's nodes.

    There are fewer nodes than edges, so the first layer's products are taken once per node and then
    gathered for the edges.
    """

    def __init__(self, parts: int, hidden: int) -> None:
        """Make it for `parts` inputs (the edge's own state, then nodes) of width `hidden`."""
        super().__init__()
        self.enter = nn.Linear(hidden, hidden)
        self.parts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(parts - 1))
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.LayerNorm(hidden))

    def forward(self, own: Tensor, *parts: Tensor) -> Tensor:
        """Change (n, hidden) of edge states.

        Args:
            own: (n, hidden), states of the edges.
            parts: (n, hidden) each, states of the edges' nodes after `self.parts`.
        """
        total = self.enter(own)
        for part in parts:
            total = total + part
        return self.rest(total)


class _Layer(nn.Module):
    """One round of messages: mesh edges, face-face edges, mesh nodes, object nodes."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mesh = _EdgeUpdate(3, hidden)  # edge, source node, target node
        self.near = _EdgeUpdate(4, hidden)  # edge, corner, own face, other face
        self.node = _mlp(4 * hidden, hidden, hidden)
        self.body = _mlp(2 * hidden, hidden, hidden)


class GraphNet(nn.Module):
    """Impulses of contact from bodies in free motion and the face pairs that are near.

    Attributes:
        shape: The sizes it was made with, as a network file keeps them.
        domain: What it was trained for.
    """

    def __init__(
        self,
        contact: int,
        hidden: int = 64,
        layers: int = 5,
        *,
        domain: TrainedDomain = UNTRAINED,
    ) -> None:
        """Make an untrained network, all of whose impulses are zero.

        Args:
            contact: Number of contact parameters of a body.
            hidden: Width of all layers.
            layers: Rounds of messages.
            domain: What it is trained for.
        """
        super().__init__()
        self.domain = domain
        self.shape = {"contact": contact, "hidden": hidden, "layers": layers}
        self.node = _mlp(_NODE_FEATURES, hidden, hidden)
        self.body = _mlp(_BODY_FEATURES + contact, hidden, hidden)
        self.mesh = _mlp(_MESH_EDGE_FEATURES, hidden, hidden)
        self.near = _mlp(_CONTACT_FEATURES, hidden, hidden)
        self.layers = nn.ModuleList(_Layer(hidden) for _ in range(layers))
        self.out = _mlp(hidden, hidden, _OUTPUTS, norm=False)
        # The node of all fixed surfaces: they have no state, so it is the same everywhere.
        self.floor = nn.Parameter(torch.zeros(hidden))
        last = self.out[2]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def on_scale_of(self, domain: TrainedDomain) -> GraphNet:
        """The same network with its contact parameters on the scale of another domain.

        Both scales are linear in the same numbers or in their logarithms, so that the first layer
        of object nodes takes the change. It is where training for a wider domain starts.
        """
        net = GraphNet(**self.shape, domain=domain)
        net.load_state_dict(self.state_dict())
        first = net.body[0]
        assert isinstance(first, nn.Linear)
        # Values on the old scale at the ends of the new one.
        low, high = self.domain.unit_ends(domain)
        columns = slice(_BODY_FEATURES_BEFORE_CONTACT, _BODY_FEATURES_BEFORE_CONTACT + len(low))
        with torch.no_grad():
            weight = first.weight[:, columns].clone()
            middle = torch.tensor((low + high) / 2, dtype=weight.dtype)
            stretch = torch.tensor((high - low) / 2, dtype=weight.dtype)
            first.bias.add_(weight @ middle)
            first.weight[:, columns] = weight * stretch
        return net.eval()

    def forward(self, step: FreeStep, contacts: Contacts) -> tuple[Tensor, Tensor]:
        """Compute the impulses of contact over one step.

        Args:
            step: The bodies in free motion.
            contacts: The C face pairs that are near.

        Returns:
            Linear (N s) and angular (N m s) impulses on every body, (O, 2, 3) each, world axes. The
            first of the two changes velocities over the step, the second displacements / dt.
        """
        bodies, now = step.bodies, step.now
        count = len(contacts.face)
        corners = corner_contacts(step, contacts)
        edges = self._messages(step, corners)

        body = bodies.owner[corners.corner]
        # Outputs (K, 2, 3) in body axes, then in world axes.
        raw = self.out(edges).to(now.position.dtype).reshape(-1, 2, 3)
        raw = rotate(gather_rows(now.orientation, body)[:, None], raw)
        # The first contact parameter is the friction coefficient.
        friction = gather_rows(self.domain.friction(bodies.contact[:, 0]), body)
        on_fixed = (corners.other < 0)[:, None, None]
        raw = torch.where(
            on_fixed,
            limit_to_cone(raw, corners.slip, corners.normal, friction=friction),
            raw,
        )
        speed_unit = gather_rows(step.travel, body) / step.dt  # (K,), m/s
        impulse_unit = corners.weight * corners.scale * speed_unit  # (K,), N s
        impulse = balance_impulses(corners, raw * impulse_unit[:, None, None], count)
        moment = cross(corners.arm[:, None].expand_as(impulse), impulse)
        moment = moment - excess_moment(corners, now, body, impulse=impulse, count=count)
        zero = torch.zeros(len(bodies), 2, 3, dtype=impulse.dtype, device=impulse.device)
        return zero.index_add(0, body, impulse), zero.index_add(0, body, moment)

    def _messages(self, step: FreeStep, corners: CornerContacts) -> Tensor:
        """States (K, hidden) of the face-face edges after all rounds of messages."""
        bodies = step.bodies
        dtype = self.floor.dtype
        nodes, objects = self._encode_nodes(step)
        source, target = bodies.edge
        shape = bodies.corner / gather_rows(bodies.length, bodies.owner)[:, None]
        along = gather_rows(shape, source) - gather_rows(shape, target)
        mesh_edges = self.mesh(torch.cat([along, along.norm(dim=1, keepdim=True)], 1).to(dtype))
        contact_edges = self.near(corners.features.to(dtype))
        weight = corners.weight.to(dtype)[:, None]
        real = bodies.real.to(dtype)[:, None]
        on_fixed = (corners.other < 0)[:, None]
        some_corners = corners.other_corners.clamp(min=0)  # 0 for fixed surfaces, replaced
        for layer in self._layers():
            at_source, at_target = (part(nodes) for part in layer.mesh.parts)
            mesh_edges = mesh_edges + layer.mesh(
                mesh_edges, gather_rows(at_source, source), gather_rows(at_target, target)
            )
            at_corner, own_face, other_face = (part(nodes) for part in layer.near.parts)
            other = torch.where(
                on_fixed,
                layer.near.parts[2](self.floor),
                gather_rows(other_face, some_corners).mean(1),
            )
            contact_edges = contact_edges + layer.near(
                contact_edges,
                gather_rows(at_corner, corners.corner),
                gather_rows(own_face, corners.own_corners).mean(1),
                other,
            )
            from_mesh = torch.zeros_like(nodes).index_add(0, target, mesh_edges)
            from_contacts = torch.zeros_like(nodes).index_add(
                0, corners.corner, weight * contact_edges
            )
            from_object = gather_rows(objects, bodies.owner)
            nodes = nodes + layer.node(torch.cat([nodes, from_mesh, from_contacts, from_object], 1))
            from_nodes = torch.zeros_like(objects).index_add(0, bodies.owner, real * nodes)
            objects = objects + layer.body(torch.cat([objects, from_nodes], 1))
        return contact_edges

    def _encode_nodes(self, step: FreeStep) -> tuple[Tensor, Tensor]:
        """First states of the mesh nodes (V, hidden) and of the object nodes (O, hidden)."""
        bodies, free = step.bodies, step.free
        dtype = self.floor.dtype
        length = bodies.length[:, None]
        relative_step = step.relative_step[:, None]
        angular_velocity = rotate_inverse(free.orientation, free.angular_velocity)
        # Rotation per step, as if the step were the usual one for bodies of this size.
        rotation = angular_velocity * (step.dt / relative_step)
        shape = bodies.corner / gather_rows(bodies.length, bodies.owner)[:, None]
        node_features = torch.cat([shape, cross(gather_rows(rotation, bodies.owner), shape)], 1)
        inertia_ratio = bodies.inertia / (bodies.mass[:, None] * length**2)
        gravity = rotate_inverse(free.orientation, step.gravity.expand_as(free.velocity)) / GRAVITY
        body_features = torch.cat(
            [rotation, inertia_ratio, bodies.contact, gravity, torch.log(relative_step)], 1
        )
        return self.node(node_features.to(dtype)), self.body(body_features.to(dtype))

    def _layers(self) -> Iterator[_Layer]:
        """The rounds of messages, typed as `_Layer` for the type checker."""
        for layer in self.layers:
            assert isinstance(layer, _Layer)
            yield layer


def step_with_contacts(net: GraphNet, step: FreeStep, contacts: Contacts) -> RigidBodyState:
    """The state after one step: corners move by Verlet's rule, then shapes are made rigid again.

    With p(t - dt) = p(t) - dt v and the acceleration of free motion put apart, Verlet's p(t + dt) =
    2 p(t) - p(t - dt) + dt^2 a is the corner of free motion plus dt^2 times the acceleration that
    contact adds. Velocities get the impulses themselves.

    Args:
        net: Gives the impulses.
        step: The bodies in free motion.
        contacts: Face pairs that are near.

    Returns:
        The state at the end of the step.
    """
    bodies, free, dt = step.bodies, step.free, step.dt
    if len(contacts.face) == 0:
        return free
    # Of the two impulses on each body the first changes velocities, the second displacements / dt.
    linear, angular = net(step, contacts)
    velocity_change, shift_rate = (linear / bodies.mass[:, None, None]).unbind(1)
    orientation = free.orientation[:, None]
    body_axes_change = rotate_inverse(orientation, angular) / bodies.inertia[:, None]
    angular_change, rotation_rate = rotate(orientation, body_axes_change).unbind(1)
    arm = rotate(gather_rows(free.orientation, bodies.owner), bodies.corner)
    # Acceleration (V, 3), m/s^2, that contact adds to the mesh nodes (Eq. 4).
    acceleration = (
        gather_rows(shift_rate, bodies.owner) + cross(gather_rows(rotation_rate, bodies.owner), arm)
    ) / dt
    free_corners = gather_rows(free.position, bodies.owner) + arm
    position, new_orientation = match_shape(bodies, free_corners + dt * dt * acceleration)
    return RigidBodyState(
        position,
        new_orientation,
        free.velocity + velocity_change,
        free.angular_velocity + angular_change,
    )
