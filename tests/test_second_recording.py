"""A run is tested on a second recording: `judge_run`, `clashsim show --impacts`, `read_impacts`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.core.contact_frame import inertia
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.calibrate import calibrate
from clashsim.fit.run_folder import save_run
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from tiny_run import calibration, write_run

RAILS = """<mujoco><worldbody>
<body name="block"><joint name="bx" type="slide" axis="1 0 0"/>
<joint name="by" type="slide" axis="0 1 0"/><joint name="bw" axis="0 0 1"/>
<geom name="block" type="box" size=".04 .06 .03" mass=".4"/></body>
<body name="cart"><joint name="rail_x" type="slide" axis="1 0 0"/>
<inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
<body name="tool"><joint name="rail_y" type="slide" axis="0 1 0"/>
<geom name="tool" type="sphere" size=".02" mass=".5"/></body></body>
</worldbody></mujoco>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, the impacts that it was fitted to, and others."""
    path = tmp_path_factory.mktemp("second")
    write_run(path / "run")
    scene = calibration().base.scene
    for name, seed in (("four", 1), ("second", 2)):
        n = 4 if name == "four" else 9
        impacts = replace(sample(scene, n, seed), theta=None, end_counts={})
        write_impacts(path / f"{name}.csv", impacts)
        write_impacts(path / f"{name}.safetensors", impacts)
    return path


def test_show_tests_a_run_on_a_second_file(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["show", str(folder / "run"), "--impacts", str(folder / "second.csv")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Accuracy on 9 impacts of second.csv" in text
    for name in ("MuJoCo, nominal", "MuJoCo, identified", "clashsim"):
        assert name in text
    assert "in the 68% interval" in text and "in the 90% interval" in text
    assert "this is no test" not in text
    test = clashsim.judge_run(clashsim.load(folder / "run"), folder / "second.csv")
    scene = calibration().base.scene
    predicted = calibration().predict(test.impacts)
    gyration = inertia(scene, scene.struck_body).gyration
    error = relative_error(predicted, test.impacts.after, gyration)
    assert test.models["clashsim"]["median"] == pytest.approx(np.median(error), rel=1e-6)
    assert test.inside is not None and (test.inside >= 0).all() and (test.inside <= 1).all()


def test_what_is_no_test_is_said(folder: Path, capsys: pytest.CaptureFixture) -> None:
    fitted = str(folder / "four.safetensors")
    assert cli.main(["show", str(folder / "run"), "--impacts", fitted]) == 0
    assert "this is no test" in capsys.readouterr().out


def test_rows_that_cannot_be_used_are_named(folder: Path, capsys: pytest.CaptureFixture) -> None:
    impacts = clashsim.read_impacts(folder / "second.csv")
    before = impacts.before.copy()
    before[2, 0] = np.nan
    before[5, 6:8] += 3.0  # passes by
    path = folder / "rows.csv"
    write_impacts(path, replace(impacts, before=before))
    test = clashsim.judge_run(clashsim.load(folder / "run"), path)
    assert list(test.numbers) == [0, 1, 3, 4, 6, 7, 8]
    assert len(test.left_out) == 2
    assert cli.main(["show", str(folder / "run"), "--impacts", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "lack a number" in text and "(2)" in text
    assert "do not meet (5)" in text


def test_bad_input_is_refused_in_a_sentence(folder: Path, capsys: pytest.CaptureFixture) -> None:
    run = str(folder / "run")
    (folder / "columns.csv").write_text("vel_x,vx,vx_after\n1,1,1\n")
    space = folder / "space.csv"
    space.write_text("x,y,z,qw,vx,vz,vx_after,vz_after\n0,0,0.1,1,0.1,-1,0.2,1\n")
    for arguments, words in (
        (["--impacts", str(folder / "none.csv")], "there is no file"),
        (["--impacts", str(folder / "columns.csv")], "unknown column 'vel_x'"),
        (["--impacts", str(space)], "recorded in space"),
        (["--impacts", str(folder / "second.csv"), "--accept", "nothing"], "no finding called"),
        (["--accept", "swapped"], "give --impacts"),
    ):
        assert cli.main(["show", run, *arguments]) == 2, arguments
        assert words in capsys.readouterr().err


def test_joints_of_a_second_file_are_read_for_a_run(tmp_path: Path) -> None:
    scene = Scene(RAILS, "block", "tool", name="rails")
    assert scene.plane is not None
    impacts = replace(sample(scene, 12, 0), theta=None, end_counts={})
    model = SolvedModel(scene)
    impacts = Impacts(True, impacts.before, model.predict(impacts, scene.nominal))
    save_run(tmp_path / "run", calibrate(model, impacts[np.arange(8)]))
    second = impacts[np.arange(8, 12)]
    lines = ["x,y,yaw,vx_after,vy_after,w_after,rail_x,rail_y,rail_x_velocity,rail_y_velocity"]
    striker = second.motion.striker
    for row in range(4):
        numbers = [*second.pose[row], *second.after[row], *striker.position[row]]
        lines.append(",".join(map(repr, map(float, [*numbers, *striker.velocity[row]]))))
    (tmp_path / "joints.csv").write_text("\n".join(lines))
    run = clashsim.load(tmp_path / "run")
    read = run.read_impacts(tmp_path / "joints.csv")
    assert list(read.joints) == ["rail_x", "rail_y"]
    assert np.allclose(read.motion.striker.velocity, striker.velocity)
    mean, std = run.calibration.predict_with_std(read)
    assert np.allclose(mean, run.calibration.predict(second), atol=1e-4)
    assert (std > 0).all()
    test = clashsim.judge_run(run, tmp_path / "joints.csv")
    assert np.allclose(test.predictions.predicted["clashsim"], mean)
    (tmp_path / "pairs.csv").write_text(
        "struck,striker,vx,vx_after\nblock,tool,1,0\nblock,wall,1,0\n"
    )
    with pytest.raises(DataError, match="several pairs"):
        run.read_impacts(tmp_path / "pairs.csv")
