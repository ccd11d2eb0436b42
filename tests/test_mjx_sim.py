"""MJX as a simulator: it agrees with MuJoCo, its Jacobians are right, and it refuses by name.

Compiling is what takes time here, so each scene is compiled once for all tests: none needs more
than 8 rows, and the windows have 2 x 4.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.core.contact_geometry import PairPoser, advance_to_contact
from clashsim.core.errors import ClashError, DataError, MissingExtraError
from clashsim.core.estimates import EstimateStatus
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.mjx_windows import StateWindows, cut_windows, identify_windows
from clashsim.fit.sample import sample_strikes
from clashsim.optim.basin_hopping import BasinHoppingConfig
from clashsim.sim.mjx import model
from clashsim.sim.mjx.impact_jacobian import MjxImpactJacobian
from clashsim.sim.mjx.simulator import MjxSim
from clashsim.sim.mujoco.impacts import rest_height, simulate_impacts
from clashsim.sim.mujoco.simulator import MujocoSim

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

# Between two compiled programs, or two positions in one: CPUs round them differently in the last
# digits.
ROUNDING = 1e-9
# The tolerances of docs/mjx.md.
QPOS_TOLERANCE = 1e-6  # m and rad (or parts of a quaternion)
QVEL_TOLERANCE = 1e-4  # m/s and rad/s
# A contact of condim 3 does not read it, so it cannot be identified.
UNREAD = Param("rolling", "pair/strike/friction[3]", 1e-4, 1e-5, 1e-2, "m", "log")
TETRAHEDRON = '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
# Moves constants that MuJoCo derives.
INERTIA = Param("inertia", "body/ellipse/inertia[1]", 1.3418e-5, 7e-6, 2e-5, "kg m^2")


@pytest.fixture(scope="module")
def ellipse() -> MjxSim:
    scene = Scene.load("ellipse")
    return MjxSim(scene.with_params([*scene.params, INERTIA, UNREAD]))


@pytest.fixture(scope="module")
def puck() -> MjxSim:
    return MjxSim(Scene.load("puck"))


@pytest.fixture(scope="module")
def square() -> MjxSim:
    return MjxSim(Scene.load("square"))


def strikes(
    scene: Scene, n: int, *, seed: int = 0, steps: int = 96
) -> tuple[np.ndarray, np.ndarray]:
    """Starts (n, s) that touch or almost do, and control (n, steps, nu) that keeps their speed."""
    base = scene.base
    theta = np.tile(scene.nominal, (n, 1))
    qpos = np.tile(base.qpos0, (n, 1))
    qvel = np.zeros((n, base.nv))
    PairPoser(scene, rest_height(scene, theta)).write(
        sample_strikes(scene, n, np.random.default_rng(seed)).before, qpos, qvel
    )
    control = np.tile(qvel[:, None, base.nv - base.nu :], (1, steps, 1))
    return np.concatenate([qpos, qvel, np.zeros((n, base.na))], axis=1), control


def agree(
    sim: MjxSim, start: np.ndarray, control: np.ndarray, theta: np.ndarray | None = None
) -> np.ndarray:
    """Compare field by field with MuJoCo; returns MuJoCo's states."""
    states = sim.rollout(start, control, theta=theta)
    expected = MujocoSim(sim.scene).rollout(start, control, theta=theta)
    nq, nv = sim.model.nq, sim.model.nv
    assert states.shape == expected.shape
    assert np.array_equal(states[:, 0], start)
    for name, part, tolerance in (
        ("qpos", slice(0, nq), QPOS_TOLERANCE),
        ("qvel", slice(nq, nq + nv), QVEL_TOLERANCE),
        ("act", slice(nq + nv, None), QVEL_TOLERANCE),
    ):
        error = np.abs(states - expected)[..., part]
        assert error.size == 0 or error.max() < tolerance, f"{name} is {error.max():.1e} off"
    return expected


def random_theta(scene: Scene, n: int) -> np.ndarray:
    """theta (n, p) over the middle half of the ranges."""
    unit = np.random.default_rng(5).uniform(-0.5, 0.5, (n, len(scene.params)))
    return from_unit(scene.params, unit)


@pytest.mark.parametrize(
    "name",
    ["ellipse", *(pytest.param(name, marks=pytest.mark.slow) for name in ("puck", "square"))],
)
def test_contact_agrees_with_mujoco_field_by_field(
    name: str, request: pytest.FixtureRequest
) -> None:
    sim = request.getfixturevalue(name)
    start, control = strikes(sim.scene, 6)
    states = agree(sim, start, control)
    velocity_change = states[:, -1, sim.model.nq :] - start[:, sim.model.nq :]
    assert np.abs(velocity_change).max() > 0.1  # something was struck
    # Masses and inertias are among the parameters, with the constants that follow from them.
    agree(sim, start, control, random_theta(sim.scene, 6))


@pytest.mark.slow
def test_free_flight_and_sliding_agree_with_mujoco(square: MjxSim, ellipse: MjxSim) -> None:
    start, control = strikes(square.scene, 3)
    nq = square.model.nq
    start[:, nq:] = 0
    control[:] = 0
    start[:, 7:9] = 0.5, 0.5  # the striker is out of the way
    # The first tumbles in the air, where gyroscopic forces count.
    start[0, 2] = 0.5
    start[0, nq : nq + 6] = 0.3, -0.2, 1.0, 8.0, -5.0, 11.0
    start[1, nq : nq + 6] = 0.4, 0.1, 0, 0, 0, 3.0  # slides and rotates on the table
    states = agree(square, start, control)
    assert states[0, -1, 2] > 0.4
    assert 0.05 < np.hypot(*states[1, -1, nq : nq + 2]) < 0.41
    assert np.allclose(states[2, -1, :3], start[2, :3], atol=1e-3)
    start, control = strikes(ellipse.scene, 2)
    start[:, 1] += 0.1
    agree(ellipse, start, control)


def test_rows_have_their_own_theta_and_the_same_call_gives_the_same_bits(ellipse: MjxSim) -> None:
    start, control = strikes(ellipse.scene, 3, steps=70)
    theta = random_theta(ellipse.scene, 3)
    together = ellipse.rollout(start, control, theta=theta)
    assert np.array_equal(together, ellipse.rollout(start, control, theta=theta))
    for i in range(3):
        alone = ellipse.rollout(start[i : i + 1], control[i : i + 1], theta=theta[i])[0]
        np.testing.assert_allclose(together[i], alone, rtol=ROUNDING, atol=ROUNDING)
    fields = MjxSim(ellipse.scene, theta[1]).mjx_scene.fields(theta[1], 1)
    expected = ellipse.scene.model(theta[1]).pair_friction
    assert np.array_equal(fields["pair_friction"][0], expected)
    # Another length is the same program.
    shorter = ellipse.rollout(start, control[:, :40], theta=theta)
    assert np.array_equal(together[:, :41], shorter)


def test_constants_that_follow_from_masses_are_mujocos(square: MjxSim) -> None:
    theta = random_theta(square.scene, 2)
    fields = square.mjx_scene.fields(theta, 2)
    tangents = square.mjx_scene.field_tangents(theta, (0, 4))
    mass = square.scene.params[4]
    assert mass.name == "arm_mass"
    for i in range(2):
        model = square.scene.model(theta[i])
        for name in ("body_mass", "body_invweight0", "dof_invweight0", "body_subtreemass"):
            assert np.allclose(fields[name][i], getattr(model, name), rtol=1e-12)
    inverse_weight = tangents["dof_invweight0"]
    assert not inverse_weight[:, 0].any()  # friction moves none of them
    mass_per_unit = np.log(mass.high / mass.low) / 2
    # The inverse weight is 1 / m.
    assert np.allclose(inverse_weight[:, 1, 6:], -mass_per_unit / theta[:, [4]], rtol=1e-6)


@pytest.mark.parametrize("name", ["ellipse", pytest.param("puck", marks=pytest.mark.slow)])
def test_jacobians_are_those_of_finite_differences(
    name: str, request: pytest.FixtureRequest
) -> None:
    sim = request.getfixturevalue(name)
    scene, step = sim.scene, 1e-5
    start, control = strikes(scene, 4, seed=1)
    free = tuple(
        i for i, p in enumerate(scene.params) if p.name in ("friction", "damping", "inertia")
    )
    states, jacobian = sim.rollout_with_jacobian(start, control, free=free)
    assert jacobian.shape == (*states.shape, len(free))
    np.testing.assert_allclose(
        states, sim.rollout(start, control, theta=scene.nominal), rtol=ROUNDING, atol=ROUNDING
    )
    for j, i in enumerate(free):
        shift = step * np.eye(len(scene.params))[i]
        above, below = (
            sim.rollout(
                start,
                control,
                theta=from_unit(scene.params, to_unit(scene.params, scene.nominal) + s),
            )
            for s in (shift, -shift)
        )
        difference = (above - below) / (2 * step)
        assert np.abs(difference).max() > 0.1
        assert np.abs(jacobian[..., j] - difference).max() < 1e-5 * np.abs(difference).max()


PUSHED = """
<mujoco><option gravity="0 0 0" integrator="implicitfast"/><worldbody>
<body name="stone"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<geom name="stone" type="sphere" size=".05" mass="1"/></body>
<body name="tool" pos="-.11 0 .01"><joint name="drive" type="slide" axis="1 0 0"/>
<geom name="tool" type="sphere" size=".05" mass=".5"/></body>
</worldbody><actuator><velocity joint="drive" kv="50"/></actuator></mujoco>
"""


def test_jacobians_in_start_and_control_are_those_of_finite_differences() -> None:
    """Variables: damping, the speed of the tool, and a further velocity of its drive."""
    damping = Param("damping", "pair/strike/solref[1]", 1.0, 0.1, 10.0, "", "log")
    sim = MjxSim(Scene(PUSHED, "stone", "tool", None, (damping,), name="pushed"))
    n, steps, step = 2, 40, 1e-5
    start = np.zeros((n, 6))
    start[:, 5] = 1.0, 2.0  # m/s of the tool, which is 10 mm from the stone
    control = np.tile(start[:, None, 5:], (1, steps, 1))
    start_jacobian = np.zeros((n, 3, 6))
    start_jacobian[:, 1, 5] = 1
    control_jacobian = np.zeros((n, 3, steps, 1))
    control_jacobian[:, 1] = 1
    control_jacobian[:, 2, 10:, 0] = np.linspace(0, 1, steps - 10)
    states, jacobian = sim.rollout_with_jacobian(
        start,
        control,
        free=[0],
        start_jacobian=start_jacobian,
        control_jacobian=control_jacobian,
    )
    assert jacobian.shape == (*states.shape, 3)
    assert np.abs(states[:, -1, 3]).min() > 0.1  # the stone was struck

    def moved(variable: int, by: float) -> np.ndarray:
        unit = by * np.eye(3)[variable, :1]
        return sim.rollout(
            start + by * start_jacobian[:, variable],
            control + by * control_jacobian[:, variable],
            theta=from_unit([damping], to_unit([damping], np.ones(1)) + unit),
        )

    for variable in range(3):
        difference = (moved(variable, step) - moved(variable, -step)) / (2 * step)
        assert np.abs(difference[..., 3]).max() > 1e-2  # m/s of the stone per unit
        error = np.abs(jacobian[..., variable] - difference).max()
        assert error < 1e-5 * np.abs(difference).max()
    # Variables of start and control alone; three again, so that nothing is compiled.
    _, alone = sim.rollout_with_jacobian(
        start, control, start_jacobian=start_jacobian, control_jacobian=control_jacobian
    )
    assert not alone[..., 0].any()
    np.testing.assert_allclose(alone[..., 1:], jacobian[..., 1:], rtol=ROUNDING, atol=ROUNDING)
    with pytest.raises(DataError, match="control_jacobian needs shape"):
        sim.rollout_with_jacobian(
            start, control, start_jacobian=start_jacobian, control_jacobian=control_jacobian[:, :2]
        )


def test_windows_of_mujoco_identify_friction_and_damping(ellipse: MjxSim) -> None:
    scene = ellipse.scene
    truth = scene.nominal.copy()
    truth[:2] = 0.17, 250.0
    start, control = strikes(scene, 4, seed=4, steps=120)
    start[:, 1] += 2e-3  # they fall a little before they touch
    paths = MujocoSim(scene, truth).rollout(start, control)
    windows = cut_windows(scene, paths, control, before=2, steps=64)
    assert (
        windows.observed.shape == (4, 65, 6)
        and (np.abs(np.diff(windows.observed[:, :, 4], axis=1)).max(1) > 1e-2).all()
    )
    free = [0, 1, len(scene.params) - 1]
    found = identify_windows(ellipse, windows, free, starts=2, seed=1)
    value = {e.name: e for e in found.estimates}
    assert (
        abs(value["friction"].value / 0.17 - 1) < 0.02
        and abs(value["damping"].value / 250 - 1) < 0.02
        and found.error < 0.01
    )
    assert value["friction"].low < 0.17 < value["friction"].high
    assert value["friction"].status is value["damping"].status is EstimateStatus.FITTED
    assert (
        value["rolling"].status is EstimateStatus.UNIDENTIFIABLE
        and abs(np.log(value["rolling"].value / UNREAD.nominal)) < 0.2
    )
    assert value["yaw_offset"].status is EstimateStatus.UNIDENTIFIABLE  # not asked for
    hopped = identify_windows(
        ellipse,
        windows,
        free,
        starts=2,
        seed=1,
        hops=BasinHoppingConfig(rounds=3, steps_per_round=4, polish_steps=4),
    )
    assert np.abs(hopped.theta[:2] / [0.17, 250.0] - 1).max() < 0.02 and hopped.error < 0.01
    with pytest.raises(DataError, match="observed needs shape"):
        identify_windows(ellipse, replace(windows, observed=windows.observed[:, 1:]), free)
    with pytest.raises(DataError, match="touch"):
        cut_windows(scene, paths[:, :4] + np.eye(6)[1], control)


@pytest.mark.slow
def test_a_truth_beyond_the_range_is_at_its_bound(ellipse: MjxSim) -> None:
    start, control = strikes(ellipse.scene, 4, seed=4, steps=64)
    harder = ellipse.scene.nominal
    harder[1] = 2600.0  # the range ends at 1600
    observed = MujocoSim(ellipse.scene, harder).rollout(start, control)
    found = identify_windows(
        ellipse, StateWindows(start, control, observed), [0, 1, len(harder) - 1], starts=2
    )
    assert found.estimates[1].status is EstimateStatus.AT_BOUND and found.theta[1] > 1500


@pytest.mark.slow
def test_impacts_and_their_jacobians_are_mujocos() -> None:
    scene, step = Scene.load("puck"), 1e-4
    free = tuple(i for i, slot in enumerate(scene.slots) if slot is not None)
    params = [scene.params[i] for i in free]
    assert [p.name for p in params] == ["friction", "damping", "inertia"]
    before = advance_to_contact(scene, sample_strikes(scene, 4, np.random.default_rng(4)).before)[1]
    theta, unit = np.tile(scene.nominal, (4, 1)), np.array([[-0.3, 0.1, 0.2]])

    def mujoco_after(unit: np.ndarray) -> np.ndarray:
        own = theta.copy()
        own[:, list(free)] = from_unit(params, unit)
        return simulate_impacts(scene, before, own).after

    after, jacobian = MjxImpactJacobian(scene, free)(before, theta, unit, steps=96)
    assert np.allclose(after[0], mujoco_after(unit), atol=1e-6)
    for j, shift in enumerate(step * np.eye(3)):
        difference = (mujoco_after(unit + shift) - mujoco_after(unit - shift)) / (2 * step)
        assert np.abs(difference).max() > 1e-2 and np.allclose(
            jacobian[0, ..., j], difference, atol=1e-4 * np.abs(difference).max()
        )


def with_geoms(first: str, second: str, assets: str = "") -> Scene:
    """Two free geoms that are a pair."""
    bodies = "".join(
        f'<body name="{n}" pos="0 0 {z}"><freejoint/><geom name="{n}" {g} mass="1"/></body>'
        for n, g, z in (("stone", first, 0), ("tool", second, 1))
    )
    return Scene(
        f"<mujoco>{assets}<worldbody>{bodies}</worldbody></mujoco>", "stone", "tool", name="made"
    )


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("plate", ["'box' (box)", "'plate' (box)", "sphere", "MujocoSim"]),
        ("plate_edge", ["'box' (box)", "'plate' (box)", "MujocoSim"]),
        ("semi_cylinder", ["mesh 'block'", "geom 'block'", "20 corners", "MujocoSim"]),
        (
            with_geoms('type="cylinder" size=".1 .1"', 'type="box" size=".1 .1 .1"'),
            ["'stone' (cylinder)", "'tool' (box)"],
        ),
        (
            with_geoms('type="cylinder" size=".1 .1"', 'type="mesh" mesh="m"', TETRAHEDRON),
            ["'stone' (cylinder)", "'tool' (mesh)"],
        ),
        (
            with_geoms('type="ellipsoid" size=".1 .1 .2"', 'type="sphere" size=".1"'),
            ["'tool' (sphere)", "'stone' (ellipsoid)"],
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_mjx_collides_otherwise_is_refused_by_name(
    scene: str | Scene, words: list[str]
) -> None:
    with pytest.raises(ClashError) as refused:
        MjxSim(Scene.load(scene) if isinstance(scene, str) else scene)
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_other_refusals_are_one_sentence(monkeypatch: pytest.MonkeyPatch, puck: MjxSim) -> None:
    implicit = with_geoms('type="sphere" size=".1"', 'type="sphere" size=".1"')
    with pytest.raises(ClashError, match=r"cannot load scene 'made'.*MujocoSim"):
        MjxSim(
            replace(
                implicit,
                xml=implicit.xml.replace("<mujoco>", '<mujoco><option integrator="implicit"/>'),
            )
        )
    with pytest.raises(ClashError, match="parameter 'skin'"):
        MjxSim(puck.scene.with_params([Param("skin", "body/puck/margin", 0.0, 0.0, 0.1)]))
    with pytest.raises(DataError, match="start needs shape"):
        puck.rollout(np.zeros((2, 5)), np.zeros((2, 3, 0)))
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    monkeypatch.delattr(mujoco, "mjx")
    model.put_scene.cache_clear()
    with pytest.raises(MissingExtraError, match=r"clashsim\[mjx\]"):
        MjxSim(Scene.load("puck"))
