"""Poses from camera video against the truth, and a calibration from video beside one from poses.

Frames are rendered by MuJoCo's camera, 640 x 480 pixels with grey noise, of tags of the family
tag36h11. Blocks of one set of parameters are struck in MuJoCo: 12 strikes are calibrated on, once
from their exact poses and once from their video, and both runs are tested on the exact poses of
further strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import clashsim
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row
from clashsim.bench.tag_film import FilmSettings, TagFilm
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials, quaternion
from clashsim.data.logs import read_logs
from clashsim.data.readers.camera_file import TagPlacement
from clashsim.data.readers.mapping import LoggerMapping, with_camera
from clashsim.data.readers.video import read_video
from clashsim.data.segmentation.noise import estimate_noise
from clashsim.fit.sample import sample
from clashsim.sim.mujoco.simulator import MujocoSim

OPTIONS: frozenset[str] = frozenset()
_DISTANCES = (0.3, 0.45, 0.6, 0.8, 1.0, 1.3)  # m
_TAG_SIZE = 0.04  # m
_RATE = 120.0  # frames per second
_FRAMES = 60
_FITTED, _TESTED = 12, 24  # strikes
_TIME_TO_IMPACT = 0.1  # s
_RETREAT_TIME = 0.13  # s, when the striker turns around
_DURATION = 0.4  # s
_EXPOSURE = 4e-3  # s, of the blurred film
_EXPOSURE_TIMES = 3  # at which it is rendered
_FILMS = {  # position of the camera in m, and whether frames are blurred
    "video": ((0.0, -0.25, 0.4), False),
    "video, exposed 4 ms": ((0.0, -0.25, 0.4), True),
    "video, twice as far": ((0.0, -0.5, 0.8), False),
}
_BLOCK_TAG = TagPlacement(0, "block", (0.0, 0.02, 0.0204), size=0.03)
_STRIKER_TAG = TagPlacement(1, "striker", (0.0, 0.0, 0.03), size=0.02)
# Parameters of the blocks that are struck, where they differ from the scene's.
_THETA = {
    "friction": 0.2,
    "ground_friction": 0.35,
    "stiffness": 5e5,
    "damping": 250.0,
    "arm_mass": 2.0,
    "drag": 0.0,
}
_TUMBLING_TAG = """<mujoco><worldbody><light pos="0 0 1.5"/>
<geom type="plane" size="2 2 .1" pos="0 0 -.5" rgba=".7 .7 .7 1"/>
<body name="block"><freejoint/><geom type="box" size=".03 .03 .01" pos="0 0 -.011"/></body>
</worldbody></mujoco>"""


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure the error of poses over distance, and of calibrations from video and from poses.

    Args:
        options: Only `quick` and what is done with the rows.

    Returns:
        Rows of distance (m) and pixels (of the tag's side); seen (share of frames); lateral_mm,
        depth_mm and degrees (root mean square errors); noise_lateral_mm and noise_depth_mm (as
        estimated from the poses alone); reprojection_px; and flips_resolved (frames). Then rows of
        poses (exact, video) with the median error of the velocity after strikes that were not
        fitted, as a share of the speed; the same of the scene's nominal parameters; the parameters
        found, with intervals; and the errors of the block's poses.
    """
    rows: list[Row] = []
    for distance in _DISTANCES[:2] if options.quick else _DISTANCES:
        rows.append(_poses_at(distance))
        options.save(rows)
    if not options.quick:
        rows += _calibrations()
        options.save(rows)
    return rows


def _poses_at(distance: float) -> Row:
    """Error of the poses of a tag that moves below a camera that looks straight down."""
    settings = FilmSettings(position=(0.0, 0.0, distance), rate=_RATE)
    film = TagFilm(_TUMBLING_TAG, [TagPlacement(0, "block", size=_TAG_SIZE)], settings)
    t = np.arange(_FRAMES) / _RATE
    rotation = np.column_stack([0.5 + 0.3 * np.sin(5 * t), 0.3 * np.cos(4 * t), 3 * t])
    shift = np.column_stack([0.05 * np.sin(8 * t), 0.04 * np.cos(9 * t), 0.02 * t])
    true = np.column_stack([shift, _quaternions(rotation)])
    with TemporaryDirectory() as folder:
        film.write_frames(Path(folder) / "frames", true)
        film.write_camera(Path(folder) / "camera.json")
        logger = LoggerMapping(camera=f"{folder}/camera.json")
        (stream,) = read_video(Path(folder) / "frames", logger).streams
    assert stream.sightings is not None
    seen = np.isfinite(stream.pose).all(1)
    pose = stream.pose[seen]
    error = 1e3 * (pose[:, :3] - true[seen, :3])
    cosine = np.abs((pose[:, 3:] * true[seen, 3:]).sum(1))
    degrees = np.degrees(2 * np.arccos(np.minimum(cosine, 1)))
    noise = 1e3 * estimate_noise(stream.t[seen], pose[:, :3], angles=0)
    return {
        "distance": distance,
        "pixels": film.camera.camera_matrix[0][0] * _TAG_SIZE / distance,
        "seen": float(seen.mean()),
        "lateral_mm": float(np.sqrt((error[:, :2] ** 2).mean())),
        "depth_mm": float(np.sqrt((error[:, 2] ** 2).mean())),
        "degrees": float(np.sqrt((degrees**2).mean())),
        "noise_lateral_mm": float(np.sqrt((noise[:2] ** 2).mean())),
        "noise_depth_mm": float(noise[2]),
        "reprojection_px": float(np.nanmedian(stream.sightings.error)),
        "flips_resolved": int(stream.sightings.flipped.sum()),
    }


def _quaternions(rotations: np.ndarray) -> np.ndarray:
    """Quaternions wxyz (T, 4) of rotation vectors (T, 3)."""
    from scipy.spatial.transform import Rotation

    return np.roll(Rotation.from_rotvec(rotations).as_quat(), 1, axis=1)


def _calibrations() -> list[Row]:
    """Calibrate from exact poses and from video of the same strikes, and test both."""
    scene = Scene.load("semi_cylinder")
    motions = simulate_strikes(scene, _FITTED + _TESTED, seed=1)
    film = TagFilm(scene.xml, [_BLOCK_TAG, _STRIKER_TAG], FilmSettings(rate=_RATE))
    middle = _EXPOSURE_TIMES // 2
    exact = [exact_trial(film, m[:, middle], f"strike {i}") for i, m in enumerate(motions)]
    recorded: dict[str, Sequence[Trial]] = {"exact": exact[:_FITTED]}
    for name, (position, is_blurred) in _FILMS.items():
        settings = FilmSettings(rate=_RATE, position=position)
        film = TagFilm(scene.xml, [_BLOCK_TAG, _STRIKER_TAG], settings)
        exposures = [m if is_blurred else m[:, middle] for m in motions[:_FITTED]]
        recorded[name] = _filmed(film, exposures)
    test = clashsim.segment(exact[_FITTED:], scene=scene).impacts
    base = clashsim.distilled_model(scene)
    rows: list[Row] = []
    for poses, trials in recorded.items():
        impacts = clashsim.segment(trials, scene=scene).impacts
        model = clashsim.calibrate(base, impacts)
        row: Row = {"poses": poses, "fitted": len(impacts), "tested": len(test)}
        row["median"] = _median_error(model.predict(test), test.after)
        row["nominal median"] = _median_error(base.predict(test, scene.nominal), test.after)
        for estimate in model.theta:
            if estimate.name in _THETA:
                row[estimate.name] = estimate.value
            if estimate.name == "friction":
                row["friction_low"], row["friction_high"] = estimate.low, estimate.high
        if poses in _FILMS:
            row |= _pose_errors(trials, exact[:_FITTED])
        rows.append(row)
    return rows


def _filmed(film: TagFilm, motions: Sequence[np.ndarray]) -> Trials:
    """Film motions, and import the frames."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        film.write_camera(folder / "camera.json")
        for i, motion in enumerate(motions):
            film.write_frames(folder / f"video/strike_{i}", motion)
        mapping = with_camera(folder / "camera.json")
        return read_logs([folder / "video"], mapping=mapping, accept=("ambiguous_tag",)).trials


def _median_error(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Median error of the block's velocity after impact, as a share of its speed."""
    error = np.linalg.norm((predicted - measured)[:, :2], axis=1)
    return float(np.median(error / np.linalg.norm(measured[:, :2], axis=1)))


def simulate_strikes(scene: Scene, count: int, *, seed: int) -> list[np.ndarray]:
    """Strikes on blocks of one set of parameters, in MuJoCo.

    Args:
        scene: The scene `semi_cylinder`.
        count: Number of strikes.
        seed: Of where and how fast they hit.

    Returns:
        Positions (T, k, nq) of each strike at k times around that of each frame, within an
        exposure; the one in the middle is that of the frame.
    """
    theta = scene.nominal.copy()
    for i, param in enumerate(scene.params):
        theta[i] = _THETA.get(param.name, theta[i])
    simulator = MujocoSim(scene, theta)
    impacts = sample(scene, count, seed)
    home = simulator.model.body("striker").pos[:2]
    timestep = simulator.model.opt.timestep
    steps = round(_DURATION / timestep)
    times = timestep * np.arange(steps)
    starts = []
    controls = []
    for k in range(count):
        velocity = impacts.striker_twist[k, :2]
        # The block lies below the camera.
        from_block = impacts.striker_pose[k, :2] - impacts.pose[k, :2]
        striker = from_block - _TIME_TO_IMPACT * velocity - home
        block = np.r_[np.zeros(3), quaternion(impacts.pose[k, 2:])[0]]
        starts.append(np.r_[block, striker, np.zeros(6), velocity])
        controls.append(np.where(times[:, None] < _RETREAT_TIME, velocity, -velocity))
    states = simulator.rollout(np.array(starts), np.array(controls))
    exposure = np.linspace(-_EXPOSURE / 2, _EXPOSURE / 2, _EXPOSURE_TIMES)
    moments = np.arange(0, _DURATION, 1 / _RATE)[:, None] + exposure
    frames = np.clip(np.round(moments / timestep).astype(int), 0, steps)
    return list(states[:, frames, : simulator.model.nq])


def exact_trial(film: TagFilm, motion: np.ndarray, name: str) -> Trial:
    """A trial of the true poses of a motion (T, nq)."""
    t = np.arange(len(motion)) / film.settings.rate
    poses = {body: film.pose_of(body, motion) for body in ("block", "striker")}
    return Trial(name, t, poses, "simulated")


def _pose_errors(filmed: Sequence[Trial], exact: Sequence[Trial]) -> Row:
    """Root mean square errors of the block's poses from video."""
    offsets = []
    degrees = []
    frames = 0
    for trial, truth in zip(filmed, exact, strict=True):
        t, pose = trial.seen("block")
        # A trial's time starts at the first frame in which a body was seen: that of all strikes.
        rows = np.round(t * _RATE).astype(int)
        true = truth.poses["block"][rows]
        offsets.append(pose[:, :3] - true[:, :3])
        cosine = np.abs((pose[:, 3:] * true[:, 3:]).sum(1))
        degrees.append(np.degrees(2 * np.arccos(np.minimum(cosine, 1))))
        frames += len(truth.t)
    error = 1e3 * np.concatenate(offsets)
    rms = np.sqrt((error**2).mean(0))
    return {
        "seen": len(error) / frames,
        "x_mm": float(rms[0]),
        "y_mm": float(rms[1]),
        "z_mm": float(rms[2]),
        "degrees": float(np.sqrt((np.concatenate(degrees) ** 2).mean())),
    }
