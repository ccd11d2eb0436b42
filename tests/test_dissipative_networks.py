"""Networks that only brake: energy never rises, gradients are right, friction laws are found."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.core.augmentation_spec import NeuralScalar, initial_weights
from clashsim.core.errors import ParamError
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.augmented import curve, fit_augmented, windows_of
from clashsim.sim.augmented.simulator import AugmentedSim

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

DAMPING = 0.01  # N m s
WHEEL = """<mujoco>
<option timestep="0.005" integrator="Euler" gravity="0 0 0"><flag contact="disable"/></option>
<worldbody><geom name="floor" type="plane" size="1 1 .1" pos="0 0 -2"/>
<body name="arm"><joint name="swing" type="hinge" axis="0 1 0" damping="0.01"/>
<geom name="bob" type="sphere" size=".03" pos="0 0 -.3" mass=".4"/></body></worldbody></mujoco>"""
DOUBLE = """<mujoco>
<option timestep="0.002" integrator="RK4"><flag contact="disable"/></option><worldbody>
<geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
<body><joint name="shoulder" type="hinge" axis="0 1 0"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4" mass="1"/>
<body pos="0 0 -.4"><joint name="elbow" type="hinge" axis="0 1 0"/>
<geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 -.3" mass=".5"/>
</body></body></worldbody></mujoco>"""
PARAMS = (Param("damping", "joint/swing/damping", DAMPING, 1e-4, 0.1, "N m s", "log"),)
BRAKE = NeuralScalar(
    "joint/swing/damping",
    ("qvel/swing", "sin/swing"),
    "positive",
    units=4,
    scale=0.05,
    input_scales=(2.0, 1.0),
)


@pytest.fixture(scope="module")
def wheel() -> AugmentedSim:
    return AugmentedSim(Scene(WHEEL, "bob", "floor", params=PARAMS, name="wheel"), [BRAKE])


def random_weights(sim: AugmentedSim, rows: int, size: float) -> np.ndarray:
    """Weights (rows, w)."""
    noise = np.random.default_rng(5).normal(size=(rows, len(sim.weights)))
    return initial_weights(sim.augmentation) + size * noise


def starts(rows: int, joints: int) -> np.ndarray:
    """Random states (rows, 2 joints)."""
    return np.random.default_rng(3).normal(size=(rows, 2 * joints)) * 3


def energies(scene: Scene, states: np.ndarray) -> np.ndarray:
    """Kinetic and potential energy, J, of states (N, T, s)."""
    model = scene.model(scene.nominal)
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    data = mujoco.MjData(model)
    out = np.zeros(states.shape[:2])
    for index in np.ndindex(*out.shape):
        data.qpos[:], data.qvel[:] = np.split(states[index], 2)
        mujoco.mj_forward(model, data)
        out[index] = data.energy.sum()
    return out


def test_an_untrained_network_leaves_the_damping_as_it_is() -> None:
    values = np.array([0.0, 1e-4, 0.01, 0.05, 3.0, 1e3])
    same = BRAKE.combine(values, np.zeros(6))
    assert np.allclose(same[1:], values[1:], rtol=1e-12)
    assert same[0] == pytest.approx(0.05e-3)  # at zero nothing could be learned
    assert BRAKE.combine(3.0, 0.2) == pytest.approx(3.2)  # far above `scale` it adds
    assert 0 <= BRAKE.combine(0.01, -1e4) < 1e-12  # and never gets negative
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert np.isfinite(BRAKE.combine(values, 1e4)).all()


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_kinetic_energy_never_rises_however_large_the_weights(
    wheel: AugmentedSim, size: float
) -> None:
    weights = random_weights(wheel, 8, size)
    states = wheel.rollout(starts(8, 1), np.zeros((8, 96, 0)), weights=weights)
    speeds = np.abs(states[..., 1])
    assert (np.diff(speeds) <= 0).all()
    assert (np.diff(states[..., 1]) != 0).any()


def test_energy_of_a_double_pendulum_never_rises_and_that_of_a_plain_network_does() -> None:
    reads = ("sin/shoulder", "cos/elbow", "qvel/shoulder", "qvel/elbow")
    joints = ("shoulder", "elbow")
    scene = Scene(DOUBLE, "tip", "floor", name="double")
    start, control = starts(8, 2), np.zeros((8, 192, 0))
    brakes = AugmentedSim(
        scene,
        [NeuralScalar(f"joint/{j}/damping", reads, "positive", units=3, scale=0.2) for j in joints],
    )
    weights = random_weights(brakes, 8, 1.0)
    change = np.diff(energies(scene, brakes.rollout(start, control, weights=weights)))
    rounding = 1e-6  # J, of RK4; each step takes up to 0.1 J
    assert change.max() < rounding < -change.min()
    plain = AugmentedSim(
        scene, [NeuralScalar(f"force/{j}", reads, units=3, scale=0.2) for j in joints]
    )
    change = np.diff(energies(scene, plain.rollout(start, control, weights=weights)))
    assert change.max() > 1e3 * rounding


def test_gradients_are_those_of_finite_differences(wheel: AugmentedSim) -> None:
    start, control = starts(2, 1), np.zeros((2, 48, 0))
    weights = random_weights(wheel, 1, 0.5)[0]
    theta = wheel.scene.nominal
    _, jacobian = wheel.rollout_with_jacobian(start, control, theta, free=(0,), weights=weights)
    unit = to_unit(PARAMS, theta)
    step = 1e-6
    point = np.concatenate([unit, weights])
    for i in range(len(point)):
        ends = []
        for sign in (1, -1):
            moved = point + sign * step * np.eye(len(point))[i]
            ends.append(
                wheel.rollout(start, control, theta=from_unit(PARAMS, moved[:1]), weights=moved[1:])
            )
        difference = (ends[0] - ends[1]) / (2 * step)
        error = np.abs(jacobian[..., i] - difference).max()
        assert error < 1e-6 * max(1, np.abs(jacobian).max())
    assert (np.abs(jacobian).max((0, 1, 2)) > 1e-4).mean() > 0.9


def test_a_known_friction_law_is_recovered(wheel: AugmentedSim) -> None:
    """The damping is wrong by half, and dry friction is missing."""

    def torque(speed: np.ndarray) -> np.ndarray:
        return -0.03 * np.tanh(speed / 0.8) - 0.5 * DAMPING * speed

    model = mujoco.MjModel.from_xml_string(WHEEL)
    model.dof_damping[:] = 0
    data = mujoco.MjData(model)
    speed = np.array([5.0, -5.0, 3.5, -3.5, 2.0, -2.0, 1.0, -1.0])
    begin = np.column_stack([np.linspace(-2, 2, 8), speed])
    states = np.zeros((8, 161, 2))
    for i, (angle, speed) in enumerate(begin):
        mujoco.mj_resetData(model, data)
        data.qpos[0], data.qvel[0] = angle, speed
        for k in range(161):
            states[i, k] = data.qpos[0], data.qvel[0]
            data.qfrc_applied[0] = torque(data.qvel[0])
            mujoco.mj_step(model, data)
    control = np.zeros((8, 160, 0))
    windows = [
        windows_of(states, control, steps=1, every=32),
        windows_of(states, control, steps=32, every=32),
    ]
    plain = fit_augmented(wheel, windows, [0], train=False)
    found = fit_augmented(wheel, windows, [], ridge=1e-7, steps=30)
    assert found.error < 0.15 * plain.error
    speeds = np.array([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0])
    inputs = np.column_stack([speeds, np.zeros(6)])
    damping = BRAKE.combine(DAMPING, curve(found.sim, 0, inputs))
    learned = -damping * speeds
    assert np.abs(learned / torque(speeds) - 1).max() < 0.1, learned / torque(speeds)


def test_what_has_either_sign_is_refused() -> None:
    scene = Scene(WHEEL, "bob", "floor", name="wheel")
    for target, words in (("force/swing", "damping"), ("option/gravity[2]", None)):
        scalar = NeuralScalar(target, ("qvel/swing",), "positive")
        if words is None:
            heavy = Scene(DOUBLE, "tip", "floor", name="double")
            with pytest.raises(ParamError, match="negative"):
                AugmentedSim(heavy, [NeuralScalar(target, ("qvel/elbow",), "positive")])
        else:
            with pytest.raises(ParamError, match=words):
                AugmentedSim(scene, [scalar])
