"""Arms as strikers in the hybrid simulator: what servos hold counts as inertia at the contact."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clashsim
from clashsim.core.params import Param
from clashsim.core.scene import Scene

EXAMPLE = Path(__file__).parents[1] / "examples" / "arm_strike.py"
# Two light links whose servos are strongly damped, a ball at the tip, and a block in the plane.
ARM = """<mujoco><option timestep="0.0005" integrator="implicitfast" gravity="0 0 0"/><worldbody>
<body name="block"><joint type="slide" axis="1 0 0"/><joint type="slide"
 axis="0 1 0"/><joint type="hinge" axis="0 0 1"/><geom name="block" type="box" size=".04 .04 .04"
 mass=".5"/></body>
<body name="upper"><joint name="q0" axis="0 0 1"/><geom type="capsule" size=".01" mass=".3"
 fromto="0 0 0 .25 0 0" contype="0" conaffinity="0"/>
<body name="lower" pos=".25 0 0"><joint name="q1" axis="0 0 1"/><geom type="capsule" size=".01"
 mass=".2" fromto="0 0 0 .25 0 0" contype="0" conaffinity="0"/>
<geom name="ball" type="sphere" size=".02" pos=".25 0 0" mass=".1"/></body></body></worldbody>
<actuator><velocity joint="q0" kv="{kv}"/><velocity joint="q1" kv="{kv}"/></actuator>
<contact><pair name="strike" geom1="block" geom2="ball" condim="3" solref="-40000 -60"
 friction=".2 .2 .005 .0001 .0001"/></contact>
<keyframe><key qpos=".4 0 0 .6 -1.2"/></keyframe></mujoco>"""


def struck_speed(simulator: clashsim.HybridSim | clashsim.MujocoSim, kv: float) -> float:
    """Speed (m/s) of the block after the arm's tip has struck its face at 0.6 m/s."""
    bend = 0.6  # rad
    rate = 0.6 / (0.25 * np.sin(bend))  # rad/s of the elbow, at which the tip moves along x
    tip = 0.5 * np.cos(bend)
    qpos = np.array([[tip + 0.066, 0.01, 0.0, bend, -2 * bend]])
    qvel = np.array([[0.0, 0.0, 0.0, -rate / 2, rate]])
    control = np.tile(qvel[:, None, 3:], (1, 120, 1)) if kv else np.zeros((1, 120, 2))
    states = simulator.rollout(np.hstack([qpos, qvel]), control)[0]
    return float(np.linalg.norm(states[:, 5:7], axis=1).max())


def arm(kv: float) -> Scene:
    """The scene with servos of a given gain."""
    friction = Param("friction", "pair/strike/friction[0:2]", 0.2, 0.02, 1.0)
    return Scene(ARM.format(kv=kv), "block", "ball", None, (friction,), name="arm")


@pytest.mark.parametrize("kv", [0.0, 20.0])
def test_a_block_struck_by_a_driven_arm_is_as_fast_as_in_mujoco(kv: float) -> None:
    scene = arm(kv)
    hybrid = clashsim.HybridSim(scene, clashsim.SolvedModel(scene), scene.nominal)
    found = struck_speed(hybrid, kv)
    assert hybrid.collision_stats.learned >= 1 and hybrid.collision_stats.corrected == 0
    expected = struck_speed(clashsim.MujocoSim(scene, scene.nominal), kv)
    assert found == pytest.approx(expected, rel=0.05)


def test_a_driven_arm_strikes_harder_than_a_loose_one() -> None:
    loose, driven = (
        struck_speed(clashsim.MujocoSim(arm(kv), arm(kv).nominal), kv) for kv in (0.0, 20.0)
    )
    assert driven > 1.5 * loose


@pytest.mark.slow
def test_a_seven_joint_arm_strikes_a_block_as_with_the_true_parameters() -> None:
    root = os.environ.get("CLASHSIM_MODELS")
    if not root or not (Path(root) / "kuka_iiwa_14" / "iiwa14.xml").is_file():
        pytest.skip("point CLASHSIM_MODELS at a folder with kuka_iiwa_14 of the MuJoCo Menagerie")
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    within = {
        name: int(count)
        for name, count in re.findall(r"^(.+): (\d+) of 10 within", done.stdout, re.M)
    }
    assert within["clashsim"] == 10 and within["MuJoCo, nominal parameters"] < 5


def test_the_example_says_where_the_model_is_to_be_had(tmp_path: Path) -> None:
    environment = {**os.environ, "CLASHSIM_MODELS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and "Menagerie" in done.stdout
