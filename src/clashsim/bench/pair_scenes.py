"""Pairs of many shapes, masses and mechanisms, on which base models are tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clashsim.core.mjcf_assets import scene_assets
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import StrikeDistribution

_STRIKES = StrikeDistribution(speed=(0.3, 3.0), deflection=(-1.2, 1.2), spin=(0.0, 20.0))
_OPTIONS = '<option timestep="0.0002" integrator="implicitfast" cone="elliptic"/>'
_WEDGE = "-3 -2 -1  3 -2 -1  3 2 -1  -3 2 -1  -3 -2 2  -3 2 2"
_TETRAHEDRON = "1 1 1  1 -1 -1  -1 1 -1  -1 -1 1"
# Geoms that are dropped on a floor, in space.
_DROPPED = {
    "box-1": 'type="box" size=".03 .03 .03"',
    "box-3": 'type="box" size=".06 .03 .02"',
    "box-6": 'type="box" size=".09 .04 .015"',
    "cylinder": 'type="cylinder" size=".03 .04"',
    "capsule": 'type="capsule" size=".02 .04"',
    "ellipsoid": 'type="ellipsoid" size=".05 .03 .02"',
    "sphere": 'type="sphere" size=".03"',
    "tetrahedron": 'type="mesh" mesh="tetrahedron"',
    "wedge": 'type="mesh" mesh="wedge"',
    "hull": 'type="mesh" mesh="hull"',
}
# Free pairs in space: the struck geom, and the striker's.
_FREE_PAIRS = {
    "ball on box": ('type="box" size=".06 .03 .02"', 'type="sphere" size=".02"'),
    "ball on hull": ('type="mesh" mesh="hull"', 'type="sphere" size=".02"'),
    "ball on capsule": ('type="capsule" size=".02 .04"', 'type="sphere" size=".03"'),
    "box on box": ('type="box" size=".06 .03 .02"', 'type="box" size=".03 .03 .03"'),
    "rod on cylinder": ('type="cylinder" size=".03 .04"', 'type="capsule" size=".01 .06"'),
}
# Struck geoms on a table, and strikers on slides, which strike above their centre.
_ON_TABLE = {
    "ball, box on a table": (
        'type="box" size=".05 .04 .03" mass=".4"',
        'type="sphere" size=".02" mass="1"',
    ),
    "upright rod, box on a table": (
        'type="box" size=".05 .04 .03" mass=".4"',
        'type="cylinder" size=".012 .03" mass="1"',
    ),
    "ball, can on a table": (
        'type="cylinder" size=".04 .03" mass=".4"',
        'type="sphere" size=".02" mass="1"',
    ),
    "upright capsule, plate on a table": (
        'type="box" size=".06 .03 .03" mass=".6"',
        'type="capsule" size=".012 .025" mass="1"',
    ),
}
_MESHES_PER_MODEL = 2


def pair_scenes(models: Path | None = None) -> Iterator[tuple[str, Scene]]:
    """Make scenes of pairs, each with its name.

    Args:
        models: Folder of MJCF models whose meshes are dropped too; None for none.
    """
    for name, geom in _DROPPED.items():
        yield f"{name} on floor", _dropped(geom)
    for name, (struck, striker) in _FREE_PAIRS.items():
        yield name, _free_pair(struck, striker)
    yield "plate on slides, box on slides", _on_slides()
    yield "box on a hinge", _on_hinge()
    for name, (box, striker) in _ON_TABLE.items():
        yield name, _on_table(box, striker)
    for name, scene in _of_several_geoms():
        yield name, scene
    yield "box on slides, seven-joint arm", _arm_strikes()
    if models is not None:
        for path in sorted(models.rglob("*.obj"))[:_MESHES_PER_MODEL]:
            geom = 'type="mesh" mesh="file"'
            mesh = f'<mesh name="file" file="{path.name}" scale=".3 .3 .3"/>'
            yield f"{path.stem} on floor", _dropped(geom, mesh, {path.name: path.read_bytes()})
        for path in sorted(models.rglob("iiwa14.xml")):
            yield "free box, iiwa14 arm", _iiwa_strikes(path)


def _hull_vertices() -> str:
    """Vertices of an irregular hull."""
    rng = np.random.default_rng(7)
    directions = rng.normal(size=(9, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    vertices = directions * np.array([0.05, 0.035, 0.03])
    return " ".join(f"{number:.6f}" for number in vertices.ravel())


def _assets(*extra: str) -> str:
    meshes = [
        f'<mesh name="tetrahedron" vertex="{_TETRAHEDRON}" scale=".03 .03 .03"/>',
        f'<mesh name="wedge" vertex="{_WEDGE}" scale=".015 .015 .015"/>',
        f'<mesh name="hull" vertex="{_hull_vertices()}"/>',
        *extra,
    ]
    return f"<asset>{''.join(meshes)}</asset>"


def _params(stiffness: tuple[float, float]) -> tuple[Param, ...]:
    """Friction, stiffness and damping, over ranges from plastic to elastic impacts."""
    low, high = stiffness
    middle = float(np.sqrt(low * high))
    return (
        Param("friction", "pair/strike/friction[0:2]", 0.3, 0.02, 1.2),
        Param("stiffness", "pair/strike/solref[0]", middle, low, high, scale="log", sign=-1),
        Param("damping", "pair/strike/solref[1]", 150.0, 20.0, 1500.0, scale="log", sign=-1),
    )


def _scene(world: str, ground: str | None = None, **options: object) -> Scene:
    xml = f"<mujoco>{_OPTIONS}{options.pop('assets', '')}<worldbody>{world}</worldbody>"
    xml += f"{options.pop('actuators', '')}</mujoco>"
    strikes = options.pop("strikes", _STRIKES)
    assert isinstance(strikes, StrikeDistribution)
    files = options.pop("files", {})
    assert isinstance(files, dict)
    scene = Scene(xml, "struck", "striker", ground, strikes=strikes, assets=files, name="pair")
    return scene.with_params(_params((1e5, 4e6)))


def _dropped(geom: str, mesh: str = "", files: dict[str, bytes] | None = None) -> Scene:
    """A geom that falls on a floor."""
    world = (
        '<geom name="striker" type="plane" size="1 1 .1"/>'
        f'<body name="struck"><freejoint/><geom name="struck" {geom} density="800"/></body>'
    )
    return _scene(world, assets=_assets(mesh), files=files or {})


def _free_pair(struck: str, striker: str) -> Scene:
    """Two free bodies."""
    world = (
        f'<body name="struck"><freejoint/><geom name="struck" {struck} density="800"/></body>'
        '<body name="striker" pos="0 0 1"><freejoint/>'
        f'<geom name="striker" {striker} density="2000"/></body>'
    )
    return _scene(world, assets=_assets())


def _on_slides() -> Scene:
    """A plate that a servo drives against a box, both in a plane."""
    joints = (
        '<joint name="{0}x" type="slide" axis="1 0 0"/><joint name="{0}y" type="slide" '
        'axis="0 1 0"/><joint name="{0}yaw" type="hinge" axis="0 0 1"/>'
    )
    world = (
        f'<body name="struck">{joints.format("a")}'
        '<geom name="struck" type="box" size=".1 .05 .05" mass="1"/></body>'
        f'<body name="striker" pos="-1 0 0">{joints.format("b")}'
        '<geom name="striker" type="box" size=".02 .08 .04" mass="3"/></body>'
    )
    servos = "".join(f'<velocity joint="b{axis}" kv="40"/>' for axis in ("x", "y"))
    strikes = StrikeDistribution(
        speed=(0.3, 1.5), offset=(-0.06, 0.06), yaw=(-0.6, 0.6), deflection=(-0.6, 0.6)
    )
    return _scene(world, actuators=f"<actuator>{servos}</actuator>", strikes=strikes)


def _on_hinge() -> Scene:
    """A ball that strikes a box on a hinge."""
    world = (
        '<body name="struck"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>'
        '<joint type="hinge" axis="0 0 1" armature="2e-4"/>'
        '<geom name="struck" type="box" size=".06 .03 .02" pos=".01 0 0" mass=".3"/></body>'
        '<body name="striker" pos="-1 0 0"><joint type="slide" axis="1 0 0"/>'
        '<joint type="slide" axis="0 1 0"/><geom name="striker" type="sphere" size=".02" '
        'mass=".5"/></body>'
    )
    strikes = StrikeDistribution(speed=(0.3, 2.0), point=(-np.pi, np.pi), deflection=(-0.7, 0.7))
    return _scene(world, strikes=strikes)


def _on_table(struck: str, striker: str) -> Scene:
    """A striker on slides, 45 mm above a table, and a body on the table."""
    world = (
        '<geom name="table" type="plane" size="1 1 .1"/>'
        f'<body name="struck" pos="0 0 .03"><freejoint/><geom name="struck" {struck}/></body>'
        '<body name="striker" pos="-1 0 .045"><joint type="slide" axis="1 0 0"/>'
        f'<joint type="slide" axis="0 1 0"/><geom name="striker" {striker}/></body>'
    )
    strikes = StrikeDistribution(speed=(0.2, 1.0), point=(-np.pi, np.pi), deflection=(-0.4, 0.4))
    return _scene(world, "table", strikes=strikes)


def _of_several_geoms() -> Iterator[tuple[str, Scene]]:
    """An L of two boxes, dropped on a floor and struck by a ball, and a hammer of three geoms."""
    bracket = (
        '<body name="struck"><freejoint/>'
        '<geom name="struck" type="box" size=".05 .02 .02" density="800"/>'
        '<geom type="box" size=".02 .02 .04" pos=".05 0 .03" density="800"/></body>'
    )
    floor = '<geom name="striker" type="plane" size="1 1 .1"/>'
    yield "L of two boxes on floor", _scene(floor + bracket)
    ball = (
        '<body name="striker" pos="0 0 1"><freejoint/>'
        '<geom name="striker" type="sphere" size=".02" density="2000"/></body>'
    )
    yield "ball on L of two boxes", _scene(bracket + ball)
    hammer = (
        '<body name="struck"><freejoint/>'
        '<geom name="struck" type="capsule" size=".008 .1" density="700"/>'
        '<body pos="0 0 .1"><geom type="cylinder" size=".02 .03" euler="90 0 0" density="3000"/>'
        '<geom type="sphere" size=".02" pos="0 .03 0" density="3000"/></body></body>'
    )
    yield "hammer on floor", _scene(floor + hammer)


# Axes of the joints of an arm, and where each link begins in the one before, m.
_ARM_AXES = ("0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1")
_ARM_LINKS = (0.1, 0.15, 0.15, 0.15, 0.15, 0.12, 0.08)
_ARM_POSE = "0 0.9 0 1.5 0 0.7 0"


def _arm_strikes() -> Scene:
    """An arm with servos and a ball at its end that strikes a box."""
    arm = '<geom name="striker" type="sphere" size=".025" pos="0 0 .06" mass=".3"/>'
    for axis, length in zip(_ARM_AXES[::-1], _ARM_LINKS[::-1], strict=True):
        arm = (
            f'<body pos="0 0 {length}"><joint axis="{axis}" damping=".5" armature=".02"/>'
            f'<geom type="capsule" size=".03" fromto="0 0 0 0 0 {0.8 * length}" '
            f'mass="{8 * length}" contype="0" conaffinity="0"/>{arm}</body>'
        )
    arm = arm.replace("<joint ", '<joint name="j{}" ')
    arm = arm.format(*range(1, 8))
    joints = (
        '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>'
        '<joint type="hinge" axis="0 0 1"/>'
    )
    world = (
        f'<body name="struck">{joints}<geom name="struck" type="box" size=".06 .04 .05" '
        f'mass=".8"/></body><body name="base" pos="-.5 0 -.3">{arm}</body>'
    )
    servos = "".join(
        f'<general joint="j{i}" gaintype="fixed" biastype="affine" gainprm="400" '
        'biasprm="0 -400 -20"/>'
        for i in range(1, 8)
    )
    key = f'<keyframe><key qpos="0 0 0 {_ARM_POSE}"/></keyframe>'
    strikes = StrikeDistribution(
        speed=(0.2, 1.0), point=(0.6 * np.pi, 1.4 * np.pi), deflection=(-0.5, 0.5)
    )
    actuators = f"<actuator>{servos}</actuator>{key}"
    return _scene(world, actuators=actuators, strikes=strikes)


def _iiwa_strikes(path: Path) -> Scene:
    """A real arm whose last link strikes a box in space."""
    xml = path.read_text().replace('integrator="implicitfast"', _OPTIONS[len("<option ") : -2])
    box = (
        '<body name="struck" pos="0 0 2"><freejoint/>'
        '<geom name="struck" type="box" size=".06 .05 .04" density="500"/></body></worldbody>'
    )
    last_link = '<geom class="collision" size="0.06" pos="0 0 0.001"/>'
    tool = last_link.replace("<geom ", '<geom name="striker" contype="1" conaffinity="1" ')
    xml = xml.replace(last_link, tool).replace("</worldbody>", box)
    # Strikes come from all sides, also through the other links.
    xml = xml.replace('<geom group="3"/>', '<geom group="3" contype="0" conaffinity="0"/>')
    scene = Scene(xml, "struck", "striker", strikes=_STRIKES, assets=scene_assets(path, xml))
    return scene.with_params(_params((1e5, 4e6)))
