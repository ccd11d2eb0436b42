"""When inside a step two bodies touch, and what a collision in mid-step does to the rest of it."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.sim.hybrid.pairs import TOUCH, CompiledPair
from clashsim.sim.hybrid.simulation_rows import SimulationRows

_TRIES = 30
_GROWTH = 0.1  # of the time since a collision, that a step may take


@dataclass(frozen=True, eq=False)
class Step:
    """States (a, .) at the beginning of a step of length h (a,) of a simulations."""

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    time: np.ndarray
    h: np.ndarray

    def __getitem__(self, which: np.ndarray) -> Step:
        return Step(
            self.qpos[which], self.qvel[which], self.act[which], self.time[which], self.h[which]
        )

    def way(self, model: mujoco.MjModel, i: int, end: np.ndarray) -> np.ndarray:
        """Constant velocity (nv,) that leads simulation i from the beginning of the step to `end`;
        MuJoCo's integrators move by one.
        """
        out = np.zeros(model.nv)
        mujoco.mj_differentiatePos(
            model, out, float(self.h[i]), self.qpos[i], np.ascontiguousarray(end)
        )
        return out

    def place(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        i: int,
        share: float,
        way: np.ndarray,
        velocity: np.ndarray | None = None,
    ) -> None:
        """Put `data` where simulation i was after a share of the step, moving as it did if its
        velocity at the end is given.
        """
        data.qpos[:] = self.qpos[i]
        mujoco.mj_integratePos(model, data.qpos, way, share * float(self.h[i]))
        if velocity is not None:
            data.qvel[:] = self.qvel[i] + share * (velocity - self.qvel[i])

    def touching(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        couple: CompiledPair,
        i: int,
        way: np.ndarray,
    ) -> float | None:
        """Share of the step after which a pair of simulation i touches; None where it does not
        quite, 0 where it did all along.

        A pair that began the step closer than touching, but not yet overlapping, touched a few
        microseconds earlier: a share below zero.
        """

        def gap(share: float) -> float:
            self.place(model, data, i, share, way)
            mujoco.mj_kinematics(model, data)
            return couple.distance(model, data) - TOUCH

        a, b, at_a, at_b = 0.0, 1.0, gap(0.0), gap(1.0)
        if at_a <= 0:
            back = 2 * TOUCH / max(at_a - at_b, 1e-12)
            if at_a < -TOUCH or back > 1:
                return 0.0
            a, b, at_a, at_b = -back, 0.0, gap(-back), at_a
            if at_a <= 0:
                return 0.0
        elif at_b > 0:
            return None
        share = 1.0
        for _ in range(
            _TRIES
        ):  # regula falsi; halving the value that stays (Illinois) keeps it from creeping
            share = (a * at_b - b * at_a) / (at_b - at_a)
            here = gap(share)
            if abs(here) < 0.2 * TOUCH:
                break
            if here > 0:
                a, at_a, at_b = share, here, at_b / 2
            else:
                b, at_b, at_a = share, here, at_a / 2
        return share

    def rewind(self, world: SimulationRows, row: int, i: int, share: float) -> None:
        """Take simulation i, at `row` of the world, back to a share of the step."""
        way = self.way(world.model(row), i, world.qpos[row])
        qpos = self.qpos[i].copy()
        mujoco.mj_integratePos(world.model(row), qpos, way, share * float(self.h[i]))
        world.qpos[row] = qpos
        world.qvel[row] = self.qvel[i] + share * (world.qvel[row] - self.qvel[i])
        world.act[row] = self.act[i] + share * (world.act[row] - self.act[i])
        world.time[row] = self.time[i] + share * float(self.h[i])


def shortened(left: np.ndarray, since: np.ndarray, fine: float) -> np.ndarray:
    """Steps (n,) for simulations with `left` (n,) s to go whose last learned collision was `since`
    (n,) s ago, zero for none.

    A sudden twist shakes soft ground for a few milliseconds; steps that begin short and grow with
    time follow that and cost little.
    """
    h = np.where(since > 0, np.minimum(left, np.maximum(fine, _GROWTH * since)), left)
    return left / np.ceil(left / h - 1e-6)


def settle(
    world: SimulationRows,
    rows: np.ndarray,
    last: Step,
    couple: CompiledPair,
    *,
    euler: bool,
    flat: bool,
) -> None:
    """Correct how bodies (rows (a,) of the world, all of `last`) slid in the step just taken.

    euler: move them by the mean of their velocities before and after the step. MuJoCo's Euler
    integrators move a body by its velocity at the end of a step, so that one which starts at v and
    is slowed to rest stops v dt / 2 short, whatever slows it. In the plane of sliding this takes
    that back, and the pose at rest hardly depends on the timestep.
    flat: take tilt and tilting out of free bodies that slide on a plane, as the scene says that
    they do. The few contact points of a mesh or a box make it rock after a sudden twist, the more
    so the longer the step, and a body that rocks slides farther.
    """
    body, n = couple.body, couple.normal
    qpos, qvel = world.qpos[rows], world.qvel[rows]
    if euler:
        half = 0.5 * last.h[:, None]
        change = half * (last.qvel[:, body.qvel] - qvel[:, body.qvel])
    if not body.free:
        if euler:
            qpos[:, body.qpos] += change
            world.qpos[rows] = qpos
        return
    quat, rate = qpos[:, body.qpos[3:]], qvel[:, body.qvel[3:]]
    spin = _dot(turned(quat, rate), n)[:, None]
    turn = np.zeros((len(rows), 3))
    if euler:
        was = _dot(turned(last.qpos[:, body.qpos[3:]], last.qvel[:, body.qvel[3:]]), n)[:, None]
        qpos[:, body.qpos[:3]] += change[:, :3] - _dot(change, n)[:, None] * n
        turn += half * (was - spin) * n
    if flat:
        turn += _cross(
            turned(quat, couple.up[None]), n
        )  # small, so that the size of the product is the angle
        qvel[:, body.qvel[3:]] = (
            spin * couple.up
        )  # which is the normal, in the axes of a body that has been levelled
        world.qvel[rows] = qvel
    qpos[:, body.qpos[3:]] = after_turn(quat, turn)
    world.qpos[rows] = qpos


# Written out by components, because matrix products round differently with the number of rows, and
# a row's bits must not depend on others.


def turned(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Vectors (n, 3) turned by quaternions wxyz (n, 4)."""
    across = 2 * _cross(quat[:, 1:], v)
    return v + quat[:, :1] * across + _cross(quat[:, 1:], across)


def after_turn(quat: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Quaternions (n, 4) after a further turn (n, 3), rad, world axes."""
    size = np.sqrt(_dot(turn, turn))[:, None]
    w, xyz, c, t = (
        quat[:, :1],
        quat[:, 1:],
        np.cos(size / 2),
        0.5 * np.sinc(size / (2 * np.pi)) * turn,
    )
    out = np.concatenate([c * w - _dot(t, xyz)[:, None], c * xyz + w * t + _cross(t, xyz)], axis=1)
    return out / np.sqrt(out[:, :1] ** 2 + _dot(out[:, 1:], out[:, 1:])[:, None])


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As numpy's, which takes longer to find its axes than to multiply."""
    out = np.empty(np.broadcast_shapes(a.shape, b.shape))
    (ax, ay, az), (bx, by, bz) = a.T, b.T
    out.T[0], out.T[1], out.T[2] = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    return out
