"""The double pendulum of `clashsim.data.pendulum`: its MuJoCo scene, the camera before it, and the
networks that may take part.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from clashsim.core.augmentation_spec import NeuralScalar
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.data.pendulum import ARM, RATE, PendulumRun
from clashsim.fit.shooting import ObservationModel, TrajectoryWindows
from clashsim.sim.mjx.model import import_mjx

# Masses are not reported and only their ratios move anything, so those of the links are set; where
# they are centred and how they turn is identified.
_XML = f"""<mujoco><option timestep="{1 / RATE}" gravity="6.23 0 0" integrator="RK4"><flag contact="disable"/></option><worldbody>
<geom name="stand" type="sphere" size=".005" pos="0 0 -1"/>
<body name="upper"><joint name="upper" type="hinge" axis="0 0 1" damping="2e-5"/><geom type="sphere" size=".005" mass="0"/>
<inertial pos=".0885 0 0" mass=".0884" diaginertia="1e-5 1e-5 1e-5"/>
<body name="lower" pos="{ARM} 0 0"><joint name="lower" type="hinge" axis="0 0 1" damping="7e-6"/><geom name="bob" type="sphere" size=".005" mass="0"/>
<inertial pos=".0588 0 0" mass=".016" diaginertia="8e-6 8e-6 8e-6"/></body></body></worldbody></mujoco>"""
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
PLAIN = tuple(range(6))  # parameters without the geometry: nothing is across
READS = ("sin/upper", "cos/upper", "sin/lower", "cos/lower", "qvel/upper", "qvel/lower")
SIZES = (
    1.0,
    1.0,
    1.0,
    1.0,
    8.0,
    16.0,
)  # of what is read: half turns, and rad/s that the middle half of the frames of the runs to fit on stay below
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
INITIAL_CAMERA = np.array([ARM, 0.0696, *np.zeros(10)])
RADII = (0, 1)
NOISE = np.array(
    [7e-5, 7e-5, 6e-5, 6e-5, 6e-5, 6e-5]
)  # m: of the pivot's marker (which trembles) and of the bobs'
_AWAY = 1e-3  # m: how far the pivot may be from the mean of its marker in the frames observed


def augmentation(units: int = 8) -> tuple[NeuralScalar, ...]:
    """A torque in each joint that may depend on all of the state; one unit of output is a hundredth
    of the torque of gravity on the joint.
    """
    return tuple(
        NeuralScalar(f"force/{joint}", READS, units=units, scale=scale, input_scales=SIZES)
        for joint, scale in (("upper", 4e-4), ("lower", 4e-5))
    )


def trajectory_windows(windows: np.ndarray, *, observed: int, skip: int = 1) -> TrajectoryWindows:
    """Windows (N, T, 3, 2), m, of which every `skip`th frame is taken, with first guesses from the
    frames observed, of which the first twelve tell the speed.

    All three markers tremble together, by a tenth of a millimetre at 8 to 16 Hz, so frames are held
    still by the pivot's: a start told from frames that drift is worse than what their noise allows.
    """
    pivot = windows[:, :observed, 0].mean(1)
    windows = windows - (windows[:, :, :1] - pivot[:, None, None])
    arm, windows = np.diff(windows[:, :observed], axis=2), windows[:, ::skip]
    angle, n = np.unwrap(np.arctan2(arm[..., 1], arm[..., 0]), axis=1), 12
    powers = np.vander(np.arange(n) / RATE, 3)
    fitted = np.linalg.lstsq(powers, angle[:, :n].transpose(1, 0, 2).reshape(n, -1), rcond=None)[
        0
    ].reshape(3, -1, 2)
    place, speed = fitted[2], fitted[1]
    start = np.column_stack(
        [place[:, 0], place[:, 1] - place[:, 0], speed[:, 0], speed[:, 1] - speed[:, 0]]
    )
    return TrajectoryWindows(
        windows.reshape(*windows.shape[:2], 6), NOISE, start, pivot, np.full(2, _AWAY)
    )


def cut_windows(
    runs: list[PendulumRun],
    *,
    frames: int,
    every: int,
    limit: int | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Windows (N, frames, 3, 2) that begin at every so many frames, and the recording (N,) of each;
    at most `limit`, drawn by `rng`.
    """
    begins = [
        (i, k)
        for i, run in enumerate(runs)
        for k in range(0, len(run.marker_positions) - frames + 1, every)
    ]
    if limit is not None and rng is not None and len(begins) > limit:
        begins = [begins[j] for j in np.sort(rng.permutation(len(begins))[:limit])]
    windows = np.array([runs[i].marker_positions[k : k + frames] for i, k in begins]).reshape(
        -1, frames, 3, 2
    )
    return windows, np.array([runs[i].recording for i, _ in begins], int)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    jax, _ = import_mjx()
    jnp = jax.numpy

    def see(state: Any, camera: Any, own: Any) -> Any:
        r1, r2, across, pivot_x, pivot_y, bob_x, bob_y, aspect, shear, tilt_x, tilt_y, lens = camera

        def image(place: Any) -> Any:
            x, y = (
                place[0] * (1 + aspect) + place[1] * shear,
                place[1] * (1 - aspect) + place[0] * shear,
            )
            return jnp.stack([x, y]) / (1 - tilt_x * x - tilt_y * y) * (1 + lens * (x**2 + y**2))

        along = lambda a: jnp.stack([jnp.cos(a), jnp.sin(a)])  # noqa: E731
        first, second = state[0], state[0] + state[1]
        marker = r1 * along(first) + across * along(first + jnp.pi / 2)
        return jnp.concatenate(
            [
                own + jnp.stack([pivot_x, pivot_y]),
                own + image(marker),
                own + image(ARM * along(first) + r2 * along(second)) + jnp.stack([bob_x, bob_y]),
            ]
        )

    def both(state: Any, camera: Any, own: Any) -> Any:
        return see(state, camera, own), *jax.jacfwd(see, argnums=(0, 1, 2))(state, camera, own)

    over = lambda f: jax.jit(jax.vmap(jax.vmap(f, (0, None, None)), (0, None, 0)))  # noqa: E731
    return over(both), over(see)


def camera_view_with_jacobian(
    states: np.ndarray, camera: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What the camera sees (N, T, 6), m, of states (N, T, 4) with the pivot at own (N, 2), and its
    slopes; see `clashsim.fit.shooting.Observe`.
    """
    n = -(-len(states) // 32) * 32  # of a few sizes only, for each one compiles
    filled = lambda a: np.concatenate([a, np.repeat(a[:1], n - len(a), 0)])  # noqa: E731
    value, by_state, by_camera, by_own = (
        np.asarray(a)[: len(states)] for a in _compiled()[0](filled(states), camera, filled(own))
    )
    return value, by_state, by_camera, by_own


def seen(states: np.ndarray, camera: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The same without slopes."""
    return np.asarray(_compiled()[1](states, camera, own))


EYE = ObservationModel(seen, camera_view_with_jacobian)
