"""What the viewer shows, without a browser, and what it says when something is missing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import mujoco
import numpy as np
import pytest

import clashsim
import view_run
from clashsim import cli, lab
from clashsim.commands import view
from clashsim.core.errors import ClashError, DataError
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.core.trials import Trial, Trials, quaternion
from clashsim.data.trial_files import write_trials
from clashsim.rl.policy import Policy
from clashsim.rl.push import OBSERVATION_SIZE, heading_offset_of
from clashsim.rl.routes import ROUTES
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.view.figures import plan_figures, rest_table, twist_table
from clashsim.view.impact_rollout import ImpactRollout
from clashsim.view.motion import BodyMotion, motion_of_trial
from clashsim.view.outcome import plan_outcome, strike_outcome
from clashsim.view.poses import planar_pose, world_pose
from clashsim.view.session import PolicyStatus
from clashsim.view.shapes import scene_shapes
from clashsim.view.strike_sources import SampledStrikes, adjustable_ranges, before_of_strike
from clashsim.view.worker import Worker

IDENTIFIED = "identified values"
BOX_SCENE = """
<mujoco><worldbody>
  <geom name="floor" type="plane" size="0 0 1"/>
  <geom name="hidden" type="box" size="1 1 1" group="3"/>
  <body pos="0 0 2" euler="0 0 90">
    <geom name="post" type="box" size=".1 .2 .3" pos="1 0 0"/>
  </body>
  <body><freejoint/>
    <body pos="0 5 0"><geom name="welded" type="sphere" size=".1"/></body>
    <geom name="cap" type="capsule" size=".1 .2"/>
    <geom name="box" type="box" size=".1 .2 .3" pos="1 0 0"/>
  </body>
</worldbody></mujoco>
"""


@pytest.fixture(scope="module")
def runs():
    return view_run.folder()


@pytest.fixture(scope="module")
def session():
    return view_run.session()


def error_line(capsys) -> str:
    """Return what the command printed as its error, which must be one line."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and err.startswith("clashsim: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize("name", shipped_scenes())
def test_every_scene_is_drawn_and_struck(name):
    scene = Scene.load(name)
    shapes, not_drawn = scene_shapes(scene.base)
    assert not not_drawn and {scene.struck, scene.striker} <= {shape.name for shape in shapes}
    for shape in shapes:
        if not shape.is_plane:
            a, b, c = np.moveaxis(shape.vertices[shape.faces], 1, 0)
            volume = np.einsum("fi,fi->f", a, np.cross(b, c)).sum() / 6
            assert volume > 0  # faces look outwards
    before = SampledStrikes(scene, "")[0].before
    simulator = MujocoSim(scene, scene.nominal)
    rollout = ImpactRollout(scene, simulator, scene.nominal, lambda before: before)
    motion = rollout(before, seconds=0.2)
    body = scene.struck_body.body
    assert motion.t[0] < 0 < motion.t[-1] and np.isfinite(motion.poses[body]).all()
    start = motion.at(0.0)[body][:3]
    last = motion.at(1.0)[body][:3]
    assert np.linalg.norm(last - start) > 0.005  # it was hit
    if scene.plane is None:
        with pytest.raises(ClashError, match="in space"):
            adjustable_ranges(scene)
    else:
        assert adjustable_ranges(scene)["speed"] == scene.strikes.speed


def test_edges_of_a_box_and_what_is_not_drawn():
    model = mujoco.MjModel.from_xml_string(BOX_SCENE)
    shapes = {shape.name: shape for shape in scene_shapes(model)[0]}
    assert set(shapes) == {"floor", "post", "welded", "cap", "box"}
    with_hidden, _ = scene_shapes(model, {"hidden"})
    assert "hidden" in {shape.name for shape in with_hidden}
    box, post, welded = shapes["box"], shapes["post"], shapes["welded"]
    # What stands still is where it stands.
    assert np.allclose(post.vertices.mean(0), [0, 1, 2]) and not post.moves
    # What is welded moves with what carries it.
    assert np.allclose(welded.vertices.mean(0), [0, 5, 0], atol=1e-3)
    assert welded.body == box.body
    assert len(box.edges) == 12 and box.moves and not shapes["floor"].moves
    assert np.allclose(box.vertices.mean(0), [1, 0, 0])
    assert np.allclose(np.ptp(box.vertices, axis=0), [0.2, 0.4, 0.6])


def test_motion_between_frames_and_over_drop_outs():
    scene = Scene.load("semi_cylinder")
    t = np.linspace(0, 1, 11)
    pose = np.column_stack([t, 0 * t, 0 * t, quaternion(t)])
    pose[5, 3:] *= -1  # the same rotation, written the other way round
    pose[3] = np.nan
    trial = Trial("t", t, {"block": pose, "other": pose})
    motion = motion_of_trial(scene, trial, touch_time=0.2)
    body = scene.struck_body.body
    assert list(motion.poses) == [body] and motion.t[0] == -0.2
    for now in (-1.0, -0.2, 0.113, 0.31, 0.8, 9.0):
        x, y, yaw = planar_pose(scene, motion.at(now)[body])
        assert abs(x - np.clip(now + 0.2, 0, 1)) < 1e-9 and y == 0 and abs(yaw - x) < 1e-3
    twice = motion.then(motion)
    assert len(twice.t) == 22 and (np.diff(twice.t) > 0).all()
    given = np.array([0.1, -0.2, 2.0])
    assert np.allclose(planar_pose(scene, world_pose(scene, given)), given)
    still = BodyMotion(t, {body: np.tile(pose[0], (11, 1))})
    assert len(still.cut(body, after=0.25).t) == 3


def test_a_held_out_strike_is_replayed_and_the_hybrid_is_nearer(session):
    """Over five strikes that were held out, the hybrid simulator must beat MuJoCo at rest."""
    first = view_run.CALIBRATION_STRIKES
    assert session.source.first == first
    assert "held out" in session.source.names[first]
    assert "calibrated" in session.source.names[0]
    body = session.scene.struck_body.body
    errors = {"MuJoCo": [], "hybrid": []}
    for i in range(first, first + 5):
        strike = session.source[i]
        assert strike.recorded is not None and strike.recorded.t[0] < 0 < strike.recorded.t[-1]
        motions = {"recorded": strike.recorded}
        for kind in errors:
            motions[kind] = session.simulate(strike.before, kind, IDENTIFIED)
        starts = np.array(
            [planar_pose(session.scene, motion.at(-0.005)[body]) for motion in motions.values()]
        )
        assert np.ptp(starts[:, :2], axis=0).max() < 0.002  # all begin at the same place
        rests = session.rests(motions)
        for kind, errors_of_kind in errors.items():
            distance = np.linalg.norm(rests[kind][:2] - rests["recorded"][:2])
            angle = abs(rests[kind][2] - rests["recorded"][2])
            errors_of_kind.append(distance + 0.05 * angle)
        twists = {"measured": strike.after} | session.twists(strike.before, IDENTIFIED)
        html = rest_table(rests) + twist_table(twists)
        assert "off by" in html and html.count("<tr>") == 8 and "rgb(230,159,0)" in html
    hybrid_error = np.mean(errors["hybrid"])
    assert hybrid_error < 0.008 and hybrid_error < np.mean(errors["MuJoCo"])


def test_a_target_is_planned_with_few_evaluations(session):
    model = session.strike_table
    strike = 0.4 * model.low + 0.6 * model.high
    target = model.rest(np.zeros((1, 3)), strike[None])[0]
    planned = plan_outcome(session.scene, model, target, start=np.zeros(3))
    assert planned.plan.status == "found" and planned.pose_error[0] < 0.003
    assert 0 < planned.plan.evaluations < 40_000  # the table predicts a million per second
    assert len(planned.expected.cloud) == 24 and (planned.expected.std > 0).all()
    motion = session.simulate_strikes(
        planned.strikes, start=np.zeros(3), kind="hybrid", values=IDENTIFIED
    )
    rest = session.rests({"hybrid": motion})["hybrid"]
    # Stepped, the strike does what the table predicts.
    assert np.linalg.norm(rest[:2] - planned.expected.rest[:2]) < 0.003
    html = plan_figures(planned, {"hybrid": rest})
    assert "found" in html and "± 1 sd" in html and "hybrid, stepped" in html
    far_target = np.array([0.4, 0.4, 0.0])
    far = plan_outcome(session.scene, model, far_target, start=np.zeros(3), strikes=1)
    assert far.plan.status == "out of reach" and "nearest" in plan_figures(far)


def test_a_strike_by_hand_is_what_the_table_expects(session):
    strike = {"speed": 0.5, "point": 1.4, "deflection": 0.1}
    expected = strike_outcome(session.scene, session.strike_table, strike, start=np.zeros(3))
    before = before_of_strike(session.scene, strike, np.zeros(3))
    striker_velocity = before[9:11]
    assert np.allclose(expected.before[0], before)
    assert np.allclose(before[:3], 0) and abs(np.hypot(*striker_velocity) - 0.5) < 1e-9
    motion = session.simulate(before, "hybrid", IDENTIFIED)
    rest = session.rests({"hybrid": motion})["hybrid"]
    assert np.linalg.norm(rest[:2] - expected.rest[:2]) < 0.003
    wall = Scene.load("puck")
    ranges = adjustable_ranges(wall)
    assert "slip" in ranges and "deflection" not in ranges
    assert np.isfinite(before_of_strike(wall, {"speed": 1.0, "slip": 0.5}, np.zeros(3))).all()


def make_policy(scene: Scene, model) -> Policy:
    """Return a policy that always makes the average strike: enough to see it followed."""
    d = len(model.names)
    layer = (np.zeros((d, OBSERVATION_SIZE), np.float32), np.zeros(d, np.float32))
    return Policy(
        layers=(layer,),
        names=model.names,
        low=model.low,
        high=model.high,
        heading_offset=heading_offset_of(scene),
        notes={"scene": scene.name},
    )


def test_a_policy_is_followed_on_a_route(session, runs, tmp_path):
    make_policy(session.scene, session.strike_table).save(tmp_path / "policy.safetensors")
    opened = view.viewer_session(runs / "demo", policy=tmp_path)
    reported = []
    result, motion = opened.follow_route(
        ROUTES["1"], kind="MuJoCo", values=IDENTIFIED, on_strike=reported.append
    )
    assert len(result.strikes) == len(reported) >= 1 and len(result.poses) == len(reported) + 1
    last = opened.rests({"MuJoCo": motion})["MuJoCo"]
    assert np.allclose(last[:2], result.poses[-1][:2])
    assert session.policy.status is PolicyStatus.MISSING
    assert session.policy.policy is None and "clashsim train" in session.policy.reason
    with pytest.raises(DataError, match="train"):
        session.follow_route(ROUTES["1"], kind="MuJoCo", values=IDENTIFIED)
    other_policy = make_policy(Scene.load("square"), session.strike_table)
    other_policy.save(tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="square"):
        view.viewer_session(runs / "demo", policy=tmp_path / "other.safetensors")


def test_runs_without_trajectories_say_so(runs, tmp_path):
    plain = view.viewer_session(runs / "plain")
    assert "sampled from the scene's ranges" in plain.source.words and len(plain.source.names) == 12
    assert np.array_equal(plain.source[3].before, plain.source[3].before)
    assert plain.source[3].recorded is None
    with pytest.raises(DataError, match="no slide model"):
        _ = plain.strike_table
    scene = plain.scene
    impacts = clashsim.sample(scene, 4, seed=1)
    clashsim.write_impacts(tmp_path / "some.csv", replace(impacts, theta=None))
    source = view.strike_source(
        clashsim.load(runs / "plain"), {"options": {"impacts": str(tmp_path / "some.csv")}}, None
    )
    assert "some.csv" in source.words and np.allclose(source[2].after, impacts.after[2], atol=1e-6)
    gone = view.strike_source(
        clashsim.load(runs / "plain"), {"options": {"impacts": "gone.csv"}}, None
    )
    assert "gone.csv" in gone.words and "sampled" in gone.words
    write_trials(tmp_path / "t.safetensors", lab.recorded()[:2])
    with_trials = view.viewer_session(runs / "plain", trials=tmp_path / "t.safetensors")
    assert "t.safetensors" in with_trials.source.words
    poses = {
        "block": np.tile([0.0, 0, 0, 1.0, 0, 0, 0], (50, 1)),
        "striker": np.tile([-0.2, 0, 0, 1.0, 0, 0, 0], (50, 1)),
    }
    nothing_moves = Trial("still", np.linspace(0, 1, 50), poses)
    write_trials(tmp_path / "still.safetensors", Trials((nothing_moves,)))
    still = view.viewer_session(runs / "plain", trials=tmp_path / "still.safetensors").source[0]
    assert still.before is None and "No impact" in still.note and still.recorded is not None


def test_only_the_latest_of_a_job_is_done_and_failures_are_sentences(capsys):
    worker = Worker()
    done = []
    failures = []
    gate = threading.Event()
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait()

    worker.do("a", wait, failures.append)
    begun.wait()
    for k in range(5):
        worker.do("b", lambda k=k: done.append(k), failures.append)
    assert worker.waits("b")
    gate.set()
    assert worker.join() and done == [4]

    def wrong() -> None:
        raise DataError("the value is wrong")

    worker.do("c", wrong, failures.append)
    worker.do("d", lambda: 1 / 0, failures.append)  # type: ignore[arg-type,return-value]
    assert (
        worker.join()
        and failures[0] == "the value is wrong"
        and "ZeroDivisionError" in failures[1]
        and len(failures) == 2
    )
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert worker.end()


def test_mistakes_are_one_sentence(runs, tmp_path, capsys, monkeypatch):
    assert cli.main(["view", str(tmp_path)]) == 2
    assert "not a run folder" in error_line(capsys)
    assert cli.main(["view", str(runs / "demo"), "--trials", "nowhere.safetensors"]) == 2
    assert "nowhere" in error_line(capsys)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["view", str(runs / "plain"), "--port", str(taken.getsockname()[1])]) == 2
        assert "--port" in error_line(capsys)
    assert cli.main(["view", str(runs / "plain"), "--port", "70000"]) == 2
    assert "70000" in error_line(capsys)
    assert cli.main(["view", str(runs / "plain"), "--host", "256.1.1.1"]) == 2
    assert "256.1.1.1" in error_line(capsys)
    monkeypatch.setitem(sys.modules, "viser", None)
    assert cli.main(["view", str(runs / "demo")]) == 2
    assert "clashsim[viser]" in error_line(capsys)


def test_it_says_where_it_is():
    url, ssh = view.access_instructions("127.0.0.1", 8080)
    assert "http://localhost:8080" in url and "ssh -L 8080:localhost:8080" in ssh
    assert "whoever" in view.access_instructions("0.0.0.0", 80)[1]


def test_it_listens_on_the_loopback_and_stops_on_ctrl_c(runs):
    pytest.importorskip("viser")
    # A shell that runs the tests in the background has its children ignore the signal.
    run = subprocess.Popen(
        [sys.executable, "-m", "clashsim", "view", str(runs / "plain"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert run.stdout is not None
    first = run.stdout.readline()
    port = int(first.split("localhost:")[1].split()[0])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    with pytest.raises(OSError), socket.create_connection((_own_address(), port), timeout=2):
        pass
    run.send_signal(signal.SIGINT)
    out, err = run.communicate()
    assert run.returncode == 0 and "stopped" in first + out and "Traceback" not in err


def _own_address() -> str:
    """An address of this machine that is not the loopback, without a packet sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            pytest.skip("this machine has no address but the loopback")
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        pytest.skip("this machine has no address but the loopback")
    return address
