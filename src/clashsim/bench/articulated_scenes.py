"""Objects with joints as users bring them, and recordings of their motion made with plain MuJoCo.

The scene that is given to clashsim has wrong values. The recording is a simulation with hidden true
values, a smaller time step and, for some objects, friction that MJCF does not have; sensors are
noisy, lose frames and do not see all bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.params import locate_param
from clashsim.core.scene_model import model_field
from clashsim.core.trials import Trial, Trials

# The first configuration and velocity: written to data, which is at the reference.
Launch = Callable[[mujoco.MjModel, mujoco.MjData, np.random.Generator], None]
# Controls (nu,) at a time (s), drawn once for each trial.
Drive = Callable[[np.random.Generator], Callable[[float], np.ndarray]]

_TRUE_TIMESTEP = 2.5e-4  # s, of the recorded simulation
_POSITION_NOISE = 5e-4  # m
_ROTATION_NOISE = 2e-3  # rad
_ENCODER_NOISE = 1e-3  # rad
_SLIDE_NOISE = 2e-4  # m
_LOST = 0.05  # share of the frames in which a body is not seen
_OPTION = '<option timestep="0.002" integrator="implicitfast" cone="elliptic"/>'


@dataclass(frozen=True)
class StribeckFriction:
    """Friction of a joint that is larger at low speed, which MJCF lacks.

    Attributes:
        joint: Name of the joint.
        force: Largest additional friction, N or N m.
        speed: Speed over which it vanishes, m/s or rad/s.
    """

    joint: str
    force: float
    speed: float


@dataclass(frozen=True, eq=False)
class ArticulatedScene:
    """An object, what its file gets wrong, and how it is recorded.

    Attributes:
        name: Name of the object.
        xml: MJCF as its author wrote it.
        truth: True values by target (as in `Param`) where the file is wrong.
        launch: Puts the object at a random start.
        bodies: Names of the bodies whose poses are recorded.
        joints: Names of the joints whose coordinates are recorded.
        drive: Makes the controls of a trial, which are recorded; None without actuators.
        stribeck: Friction that the file cannot have.
        rate: Frames per second.
        seconds: Duration of a trial.
        params: What to identify, as --params; empty for the default.
    """

    name: str
    xml: str
    truth: Mapping[str, float]
    launch: Launch
    bodies: tuple[str, ...] = ()
    joints: tuple[str, ...] = ()
    drive: Drive | None = None
    stribeck: tuple[StribeckFriction, ...] = ()
    rate: float = 120.0
    seconds: float = 1.5
    params: tuple[str, ...] = ()


def true_model(scene: ArticulatedScene) -> mujoco.MjModel:
    """The model that is recorded.

    Args:
        scene: The object.
    """
    model = mujoco.MjModel.from_xml_string(scene.xml)
    for target, value in scene.truth.items():
        slot = locate_param(model, target)
        for part in slot.parts:
            part.write(model_field(model, part.field), value)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    model.opt.timestep = _TRUE_TIMESTEP
    return model


def record_trials(scene: ArticulatedScene, count: int, seed: int) -> Trials:
    """Record trials of an object.

    Args:
        scene: The object.
        count: Number of trials.
        seed: Seed of starts, controls and noise.
    """
    model = true_model(scene)
    rng = np.random.default_rng(seed)
    return Trials(tuple(_record(scene, model, f"trial{i:02d}", rng) for i in range(count)))


def _record(
    scene: ArticulatedScene, model: mujoco.MjModel, name: str, rng: np.random.Generator
) -> Trial:
    """One trial."""
    data = mujoco.MjData(model)
    scene.launch(model, data, rng)
    mujoco.mj_forward(model, data)
    controls = None if scene.drive is None else scene.drive(rng)
    frames = round(scene.seconds * scene.rate)
    times = np.arange(frames) / scene.rate
    poses = {body: np.full((frames, 7), np.nan) for body in scene.bodies}
    signals = {joint: np.full(frames, np.nan) for joint in scene.joints}
    commands = np.zeros((frames, model.nu))
    for frame, time in enumerate(times):
        if controls is not None:
            commands[frame] = controls(time)
            data.ctrl[:] = commands[frame]
        while data.time < time - model.opt.timestep / 2:
            _step(scene, model, data)
        for body, values in poses.items():
            values[frame] = _seen_pose(data, body, rng)
        for joint, angles in signals.items():
            hinge = int(model.joint(joint).type[0]) == int(mujoco.mjtJoint.mjJNT_HINGE)
            noise = _ENCODER_NOISE if hinge else _SLIDE_NOISE
            angles[frame] = float(data.joint(joint).qpos[0]) + noise * rng.normal()
    for values in poses.values():
        values[1:][rng.random(frames - 1) < _LOST] = np.nan
    for i in range(model.nu):
        signals[model.actuator(i).name] = commands[:, i]
    return Trial(name, times, poses, "simulated", signals)


def _step(scene: ArticulatedScene, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """One time step of the recorded simulation, with the friction that MJCF lacks."""
    data.qfrc_applied[:] = 0
    for friction in scene.stribeck:
        dof = int(model.joint(friction.joint).dofadr[0])
        speed = float(data.qvel[dof]) / friction.speed
        data.qfrc_applied[dof] = -friction.force * np.tanh(5 * speed) * np.exp(-(speed**2))
    mujoco.mj_step(model, data)


def _seen_pose(data: mujoco.MjData, body: str, rng: np.random.Generator) -> np.ndarray:
    """A noisy pose (7,)."""
    rotation = _ROTATION_NOISE * rng.normal(size=3)
    quaternion = np.array(data.body(body).xquat)
    mujoco.mju_quatIntegrate(quaternion, rotation, 1.0)
    return np.concatenate([data.body(body).xpos + _POSITION_NOISE * rng.normal(size=3), quaternion])


def _between(
    positions: Mapping[str, tuple[float, float]], velocities: Mapping[str, tuple[float, float]]
) -> Launch:
    """Joints at random coordinates and velocities."""

    def launch(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
        del model
        for joint, limits in positions.items():
            data.joint(joint).qpos[0] = rng.uniform(*limits)
        for joint, limits in velocities.items():
            data.joint(joint).qvel[0] = rng.uniform(*limits)

    return launch


def _waves(*amplitudes: float) -> Drive:
    """Sums of three random waves for each actuator, of given amplitudes."""

    def drive(rng: np.random.Generator) -> Callable[[float], np.ndarray]:
        shape = (len(amplitudes), 3)
        rates, phases = rng.uniform(2, 12, shape), rng.uniform(0, 2 * np.pi, shape)
        weights = np.array(amplitudes)[:, None] * rng.uniform(0.2, 0.6, shape)

        def controls(time: float) -> np.ndarray:
            return (weights * np.sin(rates * time + phases)).sum(axis=1)

        return controls

    return drive


def _ball(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """A spherical pendulum swings and spins."""
    del model
    tilt = np.array([*rng.uniform(-1.0, 1.0, 2), rng.uniform(-2, 2)])
    mujoco.mju_quatIntegrate(data.qpos, tilt, 1.0)
    data.qvel[:] = [*rng.uniform(-2, 2, 2), rng.uniform(-6, 6)]


def _tossed_chain(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The chain falls to the floor, spinning."""
    del model
    quaternion = rng.normal(size=4)
    data.qpos[:7] = [0, 0, 0.35, *(quaternion / np.linalg.norm(quaternion))]
    data.qpos[7:] = rng.uniform(-0.6, 0.6, 2)
    data.qvel[:] = [*rng.uniform(-0.5, 0.5, 3), *rng.uniform(-4, 4, 3), *rng.uniform(-3, 3, 2)]


def _linkage(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The crank of the linkage spins; the other joints follow."""
    data.qvel[0] = rng.choice([-1, 1]) * rng.uniform(6, 14)
    for _ in range(400):  # the loop closes before the recording begins
        mujoco.mj_step(model, data)
    data.time = 0


_DOOR = f"""<mujoco model="door">{_OPTION}<worldbody>
<body name="frame" pos="0 0 .5"><geom type="box" size=".02 .02 .4" pos="-.03 0 0"/>
 <body name="door">
  <joint name="door_hinge" axis="0 0 1" range="0 110" damping=".02" stiffness=".3" springref="-20"/>
  <geom type="box" size=".2 .01 .35" pos=".2 0 0" mass="3" contype="0" conaffinity="0"/>
 </body></body></worldbody></mujoco>"""
_DRAWER = f"""<mujoco model="drawer">{_OPTION}<worldbody>
<body name="drawer" pos="0 0 .4"><joint name="slide" type="slide" axis="1 0 0" damping="1"
  frictionloss=".5" range="0 .45"/>
 <geom type="box" size=".25 .2 .08" mass="2.5" contype="0" conaffinity="0"/></body>
</worldbody></mujoco>"""
_CART = f"""<mujoco model="cartpole">{_OPTION}<worldbody>
<body name="cart" pos="0 0 .5"><joint name="rail" type="slide" axis="1 0 0" damping=".5"/>
 <geom type="box" size=".1 .06 .04" mass="1" contype="0" conaffinity="0"/>
 <body name="pole"><joint name="pivot" axis="0 1 0" damping=".001"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".012" mass=".2" contype="0" conaffinity="0"/>
 </body></body></worldbody><actuator><motor name="push" joint="rail"/></actuator></mujoco>"""
_ARM = f"""<mujoco model="arm">{_OPTION}<default><geom contype="0" conaffinity="0"/></default>
<worldbody><body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" damping=".02"/>
 <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".025" mass="1.0"/>
 <body name="fore" pos="0 0 -.3"><joint name="elbow" axis="0 1 0" damping=".02"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.25" size=".02" mass=".5"/></body></body></worldbody>
<actuator><motor name="tau1" joint="shoulder"/><motor name="tau2" joint="elbow"/></actuator>
</mujoco>"""
_LINKAGE = f"""<mujoco model="fourbar">{_OPTION}<default>
<geom contype="0" conaffinity="0" type="capsule" size=".01"/></default><worldbody>
<body name="crank"><joint name="crank" axis="0 1 0" damping=".002"/>
 <geom fromto="0 0 0 0 0 .1" mass=".15"/>
 <body name="coupler" pos="0 0 .1"><joint name="pin" axis="0 1 0"/>
  <geom fromto="0 0 0 .3 0 0" mass=".2"/></body></body>
<body name="rocker" pos=".3 0 -.1"><joint name="rocker" axis="0 1 0" damping=".002"/>
 <geom fromto="0 0 0 0 0 .2" mass=".2"/></body></worldbody>
<equality><connect body1="coupler" body2="rocker" anchor=".3 0 0"/></equality></mujoco>"""
_LID = f"""<mujoco model="lid">{_OPTION}<worldbody>
<geom name="box" type="box" size=".15 .12 .05" pos="0 0 .05"/>
<body name="lid" pos="-.15 0 .115"><joint name="lid_hinge" axis="0 -1 0" damping=".01"/>
 <geom name="lid" type="box" size=".15 .12 .008" pos=".15 0 0" mass=".6"/></body>
</worldbody></mujoco>"""
_BALL = f"""<mujoco model="spherical">{_OPTION}
<default><geom contype="0" conaffinity="0"/></default>
<worldbody><body name="bob" pos="0 0 1"><joint name="ball" type="ball" damping=".001"/>
 <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".008" mass=".05"/>
 <geom type="box" size=".05 .03 .02" pos="0 0 -.32" mass=".4"/></body></worldbody></mujoco>"""
_CHAIN = f"""<mujoco model="chain">{_OPTION}
<worldbody><geom name="floor" type="plane" size="2 2 .1"/>
<body name="first" pos="0 0 .3"><freejoint/><geom name="g1" type="capsule" fromto="0 0 0 .12 0 0"
 size=".02" mass=".2"/>
 <body name="second" pos=".14 0 0"><joint name="j1" axis="0 1 0" damping=".002"/>
  <geom name="g2" type="capsule" fromto="0 0 0 .12 0 0" size=".02" mass=".2"/>
  <body name="third" pos=".14 0 0"><joint name="j2" axis="0 1 0" damping=".002"/>
   <geom name="g3" type="capsule" fromto="0 0 0 .12 0 0" size=".02" mass=".2"/></body></body></body>
</worldbody></mujoco>"""
_PUSHER = f"""<mujoco model="pusher">{_OPTION}<worldbody>
<geom name="floor" type="plane" size="2 2 .1"/>
<body name="arm" pos="0 0 .04"><joint name="swing" axis="0 0 1" damping=".1"/>
 <geom name="arm" type="capsule" fromto="0 0 0 .4 0 0" size=".02" mass=".8"/></body>
<body name="block" pos=".3 .16 .04"><freejoint/>
 <geom name="block" type="box" size=".05 .05 .04" mass=".5"/></body></worldbody>
<actuator><position name="servo" joint="swing" kp="20" kv="1"/></actuator></mujoco>"""
_TENDON = f"""<mujoco model="tendon">{_OPTION}<default><geom contype="0" conaffinity="0"/></default>
<worldbody><body name="left" pos="-.2 0 1"><joint name="left" axis="0 1 0" damping=".005"/>
 <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".4"/></body>
<body name="right" pos=".2 0 1"><joint name="right" axis="0 1 0" damping=".005"/>
 <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".4"/></body></worldbody>
<tendon><fixed name="spring" stiffness=".5" damping=".001"><joint joint="left" coef="1"/>
 <joint joint="right" coef="-1"/></fixed></tendon></mujoco>"""


def _swing_to(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The block lies still before the arm."""
    angle = rng.uniform(-0.4, 0.4)
    data.joint("swing").qpos[0] = rng.uniform(-0.1, 0.05)
    block = int(model.joint(1).qposadr[0])
    data.qpos[block + 3 : block + 7] = [np.cos(angle / 2), 0, 0, np.sin(angle / 2)]
    data.qpos[block : block + 2] += rng.uniform(-0.03, 0.03, 2)
    data.qpos[block + 2] = 0.04


def _sweep(rng: np.random.Generator) -> Callable[[float], np.ndarray]:
    """The arm is commanded to sweep."""
    reach, rate = rng.uniform(0.8, 1.4), rng.uniform(1.5, 3.0)
    return lambda time: np.array([reach * (1 - np.cos(rate * time)) / 2])


SCENES: tuple[ArticulatedScene, ...] = (
    ArticulatedScene(
        "door with a closer",
        _DOOR,
        {
            "joint/door_hinge/damping": 0.12,
            "joint/door_hinge/stiffness": 0.8,
            "joint/door_hinge/frictionloss": 0.05,
        },
        _between({"door_hinge": (0.5, 1.6)}, {"door_hinge": (-1.0, 1.5)}),
        joints=("door_hinge",),
        rate=100.0,
        seconds=2.5,
    ),
    ArticulatedScene(
        "drawer",
        _DRAWER,
        {"joint/slide/damping": 2.5, "joint/slide/frictionloss": 1.6},
        _between({"slide": (0.02, 0.1)}, {"slide": (0.3, 0.9)}),
        bodies=("drawer",),
        stribeck=(StribeckFriction("slide", 0.5, 0.05),),
        seconds=1.0,
    ),
    ArticulatedScene(
        "cart-pole",
        _CART,
        {
            "joint/rail/damping": 2.0,
            "joint/rail/frictionloss": 0.3,
            "body/cart/mass": 1.25,
            "body/pole/mass": 0.26,
            "joint/pivot/damping": 0.003,
        },
        _between({"pivot": (-1.5, 1.5)}, {"pivot": (-2, 2), "rail": (-0.3, 0.3)}),
        joints=("rail", "pivot"),
        drive=_waves(8.0),
        rate=200.0,
    ),
    ArticulatedScene(
        "arm with motors",
        _ARM,
        {
            "body/upper/mass": 1.2,
            "body/fore/mass": 0.65,
            "joint/shoulder/damping": 0.08,
            "joint/elbow/damping": 0.03,
            "joint/shoulder/frictionloss": 0.1,
        },
        _between({"shoulder": (-1.2, 1.2), "elbow": (-1, 1)}, {}),
        joints=("shoulder", "elbow"),
        drive=_waves(3.0, 1.0),
        rate=240.0,
    ),
    ArticulatedScene(
        "four-bar linkage",
        _LINKAGE,
        {
            "joint/crank/damping": 0.006,
            "joint/rocker/frictionloss": 0.01,
            "body/coupler/mass": 0.27,
        },
        _linkage,
        joints=("crank",),
        rate=200.0,
    ),
    ArticulatedScene(
        "lid",
        _LID,
        {
            "joint/lid_hinge/damping": 0.05,
            "joint/lid_hinge/frictionloss": 0.08,
            "geom/lid/solref[1]": 0.35,
            "geom/box/solref[1]": 0.35,
        },
        _between({"lid_hinge": (0.5, 1.4)}, {"lid_hinge": (-1.0, 1.0)}),
        bodies=("lid",),
        seconds=1.0,
    ),
    ArticulatedScene(
        "spherical pendulum",
        _BALL,
        {"joint/ball/damping": 0.004, "body/bob/ipos[2]": -0.27},
        _ball,
        bodies=("bob",),
        seconds=2.0,
    ),
    ArticulatedScene(
        "chain on a floor",
        _CHAIN,
        {
            "joint/j1/damping": 0.008,
            "joint/j2/damping": 0.008,
            "body/third/mass": 0.28,
            **{f"geom/{geom}/friction[0]": 0.35 for geom in ("floor", "g1", "g2", "g3")},
        },
        _tossed_chain,
        bodies=("first", "third"),
        seconds=0.8,
    ),
    ArticulatedScene(
        "block pushed by an arm",
        _PUSHER,
        {
            "joint/swing/damping": 0.4,
            "actuator/servo/kp": 14.0,
            **{f"geom/{geom}/friction[0]": 0.4 for geom in ("floor", "block")},
            "geom/arm/friction[0]": 0.4,
        },
        _swing_to,
        bodies=("block",),
        joints=("swing",),
        drive=_sweep,
        rate=60.0,
    ),
    ArticulatedScene(
        "two levers on a spring",
        _TENDON,
        {
            "tendon/spring/stiffness": 1.1,
            "joint/left/damping": 0.012,
            "joint/right/frictionloss": 0.02,
        },
        _between({"left": (-1, 1), "right": (-1, 1)}, {"left": (-2, 2), "right": (-2, 2)}),
        joints=("left", "right"),
        rate=100.0,
        seconds=2.0,
    ),
)
