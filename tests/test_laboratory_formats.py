"""Qualisys, rotation matrices, numbered quaternions, LeRobot datasets, and forces in bags."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim import cli
from clashsim.core.errors import DataError
from clashsim.data import logs, trial_files
from clashsim.data.readers import mapping
from clashsim.data.readers.bag_records import Message
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from clashsim.data.readers.ros_messages import wrench_in
from log_writers import (
    T,
    motion,
    write_force_bag,
    write_lerobot,
    write_numbered,
    write_qualisys,
)

EXAMPLES = Path(__file__).parents[1] / "examples" / "formats"


def test_matrices_of_qualisys_are_its_roll_pitch_and_yaw(tmp_path):
    """Which are not read, for their meaning is an option of the program.

    That the nine numbers are the matrix's columns, and angles those about X, Y and Z of the body,
    was checked on a file that Qualisys Track Manager wrote (shiplab/dt_cv on GitHub,
    data/basin/raw/M510A-IRR-EKFPID-020019_6D.tsv).
    """
    out = tmp_path / "a.safetensors"
    assert cli.main(["import", str(EXAMPLES / "qualisys_6d.tsv"), "-o", str(out)]) == 0
    (trial,) = trial_files.read_trials(out)
    rows = (EXAMPLES / "qualisys_6d.tsv").read_text().splitlines()[11:]
    cells = np.array([row.split("\t")[:-1] for row in rows], float)
    for first, body in ((2, "box"), (18, "tool")):
        pose = trial.poses[body]
        rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True)
        angles = rotation.as_euler("XYZ", degrees=True)
        assert pose[:, :3] == pytest.approx(cells[:, first : first + 3] / 1e3, abs=1e-9)
        assert angles == pytest.approx(cells[:, first + 3 : first + 6], abs=2e-3)


def test_five_digits_and_frames_in_which_a_body_was_not_found(tmp_path):
    poses = motion()
    write_qualisys(tmp_path / "a.tsv", T, poses, digits=5)
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    row = lines[40].split("\t")
    lines[40] = "\t".join([*row[:2], *["0.00000"] * 16, *row[18:]])  # the first body
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    got = logs.read_logs([tmp_path / "a.tsv"], accept=["dropout"])
    (trial,) = got.trials
    seen = np.isfinite(trial.poses["box"]).all(1)
    assert (~seen).sum() == 1 and not seen[29]
    for body, pose in poses.items():
        rows = np.isfinite(trial.poses[body]).all(1)
        assert np.abs(trial.poses[body] - pose)[rows].max() < 2e-5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("DATA_INCLUDED\t6D", "DATA_INCLUDED\t3D", "3D data, where 6D"),
        ("BODY_NAMES\tbox\ttool", "BODY_NAMES", "names no rigid bodies"),
        ("BODY_NAMES\tbox\ttool", "BODY_NAMES\tbox\tbox", "both called 'box'"),
        ("BODY_NAMES\tbox\ttool", "BODY_NAMES\tbox\tlid", "'lid' has no column X"),
        ("Rot[8]\t\r\n", "\t\r\n", "has no column Rot"),
        ("Frame\tTime\t", "Bild\tZeit\t", "no column Frame or Time"),
        ("FREQUENCY\t200\r\n", "", None),
    ],
)
def test_exports_of_qualisys_that_are_refused(tmp_path, old, new, words):
    write_qualisys(tmp_path / "a.tsv", T, motion())
    text = (tmp_path / "a.tsv").read_bytes().decode()
    assert old in text
    (tmp_path / "a.tsv").write_bytes(text.replace(old, new).encode())
    if words is None:
        assert logs.read_logs([tmp_path / "a.tsv"]).trials
        return
    with pytest.raises(DataError, match=words):
        logs.read_logs([tmp_path / "a.tsv"])


def test_times_from_frames_and_the_rate(tmp_path):
    write_qualisys(tmp_path / "a.tsv", T, motion())
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    without_time = [
        "\t".join([line.split("\t")[0], *line.split("\t")[2:]]) if i >= 10 else line
        for i, line in enumerate(lines)
    ]
    (tmp_path / "a.tsv").write_text("\n".join(without_time))
    (trial,) = logs.read_logs([tmp_path / "a.tsv"]).trials
    assert np.abs(trial.t - T).max() < 1e-9
    text = (tmp_path / "a.tsv").read_text().replace("FREQUENCY\t200", "FREQUENCY\tEXT")
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match="FREQUENCY should be the rate"):
        logs.read_logs([tmp_path / "a.tsv"])


def rotation_log(folder: Path, matrices: np.ndarray, **body: object) -> LogMapping:
    arrays = {"t": np.arange(len(matrices)) / 100, "p": np.zeros((len(matrices), 3))}
    np.savez(folder / "a.npz", r=matrices.reshape(-1, 9), **arrays)
    mapped = BodyMapping("b", ("p",), matrix=("r",), **body)  # type: ignore[arg-type]
    return LogMapping((LoggerMapping((mapped,), time="t"),))


def test_rotation_matrices_by_rows_and_columns(tmp_path):
    rotation = Rotation.random(30, random_state=np.random.default_rng(0))
    quaternions = rotation.as_quat(scalar_first=True, canonical=True)
    for order, matrices in (
        ("rows", rotation.as_matrix()),
        ("columns", rotation.as_matrix().transpose(0, 2, 1)),
    ):
        how = rotation_log(tmp_path, matrices, matrix_order=order)
        assert mapping.loads(mapping.dump(how)) == how
        got = logs.read_logs([tmp_path / "a.npz"], mapping=how, accept=["up_axis"])
        read = got.trials[0].poses["b"][:, 3:]
        assert np.abs(np.abs((read * quaternions).sum(1)) - 1).max() < 1e-12


def test_nine_numbers_that_are_no_rotation(tmp_path):
    matrices = Rotation.random(30, random_state=np.random.default_rng(0)).as_matrix()
    how = rotation_log(tmp_path, matrices * [1, 1, -1])
    with pytest.raises(DataError, match="mirror images"):
        logs.read_logs([tmp_path / "a.npz"], mapping=how)
    how = rotation_log(tmp_path, 3 * matrices)
    with pytest.raises(DataError, match="no rotation matrices"):
        logs.read_logs([tmp_path / "a.npz"], mapping=how)
    with pytest.raises(DataError, match="matrix_order 'diagonal'"):
        mapping.loads(mapping.dump(rotation_log(tmp_path, matrices, matrix_order="diagonal")))


def test_the_order_of_numbered_quaternions_is_asked_for_where_it_does_not_show(tmp_path, capsys):
    """Bodies at half a turn have a first and a last number of the same size."""
    poses = motion()
    half = Rotation.from_rotvec([0.5 * np.pi, 0, 0])
    for pose in poses.values():
        pose[:, 3:] = half.as_quat(scalar_first=True) + 1e-3 * pose[:, 3:]
        pose[:, 3:] = [np.cos(1.0), 0.0, 0.0, np.sin(1.0)]
        pose[:, 3:] = np.full(4, 0.5)
    write_numbered(tmp_path / "a.csv", T, poses)
    log = str(tmp_path / "a.csv")
    assert cli.main(["import", log, "--guess"]) == 2
    assert "--order wxyz or --order xyzw" in capsys.readouterr().err
    assert cli.main(["import", log, "--guess", "--order", "xyzw"]) == 0
    assert 'order = "xyzw"' in capsys.readouterr().out
    out = str(tmp_path / "a.safetensors")
    assert cli.main(["import", log, "--guess", "--order", "abcd", "-o", out]) == 2
    assert "choices: wxyz, xyzw" in capsys.readouterr().err
    assert cli.main(["import", log, "--order", "wxyz", "-o", out]) == 2
    assert "--guess" in capsys.readouterr().err


def test_seven_numbered_columns_are_joints_and_not_a_quaternion(tmp_path):
    t = np.arange(50) / 100
    columns = {f"q{i}": np.sin(t + i) for i in range(1, 8)}
    header = ",".join(["t", *columns])
    rows = np.column_stack([t, *columns.values()])
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header=header, comments="")
    guessed = logs.guess_mapping([tmp_path / "a.csv"])
    assert list(guessed.logs[0].joints) == list(columns) and not guessed.logs[0].bodies


@pytest.mark.parametrize("version", [2, 3])
def test_each_episode_of_a_lerobot_dataset_is_a_trial(tmp_path, version, capsys):
    poses = motion()
    dataset = tmp_path / "push"
    write_lerobot(dataset, T, poses, version=version, episodes=3)
    out = tmp_path / "push.safetensors"
    assert cli.main(["import", str(dataset), "--guess", "-o", str(out)]) == 0
    trials = trial_files.read_trials(out)
    assert [trial.name for trial in trials] == [f"episode_{i:06d}" for i in range(3)]
    for trial in trials:
        assert np.abs(trial.poses["box"] - poses["box"]).max() < 1e-6
    # Beside other logs in a folder, it is one recording.
    assert len(logs.read_logs([tmp_path], guess=True).trials) == 3


def test_a_dataset_of_lerobots_own_library():
    """Written by LeRobotDataset.create, add_frame and save_episode of lerobot 0.4.4, in float32."""
    imported = logs.read_logs([EXAMPLES / "lerobot"], guess=True)
    assert [trial.name for trial in imported.trials] == ["episode_000000", "episode_000001"]
    for trial in imported.trials:
        assert np.abs(trial.t - T[: len(trial.t)]).max() < 1e-6
        for body, pose in motion().items():
            assert np.abs(trial.poses[body] - pose[:40]).max() < 1e-6


def test_motors_of_a_lerobot_arm_are_joints(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    motors = ["shoulder_pan", "elbow_flex", "wrist_roll"]
    angles = np.column_stack([np.sin(T), 0.3 * np.cos(T), 0.1 * T])
    names = [f"{motor}.pos" for motor in motors]
    feature = {"dtype": "float32", "shape": [3], "names": names}
    info = {"codebase_version": "v3.0", "fps": 200}
    info["features"] = {"observation.state": feature, "action": feature}
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    chunk = tmp_path / "data/chunk-000"
    chunk.mkdir(parents=True)
    vectors = pa.array(angles.tolist(), pa.list_(pa.float64(), 3))
    table = {"observation.state": vectors, "action": vectors, "timestamp": T}
    pq.write_table(pa.table(table | {"episode_index": np.zeros(len(T), int)}), chunk / "a.parquet")
    got = logs.read_logs([tmp_path], guess=True)
    assert got.mapping.logs[0].joints == {motor: motor for motor in motors}
    assert got.trials[0].signals["elbow_flex"] == pytest.approx(angles[:, 1])


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ("[]", "not that of a LeRobot dataset"),
        ('{"features": 3}', "not that of a LeRobot dataset"),
        ("{", "info.json"),
        ("[" * 5000, "info.json"),
        ('{"features": {"observation.state": {"names": [1, 2]}}}', "needs a mapping"),
    ],
)
def test_datasets_that_are_refused(tmp_path, info, words):
    write_lerobot(tmp_path / "d", T, motion())
    (tmp_path / "d/meta/info.json").write_text(info)
    with pytest.raises(DataError, match=words):
        logs.read_logs([tmp_path / "d"])


def test_a_dataset_in_an_archive_is_to_be_unpacked(tmp_path):
    write_lerobot(tmp_path / "d", T, motion())
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "d")
    with pytest.raises(DataError, match="LeRobot dataset: unpack it"):
        logs.read_logs([tmp_path / "packed.zip"], guess=True)


def test_datasets_without_data_or_with_an_episode_twice(tmp_path):
    write_lerobot(tmp_path / "d", T, motion())
    file = tmp_path / "d/data/chunk-000/file-000.parquet"
    (file.parent / "file-001.parquet").write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="episode 0 is in two files"):
        logs.read_logs([tmp_path / "d"], guess=True)
    for part in list(file.parent.iterdir()):
        part.unlink()
    with pytest.raises(DataError, match="holds no data"):
        logs.read_logs([tmp_path / "d"], guess=True)


@pytest.mark.parametrize("ros1", [True, False])
def test_forces_and_joints_in_bags_are_signals(tmp_path, ros1, capsys):
    path = tmp_path / ("a.bag" if ros1 else "a")
    force, torque = write_force_bag(path, ros1=ros1)
    out = tmp_path / "a.safetensors"
    assert cli.main(["import", str(path), "-o", str(out)]) == 0
    (trial,) = trial_files.read_trials(out)
    assert np.abs(trial.signals["ft_sensor_force"] - force).max() < 1e-6
    assert np.abs(trial.signals["ft_sensor_torque"] - torque).max() < 1e-6
    assert np.abs(trial.signals["elbow"] - 0.5 * T).max() < 1e-6


def test_forces_as_json_and_damaged_ones():
    wrench = {"force": dict(zip("xyz", (1, 2, 3), strict=True))}
    wrench["torque"] = dict(zip("xyz", (4, 5, 6), strict=True))
    raw = {"header": {"stamp": {"sec": 5, "nanosec": 500_000_000}}, "wrench": wrench}
    kind = "geometry_msgs/msg/WrenchStamped"
    message = Message("/ft", kind, "json", 0.0, json.dumps(raw).encode())
    assert wrench_in(message) == (5.5, (1, 2, 3, 4, 5, 6))
    for data in (b"{}", b"[]", b"\x00", b""):
        for coding in ("json", "cdr", "ros1"):
            with pytest.raises(DataError, match="damaged"):
                wrench_in(Message("/ft", kind, coding, 0.0, data))
