"""A rig to try clashsim on: a book on a desk, struck by a fingertip, seen by motion capture.

    python examples/book_rig.py rig

writes two things for the tutorial:

- rig/book.xml, the scene as its author believes it to be,
- rig/mocap/take_01.csv to take_12.csv, recordings at 150 Hz in ms, mm and degrees, with noise and
  lost frames.

The strikes are made in MuJoCo with other contact parameters and frictions than in book.xml, as a
stand-in for reality.
"""

import csv
import sys
import tempfile
from pathlib import Path

import mujoco
import numpy as np

NUM_TAKES = 12
FRAME_RATE = 150  # Hz
POSITION_NOISE = 0.12  # mm, standard deviation
YAW_NOISE = 0.1  # degrees
LOST_FRAMES = 0.004  # probability
SCENE = """<mujoco model="book">
  <option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <geom name="desk" type="plane" size="1 1 0.1" friction="0.4 0.005 0.0001"/>
    <body name="book" pos="0 0 0.015">
      <freejoint/>
      <geom name="cover" type="box" size="0.075 0.05 0.015" mass="0.4" friction="0.3 0.005 0.0001"/>
    </body>
    <body name="finger" pos="-0.2 0 0.015">
      <joint name="finger_x" type="slide" axis="1 0 0"/>
      <joint name="finger_y" type="slide" axis="0 1 0"/>
      <geom name="fingertip" type="sphere" size="0.01" mass="2.5" friction="0.3 0.005 0.0001"/>
    </body>
  </worldbody>
  <actuator>
    <velocity joint="finger_x" kv="300"/>
    <velocity joint="finger_y" kv="300"/>
  </actuator>
</mujoco>
"""
# What book.xml does not have: the contacts of the simulated reality.
REALITY = """<contact>
    <pair geom1="fingertip" geom2="cover" condim="4" friction="0.2 0.2 0.005 0.0001 0.0001"
      solref="-90000 -110"/>
    <pair geom1="desk" geom2="cover" condim="4" friction="0.32 0.32 0.005 0.0001 0.0001"/>
  </contact>
  <actuator>"""
COLUMNS = ["t_ms", "book_x_mm", "book_y_mm", "book_yaw_deg", "finger_x_mm", "finger_y_mm"]
FINGER_HOME = np.array([-0.2, 0.0])  # m, position of the finger where its joints are zero


def take(model: mujoco.MjModel, rng: np.random.Generator) -> list[list[str]]:
    """Record one strike on the long side of the book, as rows of a CSV file."""
    data = mujoco.MjData(model)
    speed = rng.uniform(0.3, 0.7)  # m/s
    offset = rng.uniform(-0.04, 0.04)  # m, of the strike from the middle of the side
    yaw = rng.uniform(-0.2, 0.2)  # rad, of the book
    deflection = rng.uniform(-0.15, 0.15)  # rad, of the strike from the normal of the side
    book_xy = rng.uniform(-0.02, 0.02, 2)
    data.qpos[:7] = [*book_xy, 0.015, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    normal = np.array([-np.sin(yaw), np.cos(yaw)])
    tangent = np.array([np.cos(yaw), np.sin(yaw)])
    direction = np.cos(deflection) * normal + np.sin(deflection) * tangent
    data.qpos[7:9] = data.qpos[:2] - 0.14 * direction + offset * tangent - FINGER_HOME
    mujoco.mj_forward(model, data)
    rows: list[list[str]] = []
    hit_time = np.inf
    while data.time < min(2.0, hit_time + 1.0):
        if hit_time == np.inf and touching(model, data):
            hit_time = data.time
        data.ctrl[:] = commanded_speed(speed, data.time - hit_time) * direction
        if data.time * FRAME_RATE >= len(rows):
            rows.append(frame(model, data, rng))
        mujoco.mj_step(model, data)
    return rows


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> bool:
    """Whether the fingertip touches the book."""
    pair = {model.geom("fingertip").id, model.geom("cover").id}
    return any(set(contact.geom) == pair for contact in data.contact[: data.ncon])


def commanded_speed(speed: float, since_hit: float) -> float:
    """Speed of the finger (m/s): constant until 5 ms after the hit, then slowing and retreating."""
    if since_hit < 0.005:
        return speed
    return max(-0.1, speed - 20 * since_hit)


def frame(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> list[str]:
    """One frame of motion capture: time and poses with noise; empty cells where it is lost."""
    book, finger = model.body("book").id, model.body("finger").id
    yaw = 2 * np.degrees(np.arctan2(data.xquat[book, 3], data.xquat[book, 0]))
    book_xy = 1e3 * data.xpos[book, :2] + rng.normal(0, POSITION_NOISE, 2)
    book_yaw = yaw + rng.normal(0, YAW_NOISE)
    book_lost = rng.uniform() < LOST_FRAMES
    finger_xy = 1e3 * data.xpos[finger, :2] + rng.normal(0, POSITION_NOISE, 2)
    book_cells = ["" if book_lost else f"{value:.3f}" for value in (*book_xy, book_yaw)]
    return [f"{1e3 * data.time:.2f}", *book_cells, *(f"{value:.3f}" for value in finger_xy)]


def main(out: Path) -> None:
    """Write the scene and the takes."""
    (out / "mocap").mkdir(parents=True, exist_ok=True)
    (out / "book.xml").write_text(SCENE)
    model = mujoco.MjModel.from_xml_string(SCENE.replace("<actuator>", REALITY))
    rng = np.random.default_rng(1)
    for number in range(1, NUM_TAKES + 1):
        with (out / "mocap" / f"take_{number:02d}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *take(model, rng)])
    print(f"book.xml and {NUM_TAKES} takes written to {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
