"""Learned collisions never break the laws of mechanics, and are left to MuJoCo where unsure."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import ClashError
from clashsim.core.scene import Scene
from clashsim.fit.sample import sample_strikes
from clashsim.sim.hybrid.collision_stats import CollisionStats
from clashsim.sim.hybrid.guards import enforce_mechanics, kinetic_energy
from clashsim.sim.hybrid.model_trust import Trust
from clashsim.sim.hybrid.pairs import LearnedPair
from clashsim.sim.hybrid.planar_mechanics import (
    TouchingPairs,
    touching_pairs,
    touching_pairs_one_by_one,
)
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.step_records import HIT_AGAIN, OVERLAPPING, TOO_SLOW
from clashsim.sim.mujoco.simulator import MujocoSim
from hybrid_strikes import (
    RUN_UP,
    SHAPES,
    FakeModel,
    data_at,
    hit_and_retract,
    pose_difference,
    strike_scene,
    strike_starts,
)

BALLS = """<mujoco><option gravity="0 0 0" timestep="0.002"/><worldbody>
<body name="a"><freejoint/><geom name="a" type="sphere" size="0.05" mass="0.3"/></body>
<body name="b" pos="0.2 0.02 0"><freejoint/>
<geom name="b" type="box" size="0.05 0.03 0.04" mass="0.7"/></body>
</worldbody></mujoco>"""


def touching(hybrid: HybridSim, before: np.ndarray) -> TouchingPairs:
    return touching_pairs_one_by_one(hybrid.pairs[0], hybrid.probe(len(before)), before=before)


def check_energy_never_grows(name: str, n: int) -> None:
    scene, base, theta = strike_scene(name)
    rng = np.random.default_rng(0)
    hybrid = HybridSim(scene, base, theta)
    before = sample_strikes(scene, n, rng).before
    mechanics, twist, striker_twist = vars(touching(hybrid, before)).values()
    wild = twist + rng.normal(size=twist.shape) * np.array([1.0, 1.0, 30.0])
    guarded = enforce_mechanics(mechanics, twist, wild, striker_twist=striker_twist)
    energy_before = kinetic_energy(mechanics, twist - striker_twist)
    for after in (hybrid.outcome(before), guarded.twist_after):
        change = (after - twist)[..., None]
        impulse = np.linalg.solve(mechanics.struck_inverse_inertia, change)[..., 0]
        recoil = np.einsum("nij,nj->ni", mechanics.striker_inverse_inertia, impulse)
        relative_after = after - striker_twist + recoil
        assert (kinetic_energy(mechanics, relative_after) <= energy_before * (1 + 1e-9)).all()
        assert ((mechanics.normal_jacobian * relative_after).sum(1) >= -1e-9).all()


@pytest.mark.parametrize("name", SHAPES)
def test_energy_never_grows(name):
    check_energy_never_grows(name, 2000)


@pytest.mark.slow
def test_energy_never_grows_over_many_impacts():
    check_energy_never_grows("semi_cylinder", 100_000)


@pytest.mark.parametrize("name", [*SHAPES, "puck", "plate"])
def test_batched_mechanics_are_those_of_each_pair(name):
    scene = Scene.load(name)
    hybrid = HybridSim(scene, FakeModel())
    before = sample_strikes(scene, 12, np.random.default_rng(0)).before
    before[:, [5, 11]] += 0.7
    contact, before = advance_to_contact(scene, before)
    batched = touching_pairs(hybrid.pairs[0], hybrid.probe, before=before, contact=contact)
    each = touching(hybrid, before)
    for name in ("struck_inverse_inertia", "striker_inverse_inertia"):
        of_batch = getattr(batched.mechanics, name)
        assert np.allclose(of_batch, getattr(each.mechanics, name), rtol=1e-6, atol=1e-9)
    assert np.allclose(batched.mechanics.normal_jacobian, each.mechanics.normal_jacobian, atol=2e-3)
    assert np.allclose(batched.struck_twist, each.struck_twist)
    if scene.striker_body.hinge is not None:
        assert np.allclose(batched.striker_twist, each.striker_twist)


def test_guard_moves_to_the_nearest_allowed_twist():
    rng = np.random.default_rng(1)
    scene, base, theta = strike_scene("square")
    hybrid = HybridSim(scene, base, theta)
    pairs = touching(hybrid, sample_strikes(scene, 40, rng).before)
    mechanics, twist, striker_twist = vars(pairs).values()
    wild = twist + rng.normal(size=twist.shape)
    after, impulse, corrected = enforce_mechanics(
        mechanics, twist, wild, striker_twist=striker_twist
    )
    assert corrected.any() and np.allclose(after[~corrected], wild[~corrected])
    again = enforce_mechanics(mechanics, twist, after, striker_twist=striker_twist)
    assert not again.corrected.any() and np.allclose(again.twist_after, after)
    total = mechanics.relative_inverse_inertia
    wild_change = (wild - twist)[..., None]
    wild_impulse = np.linalg.solve(mechanics.struck_inverse_inertia, wild_change)[..., 0]
    energy_before = kinetic_energy(mechanics, twist - striker_twist)

    def distance(candidate: np.ndarray) -> np.ndarray:
        """From the predicted impulse, squared, in the metric in which energy is measured."""
        difference = candidate - wild_impulse
        return np.einsum("ni,nij,nj->n", difference, total, difference)

    for _ in range(200):  # no allowed impulse is nearer
        size = 0.03 * np.abs(impulse).max(1, keepdims=True)
        trial = impulse + rng.normal(size=impulse.shape) * size
        relative_after = twist - striker_twist + np.einsum("nij,nj->ni", total, trial)
        parts = (mechanics.normal_jacobian * relative_after).sum(1) >= 0
        allowed = parts & (kinetic_energy(mechanics, relative_after) <= energy_before)
        assert (distance(trial)[allowed] >= distance(impulse)[allowed] - 1e-12).all()


def test_a_free_pair_keeps_its_momentum():
    scene = Scene(BALLS, "a", "b")
    hybrid = HybridSim(scene, FakeModel())
    data = mujoco.MjData(hybrid.model)
    data.qvel[:3] = (1.0, 0.1, 0.0)
    data.qvel[3:6] = (0.0, 2.0, 1.0)
    data.qvel[6:9] = (-0.2, 0, 0.1)
    data.qvel[9:12] = (0.3, 0, 0)

    def momentum() -> np.ndarray:
        """Linear and angular momentum (6,) about the world's origin."""
        mujoco.mj_fwdPosition(hybrid.model, data)
        mujoco.mj_fwdVelocity(hybrid.model, data)
        mujoco.mj_subtreeVel(hybrid.model, data)
        masses = hybrid.model.body_mass[1:, None]
        velocities = data.subtree_linvel[1:]
        orbital = masses * np.cross(data.subtree_com[1:], velocities)
        angular = data.subtree_angmom[1:] + orbital
        return np.concatenate([(masses * velocities).sum(0), angular.sum(0)])

    seen = [momentum()]
    while hybrid.collision_stats.hits == 0 and data.time < 1:
        hybrid.step(data)
        seen.append(momentum())
    assert hybrid.collision_stats.learned == 1
    change = np.abs(seen[-1] - seen[-2])
    assert change[:3].max() < 1e-12
    # A free rotation is integrated, and the struck body's angular velocity is exact to that.
    assert change[3:].max() < 1e-6


def test_mujoco_does_not_act_in_a_learned_collision():
    scene, base, theta = strike_scene("semi_cylinder")
    hybrid = HybridSim(scene, base, theta)
    starts = strike_starts("semi_cylinder", 1, 3)
    data = data_at(hybrid, starts.start[0])
    data.ctrl = starts.velocity[0]
    pair = {hybrid.model.geom(scene.struck).id, hybrid.model.geom(scene.striker).id}
    overlapped = 0
    while hybrid.collision_stats.hits == 0:
        hybrid.step(data)
    for _ in range(100):
        for contact in data.contact:
            if {int(geom) for geom in contact.geom} == pair:
                overlapped += 1
                assert contact.efc_address < 0
        hybrid.step(data)
    assert hybrid.collision_stats == CollisionStats(learned=1)
    assert np.linalg.norm(data.qvel[:2]) > np.linalg.norm(starts.velocity[0])
    assert overlapped == 0  # after a bounce the bodies are apart


def test_mujoco_resolves_what_a_model_should_not_be_asked_about():
    scene, base, theta = strike_scene("semi_cylinder")
    fast = strike_starts("semi_cylinder", 4, speed=(2.0, 3.0))
    control = hit_and_retract(fast.velocity, 0.0002, 0.2)
    hybrid = HybridSim(scene, base, theta)
    states = hybrid.rollout(fast.start, control)
    assert hybrid.collision_stats == CollisionStats(left_to_mujoco={str(Trust.OUTSIDE): 4})
    assert "4 outside" in str(hybrid.collision_stats)
    of_mujoco = MujocoSim(scene, theta).rollout(fast.start, control)
    mm, degrees = pose_difference(states[:, -1], of_mujoco[:, -1])
    # The same collision from the very touch, not from up to a step later.
    assert mm.max() < 4 and degrees.max() < 3
    starts = strike_starts("semi_cylinder", 4)
    unsure = HybridSim(scene, FakeModel(std=1.0), theta)
    unsure.rollout(starts.start, hit_and_retract(starts.velocity, 0.0002, 0.2))
    assert unsure.collision_stats.learned == 0
    assert unsure.collision_stats.left_to_mujoco[str(Trust.UNSURE)] == 4


def test_mujoco_resolves_bodies_that_overlap_from_the_start():
    scene, base, theta = strike_scene("square")
    start, velocity, _ = strike_starts("square", 1)
    start[0, 7:9] += (RUN_UP + 0.002) * velocity[0] / np.linalg.norm(velocity[0])
    hybrid = HybridSim(scene, base, theta)
    hybrid.rollout(start, np.tile(velocity[:, None], (1, 20, 1)))
    assert hybrid.collision_stats == CollisionStats(left_to_mujoco={OVERLAPPING: 1})


def test_a_block_pushed_slowly_behaves_as_in_mujoco():
    scene, base, theta = strike_scene("square")
    start, velocity, _ = strike_starts("square", 2, 4)
    slow = 0.03 * velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    start[:, -2:] = slow
    control = np.tile(slow[:, None], (1, 7500, 1))
    hybrid = HybridSim(scene, base, theta)
    states = hybrid.rollout(start, control)
    expected = MujocoSim(scene, theta).rollout(start, control)
    assert hybrid.collision_stats.learned == 0
    assert set(hybrid.collision_stats.left_to_mujoco) <= {TOO_SLOW, HIT_AGAIN}
    assert (np.linalg.norm(expected[:, -1, :2] - start[:, :2], axis=1) > 0.01).all()
    mm, degrees = pose_difference(states[:, -1], expected[:, -1])
    assert mm.max() < 0.2 and degrees.max() < 0.5


def test_wrong_input_is_refused():
    scene, base, theta = strike_scene("square")
    hybrid = HybridSim(scene, base, theta)
    start, velocity, before = strike_starts("square", 2)
    control = hit_and_retract(velocity, 0.0002)
    with pytest.raises(ClashError, match="start needs shape"):
        hybrid.rollout(start[:, :-1], control)
    with pytest.raises(ClashError, match="control needs shape"):
        hybrid.rollout(start, control[:1])
    with pytest.raises(ClashError, match="no geom named 'blok'"):
        HybridSim(scene, [LearnedPair("blok", "striker", base)])
    twice = [LearnedPair("block", "striker", base), LearnedPair("striker", "block", base)]
    with pytest.raises(ClashError, match="given twice"):
        HybridSim(scene, twice)
    with pytest.raises(ClashError, match="needs `model_scene`"):
        HybridSim(scene, [LearnedPair("block", "striker", FakeModel())])
    with pytest.raises(ClashError, match="needs a slide model"):
        hybrid.rest(before)
