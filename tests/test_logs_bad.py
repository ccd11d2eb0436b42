"""Bad and hostile logs: one clear sentence each, in bounded time and memory."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import pickle
import random
import sqlite3
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clashsim.core.errors import ClashError, DataError
from clashsim.data import logs
from clashsim.data.checks.findings import FINDING_NAMES
from clashsim.data.readers import bounded_bytes, mapping, parquet, sources, tables
from clashsim.data.readers.formats import SUFFIXES
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from log_writers import WRITERS, T, motion, plain_mapping, write

EACH = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PUCK = LogMapping((LoggerMapping((BodyMapping("puck", ("x", "y", "z")),), time="t"),))
GOOD = "t,x,y,z\n0.00,0.1,0.2,0.3\n0.01,0.11,0.2,0.3\n0.02,0.12,0.2,0.3\n"


def refused(path, words="", how=None, **more):
    with pytest.raises(DataError, match=words) as error:
        logs.read_logs([path], mapping=how, **more)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1500
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("\n\n", "no header"),
        ("t,x,y,z\n", "no rows"),
        ("t,x,y,z\n0,1,2,3\n", "1 row in which"),
        (GOOD.replace("0.11", "left"), "line 3 has 'left' in column 'x'"),
        (GOOD.replace("0.11,", ""), "line 3 has 3 cells"),
        (GOOD.replace("0.11", "0.11,9"), "line 3 has 5 cells"),
        (GOOD.replace("0.11", "1 2"), "line 3 has '1 2' in column 'x'"),
        (GOOD.replace("t,x", "t,t"), "twice"),
        (GOOD.replace("t,x", "t,w"), "no column 'x'"),
        ("0,1,2,3\n0,1,2,3\n", "first line holds numbers"),
        (b"\xff\xfet\0,\0x\0", "UTF-8"),
        (GOOD.encode() + b"\x80", "line 5 is not UTF-8"),
        (GOOD.replace("0.11", '"0.11'), "cells|damaged"),
        (GOOD.replace("0.1,", "nan,").replace("0.11", "").replace("0.12", "inf"), "never_seen"),
        (GOOD.replace("0.11", "\0"), "line 3"),
    ],
)
def test_bad_tables(tmp_path, content, words):
    path = tmp_path / "a b.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    refused(path, words, PUCK)


def test_blanks_semicolons_and_marks(tmp_path):
    path = tmp_path / "a.csv"
    text = GOOD.replace("0.11", "NA").replace(",", ";").replace(".", ",").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (trial,) = logs.read_logs([path], mapping=PUCK).trials
    assert trial.t.tolist() == [0, 0.02] and trial.poses["puck"][1, 0] == 0.12


def test_vectors_that_begin_with_blanks_and_words_beside_them(tmp_path):
    rows = [",,start", "0.01,0.1 0.2 0.3,", "0.02,0.1 0.2 0.31,hit", "0.03,,"]
    (tmp_path / "a.csv").write_text(
        "t,box position,note\n" + "\n".join(rows).replace(",,start", "0,,start")
    )
    got = logs.read_logs([tmp_path / "a.csv"], guess=True)
    assert got.trials.bodies == ("box",) and got.trials[0].poses["box"][:, 2].tolist() == [
        0.3,
        0.31,
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_single_frame(tmp_path, kind):
    path, how = write(kind, tmp_path, T[:1], {b: p[:1] for b, p in motion().items()})
    refused(path, "row|names|needed", how)


# Text, and databases whose lost pages are not needed.
MAY_BE_CUT = ("csv", "vectors", "motive", "vicon", "c3d", "ros2", "mcap")
MAY_BE_CUT += ("qualisys", "matrices", "numbered")


def data_file(path: Path) -> Path:
    """The file itself, or the one with the data in the folder of a bag or dataset."""
    if path.is_file():
        return path
    return next(part for part in path.rglob("*") if part.suffix in (".db3", ".mcap", ".parquet"))


@pytest.mark.parametrize("kind", WRITERS)
def test_files_that_are_cut_off(tmp_path, kind):
    """A cut file is refused, or gives the rows that are whole."""
    path, how = write(kind, tmp_path, T, motion())
    target = data_file(path)
    content = target.read_bytes()
    for part in (0, 1, 7, 100, len(content) // 3, len(content) // 2, len(content) - 1):
        target.write_bytes(content[:part])
        try:
            got = logs.read_logs([path], mapping=how)
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert kind.split("_")[0] in MAY_BE_CUT and part > len(content) // 4
            assert len(got.trials[0].t) > 10


@EACH
@given(
    content=st.binary(max_size=400),
    suffix=st.sampled_from([s for s in SUFFIXES] + [".zip", ".csv.gz"]),
    guess=st.booleans(),
)
def test_any_bytes_are_refused(tmp_path, content, suffix, guess):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(content)
    with pytest.raises(ClashError) as error:
        logs.read_logs([path], mapping=None if guess else plain_mapping(), guess=guess)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_never_give_a_traceback(tmp_path, kind):
    path, how = write(kind, tmp_path, T[:20], {b: p[:20] for b, p in motion().items()})
    target = data_file(path)
    content = target.read_bytes()
    rng = random.Random(kind)
    for _ in range(25):
        bad = bytearray(content)
        for _ in range(rng.choice((1, 3, 30))):
            value = rng.choice((0, 1, 255, 127, rng.randrange(256)))
            in_header = rng.random() >= 0.6
            size = min(len(bad), 1000) if in_header else len(bad)
            bad[rng.randrange(size)] = value
        target.write_bytes(bad)
        try:
            logs.read_logs([path], mapping=how, accept=list(FINDING_NAMES))
        except ClashError as error:
            assert str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "damaged").iterdir()), ids=lambda p: p.name
)
def test_files_that_ended_the_process(path):
    """Found by mutation: libraries for MAT and Parquet die of these (scipy 1.17 loadmat, pyarrow 26
    metadata of a column), where a sentence is due.
    """
    how = (
        plain_mapping()
        if path.suffix == ".parquet"
        else LogMapping(
            (
                LoggerMapping(
                    (BodyMapping("box", ("box.position",), quaternion=("box.orientation",)),),
                    time="time",
                ),
            )
        )
    )
    try:
        logs.read_logs([path], mapping=how, accept=list(FINDING_NAMES))
    except DataError as error:
        assert "\n" not in str(error)


def test_more_found_by_mutation(tmp_path):
    (tmp_path / "a.mcap").write_bytes(
        b"\x89MCAP0\r\n\x03" + struct.pack("<Q", 1) + b"\x01"
    )  # a schema shorter than its fields
    refused(tmp_path / "a.mcap", "cut off or damaged")
    base = sqlite3.connect(tmp_path / "a.db3")
    base.executescript(
        "create table topics (id); create table messages (id); create table XXXXXXXX (id)"
    )
    base.close()
    content = (tmp_path / "a.db3").read_bytes()
    (tmp_path / "a.db3").write_bytes(
        content.replace(b"XXXXXXXX", b"XXXX\xdbXXX")
    )  # a name that is not UTF-8
    refused(tmp_path / "a.db3", "cut off or damaged")
    path, how = write("c3d", tmp_path, T, motion())
    path.write_bytes(
        path.read_bytes().replace(b"tool:4", b"to\nl\x1b4")
    )  # a label that breaks the line
    refused(path, r"no marker 'tool:4'", how)


def test_places_that_are_no_logs(tmp_path):
    refused(tmp_path / "none.csv", "there is no file")
    refused(tmp_path / "a\0.csv", "no path|no file")
    refused(tmp_path, "holds no logs")
    (tmp_path / "a.docx").write_text("x")
    refused(tmp_path / "a.docx", "is no log")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(tmp_path / "pipe.csv", "neither a file nor a folder")
    (tmp_path / "folder.csv").mkdir()
    refused(tmp_path / "folder.csv", "holds no logs")
    with pytest.raises(DataError, match="no logs were named"):
        logs.read_logs([])


def test_a_line_without_an_end(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"t,x,y,z\n" + b"1" * (3 << 20))
    refused(tmp_path / "a.csv", "longer than", PUCK)


def test_too_many_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_NUMBERS", 1000)
    monkeypatch.setattr(parquet, "MAX_NUMBERS", 1000)
    for kind in ("csv", "parquet"):
        path, how = write(kind, tmp_path, T, motion())
        refused(path, "million numbers", how)


def test_archives_that_unpack_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FREE_UNPACKED_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", bytes(40 << 20))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(bytes(40 << 20)))
    for name in ("a.zip", "a.csv.gz"):
        assert (tmp_path / name).stat().st_size < 100_000
        refused(tmp_path / name, "unpacks to more than", PUCK)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    at = raw.rindex(b"PK\x01\x02") + 24
    raw[at : at + 4] = struct.pack("<I", 10)  # the directory lies about the size
    (tmp_path / "a.zip").write_bytes(raw)
    refused(tmp_path / "a.zip", "unpacks|damaged", PUCK)


def test_a_member_without_a_name_is_passed_over(tmp_path):
    """Found by mutation: `ZipInfo.is_dir` fails on an empty name."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", GOOD)
        archive.writestr("X", "no log")
        archive.filelist[-1].filename = ""
    assert logs.read_logs([tmp_path / "a.zip"], mapping=PUCK).trials.bodies == ("puck",)


def test_a_guess_with_a_missing_time(tmp_path):
    """Found by mutation: the usual step between rows is not a number then."""
    lines = ["t,x,y,z"] + [f"{i / 100},{i / 1000},0.2,0.3" for i in range(30)]
    lines[20] = ",0.019,0.2,0.3"
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = logs.read_logs([tmp_path / "a.csv"], guess=True).findings
    assert "time_missing" in {f.name for f in found}


def test_npz_and_mat_that_unpack_to_too_much(tmp_path, monkeypatch):
    from scipy.io import savemat

    from clashsim.data.readers import arrays

    monkeypatch.setattr(arrays, "MAX_NUMBERS", 1000)
    monkeypatch.setattr(arrays, "_MAX_BYTES", 8000)
    np.savez_compressed(
        tmp_path / "a.npz", t=np.zeros(100_000), x=np.zeros(3), y=np.zeros(3), z=np.zeros(3)
    )
    refused(tmp_path / "a.npz", "unpacks to", PUCK)
    savemat(tmp_path / "a.mat", {"t": np.zeros(100_000)}, do_compression=True)
    refused(tmp_path / "a.mat", "unpacks to more than", PUCK)
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (900,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in "txyz":
            archive.writestr(f"{name}.npy", stream.getvalue() + bytes(80))
    refused(tmp_path / "a.npz", "cut off", PUCK)


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("trap-was-sprung"),))


def test_objects_are_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "a.npz", **{name: np.array([Trap()] * 3, dtype=object) for name in "txyz"})
    refused(tmp_path / "a.npz", "never loaded", PUCK)
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "b.mat").write_bytes(pickle.dumps(Trap()))
    refused(tmp_path / "b.npz", "not an NPZ", PUCK)
    refused(tmp_path / "b.mat", "not a MAT", PUCK)
    assert not Path("trap-was-sprung").exists()


def test_hdf5_with_links_out_of_it_and_circles(tmp_path):
    import h5py

    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["t"] = np.arange(5.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t"] = h5py.ExternalLink("secret.h5", "t")
        file["circle"] = file["/"]
        file["x"] = file["y"] = file["z"] = np.zeros(5)
    assert "circle" not in refused(tmp_path / "a.h5", "no column 't'", PUCK)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset(
            "t", shape=(1 << 40,), dtype="f8", chunks=(1 << 16,), compression="gzip"
        )
        file["x"] = file["y"] = file["z"] = np.zeros(3)
    refused(tmp_path / "b.h5", "million numbers", PUCK)


ENDLESS_VIEW = """
create table topics (id, name, type, serialization_format);
create view messages as
with recursive r(i) as (select 1 union all select i+1 from r) select i as topic_id from r
"""
TEXT_FOR_NUMBERS = """
create table topics (id integer, name, type, serialization_format);
create table messages (id, topic_id, timestamp, data);
insert into topics values (1, '/a', 'geometry_msgs/msg/PoseStamped', 'cdr');
insert into messages values (1, 1, 'soon', 'text')
"""


@pytest.mark.parametrize("script", ["create table a (b)", ENDLESS_VIEW, TEXT_FOR_NUMBERS])
def test_a_database_that_is_no_bag_or_computes_for_ever(tmp_path, script):
    database = sqlite3.connect(tmp_path / "a.db3")
    database.executescript(script)
    database.close()
    refused(tmp_path / "a.db3", "no tables|cut off or damaged")


def test_bag_chunks_that_unpack_to_too_much(tmp_path, monkeypatch):
    def after_its_size(data: bytes) -> bytes:
        return struct.pack("<I", len(data)) + data

    def record(fields: dict[bytes, bytes], data: bytes) -> bytes:
        header = b"".join(after_its_size(name + b"=" + value) for name, value in fields.items())
        return after_its_size(header) + after_its_size(data)

    packed = bz2.compress(bytes(30 << 20))
    for claim in (30 << 20, 100, 0xFFFFFFFF):
        fields = {b"op": b"\x05", b"compression": b"bz2", b"size": struct.pack("<I", claim)}
        (tmp_path / "a.bag").write_bytes(b"#ROSBAG V2.0\n" + record(fields, packed))
        monkeypatch.setattr(bounded_bytes, "FREE_UNPACKED_BYTES", 1 << 20)
        refused(tmp_path / "a.bag", "unpacks to|cut off or damaged|no poses")


def test_bags_that_were_not_closed_or_end_between_records(tmp_path):
    path, _ = write("ros1", tmp_path, T, motion())
    content = path.read_bytes()
    at = content.index(b"index_pos=") + 10
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    refused(path, "never closed")
    path.write_bytes(
        content[: 13 + 4 + struct.unpack("<I", content[13:17])[0] + 4 + 4096]
    )  # what a crash may leave
    refused(path, "cut off")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("logs = 3", "a list"),
        ("[[logs]]\nfiles = 'a'\n[[logs]]\nfiles='b'", "pattern with {trial}"),
        ("[[logs]]\nup = 'w'", "choices"),
        ("[[logs]]\ntme = 'a'", "did you mean time"),
        ("[[logs]]\nunits = { length = 'km' }", "choices: m"),
        ("[[logs]]\nunits = { mass = 'kg' }", "choices: time"),
        ("[[logs]]\n[[logs.bodies]]\nposition = 'x'", "lacks name"),
        ("[[logs]]\n[[logs.bodies]]\nname = 'a'\nyaw = 'x'\nquaternion = 'q'", "more than one of"),
        ("[[logs]]\n[[logs.bodies]]\nname = 'a'\norder = 'zyxw'", "choices: wxyz"),
        ("[[logs]\n", "damaged"),
        ("[[logs]]\n[[logs.bodies]]\nname = 'a'\nsequence = 'XyZ'", "three axes"),
        ("known = { a = 'b' }", "a finite number"),
        ("x" * (2 << 20), "larger than"),
        ("[[logs]]\nflip = ['w']", "choices: x, y, z"),
        ("a = " + "[" * 5000, "damaged"),
        ("[[logs]]\n[[logs.bodies]]\nname='a'\n[[logs.bodies]]\nname='a'", "both called"),
        ("[[logs]]\n[[logs.bodies]]\nname='a'\nmarkers={m=[1,2]}", "three numbers"),
        ("[[logs]]\nfiles = '*a*a*a*a*a*b'", "four"),
        ("logs = []", "no \\[\\[logs"),
        ("[[logs]]\nrate = -1", "rate"),
        ("[[logs]]\nfiles = '{trial}{trial}'", "once"),
    ],
)
def test_bad_mappings(tmp_path, text, words):
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(DataError, match=words) as error:
        mapping.load(tmp_path / "m.toml")
    assert "\n" not in str(error.value)


def test_missing_mapping(tmp_path):
    with pytest.raises(DataError, match="no mapping file"):
        mapping.load(tmp_path / "m.toml")
    (tmp_path / "m.toml").write_bytes(b"\xff")
    with pytest.raises(DataError, match="UTF-8"):
        mapping.load(tmp_path / "m.toml")


NAME = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=8)


@EACH
@given(
    name=NAME,
    column=NAME,
    known=st.dictionaries(NAME, st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    signals=st.dictionaries(NAME, NAME, max_size=3),
)
def test_mappings_are_written_and_read_back(name, column, known, signals):
    body = BodyMapping(
        name,
        (column, "y", "z"),
        euler=("a", "b", "c"),
        sequence="zyx",
        markers={column: (1.0, 2.0, 3.5)},
    )
    how = LogMapping(
        (
            LoggerMapping(
                (body,),
                files=f"{name}{{trial}}",
                time=column,
                rate=3.5,
                offset=-1e-3,
                signals=signals,
                units={"angle": "deg"},
                up="-y",
                flip=("x", "z"),
            ),
        ),
        known=known,
    )
    assert mapping.loads(mapping.dump(how)) == how


@pytest.mark.slow
def test_a_large_file_needs_little_memory(tmp_path):
    """100 MB of CSV with many columns, of which a body and the time are read."""
    path = tmp_path / "large.csv"
    rows = np.random.default_rng(0).normal(size=(2000, 16))
    block = io.StringIO()
    np.savetxt(block, rows, fmt="%.9f", delimiter=",")
    lines = block.getvalue().splitlines()
    with path.open("w") as file:
        file.write("t,x,y,z," + ",".join(f"c{i}" for i in range(13)) + "\n")
        for i in range(270):
            file.write(
                "\n".join(f"{(2000 * i + j) / 1000},{line}" for j, line in enumerate(lines)) + "\n"
            )
    assert path.stat().st_size > 90e6
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from clashsim.data import logs\n"
        "from clashsim.data.readers.tables import read_csv\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "table, _ = read_csv(Path(sys.argv[1]), wanted=['t', 'x', 'y', 'z'])\n"
        "assert len(table['t']) == 540_000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) < 120_000  # kB: 17 MB of numbers, twice, and a block of text
