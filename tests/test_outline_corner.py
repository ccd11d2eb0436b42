"""Strikes that touch a corner are known from those that do not."""

from __future__ import annotations

import numpy as np
import pytest

from clashsim.core.outline import at_corner

SQUARE = np.array([[-0.05, -0.05], [0.05, -0.05], [0.05, 0.05], [-0.05, 0.05]])


@pytest.mark.parametrize(
    ("point", "corner"),
    [
        ((0.06, 0.06), True),
        ((0.06, 0.0), False),
        ((0.06, 0.0492), True),
        ((0.06, 0.047), False),
        ((-0.051, -0.07), True),
    ],
)
def test_a_tip_beyond_a_corner_touches_it(point, corner):
    assert at_corner(SQUARE, np.array(point)) is corner
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert at_corner(SQUARE @ rotation.T, rotation @ np.array(point)) is corner


def test_what_is_round_has_no_corners():
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    ring = 0.05 * np.stack([np.cos(angle), np.sin(angle)], 1)
    assert not any(at_corner(ring, 1.2 * p) for p in ring)
