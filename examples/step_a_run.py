"""A strike stepped in MuJoCo with the learned collision of a run folder (left) and with MuJoCo's
own (right), as an animated picture.

    python examples/step_a_run.py runs/demo strike.gif      # without a run: the shipped
      semi-cylinder, as distilled from MuJoCo

In a viewer: `with mujoco.viewer.launch_passive(hybrid.model, data) as viewer:`, and
`hybrid.step(data); viewer.sync()` in a loop.
"""

import os
import sys

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen
import mujoco
import numpy as np
from PIL import Image

import clashsim

scene = clashsim.Scene.load("semi_cylinder")
hybrid = (
    clashsim.load(sys.argv[1]).hybrid(timestep=0.002)
    if len(sys.argv) > 1
    else clashsim.HybridSim(scene, clashsim.base_model(scene), timestep=0.002)
)
plain = scene.model(hybrid.theta)
films = []
for model, step in ((hybrid.model, hybrid.step), (plain, lambda data: mujoco.mj_step(plain, data))):
    data, camera, film = mujoco.MjData(model), mujoco.MjvCamera(), []
    camera.lookat, camera.distance, camera.elevation = (0, 0, 0), 0.5, -60
    data.qpos[7:9], data.qvel[7] = (
        (0.22, 0.12),
        -0.5,
    )  # the striker comes down on the round side, a little off the middle
    with mujoco.Renderer(model, 240, 320) as renderer:
        while data.time < 0.6:
            data.ctrl[1] = -0.5 if data.time < 0.15 else 0.5  # strike, then draw back
            step(data)
            if data.time > 0.02 * len(film):
                renderer.update_scene(data, camera)
                film.append(renderer.render())
    films.append(film)
    print(
        f"at rest at x {1e3 * data.qpos[0]:+.1f} mm, y {1e3 * data.qpos[1]:+.1f} mm, yaw {np.degrees(2 * np.arctan2(data.qpos[6], data.qpos[3])):+.1f} degrees"
    )
frames = [Image.fromarray(np.hstack(pair)) for pair in zip(*films, strict=False)]
if len(sys.argv) > 2:
    frames[0].save(sys.argv[2], save_all=True, append_images=frames[1:], duration=40, loop=0)
