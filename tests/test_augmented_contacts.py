"""Networks that read contacts or change masses: their values and gradients are MuJoCo's."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.core.augmentation_spec import NeuralScalar, initial_weights
from clashsim.core.errors import ParamError
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.sim.augmented.simulator import AugmentedSim
from clashsim.sim.mujoco.simulator import MujocoSim

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

BOX = """<mujoco><option timestep="0.004" integrator="implicitfast" cone="{cone}"/><worldbody>
<geom name="floor" type="plane" size="2 2 .1"/>
<body name="box" pos="0 0 .1"><freejoint name="float"/>
<geom name="box" type="box" size=".1 .08 .1" mass="1" condim="3"/></body></worldbody></mujoco>"""
ARM = """<mujoco><option timestep="0.004" integrator="implicitfast"/><worldbody>
<geom name="floor" type="plane" size="2 2 .1" pos="0 0 -.9"/>
<body name="upper"><joint name="shoulder" type="hinge" axis="0 1 0" damping=".01"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4" mass="1"/>
<body name="lower" pos="0 0 -.4"><joint name="elbow" type="hinge" axis="0 1 0" damping=".01"/>
<geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 -.6" mass=".5"/>
</body></body></worldbody></mujoco>"""
BALL = BOX.format(cone="pyramidal").replace('"box"', '"ball"')
BALL = BALL.replace('type="ball" size=".1 .08 .1"', 'type="sphere" size=".1"')
SMALL = 1e-4  # factor on inputs, at which tanh is the identity to eight digits
READS = ("gap/strike", "slip_speed/strike", "normal_force/strike")


def identity(read: str) -> NeuralScalar:
    """A network whose output is its input, with the weights of `identity_weights`."""
    return NeuralScalar("force/float[0]", (read,), units=1, scale=1 / SMALL)


IDENTITY_WEIGHTS = np.array([SMALL, 0.0, 1.0, 0.0])


def sliding(scene: Scene) -> np.ndarray:
    """States (2, 13) of a body that slides, pressed into the floor."""
    model = scene.base
    state = np.concatenate([model.qpos0, [1.5, -0.4, 0, 0, 0, 0.3]])
    start = np.stack([state, state])
    start[:, 2] = [0.0997, 0.0992]
    start[1, 8] = -0.2
    return start


@pytest.mark.parametrize("cone", ["pyramidal", pytest.param("elliptic", marks=pytest.mark.slow)])
def test_what_is_read_of_a_contact_is_what_mujoco_has(cone: str) -> None:
    scene = Scene(BOX.format(cone=cone), "box", "floor", name="box")
    scalars = [identity(read) for read in READS]
    sim = AugmentedSim(scene, scalars, weights=np.tile(IDENTITY_WEIGHTS, 3))
    start = sliding(scene)
    found = sim.network_outputs(start)
    model = scene.base
    data = mujoco.MjData(model)
    for state, row in zip(start, found, strict=True):
        data.qpos[:], data.qvel[:] = state[:7], state[7:]
        mujoco.mj_forward(model, data)
        force = np.zeros(6)
        total = 0.0
        for i in range(data.ncon):
            mujoco.mj_contactForce(model, data, i, force)
            total += force[0]
        gaps = [contact.dist for contact in data.contact[: data.ncon]]
        assert row[0] == pytest.approx(min(gaps), abs=1e-8)
        # At some corner: the box spins a little, and all corners are equally deep.
        speeds = []
        for contact in data.contact[: data.ncon]:
            arm = contact.pos - data.xpos[1]
            point = state[7:10] + np.cross(data.xmat[1].reshape(3, 3) @ state[10:], arm)
            speeds.append(np.linalg.norm(point[:2]))
        assert min(abs(row[1] - np.array(speeds))) < 1e-5
        assert row[2] == pytest.approx(total, rel=1e-4)
        assert total > 1


@pytest.mark.slow
def test_gradients_go_through_gap_slip_speed_and_force() -> None:
    scene = Scene(BOX.format(cone="pyramidal"), "box", "floor", name="box")
    scalar = NeuralScalar(
        "pair/strike/friction[0:2]", READS, "scale", units=2, input_scales=(1e-3, 1.0, 10.0)
    )
    sim = AugmentedSim(scene, [scalar])
    start, control = sliding(scene), np.zeros((2, 6, 0))
    rng = np.random.default_rng(0)
    weights = initial_weights(sim.augmentation) + 0.3 * rng.normal(size=scalar.count)
    _, jacobian = sim.rollout_with_jacobian(start, control, weights=weights)
    for i in range(scalar.count):
        shift = 1e-6 * np.eye(scalar.count)[i]
        above = sim.rollout(start, control, weights=weights + shift)
        below = sim.rollout(start, control, weights=weights - shift)
        difference = (above - below) / 2e-6
        error = np.abs(jacobian[..., i] - difference).max()
        assert error < 1e-4 * max(1e-3, np.abs(jacobian).max())
    assert np.abs(jacobian).max() > 1e-4


@pytest.mark.parametrize(
    ("xml", "striker", "body"),
    [
        (BALL, "ball", "ball"),
        pytest.param(ARM, "tip", "lower", marks=pytest.mark.slow),
        pytest.param(ARM, "tip", "upper", marks=pytest.mark.slow),
    ],
)
def test_a_mass_is_changed_with_all_that_mujoco_derives_from_it(
    xml: str, striker: str, body: str
) -> None:
    """A network with a constant output is another mass in the MJCF, with its inertia unchanged."""
    mass = float(mujoco.MjModel.from_xml_string(xml).body(body).mass[0])
    param = Param("mass", f"body/{body}/mass", mass, 0.1 * mass, 10 * mass, "kg", "log")
    scene = Scene(xml, striker, "floor", params=(param,), name="scene")
    scalar = NeuralScalar(f"body/{body}/mass", (f"speed/{body}",), "scale", units=1)
    weights = np.array([0, 0, 0, np.log(2.5)])
    sim = AugmentedSim(scene, [scalar], theta=np.array([mass]), weights=weights)
    if striker == "ball":
        start = sliding(scene)
    else:
        start = np.array([[0.1, 0.05, -1.0, -2.0], [0.6, 0.3, -3.0, 1.0]])
    control = np.zeros((len(start), 48, 0))
    expected = MujocoSim(scene, np.array([2.5 * mass])).rollout(start, control)
    light = MujocoSim(scene, np.array([mass])).rollout(start, control)
    found = sim.rollout(start, control)
    assert np.abs(found - expected).max() < 1e-6
    assert np.abs(found - light).max() > 1e-4


@pytest.mark.slow
def test_gradients_go_through_a_mass() -> None:
    scene = Scene(ARM, "tip", "floor", name="arm")
    scalar = NeuralScalar("body/lower/mass", ("sin/elbow",), "positive", units=2)
    sim = AugmentedSim(scene, [scalar])
    start, control = np.array([[0.6, 0.3, -3.0, 1.0]]), np.zeros((1, 12, 0))
    weights = initial_weights(sim.augmentation) + 0.3
    _, jacobian = sim.rollout_with_jacobian(start, control, weights=weights)
    for i in range(scalar.count):
        shift = 1e-6 * np.eye(scalar.count)[i]
        above = sim.rollout(start, control, weights=weights + shift)
        below = sim.rollout(start, control, weights=weights - shift)
        assert np.abs(jacobian[..., i] - (above - below) / 2e-6).max() < 1e-5
    assert np.abs(jacobian).max() > 1e-3


def test_masses_and_contacts_that_cannot_be_are_refused() -> None:
    scene = Scene(BOX.format(cone="pyramidal"), "box", "floor", name="box")
    mass = NeuralScalar("body/box/mass", ("speed/box",), "scale", units=1)
    with pytest.raises(ParamError, match="'add' could make"):
        AugmentedSim(scene, [replace(mass, mode="add")])
    with pytest.raises(ParamError, match="'stike'"):
        AugmentedSim(scene, [replace(mass, reads=("gap/stike",))])
    tendon = ARM.replace(
        "</worldbody>",
        '</worldbody><tendon><fixed><joint joint="elbow" coef="1"/></fixed></tendon>',
    )
    with pytest.raises(ParamError, match="tendons or muscles"):
        AugmentedSim(
            Scene(tendon, "tip", "floor", name="arm"),
            [replace(mass, target="body/lower/mass", reads=("speed/lower",))],
        )
