"""What neural scalars are for: a simulator that must become another one which has something that no
parameter of it describes.
"""

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

ARM = """<mujoco><option timestep="0.005" integrator="implicitfast"><flag contact="disable"/></option><worldbody><geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
<body><joint name="shoulder" type="hinge" axis="0 1 0" damping=".02"/><geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4" mass="1"/>
<body pos="0 0 -.4"><joint name="elbow" type="hinge" axis="0 1 0" damping=".02"/><geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 -.3" mass=".5"/>
</body></body></worldbody><actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator></mujoco>"""
SLED = """<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
<body name="block" pos="0 0 .05"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<geom name="block" type="box" size=".05 .05 .05" mass=".4"/></body></worldbody>
<contact><pair name="strike" geom1="block" geom2="floor" condim="3" friction=".3 .3 .005 .0001 .0001"/></contact></mujoco>"""


@pytest.mark.slow
def test_an_arm_learns_the_joint_friction_of_another() -> None:
    """The other arm has MuJoCo's dry friction in both joints; this one has dampers only."""
    dry = (0.3, 0.12)  # N m
    params = tuple(
        Param(f"{joint}_damping", f"joint/{joint}/damping", 0.02, 0.001, 1.0, "N m s", "log")
        for joint in ("shoulder", "elbow")
    )
    sim = AugmentedSim(
        Scene(ARM, "tip", "floor", params=params, name="arm"),
        [
            NeuralScalar(
                f"force/{joint}", (f"qvel/{joint}",), units=4, scale=0.3, input_scales=(2.0,)
            )
            for joint in ("shoulder", "elbow")
        ],
    )
    rng = np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(ARM)
    model.dof_frictionloss[:] = dry
    time = np.arange(192)[:, None] * 0.005
    control = np.stack(
        [
            rng.uniform(0.5, 2.0, 2) * np.sin(rng.uniform(3, 8, 2) * time + rng.uniform(0, 6, 2))
            for _ in range(6)
        ]
    )
    start, states = (
        np.column_stack([rng.uniform(-1.5, 1.5, (6, 2)), rng.uniform(-2, 2, (6, 2))]),
        np.zeros((6, 193, 4)),
    )
    data = mujoco.MjData(model)
    for i in range(6):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = start[i, :2], start[i, 2:]
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

    def off(one: AugmentedSim) -> float:
        return float(
            np.sqrt(((one.rollout(start[4:], control[4:]) - states[4:])[..., :2] ** 2).mean())
        )

    assert off(found.sim) < 0.35 * off(plain.sim)  # on motions that were not learnt
    speeds = np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0])
    for i, torque in enumerate(
        dry
    ):  # the curve, with what it took over from the damper, is dry friction: about as large, and always against the motion
        said = curve(found.sim, i, speeds[:, None]) - (found.theta[i] - 0.02) * speeds
        assert (said * speeds < 0).all() and np.median(np.abs(np.abs(said) / torque - 1)) < 0.25
        assert found.without[i] > 1.5 * found.error  # silenced, each is missed


@pytest.mark.slow
def test_a_struck_block_learns_that_its_friction_falls_with_speed() -> None:
    def friction(speed: float) -> float:
        return 0.15 + 0.3 * np.exp(-speed / 0.6)

    params = (Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),)
    sim = AugmentedSim(
        Scene(SLED, "block", "floor", params=params, name="block"),
        [NeuralScalar("pair/strike/friction[0:2]", ("speed/block",), "scale", units=4)],
    )
    model = mujoco.MjModel.from_xml_string(SLED)
    data, speeds, states = mujoco.MjData(model), (2.0, 1.4, 0.8, 1.7, 1.1), np.zeros((5, 129, 4))
    for i, speed in enumerate(speeds):  # struck, it slides until it rests
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

    def stop(one: AugmentedSim) -> np.ndarray:
        return np.abs(one.rollout(states[3:, 0], control[3:])[:, -1, 0] - states[3:, -1, 0])

    assert (
        stop(found.sim).max() < 0.25 * stop(plain.sim).max() and stop(found.sim).max() < 0.02
    )  # m, of strikes that were not learnt
    at = np.array([0.3, 0.8, 1.3])
    assert (
        np.abs(found.theta[0] * np.exp(curve(found.sim, 0, at[:, None])) / friction(at) - 1).max()
        < 0.12
    )
