"""Film a struck block with AprilTags in MuJoCo, and read its poses back from the frames.

    python examples/video_strike.py                # needs pip install 'clashsim[video]'
    python examples/video_strike.py strike         # keeps the frames and the camera file

With a real camera, `strike/frames` is the folder of its frames (or its video file), and the camera
file is written by hand from its calibration:

    clashsim import strike/frames --camera strike/camera.json -o trials.safetensors
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen

import numpy as np

import clashsim
from clashsim.bench.tag_film import FilmSettings, TagFilm
from clashsim.bench.video import exact_trial, simulate_strikes
from clashsim.data.readers.camera_file import TagPlacement
from clashsim.data.readers.mapping import with_camera

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
scene = clashsim.Scene.load("semi_cylinder")
tags = [
    TagPlacement(0, "block", (0.0, 0.02, 0.0204), size=0.03),
    TagPlacement(1, "striker", (0.0, 0.0, 0.03), size=0.02),
]
film = TagFilm(scene.xml, tags, FilmSettings(rate=120.0))
(exposures,) = simulate_strikes(scene, 1, seed=3)
motion = exposures[:, 1]  # sharp frames; `exposures` are blurred by motion
folder.mkdir(parents=True, exist_ok=True)
film.write_camera(folder / "camera.json")
film.write_frames(folder / "frames", motion)

mapping = with_camera(folder / "camera.json")
imported = clashsim.read_logs([folder / "frames"], mapping=mapping)
for finding in imported.findings:
    print(finding)
(trial,) = imported.trials
truth = exact_trial(film, motion, "truth")
for body in ("block", "striker"):
    t, pose = trial.seen(body)
    true = truth.poses[body][np.round(t * 120).astype(int)]
    error = 1e3 * np.linalg.norm(pose[:, :3] - true[:, :3], axis=1)
    cosine = np.abs((pose[:, 3:] * true[:, 3:]).sum(1))
    angle = np.degrees(2 * np.arccos(np.minimum(cosine, 1)))
    print(
        f"{body}: seen in {len(t)} of {len(motion)} frames,"
        f" usual error {np.median(error):.2f} mm and {np.median(angle):.2f} degrees"
    )
