"""Constant parameters by the gradients of MJX, on short windows around contact.

Windows are short because gradients through many contacts carry little information: after a few
bounces the smallest change of a parameter changes the whole motion. All starts are optimised at
once; intervals and statuses are computed as in `clashsim.fit.gradient`.
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
from clashsim.fit.gradient import (
    NOISE_FLOOR,
    ConstantEstimates,
    laplace_std,
    widen_for_rivals,
)
from clashsim.fit.identify import MJX_DAMPING, MJX_STEPS
from clashsim.fit.priors import estimates_of_free, prior_std
from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins
from clashsim.optim.levenberg_marquardt import levenberg_marquardt
from clashsim.sim.inputs import check_rollout
from clashsim.sim.mjx.impact_jacobian import cap_residuals
from clashsim.sim.mjx.simulator import MjxSim

_START_RANGE = 0.8  # starting points lie within this share of the unit scale
_MAX_DISTANCE = 1.0  # m, up to which MuJoCo computes the distance of two geoms
_MIN_SCALE = 1e-9  # added to scales of states, so that none is zero
# Codes of the units of a state's entries.
_METRES, _RADIANS, _METRES_PER_SECOND, _RADIANS_PER_SECOND, _ACTIVATION = range(5)


@dataclass(frozen=True, eq=False)
class StateWindows:
    """N windows of T steps. States are qpos, qvel and act.

    Attributes:
        start: States at the start (N, s).
        control: Controls (N, T, nu).
        observed: Recorded states (N, T + 1, s), the start included.
    """

    start: np.ndarray
    control: np.ndarray
    observed: np.ndarray


def cut_windows(
    scene: Scene, states: np.ndarray, control: np.ndarray, *, before: int = 4, steps: int = 60
) -> StateWindows:
    """Cut windows around the first contact out of trajectories.

    Trajectories in which the pair never touches, or too late for a whole window, are left out.

    Args:
        scene: The scene.
        states: States of N trajectories (N, T + 1, s).
        control: Controls (N, T, nu).
        before: Number of time steps before the first contact at which a window begins.
        steps: Time steps of a window.

    Returns:
        The windows.
    """
    observed = []
    controls = []
    for path, commands in zip(states, control, strict=True):
        contact = _first_contact(scene, path[: len(path) - steps + before])
        if contact is None:
            continue
        first = max(0, contact - before)
        observed.append(path[first : first + steps + 1])
        controls.append(commands[first : first + steps])
    if not observed:
        raise DataError(
            f"in none of {len(states)} trajectories do {scene.struck!r} and {scene.striker!r} "
            f"touch with {steps} steps left"
        )
    windows = np.stack(observed)
    return StateWindows(windows[:, 0], np.stack(controls), windows)


def _first_contact(scene: Scene, states: np.ndarray) -> int | None:
    """Index of the first of states (T, s) in which the pair touches, or None."""
    model = scene.base  # the scene's MjModel
    data = mujoco.MjData(model)
    struck = model.geom(scene.struck).id
    striker = model.geom(scene.striker).id
    for step, state in enumerate(states):
        data.qpos[:] = state[: model.nq]
        mujoco.mj_kinematics(model, data)
        if mujoco.mj_geomDistance(model, data, struck, striker, _MAX_DISTANCE, None) <= 0:
            return step
    return None


def identify_windows(
    sim: MjxSim,
    windows: StateWindows,
    free: Sequence[int],
    *,
    starts: int = 4,
    seed: int = 0,
    hops: BasinHoppingConfig | None = None,
) -> ConstantEstimates:
    """Identify parameters of a simulator's scene on windows.

    A residual is the error of a state's entry, divided by how much the entries of the same unit
    change in the windows; its mean square in a window is limited to 1.

    Args:
        sim: The simulator.
        windows: N windows.
        free: Indices (q,) of the parameters to identify. The others keep the simulator's theta, or
            their nominal values if it has none.
        starts: Number of starting points.
        seed: Seed of the starting points.
        hops: If given, each starting point begins a chain of basin hopping; for initial guesses so
            poor that a plain descent ends in another optimum.

    Returns:
        The identified constants.
    """
    _check_windows(sim, windows, free)
    scene = sim.scene
    chosen = list(free)
    base_theta = sim.theta if sim.theta is not None else scene.nominal
    residuals = _WindowResiduals(sim, windows, chosen, base_theta, finite=hops is None)
    sampler = qmc.LatinHypercube(len(chosen), rng=np.random.default_rng(seed))
    others = sampler.random(max(1, starts - 1)) * (2 * _START_RANGE) - _START_RANGE
    nominal = np.clip(residuals.centre, -_START_RANGE, _START_RANGE)
    begin = np.vstack([nominal, others])[:starts]
    if hops is None:
        descent = levenberg_marquardt(residuals, begin, steps=MJX_STEPS, damping=MJX_DAMPING)
        ends = descent.points
        costs = descent.loss
    else:
        found = hop_basins(residuals, begin, seed=seed, hops=hops)
        ends = np.vstack([found.best, found.points])
        costs = np.append(found.loss, found.losses)
    best = int(costs.argmin())
    residual, jacobian = residuals(ends[best : best + 1])
    of_windows = slice(0, -len(chosen))  # without the last rows, which are those of the prior
    n = len(windows.start)
    squared_error = float((residual[0, of_windows] ** 2).sum() / n)
    noise = max(NOISE_FLOOR**2, squared_error)
    std = laplace_std(jacobian[0, of_windows], noise, residuals.std)
    # Optima below this cost are not distinguishable from the best one.
    limit = 2 * costs[best] + n * NOISE_FLOOR**2
    rivals = [end for end, cost in zip(ends, costs, strict=True) if cost < limit]
    estimates = estimates_of_free(
        scene,
        chosen,
        ends[best],
        widen_for_rivals(std, ends[best], rivals),
        base=base_theta,
        known={},
    )
    return ConstantEstimates(estimates, float(np.sqrt(squared_error)))


def _check_windows(sim: MjxSim, windows: StateWindows, free: Sequence[int]) -> None:
    """Raise `DataError` if a simulator cannot be fitted to the windows."""
    check_rollout(sim.model, windows.start, windows.control)
    n, steps = windows.control.shape[:2]
    expected = (n, steps + 1, windows.start.shape[1])
    if windows.observed.shape != expected:
        raise DataError(f"observed needs shape {expected}, got {windows.observed.shape}")
    if not len(free) or not np.isfinite(windows.observed).all():
        raise DataError("windows need at least one parameter to identify and no missing states")


class _WindowResiduals:
    """Residuals and Jacobian of windows at points of the unit scale.

    The prior adds one residual per parameter, so that a parameter without effect returns to its
    nominal value.
    """

    def __init__(
        self,
        sim: MjxSim,
        windows: StateWindows,
        free: list[int],
        base_theta: np.ndarray,
        *,
        finite: bool,
    ) -> None:
        self._sim = sim
        self._windows = windows
        self._free = free
        self._base_theta = base_theta
        self._finite = finite
        self._params = [sim.scene.params[i] for i in free]
        self._observed = continuous_quaternions(sim.model, windows.observed)
        scales = state_scales(sim.model, self._observed)
        self._weight = 1 / (scales * np.sqrt(self._observed[0, 1:].size))
        self.centre = to_unit(self._params, sim.scene.nominal[free])
        self.std = prior_std(sim.scene, {}).numpy()[free]

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, r) and Jacobian (m, r, q) at points (m, q)."""
        m, q = points.shape
        n = len(self._windows.start)
        theta = np.tile(self._base_theta, (m * n, 1))
        theta[:, self._free] = np.repeat(from_unit(self._params, points), n, 0)
        states, jacobian = self._sim.rollout_with_jacobian(
            np.tile(self._windows.start, (m, 1)),
            np.tile(self._windows.control, (m, 1, 1)),
            theta,
            free=self._free,
            finite=self._finite,
        )
        difference = (states - np.tile(self._observed, (m, 1, 1))) * self._weight
        weighted_jacobian = jacobian * self._weight[:, None]
        residual, residual_jacobian = cap_residuals(
            difference[:, 1:].reshape(m, n, -1), weighted_jacobian[:, 1:].reshape(m, n, -1, q)
        )
        prior = NOISE_FLOOR * (points - self.centre) / self.std
        prior_jacobian = np.tile(NOISE_FLOOR * np.diag(1 / self.std), (m, 1, 1))
        return (
            np.concatenate([residual.reshape(m, -1), prior], axis=1),
            np.concatenate([residual_jacobian.reshape(m, -1, q), prior_jacobian], axis=1),
        )


def _quaternion_addresses(model: mujoco.MjModel) -> list[int]:
    """Index in qpos of the first entry of each quaternion."""
    # By type of joint, the quaternion's position within the joint's qpos.
    offset = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 0}
    addresses = []
    for joint in range(model.njnt):
        kind = int(model.jnt_type[joint])
        if kind in offset:
            addresses.append(int(model.jnt_qposadr[joint]) + offset[kind])
    return addresses


def continuous_quaternions(model: mujoco.MjModel, states: np.ndarray) -> np.ndarray:
    """Flip signs of quaternions so that they do not jump within a trajectory.

    A quaternion and its negative are the same rotation.

    Args:
        model: The model.
        states: States of N trajectories (N, T, s).

    Returns:
        The states (N, T, s) with continuous quaternions.
    """
    out = states.copy()
    for address in _quaternion_addresses(model):
        quaternion = out[..., address : address + 4]
        sign = np.where((quaternion[:, 1:] * quaternion[:, :-1]).sum(-1) < 0, -1.0, 1.0)
        quaternion[:, 1:] *= np.cumprod(sign, axis=1)[..., None]
    return out


def state_scales(model: mujoco.MjModel, states: np.ndarray) -> np.ndarray:
    """Typical change of each entry of a state.

    Args:
        model: The model.
        states: States of N trajectories (N, T, s).

    Returns:
        (s,): root mean square change from the start, the same for all entries of one unit (m, rad,
        m/s, rad/s, activation).
    """
    units = _state_units(model, states.shape[-1])
    change = np.square(states - states[:, :1]).mean((0, 1))
    return np.array([np.sqrt(change[units == unit].mean()) for unit in units]) + _MIN_SCALE


def _state_units(model: mujoco.MjModel, size: int) -> np.ndarray:
    """Code of the unit of each entry of a state (s,)."""
    units = np.full(size, _METRES)
    units[model.nq + model.nv :] = _ACTIVATION
    units[model.nq : model.nq + model.nv] = _METRES_PER_SECOND
    for joint in range(model.njnt):
        kind = int(model.jnt_type[joint])
        velocity = model.nq + int(model.jnt_dofadr[joint])
        if kind == int(mujoco.mjtJoint.mjJNT_HINGE):
            units[int(model.jnt_qposadr[joint])] = _RADIANS
            units[velocity] = _RADIANS_PER_SECOND
        elif kind == int(mujoco.mjtJoint.mjJNT_BALL):
            units[velocity : velocity + 3] = _RADIANS_PER_SECOND
        elif kind == int(mujoco.mjtJoint.mjJNT_FREE):
            units[velocity + 3 : velocity + 6] = _RADIANS_PER_SECOND
    for address in _quaternion_addresses(model):
        units[address : address + 4] = _RADIANS
    return units
