"""Impacts from recorded motion.

MuJoCo gives the exact twist at the separation, a camera with noise, jitter and drop-outs sees the
poses, and `segment` must recover the twist.
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
from clashsim.data.segmentation.result import MeasuredImpact, Segmentation
from clashsim.data.segmentation.segment import segment
from clashsim.fit.sample import sample_strikes
from clashsim.sim.mujoco.impacts import contact_sensors, rest_height
from clashsim.slides.ground_friction import ground_friction

NOISE = 3e-4  # m on each axis of the origin
# Rad about each axis, more than markers 40 mm out with 0.3 mm each would have.
ROTATION_NOISE = np.deg2rad(0.4)


@dataclass(frozen=True, eq=False)
class Contact:
    """One contact of a simulated motion.

    Attributes:
        onset: Time of the first touch, s.
        separation: Time of the separation, s.
        before: Twist (3,) or (6,) of the body before it.
        after: Twist (3,) or (6,) after it.
    """

    onset: float
    separation: float
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """Exact motion.

    Attributes:
        t: Times (T,), s.
        poses: Poses (T, 7) of each body, m and wxyz.
        contacts: What happened, in order of time.
        striker_twist: Twist (3,) of the striker before the strike, if there is one.
    """

    t: np.ndarray
    poses: dict[str, np.ndarray]
    contacts: list[Contact]
    striker_twist: np.ndarray | None = None


def strike(
    scene: Scene,
    before: np.ndarray,
    theta: np.ndarray,
    *,
    lead: float = 0.3,
    tail: float = 0.9,
    brake: float = 15.0,
) -> Run:
    """Simulate a block at rest that is struck by a servo and slides to rest.

    The servo keeps its speed until the pair separates, and then brakes.

    Args:
        scene: The scene.
        before: State (12,) before the impact.
        theta: Parameters (p,).
        lead: Time before the impact, s.
        tail: Time after it, s.
        brake: Deceleration of the servo, m/s^2.
    """
    model = scene.model(theta)
    data = mujoco.MjData(model)
    dt = model.opt.timestep
    row = before[None].copy()
    row[:, 6:8] -= lead * row[:, 9:11]
    qpos = np.array(model.qpos0)[None]
    qvel = np.zeros((1, model.nv))
    PairPoser(scene, rest_height(scene, theta[None])).write(row, qpos, qvel)
    data.qpos[:] = qpos[0]
    data.qvel[:] = qvel[0]
    drive = qvel[0][scene.striker_body.qvel]
    sensor = int(contact_sensors(model)[0])
    block = scene.struck_body
    steps = round((lead + tail) / dt)
    t = np.zeros(steps)
    struck = np.zeros((steps, 7))
    striker = np.zeros((steps, 7))
    striker[:, 3] = 1
    drive_share = 1.0
    onset = separation = np.nan
    approach_speed = 0.0
    quiet_steps = 0
    after = np.zeros(3)
    for i in range(steps):
        has_separated = not np.isnan(separation)
        if has_separated:
            drive_share = max(0.0, drive_share - brake * dt / float(np.linalg.norm(drive)))
        data.ctrl[:] = drive * drive_share
        t[i] = data.time
        struck[i] = data.qpos[block.qpos]
        linear, angular = block.twist(data.qpos[None], data.qvel[None])
        striker_position = data.qpos[scene.striker_body.qpos].copy()
        mujoco.mj_step(model, data)
        striker[i, :2] = scene.striker_body.position[:2] + striker_position
        striker[i, 2] = scene.striker_body.position[2]
        touches = data.sensordata[sensor] > 0
        normal_speed = abs(data.sensordata[sensor + 2])
        has_touched = not np.isnan(onset)
        if touches and not has_touched:
            onset = t[i]
            approach_speed = normal_speed
        elif has_touched and not has_separated:
            is_quiet = touches and normal_speed < 0.02 * approach_speed
            quiet_steps = quiet_steps + 1 if is_quiet else 0
            if not touches or quiet_steps >= 6:
                separation = t[i]
                after = np.array([*linear[0, :2], angular[0, 2]])
    contact = Contact(onset, separation, np.zeros(3), after)
    return Run(t, {"block": struck, "striker": striker}, [contact], before[9:12])


def free(
    xml: str, body: str, qpos: list[float], qvel: list[float], *, duration: float, planar: bool
) -> Run:
    """Simulate a body that is let go: every contact from its first to its last step."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    data.qvel[:] = qvel
    steps = round(duration / model.opt.timestep)
    t = np.zeros(steps)
    pose = np.zeros((steps, 7))
    twist = np.zeros((steps, 3 if planar else 6))
    touches = np.zeros(steps, bool)
    for i in range(steps):
        mujoco.mj_forward(model, data)
        t[i] = data.time
        touches[i] = data.ncon > 0
        pose[i] = [*data.body(body).xpos, *data.body(body).xquat]
        if planar:
            twist[i] = data.qvel
        else:
            rotation = data.body(body).xmat.reshape(3, 3)
            twist[i] = [*data.qvel[:3], *(rotation @ data.qvel[3:])]
        mujoco.mj_step(model, data)
    starts = np.flatnonzero(touches[1:] & ~touches[:-1]) + 1
    ends = np.flatnonzero(~touches[1:] & touches[:-1]) + 1
    contacts = []
    for start in starts:
        for end in ends[ends > start][:1]:
            contacts.append(Contact(t[start], t[end], twist[start - 1], twist[end]))
    return Run(t, {body: pose}, contacts)


def camera(
    run: Run,
    hz: float,
    rng: np.random.Generator,
    name: str,
    *,
    drop: float = 0.02,
    burst: float = 0.2,
) -> Trial:
    """What a camera sees of a motion.

    It has noise, time stamps off by up to about 0.3 ms, one frame in fifty lost, and in every fifth
    trial five frames in a row lost.
    """
    t = np.arange(run.t[0] + rng.uniform(0, 1 / hz), run.t[-1] - 1e-9, 1 / hz)
    right = np.clip(np.searchsorted(run.t, t), 1, len(run.t) - 1)
    share = ((t - run.t[right - 1]) / (run.t[right] - run.t[right - 1]))[:, None]
    poses = {}
    for body, exact in run.poses.items():
        between = exact[right - 1] * (1 - share) + exact[right] * share
        shake = Rotation.from_rotvec(ROTATION_NOISE * rng.normal(size=(len(t), 3)))
        orientation = shake * Rotation.from_quat(between[:, 3:], scalar_first=True)
        position = between[:, :3] + NOISE * rng.normal(size=(len(t), 3))
        seen = np.column_stack([position, orientation.as_quat(scalar_first=True)])
        lost = rng.random(len(t)) < drop
        if rng.random() < burst:
            first = rng.integers(len(t))
            lost[first : first + 5] = True
        seen[lost] = np.nan
        poses[body] = seen
    stamps = t + min(3e-4, 0.15 / hz) * rng.normal(size=len(t))
    return Trial(name, stamps, poses, source="simulated")


@dataclass(frozen=True)
class Score:
    """How well a segmentation agrees with the truth.

    Attributes:
        events: Contacts that could be found.
        found: Those of them that were.
        invented: Impacts that did not happen.
        after: Relative errors of the twist after.
        before: Relative errors of the twist before.
    """

    events: int
    found: int
    invented: int
    after: list[float]
    before: list[float]

    def __add__(self, other: Score) -> Score:
        return Score(
            self.events + other.events,
            self.found + other.found,
            self.invented + other.invented,
            self.after + other.after,
            self.before + other.before,
        )


NO_SCORE = Score(0, 0, 0, [], [])


def score(
    runs: list[Run], out: Segmentation, gyration: float, hz: float, *, apart: float = 0.0
) -> Score:
    """Compare a segmentation with the truth.

    Contacts closer to each other or to the ends than eight frames (or `apart` seconds), or hardly
    felt, do not count either way.
    """
    total = NO_SCORE
    for i, run in enumerate(runs):
        impacts = [impact for impact in out.found if impact.trial == f"trial {i}"]
        total += _score_run(run, impacts, out.planar, gyration, max(8 / hz + 0.02, apart), hz)
    return total


def _score_run(
    run: Run,
    impacts: list[MeasuredImpact],
    planar: bool,
    gyration: float,
    min_distance: float,
    hz: float,
) -> Score:
    width = 3 if planar else 6
    scale = np.repeat([1.0, gyration], (2, 1) if planar else (3, 3))

    def size(twist: np.ndarray) -> float:
        return float(np.linalg.norm(twist * scale))

    events = found = 0
    after: list[float] = []
    before: list[float] = []
    left = list(impacts)
    times = [run.t[0], *(contact.onset for contact in run.contacts), run.t[-1]]
    for j, contact in enumerate(run.contacts):
        earliest = contact.onset - 0.02 - 0.5 / hz
        latest = contact.separation + 0.02 + 0.5 / hz
        near = [impact for impact in left if earliest < impact.time < latest]
        left = [impact for impact in left if impact not in near[:1]]
        distance = min(times[j + 1] - times[j], times[j + 2] - times[j + 1])
        if distance < min_distance or size(contact.after - contact.before) < 0.1:
            left = [impact for impact in left if impact not in near]
            continue
        events += 1
        for impact in near[:1]:
            found += 1
            twist = impact.before[width if planar else 7 :][:width]
            after.append(size(impact.after - contact.after) / size(contact.after))
            before.append(size(twist - contact.before) / max(size(contact.before), 0.1))
    return Score(events, found, len(left), after, before)


SHAPES = ("semi_cylinder", "square", "triangle")


@cache
def strikes(name: str) -> tuple[Scene, list[Run]]:
    """A shipped scene and twelve strikes in it, simulated on first use."""
    scene = Scene.load(name)
    before = sample_strikes(scene, 12, np.random.default_rng(11)).before
    return scene, [strike(scene, row, scene.nominal) for row in before]


def _strikes_at(names: Sequence[str], hz: float) -> tuple[Score, np.ndarray]:
    """Score over shapes, and errors of the twist after (N, 3) in reported standard deviations."""
    total = NO_SCORE
    errors = []
    for scene, runs in map(strikes, names):
        rng = np.random.default_rng(5)
        trials = Trials(tuple(camera(run, hz, rng, f"trial {i}") for i, run in enumerate(runs)))
        out = segment(trials, scene=scene)
        total += score(runs, out, inertia(scene, scene.struck_body).gyration, hz)
        for impact in out.found:
            run = runs[int(impact.trial.split()[1])]
            errors.append(np.abs(impact.after - run.contacts[0].after) / impact.after_std)
            assert run.striker_twist is not None
            expected = run.striker_twist[:2]
            error = np.linalg.norm(impact.before[9:11] - expected)
            assert error < 0.05 * np.linalg.norm(expected)
    return total, np.array(errors)


RATES = [
    (("square",), 200),
    *(pytest.param(SHAPES, hz, marks=pytest.mark.slow) for hz in (60, 120, 200, 500, 1000)),
]


@pytest.mark.parametrize(("names", "hz"), RATES)
def test_twist_after_strikes(names: Sequence[str], hz: float) -> None:
    result, errors = _strikes_at(names, hz)
    assert result.found >= 0.98 * result.events and result.invented <= 0.01 * result.events
    max_median = 0.03 if hz > 60 else 0.04  # at 60 Hz a slow slide has five frames
    assert np.median(result.after) < max_median and np.quantile(result.after, 0.9) < 0.1
    assert np.median(result.before) < 0.02  # a body at rest is reported to be at rest
    assert 0.5 < np.quantile(errors, 0.95) < 3.5  # the errors reported are the errors made


ARENA = """<mujoco>
<option timestep="0.0002" integrator="implicitfast" cone="elliptic"/>
<worldbody>
<geom type="box" pos="1 0 0" size=".05 1 .1"/><geom type="box" pos="-1 0 0" size=".05 1 .1"/>
<geom type="box" pos="0 .55 0" size="1 .05 .1"/><geom type="box" pos="0 -.55 0" size="1 .05 .1"/>
<body name="puck">
<joint type="slide" axis="1 0 0" frictionloss=".0024" damping=".0008"/>
<joint type="slide" axis="0 1 0" frictionloss=".0024" damping=".0008"/>
<joint type="hinge" axis="0 0 1"/>
<geom type="cylinder" size=".03165 .01" mass=".015" friction=".2" solref="-1000000 -250"/>
</body></worldbody></mujoco>"""
TOSS = """<mujoco>
<option timestep="0.0002" integrator="implicitfast" cone="elliptic"/>
<worldbody><geom type="plane" size="3 3 .1"/>
<body name="cube"><freejoint/>
<geom type="box" size=".05 .04 .03" mass=".37" friction=".3" solref="-300000 -150"/>
</body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def pucks() -> list[Run]:
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(6):
        heading = rng.uniform(0, 2 * np.pi)
        speed = rng.uniform(0.5, 3)
        position = rng.uniform([-0.7, -0.3], [0.7, 0.3])
        yaw_rate = rng.uniform(-20, 20)
        velocity = [speed * np.cos(heading), speed * np.sin(heading)]
        start = [*position, 0.0]
        runs.append(free(ARENA, "puck", start, [*velocity, yaw_rate], duration=2.0, planar=True))
    return runs


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


def _tumbling(name: str, knocks: Sequence[tuple[float, float]], *, seed: int = 0) -> Trial:
    """A body in free flight whose velocities change, at times over durations (s), as by contacts.

    Each contact pushes it upwards at another corner, so that it turns otherwise after each.
    """
    rng = np.random.default_rng(seed)
    dt = 2.5e-4
    t = np.arange(0, 0.6, dt)
    velocity = np.tile([0.4, -0.2, 1.0], (len(t), 1)) - np.outer(t, [0, 0, 9.81])
    rate = np.tile([3.0, -4.0, 2.0], (len(t), 1))
    for at, duration in knocks:
        share = np.clip((t - at) / duration, 0, 1)
        linear = [*rng.uniform(-0.5, 0.5, 2), 2.0]
        velocity += np.outer(share, linear)
        rate += np.outer(share, rng.uniform(10, 20, 3) * rng.choice([-1, 1], 3))
    position = np.cumsum(velocity, 0) * dt
    rotation = Rotation.identity()
    poses = []
    every = round(1 / 200 / dt)
    for step in range(len(t)):
        if step % every == 0:
            seen = Rotation.from_rotvec(rng.normal(0, 3e-3, 3)) * rotation
            at_camera = position[step] + rng.normal(0, NOISE, 3)
            poses.append([*at_camera, *seen.as_quat(scalar_first=True)])
        rotation = Rotation.from_rotvec(rate[step] * dt) * rotation
    return Trial(name, t[::every], {"block": np.array(poses)})


def test_contacts_in_quick_succession_in_space_are_not_one() -> None:
    """Flights on the two sides of one contact meet, however soft it is; those of two do not."""
    config = SegmentConfig(planar=False, gyration_radius=0.035)
    for duration in (0.003, 0.015):
        single = [_tumbling(f"{i}", [(0.3, duration)], seed=i) for i in range(8)]
        out = segment(single, struck="block", config=config)
        assert len(out.found) == 8
        assert out.one_contact.all()
    for gap in (0.008, 0.015):
        double = [_tumbling(f"{i}", [(0.3, 3e-3), (0.3 + gap, 3e-3)], seed=i) for i in range(8)]
        out = segment(double, struck="block", config=config)
        assert len(out.found) == 8
        assert not out.one_contact.any()
        assert not out.clean.any()
        left = out.select(out.time > np.median(out.time))
        assert len(left.found) == len(left.impacts) == 4


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
            "set CLASHSIM_DATA to a folder with lasa_raw and lasa_strikes"
            " (github.com/epfl-lasa/air_hockey)"
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
