"""What the viewer shows, without a browser: shapes, motions, strikes, plans, figures, and what it
says when something is missing.
"""

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
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.core.trials import Trial, Trials, quaternion
from clashsim.data.trial_files import write_trials
from clashsim.rl.policy import Policy
from clashsim.rl.push import OBSERVATION_SIZE, heading_offset_of
from clashsim.rl.routes import ROUTES
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.view.figures import ends, plan_figures, twists
from clashsim.view.impact_rollout import ImpactRollout
from clashsim.view.motion import BodyMotion, flat, of_trial, solid
from clashsim.view.outcome import expected, planned
from clashsim.view.shapes import shapes
from clashsim.view.strike_sources import SampledStrikes, aimed, ranges
from clashsim.view.worker import Worker


@pytest.fixture(scope="module")
def runs():
    return view_run.folder()


@pytest.fixture(scope="module")
def session():
    return view_run.session()


def said(capsys) -> str:
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and err.startswith("clashsim: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize("name", shipped_scenes())
def test_every_scene_is_drawn_and_struck(name):
    scene = Scene.load(name)
    found, left = shapes(scene.base)
    assert not left and {scene.struck, scene.striker} <= {s.name for s in found}
    for shape in (s for s in found if not s.flat):
        corner = shape.vertices[shape.faces]
        volume = np.einsum("fi,fi->f", corner[:, 0], np.cross(corner[:, 1], corner[:, 2])).sum() / 6
        assert volume > 0  # faces look outwards
    before = SampledStrikes(scene, "")[0].before
    motion = ImpactRollout(scene, MujocoSim(scene, scene.nominal), scene.nominal, lambda b: b)(
        before, seconds=0.2
    )
    assert (
        motion.t[0] < 0 < motion.t[-1] and np.isfinite(motion.poses[scene.struck_body.body]).all()
    )
    start, last = (motion.at(t)[scene.struck_body.body][:3] for t in (0.0, 1.0))
    assert np.linalg.norm(last - start) > 0.005  # it was hit
    assert ranges(scene)["speed"] == scene.strikes.speed


def test_edges_of_a_box_and_what_is_not_drawn():
    model = mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
      <geom name="floor" type="plane" size="0 0 1"/><geom name="hidden" type="box" size="1 1 1" group="3"/>
      <body pos="0 0 2" euler="0 0 90"><geom name="post" type="box" size=".1 .2 .3" pos="1 0 0"/></body>
      <body><freejoint/><body pos="0 5 0"><geom name="welded" type="sphere" size=".1"/></body>
        <geom name="cap" type="capsule" size=".1 .2"/><geom name="box" type="box" size=".1 .2 .3" pos="1 0 0"/></body></worldbody></mujoco>""")
    found = {s.name: s for s in shapes(model)[0]}
    assert set(found) == {"floor", "post", "welded", "cap", "box"} and set(
        s.name for s in shapes(model, {"hidden"})[0]
    ) >= {"hidden"}
    box = found["box"]
    assert (
        np.allclose(found["post"].vertices.mean(0), [0, 1, 2]) and not found["post"].moves
    )  # where it stands
    assert (
        np.allclose(found["welded"].vertices.mean(0), [0, 5, 0], atol=1e-3)
        and found["welded"].body == box.body
    )  # moves with what carries it
    assert len(box.edges) == 12 and box.moves and not found["floor"].moves
    assert np.allclose(box.vertices.mean(0), [1, 0, 0]) and np.allclose(
        np.ptp(box.vertices, axis=0), [0.2, 0.4, 0.6]
    )


def test_motion_between_frames_and_over_drop_outs():
    scene = Scene.load("semi_cylinder")
    t = np.linspace(0, 1, 11)
    pose = np.column_stack([t, 0 * t, 0 * t, quaternion(t)])
    pose[5] *= -np.r_[-1, -1, -1, 1, 1, 1, 1]  # the same turn, written the other way round
    pose[3] = np.nan
    motion = of_trial(scene, Trial("t", t, {"block": pose, "other": pose}), touch=0.2)
    body = scene.struck_body.body
    assert list(motion.poses) == [body] and motion.t[0] == -0.2
    for now in (-1.0, -0.2, 0.113, 0.31, 0.8, 9.0):
        x, y, yaw = flat(scene, motion.at(now)[body])
        assert abs(x - np.clip(now + 0.2, 0, 1)) < 1e-9 and y == 0 and abs(yaw - x) < 1e-3
    again = motion.then(motion)
    assert len(again.t) == 22 and (np.diff(again.t) > 0).all()
    assert np.allclose(flat(scene, solid(scene, np.array([0.1, -0.2, 2.0]))), [0.1, -0.2, 2.0])
    still = BodyMotion(t, {body: np.tile(pose[0], (11, 1))})
    assert len(still.cut(body, after=0.25).t) == 3


def test_a_held_out_strike_is_replayed_and_the_hybrid_is_nearer(session):
    """Over five strikes that were not calibrated with: the learned collision and slide must beat
    MuJoCo where bodies come to rest.
    """
    assert (
        session.source.first == view_run.FIT
        and "held out" in session.source.names[view_run.FIT]
        and "calibrated" in session.source.names[0]
    )
    gaps = {"MuJoCo": [], "hybrid": []}
    for i in range(view_run.FIT, view_run.FIT + 5):
        strike = session.source[i]
        assert strike.recorded is not None and strike.recorded.t[0] < 0 < strike.recorded.t[-1]
        motions = {"recorded": strike.recorded} | {
            kind: session.rolled(strike.before, kind, "identified values") for kind in gaps
        }
        start = [
            flat(session.scene, m.at(-0.005)[session.scene.struck_body.body])
            for m in motions.values()
        ]
        assert np.ptp(np.array(start)[:, :2], axis=0).max() < 0.002  # all begin at the same place
        rests = session.rests(motions)
        for kind, gap in gaps.items():
            gap.append(
                np.linalg.norm(rests[kind][:2] - rests["recorded"][:2])
                + 0.05 * abs(rests[kind][2] - rests["recorded"][2])
            )
        page = ends(rests) + twists(
            {"measured": strike.after} | session.twists(strike.before, "identified values")
        )
        assert "off by" in page and page.count("<tr>") == 8 and "rgb(230,159,0)" in page
    assert np.mean(gaps["hybrid"]) < 0.008 and np.mean(gaps["hybrid"]) < np.mean(gaps["MuJoCo"])


def test_a_target_is_planned_with_few_evaluations(session):
    model = session.map
    target = model.rest(np.zeros((1, 3)), (0.4 * model.low + 0.6 * model.high)[None])[0]
    found = planned(session.scene, model, target, np.zeros(3))
    assert found.plan.status == "found" and found.pose_error[0] < 0.003
    assert 0 < found.plan.evaluations < 40_000  # the map answers a million in a second
    assert len(found.expected.cloud) == 24 and (found.expected.std > 0).all()
    motion = session.struck(found.strikes, np.zeros(3), "hybrid", "identified values")
    rest = session.rests({"hybrid": motion})["hybrid"]
    assert (
        np.linalg.norm(rest[:2] - found.expected.rest[:2]) < 0.003
    )  # stepped, the strike does what the map says
    page = plan_figures(found, {"hybrid": rest})
    assert "found" in page and "± 1 sd" in page and "hybrid, stepped" in page
    far = planned(session.scene, model, np.array([0.4, 0.4, 0.0]), np.zeros(3), strikes=1)
    assert far.plan.status == "out of reach" and "nearest" in plan_figures(far)


def test_a_strike_by_hand_is_what_the_map_expects(session):
    aims = {"speed": 0.5, "point": 1.4, "deflection": 0.1}
    told = expected(session.scene, session.map, aims, np.zeros(3))
    before = aimed(session.scene, aims, np.zeros(3))
    assert (
        np.allclose(told.before[0], before)
        and np.allclose(before[:3], 0)
        and abs(np.hypot(*before[9:11]) - 0.5) < 1e-9
    )
    rest = session.rests({"hybrid": session.rolled(before, "hybrid", "identified values")})[
        "hybrid"
    ]
    assert np.linalg.norm(rest[:2] - told.rest[:2]) < 0.003
    wall = Scene.load("puck")
    assert "slip" in ranges(wall) and "deflection" not in ranges(wall)
    assert np.isfinite(aimed(wall, {"speed": 1.0, "slip": 0.5}, np.zeros(3))).all()


def policy(scene: Scene, model) -> Policy:
    """One that always strikes the middle: enough to see it followed."""
    d = len(model.names)
    return Policy(
        ((np.zeros((d, OBSERVATION_SIZE), np.float32), np.zeros(d, np.float32)),),
        model.names,
        model.low,
        model.high,
        heading_offset_of(scene),
        {"scene": scene.name},
    )


def test_a_policy_is_followed_on_a_route(session, runs, tmp_path):
    policy(session.scene, session.map).save(tmp_path / "policy.safetensors")
    opened = view.viewer_session(runs / "demo", policy=tmp_path)
    made = []
    done, motion = opened.followed(ROUTES["1"], "MuJoCo", "identified values", told=made.append)
    assert len(done.strikes) == len(made) >= 1 and len(done.poses) == len(made) + 1
    last = opened.rests({"MuJoCo": motion})["MuJoCo"]
    assert np.allclose(last[:2], done.poses[-1][:2])
    assert isinstance(session.policy, str) and "clashsim train" in session.policy
    with pytest.raises(DataError, match="train"):
        session.followed(ROUTES["1"], "MuJoCo", "identified values")
    policy(Scene.load("square"), session.map).save(tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="square"):
        view.viewer_session(runs / "demo", policy=tmp_path / "other.safetensors")


def test_runs_without_trajectories_say_so(runs, tmp_path):
    plain = view.viewer_session(runs / "plain")
    assert "sampled from the scene's ranges" in plain.source.words and len(plain.source.names) == 12
    assert (
        np.array_equal(plain.source[3].before, plain.source[3].before)
        and plain.source[3].recorded is None
    )
    with pytest.raises(DataError, match="no slide model"):
        _ = plain.map
    scene = plain.scene
    impacts = clashsim.sample(scene, 4, seed=1)
    clashsim.write_impacts(tmp_path / "some.csv", replace(impacts, theta=None))
    source = view.strike_source(
        clashsim.load(runs / "plain"), {"options": {"impacts": str(tmp_path / "some.csv")}}, None
    )
    assert "some.csv" in source.words and np.allclose(source[2].after, impacts.after[2], atol=1e-6)
    gone = view.strike_source(clashsim.load(runs / "plain"), {"options": {"impacts": "gone.csv"}}, None)
    assert "gone.csv" in gone.words and "sampled" in gone.words
    write_trials(tmp_path / "t.safetensors", lab.recorded()[:2])
    assert (
        "t.safetensors"
        in view.viewer_session(runs / "plain", trials=tmp_path / "t.safetensors").source.words
    )
    empty = Trial(
        "still",
        np.linspace(0, 1, 50),
        {
            name: np.tile([x, 0, 0, 1.0, 0, 0, 0], (50, 1))
            for name, x in (("block", 0.0), ("striker", -0.2))
        },
    )
    write_trials(tmp_path / "still.safetensors", Trials((empty,)))
    still = view.viewer_session(runs / "plain", trials=tmp_path / "still.safetensors").source[0]
    assert still.before is None and "No impact" in still.says and still.recorded is not None


def test_only_the_latest_of_a_job_is_done_and_failures_are_sentences(capsys):
    worker, done, told = Worker(), [], []
    gate = threading.Event()
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait()

    worker.do("a", wait, told.append)
    begun.wait()
    for k in range(5):
        worker.do("b", lambda k=k: done.append(k), told.append)
    assert worker.waits("b")
    gate.set()
    assert worker.join() and done == [4]

    def wrong() -> None:
        raise DataError("the value is wrong")

    worker.do("c", wrong, told.append)
    worker.do("d", lambda: 1 / 0, told.append)  # type: ignore[arg-type,return-value]
    assert (
        worker.join()
        and told[0] == "the value is wrong"
        and "ZeroDivisionError" in told[1]
        and len(told) == 2
    )
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert worker.end()


def test_mistakes_are_one_sentence(runs, tmp_path, capsys, monkeypatch):
    assert cli.main(["view", str(tmp_path)]) == 2
    assert "not a run folder" in said(capsys)
    assert cli.main(["view", str(runs / "demo"), "--trials", "nowhere.safetensors"]) == 2
    assert "nowhere" in said(capsys)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["view", str(runs / "plain"), "--port", str(taken.getsockname()[1])]) == 2
        assert "--port" in said(capsys)
    assert cli.main(["view", str(runs / "plain"), "--port", "70000"]) == 2
    assert "70000" in said(capsys)
    assert cli.main(["view", str(runs / "plain"), "--host", "256.1.1.1"]) == 2
    assert "256.1.1.1" in said(capsys)
    monkeypatch.setitem(sys.modules, "viser", None)
    assert cli.main(["view", str(runs / "demo")]) == 2
    assert "clashsim[viser]" in said(capsys)


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
