"""A path keeps its limits, passes the touch as asked, and is the same in a file as in memory."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clashsim.core.errors import DataError
from clashsim.plan.path import Limits, PathConfig, strike_path
from clashsim.plan.robot_files import COLUMNS, write_path

TOUCH = (0.3, -0.1, 0.05)  # m
VELOCITY = (0.4, 0.3, 0.0)  # m/s
ROUNDING = 1e-9


@st.composite
def strikes(draw):
    """A strike in the plane or in space, with or without a start and a retreat.

    Returns touch, velocity, limits, start and config, as `strike_path` takes them.
    """
    limits = Limits(
        speed=draw(st.floats(0.2, 2.0)),
        acceleration=draw(st.floats(2.0, 20.0)),
        jerk=draw(st.floats(50.0, 5000.0)),
    )
    size = draw(st.sampled_from([2, 3]))
    directions = st.tuples(*[st.floats(-1, 1)] * size).filter(lambda w: np.linalg.norm(w) > 0.1)
    direction = np.array(draw(directions))
    direction /= np.linalg.norm(direction)
    touch = np.array(draw(st.tuples(*[st.floats(-1, 1)] * size)))
    start = None
    if draw(st.booleans()):
        offset = np.array(draw(st.tuples(*[st.floats(-0.3, 0.3)] * size)))
        sideways = offset - (offset @ direction) * direction
        start = touch + sideways - draw(st.floats(0.01, 0.5)) * direction
    config = PathConfig(
        through=draw(st.floats(0, 0.03)),
        settle=draw(st.floats(0, 0.05)),
        retreat=draw(st.none() | st.floats(0.001, 0.2)),
    )
    velocity = draw(st.floats(0.1, 1.0)) * limits.speed * direction
    return touch, velocity, limits, start, config


def norm(vectors):
    return np.linalg.norm(vectors, axis=1)


def row_of_touch(path):
    (row,) = np.flatnonzero(path.t == path.touch_time)
    return int(row)


@settings(max_examples=60, deadline=None)
@given(strikes())
def test_limits_hold(strike):
    """Samples of a path within limits differ by at most the limit times the step: a mean never
    exceeds a bound, so there is no slack but rounding's.
    """
    touch, velocity, limits, start, config = strike
    path = strike_path(touch, velocity, limits, start=start, config=config)
    step = 1 / path.rate
    assert norm(path.velocity).max() <= limits.speed * (1 + ROUNDING)
    assert norm(path.acceleration).max() <= limits.acceleration * (1 + ROUNDING)
    assert norm(np.diff(path.velocity, axis=0)).max() / step <= limits.acceleration * (1 + ROUNDING)
    assert norm(np.diff(path.acceleration, axis=0)).max() / step <= limits.jerk * (1 + ROUNDING)
    jerk = norm(np.diff(path.velocity, n=2, axis=0)).max() / step**2
    assert jerk <= limits.jerk + 1e-14 / step**2  # rounding of some 1e-15 m/s, differenced twice


@settings(max_examples=60, deadline=None)
@given(strikes())
def test_velocities_integrate_to_positions(strike):
    """A step's trapezoid errs by step^3/12 times a mean of its jerk, which is the change of
    acceleration but for the steps in which the jerk switches.

    So the sum errs by step^2/12 times the acceleration reached, and by at most 2 jerk step^3/12 for
    each switch: 7 in a move, 3 in a change of speed.
    """
    touch, velocity, limits, start, config = strike
    path = strike_path(touch, velocity, limits, start=start, config=config)
    step = 1 / path.rate
    summed = path.position[0] + np.concatenate(
        [np.zeros((1, 3)), np.cumsum((path.velocity[1:] + path.velocity[:-1]) * 0.5 * step, axis=0)]
    )
    switches = 4 * 8
    bound = step**2 / 12 * (limits.acceleration + 2 * switches * limits.jerk * step)
    assert norm(summed - path.position).max() <= bound + ROUNDING
    reached = summed - path.position - step**2 / 12 * path.acceleration
    assert norm(reached).max() <= step**3 / 6 * switches * limits.jerk + ROUNDING


def test_default_path_integrates_within_a_micrometre():
    path = strike_path(TOUCH, VELOCITY, start=(-0.1, -0.2, 0.2))
    summed = path.position[0] + np.cumsum(
        (path.velocity[1:] + path.velocity[:-1]) / 2 / path.rate, axis=0
    )
    assert norm(summed - path.position[1:]).max() < 1e-6


@settings(max_examples=60, deadline=None)
@given(strikes())
def test_passes_the_touch_as_asked(strike):
    touch, velocity, limits, start, config = strike
    path = strike_path(touch, velocity, limits, start=start, config=config)
    row = row_of_touch(path)
    np.testing.assert_allclose(path.position[row], [*touch, 0.0][:3], atol=1e-9)
    np.testing.assert_allclose(path.velocity[row], [*velocity, 0.0][:3], atol=1e-9)
    assert not path.velocity[[0, -1]].any() and not path.acceleration[[0, -1]].any()
    hit = path.phase == "hit"
    assert hit[row]
    np.testing.assert_allclose(
        path.velocity[hit], np.broadcast_to(path.velocity[row], (hit.sum(), 3)), atol=1e-9
    )
    np.testing.assert_allclose(path.acceleration[hit], 0, atol=1e-5)
    speed = np.linalg.norm(velocity)
    rows_before = row - np.flatnonzero(hit)[0]
    rows_after = np.flatnonzero(hit)[-1] - row
    rows_of_settling = config.settle * path.rate
    assert rows_of_settling - 1.001 <= rows_before <= rows_of_settling + 1.001
    assert rows_after == int(config.through / speed * path.rate + 1e-6)
    order = [("approach", "hit", "retreat").index(word) for word in path.phase]
    assert order == sorted(order) and set(order) == {0, 1, 2}
    if len(touch) == 2:
        assert not path.position[:, 2].any()


@settings(max_examples=30, deadline=None)
@given(strikes())
def test_stays_on_two_straight_lines(strike):
    touch, velocity, limits, start, config = strike
    path = strike_path(touch, velocity, limits, start=start, config=config)
    direction = path.velocity[row_of_touch(path)] / np.linalg.norm(velocity)
    bare = strike_path(touch, velocity, limits, config=config)
    lead = len(path.t) - len(bare.t)
    np.testing.assert_allclose(path.position[lead:], bare.position, atol=1e-12)
    away = bare.position - path.position[row_of_touch(path)]
    np.testing.assert_allclose(away, np.outer(away @ direction, direction), atol=1e-12)
    if start is not None:
        start = np.array([*start, 0.0][:3])
        np.testing.assert_allclose(path.position[0], start, atol=1e-12)
        line = (bare.position[0] - start) / max(np.linalg.norm(bare.position[0] - start), 1e-12)
        gone = path.position[:lead] - start
        np.testing.assert_allclose(gone, np.outer(gone @ line, line), atol=1e-9)


def test_run_up_is_as_short_as_the_limits_allow():
    """0.5 m/s at 10 m/s2 and 500 m/s3 takes 0.05 + 0.02 s by the textbook, at half the speed on
    average; 20 ms of settling follow.
    """
    path = strike_path(TOUCH, VELOCITY)
    assert path.touch_time == pytest.approx(0.09, abs=1e-12)
    assert np.linalg.norm(path.position[0] - TOUCH) == pytest.approx(
        0.25 * 0.07 + 0.5 * 0.02, abs=1e-9
    )


@pytest.mark.parametrize("retreat", [0.1, 0.002, None])
def test_retreat(retreat):
    path = strike_path(TOUCH, VELOCITY, config=PathConfig(through=0.02, retreat=retreat))
    along = (path.position - TOUCH) @ VELOCITY / 0.5
    furthest = 0.02 + 0.25 * 0.07  # braking mirrors the run-up
    assert along.max() == pytest.approx(furthest, abs=1e-6)  # a sample may fall beside it
    assert along[-1] == pytest.approx(furthest - (retreat or 0), abs=1e-9)


def test_other_rates():
    for rate in (125, 500.0, 333.3, 4000.0):
        path = strike_path(TOUCH, VELOCITY, config=PathConfig(rate=rate, frame="base"))
        np.testing.assert_allclose(np.diff(path.t), 1 / rate)
        np.testing.assert_allclose(path.position[row_of_touch(path)], TOUCH, atol=1e-12)
        assert path.rate == rate and path.frame == "base"


def test_start_at_the_height_of_the_touch_and_at_the_run_up_point():
    assert strike_path(TOUCH, VELOCITY, start=(0.0, -0.3)).position[0].tolist() == [0.0, -0.3, 0.05]
    bare = strike_path(TOUCH, VELOCITY)
    assert len(strike_path(TOUCH, VELOCITY, start=bare.position[0]).t) == len(bare.t)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"velocity": (1.2, 0.0)}, "at most the limit of 1 m/s, got 1.2"),
        ({"velocity": (0.0, 0.0)}, "above 0"),
        ({"velocity": (np.nan, 0.1)}, "velocity must be two or three finite"),
        ({"touch": (0.1,)}, "touch must be two or three"),
        ({"touch": "here"}, "touch must be two or three numbers, got 'here'"),
        ({"touch": [[0.0, 0.1]]}, "touch"),
        ({"through": -0.01}, "through must be finite and at least 0, got -0.01"),
        ({"settle": np.inf}, "settle"),
        ({"retreat": 0.0}, "retreat must be finite and above 0"),
        ({"rate": 0.0}, "rate"),
        ({"start": (0.9, 0.0)}, "behind the touch.* 0.54 m ahead"),
        ({"start": (0.0, 0.0, 0.0, 0.0)}, "start"),
        ({"velocity": (1e-9, 0.0)}, "rows where 1000000 are allowed"),
        ({"through": 1e300}, "rows where"),
        ({"limits": Limits(jerk=1e-9)}, "rows where"),
        ({"start": (-1e5, 0.0)}, "no path can be computed.* takes hours"),
    ],
)
def test_refusals(changes, words):
    changed = dict(changes)
    touch = changed.pop("touch", TOUCH)
    velocity = changed.pop("velocity", VELOCITY)
    limits = changed.pop("limits", Limits())
    start = changed.pop("start", None)
    with pytest.raises(DataError, match=words):
        strike_path(touch, velocity, limits, start=start, config=PathConfig(**changed))


@pytest.mark.parametrize(
    "bad", [{"speed": 0.0}, {"acceleration": np.nan}, {"jerk": np.inf}, {"jerk": -1.0}]
)
def test_limits_are_checked(bad):
    with pytest.raises(DataError, match=f"limit of {next(iter(bad))} must be finite and above 0"):
        Limits(**bad)


def test_a_speed_at_the_limit_is_allowed():
    rounded = float(np.nextafter(1.0, 2.0))
    assert norm(strike_path(TOUCH, (0.0, rounded)).velocity).max() == pytest.approx(1.0)


def same(rows, path):
    np.testing.assert_array_equal(
        np.array([row[:7] for row in rows], float),
        np.column_stack([path.t, path.position, path.velocity]),
    )
    assert [row[7] for row in rows] == path.phase.tolist()


def test_csv_says_the_same(tmp_path):
    path = strike_path(TOUCH, VELOCITY, start=(0.0, 0.0))
    write_path(path, tmp_path / "new" / "strike.csv")
    text = (tmp_path / "new" / "strike.csv").read_text()
    header, *rows = csv.reader(text.splitlines())
    assert ",".join(header) == "t_s,x_m,y_m,z_m,vx_m_s,vy_m_s,vz_m_s,phase"
    same(rows, path)
    assert "-0.0," not in text


def test_json_says_the_same(tmp_path):
    path = strike_path(TOUCH, VELOCITY, Limits(jerk=800.0), config=PathConfig(frame="panda_link0"))
    write_path(path, str(tmp_path / "strike.JSON"))
    read = json.loads((tmp_path / "strike.JSON").read_text())
    same(read["rows"], path)
    assert (
        read["columns"] == list(COLUMNS)
        and read["frame"] == "panda_link0"
        and read["touch_s"] == path.touch_time
        and read["rate_hz"] == 1000.0
    )
    assert (
        read["limits"] == {"speed_m_s": 1.0, "acceleration_m_s2": 10.0, "jerk_m_s3": 800.0}
        and read["units"]["velocity"] == "m/s"
    )


def test_files_that_are_refused(tmp_path):
    path = strike_path(TOUCH, VELOCITY)
    file = tmp_path / "strike.csv"
    with pytest.raises(DataError, match=r"\.csv or \.json, got .*strike\.txt"):
        write_path(path, tmp_path / "strike.txt")
    file.write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        write_path(path, file)
    assert file.read_text() == "mine"
    write_path(path, file, overwrite=True)
    assert file.read_text().startswith("t_s,")
    with pytest.raises(DataError, match="cannot be written"):
        write_path(path, file / "below.csv")
