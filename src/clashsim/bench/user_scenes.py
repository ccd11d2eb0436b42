"""Scenes as users bring them, and recordings of impacts in them made with plain MuJoCo.

Nothing in these files is written for clashsim: no settings, few names, any mechanism. A recording
is a simulation with hidden contact parameters from a random start, of which the motion just before
and just after the first contact is kept, with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.contact_pairs import free_from_mocap
from clashsim.core.mechanism import joints_to_world
from clashsim.core.mjcf_assets import parse_scene, scene_assets

# Puts bodies at a random start: (model, data, rng), where data is at the first keyframe.
Launch = Callable[[mujoco.MjModel, mujoco.MjData, np.random.Generator], None]

_TIMESTEP = 2e-4  # s
_DURATION = 0.6  # s, after which a simulation without an impact is left out
_OPTION = '<option timestep="0.0005" integrator="implicitfast" cone="elliptic"/>'
_PLANAR = (
    '<joint name="{0}x" type="slide" axis="1 0 0"/><joint name="{0}y" type="slide" axis="0 1 0"/>'
    '<joint name="{0}w" type="hinge" axis="0 0 1"/>'
)
_BLOCK = '<geom type="box" size=".06 .03 .02" mass=".2"/>'
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_FLOOR = '<geom name="floor" type="plane" size="2 2 .1"/>'


@dataclass(frozen=True, eq=False)
class UserScene:
    """A scene and how its recordings begin.

    Attributes:
        name: The scene's name.
        xml: MJCF or URDF. Scenes of the same text are pairs of one scene.
        struck: Body whose outcome is recorded.
        striker: Body that it collides with; None for what is fixed to the world.
        launch: Puts the bodies at a random start.
        planar: Whether motion in the x-y plane was recorded, as by a camera above; in space it is
            as by motion capture.
        arguments: Options of `clashsim calibrate` that the scene needs.
        suffix: Of the scene's file.
        assets: Files that the scene names.
        joints: Whether angles and velocities of the joints that carry the striker were recorded, as
            in a robot's log, and not its pose.
    """

    name: str
    xml: str
    struck: str
    striker: str | None
    launch: Launch
    planar: bool
    arguments: dict[str, str] = field(default_factory=dict)
    suffix: str = ".xml"
    assets: dict[str, bytes] = field(default_factory=dict)
    joints: bool = False


@dataclass(frozen=True, eq=False)
class RecordedMotion:
    """Motion of n impacts, world axes, without noise.

    Attributes:
        before: (n, 26), poses (position and quaternion) and twists of both bodies before.
        after: (n, 6), twist of the struck body after.
        striker_after: (n, 6), twist of the striker after.
        angles: (n,), rad or m, before, by the name of a joint that carries the striker.
        rates: (n,), rad/s or m/s, likewise.
    """

    before: np.ndarray
    after: np.ndarray
    striker_after: np.ndarray
    angles: dict[str, np.ndarray]
    rates: dict[str, np.ndarray]


def _mjcf(world: str, more: str = "", assets: str = "") -> str:
    return f"<mujoco>{_OPTION}{assets}<worldbody>{world}</worldbody>{more}</mujoco>"


def _free(name: str, geoms: str, pos: str = "0 0 1") -> str:
    return f'<body name="{name}" pos="{pos}"><freejoint/>{geoms}</body>'


def _on_plane(name: str, geoms: str, pos: str = "0 0 0") -> str:
    return f'<body name="{name}" pos="{pos}">{_PLANAR.format(name)}{geoms}</body>'


def _toss(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """A free body, the first, falls on the floor with any orientation and spin."""
    del model
    quaternion = rng.normal(size=4)
    data.qpos[:7] = [0, 0, 0.3, *(quaternion / np.linalg.norm(quaternion))]
    data.qvel[:3] = [*rng.uniform(-1, 1, 2), rng.uniform(-2, -0.3)]
    data.qvel[3:6] = rng.uniform(-8, 8, 3)


def _meet(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The striker, the second body, flies at the first one in space, both free."""
    del model
    for first in (0, 7):
        quaternion = rng.normal(size=4)
        data.qpos[first + 3 : first + 7] = quaternion / np.linalg.norm(quaternion)
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    data.qpos[:3] = [0, 0, 2]
    data.qpos[7:10] = data.qpos[:3] - 0.25 * direction + rng.uniform(-0.01, 0.01, 3)
    data.qvel[6:9] = rng.uniform(0.8, 2.5) * direction
    data.qvel[3:6] = rng.uniform(-3, 3, 3)


def _slide_into(
    radius: float, *, spin: float = 3.0, lateral: float = 0.02, striker: str | None = None
) -> Launch:
    """The striker, by default the last body, slides at the first body from a random side."""

    def launch(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
        angle = rng.uniform(-np.pi, np.pi)
        direction = np.array([np.cos(angle), np.sin(angle)])
        side = np.array([-direction[1], direction[0]])
        body = model.nbody - 1 if striker is None else int(model.body(striker).id)
        joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        start = data.xpos[1][:2] - radius * direction + rng.uniform(-lateral, lateral) * side
        velocity = rng.uniform(0.3, 1.2) * direction
        for i, joint in enumerate(list(joints)[:2]):
            data.qpos[model.jnt_qposadr[joint]] = start[i] - model.body_pos[body][i]
            data.qvel[model.jnt_dofadr[joint]] = velocity[i]
        if int(model.jnt_type[0]) != int(mujoco.mjtJoint.mjJNT_FREE) and model.nv > 4:
            data.qpos[2] = rng.uniform(-np.pi, np.pi)
            data.qvel[2] = rng.uniform(-spin, spin)
        _keep_speed(model, data)

    return launch


def _into_wall(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The first body, on planar joints, moves towards larger x."""
    del model
    data.qpos[2] = rng.uniform(-np.pi, np.pi)
    data.qvel[:3] = [rng.uniform(0.3, 2.0), rng.uniform(-1, 1), rng.uniform(-6, 6)]


def _swing(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """A ball on slides hits the middle of a door that stands open or moves."""
    data.qpos[0] = rng.uniform(-0.6, 0.6)
    data.qvel[0] = rng.uniform(-1, 1)
    mujoco.mj_kinematics(model, data)
    target = data.geom_xpos[0][:2] + rng.uniform(-0.06, 0.06) * data.geom_xmat[0][[0, 3]]
    angle = data.qpos[0] + rng.choice([-1, 1]) * np.pi / 2 + rng.uniform(-0.6, 0.6)
    direction = -np.array([np.cos(angle), np.sin(angle)])
    ball = model.nbody - 1
    data.qpos[-2:] = target - 0.12 * direction - model.body_pos[ball][:2]
    data.qvel[-2:] = rng.uniform(0.4, 1.5) * direction


def _at_outer_link(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """A ball on slides, the last body, hits the outer link of a chain that moves."""
    data.qpos[:2] = rng.uniform(-0.8, 0.8, 2)
    data.qvel[:2] = rng.uniform(-1, 1, 2)
    mujoco.mj_kinematics(model, data)
    axes = data.geom_xmat[1].reshape(3, 3)
    target = data.geom_xpos[1] + rng.uniform(-0.08, 0.08) * axes[:, 0]
    side = rng.choice([-1, 1]) * axes[:2, 1]
    angle = np.arctan2(side[1], side[0]) + rng.uniform(-0.6, 0.6)
    direction = np.array([np.cos(angle), np.sin(angle)])
    data.qpos[2:4] = target[:2] - 0.12 * direction - model.body_pos[model.nbody - 1][:2]
    data.qvel[2:4] = rng.uniform(0.4, 1.5) * direction


def _swing_paddle(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """A paddle, the second free body, is swung level at a block that stands on the floor."""
    del model
    yaw, angle = rng.uniform(-np.pi, np.pi, 2)
    data.qpos[3:7] = [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    direction = np.array([np.cos(angle), np.sin(angle), 0.0])
    side = np.array([-direction[1], direction[0], 0.0])
    data.qpos[7:10] = data.qpos[:3] - 0.12 * direction + rng.uniform(-0.02, 0.02) * side
    data.qpos[9] = 0.05
    facing = angle + rng.uniform(-0.3, 0.3)
    data.qpos[10:14] = [np.cos(facing / 2), 0, 0, np.sin(facing / 2)]
    data.qvel[6:9] = rng.uniform(0.3, 1.0) * direction
    data.qvel[9:12] = [0, 0, rng.uniform(-1, 1)]


def _arm_at_block(height: float, gap: float) -> Launch:
    """An arm's last link moves sideways at a block that is put in its way."""

    def launch(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
        arm = [joint for joint in range(model.njnt) if int(model.jnt_type[joint]) == 3]
        dofs = model.jnt_dofadr[arm]
        data.qpos[model.jnt_qposadr[arm]] += rng.uniform(-0.1, 0.1, len(arm))
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        link = int(model.jnt_bodyid[arm[-1]])
        tool = int(np.flatnonzero((model.geom_bodyid == link) & (model.geom_contype > 0))[-1])
        jacobian = np.zeros((6, model.nv))
        mujoco.mj_jac(model, data, jacobian[:3], jacobian[3:], data.geom_xpos[tool], link)
        angle = rng.uniform(-0.8, 0.8)
        direction = np.array([np.cos(angle), np.sin(angle), 0.0])
        wanted = np.concatenate([rng.uniform(0.3, 0.9) * direction, np.zeros(3)])
        data.qvel[dofs] = np.linalg.lstsq(jacobian[:, dofs], wanted, rcond=None)[0]
        block = data.geom_xpos[tool] + gap * direction
        block[:2] += rng.uniform(-0.03, 0.03) * np.array([-direction[1], direction[0]])
        yaw = rng.uniform(-np.pi, np.pi)
        first = int(model.jnt_qposadr[model.body_jntadr[model.body("block").id]])
        where = [*block[:2], height, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
        data.qpos[first : first + 7] = where
        _keep_speed(model, data)

    return launch


def _keep_speed(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Controls with which servos go on at the present speed."""
    mujoco.mj_forward(model, data)
    for actuator in range(model.nu):
        dof = int(model.jnt_dofadr[model.actuator_trnid[actuator, 0]])
        coordinate = int(model.jnt_qposadr[model.actuator_trnid[actuator, 0]])
        gain = float(model.actuator_gainprm[actuator, 0])
        _, stiffness, damping = model.actuator_biasprm[actuator, :3]
        wanted = float(data.qfrc_bias[dof] - data.qfrc_passive[dof])
        held = stiffness * data.qpos[coordinate] + damping * data.qvel[dof]
        data.ctrl[actuator] = (wanted - held) / gain


def user_scenes(models: Path | None = None) -> Iterator[UserScene]:
    """Make the scenes.

    Args:
        models: Folder with the model of a real arm; None leaves out the scenes with it.
    """
    box = '<geom type="box" size=".05 .03 .02" density="600"/>'
    toss = {
        "box tossed on a floor": box,
        "cylinder tossed": '<geom type="cylinder" size=".03 .04" density="700"/>',
        "rod tossed": '<geom type="capsule" size=".01 .06" density="1500"/>',
        "ellipsoid tossed": '<geom type="ellipsoid" size=".05 .03 .025" density="900"/>',
        "bracket of three boxes tossed": (
            '<geom type="box" size=".06 .02 .01" density="800"/>'
            '<geom type="box" size=".01 .02 .04" pos=".05 0 .05" density="800"/>'
            '<geom type="box" size=".01 .02 .04" pos="-.05 0 .05" density="800"/>'
        ),
        "hammer tossed": (
            '<geom type="capsule" size=".008 .1" density="700"/>'
            '<body pos="0 0 .1"><geom type="box" size=".02 .04 .02" density="3000"/></body>'
        ),
    }
    for name, geoms in toss.items():
        xml = _mjcf(_FLOOR + _free("object", geoms))
        yield UserScene(name, xml, "object", None, _toss, planar=False)
    vertices = "0 0 0  .09 0 0  0 .07 0  .02 .01 .08  .06 .05 .03"
    mesh = f'<asset><mesh name="rock" vertex="{vertices}"/></asset>'
    xml = _mjcf(
        _FLOOR + _free("rock", '<geom type="mesh" mesh="rock" density="900"/>'), assets=mesh
    )
    yield UserScene("mesh tossed", xml, "rock", None, _toss, planar=False)
    ball = '<geom type="sphere" size=".03" density="1500"/>'
    xml = _mjcf(_free("block", box) + _free("ball", ball, "1 0 1"))
    names = {"struck": "block", "striker": "ball"}
    yield UserScene("ball thrown at a block", xml, "block", "ball", _meet, False, names)
    yield from _planar_scenes()
    if models is not None:
        for path in sorted(models.rglob("iiwa14.xml")):
            yield _iiwa_scene(path)


def _planar_scenes() -> Iterator[UserScene]:
    """Scenes in which a camera above has recorded motion in a plane."""
    wall = '<geom name="wall" type="box" pos=".2 0 0" size=".02 2 .1"/>'
    disc = '<geom type="cylinder" size=".04 .01" mass=".1"/>'
    xml = _mjcf(_on_plane("puck", disc) + wall)
    yield UserScene("puck against a wall", xml, "puck", None, _into_wall, planar=True)
    plate = '<geom type="box" size=".06 .03 .02" mass=".2"/>'
    xml = _mjcf(_on_plane("plate", plate) + wall)
    yield UserScene("plate against a wall", xml, "plate", None, _into_wall, planar=True)
    tee = plate + '<geom type="box" size=".02 .05 .02" pos=".06 0 0" mass=".1"/>'
    pusher = (
        '<body name="pusher" pos="-1 0 {z}"><joint name="px" type="slide" axis="1 0 0"/>'
        '<joint name="py" type="slide" axis="0 1 0"/>{geom}</body>'
    )
    tip = pusher.format(z=0, geom='<geom type="sphere" size=".015" mass=".5"/>')
    servos = '<actuator><velocity joint="px" kv="60"/><velocity joint="py" kv="60"/></actuator>'
    launch = _slide_into(0.16)
    xml = _mjcf(_on_plane("tee", tee) + tip, servos)
    yield UserScene("tee struck by a pusher", xml, "tee", "pusher", launch, planar=True)
    xml = _mjcf(_on_plane("plate", plate) + tip)
    names = {"struck": "plate", "striker": "pusher"}
    yield UserScene("plate struck by a loose ball", xml, "plate", "pusher", launch, True, names)
    block = '<body name="block" pos="0 0 .03"><freejoint/>{}</body>'.format(
        '<geom type="box" size=".05 .04 .03" mass=".4"/>'
    )
    rod = pusher.format(z=0.03, geom='<geom type="cylinder" size=".01 .03" mass=".8"/>')
    xml = _mjcf(_FLOOR + block + rod, servos)
    yield UserScene("block on a table", xml, "block", "pusher", launch, planar=True)
    table = _FLOOR.replace('type="plane" size="2 2 .1"', 'type="box" size=".4 .3 .2" pos="0 0 -.2"')
    xml = _mjcf(table + block + rod, servos)
    name = "block on a table, tracked in space"
    yield UserScene(name, xml, "block", "pusher", launch, planar=False)
    higher = pusher.format(z=0.045, geom='<geom type="sphere" size=".012" mass=".8"/>')
    xml = _mjcf(_FLOOR + block + higher, servos)
    yield UserScene("block struck above its centre", xml, "block", "pusher", launch, True)
    other = _on_plane("target", disc.replace(".04", ".05"), ".3 0 0")
    xml = _mjcf(other + _on_plane("cue", disc, "-.3 0 0"))
    names = {"struck": "target", "striker": "cue"}
    launch = _slide_into(0.16, lateral=0.06)
    yield UserScene("puck against puck", xml, "target", "cue", launch, True, names)
    door = (
        '<body name="door"><joint type="hinge" axis="0 0 1"/>'
        '<geom type="box" size=".15 .01 .1" pos=".15 0 0" mass="1"/></body>'
    )
    ball = pusher.format(z=0, geom='<geom type="sphere" size=".02" mass=".3"/>')
    names = {"struck": "door", "striker": "pusher"}
    yield UserScene("ball at a door", _mjcf(door + ball), "door", "pusher", _swing, True, names)
    yield UserScene(
        "URDF sled against a wall", _URDF, "sled", None, _into_wall, planar=True, suffix=".urdf"
    )
    yield from _arm_scenes()
    yield from _chain_and_paddle()
    yield from scene_of_three_pairs()


def _chain_and_paddle() -> Iterator[UserScene]:
    """A chain of two links that a ball hits, and a block that a paddle in a hand hits."""
    link = '<geom type="box" size=".1 .015 .04" pos=".1 0 0" mass=".{0}"/>'
    chain = (
        '<body name="inner"><joint axis="0 0 1" damping=".002"/>' + link.format(4) + "{0}"
        '<body name="outer" pos=".2 0 0"><joint axis="0 0 1" damping=".002"/>'
        + link.format(2)
        + "</body></body>"
    ).format("")
    ball = (
        '<body name="ball" pos="-1 0 0"><joint name="bx" type="slide" axis="1 0 0"/>'
        '<joint name="by" type="slide" axis="0 1 0"/><geom type="sphere" size=".02" mass=".2"/>'
        "</body>"
    )
    exclude = '<contact><exclude body1="inner" body2="outer"/></contact>'
    names = {"struck": "outer", "striker": "ball"}
    xml = _mjcf(chain + ball, exclude)
    yield UserScene(
        "ball at a chain of two links", xml, "outer", "ball", _at_outer_link, True, names
    )
    block = '<body name="block" pos="0 0 .03"><freejoint/>{}</body>'.format(
        '<geom type="box" size=".05 .04 .03" mass=".4"/>'
    )
    paddle = (
        '<body name="paddle" mocap="true" pos="-.3 0 .04">'
        '<geom name="face" type="box" size=".01 .06 .04"/></body>'
    )
    xml = _mjcf(_FLOOR + block + paddle)
    yield UserScene(
        "paddle in a hand strikes a block", xml, "block", "paddle", _swing_paddle, False
    )


def scene_of_three_pairs(geom: str = _BLOCK) -> Iterator[UserScene]:
    """Make a block that a ball strikes, and that hits a wall and another block: a scene per pair.

    Args:
        geom: MJCF of the geom of both blocks.
    """
    ball = (
        '<body name="ball" pos="-1 0 0"><joint name="bx" type="slide" axis="1 0 0"/>'
        '<joint name="by" type="slide" axis="0 1 0"/><geom type="sphere" size=".015" mass=".15"/>'
        "</body>"
    )
    wall = '<geom name="wall" type="box" pos=".25 0 0" size=".02 2 .1"/>'
    xml = _mjcf(_on_plane("block", geom) + _on_plane("brick", geom, "-.6 .6 0") + ball + wall)
    launches = {
        "ball": _slide_into(0.16, lateral=0.04),
        "wall": _into_wall,
        "brick": _slide_into(0.2, lateral=0.03, striker="brick"),
    }
    for striker, launch in launches.items():
        names = {"struck": "block", "striker": striker}
        body = None if striker == "wall" else striker
        name = f"block among others: {striker}"
        yield UserScene(name, xml, "block", body, launch, planar=True, arguments=names)


_INERTIAL = (
    '<inertial><mass value="{0}"/><inertia ixx="{1}" iyy="{1}" izz="{1}" ixy="0" ixz="0" iyz="0"/>'
    "</inertial>"
)
_URDF = f"""<robot name="sled"><mujoco><compiler discardvisual="true"/>
<option timestep="0.0005" integrator="implicitfast" cone="elliptic"/></mujoco>
<link name="world"/>
<link name="wall"><collision><geometry><box size=".04 4 .2"/></geometry></collision></link>
<joint name="to_wall" type="fixed"><parent link="world"/><child link="wall"/>
<origin xyz=".2 0 0"/></joint>
<link name="along">{_INERTIAL.format(1e-3, 1e-7)}</link>
<link name="across">{_INERTIAL.format(1e-3, 1e-7)}</link>
<link name="sled">{_INERTIAL.format(0.3, 3e-4)}
<collision><geometry><box size=".12 .06 .04"/></geometry></collision></link>
<joint name="sx" type="prismatic"><parent link="world"/><child link="along"/><axis xyz="1 0 0"/>
<limit lower="-9" upper="9" effort="1" velocity="9"/></joint>
<joint name="sy" type="prismatic"><parent link="along"/><child link="across"/><axis xyz="0 1 0"/>
<limit lower="-9" upper="9" effort="1" velocity="9"/></joint>
<joint name="sw" type="continuous"><parent link="across"/><child link="sled"/><axis xyz="0 0 1"/>
</joint></robot>"""


def _arm_scenes() -> Iterator[UserScene]:
    """A six-joint arm with a rod as its tool, and a block on a table."""
    arm = '<geom type="capsule" size=".012" fromto="0 0 .02 0 0 .1" mass=".2"/>'
    links = [("0 0 1", 0.15), ("0 1 0", 0.1), ("0 1 0", 0.25), ("0 0 1", 0.1), ("0 1 0", 0.15)]
    links.append(("0 0 1", 0.06))
    for i, (axis, offset) in reversed(list(enumerate(links))):
        link = f'<geom type="capsule" size=".03" fromto="0 0 0 0 0 {0.6 * offset:.3f}" mass="1"/>'
        arm = (
            f'<body name="link{i}" pos="0 0 {offset}"><joint name="a{i}" axis="{axis}" '
            f'damping="1" armature=".05"/>{link if i < 5 else ""}{arm}</body>'
        )
    servos = "".join(f'<position joint="a{i}" kp="600" kv="40"/>' for i in range(6))
    block = (
        '<geom name="table" type="box" pos=".6 0 .115" size=".35 .4 .015"/>'
        '<body name="block" pos=".5 0 .16"><freejoint/>'
        '<geom type="box" size=".04 .04 .03" mass=".3"/></body>'
    )
    world = f'{block}<body name="base" pos="0 0 .05">{arm}</body>'
    pose = "0.5 0 0.16 1 0 0 0  0 0.9 1.3 0 0.94 0"
    key = f'<keyframe><key qpos="{pose}"/></keyframe>'
    xml = _mjcf(world, f"<actuator>{servos}</actuator>{key}")
    launch = _arm_at_block(0.16, 0.085)
    names = ("arm strikes a block", "arm strikes a block, seen from above")
    yield UserScene(names[0], xml, "block", "link5", launch, planar=False, joints=True)
    yield UserScene(names[1], xml, "block", "link5", launch, planar=True)


def _iiwa_scene(path: Path) -> UserScene:
    """The real arm, whose last link strikes a block on a pedestal."""
    block = (
        '<geom name="pedestal" type="box" pos=".9 0 .35" size=".25 .5 .05"/>'
        '<body name="block" pos=".9 0 .44"><freejoint/>'
        '<geom type="box" size=".05 .05 .04" mass=".6"/></body></worldbody>'
    )
    xml = path.read_text().replace("</worldbody>", block)
    xml = xml.replace('<option integrator="implicitfast"/>', _OPTION.replace("0.0005", "0.001"))
    launch = _arm_at_block(0.44, 0.14)
    assets = scene_assets(path, xml)
    return UserScene(
        "iiwa14 strikes a block",
        xml,
        "block",
        "link7",
        launch,
        planar=False,
        assets=assets,
        joints=True,
    )


def hidden_model(scene: UserScene, rng: np.random.Generator) -> mujoco.MjModel:
    """The scene as it really is: other friction, stiffness and damping than its author's.

    Args:
        scene: The scene.
        rng: Draws the parameters.
    """
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    friction = rng.uniform(0.1, 0.6)
    stiffness = 10 ** rng.uniform(4.5, 5.5)
    damping = 10 ** rng.uniform(1.5, 2.7)
    spec.option.timestep = _TIMESTEP
    # A body that motion capture moves goes on whatever it hits.
    free_from_mocap(spec, [geom.name for geom in spec.geoms if geom.name])
    model = spec.compile()
    model.geom_friction[:, 0] = friction
    model.geom_solref[:] = [-stiffness, -damping]
    return model


def record(
    scene: UserScene, model: mujoco.MjModel, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Record the first impact of n simulations.

    Args:
        scene: The scene.
        model: As `hidden_model` makes it.
        n: How many impacts.
        rng: Draws starts and noise.

    Returns:
        Poses (position and quaternion) and twists of both bodies before, (n, 26), and the struck
        body's twist after, (n, 6), world axes, without noise.
    """
    motion = record_motion(scene, model, n, rng)
    return motion.before, motion.after


def record_motion(
    scene: UserScene, model: mujoco.MjModel, n: int, rng: np.random.Generator
) -> RecordedMotion:
    """`record`, with the striker's outcome and the joints that carry it."""
    found: list[tuple[np.ndarray, ...]] = []
    for _ in range(20 * n):
        impact = _one_impact(scene, model, rng)
        if impact is not None:
            found.append(impact)
        if len(found) == n:
            break
    before, after, striker_after, qpos, qvel = (
        np.array(column) for column in zip(*found, strict=True)
    )
    angles, rates = {}, {}
    if scene.striker is not None:
        for joint in joints_to_world(model, int(model.body(scene.striker).id)):
            if int(model.jnt_type[joint]) in _SCALAR:
                name = str(model.joint(joint).name)
                angles[name] = qpos[:, model.jnt_qposadr[joint]]
                rates[name] = qvel[:, model.jnt_dofadr[joint]]
    return RecordedMotion(before, after, striker_after, angles, rates)


def _one_impact(
    scene: UserScene, model: mujoco.MjModel, rng: np.random.Generator
) -> tuple[np.ndarray, ...] | None:
    """Motion of both bodies before the first contact of one simulation, and each one's after.

    Then coordinates and velocities of all joints before.
    """
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_kinematics(model, data)
    scene.launch(model, data, rng)
    struck = model.body(scene.struck).id
    striker = 0 if scene.striker is None else model.body(scene.striker).id
    rates = _setpoint_rates(model, data)
    state = last = np.zeros(0)
    joints = last_joints = (np.zeros(0), np.zeros(0))
    apart = 0
    for step in range(round(_DURATION / model.opt.timestep)):
        mujoco.mj_step1(model, data)
        touching = _touching(model, data, struck, striker, scene.planar)
        if step == 0 and touching:
            return None
        if len(state) == 0 and touching:
            state, joints = last, last_joints
        if len(state):
            apart = 0 if touching else apart + 1
            if apart == 3:
                after = _motion(model, data, struck)[7:]
                return state, after, _motion(model, data, striker)[7:], *joints
        last_joints = data.qpos.copy(), data.qvel.copy()
        last = np.concatenate([_motion(model, data, struck), _motion(model, data, striker)])
        data.ctrl[:] += rates * model.opt.timestep
        mujoco.mj_step2(model, data)
    return None


def _setpoint_rates(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Rates (nu,) at which setpoints of position servos move on."""
    rates = np.zeros(model.nu)
    for actuator in range(model.nu):
        if model.actuator_biasprm[actuator, 1] != 0:
            joint = int(model.actuator_trnid[actuator, 0])
            rates[actuator] = data.qvel[model.jnt_dofadr[joint]]
    return rates


def _motion(model: mujoco.MjModel, data: mujoco.MjData, body: int) -> np.ndarray:
    """Position, quaternion and twist (13,) of a body's origin, world axes."""
    if body == 0:
        return np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], body)
    return np.concatenate([data.xpos[body], data.xquat[body], jacobian @ data.qvel])


def _touching(
    model: mujoco.MjModel, data: mujoco.MjData, struck: int, striker: int, planar: bool
) -> bool:
    """Whether the two bodies touch; the floor under a planar scene does not count."""
    for contact in data.contact:
        bodies = {int(model.body_weldid[model.geom_bodyid[geom]]) for geom in contact.geom}
        is_floor = planar and abs(contact.frame[2]) > 0.9
        if bodies == {int(model.body_weldid[struck]), striker} and not is_floor:
            return True
    return False
