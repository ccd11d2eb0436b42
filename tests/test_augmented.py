"""Neural scalars in MJX: their gradients are right, and they learn what no parameter describes.

Compiling is what takes time here, so each simulator is compiled once for all tests, and none is
given more than 8 rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.core.augmentation_spec import NeuralScalar, initial_weights, silence_networks
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.estimates import EstimateStatus
from clashsim.core.params import Param, from_unit, locate_param, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.augmented import curve, fit_augmented, windows_of
from clashsim.fit.mjx_windows import StateWindows
from clashsim.report.neural_scalar_plots import (
    plot_scalar_curves,
    plot_scalar_quantiles,
    scalar_curve,
    scalar_quantiles,
)
from clashsim.sim.augmented.simulator import AugmentedSim, JacobianBlocks
from clashsim.sim.mjx.simulator import MjxSim
from clashsim.sim.mujoco.simulator import MujocoSim

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

PENDULUM = """<mujoco>
<option timestep="0.005" integrator="{integrator}"><flag contact="disable"/></option><worldbody>
<geom name="floor" type="plane" size="1 1 .1" pos="0 0 -2"/>
<body name="arm"><joint name="swing" type="hinge" axis="0 1 0" damping="0.01"/>
<geom name="rod" type="capsule" size=".01" fromto="0 0 0 0 0 -.3" mass=".1"/>
<geom name="bob" type="sphere" size=".03" pos="0 0 -.3" mass=".4"/></body></worldbody>
<actuator><motor name="drive" joint="swing"/></actuator></mujoco>"""
ROUNDING = 1e-9  # between two compiled programs: CPUs round them differently in the last digits
PARAMS = (
    Param("damping", "joint/swing/damping", 0.01, 0.001, 0.1, "N m s", "log"),
    Param("gravity", "option/gravity[2]", 9.81, 8.0, 12.0, "m/s^2", sign=-1),
)
BALL = """<mujoco><option timestep="0.004" integrator="implicitfast"/><worldbody>
<geom name="floor" type="plane" size="2 2 .1"/>
<body name="ball" pos="0 0 .1"><freejoint name="float"/>
<geom name="ball" type="sphere" size=".1" mass="1" condim="3"/></body></worldbody></mujoco>"""
FRICTION = (Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),)
CURVE = NeuralScalar("force/swing", ("qvel/swing",), units=4, scale=0.2, input_scales=(5.0,))


def pendulum(*scalars: NeuralScalar, integrator: str = "Euler") -> AugmentedSim:
    xml = PENDULUM.format(integrator=integrator)
    return AugmentedSim(Scene(xml, "bob", "floor", params=PARAMS, name="pendulum"), scalars)


@pytest.fixture(scope="module")
def plain() -> MjxSim:
    return MjxSim(pendulum().scene)


@pytest.fixture(scope="module")
def swing() -> AugmentedSim:
    return pendulum(CURVE)


@pytest.fixture(scope="module")
def many() -> AugmentedSim:
    """One scalar of every kind, at once."""
    return pendulum(
        NeuralScalar("joint/swing/damping", ("qvel/swing", "sin/swing"), "scale", units=2),
        NeuralScalar("acceleration/swing", ("cos/swing", "ctrl/drive"), units=2, scale=3.0),
        NeuralScalar("state/swing", ("qpos/swing", "speed/arm"), units=2, scale=0.05),
        NeuralScalar("option/gravity[2]", ("sin/swing",), "replace", units=2),
        NeuralScalar("force/swing", ("qvel/swing",), "scale", units=2),
    )


def pendulum_runs(n: int = 4, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Starts (n, 2) and control (n, steps, 1) of the pendulum."""
    rng = np.random.default_rng(3)
    angle = rng.uniform(-2, 2, n)
    velocity = rng.uniform(-4, 4, n)
    return np.column_stack([angle, velocity]), 0.2 * rng.normal(size=(n, steps, 1))


def random_weights(sim: AugmentedSim, seed: int = 5) -> np.ndarray:
    """Weights with which every network has an effect."""
    noise = np.random.default_rng(seed).normal(size=len(sim.weights))
    return initial_weights(sim.augmentation) + 0.3 * noise


def central_difference(
    rollout: Callable[[np.ndarray], np.ndarray], point: np.ndarray, i: int, *, step: float = 1e-6
) -> np.ndarray:
    """Derivative of a rollout in entry i of a point."""
    shift = step * np.eye(len(point))[i]
    return (rollout(point + shift) - rollout(point - shift)) / (2 * step)


def check_column(jacobian: np.ndarray, difference: np.ndarray, tolerance: float = 1e-6) -> None:
    """Compare a column of a Jacobian with a finite difference."""
    assert np.abs(jacobian - difference).max() < tolerance * max(1, np.abs(jacobian).max())


def test_without_networks_it_is_mjx(plain: MjxSim) -> None:
    start, control = pendulum_runs()
    states = pendulum().rollout(start, control)
    np.testing.assert_allclose(states, plain.rollout(start, control), rtol=ROUNDING, atol=ROUNDING)
    assert np.abs(states[:, -1] - start).max() > 0.1


@pytest.mark.slow
def test_jacobians_without_networks_are_those_of_mjx(plain: MjxSim) -> None:
    start, control = pendulum_runs()
    theta = from_unit(PARAMS, np.array([0.3, -0.2]))
    states, jacobian = pendulum().rollout_with_jacobian(start, control, theta, free=(0, 1))
    expected_states, expected = plain.rollout_with_jacobian(start, control, theta, free=(0, 1))
    np.testing.assert_allclose(states, expected_states, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(jacobian, expected, rtol=ROUNDING, atol=ROUNDING)
    assert np.abs(jacobian).max() > 0.1


def test_untrained_networks_change_nothing_and_trained_ones_do(
    many: AugmentedSim, plain: MjxSim
) -> None:
    start, control = pendulum_runs()
    analytic = plain.rollout(start, control)
    assert np.abs(many.rollout(start, control) - analytic).max() < ROUNDING
    weights = random_weights(many)
    for i, scalar in enumerate(many.augmentation):  # each one alone
        others = [j for j in range(len(many.augmentation)) if j != i]
        alone = silence_networks(many.augmentation, weights, others)
        states = many.rollout(start, control, weights=alone)
        assert np.abs(states - analytic).max() > 1e-4, scalar.target
    trained = many.with_weights(weights).rollout(start, control)
    given = many.rollout(start, control, weights=weights)
    np.testing.assert_allclose(trained, given, rtol=ROUNDING, atol=ROUNDING)


def test_jacobians_are_those_of_finite_differences(many: AugmentedSim) -> None:
    start, control = pendulum_runs(2)
    nominal = many.scene.nominal
    weights = random_weights(many)
    states, jacobian = many.rollout_with_jacobian(
        start,
        control,
        nominal,
        free=(1, 0),
        weights=weights,
        blocks=JacobianBlocks(start=True),
    )
    expected = many.rollout(start, control, theta=nominal, weights=weights)
    assert jacobian.shape == (*states.shape, 2 + len(weights) + 2)
    assert np.allclose(states, expected, atol=ROUNDING)

    def by_params(unit: np.ndarray) -> np.ndarray:
        return many.rollout(start, control, theta=from_unit(PARAMS, unit), weights=weights)

    def by_weights(values: np.ndarray) -> np.ndarray:
        return many.rollout(start, control, theta=nominal, weights=values)

    def by_start(shift: np.ndarray) -> np.ndarray:
        return many.rollout(start + shift, control, theta=nominal, weights=weights)

    unit = to_unit(PARAMS, nominal)
    for column, param in enumerate((1, 0)):
        check_column(jacobian[..., column], central_difference(by_params, unit, param))
    for i in range(len(weights)):
        check_column(jacobian[..., 2 + i], central_difference(by_weights, weights, i))
    for i in range(2):
        check_column(jacobian[..., i - 2], central_difference(by_start, np.zeros(2), i))
    sensitive = np.abs(jacobian).max((0, 1, 2)) > 1e-4
    assert sensitive.sum() > 0.9 * jacobian.shape[-1]


CONTACT = (
    "pair/strike/friction[0:2]",
    "pair/strike/solref[0]",
    "pair/strike/solref[1]",
    "pair/strike/solimp[1]",
    "pair/strike/margin",
)
# Changes of these: logarithms of factors, and the margin (m) itself.
CONTACT_CHANGES = (np.log(1.7), np.log(2.5), np.log(0.4), np.log(0.97), 0.02)
WEIGHTS_PER_SCALAR = 7  # one input, two units, one output


def rolling_ball(*targets: str) -> tuple[AugmentedSim, np.ndarray, np.ndarray]:
    """A ball that slides and begins to roll, with networks in these quantities of its contact.

    By default there is one network, in its friction. Starts (2, 13), control (2, 30, 0).
    """
    scalars = [
        NeuralScalar(target, ("speed/ball",), "add" if "margin" in target else "scale", units=2)
        for target in targets or CONTACT[:1]
    ]
    sim = AugmentedSim(Scene(BALL, "ball", "floor", params=FRICTION, name="ball"), scalars)
    sliding = np.concatenate([sim.model.qpos0, [2.0, 0, 0, 0, 0, 0]])
    start = np.tile(sliding, (2, 1))
    start[:, 2] = 0.0995  # pressed in a little, so that it begins in contact
    return sim, start, np.zeros((2, 30, 0))


@pytest.mark.slow
def test_friction_of_a_contact_may_depend_on_speed() -> None:
    sim, start, control = rolling_ball()
    nominal = sim.scene.nominal
    unchanged = sim.rollout(start, control, theta=nominal)
    weights = sim.weights.copy()
    weights[-1] = np.log(2.0)  # the last bias alone: twice the friction at every speed
    double = sim.rollout(start, control, theta=np.array([0.6]))
    augmented = sim.rollout(start, control, theta=nominal, weights=weights)
    assert np.allclose(augmented, double, atol=ROUNDING)
    assert np.abs(double - unchanged).max() > 1e-2
    # exp(2 tanh(100 speed) - 2): changes nothing but at rest.
    weights[:] = 0
    weights[0] = 100.0  # of the speed
    weights[4] = 2.0  # of the last layer
    weights[6] = -2.0  # its bias
    augmented = sim.rollout(start, control, theta=nominal, weights=weights)
    assert np.abs(augmented - unchanged).max() < 1e-6


@pytest.mark.slow
def test_other_quantities_of_a_contact_are_those_of_mujoco() -> None:
    sim, start, control = rolling_ball(*CONTACT)
    noise = np.random.default_rng(1).normal(size=start.shape)
    start = start + noise * np.r_[np.zeros(9), -0.3, np.zeros(3)]  # it lands at different speeds
    scene = sim.scene
    outcomes = []
    for i, (target, change) in enumerate(zip(CONTACT, CONTACT_CHANGES, strict=True)):
        weights = sim.weights.copy()
        last_bias = WEIGHTS_PER_SCALAR * i + 6
        weights[last_bias] = change  # alone: the same at every speed
        states = sim.rollout(start, control, theta=scene.nominal, weights=weights)
        in_mujoco = MujocoSim(scene, scene.nominal)
        slot = locate_param(in_mujoco.model, target)
        row = getattr(in_mujoco.model, slot.field).reshape(in_mujoco.model.npair, -1)[0]
        columns = list(slot.columns or (0,))
        if "margin" in target:
            row[columns] = row[columns] + change
        else:
            row[columns] = row[columns] * np.exp(change)
        expected = in_mujoco.rollout(start, control)
        assert np.abs(states - expected).max() < 1e-6, target
        outcomes.append(expected)
    for first, second in itertools.combinations(outcomes, 2):
        assert np.abs(first - second).max() > 1e-4  # each one matters


@pytest.mark.slow
def test_gradients_go_through_the_friction_of_a_contact() -> None:
    sim, start, control = rolling_ball()
    weights = random_weights(sim)
    _, jacobian = sim.rollout_with_jacobian(start, control, weights=weights)

    def by_weights(values: np.ndarray) -> np.ndarray:
        return sim.rollout(start, control, theta=sim.scene.nominal, weights=values)

    for i in range(len(weights)):
        difference = central_difference(by_weights, weights, i)
        check_column(jacobian[..., i], difference, tolerance=1e-5)


@pytest.mark.parametrize(
    ("scalar", "words"),
    [
        ({"target": "joint/swnig/damping"}, ["'swnig'", "swing"]),
        ({"target": "joint/swing/dampnig"}, ["dampnig", "damping"]),
        ({"target": "force/elbow"}, ["'elbow'", "swing"]),
        ({"target": "torque/swing"}, ["torque/swing", "force"]),
        ({"reads": ("angle/swing",)}, ["angle/swing", "qpos", "speed"]),
        ({"reads": ("ctrl/motor",)}, ["'motor'", "drive"]),
        ({"reads": ("speed/leg",)}, ["'leg'", "arm"]),
        ({"reads": ("qvel/swing[0]",)}, ["no index"]),
        ({"mode": "multiply"}, ["multiply", "scale"]),
        ({"units": 0}, ["units >= 1"]),
        ({"reads": ()}, ["reads nothing"]),
        ({"input_scales": (1.0, 2.0)}, ["1 input scales"]),
        ({"target": "body/arm/ipos[0]"}, ["derives constants"]),
        ({"target": "body/arm/mass"}, ["negative", "positive"]),
        ({"reads": ("gap/strke",)}, ["'strke'", "strike"]),
        ({"reads": ("gap/strike",)}, ["no such contact"]),
        ({"target": "joint/swing/frictionloss"}, ["force/swing"]),
    ],
    ids=str,
)
def test_wrong_names_are_refused(scalar: dict, words: list[str]) -> None:
    with pytest.raises(ClashError) as refused:
        pendulum(NeuralScalar(**{"target": "force/swing", "reads": ("qvel/swing",)} | scalar))
    assert all(word in str(refused.value) for word in words) and "\n" not in str(refused.value), (
        str(refused.value)
    )


def test_other_refusals(swing: AugmentedSim) -> None:
    with pytest.raises(ParamError, match="RK4"):
        pendulum(NeuralScalar("state/swing", ("qvel/swing",)), integrator="RK4")
    with pytest.raises(ParamError, match="13 weights"):
        swing.with_weights(np.zeros(3))
    ball = Scene(BALL, "ball", "floor", name="ball")
    with pytest.raises(ParamError, match="index, 0 to 5"):
        AugmentedSim(ball, [NeuralScalar("force/float", ("qvel/float[0]",))])
    with pytest.raises(ParamError, match="hinges and slides"):
        AugmentedSim(ball, [NeuralScalar("state/float[4]", ("qvel/float[0]",))])


def recorded(
    scene: Scene, theta: np.ndarray, torque: Callable[[float], float]
) -> tuple[np.ndarray, np.ndarray]:
    """States (4, 97, 2) and control (4, 96, 1) of MuJoCo itself with a torque on the joint that no
    parameter describes.
    """
    model, (start, control) = scene.model(theta), pendulum_runs(4, 96)
    data, states = mujoco.MjData(model), np.zeros((4, 97, 2))
    for i in range(4):
        mujoco.mj_resetData(model, data)
        data.qpos[0], data.qvel[0] = start[i]
        for k in range(97):
            states[i, k] = data.qpos[0], data.qvel[0]
            if k < 96:
                data.ctrl[:], data.qfrc_applied[0] = control[i, k], torque(data.qvel[0])
                mujoco.mj_step(model, data)
    return states, control


def both(states: np.ndarray, control: np.ndarray) -> list[StateWindows]:
    """Windows of one step and of 30, 32 and 12 of them."""
    return [
        windows_of(states, control, steps=1, every=13),
        windows_of(states, control, steps=30, every=12),
    ]


@pytest.mark.slow
def test_a_friction_curve_that_no_parameter_describes_is_learnt(swing: AugmentedSim) -> None:
    def torque(v: float) -> float:
        return -0.06 * np.tanh(v / 0.8)

    truth = np.array([0.01, 9.4])
    windows = both(*recorded(swing.scene, truth, torque))
    plain = fit_augmented(swing, windows, [0, 1], train=False)
    found = fit_augmented(swing, windows, [1], ridge=1e-6, steps=40)
    speeds = np.linspace(-4, 4, 33)
    assert found.error < 0.1 * plain.error and found.without[0] > 10 * found.error
    assert (
        np.abs(curve(found.sim, 0, speeds[:, None]) - [torque(v) for v in speeds]).max()
        < 0.15 * 0.06
    )
    gravity = found.estimates[1]
    assert (
        abs(gravity.value - 9.4) < 0.05
        and gravity.low < 9.4 < gravity.high
        and gravity.status is EstimateStatus.FITTED
    )
    assert (
        found.estimates[0].status is EstimateStatus.UNIDENTIFIABLE
        and found.theta[0] == swing.scene.nominal[0]
    )  # not asked for
    assert (np.diff(found.trace) <= 0).all()
    together = fit_augmented(found.sim, windows, [0, 1], ridge=1e-6, steps=2)
    assert (
        together.estimates[0].high / together.estimates[0].low > 2
    )  # damping is a part of the curve: the network could say it as well


@pytest.mark.slow
def test_the_regulariser_keeps_the_network_at_zero_where_the_analytic_model_is_exact(
    swing: AugmentedSim,
) -> None:
    truth = np.array([0.03, 10.6])
    windows = both(*recorded(swing.scene, truth, lambda v: 0.0))
    found = fit_augmented(swing, windows, [0, 1], ridge=1e-4)
    assert np.abs(found.theta / truth - 1).max() < 1e-2 and found.error < 1e-3
    assert np.linalg.norm(found.sim.weights - swing.weights) < 1e-2
    assert (
        np.abs(curve(found.sim, 0, np.linspace(-4, 4, 9)[:, None])).max() < 0.01 * truth[0] * 4
    )  # of the damping's torque
    assert all(e.status is EstimateStatus.FITTED for e in found.estimates)


def test_what_cannot_be_fitted_is_refused(swing: AugmentedSim) -> None:
    control = pendulum_runs(2, 5)[1]
    states = np.zeros((2, 6, 2))
    with pytest.raises(DataError, match="no windows of 9 steps"):
        windows_of(states, control, steps=9, every=1)
    windows = windows_of(states, control, steps=2, every=1)
    with pytest.raises(DataError, match="observed needs shape"):
        fit_augmented(swing, [replace(windows, observed=windows.observed[:, 1:])], [0])
    with pytest.raises(DataError, match="nothing to fit"):
        fit_augmented(swing, [windows], [], train=False)


def test_curves_are_drawn_against_what_is_read(tmp_path) -> None:
    two = (
        CURVE,
        NeuralScalar("joint/swing/damping", ("qvel/swing", "sin/swing"), "scale", units=3),
    )
    weights, ranges = initial_weights(two), {"qvel/swing": (-4.0, 4.0), "sin/swing": (-1.0, 1.0)}
    assert all(
        (scalar_curve(two, weights, i, ranges=ranges)[1] == i).all() for i in (0, 1)
    )  # untrained: adds 0, scales by 1
    weights[12] = 0.5
    speeds, torque = scalar_curve(two, weights, 0, ranges=ranges)
    assert (speeds[0], speeds[-1]) == (-4, 4) and np.allclose(torque, 0.2 * 0.5)
    plot_scalar_curves(tmp_path / "curves.png", two, weights, ranges=ranges)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="'sin/swing'"):
        plot_scalar_curves(tmp_path / "no.png", two, weights, ranges={"qvel/swing": (-4.0, 4.0)})
    assert not (tmp_path / "no.png").exists()


def test_what_a_network_typically_says_is_told_over_the_records(tmp_path) -> None:
    scalar = NeuralScalar("force/swing", ("sin/swing", "cos/swing", "qvel/swing"), units=1)
    weights = np.array([0.0, 0, 1, 0, 2, 0])  # 2 tanh(speed)
    recorded = np.column_stack([np.zeros(11), np.ones(11), np.linspace(-1, 1, 11)])
    speeds = np.linspace(-3, 3, 7)
    assert np.allclose(
        scalar_quantiles((scalar,), weights, 0, over="qvel/swing", at=speeds, recorded=recorded),
        2 * np.tanh(speeds)[:, None],
    )
    low, middle, high = scalar_quantiles(
        (scalar,), weights, 0, over="angle/swing", at=speeds, recorded=recorded
    ).T
    assert (
        np.allclose(middle, 0) and np.allclose(high, 2 * np.tanh(0.8)) and np.allclose(low, -high)
    )  # no turn matters, but speeds do
    plot_scalar_quantiles(
        tmp_path / "t.png",
        (scalar,),
        weights,
        recorded=recorded,
        over={"qvel/swing": speeds, "angle/swing": speeds},
    )
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="does not read 'angle/arm'"):
        scalar_quantiles((scalar,), weights, 0, over="angle/arm", at=speeds, recorded=recorded)
