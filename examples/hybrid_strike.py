"""A recorded strike on a semi-cylinder that was not used to calibrate, and the same strike in the
run's simulator and in MuJoCo at the run's values.

    python examples/hybrid_strike.py                        # calibrates on ten recorded strikes
      first
    python examples/hybrid_strike.py runs/demo strike.png   # with a run of that scene, such as
      `clashsim demo` makes, and a picture

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

folder = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/run"
if len(sys.argv) == 1:
    clashsim.write_trials(f"{folder}.safetensors", lab.recorded()[:10])
    cli.main(["calibrate", "semi_cylinder", f"{folder}.safetensors", "-o", folder])
run = clashsim.load(folder)

trial, at = lab.recorded()[10], run.scene.striker_body.position[:2]
hit = clashsim.segment([trial], scene=run.scene).impacts.before[
    0
]  # x, y, yaw and twist of block and striker as they meet, 0.1 s after the start
speed, half = hit[9:11], hit[2] / 2
start = np.r_[
    hit[:2], 0, np.cos(half), 0, 0, np.sin(half), hit[6:8] - 0.1 * speed - at, np.zeros(6), speed
]
seen = np.hstack([trial.poses["block"], trial.poses["striker"][:, :2] - at])
paths = {"recorded": seen[np.isfinite(seen).all(1)]}
for name, sim in (
    ("clashsim", run.hybrid(timestep=0.005)),
    ("MuJoCo", clashsim.MujocoSim(run.scene, run.theta)),
):
    t = np.arange(0, trial.t[-1], sim.model.opt.timestep)
    paths[name] = sim.rollout(start[None], np.where(t[:, None] < 0.13, speed, -speed)[None])[
        0, :, :9
    ]  # strike, then draw back
    off = paths[name][-1] - paths["recorded"][-1]
    print(
        f"{name}: comes to rest {1e3 * np.hypot(*off[:2]):.1f} mm and {np.degrees(2 * np.hypot(*off[[3, 6]])):.1f} degrees from where the recorded block did"
    )

if len(sys.argv) > 2:
    model, camera = run.scene.model(), mujoco.MjvCamera()
    data, model.vis.headlight.diffuse = mujoco.MjData(model), 0.0
    camera.lookat, camera.distance, camera.azimuth, camera.elevation = (
        (0.02, -0.02, 0),
        0.36,
        90,
        -90,
    )
    strips = []
    with mujoco.Renderer(model, 480, 480) as renderer:
        for path in paths.values():
            frames = []
            for data.qpos[:] in path[np.linspace(0, len(path) - 1, 6).astype(int)]:
                mujoco.mj_forward(model, data)
                renderer.update_scene(data, camera)
                frames.append(renderer.render())
            strips.append(
                np.minimum.reduce(frames)
            )  # all moments in one, as under a flashing light
    plt.figure(figsize=(12, 4.4), layout="constrained")
    plt.imshow(np.hstack(strips))
    plt.xticks([240, 720, 1200], list(paths))
    plt.yticks([])
    plt.savefig(sys.argv[2])
