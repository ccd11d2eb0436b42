"""Impacts in MJX end as in MuJoCo, and sampling by MJX draws the same strikes and resumes.

Compiling is what takes time here, so each scene is compiled once for all tests.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.bench.mjx_rate import compare_with_mujoco, measure_rates
from clashsim.commands import sample as command
from clashsim.commands.option_types import ExecutionOptions
from clashsim.commands.sample import SampleOptions
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts
from clashsim.fit import sample as sampling
from clashsim.fit.sample import fastest_engine, sample, sample_strikes
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.pipeline import arguments
from clashsim.sim.mjx.impact_simulator import MjxImpactSimulator
from clashsim.sim.mjx.impact_start import impact_start
from clashsim.sim.mjx.model import import_mjx
from clashsim.sim.mjx.step import strike_sensor
from clashsim.sim.mujoco.impacts import (
    ImpactEnd,
    ImpactOutcome,
    ImpactSimulator,
    contact_sensors,
)

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

SIZE = 96
# What docs/mjx.md documents as tested, looser than what was measured on one CPU: median and 99th
# percentile of the twists' errors, relative to the size of a twist.
EXACT = (1e-10, 1e-7)
WITH_EDGES = (1e-5, 1e-2)  # where a sphere meets edges


@pytest.fixture(scope="module")
def ellipse() -> MjxImpactSimulator:
    return MjxImpactSimulator.of(Scene.load("ellipse"), SIZE)


@pytest.fixture(scope="module")
def square() -> MjxImpactSimulator:
    return MjxImpactSimulator.of(Scene.load("square"), SIZE)


@pytest.fixture(scope="module")
def puck() -> MjxImpactSimulator:
    return MjxImpactSimulator.of(Scene.load("puck"), SIZE)


@pytest.fixture(scope="module")
def triangle() -> MjxImpactSimulator:
    return MjxImpactSimulator.of(Scene.load("triangle"), SIZE)


def relative_error(outcome: ImpactOutcome, expected: ImpactOutcome) -> np.ndarray:
    """Errors (n,) of twists relative to their size."""
    error = np.linalg.norm(outcome.after - expected.after, axis=1)
    return error / np.linalg.norm(expected.after, axis=1)


@pytest.mark.parametrize(
    ("name", "median", "high"),
    [
        ("ellipse", *EXACT),
        *(
            pytest.param(name, *tolerance, marks=pytest.mark.slow)
            for name, tolerance in (
                ("square", WITH_EDGES),
                ("puck", EXACT),
                ("triangle", WITH_EDGES),
            )
        ),
    ],
)
def test_impacts_end_as_mujocos_do(
    name: str, median: float, high: float, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(name)
    strikes = sample_strikes(run.scene, SIZE, np.random.default_rng(7))
    outcome = run(strikes.before, strikes.theta)
    expected = ImpactSimulator(run.scene, SIZE)(strikes.before, strikes.theta)
    # Lanes go on to other impacts at different times.
    assert run.lanes < SIZE / 4
    assert len(set(expected.steps)) > 4
    assert (outcome.end == expected.end).mean() > 0.97
    assert (np.abs(outcome.steps - expected.steps) <= 1).mean() > 0.97
    error = relative_error(outcome, expected)
    assert np.median(error) < median
    assert np.percentile(error, 99) < high


def test_rows_have_their_own_theta_and_any_number_of_them_is_one_program(
    ellipse: MjxImpactSimulator,
) -> None:
    strikes = sample_strikes(ellipse.scene, SIZE + 5, np.random.default_rng(3))
    # One strike, so that the rows differ in theta alone.
    before = np.tile(strikes.before[:1], (SIZE + 5, 1))
    own = ellipse(before, strikes.theta).after
    assert np.linalg.norm(own - own[0], axis=1)[1:].min() > 1e-6
    for i in (0, 2, SIZE + 4):
        assert np.allclose(ellipse(before[:1], strikes.theta[i]).after[0], own[i], rtol=1e-9)


def test_impacts_that_do_not_part_end_as_in_mujoco(ellipse: MjxImpactSimulator) -> None:
    in_mujoco = ImpactSimulator(ellipse.scene, 24)
    before = sample_strikes(ellipse.scene, 24, np.random.default_rng(1)).before.copy()
    theta = np.tile(ellipse.scene.nominal, (24, 1))
    # So slow and so strongly damped that the ellipse stays down.
    theta[:12, 1] = 1600.0
    before[:12, 3:6] *= 0.03
    before[20, 3:5] = 1e7  # m/s
    outcome = ellipse(before, theta, duration=0.1)
    expected = in_mujoco(before, theta, duration=0.1)
    ends = set(expected.end.tolist())
    assert {ImpactEnd.PARTED, ImpactEnd.SETTLED, ImpactEnd.UNSTABLE} <= ends
    assert (outcome.end == expected.end).all()
    assert (np.abs(outcome.steps - expected.steps) <= 1).all()
    assert relative_error(outcome, expected)[expected.usable].max() < 1e-6
    short = ellipse(before[12:20], theta[12:20], duration=0.0007)
    expected = in_mujoco(before[12:20], theta[12:20], duration=0.0007)
    assert (short.end == ImpactEnd.UNFINISHED).all()
    assert (short.steps == 7).all()
    assert relative_error(short, expected).max() < EXACT[1]


def test_the_normal_velocity_is_that_of_the_sensor() -> None:
    scene, n = Scene.load("square"), 24
    before = sample_strikes(scene, n, np.random.default_rng(2)).before
    before[:, 3:6] = np.random.default_rng(3).normal(size=(n, 3))  # the block moves and rotates
    striker_velocity = before[:, 9:11]
    direction = striker_velocity / np.linalg.norm(striker_velocity, axis=1, keepdims=True)
    before[:, 6:8] += np.linspace(-0.004, 0.004, n)[:, None] * direction
    _, start = impact_start(scene, before, np.tile(scene.nominal, (n, 1)))
    mjx_scene = MjxImpactSimulator(scene, 1).mjx_scene
    jax, mjx = import_mjx()
    empty = mjx.make_data(mjx_scene.model)
    sensor = strike_sensor(mjx_scene)

    def sense(qpos: np.ndarray, qvel: np.ndarray) -> object:
        data = mjx.fwd_position(mjx_scene.model, empty.replace(qpos=qpos, qvel=qvel))
        return sensor(mjx.fwd_velocity(mjx_scene.model, data))

    sensed = jax.jit(jax.vmap(sense))(start["qpos"], start["qvel"])
    touching, normal_velocity = (np.asarray(values) for values in sensed)
    data = mujoco.MjData(scene.base)
    address = int(contact_sensors(scene.base)[0])
    readings = []
    for i in range(n):
        data.qpos[:] = start["qpos"][i]
        data.qvel[:] = start["qvel"][i]
        mujoco.mj_forward(scene.base, data)
        readings.append(data.sensordata[[address, address + 2]])
    in_mujoco = np.array(readings)
    expected_touching = in_mujoco[:, 0] > 0
    assert (touching == expected_touching).all()
    assert 0 < expected_touching.sum() < n
    velocity = normal_velocity[expected_touching]
    assert np.allclose(velocity, in_mujoco[expected_touching, 1], rtol=1e-6, atol=1e-6)
    assert np.ptp(velocity) > 1


def test_what_mjx_cannot_do_is_refused_in_one_sentence(
    ellipse: MjxImpactSimulator, tmp_path
) -> None:
    with pytest.raises(
        ClashError,
        match=r"cannot collide geoms 'box' \(box\) and 'plate' \(box\) of scene 'plate' "
        "as MuJoCo does",
    ) as refused:
        sample(
            Scene.load("plate"),
            10,
            0,
            engine=StrikeEngine("mjx"),
            checkpoint_dir=tmp_path / "parts",
        )
    assert "\n" not in str(refused.value) and not (tmp_path / "parts").exists()  # nothing is begun
    with pytest.raises(ClashError, match="RK4"):
        MjxImpactSimulator(
            replace(ellipse.scene, xml=ellipse.scene.xml.replace("implicitfast", "RK4")), 8
        )
    with pytest.raises(ClashError, match="'strike' of scene 'ellipse' has a gap"):
        MjxImpactSimulator(
            replace(
                ellipse.scene, xml=ellipse.scene.xml.replace('condim="3"', 'condim="3" gap="0.001"')
            ),
            8,
        )
    square = Scene.load("square")
    with pytest.raises(
        ClashError, match=r"no distance between geoms 'striker' \(sphere\) and 'block' \(box\)"
    ):
        MjxImpactSimulator(
            replace(
                square,
                xml=square.xml.replace('striker" condim="3"', 'striker" condim="3" margin="0.001"'),
            ),
            8,
        )
    with pytest.raises(ParamError, match=r"'mjc'.*mujoco"):
        sample(ellipse.scene, 10, 0, engine=StrikeEngine("mjc"))
    by, why = fastest_engine(Scene.load("plate"), 16, 0)
    assert (
        by == "mujoco"
        and "MJX is out (MJX cannot collide" in why
        and why.endswith("MuJoCo is taken")
    )


def test_sampling_by_mjx_is_the_same_draws_and_resumes(
    ellipse: MjxImpactSimulator, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(sampling, "_SHARD", SIZE)
    monkeypatch.setattr(
        arguments, "load_scene", lambda *_, **__: ellipse.scene
    )  # so that it need not be compiled again
    n, out = 2 * SIZE + 10, tmp_path / "strikes.safetensors"
    theirs, calls = sample(ellipse.scene, n, 5), 0
    parts = tmp_path / "parts"
    whole = sample(ellipse.scene, n, 5, engine=StrikeEngine("mjx"), checkpoint_dir=parts)
    assert (
        sum(abs(whole.end_counts[k] - theirs.end_counts[k]) for k in theirs.end_counts) <= 2
    )  # where a strike parts may be a matter of rounding
    assert (whole.before == theirs.before).all() and (whole.theta == theirs.theta).all()
    assert (
        np.abs(whole.after - theirs.after).max() < 1e-6 * np.abs(theirs.after).max()
        and whole.source == "simulated in MJX"
    )
    with pytest.raises(DataError, match="another sampling job"):
        sample(ellipse.scene, n, 5, checkpoint_dir=parts)
    (parts / "shard-00001.safetensors").unlink()
    counted = MjxImpactSimulator.__call__

    def call(
        self: MjxImpactSimulator, before: np.ndarray, theta: np.ndarray, **rest: float
    ) -> ImpactOutcome:
        nonlocal calls
        calls += len(before)
        return counted(self, before, theta, **rest)

    monkeypatch.setattr(MjxImpactSimulator, "__call__", call)
    for by in ("mjx", "auto"):  # what was begun by MJX goes on in MJX, without measuring again
        command.run(
            SampleOptions(
                "ellipse",
                out,
                samples=n,
                seed=5,
                engine=by,
                checkpoint_dir=str(parts),
                overwrite=True,
            )
        )
        again = read_impacts(out)
        assert (again.after == whole.after).all() and again.source == "simulated in MJX"
        assert calls == (SIZE if by == "mjx" else n + SIZE)
        sample(ellipse.scene, n, 5, engine=StrikeEngine("mjx"), checkpoint_dir=parts)
        calls = n + SIZE
    assert "were made by mjx" in capsys.readouterr().out
    with pytest.raises(ParamError, match="leave out --threads and --executor"):
        command.run(
            SampleOptions(
                "ellipse",
                tmp_path / "other.safetensors",
                engine="mjx",
                execution=ExecutionOptions("ray"),
            )
        )


def test_several_shards_in_one_call_are_the_same_shards(
    ellipse: MjxImpactSimulator, monkeypatch
) -> None:
    monkeypatch.setattr(sampling, "_SHARD", SIZE // 3)
    one = sampling._Sampler(ellipse.scene, SIZE, 4, StrikeEngine("mjx"))
    three = sampling._Sampler(ellipse.scene, SIZE, 4, StrikeEngine("mjx"))
    one.__dict__.update(
        run_strikes=ellipse, shards_per_call=1
    )  # as they would be measured on a GPU
    three.__dict__.update(run_strikes=ellipse, shards_per_call=3)
    for shard in ((0, SIZE // 3), (1, SIZE // 3), (2, SIZE // 3)):
        alone, among = one(shard), three(shard)
        assert all(np.array_equal(alone[k], among[k]) for k in ("before", "theta"))
        same = (alone["end"] == among["end"]) & (np.abs(alone["steps"] - among["steps"]) <= 1)
        assert same.mean() > 0.95  # where a strike parts may be a matter of rounding
        np.testing.assert_allclose(alone["after"][same], among["after"][same], rtol=1e-6, atol=1e-9)
    assert not three._run_in_advance


def test_the_faster_engine_is_measured(ellipse: MjxImpactSimulator) -> None:
    by, why = fastest_engine(ellipse.scene, SIZE, 0)
    assert (
        by in ("mujoco", "mjx")
        and "MuJoCo runs" in why
        and "MJX runs" in why
        and why.count("strikes/s") == 2
    )


@pytest.mark.slow
def test_32_bits_are_as_near_as_documented_and_rates_are_those_of_whole_calls() -> None:
    found = compare_with_mujoco("ellipse", 128, single=True)
    assert (
        found["same_end"] == 1 and 1e-9 < found["median"] < 1e-5 and found["percentile_99"] < 1e-3
    )  # not those of 64 bits
    theirs, mine = measure_rates("ellipse", (32,), single=True, batches_per_lane=2)
    assert (
        theirs["what"] == "strikes in MuJoCo"
        and mine["what"] == "strikes in MJX"
        and mine["method"].startswith("32 at once on ")
        and mine["method"].endswith("float32")
    )
    assert mine["compile_s"] > 0 and mine["steps_per_second"] > 10 * mine["per_second"]
