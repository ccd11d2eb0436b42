"""What neural scalars are for: to learn what another simulator has and no parameter describes."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.core.augmentation_spec import NeuralScalar
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.fit.augmented import curve, fit_augmented, windows_of
from clashsim.sim.augmented.simulator import AugmentedSim

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

ARM = """<mujoco>
<option timestep="0.005" integrator="implicitfast"><flag contact="disable"/></option><worldbody>
<geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
<body><joint name="shoulder" type="hinge" axis="0 1 0" damping=".02"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4" mass="1"/>
<body pos="0 0 -.4"><joint name="elbow" type="hinge" axis="0 1 0" damping=".02"/>
<geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 -.3" mass=".5"/>
</body></body></worldbody>
<actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator></mujoco>"""
SLED = """<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody>
<geom name="floor" type="plane" size="5 5 .1"/>
<body name="block" pos="0 0 .05"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="z" type="slide" axis="0 0 1"/>
<geom name="block" type="box" size=".05 .05 .05" mass=".4"/></body></worldbody><contact>
<pair name="strike" geom1="block" geom2="floor" condim="3" friction=".3 .3 .005 .0001 .0001"/>
</contact></mujoco>"""
JOINTS = ("shoulder", "elbow")


def arm_motions() -> tuple[np.ndarray, np.ndarray]:
    """Random starts (6, 4) and sinusoidal torques (6, 192, 2) of the arm."""
    rng = np.random.default_rng(0)
    time = np.arange(192)[:, None] * 0.005
    torques = []
    for _ in range(6):
        size = rng.uniform(0.5, 2.0, 2)
        frequency = rng.uniform(3, 8, 2)
        phase = rng.uniform(0, 6, 2)
        torques.append(size * np.sin(frequency * time + phase))
    angles = rng.uniform(-1.5, 1.5, (6, 2))
    velocities = rng.uniform(-2, 2, (6, 2))
    return np.column_stack([angles, velocities]), np.stack(torques)


@pytest.mark.slow
def test_an_arm_learns_the_joint_friction_of_another() -> None:
    """The other arm has MuJoCo's dry friction in both joints; this one has dampers only."""
    dry_friction = (0.3, 0.12)  # N m
    params = tuple(
        Param(f"{joint}_damping", f"joint/{joint}/damping", 0.02, 0.001, 1.0, "N m s", "log")
        for joint in JOINTS
    )
    scalars = [
        NeuralScalar(f"force/{joint}", (f"qvel/{joint}",), units=4, scale=0.3, input_scales=(2.0,))
        for joint in JOINTS
    ]
    sim = AugmentedSim(Scene(ARM, "tip", "floor", params=params, name="arm"), scalars)
    start, control = arm_motions()
    model = mujoco.MjModel.from_xml_string(ARM)
    model.dof_frictionloss[:] = dry_friction
    data = mujoco.MjData(model)
    states = np.zeros((6, 193, 4))
    for i in range(6):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = start[i, :2]
        data.qvel[:] = start[i, 2:]
        for k in range(193):
            states[i, k] = [*data.qpos, *data.qvel]
            data.ctrl[:] = control[i, min(k, 191)]
            mujoco.mj_step(model, data)
    windows = [
        windows_of(states[:4], control[:4], steps=1, every=24),
        windows_of(states[:4], control[:4], steps=32, every=24),
    ]
    plain = fit_augmented(sim, windows, [0, 1], train=False)
    found = fit_augmented(sim, windows, [0, 1], ridge=1e-6, steps=25)

    def held_out_error(one: AugmentedSim) -> float:
        """Root mean square error (rad) on motions that were not learnt."""
        error = one.rollout(start[4:], control[4:]) - states[4:]
        return float(np.sqrt((error[..., :2] ** 2).mean()))

    assert held_out_error(found.sim) < 0.35 * held_out_error(plain.sim)
    speeds = np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0])
    for i, expected in enumerate(dry_friction):
        # The curve, with what it took over from the damper, is dry friction: about as large, and
        # always against the motion.
        damper_change = (found.theta[i] - 0.02) * speeds
        torque = curve(found.sim, i, speeds[:, None]) - damper_change
        assert (torque * speeds < 0).all()
        assert np.median(np.abs(np.abs(torque) / expected - 1)) < 0.25
        assert found.without[i] > 1.5 * found.error  # without each network the error grows


@pytest.mark.slow
def test_a_struck_block_learns_that_its_friction_falls_with_speed() -> None:
    def friction(speed: float) -> float:
        return 0.15 + 0.3 * np.exp(-speed / 0.6)

    params = (Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),)
    scalar = NeuralScalar("pair/strike/friction[0:2]", ("speed/block",), "scale", units=4)
    sim = AugmentedSim(Scene(SLED, "block", "floor", params=params, name="block"), [scalar])
    model = mujoco.MjModel.from_xml_string(SLED)
    data = mujoco.MjData(model)
    states = np.zeros((5, 129, 4))
    for i, speed in enumerate((2.0, 1.4, 0.8, 1.7, 1.1)):  # struck, it slides until it rests
        mujoco.mj_resetData(model, data)
        data.qvel[0] = speed
        for k in range(129):
            states[i, k] = [*data.qpos, *data.qvel]
            model.pair_friction[0, :2] = friction(abs(data.qvel[0]))
            mujoco.mj_step(model, data)
    control = np.zeros((5, 128, 0))
    windows = [
        windows_of(states[:3], control[:3], steps=1, every=16),
        windows_of(states[:3], control[:3], steps=24, every=16),
    ]
    plain = fit_augmented(sim, windows, [0], train=False)
    found = fit_augmented(sim, windows, [0], ridge=1e-6, steps=25)

    def stopping_error(one: AugmentedSim) -> float:
        """Greatest error (m) of the position at rest, of strikes that were not learnt."""
        ends = one.rollout(states[3:, 0], control[3:])[:, -1, 0]
        return float(np.abs(ends - states[3:, -1, 0]).max())

    assert stopping_error(found.sim) < 0.25 * stopping_error(plain.sim)
    assert stopping_error(found.sim) < 0.02
    speeds = np.array([0.3, 0.8, 1.3])
    learnt = found.theta[0] * np.exp(curve(found.sim, 0, speeds[:, None]))
    assert np.abs(learnt / friction(speeds) - 1).max() < 0.12
