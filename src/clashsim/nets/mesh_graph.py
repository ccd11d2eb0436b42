"""A graph network for rigid contact, after FIGNet and the few-shot paper.

FIGNet is Allen et al. 2023; the equations cited here are those of the few-shot paper (2 to 4).
Nodes are the bodies. Edges are contacts: corners near planes, and the corners of pairs of near
faces. There are no nodes for corners and no edges along meshes: bodies are rigid, most corners are
far from any contact, and what a contact needs of the mesh is in its features. (FIGNet*,
Lopez-Guevara et al. 2024, leaves out the edges along meshes too.)

Each round of messages adds to the impulses on the corners of contacts, and the next one reads the
motion that follows from the impulses so far. So a round is like an iteration of a contact solver.
The laws that impulses obey are in `clashsim.nets.contact_impulses`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clashsim.nets.contact_features import (
    CONTACT_FEATURES,
    GRAVITY,
    RESPONSE_FEATURES,
    Contacts,
    FreeStep,
    corner_contacts,
    response_features,
)
from clashsim.nets.contact_impulses import ContactLaws, motion_change
from clashsim.nets.rigid_bodies import (
    RigidBodyState,
    gather_rows,
    rotate_inverse,
    rotation_from_vector,
)
from clashsim.nets.trained_domain import UNTRAINED, TrainedDomain

# Numbers that describe each kind of node and edge to the network.
_BODY_FEATURES = 10  # without the contact parameters, which are added to them
_OUTPUTS = 6  # two impulses: one changes velocities, the other displacements / dt


def _mlp(inputs: int, hidden: int, outputs: int, *, norm: bool = True) -> nn.Sequential:
    """A perceptron with one hidden layer, its outputs normalised or not."""
    layers: list[nn.Module] = [nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs)]
    if norm:
        layers.append(nn.LayerNorm(outputs))
    return nn.Sequential(*layers)


# The attribute names of the modules below are the names of the tensors in network files.


class _Layer(nn.Module):
    """One round of messages: contacts, then bodies; and what it adds to the impulses."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(hidden, hidden)
        self.response = nn.Linear(RESPONSE_FEATURES, hidden, bias=False)
        # There are fewer bodies than contacts, so that the products of the first linear layer are
        # taken once per body and then gathered.
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.other = nn.Linear(hidden, hidden, bias=False)
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.LayerNorm(hidden))
        self.body = _mlp(2 * hidden, hidden, hidden)
        self.out = nn.Linear(hidden, _OUTPUTS)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def update_contacts(
        self,
        contacts: Tensor,
        ends: Tensor,
        *,
        objects: Tensor,
        response: Tensor | None,
    ) -> Tensor:
        """States (K, hidden) of the contacts after this round.

        Args:
            contacts: (K, hidden), their states before.
            ends: (2, K), own and other node of each contact.
            objects: (O + 1, hidden), states of the bodies, and the node of all fixed surfaces.
            response: (K, 11), motion under the impulses so far; None if there are none yet.
        """
        own, other = ends
        own, other = ends
        # Sums are made in place: on a CPU a new array costs more than the sum.
        total = self.enter(contacts)
        total += gather_rows(self.own(objects), own)
        total += gather_rows(self.other(objects), other)
        if response is not None:
            total += self.response(response)
        after = self.rest(total)
        after += contacts
        return after


class GraphNet(nn.Module):
    """Impulses of contact from bodies in free motion and their contacts.

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
        self.body = _mlp(_BODY_FEATURES + contact, hidden, hidden)
        self.near = _mlp(CONTACT_FEATURES, hidden, hidden)
        self.layers = nn.ModuleList(_Layer(hidden) for _ in range(layers))
        # The node of all fixed surfaces: they have no state, so it is the same everywhere.
        self.floor = nn.Parameter(torch.zeros(hidden))

    def forward(self, step: FreeStep, contacts: Contacts) -> Tensor:
        """Compute the impulses of contact over one step.

        Args:
            step: The bodies in free motion.
            contacts: Corners near planes and the C face pairs that are near, one or more in all.

        Returns:
            Linear (N s), then angular (N m s) impulses on every body, (O, 2, 6), world axes. The
            first of the two changes velocities over the step, the second displacements / dt.
        """
        corners = corner_contacts(step, contacts)
        # The first contact parameter is the friction coefficient.
        friction = self.domain.friction(step.bodies.contact[:, 0])
        laws = ContactLaws.of(step, corners, friction)
        return laws.impulses(self._outputs(laws))

    def _outputs(self, laws: ContactLaws) -> Tensor:
        """Outputs (K, 6), the sum over all rounds of messages, in the axes of own bodies."""
        corners = laws.corners
        dtype = self.floor.dtype
        objects = self._encode_bodies(laws.step)
        contacts = self.near(corners.features.to(dtype))
        weight = corners.weight.to(dtype)[:, None]
        own, other = corners.ends
        surface = len(objects)
        ends = torch.stack([own, torch.where(corners.present[1] > 0, other, surface)])
        raw = torch.zeros(len(contacts), _OUTPUTS, dtype=dtype, device=contacts.device)
        response = None
        for i, layer in enumerate(self._layers()):
            if i > 0:
                response = response_features(corners, laws.response(raw)).to(dtype)
            nodes = torch.cat([objects, self.floor[None]])
            contacts = layer.update_contacts(contacts, ends, objects=nodes, response=response)
            raw = raw + layer.out(contacts)
            if i + 1 == len(self.layers):
                break  # nobody reads the bodies' states after the last round
            from_contacts = torch.zeros_like(objects).index_add(0, own, weight * contacts)
            objects = objects + layer.body(torch.cat([objects, from_contacts], 1))
        return raw

    def _encode_bodies(self, step: FreeStep) -> Tensor:
        """First states (O, hidden) of the bodies."""
        bodies, free = step.bodies, step.free
        length = bodies.length[:, None]
        relative_step = step.relative_step[:, None]
        angular_velocity = rotate_inverse(free.orientation, free.angular_velocity)
        # Rotation per step, as if the step were the usual one for bodies of this size.
        rotation = angular_velocity * (step.dt / relative_step)
        inertia_ratio = bodies.inertia / (bodies.mass[:, None] * length**2)
        gravity = rotate_inverse(free.orientation, step.gravity.expand_as(free.velocity)) / GRAVITY
        body_features = torch.cat(
            [rotation, inertia_ratio, bodies.contact, gravity, torch.log(relative_step)], 1
        )
        return self.body(body_features.to(self.floor.dtype))

    def _layers(self) -> Iterator[_Layer]:
        """The rounds of messages, typed as `_Layer` for the type checker."""
        for layer in self.layers:
            assert isinstance(layer, _Layer)
            yield layer


def step_with_contacts(net: GraphNet, step: FreeStep, contacts: Contacts) -> RigidBodyState:
    """The state after one step: bodies move by Verlet's rule and stay rigid.

    With p(t - dt) = p(t) - dt v and the acceleration of free motion put apart, Verlet's p(t + dt) =
    2 p(t) - p(t - dt) + dt^2 a (Eq. 4) is the place in free motion plus dt^2 times the acceleration
    that contact adds. The paper moves corners so, and then looks for the rigid motion nearest to
    them; impulses on a rigid body give that motion at once. Velocities get the impulses themselves.

    Args:
        net: Gives the impulses.
        step: The bodies in free motion.
        contacts: Corners near planes and face pairs that are near.

    Returns:
        The state at the end of the step.
    """
    free, dt = step.free, step.dt
    if len(contacts) == 0:
        return free
    # Of the two changes of each body the first is of velocities, the second of displacements / dt.
    changes = motion_change(step, net(step, contacts)).unbind(1)
    (velocity_change, angular_change), (shift_rate, rotation_rate) = (
        change.split(3, 1) for change in changes
    )
    position = free.position + dt * shift_rate
    orientation = rotation_from_vector(dt * rotation_rate) @ free.orientation
    return RigidBodyState(
        position,
        orientation,
        free.velocity + velocity_change,
        free.angular_velocity + angular_change,
    )
