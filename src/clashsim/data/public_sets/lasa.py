"""LASA's boxes struck by the tool plate of an iiwa 7 (epfl-lasa/air_hockey)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.data.public_sets.checked_arrays import read_npz_arrays
from clashsim.data.public_sets.real_dataset import RealDataset

FILE = "lasa_strikes/hits.npz"
PREFIX = "lasa/"  # of the names of its sets
_VECTOR = (3,)
_QUATERNION = (4,)
_COLUMNS: dict[str, tuple[int, ...]] = {
    "dataset": (),
    "session": (),
    "hit": (),
    "robot": (),
    "object": (),
    "fit_rms": (),
    "lambda_y": (),
    "v_obj": _VECTOR,
    "v_eef": _VECTOR,
    "p_eef": _VECTOR,
    "p_obj": _VECTOR,
    "q_eef": _QUATERNION,
    "q_obj_xyzw": _QUATERNION,
}
_ROBOT = 7  # the iiwa 7: only its tool and objects were recorded in the same axes
_MAX_FIT_RMS = 0.003  # m
_MIN_SPEED = 0.1  # m/s of the object after the strike
# Stiffness of the contact between tool and box. MuJoCo's stiffness is this over the mass that
# moves, so it is lower for a heavier box.
_SPRING = 3200.0  # N/m
# Masses by number of the object, as the set's authors give them; the scene's masses are per
# kilogram of box.
_BOX_MASS = {1: 0.38, 2: 1.9, 3: 0.39}  # kg
_OTHER_BOX_MASS = 1.0  # kg, of an object without a given mass
_QUARTER_TURNED_BOX = 2  # the marker frame of this object is a quarter turn off its faces
_GYRATION_RADIUS = 0.1  # m
# Angle between the faces of box and tool beyond which the plate strikes with its edge.
_MIN_EDGE_ANGLE = 0.3  # rad
_MAX_NORM_ERROR = 1e-2  # of a quaternion's length


def lasa_names(root: Path) -> list[str]:
    """Names of the sets in the file."""
    return [f"{PREFIX}{name}" for name in np.unique(_read_strikes(root)["dataset"])]


def read_lasa(name: str, root: Path) -> RealDataset | None:
    """Read the strikes of one set; None where the file has no such set.

    The striker is the tool plate, whose face looks along +y at yaw 0.
    """
    table = _read_strikes(root)
    rows = np.flatnonzero(table["dataset"] == name.removeprefix(PREFIX))
    if len(rows) == 0 or not name.startswith(PREFIX):
        return None
    in_order = np.lexsort((table["hit"][rows], table["session"][rows]))
    strikes = {key: values[rows][in_order] for key, values in table.items()}
    tool_normal = _rotation_matrices(strikes["q_eef"], "q_eef")[:, :, 2]  # of its face, world axes
    tool_yaw = np.arctan2(-tool_normal[:, 0], tool_normal[:, 1])
    box_yaw = _box_yaw(strikes)
    box_pose = np.column_stack([strikes["p_obj"][:, :2], box_yaw])
    box_twist = np.zeros((len(rows), 3))
    tool_pose = np.column_stack([strikes["p_eef"][:, :2], tool_yaw])
    tool_twist = np.column_stack([strikes["v_eef"][:, :2], np.zeros(len(rows))])
    before = np.column_stack([box_pose, box_twist, tool_pose, tool_twist])
    objects = strikes["object"]
    box_mass = np.array([_BOX_MASS.get(int(number), _OTHER_BOX_MASS) for number in objects])
    tool_mass = strikes["lambda_y"]  # effective mass of the arm along y
    known = {
        "arm_mass": tool_mass / box_mass,
        "tool_pitch": np.arcsin(np.clip(tool_normal[:, 2], -1, 1)),
        "tool_height": strikes["p_eef"][:, 2] - strikes["p_obj"][:, 2],
    }
    strikes_with_edge = np.median(np.abs(box_yaw - tool_yaw)) > _MIN_EDGE_ANGLE
    stiffness = _SPRING * float(np.median(1 / box_mass + 1 / tool_mass))
    return RealDataset(
        name=name,
        scene="plate_edge" if strikes_with_edge else "plate",
        impacts=Impacts(True, before, strikes["v_obj"], known=known).checked(),
        gyration=_GYRATION_RADIUS,
        session=np.where(strikes["session"] == "", name, strikes["session"]),
        nominal={"stiffness": stiffness},
    )


def _read_strikes(root: Path) -> dict[str, np.ndarray]:
    """Columns of the usable strikes: of the right robot, well fitted, with a moving object."""
    path = root / FILE
    table = read_npz_arrays(path, _COLUMNS)
    if len({len(values) for values in table.values()}) != 1:
        raise DataError(f"{path.name}: its arrays differ in length")
    speed = np.linalg.norm(table["v_obj"][:, :2], axis=1)
    is_usable = (table["robot"] == _ROBOT) & (table["fit_rms"] < _MAX_FIT_RMS)
    is_usable &= speed > _MIN_SPEED
    strikes = {}
    for key, values in table.items():
        usable = values[is_usable]
        strikes[key] = usable if values.dtype.kind == "U" else usable.astype(float)
    return strikes


def _box_yaw(strikes: dict[str, np.ndarray]) -> np.ndarray:
    """Heading (N,) of the x axis of each box, rad, from -pi/2 to pi/2.

    A box looks the same after half a turn, not after a quarter. Tilt is left out: its standard
    deviation is below 1 mrad, and the effect of every further column would have to be learned from
    few strikes.
    """
    box = _rotation_matrices(strikes["q_obj_xyzw"], "q_obj_xyzw")
    marker_yaw = np.where(strikes["object"] == _QUARTER_TURNED_BOX, np.pi / 2, 0.0)
    yaw = np.arctan2(box[:, 1, 0], box[:, 0, 0]) + marker_yaw
    return (yaw + np.pi / 2) % np.pi - np.pi / 2


def _rotation_matrices(quaternions: np.ndarray, name: str) -> np.ndarray:
    """Rotation matrices (N, 3, 3) of quaternions xyzw (N, 4)."""
    norms = np.linalg.norm(quaternions, axis=1)
    is_unit = np.abs(norms - 1) < _MAX_NORM_ERROR
    if not is_unit.all():
        strike = int(np.argmin(is_unit))
        raise DataError(f"strike {strike} has a quaternion {name!r} that is not of length 1")
    return Rotation.from_quat(quaternions).as_matrix()
