"""Identified parameters go into the author's file, and nothing else in it changes."""

from __future__ import annotations

import difflib
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.core.errors import SceneError
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene, scene_params, shipped_scenes
from clashsim.data.mjcf import write_back
from clashsim.fit.restitution import restitution_at_speeds

PLAIN = """<?xml version="1.0"?>
<!-- my robot; a > b and friction="9" in a comment -->
<mujoco   model='mine'>
\t<option timestep = "0.001"/>
  <default><geom friction="0.7 0.01 0.001"/>
    <default class="hard"><geom solref="0.004 1"/></default></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1"
          rgba="1 1 1 1" />  <!-- the floor -->
    <body name="ball" pos="0 0 1">
      <freejoint name="fly"/>
      <geom class="hard" name='ball' size="0.1"  friction='0.5' mass="1"/>
    </body>
    <body name="arm" pos="0 0 3"><joint name="swing" axis="0 1 0" damping="0.1"/>
      <geom name="rod" type="capsule" size=".01" fromto="0 0 0 0 0 -.3"/></body>
  </worldbody>
</mujoco>
"""
STRIKE = (
    Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),
    Param("ratio", "pair/strike/solref[1]", 1.0, 0.1, 3.0),
)


def made(xml: str, *params: Param, assets: dict | None = None) -> Scene:
    return Scene(xml, "ball", "floor", None, params, assets=assets or {}, name="mine")


def changed(a: str, b: str) -> list[str]:
    return [d for d in difflib.ndiff(a.splitlines(True), b.splitlines(True)) if d[0] in "+-"]


@pytest.mark.parametrize("name", shipped_scenes())
def test_shipped_scenes(name):
    scene = Scene.load(name)
    theta = from_unit(scene.params, np.clip(to_unit(scene.params, scene.nominal) + 0.05, -1, 1))
    edited = write_back(scene.xml, scene, theta)
    wanted, got = scene.model(theta), replace(scene, xml=edited.xml).base
    assert np.allclose(wanted.pair_friction, got.pair_friction, rtol=1e-8) and np.allclose(
        wanted.pair_solref, got.pair_solref, rtol=1e-8
    )
    assert edited.unwritten == tuple(p.name for p in scene.params if p.target.startswith("effect/"))
    # The same words, but for numbers of the pairs.
    assert sum(d[0] == "-" for d in changed(scene.xml, edited.xml)) <= len(scene.params)


def test_a_pair_is_added_with_all_that_it_compiles_to():
    scene = made(PLAIN, *STRIKE)
    edited = write_back(PLAIN, scene, [0.25, 0.5]).xml
    wanted, got = scene.model(np.array([0.25, 0.5])), mujoco.MjModel.from_xml_string(edited)
    for field in ("friction", "solref", "solreffriction", "solimp", "margin", "gap", "dim"):
        assert np.allclose(
            getattr(wanted, f"pair_{field}"), getattr(got, f"pair_{field}"), rtol=1e-8
        ), field
    lines = changed(PLAIN, edited)
    assert [d[2:].strip().split()[0] for d in lines] == [
        "<contact>",
        "<pair",
        "</contact>",
    ] and all(d[0] == "+" for d in lines)
    again = made(edited, *STRIKE)
    second = write_back(edited, again, [0.35, 0.5]).xml
    assert second == edited.replace("0.25 0.25", "0.35 0.35")


def test_an_existing_contact_section_and_line_ends_are_kept():
    text = PLAIN.replace(
        "</worldbody>",
        "</worldbody>\n  <contact>\n    <exclude body1='ball' body2='arm'/>\n  </contact>",
    ).replace("\n", "\r\n")
    edited = write_back(text, made(text, *STRIKE), [0.25, 0.5]).xml
    assert edited.count("<contact>") == 1 and edited.count("\n") == edited.count("\r\n")
    assert [d[0] for d in changed(text, edited)] == ["+"]


def test_one_line_files():
    floor = '<geom name="floor" type="plane" size="1 1 .1"/>'
    ball = '<body><freejoint/><geom name="ball" size=".1"/></body>'
    text = f"<mujoco><worldbody>{floor}{ball}</worldbody></mujoco>"
    assert write_back(text, made(text, *STRIKE), [0.25, 0.5]).xml.endswith("</contact></mujoco>")


@pytest.mark.parametrize(
    ("target", "value", "old", "new"),
    [
        ("geom/ball/friction[0]", 0.25, "friction='0.5'", "friction='0.25'"),
        ("geom/ball/friction[1]", 0.25, "friction='0.5'", "friction='0.5 0.25'"),
        ("geom/ball/solref[1]", 0.25, 'mass="1"/>', 'mass="1" solref="0.004 0.25"/>'),
        (
            "geom/floor/friction[0]",
            0.25,
            'rgba="1 1 1 1" />',
            'rgba="1 1 1 1" friction="0.25 0.01 0.001" />',
        ),
        ("joint/swing/damping", 0.25, 'damping="0.1"', 'damping="0.25"'),
        ("joint/swing/armature", 0.25, 'damping="0.1"/>', 'damping="0.1" armature="0.25"/>'),
        (
            "option/gravity[2]",
            -0.25,
            'timestep = "0.001"/>',
            'timestep = "0.001" gravity="0 0 -0.25"/>',
        ),
    ],
)
def test_attributes_are_edited_or_added(target, value, old, new):
    scene = made(PLAIN, Param("p", target, value, value - 1, value + 1))
    edited = write_back(PLAIN, scene, [value]).xml
    assert edited == PLAIN.replace(old, new)


def test_mass_without_inertial():
    scene = made(PLAIN, Param("mass", "body/ball/mass", 1.0, 0.5, 3.0))
    edited = write_back(PLAIN, scene, [2.0]).xml
    assert "<inertial" in edited and [d[0] for d in changed(PLAIN, edited)] == ["+"]
    assert mujoco.MjModel.from_xml_string(edited).body("ball").mass[0] == 2.0


def test_what_lies_elsewhere_is_refused():
    body = '<body><freejoint/><geom name="ball" size=".1"/></body>'
    floor = '<geom name="floor" type="plane" size="1 1 .1"/>'
    text = f"<mujoco><worldbody>{floor}%s</worldbody>%s</mujoco>"
    whole = made(text % (body, ""), Param("f", "geom/ball/friction[0]", 0.3, 0.1, 1.0))
    with pytest.raises(SceneError, match="<include> file"):
        write_back(text % ("", '<include file="part.xml"/>'), whole, [0.4])
    whole = made(text % (body, '<contact><pair geom1="ball" geom2="floor"/></contact>'), *STRIKE)
    with pytest.raises(SceneError, match="<include> file"):
        write_back(text % (body, '<include file="pairs.xml"/>'), whole, [0.4, 1.0])


def test_what_the_compiler_overrules_is_refused():
    text = PLAIN.replace("<option", '<compiler inertiafromgeom="true"/><option')
    with pytest.raises(SceneError, match="cannot be written"):
        write_back(text, made(text, Param("mass", "body/ball/mass", 1.0, 0.5, 3.0)), [2.0])


def test_reading_of_solref():
    scene = Scene.load("puck")
    theta = scene.nominal.copy()
    damping = [p.name for p in scene.params].index("damping")
    table = {}
    for value in (20.0, 3000.0):
        theta[damping] = value
        table[value] = restitution_at_speeds(scene, theta, [0.5, 2.0])
    assert all(0.9 < e <= 1.01 for e in table[20.0].values()) and all(
        e < 0.2 for e in table[3000.0].values()
    )
    assert list(table[20.0]) == [0.5, 2.0]


def test_default_params_of_any_scene():
    scene = made(PLAIN)
    scene = scene.with_params(scene_params(scene))
    assert write_back(PLAIN, scene, scene.nominal).unwritten == ("delay",)
