"""One strike on a semi-cylinder, its collision learned from ten recorded ones (above) and by MuJoCo as its author wrote the scene (below).

    python examples/hybrid_strike.py strike.png

In a viewer: `with mujoco.viewer.launch_passive(hybrid.model, data) as viewer:`, and `hybrid.step(data); viewer.sync()` in a loop.
"""

import os
import sys

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen

import matplotlib.pyplot as plt
import mujoco
import numpy as np

import clashsim
from clashsim.bench.lab_sets import lab_set

scene = clashsim.Scene.load("semi_cylinder")
recorded = lab_set("resin on sand", "semi_cylinder", "resin", "high").impacts  # or: clashsim.load_run("runs/demo") instead of calibrating
hybrid = clashsim.HybridSim(scene, clashsim.calibrate(clashsim.base_model(scene), recorded[np.arange(10)]), timestep=0.002)
plain = scene.model()
plain.opt.timestep = 0.0005
strip = []
for model, step in ((hybrid.model, hybrid.step), (plain, lambda d: mujoco.mj_step(plain, d))):
    data = mujoco.MjData(model)
    data.qpos[8], data.qvel[7] = 0.1, -0.5  # the striker comes down on the round side, a little off the middle
    data.qpos[7], data.ctrl[1] = 0.22, -0.5
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat, camera.distance, camera.azimuth, camera.elevation = (0, 0, 0), 0.45, 90, -60
    with mujoco.Renderer(model, 240, 320) as renderer:
        for until in (0.0, 0.08, 0.12, 0.16, 0.4):
            while data.time < until - 1e-6:
                data.ctrl[1] = -0.5 if data.time < 0.1 else 0.5  # strike, then draw back
                step(data)
            renderer.update_scene(data, camera)
            strip.append(renderer.render())
    print(f"block at rest at x {data.qpos[0]:+.4f} m, y {data.qpos[1]:+.4f} m, yaw {np.degrees(2 * np.arctan2(data.qpos[6], data.qpos[3])):+.1f} degrees")
print(hybrid.tally)
if len(sys.argv) > 1:
    plt.imsave(sys.argv[1], np.vstack([np.hstack(strip[:5]), np.hstack(strip[5:])]))
