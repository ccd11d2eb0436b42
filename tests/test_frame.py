"""Contact frames: what moving the whole world must not change, and the way back."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clashsim.core.angles import rotate_planar
from clashsim.core.contact_frame import contact_frame
from clashsim.core.effects import PointContact, point_contact_impulse, with_effects
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.fit.sample import sample


@cache
def strikes() -> tuple[Scene, Impacts]:
    scene = Scene.load("square")
    return scene, sample(scene, 60, 0)


@settings(max_examples=15, deadline=None)
@given(st.floats(-3, 3), st.floats(-2, 2), st.floats(-2, 2))
def test_rotating_and_shifting_the_world_changes_no_feature(
    angle: float, dx: float, dy: float
) -> None:
    scene, impacts = strikes()
    before = impacts.before.copy()
    after = impacts.after.copy()
    motion = MotionBefore.of(before)
    for body in (motion.struck, motion.striker):
        body.position[:] = rotate_planar(body.position, angle) + np.array([dx, dy])
        body.velocity[:] = rotate_planar(body.velocity, angle)
    # The striker is a ball on slides: it cannot rotate, and need not.
    motion.struck.yaw[:] += angle
    after[:, :2] = rotate_planar(after[:, :2], angle)
    frame = contact_frame(scene, impacts)
    moved_frame = contact_frame(scene, replace(impacts, before=before, after=after))
    in_striker_axes = ("striker_x", "striker_y", "striker_nx", "striker_ny")
    columns = [i for i, name in enumerate(frame.names) if name not in in_striker_axes]
    assert np.allclose(frame.features[:, columns], moved_frame.features[:, columns], atol=2e-4)
    assert np.allclose(frame.encode(impacts.after), moved_frame.encode(after), atol=2e-4)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.2, 5))
def test_speed_scales_out(factor: float) -> None:
    scene, impacts = strikes()
    before = impacts.before.copy()
    MotionBefore.of(before).struck.twist[:] *= factor
    MotionBefore.of(before).striker.twist[:] *= factor
    frame = contact_frame(scene, impacts)
    faster = contact_frame(scene, replace(impacts, before=before))
    assert np.allclose(frame.features[:, :-1], faster.features[:, :-1], atol=1e-6)
    assert np.allclose(
        frame.encode(impacts.after), faster.encode(impacts.after * factor), atol=1e-6
    )


def test_encode_and_decode_are_inverse() -> None:
    scene, impacts = strikes()
    frame = contact_frame(scene, impacts)
    assert np.allclose(frame.decode(frame.encode(impacts.after)), impacts.after, atol=1e-12)


def _impulse(**values: float) -> np.ndarray:
    """Impulse (2,) along (normal, tangent) of one point contact."""
    defaults = {
        "normal_velocity": -1.0,
        "tangential_velocity": 0.0,
        "normal_arm": -1.5,
        "tangential_arm": 0.0,
        "restitution": 0.7,
        "friction": 0.3,
        "stiffness_ratio": 2.0,
        "mass_ratio": 0.0,
    }
    chosen = defaults | values
    contact = PointContact(**{name: np.array([value]) for name, value in chosen.items()})
    return point_contact_impulse(contact)[0]


def test_a_point_contact_has_its_restitution_and_obeys_friction() -> None:
    for restitution in (0.3, 0.6, 0.95):
        assert abs(_impulse(restitution=restitution)[0] - (1 + restitution)) < 0.02
    normal, tangential = _impulse(tangential_velocity=5.0, friction=0.1)
    assert np.isclose(tangential, -0.1 * normal, rtol=1e-6)  # slides throughout
    assert abs(_impulse(tangential_velocity=0.0)[1]) < 1e-12


def test_a_point_contact_reverses_slip_only_with_a_tangential_spring() -> None:
    def slip_after(ratio: float) -> float:
        impulse = _impulse(
            tangential_velocity=0.3, friction=0.5, restitution=0.9, stiffness_ratio=ratio
        )
        return float(0.3 + (1 + 1.5**2) * impulse[1])

    # Half a swing of the tangential spring gives the slip back, reversed.
    assert slip_after(0.3) < -0.2
    # A whole swing leaves it; never more than there was.
    assert abs(slip_after(1.2)) <= 0.3 + 1e-3
    assert _impulse(mass_ratio=0.5)[0] < _impulse()[0]


def test_recorded_offsets_keep_the_motion() -> None:
    scene = Scene.load("ellipse")
    plain = scene.with_params([p for p in scene.params if p.target == "effect/yaw"])
    impacts = sample(plain, 20, 0)
    zero = np.zeros((20, 1))
    before, after = with_effects(
        plain, impacts.before, impacts.after, zero, usable=np.ones(20, bool)
    )
    assert (before == impacts.before).all() and (after == impacts.after).all()
    before, _ = with_effects(
        plain, impacts.before, impacts.after, zero + 0.05, usable=np.ones(20, bool)
    )
    assert np.allclose(MotionBefore.of(before).struck.yaw - impacts.motion.struck.yaw, 0.05)


def test_the_orientation_of_a_ball_does_not_matter() -> None:
    scene = Scene.load("semi_cylinder")
    impacts = sample(scene, 20, 0)
    before = impacts.before.copy()
    MotionBefore.of(before).striker.yaw[:] += np.linspace(-3, 3, 20)
    frame = contact_frame(scene, impacts)
    rotated = contact_frame(scene, replace(impacts, before=before))
    np.testing.assert_allclose(frame.features, rotated.features, atol=1e-9)
    np.testing.assert_allclose(frame.relative_orientation, rotated.relative_orientation, atol=1e-9)
