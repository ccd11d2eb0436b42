"""From the outcome of one body of an impact to that of the other.

An impulse p at the contact changes the twist of the struck body by A p, where A is its inverse
inertia there, and that of the striker by -B p, with B the striker's. So the change of one twist
gives that of the other, with nothing to be known of the contact itself, and two free bodies keep
their momentum.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from clashsim.core.angles import rotate_planar
from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import MotionBefore
from clashsim.core.params import pair_rows
from clashsim.core.scene import STRIKE, Scene
from clashsim.sim.contact.pair_motion import Fields, MovingPair, model_fields
from clashsim.sim.contact.problem import STRIKER, STRUCK, PairMotion

# Relative size of an eigenvalue of the inverse inertia, below which a body does not move that way.
_SMALLEST_RESPONSE = 1e-9
# Where the struck body's outcome leaves the impulse open, because it cannot move in all directions,
# the impulse acts along the normal: squares of how much less likely anything else is.
_UNLIKELY = 1e-4


class ImpulseResponse:
    """How the twists of both bodies of N impacts change together.

    Attributes:
        scene: The scene.
        before: (N, d), columns as in `Impacts`, of pairs that touch.
        contact: Where they touch.
    """

    def __init__(self, scene: Scene, before: np.ndarray, contact: Contact) -> None:
        self.scene = scene
        self.before = before
        self.contact = contact
        self._pair = MovingPair(scene, before)
        self._to_scene = _to_scene(scene)

    def striker_per_struck(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Change of the striker's twist per change of the struck body's.

        Args:
            rows: (M,), indices of impacts.
            theta: (M, p), their parameters, natural units.

        Returns:
            (M, k, k), from twists of the struck body's recorded origin to twists of the striker's
            origin, both in the axes of the scene, in m/s and rad/s.
        """
        fields = model_fields(self.scene, theta)
        point = self._world_point[rows]
        # World axes, with the origin at the contact.
        axes = np.broadcast_to(np.eye(3), (len(rows), 3, 3))
        motion, _ = self._pair.at_contact(rows, fields, point, axes)
        offset = self._recorded_offset(rows, theta)
        struck = self._coordinates(motion, STRUCK, motion.origin[:, STRUCK] - offset)
        striker = self._coordinates(motion, STRIKER, motion.origin[:, STRIKER])
        if motion.driven[STRIKER]:
            striker = self._with_drive(motion, fields, striker)
        per_impulse = striker @ np.swapaxes(striker, 1, 2)
        impulse = self._impulse_per_change(rows, struck @ np.swapaxes(struck, 1, 2))
        to_contact = self._at_contact(motion.origin[:, STRUCK])
        from_contact = np.linalg.inv(self._at_contact(motion.origin[:, STRIKER]))
        return -from_contact @ per_impulse @ impulse @ to_contact

    @cached_property
    def _world_point(self) -> np.ndarray:
        """Contact points (N, 3), m, world axes."""
        if self.scene.plane is None:
            return self.contact.point
        height = self._pair.bodies[STRUCK].position @ self.scene.plane[2]
        return self.contact.point @ self.scene.plane[:2] + height[:, None] * self.scene.plane[2]

    @cached_property
    def _gyration(self) -> float:
        """Radius of gyration of the struck body, m."""
        return inertia(self.scene, self.scene.struck_body).gyration

    def _recorded_offset(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """From the struck body's own origin to that of its recorded frame, (M, 3), m, world."""
        values = {param.target: theta[:, i] for i, param in enumerate(self.scene.params)}
        if self.scene.plane is None or not {"effect/x", "effect/y"} & values.keys():
            return np.zeros((len(rows), 3))
        zero = np.zeros(len(rows))
        in_body = np.stack([values.get("effect/x", zero), values.get("effect/y", zero)], 1)
        yaw = MotionBefore.of(self.before[rows]).struck.yaw - values.get("effect/yaw", zero)
        return rotate_planar(in_body, yaw) @ self.scene.plane[:2]

    def _coordinates(self, motion: PairMotion, b: int, origin: np.ndarray) -> np.ndarray:
        """Twists (M, k, D) of unit-mass coordinates of body b at the contact, axes of the scene.

        In a plane, without what would leave it.

        Args:
            motion: Of both bodies, from the contact, in world axes.
            b: The body.
            origin: (M, 3), m, of the body, from the contact.
        """
        basis = _shifted(-origin) @ motion.basis[:, b, :, : motion.columns[b]]
        inside = self._to_scene @ basis
        if self.scene.plane is None:
            return inside
        plane = self.scene.plane
        leaving = np.concatenate(
            [plane[2:] @ basis[:, :3], plane[:2] @ basis[:, 3:]],
            axis=1,
        )
        staying = np.eye(basis.shape[2]) - np.linalg.pinv(leaving, _SMALLEST_RESPONSE) @ leaving
        return inside @ staying

    def _with_drive(
        self, motion: PairMotion, fields: Fields, coordinates: np.ndarray
    ) -> np.ndarray:
        """Coordinates (M, k, D) of a striker whose servos and dampers resist during the contact.

        They count as if the joints had more inertia.
        """
        count = coordinates.shape[2]
        row = pair_rows(self.scene.base, STRIKE)[0]
        duration = _contact_duration(fields["pair_solref"][:, row])
        resisting = duration[:, None, None] * motion.damping[:, STRIKER, :count, :count]
        factor = np.linalg.cholesky(np.eye(count) + resisting)
        return coordinates @ np.swapaxes(np.linalg.inv(factor), 1, 2)

    def _impulse_per_change(self, rows: np.ndarray, response: np.ndarray) -> np.ndarray:
        """Impulse at the contact (M, k, k) per change of the struck body's twist there.

        Args:
            rows: (M,), indices of impacts.
            response: (M, k, k), change of the struck body's twist per impulse.
        """
        k = response.shape[1]
        linear = 2 if k == 3 else 3
        scale = np.r_[np.ones(linear), np.full(k - linear, self._gyration)]
        scaled = scale[:, None] * response * scale
        normal = self.contact.normal[rows]
        likely = np.zeros_like(response)
        likely[:] = _UNLIKELY * np.eye(k)
        likely[:, :linear, :linear] += (1 - _UNLIKELY) * normal[:, :, None] * normal[:, None]
        whole = scaled @ likely @ scaled
        impulse = likely @ scaled @ np.linalg.pinv(whole, _SMALLEST_RESPONSE, hermitian=True)
        return scale[:, None] * impulse * scale

    def _at_contact(self, origin: np.ndarray) -> np.ndarray:
        """(M, k, k): from the twist of a body's origin (M, 3), m, to its twist at the contact."""
        return self._to_scene @ _shifted(-origin) @ self._to_scene.T


def _to_scene(scene: Scene) -> np.ndarray:
    """(k, 6): from twists in world axes to those of the scene's impacts."""
    if scene.plane is None:
        return np.eye(6)
    matrix = np.zeros((3, 6))
    matrix[:2, :3] = scene.plane[:2]
    matrix[2, 3:] = scene.plane[2]
    return matrix


def _shifted(arm: np.ndarray) -> np.ndarray:
    """(M, 6, 6): from a body's twist at a point to that at another, `arm` (M, 3), m, from it."""
    matrix = np.tile(np.eye(6), (len(arm), 1, 1))
    # Column j is the velocity by a rotation of 1 rad/s about axis j.
    matrix[:, :3, 3:] = np.swapaxes(np.cross(np.eye(3), arm[:, None]), 1, 2)
    return matrix


def _contact_duration(solref: np.ndarray) -> np.ndarray:
    """Durations (M,), s, of contacts with `solref` (M, 2): half a period of their spring."""
    first, second = solref.T
    with np.errstate(invalid="ignore"):
        return np.where(first < 0, np.pi / np.sqrt(-first), np.pi * first * second)
