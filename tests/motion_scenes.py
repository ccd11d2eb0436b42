"""Scenes and simulated recordings for tests of fits to whole trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from clashsim.core.trials import Trial, Trials

PENDULUM = """<mujoco>
  <option timestep="0.005" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" damping="{upper_damping}"/>
      <geom name="upper" type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".4"/>
      <body name="lower" pos="0 0 -.3">
        <joint name="elbow" axis="0 1 0" damping="{lower_damping}"/>
        <geom name="lower" type="capsule" fromto="0 0 0 0 0 -.25" size=".02" mass="{mass}"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
BOX = """<mujoco>
  <option timestep="0.002" cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 .1" {contact}/>
    <body name="box" pos="0 0 .5">
      <freejoint/>
      <geom name="box" type="box" size=".05 .04 .03" mass=".3" {contact}/>
    </body>
  </worldbody>
</mujoco>
"""
# An object of two links that is tossed: a free body that carries a hinge.
ELBOW = """<mujoco>
  <option timestep="0.002" cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 .1"/>
    <body name="base" pos="0 0 .5">
      <freejoint/>
      <geom name="base" type="box" size=".05 .02 .02" mass=".2"/>
      <body name="arm" pos=".05 0 0">
        <joint name="hinge" axis="0 1 0" damping="{damping}"/>
        <geom name="arm" type="box" size=".05 .02 .02" pos=".06 0 0" mass=".2"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
PENDULUM_GUESS = {"upper_damping": 2e-3, "lower_damping": 1e-3, "mass": 0.25}
PENDULUM_TRUTH = {"upper_damping": 8e-3, "lower_damping": 4e-4, "mass": 0.2}
CONTACT_TRUTH = 'friction="0.25 .005 .0001" solref="-40000 -120"'


def recorded(
    xml: str,
    starts: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    seconds: float,
    bodies: Sequence[str] = (),
    joints: Mapping[str, str] | None = None,
    rate: float = 100.0,
    noise: float = 1e-4,
) -> Trials:
    """Simulate trials from starts (qpos, qvel); `joints` maps names of joints to signals."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    every = round(1 / rate / model.opt.timestep)
    frames = round(seconds * rate)
    trials = []
    for i, (qpos, qvel) in enumerate(starts):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = qpos
        data.qvel[:] = qvel
        poses: dict[str, list[np.ndarray]] = {body: [] for body in bodies}
        signals: dict[str, list[float]] = {signal: [] for signal in (joints or {}).values()}
        for _ in range(frames):
            mujoco.mj_kinematics(model, data)
            for body in bodies:
                position = data.body(body).xpos + noise * rng.normal(size=3)
                poses[body].append(np.concatenate([position, data.body(body).xquat]))
            for joint, signal in (joints or {}).items():
                signals[signal].append(float(data.joint(joint).qpos[0]))
            for _ in range(every):
                mujoco.mj_step(model, data)
        trials.append(
            Trial(
                f"trial{i}",
                np.arange(frames) / rate,
                {body: np.array(rows) for body, rows in poses.items()},
                "simulated",
                {name: np.array(values) for name, values in signals.items()},
            )
        )
    return Trials(tuple(trials))


def swings(count: int, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts of the pendulum."""
    rng = np.random.default_rng(seed)
    return [(rng.uniform(-1.2, 1.2, 2), rng.normal(size=2)) for _ in range(count)]


def tosses(count: int, joints: int = 0, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts of a tossed body with some hinges."""
    rng = np.random.default_rng(seed)
    starts = []
    for _ in range(count):
        quaternion = rng.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        position = [0, 0, rng.uniform(0.2, 0.3)]
        qpos = np.concatenate([position, quaternion, rng.uniform(-0.5, 0.5, joints)])
        velocity = [*rng.normal(size=2), rng.normal(), *(4 * rng.normal(size=3))]
        starts.append((qpos, np.concatenate([velocity, rng.normal(size=joints)])))
    return starts
