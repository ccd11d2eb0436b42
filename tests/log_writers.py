"""One motion written in every format, by the libraries whose files laboratories have."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping

Poses = dict[str, np.ndarray]
PLACES = np.array(
    [[0.1, 0, 0], [-0.08, 0.09, 0], [-0.05, -0.1, 0.02], [0.03, 0.02, 0.11], [0.0, -0.04, -0.09]]
)  # m, markers on a body
EPOCH = 1_700_000_000
T = np.arange(160) / 200.0


def motion(seed: int = 0) -> Poses:
    """A box that is struck at 0.25 s, slides and turns, and the tool that strikes it; noise as of
    motion capture. Each (160, 7) m and wxyz.
    """
    rng = np.random.default_rng(seed)
    after = np.clip(T - 0.25, 0, 0.45)
    slide = 1.2 * after - 1.2 / 0.9 * after**2
    box = np.column_stack([0.5 + 0.1 * slide, 0.3 + slide, np.full(len(T), 0.12)])
    tool = np.column_stack(
        [
            np.full(len(T), 0.5),
            0.05 + 0.9 * np.minimum(T, 0.27) + 0.05 * np.maximum(T - 0.27, 0),
            0.2 + 0.02 * np.sin(3 * T),
        ]
    )
    angles = {
        "box": [0.3 + 2 * slide, 0 * T, 0 * T],
        "tool": [0.05 * T, 0.1 * np.sin(4 * T), 1.4 + 0.1 * T],
    }
    turns = {
        name: Rotation.from_euler("ZYX", np.column_stack(three)) for name, three in angles.items()
    }
    poses = {}
    for name, place in (("box", box), ("tool", tool)):
        shake = Rotation.from_rotvec(2e-4 * rng.normal(size=(len(T), 3)))
        quaternion = (shake * turns[name]).as_quat()[:, [3, 0, 1, 2]]
        poses[name] = np.column_stack(
            [place + 5e-5 * rng.normal(size=place.shape), quaternion * np.sign(quaternion[:, :1])]
        )
    return poses


def columns(t: np.ndarray, poses: Poses) -> dict[str, np.ndarray]:
    """Plain columns: time, and x y z qw qx qy qz of each body."""
    return {"time": t} | {
        f"{body}_{part}": pose[:, j]
        for body, pose in poses.items()
        for j, part in enumerate(("x", "y", "z", "qw", "qx", "qy", "qz"))
    }


def plain_mapping(**more: object) -> LogMapping:
    """The mapping of plain columns."""
    bodies = tuple(
        BodyMapping(
            b, tuple(f"{b}_{a}" for a in "xyz"), quaternion=tuple(f"{b}_q{a}" for a in "wxyz")
        )
        for b in ("box", "tool")
    )
    return LogMapping((LoggerMapping(bodies, time="time", **more),))  # type: ignore[arg-type]


def write_csv(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    table = columns(t, poses)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows([repr(float(v)) for v in row] for row in zip(*table.values(), strict=True))
    return plain_mapping()


def write_vectors(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    """CSV with vectors between blanks in one cell, xyzw, milliseconds and millimetres, and a line
    before the header.
    """
    with path.open("w") as file:
        file.write(
            "Mass,0.4,Start,0 0 0\nstamp_ms," + ",".join(f"{b} pos,{b} quat" for b in poses) + "\n"
        )
        for i, time in enumerate(t):
            cells = [
                " ".join(repr(float(v)) for v in vector)
                for pose in poses.values()
                for vector in (pose[i, :3] * 1e3, pose[i, [4, 5, 6, 3]])
            ]
            file.write(f"{float(time) * 1e3!r}," + ",".join(cells) + "\n")
    bodies = tuple(
        BodyMapping(b, (f"{b} pos",), quaternion=(f"{b} quat",), order="xyzw") for b in poses
    )
    return LogMapping(
        (
            LoggerMapping(
                bodies,
                time="stamp_ms",
                units={"time": "ms", "length": "mm"},
                header_lines=1,
                header={"mass": "Mass"},
            ),
        )
    )


def write_parquet(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns(t, poses)), path)
    return plain_mapping()


def write_motive(path: Path, t: np.ndarray, poses: Poses) -> None:
    """Motive 1.23, y up, metres, quaternions xyzw, with a marker beside the bodies."""
    turn = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]])  # z up to y up
    head = [
        "Format Version",
        "1.23",
        "Take Name",
        "take",
        "Capture Frame Rate",
        "200.000000",
        "Rotation Type",
        "Quaternion",
        "Length Units",
        "Meters",
    ]
    rows = [head, [], ["", "Type"], ["", "Name"], ["", "ID"], ["", ""], ["Frame", "Time (Seconds)"]]
    for k, body in enumerate(poses):
        for what, axis in (
            [("Rotation", a) for a in "XYZW"]
            + [("Position", a) for a in "XYZ"]
            + [("Mean Marker Error", "")]
        ):
            for row, cell in zip(rows[2:], ("Rigid Body", body, str(k), what, axis), strict=True):
                row.append(cell)
    for axis in "XYZ":
        for row, cell in zip(rows[2:], ("Marker", "m1", "9", "Position", axis), strict=True):
            row.append(cell)
    for i, time in enumerate(t):
        cells: list[object] = [i, repr(float(time))]
        for pose in poses.values():
            q, p = turn @ pose[i, 4:], turn @ pose[i, :3]
            cells += ["" if np.isnan(v) else repr(float(v)) for v in (*q, pose[i, 3], *p)] + [
                "0.0001"
            ]
        rows.append([*cells, "1.0", "", "1.0"])  # type: ignore[list-item]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_vicon(path: Path, t: np.ndarray, poses: Poses, *, quaternions: bool = False) -> None:
    """Objects at 200 Hz, mm, with rotation vectors in degrees or quaternions."""
    parts = ["RX", "RY", "RZ", *["RW"] * quaternions, "TX", "TY", "TZ"]
    rows: list[list[object]] = [["Objects"], [200], ["", ""], ["Frame", "Sub Frame"], ["", ""]]
    for body in poses:
        rows[2] += [f"Global:{body}", *[""] * (len(parts) - 1)]
        rows[3] += parts
        rows[4] += ["deg" if p[0] == "R" else "mm" for p in parts]
    for time, *values in zip(t, *poses.values(), strict=True):
        cells: list[object] = [round(float(time) * 200) + 1, 0]
        for pose in values:
            turn = (
                pose[[4, 5, 6, 3]]
                if quaternions
                else np.degrees(Rotation.from_quat(pose[[4, 5, 6, 3]]).as_rotvec())
            )
            cells += [repr(float(v)) for v in (*turn, *(1e3 * pose[:3]))]
        rows.append(cells)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_c3d(path: Path, t: np.ndarray, poses: Poses, *, unit: float = 1e3) -> LogMapping:
    """Five markers a body, mm."""
    import ezc3d

    file = ezc3d.c3d()
    labels, points = [], []
    for body, pose in poses.items():
        turn = Rotation.from_quat(pose[:, [4, 5, 6, 3]]).as_matrix()
        for k, place in enumerate(PLACES):
            labels.append(f"{body}:{k}")
            points.append(unit * (pose[:, :3] + turn @ place))
    data = np.ones((4, len(labels), len(t)))
    data[:3] = np.array(points).transpose(2, 0, 1)
    file["parameters"]["POINT"]["RATE"]["value"] = [200.0]
    file["parameters"]["POINT"]["UNITS"]["value"] = ["mm"]
    file["parameters"]["POINT"]["LABELS"]["value"] = labels
    file["data"]["points"] = data
    file.write(str(path))
    bodies = tuple(
        BodyMapping(
            b,
            markers={f"{b}:{k}": tuple(map(float, 1e3 * place)) for k, place in enumerate(PLACES)},
        )
        for b in poses
    )
    return LogMapping((LoggerMapping(bodies),))


def _array_mapping(join: str) -> LogMapping:
    bodies = tuple(
        BodyMapping(b, (f"{b}{join}position",), quaternion=(f"{b}{join}orientation",))
        for b in ("box", "tool")
    )
    return LogMapping((LoggerMapping(bodies, time="time"),))


def write_hdf5(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    import h5py

    with h5py.File(path, "w") as file:
        file["time"] = t
        for body, pose in poses.items():
            file[f"{body}/position"], file[f"{body}/orientation"] = pose[:, :3], pose[:, 3:]
    return _array_mapping("/")


def write_npz(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    np.savez_compressed(path, time=t, **{body: pose for body, pose in poses.items()})
    bodies = tuple(BodyMapping(b, (f"{b}[0:3]",), quaternion=(f"{b}[3:7]",)) for b in poses)
    return LogMapping((LoggerMapping(bodies, time="time"),))


def write_mat(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    from scipy.io import savemat

    savemat(
        path,
        {"time": t}
        | {
            body: {"position": pose[:, :3], "orientation": pose[:, 3:]}
            for body, pose in poses.items()
        },
        do_compression=True,
    )
    return _array_mapping(".")


def write_mat73(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    """MAT version 7.3: HDF5 behind 512 bytes of its own, with arrays the other way round."""
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        parts = (("position", slice(3)), ("orientation", slice(3, 7)))
        for name, value in [
            ("time", t[:, None]),
            *((f"{b}/{part}", pose[:, rows]) for b, pose in poses.items() for part, rows in parts),
        ]:
            file[name] = np.asarray(value).T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return _array_mapping(".")


def _ros(store: object, one: bool, kind: str, body: str, time: float, pose: np.ndarray) -> object:
    types = store.types  # type: ignore[attr-defined]
    nanos = round(time * 1e9)
    stamp = types["builtin_interfaces/msg/Time"](sec=nanos // 10**9, nanosec=nanos % 10**9)
    header = types["std_msgs/msg/Header"](
        **({"seq": 0} if one else {}), stamp=stamp, frame_id="world"
    )
    point, vector, turn = (
        types[f"geometry_msgs/msg/{n}"] for n in ("Point", "Vector3", "Quaternion")
    )
    p, q = pose[:3].tolist(), dict(zip("wxyz", pose[3:].tolist(), strict=True))
    place = types["geometry_msgs/msg/Pose"](position=point(*p), orientation=turn(**q))
    if kind == "PoseStamped":
        return types["geometry_msgs/msg/PoseStamped"](header=header, pose=place)
    if kind == "Odometry":
        twist = types["geometry_msgs/msg/Twist"](
            linear=vector(0.0, 0.0, 0.0), angular=vector(0.0, 0.0, 0.0)
        )
        still = types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=np.zeros(36))
        sure = types["geometry_msgs/msg/PoseWithCovariance"](pose=place, covariance=np.zeros(36))
        return types["nav_msgs/msg/Odometry"](
            header=header, child_frame_id=body, pose=sure, twist=still
        )
    transform = types["geometry_msgs/msg/Transform"](translation=vector(*p), rotation=turn(**q))
    moved = types["geometry_msgs/msg/TransformStamped"](
        header=header, child_frame_id=body, transform=transform
    )
    return (
        moved if kind == "TransformStamped" else types["tf2_msgs/msg/TFMessage"](transforms=[moved])
    )


_ROS = {
    name: f"{package}/msg/{name}"
    for name, package in {
        "PoseStamped": "geometry_msgs",
        "Odometry": "nav_msgs",
        "TransformStamped": "geometry_msgs",
        "TFMessage": "tf2_msgs",
    }.items()
}


def write_ros1(
    path: Path,
    t: np.ndarray,
    poses: Poses,
    *,
    kinds: tuple[str, str] = ("PoseStamped", "TransformStamped"),
    compress: str = "",
) -> None:
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    store.register(
        get_types_from_msg("geometry_msgs/TransformStamped[] transforms", _ROS["TFMessage"])
    )
    writer = Writer(path)
    if compress:
        writer.set_compression(Writer.CompressionFormat[compress.upper()])
    with writer:
        links = {
            b: (writer.add_connection(f"/mocap/{b}/pose", _ROS[k], typestore=store), k)
            for b, k in zip(poses, kinds, strict=True)
        }
        for i, time in enumerate(t + EPOCH):
            for body, (link, kind) in links.items():
                writer.write(
                    link,
                    round(time * 1e9),
                    store.serialize_ros1(
                        _ros(store, True, kind, body, time, poses[body][i]), _ROS[kind]
                    ),
                )


def write_ros2(
    path: Path,
    t: np.ndarray,
    poses: Poses,
    *,
    kinds: tuple[str, str] = ("Odometry", "TFMessage"),
    mcap: bool = False,
) -> None:
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    with Writer(
        path, version=9, storage_plugin=StoragePlugin.MCAP if mcap else StoragePlugin.SQLITE3
    ) as writer:
        links = {
            b: (
                writer.add_connection(
                    "/tf" if k == "TFMessage" else f"/{b}/odom", _ROS[k], typestore=store
                ),
                k,
            )
            for b, k in zip(poses, kinds, strict=True)
        }
        for i, time in enumerate(t + EPOCH):
            for body, (link, kind) in links.items():
                writer.write(
                    link,
                    round(time * 1e9),
                    store.serialize_cdr(
                        _ros(store, False, kind, body, time, poses[body][i]), _ROS[kind]
                    ),
                )


def write_mcap(path: Path, t: np.ndarray, poses: Poses, *, compress: str = "ZSTD") -> None:
    """Plain MCAP with JSON messages as Foxglove has them."""
    from mcap.writer import CompressionType, Writer

    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType[compress], chunk_size=20_000)
        writer.start()
        schema = writer.register_schema("foxglove.PoseInFrame", "jsonschema", b"{}")
        links = {body: writer.register_channel(f"/{body}/pose", "json", schema) for body in poses}
        for i, time in enumerate(t + EPOCH):
            nanos = round(time * 1e9)
            for body, pose in poses.items():
                data = {
                    "timestamp": {"sec": nanos // 10**9, "nsec": nanos % 10**9},
                    "frame_id": "world",
                    "pose": {
                        "position": dict(zip("xyz", pose[i, :3].tolist(), strict=True)),
                        "orientation": dict(zip("wxyz", pose[i, 3:].tolist(), strict=True)),
                    },
                }
                writer.add_message(links[body], nanos, json.dumps(data).encode(), nanos)
        writer.finish()


WRITERS: dict[str, tuple[str, Callable[[Path, np.ndarray, Poses], LogMapping | None]]] = {
    "csv": ("motion.csv", write_csv),
    "vectors": ("motion.csv", write_vectors),
    "parquet": ("motion.parquet", write_parquet),
    "motive": ("motion.csv", write_motive),
    "vicon": ("motion.csv", write_vicon),
    "vicon_quaternion": ("motion.csv", lambda p, t, m: write_vicon(p, t, m, quaternions=True)),
    "c3d": ("motion.c3d", write_c3d),
    "hdf5": ("motion.h5", write_hdf5),
    "npz": ("motion.npz", write_npz),
    "mat": ("motion.mat", write_mat),
    "mat73": ("motion.mat", write_mat73),
    "ros1": ("motion.bag", write_ros1),
    "ros1_bz2": ("motion.bag", lambda p, t, m: write_ros1(p, t, m, compress="bz2")),
    "ros1_lz4": (
        "motion.bag",
        lambda p, t, m: write_ros1(p, t, m, kinds=("Odometry", "TFMessage"), compress="lz4"),
    ),
    "ros2": ("motion", write_ros2),
    "ros2_poses": (
        "motion",
        lambda p, t, m: write_ros2(p, t, m, kinds=("PoseStamped", "TransformStamped")),
    ),
    "ros2_mcap": ("motion", lambda p, t, m: write_ros2(p, t, m, mcap=True)),
    "mcap": ("motion.mcap", write_mcap),
    "mcap_lz4": ("motion.mcap", lambda p, t, m: write_mcap(p, t, m, compress="LZ4")),
    "mcap_plain": ("motion.mcap", lambda p, t, m: write_mcap(p, t, m, compress="NONE")),
}


def write(kind: str, folder: Path, t: np.ndarray, poses: Poses) -> tuple[Path, LogMapping | None]:
    """Write a motion in a format; the file, and the mapping it needs."""
    name, writer = WRITERS[kind]
    return folder / name, writer(folder / name, t, poses)
