"""Recorded slides as the bench of slides takes them: where each began, how fast, and where it came
to rest.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import mujoco
import numpy as np
from mujoco import batch

from clashsim import lab
from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import GROUND, Scene
from clashsim.core.trials import yaw as yaw_of
from clashsim.data import datasets
from clashsim.data.segmentation.result import origin_state
from clashsim.data.segmentation.segment import segment
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import SupportPatch, support_patch, uniform_support_patch

_BOX = (
    0.128,
    0.119,
    0.125,
)  # m, half sides of the struck boxes, from contact distances and what the set's authors give
_GYRATION = 0.0883  # m, as in the scene `plate`
_MASS = {"D1": 0.38, "D2": 1.9}  # kg
_AT = 0.035  # s after onset, at which the set gives the twist
_LAG = 0.015  # s after the kink, at which the laboratory's twist is told
_PATH = ("traj_t_delta_1e5", "traj_pos_delta_1e5", "traj_yaw_delta_1e5")
_LAST = 10  # frames at rest whose median is the pose at rest


@dataclass(frozen=True, eq=False)
class SlideSet:
    """N slides of one body. pose, twist, rest (N, 3): of its origin when the twist is told, and at
    rest; impacts: the strikes before them.
    """

    name: str
    scene: Scene
    support_patch: SupportPatch
    model: mujoco.MjModel  # the body on its ground in MuJoCo
    slides: tuple[Slide, ...]
    pose: np.ndarray
    twist: np.ndarray
    rest: np.ndarray
    impacts: Impacts
    session: np.ndarray

    def __len__(self) -> int:
        return len(self.slides)

    def subset(self, rows: np.ndarray) -> SlideSet:
        """The slides of some rows."""
        return SlideSet(
            self.name,
            self.scene,
            self.support_patch,
            self.model,
            tuple(self.slides[i] for i in rows),
            self.pose[rows],
            self.twist[rows],
            self.rest[rows],
            self.impacts[rows],
            self.session[rows],
        )

    def thinned(self, most: int) -> SlideSet:
        """At most `most` slides, evenly from all."""
        return self.subset(
            np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(int))
        )

    @cached_property
    def slider(self) -> Slider:
        """MuJoCo's slides of this body."""
        return Slider(self.model)


class Slider:
    """Slides in MuJoCo: a free body on the ground of a pair called `ground`, whose friction is
    given for each.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        self.pair = model.pair(GROUND).id
        self.free = next(
            j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE
        )

    def rest(
        self, pose: np.ndarray, twist: np.ndarray, friction: np.ndarray, *, longest: float = 4.0
    ) -> np.ndarray:
        """Poses at rest (N, 3); friction (N, 2) or (2,): sliding and torsional (m)."""
        n = len(pose)
        engine = batch.Batch(self.model, n)
        values = engine.expand("pair_friction")
        values[:, self.pair, :2], values[:, self.pair, 2] = (
            np.broadcast_to(friction, (n, 2))[:, :1],
            np.broadcast_to(friction, (n, 2))[:, 1],
        )
        qpos, qvel = engine.bind("qpos"), engine.bind("qvel")
        a, v = int(self.model.jnt_qposadr[self.free]), int(self.model.jnt_dofadr[self.free])
        engine.step(nstep=round(0.3 / self.model.opt.timestep))  # it sinks in and stands
        stands = qpos[:, a + 2].copy()
        qpos[:, a : a + 2], qpos[:, a + 2] = pose[:, :2], stands
        qpos[:, a + 3 : a + 7] = np.stack(
            [np.cos(pose[:, 2] / 2), 0 * pose[:, 2], 0 * pose[:, 2], np.sin(pose[:, 2] / 2)], 1
        )
        qvel[:, v : v + 6] = 0.0
        qvel[:, v : v + 2], qvel[:, v + 5] = twist[:, :2], twist[:, 2]
        yaw = pose[:, 2].copy()
        every = round(0.02 / self.model.opt.timestep)
        for _ in range(round(longest / 0.02)):
            engine.step(nstep=every)
            w, x, y, z = qpos[:, a + 3 : a + 7].T
            now = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
            yaw += wrap_angle(now - yaw)
            if np.abs(qvel[:, v : v + 2]).max() < 2e-3 and np.abs(qvel[:, v + 5]).max() < 2e-2:
                break
        return np.column_stack([qpos[:, a], qpos[:, a + 1], yaw])


def names(root: Path | None) -> list[str]:
    """All sets: those of struck boxes under the data root, and the laboratory's shapes."""
    real = (
        [] if root is None else [name for name in datasets.names(root) if name.startswith("lasa/")]
    )
    return [*real, *(f"lab/{shape.replace('_', '-')}" for shape in lab.SHAPES)]


def load(name: str, root: Path | None) -> SlideSet:
    """One set by name."""
    if name.startswith("lab/"):
        return _lab(name)
    if root is None:
        raise DataError(f"the set {name!r} needs the folder of the public recordings")
    return _lasa(name, root)


def _lasa(name: str, root: Path) -> SlideSet:
    """Struck boxes, in the order of `datasets.load`."""
    real = datasets.load(name, root)
    with np.load(root / "lasa_strikes" / "hits.npz", allow_pickle=False) as file:
        table = {
            key: file[key]
            for key in (
                "dataset",
                "session",
                "hit",
                "robot",
                "fit_rms",
                "v_obj",
                "traj_offset",
                *_PATH,
            )
        }
    if table["v_obj"].shape[1:] != (3,) or len(table["traj_offset"]) != len(table["hit"]) + 1:
        raise DataError("hits.npz: its trajectories do not belong to its strikes")
    rows = np.flatnonzero(
        (table["dataset"] == name.removeprefix("lasa/"))
        & (table["robot"] == 7)
        & (table["fit_rms"] < 0.003)
        & (np.linalg.norm(table["v_obj"][:, :2].astype(float), axis=1) > 0.1)
    )
    rows = rows[np.lexsort((table["hit"][rows], table["session"][rows]))]
    if len(rows) != len(real.impacts) or not np.allclose(table["v_obj"][rows], real.impacts.after):
        raise DataError("hits.npz: strikes and trajectories are not in the same order")
    slides, pose, rest = [], [], []
    for k, heading in zip(rows, real.impacts.motion.struck.yaw, strict=True):
        part = slice(table["traj_offset"][k], table["traj_offset"][k + 1])
        t, xy, turn = (np.cumsum(table[key][part].astype(np.int64), axis=0) * 1e-5 for key in _PATH)
        path = np.column_stack([xy[:, :2], heading + turn])
        near = np.abs(t - _AT) < 0.02
        first = np.polynomial.polynomial.polyfit(t[near] - _AT, path[near], 1)[0]
        later = t > _AT
        slides.append(
            Slide(
                np.append(_AT, t[later]),
                np.vstack([first[:2], path[later, :2]]),
                np.append(first[2], path[later, 2]),
            )
        )
        pose.append(first)
        rest.append(np.median(path[-_LAST:], 0))
    box = np.array([[a * _BOX[0], b * _BOX[1]] for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))])
    scene = Scene.load(real.scene).with_nominal(real.nominal)
    mass = _MASS.get(name.removeprefix("lasa/").split("-")[0], 1.0)
    return SlideSet(
        name,
        scene,
        uniform_support_patch(box, gyration=_GYRATION, height=_BOX[2]),
        _box_model(mass),
        tuple(slides),
        np.array(pose),
        real.impacts.after,
        np.array(rest),
        real.impacts,
        real.session,
    )


def _box_model(mass: float) -> mujoco.MjModel:
    """A struck box on its table, with the inertia that strikes showed about the vertical and that
    of an even box about the others.
    """
    x, y, z = _BOX
    about = (mass * (y * y + z * z) / 3, mass * (x * x + z * z) / 3, mass * _GYRATION**2)
    return mujoco.MjModel.from_xml_string(f"""
      <mujoco>
        <option timestep="0.001" integrator="implicitfast" cone="elliptic"/>
        <worldbody>
          <geom name="table" type="plane" size="5 5 0.1"/>
          <body name="box" pos="0 0 {z}">
            <freejoint/>
            <inertial pos="0 0 0" mass="{mass}" diaginertia="{about[0]} {about[1]} {about[2]}"/>
            <geom name="box" type="box" size="{x} {y} {z}"/>
          </body>
        </worldbody>
        <contact><pair name="{GROUND}" geom1="box" geom2="table" condim="4" friction="0.2 0.2 0.005 0.0001 0.0001"/></contact>
      </mujoco>""")


@lru_cache(maxsize=4)
def _lab(name: str) -> SlideSet:
    """Strikes of resin on high-friction sand, seen as any log would be: segmented, the first impact
    of each trial.
    """
    shape = name.removeprefix("lab/").replace("-", "_")
    scene, trials = Scene.load(shape), lab.recorded(shape, "resin", "high")
    found = segment(trials, scene=scene)
    rows = np.sort(np.unique(found.trial, return_index=True)[1])
    by_name = {trial.name: trial for trial in trials}
    slides, poses, twists, rest = [], [], [], []
    for f in (found.found[i] for i in rows):
        at = f.time + _LAG
        pose, twist = origin_state(f.trajectory, f.motion, f.reference, at)
        t, seen = by_name[f.trial].seen(scene.struck_body.name)
        turn = yaw_of(seen[:, 3:])
        turn += 2 * np.pi * np.round((pose[2] - np.interp(at, t, turn)) / (2 * np.pi))
        path, later = np.column_stack([seen[:, :2], turn]), t > at
        slides.append(
            Slide(
                np.append(at, t[later]),
                np.vstack([pose[:2], path[later, :2]]),
                np.append(pose[2], path[later, 2]),
            )
        )
        poses.append(pose)
        twists.append(twist)
        rest.append(np.median(path[-_LAST:], 0))
    model = copy.copy(scene.base)
    model.opt.timestep = 0.001
    model.qpos0[scene.striker_body.qpos] = -3.0  # out of the way
    return SlideSet(
        name,
        scene,
        support_patch(scene),
        model,
        tuple(slides),
        np.array(poses),
        np.array(twists),
        np.array(rest),
        found.impacts[rows],
        np.full(len(rows), name),
    )
