"""A scene takes exactly the files it names, is compiled from nothing else, and stays bounded."""

from __future__ import annotations

import os
import shutil
import struct
import warnings
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import clashsim
import tiny_run
from clashsim import cli
from clashsim.core.errors import ClashError, SceneError
from clashsim.core.mjcf_assets import check_scene, parse_scene, scene_assets
from clashsim.core.mjcf_limits import MAX_ELEMENTS
from clashsim.core.scene import Scene

BODY = (
    '<worldbody><geom name="floor" type="plane" size="1 1 1"/>'
    '<body name="b" pos="0 0 1"><freejoint/><geom name="ball" %s/></body></worldbody>'
)
BALL = BODY % 'size=".1"'
MESH = BODY % 'type="mesh" mesh="c"'
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"


def mjcf(*parts: str) -> str:
    return "<mujoco>" + "".join(parts) + "</mujoco>"


def asset(text: str) -> str:
    return f"<asset>{text}</asset>"


def world(text: str) -> str:
    return f"<worldbody>{text}</worldbody>"


def tetrahedron(size: float) -> bytes:
    corners = f"v 0 0 0\nv {size} 0 0\nv 0 {size} 0\nv 0 0 {size}\n"
    return f"{corners}f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n".encode()


def put(folder: Path, files: dict[str, bytes | str]) -> None:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)


def loaded(path: Path) -> Scene:
    return Scene.load(path, struck="ball", striker="floor")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_run.write_run(tmp_path_factory.mktemp("runs") / "run")


# ---- assets of an author's scene


def test_exactly_the_named_files_are_assets(tmp_path, monkeypatch):
    main = (
        '<mujoco><include file="part.xml"/>'
        + asset('<mesh name="c" file="../meshes/cube.obj"/>')
        + MESH
        + "</mujoco>"
    )
    put(
        tmp_path,
        {
            "scenes/main.xml": main,
            "scenes/part.xml": '<mujoco><option timestep="0.003"/></mujoco>',
            "scenes/private/passport.png": b"secret",
            "scenes/other.xml": "<mujoco/>",
            "scenes/cube.obj": tetrahedron(3),
            "meshes/cube.obj": tetrahedron(1),
            "meshes/unused.obj": tetrahedron(2),
        },
    )
    put(tmp_path, {"elsewhere/meshes/cube.obj": tetrahedron(9)})
    (tmp_path / "elsewhere" / "here").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere" / "here")  # where ../meshes/cube.obj is another file
    scene = loaded(tmp_path / "scenes" / "main.xml")
    assert scene.assets == {
        "part.xml": b'<mujoco><option timestep="0.003"/></mujoco>',
        "../meshes/cube.obj": tetrahedron(1),
    }
    assert (
        scene.base.body("b").mass[0] == pytest.approx(1000 / 6, rel=1e-4)
        and scene.base.opt.timestep == 0.003
    )


def test_all_elements_that_name_files_are_found(tmp_path):
    names = [
        "a.hf",
        "deep/t.png",
        "r.png",
        "l.png",
        "u.png",
        "d.png",
        "f.png",
        "b.png",
        "s.skn",
        "soft.obj",
        "sub/x.xml",
        "sub/inner.xml",
        "sub/m/x.obj",
        "x/twice.xml",
    ]
    put(tmp_path, dict.fromkeys(names, b"x"))
    put(
        tmp_path,
        {
            "sub/x.xml": mjcf('<compiler meshdir="m"/><include file="inner.xml"/>'),
            "sub/inner.xml": '<mujoco><asset><mesh file="x.obj"/></asset></mujoco>',
            "x/twice.xml": '<mujoco><include file="none.xml"/></mujoco>',
            "x/none.xml": "<mujoco><worldbody/></mujoco>",  # beside the file that includes it
            "unrelated.png": b"x",
        },
    )
    sides = " ".join(
        f'file{side}="{side[0]}.png"' for side in ("right", "left", "up", "down", "front", "back")
    )
    files = '<hfield file="a.hf"/><texture type="2d" file="deep/t.png"/><skin file="s.skn"/>'
    models = f'<texture {sides}/><model file="sub/x.xml"/>'
    soft = '<flexcomp name="f" type="mesh" file="soft.obj"/>'
    main = mjcf('<include file="x/twice.xml"/>', asset(files + models), world(soft))
    put(tmp_path, {"main.xml": main})
    found = scene_assets(tmp_path / "main.xml", main)
    assert set(found) == {*names, "none.xml"}
    assert found["none.xml"] == b"<mujoco><worldbody/></mujoco>"


LAYOUTS = {
    "meshdir": ('<compiler meshdir="m"/>', "", "c.obj", "m/c.obj"),
    "meshdir above": ('<compiler meshdir="../up"/>', "", "c.obj", "../up/c.obj"),
    "up from meshdir": ('<compiler meshdir="m"/>', "", "../c.obj", "c.obj"),
    "assetdir": ('<compiler assetdir="m"/>', "", "c.obj", "m/c.obj"),
    "meshdir before assetdir": ('<compiler meshdir="m" assetdir="n"/>', "", "c.obj", "m/c.obj"),
    "the last compiler": (
        '<compiler meshdir="m"/>',
        '<compiler assetdir="n"/>',
        "c.obj",
        "n/c.obj",
    ),
    "texturedir is not for meshes": (
        '<compiler meshdir="m"/>',
        '<compiler texturedir="n"/>',
        "c.obj",
        "m/c.obj",
    ),
    "strippath": ('<compiler strippath="true" meshdir="m"/>', "", "far/away/c.obj", "m/c.obj"),
    "backslash": ("", "", "m\\c.obj", "m/c.obj"),
    "dots": ("", "", "./m/../n/c.obj", "n/c.obj"),
    "meshdir of an included file": ('<include file="sub/meshdir.xml"/>', "", "c.obj", "m/c.obj"),
    "beside the included file": ('<include file="sub/near.xml"/>', "", None, "near.obj"),
    "beside a file included there": ('<include file="sub/further.xml"/>', "", None, "near.obj"),
    "an attached model has its own folders": (
        '<compiler meshdir="n"/><asset><model name="x" file="sub/model.xml"/></asset>',
        "",
        None,
        "sub/m/c.obj",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_are_resolved_as_mujoco_does(tmp_path, layout):
    first, last, name, asked = LAYOUTS[layout]
    places = (
        "c.obj",
        "m/c.obj",
        "n/c.obj",
        "sub/c.obj",
        "sub/m/c.obj",
        "sub/near.obj",
        "../up/c.obj",
    )
    put(tmp_path / "main", {place: tetrahedron(1 + i) for i, place in enumerate(places)})
    near = '<mujoco><asset><mesh name="c" file="near.obj"/></asset></mujoco>'
    other = MESH.replace("floor", "other floor").replace("ball", "other ball")
    put(
        tmp_path / "main/sub",
        {
            "meshdir.xml": '<mujoco><compiler meshdir="m"/></mujoco>',
            "near.xml": near,
            "further.xml": '<mujoco><include file="near2.xml"/></mujoco>',
            "near2.xml": near,
            "model.xml": mjcf(
                '<compiler meshdir="m"/>', asset('<mesh name="c" file="c.obj"/>'), other
            ),
        },
    )
    body = MESH
    if name is not None:
        body = asset(f'<mesh name="c" file="{name}"/>') + MESH
    if "model" in first:
        body = BALL + world('<frame><attach model="x" body="b" prefix="x"/></frame>')
    main = tmp_path / "main" / "main.xml"
    main.write_text(f"<mujoco>{first}{body}{last}</mujoco>")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = mujoco.MjModel.from_xml_path(str(main))
    scene = loaded(main)
    shutil.rmtree(tmp_path / "main")  # nothing is read later
    assert asked in scene.assets
    assert np.array_equal(scene.base.body_mass, expected.body_mass)


def test_two_files_of_one_name_are_told_apart_or_refused(tmp_path):
    meshes = asset('<mesh name="c" file="a/c.obj"/><mesh name="d" file="b/c.obj"/>')
    put(
        tmp_path,
        {
            "a/c.obj": tetrahedron(1),
            "b/c.obj": tetrahedron(2),
            "main.xml": f"<mujoco>{meshes}{MESH}</mujoco>",
        },
    )
    assert loaded(tmp_path / "main.xml").base.body("b").mass[0] == pytest.approx(1000 / 6, rel=1e-4)
    part = '<mujoco><asset><mesh name="%s" file="c.obj"/></asset></mujoco>'
    put(
        tmp_path,
        {
            "a/p.xml": part % "c",
            "b/q.xml": part % "d",
            "main.xml": mjcf('<include file="a/p.xml"/><include file="b/q.xml"/>', MESH),
        },
    )
    with pytest.raises(SceneError, match="rename one of them"):
        loaded(tmp_path / "main.xml")


def test_a_missing_file_is_named_with_where_it_was_looked_for(tmp_path):
    put(
        tmp_path,
        {
            "main.xml": f'<mujoco><include file="sub/p.xml"/>{MESH}</mujoco>',
            "sub/p.xml": mjcf('<compiler meshdir="m"/>', asset('<mesh name="c" file="c.obj"/>')),
        },
    )
    with pytest.raises(
        SceneError, match=r"'c.obj' \(<mesh>\), but there is no file 'm/c.obj' or 'sub/c.obj'"
    ):
        loaded(tmp_path / "main.xml")


def test_comments_may_hold_anything(tmp_path):
    comment = '<!-- ------ <include file="none.xml"/> & "quotes\' ----><!---->'
    put(
        tmp_path,
        {"main.xml": f'<?xml version="1.0" encoding="utf-16"?>\n<mujoco>{comment}{BALL}</mujoco>'},
    )
    assert loaded(tmp_path / "main.xml").base.ngeom == 2


def test_a_real_arm_comes_with_its_meshes(tmp_path):
    models = os.environ.get("CLASHSIM_MODELS")
    if not models or not (Path(models) / "kuka_iiwa_14").is_dir():
        pytest.skip("CLASHSIM_MODELS has no kuka_iiwa_14")
    shutil.copytree(Path(models) / "kuka_iiwa_14", tmp_path / "arm")
    put(tmp_path, {"arm/private/passport.png": b"secret"})
    found = scene_assets(tmp_path / "arm/scene.xml", (tmp_path / "arm/scene.xml").read_text())
    meshes = {f"assets/{p.name}" for p in (tmp_path / "arm/assets").iterdir()}
    assert set(found) == {"iiwa14.xml", *meshes} and len(meshes) == 13
    # From another folder: MuJoCo looks for meshes of an included file from the scene's own folder.
    include = '<include file="../arm/iiwa14.xml"/><compiler meshdir="../arm/assets"/>'
    frame = '<frame><attach model="arm" body="base" prefix="arm/"/></frame>'
    attach = asset('<model name="arm" file="../arm/iiwa14.xml"/>') + world(frame)
    option = (
        '<option integrator="implicitfast"/>'  # as the arm has it, so that MuJoCo has no warning
    )
    for text in (include, attach):
        put(tmp_path, {"mine/main.xml": mjcf(option, text, BALL)})
        scene = loaded(tmp_path / "mine/main.xml")
        assert set(scene.assets) == {"../arm/iiwa14.xml", *(f"../arm/{mesh}" for mesh in meshes)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert scene.base.nmesh == 13


def test_files_from_above_come_back_from_a_run_and_an_export(tmp_path, monkeypatch, capsys):
    made = tiny_run.calibration()
    scene = made.base.scene
    meshes = asset('<mesh name="extra" file="../meshes/c.obj"/><mesh name="far" file="%s"/>')
    away = tmp_path / "away" / "d.obj"
    xml = scene.xml.replace("<worldbody>", meshes % away + "<worldbody>", 1)
    put(
        tmp_path,
        {"scenes/main.xml": xml, "meshes/c.obj": tetrahedron(1), "away/d.obj": tetrahedron(2)},
    )
    assets = scene_assets(tmp_path / "scenes/main.xml", xml)
    scene = replace(scene, xml=xml, assets=assets)
    clashsim.save_run(tmp_path / "run", replace(made, base=replace(made.base, scene=scene)))
    shutil.rmtree(tmp_path / "meshes")
    again = clashsim.load(tmp_path / "run").scene
    assert again.assets == assets == {"../meshes/c.obj": tetrahedron(1), str(away): tetrahedron(2)}
    assert np.array_equal(again.base.mesh_vert, scene.base.mesh_vert) and again.base.nmesh == 2
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "run", "-o", "out"]) == 0
    assert f"not in it: {away}" in capsys.readouterr().out
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "manifest.json",
        "meshes",
        "ranges.json",
        "scene",
    ]
    assert mujoco.MjModel.from_xml_path("out/scene/scene.xml").nmesh == 2


# ---- what a scene that was loaded may read


def outside(secret: Path) -> dict[str, str]:
    """Scenes that name a file outside of their run, which is there."""
    away, up = str(secret), "../" * 30 + str(secret).lstrip("/")
    folder, name = str(secret.parent), secret.name
    encoded = "".join(f"&#{ord(letter)};" for letter in away)
    return {
        "include": f'<include file="{away}"/>',
        "include up": f'<include file="{up}"/>',
        "INCLUDE": f'<INCLUDE file="{away}"/>',
        "include in a body": world(f'<body><include file="{away}"/></body>'),
        "encoded": f'<include file="{encoded}"/>',
        "after a comment": f'<!-- <!-- --><include file="{away}"/><!-- -->',
        "model": asset(f'<model name="m" file="{away}"/>'),
        "mesh": asset(f'<mesh file="{away}"/>'),
        "mesh up": asset(f'<mesh file="{up}"/>'),
        "mesh backslash": asset(f'<mesh file="{up}"/>').replace("../", "..\\"),
        "meshdir": f'<compiler meshdir="{folder}"/><asset><mesh file="{name}"/></asset>',
        "assetdir": f'<asset><mesh file="{name}"/></asset><compiler assetdir="{folder}"/>',
        "texture": asset(f'<texture type="2d" file="{away}"/>'),
        "cube": asset(f'<texture fileback="{away}"/>'),
        "texturedir": f'<compiler texturedir="{folder}"/>'
        + asset(f'<texture type="2d" file="{name}"/>'),
        "hfield": asset(f'<hfield file="{away}" size="1 1 1 1"/>'),
        "skin": asset(f'<skin file="{away}"/>'),
        "flexcomp": world(f'<flexcomp name="f" type="mesh" file="{away}"/>'),
        "working folder": asset(f'<mesh file="{name}"/>'),
        "address": asset('<mesh file="http://example.org/c.obj"/>'),
    }


@pytest.mark.parametrize("case", outside(Path("/x")))
def test_a_loaded_scene_reads_no_file_outside_of_its_run(run, tmp_path, monkeypatch, case):
    secret = tmp_path / "secret.obj"
    secret.write_text(
        "<mujoco><worldbody/></mujoco>"
        if "nclude" in case or case == "model"
        else tetrahedron(1).decode()
    )
    monkeypatch.chdir(tmp_path)
    scene = tiny_run.calibration().base.scene
    xml = scene.xml.replace("</mujoco>", outside(secret)[case] + "</mujoco>")
    bad = tiny_run.rewritten(run, tmp_path / "bad", {"scene.xml": xml.encode()})
    with pytest.raises(SceneError, match="names") as error:
        clashsim.load(bad)
    assert "\n" not in str(error.value)
    with pytest.raises(SceneError, match="names"):  # nor does any other scene
        _ = replace(scene, xml=xml).spec


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><mujoco>&b;</mujoco>',
        '<!DOCTYPE m SYSTEM "http://example.org/m.dtd"><mujoco/>',
        '<mujoco model="<!--"><include file="/etc/hostname"/><text name="-->" data=""/></mujoco>',
        "<mujoco><!-- never ends </mujoco>",
        "<mujoco><worldbody></mujoco>",
        "<mujoco>" + "<a>" * 600,
        "",
    ],
)
def test_text_that_parsers_could_read_differently_is_refused(text):
    with pytest.raises(SceneError) as error:
        check_scene(text, {}, "s")
    assert "\n" not in str(error.value)


def test_files_that_contain_each_other_end():
    loop = b'<mujoco><asset><model name="m" file="a.xml"/></asset></mujoco>'
    with pytest.raises(SceneError, match="contains itself"):
        check_scene(loop.decode(), {"a.xml": loop}, "s")
    again = b'<mujoco><include file="a.xml"/></mujoco>'
    with pytest.raises(SceneError):
        parse_scene(again.decode(), {"a.xml": again}, "s")
    chain = {
        f"{i}.xml": f'<mujoco><include file="{i + 1}.xml"/></mujoco>'.encode() for i in range(2000)
    }
    with pytest.raises(SceneError, match="nests"):
        check_scene(chain["0.xml"].decode(), chain, "s")


# ---- what it may expand to


def nested(counts: list[int], inner: str) -> str:
    for count in counts:
        inner = f'<replicate count="{count}">{inner}</replicate>'
    return f"<worldbody>{inner}</worldbody>"


GEOMS = '<geom size="1"/>' * 20
MANY = f'<mujoco><worldbody><body name="b">{GEOMS}</body></worldbody></mujoco>'.encode()
TWICE = mjcf(asset('<model name="a" file="{0}.xml"/><model name="b" file="{0}.xml"/>'))
LARGE = {
    "replicate": nested([3_000_000], '<geom size="1"/>'),
    "nested": nested([2] * 20, '<geom size="1"/>'),
    "no end": nested([10**9] * 100, '<geom size="1"/>'),
    "digits": nested([10**3000], '<geom size="1"/>'),
    "include": world('<replicate count="400"><include file="many.xml"/></replicate>'),
    "sensors": nested([200], '<site name="s"/>')
    + "<sensor>"
    + '<framepos objtype="site" objname="s"/>' * 30
    + "</sensor>",
    "attach": asset('<model name="m" file="many.xml"/>')
    + nested([300], '<frame><attach model="m" body="b" prefix="p"/></frame>'),
    "sensors of attached": asset('<model name="m" file="many.xml"/>')
    + nested([90], '<attach model="m" body="b" prefix="p"/>')
    + "<sensor>"
    + '<framepos objtype="body" objname="pb"/>' * 60
    + "</sensor>",
    "model files": asset('<model file="m19.xml"/>'),
    "flexcomp": world('<flexcomp name="f" count="100 100 100" dim="3"/>'),
    "flexcomp default": nested([2], '<flexcomp name="f" dim="3"/>'),
    "flexcomp cells": world(
        '<flexcomp name="f" count="3 3 3" cellcount="30 30 30" dim="3" dof="trilinear"/>'
    ),
    "flexcomp file": world('<flexcomp name="f" type="mesh" file="points.obj"/>'),
    "flexcomp mesh": asset('<mesh name="p" file="points.obj"/>')
    + world('<flexcomp name="f" mesh="p"/>'),
}
HEAVY = {
    "texture": asset('<texture name="t" type="2d" builtin="flat" width="60000" height="60000"/>'),
    "cube": asset('<texture name="t" type="cube" builtin="flat" width="20000" height="2"/>'),
    "default texture": '<default><texture width="12000" height="12000" type="2d"/></default><asset>'
    + '<texture builtin="flat"/>' * 9
    + "</asset>",
    "picture": asset('<texture type="2d" file="large.png"/>'),
    "hfield": asset('<hfield name="h" nrow="30000" ncol="30000" size="1 1 1 1"/>'),
    "hfield picture": asset('<hfield name="h" file="large.png" size="1 1 1 1"/>'),
    "mesh": asset('<mesh name="m" builtin="supertorus" params="3000 1 1 1"/>'),
    "camera": world('<camera resolution="20000 20000"/>'),
    "cameras": nested([300], '<camera resolution="1000 1000"/>'),
    "touch": '<sensor><plugin><config key="size" value="10000 10000"/></plugin></sensor>',
    "user": '<size nuser_geom="100000000"/>',
    "userdata": '<size nuserdata="2000000000"/>',
    "keys": '<size nkey="100000000"/>',
    "memory": '<size memory="100G"/>',
}
FILES = {
    "many.xml": MANY,
    "points.obj": b"v 0 0 0\n" * 5000,
    "large.png": PNG + struct.pack(">II", 40_000, 40_000),
    "m0.xml": b"<mujoco><worldbody/></mujoco>",
    **{f"m{i}.xml": TWICE.format(f"m{i - 1}").encode() for i in range(1, 20)},
}


@pytest.mark.parametrize("case", LARGE)
def test_scenes_that_expand_without_bound_are_refused_before_they_are_built(case):
    with pytest.raises(SceneError, match=r"expands to (\d|more).* at most 5,000") as error:
        check_scene(f"<mujoco>{LARGE[case]}{BALL}</mujoco>", FILES, "s")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", HEAVY)
def test_scenes_that_reserve_without_bound_are_refused_before_they_are_built(case):
    with pytest.raises(SceneError, match=r"asks for .* bytes"):
        check_scene(f"<mujoco>{HEAVY[case]}{BALL}</mujoco>", FILES, "s")


def test_the_bound_holds_when_a_run_is_loaded(run, tmp_path):
    xml = tiny_run.calibration().base.scene.xml.replace(
        "</mujoco>", LARGE["replicate"] + "</mujoco>"
    )
    with pytest.raises(ClashError, match="expands to 3,000,000"):
        clashsim.load(tiny_run.rewritten(run, tmp_path / "bad", {"scene.xml": xml.encode()}))


def test_usual_scenes_are_far_from_the_bounds():
    text = (
        nested([10, 10], '<body pos="0 0 3"><freejoint/><geom size=".1"/></body>')
        + '<size memory="64M"/>'
    )
    text += asset('<texture type="skybox" builtin="gradient" width="512" height="3072"/>')
    text += world('<flexcomp name="f" count="5 5 5" dim="3" mass="1"/>')
    spec = parse_scene(f"<mujoco>{text}{BALL}</mujoco>", {}, "s")
    assert len(spec.geoms) > 100
    written = '<geom size="1"/>' * (2 * MAX_ELEMENTS)  # what is written out is as long as it is
    check_scene(f"<mujoco><worldbody>{written}</worldbody></mujoco>", {}, "s")
