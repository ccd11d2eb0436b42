"""Public recordings of real impacts, by name, from a data root that the user sets; nothing of them
is shipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.spatial.transform import Rotation

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.npz import Npz

DATA_ROOT_VARIABLE = "CLASHSIM_DATA"
_BYTES = 1 << 29  # of the arrays of one file; the public ones have a few million
# set -> (its file under the data root, the public repository it comes from)
_SOURCES = {
    "mit_ellipse": ("mit_ellipse/data_ellipse.mat", "mcubelab/planar-impact-dataset"),
    "lasa": ("lasa_strikes/hits.npz", "epfl-lasa/air_hockey"),
    "tud_puck": ("tud_puck/puck_traj.npz", "mrdinghr/air-hockey"),
}
_TEXT = ("dataset", "session")  # columns of names; all others are numbers
_MODELS = (
    "drumwright-shell",
    "ap-poisson",
    "ap-newton",
    "mirtich",
    "wang-mason",
    "whittaker",
)  # column order of v_models.mat
_SEMI_AXES = (0.035, 0.025)  # m, of the ellipse
_TABLE, _RADIUS = (
    (1.948, 1.038),
    0.03165,
)  # m: the puck's table, centred at the origin, and the puck
_DRAG = (0.053, 0.159)  # 1/s, m/s^2: the air table slows the puck by _DRAG[0] * speed + _DRAG[1]
_WINDOW, _GAP, _FRAMES = (
    0.12,
    0.045,
    5,
)  # s, s, count: reach of the fit on each side of a hit, longest gap in it, fewest frames
_NEAR, _SLOWEST = (
    0.06,
    0.3,
)  # m, m/s: a hit's nearest frame is this close to its wall, and this fast towards it
_RMS = (0.0015, 0.0015, 0.05)  # m, m, rad: a worse fit has another contact or a lost marker in it
_CORNER, _GOAL = (
    0.05,
    0.16,
)  # m: from the other wall; half of the goal's mouth with the puck's reach around its posts
_SURFACE = (
    0.015  # m: the fits of a wall hit cross this close to the wall; a mallet's hit may be anywhere
)


@dataclass(frozen=True, eq=False)
class RealDataset:
    """Real impacts of one public set, in recorded order inside each session.

    scene: name of the shipped scene; gyration (m): weighs the spin in errors; session (N,): labels;
    published: predictions (N, 3) of the twist after, by the name of the published model, in the
    axes of `impacts`; nominal: what is expected of the scene's parameters here.
    """

    name: str
    scene: str
    impacts: Impacts
    gyration: float
    session: np.ndarray
    published: Mapping[str, np.ndarray] = field(default_factory=dict)
    nominal: Mapping[str, float] = field(default_factory=dict)


def find_data_root(root: Path | None) -> Path:
    """The data root given by --data or by the environment; without one, say where the sets can be
    had.
    """
    chosen = root or (
        Path(os.environ[DATA_ROOT_VARIABLE]) if os.environ.get(DATA_ROOT_VARIABLE) else None
    )
    if chosen is None:
        had = ", ".join(
            f"{file} from github.com/{repository}" for file, repository in _SOURCES.values()
        )
        raise DataError(
            f"no real recordings: put {had} into one folder (any part of them will do) and point at it with --data FOLDER or the environment variable {DATA_ROOT_VARIABLE}"
        )
    if not chosen.is_dir():
        raise DataError(
            f"the data root {str(chosen)!r} is not a folder: give --data or {DATA_ROOT_VARIABLE} a folder that holds {', '.join(file for file, _ in _SOURCES.values())}"
        )
    return chosen


def names(root: Path) -> list[str]:
    """Names of the sets that the data root holds."""
    found = {kind for kind, (file, _) in _SOURCES.items() if (root / file).is_file()}
    lasa = [f"lasa/{d}" for d in np.unique(_strikes(root)["dataset"])] if "lasa" in found else []
    return sorted([*(found - {"lasa"}), *lasa])


def load(name: str, root: Path) -> RealDataset:
    """Read one set by name."""
    readers: dict[str, Callable[[Path], RealDataset]] = {"mit_ellipse": _ellipse, "tud_puck": _puck}
    kind = name.split("/")[0]
    present = kind in _SOURCES and (root / _SOURCES[kind][0]).is_file()
    if present and kind == "lasa":
        return _lasa(name, root)
    if not present or name not in readers:
        raise DataError(f"the data root holds no set {name!r}; {did_you_mean(name, names(root))}")
    return readers[name](root)


def _arrays(path: Path, columns: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Named arrays of an .npz file, each (N, *tail) with its tail as given; only those are read."""
    out: dict[str, np.ndarray] = {}
    try:
        archive = Npz(path, limit=_BYTES)
        missing = next((key for key in columns if key not in archive.names), None)
        if missing is None:
            out = {key: archive.array(key, kinds="fiuU") for key in columns}
    except DataError as error:
        raise _unreadable(path, error) from None
    if missing is not None:
        hint = did_you_mean(missing, archive.names)
        raise DataError(f"{path.name} lacks the array {missing!r}; {hint}")
    for key, tail in columns.items():
        _check(path, key, out[key], tail)
    return out


def _check(path: Path, key: str, array: np.ndarray, tail: tuple[int, ...]) -> None:
    """Refuse an array that is not (N, *tail) of numbers, or of text where names belong."""
    what, kinds = ("text", "U") if key in _TEXT else ("numbers", "fiu")
    if array.ndim != 1 + len(tail) or array.shape[1:] != tail or array.dtype.kind not in kinds:
        shape = ", ".join(map(str, ("N", *tail)))
        raise DataError(
            f"{path.name}: {key!r} should hold {what} of shape ({shape}), got {array.shape} of {array.dtype}"
        )


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:120]
    return DataError(
        f"{path.name} cannot be read ({reason or type(error).__name__}): it is truncated or not the public file"
    )


def _matlab(path: Path, variable: str) -> np.ndarray:
    try:
        return loadmat(path, variable_names=[variable])[variable]
    except Exception as error:  # scipy's reader raises almost anything on a damaged file
        raise _unreadable(path, error) from None


# --- mit_ellipse
# ---------------------------------------------------------------------------------------------------------------


def _ellipse(root: Path) -> RealDataset:
    path = root / _SOURCES["mit_ellipse"][0]
    start, end = _ellipse_states(path)
    mirror = np.array([-1.0, 1.0, 1.0])  # the recorded x axis is mirrored with respect to theta
    theta = start[:, 2]
    a, b = _SEMI_AXES
    height = np.hypot(
        a * np.sin(theta), b * np.cos(theta)
    )  # the recorded y is twice the support height
    before, motion = MotionBefore.at_origin(len(start), planar=True)
    motion.struck.pose[:] = np.column_stack([-start[:, 0], height, theta])
    motion.struck.twist[:] = mirror * start[:, 3:]
    impacts = Impacts(True, before, mirror * end[:, 3:]).checked()
    return RealDataset(
        "mit_ellipse",
        "ellipse",
        impacts,
        0.0192,
        np.full(len(start), "mit_ellipse"),
        _published(path.with_name("v_models.mat"), len(start), mirror),
    )


def _ellipse_states(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """States (N, 6) just before and just after each impact, as recorded."""
    data = _matlab(path, "data")
    if (
        data.dtype.names is None
        or data.size != 1
        or not {"states_i", "states_f"} <= set(data.dtype.names)
    ):
        raise DataError(
            f"{path.name} should hold a structure 'data' with 'states_i' and 'states_f'"
        )
    row = data.flat[0]
    start, end = np.asarray(row["states_i"]), np.asarray(row["states_f"])
    for key, states in (("states_i", start), ("states_f", end)):
        _check(path, key, states, (6,))
    if len(start) != len(end):
        raise DataError(f"{path.name} holds {len(start)} states before but {len(end)} after impact")
    return start.astype(float), end.astype(float)


def _published(path: Path, n: int, mirror: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions of the published models, three columns each; none where their file is absent."""
    if not path.is_file():
        return {}
    table = _matlab(path, "v_models")
    _check(path, "v_models", table, (3 * len(_MODELS),))
    if len(table) != n:
        raise DataError(f"{path.name} predicts {len(table)} impacts, the data holds {n}")
    return {model: mirror * table[:, 3 * k : 3 * k + 3] for k, model in enumerate(_MODELS)}


# --- lasa_strikes
# --------------------------------------------------------------------------------------------------------------


def _strikes(root: Path) -> dict[str, np.ndarray]:
    """Columns of the usable strikes: of the iiwa 7 (only there tool and object share a frame), well
    fitted, with a moving object.
    """
    vector, quaternion = (3,), (4,)
    columns = {
        "dataset": (),
        "session": (),
        "hit": (),
        "robot": (),
        "object": (),
        "fit_rms": (),
        "lambda_y": (),
        "v_obj": vector,
        "v_eef": vector,
        "p_eef": vector,
        "p_obj": vector,
        "q_eef": quaternion,
        "q_obj_xyzw": quaternion,
    }
    path = root / _SOURCES["lasa"][0]
    table = _arrays(path, columns)
    if len({len(v) for v in table.values()}) != 1:
        raise DataError(f"{path.name}: its arrays differ in length")
    keep = (
        (table["robot"] == 7)
        & (table["fit_rms"] < 0.003)
        & (np.linalg.norm(table["v_obj"][:, :2], axis=1) > 0.1)
    )
    return {k: v[keep] if v.dtype.kind == "U" else v[keep].astype(float) for k, v in table.items()}


# N/m of tool on box. MuJoCo's stiffness is per kilogram of what moves, so a heavier box is struck
# at a lower one.
_SPRING = 3200.0
_MASS = {
    1: 0.38,
    2: 1.9,
    3: 0.39,
}  # kg, as the set's authors give them; the scene's masses are per kilogram of box


def _lasa(name: str, root: Path) -> RealDataset:
    """Strikes of one `dataset`; the striker is the tool plate, whose face looks along +y at yaw 0."""
    table = _strikes(root)
    rows = np.flatnonzero(table["dataset"] == name.removeprefix("lasa/"))
    if len(rows) == 0 or not name.startswith("lasa/"):
        raise DataError(f"the data root holds no set {name!r}; {did_you_mean(name, names(root))}")
    s = {k: v[rows] for k, v in table.items()}
    order = np.lexsort((s["hit"], s["session"]))
    s = {k: v[order] for k, v in s.items()}
    tool, box = (_matrices(s[k], k) for k in ("q_eef", "q_obj_xyzw"))
    tool_yaw = np.arctan2(-tool[:, 0, 2], tool[:, 1, 2])
    # Heading of the object frame's own x axis. A box looks the same after half a turn, not after a
    # quarter; the marker frame of object 2 is a quarter turn off its faces. Tilt is left out: it
    # spreads by less than 1 mrad, and every column costs strikes to learn.
    box_yaw = np.arctan2(box[:, 1, 0], box[:, 0, 0]) + np.where(s["object"] == 2, np.pi / 2, 0.0)
    box_yaw = (box_yaw + np.pi / 2) % np.pi - np.pi / 2
    still = np.zeros(len(order))
    before = np.column_stack(
        [
            s["p_obj"][:, :2],
            box_yaw,
            still,
            still,
            still,
            s["p_eef"][:, :2],
            tool_yaw,
            s["v_eef"][:, :2],
            still,
        ]
    )
    mass = np.array([_MASS.get(int(o), 1.0) for o in s["object"]])
    known = {
        "arm_mass": s["lambda_y"] / mass,
        "tool_pitch": np.arcsin(np.clip(tool[:, 2, 2], -1, 1)),
        "tool_height": s["p_eef"][:, 2] - s["p_obj"][:, 2],
    }
    session = np.where(s["session"] == "", name, s["session"])
    scene = "plate_edge" if np.median(np.abs(box_yaw - tool_yaw)) > 0.3 else "plate"
    nominal = {"stiffness": _SPRING * float(np.median(1 / mass + 1 / s["lambda_y"]))}
    return RealDataset(
        name,
        scene,
        Impacts(True, before, s["v_obj"], known=known).checked(),
        0.1,
        session,
        nominal=nominal,
    )


def _matrices(quaternions: np.ndarray, key: str) -> np.ndarray:
    """Rotation matrices (N, 3, 3) of quaternions xyzw (N, 4)."""
    length = np.linalg.norm(quaternions, axis=1)
    if not (np.abs(length - 1) < 1e-2).all():
        raise DataError(
            f"strike {int(np.argmin(np.abs(length - 1) < 1e-2))} has a quaternion {key!r} that is not of length 1"
        )
    return Rotation.from_quat(quaternions).as_matrix()


# --- tud_puck
# ------------------------------------------------------------------------------------------------------------------


def _puck(root: Path) -> RealDataset:
    """Wall hits found in the trajectories, each seen from its wall: normal +x, y along it."""
    hits = [hit for run in _runs(root / _SOURCES["tud_puck"][0]) for hit in _run_hits(run)]
    if not hits:
        raise DataError("the puck's trajectories hold no wall hit that can be measured")
    wall, along, yaw, twists = (
        np.array(c, float)
        for c in zip(*((h.wall, h.along, h.yaw, (*h.before, *h.after)) for h in hits), strict=True)
    )
    before, motion = MotionBefore.at_origin(len(hits), planar=True)
    motion.struck.pose[:] = np.column_stack([np.full(len(hits), _RADIUS), along, yaw])
    motion.struck.twist[:] = twists[:, :3]
    impacts = Impacts(True, before, twists[:, 3:], known={"wall": wall}).checked()
    return RealDataset(
        "tud_puck", "puck", impacts, _RADIUS / np.sqrt(2), np.full(len(hits), "tud_puck")
    )


def _runs(path: Path) -> list[np.ndarray]:
    """Trajectories (T, 4) of x, y, yaw, t with increasing time; repeated frames are dropped, for
    they carry an old pose at a new time.
    """
    table = _arrays(path, {"x_y_yaw_t": (4,), "offset": ()})
    rows, offset = table["x_y_yaw_t"].astype(float), table["offset"]
    if (
        offset.dtype.kind not in "iu"
        or len(offset) < 2
        or offset[0] < 0
        or offset[-1] > len(rows)
        or (np.diff(offset.astype(np.int64)) < 0).any()
    ):
        raise DataError(f"{path.name}: 'offset' does not cut {len(rows)} rows into runs")
    runs = []
    for a, b in pairwise(offset):
        run = rows[a:b]
        run = run[np.isfinite(run).all(1)]
        step = np.diff(run, axis=0)
        runs.append(
            run[np.r_[True, (step[:, 3] > 1e-3) & (np.abs(step[:, :3]).max(1) > 0)]]
            if len(run)
            else run
        )
    return runs


@dataclass(frozen=True, eq=False)
class _Hit:
    """One wall hit: time (s), wall 0..3 (its outward normal turned by quarter turns from +x), place
    along it, yaw, twists (3,) in its frame.
    """

    time: float
    wall: int
    along: float
    yaw: float
    before: np.ndarray
    after: np.ndarray


def _run_hits(run: np.ndarray) -> list[_Hit]:
    """Wall hits of one trajectory in order of time."""
    hits = [hit for wall in range(4) for hit in _wall_hits(run, wall)]
    return sorted(hits, key=lambda hit: hit.time)


def _wall_hits(run: np.ndarray, wall: int) -> Sequence[_Hit]:
    if len(run) < 2 * _FRAMES + 1:
        return []
    angle = (wall + 2) % 4 * np.pi / 2  # heading of the inward normal
    inward = np.round([np.cos(angle), np.sin(angle)])
    yaw = np.unwrap(run[:, 2]) - angle
    pose = np.column_stack(
        [
            run[:, :2] @ inward + _TABLE[wall % 2] / 2 - _RADIUS,
            run[:, :2] @ [-inward[1], inward[0]],
            yaw,
        ]
    )
    gap = pose[:, 0]
    nearest_frame = (
        np.flatnonzero((gap[1:-1] <= gap[:-2]) & (gap[1:-1] < gap[2:]) & (gap[1:-1] < _NEAR)) + 1
    )
    found = (_hit(run[:, 3], pose, int(j), wall) for j in nearest_frame)
    return [hit for hit in found if hit is not None]


def _hit(t: np.ndarray, pose: np.ndarray, j: int, wall: int) -> _Hit | None:
    """The hit around frame j, the nearest to the wall, or None where it cannot be measured; frame j
    itself may be on either side.
    """
    sides = [_side(t, j, step) for step in (-1, 1)]
    if min(map(len, sides)) < _FRAMES:
        return None
    old, new = (_line(t[rows] - t[j], pose[rows]) for rows in sides)
    if old is None or new is None or old.velocity[0] > -_SLOWEST or new.velocity[0] <= 0:
        return None
    moment = (old.pose[0] - new.pose[0]) / (
        new.velocity[0] - old.velocity[0]
    )  # where the two lines cross, so the wall need not be known
    if not t[j - 1] - t[j] <= moment <= t[j + 1] - t[j]:
        return None
    depth, along, yaw = old.pose + old.velocity * moment
    before, after = old.at(moment), new.at(moment)
    short = wall % 2 == 0
    cornered = abs(along) > _TABLE[1 if short else 0] / 2 - _RADIUS - _CORNER
    if (
        abs(depth) > _SURFACE
        or cornered
        or (short and abs(along) < _GOAL)
        or _energy(after) > _energy(before)
    ):
        return (
            None  # not a plain wall: a mallet (which feeds energy), two walls at once, a goal post
        )
    return _Hit(
        float(t[j] + moment),
        wall,
        float(along),
        float(wrap_angle(yaw)),
        before,
        after,
    )


def _side(t: np.ndarray, j: int, step: int) -> np.ndarray:
    """Frames on one side of frame j that a fit may use: near in time and without a long gap."""
    rows, i = [], j + step
    while 0 <= i < len(t) and abs(t[i] - t[j]) <= _WINDOW and abs(t[i] - t[i - step]) <= _GAP:
        rows.append(i)
        i += step
    return np.array(rows, int)


@dataclass(frozen=True, eq=False)
class _Line:
    """Motion near a hit: pose (3,) and velocity (3,) at time 0, acceleration (3,) by drag."""

    pose: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray

    def at(self, moment: float) -> np.ndarray:
        """Velocity (3,) at a time."""
        return self.velocity + self.acceleration * moment


def _line(t: np.ndarray, pose: np.ndarray) -> _Line | None:
    """Straight fit with the table's drag taken out first (left in, it biases the restitution by
    0.015); None where it fits poorly.
    """
    rough = np.polyfit(t, pose, 1)[0]
    speed = float(np.hypot(rough[0], rough[1]))
    drag = np.zeros(3)
    drag[:2] = -(_DRAG[0] + _DRAG[1] / max(speed, 1e-9)) * rough[:2]
    straight = pose - 0.5 * drag * t[:, None] ** 2
    velocity, start = np.polyfit(t, straight, 1)
    rms = np.sqrt(((straight - start - velocity * t[:, None]) ** 2).sum(0) / (len(t) - 2))
    return _Line(start, velocity, drag) if (rms < _RMS).all() else None


def _energy(twist: np.ndarray) -> float:
    return float(twist[0] ** 2 + twist[1] ** 2 + 0.5 * (_RADIUS * twist[2]) ** 2)
