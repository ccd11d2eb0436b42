"""Sampling: ends of impacts, the same bits however it is run, conservation, symmetry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.params import Param
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.core.strike_distribution import StrikeDistribution
from clashsim.fit import sample as sampling
from clashsim.fit.sample import sample, sample_strikes
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.sim.mujoco.impacts import ImpactEnd, ImpactSimulator

BALLS = """<mujoco><option gravity="0 0 0" timestep="0.0001"/><worldbody>
<body name="a"><freejoint/><geom name="a" type="box" size=".05 .04 .03" density="800"/></body>
<body name="b" pos="1 0 0"><freejoint/><geom name="b" type="sphere" size=".04" density="2000"/>
</body></worldbody><contact><pair name="strike" geom1="a" geom2="b" solref="-200000 -100"
friction="0.3 0.3 .005 .0001 .0001"/></contact></mujoco>"""


def free_pair() -> Scene:
    return Scene(
        BALLS,
        "a",
        "b",
        strikes=StrikeDistribution(speed=(0.5, 2.0), deflection=(-0.5, 0.5), spin=(-5, 5)),
        params=(Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),),
    )


@pytest.mark.parametrize("name", shipped_scenes())
def test_impacts_of_shipped_scenes_end(name: str) -> None:
    impacts = sample(Scene.load(name), 200, 3)
    assert sum(impacts.end_counts.values()) == 200
    assert impacts.end_counts["parted"] + impacts.end_counts["settled"] == len(impacts) >= 190
    assert np.isfinite(impacts.after).all()


def test_same_bits_at_any_number_of_threads_and_from_shards(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "_SHARD", 64)
    scene = Scene.load("ellipse")
    plain = sample(scene, 150, 7)
    for other in (
        sample(scene, 150, 7, engine=StrikeEngine(threads=1)),
        sample(scene, 150, 7, checkpoint_dir=tmp_path / "p"),
        sample(scene, 150, 7, checkpoint_dir=tmp_path / "p"),
    ):
        assert (other.before == plain.before).all()
        assert (other.after == plain.after).all()
        assert (other.theta == plain.theta).all()
    assert not (sample(scene, 150, 8).after == plain.after).all()


def test_shards_that_are_damaged_or_of_another_job(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "_SHARD", 64)
    scene = Scene.load("ellipse")
    parts = tmp_path / "p"
    first = sample(scene, 130, 1, checkpoint_dir=parts)
    (parts / "shard-00001.safetensors").write_bytes(b"cut short")
    assert (sample(scene, 130, 1, checkpoint_dir=parts).after == first.after).all()
    with pytest.raises(DataError, match="another sampling job"):
        sample(scene, 130, 2, checkpoint_dir=parts)


def test_an_impact_without_an_end_is_counted_not_kept() -> None:
    scene = Scene.load("semi_cylinder")
    strikes = sample_strikes(scene, 8, np.random.default_rng(0))
    outcome = ImpactSimulator(scene, 8)(strikes.before, strikes.theta, duration=0.0004)
    assert (outcome.end == ImpactEnd.UNFINISHED).all()
    assert not outcome.usable.any()


def test_free_bodies_in_space_part_and_the_struck_one_takes_momentum_along_the_normal() -> None:
    scene = free_pair()
    impacts = sample(scene, 200, 0)
    assert not impacts.planar
    assert len(impacts) > 190
    frame = contact_frame(scene, impacts)
    gain = frame.encode(impacts.after)[:, 0]
    assert (gain > 0).all()
    light = inertia(scene, scene.struck_body).mass / inertia(scene, scene.striker_body).mass
    # A central elastic hit gives at most 2 / (1 + m / M) of the approach speed.
    assert gain.max() < 2 / (1 + light) + 1e-6


def test_mirrored_strikes_have_mirrored_outcomes() -> None:
    scene = Scene.load("puck")
    strikes = sample_strikes(scene, 100, np.random.default_rng(1))
    flip = np.array([1, -1, -1, 1, -1, -1] * 2)
    run = ImpactSimulator(scene, 100)
    theta = np.tile(scene.nominal, (100, 1))
    a = run(strikes.before, theta).after
    b = run(strikes.before * flip, theta).after
    assert np.allclose(a * [1, -1, -1], b, atol=1e-6 * np.abs(a).max())


def test_touch_finds_the_surface_and_forgives_recorded_poses() -> None:
    scene = Scene.load("ellipse")
    strikes = sample_strikes(scene, 50, np.random.default_rng(2))
    shifted = strikes.before.copy()
    direction = shifted[:, 3:5] / np.linalg.norm(shifted[:, 3:5], axis=1, keepdims=True)
    shifted[:, :2] += (
        np.linspace(-0.01, 0.01, 50)[:, None] * direction
    )  # short of contact, or overlapping, along the approach
    contact, back = advance_to_contact(scene, shifted)
    assert contact.touching.all()
    assert np.allclose(back[:, :2], strikes.before[:, :2], atol=1e-4)


def test_bodies_that_never_meet_are_refused() -> None:
    scene = Scene.load("puck")
    impacts = sample(scene, 5, 0)
    away = replace(impacts, before=impacts.before * np.array([1, 1, 1, -1, 1, 1, *[1] * 6]))
    with pytest.raises(DataError, match="do not meet"):
        contact_frame(scene, away)


def test_zero_strikes_are_refused() -> None:
    with pytest.raises(DataError, match="at least 1"):
        sample(Scene.load("puck"), 0, 0)
