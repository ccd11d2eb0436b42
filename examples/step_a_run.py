"""Step a strike with a learned collision (left) and with MuJoCo's own (right), as an animation.

    python examples/step_a_run.py runs/demo strike.gif

Without a run, the collision of the shipped semi-cylinder is used, as distilled from MuJoCo.

In a viewer: `with mujoco.viewer.launch_passive(hybrid.model, data) as viewer:`, and
`hybrid.step(data); viewer.sync()` in a loop.
"""

import os
import sys
from collections.abc import Callable

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen
import mujoco
import numpy as np
from PIL import Image

import clashsim

SPEED = 0.5  # m/s, of the striker
DURATION = 0.6  # s
RETREAT_TIME = 0.15  # s
FRAME_TIME = 0.02  # s between two frames of the animation


def film_strike(model: mujoco.MjModel, step: Callable[[mujoco.MjData], object]) -> list[np.ndarray]:
    """Simulate a strike on the round side, a little off its middle, and return its frames."""
    data = mujoco.MjData(model)
    data.qpos[7:9] = (0.22, 0.12)
    data.qvel[7] = -SPEED
    camera = mujoco.MjvCamera()
    camera.lookat = (0, 0, 0)
    camera.distance = 0.5
    camera.elevation = -60
    frames: list[np.ndarray] = []
    with mujoco.Renderer(model, 240, 320) as renderer:
        while data.time < DURATION:
            data.ctrl[1] = -SPEED if data.time < RETREAT_TIME else SPEED
            step(data)
            if data.time > FRAME_TIME * len(frames):
                renderer.update_scene(data, camera)
                frames.append(renderer.render())
    x, y = 1e3 * data.qpos[:2]
    yaw = np.degrees(2 * np.arctan2(data.qpos[6], data.qpos[3]))
    print(f"at rest at x {x:+.1f} mm, y {y:+.1f} mm, yaw {yaw:+.1f} degrees")
    return frames


scene = clashsim.Scene.load("semi_cylinder")
if len(sys.argv) > 1:
    hybrid = clashsim.load(sys.argv[1]).hybrid(timestep=0.002)
else:
    hybrid = clashsim.HybridSim(scene, clashsim.distilled_model(scene), timestep=0.002)
mujoco_model = scene.model(hybrid.theta)

learned = film_strike(hybrid.model, hybrid.step)
plain = film_strike(mujoco_model, lambda data: mujoco.mj_step(mujoco_model, data))
if len(sys.argv) > 2:
    pairs = zip(learned, plain, strict=False)
    images = [Image.fromarray(np.hstack(pair)) for pair in pairs]
    images[0].save(sys.argv[2], save_all=True, append_images=images[1:], duration=40, loop=0)
