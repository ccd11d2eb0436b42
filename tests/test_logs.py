"""The same motion through every format gives the same trials, and a laboratory's own logs become
trials through one mapping file.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.data import logs, trial_files
from clashsim.data.checks.findings import FINDING_NAMES
from clashsim.data.readers import mapping
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from log_writers import EPOCH, WRITERS, T, motion, write, write_csv, write_vectors

EXAMPLE = Path(__file__).parents[1] / "examples" / "lasa_raw.toml"


@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_motion_through_every_format(tmp_path, kind):
    poses = motion()
    path, how = write(kind, tmp_path, T, poses)
    got = logs.read_logs([path], mapping=how)
    assert not got.findings, [str(f) for f in got.findings]
    (trial,) = got.trials
    assert trial.name == ("episode_000000" if "lerobot" in kind else "motion")
    assert trial.source == "real"
    assert set(trial.poses) == {"box", "tool"}
    assert np.abs(trial.t - T).max() < 1e-6
    for body, pose in poses.items():
        assert np.abs(trial.poses[body] - pose).max() < 1e-6, body


@pytest.mark.parametrize("kind", ["csv", "parquet", "vectors", "matrices", "numbered", "lerobot"])
def test_a_guess_reads_the_same(tmp_path, kind):
    poses = motion()
    path, _ = write(kind, tmp_path, T, poses)
    guessed = logs.guess_mapping([path])
    assert mapping.loads(mapping.dump(guessed)) == guessed
    (trial,) = logs.read_logs([path], guess=True).trials
    for body, pose in poses.items():
        assert np.abs(trial.poses[body] - pose).max() < 1e-6, body


@pytest.mark.parametrize("order", ["XYZ", "ZXY", "YZX"])
def test_motive_with_angles_and_millimetres(tmp_path, order):
    poses = motion()
    path, _ = write("motive", tmp_path, T, poses)
    lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    rows[0] = [{"Quaternion": order, "Meters": "Millimeters"}.get(cell, cell) for cell in rows[0]]
    names = rows[3]
    kinds = rows[5]

    def columns_of(body, kind):
        return [j for j in range(len(names)) if names[j] == body and kinds[j] == kind]

    dropped = set()
    for body in poses:
        rotation = columns_of(body, "Rotation")  # x, y, z, w
        dropped.add(rotation[3])
        for row in rows[7:]:
            quaternion = Rotation.from_quat([float(row[j]) for j in rotation])
            angles = quaternion.as_euler(order, degrees=True)
            for axis, angle in zip(order, angles, strict=True):
                row[rotation["XYZ".index(axis)]] = repr(float(angle))
            for j in columns_of(body, "Position"):
                row[j] = repr(1e3 * float(row[j]))
    lines = [",".join(rows[0])]
    for row in rows[1:]:
        lines.append(",".join(cell for j, cell in enumerate(row) if j not in dropped))
    path.write_text("\n".join(lines))
    got = logs.read_logs([path])
    assert not got.findings
    for body, pose in poses.items():
        assert np.abs(got.trials[0].poses[body] - pose).max() < 1e-6


def test_a_table_without_a_mapping_is_refused(tmp_path):
    write_csv(tmp_path / "a.csv", T, motion())
    with pytest.raises(DataError, match="needs a mapping"):
        logs.read_logs([tmp_path / "a.csv"])


def test_header_fields_known_and_offset(tmp_path):
    how = write_vectors(tmp_path / "a b.csv", T, motion())
    how = LogMapping(how.logs, known={"table": 0.7})
    (trial,) = logs.read_logs([tmp_path / "a b.csv"], mapping=how).trials
    assert trial.name == "a b" and trial.known == {"mass": 0.4, "table": 0.7}


def test_angles_and_the_plane(tmp_path):
    yaw = np.linspace(0, 2, 50) + 1e-4 * np.random.default_rng(0).normal(size=50)
    lines = ["t,x,y,theta"]
    for t, angle in zip(np.arange(50) / 100, yaw, strict=True):
        lines.append(f"{t:.4f},{t},{2 * t},{float(np.degrees(angle))!r}")
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    puck = BodyMapping("puck", ("x", "y"), yaw="theta")
    how = LogMapping((LoggerMapping((puck,), time="t", units={"angle": "deg"}),))
    (trial,) = logs.read_logs([tmp_path / "a.csv"], mapping=how).trials
    pose = trial.poses["puck"]
    read_yaw = 2 * np.arctan2(pose[:, 6], pose[:, 3])
    assert np.abs(read_yaw - yaw).max() < 1e-12 and (pose[:, 2] == 0).all()
    guessed = logs.guess_mapping([tmp_path / "a.csv"])
    assert guessed.logs[0].units["angle"] == "deg" and guessed.logs[0].bodies[0].yaw == "theta"


@pytest.mark.parametrize("up", mapping.UP_AXES)
def test_up(tmp_path, up):
    """A body that rises and turns along the file's up rises and turns along z."""
    axis = "xyz".index(up[-1])
    sign = -1.0 if up[0] == "-" else 1.0
    t = np.arange(40) / 100
    position = np.zeros((40, 3))
    position[:, axis] = sign * (0.1 + 0.2 * t)
    quaternion = np.zeros((40, 4))
    quaternion[:, 0] = np.cos(t)
    quaternion[:, 1 + axis] = sign * np.sin(t)
    np.savez(tmp_path / "a.npz", t=t, p=position, q=quaternion)
    body = BodyMapping("b", ("p",), quaternion=("q",))
    how = LogMapping((LoggerMapping((body,), time="t", up=up),))
    (trial,) = logs.read_logs([tmp_path / "a.npz"], mapping=how).trials
    expected = np.column_stack([0 * t, 0 * t, 0.1 + 0.2 * t, np.cos(t), 0 * t, 0 * t, np.sin(t)])
    assert np.abs(trial.poses["b"] - expected).max() < 1e-12


def two_loggers(folder: Path, number: int, *, shift: float = 0.0) -> LogMapping:
    """Box and tool by loggers of their own, with times of their own, 60 rows each."""
    poses = motion(number)
    loggers = []
    for body, delay in (("box", 0.0), ("tool", 0.0013 + shift)):
        lines = ["clock,x,y,z,qw,qx,qy,qz"]
        for t, pose in zip(T[:60], poses[body], strict=False):
            lines.append(",".join(repr(float(value)) for value in (EPOCH + t + delay, *pose)))
        (folder / f"{body}_log_{number}.csv").write_text("\n".join(lines) + "\n")
        columns = BodyMapping(body, ("x", "y", "z"), quaternion=("qw", "qx", "qy", "qz"))
        files = f"{body}_log_{{trial}}.csv"
        loggers.append(LoggerMapping((columns,), files=files, time="clock"))
    return LogMapping(tuple(loggers))


def test_two_loggers_are_joined_without_loss(tmp_path):
    for number in (10, 9):
        how = two_loggers(tmp_path, number)
    trials = logs.read_logs([tmp_path], mapping=how).trials
    assert [t.name for t in trials] == ["9", "10"]
    for trial in trials:
        assert len(trial.t) == 120 and trial.t[0] == 0
        for body, delay in (("box", 0.0), ("tool", 0.0013)):
            t, pose = trial.seen(body)
            assert np.abs(t - T[:60] - delay).max() < 1e-6
            assert np.abs(pose - motion(int(trial.name))[body][:60]).max() < 1e-12


def test_loggers_without_a_partner_or_a_common_time(tmp_path):
    how = two_loggers(tmp_path, 1, shift=100.0)
    with pytest.raises(DataError, match="clocks"):
        logs.read_logs([tmp_path], mapping=how)
    (tmp_path / "tool_log_1.csv").unlink()
    with pytest.raises(DataError, match="missing_log"):
        logs.read_logs([tmp_path], mapping=how)
    assert logs.read_logs([tmp_path], mapping=how, accept=["missing_log"]).trials.bodies == ("box",)
    (tmp_path / "other.csv").write_text("a\n")
    with pytest.raises(DataError, match="fits none of the patterns"):
        logs.read_logs([tmp_path / "other.csv"], mapping=how)


def test_loggers_in_folders_of_their_own(tmp_path):
    for body in ("box", "tool"):
        (tmp_path / body).mkdir()
    how = two_loggers(tmp_path, 3)
    for body in ("box", "tool"):
        (tmp_path / f"{body}_log_3.csv").rename(tmp_path / body / f"{body}_log_3.csv")
    (trial,) = logs.read_logs([tmp_path], mapping=how).trials
    assert trial.name == "3" and set(trial.poses) == {"box", "tool"}


def test_files_of_one_name_in_two_folders_and_links(tmp_path):
    for session in ("monday", "tuesday"):
        (tmp_path / session).mkdir()
        how = write_csv(tmp_path / session / "hit 1.csv", T, motion())
    (tmp_path / "wednesday").mkdir()
    (tmp_path / "wednesday" / "hit 1.csv").symlink_to(tmp_path / "monday" / "hit 1.csv")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "lost.csv").symlink_to(tmp_path / "nowhere.csv")
    assert [t.name for t in logs.read_logs([tmp_path], mapping=how).trials] == [
        "monday/hit 1",
        "tuesday/hit 1",
        "wednesday/hit 1",
    ]
    with pytest.raises(DataError, match="there is no file"):
        logs.read_logs([tmp_path / "lost.csv"], mapping=how)


def test_archives_give_the_same(tmp_path):
    import gzip

    how = write_csv(tmp_path / "a.csv", T, motion())
    (plain,) = logs.read_logs([tmp_path / "a.csv"], mapping=how).trials
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "a.csv", "deep/a.csv")
        archive.writestr("notes.md", "no log")
        archive.writestr("../../escape.csv", "t,x\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    deep = LoggerMapping(how.logs[0].bodies, files="deep/{trial}.csv", time="time")
    (inside,) = logs.read_logs([tmp_path / "a.zip"], mapping=LogMapping((deep,))).trials
    (packed,) = logs.read_logs([tmp_path / "a.csv.gz"], mapping=how).trials
    expected = trial_files.to_bytes(logs.Trials((plain,)))
    for other in (inside, packed):
        assert trial_files.to_bytes(logs.Trials((other,))) == expected
    assert not (tmp_path.parent.parent / "escape.csv").exists()


def test_lasa_raw():
    root = os.environ.get("CLASHSIM_DATA")
    if not root or not (Path(root) / "lasa_raw" / "raw_hits.zip").is_file():
        pytest.skip(
            "the raw strikes of epfl-lasa/air_hockey are not at hand;"
            " set CLASHSIM_DATA to the folder that holds lasa_raw/raw_hits.zip"
        )
    archive = Path(root) / "lasa_raw" / "raw_hits.zip"
    got = logs.read_logs([archive], mapping=mapping.load(EXAMPLE))
    assert got.trials.bodies == ("box", "tool")
    with zipfile.ZipFile(archive) as files:
        assert len(got.trials) == len(files.namelist()) // 2
    assert {f.severity for f in got.findings} == {"warn"} and {f.name for f in got.findings} <= {
        "time_gap",
        "repeated_frames",
    }
    for trial in got.trials:
        t_box, box = trial.seen("box")
        t_tool, _ = trial.seen("tool")
        assert abs(t_box[0] - t_tool[0]) < 1e-3 and len(t_box) > 300 and len(t_tool) > 150
        assert (
            0.5 < trial.known["desired_flux"] < 1
            and t_tool[0] < trial.known["hit_time"] < t_tool[-1]
        )
        # The box stands still until it is struck, at the time the robot's logger calls the hit, and
        # then moves along +y.
        moved = t_box[np.argmax(np.linalg.norm(box[:, :3] - box[0, :3], axis=1) > 0.005)]
        assert abs(moved - trial.known["hit_time"]) < 0.1 and box[-1, 1] - box[0, 1] > 0.1
        assert np.ptp(box[:, 2]) < 0.02 and trial.signals["joint_position"].shape == (
            len(trial.t),
            7,
        )


def test_the_example_is_written_and_read_back():
    how = mapping.load(EXAMPLE)
    assert mapping.loads(mapping.dump(how)) == how and [log.bodies[0].name for log in how.logs] == [
        "box",
        "tool",
    ]


def test_a_guess_finds_what_is_up(tmp_path):
    t = np.arange(100) / 200
    height = 1.5 - 0.5 * 9.81 * t**2 + 5e-5 * np.random.default_rng(0).normal(size=100)
    rows = "".join(
        f"{1e3 * a},200.5,{1e3 * b},-30\n" for a, b in zip(t.tolist(), height.tolist(), strict=True)
    )
    (tmp_path / "a.csv").write_text("time_ms,cube.x [mm],cube.y [mm],cube.z [mm]\n" + rows)
    got = logs.read_logs([tmp_path / "a.csv"], guess=True)
    (log,) = got.mapping.logs
    assert (log.up, dict(log.units), log.bodies[0].name) == (
        "y",
        {"time": "ms", "length": "mm"},
        "cube",
    )
    assert np.abs(got.trials[0].poses["cube"][:, 2] - height).max() < 1e-9 and [
        f.name for f in got.findings
    ] == ["no_orientation"]


def test_frames_that_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text(
        "frame,x,y\n" + "".join(f"{k},{0.1 * k},1\n" for k in (10, 11, 13))
    )
    how = LogMapping((LoggerMapping((BodyMapping("a", ("x", "y")),), time="frame", rate=100.0),))
    assert np.allclose(
        logs.read_logs([tmp_path / "a.csv"], mapping=how).trials[0].t, [0, 0.01, 0.03]
    )


def test_a_guess_does_not_take_frames_for_times(tmp_path):
    (tmp_path / "a.csv").write_text(
        "Frame,x,y\n" + "".join(f"{k},{0.1 * k},1\n" for k in range(20))
    )
    with pytest.raises(DataError, match=r"counts frames.*--rate"):
        logs.guess_mapping([tmp_path / "a.csv"])
    guessed = logs.guess_mapping([tmp_path / "a.csv"], rate=120.0)
    assert guessed.logs[0].rate == 120
    (trial,) = logs.read_logs([tmp_path / "a.csv"], guess=True, rate=120.0).trials
    assert trial.t[-1] == pytest.approx(19 / 120)
    (tmp_path / "b.csv").write_text(
        "time_ms,x,y\n" + "".join(f"{k},{0.1 * k},1\n" for k in range(20))
    )
    # A thousand frames per second.
    assert logs.guess_mapping([tmp_path / "b.csv"]).logs[0].units["time"] == "ms"


def test_a_guess_finds_what_is_up_from_a_slide_on_a_table(tmp_path):
    t = np.linspace(0, 1, 120)
    rng = np.random.default_rng(0)

    def noise():
        return rng.normal(0, 1e-4, 120)

    def write_rotation_about_y(path, position, angle):
        quaternion = [np.cos(angle / 2), 0 * t, np.sin(angle / 2), 0 * t]
        rows = np.column_stack([t, *position, *quaternion])
        np.savetxt(path, rows, delimiter=",", header="t,x,y,z,qw,qx,qy,qz", comments="")

    slides = [0.1 * t + noise(), 0.02 + noise(), 0.02 * t + noise()]
    write_rotation_about_y(tmp_path / "a.csv", slides, 0.4 * t)
    assert logs.guess_mapping([tmp_path / "a.csv"]).logs[0].up == "y"
    rolls_along_x = [slides[0], noise(), 0.02 + noise()]
    write_rotation_about_y(tmp_path / "b.csv", rolls_along_x, 10 * t)
    assert logs.guess_mapping([tmp_path / "b.csv"]).logs[0].up == ""


def test_the_documents_mapping_is_one_and_its_findings_are_all():
    text = (EXAMPLE.parents[1] / "docs" / "logs.md").read_text()
    how = mapping.loads(text.split("```toml\n")[1].split("```")[0])
    assert how.logs[0].bodies[0].name == "box" and mapping.loads(mapping.dump(how)) == how
    assert all(f"`{name}`" in text for name in FINDING_NAMES)


def test_a_guess_reads_decimal_commas_between_semicolons(tmp_path):
    rows = [f"{k / 100:.2f};{k / 7:.3f};{k / 9:.3f}".replace(".", ",") for k in range(20)]
    rows[3] = "0,03;;"  # not seen
    (tmp_path / "a.csv").write_text("t;box x;box y\n" + "\n".join(rows))
    (trial,) = logs.read_logs([tmp_path / "a.csv"], guess=True).trials
    position = dict(zip(trial.t.round(2), trial.poses["box"][:, 0], strict=True))
    assert position[0.14] == 2 and np.isnan(position.get(0.03, np.nan))


def test_a_guess_finds_slides_by_their_names(tmp_path):
    rows = "\n".join(f"{k / 100:.2f},{k},{k / 2},{k}" for k in range(20))
    (tmp_path / "a.csv").write_text("t,flap_hinge_deg,finger_slide_mm,rail\n" + rows)
    (found,) = logs.guess_mapping([tmp_path / "a.csv"]).logs
    assert found.joints == {"flap_hinge": "flap_hinge_deg"}
    assert found.slides == {"finger_slide": "finger_slide_mm", "rail": "rail"}
