"""Scenes, parameters and what is refused."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clashsim.core.errors import DataError, ParamError, SceneError
from clashsim.core.params import Param, from_unit, locate_param, to_unit
from clashsim.core.scene import Scene, scene_params, shipped_scenes
from clashsim.core.strike_distribution import StrikeDistribution

BOX = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body name="b" pos="0 0 .05"><freejoint/><geom name="box" type="box" size=".05 .05 .05"/></body>
<body name="t" pos="-.3 0 .05"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
<geom name="tool" type="sphere" size=".02" {tool}/></body>
</worldbody>{rest}</mujoco>"""


def scene(tool: str = "", rest: str = "", **names: str) -> Scene:
    return Scene(
        BOX.format(tool=tool, rest=rest),
        **({"struck": "box", "striker": "tool", "ground": "floor"} | names),
    )


@pytest.mark.parametrize("name", shipped_scenes())
def test_shipped_scenes_compile_and_their_parameters_exist(name: str) -> None:
    world = Scene.load(name)
    assert len(world.slots) == len(world.params) > 1
    assert (world.plane is None) == (name == "cube")
    assert world.plane is None or np.allclose(world.plane @ world.plane.T, np.eye(3))
    changed = world.model(world.nominal * 1.0)
    assert changed.nq == world.base.nq


def test_theta_is_written_to_its_targets() -> None:
    world = scene().with_params(
        [
            Param("mu", "pair/strike/friction[0:2]", 0.5, 0.1, 1.0),
            Param("b", "pair/strike/solref[1]", 10, 1, 100, sign=-1),
        ]
    )
    model = world.model(np.array([0.7, 30.0]))
    pair = model.pair("strike")
    assert pair.friction[0] == pair.friction[1] == 0.7 and pair.solref[1] == -30.0


def test_added_pair_keeps_the_contact_of_its_geoms() -> None:
    world = scene(tool='friction="0.4 0.01 0.001" priority="1" solref="0.01 0.7"')
    assert np.allclose(world.base.pair("strike").friction[:2], 0.4)
    assert np.allclose(world.base.pair("strike").solref, [0.01, 0.7])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: scene(struck="bax").base, "did you mean box"),
        (lambda: scene(striker="box").base, "two different geoms"),
        (lambda: scene(tool='contype="0" conaffinity="0"').base, "excludes contact"),
        (
            lambda: scene(rest='<contact><exclude body1="b" body2="t"/></contact>').base,
            "excludes contact",
        ),
        (lambda: Scene("<mujoco><worldbody>", "a", "b").base, "not a valid MJCF"),
        (lambda: Scene.load("no_such_scene"), "no scene"),
        (lambda: Scene.load("absent.xml"), "no scene file"),
    ],
)
def test_unusable_scenes_are_refused_in_one_sentence(make, words: str) -> None:
    with pytest.raises(SceneError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("geom/bix/friction[0]", "did you mean box"),
        ("geom/box/frictoin[0]", "did you mean friction"),
        ("goem/box/friction[0]", "did you mean geom"),
        ("geom/box/friction[7]", "outside 0 to 2"),
        ("geom/box/friction", "needs an index"),
        ("friction", "not of the form"),
        ("option/gravty[2]", "did you mean gravity"),
    ],
)
def test_targets_that_do_not_exist_name_the_nearest(target: str, words: str) -> None:
    with pytest.raises(ParamError, match=words):
        locate_param(scene().base, target)


def test_targets_reach_every_kind() -> None:
    model = scene().base
    for target in (
        "geom/box/size[0]",
        "body/b/mass",
        "body/b/inertia[2]",
        "option/gravity[2]",
        "pair/ground/solref[0]",
    ):
        slot = locate_param(model, target)
        assert slot.field


def test_effects_must_be_known_ones() -> None:
    with pytest.raises(ParamError, match="no effect"):
        _ = scene().with_params([Param("x", "effect/magic", 0, -1, 1)]).slots


def test_parameters_without_settings() -> None:
    found = {p.name: p for p in scene_params(scene())}
    assert set(found) == {
        "friction",
        "stiffness",
        "damping",
        "ground_friction",
        "ground_damping_ratio",
        "striker_mass",
        "tangential_stiffness",
        "x_offset",
        "y_offset",
        "yaw_offset",
        "drag",
    }
    assert found["friction"].nominal == 0.3  # MuJoCo's default of 1 is nobody's choice
    # A contact that the time step resolves.
    assert found["stiffness"].high <= (0.5 / scene().base.opt.timestep) ** 2
    direct = scene(rest='<contact><pair geom1="box" geom2="tool" solref="-10000 -50"/></contact>')
    author = {p.name: p for p in scene_params(direct)}
    assert author["stiffness"].nominal == 10000 and author["damping"].nominal == 50
    assert author["damping"].sign == -1


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_unit_scale_round_trip(unit: list[float]) -> None:
    params = [Param("a", "x", 1, 0.5, 4, scale="log"), Param("b", "x", 0, -3, 5)]
    natural = from_unit(params, np.array(unit))
    assert np.allclose(to_unit(params, natural), unit, atol=1e-9)


@pytest.mark.parametrize(
    "bad", [{"low": 2.0}, {"nominal": 9.0}, {"low": float("nan")}, {"scale": "log", "low": 0.0}]
)
def test_impossible_ranges_are_refused(bad: dict) -> None:
    with pytest.raises(ParamError):
        Param(**({"name": "a", "target": "x", "nominal": 1.0, "low": 0.5, "high": 1.5} | bad))


def test_ranges_of_strikes_are_checked() -> None:
    with pytest.raises(DataError, match="speed"):
        StrikeDistribution(speed=(0.0, 1.0))
    with pytest.raises(DataError, match="low first"):
        StrikeDistribution(spin=(1.0, -1.0))


def test_includes_are_read(tmp_path) -> None:
    (tmp_path / "part.xml").write_text(
        '<mujoco><worldbody><geom name="wall" type="plane" size="1 1 1"/></worldbody></mujoco>'
    )
    (tmp_path / "main.xml").write_text(
        '<mujoco><include file="part.xml"/><worldbody><body pos="0 0 1"><freejoint/>'
        '<geom name="ball" size=".1"/></body></worldbody></mujoco>'
    )
    world = Scene.load(tmp_path / "main.xml", struck="ball", striker="wall")
    assert world.plane is None and world.is_round and isinstance(world.base, mujoco.MjModel)


def test_added_pair_changes_no_trajectory() -> None:
    plain = mujoco.MjModel.from_xml_string(
        BOX.format(tool='friction="0.4 0.01 0.001" solref="0.01 0.7" solmix="2"', rest="")
    )
    paired = scene(tool='friction="0.4 0.01 0.001" solref="0.01 0.7" solmix="2"').base
    ends = []
    for model in (plain, paired):
        data = mujoco.MjData(model)
        data.qvel[6] = 8.0
        mujoco.mj_step(model, data, 400)
        ends.append(data.qpos.copy())
    assert abs(ends[0][0]) > 1e-3 and np.allclose(ends[0], ends[1], atol=1e-9)
