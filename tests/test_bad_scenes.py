"""Scenes and impacts that cannot be calibrated: one sentence, and nothing is written."""

from __future__ import annotations

import re

import numpy as np
import pytest

from clashsim import cli
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.data.impact_files import write_impacts

BLOCK = '<geom name="block" type="box" size=".05 .03 .02" mass=".2"/>'
TIP = '<geom name="tip" type="sphere" size=".015" mass=".5"/>'
PLANAR = (
    '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>'
    '<joint type="hinge" axis="0 0 1"/>'
)
SILENT = 'contype="0" conaffinity="0"'
SERVOS = '<actuator><velocity joint="px" kv="50"/><velocity joint="py" kv="50"/></actuator>'
NAMED = ("--struck", "block", "--striker", "tip")


def scene(block: str = BLOCK, tip: str = TIP, joints: str = PLANAR, rest: str = "") -> str:
    return f"""<mujoco><option timestep="0.0005"/>{rest}<worldbody>
    <body name="block">{joints}{block}</body>
    <body name="pusher" pos="-1 0 0"><joint name="px" type="slide" axis="1 0 0"/>
    <joint name="py" type="slide" axis="0 1 0"/>{tip}</body></worldbody>{SERVOS}</mujoco>"""


def strikes(n: int = 8) -> Impacts:
    """A tip on the left strikes the block in its middle."""
    before, motion = MotionBefore.at_origin(n, planar=True)
    motion.striker.position[:, 0] = -0.066
    motion.striker.velocity[:, 0] = np.linspace(0.3, 0.8, n)
    after = np.zeros((n, 3))
    after[:, 0] = 1.2 * motion.striker.velocity[:, 0]
    return Impacts(True, before, after)


def pushes(n: int = 8) -> Impacts:
    """Both move together before and after."""
    impacts = strikes(n)
    impacts.motion.struck.velocity[:] = impacts.motion.striker.velocity
    impacts.after[:, 0] = 1.01 * impacts.motion.struck.velocity[:, 0]
    return impacts


def refusal(tmp_path, capsys, xml: str, *options: str, impacts: Impacts | None = None) -> str:
    """What the command says."""
    (tmp_path / "scene.xml").write_text(xml)
    write_impacts(tmp_path / "impacts.csv", strikes() if impacts is None else impacts)
    files = [str(tmp_path / "scene.xml"), str(tmp_path / "impacts.csv")]
    code = cli.main(["calibrate", *files, "-o", str(tmp_path / "run"), *options])
    said = capsys.readouterr()
    assert code == 2 and not (tmp_path / "run").exists()
    message = said.err.strip()
    assert "\n" not in message and message.startswith("clashsim: ")
    return message


@pytest.mark.parametrize(
    ("xml", "options", "words"),
    [
        (scene(BLOCK.replace("/>", f" {SILENT}/>")), (), "no geom of block collides (contype"),
        (scene(BLOCK.replace("/>", f" {SILENT}/>")), NAMED, "contype and conaffinity do not"),
        (scene(tip=TIP.replace("/>", ' contype="2" conaffinity="2"/>')), (), "do not match"),
        (
            scene(rest='<contact><exclude body1="block" body2="pusher"/></contact>'),
            (),
            "excludes contact between 'block' and 'tip' (<exclude>)",
        ),
        (scene(joints=""), NAMED, "'block' cannot move: give its body a free joint, slides"),
        (scene(joints=""), (), "needs a free joint, slides or hinges"),
        (scene(BLOCK.replace(".2", "0")), (), "body 'block' moves and has no mass: give its geoms"),
        (scene(tip=TIP.replace('".5"', '"0"')), (), "body 'pusher' moves and has no mass"),
        (
            scene(BLOCK.replace(".05 .03 .02", "50 30 20"), TIP.replace(".015", "15")),
            (),
            "if the scene is in mm; give its positions and sizes in m",
        ),
        (
            scene('<geom name="block" type="mesh" mesh="shape"/>').replace(
                "<worldbody>", '<asset><mesh name="shape" file="absent.stl"/></asset><worldbody>'
            ),
            (),
            "names the file 'absent.stl' (<mesh>), but there is no file",
        ),
        (scene(joints="<freejoint/>"), (), "planar but scene 'scene' is spatial: give the struck"),
        (
            scene(rest='<asset><hfield name="h" nrow="3" ncol="3" size="1 1 .1 .1"/></asset>')
            .replace("<worldbody>", '<worldbody><geom name="hills" type="hfield" hfield="h"/>')
            .replace(SERVOS, ""),
            ("--struck", "block", "--striker", "hills"),
            "'hills' is a height field, .*: planes, boxes, .* are supported",
        ),
    ],
)
def test_a_scene_that_cannot_be_used(tmp_path, capsys, xml, options, words):
    pattern = words if ".*" in words else re.escape(words)
    assert re.search(pattern, refusal(tmp_path, capsys, xml, *options))


def test_lasting_contact_is_no_impact(tmp_path, capsys):
    message = refusal(tmp_path, capsys, scene(), impacts=pushes())
    assert "approach each other, though they touch in 8: give the twists just before" in message


def test_velocities_in_millimetres(tmp_path, capsys):
    impacts = strikes()
    impacts.before[:, 3:6] *= 1e3
    impacts.before[:, 9:] *= 1e3
    impacts.after[:] *= 1e3
    message = refusal(tmp_path, capsys, scene(), impacts=impacts)
    assert "velocities must be in m/s (are they in mm/s?)" in message


def test_impacts_in_space_for_a_scene_in_a_plane(tmp_path, capsys):
    spatial = Impacts(False, np.zeros((6, 26)), np.ones((6, 6)))
    spatial.before[:, [3, 16]] = 1.0
    spatial.before[:, 20] = np.linspace(0.3, 0.6, 6)
    message = refusal(tmp_path, capsys, scene(), impacts=spatial)
    assert "spatial but scene 'scene' is planar: give the struck body a free joint" in message


def test_names_that_are_suggested_are_those_of_the_author(tmp_path, capsys):
    unnamed = BLOCK.replace('name="block" ', "")
    said = refusal(tmp_path, capsys, scene(block=unnamed), "--struck", "blocks")
    assert "no body or geom named 'blocks'" in said
    assert "did you mean block" in said and "block/0" not in said


def test_damaged_xml_is_named_with_its_line(tmp_path, capsys):
    whole = scene().replace("<worldbody>", "<!-- two\nlines -->\n<worldbody>")
    cut = whole[: whole.index('<joint name="px"') + 12]
    line = cut.count("\n") + 1
    said = refusal(tmp_path, capsys, cut, *NAMED)
    assert f"in line {line} is not closed: is the file cut off?" in said
    wrong = whole.replace("</worldbody>", "</body>")
    assert f"line {whole[: whole.index('</worldbody>')].count(chr(10)) + 1}" in refusal(
        tmp_path, capsys, wrong, *NAMED
    )
