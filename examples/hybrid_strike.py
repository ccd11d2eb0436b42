"""Compare a recorded strike with the same strike in a run's simulator and in MuJoCo.

    python examples/hybrid_strike.py                        # calibrates on ten recorded strikes
    python examples/hybrid_strike.py runs/demo strike.png   # uses the run of `clashsim demo`

The strike was not used to calibrate. With a second argument, a picture of all three is written.

In a viewer: `with mujoco.viewer.launch_passive(hybrid.model, data) as viewer:`, and
`hybrid.step(data); viewer.sync()` in a loop.
"""

import os
import sys
import tempfile

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen

import matplotlib.pyplot as plt
import mujoco
import numpy as np

import clashsim
from clashsim import cli, lab

TIME_TO_IMPACT = 0.1  # s, from the start of a simulation
RETREAT_TIME = 0.13  # s, when the striker turns around


def calibrate_run() -> clashsim.CalibratedRun:
    """Calibrate on the first ten recorded strikes."""
    folder = f"{tempfile.mkdtemp()}/run"
    clashsim.write_trials(f"{folder}.safetensors", lab.recorded()[:10])
    cli.main(["calibrate", "semi_cylinder", f"{folder}.safetensors", "-o", folder])
    return clashsim.load(folder)


def start_state(impact: clashsim.Impacts, striker_home: np.ndarray) -> np.ndarray:
    """State (nq + nv,) of block and striker 0.1 s before an impact."""
    x, y, yaw = impact.pose[0]
    block = [x, y, 0, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    velocity = impact.striker_twist[0, :2]
    striker = impact.striker_pose[0, :2] - TIME_TO_IMPACT * velocity - striker_home
    return np.r_[block, striker, np.zeros(6), velocity]


def draw(path: str, scene: clashsim.Scene, motions: dict[str, np.ndarray]) -> None:
    """Draw each motion (T, nq) from above, with six moments in one picture."""
    model = scene.model()
    model.vis.headlight.diffuse = 0.0
    data = mujoco.MjData(model)
    camera = mujoco.MjvCamera()
    camera.lookat = (0.02, -0.02, 0)
    camera.distance = 0.36
    camera.azimuth = 90
    camera.elevation = -90
    pictures = []
    with mujoco.Renderer(model, 480, 480) as renderer:
        for motion in motions.values():
            frames = []
            for moment in np.linspace(0, len(motion) - 1, 6).astype(int):
                data.qpos[:] = motion[moment]
                mujoco.mj_forward(model, data)
                renderer.update_scene(data, camera)
                frames.append(renderer.render())
            pictures.append(np.minimum.reduce(frames))
    plt.figure(figsize=(12, 4.4), layout="constrained")
    plt.imshow(np.hstack(pictures))
    plt.xticks([240, 720, 1200], list(motions))
    plt.yticks([])
    plt.savefig(path)


run = clashsim.load(sys.argv[1]) if len(sys.argv) > 1 else calibrate_run()
trial = lab.recorded()[10]
striker_home = run.scene.striker_body.position[:2]
impact = clashsim.segment([trial], scene=run.scene).impacts
start = start_state(impact, striker_home)
velocity = impact.striker_twist[0, :2]

recorded = np.hstack([trial.poses["block"], trial.poses["striker"][:, :2] - striker_home])
motions = {"recorded": recorded[np.isfinite(recorded).all(1)]}
simulators = {
    "clashsim": run.hybrid(timestep=0.005),
    "MuJoCo": clashsim.MujocoSim(run.scene, run.theta),
}
for name, simulator in simulators.items():
    times = np.arange(0, trial.t[-1], simulator.model.opt.timestep)
    control = np.where(times[:, None] < RETREAT_TIME, velocity, -velocity)
    states = simulator.rollout(start[None], control[None])[0]
    motions[name] = states[:, :9]
    error = motions[name][-1] - motions["recorded"][-1]
    distance = 1e3 * np.hypot(*error[:2])
    angle = np.degrees(2 * np.hypot(*error[[3, 6]]))
    print(f"{name}: rests {distance:.1f} mm and {angle:.1f} degrees from the recorded block")

if len(sys.argv) > 2:
    draw(sys.argv[2], run.scene, motions)
