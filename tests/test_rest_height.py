"""A struck body rests on its ground, whatever else lies there in the reference configuration."""

from __future__ import annotations

import pytest

from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import rest_height

# The tool's joints are at zero where the block lies, as in a URDF whose joints have no offsets.
XML = """<mujoco><option timestep="0.0005" cone="elliptic"/><worldbody>
<geom name="table" type="plane" size="1 1 .1"/>
<body name="block" pos="0 0 .03"><freejoint/>
<geom name="block" type="box" size=".07 .04 .03" mass=".35"/></body>
<body name="tool" pos="{x} 0 .03"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 1 0"/><geom name="tip" type="sphere" size=".012" mass=".6"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("x", ["0", "0.3"])
def test_a_tool_inside_the_block_does_not_lift_it(tmp_path, x):
    path = tmp_path / "cell.xml"
    path.write_text(XML.format(x=x))
    scene = Scene.load(path, struck="block", striker="tip", ground="table")
    assert rest_height(scene, scene.nominal[None])[0] == pytest.approx(0.03, abs=1e-3)
