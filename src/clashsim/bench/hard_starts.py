"""Identification problems with a poor first guess and a known truth, simulated in MJX.

thrown-box   a box is thrown on a floor; the guess is so soft that the box falls through (Heiden et
             al. 2020, Fig. 1 left)
pendulum     a double pendulum that tumbles; the guess swings too slowly
strike       a ball slides into a wall and away; the guess is a contact so soft that the ball hardly
             comes back
arm          an upright arm with two elastic, driven joints falls over and swings; the guess is so
             stiff that it stays upright
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.mjx_windows import state_scales
from clashsim.sim.mjx.simulator import MjxSim

_BOX = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="box">
      <freejoint/>
      <geom name="box" type="box" size=".1 .1 .1" mass="1"/>
    </body>
  </worldbody>
  <contact>
    <pair name="strike" geom1="box" geom2="floor" condim="3" solref="-20000 -80"
          friction=".4 .4 .005 .0001 .0001"/>
  </contact>
</mujoco>"""
_PENDULUM = """
<mujoco>
  <option timestep="0.01"><flag contact="disable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
    <body>
      <joint name="upper" type="hinge" axis="0 1 0" damping=".004"/>
      <geom type="sphere" size=".03" pos="0 0 -.4" mass=".4"/>
      <body pos="0 0 -.4">
        <joint name="lower" type="hinge" axis="0 1 0" damping=".002"/>
        <geom name="bob" type="sphere" size=".03" pos="0 0 -.3" mass=".3"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""
_STRIKE = """
<mujoco>
  <option timestep="0.002" gravity="-3 0 0" integrator="implicitfast"/>
  <worldbody>
    <geom name="wall" type="plane" size="1 1 .1" euler="0 90 0"/>
    <body name="ball" pos=".3 0 0">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <joint name="turn" type="hinge" axis="0 0 1"/>
      <geom name="ball" type="sphere" size=".05" mass=".3"/>
    </body>
  </worldbody>
  <contact>
    <pair name="strike" geom1="ball" geom2="wall" condim="3" solref="-30000 -30"
          friction=".25 .25 .005 .0001 .0001"/>
  </contact>
</mujoco>"""
_ARM = """
<mujoco>
  <option timestep="0.01"><flag contact="disable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1" pos="0 0 -3"/>
    <body>
      <joint name="shoulder" type="hinge" axis="0 1 0" stiffness="2" damping=".05"/>
      <geom type="capsule" size=".03" fromto="0 0 0 0 0 .4" mass="1"/>
      <body pos="0 0 .4">
        <joint name="elbow" type="hinge" axis="0 1 0" stiffness="1" damping=".02"/>
        <geom name="tip" type="capsule" size=".02" fromto="0 0 0 0 0 .3" mass=".5"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator>
</mujoco>"""


@dataclass(frozen=True, eq=False)
class HardStart:
    """An identification problem: find parameters from simulated states, from poor first guesses.

    Attributes:
        scene: The q parameters of this scene are searched; their nominal values are the truth.
        start: States (T, s) at which the T trajectories begin: qpos, then qvel.
        control: Control of all steps, (T, steps, u).
        worst: Lower bounds of the first guesses, (q,), unit scale.
        best: Upper bounds of the first guesses, (q,), unit scale.
        rounds: Rounds of basin hopping; the simulator steps that they take are the budget of every
            search.
    """

    scene: Scene
    start: np.ndarray
    control: np.ndarray
    worst: np.ndarray
    best: np.ndarray
    rounds: int = 10

    @cached_property
    def sim(self) -> MjxSim:
        """The simulator; compiling it takes a while, so it is made once."""
        return MjxSim(self.scene)

    @property
    def truth(self) -> np.ndarray:
        """The point to be found, (q,), unit scale."""
        return to_unit(self.scene.params, self.scene.nominal)

    @property
    def steps(self) -> int:
        """Simulator steps of one rollout of all trajectories."""
        return self.control.shape[0] * self.control.shape[1]

    @cached_property
    def _observed(self) -> np.ndarray:
        """States (T, steps + 1, s) at the truth."""
        return self.sim.rollout(self.start, self.control, theta=self.scene.nominal)

    @cached_property
    def _weights(self) -> np.ndarray:
        """Factors (s,) that turn differences between states into residuals."""
        count = self._observed[:, 1:].size
        return 1 / (state_scales(self.sim.model, self._observed) * np.sqrt(count))

    def first_guesses(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw poor starts (n, q), unit scale."""
        return rng.uniform(self.worst, self.best, (n, len(self.worst)))

    def residuals(self, points: np.ndarray) -> np.ndarray:
        """Residuals (m, k) at points (m, q), unit scale.

        The sum of squares of a row is the mean squared relative error of all states after the
        start, which is given.
        """
        start, control, theta = self._repeat_for(points)
        states = self.sim.rollout(start, control, theta=theta)
        return self._weighted_gap(states, len(points))

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, k) at points (m, q), unit scale, and their Jacobian (m, k, q)."""
        m, q = points.shape
        start, control, theta = self._repeat_for(points)
        states, jacobian = self.sim.rollout_with_jacobian(
            start, control, theta, free=range(q), finite=False
        )
        weighted_jacobian = jacobian * self._weights[:, None]
        return self._weighted_gap(states, m), weighted_jacobian[:, 1:].reshape(m, -1, q)

    def _repeat_for(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start, control and theta of all trajectories at each of m points, (m T, ...)."""
        m = len(points)
        theta = from_unit(self.scene.params, points)
        return (
            np.tile(self.start, (m, 1)),
            np.tile(self.control, (m, 1, 1)),
            np.repeat(theta, len(self.start), 0),
        )

    def _weighted_gap(self, states: np.ndarray, m: int) -> np.ndarray:
        """Residuals (m, k) of states (m T, steps + 1, s) without the start."""
        gap = (states - np.tile(self._observed, (m, 1, 1))) * self._weights
        return gap[:, 1:].reshape(m, -1)


def _contact(stiffness: float, damping: float, friction: float) -> tuple[Param, ...]:
    """Parameters of a contact with these true values."""
    return (
        Param("stiffness", "pair/strike/solref[0]", stiffness, 1.0, 1e5, "1/s^2", "log", -1),
        Param("damping", "pair/strike/solref[1]", damping, 0.1, 1e3, "1/s", "log", -1),
        Param("friction", "pair/strike/friction[0:2]", friction, 0.02, 1.0),
    )


def _thrown_box() -> HardStart:
    scene = Scene(_BOX, "box", "floor", params=_contact(2e4, 80.0, 0.4), name="thrown-box")
    position = [0, 0, 0.3]
    quaternion = [1, 0, 0, 0]
    velocity = [1.5, 0, 0.5]
    angular_velocity = [0, 1.0, 0]
    return HardStart(
        scene,
        start=np.array([[*position, *quaternion, *velocity, *angular_velocity]], float),
        control=_no_control(96),
        worst=np.array([-1, -1, -0.9]),
        best=np.array([-0.4, -0.4, 0.9]),
        rounds=16,
    )


def _pendulum() -> HardStart:
    params = (
        Param("gravity", "option/gravity[2]", 9.81, 1.0, 40.0, "m/s^2", "log", -1),
        Param("upper_damping", "joint/upper/damping", 0.004, 0.0001, 0.2, "N m s", "log"),
        Param("lower_damping", "joint/lower/damping", 0.002, 0.0001, 0.2, "N m s", "log"),
    )
    scene = Scene(_PENDULUM, "bob", "floor", params=params, name="pendulum")
    return HardStart(
        scene,
        start=np.array([[1.9, 1.0, 0.0, 0.0]]),
        control=_no_control(192),
        worst=np.array([-1, -1, -1]),
        best=np.array([-0.3, 0.0, 0.0]),
    )


def _strike() -> HardStart:
    scene = Scene(_STRIKE, "ball", "wall", params=_contact(3e4, 30.0, 0.25), name="strike")
    start = np.array([[-0.1, 0, 0, -1.0, 0.6, 0]], float)
    return HardStart(
        scene,
        start=start,
        control=_no_control(256),
        worst=np.array([-1, -1, -0.9]),
        best=np.array([-0.2, 0.0, 0.9]),
    )


def _arm() -> HardStart:
    params = tuple(
        Param(f"{joint}_{what}", f"joint/{joint}/{what}", value, low, high, unit, "log")
        for joint, what, value, low, high, unit in (
            ("shoulder", "stiffness", 2.0, 0.1, 100.0, "N m/rad"),
            ("elbow", "stiffness", 1.0, 0.1, 100.0, "N m/rad"),
            ("shoulder", "damping", 0.05, 0.002, 1.0, "N m s"),
            ("elbow", "damping", 0.02, 0.002, 1.0, "N m s"),
        )
    )
    step = np.arange(192)
    shoulder_torque = 1.5 * np.sin(step * 0.05)  # N m
    elbow_torque = 0.6 * np.sin(step * 0.13)  # N m
    return HardStart(
        Scene(_ARM, "tip", "floor", params=params, name="arm"),
        start=np.array([[0.8, -0.6, 0.0, 0.0]]),
        control=np.stack([shoulder_torque, elbow_torque], 1)[None],
        worst=np.array([0.3, 0.3, -1.0, -1.0]),
        best=np.array([1.0, 1.0, 0.0, 0.0]),
    )


def _no_control(steps: int) -> np.ndarray:
    """Control (1, steps, 0) of one trajectory without actuators."""
    return np.zeros((1, steps, 0))


PROBLEMS: dict[str, Callable[[], HardStart]] = {
    "thrown-box": _thrown_box,
    "pendulum": _pendulum,
    "strike": _strike,
    "arm": _arm,
}
