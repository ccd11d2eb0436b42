"""A seven-joint arm strikes a block: in a calibrated simulator, and in MuJoCo as it really is.

    CLASHSIM_MODELS=models python examples/arm_strike.py                  # prints the errors
    CLASHSIM_MODELS=models python examples/arm_strike.py arm-strike.png   # draws a strike as well

`models` is a folder that holds kuka_iiwa_14 of the MuJoCo Menagerie. Reality is a MuJoCo simulation
whose contact parameters the calibration does not know: twelve strikes in it are recorded as a
camera above the table would, and ten others are compared. The arm's mass at the contact follows
from its joint angles.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen

import matplotlib.pyplot as plt
import mujoco
import numpy as np

import clashsim
from clashsim.core.contact_geometry import PairPoser, bring_into_contact
from clashsim.core.impacts import MotionBefore
from clashsim.core.mjcf_assets import scene_assets
from clashsim.core.scene import scene_params

ARM = "kuka_iiwa_14/iiwa14.xml"
# A ball at the tip of a stick in the flange, and a block on a table at the ball's height.
TOOL = """<body name="tool" pos="0 0 .165">
<geom type="capsule" size=".012" fromto="0 0 -.12 0 0 -.02" contype="0" conaffinity="0" mass=".2"/>
<geom name="ball" type="sphere" size=".02" mass=".1" rgba=".2 .2 .2 1"/></body>"""
BLOCK = """<light pos="1 -1 2" dir="-.3 .6 -1"/>
<geom name="table" type="box" pos=".65 0 .1" size=".3 .45 .1" rgba=".85 .83 .78 1"/>
<body name="block" pos=".7 0 .25"><freejoint/>
<geom name="block" type="box" size=".05 .04 .05" mass=".5" rgba=".2 .45 .75 1"/></body>
</worldbody>"""
SKY = '<texture type="skybox" builtin="flat" rgb1="1 1 1" width="8" height="48"/></asset>'
KEY = '<key name="home" qpos="0 .9 0 -1.5 0 .7416 0 .7 0 .25 1 0 0 0"/>'
OPTION = '<option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>'
REAL_CONTACT = {"friction": 0.2, "stiffness": 4e4, "damping": 90.0}
NUM_FITTED = 12
NUM_TESTED = 10
LEAD_TIME = 0.02  # s, before the contact
STEPS = 400
SHOWN = 7  # the strike that is drawn


def arm_scene(path: Path) -> clashsim.Scene:
    """The arm with its tool, and the block on the table."""
    xml = path.read_text()
    site = '<site pos="0 0 0.045" name="attachment_site"/>'
    xml = xml.replace(site, site + TOOL).replace("</worldbody>", BLOCK).replace("</asset>", SKY)
    xml = xml.replace('<option integrator="implicitfast"/>', OPTION)
    key = xml[xml.index("<key ") : xml.index("</keyframe>")]
    xml = xml.replace(key, KEY)
    scene = clashsim.Scene(
        xml, "block", "ball", "table", assets=scene_assets(path, xml), name="arm_strike"
    )
    return scene.with_params(scene_params(scene))


def strikes(scene: clashsim.Scene, n: int, seed: int) -> np.ndarray:
    """Poses and twists (n, 12) of block and ball in the plane, just before they touch."""
    rng = np.random.default_rng(seed)
    before, motion = MotionBefore.at_origin(n, planar=True)
    direction = rng.uniform(-0.6, 0.6, n)
    heading = np.stack([np.cos(direction), np.sin(direction)], 1)
    sideways = np.stack([-heading[:, 1], heading[:, 0]], 1)
    place = np.stack([rng.uniform(0.65, 0.75, n), rng.uniform(-0.15, 0.15, n)], 1)
    motion.struck.position[:] = place
    motion.struck.pose[:, 2] = rng.uniform(-np.pi, np.pi, n)
    motion.striker.position[:] = (
        place - 0.11 * heading + rng.uniform(-0.03, 0.03, (n, 1)) * sideways
    )
    motion.striker.velocity[:] = rng.uniform(0.3, 0.8, (n, 1)) * heading
    return bring_into_contact(scene, before)[1]


def starts(scene: clashsim.Scene, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """States (n, s) shortly before the contact, and controls (n, T, nu) that keep the arm's speed.

    The joint angles are those that bring the tool to its pose, from the keyframe.
    """
    model = scene.base
    earlier = before.copy()
    striker = MotionBefore.of(earlier).striker
    striker.position[:] -= LEAD_TIME * striker.velocity
    qpos = np.tile(model.key_qpos[0], (len(before), 1))
    qvel = np.zeros((len(before), model.nv))
    PairPoser(scene).write(earlier, qpos, qvel)
    data = mujoco.MjData(model)
    dofs = model.jnt_dofadr[model.actuator_trnid[:, 0]]
    angles = model.jnt_qposadr[model.actuator_trnid[:, 0]]
    elapsed = model.opt.timestep * np.arange(STEPS)[:, None]
    controls = []
    for position, velocity in zip(qpos, qvel, strict=True):
        data.qpos[:] = position
        data.qvel[:] = velocity
        mujoco.mj_forward(model, data)
        wanted = data.qfrc_bias[dofs] - data.qfrc_passive[dofs]
        _, stiffness, damping = model.actuator_biasprm[:, :3].T
        held = stiffness * position[angles] + damping * velocity[dofs]
        first = (wanted - held) / model.actuator_gainprm[:, 0]
        controls.append(first + elapsed * velocity[dofs])
    return np.hstack([qpos, qvel]), np.array(controls)


def twist_after(scene: clashsim.Scene, states: np.ndarray) -> np.ndarray:
    """Twists (n, 3) of the block when it has parted from the ball, from states (n, T, s)."""
    model = scene.base
    data = mujoco.MjData(model)
    ball, block = model.geom("ball").id, model.geom("block").id
    velocity = model.nq + model.jnt_dofadr[model.body_jntadr[model.body("block").id]]
    found = []
    for motion in states:
        touched = False
        for state in motion:
            data.qpos[:] = state[: model.nq]
            mujoco.mj_kinematics(model, data)
            apart = mujoco.mj_geomDistance(model, data, ball, block, 1.0, np.zeros(6)) > 0
            # A block that was struck moves, and is apart again.
            touched = touched or np.abs(state[velocity : velocity + 2]).max() > 1e-3
            if touched and apart:
                break
        found.append(state[velocity + np.array([0, 1, 5])])
    return np.array(found)


def mass_at_contact(scene: clashsim.Scene, state: np.ndarray) -> float:
    """Effective mass (kg) of the arm at the ball, along its motion, from the joint angles."""
    model = scene.base
    data = mujoco.MjData(model)
    data.qpos[:] = state[: model.nq]
    data.qvel[:] = state[model.nq :]
    mujoco.mj_forward(model, data)
    jacobian = np.zeros((3, model.nv))
    mujoco.mj_jacGeom(model, data, jacobian, None, model.geom("ball").id)
    velocity = jacobian @ data.qvel
    along = jacobian.T @ velocity / np.linalg.norm(velocity)
    moved = np.zeros((1, model.nv))
    mujoco.mj_solveM(model, data, moved, along[None])
    return float(1 / (moved[0] @ along))


def draw(path: str, scene: clashsim.Scene, motions: dict[str, np.ndarray]) -> None:
    """Draw a strike as it ends in each simulator, and the arm before it."""
    model = scene.model()
    data = mujoco.MjData(model)
    camera = mujoco.MjvCamera()
    camera.lookat = (0.6, 0, 0.3)
    camera.distance = 1.2
    camera.azimuth = 130
    camera.elevation = -30
    pictures = []
    with mujoco.Renderer(model, 480, 480) as renderer:
        first = next(iter(motions.values()))[0]
        for state in (first, *(motion[-1] for motion in motions.values())):
            data.qpos[:] = state[: model.nq]
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera)
            pictures.append(renderer.render())
    plt.figure(figsize=(12, 4.4), layout="constrained")
    plt.imshow(np.hstack(pictures))
    plt.xticks([240, 720, 1200], ["before the strike", *motions])
    plt.yticks([])
    plt.savefig(path)


models = os.environ.get("CLASHSIM_MODELS")
if not models or not (Path(models) / ARM).is_file():
    print(f"point CLASHSIM_MODELS at a folder with {ARM} of the MuJoCo Menagerie")
    sys.exit()
scene = arm_scene(Path(models) / ARM)
real_theta = np.array([REAL_CONTACT.get(param.name, param.nominal) for param in scene.params])
real = clashsim.MujocoSim(scene, real_theta)

recorded = strikes(scene, NUM_FITTED, seed=0)
states = real.rollout(*starts(scene, recorded))
impacts = clashsim.Impacts(True, recorded, twist_after(scene, states))
calibration = clashsim.calibrate(clashsim.SolvedModel(scene), impacts)

start, control = starts(scene, strikes(scene, NUM_TESTED, seed=1))
masses = [mass_at_contact(scene, state) for state in start]
print(f"mass of the arm at the contact: {min(masses):.1f} to {max(masses):.1f} kg")
motions = {
    "clashsim": clashsim.HybridSim(scene, calibration).rollout(start, control),
    "MuJoCo, true parameters": real.rollout(start, control),
    "MuJoCo, nominal parameters": clashsim.MujocoSim(scene, scene.nominal).rollout(start, control),
}
twists = {name: twist_after(scene, motion) for name, motion in motions.items()}
truth = twists.pop("MuJoCo, true parameters")
scale = np.array([1, 1, 0.037])  # m, radius of gyration of the block
for name, twist in twists.items():
    error = np.linalg.norm((twist - truth) * scale, axis=1) / np.linalg.norm(truth * scale, axis=1)
    within = int((error < 0.1).sum())
    print(f"{name}: {within} of {NUM_TESTED} within 10 %, median error {np.median(error):.3f}")

if len(sys.argv) > 1:
    shown = ("clashsim", "MuJoCo, true parameters")
    draw(sys.argv[1], scene, {name: motions[name][SHOWN] for name in shown})
