"""Friction formulas are found from torques, with the coefficients that made them."""

from __future__ import annotations

import numpy as np
import pytest

from clashsim.core.errors import ClashError
from clashsim.core.friction_formula import FormulaScalar, FrictionFormula
from clashsim.fit.friction_formulas import fit_formulas

RNG = np.random.default_rng(0)
SPEED = np.concatenate([RNG.normal(size=300) * 4, RNG.normal(size=100) * 0.5])
LOAD = 5 + 3 * np.sin(np.linspace(0, 40, 400))
TRUTHS = [
    FrictionFormula(),
    FrictionFormula(("viscous",), damping=0.02),
    FrictionFormula(("dry",), frictionloss=0.06, smoothing=0.3),
    FrictionFormula(("load",), load=0.01, smoothing=0.3),
    FrictionFormula(("dry", "viscous"), damping=0.01, frictionloss=0.06, smoothing=0.2),
    FrictionFormula(("dry", "load"), frictionloss=0.06, load=0.01, smoothing=0.2),
    FrictionFormula(
        ("dry", "stribeck", "viscous"),
        damping=0.01,
        frictionloss=0.06,
        stribeck=0.06,
        stribeck_speed=1.5,
        smoothing=0.1,
    ),
]


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.name)
def test_a_known_law_is_found_with_its_coefficients(truth: FrictionFormula) -> None:
    torque = truth.torque(SPEED, LOAD) + 0.002 * RNG.normal(size=400)
    best, *_ = fit_formulas(SPEED, torque, LOAD)
    assert best.formula.terms == truth.terms
    for name in truth.coefficients:
        tolerance = 0.2 if name in ("smoothing", "stribeck_speed", "stribeck") else 0.1
        assert getattr(best.formula, name) == pytest.approx(getattr(truth, name), rel=tolerance)
    assert best.explained > 0.95 or not truth.terms
    assert best.in_mjcf == (not {"load", "stribeck"} & set(truth.terms))


def test_few_independent_torques_are_no_evidence_for_many_terms() -> None:
    """A ripple of a network's output is no Stribeck friction."""
    torque = -0.06 * np.tanh(SPEED / 0.3) * (1 + 0.05 * np.cos(1.7 * SPEED + 1))
    best, *_ = fit_formulas(SPEED, torque, count=19)
    assert best.formula.terms == ("dry",)


def test_a_torque_that_drives_is_not_friction() -> None:
    best, *_ = fit_formulas(SPEED, 0.05 * SPEED)
    assert best.formula.terms == ()
    assert best.explained == 0
    assert best.formula.text == "0"


def test_a_formula_is_written_with_its_numbers() -> None:
    assert TRUTHS[4].text == "-0.06 tanh(v / 0.2) - 0.01 v"
    assert TRUTHS[4].name == "dry + viscous"


@pytest.mark.parametrize("truth", [truth for truth in TRUTHS if "load" not in truth.terms])
def test_a_formula_takes_part_in_a_simulation_as_given_and_scaled(truth: FrictionFormula) -> None:
    scalar = FormulaScalar("force/elbow", truth)
    weights = scalar.initial(RNG)
    assert scalar.reads == ("qvel/elbow",)
    assert np.allclose(scalar.output(weights, SPEED[:, None]), truth.torque(SPEED), atol=1e-15)
    assert np.abs(scalar.output(scalar.silenced(weights), SPEED[:, None])).max() < 1e-20
    weights = 0.3 * RNG.normal(size=scalar.count)
    fitted = scalar.fitted(weights)
    assert np.allclose(scalar.output(weights, SPEED[:, None]), fitted.torque(SPEED))
    for name, weight in zip(truth.coefficients, weights, strict=True):
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name) * np.exp(weight))


def test_mistakes_are_named() -> None:
    with pytest.raises(ClashError, match="needs the loads"):
        TRUTHS[3].torque(SPEED)
    with pytest.raises(ClashError, match="cannot read the load"):
        FormulaScalar("force/elbow", TRUTHS[3])
    with pytest.raises(ClashError, match="force/JOINT"):
        FormulaScalar("joint/elbow/damping", TRUTHS[1])
    with pytest.raises(ClashError, match="did you mean"):
        FrictionFormula(("viscos",))  # type: ignore[arg-type]
    with pytest.raises(ClashError, match="8 or more"):
        fit_formulas(SPEED[:4], SPEED[:4])
    with pytest.raises(ClashError, match="one load per speed"):
        fit_formulas(SPEED, SPEED, LOAD[:4])


DOUBLE = """<mujoco>
<option timestep="0.005" integrator="implicitfast"><flag contact="disable"/></option><worldbody>
<geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
<body><joint name="shoulder" type="hinge" axis="0 1 0" damping=".02" frictionloss=".05"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4" mass="1"/>
<body pos="0 0 -.4"><joint name="elbow" type="hinge" axis="0 1 0" damping=".02"/>
<geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 -.3" mass=".5"/>
</body></body></worldbody></mujoco>"""


def test_what_networks_and_scene_have_together_is_described() -> None:
    pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")
    from clashsim.core.augmentation_spec import NeuralScalar
    from clashsim.core.scene import Scene
    from clashsim.fit.learned_friction import suggest_friction
    from clashsim.sim.augmented.simulator import AugmentedSim

    scalars = [
        NeuralScalar("force/shoulder", ("qvel/shoulder", "sin/elbow"), units=1),
        NeuralScalar("joint/elbow/damping", ("qvel/elbow",), "positive", units=1, scale=1.0),
    ]
    # The shoulder: -0.03 tanh(20 v) beside the scene's friction. The elbow: more damping alone.
    weights = np.array([20.0, 0, 0, -0.03, 0, 0, 0, 0, 1.0])
    sim = AugmentedSim(Scene(DOUBLE, "tip", "floor", name="double"), scalars, weights=weights)
    states = np.random.default_rng(1).normal(size=(20, 40, 4)) * 2
    outputs = sim.network_outputs(states.reshape(-1, 4))
    shoulder_speed = states.reshape(-1, 4)[:, 2]
    assert np.allclose(outputs[:, 0], -0.03 * np.tanh(20 * shoulder_speed))
    shoulder, elbow = suggest_friction(sim, states)
    assert (shoulder.joint, elbow.joint) == ("shoulder", "elbow")
    assert shoulder.best.formula.terms == ("dry", "viscous")
    assert shoulder.best.formula.frictionloss == pytest.approx(0.08, rel=0.05)
    assert shoulder.best.formula.damping == pytest.approx(0.02, rel=0.2)
    assert elbow.best.formula.terms == ("viscous",)
    damping = float(scalars[1].combine(0.02, np.array(1.0)))
    assert elbow.best.formula.damping == pytest.approx(damping)
    figures = elbow.figures()
    assert figures["mjcf"]["damping"] == pytest.approx(damping)
    assert figures["mjcf"]["frictionloss"] == 0
    assert min(figures["bic"], key=figures["bic"].get) == figures["law"] == "viscous"


def test_loads_are_the_forces_in_bearings() -> None:
    import mujoco

    from clashsim.fit.learned_friction import _bearing_loads

    model = mujoco.MjModel.from_xml_string(DOUBLE)
    hanging = np.zeros((1, 4))
    loads = _bearing_loads(model, hanging, np.zeros((1, 2)))
    assert np.allclose(loads, [[1.5 * 9.81, 0.5 * 9.81]])
