"""The double pendulum of `clashsim.data.pendulum`: MuJoCo scene, camera and networks."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from clashsim.core.augmentation_spec import NeuralScalar
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.data.pendulum import ARM, RATE, PendulumRun
from clashsim.fit.shooting import ObservationModel, TrajectoryWindows
from clashsim.sim.mjx.model import import_mjx

# Masses are not reported, and only their ratios change the motion. So the masses of the links are
# set; their centres of mass and inertias are identified.
_XML = f"""
<mujoco>
  <option timestep="{1 / RATE}" gravity="6.23 0 0" integrator="RK4">
    <flag contact="disable"/>
  </option>
  <worldbody>
    <geom name="stand" type="sphere" size=".005" pos="0 0 -1"/>
    <body name="upper">
      <joint name="upper" type="hinge" axis="0 0 1" damping="2e-5"/>
      <geom type="sphere" size=".005" mass="0"/>
      <inertial pos=".0885 0 0" mass=".0884" diaginertia="1e-5 1e-5 1e-5"/>
      <body name="lower" pos="{ARM} 0 0">
        <joint name="lower" type="hinge" axis="0 0 1" damping="7e-6"/>
        <geom name="bob" type="sphere" size=".005" mass="0"/>
        <inertial pos=".0588 0 0" mass=".016" diaginertia="8e-6 8e-6 8e-6"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""
PARAMS = (
    Param("upper_centre", "body/upper/ipos[0]", 0.0885, 0.07, 0.1, "m"),
    Param("lower_centre", "body/lower/ipos[0]", 0.0588, 0.04, 0.08, "m"),
    Param("lower_inertia", "body/lower/inertia[2]", 8e-6, 1e-7, 4e-5, "kg m^2"),
    Param("gravity", "option/gravity[0]", 6.23, 4.0, 10.0, "m/s^2"),
    Param("upper_damping", "joint/upper/damping", 2e-5, 1e-7, 2e-3, "N m s", "log"),
    Param("lower_damping", "joint/lower/damping", 7e-6, 1e-7, 2e-3, "N m s", "log"),
    Param("gravity_across", "option/gravity[1]", 0.0, -0.5, 0.5, "m/s^2"),
    Param("upper_across", "body/upper/ipos[1]", 0.0, -0.005, 0.005, "m"),
    Param("lower_across", "body/lower/ipos[1]", 0.0, -0.005, 0.005, "m"),
)
SCENE = Scene(_XML, "bob", "stand", params=PARAMS, name="double-pendulum")
# Indices of the parameters that are fitted without the geometry. The others, `*_across`, stay at 0:
# gravity and centres of mass have no component across the axes.
PLAIN_PARAMS = tuple(range(6))
NETWORK_INPUTS = ("sin/upper", "cos/upper", "sin/lower", "cos/lower", "qvel/upper", "qvel/lower")
# Inputs are divided by these: 1 for sines and cosines, and for velocities (rad/s) about the median
# speed in the recordings to fit on.
_SPEED_SCALES = {"upper": 8.0, "lower": 16.0}
INPUT_SCALES = (1.0, 1.0, 1.0, 1.0, *_SPEED_SCALES.values())
# One unit of a network's output, N m: a hundredth of the torque of gravity on the joint.
_TORQUE_SCALES = {"upper": 4e-4, "lower": 4e-5}
NetworkForm = Literal["torque", "acceleration", "damping"]
# Distances of the markers from their joints (m), offsets of the markers in the image (m), aspect,
# shear, perspective (1/m) and lens (1/m^2) of the camera.
CAMERA = (
    "radius_1",
    "radius_2",
    "across_1",
    "pivot_x",
    "pivot_y",
    "bob_x",
    "bob_y",
    "aspect",
    "shear",
    "tilt_x",
    "tilt_y",
    "lens",
)
_INITIAL_RADIUS_2 = 0.0696  # m
INITIAL_CAMERA = np.array([ARM, _INITIAL_RADIUS_2, *np.zeros(len(CAMERA) - 2)])
RADII = (0, 1)  # indices in `CAMERA` of the values that are fitted without the geometry
# Standard deviations of the markers' positions, m: x and y of the pivot (which trembles), of the
# first bob and of the second bob.
NOISE = np.array([7e-5, 7e-5, 6e-5, 6e-5, 6e-5, 6e-5])
_PIVOT_STD = 1e-3  # m, prior of the pivot about the mean of its marker in the observed frames
_SPEED_FRAMES = 12  # observed frames from which the first velocity is estimated
# Batches are padded to a multiple of this many windows: jax compiles anew for each size of a batch.
_COMPILED_ROWS = 32


def augmentation(units: int = 8, form: NetworkForm = "torque") -> tuple[NeuralScalar, ...]:
    """A network for each joint, which may depend on all of the state.

    Args:
        units: Hidden units of each network.
        form: What the networks change: the joints' torques, their accelerations (as of a model
            beside the simulator, whose outputs do not pass through the inertia), or their damping,
            which stays positive.
    """
    inertia = SCENE.base.dof_M0
    scalars = []
    for i, (joint, torque) in enumerate(_TORQUE_SCALES.items()):
        scalar = NeuralScalar(
            f"force/{joint}", NETWORK_INPUTS, units=units, scale=torque, input_scales=INPUT_SCALES
        )
        if form == "acceleration":
            scalar = replace(
                scalar, target=f"acceleration/{joint}", scale=torque / float(inertia[i])
            )
        if form == "damping":
            scalar = replace(
                scalar,
                target=f"joint/{joint}/damping",
                mode="positive",
                reads=(*NETWORK_INPUTS, f"logspeed/{joint}"),
                input_scales=(*INPUT_SCALES, 1.0),
                scale=torque / _SPEED_SCALES[joint],
            )
        scalars.append(scalar)
    return tuple(scalars)


def trajectory_windows(windows: np.ndarray, *, observed: int, skip: int = 1) -> TrajectoryWindows:
    """Make windows to fit, with first guesses of their starts.

    All three markers tremble together, by a tenth of a millimetre at 8 to 16 Hz. So each frame is
    shifted such that the pivot does not move. Otherwise the estimate of the start would be less
    accurate than the noise of single markers allows.

    Args:
        windows: Positions of pivot and both bobs in the image, (N, T, 3, 2), m.
        observed: Number of frames at the beginning from which starts are guessed.
        skip: Only every `skip`-th frame is kept.
    """
    pivot = windows[:, :observed, 0].mean(1)
    drift = windows[:, :, :1] - pivot[:, None, None]
    still = windows - drift
    start = _guess_starts(still[:, :observed])
    taken = still[:, ::skip]
    flat = taken.reshape(*taken.shape[:2], 6)
    return TrajectoryWindows(flat, NOISE, start, pivot, np.full(2, _PIVOT_STD))


def _guess_starts(windows: np.ndarray) -> np.ndarray:
    """States (N, 4) at the first frame, by a parabola through the first angles.

    A state holds both joint angles (rad), then both joint velocities (rad/s).
    """
    arm = np.diff(windows, axis=2)
    angle = np.unwrap(np.arctan2(arm[..., 1], arm[..., 0]), axis=1)
    n = _SPEED_FRAMES
    powers = np.vander(np.arange(n) / RATE, 3)  # t^2, t, 1
    columns = angle[:, :n].transpose(1, 0, 2).reshape(n, -1)
    coefficients = np.linalg.lstsq(powers, columns, rcond=None)[0].reshape(3, -1, 2)
    first_angle = coefficients[2]
    first_velocity = coefficients[1]
    # The second joint's angle is relative to the first link.
    return np.column_stack(
        [
            first_angle[:, 0],
            first_angle[:, 1] - first_angle[:, 0],
            first_velocity[:, 0],
            first_velocity[:, 1] - first_velocity[:, 0],
        ]
    )


def cut_windows(
    runs: list[PendulumRun],
    *,
    frames: int,
    every: int,
    limit: int | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Cut recordings into windows.

    Args:
        runs: The recordings.
        frames: Length of a window.
        every: Frames between the beginnings of two windows.
        limit: The most windows; more are drawn by `rng`.
        rng: Needed with a limit.

    Returns:
        Windows (N, frames, 3, 2), m, and the number of the recording of each, (N,).
    """
    begins = []
    for i, run in enumerate(runs):
        for frame in range(0, len(run.marker_positions) - frames + 1, every):
            begins.append((i, frame))
    if limit is not None and rng is not None and len(begins) > limit:
        drawn = np.sort(rng.permutation(len(begins))[:limit])
        begins = [begins[j] for j in drawn]
    windows = [runs[i].marker_positions[frame : frame + frames] for i, frame in begins]
    recording = [runs[i].recording for i, _ in begins]
    return np.array(windows).reshape(-1, frames, 3, 2), np.array(recording, int)


@lru_cache(maxsize=1)
def _compiled() -> tuple[Any, Any]:
    """Two compiled functions of windows of states: the image with its Jacobians, and the image."""
    jax, _ = import_mjx()
    jnp = jax.numpy

    def direction(angle: Any) -> Any:
        return jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    def project(position: Any, camera: dict[str, Any]) -> Any:
        """From a position (2,) in the pendulum's plane to one in the image, m."""
        aspect = camera["aspect"]
        x = position[0] * (1 + aspect) + position[1] * camera["shear"]
        y = position[1] * (1 - aspect) + position[0] * camera["shear"]
        perspective = 1 - camera["tilt_x"] * x - camera["tilt_y"] * y
        lens = 1 + camera["lens"] * (x**2 + y**2)
        return jnp.stack([x, y]) / perspective * lens

    def view(state: Any, values: Any, pivot: Any) -> Any:
        """Image (6,) of pivot and both bobs in one frame."""
        camera = dict(zip(CAMERA, values, strict=True))
        upper = state[0]
        lower = state[0] + state[1]
        first = camera["radius_1"] * direction(upper)
        first = first + camera["across_1"] * direction(upper + jnp.pi / 2)
        second = ARM * direction(upper) + camera["radius_2"] * direction(lower)
        pivot_offset = jnp.stack([camera["pivot_x"], camera["pivot_y"]])
        bob_offset = jnp.stack([camera["bob_x"], camera["bob_y"]])
        return jnp.concatenate(
            [
                pivot + pivot_offset,
                pivot + project(first, camera),
                pivot + project(second, camera) + bob_offset,
            ]
        )

    def view_with_jacobian(state: Any, values: Any, pivot: Any) -> Any:
        jacobians = jax.jacfwd(view, argnums=(0, 1, 2))(state, values, pivot)
        return view(state, values, pivot), *jacobians

    def over_windows(function: Any) -> Any:
        over_frames = jax.vmap(function, (0, None, None))
        return jax.jit(jax.vmap(over_frames, (0, None, 0)))

    return over_windows(view_with_jacobian), over_windows(view)


def camera_view_with_jacobian(
    states: np.ndarray, camera: np.ndarray, pivot: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions of the markers in the image, and their Jacobians.

    Args:
        states: States of the pendulum, (N, T, 4).
        camera: Values by the names in `CAMERA`, (12,).
        pivot: Position of the pivot in each window, (N, 2), m.

    Returns:
        Images, that is x and y of pivot, first and second bob (N, T, 6), m, and their Jacobians by
        state (N, T, 6, 4), camera (N, T, 6, 12) and pivot (N, T, 6, 2).
    """
    count = len(states)
    rows = -(-count // _COMPILED_ROWS) * _COMPILED_ROWS

    def pad(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.repeat(array[:1], rows - count, 0)])

    compiled, _ = _compiled()
    results = compiled(pad(states), camera, pad(pivot))
    view, by_state, by_camera, by_pivot = (np.asarray(array)[:count] for array in results)
    return view, by_state, by_camera, by_pivot


def camera_view(states: np.ndarray, camera: np.ndarray, pivot: np.ndarray) -> np.ndarray:
    """Positions of the markers in the image, (N, T, 6), m; see `camera_view_with_jacobian`."""
    _, compiled = _compiled()
    return np.asarray(compiled(states, camera, pivot))


OBSERVATION = ObservationModel(camera_view, camera_view_with_jacobian)
