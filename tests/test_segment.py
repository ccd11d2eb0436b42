"""Impacts from recorded motion: MuJoCo tells the twist at parting, a camera with noise, jitter and
drop-outs sees the poses, and `segment` must find the first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials, quaternion
from clashsim.data.segmentation.pair_setup import SegmentConfig
from clashsim.data.segmentation.result import Segmentation
from clashsim.data.segmentation.segment import segment
from clashsim.fit.sample import sample_strikes
from clashsim.sim.mujoco.impacts import rest_height
from clashsim.slides.ground_friction import ground_friction

NOISE, TURN = (
    3e-4,
    np.deg2rad(0.4),
)  # m on each axis of the origin; rad about each axis, more than markers 40 mm out with 0.3 mm each would have


@dataclass(frozen=True, eq=False)
class Run:
    """Exact motion t (T,), poses (T, 7), and what happened: onset, parting, twist before and after
    of each contact.
    """

    t: np.ndarray
    poses: dict[str, np.ndarray]
    events: list[tuple[float, float, np.ndarray, np.ndarray]]
    striker: np.ndarray | None = None


def strike(
    scene: Scene,
    before: np.ndarray,
    theta: np.ndarray,
    *,
    lead: float = 0.3,
    tail: float = 0.9,
    brake: float = 15.0,
) -> Run:
    """A block at rest, struck by a servo that keeps its speed until the pair parts and then brakes,
    and its slide to rest.
    """
    model = scene.model(theta)
    data, dt = mujoco.MjData(model), model.opt.timestep
    row, qpos, qvel = before[None].copy(), np.array(model.qpos0)[None], np.zeros((1, model.nv))
    row[:, 6:8] -= lead * row[:, 9:11]
    PairPoser(scene, rest_height(scene, theta[None])).write(row, qpos, qvel)
    data.qpos[:], data.qvel[:] = qpos[0], qvel[0]
    drive = qvel[0][scene.striker_body.qvel]
    sensor, block, share = int(model.sensor("clashsim/contact").adr[0]), scene.struck_body, 1.0
    n = round((lead + tail) / dt)
    t, struck, striker = np.zeros(n), np.zeros((n, 7)), np.zeros((n, 7))
    striker[:, 3] = 1
    onset = parting = np.nan
    after, quiet, speed = np.zeros(3), 0, 0.0
    for i in range(n):
        if parting == parting:
            share = max(0.0, share - brake * dt / float(np.linalg.norm(drive)))
        data.ctrl[:] = drive * share
        t[i], struck[i] = data.time, data.qpos[block.qpos]
        linear, angular = block.twist(data.qpos[None], data.qvel[None])
        position = data.qpos[scene.striker_body.qpos].copy()
        mujoco.mj_step(model, data)
        striker[i, :3] = [
            *(scene.striker_body.position[:2] + position),
            scene.striker_body.position[2],
        ]
        found, rate = data.sensordata[sensor] > 0, abs(data.sensordata[sensor + 1])
        if found and onset != onset:
            onset, speed = t[i], rate
        elif onset == onset and parting != parting:
            quiet = quiet + 1 if found and rate < 0.02 * speed else 0
            if not found or quiet >= 6:
                parting, after = t[i], np.array([*linear[0, :2], angular[0, 2]])
    return Run(
        t,
        {"block": struck, "striker": striker},
        [(onset, parting, np.zeros(3), after)],
        before[9:12],
    )


def free(
    xml: str, body: str, qpos: list[float], qvel: list[float], *, duration: float, planar: bool
) -> Run:
    """A body let go in a scene: every contact from its first to its last step."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    n = round(duration / model.opt.timestep)
    t, pose, twist, touch = (
        np.zeros(n),
        np.zeros((n, 7)),
        np.zeros((n, 3 if planar else 6)),
        np.zeros(n, bool),
    )
    for i in range(n):
        mujoco.mj_forward(model, data)
        t[i], touch[i] = data.time, data.ncon > 0
        pose[i] = [*data.body(body).xpos, *data.body(body).xquat]
        twist[i] = (
            data.qvel
            if planar
            else [*data.qvel[:3], *(data.body(body).xmat.reshape(3, 3) @ data.qvel[3:])]
        )
        mujoco.mj_step(model, data)
    start, end = (
        np.flatnonzero(touch[1:] & ~touch[:-1]) + 1,
        np.flatnonzero(~touch[1:] & touch[:-1]) + 1,
    )
    return Run(
        t,
        {body: pose},
        [(t[a], t[b], twist[a - 1], twist[b]) for a in start for b in end[end > a][:1]],
    )


def camera(
    run: Run,
    hz: float,
    rng: np.random.Generator,
    name: str,
    *,
    drop: float = 0.02,
    burst: float = 0.2,
) -> Trial:
    """What a camera sees: noise, time stamps off by up to some 0.3 ms, one frame in fifty lost, and
    in every fifth trial five in a row.
    """
    t = np.arange(run.t[0] + rng.uniform(0, 1 / hz), run.t[-1] - 1e-9, 1 / hz)
    right = np.clip(np.searchsorted(run.t, t), 1, len(run.t) - 1)
    share = ((t - run.t[right - 1]) / (run.t[right] - run.t[right - 1]))[:, None]
    poses = {}
    for body, exact in run.poses.items():
        mixed = exact[right - 1] * (1 - share) + exact[right] * share
        turn = Rotation.from_rotvec(TURN * rng.normal(size=(len(t), 3))) * Rotation.from_quat(
            mixed[:, 3:], scalar_first=True
        )
        seen = np.column_stack(
            [mixed[:, :3] + NOISE * rng.normal(size=(len(t), 3)), turn.as_quat(scalar_first=True)]
        )
        lost = rng.random(len(t)) < drop
        if rng.random() < burst:
            lost[(k := rng.integers(len(t))) : k + 5] = True
        seen[lost] = np.nan
        poses[body] = seen
    return Trial(
        name, t + min(3e-4, 0.15 / hz) * rng.normal(size=len(t)), poses, source="simulated"
    )


@dataclass(frozen=True)
class Score:
    """Events that could be found and were, impacts that were invented, relative errors of the twist
    after and before.
    """

    events: int
    found: int
    invented: int
    after: list[float]
    before: list[float]


def score(
    runs: list[Run], out: Segmentation, gyration: float, hz: float, *, apart: float = 0.0
) -> Score:
    """Compare with the truth; events closer to each other or to the ends than eight frames (or
    `apart`), or hardly felt, do not count either way.
    """
    events = found = invented = 0
    after: list[float] = []
    before: list[float] = []
    k = 3 if out.planar else 6
    scale = np.repeat([1.0, gyration], (2, 1) if out.planar else (3, 3))
    for i, run in enumerate(runs):
        left = [f for f in out.found if f.trial == f"trial {i}"]
        times = [run.t[0], *(e[0] for e in run.events), run.t[-1]]
        for j, (onset, parting, old, new) in enumerate(run.events):
            near = [f for f in left if onset - 0.02 - 0.5 / hz < f.time < parting + 0.02 + 0.5 / hz]
            left = [f for f in left if f not in near[:1]]
            alone = min(times[j + 1] - times[j], times[j + 2] - times[j + 1])
            if alone < max(8 / hz + 0.02, apart) or np.linalg.norm((new - old) * scale) < 0.1:
                left = [f for f in left if f not in near]
                continue
            events += 1
            for f in near[:1]:
                found += 1
                twist = f.before[k if out.planar else 7 :][:k]
                after.append(
                    float(np.linalg.norm((f.after - new) * scale) / np.linalg.norm(new * scale))
                )
                before.append(
                    float(
                        np.linalg.norm((twist - old) * scale)
                        / max(float(np.linalg.norm(old * scale)), 0.1)
                    )
                )
        invented += len(left)
    return Score(events, found, invented, after, before)


SHAPES = ("semi_cylinder", "square", "triangle")


@cache
def strikes(name: str) -> tuple[Scene, list[Run]]:
    """A shipped scene and twelve strikes in it, simulated on first use."""
    scene = Scene.load(name)
    before = sample_strikes(scene, 12, np.random.default_rng(11)).before
    return scene, [strike(scene, row, scene.nominal) for row in before]


def _strikes_at(names: Sequence[str], hz: float) -> tuple[Score, np.ndarray]:
    total, wide = Score(0, 0, 0, [], []), []
    for scene, runs in map(strikes, names):
        rng = np.random.default_rng(5)
        trials = Trials(tuple(camera(run, hz, rng, f"trial {i}") for i, run in enumerate(runs)))
        out = segment(trials, scene=scene)
        part = score(runs, out, inertia(scene, scene.struck_body).gyration, hz)
        total = Score(
            total.events + part.events,
            total.found + part.found,
            total.invented + part.invented,
            total.after + part.after,
            total.before + part.before,
        )
        for f in out.found:
            run = runs[int(f.trial.split()[1])]
            wide.append(np.abs(f.after - run.events[0][3]) / f.after_std)
            assert run.striker is not None
            assert np.linalg.norm(f.before[9:11] - run.striker[:2]) < 0.05 * np.linalg.norm(
                run.striker[:2]
            )
    return total, np.array(wide)


RATES = [
    (("square",), 200),
    *(pytest.param(SHAPES, hz, marks=pytest.mark.slow) for hz in (60, 120, 200, 500, 1000)),
]


@pytest.mark.parametrize(("names", "hz"), RATES)
def test_twist_after_strikes(names: Sequence[str], hz: float) -> None:
    result, wide = _strikes_at(names, hz)
    assert result.found >= 0.98 * result.events and result.invented <= 0.01 * result.events
    assert (
        np.median(result.after) < (0.03 if hz > 60 else 0.04)
        and np.quantile(result.after, 0.9) < 0.1
    )  # at 60 Hz a slow slide has five frames
    assert np.median(result.before) < 0.02  # a body at rest is said to be at rest
    assert 0.5 < np.quantile(wide, 0.95) < 3.5  # the errors stated are the errors made


ARENA = """<mujoco><option timestep="0.0002" integrator="implicitfast" cone="elliptic"/><worldbody>
<geom type="box" pos="1 0 0" size=".05 1 .1"/><geom type="box" pos="-1 0 0" size=".05 1 .1"/>
<geom type="box" pos="0 .55 0" size="1 .05 .1"/><geom type="box" pos="0 -.55 0" size="1 .05 .1"/>
<body name="puck"><joint type="slide" axis="1 0 0" frictionloss=".0024" damping=".0008"/><joint type="slide" axis="0 1 0" frictionloss=".0024" damping=".0008"/>
<joint type="hinge" axis="0 0 1"/><geom type="cylinder" size=".03165 .01" mass=".015" friction=".2" solref="-1000000 -250"/></body></worldbody></mujoco>"""
TOSS = """<mujoco><option timestep="0.0002" integrator="implicitfast" cone="elliptic"/><worldbody><geom type="plane" size="3 3 .1"/>
<body name="cube"><freejoint/><geom type="box" size=".05 .04 .03" mass=".37" friction=".3" solref="-300000 -150"/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def pucks() -> list[Run]:
    rng, out = np.random.default_rng(0), []
    for _ in range(6):
        way, speed = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 3)
        place, spin = rng.uniform([-0.7, -0.3], [0.7, 0.3]), rng.uniform(-20, 20)
        out.append(
            free(
                ARENA,
                "puck",
                [*place, 0.0],
                [speed * np.cos(way), speed * np.sin(way), spin],
                duration=2.0,
                planar=True,
            )
        )
    return out


@pytest.mark.parametrize(
    "hz", [200, *(pytest.param(hz, marks=pytest.mark.slow) for hz in (120, 500))]
)
def test_puck_off_walls_that_were_not_recorded(pucks: list[Run], hz: float) -> None:
    rng = np.random.default_rng(5)
    out = segment(
        [camera(run, hz, rng, f"trial {i}") for i, run in enumerate(pucks)],
        struck="puck",
        config=SegmentConfig(gyration_radius=0.022),
    )
    result = score(pucks, out, 0.022, hz)
    assert result.events >= 8 and result.found >= 0.98 * result.events and result.invented == 0
    assert np.median(result.after) < 0.02 and np.median(result.before) < 0.03


@pytest.mark.parametrize(
    "hz", [500, *(pytest.param(hz, marks=pytest.mark.slow) for hz in (120, 200))]
)
def test_free_flight_off_the_floor(hz: float) -> None:
    rng, runs = np.random.default_rng(2), []
    for _ in range(8):
        turn = rng.normal(size=4)
        runs.append(
            free(
                TOSS,
                "cube",
                [0, 0, rng.uniform(0.3, 0.5), *(turn / np.linalg.norm(turn))],
                [*rng.uniform(-1, 1, 2), rng.uniform(-0.5, 1), *rng.uniform(-6, 6, 3)],
                duration=0.75,
                planar=False,
            )
        )
    out = segment(
        [camera(run, hz, rng, f"trial {i}") for i, run in enumerate(runs)],
        struck="cube",
        config=SegmentConfig(planar=False, gyration_radius=0.035),
    )
    result = score(runs, out, 0.035, hz, apart=0.06)
    assert (
        not out.planar
        and result.events >= 7
        and result.found >= 0.98 * result.events
        and result.invented == 0
    )
    assert np.median(result.after) < 0.03 and np.median(result.before) < 0.03


def test_slides_tell_the_friction_of_the_table() -> None:
    scene, runs = strikes("square")
    rng = np.random.default_rng(1)
    out = segment([camera(run, 200, rng, f"trial {i}") for i, run in enumerate(runs)], scene=scene)
    friction = ground_friction(out.slides, gyration=inertia(scene, scene.struck_body).gyration)
    assert len(out.slides) == len(runs) and abs(friction.sliding / 0.3 - 1) < 0.15


def _line(name: str, t: np.ndarray, x: np.ndarray, *, seed: int = 0, noise: float = NOISE) -> Trial:
    """A body that moves along x."""
    rng = np.random.default_rng(seed)
    place = np.column_stack([x, 0 * x, 0 * x]) + noise * rng.normal(size=(len(t), 3))
    return Trial(
        name, t, {"block": np.column_stack([place, quaternion(2e-3 * rng.normal(size=len(t)))])}
    )


T = np.arange(0, 1.5, 1 / 200)


def _slid(speed: float, at: float, friction: float = 3.0) -> np.ndarray:
    gone = np.clip(T - at, 0, speed / friction)
    return speed * gone - 0.5 * friction * gone**2


def test_rest_and_smooth_starts_and_stops_are_no_impacts() -> None:
    pushed = np.where(
        T < 0.5, 0, np.where(T < 0.9, 0.5 * 2.0 * (T - 0.5) ** 2, 0.16 + 0.8 * (T - 0.9))
    )  # 2 m/s^2 for 0.4 s
    out = segment(
        [_line(f"still {i}", T, 0 * T, seed=i) for i in range(20)]
        + [_line("coasts", T, 0.5 * T)]
        + [_line("pushed", T, pushed)]
        + [_line("stops", T, _slid(1.2, -0.1), seed=3)],
        struck="block",
    )
    assert (
        len(out.found) == 0 and sum("no impact found in trial" in note for note in out.notes) == 23
    )


def test_two_hits_within_a_few_frames_are_said_not_invented() -> None:
    for gap in (0.01, 0.02, 0.03):
        x = _slid(0.3, 0.5) + _slid(0.5, 0.5 + gap)
        out = segment([_line("double", T, x)], struck="block")
        assert len(out.found) <= 2 and (len(out.found) < 2 or out.notes or not out.clean.all())


def test_where_each_came_from() -> None:
    out = segment(
        Trials((_line("a", T, _slid(0.5, 0.4)), _line("b", T, _slid(0.7, 0.6)))), struck="block"
    )
    assert out.trial.tolist() == ["a", "b"] and np.allclose(out.time, [0.4, 0.6], atol=0.002)
    assert (
        out.impacts.before.shape == (2, 12)
        and out.after_std.shape == (2, 3)
        and out.before_std.shape == (2, 6)
    )
    assert np.allclose(out.after_at(0.0)[:, 0], [0.5, 0.7], rtol=0.03)
    assert np.allclose(
        out.impacts.after[:, 0], [0.5 - 0.024, 0.7 - 0.024], rtol=0.03
    )  # 8 ms of friction later


def test_known_parameters_travel_along() -> None:
    trials = [
        Trial(t.name, t.t, t.poses, known={"mass": m})
        for t, m in ((_line("a", T, _slid(0.5, 0.4)), 1.0), (_line("b", T, _slid(0.7, 0.6)), 2.0))
    ]
    assert segment(trials, struck="block").impacts.known["mass"].tolist() == [1.0, 2.0]


def test_same_trials_same_numbers() -> None:
    one, two = (segment([_line("a", T, _slid(0.5, 0.4))], struck="block").impacts for _ in range(2))
    assert np.array_equal(one.after, two.after) and np.array_equal(one.before, two.before)


def test_bad_input_is_one_sentence() -> None:
    good = _line("a", T, _slid(0.5, 0.4))
    unseen = Trial("b", T, {"block": np.full((len(T), 7), np.nan)})
    with pytest.raises(DataError, match="no body 'blok'"):
        segment([good], struck="blok")
    with pytest.raises(DataError, match="not seen in any"):
        segment([unseen], struck="block")
    with pytest.raises(DataError, match="no trials"):
        segment([], struck="block")
    with pytest.raises(DataError, match="name the struck body"):
        segment([good])
    with pytest.raises(DataError, match="min_jump must be above zero"):
        segment([good], struck="block", config=SegmentConfig(min_jump=0.0))
    with pytest.raises(DataError, match="planar"):
        segment([good], scene=Scene.load("square"), config=SegmentConfig(planar=False))
    short = _line("c", T[:6], T[:6])
    out = segment([good, unseen, short], struck="block")
    assert (
        len(out.found) == 1
        and any("'b'" in n and "0 frames" in n for n in out.notes)
        and any("'c'" in n and "6 frames" in n for n in out.notes)
    )
    lone = Trial("d", T, {"block": good.poses["block"], "striker": unseen.poses["block"]})
    out = segment([lone], struck="block", striker="striker")
    assert len(out.found) == 0 and any(
        "striker 'striker' is seen in 0 frames" in n for n in out.notes
    )


@pytest.mark.slow
def test_real_strikes_agree_with_what_their_authors_made_of_them() -> None:
    root = os.environ.get("CLASHSIM_DATA")
    if (
        not root
        or not (Path(root) / "lasa_raw" / "raw_hits.zip").is_file()
        or not (Path(root) / "lasa_strikes" / "hits.npz").is_file()
    ):
        pytest.skip(
            "set CLASHSIM_DATA to a folder with lasa_raw and lasa_strikes (github.com/epfl-lasa/air_hockey)"
        )
    from clashsim.data import logs
    from clashsim.data.readers import mapping

    trials = logs.read_logs(
        [Path(root) / "lasa_raw" / "raw_hits.zip"],
        mapping=mapping.load(Path(__file__).parents[1] / "examples" / "lasa_raw.toml"),
    ).trials
    config = SegmentConfig(gyration_radius=0.1, min_jump=0.1)
    out = segment(trials, struck="box", striker="tool", config=config)
    assert out.trial.tolist() == [trial.name for trial in trials]
    with np.load(Path(root) / "lasa_strikes" / "hits.npz") as table:
        hits = {key: table[key] for key in table.files}
    scale, differences = np.array([1, 1, 0.1]), []
    for f, trial in zip(out.found, trials, strict=True):
        row = int(
            np.flatnonzero(
                (hits["dataset"] == "D1-Inertia")
                & (hits["hit"] == int(f.trial))
                & (hits["robot"] == 7)
            )[0]
        )
        rows = slice(*hits["traj_offset"][row : row + 2])
        t, y = (
            np.cumsum(hits["traj_t_delta_1e5"][rows]) * 1e-5,
            np.cumsum(hits["traj_pos_delta_1e5"][rows, 1]) * 1e-5,
        )
        use, (seen_t, seen) = (t > 0) & (t < 0.3), trial.seen("box")
        # The set's clock starts at the last still frame: shift it until its path lies on the raw
        # one.
        onset = min(
            f.time + np.arange(-0.03, 0.03, 5e-4),
            key=lambda s: float(((np.interp(t[use] + s, seen_t, seen[:, 1]) - y[use]) ** 2).mean()),
        )
        theirs = hits["v_obj"][row] * scale
        differences.append(
            float(
                np.linalg.norm(f.after_at(onset + 0.035 - f.time) * scale - theirs)
                / np.linalg.norm(theirs)
            )
        )
    assert np.median(differences) < 0.03
