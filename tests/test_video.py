"""Camera video with AprilTags: poses of known truth, findings, and files that cannot be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim import cli
from clashsim.core.errors import DataError
from clashsim.core.extras import importable
from clashsim.data.logs import read_logs
from clashsim.data.readers import mapping
from clashsim.data.readers.camera_file import TagPlacement, load_camera
from clashsim.data.readers.frames import import_opencv
from clashsim.data.readers.mapping import with_camera
from clashsim.data.readers.tag_poses import rotation_angle, solve_poses
from clashsim.data.trial_files import read_trials
from tag_drawings import DOWN, INTRINSICS, camera, camera_table, draw, write_frames

pytestmark = pytest.mark.skipif(
    not importable("cv2"), reason="OpenCV is not installed (pip install 'clashsim[video]')"
)
BLOCK = TagPlacement(3, "block")
FRAMES = 12


def transform(position, rotation) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3] = Rotation.from_rotvec(rotation).as_matrix()
    out[:3, 3] = position
    return out


def motion(frames: int = FRAMES) -> list[np.ndarray]:
    """Poses of a block that slides and rotates, tilted so that both poses of a tag differ."""
    t = np.arange(frames) / 100
    return [transform([0.3 * s - 0.02, 0.2 * s, 0.01], [0.5, 0.3, 2 * s]) for s in t]


@pytest.fixture(scope="module")
def frames() -> list[np.ndarray]:
    return [draw({3: pose}) for pose in motion()]


def camera_file(folder: Path, *, tags=(BLOCK,), **changes) -> Path:
    path = folder / "camera.json"
    path.write_text(json.dumps(camera_table(tags, **changes)))
    return path


def errors(pose: np.ndarray, true: list[np.ndarray]) -> tuple[float, float]:
    """Largest error of positions in mm and of rotations in degrees."""
    distance = np.linalg.norm(pose[:, :3] - [p[:3, 3] for p in true], axis=1)
    measured = Rotation.from_quat(np.roll(pose[:, 3:], -1, axis=1))
    expected = Rotation.from_matrix([p[:3, :3] for p in true])
    angle = (measured * expected.inv()).magnitude()
    return 1e3 * float(distance.max()), float(np.degrees(angle.max()))


def test_the_command_reads_a_folder_of_frames(tmp_path, frames):
    write_frames(tmp_path / "strike", frames)
    path = camera_file(tmp_path)
    out = tmp_path / "trials.safetensors"
    command = ["import", str(tmp_path / "strike"), "--camera", str(path), "-o", str(out)]
    assert cli.main(command) == 0
    (trial,) = read_trials(out)
    assert trial.name == "strike"
    assert np.allclose(trial.t, np.arange(FRAMES) / 100)
    millimetres, degrees = errors(trial.poses["block"], motion())
    assert millimetres < 0.4 and degrees < 0.3


def test_a_mapping_renames_bodies_and_joins_folders_with_other_logs(tmp_path, frames):
    write_frames(tmp_path / "logs/film_1", frames)
    rows = [f"{0.01 * i},{i}" for i in range(FRAMES)]
    (tmp_path / "logs/angle_1.csv").write_text("\n".join(["time,angle", *rows]))
    (tmp_path / "lab.toml").write_text(
        '[[logs]]\nfiles = "film_{trial}"\ncamera = "camera.json"\n'
        'bodies = [{ name = "puck", source = "block" }]\n'
        '[[logs]]\nfiles = "angle_{trial}.csv"\ntime = "time"\njoints = { arm = "angle" }\n'
    )
    camera_file(tmp_path)
    got = read_logs([tmp_path / "logs"], mapping=mapping.load(tmp_path / "lab.toml"))
    (trial,) = got.trials
    assert set(trial.poses) == {"puck"} and len(trial.signals["arm"]) == FRAMES


@pytest.mark.parametrize(("suffix", "codec"), [(".avi", "MJPG"), (".mp4", "mp4v")])
def test_a_video_file_has_the_poses_and_times_of_its_frames(tmp_path, frames, suffix, codec):
    cv2 = import_opencv()
    path = tmp_path / f"strike{suffix}"
    fourcc = cv2.VideoWriter_fourcc(*codec)
    writer = cv2.VideoWriter(str(path), fourcc, 50.0, frames[0].shape[::-1])
    if not writer.isOpened():
        pytest.skip(f"this OpenCV does not write {codec}")
    for frame in frames:
        writer.write(cv2.cvtColor(frame, cv2.COLOR_GRAY2BGR))
    writer.release()
    table = camera_table([BLOCK])
    del table["rate"]
    (tmp_path / "camera.json").write_text(json.dumps(table))
    (trial,) = read_logs([path], mapping=with_camera(tmp_path / "camera.json")).trials
    assert np.allclose(trial.t, np.arange(FRAMES) / 50, atol=1e-3)
    millimetres, degrees = errors(trial.poses["block"], motion())
    assert millimetres < 2 and degrees < 2  # codecs blur


def test_distortion_of_the_lens_is_removed(tmp_path):
    lens = (-0.25, 0.08, 0.001, -0.001)
    true = [transform([0.07, 0.05, 0.0], [0.5, 0.3, 0.1 * i]) for i in range(4)]
    write_frames(tmp_path / "a", [draw({3: pose}, distortion=lens) for pose in true])
    (trial,) = read_logs(
        [tmp_path / "a"], mapping=with_camera(camera_file(tmp_path, distortion=lens))
    ).trials
    millimetres, degrees = errors(trial.poses["block"], true)
    assert millimetres < 0.5 and degrees < 0.4
    (without,) = read_logs([tmp_path / "a"], mapping=with_camera(camera_file(tmp_path))).trials
    assert errors(without.poses["block"], true)[0] > 2


def test_a_tag_in_the_world_shows_where_the_camera_is(tmp_path):
    in_world = transform([-0.08, -0.05, 0.01], [0.3, -0.4, 0.2])
    true = motion(5)
    write_frames(tmp_path / "a", [draw({3: pose, 9: in_world}) for pose in true])
    matrix = tuple(map(tuple, in_world[:3, :3]))
    fixed = TagPlacement(9, "world", tuple(in_world[:3, 3]), matrix=matrix)
    table = camera_table([BLOCK, fixed])
    del table["pose"]
    path = tmp_path / "camera.json"
    path.write_text(json.dumps(table))
    (trial,) = read_logs([tmp_path / "a"], mapping=with_camera(path)).trials
    millimetres, degrees = errors(trial.poses["block"], true)
    assert millimetres < 2 and degrees < 1  # the camera's own error is at the end of a lever


def test_yaml_of_a_calibration_program_is_read(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    path = tmp_path / "camera.yaml"
    path.write_text(
        "image_width: 320\nimage_height: 240\ncamera_name: left\ndistortion_model: plumb_bob\n"
        "camera_matrix:\n  rows: 3\n  cols: 3\n"
        "  data: [400., 0., 161., 0., 400., 118., 0., 0., 1.]\n"
        "distortion_coefficients:\n  rows: 1\n  cols: 5\n  data: [-0.1, 0.01, 0, 0, 0]\n"
        "rate: 100\nfamily: tag36h11\nsize: 0.04\ntags:\n- {tag: 3, body: block}\n"
        "pose:\n  position: [0, 0, 0.5]\n  quaternion: [0, 1, 0, 0]\n"
    )
    read = load_camera(path)
    assert read.camera_matrix == INTRINSICS and read.distortion[0] == -0.1
    assert read.pose is not None
    assert np.allclose(read.pose.transform("pose"), DOWN)


def seen_corners(tags, poses, *, noise: float, seed: int) -> list[dict[int, np.ndarray]]:
    """Corners of tags in the frame, with noise in px, for poses of their body in the world."""
    random = np.random.default_rng(seed)
    frames = []
    for pose in poses:
        found = {}
        for number, points in tags.items():
            in_camera = (np.linalg.inv(DOWN) @ pose @ np.c_[points, np.ones(4)].T)[:3]
            pixels = np.array(INTRINSICS) @ in_camera
            found[number] = (pixels[:2] / pixels[2]).T + noise * random.standard_normal((4, 2))
        frames.append(found)
    return frames


def test_flips_of_a_small_tag_are_resolved_by_motion():
    t = np.arange(80) / 100
    true = [transform([0, 0, 0], [0.35, 0.1 * np.sin(6 * s), s]) for s in t]
    tags = camera([TagPlacement(3, "block", size=0.015)]).corners("block")
    seen = seen_corners(tags, true, noise=0.12, seed=1)
    solved = solve_poses(t, seen, tags, np.array(INTRINSICS))
    angles = [
        np.degrees(rotation_angle(DOWN @ pose, expected))
        for pose, expected in zip(solved.pose, true, strict=True)
    ]
    assert 5 <= solved.flipped.sum() <= 40  # the corners alone are wrong this often
    assert max(angles) < 25 and np.median(angles) < 6
    assert solved.margin > 9


def test_what_nothing_decides_is_named(tmp_path):
    # Parallel rays and a tag at rest: both poses fit, and none of them moves.
    true = 6 * [transform([0, 0, 0], [0.5, 0, 0])]
    tags = camera([TagPlacement(3, "block", size=0.004)]).corners("block")
    seen = seen_corners(tags, true, noise=0.05, seed=2)
    solved = solve_poses(np.arange(6) / 100, seen, tags, np.array(INTRINSICS))
    assert solved.margin < 9 and solved.separation > 0.5


def test_several_tags_of_a_body_are_one_measurement():
    second = TagPlacement(4, "block", (0.06, 0.0, -0.02), matrix=((0, 0, 1), (0, 1, 0), (-1, 0, 0)))
    true = [transform([0, 0, 0], [0.2, -0.7, 0.1 * i]) for i in range(20)]
    t = np.arange(20) / 100
    worst = {}
    for name, tags in (("one", [BLOCK]), ("two", [BLOCK, second])):
        corners = camera(tags).corners("block")
        seen = seen_corners(corners, true, noise=0.1, seed=3)
        solved = solve_poses(t, seen, corners, np.array(INTRINSICS))
        error = [rotation_angle(DOWN @ a, b) for a, b in zip(solved.pose, true, strict=True)]
        worst[name] = max(error)
    assert worst["two"] < 0.5 * worst["one"]


def test_findings_name_what_the_camera_did_not_see_well(tmp_path, frames):
    cv2 = import_opencv()
    changed = [frame.copy() for frame in frames]
    changed[4] = cv2.blur(changed[4], (5, 1))
    changed[6][:] = 110  # nothing is seen
    write_frames(tmp_path / "a", changed)
    got = read_logs([tmp_path / "a"], mapping=with_camera(camera_file(tmp_path)))
    rows = {found.name: found.rows for found in got.findings}
    assert rows["blur"] == (4,) and rows["dropout"] == (6,)


def test_a_tag_in_another_place_than_the_file_says_stops_the_import(tmp_path):
    second = transform([0.06, 0.0, 0.0], [0, 0, 0])
    true = motion(4)
    write_frames(tmp_path / "a", [draw({3: pose, 4: pose @ second}) for pose in true])
    right = TagPlacement(4, "block", (0.06, 0.0, 0.0))
    wrong = TagPlacement(4, "block", (0.07, 0.0, 0.0))
    read_logs([tmp_path / "a"], mapping=with_camera(camera_file(tmp_path, tags=[BLOCK, right])))
    with pytest.raises(DataError, match="reprojection"):
        read_logs([tmp_path / "a"], mapping=with_camera(camera_file(tmp_path, tags=[BLOCK, wrong])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "tag99h9"}, "choices: tag16h5"),
        ({"family": "tag25h9", "tags": [{"tag": 3, "body": "block"}]}, "tags of family tag36h11"),
        ({"tags": [{"tag": 5, "body": "block"}]}, "they show 3"),
        ({"tags": [{"tag": 900, "body": "block"}]}, "has tags 0 to 586"),
        ({"tags": [{"tag": 3, "body": "block"}, {"tag": 3, "body": "ball"}]}, "named twice"),
        ({"tags": [{"tag": 3, "body": "block", "size": -1}]}, "needs a size"),
        ({"tags": [{"tag": 3, "body": "world"}]}, "needs tags on bodies"),
        ({"width": 640, "height": 480}, "320 x 240 pixels where the camera was calibrated"),
        ({"width": 100}, "calibrated at another size"),
        ({"rate": 0}, "rate, or stamps"),
        ({"rate": 0, "stamps": "days"}, "choices: s, ms"),
        ({"distortion": [0.1]}, "choices: 0, 4, 5, 8"),
        ({"camera_matrix": [[1, 2], [3, 4]]}, "three rows"),
        ({"pose": {"matrix": [[1, 0, 0], [0, 1, 0], [0, 0, -1]]}}, "no rotation"),
        ({"focal": 3}, "unknown entry"),
    ],
)
def test_a_camera_file_that_does_not_fit(tmp_path, frames, changes, message):
    write_frames(tmp_path / "a", frames[:2])
    with pytest.raises(DataError, match=message) as caught:
        read_logs([tmp_path / "a"], mapping=with_camera(camera_file(tmp_path, **changes)))
    assert "\n" not in str(caught.value)


def test_a_camera_without_calibration_or_place(tmp_path):
    for missing, message in (("camera_matrix", "no calibration"), ("pose", "place of the camera")):
        table = camera_table([BLOCK])
        del table[missing]
        path = tmp_path / "camera.json"
        path.write_text(json.dumps(table))
        with pytest.raises(DataError, match=message):
            load_camera(path)


def test_frames_and_videos_that_cannot_be_decoded(tmp_path, frames):
    path = camera_file(tmp_path)
    folder = write_frames(tmp_path / "a", frames[:3])
    with pytest.raises(DataError, match="camera file"):
        read_logs([folder])
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:200])
    with pytest.raises(DataError, match=r"1\.png' cannot be decoded"):
        read_logs([folder], mapping=with_camera(path))
    head = b"\x00\x00\x00\x18ftypisom"
    for content in (b"#EXTM3U\nother.mp4\n", head + bytes(500), b"RIFF\x00\x00\x00\x00AVI LIST"):
        video = tmp_path / "video.mp4"
        video.write_bytes(content)
        with pytest.raises(DataError, match="cannot be decoded"):
            read_logs([video], mapping=with_camera(path))
    with pytest.raises(DataError, match="--camera"):
        read_logs([video])


def test_videos_beside_other_logs_are_left_alone(tmp_path, frames):
    write_frames(tmp_path / "logs/pictures", frames[:3])
    (tmp_path / "logs/film.mp4").write_bytes(b"any")
    rows = [f"{0.01 * i},{0.1 * i},0" for i in range(9)]
    (tmp_path / "logs/a.csv").write_text("\n".join(["time,x,y", *rows]))
    assert len(read_logs([tmp_path / "logs"], guess=True).trials) == 1


def test_damaged_camera_files_are_refused_in_a_sentence(tmp_path):
    good = json.dumps(camera_table([BLOCK])).encode()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        content = bytearray(good)
        for _ in range(random.integers(1, 6)):
            content[random.integers(len(content))] = random.integers(256)
        path = tmp_path / "camera.json"
        path.write_bytes(content)
        try:
            load_camera(path)
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 100


@pytest.mark.slow
def test_frames_that_mujoco_renders_have_the_poses_of_its_bodies(tmp_path):
    example = Path(__file__).parents[1] / "examples/video_strike.py"
    done = subprocess.run(
        [sys.executable, str(example), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    if "MuJoCo has no renderer here" in done.stderr:
        pytest.skip("MuJoCo has no renderer here")
    found = re.findall(r"(\w+): seen in \d+ of .* error (\S+) mm and (\S+) degrees", done.stdout)
    assert [body for body, _, _ in found] == ["block", "striker"], done.stderr
    for _, millimetres, degrees in found:
        assert float(millimetres) < 0.5 and float(degrees) < 0.3
