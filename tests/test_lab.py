"""The laboratory: recordings that need no Drake, strikes that do, and physics that holds."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import clashsim
from clashsim import lab
from clashsim.core.contact_geometry import PairPoser, advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials, yaw
from clashsim.lab import arm, mocap
from clashsim.lab.packed import ANGLE, LENGTH, pack, unpack
from clashsim.lab.settings import table_friction
from clashsim.lab.strike import block_outline

needs_drake = pytest.mark.skipif(
    find_spec("pydrake") is None, reason="Drake is not installed; it comes with the extra 'lab'"
)
NAMES = [(s.shape, s.material, s.surface) for s in lab.settings()]


def rest(trial):
    """Mean pose x, y, yaw over the first frames and over the last."""
    _, pose = trial.seen("block")
    flat = np.column_stack([pose[:, :2], yaw(pose[:, 3:])])
    return flat[:8].mean(0), flat[-6:].mean(0)


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_recorded_sets(names):
    trials, strikes = lab.recorded(*names), lab.recorded_strikes(*names)
    assert len(trials) == len(strikes) == 110
    assert trials.bodies == ("block", "striker")
    ranges = Scene.load(names[0]).strikes
    for trial, strike in zip(trials, strikes, strict=True):
        assert trial.source == "lab"
        for kind in ("speed", "point", "deflection"):
            low, high = getattr(ranges, kind)
            assert low <= getattr(strike, kind) <= high
        before, after = rest(trial)
        distance = np.linalg.norm(after[:2] - before[:2])
        assert 0.003 < distance < 0.6, f"{trial.name} went {distance:.3f} m"
        t, tip = trial.seen("striker")
        early = t < arm.LEAD - 0.01
        speed = np.linalg.norm(np.polyfit(t[early], tip[early, :2], 1)[0])
        assert abs(speed / strike.speed - 1) < 0.06
    lost = np.mean([np.isnan(p).any(1).mean() for trial in trials for p in trial.poses.values()])
    assert 0.002 < lost < 0.05


def test_recorded_sets_are_small():
    files = list((Path(clashsim.__file__).parent / "lab" / "recorded").glob("*.npz"))
    assert len(files) == 18
    assert sum(f.stat().st_size for f in files) < 3e6


def test_without_drake():
    code = (
        "import sys; sys.modules['pydrake'] = None\n"
        "from clashsim import lab\nassert len(lab.recorded()) == 110\n"
        "try:\n    lab.execute(lab.Strike(0.5, 1.5), lab.Setting(), 0)\n"
        "except Exception as e:\n    print(type(e).__name__, e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "MissingExtraError" in done.stdout and "clashsim[lab]" in done.stdout


def test_packing():
    trials, strikes = lab.recorded()[:3], lab.recorded_strikes()[:3]
    content = pack(trials, strikes)
    assert content == pack(trials, strikes)
    unpacked, commanded = unpack(content, "semi_cylinder-resin-high")
    assert commanded == strikes
    for a, b in zip(trials, unpacked, strict=True):
        assert a.name == b.name
        for body in a.poses:
            np.testing.assert_allclose(a.poses[body][:, :3], b.poses[body][:, :3], atol=LENGTH)
            np.testing.assert_allclose(a.poses[body][:, 3:], b.poses[body][:, 3:], atol=ANGLE)
    for damaged in (content[: len(content) // 2], b"", content[:200] + b"x" * 50 + content[250:]):
        with pytest.raises(DataError, match="damaged"):
            unpack(damaged, "x")


@pytest.mark.parametrize("shape", lab.SHAPES)
def test_touch_agrees_with_the_scene(shape):
    scene = Scene.load(shape)
    rng = np.random.default_rng(0)
    for strike in [lab.Strike.sample(scene.strikes, rng) for _ in range(8)]:
        centre, direction = block_outline(shape).touch(strike)
        before = PairPoser(scene).striker_at_reference(1)
        striker = MotionBefore.of(before).striker
        striker.position[:] = centre
        striker.velocity[:] = direction
        contact, moved = advance_to_contact(scene, before, centre[None])
        assert contact.touching[0]
        assert np.linalg.norm(MotionBefore.of(moved).struck.position) < 1e-4
        deflection = np.arccos(np.clip(contact.normal[0] @ direction, -1, 1))
        # The arc has 63 flat sides.
        assert abs(deflection - abs(strike.deflection)) < 0.03


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lab.Setting("ring"), "no shape"),
        (lambda: lab.Setting(material="PETG"), "petg_cf"),
        (lambda: lab.Strike(3.0, 0.0), "speed"),
        (lambda: lab.Strike(0.5, np.nan), "finite"),
        (lambda: lab.Strike(0.5, 0.0, 2.0), "deflection"),
        (lambda: lab.recorded(surface="ice"), "no surface"),
        (lambda: lab.Session(lab.Setting(), 0, start=(0.9, 0, 0)), "reach"),
        (
            lambda: lab.execute_independently(
                [lab.Strike(0.5, 1.0)], lab.Setting(), 0, starts=np.zeros((2, 3))
            ),
            "starts",
        ),
    ],
)
def test_refusals(make, words):
    with pytest.raises(DataError, match=words):
        make()


def test_table_varies_a_little():
    places = np.random.default_rng(0).uniform(-0.6, 0.6, (500, 2))
    for setting in lab.settings("square"):
        friction = table_friction(setting, places)
        mean = lab.SURFACES[setting.surface].friction[setting.material]
        assert abs(friction.mean() / mean - 1) < 0.02 and 0.01 < friction.std() / mean < 0.06


def test_motion_capture():
    t = np.arange(0, 3, 0.001)
    pose = np.tile([0.1, 0.2, 0, 1, 0, 0, 0], (len(t), 1))
    stamps, seen = mocap.observe(
        t, pose, np.array([0.0, 0, 0, 1, 0, 0, 0]), np.random.default_rng(0)
    )
    np.testing.assert_allclose(np.diff(stamps), 1 / mocap.RATE)
    kept = seen[np.isfinite(seen).all(1)]
    assert 0 < len(seen) - len(kept) < 0.1 * len(seen)
    assert (
        abs(kept[:, 0].std() / mocap.POSITION_NOISE - 1) < 0.2
        and abs(yaw(kept[:, 3:]).std() / mocap.ORIENTATION_NOISE - 1) < 0.2
    )


def same(a: Trials, b: Trials, *, atol: float = 0.0) -> None:
    for one, two in zip(a, b, strict=True):
        assert one.name == two.name
        for body in one.poses:
            np.testing.assert_allclose(one.poses[body], two.poses[body], rtol=0, atol=atol)


@needs_drake
@pytest.mark.parametrize(
    "shape", [lab.SHAPES[0], *(pytest.param(s, marks=pytest.mark.slow) for s in lab.SHAPES[1:])]
)
def test_recording_again(shape):
    """Trials recorded now are those that were shipped, up to their rounding and to what another
    processor does to the last bits.
    """
    setting = lab.Setting(shape, "petg_cf", "low")
    same(lab.record(setting, 2, workers=1), lab.recorded(shape, "petg_cf", "low")[:2], atol=5e-4)


@needs_drake
def test_same_seed_same_trials():
    strikes, setting = (
        [lab.Strike(0.4, 1.2), lab.Strike(0.6, 0.3, 0.1)],
        lab.Setting("square", "nylon", "high"),
    )
    alone = lab.execute_independently(strikes, setting, 7, workers=1)
    same(alone, lab.execute_independently(strikes, setting, 7, workers=2))
    other = lab.execute_independently(strikes, setting, 8, workers=1)
    assert not np.array_equal(
        alone[0].poses["block"][:10], other[0].poses["block"][:10], equal_nan=True
    )


@needs_drake
def test_a_sequence_goes_on_where_the_block_lies():
    start = (0.1, -0.05, 0.7)
    trials = lab.execute(
        [lab.Strike(0.3, 1.2), lab.Strike(0.3, 1.9)], lab.Setting(), 3, start=start
    )
    assert (np.abs(rest(trials[0])[0] - start) < [3e-3, 3e-3, 0.03]).all()
    assert (np.abs(rest(trials[0])[1] - rest(trials[1])[0]) < [5e-4, 5e-4, 5e-3]).all()


def motion(setting: lab.Setting, strike: lab.Strike):
    """The true motion of a strike without scatter."""
    from clashsim.lab.rig import rig_of

    class Exact(np.random.Generator):
        def normal(self, *args, size=None, **kwargs):
            return 0.0 if size is None else np.zeros(size)

    rig = rig_of(setting)
    centre, direction = rig.shape.touch(strike)
    path = arm.tip_path(centre, strike.speed * direction, Exact(np.random.PCG64(0)))
    return rig.run(np.zeros(3), path)


@needs_drake
@pytest.mark.parametrize("shape", lab.SHAPES)
def test_physics(shape):
    done = motion(lab.Setting(shape, "petg_cf", "high"), lab.Strike(0.5, 1.0))
    before = done.t < arm.LEAD - 0.002
    assert np.abs(done.block[before, :2]).max() < 1e-6, "a resting block creeps"
    free = np.argmax(done.rates[:, 0]) + 5
    energy = done.rates[free:, 0] ** 2 + (0.03 * done.rates[free:, 1]) ** 2
    assert np.diff(energy).max() < 1e-5, "a sliding block gains energy"
    assert done.rates[-1, 0] < 2e-3 and np.abs(done.block[:, 2]).max() < 1e-4


@needs_drake
def test_restitution_falls_with_speed():
    setting, values = lab.Setting("semi_cylinder", "petg_cf", "high"), []
    for speed in (0.2, 0.5, 0.8):
        done = motion(setting, lab.Strike(speed, np.pi / 2))
        fastest = int(np.argmax(done.rates[:, 0]))
        tip = np.linalg.norm(done.striker[fastest + 1, :2] - done.striker[fastest, :2]) / (
            done.t[1] - done.t[0]
        )
        values.append((done.rates[fastest, 0] - tip) / speed)
    assert 0.7 > values[0] > values[1] > values[2] > 0.15
