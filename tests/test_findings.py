"""Faults of laboratories, planted in every format that can hold them, are found and named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.data import logs
from clashsim.data.checks.findings import FINDING_NAMES
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from log_writers import T, motion, write

FORMATS = (
    "csv",
    "vectors",
    "parquet",
    "motive",
    "vicon",
    "c3d",
    "hdf5",
    "npz",
    "mat",
    "mat73",
    "ros1",
    "ros2",
    "ros2_mcap",
    "mcap",
)


# Each fault takes times (T,) and poses (T, 7) by body, and returns them changed.


def backwards(t, poses):
    t = t.copy()
    t[[70, 71]] = t[[71, 70]]
    return t, poses


def gap(t, poses):
    keep = np.r_[:60, 75:160]
    return t[keep], {b: p[keep] for b, p in poses.items()}


def milliseconds(t, poses):
    return t * 1e3, poses


def millimetres(t, poses):
    return t, {b: p * np.r_[[1e3] * 3, [1.0] * 4] for b, p in poses.items()}


def metres(t, poses):
    return t, {b: p * np.r_[[1e-3] * 3, [1.0] * 4] for b, p in poses.items()}


def freeze(t, poses):
    poses = {b: p.copy() for b, p in poses.items()}
    poses["box"][60:80] = poses["box"][60]
    return t, poses


def repeats(t, poses):
    return t, {b: p[np.arange(len(p)) // 3 * 3] for b, p in poses.items()}


def jump(t, poses):
    poses = {b: p.copy() for b, p in poses.items()}
    poses["box"][30, :3] += 0.05
    poses["box"][110, :3] -= 0.3
    return t, poses


def order(t, poses):
    return t, {b: p[:, [0, 1, 2, 4, 5, 6, 3]] for b, p in poses.items()}


def norm(t, poses):
    return t, {b: p * np.r_[[1.0] * 3, [1.3] * 4] for b, p in poses.items()}


def swap(t, poses):
    box = np.vstack([poses["box"][:90], poses["tool"][90:]])
    tool = np.vstack([poses["tool"][:90], poses["box"][90:]])
    return t, {"box": box, "tool": tool}


def lost(t, poses):
    poses = {b: p.copy() for b, p in poses.items()}
    poses["box"][40:50] = 0.0
    return t, poses


def swing(t, poses):
    """The tool swings about a fixed point, and x is mirrored in its positions only."""
    rotation = Rotation.from_euler("ZX", np.column_stack([3 * t, 0.2 * np.sin(5 * t)]))
    noise = 1e-4 * np.random.default_rng(1).normal(size=(len(t), 3))
    position = np.array([0.4, 0.2, 0.5]) + rotation.apply([0.3, 0.1, -0.05]) + noise
    mirrored = position * [-1, 1, 1]
    tool = np.column_stack([mirrored, rotation.as_quat()[:, [3, 0, 1, 2]]])
    return t, poses | {"tool": tool}


def fall(t, poses):
    """A drop along the file's -y, read as z up."""
    position = np.tile([0.2, 1.5, 0.3], (len(t), 1))
    position[:, 1] -= 0.5 * 9.81 * np.clip(t - 0.1, 0, 0.4) ** 2
    position += 5e-5 * np.random.default_rng(1).normal(size=position.shape)
    return t, poses | {"box": np.column_stack([position, poses["box"][:, 3:]])}


def standing(t, poses):
    """A slide on a table of a file whose y is up, read as z up."""
    axes = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]])
    turned = {}
    for body, pose in poses.items():
        turned[body] = np.column_stack([pose[:, :3] @ axes.T, pose[:, 3], pose[:, 4:] @ axes.T])
    return t, turned


NO_TIME = {"c3d"}  # frames of one rate
NO_QUATERNIONS = {"c3d"}  # they are computed from markers
# The name of a finding: the fault that should cause it, and the formats that cannot hold it.
FAULTS = {
    "time_backwards": (backwards, NO_TIME),
    "time_gap": (gap, NO_TIME),
    "time_unit": (milliseconds, NO_TIME),
    "length_unit": (millimetres, set()),
    "freeze": (freeze, set()),
    "repeated_frames": (repeats, set()),
    "jump": (jump, set()),
    "quaternion_order": (order, NO_QUATERNIONS | {"motive"}),
    "quaternion_norm": (norm, NO_QUATERNIONS | {"vicon"}),
    "swapped": (swap, set()),
    "dropout": (lost, NO_QUATERNIONS | {"vicon"}),
    "mirrored": (swing, set()),
    "up_axis": (fall, {"motive"}),
}
STOP = {
    "time_backwards",
    "time_unit",
    "length_unit",
    "quaternion_order",
    "quaternion_norm",
    "swapped",
    "mirrored",
    "up_axis",
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(tmp_path, kind, name):
    fault, cannot = FAULTS[name]
    if kind in cannot:
        pytest.skip(f"{kind} cannot hold {name}")
    path, how = write(kind, tmp_path, *fault(T, motion()))
    if name in STOP:
        with pytest.raises(DataError, match=name) as error:
            logs.read_logs([path], mapping=how)
        assert "\n" not in str(error.value)
    found = logs.read_logs([path], mapping=how, accept=list(FINDING_NAMES)).findings
    severities = {f.severity for f in found if f.name == name}
    assert severities == ({"stop"} if name in STOP else {"warn"})
    side_effects = {"time_gap", "jump"}
    if name == "time_unit":
        side_effects.add("repeated_frames")
    assert {f.name for f in found} <= {name} | side_effects, [str(f) for f in found]


@pytest.mark.parametrize(
    ("fault", "rows"), [(freeze, range(61, 80)), (jump, (30, 110)), (lost, range(40, 50))]
)
def test_rows_are_named_and_count_as_not_seen(tmp_path, fault, rows):
    path, how = write("csv", tmp_path, *fault(T, motion()))
    got = logs.read_logs([path], mapping=how)
    (found,) = got.findings
    assert found.rows == tuple(rows) and found.body == "box"
    pose = got.trials[0].poses["box"]
    others = np.delete(pose, list(rows), axis=0)
    assert np.isnan(pose[list(rows)]).all() and np.isfinite(others).all()


def test_repeats_keep_the_first_frame_of_each(tmp_path):
    path, how = write("csv", tmp_path, *repeats(T, motion()))
    (trial,) = logs.read_logs([path], mapping=how).trials
    t, pose = trial.seen("box")
    assert np.abs(t - T[::3]).max() < 1e-9 and np.abs(pose - motion()["box"][::3]).max() < 1e-9


def test_all_too_small_and_a_table_that_stands(tmp_path):
    path, how = write("csv", tmp_path, *metres(T, motion()))
    with pytest.raises(DataError, match=r"length_unit.*m for mm"):
        logs.read_logs([path], mapping=how)
    path, how = write("csv", tmp_path, *standing(T, motion()))
    found = logs.read_logs([path], mapping=how).findings
    assert [(f.name, f.severity, f.body) for f in found] == [("up_axis", "warn", "box")]


def angles(folder, yaw, unit):
    """A log of a body that moves along x with given yaws, and a mapping with a unit of angle."""
    rng = np.random.default_rng(0)
    lines = ["t,x,y,yaw"]
    for i, angle in enumerate(yaw):
        t = i / 100
        x = 0.1 + t + 1e-4 * rng.normal()
        lines.append(f"{t!r},{x!r},0.2,{float(angle)!r}")
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    puck = BodyMapping("puck", ("x", "y"), yaw="yaw")
    mapping = LogMapping((LoggerMapping((puck,), time="t", units={"angle": unit}),))
    return [folder / "a.csv"], mapping


@pytest.mark.parametrize(
    "yaw",
    [
        90 + np.linspace(0, 20, 80),
        np.linspace(-5, 170, 80),
        (np.linspace(100, 260, 80) + 180) % 360 - 180,
    ],
    ids=["still", "fast", "wrapped"],
)
def test_degrees_for_radians(tmp_path, yaw):
    paths, how = angles(tmp_path, yaw, "rad")
    with pytest.raises(DataError, match="angle_unit"):
        logs.read_logs(paths, mapping=how)
    paths, how = angles(tmp_path, yaw, "deg")
    assert not logs.read_logs(paths, mapping=how).findings


def test_radians_for_degrees(tmp_path):
    yaw = (np.linspace(0, 9, 120) + np.pi) % (2 * np.pi) - np.pi
    paths, how = angles(tmp_path, yaw, "deg")
    with pytest.raises(DataError, match="angle_unit"):
        logs.read_logs(paths, mapping=how)
    paths, how = angles(tmp_path, yaw, "rad")
    assert not logs.read_logs(paths, mapping=how).findings


def test_a_mirrored_set_of_markers(tmp_path):
    import ezc3d

    path, how = write("c3d", tmp_path, T, motion())
    file = ezc3d.c3d(str(path))
    data = file["data"]["points"]
    data[0] *= -1
    file["data"]["points"] = data
    del file["data"]["meta_points"]
    file.write(str(path))
    with pytest.raises(DataError, match=r"mirrored.*markers"):
        logs.read_logs([path], mapping=how)


@pytest.mark.parametrize("seed", range(6))
def test_sound_motions_raise_no_alarm(tmp_path, seed):
    """Bounces, tumbling, rest without any noise and a slow logger are not faults."""
    rng = np.random.default_rng(seed)
    t = np.arange(300) / 240
    frames = np.arange(300)
    falling = 0.8 - 0.5 * 9.81 * t**2
    hit = np.argmax(falling < 0.05)
    since_hit = t - t[hit]
    speed = 0.6 * 9.81 * t[hit]
    bouncing = 0.05 + speed * since_hit - 0.5 * 9.81 * since_hit**2
    z = np.where(frames < hit, falling, bouncing)
    rest = int(np.argmax((z < 0.05) & (frames > hit + 2)))
    z[rest:] = 0.05
    moving_time = np.minimum(t, t[rest])
    position = np.column_stack([0.3 + 0.2 * moving_time, 0.1 - 0.3 * moving_time, z])
    tumbling = Rotation.from_rotvec(moving_time[:, None] * rng.normal(size=3) * 4)
    rotation = tumbling * Rotation.random(random_state=seed)
    noise = 1e-4 * rng.normal(size=position.shape) if seed % 2 else 0.0
    box = np.column_stack([position + noise, rotation.as_quat()[:, [3, 0, 1, 2]]])
    tool = np.tile([0, 0, 0.5, 1.0, 0, 0, 0], (300, 1))
    path, how = write("csv", tmp_path, t, {"box": box, "tool": tool})
    assert not logs.read_logs([path], mapping=how).findings


def test_accept_takes_names_of_findings_only(tmp_path):
    path, how = write("csv", tmp_path, T, motion())
    with pytest.raises(DataError, match="did you mean time_backwards"):
        logs.read_logs([path], mapping=how, accept=["time_backward"])
