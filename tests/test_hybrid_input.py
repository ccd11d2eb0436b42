"""Input of simulators: one sentence about what is wrong, an empty result for an empty batch."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.core.box import Box
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.impacts import before_columns
from clashsim.core.scene import Scene
from clashsim.fit.base import distilled_model
from clashsim.fit.sample import sample_strikes
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.slides.law import SlideModel

NOT_FINITE = (np.nan, np.inf, -np.inf)
STEPS = 3


@pytest.fixture(scope="module")
def square() -> HybridSim:
    scene = Scene.load("square")
    slide = SlideModel({"friction": 0.3}, gyration=0.0327)
    return HybridSim(scene, distilled_model(scene), slide_model=slide)


@pytest.fixture(scope="module")
def impacts(square: HybridSim) -> np.ndarray:
    return sample_strikes(square.scene, 4, np.random.default_rng(0)).before


def make_simulator(kind: str):
    """A simulator, and a start (1, s) of it."""
    if kind == "hybrid":
        scene = Scene.load("square")
        sim = HybridSim(scene, distilled_model(scene))
    elif kind == "mujoco":
        sim = MujocoSim(Scene.load("square"))
    elif kind == "graph":
        from clashsim.sim.graph.simulator import GraphSim

        box = Box.even((0.05, 0.05, 0.05), 0.37)
        sim = GraphSim([box], np.zeros(5))
        return sim, np.array([[0, 0, 0.2, 1, 0, 0, 0] + 6 * [0]], float)
    else:
        pytest.importorskip("mujoco.mjx", reason="MJX is the extra mjx")
        from clashsim.sim.augmented.simulator import AugmentedSim
        from clashsim.sim.mjx.simulator import MjxSim

        scene = Scene.load("puck")
        sim = MjxSim(scene) if kind == "mjx" else AugmentedSim(scene)
    return sim, np.concatenate([sim.model.qpos0, np.zeros(sim.model.nv + sim.model.na)])[None]


def actuators(sim) -> int:
    return sim.model.nu if hasattr(sim, "model") else 0


@pytest.mark.parametrize("value", NOT_FINITE)
def test_an_impact_that_is_not_finite_is_named_by_row_and_column(square, impacts, value):
    for column, name in enumerate(before_columns(planar=True)):
        before = impacts.copy()
        before[2, column] = value
        for ask in (square.outcome, square.predict_with_std, square.rest):
            with pytest.raises(DataError) as refused:
                ask(before)
            assert str(refused.value) == f"before must be finite, but row 2 has {value} in '{name}'"


def test_no_impacts_have_no_outcomes(square):
    none = np.zeros((0, 12))
    assert square.outcome(none).shape == (0, 3)
    assert [a.shape for a in square.predict_with_std(none)] == [(0, 3), (0, 3), (0,)]
    assert square.rest(none).shape == (0, 3)
    assert square.slide_to_rest(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)


def test_impacts_of_another_shape_are_refused(square, impacts):
    for wrong in (impacts[0], impacts[:, :-1], impacts[None], np.zeros((0, 26))):
        with pytest.raises(DataError, match=r"before needs shape \(N, 12\), got"):
            square.outcome(wrong)
    for wrong in ("square", [[1.0], [1.0, 2.0]], None):
        with pytest.raises(DataError, match="before"):
            square.outcome(wrong)
    with pytest.raises(DataError, match="0 to 0, got 1"):
        square.outcome(impacts, pair=1)
    with pytest.raises(ParamError, match="theta needs shape"):
        square.outcome(impacts, theta=np.zeros(3))
    theta = np.tile(square.theta, (4, 1))
    theta[3, 0] = np.nan
    with pytest.raises(ParamError, match=f"row 3 has nan in '{square.scene.params[0].name}'"):
        square.outcome(impacts, theta=theta)
    with pytest.raises(DataError, match="twist must be finite, but row 1 has inf in 'w'"):
        square.slide_to_rest(np.zeros((2, 3)), np.array([[1.0, 0, 0], [0, 0, np.inf]]))
    with pytest.raises(DataError, match="as many poses as twists, got 1 and 2"):
        square.slide_to_rest(np.zeros((1, 3)), np.zeros((2, 3)))


def test_lists_are_taken_as_arrays(square, impacts):
    np.testing.assert_array_equal(square.outcome(impacts.tolist()), square.outcome(impacts))


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("field", ["qpos", "qvel", "ctrl"])
def test_a_step_from_what_is_not_finite_is_refused(square, field, value):
    data = mujoco.MjData(square.model)
    for entry in range(len(getattr(data, field))):
        mujoco.mj_resetData(square.model, data)
        getattr(data, field)[entry] = value
        with pytest.raises(DataError) as refused:
            square.step(data)
        assert str(refused.value) == f"the MjData must be finite, but {field}[{entry}] is {value}"


def test_a_step_with_data_of_another_model_is_refused(square):
    others = [Scene.load("puck").base, square.scene.base, Scene.load("square").model()]
    for model in others:
        with pytest.raises(DataError, match="made from another model"):
            square.step(mujoco.MjData(model))
    for wrong in (square.model, None):
        with pytest.raises(DataError, match="needs an MjData"):
            square.step(wrong)
    scene = square.scene
    coarse = HybridSim(scene, distilled_model(scene), timestep=0.002)
    same_structure = HybridSim(scene, distilled_model(scene)).model
    coarse.step(mujoco.MjData(same_structure))


@pytest.mark.parametrize("kind", ["hybrid", "mujoco", "mjx", "augmented", "graph"])
def test_every_simulator_checks_a_rollout(kind):
    sim, start = make_simulator(kind)
    size, count = start.shape[1], actuators(sim)
    control = np.zeros((2, STEPS, count))
    two = np.tile(start, (2, 1))
    for column in range(size):
        for value in NOT_FINITE:
            wrong = two.copy()
            wrong[1, column] = value
            sentence = f"start must be finite, but row 1 has {value} in q"
            with pytest.raises(DataError, match=sentence):
                sim.rollout(wrong, control)
    if count:
        wrong = control.copy()
        wrong[1, 2, 0] = np.inf
        with pytest.raises(DataError, match=r"row 1, step 2 has inf in ctrl\[0\]"):
            sim.rollout(two, wrong)
    for wrong in (start[0], two[:, :-1], "start"):
        with pytest.raises(DataError, match="start"):
            sim.rollout(wrong, control)
    for wrong in (control[0], control[:1], np.zeros((2, STEPS, count + 1))):
        with pytest.raises(DataError, match="control needs shape"):
            sim.rollout(two, wrong)
    for wrong in (np.zeros(99), np.zeros((1, 2, 3)), "theta"):
        with pytest.raises(ClashError, match="theta"):
            sim.rollout(two, control, theta=wrong)
    empty = sim.rollout(start[:0], control[:0])
    assert empty.shape == (0, STEPS + 1, size)
    still = sim.rollout(two, control[:, :0])
    np.testing.assert_array_equal(still, two[:, None])


@pytest.mark.parametrize("kind", ["mjx", "augmented"])
def test_no_starts_have_no_jacobians(kind):
    sim, start = make_simulator(kind)
    states, jacobian = sim.rollout_with_jacobian(
        start[:0], np.zeros((0, STEPS, actuators(sim))), free=[0, 1]
    )
    assert states.shape == (0, STEPS + 1, start.shape[1])
    assert jacobian.shape == (*states.shape, 2)


def test_columns_of_a_state_are_named_by_their_joints():
    sim, start = make_simulator("hybrid")
    model = sim.model
    wrong = start.copy()
    wrong[0, 7] = np.nan
    owner = model.joint(1).name
    with pytest.raises(DataError, match=rf"row 0 has nan in qpos\[7\] \('{owner}'\)"):
        sim.rollout(wrong, np.zeros((1, STEPS, model.nu)))


def test_a_box_without_a_direction_is_refused():
    sim, start = make_simulator("graph")
    start[0, 3:7] = 0
    with pytest.raises(DataError, match="quaternion of length 0 in row 0, box 0"):
        sim.rollout(start, np.zeros((1, STEPS, 0)))
