"""Data sets of recorded slides by name: public ones, and the virtual laboratory's shapes."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path

import mujoco
import numpy as np

from clashsim import lab
from clashsim.bench.box_slides import load_boxes
from clashsim.bench.recorded_slides import RecordedSlide, SlideSet
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.trials import yaw as yaw_of
from clashsim.data import datasets
from clashsim.data.segmentation.result import origin_state
from clashsim.data.segmentation.segment import segment
from clashsim.slides.support_patch import support_patch

_LAB_LAG = 0.015  # s after the impact, at which a slide of the laboratory begins
_LAB_TIMESTEP = 0.001  # s
_OUT_OF_THE_WAY = -3.0  # m, position of the striker while a body slides


def names(root: Path | None) -> list[str]:
    """All data sets: struck boxes under the data root, and the laboratory's shapes."""
    boxes = []
    if root is not None:
        boxes = [name for name in datasets.names(root) if name.startswith("lasa/")]
    shapes = [f"lab/{shape.replace('_', '-')}" for shape in lab.SHAPES]
    return [*boxes, *shapes]


def load(name: str, root: Path | None) -> SlideSet:
    """Load a data set.

    Args:
        name: One of `names(root)`.
        root: Folder of the public recordings; the laboratory's sets do without.
    """
    if name.startswith("lab/"):
        return _load_lab(name)
    if root is None:
        raise DataError(f"the set {name!r} needs the folder of the public recordings")
    return load_boxes(name, root)


@lru_cache(maxsize=4)
def _load_lab(name: str) -> SlideSet:
    """Slides of one shape of resin on high-friction sand.

    Impacts are found in the recorded trials as in any log; the first one of each trial is used.
    """
    shape = name.removeprefix("lab/").replace("-", "_")
    scene = Scene.load(shape)
    trials = lab.recorded(shape, "resin", "high")
    found = segment(trials, scene=scene)
    first_of_trial = np.sort(np.unique(found.trial, return_index=True)[1])
    trial_by_name = {trial.name: trial for trial in trials}
    poses = []
    twists = []
    slides = []
    for row in first_of_trial:
        impact = found.found[row]
        start = impact.time + _LAB_LAG
        pose, twist = origin_state(impact.trajectory, impact.motion, impact.reference, start)
        time, recorded = trial_by_name[impact.trial].seen(scene.struck_body.name)
        yaw = yaw_of(recorded[:, 3:])
        whole_turns = np.round((pose[2] - np.interp(start, time, yaw)) / (2 * np.pi))
        # The recorded yaw is shifted by whole turns, so that it continues the yaw of `pose`.
        path = np.column_stack([recorded[:, :2], yaw + 2 * np.pi * whole_turns])
        poses.append(pose)
        twists.append(twist)
        slides.append(RecordedSlide.of(time, path, start, pose))
    return SlideSet(
        name=name,
        scene=scene,
        support_patch=support_patch(scene),
        model=_lab_model(scene),
        slides=tuple(slide.path for slide in slides),
        pose=np.array(poses),
        twist=np.array(twists),
        rest=np.array([slide.rest for slide in slides]),
        impacts=found.impacts[first_of_trial],
        session=np.full(len(first_of_trial), name),
    )


def _lab_model(scene: Scene) -> mujoco.MjModel:
    """MuJoCo's model of the block on its ground, with the striker far away."""
    model = copy.copy(scene.base)
    model.opt.timestep = _LAB_TIMESTEP
    model.qpos0[scene.striker_body.qpos] = _OUT_OF_THE_WAY
    return model
