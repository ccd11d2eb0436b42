"""Constant parameters by the slopes of MJX, on short windows around contact.

A window is short because a slope through many contacts says little: after a few bounces the
smallest change of a parameter moves everything. All starts descend at once; intervals and verdicts
are those of `clashsim.fit.gradient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.stats import qmc

from clashsim.core.errors import DataError
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import prior_sd
from clashsim.fit.gradient import FLOOR, Constants, deviation, told
from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins
from clashsim.sim.inputs import check_rollout
from clashsim.sim.mjx.impact_jacobian import cap_residuals, least_squares_from_starts
from clashsim.sim.mjx.simulator import MjxSim


@dataclass(frozen=True, eq=False)
class StateWindows:
    """start (N, s), control (N, T, nu), observed (N, T + 1, s) with the start included; states are
    qpos, qvel and act.
    """

    start: np.ndarray
    control: np.ndarray
    observed: np.ndarray


def cut_windows(
    scene: Scene, states: np.ndarray, control: np.ndarray, *, before: int = 4, steps: int = 60
) -> StateWindows:
    """Windows of `steps` steps from trajectories states (N, T + 1, s), control (N, T, nu): each
    begins `before` steps before the pair first touches.

    Trajectories in which it never does, or too late for a whole window, are left out.
    """
    model, kept = scene.base, []
    data, (struck, striker) = (
        mujoco.MjData(model),
        (model.geom(g).id for g in (scene.struck, scene.striker)),
    )
    for row, path in enumerate(states):
        for k, state in enumerate(path[: len(path) - steps + before]):
            data.qpos[:] = state[: model.nq]
            mujoco.mj_kinematics(model, data)
            if mujoco.mj_geomDistance(model, data, struck, striker, 1.0, None) <= 0:
                kept.append((row, max(0, k - before)))
                break
    if not kept:
        raise DataError(
            f"in none of {len(states)} trajectories do {scene.struck!r} and {scene.striker!r} touch with {steps} steps left"
        )
    observed = np.stack([states[row, k : k + steps + 1] for row, k in kept])
    return StateWindows(
        observed[:, 0], np.stack([control[row, k : k + steps] for row, k in kept]), observed
    )


def identify_windows(
    sim: MjxSim,
    windows: StateWindows,
    free: Sequence[int],
    *,
    starts: int = 4,
    seed: int = 0,
    hops: BasinHoppingConfig | None = None,
) -> Constants:
    """Identify the parameters with indices `free` (q,) of a simulator's scene; the others keep its
    theta, or their nominal values.

    With `hops` the starts are the chains of basin hopping, for guesses so poor that a descent ends
    elsewhere. A residual is a state's difference over how much states of its unit change in the
    windows; its mean square in a window is capped at 1.
    """
    check_rollout(sim.model, windows.start, windows.control)
    n, steps = windows.control.shape[:2]
    if windows.observed.shape != (n, steps + 1, windows.start.shape[1]):
        raise DataError(
            f"observed needs shape {(n, steps + 1, windows.start.shape[1])}, got {windows.observed.shape}"
        )
    if not len(free) or not np.isfinite(windows.observed).all():
        raise DataError("windows need at least one parameter to identify and no missing states")
    scene, chosen = sim.scene, list(free)
    params, base = (
        [scene.params[i] for i in chosen],
        sim.theta if sim.theta is not None else scene.nominal,
    )
    centre, sd = to_unit(params, scene.nominal[chosen]), prior_sd(scene, {}).numpy()[chosen]
    observed = one_sided(sim.model, windows.observed)
    scale = 1 / (state_scales(sim.model, observed) * np.sqrt(observed[0, 1:].size))

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and slopes at points (m, q); what was expected counts as one more, so that a
        blind parameter goes back to it.
        """
        m, q = points.shape
        theta = np.tile(base, (m * n, 1))
        theta[:, chosen] = np.repeat(from_unit(params, points), n, 0)
        states, slope = sim.rollout_with_jacobian(
            np.tile(windows.start, (m, 1)),
            np.tile(windows.control, (m, 1, 1)),
            theta,
            free=chosen,
            finite=hops is None,
        )
        off = ((states - np.tile(observed, (m, 1, 1))) * scale)[:, 1:].reshape(m, n, -1)
        value, turn = cap_residuals(off, (slope * scale[:, None])[:, 1:].reshape(m, n, -1, q))
        value = np.concatenate([value.reshape(m, -1), FLOOR * (points - centre) / sd], axis=1)
        return value, np.concatenate(
            [turn.reshape(m, -1, q), np.tile(FLOOR * np.diag(1 / sd), (m, 1, 1))], axis=1
        )

    spread = (
        qmc.LatinHypercube(len(chosen), rng=np.random.default_rng(seed)).random(max(1, starts - 1))
        * 1.6
        - 0.8
    )
    begin = np.vstack([np.clip(centre, -0.8, 0.8), spread])[:starts]
    if hops is None:
        ends, cost = least_squares_from_starts(evaluate, begin)
    else:
        found = hop_basins(evaluate, begin, seed=seed, hops=hops)
        ends, cost = np.vstack([found.best, found.points]), np.append(found.loss, found.losses)
    best = int(cost.argmin())
    value, slope = (a[0, : -len(chosen)] for a in evaluate(ends[best : best + 1]))
    error = float((value**2).sum() / n)
    sure = deviation(slope, max(FLOOR**2, error), sd)
    # Starts that end elsewhere with an error almost as small say that the windows do not tell these
    # values apart.
    rivals = [
        np.abs(u - ends[best]) / 2
        for u, c in zip(ends, cost, strict=True)
        if c < 2 * cost[best] + n * FLOOR**2
    ]
    return Constants(
        told(scene, chosen, ends[best], np.max([sure, *rivals], axis=0), base=base, known={}),
        float(np.sqrt(error)),
    )


def _quaternions(model: mujoco.MjModel) -> list[int]:
    """Where the quaternions of a state begin."""
    offset = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 0}
    return [
        int(model.jnt_qposadr[j]) + offset[int(model.jnt_type[j])]
        for j in range(model.njnt)
        if int(model.jnt_type[j]) in offset
    ]


def one_sided(model: mujoco.MjModel, states: np.ndarray) -> np.ndarray:
    """States (N, T, s) whose quaternions do not jump to their negatives, which are the same turn."""
    out = states.copy()
    for a in _quaternions(model):
        part = out[..., a : a + 4]
        sign = np.where((part[:, 1:] * part[:, :-1]).sum(-1) < 0, -1.0, 1.0)
        part[:, 1:] *= np.cumprod(sign, axis=1)[..., None]
    return out


def state_scales(model: mujoco.MjModel, states: np.ndarray) -> np.ndarray:
    """How much states (N, T, s) change, (s,): root mean square from the start over all entries of
    one unit (m, rad, m/s, rad/s, activation).
    """
    turning = {int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_BALL)}
    unit = np.zeros(states.shape[-1], int)
    unit[model.nq + model.nv :] = 4
    unit[model.nq : model.nq + model.nv] = 2
    for j in range(model.njnt):
        if int(model.jnt_type[j]) in turning:
            width = 3 if int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_BALL) else 1
            unit[int(model.jnt_qposadr[j])] = 1
            unit[
                model.nq + int(model.jnt_dofadr[j]) : model.nq + int(model.jnt_dofadr[j]) + width
            ] = 3
        elif int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_FREE):
            unit[
                model.nq + int(model.jnt_dofadr[j]) + 3 : model.nq + int(model.jnt_dofadr[j]) + 6
            ] = 3
    for a in _quaternions(model):
        unit[a : a + 4] = 1
    change = np.square(states - states[:, :1]).mean((0, 1))
    return np.array([np.sqrt(change[unit == u].mean()) for u in unit]) + 1e-9
