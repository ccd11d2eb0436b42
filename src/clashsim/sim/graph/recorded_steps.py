"""Steps of many scenes on a device, recorded once as a CUDA graph and then replayed.

A step is some hundred small kernels, whose launch takes longer than their work. All arrays of a
recorded step have constant shapes, so contacts need places. Their number is measured at the start
and grows when a search needed more: the steps since the last check are then made again.
"""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from clashsim.nets.contact_features import FreeStep
from clashsim.nets.face_search import ContactSearch, SearchPlaces, find_contacts
from clashsim.nets.mesh_graph import GraphNet, step_with_contacts
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState, free_motion

_MARGIN = 1.5  # places over those that were needed
_SPARE = 64  # places beside that
_CHECKED_EVERY = 16  # steps after which it is checked that all contacts had places
_WARM_UP = 2  # steps before a recording, which CUDA graphs need


class RecordedSteps:
    """Advances scenes on a device.

    Attributes:
        net: The network, on the device.
        bodies: The bodies of all scenes, on the device.
        gravity: (3,), m/s^2.
        dt: s, duration of a step.
        search: What collision detection compares, without places.
        places: Places for contacts; None on a CPU, where shapes may vary.
    """

    def __init__(
        self,
        net: GraphNet,
        bodies: RigidBodies,
        gravity: Tensor,
        *,
        dt: float,
        search: ContactSearch,
    ) -> None:
        self.net = net
        self.bodies = bodies
        self.gravity = gravity
        self.dt = dt
        counts = bodies.first_face[1:] - bodies.first_face[:-1]
        needed = torch.zeros(len(fields(SearchPlaces)), dtype=torch.long, device=gravity.device)
        self.search = replace(search, needed=needed, most_faces=int(counts.max()))
        self.places: SearchPlaces | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._state: RigidBodyState | None = None  # the state that the recorded step changes

    @torch.no_grad()
    def __call__(self, start: RigidBodyState, steps: int) -> list[RigidBodyState]:
        """States after each step.

        Args:
            start: State of all bodies, on the device.
            steps: Number of steps.
        """
        if self.gravity.device.type != "cuda":
            return self._run(start, steps)
        if self.places is None:
            find_contacts(self.bodies, start, replace(self.search, most_faces=0))
            self._record(start)
        states: list[RigidBodyState] = []
        while len(states) < steps:
            begin = states[-1] if states else start
            chunk = self._replay(begin, min(_CHECKED_EVERY, steps - len(states)))
            if self._had_places():
                states += chunk
            else:
                self._record(begin)
        return states

    def _run(self, state: RigidBodyState, steps: int) -> list[RigidBodyState]:
        """States after each step, in arrays of varying shapes."""
        states = []
        search = replace(self.search, needed=None, most_faces=0)
        for _ in range(steps):
            state = self._step(state, search)
            states.append(state)
        return states

    def _step(self, state: RigidBodyState, search: ContactSearch) -> RigidBodyState:
        """The state after one step."""
        free = free_motion(self.bodies, state, self.gravity, self.dt)
        contacts = find_contacts(self.bodies, state, search)
        step = FreeStep(self.bodies, state, free, self.gravity, self.dt)
        return step_with_contacts(self.net, step, contacts)

    def _had_places(self) -> bool:
        """Whether all that the searches found so far had places."""
        assert self.search.needed is not None and self.places is not None
        places = [getattr(self.places, field.name) for field in fields(SearchPlaces)]
        found = self.search.needed.tolist()
        return all(count <= place for count, place in zip(found, places, strict=True))

    def _record(self, start: RigidBodyState) -> None:
        """Record a step with places for more contacts than were found so far."""
        assert self.search.needed is not None
        counts = self.search.needed.tolist()
        self.places = SearchPlaces(*(int(_MARGIN * count) + _SPARE for count in counts))
        search = replace(self.search, places=self.places)
        state = RigidBodyState(*(getattr(start, field.name).clone() for field in fields(start)))
        self._state = state
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step(state, search)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            after = self._step(state, search)
            for field in fields(state):
                getattr(state, field.name).copy_(getattr(after, field.name))

    def _replay(self, start: RigidBodyState, steps: int) -> list[RigidBodyState]:
        """States after each recorded step."""
        assert self._graph is not None and self._state is not None
        names = [field.name for field in fields(start)]
        for name in names:
            getattr(self._state, name).copy_(getattr(start, name))
        states = []
        for _ in range(steps):
            self._graph.replay()
            states.append(RigidBodyState(*(getattr(self._state, name).clone() for name in names)))
        return states
