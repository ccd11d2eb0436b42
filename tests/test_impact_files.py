"""Impacts survive every file format, and every bad file is refused with one sentence."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, after_columns, before_columns, to_columns
from clashsim.data import impact_files
from clashsim.data.impact_files import read_impacts, write_impacts

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
EACH = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def some_impacts(draw, simulated: bool = False):
    planar, n = draw(st.booleans()), draw(st.integers(1, 6))
    table = (
        draw(arrays(float, (n, len(before_columns(planar))), elements=FLOATS)),
        draw(arrays(float, (n, len(after_columns(planar))), elements=FLOATS)),
    )
    known = {"mass": draw(arrays(float, n, elements=FLOATS))} if draw(st.booleans()) else {}
    if not simulated:
        return Impacts(planar, *table, known=known)
    return Impacts(
        planar,
        *table,
        draw(arrays(float, (n, 3), elements=FLOATS)),
        known,
        "simulated",
        {"parted": n, "settled": 0},
    )


def same(a: Impacts, b: Impacts) -> bool:
    pairs = [(a.before, b.before), (a.after, b.after), *((a.known[k], b.known[k]) for k in a.known)]
    if a.theta is not None:
        pairs.append((a.theta, b.theta))
    return (
        a.planar == b.planar
        and a.known.keys() == b.known.keys()
        and a.source == b.source
        and a.end_counts == b.end_counts
        and all(x.tobytes() == y.tobytes() for x, y in pairs)
    )


@EACH
@given(some_impacts())
def test_csv_round_trip(tmp_path, impacts):
    write_impacts(tmp_path / "a.csv", impacts)
    assert same(impacts, read_impacts(tmp_path / "a.csv", known=["mass"]))


@EACH
@given(some_impacts())
def test_json_and_npz_hold_the_same_columns(tmp_path, impacts):
    table = to_columns(impacts)
    (tmp_path / "a.json").write_text(json.dumps({k: v.tolist() for k, v in table.items()}))
    (tmp_path / "rows.json").write_text(
        json.dumps(
            [
                dict(zip(table, row, strict=True))
                for row in np.column_stack(list(table.values())).tolist()
            ]
        )
    )
    np.savez(tmp_path / "a.npz", **table)
    for name in ("a.json", "rows.json", "a.npz"):
        assert same(impacts, read_impacts(tmp_path / name, known=["mass"]))


@EACH
@given(some_impacts(simulated=True))
def test_safetensors_round_trip_and_same_bytes(tmp_path, impacts):
    path = tmp_path / "a.safetensors"
    write_impacts(path, impacts)
    again = read_impacts(path)
    assert same(impacts, again)
    first = path.read_bytes()
    write_impacts(path, again)
    assert path.read_bytes() == first


@EACH
@given(st.binary(max_size=300), st.sampled_from([".csv", ".npz", ".json", ".safetensors"]))
def test_any_bytes_are_refused_with_a_sentence(tmp_path, content, suffix):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_impacts(path)
    assert "\n" not in str(error.value)


GOOD = "vx,vy,w,vx_after,vy_after,w_after\n-1,0,0,0.5,0,1\n-1,0.1,0,0.4,0,2\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "name,age\nx,1\n", "no column is one of an impact"),
        ("a.csv", GOOD.replace("w_after", "w_aftr"), "did you mean"),
        ("a.csv", "vx,vy,w\n1,0,0\n", "lack an outcome"),
        ("a.csv", "vx,vy,w,vx_after\n1,,0,1\n", "impacts 0 .counted from 0. lack a number"),
        ("a.csv", GOOD.replace("0.4", "fast"), "line 3 has 'fast' in column 'vx_after'"),
        ("a.csv", GOOD.replace("0.4", "inf"), "impacts 1"),
        ("a.csv", GOOD.replace("0.4,", ""), "line 3 has 5 cells"),
        ("a.csv", "vx,vy,w,vx_after,vy_after,w_after\n", "no impacts"),
        ("a.csv", GOOD.replace("vy,w,", "vx,w,", 1), "twice"),
        ("a.csv", b"\xff\xfe\x00vx", "UTF-8"),
        ("a.json", '{"vx": [1, 2', "cut off"),
        ("a.json", "3", "object of columns"),
        ("a.json", '{"vx": ["a", 1], "vx_after": [1, 2]}', "impact 0 has 'a'"),
        (
            "a.json",
            '{"vx": [1], "vx_after": [1, 2], "vy_after": [1, 2], "w_after": [1, 2]}',
            "differ in length",
        ),
        ("a.json", '{"vx": [[1], [2, 3]]}', "column 'vx'"),
        ("a.json", "[" * 100_000, "JSON"),
        ("a.npz", "not a zip", "not an NPZ"),
        ("a.safetensors", "short", "damaged"),
        ("a.txt", "x", "ending in"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=words) as error:
        read_impacts(path)
    assert "\n" not in str(error.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_impacts(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_impacts(tmp_path / "folder.csv")


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("trap-was-sprung"),))


def test_hostile_npz(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.npz"
    np.savez(path, vx=np.array([Trap()], dtype=object))
    with pytest.raises(DataError, match="Python objects"):
        read_impacts(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vx", pickle.dumps(Trap()))
    with pytest.raises(DataError, match="damaged"):
        read_impacts(path)
    assert not Path("trap-was-sprung").exists()
    monkeypatch.setattr(impact_files, "LIMIT", 1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vx.npy", bytes(2 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="unpacks to"):
        read_impacts(path)


def test_npz_whose_header_lies(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("vx.npy", stream.getvalue())
    with pytest.raises(DataError, match="unpacks to"):
        read_impacts(tmp_path / "a.npz")


def test_cut_off_files(tmp_path):
    impacts = Impacts(True, np.ones((50, 12)), np.ones((50, 3)))
    write_impacts(tmp_path / "a.safetensors", impacts)
    np.savez(tmp_path / "a.npz", **to_columns(impacts))
    for name in ("a.safetensors", "a.npz"):
        whole = (tmp_path / name).read_bytes()
        for share in (0.1, 0.5, 0.95):
            (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
            with pytest.raises(DataError, match="cut off or damaged"):
                read_impacts(tmp_path / name)


def test_csv_has_no_theta(tmp_path):
    impacts = Impacts(True, np.ones((2, 12)), np.ones((2, 3)), theta=np.ones((2, 4)))
    with pytest.raises(DataError, match="no place for the theta"):
        write_impacts(tmp_path / "a.csv", impacts)
    assert not (tmp_path / "a.csv").exists()
    write_impacts(tmp_path / "a.csv", replace(impacts, theta=None))
    with pytest.raises(DataError, match="ending in"):
        write_impacts(tmp_path / "a.npz", impacts)
