"""Written scenes load in plain MuJoCo, whatever their authors left unnamed or in other files."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from clashsim.core.errors import SceneError
from clashsim.core.motion_params import choose_params
from clashsim.core.motion_scene import MotionScene
from clashsim.core.params import Param
from clashsim.core.scene import Scene, scene_params
from clashsim.data.mjcf import EditedMjcf, write_back
from clashsim.data.mjcf_scene import save_mjcf, write_scene

MUG = """<mujoco model="drop">
  <option timestep="0.001" cone="elliptic"/>
  <default>
    <default class="visual"><geom contype="0" conaffinity="0" density="0"/></default>
    <default class="ceramic"><geom density="2300" friction="0.8 0.005 0.0001"/></default>
  </default>
  <worldbody>
    <geom type="plane" size="2 2 .1"/>
    <body name="mug" pos="0 0 0.3">
      <freejoint/>
      <geom class="visual" type="box" size=".01 .01 .01"/>
      <geom name="hull" class="ceramic" type="cylinder" size="0.040 0.048" mass="0.26"/>
      <body name="tag" pos="0 0 .06"><geom class="visual" size=".004" mass=".01"/></body>
      <frame pos="0 0 0">
        <geom class="ceramic" type="capsule" fromto="-.038 0 .028 -.07 0 .024" size=".006"/>
      </frame>
      <geom class="ceramic" type="capsule" fromto="-.07 0 .024 -.07 0 -.024" size=".006" />
      <geom name="" class="ceramic" type="capsule" fromto="-.07 0 -.024 -.038 0 -.028" size=".006"/>
    </body>
  </worldbody>
</mujoco>
"""
DOOR = """<mujoco>
  <worldbody>
    <body name="door">
      <joint name="hinge" axis="0 0 1" damping="0.004"/>
      <geom name="panel" type="box" size="0.008 0.14 0.15" pos="0 -0.14 0" mass="0.65"/>
      <geom type="sphere" size="0.012" pos="0.018 -0.26 0" mass="0.03"/>
    </body>
    <body name="ball" pos="-.3 -.2 0"><freejoint/><geom type="sphere" size="0.03"/></body>
  </worldbody>
</mujoco>
"""
BRICK = """<robot name="bouncer">
  <link name="world"/>
  <link name="slab">
    <collision><origin xyz="0 0 -0.05"/><geometry><box size="1.6 1.6 0.1"/></geometry></collision>
  </link>
  <joint name="bolted" type="fixed"><parent link="world"/><child link="slab"/></joint>
  <link name="brick">
    <inertial><mass value="0.31"/>
      <inertia ixx="0.000232" ixy="0" ixz="0" iyy="0.000323" iyz="0" izz="0.000465"/></inertial>
    <collision><geometry><box size="0.10 0.08 0.05"/></geometry></collision>
  </link>
  <joint name="float" type="floating">
    <parent link="world"/><child link="brick"/><origin xyz="0 0 0.3"/></joint>
</robot>
"""


def loaded(tmp_path, text, name="scene.xml", **pair):
    """The scene of a text, as `clashsim calibrate` loads it."""
    path = tmp_path / name
    path.write_text(text)
    return Scene.load(path, **pair)


def written(scene, **values: float) -> tuple[EditedMjcf, mujoco.MjModel]:
    """A scene with some values that are not nominal, and the model of the text alone."""
    names = [param.name for param in scene.params]
    theta = scene.nominal
    for name, value in values.items():
        theta[names.index(name)] = value
    edited = write_scene(scene, theta)
    model = mujoco.MjModel.from_xml_string(edited.xml, assets=dict(scene.assets))
    return edited, model


def check_pairs(scene: Scene, model: mujoco.MjModel, friction: float) -> None:
    """All pairs of geoms that may strike are pairs of the model, with the friction."""
    found = {
        frozenset((model.geom(int(a)).name, model.geom(int(b)).name))
        for a, b in zip(model.pair_geom1, model.pair_geom2, strict=True)
    }
    assert found == {frozenset(pair) for pair in scene.strike_geoms}
    assert np.allclose(model.pair_friction[:, :2], friction)


def test_geoms_without_names_get_those_of_the_pairs(tmp_path):
    scene = loaded(tmp_path, MUG)
    edited, model = written(scene, friction=0.25)
    assert not edited.rewritten
    check_pairs(scene, model, 0.25)
    assert len(scene.strike_geoms) == 4
    added = edited.xml.count('name="') - MUG.count('name="')
    assert added == 4 + 4 - 1  # four pairs and four geoms, of which one had an empty name
    assert edited.xml.count("<contact>") == 1
    # The geoms are those that the scene means, not others of the body.
    assert np.allclose(model.geom_size, scene.base.geom_size)
    assert np.allclose(model.geom("mug/2").pos, scene.base.geom("mug/2").pos)
    # Written again, nothing but the numbers changes.
    path = tmp_path / "again.xml"
    path.write_text(edited.xml)
    again, _ = written(Scene.load(path), friction=0.35)
    assert again.xml == edited.xml.replace("0.25 0.25", "0.35 0.35")


def test_bodies_without_names_too(tmp_path):
    text = MUG.replace('<body name="tag" pos', "<body pos")
    scene = loaded(tmp_path, text, struck="hull")
    edited, model = written(scene, friction=0.25)
    assert not edited.rewritten
    check_pairs(scene, model, 0.25)


def test_a_scene_without_any_names(tmp_path):
    text = (
        '<mujoco><worldbody><body><freejoint/><geom type="box" size=".05 .05 .05"/></body>'
        '<body pos="0 0 1"><freejoint/><geom size=".05"/></body></worldbody></mujoco>'
    )
    scene = loaded(tmp_path, text, struck="body1/0", striker="body2/0")
    edited, model = written(scene, friction=0.25)
    assert not edited.rewritten
    check_pairs(scene, model, 0.25)


def test_an_edited_text_is_compiled_as_it_is(tmp_path, monkeypatch):
    scene = loaded(tmp_path, MUG)
    monkeypatch.setattr("clashsim.data.mjcf.write_geom_names", lambda xml, *_: xml)
    with pytest.raises(SceneError, match=r"cannot be written.*geom"):
        write_back(scene.xml, scene, scene.nominal)


def test_a_urdf_is_written_as_mjcf(tmp_path):
    scene = loaded(tmp_path, BRICK, "brick.urdf")
    edited, model = written(scene, friction=0.25, inertia_x=2.5e-4, centre_z=1e-3)
    assert "URDF" in edited.rewritten
    check_pairs(scene, model, 0.25)
    wanted = scene.model(scene.nominal)
    assert np.allclose(model.body("brick").ipos, [0, 0, 1e-3])
    assert model.body("brick").mass == pytest.approx(wanted.body("brick").mass)
    with pytest.raises(SceneError, match="URDF"):
        write_back(scene.xml, scene, scene.nominal)


@pytest.mark.parametrize("part", ["include", "replicate"])
def test_parts_that_are_not_in_the_text_are_written_by_mujoco(tmp_path, part):
    geoms = '<geom type="sphere" size=".03" pos="0 0 .1"/><geom type="box" size=".05 .05 .05"/>'
    (tmp_path / "part.xml").write_text(f"<mujoco>{geoms}</mujoco>")
    inside = {
        "include": '<include file="part.xml"/>',
        "replicate": f'<replicate count="2" offset=".2 0 0">{geoms}</replicate>',
    }
    text = (
        '<mujoco><worldbody><geom type="plane" size="1 1 .1"/>'
        f'<body name="thing" pos="0 0 1"><freejoint/>{inside[part]}</body>'
        "</worldbody></mujoco>"
    )
    scene = loaded(tmp_path, text)
    edited, model = written(scene, friction=0.25)
    assert "<include> file" in edited.rewritten
    check_pairs(scene, model, 0.25)
    assert np.allclose(model.body_inertia, scene.base.body_inertia, rtol=1e-4)


def test_what_mujoco_writes_must_be_the_same_scene(tmp_path, monkeypatch):
    scene = loaded(tmp_path, BRICK, "brick.urdf")
    author = mujoco.MjSpec.to_xml
    monkeypatch.setattr(
        mujoco.MjSpec, "to_xml", lambda spec: author(spec).replace('mass="0.31"', 'mass="0.32"')
    )
    with pytest.raises(SceneError, match=r"URDF.*the same scene:.*body_mass"):
        write_scene(scene, scene.nominal)


def test_values_that_are_the_authors_are_not_written(tmp_path):
    scene = loaded(tmp_path, DOOR, struck="door", striker="ball")
    author = mujoco.MjModel.from_xml_string(DOOR)
    edited, model = written(scene, friction=0.2)
    assert {"inertia", "striker_mass"} <= set(edited.unchanged)
    assert "<inertial" not in edited.xml
    assert np.array_equal(model.body_inertia, author.body_inertia)
    # One number for all moments of a hinged body, once it was identified.
    inertia = dict(zip([p.name for p in scene.params], scene.nominal, strict=True))["inertia"]
    edited, model = written(scene, friction=0.2, inertia=1.2 * inertia)
    assert "inertia" not in edited.unchanged
    assert np.allclose(model.body("door").inertia, 1.2 * inertia)


def test_moments_are_named_by_the_axes_of_the_file(tmp_path):
    moments = {"x": 0.000232, "y": 0.000323, "z": 0.000465}
    scene = loaded(tmp_path, BRICK, "brick.urdf")
    found = {param.name: param.nominal for param in scene_params(scene)}
    whole = MotionScene.load(tmp_path / "brick.urdf")
    chosen = {param.name: param.nominal for param in choose_params(whole, ("inertia",), ())}
    for axis, moment in moments.items():
        assert found[f"inertia_{axis}"] == pytest.approx(moment)
        assert chosen[f"brick_inertia_{axis}"] == pytest.approx(moment)
    # What is written about an axis is about that axis of the file.
    _, model = written(scene, inertia_x=3e-4)
    axes = np.zeros(9)
    mujoco.mju_quat2Mat(axes, model.body("brick").iquat)
    rotation = axes.reshape(3, 3)
    tensor = rotation @ np.diag(model.body("brick").inertia) @ rotation.T
    assert np.allclose(tensor, np.diag([3e-4, moments["y"], moments["z"]]), atol=1e-9)


def test_a_parameter_of_a_geom_without_name(tmp_path):
    scene = loaded(tmp_path, MUG)
    scene = scene.with_params([Param("f", "geom/mug/2/friction[0]", 0.8, 0.1, 1.0)])
    _, model = written(scene, f=0.4)
    assert model.geom("mug/2").friction[0] == 0.4


def test_a_scene_is_saved_only_where_its_files_are(tmp_path: Path) -> None:
    vertices = "v 0 0 0\nv .02 0 0\nv 0 .02 0\nv 0 0 .02\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    (tmp_path / "badge.obj").write_text(vertices)
    badge = '<asset><mesh file="badge.obj"/></asset><worldbody>'
    text = MUG.replace("<worldbody>", badge, 1)
    text = text.replace('type="box" size=".01 .01 .01"', 'type="mesh" mesh="badge"')
    edited, _ = written(loaded(tmp_path, text), friction=0.25)
    beside, elsewhere = tmp_path / "out.xml", tmp_path / "other" / "out.xml"
    save_mjcf(beside, edited)
    assert mujoco.MjModel.from_xml_path(str(beside)).npair == 4
    elsewhere.parent.mkdir()
    with pytest.raises(SceneError, match="cannot be loaded"):
        save_mjcf(elsewhere, edited)
    assert not elsewhere.exists()
