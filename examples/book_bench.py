"""A bench to try clashsim on, for the tutorial: a book on a desk, struck by a fingertip and seen by
motion capture.

    python examples/book_bench.py bench

writes bench/book.xml, the scene as its author believes it to be, and bench/mocap/take_01.csv to
take_12.csv: 150 frames a second, ms, mm and degrees, with noise and lost frames. The strikes are
made in MuJoCo with another contact, friction and mass: a stand-in for reality.
"""

import csv
import sys
import tempfile
from pathlib import Path

import mujoco
import numpy as np

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
REALITY = """<contact>
    <pair geom1="fingertip" geom2="cover" condim="4" friction="0.2 0.2 0.005 0.0001 0.0001" solref="-90000 -110"/>
    <pair geom1="desk" geom2="cover" condim="4" friction="0.32 0.32 0.005 0.0001 0.0001"/>
  </contact>
  <actuator>"""
COLUMNS = ["t_ms", "book_x_mm", "book_y_mm", "book_yaw_deg", "finger_x_mm", "finger_y_mm"]


def take(model: mujoco.MjModel, rng: np.random.Generator) -> list[list[str]]:
    """One strike on the long side of the book, as the cameras see it."""
    data = mujoco.MjData(model)
    speed, side, yaw, aim = (
        rng.uniform(0.3, 0.7),
        rng.uniform(-0.04, 0.04),
        rng.uniform(-0.2, 0.2),
        rng.uniform(-0.15, 0.15),
    )
    data.qpos[:7] = [*rng.uniform(-0.02, 0.02, 2), 0.015, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    along, across = np.array([-np.sin(yaw), np.cos(yaw)]), np.array([np.cos(yaw), np.sin(yaw)])
    way = np.cos(aim) * along + np.sin(aim) * across
    data.qpos[7:9] = data.qpos[:2] - 0.14 * way + side * across - [-0.2, 0]
    mujoco.mj_forward(model, data)
    rows, hit = [], np.inf
    book, finger = model.body("book").id, model.body("finger").id
    while data.time < min(2.0, hit + 1.0):
        if hit == np.inf and any(
            {model.geom("fingertip").id, model.geom("cover").id} == set(c.geom)
            for c in data.contact[: data.ncon]
        ):
            hit = data.time
        data.ctrl[:] = (
            speed if data.time < hit + 0.005 else max(-0.1, speed - 20 * (data.time - hit))
        ) * way
        if data.time * 150 >= len(rows):
            yaw_now = 2 * np.degrees(np.arctan2(data.xquat[book, 3], data.xquat[book, 0]))
            seen = [
                *(1e3 * data.xpos[book, :2] + rng.normal(0, 0.12, 2)),
                yaw_now + rng.normal(0, 0.1),
            ]
            lost = rng.uniform() < 0.004
            rows.append(
                [
                    f"{1e3 * data.time:.2f}",
                    *("" if lost else f"{v:.3f}" for v in seen),
                    *(f"{v:.3f}" for v in 1e3 * data.xpos[finger, :2] + rng.normal(0, 0.12, 2)),
                ]
            )
        mujoco.mj_step(model, data)
    return rows


def main(out: Path) -> None:
    """Write the scene and twelve takes."""
    (out / "mocap").mkdir(parents=True, exist_ok=True)
    (out / "book.xml").write_text(SCENE)
    model, rng = (
        mujoco.MjModel.from_xml_string(SCENE.replace("<actuator>", REALITY)),
        np.random.default_rng(1),
    )
    for k in range(12):
        with (out / "mocap" / f"take_{k + 1:02d}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *take(model, rng)])
    print(f"book.xml and 12 takes written to {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
