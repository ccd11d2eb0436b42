"""Slides of the struck boxes of the public data set lasa_strikes."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from clashsim.bench.recorded_slides import RecordedSlide, SlideSet
from clashsim.core.errors import DataError
from clashsim.core.scene import GROUND, Scene
from clashsim.data import datasets
from clashsim.slides.support_patch import uniform_support_patch

# Half sides of the boxes, m, from contact distances and what the authors of the data set state.
_HALF_SIDES = (0.128, 0.119, 0.125)
_GYRATION = 0.0883  # m, as in the scene `plate`
_MASS = {"D1": 0.38, "D2": 1.9}  # kg, by the part of the data set
_OTHER_MASS = 1.0  # kg, of the box in other parts
_START = 0.035  # s after the impact, at which the data set states the twist
_START_WINDOW = 0.02  # s, before and after the start, in which a line through the path is fitted
_ROBOT = 7  # the arm whose strikes are used
_MAX_FIT_RMS = 0.003  # m, residual of the data set's own fit of a strike
_MIN_SPEED = 0.1  # m/s, of the box after the strike
# Keys of the file. Its trajectories are differences between frames, in units of 1e-5 s, m and rad.
_TIME = "traj_t_delta_1e5"
_POSITION = "traj_pos_delta_1e5"
_YAW = "traj_yaw_delta_1e5"
_UNIT = 1e-5
_COLUMNS = ("dataset", "session", "hit", "robot", "fit_rms", "v_obj", "traj_offset")


def load_boxes(name: str, root: Path) -> SlideSet:
    """Load the slides of struck boxes, in the order of `datasets.load`.

    Args:
        name: Name of the data set, as in "lasa/D1".
        root: Folder of the public recordings.
    """
    real = datasets.load(name, root)
    short_name = name.removeprefix("lasa/")
    table = _read_table(root)
    rows = _usable_rows(table, short_name)
    same_count = len(rows) == len(real.impacts)
    if not same_count or not np.allclose(table["v_obj"][rows], real.impacts.after):
        raise DataError("hits.npz: strikes and trajectories are not in the same order")
    first_poses = []
    slides = []
    for row, yaw_before in zip(rows, real.impacts.pose[:, 2], strict=True):
        time, path = _recorded_path(table, row, yaw_before)
        near_start = np.abs(time - _START) < _START_WINDOW
        line = np.polynomial.polynomial.polyfit(time[near_start] - _START, path[near_start], 1)
        pose_at_start = line[0]  # the line's constant
        first_poses.append(pose_at_start)
        slides.append(RecordedSlide.of(time, path, _START, pose_at_start))
    mass = _MASS.get(short_name.split("-")[0], _OTHER_MASS)
    x, y, height = _HALF_SIDES
    corners = np.array([[x, y], [-x, y], [-x, -y], [x, -y]])
    return SlideSet(
        name=name,
        scene=Scene.load(real.scene).with_nominal(real.nominal),
        support_patch=uniform_support_patch(corners, gyration=_GYRATION, height=height),
        model=_box_model(mass),
        slides=tuple(slide.path for slide in slides),
        pose=np.array(first_poses),
        twist=real.impacts.after,
        rest=np.array([slide.rest for slide in slides]),
        impacts=real.impacts,
        session=real.session,
    )


def _read_table(root: Path) -> dict[str, np.ndarray]:
    """Columns of the data set's file."""
    with np.load(root / "lasa_strikes" / "hits.npz", allow_pickle=False) as file:
        table = {key: file[key] for key in (*_COLUMNS, _TIME, _POSITION, _YAW)}
    planar_twists = table["v_obj"].shape[1:] == (3,)
    if not planar_twists or len(table["traj_offset"]) != len(table["hit"]) + 1:
        raise DataError("hits.npz: its trajectories do not belong to its strikes")
    return table


def _usable_rows(table: dict[str, np.ndarray], short_name: str) -> np.ndarray:
    """Rows of the strikes of one part of the data set that were fitted well, in recorded order."""
    speed = np.linalg.norm(table["v_obj"][:, :2].astype(float), axis=1)
    usable = (
        (table["dataset"] == short_name)
        & (table["robot"] == _ROBOT)
        & (table["fit_rms"] < _MAX_FIT_RMS)
        & (speed > _MIN_SPEED)
    )
    rows = np.flatnonzero(usable)
    return rows[np.lexsort((table["hit"][rows], table["session"][rows]))]


def _recorded_path(
    table: dict[str, np.ndarray], row: int, yaw_before: float
) -> tuple[np.ndarray, np.ndarray]:
    """Times (T,), s, and poses (T, 3) after one strike: x, y (m), yaw (rad)."""
    frames = slice(table["traj_offset"][row], table["traj_offset"][row + 1])
    time = _UNIT * np.cumsum(table[_TIME][frames].astype(np.int64), axis=0)
    position = _UNIT * np.cumsum(table[_POSITION][frames].astype(np.int64), axis=0)
    yaw_change = _UNIT * np.cumsum(table[_YAW][frames].astype(np.int64), axis=0)
    return time, np.column_stack([position[:, :2], yaw_before + yaw_change])


def _box_model(mass: float) -> mujoco.MjModel:
    """A box on its table in MuJoCo.

    The inertia about the vertical is the one that strikes showed; about the other axes it is that
    of a uniform box.
    """
    x, y, z = _HALF_SIDES
    inertia_x = mass * (y * y + z * z) / 3
    inertia_y = mass * (x * x + z * z) / 3
    inertia_z = mass * _GYRATION**2
    return mujoco.MjModel.from_xml_string(f"""
      <mujoco>
        <option timestep="0.001" integrator="implicitfast" cone="elliptic"/>
        <worldbody>
          <geom name="table" type="plane" size="5 5 0.1"/>
          <body name="box" pos="0 0 {z}">
            <freejoint/>
            <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia_x} {inertia_y} {inertia_z}"/>
            <geom name="box" type="box" size="{x} {y} {z}"/>
          </body>
        </worldbody>
        <contact>
          <pair name="{GROUND}" geom1="box" geom2="table" condim="4"
                friction="0.2 0.2 0.005 0.0001 0.0001"/>
        </contact>
      </mujoco>""")
