"""Restitution as MuJoCo's solver parameters, and back, compared with drops in MuJoCo."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest

import clashsim
from clashsim import ContactRequest, DropConditions, cli, contact_behaviour, contact_parameters
from clashsim.core.contact_spring import ContactSpring, constant_solimp, spring_of
from clashsim.core.errors import ParamError
from clashsim.core.material_pairs import MATERIAL_PAIRS
from clashsim.sim.mujoco.contact_parameters import effective_mass

WEIGHTLESS = DropConditions(timestep=1e-4, gravity=0.0)


def free_body(geom: str, found: clashsim.ConvertedContact) -> mujoco.MjModel:
    """A free body above a floor, with the pair and options as printed for users to paste."""
    mjcf = found.mjcf("body", "floor")
    option, _, rest = mjcf.partition("\n")
    return mujoco.MjModel.from_xml_string(
        f'<mujoco>{option}<worldbody><geom name="floor" type="plane" size="5 5 .1"/>'
        f'<body><freejoint/><geom name="body" {geom}/></body></worldbody>{rest}</mujoco>'
    )


def rebound(model: mujoco.MjModel, height: float, speed: float) -> float:
    """Speed upwards at which a body leaves its height again, over that at which it comes."""
    data = mujoco.MjData(model)
    restitutions = []
    for k in range(8):
        mujoco.mj_resetData(model, data)
        data.qpos[2] = height + speed * model.opt.timestep * (k + 0.5) / 8
        data.qvel[2] = -speed
        touched = False
        for _ in range(5000):
            mujoco.mj_step(model, data)
            touched = touched or data.qpos[2] < height
            if touched and data.qpos[2] > height:
                break
        restitutions.append(data.qvel[2] / speed)
    return float(np.mean(restitutions))


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
@pytest.mark.parametrize("restitution", [0.1, 0.6, 0.95])
def test_a_free_sphere_and_box_bounce_as_asked(restitution, integrator, cone):
    conditions = DropConditions(timestep=0.001, integrator=integrator, cone=cone)
    found = contact_parameters(ContactRequest(restitution, 0.3, conditions=conditions))
    sphere = free_body('type="sphere" size=".05" mass=".4"', found)
    assert rebound(sphere, 0.05, 1.0) == pytest.approx(restitution, abs=0.02)
    # Four corners at once, and ten times the mass.
    box = free_body('type="box" size=".05 .05 .05" mass="4"', found)
    assert rebound(box, 0.05, 1.0) == pytest.approx(restitution, abs=0.05)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_friction_is_that_of_a_free_box_that_slides(cone):
    """With a pyramid it is 1 / sqrt(2) of what was asked for, on the diagonal of two axes."""
    conditions = DropConditions(timestep=0.001, cone=cone)
    found = contact_parameters(ContactRequest(0.1, 0.3, conditions=conditions))
    on_diagonal = 0.3 if cone == "elliptic" else 0.3 / math.sqrt(2)
    assert found.slid[[0, -1]] == pytest.approx([0.3, on_diagonal], rel=0.02)
    model = free_body('type="box" size=".05 .05 .02" mass=".4"', found)
    data = mujoco.MjData(model)
    data.qpos[2] = 0.02
    for _ in range(2000):
        mujoco.mj_step(model, data)
    for direction, friction in ((0.0, 0.3), (math.pi / 4, on_diagonal)):
        sliding = mujoco.MjData(model)
        sliding.qpos[:] = data.qpos
        along = np.array([math.cos(direction), math.sin(direction)])
        sliding.qvel[:2] = 2.0 * along
        speeds = []
        for _ in range(300):
            mujoco.mj_step(model, sliding)
            speeds.append(float(sliding.qvel[:2] @ along))
        deceleration = (speeds[49] - speeds[299]) / (250 * model.opt.timestep)
        assert deceleration / 9.81 == pytest.approx(friction, rel=0.1)


def test_stiffness_contact_time_and_penetration_are_those_asked_for():
    conditions = DropConditions(timestep=2e-4)
    request = ContactRequest(0.7, mass=0.4, stiffness=2e4, conditions=conditions)
    stiff = contact_parameters(request)
    assert stiff.spring.stiffness * 0.4 == pytest.approx(2e4)
    assert stiff.solref[0] == pytest.approx(-5e4)
    brief = contact_parameters(ContactRequest(0.7, contact_time=0.01, conditions=conditions))
    assert brief.drops.contact_time.mean() == pytest.approx(0.01, rel=0.02)
    shallow = contact_parameters(ContactRequest(0.7, penetration=0.002, conditions=conditions))
    assert shallow.drops.penetration.mean() == pytest.approx(0.002, rel=0.02)


def test_a_resting_body_sinks_by_its_weight_over_the_stiffness():
    found = contact_parameters(
        ContactRequest(0.2, mass=0.4, stiffness=1000.0, conditions=DropConditions(timestep=0.001))
    )
    model = free_body('type="sphere" size=".05" mass=".4"', found)
    data = mujoco.MjData(model)
    data.qpos[2] = 0.05
    for _ in range(20_000):
        mujoco.mj_step(model, data)
    # MuJoCo takes the share 1 - impedance of the weight for the contact (mujoco#732).
    assert 0.05 - data.qpos[2] == pytest.approx(0.05 * 0.4 * 9.81 / 1000, rel=0.01)


def test_two_free_bodies_meet_as_one_of_their_effective_mass():
    found = contact_parameters(ContactRequest(0.5, conditions=WEIGHTLESS))
    _, _, pair = found.mjcf("a", "b").partition("\n")
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="0.0001" gravity="0 0 0"/><worldbody>'
        '<body><freejoint/><geom name="a" type="sphere" size=".05" mass="1"/></body>'
        '<body pos=".101 0 0"><freejoint/><geom name="b" type="sphere" size=".05" mass="3"/></body>'
        f"</worldbody>{pair}</mujoco>"
    )
    data = mujoco.MjData(model)
    data.qvel[0] = 1.0
    deepest = 0.0
    for _ in range(400):
        mujoco.mj_step(model, data)
        deepest = max(deepest, 0.1 - (data.qpos[7] - data.qpos[0]))
    assert data.qvel[6] - data.qvel[0] == pytest.approx(0.5, abs=0.03)
    assert deepest == pytest.approx(found.drops.penetration.mean(), rel=0.05)
    assert effective_mass(1.0, 3.0) == 0.75 and effective_mass(2.0) == 2.0


def test_without_gravity_restitution_follows_from_the_damping_ratio():
    """Schwager and Poeschel 2007: a spring and damper that cannot pull; exp(-2) at ratio 1."""
    for ratio, expected in ((1.0, math.exp(-2)), (0.1, 0.7459)):
        spring = ContactSpring(300.0, ratio)
        found = contact_behaviour(
            spring.solref("direct", 1e-4), constant_solimp(), conditions=WEIGHTLESS
        )
        assert found.drops.restitution.mean() == pytest.approx(expected, abs=0.02)


def test_both_forms_are_the_same_spring():
    spring = ContactSpring(300.0, 0.2)
    outcomes = []
    for form in ("direct", "timeconst"):
        solref = spring.solref(form, 1e-3)
        back, lengthened = spring_of(solref, constant_solimp(), 1e-3)
        assert not lengthened
        assert (back.frequency, back.damping_ratio) == pytest.approx((300.0, 0.2))
        found = contact_behaviour(
            solref, constant_solimp(), conditions=DropConditions(timestep=1e-3)
        )
        outcomes.append(found.drops.restitution)
    assert outcomes[0] == pytest.approx(outcomes[1], abs=1e-9)
    assert outcomes[0].mean() > 0.5  # far above what a damping ratio of 1 gives


def test_back_and_forth():
    found = contact_parameters(ContactRequest(0.42, 0.3, contact_time=0.03))
    back = contact_behaviour(found.solref, found.solimp, friction=0.3)
    assert back.drops.restitution == pytest.approx(found.drops.restitution)
    assert back.drops.restitution.mean() == pytest.approx(0.42, abs=0.005)


def test_a_short_time_constant_is_lengthened_as_mujoco_does():
    short = contact_behaviour((0.001, 0.3), conditions=DropConditions(timestep=0.002))
    two_steps = contact_behaviour((0.004, 0.3), conditions=DropConditions(timestep=0.002))
    assert short.lengthened and not two_steps.lengthened
    assert short.drops.restitution == pytest.approx(two_steps.drops.restitution)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ContactRequest(1.2), "between 0 and 1"),
        (ContactRequest(math.nan), "between 0 and 1"),
        (ContactRequest(0.5, -1.0), "friction"),
        (
            ContactRequest(0.5, contact_time=0.004),
            "too long for this contact.*nearest.*contact time",
        ),
        (ContactRequest(0.3, contact_time=0.014), "depending on when.*nearest.*contact time"),
        (ContactRequest(0.5, contact_time=100.0), "at most 1000"),
        (ContactRequest(0.5, stiffness=1e5), "mass"),
        (ContactRequest(0.5, mass=1.0, stiffness=1e5, contact_time=0.01), "give one"),
        (ContactRequest(0.5, mass=0.0), "mass must be"),
        (ContactRequest(0.5, penetration=-1.0), "penetration must be"),
        (ContactRequest(0.9, conditions=DropConditions(timestep=0.002, speed=0.001)), "nearest"),
        (ContactRequest(0.5, conditions=DropConditions(timestep=1e-12)), "timestep must be"),
        (ContactRequest(0.5, conditions=DropConditions(gravity=math.inf)), "gravity must be"),
        (ContactRequest(0.5, tolerance=0.0), "tolerance"),
    ],
)
def test_what_mujoco_cannot_do_is_one_sentence(request_, words):
    with pytest.raises(ParamError, match=words):
        contact_parameters(request_)


def test_the_nearest_contact_that_is_named_is_within_the_tolerance():
    with pytest.raises(ParamError) as error:
        contact_parameters(ContactRequest(0.3, contact_time=0.014))
    words = str(error.value).split()
    contact_time = float(words[words.index("time", words.index("nearest")) + 2])
    found = contact_parameters(ContactRequest(0.3, contact_time=contact_time, tolerance=0.05))
    assert found.drops.restitution == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(
    ("solref", "solimp", "words"),
    [
        ((0.02,), (), "2 numbers"),
        ((0.02, -1.0), (), "mixes the two forms"),
        ((0.0, 0.0), (), "within"),
        ((0.02, 1.0), (1.0, 1.0), "above 0 and below 1"),
        ((0.02, 1.0), (0.9,) * 6, "at most 5"),
        ((math.nan, 1.0), (), "2 numbers"),
        ((5.0, 5e6), (), "at most 1000"),
    ],
)
def test_solver_parameters_that_are_none(solref, solimp, words):
    with pytest.raises(ParamError, match=words):
        contact_behaviour(solref, solimp)


def test_the_command(capsys):
    assert cli.main(["contact", "--restitution", "0.6", "--friction", "0.3", "--mass", "0.4"]) == 0
    out = capsys.readouterr().out
    assert "<pair" in out and 'friction="0.3 0.3 0.005' in out and "N/m" in out
    assert cli.main(["contact", "--solref", "0.02", "1"]) == 0
    assert "restitution" in capsys.readouterr().out
    for wrong in (
        "contact",
        "contact --material granite",
        "contact --material wood-wood",
        "contact --restitution 0.5 --solref 0.02 1",
        "contact --restitution 0.5 --solimp 0.9",
        "contact --restitution 0.5 --other-mass 1",
        "contact --restitution 0.5 --mass -1",
        "contact --restitution 0 --form timeconst --contact-time 0.008",
    ):
        assert cli.main(wrong.split()) == 2, wrong
        assert capsys.readouterr().err.startswith("clashsim: ")


@pytest.mark.parametrize("name", MATERIAL_PAIRS)
def test_materials_have_a_source_and_can_be_used(name, capsys):
    pair = MATERIAL_PAIRS[name]
    arguments = ["contact", "--material", name]
    if pair.restitution is None:
        arguments += ["--restitution", "0.5"]
    assert cli.main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert pair.source in out and "nominal" in out


def test_all_materials_are_listed(capsys):
    assert cli.main(["contact", "--material", "list"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(name in out and pair.source in out for name, pair in MATERIAL_PAIRS.items())
