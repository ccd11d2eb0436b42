"""Impacts in the contact frame: dimensionless features in, dimensionless change of twist out.

Rigid impacts look alike when seen from the contact point and divided by the approach speed, so a
model in these terms needs far fewer samples than one in world coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.contact_geometry import Contact, advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

PLANAR_FEATURES = (
    "struck_x",
    "struck_y",
    "struck_nx",
    "struck_ny",
    "striker_x",
    "striker_y",
    "striker_nx",
    "striker_ny",
    "struck_vn",
    "struck_vt",
    "struck_w",
    "striker_vn",
    "striker_vt",
    "striker_w",
    "log_speed",
)
SPATIAL_FEATURES = (
    *(f"struck_{c}" for c in ("x", "y", "z", "nx", "ny", "nz", "tx", "ty", "tz")),
    *(f"striker_{c}" for c in ("x", "y", "z", "nx", "ny", "nz", "tx", "ty", "tz")),
    *(f"{b}_{c}" for b in ("struck", "striker") for c in ("vn", "vt", "vb", "wn", "wt", "wb")),
    "log_speed",
)


@dataclass(frozen=True)
class Inertia:
    """Mass (kg), mass centre in the body's frame (m) and radius of gyration (m) about the plane's
    normal, or the mean one in space.
    """

    mass: float
    centre: tuple[float, float, float]
    gyration: float


def inertia(scene: Scene, body: Mobility, model: mujoco.MjModel | None = None) -> Inertia:
    """Inertia of all that is welded to a body."""
    model = model or scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    parts = [b for b in range(1, model.nbody) if int(model.body_weldid[b]) == body.body]
    mass = sum(float(model.body_mass[b]) for b in parts)
    if body.fixed or mass <= 0:
        return Inertia(np.inf, (0.0, 0.0, 0.0), 1.0)
    centre = sum(model.body_mass[b] * data.xipos[b] for b in parts) / mass
    total = np.zeros((3, 3))
    for b in parts:
        axes, arm = data.ximat[b].reshape(3, 3), data.xipos[b] - centre
        total += axes @ np.diag(model.body_inertia[b]) @ axes.T + model.body_mass[b] * (
            arm @ arm * np.eye(3) - np.outer(arm, arm)
        )
    about = (
        scene.plane[2] @ total @ scene.plane[2] if scene.plane is not None else np.trace(total) / 3
    )
    local = body.rotation.T @ (centre - body.position)
    return Inertia(
        mass, (float(local[0]), float(local[1]), float(local[2])), float(np.sqrt(about / mass))
    )


@dataclass(frozen=True, eq=False)
class ContactFrame:
    """N impacts seen from their contacts.

    features (N, f), names `PLANAR_FEATURES` or `SPATIAL_FEATURES`: where the contact lies on each body (in its own
    axes, over the radius of gyration), the normal in each body's axes, twists along (normal,
    tangent) over the approach speed, and log speed. axes (N, k, k): rows map a world twist of the
    struck body's origin, as (v, w), to its mass centre's (v, gyration * w) along the contact's
    axes.
    """

    features: np.ndarray
    axes: np.ndarray
    twist_before: (
        np.ndarray
    )  # (N, k): the struck body's twist before, along the contact's axes, m/s
    speed: np.ndarray  # (N,): approach speed at the contact, m/s
    contact: Contact
    names: tuple[str, ...]
    # (N, k'): contact point from the struck body's mass centre along the contact's axes, over the
    # radius of gyration
    arm: np.ndarray
    tangential_offset: (
        np.ndarray
    )  # (N, 1 or 2): where along the striker's surface the struck body's origin stands, m
    relative_orientation: (
        np.ndarray
    )  # (N, 2 or 4): orientation of the struck body relative to the striker, as cosines and sines

    def encode(self, after: np.ndarray) -> np.ndarray:
        """Dimensionless change of twist (N, k) for twists after (N, k)."""
        return (np.einsum("nij,nj->ni", self.axes, after) - self.twist_before) / self.speed[:, None]

    def decode(self, change: np.ndarray) -> np.ndarray:
        """Inverse of `encode`; `change` may have leading axes (..., N, k)."""
        return np.einsum(
            "nij,...nj->...ni",
            np.linalg.inv(self.axes),
            change * self.speed[:, None] + self.twist_before,
        )

    def __getitem__(self, rows: np.ndarray) -> ContactFrame:
        c = self.contact
        return ContactFrame(
            self.features[rows],
            self.axes[rows],
            self.twist_before[rows],
            self.speed[rows],
            Contact(c.point[rows], c.normal[rows], c.shift[rows], c.touching[rows]),
            self.names,
            self.arm[rows],
            self.tangential_offset[rows],
            self.relative_orientation[rows],
        )


def contact_frame(scene: Scene, impacts: Impacts, *, strict: bool = True) -> ContactFrame:
    """See impacts from their contacts; refuses rows whose bodies never meet along their approach
    unless told not to be strict.
    """
    if impacts.planar != (scene.plane is not None):
        kinds = ("planar", "spatial")
        raise DataError(
            f"the impacts are {kinds[not impacts.planar]} but scene {scene.name!r} is {kinds[scene.plane is None]}"
        )
    contact, moved = advance_to_contact(scene, impacts.before)
    if strict and not contact.touching.all():
        rows = np.flatnonzero(~contact.touching)
        which = ", ".join(map(str, rows[:8])) + (" and more" if len(rows) > 8 else "")
        raise DataError(
            f"in impacts {which} the bodies do not meet along their approach: check poses, velocities, units and frames"
        )
    return frame_at_contact(scene, moved, contact)


def frame_at_contact(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    """Impacts of bodies that touch already, (N, d), seen from contacts that are known."""
    return (
        _planar(scene, before, contact)
        if scene.plane is not None
        else _spatial(scene, before, contact)
    )


def _planar(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    n = contact.normal
    t = np.stack([-n[:, 1], n[:, 0]], 1)
    axes2 = np.stack([n, t], 1)  # (N, 2, 2)
    gyration = inertia(scene, scene.struck_body).gyration
    columns, spot = [], {}
    for body, part in (("struck", before[:, :6]), ("striker", before[:, 6:])):
        mobility: Mobility = getattr(scene, f"{body}_body")
        arm = contact.point - part[:, :2]
        spot[body] = part[:, 3:5] + part[:, 5:6] * np.stack([-arm[:, 1], arm[:, 0]], 1)
        c, s = np.cos(part[:, 2]), np.sin(part[:, 2])
        own = np.stack([np.stack([c, s], 1), np.stack([-s, c], 1)], 1)  # world to body
        if body == "striker" and scene.striker_is_round:
            # A ball has no orientation of its own, and what was recorded of it must not matter
            own = axes2
        where = np.einsum("nij,nj->ni", own, arm) / gyration
        if mobility.fixed:
            where = np.zeros_like(where)  # a fixed floor or wall looks the same all along
        columns += [where, np.einsum("nij,nj->ni", own, n)]
    speed = np.maximum(np.linalg.norm(spot["struck"] - spot["striker"], axis=1), 1e-6)
    com = _centre(scene, before[:, 2])
    struck = np.einsum(
        "nij,nj->ni", axes2, before[:, 3:5] + before[:, 5:6] * np.stack([-com[:, 1], com[:, 0]], 1)
    )
    striker = np.einsum("nij,nj->ni", axes2, before[:, 9:11])
    rates = (
        np.column_stack([struck, gyration * before[:, 5], striker, gyration * before[:, 11]])
        / speed[:, None]
    )
    axes = np.zeros((len(before), 3, 3))
    axes[:, :2, :2] = axes2
    axes[:, :2, 2] = np.einsum("nij,nj->ni", axes2, np.stack([-com[:, 1], com[:, 0]], 1))
    axes[:, 2, 2] = gyration
    start = np.column_stack([struck, gyration * before[:, 5]])
    arm = np.einsum("nij,nj->ni", axes2, contact.point - before[:, :2] - com) / gyration
    place = ((before[:, :2] - before[:, 6:8]) * t).sum(1, keepdims=True)
    turn = before[:, 2] - (np.arctan2(n[:, 1], n[:, 0]) if scene.striker_is_round else before[:, 8])
    return ContactFrame(
        np.column_stack([*columns, rates, np.log(speed)]),
        axes,
        start,
        speed,
        contact,
        PLANAR_FEATURES,
        arm,
        place,
        np.column_stack([np.cos(turn), np.sin(turn)]),
    )


def _centre(scene: Scene, yaw: np.ndarray) -> np.ndarray:
    """In-plane offset (N, 2) from the struck body's origin to its mass centre at a given yaw."""
    assert scene.plane is not None
    local = scene.plane[:2] @ (
        scene.struck_body.rotation @ np.array(inertia(scene, scene.struck_body).centre)
    )
    c, s = np.cos(yaw), np.sin(yaw)
    return np.stack([c * local[0] - s * local[1], s * local[0] + c * local[1]], 1)


def _spatial(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    n = contact.normal
    own, arms, spot = {}, {}, {}
    parts = {"struck": before[:, :13], "striker": before[:, 13:]}
    for body, part in parts.items():
        own[body] = Rotation.from_quat(part[:, 3:7], scalar_first=True).as_matrix()
        arms[body] = contact.point - part[:, :3]
        spot[body] = part[:, 7:10] + np.cross(part[:, 10:13], arms[body])
    relative = spot["struck"] - spot["striker"]
    speed = np.maximum(np.linalg.norm(relative, axis=1), 1e-6)
    slip = relative - (relative * n).sum(1, keepdims=True) * n
    fallback = np.cross(n, np.where(np.abs(n[:, :1]) < 0.7, [[1.0, 0, 0]], [[0, 1.0, 0]]))
    slip = np.where(
        np.linalg.norm(slip, axis=1, keepdims=True) > 1e-9 * speed[:, None], slip, fallback
    )
    t = slip / np.linalg.norm(slip, axis=1, keepdims=True)
    axes3 = np.stack([n, t, np.cross(n, t)], 1)
    if scene.striker_is_round:
        own["striker"] = np.swapaxes(axes3, 1, 2)
    struck = inertia(scene, scene.struck_body)
    columns, rates = [], []
    for body, part in parts.items():
        into = np.swapaxes(own[body], 1, 2)
        where = np.einsum("nij,nj->ni", into, arms[body]) / struck.gyration
        if getattr(scene, f"{body}_body").fixed:
            where = np.zeros_like(where)
        columns += [where, np.einsum("nij,nj->ni", into, n), np.einsum("nij,nj->ni", into, t)]
        offset = (
            np.einsum("nij,j->ni", own[body], np.array(struck.centre))
            if body == "struck"
            else np.zeros_like(n)
        )
        linear = part[:, 7:10] + np.cross(part[:, 10:13], offset)
        rates += [
            np.einsum("nij,nj->ni", axes3, linear),
            struck.gyration * np.einsum("nij,nj->ni", axes3, part[:, 10:13]),
        ]
    axes = np.zeros((len(before), 6, 6))
    axes[:, :3, :3] = axes3
    com = np.einsum("nij,j->ni", own["struck"], np.array(struck.centre))
    cross = np.cross(
        np.eye(3)[None], com[:, None]
    )  # rows: e_i x com, so that v_com = v + sum_i w_i (e_i x com)
    axes[:, :3, 3:] = np.einsum("nij,nkj->nik", axes3, cross)
    axes[:, 3:, 3:] = struck.gyration * axes3
    start = np.column_stack(rates[:2])
    arm = np.einsum("nij,nj->ni", axes3, arms["struck"] - com) / struck.gyration
    into = np.swapaxes(own["striker"], 1, 2)
    gap = before[:, :3] - before[:, 13:16]
    place = np.einsum("nij,nj->ni", into, gap - (gap * n).sum(1, keepdims=True) * n)
    turn = np.einsum("nij,njk->nik", into, own["struck"]).reshape(-1, 9)[:, [0, 1, 3, 4]]
    return ContactFrame(
        np.column_stack([*columns, np.column_stack(rates) / speed[:, None], np.log(speed)]),
        axes,
        start,
        speed,
        contact,
        SPATIAL_FEATURES,
        arm,
        place,
        turn,
    )
