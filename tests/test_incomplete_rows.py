"""Rows of a table that lack numbers are left out and named; a fixed striker needs no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts
from clashsim.pipeline.recorded_impacts import read_recorded_impacts

HEADER = "x,y,vx,vy,striker_x,striker_vx,vx_after,vy_after,w_after\n"
GOOD = "0,0,1,0,0,0,-0.5,0,0.1\n"
PAIRS = """<mujoco><option gravity="0 0 0"/><worldbody>
<body name="a"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
<joint type="hinge" axis="0 0 1"/><geom name="a" type="box" size=".05 .03 .02" mass=".2"/></body>
<body name="b" pos=".3 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
<joint type="hinge" axis="0 0 1"/><geom name="b" type="sphere" size=".02" mass=".2"/></body>
<geom name="wall" type="box" pos=".6 0 0" size=".02 .5 .05"/>
</worldbody></mujoco>"""


def _read(path, scene):
    said = []
    return read_recorded_impacts(path, scene, (), said.append), said


def _scene(tmp_path, striker):
    path = tmp_path / "pairs.xml"
    path.write_text(PAIRS)
    return Scene.load(path, struck="a", striker=striker)


@pytest.mark.parametrize("damaged", ["0,0,,0,0,1,-0.5,0,0.1\n", "0,0,nan,0,0,1,-0.5,0,0.1\n"])
def test_rows_that_lack_a_number_are_left_out_and_named(tmp_path, damaged):
    path = tmp_path / "impacts.csv"
    path.write_text(HEADER + GOOD + damaged + GOOD.replace("0.1", "0.2"))
    recorded, said = _read(path, _scene(tmp_path, "b"))
    assert recorded.impacts.after[:, 2].tolist() == [0.1, 0.2]
    assert recorded.rows.tolist() == [0, 2]
    assert len(said) == 1
    assert said[0].startswith("left out: 1 of 3 impacts, which lack a number")
    assert said[0].endswith("(1)")
    with pytest.raises(DataError, match="lack a number"):
        read_impacts(path)  # which promises finite numbers


def test_a_fixed_striker_needs_no_numbers(tmp_path):
    path = tmp_path / "impacts.csv"
    path.write_text(HEADER + "0,0,1,0,,,-0.5,0,0.3\n" + GOOD)
    recorded, said = _read(path, _scene(tmp_path, "wall"))
    assert said == []
    assert np.isfinite(recorded.impacts.before).all()
    recorded, said = _read(path, _scene(tmp_path, "b"))
    assert recorded.rows.tolist() == [1]  # where the striker moves, its motion is needed


def test_only_the_impacts_of_the_scene_s_pair_are_read(tmp_path):
    path = tmp_path / "impacts.csv"
    lines = ["struck,striker," + HEADER]
    lines += ["a,b," + GOOD, "a,wall,0,0,1,0,,,-0.5,0,0.1\n", "a,b," + GOOD.replace("0.1", "0.3")]
    path.write_text("".join(lines))
    recorded, said = _read(path, _scene(tmp_path, "b"))
    assert said == []
    assert recorded.rows.tolist() == [0, 2]
    assert recorded.impacts.bodies is None
    recorded, _ = _read(path, _scene(tmp_path, "wall"))
    assert recorded.rows.tolist() == [1]
