"""Contact geometry: bring two bodies to touch along their approach, and express the impact in the
contact frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import batch
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.scene import Scene

_POS = int(mujoco.mjtStage.mjSTAGE_POS)
_GAP = 1e-5  # m: the bodies count as touching at this distance
_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Contact:
    """Contact frames of N impacts, world axes (planar scenes: the plane's axes, vectors of length
    2).

    point: where the surfaces touch; normal: unit, out of the striker into the struck body; shift:
    how far the struck body was moved to touch; touching: whether the approach ends in contact at
    all.
    """

    point: np.ndarray
    normal: np.ndarray
    shift: np.ndarray
    touching: np.ndarray


class PairPoser:
    """Writes planar or spatial poses and twists of the pair into batches of MuJoCo simulations."""

    def __init__(self, scene: Scene, height: float | np.ndarray | None = None) -> None:
        self.scene, self.plane = scene, scene.plane
        self.struck, self.striker = scene.struck_body, scene.striker_body
        if self.struck.fixed:
            raise DataError(
                f"the struck geom {scene.struck!r} is fixed to the world; name the moving geom as struck"
            )
        self.planar = self.plane is not None
        self.height = height

    def frames(self, pose: np.ndarray, body: str) -> tuple[np.ndarray, np.ndarray]:
        """World position (n, 3) and orientation (n, 3, 3) of a body for poses (n, 3) planar or (n,
        7).
        """
        mobility = getattr(self, body)
        if self.plane is None:
            norm = np.linalg.norm(pose[:, 3:7], axis=1)
            if (np.abs(norm - 1) > 1e-2).any():
                raise DataError(
                    f"impact {int(np.argmax(np.abs(norm - 1)))} has a quaternion of length {norm[np.argmax(np.abs(norm - 1))]:.3g}; the order is qw, qx, qy, qz"
                )
            return pose[:, :3], Rotation.from_quat(pose[:, 3:7], scalar_first=True).as_matrix()
        n = self.plane[2]
        height = mobility.position @ n
        if body == "struck" and self.height is not None:
            height = self.height
        position = pose[:, :2] @ self.plane[:2] + np.reshape(height, (-1, 1)) * n
        return position, Rotation.from_rotvec(pose[:, 2:3] * n).as_matrix() @ mobility.rotation

    def twists(self, twist: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """World linear and angular velocity (n, 3) for twists (n, 3) planar or (n, 6)."""
        if self.plane is None:
            return twist[:, :3], twist[:, 3:]
        return twist[:, :2] @ self.plane[:2], twist[:, 2:] * self.plane[2]

    def scene_twist(self, linear: np.ndarray, angular: np.ndarray) -> np.ndarray:
        """Inverse of `twists`."""
        if self.plane is None:
            return np.concatenate([linear, angular], axis=1)
        return np.concatenate([linear @ self.plane[:2].T, angular @ self.plane[2:].T], axis=1)

    def write(self, before: np.ndarray, qpos: np.ndarray, qvel: np.ndarray | None = None) -> None:
        """Write poses (and twists) of `before` into rows of qpos (and qvel)."""
        k = 3 if self.planar else 7
        d = before.shape[1] // 2
        for body, part in (("struck", before[:, :d]), ("striker", before[:, d:])):
            mobility = getattr(self, body)
            if mobility.fixed:
                continue
            position, rotation = self.frames(part[:, :k], body)
            qpos[:, mobility.qpos] = mobility.coordinates(position, rotation)
            if qvel is not None:
                qvel[:, mobility.qvel] = mobility.rates(*self.twists(part[:, k:]), rotation)

    def striker_at_reference(self, n: int) -> np.ndarray:
        """`before` rows (n, d) of the striker at its reference pose, at rest; the struck half is
        zero.
        """
        m = self.striker
        if self.plane is not None:
            pose = np.array([*(self.plane[:2] @ m.position), 0.0])
        else:
            pose = np.concatenate(
                [m.position, Rotation.from_matrix(m.rotation).as_quat(scalar_first=True)]
            )
        d = 6 if self.planar else 13
        before = np.zeros((n, 2 * d))
        before[:, d : d + len(pose)] = pose
        if not self.planar:
            before[:, 3] = 1.0
        return before


def advance_to_contact(
    scene: Scene,
    before: np.ndarray,
    direction: np.ndarray | None = None,
    *,
    back: float | None = None,
    iterations: int = 40,
) -> tuple[Contact, np.ndarray]:
    """Move the struck body along its approach until it just touches the striker; returns the
    contact and the moved `before`.

    `direction` (N, 2 or 3): way the struck body moves towards the striker; by default the relative
    velocity before contact. Bodies
    are first drawn apart by `back` (default: both bounding radii), so a recorded pose that is a
    little off or overlaps is accepted. For convex bodies stepping by distance over closing rate
    never passes the contact (conservative advancement).
    """
    poser = PairPoser(scene)
    dim = 2 if poser.planar else 3
    if direction is None:
        direction = approach(before, poser.planar)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    unit = np.divide(direction, length, out=np.zeros_like(direction), where=length > 0)
    if back is None:
        back = _reach(scene)
    out = before.copy()
    out[:, :dim] -= back * unit
    n = len(before)
    point, normal = np.zeros((n, dim)), np.zeros((n, dim))
    shift, touching = np.full(n, -back), np.zeros(n, bool)
    model = scene.probe
    ft, dist = model.sensor("clashsim/fromto").adr[0], model.sensor("clashsim/distance").adr[0]
    engine = batch.Batch(model, min(n, _CHUNK))
    qpos, data = engine.bind("qpos"), engine.bind("sensordata")
    basis = poser.plane[:2] if poser.plane is not None else np.eye(3)
    for start in range(0, n, _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, n))
        active = rows
        for _step in range(iterations):
            ids = active - start
            view = qpos[ids]
            poser.write(out[active], view)
            qpos[ids] = view
            engine.forward(ids=ids, stage=_POS)
            d = data[ids, dist]
            a, b = data[ids, ft : ft + 3], data[ids, ft + 3 : ft + 6]
            gap = (a - b) @ basis.T  # from the striker's nearest point to the struck body's
            far = np.linalg.norm(gap, axis=1)
            ok = (d > 0) & (far > 1e-12)
            nrm = np.where(ok[:, None], gap / np.maximum(far, 1e-12)[:, None], normal[active])
            point[active] = b @ basis.T
            normal[active] = nrm
            closing = -(nrm * unit[active]).sum(1)
            moving = ok & (closing > 1e-3) & (d > _GAP)
            touching[active] = ok & (d <= _GAP * 1.01) & (closing > 1e-3)
            # Approach to just above zero distance: at zero the nearest points coincide and no
            # normal is left.
            stride = np.where(
                moving, (np.maximum(d, 0) - 0.5 * _GAP) / np.maximum(closing, 1e-3), 0.0
            )
            stride = np.minimum(stride, 3 * back - shift[active])
            out[active, :dim] += stride[:, None] * unit[active]
            shift[active] += stride
            active = active[moving & (stride > 0)]
            if len(active) == 0:
                break
    return Contact(point, normal, shift, touching), out


def approach(before: np.ndarray, planar: bool) -> np.ndarray:
    """Velocity of the struck body's origin relative to the striker's, (N, 2 or 3)."""
    return before[:, 3:5] - before[:, 9:11] if planar else before[:, 7:10] - before[:, 20:23]


def _reach(scene: Scene) -> float:
    """A distance that surely parts the pair: their bounding radii about their bodies' origins."""
    model, total = scene.base, 0.0
    for geom in (scene.struck, scene.striker):
        g = model.geom(geom)
        if int(g.type[0]) != int(mujoco.mjtGeom.mjGEOM_PLANE):
            total += float(g.rbound[0]) + float(np.linalg.norm(g.pos)) * (g.bodyid[0] != 0)
    return 1.2 * total
