"""The hybrid simulator and bodies of several geoms: every geom of a pair collides by its model."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from clashsim.bench.user_scenes import user_scenes
from clashsim.core.contact_frame import inertia
from clashsim.core.errors import ClashError
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.hybrid.pairs import LearnedPair
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.simulator import MujocoSim

TEE = next(scene for scene in user_scenes() if scene.name == "tee struck by a pusher")
TIMESTEP = 5e-4
STEPS = 300
# A cross of five boxes, as a mesh split into convex parts comes out.
CROSS = """<mujoco><option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>
<worldbody><geom name="floor" type="plane" size="2 2 .1"/>
<body name="cross" pos="0 0 .3"><freejoint/>
<geom type="box" size=".02 .02 .02" density="500"/>
<geom type="box" size=".03 .015 .015" pos=".05 0 0" density="500"/>
<geom type="box" size=".03 .015 .015" pos="-.05 0 0" density="500"/>
<geom type="box" size=".015 .03 .015" pos="0 .05 0" density="500"/>
<geom type="box" size=".015 .015 .03" pos="0 0 .05" density="500"/></body></worldbody></mujoco>"""


def strikes_at_the_crossbar(scene: Scene, n: int) -> tuple[np.ndarray, np.ndarray]:
    """States in which the pusher moves at the second geom of the tee, and controls."""
    model = scene.base
    pusher = int(model.joint("px").qposadr[0])
    dofs = int(model.joint("px").dofadr[0])
    rng = np.random.default_rng(0)
    start = np.zeros((n, model.nq + model.nv))
    velocity = np.column_stack([rng.uniform(-0.9, -0.5, n), rng.uniform(-0.05, 0.05, n)])
    start[:, pusher] = 0.12 - model.body("pusher").pos[0]
    start[:, pusher + 1] = rng.uniform(-0.04, 0.04, n)
    start[:, model.nq + dofs : model.nq + dofs + 2] = velocity
    control = np.repeat(velocity[:, None], STEPS, axis=1)
    control[:, 120:] *= -1.0  # away again
    return start, control


def test_a_strike_on_any_geom_of_a_body_is_learned(tmp_path):
    path = tmp_path / "tee.xml"
    path.write_text(TEE.xml)
    scene = Scene.load(path)
    assert scene.strike_geoms == (("tee/0", "pusher/0"), ("tee/1", "pusher/0"))
    scene = scene.with_params([param for param in scene.params if "pair/" in param.target])
    theta = scene.nominal
    names = [param.name for param in scene.params]
    theta[names.index("friction")] = 0.15  # not the author's value
    start, control = strikes_at_the_crossbar(scene, 6)
    hybrid = HybridSim(scene, SolvedModel(scene), theta)
    states = hybrid.rollout(start, control)
    stats = hybrid.collision_stats
    assert stats.learned == 6, str(stats)
    expected = MujocoSim(scene, theta).rollout(start, control)
    twist = slice(scene.base.nq, scene.base.nq + 3)
    gyration = inertia(scene, scene.struck_body).gyration
    error = relative_error(states[:, -1, twist], expected[:, -1, twist], gyration)
    assert error.max() < 0.1


def test_each_part_of_a_body_bounces_by_the_model(tmp_path):
    path = tmp_path / "cross.xml"
    path.write_text(CROSS)
    scene = Scene.load(path)
    hybrid = HybridSim(scene, SolvedModel(scene), scene.nominal)
    rng = np.random.default_rng(1)
    start = np.zeros((8, 13))
    start[:, 2] = 0.2
    start[:, 3:7] = rng.normal(size=(8, 4))
    start[:, 3:7] /= np.linalg.norm(start[:, 3:7], axis=1, keepdims=True)
    start[:, 9] = -1.0
    start[:, 7] = rng.uniform(-0.5, 0.5, 8)
    touching: set[str] = set()
    model = scene.model(scene.nominal)
    data = mujoco.MjData(model)
    for row in start:
        data.qpos[:] = row[:7]
        data.qvel[:] = row[7:]
        while not data.ncon:
            mujoco.mj_step(model, data)
        touching |= {model.geom(geom).name for geom in data.contact.geom.ravel()}
        mujoco.mj_resetData(model, data)
    assert len(touching - {"floor"}) >= 3  # so that most strikes are not on the named geom
    hybrid.rollout(start, np.zeros((8, 300, 0)))
    assert hybrid.collision_stats.learned >= 8, str(hybrid.collision_stats)


@pytest.mark.parametrize("in_space", [False, True])
def test_a_hinged_body_is_struck_as_in_mujoco(tmp_path, in_space: bool):
    """Its joint leaves it one direction, so that its inverse inertia is singular."""
    door = next(scene for scene in user_scenes() if scene.name == "ball at a door")
    path = tmp_path / "door.xml"
    path.write_text(door.xml)
    scene = Scene.load(path, **door.arguments)
    scene = scene.recorded_in_space() if in_space else scene
    scene = scene.with_params([param for param in scene.params if "pair/" in param.target])
    rng = np.random.default_rng(0)
    model = scene.base
    start = np.zeros((6, model.nq + model.nv))
    where = np.column_stack([rng.uniform(0.05, 0.28, 6), np.full(6, -0.1)])
    start[:, 1:3] = where - model.body("pusher").pos[:2]
    start[:, -1] = rng.uniform(0.5, 1.5, 6)
    start[:, -2] = rng.uniform(-0.3, 0.3, 6)
    control = np.zeros((6, STEPS, 0))
    hybrid = HybridSim(scene, SolvedModel(scene), scene.nominal)
    states = hybrid.rollout(start, control)
    assert hybrid.collision_stats.learned == 6, str(hybrid.collision_stats)
    expected = MujocoSim(scene, scene.nominal).rollout(start, control)
    np.testing.assert_allclose(states[:, -1, model.nq :], expected[:, -1, model.nq :], atol=0.03)


def test_two_models_for_two_geoms_of_a_body(tmp_path):
    path = tmp_path / "tee.xml"
    path.write_text(TEE.xml)
    scene = Scene.load(path)
    model = SolvedModel(scene)
    pairs = [
        LearnedPair("tee/0", "pusher/0", model, scene, scene.nominal),
        LearnedPair("tee/1", "pusher/0", model, scene, scene.nominal),
    ]
    start, control = strikes_at_the_crossbar(scene, 2)
    hybrid = HybridSim(scene, pairs)
    hybrid.rollout(start, control)
    single = HybridSim(scene, pairs[:1])
    single.rollout(start, control)
    assert hybrid.collision_stats.learned == single.collision_stats.learned == 2
    with pytest.raises(ClashError, match="given twice"):
        HybridSim(scene, [pairs[0], pairs[0]])
