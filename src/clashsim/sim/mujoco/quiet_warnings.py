"""MuJoCo's warnings of simulations that a search tries and rejects are not printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco


@contextmanager
def without_warnings() -> Iterator[None]:
    """Let MuJoCo neither print warnings nor write them to its log, as of unstable simulations."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
