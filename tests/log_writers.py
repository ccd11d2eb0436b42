"""One motion written in every format, by the libraries whose files laboratories have.

Poses are (T, 7) by body, m and wxyz, z up. A writer returns the mapping that its file needs, or
nothing where the file describes itself.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping

Poses = dict[str, np.ndarray]
# Positions of the markers on a body, m.
MARKERS = np.array(
    [[0.1, 0, 0], [-0.08, 0.09, 0], [-0.05, -0.1, 0.02], [0.03, 0.02, 0.11], [0.0, -0.04, -0.09]]
)
EPOCH = 1_700_000_000  # s, of the clock of robots
T = np.arange(160) / 200.0  # s


def motion(seed: int = 0) -> Poses:
    """A box that is struck at 0.25 s, slides and turns, and the tool that strikes it.

    Poses are (160, 7), with the noise of motion capture.
    """
    rng = np.random.default_rng(seed)
    since_strike = np.clip(T - 0.25, 0, 0.45)
    slide = 1.2 * since_strike - 1.2 / 0.9 * since_strike**2
    box_position = np.column_stack([0.5 + 0.1 * slide, 0.3 + slide, np.full(len(T), 0.12)])
    tool_y = 0.05 + 0.9 * np.minimum(T, 0.27) + 0.05 * np.maximum(T - 0.27, 0)
    tool_z = 0.2 + 0.02 * np.sin(3 * T)
    tool_position = np.column_stack([np.full(len(T), 0.5), tool_y, tool_z])
    box_angles = np.column_stack([0.3 + 2 * slide, 0 * T, 0 * T])
    tool_angles = np.column_stack([0.05 * T, 0.1 * np.sin(4 * T), 1.4 + 0.1 * T])
    poses = {}
    for name, position, angles in (
        ("box", box_position, box_angles),
        ("tool", tool_position, tool_angles),
    ):
        shake = Rotation.from_rotvec(2e-4 * rng.normal(size=(len(T), 3)))
        rotation = shake * Rotation.from_euler("ZYX", angles)
        quaternion = rotation.as_quat()[:, [3, 0, 1, 2]]
        noisy_position = position + 5e-5 * rng.normal(size=position.shape)
        poses[name] = np.column_stack([noisy_position, quaternion * np.sign(quaternion[:, :1])])
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
    y_up = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]])  # from axes with z up
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
            quaternion = [*(y_up @ pose[i, 4:]), pose[i, 3]]
            position = y_up @ pose[i, :3]
            values = [*quaternion, *position]
            cells += ["" if np.isnan(value) else repr(float(value)) for value in values]
            cells.append("0.0001")  # mean marker error
        rows.append([*cells, "1.0", "", "1.0"])  # type: ignore[list-item]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_vicon(path: Path, t: np.ndarray, poses: Poses, *, quaternions: bool = False) -> None:
    """Objects at 200 Hz, mm, with rotation vectors in degrees or quaternions."""
    parts = ["RX", "RY", "RZ", *["RW"] * quaternions, "TX", "TY", "TZ"]
    names: list[object] = ["", ""]
    axes: list[object] = ["Frame", "Sub Frame"]
    units: list[object] = ["", ""]
    for body in poses:
        names += [f"Global:{body}", *[""] * (len(parts) - 1)]
        axes += parts
        units += ["deg" if part[0] == "R" else "mm" for part in parts]
    rows: list[list[object]] = [["Objects"], [200], names, axes, units]
    for i, time in enumerate(t):
        cells: list[object] = [round(float(time) * 200) + 1, 0]
        for pose in poses.values():
            rotation = pose[i, [4, 5, 6, 3]]
            if not quaternions:
                rotation = np.degrees(Rotation.from_quat(rotation).as_rotvec())
            cells += [repr(float(value)) for value in (*rotation, *(1e3 * pose[i, :3]))]
        rows.append(cells)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_qualisys(
    path: Path, t: np.ndarray, poses: Poses, *, labels: bool = True, digits: int | None = None
) -> None:
    """Qualisys Track Manager's 6D export: mm, degrees, and the columns of rotation matrices.

    The layout is that of files of QTM 2019; the program writes five digits after the point.
    """
    rows = [
        ["NO_OF_FRAMES", str(len(t))],
        ["NO_OF_CAMERAS", "4"],
        ["NO_OF_BODIES", str(len(poses))],
        ["FREQUENCY", "200"],
        ["NO_OF_ANALOG", "0"],
        ["ANALOG_FREQUENCY", "0"],
        ["DESCRIPTION", "--"],
        ["TIME_STAMP", "2020-01-22, 17:47:17", "22107.99179716"],
        ["DATA_INCLUDED", "6D"],
        ["BODY_NAMES", *poses],
    ]
    parts = ["Y", "Z", "Roll", "Pitch", "Yaw", "Residual", *(f"Rot[{i}]" for i in range(9))]
    head = ["Frame", "Time"]
    for body in poses:
        head += [f"{body} X", *parts]
    if labels:
        rows.append([*head, ""])
    for i, time in enumerate(t):
        cells = [str(i + 1), repr(float(time))]
        for pose in poses.values():
            rotation = Rotation.from_quat(pose[i, [4, 5, 6, 3]])
            angles = rotation.as_euler("XYZ", degrees=True)
            by_columns = rotation.as_matrix().T.ravel()
            for value in (*(1e3 * pose[i, :3]), *angles, 0.3, *by_columns):
                cells.append(repr(float(value)) if digits is None else f"{value:.{digits}f}")
        rows.append([*cells, ""])
    path.write_text("\r\n".join("\t".join(row) for row in rows) + "\r\n")


def write_matrices(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    """CSV with a rotation matrix as nine columns, row by row."""
    table = {"time": t}
    indices = [f"{i}{j}" for i in (1, 2, 3) for j in (1, 2, 3)]
    bodies = []
    for body, pose in poses.items():
        matrices = Rotation.from_quat(pose[:, [4, 5, 6, 3]]).as_matrix().reshape(-1, 9)
        table |= {f"{body}_{axis}": pose[:, j] for j, axis in enumerate("xyz")}
        table |= {f"{body}_r{index}": matrices[:, j] for j, index in enumerate(indices)}
        position = tuple(f"{body}_{axis}" for axis in "xyz")
        matrix = tuple(f"{body}_r{index}" for index in indices)
        bodies.append(BodyMapping(body, position, matrix=matrix))
    _write_table(path, table)
    return LogMapping((LoggerMapping(tuple(bodies), time="time"),))


def write_numbered(path: Path, t: np.ndarray, poses: Poses) -> LogMapping:
    """CSV with quaternions xyzw in columns q1 to q4."""
    table = {"time": t}
    bodies = []
    for body, pose in poses.items():
        table |= {f"{body}_{axis}": pose[:, j] for j, axis in enumerate("xyz")}
        table |= {f"{body}_q{i + 1}": pose[:, j] for i, j in enumerate((4, 5, 6, 3))}
        position = tuple(f"{body}_{axis}" for axis in "xyz")
        quaternion = tuple(f"{body}_q{i}" for i in (1, 2, 3, 4))
        bodies.append(BodyMapping(body, position, quaternion=quaternion, order="xyzw"))
    _write_table(path, table)
    return LogMapping((LoggerMapping(tuple(bodies), time="time"),))


def _write_table(path: Path, table: dict[str, np.ndarray]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows([repr(float(v)) for v in row] for row in zip(*table.values(), strict=True))


def write_lerobot(
    path: Path, t: np.ndarray, poses: Poses, *, version: int = 3, episodes: int = 1
) -> LogMapping:
    """A LeRobot dataset whose state are the poses of both bodies; all episodes are the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = ("x", "y", "z", "qw", "qx", "qy", "qz")
    names = [f"{body}_{part}" for body in poses for part in parts]
    state = np.concatenate(list(poses.values()), 1)
    feature = {"dtype": "float64", "shape": [len(names)], "names": names}
    if version == 2:
        feature["names"] = {"motors": names}
    info = {
        "codebase_version": f"v{version}.0",
        "fps": 200,
        "total_episodes": episodes,
        "features": {
            "observation.state": feature,
            "action": {"dtype": "float32", "shape": [2], "names": ["push", "turn"]},
            "observation.image": {"dtype": "video", "shape": [3, 96, 96], "names": ["c", "h", "w"]},
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        },
    }
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "info.json").write_text(json.dumps(info))
    chunk = path / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    tables = []
    for episode in range(episodes):
        rows = np.arange(len(t))
        columns_of = {
            "observation.state": pa.array(state.tolist(), pa.list_(pa.float64(), len(names))),
            "action": pa.array(np.ones((len(t), 2)).tolist(), pa.list_(pa.float32(), 2)),
            "timestamp": t,
            "frame_index": rows,
            "episode_index": np.full(len(t), episode),
            "index": rows + episode * len(t),
            "task_index": np.zeros(len(t), int),
        }
        tables.append(pa.table(columns_of))
        if version == 2:
            pq.write_table(tables[-1], chunk / f"episode_{episode:06d}.parquet")
    if version == 3:
        pq.write_table(pa.concat_tables(tables), chunk / "file-000.parquet")
    mapping = plain_mapping()
    return LogMapping((replace(mapping.logs[0], time="timestamp"),))


def write_c3d(path: Path, t: np.ndarray, poses: Poses, *, unit: float = 1e3) -> LogMapping:
    """Five markers per body, mm."""
    import ezc3d

    file = ezc3d.c3d()
    labels = []
    points = []
    bodies = []
    for body, pose in poses.items():
        rotation = Rotation.from_quat(pose[:, [4, 5, 6, 3]]).as_matrix()
        markers = {}
        for k, marker in enumerate(MARKERS):
            label = f"{body}:{k}"
            labels.append(label)
            points.append(unit * (pose[:, :3] + rotation @ marker))
            markers[label] = tuple(float(value) for value in 1e3 * marker)
        bodies.append(BodyMapping(body, markers=markers))
    data = np.ones((4, len(labels), len(t)))
    data[:3] = np.array(points).transpose(2, 0, 1)
    file["parameters"]["POINT"]["RATE"]["value"] = [200.0]
    file["parameters"]["POINT"]["UNITS"]["value"] = ["mm"]
    file["parameters"]["POINT"]["LABELS"]["value"] = labels
    file["data"]["points"] = data
    file.write(str(path))
    return LogMapping((LoggerMapping(tuple(bodies)),))


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


def _ros_message(
    store: Any, *, ros1: bool, kind: str, body: str, time: float, pose: np.ndarray
) -> object:
    """A pose (7,) as a message of a kind, with the types of a typestore."""
    types = store.types
    nanoseconds = round(time * 1e9)
    stamp = types["builtin_interfaces/msg/Time"](
        sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9
    )
    counter = {"seq": 0} if ros1 else {}
    header = types["std_msgs/msg/Header"](**counter, stamp=stamp, frame_id="world")
    make_point = types["geometry_msgs/msg/Point"]
    make_vector = types["geometry_msgs/msg/Vector3"]
    make_quaternion = types["geometry_msgs/msg/Quaternion"]
    position = pose[:3].tolist()
    quaternion = make_quaternion(**dict(zip("wxyz", pose[3:].tolist(), strict=True)))
    plain = types["geometry_msgs/msg/Pose"](position=make_point(*position), orientation=quaternion)
    if kind == "PoseStamped":
        return types["geometry_msgs/msg/PoseStamped"](header=header, pose=plain)
    if kind == "Odometry":
        zero = make_vector(0.0, 0.0, 0.0)
        twist = types["geometry_msgs/msg/Twist"](linear=zero, angular=zero)
        return types["nav_msgs/msg/Odometry"](
            header=header,
            child_frame_id=body,
            pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=plain, covariance=np.zeros(36)),
            twist=types["geometry_msgs/msg/TwistWithCovariance"](
                twist=twist, covariance=np.zeros(36)
            ),
        )
    transform = types["geometry_msgs/msg/TransformStamped"](
        header=header,
        child_frame_id=body,
        transform=types["geometry_msgs/msg/Transform"](
            translation=make_vector(*position), rotation=quaternion
        ),
    )
    if kind == "TransformStamped":
        return transform
    return types["tf2_msgs/msg/TFMessage"](transforms=[transform])


_ROS_TYPES = {
    "PoseStamped": "geometry_msgs/msg/PoseStamped",
    "Odometry": "nav_msgs/msg/Odometry",
    "TransformStamped": "geometry_msgs/msg/TransformStamped",
    "TFMessage": "tf2_msgs/msg/TFMessage",
}


def write_ros1(
    path: Path,
    t: np.ndarray,
    poses: Poses,
    *,
    kinds: tuple[str, str] = ("PoseStamped", "TransformStamped"),
    compress: str = "",
) -> None:
    """A ROS 1 bag with one topic per body, of one kind of message each."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    transforms = "geometry_msgs/TransformStamped[] transforms"
    store.register(get_types_from_msg(transforms, _ROS_TYPES["TFMessage"]))
    writer = Writer(path)
    if compress:
        writer.set_compression(Writer.CompressionFormat[compress.upper()])
    kind_of = dict(zip(poses, kinds, strict=True))
    with writer:
        connections = {}
        for body, kind in kind_of.items():
            topic = f"/mocap/{body}/pose"
            connections[body] = writer.add_connection(topic, _ROS_TYPES[kind], typestore=store)
        for i, time in enumerate(t + EPOCH):
            for body, kind in kind_of.items():
                message = _ros_message(
                    store, ros1=True, kind=kind, body=body, time=time, pose=poses[body][i]
                )
                raw = store.serialize_ros1(message, _ROS_TYPES[kind])
                writer.write(connections[body], round(time * 1e9), raw)


def write_ros2(
    path: Path,
    t: np.ndarray,
    poses: Poses,
    *,
    kinds: tuple[str, str] = ("Odometry", "TFMessage"),
    mcap: bool = False,
) -> None:
    """A ROS 2 bag with one topic per body, of one kind of message each."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    storage = StoragePlugin.MCAP if mcap else StoragePlugin.SQLITE3
    kind_of = dict(zip(poses, kinds, strict=True))
    with Writer(path, version=9, storage_plugin=storage) as writer:
        connections = {}
        for body, kind in kind_of.items():
            topic = "/tf" if kind == "TFMessage" else f"/{body}/odom"
            connections[body] = writer.add_connection(topic, _ROS_TYPES[kind], typestore=store)
        for i, time in enumerate(t + EPOCH):
            for body, kind in kind_of.items():
                message = _ros_message(
                    store, ros1=False, kind=kind, body=body, time=time, pose=poses[body][i]
                )
                raw = store.serialize_cdr(message, _ROS_TYPES[kind])
                writer.write(connections[body], round(time * 1e9), raw)


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


def write_force_bag(path: Path, *, ros1: bool, rows: int = len(T)) -> tuple[np.ndarray, np.ndarray]:
    """A bag of rosbags' own writer with a pose, joints and forces; forces and torques (160, 3)."""
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import Writer as Writer2
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
    types = store.types
    force = np.column_stack([np.sin(T), np.cos(T), 9.81 + T])
    torque = 0.1 * force[:, ::-1]
    wrench_type, joint_type = "geometry_msgs/msg/WrenchStamped", "sensor_msgs/msg/JointState"
    with Writer1(path) if ros1 else Writer2(path, version=9) as writer:
        links = {
            kind: writer.add_connection(topic, kind, typestore=store)
            for topic, kind in (("/ft_sensor/wrench", wrench_type), ("/joint_states", joint_type))
        }
        for i, time in enumerate(T[:rows] + EPOCH):
            nanos = round(time * 1e9)
            stamp = types["builtin_interfaces/msg/Time"](sec=nanos // 10**9, nanosec=nanos % 10**9)
            extra = {"seq": i} if ros1 else {}
            header = types["std_msgs/msg/Header"](stamp=stamp, frame_id="wrist", **extra)
            vectors = [
                types["geometry_msgs/msg/Vector3"](x=float(x), y=float(y), z=float(z))
                for x, y, z in (force[i], torque[i])
            ]
            wrench = types["geometry_msgs/msg/Wrench"](force=vectors[0], torque=vectors[1])
            messages = {
                wrench_type: types[wrench_type](header=header, wrench=wrench),
                joint_type: types[joint_type](
                    header=header,
                    name=["elbow"],
                    position=np.array([0.5 * T[i]]),
                    velocity=np.array([0.5]),
                    effort=np.array([1.0]),
                ),
            }
            for kind, message in messages.items():
                pack = store.serialize_ros1 if ros1 else store.serialize_cdr
                writer.write(links[kind], nanos, pack(message, kind))
    return force, torque


WRITERS: dict[str, tuple[str, Callable[[Path, np.ndarray, Poses], LogMapping | None]]] = {
    "csv": ("motion.csv", write_csv),
    "vectors": ("motion.csv", write_vectors),
    "parquet": ("motion.parquet", write_parquet),
    "motive": ("motion.csv", write_motive),
    "vicon": ("motion.csv", write_vicon),
    "vicon_quaternion": ("motion.csv", lambda p, t, m: write_vicon(p, t, m, quaternions=True)),
    "qualisys": ("motion.tsv", write_qualisys),
    "qualisys_unlabelled": ("motion.tsv", lambda p, t, m: write_qualisys(p, t, m, labels=False)),
    "matrices": ("motion.csv", write_matrices),
    "numbered": ("motion.csv", write_numbered),
    "lerobot": ("motion", write_lerobot),
    "lerobot_2": ("motion", lambda p, t, m: write_lerobot(p, t, m, version=2)),
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
